//! Inputs and merge ranks that are left out when the merge restarts, because inputs vanished.

use crate::input::listing::ListedFile;
use crate::input::plan::{LostCause, LostRows};
use rpd_console::wording::one_line;
use rpd_console::{Failure, VanishedInput};
use rpd_files::open_input;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Maximum number of restarts. If inputs vanish as fast as they are read, more restarts do not help.
const MAX_RESTARTS: usize = 16;

/// Inputs and ranks that are excluded after restarts.
#[derive(Debug, Default)]
pub(crate) struct ExcludedInputs {
    restarts: usize,
    /// Inputs that are not merged.
    vanished: Vec<VanishedInput>,
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
        self.restarts += 1;
        if self.restarts > MAX_RESTARTS {
            let names: BTreeSet<_> = all.iter().map(|input| input.path.display().to_string()).collect();
            let names: Vec<_> = names.into_iter().collect();
            return Err(Failure::input(format!(
                "gave up after {MAX_RESTARTS} restarts: inputs keep changing during the merge (last: {}); merge after the job has finished writing",
                names.join(", ")
            )));
        }
        for input in all {
            let VanishedInput { path, rank, is_missing, .. } = &input;
            if *rank > 0 && *is_missing && open_input(path).is_ok() {
                if self.blind.iter().all(|(blind, _)| blind != rank) {
                    self.blind.push((*rank, path.clone()));
                }
            } else if !self.vanished.iter().any(|known| known.path == *path) {
                self.vanished.push(input);
            }
        }
        Ok(())
    }

    /// Returns the merge ranks that get no inputs.
    pub(crate) fn ranks_without_access(&self) -> Vec<usize> {
        self.blind.iter().map(|(rank, _)| *rank).collect()
    }

    /// Returns a note for each rank that reads no inputs.
    pub(crate) fn notes(&self) -> impl Iterator<Item = String> {
        self.blind.iter().map(|(rank, path)| {
            let path = path.display();
            format!("merge rank {rank} cannot read {path}, but rank 0 can; the other ranks read all inputs")
        })
    }

    /// Marks the listed files that have become unreadable.
    pub(crate) fn mark(&self, files: &mut [ListedFile]) {
        for listed in files {
            if let Some(input) = self.vanished.iter().find(|input| input.path == listed.path) {
                let (path, reason) = (input.path.display(), &input.reason);
                listed.format = Err(format!("{path}: it vanished or changed during the merge ({reason})"));
            }
        }
    }

    /// Returns whether a listed file has become unreadable.
    pub(crate) fn has(&self, path: &Path) -> bool {
        self.vanished.iter().any(|input| input.path == path)
    }

    /// Returns the rows that are lost with the vanished inputs.
    pub(crate) fn lost(&self) -> Vec<LostRows> {
        let lost = |table, rows| LostRows { table, cause: LostCause::InputVanished, rows, file: None };
        let of_input = |input: &VanishedInput| match &input.rows {
            Some(rows) => rows.iter().map(|(table, rows)| lost(Some(table.clone()), Some(*rows))).collect(),
            None => vec![lost(None, None)],
        };
        self.vanished.iter().flat_map(of_input).collect()
    }
}
