//! The calls at both ends of each message.

use crate::job_calls::{ANY, BegunOperation, CallsError, JobCalls, MessageEnd, MessageRole};
use crate::messages::match_messages;

/// A call: its timeline and index.
pub(crate) type CallPlace = (u32, u32);

impl JobCalls {
    /// Matches the messages of the job. Passes on, for each message, the call that sends it or starts to, and the call in
    /// which it was received: timeline and index of both, in the order of the sends. Returns the number of sends and
    /// receives that have no known other end.
    ///
    /// # Errors
    /// [`CallsError`], if the calls contradict themselves.
    pub fn each_message(&self, mut visit: impl FnMut((u32, u32), (u32, u32))) -> Result<u64, CallsError> {
        self.check()?;
        let matched = match_messages(self);
        let completed_in = self.completing_calls();
        let mut without_partner = 0;
        for (timeline, calls) in self.timelines.iter().enumerate() {
            for (number, end) in calls.message_ends.iter().enumerate() {
                // Negative are MPI_PROC_NULL and other values that are no rank.
                let is_message = end.peer >= 0 || end.peer == ANY;
                if end.role == MessageRole::Probe || !is_message {
                    continue;
                }
                let Some(partner) = matched.partner(timeline, number) else {
                    without_partner += 1;
                    continue;
                };
                if !end.role.is_send() {
                    continue;
                }
                let (receiver, received) = (partner.timeline as usize, partner.end as usize);
                let posted = (partner.timeline, self.timelines[receiver].message_ends[received].call);
                visit((timeline as u32, end.call), completed_in[receiver][received].unwrap_or(posted));
            }
        }
        Ok(without_partner)
    }

    /// Returns the call that completed each message end, by timeline.
    pub(crate) fn completing_calls(&self) -> Vec<Vec<Option<CallPlace>>> {
        let blocking = |timeline: u32, end: &MessageEnd| end.is_blocking.then_some((timeline, end.call));
        let mut calls: Vec<Vec<Option<CallPlace>>> = (0u32..)
            .zip(&self.timelines)
            .map(|(timeline, calls)| calls.message_ends.iter().map(|end| blocking(timeline, end)).collect())
            .collect();
        for (timeline, completions) in (0u32..).zip(self.timelines.iter().map(|calls| &calls.completions)) {
            for completion in completions {
                if let BegunOperation::Message(end) = completion.operation {
                    calls[completion.begun_on as usize][end as usize] = Some((timeline, completion.call));
                }
            }
        }
        calls
    }
}
