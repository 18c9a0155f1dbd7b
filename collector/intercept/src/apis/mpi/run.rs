//! Runs one call of an MPI function: records it, passes it on, and records its outcome.

use super::abi::{MpiAbi, MpiHandle, MpiPointer, is_known};
use super::call::{COMMUNICATORS, CallArguments, CallEffect, CompletedRequests, MessageUse};
use super::narrow::{WaitingRequests, has_held_arrays};
use super::new_communicator::{may_be_concurrent, world};
use super::own_statuses::{OwnStatuses, WILDCARDS};
use super::pointers::{AnswerPlaces, StatusPlaces};
use crate::interpose::inside::{CallOutcome, TracedCall};
use crate::interpose::sequence::{self, CommunicatorTable};
use crate::runtime::errno;
use rpd_ring::record::{NeighbourDirection, RecordedLibrary, RequestCompletion};
use std::ffi::c_int;
use std::{ptr, slice};

/// Runs a function for the program. `describe` reads its arguments, `real` passes them on, with statuses of
/// ours unless their address is null, and returns the error class.
#[inline]
pub(super) fn run(describe: impl FnOnce() -> CallArguments, real: impl FnOnce(MpiPointer) -> c_int) -> c_int {
    let mut inside = TracedCall::begin(RecordedLibrary::Mpi);
    if !inside.is_traced() && !has_held_arrays() || !is_known() {
        let result = real(ptr::null_mut());
        inside.end(|_| ());
        return result;
    }
    let call = describe();
    if !call.has_effects() {
        if inside.is_traced() {
            record_begin(&inside, &call);
        }
        let result = real(ptr::null_mut());
        inside.end(|_| ());
        return result;
    }
    let statuses = if inside.is_traced() { call.statuses_to_replace() } else { 0 };
    let mut before = Before { ordinal: 0, communicator: 0, request: 0, message: 0, waiting: None };
    if call.needs_preparation() {
        begin(&mut inside, &call, &mut before);
    } else if inside.is_traced() {
        record_begin(&inside, &call);
    }
    if statuses > 0 {
        let mut real = Some(real);
        return run_with_own_statuses(inside, call, &before, statuses, &mut |own_statuses| {
            real.take().map_or(0, |real| real(own_statuses))
        });
    }
    let result = real(ptr::null_mut());
    match (call.effect, call.message) {
        (CallEffect::Receives(flag, status), MessageUse::None) => {
            inside.end(|outcome| {
                if result == 0 {
                    note_received(&call, flag, status, outcome);
                }
            });
        }
        _ => end(inside, &call, &before, result),
    }
    result
}

/// The rest of [`run`] with statuses of ours in place of ignored ones. Not inlined: other calls do not need
/// their memory on the stack.
#[inline(never)]
fn run_with_own_statuses(
    inside: TracedCall,
    mut call: CallArguments,
    before: &Before,
    statuses: usize,
    real: &mut dyn FnMut(MpiPointer) -> c_int,
) -> c_int {
    let mut own = OwnStatuses::new(statuses);
    call.replace_statuses(&mut own);
    let result = real(own.address());
    end(inside, &call, before, result);
    result
}

/// Values that the call itself may overwrite.
struct Before {
    /// Ordinal of the communicator that is being created.
    ordinal: u32,
    /// The communicator of the call, in its form in the ring.
    communicator: u64,
    /// The request of the call.
    request: MpiHandle,
    /// The message that the call receives.
    message: MpiHandle,
    /// Requests with arrays of ours.
    waiting: Option<WaitingRequests>,
}

/// Counts a call of the program and records its begin.
fn record_begin(inside: &TracedCall, call: &CallArguments) {
    let abi = MpiAbi::get();
    let communicator = call.comm.map(|comm| abi.communicator(comm));
    let seq = communicator.and_then(|communicator| call.seq(communicator));
    if inside.is_recorded() {
        inside.begin_mpi(&call.resolve(abi, communicator.unwrap_or(0), seq));
    }
}

/// Counts a call, records its begin, and keeps what it may overwrite.
fn begin(inside: &mut TracedCall, call: &CallArguments, before: &mut Before) {
    let abi = MpiAbi::get();
    if let CallEffect::Completes(requests, count, ..) = call.effect
        && has_held_arrays()
    {
        before.waiting = Some(WaitingRequests::among(requests, length(count)));
    }
    if !inside.is_traced() {
        return;
    }
    record_begin(inside, call);
    if let MessageUse::Receives(message) = call.message {
        before.message = message.one();
    }
    match call.effect {
        CallEffect::Completes(requests, count, ..) => {
            inside.remember(length(count), |at| abi.number(requests.at(at)));
        }
        CallEffect::Frees(request) => {
            before.request = request.one();
            SENDS.end(abi.number(before.request));
            WILDCARDS.end(abi.number(before.request));
        }
        CallEffect::Makes(creation) => {
            before.ordinal = creation.ordinal(call.comm.map_or(0, |comm| abi.communicator(comm)));
        }
        CallEffect::FreesComm => {
            before.communicator = call.communicator();
            // The program may not use the communicator from here on. After it is freed, another thread may
            // get its handle.
            COMMUNICATORS.end(call.comm.map_or(0, |comm| abi.communicator(comm)));
        }
        CallEffect::Names(..) => before.communicator = call.communicator(),
        _ => {}
    }
}

fn end(inside: TracedCall, call: &CallArguments, before: &Before, result: c_int) {
    if let (CallEffect::Completes(requests, ..), Some(waiting)) = (call.effect, &before.waiting) {
        waiting.free_if_complete(requests);
    }
    if result != 0 || !inside.is_traced() {
        return inside.end(|_| ());
    }
    count(call);
    inside.end(|outcome| note(call, before, outcome));
}

/// Counts the effects of a call that succeeded, recorded or not.
fn count(call: &CallArguments) {
    let abi = MpiAbi::get();
    match call.effect {
        CallEffect::Makes(creation) => COMMUNICATORS.begin(abi.communicator(creation.place.one())),
        CallEffect::MakesWorld => {
            let _errno = errno::PreservedErrno::new();
            if may_be_concurrent() {
                sequence::expect_several_threads();
            }
        }
        CallEffect::PreparesSend(request) => SENDS.begin(abi.number(request.one())),
        CallEffect::StartsReceive(request) | CallEffect::PreparesReceive(request) if call.is_of_any() => {
            WILDCARDS.begin(abi.number(request.one()));
        }
        _ => {}
    }
}

/// Persistent send requests: their statuses contain nothing about a message.
static SENDS: CommunicatorTable = CommunicatorTable::new();

/// Records the effects of a call that succeeded.
fn note(call: &CallArguments, before: &Before, outcome: &mut CallOutcome<'_>) {
    note_effect(call, before, outcome);
    let abi = MpiAbi::get();
    match (call.message, call.effect) {
        (MessageUse::Finds(message), CallEffect::Receives(flag, _))
            if flag.is_none_or(AnswerPlaces::is_true) =>
        {
            outcome.message_found(abi.number(message.one()));
        }
        (MessageUse::Receives(_), _) => outcome.message_received(abi.number(before.message)),
        _ => {}
    }
}

fn note_effect(call: &CallArguments, before: &Before, outcome: &mut CallOutcome<'_>) {
    let abi = MpiAbi::get();
    match call.effect {
        CallEffect::Nothing => {}
        CallEffect::PreparesSend(request) | CallEffect::PreparesReceive(request) => {
            outcome.prepared(abi.number(request.one()));
        }
        CallEffect::Starts(request) | CallEffect::StartsReceive(request) => started(outcome, request.one()),
        CallEffect::StartsAgain(requests, count) => {
            (0..length(count)).for_each(|at| started(outcome, requests.at(at)));
        }
        CallEffect::Completes(requests, _, completed, statuses) => {
            complete(outcome, completed, statuses);
            WILDCARDS.end_completed(outcome, requests);
        }
        CallEffect::Frees(_) => {
            if abi.is_request(before.request) {
                outcome.producer.mpi_freed(outcome.time, abi.number(before.request));
            }
        }
        CallEffect::Receives(flag, status) => note_received(call, flag, status, outcome),
        CallEffect::Makes(creation) => {
            let _errno = errno::PreservedErrno::new();
            if let Some(request) = creation.request {
                started(outcome, request.one());
            }
            if let Some(made) = creation.outcome(call, before.ordinal) {
                if let Some(mut neighbours) = creation.neighbours() {
                    let (time, handle) = (outcome.time, made.handle);
                    let (from, to) = (NeighbourDirection::Sources, NeighbourDirection::Destinations);
                    outcome.producer.neighbours(time, handle, from, neighbours.sources());
                    outcome.producer.neighbours(time, handle, to, neighbours.destinations());
                }
                outcome.producer.new_communicator(outcome.time, &made);
            }
        }
        CallEffect::MakesWorld => {
            let _errno = errno::PreservedErrno::new();
            if let Some(world) = world(call.function) {
                outcome.producer.new_communicator(outcome.time, &world);
            }
        }
        CallEffect::FreesComm if before.communicator != 0 => {
            outcome.producer.communicator_freed(outcome.time, RecordedLibrary::Mpi, before.communicator);
        }
        CallEffect::FreesComm => {}
        CallEffect::Names(name, bytes) => {
            // SAFETY: the description of the call has found so many bytes at an address that is not null,
            // and the program keeps them until the call returns.
            let name = unsafe { slice::from_raw_parts(name, bytes) };
            outcome.producer.communicator_name(outcome.time, RecordedLibrary::Mpi, before.communicator, name);
        }
    }
}

/// Records which message a call has received or found that asked for any.
#[inline]
fn note_received(
    call: &CallArguments,
    flag: Option<AnswerPlaces>,
    status: StatusPlaces,
    outcome: &mut CallOutcome<'_>,
) {
    if call.is_of_any()
        && flag.is_none_or(AnswerPlaces::is_true)
        && let Some(message) = status.message(0)
    {
        outcome.producer.mpi_done(outcome.time, &message);
    }
}

fn started(outcome: &mut CallOutcome<'_>, request: MpiHandle) {
    let abi = MpiAbi::get();
    if abi.is_request(request) {
        outcome.request(abi.number(request));
    }
}

/// Records the completed requests of a call.
fn complete(outcome: &mut CallOutcome<'_>, completed: CompletedRequests, statuses: StatusPlaces) {
    match completed {
        CompletedRequests::AllIf(flag) if !flag.is_true() => {}
        CompletedRequests::All | CompletedRequests::AllIf(_) => {
            (0..outcome.remembered_count()).for_each(|at| done(outcome, at, statuses.message(at)));
        }
        CompletedRequests::OneIf(flag, _) if !flag.is_true() => {}
        CompletedRequests::One(index) | CompletedRequests::OneIf(_, index) => {
            if let Some(at) = index.index(0) {
                done(outcome, at, statuses.message(0));
            }
        }
        CompletedRequests::Some(count, indices) => {
            // `MPI_UNDEFINED` is negative.
            for at in 0..length(count.one()).min(outcome.remembered_count()) {
                if let Some(request) = indices.index(at) {
                    done(outcome, request, statuses.message(at));
                }
            }
        }
    }
}

fn done(outcome: &mut CallOutcome<'_>, at: usize, message: Option<RequestCompletion>) {
    let Some(request) = outcome.remembered(at) else { return };
    if MpiAbi::get().is_request(request as MpiHandle) {
        let message = message.filter(|_| !SENDS.has(request)).unwrap_or_default();
        outcome.producer.mpi_done(outcome.time, &RequestCompletion { request, ..message });
    }
}

fn length(count: c_int) -> usize {
    usize::try_from(count).unwrap_or(0)
}
