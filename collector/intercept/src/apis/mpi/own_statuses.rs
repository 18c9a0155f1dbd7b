//! Statuses of our own, which MPI fills where the program ignores the status of a receive from any source or
//! with any tag. Without them nothing would say which message it was.
//!
//! The program sees no difference: where it ignores statuses, Open MPI and MPICH return the same error
//! classes, and call error handlers with the same ones, as with statuses. `tests/tests/mpi_calls` checks this.
//!
//! Such a receive may be completed by any function on requests. These get statuses of ours only while one is
//! pending, so programs without them pay for reading a counter.

use super::abi::{MAX_STATUS_BYTES, MpiAbi, MpiPointer};
use super::call::{CallArguments, CallEffect, CompletedRequests};
use super::pointers::{HandleArray, StatusPlaces};
use crate::interpose::inside::CallOutcome;
use crate::interpose::sequence::CommunicatorTable;
use std::mem::MaybeUninit;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

/// Maximum number of statuses of one call, on the stack. A call with more requests is passed on as it is.
const MAX_OWN_STATUSES: usize = 64;

/// Memory for statuses.
pub(super) struct OwnStatuses {
    /// Aligned as C's statuses, of which one has a `size_t`.
    words: [MaybeUninit<u64>; MAX_OWN_STATUSES * MAX_STATUS_BYTES / 8],
}

impl OwnStatuses {
    /// Prepares a number of statuses, at most [`MAX_OWN_STATUSES`], that are not about a message.
    pub(super) fn new(count: usize) -> OwnStatuses {
        let mut own = OwnStatuses { words: [MaybeUninit::uninit(); MAX_OWN_STATUSES * MAX_STATUS_BYTES / 8] };
        let any = u64::from(MpiAbi::get().any_source() as u32);
        for word in own.words.iter_mut().take(count * MAX_STATUS_BYTES / 8) {
            word.write(any | any << 32);
        }
        own
    }

    pub(super) fn address(&mut self) -> MpiPointer {
        self.words.as_mut_ptr().cast()
    }
}

impl CallArguments {
    /// Returns the number of ignored statuses that the call gets replaced by statuses of ours.
    #[inline(always)]
    pub(super) fn statuses_to_replace(&self) -> usize {
        match self.effect {
            CallEffect::Receives(_, statuses) => usize::from(statuses.is_ignored && self.is_of_any()),
            CallEffect::Completes(_, count, completed, statuses)
                if WILDCARDS.is_one_pending() && statuses.is_ignored && count > 0 =>
            {
                let count = match completed {
                    CompletedRequests::One(_) | CompletedRequests::OneIf(..) => 1,
                    _ => usize::try_from(count).unwrap_or(0),
                };
                if count > MAX_OWN_STATUSES { 0 } else { count }
            }
            _ => 0,
        }
    }

    /// Makes the call read statuses of ours.
    pub(super) fn replace_statuses(&mut self, own: &mut OwnStatuses) {
        if let CallEffect::Receives(_, statuses) | CallEffect::Completes(.., statuses) = &mut self.effect {
            *statuses = StatusPlaces::own(own.address());
        }
    }
}

/// Requests of receives from any source or with any tag.
pub(super) struct WildcardReceives {
    /// Number of requests. One that finds no slot counts for ever.
    pending: AtomicUsize,
    requests: CommunicatorTable,
}

pub(super) static WILDCARDS: WildcardReceives = WildcardReceives::new();

impl WildcardReceives {
    const fn new() -> WildcardReceives {
        WildcardReceives { pending: AtomicUsize::new(0), requests: CommunicatorTable::new() }
    }

    #[inline]
    fn is_one_pending(&self) -> bool {
        self.pending.load(Relaxed) != 0
    }

    /// Adds a request, which no other thread knows yet.
    pub(super) fn begin(&self, request: u64) {
        if !self.requests.has(request) {
            self.requests.begin(request);
            self.pending.fetch_add(1, Relaxed);
        }
    }

    /// Removes a request, if it is one.
    pub(super) fn end(&self, request: u64) {
        if self.is_one_pending() && self.requests.has(request) {
            self.requests.end(request);
            self.pending.fetch_sub(1, Relaxed);
        }
    }

    /// Removes the requests of a call that no longer exist. Persistent ones do.
    pub(super) fn end_completed(&self, outcome: &CallOutcome<'_>, requests: HandleArray) {
        if !self.is_one_pending() {
            return;
        }
        let abi = MpiAbi::get();
        for at in 0..outcome.remembered_count() {
            if !abi.is_request(requests.at(at))
                && let Some(request) = outcome.remembered(at).filter(|request| *request != 0)
            {
                self.end(request);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wildcard_is_pending_until_its_request_ends() {
        static RECEIVES: WildcardReceives = WildcardReceives::new();
        assert!(!RECEIVES.is_one_pending());
        RECEIVES.begin(70);
        RECEIVES.begin(71);
        // The handle came again without an end.
        RECEIVES.begin(70);
        RECEIVES.end(72);
        RECEIVES.end(70);
        RECEIVES.end(70);
        assert!(RECEIVES.is_one_pending());
        RECEIVES.end(71);
        assert!(!RECEIVES.is_one_pending());
        // Requests that found no slot count for ever.
        (2..20_000).for_each(|request| RECEIVES.begin(request));
        (2..20_000).for_each(|request| RECEIVES.end(request));
        assert!(RECEIVES.is_one_pending());
    }

    #[test]
    fn statuses_are_not_about_a_message_before_mpi_has_written_them() {
        let mut own = OwnStatuses::new(MAX_OWN_STATUSES);
        for at in 0..MAX_OWN_STATUSES {
            assert_eq!(StatusPlaces::own(own.address()).message(at), None);
        }
    }
}
