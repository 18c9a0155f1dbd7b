//! Summary lines about shards without an end: either they are still being written, or their collector was killed.

use crate::input::plan::{PlannedInput, StillRunning};
use rpd_console::WallClock;
use rpd_console::wording::{counted, noun, rank_ranges};

impl StillRunning {
    /// Returns a line with the running ranks, the time up to which they are complete, and what to do next. A later
    /// merge replaces a RocPD database (`is_replaced`) without `--force`, but no other file.
    pub(super) fn line(&self, is_replaced: bool) -> String {
        let StillRunning { ranks, shards, complete_up_to_ns } = self;
        let which = match ranks.as_slice() {
            [] => counted(*shards as u64, "process"),
            some => format!("{} {}", noun(some.len() as u64, "rank"), rank_ranges(some)),
        };
        let whole_seconds = WallClock(complete_up_to_ns - complete_up_to_ns.rem_euclid(1_000_000_000));
        let again = match is_replaced {
            true => "merge again when the job is over, and that merge replaces this database",
            false => "merge again with --force when the job is over",
        };
        format!(
            "{which} still running, complete up to {whole_seconds}: what had not ended then is not in it; {again}"
        )
    }
}

/// Describes how far a shard was written that its collector did not finish.
pub(super) fn unfinished(input: &PlannedInput) -> String {
    let path = input.path.display();
    let rank = input.rank.map_or(String::new(), |rank| format!("rank {rank}: "));
    if input.has_no_process && input.shows_command {
        return format!(
            "{rank}its collector still records or was killed before it recorded a call: {path} has the start of the command \
             alone; the log beside it may contain the reason"
        );
    }
    if input.has_no_process {
        return format!(
            "{rank}its collector still records or was killed before it recorded anything: {path} has only its header; the log \
             beside it may contain the reason"
        );
    }
    format!("{rank}{path} was not finished by its collector: merged as far as it goes")
}
