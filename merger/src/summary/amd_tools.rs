//! Detects outputs that some of AMD's commands would misread.

use super::MergeReport;
use crate::agree::processes::JobProcesses;
use crate::options::TableLayout;

impl MergeReport {
    /// Adds a note about `rocpd summary --summary-by-rank`, which takes a guid for a rank. With this output it would
    /// add up calls of several processes, or count one process several times. The note says what to do instead.
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
