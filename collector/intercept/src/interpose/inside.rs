//! A running MPI or RCCL function of the program: its entry, its outcome and its exit.

use crate::runtime::settings::{self, TracedApi};
use crate::runtime::thread::{MAX_REMEMBERED_REQUESTS, RunningCall, ThreadRecorder, ThreadState, with_local};
use rpd_ring::RingProducer;
use rpd_ring::layout::{DropCause, DroppedKind};
use rpd_ring::record::{MpiCall, RcclCall, RecordedLibrary};
use std::{mem, ptr};

/// A running function. Its end is recorded by [`TracedCall::end`], and also if it returns by an exception, which drops this. A
/// `longjmp` drops nothing, which is detected at the next function of the library.
pub(crate) struct TracedCall {
    library: RecordedLibrary,
    /// This is the outermost function of the library. Libraries call their own functions.
    is_outermost: bool,
    /// See [`TracedCall::is_traced`].
    is_traced: bool,
    /// Number of request handles that were stored.
    remembered: usize,
}

impl TracedCall {
    /// A function of the library begins.
    #[inline(always)] // `here` is in the frame of a function that runs as long as this.
    pub(crate) fn begin(library: RecordedLibrary) -> TracedCall {
        let here = 0u8;
        // Stacks grow down: the frame of a called function is below.
        let frame = (&raw const here).addr();
        with_local(|local| {
            let running = running(local, library);
            let outer = running.frame.get();
            let is_outermost = outer <= frame;
            if is_outermost {
                if outer != 0 {
                    abandoned(local, library);
                }
                running.frame.set(frame);
            }
            let is_traced = is_outermost && settings::is_traced(api(library));
            TracedCall { library, is_outermost, is_traced, remembered: 0 }
        })
    }

    /// Whether the program itself called, and calls of this library are to be recorded. Such calls are
    /// counted even during a pause.
    #[inline]
    pub(crate) fn is_traced(&self) -> bool {
        self.is_traced
    }

    /// Whether the call is to be recorded now.
    #[inline]
    pub(crate) fn is_recorded(&self) -> bool {
        self.is_outermost && with_local(|local| local.records(api(self.library)))
    }

    /// Records the begin of an MPI call. Only if [`TracedCall::is_recorded`].
    #[inline]
    pub(crate) fn begin_mpi(&self, call: &MpiCall) {
        with_local(|local| {
            local.record(DroppedKind::MpiCall, |recorder| {
                if recorder.producer.mpi_enter(recorder.clock.now(), call) {
                    local.mpi.recorder.set(recorder);
                }
            })
        });
    }

    /// Records the begin of an RCCL call. Only if [`TracedCall::is_recorded`].
    #[inline]
    pub(crate) fn begin_rccl(&self, call: &RcclCall) {
        with_local(|local| {
            local.record(DroppedKind::RcclCall, |recorder| {
                if recorder.producer.rccl_enter(recorder.clock.now(), call) {
                    local.rccl.recorder.set(recorder);
                }
            })
        });
    }

    /// Stores handles of requests, which the call may overwrite.
    #[inline]
    pub(crate) fn remember(&mut self, count: usize, handle: impl Fn(usize) -> u64) {
        if !self.is_traced() {
            return;
        }
        with_local(|local| {
            local.recorded(|recorder| {
                for (at, place) in recorder.handles.iter_mut().take(count).enumerate() {
                    *place = handle(at);
                }
                if let Some(more) = count.checked_sub(MAX_REMEMBERED_REQUESTS)
                    && let Some(header) = recorder.producer.header()
                {
                    header.count_drop(DropCause::TooDeep, DroppedKind::MpiRequest, more as u64);
                }
                self.remembered = count.min(MAX_REMEMBERED_REQUESTS);
            })
        });
    }

    /// Records the outcome and the end of the function, with one time. `outcome` runs only if the call was
    /// traced and the thread has a ring.
    #[inline]
    pub(crate) fn end(self, outcome: impl FnOnce(&mut CallOutcome<'_>)) {
        if self.is_traced() {
            self.finish(outcome);
        }
        self.leave();
        // Nothing is left for `drop`, which is for exceptions.
        mem::forget(self);
    }

    /// Notes that no function of the library runs any more.
    #[inline]
    fn leave(&self) {
        if self.is_outermost {
            with_local(|local| running(local, self.library).frame.set(0));
        }
    }

    #[inline]
    fn finish(&self, outcome: impl FnOnce(&mut CallOutcome<'_>)) {
        with_local(|local| {
            let entered = running(local, self.library).recorder.replace(ptr::null_mut());
            local.recorded(|recorder| {
                // Compared, never dereferenced: after a fork during the call the child has another one.
                let is_entered = ptr::eq(recorder, entered);
                let time = recorder.clock.now();
                let ThreadRecorder { producer, handles, .. } = recorder;
                let handles = handles.get(..self.remembered).unwrap_or_default();
                outcome(&mut CallOutcome { producer, time, is_entered, handles });
                if is_entered {
                    exit(producer, self.library, time);
                }
            })
        });
    }
}

impl Drop for TracedCall {
    #[cold]
    fn drop(&mut self) {
        if self.is_outermost && with_local(|local| !running(local, self.library).recorder.get().is_null()) {
            self.finish(|_| ());
        }
        self.leave();
    }
}

#[inline(always)]
fn api(library: RecordedLibrary) -> TracedApi {
    match library {
        RecordedLibrary::Mpi => TracedApi::Mpi,
        RecordedLibrary::Rccl => TracedApi::Rccl,
    }
}

#[inline]
fn running(local: &ThreadState, library: RecordedLibrary) -> &RunningCall {
    match library {
        RecordedLibrary::Mpi => &local.mpi,
        RecordedLibrary::Rccl => &local.rccl,
    }
}

#[inline]
fn exit(producer: &mut RingProducer, library: RecordedLibrary, time: i64) {
    match library {
        RecordedLibrary::Mpi => producer.mpi_exit(time),
        RecordedLibrary::Rccl => producer.rccl_exit(time),
    }
}

/// Ends a function that the program has left by a jump, at the time when that is detected.
#[cold]
fn abandoned(local: &ThreadState, library: RecordedLibrary) {
    let entered = running(local, library).recorder.replace(ptr::null_mut());
    local.recorded(|recorder| {
        if ptr::eq(recorder, entered) {
            exit(&mut recorder.producer, library, recorder.clock.now());
        }
    });
}

/// Records the outcome of a call, before its end.
pub(crate) struct CallOutcome<'a> {
    pub(crate) producer: &'a mut RingProducer,
    /// Time at which the call returned, by the clock of the thread.
    pub(crate) time: i64,
    is_entered: bool,
    handles: &'a [u64],
}

impl CallOutcome<'_> {
    /// Returns a stored handle.
    #[inline]
    pub(crate) fn remembered(&self, at: usize) -> Option<u64> {
        self.handles.get(at).copied()
    }

    /// Returns the number of stored handles.
    #[inline]
    pub(crate) fn remembered_count(&self) -> usize {
        self.handles.len()
    }

    /// Records that the call has started an operation.
    #[inline]
    pub(crate) fn request(&mut self, request: u64) {
        // A call that is not recorded cannot have recorded requests.
        if self.is_entered {
            self.producer.mpi_request(self.time, request);
        }
    }

    /// Records that the call, a matched probe, has found a message.
    #[inline]
    pub(crate) fn message_found(&mut self, message: u64) {
        if self.is_entered {
            self.producer.mpi_message_found(self.time, message);
        }
    }

    /// Records that the call receives the message of a matched probe.
    #[inline]
    pub(crate) fn message_received(&mut self, message: u64) {
        if self.is_entered {
            self.producer.mpi_message_received(self.time, message);
        }
    }

    /// Records that the call has created a persistent request.
    #[inline]
    pub(crate) fn prepared(&mut self, request: u64) {
        if self.is_entered {
            self.producer.mpi_prepared(self.time, request);
        }
    }
}
