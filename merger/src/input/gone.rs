//! Inputs that vanish, shrink or become unreadable during a merge. The merge restarts without them.

use super::find::ListedFile;
use super::input_survey::InputSurvey;
use super::lost::{LostCause, LostRows};
use super::schema::JobSchema;
use rpd_console::wording::one_line;
use rpd_console::{Failure, VanishedInput};
use rpd_files::open_input;
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::error::Error;
use std::io;
use std::path::{Path, PathBuf};

/// Maximum number of restarts. If inputs vanish as fast as they are read, more restarts do not help.
const MOST_TIMES: usize = 16;

/// Converts an error of an input that was readable before. If the system lacks descriptors or memory, the input is
/// not the cause, and a restart would fail as well. The result is then no vanished input.
pub(crate) fn changed(path: &Path, error: &(dyn Error + 'static)) -> Failure {
    let mut cause = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    let system = cause.downcast_ref::<io::Error>();
    let errno = system.and_then(Errno::from_io_error);
    if errno.is_some_and(|errno| [Errno::MFILE, Errno::NFILE, Errno::NOMEM].contains(&errno)) {
        return Failure::input(format!("{}: {cause}; raise the limit, and merge again", path.display()));
    }
    let reason = cause.to_string();
    Failure::inputs_vanished(vec![VanishedInput {
        path: path.to_owned(),
        is_missing: errno.is_some_and(|errno| [Errno::NOENT, Errno::ACCESS, Errno::STALE].contains(&errno)),
        reason,
        rank: 0,
        rows: None,
    }])
}

/// Adds the known row counts of the vanished inputs to a failure.
pub(crate) fn with_rows(failure: Failure, surveys: &[InputSurvey], schema: &JobSchema) -> Failure {
    let mut all = match failure.into_vanished_inputs() {
        Ok(all) => all,
        Err(failure) => return failure,
    };
    for gone in &mut all {
        let survey = surveys.iter().find(|survey| survey.input.path() == gone.path);
        gone.rows = survey.map(|survey| {
            let rows = survey.rows_read.iter().filter(|(_, rows)| **rows > 0);
            rows.map(|(table, rows)| (schema.name(*table).into_owned(), *rows)).collect()
        });
    }
    Failure::inputs_vanished(all)
}

/// Inputs and ranks that are excluded after restarts.
#[derive(Debug, Default)]
pub(crate) struct ExcludedInputs {
    times: usize,
    /// Inputs that are not merged.
    gone: Vec<VanishedInput>,
    /// Merge ranks that cannot read inputs which rank 0 can read, with one such input for each rank.
    blind: Vec<(usize, PathBuf)>,
    /// Warnings that were printed already.
    printed: BTreeSet<String>,
}

impl ExcludedInputs {
    /// Prints the warnings that were not printed before the merge restarted.
    pub(crate) fn print(&mut self, warnings: Vec<String>) {
        for line in warnings {
            if !self.printed.contains(&line) {
                eprintln!("warning: {}", one_line(&line));
                self.printed.insert(line);
            }
        }
    }

    /// Adds the vanished inputs of all ranks. If rank 0 can open an input, it still exists; then the rank that cannot
    /// open it gets no inputs.
    pub(crate) fn add(&mut self, all: Vec<VanishedInput>) -> Result<(), Failure> {
        self.times += 1;
        if self.times > MOST_TIMES {
            let names: BTreeSet<_> = all.iter().map(|gone| gone.path.display().to_string()).collect();
            let names: Vec<_> = names.into_iter().collect();
            return Err(Failure::input(format!(
                "inputs vanish or change as fast as they are read, now {}: merge when nobody writes them",
                names.join(", ")
            )));
        }
        for gone in all {
            let VanishedInput { path, rank, is_missing, .. } = &gone;
            if *rank > 0 && *is_missing && open_input(path).is_ok() {
                if !self.is_blind(*rank) {
                    self.blind.push((*rank, path.clone()));
                }
            } else if !self.gone.iter().any(|known| known.path == *path) {
                self.gone.push(gone);
            }
        }
        Ok(())
    }

    fn is_blind(&self, rank: usize) -> bool {
        self.blind.iter().any(|(blind, _)| *blind == rank)
    }

    /// Returns the merge ranks that get no inputs.
    pub(crate) fn blind_ranks(&self) -> Vec<usize> {
        self.blind.iter().map(|(rank, _)| *rank).collect()
    }

    /// Returns a note for each rank that reads no inputs.
    pub(crate) fn notes(&self) -> impl Iterator<Item = String> {
        self.blind.iter().map(|(rank, path)| {
            let path = path.display();
            format!("merge rank {rank} cannot read {path}, which rank 0 can: the other ranks read all inputs")
        })
    }

    /// Marks the listed files that have become unreadable.
    pub(crate) fn mark(&self, files: &mut [ListedFile]) {
        for listed in files {
            if let Some(gone) = self.gone.iter().find(|gone| gone.path == listed.path) {
                let (path, reason) = (gone.path.display(), &gone.reason);
                listed.format = Err(format!("{path}: it vanished or changed while it was merged ({reason})"));
            }
        }
    }

    /// Returns whether a listed file has become unreadable.
    pub(crate) fn has(&self, path: &Path) -> bool {
        self.gone.iter().any(|gone| gone.path == path)
    }

    /// Returns the rows that are lost with the vanished inputs.
    pub(crate) fn lost(&self) -> Vec<LostRows> {
        let lost = |gone: &VanishedInput| match &gone.rows {
            Some(rows) => {
                let lost = |(table, rows): &(String, u64)| LostRows {
                    table: Some(table.clone()),
                    cause: LostCause::InputVanished,
                    rows: Some(*rows),
                    file: None,
                };
                rows.iter().map(lost).collect()
            }
            None => vec![LostRows { table: None, cause: LostCause::InputVanished, rows: None, file: None }],
        };
        self.gone.iter().flat_map(lost).collect()
    }
}
