//! Detects outputs that some of AMD's commands would misread.

use super::MergeReport;
use crate::agree::processes::JobProcesses;
use crate::options::TableLayout;
use rpd_console::wording::grouped;

/// Table sets that ROCm Optiq can show.
const MAX_OPTIQ_SETS: usize = 256;
/// Streams, and tracks, that ROCm Optiq can tell apart.
const MAX_OPTIQ_TRACKS: u64 = 65_535;

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

    /// Adds a note about what ROCm Optiq would show wrongly because of the width of its numbers. `sets` are the table sets
    /// of the output, `high_agents` the allocations at agents above 255.
    pub(crate) fn note_optiq(&mut self, sets: usize, high_agents: u64) {
        let rows =
            |table: &str| self.rows.iter().find(|rows| rows.table == table).map_or(0, |rows| rows.rows);
        let mut limits = Vec::new();
        if high_agents > 0 {
            limits.push(format!(
                "{} of {} allocations at another agent, as it keeps one byte of an agent ({} agents)",
                grouped(high_agents),
                grouped(rows("rocpd_memory_allocate")),
                grouped(rows("rocpd_info_agent")),
            ));
        }
        if sets > MAX_OPTIQ_SETS {
            limits.push(format!("only {MAX_OPTIQ_SETS} of {sets} table sets"));
        }
        for (table, noun) in [("rocpd_info_stream", "streams"), ("rocpd_track", "tracks")] {
            if rows(table) > MAX_OPTIQ_TRACKS {
                limits.push(format!(
                    "only {} of {} {noun} apart",
                    grouped(MAX_OPTIQ_TRACKS),
                    grouped(rows(table))
                ));
            }
        }
        if !limits.is_empty() {
            self.notes.push(format!("ROCm Optiq would show {}", limits.join("; ")));
        }
    }
}
