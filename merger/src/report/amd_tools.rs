//! Which of AMD's commands would read the output wrongly.

use super::MergeReport;
use crate::agree::processes::JobProcesses;
use crate::cli::TableLayout;

impl MergeReport {
    /// Notes in one line what to do for `rocpd summary --summary-by-rank`, which takes a guid for a rank, where it
    /// would count calls of several processes together or one several times.
    pub fn note_amd_tools(&mut self, layout: TableLayout, processes: &JobProcesses) {
        let is_right = match layout {
            TableLayout::Merged => processes.recorded <= 1,
            TableLayout::Partitioned => processes.are_apart,
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
