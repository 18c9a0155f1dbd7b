//! Matches the start of a request with its completion in another call.

use crate::shard_output::{EventSpan, NameId};
use rpd_ring::record::RequestCompletion;
use std::collections::{HashMap, VecDeque};

/// Maximum number of requests that are remembered per process.
const MAX_PENDING_REQUESTS: usize = 1 << 18;

/// The call that started a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct StartedRequest {
    /// Stack id of the call.
    pub(super) stack: i64,
    /// Name of the function.
    pub(super) name: NameId,
    /// Time of the request.
    pub(super) time: i64,
    /// The request may be a receive, which completes with the status of a message.
    pub(super) may_receive: bool,
    /// The request is persistent.
    pub(super) is_persistent: bool,
    /// Stack id of the call that created a persistent request, if it is known.
    pub(super) init_stack: Option<i64>,
}

/// Requests by handle. Several may have the same handle at a time: MPI libraries give all operations that
/// complete immediately a common request. Those are matched in the order of their starts.
#[derive(Default)]
pub(super) struct PendingRequests {
    started: HashMap<u64, VecDeque<StartedRequest>>,
    /// Completions that were read before their start, which is in the ring of another thread.
    early: HashMap<u64, VecDeque<(RequestCompletion, EventSpan)>>,
    /// Stack ids of the calls that created persistent requests.
    prepared: HashMap<u64, i64>,
    remembered: usize,
    /// Number of completions without a start that was read.
    unmatched: u64,
}

impl PendingRequests {
    /// Adds a persistent request that the call with this stack id has created.
    pub(super) fn prepare(&mut self, request: u64, stack: i64) {
        if self.prepared.len() < MAX_PENDING_REQUESTS || self.prepared.contains_key(&request) {
            self.prepared.insert(request, stack);
        }
    }

    /// Returns the stack id of the call that created a persistent request.
    pub(super) fn init_stack(&self, request: u64) -> Option<i64> {
        self.prepared.get(&request).copied()
    }

    /// Adds the start of a request. Returns its completion if that was read before.
    pub(super) fn start(
        &mut self,
        request: u64,
        started: StartedRequest,
    ) -> Option<(RequestCompletion, EventSpan)> {
        if let Some(early) = self.early.get_mut(&request) {
            // A completion before this start belongs to a start that was not recorded.
            while let Some((completion, seen)) = early.pop_front() {
                self.remembered -= 1;
                if seen.start >= started.time {
                    return Some((completion, seen));
                }
                self.unmatched += 1;
            }
            self.early.remove(&request);
        }
        if self.remembered < MAX_PENDING_REQUESTS {
            self.remembered += 1;
            self.started.entry(request).or_default().push_back(started);
        }
        None
    }

    /// Adds a completion. Returns the call that started the request, if it is known.
    pub(super) fn complete(
        &mut self,
        completion: &RequestCompletion,
        seen: EventSpan,
    ) -> Option<StartedRequest> {
        if let Some(started) = self.take(completion.request) {
            return Some(started);
        }
        if self.remembered < MAX_PENDING_REQUESTS {
            self.remembered += 1;
            self.early.entry(completion.request).or_default().push_back((*completion, seen));
        } else {
            self.unmatched += 1;
        }
        None
    }

    /// Takes the number of completions for which no start will arrive.
    pub(super) fn take_unmatched(&mut self) -> u64 {
        let early: usize = self.early.drain().map(|(_, waiting)| waiting.len()).sum();
        self.remembered -= early;
        std::mem::take(&mut self.unmatched) + early as u64
    }

    /// Removes a request that was freed without a completion.
    pub(super) fn free(&mut self, request: u64) {
        self.take(request);
        self.prepared.remove(&request);
    }

    fn take(&mut self, request: u64) -> Option<StartedRequest> {
        let queue = self.started.get_mut(&request)?;
        let started = queue.pop_front();
        if queue.is_empty() {
            self.started.remove(&request);
        }
        self.remembered -= usize::from(started.is_some());
        started
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn started(stack: i64) -> StartedRequest {
        StartedRequest {
            stack,
            name: NameId(0),
            time: stack,
            may_receive: true,
            is_persistent: false,
            init_stack: None,
        }
    }

    fn seen(start: i64) -> EventSpan {
        EventSpan { source: 1, thread: 1, start, end: None, name: NameId(0), stack: 0, parent: 0 }
    }

    fn completion(request: u64) -> RequestCompletion {
        RequestCompletion { request, ..RequestCompletion::default() }
    }

    #[test]
    fn a_common_request_is_matched_in_order() {
        let mut requests = PendingRequests::default();
        assert_eq!(requests.start(7, started(1)), None);
        assert_eq!(requests.start(7, started(2)), None);
        assert_eq!(requests.complete(&completion(7), seen(3)), Some(started(1)));
        assert_eq!(requests.complete(&completion(7), seen(3)), Some(started(2)));
        assert_eq!(requests.complete(&completion(7), seen(3)), None);
    }

    #[test]
    fn a_completion_may_be_read_before_its_start() {
        let mut requests = PendingRequests::default();
        assert_eq!(requests.complete(&completion(7), seen(5)), None);
        assert_eq!(requests.start(7, started(9)), None, "what is started later was not what completed");
        assert_eq!(requests.complete(&completion(8), seen(5)), None);
        assert_eq!(requests.start(8, started(4)), Some((completion(8), seen(5))));
        assert_eq!(requests.take_unmatched(), 1, "the one of 7");
        requests.complete(&completion(9), seen(10));
        assert_eq!((requests.take_unmatched(), requests.take_unmatched()), (1, 0));
    }

    #[test]
    fn a_freed_request_gives_its_handle_away() {
        let mut requests = PendingRequests::default();
        requests.start(7, started(1));
        requests.free(7);
        requests.start(7, started(2));
        assert_eq!(requests.complete(&completion(7), seen(3)), Some(started(2)));
    }
}
