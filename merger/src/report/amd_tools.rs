//! Which of AMD's commands would read the output wrongly.

use super::Report;
use crate::agree::processes::Processes;
use crate::cli::Layout;

impl Report {
    /// Notes in one line what to do for `rocpd summary --summary-by-rank`, which takes a guid for a rank, where it
    /// would count calls of several processes together or one several times.
    pub fn note_amd_tools(&mut self, layout: Layout, processes: &Processes) {
        let is_right = match layout {
            Layout::Merged => processes.recorded <= 1,
            Layout::Partitioned => processes.are_apart,
        };
        let remedy = match processes.are_apart {
            true => "merge with --layout partitioned",
            false => "ask with SQL, as docs/MERGING.md shows",
        };
        if !is_right {
            let command = "rocpd summary --summary-by-rank";
            self.notes.push(format!("{command} takes a guid for a rank and is wrong here: for it, {remedy}"));
        }
    }
}
