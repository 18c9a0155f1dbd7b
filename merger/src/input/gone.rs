//! Inputs that vanish, shrink or become unreadable while they are merged: the merge begins anew without
//! them.

use super::find::ListedFile;
use super::lost::{LostCause, LostRows};
use super::schema::JobSchema;
use super::survey::InputSurvey;
use rpd_console::wording::one_line;
use rpd_console::{Failure, VanishedInput};
use rpd_files::open_input;
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::error::Error;
use std::io;
use std::path::{Path, PathBuf};

/// How often a merge begins anew. It is in vain where inputs go as fast as they are read.
const MOST_TIMES: usize = 16;

/// What was read before cannot be read now. Where the system has no room for open files or memory, the input
/// is not to blame, and the next one would fare no better.
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

/// The same failure, with the rows that are known of the inputs.
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

/// What was found out since the inputs were listed.
#[derive(Debug, Default)]
pub(crate) struct ExcludedInputs {
    times: usize,
    /// Inputs that are not merged.
    gone: Vec<VanishedInput>,
    /// Merge ranks that cannot read what rank 0 can, and an input of each.
    blind: Vec<(usize, PathBuf)>,
    /// Lines that the user has read.
    printed: BTreeSet<String>,
}

impl ExcludedInputs {
    /// Prints the warnings that were not printed before the merge began anew.
    pub(crate) fn print(&mut self, warnings: Vec<String>) {
        for line in warnings {
            if !self.printed.contains(&line) {
                eprintln!("warning: {}", one_line(&line));
                self.printed.insert(line);
            }
        }
    }

    /// Takes what all ranks agreed on. An input that rank 0 can open is still there: the rank that cannot
    /// gets none to read.
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

    /// The merge ranks that get no input to read.
    pub(crate) fn blind_ranks(&self) -> Vec<usize> {
        self.blind.iter().map(|(rank, _)| *rank).collect()
    }

    /// A line for each rank that reads nothing.
    pub(crate) fn notes(&self) -> impl Iterator<Item = String> {
        self.blind.iter().map(|(rank, path)| {
            let path = path.display();
            format!("merge rank {rank} cannot read {path}, which rank 0 can: the other ranks read all inputs")
        })
    }

    /// Marks the listed files that cannot be read any more.
    pub(crate) fn mark(&self, files: &mut [ListedFile]) {
        for listed in files {
            if let Some(gone) = self.gone.iter().find(|gone| gone.path == listed.path) {
                let (path, reason) = (gone.path.display(), &gone.reason);
                listed.format = Err(format!("{path}: it vanished or changed while it was merged ({reason})"));
            }
        }
    }

    /// Whether a listed file cannot be read any more.
    pub(crate) fn has(&self, path: &Path) -> bool {
        self.gone.iter().any(|gone| gone.path == path)
    }

    /// What is lost with them.
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
