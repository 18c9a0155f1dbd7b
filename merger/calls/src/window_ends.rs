//! Counts the messages before a window, so that those in it match as in the whole run.

use crate::thread_calls::ThreadTimeline;
use rpd_graph::{MessageEnd, MessageRole};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The message ends of a process before a window.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct EarlierEnds {
    /// Number of ends before the window by communicator of the unit, peer, tag, and whether they send.
    pub(crate) counts: BTreeMap<(u32, i32, i32, bool), u32>,
    /// Whether the ends in the window do not follow those before it, so that their places in the run are not known.
    pub(crate) are_displaced: bool,
}

impl EarlierEnds {
    /// Compares the calls of a process in a window, which begins at `from`, with all its calls. Gives receives in the
    /// window the actual source and tag, which a completion after the window may show.
    pub(crate) fn find(in_window: &mut [ThreadTimeline], all: &[ThreadTimeline], from: i64) -> EarlierEnds {
        let mut found = EarlierEnds::default();
        for whole in all {
            let enter_of = |end: &MessageEnd| whole.calls[end.call as usize].enter_ns;
            let ends = &whole.operations.message_ends;
            let (before, rest) = ends.split_at(ends.partition_point(|end| enter_of(end) < from));
            for end in before.iter().filter(|end| end.role != MessageRole::Probe) {
                let form = (end.communicator, end.peer, end.tag, end.role.is_send());
                *found.counts.entry(form).or_default() += 1;
            }
            let Some(part) = in_window.iter_mut().find(|part| part.thread == whole.thread) else { continue };
            let (calls, ends) = (&part.calls, &mut part.operations.message_ends);
            let is_same = |(own, other): (&MessageEnd, &MessageEnd)| {
                (calls[own.call as usize].enter_ns, own.communicator, own.role)
                    == (enter_of(other), other.communicator, other.role)
            };
            if ends.len() > rest.len() || !ends.iter().zip(rest).all(is_same) {
                found.are_displaced = true;
                continue;
            }
            for (own, other) in ends.iter_mut().zip(rest) {
                (own.peer, own.tag) = (other.peer, other.tag);
            }
        }
        found
    }
}
