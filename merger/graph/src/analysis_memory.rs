//! Memory that the analysis of a job takes.

use crate::instances::Member;
use crate::job_calls::{
    Call, CallTimeline, CollectiveEntry, Completion, JobCalls, LocalDependency, MessageEnd, WorkSegment,
};
use crate::waits::CallWait;

/// Bytes that the matching of messages takes for each end: its partner, its place in a channel, and the call that completes
/// it.
const MATCHED_END_BYTES: usize = 24;
/// Bytes that a dependency takes.
const DEPENDENCY_BYTES: usize = 12;
/// Bytes that a call takes in replays: its plan, its first work, when it was entered, its typical work, and its part of
/// sums.
const REPLAYED_CALL_BYTES: usize = 48;
/// Bytes that a collective takes for each member, beside the entry and its waits, also where a slow network lengthens it.
const MEMBER_BYTES: usize = size_of::<Member>() + 24;

impl JobCalls {
    /// Returns about how many bytes the calls and their analysis take, at most.
    pub fn analysis_bytes(&self) -> u64 {
        let of_timeline = |timeline: &CallTimeline| {
            let CallTimeline { message_ends, completions, .. } = timeline;
            let lengths = [
                timeline.calls.len(),
                timeline.work.len(),
                timeline.entries.len(),
                timeline.local_dependencies.len(),
            ];
            CallTimeline::analysis_bytes(lengths, message_ends, completions)
        };
        self.timelines.iter().map(of_timeline).fold(0, u64::saturating_add)
    }
}

impl CallTimeline {
    /// Returns about how many bytes a timeline and its analysis take, at most: with so many calls, segments of work,
    /// collective entries and local dependencies.
    pub fn analysis_bytes(
        [calls, work, entries, local]: [usize; 4],
        message_ends: &[MessageEnd],
        completions: &[Completion],
    ) -> u64 {
        let kept = size_of::<Call>() * calls
            + size_of::<WorkSegment>() * work
            + (size_of::<CollectiveEntry>() + MEMBER_BYTES) * entries
            + size_of::<LocalDependency>() * local;
        // About half of the ends of messages depend on the other end.
        let dependencies = DEPENDENCY_BYTES * (message_ends.len().div_ceil(2) + entries + local);
        let matching = (size_of::<MessageEnd>() + MATCHED_END_BYTES) * message_ends.len()
            + size_of_val(completions)
            + 4 * calls;
        // Replays come after messages were released.
        let completing = completions.chunk_by(|one, other| one.call == other.call).count();
        let blocking = message_ends.iter().filter(|end| end.is_blocking).count();
        let waits = size_of::<CallWait>() * (completing + blocking + entries + local);
        let replaying = REPLAYED_CALL_BYTES * calls + waits;
        (kept + dependencies + matching.max(replaying)) as u64
    }
}
