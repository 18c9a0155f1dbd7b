//! Converts the records of a thread to rows: a begin waits for its end.

use super::communicators::KnownCommunicators;
use super::names::SlotNames;
use super::outbox::RowOutbox;
use super::requests::{PendingRequests, StartedRequest};
use crate::shard_output::{
    CommunicatorRow, EventSpan, MpiRow, NameId, OutputItem, RcclRow, RequestRow, TopologyNeighbours,
};
use rpd_ring::record::{
    CommunicatorBirth, MpiCall, NameSlot, NeighbourDirection, NewCommunicator, RcclCall, RecordedLibrary,
    RequestCompletion, RingEvent, RingRecord,
};
use rpd_ring::{mpi, rccl};
use std::collections::HashMap;

/// Maximum number of open ranges and calls, per thread and per process. The library limits nesting far below
/// this; the limit protects against corrupt rings.
const MAX_OPEN_SPANS: usize = 1 << 18;

/// Maximum number of communicators, per process, for which neighbours are kept until the creation is read.
const MAX_AWAITED_NEIGHBOURS: usize = 1 << 10;

/// Open ranges and calls of a thread, outermost first.
#[derive(Default)]
pub(super) struct ThreadSpans {
    open: Vec<OpenSpan>,
    /// Names in the slots of the ring.
    names: SlotNames,
}

#[derive(Clone, Copy)]
struct OpenSpan {
    span: EventSpan,
    kind: OpenKind,
    /// Communicator of a call.
    communicator: Option<(RecordedLibrary, u64)>,
}

/// Kind of an open range or call.
#[derive(Clone, Copy)]
enum OpenKind {
    Range,
    Mpi {
        row: MpiRow,
        /// Number of the function.
        function: u32,
    },
    Rccl(RcclRow),
}

/// State that the threads of a process share.
#[derive(Default)]
pub(super) struct ProcessPairing {
    /// Number of the process in the shard.
    source: u32,
    /// Number of stack ids that were assigned.
    stacks: i64,
    /// Ranges with an id, which any thread may stop.
    ranges: HashMap<u64, EventSpan>,
    /// Stops that were read before their start, which is in the ring of another thread.
    stops: HashMap<u64, i64>,
    communicators: KnownCommunicators,
    /// Completed calls on communicators that have not been read as created yet.
    waiting: HashMap<(RecordedLibrary, u64), Vec<OutputItem>>,
    waiting_count: usize,
    requests: PendingRequests,
    /// Messages that matched probes have found and no call has received yet, by handle.
    messages: HashMap<u64, FoundMessage>,
    /// Neighbours in communicators that the next record of their thread creates, by handle.
    neighbours: HashMap<u64, TopologyNeighbours>,
    /// Size of `MPI_COMM_WORLD`, until it is taken.
    world_size: Option<u32>,
}

/// A message that a matched probe has found.
#[derive(Clone, Copy)]
struct FoundMessage {
    /// Stack id of the probe.
    stack: i64,
    communicator: Option<(RecordedLibrary, u64)>,
    peer: Option<i32>,
    tag: Option<i32>,
}

/// A record that yields no row: its partner is missing, or it is invalid. The row is lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct RejectedRecord;

impl ProcessPairing {
    pub(super) fn new(source: u32) -> ProcessPairing {
        ProcessPairing { source, ..ProcessPairing::default() }
    }

    /// Applies one record of a thread. Emits the rows that are complete.
    #[inline]
    pub(super) fn apply(
        &mut self,
        log: &mut ThreadSpans,
        thread: i64,
        record: RingRecord<'_>,
        out: &mut RowOutbox,
    ) -> Result<(), RejectedRecord> {
        let RingRecord { time, event, slot } = record;
        if let Some(NameSlot { number, is_known: false }) = slot {
            log.names.forget(number);
        }
        match event {
            RingEvent::Push(name) => {
                let name = log.names.id(slot, || out.name(name));
                let span = self.begin(log, thread, time, name);
                log.push(OpenSpan { span, kind: OpenKind::Range, communicator: None })?;
            }
            RingEvent::Pop => {
                let open = log.close(OpenSpan::is_range).ok_or(RejectedRecord)?;
                out.range(EventSpan { end: Some(time), ..open.span });
            }
            RingEvent::RangeStart { id, name } => {
                let name = log.names.id(slot, || out.name(name));
                let span = self.begin(log, thread, time, name);
                if let Some(end) = self.stops.remove(&id) {
                    out.range(EventSpan { end: Some(end.max(time)), ..span });
                } else if self.ranges.len() < MAX_OPEN_SPANS {
                    self.ranges.insert(id, span);
                } else {
                    return Err(RejectedRecord);
                }
            }
            RingEvent::RangeStop(id) => match self.ranges.remove(&id) {
                // The counters of two cores may differ by 70 ns.
                Some(span) => out.range(EventSpan { end: Some(time.max(span.start)), ..span }),
                // The start may still arrive, or it was dropped and counted.
                None if self.stops.len() < MAX_OPEN_SPANS => {
                    self.stops.insert(id, time);
                }
                None => {}
            },
            RingEvent::Mark(name) => {
                let name = log.names.id(slot, || out.name(name));
                let span = self.begin(log, thread, time, name);
                out.push(OutputItem::Mark(span));
            }
            RingEvent::MpiEnter(call) => {
                let name = out.function(RecordedLibrary::Mpi, call.function).ok_or(RejectedRecord)?;
                let span = self.begin(log, thread, time, name);
                let kind = OpenKind::Mpi { row: mpi_row(&call), function: call.function };
                let communicator = call.comm.map(|comm| (RecordedLibrary::Mpi, comm));
                log.push(OpenSpan { span, kind, communicator })?;
            }
            RingEvent::MpiExit => {
                let open = log.close(OpenSpan::is_mpi).ok_or(RejectedRecord)?;
                self.emit(open, Some(time), out);
            }
            RingEvent::RcclEnter(call) => {
                let name = out.function(RecordedLibrary::Rccl, call.function).ok_or(RejectedRecord)?;
                let span = self.begin(log, thread, time, name);
                let kind = OpenKind::Rccl(rccl_row(&call, out));
                let communicator = call.comm.map(|comm| (RecordedLibrary::Rccl, comm));
                log.push(OpenSpan { span, kind, communicator })?;
            }
            RingEvent::RcclExit => {
                let open = log.close(OpenSpan::is_rccl).ok_or(RejectedRecord)?;
                self.emit(open, Some(time), out);
            }
            RingEvent::MpiRequest(request) => {
                let call = log.innermost(OpenSpan::is_mpi).ok_or(RejectedRecord)?;
                let started = started_by(call, time, self.requests.init_stack(request));
                if let Some((completion, seen)) = self.requests.start(request, started) {
                    self.complete(started, &completion, seen, out);
                }
            }
            RingEvent::MpiPrepared(request) => {
                let call = log.innermost(OpenSpan::is_mpi).ok_or(RejectedRecord)?;
                self.requests.prepare(request, call.span.stack);
            }
            RingEvent::MpiMessageFound(message) => {
                let call = log.innermost(OpenSpan::is_mpi).ok_or(RejectedRecord)?;
                if let OpenKind::Mpi { row, .. } = call.kind
                    && (self.messages.len() < MAX_OPEN_SPANS || self.messages.contains_key(&message))
                {
                    let (stack, communicator) = (call.span.stack, call.communicator);
                    let found = FoundMessage { stack, communicator, peer: row.peer, tag: row.tag };
                    self.messages.insert(message, found);
                }
            }
            RingEvent::MpiMessageReceived(message) => {
                if let Some(found) = self.messages.remove(&message) {
                    log.receive(&found);
                }
            }
            RingEvent::MpiDone(completion) if completion.request == 0 => log.received(&completion),
            RingEvent::MpiDone(completion) => {
                let parent = log.innermost(OpenSpan::is_mpi).map_or(0, |call| call.span.stack);
                let seen = EventSpan { parent, ..self.moment(thread, time) };
                if let Some(started) = self.requests.complete(&completion, seen) {
                    self.complete(started, &completion, seen, out);
                }
            }
            RingEvent::MpiFreed(request) => self.requests.free(request),
            RingEvent::NewCommunicator(made) => {
                let name = out.function(made.library, made.function).ok_or(RejectedRecord)?;
                self.communicator(log, thread, time, name, &made, out);
            }
            RingEvent::Neighbours { handle, direction, ranks } => {
                // A full ring left those of communicators that the next record does not create.
                if self.neighbours.len() >= MAX_AWAITED_NEIGHBOURS {
                    self.neighbours.clear();
                }
                let of_one = self.neighbours.entry(handle).or_default();
                let list = match direction {
                    NeighbourDirection::Sources => &mut of_one.sources,
                    NeighbourDirection::Destinations => &mut of_one.destinations,
                };
                *list = Some(rank_list(ranks));
            }
            RingEvent::CommunicatorName { library, handle, name } => {
                let known = self.communicators.get(library, handle, out);
                let row = CommunicatorRow {
                    comm: known.name,
                    label: Some(out.name(name)),
                    size_rank: known.size_rank,
                    side: known.side,
                    neighbours: TopologyNeighbours::default(),
                };
                let span = self.in_call(log, thread, time, out.name(b"MPI_Comm_set_name"));
                out.push(OutputItem::Communicator(span, row));
            }
            RingEvent::CommunicatorFreed { library, handle } => self.communicators.free(library, handle),
        }
        Ok(())
    }

    fn begin(&mut self, log: &ThreadSpans, thread: i64, start: i64, name: NameId) -> EventSpan {
        self.stacks += 1;
        let parent = log.open.last().map_or(0, |open| open.span.stack);
        EventSpan { source: self.source, thread, start, end: None, name, stack: self.stacks, parent }
    }

    fn moment(&self, thread: i64, start: i64) -> EventSpan {
        EventSpan { source: self.source, thread, start, end: None, name: NameId(0), stack: 0, parent: 0 }
    }

    /// Makes a span for an action in the innermost open range or call, with its stack id and parent; without one, with a
    /// new stack id.
    fn in_call(&mut self, log: &ThreadSpans, thread: i64, time: i64, name: NameId) -> EventSpan {
        match log.open.last() {
            Some(open) => EventSpan {
                stack: open.span.stack,
                parent: open.span.parent,
                name,
                ..self.moment(thread, time)
            },
            None => self.begin(log, thread, time, name),
        }
    }

    /// Emits a range or call; `end` is `None` if it was still open. Calls wait if the creation of their communicator
    /// has not been read yet.
    fn emit(&mut self, open: OpenSpan, end: Option<i64>, out: &mut RowOutbox) {
        let span = EventSpan { end, ..open.span };
        let item = match open.kind {
            OpenKind::Range => return out.range(span),
            OpenKind::Mpi { row, .. } => OutputItem::Mpi(span, row),
            OpenKind::Rccl(row) => OutputItem::Rccl(span, row),
        };
        let Some((library, handle)) = open.communicator else { return out.push(item) };
        if self.communicators.is_to_come(library, handle) && self.waiting_count < MAX_OPEN_SPANS {
            self.waiting_count += 1;
            self.waiting.entry((library, handle)).or_default().push(item);
            return;
        }
        let name = self.communicators.get(library, handle, out).name;
        out.push(on_communicator(item, name));
    }

    /// Emits the calls that waited for a communicator.
    fn release(&mut self, library: RecordedLibrary, handle: u64, out: &mut RowOutbox) {
        let Some(items) = self.waiting.remove(&(library, handle)) else { return };
        self.waiting_count -= items.len();
        let name = self.communicators.get(library, handle, out).name;
        items.into_iter().for_each(|item| out.push(on_communicator(item, name)));
    }

    /// Emits a completed request. `seen` has the thread and time of its completion.
    fn complete(
        &self,
        started: StartedRequest,
        completion: &RequestCompletion,
        seen: EventSpan,
        out: &mut RowOutbox,
    ) {
        let message = started.may_receive.then_some(completion);
        let row = RequestRow {
            peer: message.and_then(|message| message.source),
            tag: message.and_then(|message| message.tag),
            bytes: message.and_then(|message| message.bytes),
            // The creation may be in the ring of another thread, which was read later than the start.
            init_stack: started
                .init_stack
                .or_else(|| self.requests.init_stack(completion.request))
                .filter(|_| started.is_persistent),
        };
        out.push(OutputItem::Request(EventSpan { name: started.name, stack: started.stack, ..seen }, row));
    }

    fn communicator(
        &mut self,
        log: &ThreadSpans,
        thread: i64,
        time: i64,
        name: NameId,
        made: &NewCommunicator,
        out: &mut RowOutbox,
    ) {
        if made.birth == CommunicatorBirth::World {
            self.world_size = made.size_rank.map(|(size, _)| size);
        }
        let neighbours = self.neighbours.remove(&made.handle).unwrap_or_default();
        // After a split this rank may have no new communicator.
        let Some(comm) = self.communicators.add(made, out) else { return };
        let row =
            CommunicatorRow { comm, label: None, size_rank: made.size_rank, side: made.side, neighbours };
        let span = self.in_call(log, thread, time, name);
        out.push(OutputItem::Communicator(span, row));
        self.release(made.library, made.handle, out);
    }

    /// Ends a thread. Emits its open ranges and calls without an end.
    pub(super) fn end_thread(&mut self, log: ThreadSpans, out: &mut RowOutbox) {
        for open in log.open {
            self.emit(open, None, out);
        }
    }

    /// Takes the size of `MPI_COMM_WORLD` in processes, if its record arrived since the last call.
    pub(super) fn take_world_size(&mut self) -> Option<u32> {
        self.world_size.take()
    }

    /// Takes the number of completed requests without a recorded start.
    pub(super) fn take_unmatched_requests(&mut self) -> u64 {
        self.requests.take_unmatched()
    }

    /// Ends the process. Ranges without a stop stay open, and awaited communicators will not arrive.
    pub(super) fn end(&mut self, out: &mut RowOutbox) {
        let mut awaited: Vec<_> = self.waiting.keys().copied().collect();
        awaited.sort_unstable();
        for (library, handle) in awaited {
            self.release(library, handle, out);
        }
        let mut spans: Vec<EventSpan> = self.ranges.drain().map(|(_, span)| span).collect();
        spans.sort_unstable_by_key(|span| span.stack);
        for span in spans {
            out.range(span);
        }
        self.stops.clear();
    }
}

impl ThreadSpans {
    fn push(&mut self, open: OpenSpan) -> Result<(), RejectedRecord> {
        if self.open.len() >= MAX_OPEN_SPANS {
            return Err(RejectedRecord);
        }
        self.open.push(open);
        Ok(())
    }

    /// Removes the innermost entry of a kind. It is usually the last one, but a range may begin in a callback
    /// within an MPI call and end after it, or the reverse.
    fn close(&mut self, is_wanted: impl Fn(&OpenSpan) -> bool) -> Option<OpenSpan> {
        let at = self.open.iter().rposition(is_wanted)?;
        Some(self.open.remove(at))
    }

    fn innermost(&self, is_wanted: impl Fn(&OpenSpan) -> bool) -> Option<&OpenSpan> {
        self.open.iter().rev().find(|open| is_wanted(open))
    }

    /// Adds the message that a matched probe has found to the call that receives it.
    fn receive(&mut self, found: &FoundMessage) {
        if let Some(OpenSpan { kind: OpenKind::Mpi { row, .. }, communicator, .. }) =
            self.open.iter_mut().rev().find(|open| open.is_mpi())
        {
            row.probe_stack = Some(found.stack);
            row.peer = row.peer.or(found.peer);
            row.tag = row.tag.or(found.tag);
            *communicator = communicator.or(found.communicator);
        }
    }

    /// Adds source and tag of the message to a blocking receive from any source or with any tag.
    fn received(&mut self, message: &RequestCompletion) {
        if let Some(OpenSpan { kind: OpenKind::Mpi { row, .. }, .. }) =
            self.open.iter_mut().rev().find(|open| open.is_mpi())
        {
            let (source, tag) = match &mut row.receive {
                Some(receive) => (&mut receive.source, &mut receive.tag),
                None => (&mut row.peer, &mut row.tag),
            };
            *source = source.or(message.source);
            *tag = tag.or(message.tag);
        }
    }
}

impl OpenSpan {
    fn is_range(&self) -> bool {
        matches!(self.kind, OpenKind::Range)
    }

    fn is_mpi(&self) -> bool {
        matches!(self.kind, OpenKind::Mpi { .. })
    }

    fn is_rccl(&self) -> bool {
        matches!(self.kind, OpenKind::Rccl(_))
    }
}

/// Describes a request that a call has started. `init_stack` is the stack id of the call that created a persistent
/// request with this handle.
fn started_by(call: &OpenSpan, time: i64, init_stack: Option<i64>) -> StartedRequest {
    let OpenSpan { span, kind, .. } = call;
    let function = if let OpenKind::Mpi { function, .. } = kind { Some(*function) } else { None };
    StartedRequest {
        stack: span.stack,
        name: span.name,
        time,
        may_receive: function.is_some_and(mpi::may_receive),
        is_persistent: function.is_some_and(mpi::starts_persistent),
        init_stack,
    }
}

/// Makes the row of a call, without its communicator.
fn mpi_row(call: &MpiCall) -> MpiRow {
    MpiRow {
        comm: None,
        peer: call.peer,
        root: call.root,
        tag: call.tag,
        bytes: call.bytes,
        seq: call.seq.map(i64::from),
        receive: call.receive,
        probe_stack: None,
    }
}

/// Makes the row of a call, without its communicator.
fn rccl_row(call: &RcclCall, out: &mut RowOutbox) -> RcclRow {
    let datatype = call.datatype.and_then(rccl::datatype);
    let count = call.count.and_then(|count| i64::try_from(count).ok());
    let bytes = count.zip(datatype).and_then(|(count, (_, bytes))| count.checked_mul(bytes as i64));
    RcclRow {
        comm: None,
        peer: call.peer,
        root: call.root,
        count,
        datatype: datatype.map(|(name, _)| out.name(name.as_bytes())),
        bytes,
        seq: call.seq.map(i64::from),
        // All bits of the handle.
        stream: call.stream.map(|stream| stream as i64),
    }
}

/// Converts ranks of 4 bytes each to a JSON list.
fn rank_list(ranks: &[u8]) -> Box<str> {
    let ranks = ranks.chunks_exact(4).map(|bytes| bytes.try_into().map_or(-1, i32::from_le_bytes));
    let ranks: Vec<String> = ranks.map(|rank| rank.to_string()).collect();
    format!("[{}]", ranks.join(",")).into()
}

/// Adds the communicator to the row of a call.
fn on_communicator(item: OutputItem, name: NameId) -> OutputItem {
    match item {
        OutputItem::Mpi(span, row) => OutputItem::Mpi(span, MpiRow { comm: Some(name), ..row }),
        OutputItem::Rccl(span, row) => OutputItem::Rccl(span, RcclRow { comm: Some(name), ..row }),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shard_output::ShardOutput;
    use proptest::prelude::*;
    use rpd_ring::record::{COMM_MADE, COMM_WORLD, CommunicatorBirth, MpiReceive};

    /// Name, start, end, stack id, parent's stack id.
    type Row = (String, i64, Option<i64>, i64, i64);

    /// Applies the records of one thread and ends it. Returns its rows and the number of unmatched records.
    fn rows(log: &[RingRecord<'_>]) -> (Vec<Row>, usize) {
        let mut out = RowOutbox::new(ShardOutput::into_nothing());
        let (mut process, mut thread) = (ProcessPairing::new(1), ThreadSpans::default());
        let unmatched =
            log.iter().filter(|record| process.apply(&mut thread, 1, **record, &mut out).is_err()).count();
        process.end_thread(thread, &mut out);
        process.end(&mut out);
        let mut names = Vec::new();
        let mut rows = Vec::new();
        for item in &out.batch().items {
            match item {
                OutputItem::Name(name) => names.push(String::from_utf8_lossy(name).into_owned()),
                OutputItem::Mark(span) | OutputItem::Mpi(span, _) => rows.push(*span),
                _ => {}
            }
        }
        rows.extend(&out.batch().ranges);
        rows.sort_unstable_by_key(|span| span.stack);
        let rows = rows.into_iter().map(|span| {
            let name = names[span.name.0 as usize].clone();
            (name, span.start, span.end, span.stack, span.parent)
        });
        let rows = rows.collect();
        (rows, unmatched)
    }

    fn record(time: i64, event: RingEvent<'_>) -> RingRecord<'_> {
        RingRecord { time, event, slot: None }
    }

    fn call(function: mpi::MpiFunction, comm: Option<u64>) -> MpiCall {
        MpiCall { function: function as u32, comm, ..MpiCall::default() }
    }

    #[test]
    fn ends_close_the_innermost_of_their_kind() {
        let barrier = call(mpi::MpiFunction::MPI_Barrier, Some(COMM_WORLD));
        let log = [
            record(1, RingEvent::Push(b"a")),
            record(2, RingEvent::MpiEnter(barrier)),
            record(3, RingEvent::Mark(b"in")),
            record(4, RingEvent::Push(b"b")),
            record(5, RingEvent::MpiExit),
            record(6, RingEvent::RangeStart { id: 9, name: b"r" }),
            record(7, RingEvent::Pop),
            record(8, RingEvent::Pop),
        ];
        let row = |name: &str, start, end, stack, parent| (name.to_owned(), start, end, stack, parent);
        let expected = vec![
            row("a", 1, Some(8), 1, 0),
            row("MPI_Barrier", 2, Some(5), 2, 1),
            row("in", 3, None, 3, 2),
            row("b", 4, Some(7), 4, 2),
            row("r", 6, None, 5, 4),
        ];
        assert_eq!(rows(&log), (expected, 0));
    }

    #[test]
    fn ends_without_beginning_are_unmatched() {
        let unknown = MpiCall { function: 100_000, ..MpiCall::default() };
        let log = [
            record(1, RingEvent::Pop),
            record(2, RingEvent::MpiExit),
            record(3, RingEvent::MpiEnter(unknown)),
        ];
        assert_eq!(rows(&log), (Vec::new(), 3));
    }

    #[test]
    fn a_completed_start_refers_to_the_creation_of_its_request() {
        let mut out = RowOutbox::new(ShardOutput::into_nothing());
        let (mut process, mut thread) = (ProcessPairing::new(1), ThreadSpans::default());
        let completion = RequestCompletion { request: 7, ..RequestCompletion::default() };
        // The handle of the persistent request is reused after it is freed.
        let calls = [
            (mpi::MpiFunction::MPI_Recv_init, RingEvent::MpiPrepared(7)),
            (mpi::MpiFunction::MPI_Start, RingEvent::MpiRequest(7)),
            (mpi::MpiFunction::MPI_Wait, RingEvent::MpiDone(completion)),
            (mpi::MpiFunction::MPI_Startall, RingEvent::MpiRequest(7)),
            (mpi::MpiFunction::MPI_Wait, RingEvent::MpiDone(completion)),
            (mpi::MpiFunction::MPI_Request_free, RingEvent::MpiFreed(7)),
            (mpi::MpiFunction::MPI_Start, RingEvent::MpiRequest(7)),
            (mpi::MpiFunction::MPI_Wait, RingEvent::MpiDone(completion)),
            (mpi::MpiFunction::MPI_Send_init, RingEvent::MpiPrepared(7)),
            (mpi::MpiFunction::MPI_Irecv, RingEvent::MpiRequest(7)),
            (mpi::MpiFunction::MPI_Wait, RingEvent::MpiDone(completion)),
        ];
        for (function, event) in calls {
            for event in [RingEvent::MpiEnter(call(function, None)), event, RingEvent::MpiExit] {
                process.apply(&mut thread, 1, record(1, event), &mut out).unwrap();
            }
        }
        let rows = out.batch().items.iter().filter_map(|item| match item {
            OutputItem::Request(span, row) => Some((span.stack, row.init_stack)),
            _ => None,
        });
        assert_eq!(rows.collect::<Vec<_>>(), [(2, Some(1)), (4, Some(1)), (7, None), (10, None)]);
    }

    #[test]
    fn a_receive_gets_what_the_matched_probe_has_found() {
        let mut out = RowOutbox::new(ShardOutput::into_nothing());
        let (mut process, mut thread) = (ProcessPairing::new(1), ThreadSpans::default());
        let message = RequestCompletion { source: Some(1), tag: Some(9), ..RequestCompletion::default() };
        let found = [RingEvent::MpiDone(message), RingEvent::MpiMessageFound(5)];
        let calls = [
            (call(mpi::MpiFunction::MPI_Mprobe, Some(COMM_WORLD)), &found[..]),
            (call(mpi::MpiFunction::MPI_Mrecv, None), &[RingEvent::MpiMessageReceived(5)][..]),
            (call(mpi::MpiFunction::MPI_Mrecv, None), &[RingEvent::MpiMessageReceived(5)][..]),
        ];
        for (call, inside) in calls {
            process.apply(&mut thread, 1, record(1, RingEvent::MpiEnter(call)), &mut out).unwrap();
            for event in inside {
                process.apply(&mut thread, 1, record(1, *event), &mut out).unwrap();
            }
            process.apply(&mut thread, 1, record(1, RingEvent::MpiExit), &mut out).unwrap();
        }
        let rows = out.batch().items.iter().filter_map(|item| match item {
            OutputItem::Mpi(_, row) => Some((row.probe_stack, row.comm, row.peer, row.tag)),
            _ => None,
        });
        let rows: Vec<_> = rows.collect();
        let world = rows[0].1;
        assert!(world.is_some());
        let expected =
            [(None, world, Some(1), Some(9)), (Some(1), world, Some(1), Some(9)), (None, None, None, None)];
        assert_eq!(rows, expected);
    }

    #[test]
    fn a_communicator_has_its_side_and_neighbours() {
        let mut out = RowOutbox::new(ShardOutput::into_nothing());
        let (mut process, mut thread) = (ProcessPairing::new(1), ThreadSpans::default());
        let made = |handle, side| {
            RingEvent::NewCommunicator(NewCommunicator { handle, side, ..NewCommunicator::default() })
        };
        let ranks = [3i32, -1].map(i32::to_le_bytes).concat();
        let of_five = |direction, ranks| RingEvent::Neighbours { handle: 5, direction, ranks };
        let events = [
            of_five(NeighbourDirection::Sources, &ranks),
            of_five(NeighbourDirection::Destinations, &ranks[..4]),
            made(5, None),
            made(6, Some(1)),
        ];
        for event in events {
            process.apply(&mut thread, 1, record(1, event), &mut out).unwrap();
        }
        let rows = out.batch().items.iter().filter_map(|item| match item {
            OutputItem::Communicator(_, row) => {
                Some((row.side, row.neighbours.sources.as_deref(), row.neighbours.destinations.as_deref()))
            }
            _ => None,
        });
        let expected = [(None, Some("[3,-1]"), Some("[3]")), (Some(1), None, None)];
        assert_eq!(rows.collect::<Vec<_>>(), expected);
        assert!(process.neighbours.is_empty());
    }

    #[test]
    fn a_status_fills_in_what_a_call_receives() {
        let (any, sent) = (MpiReceive { bytes: Some(64), ..MpiReceive::default() }, Some(3));
        let exchange = MpiCall {
            peer: sent,
            tag: sent,
            receive: Some(any),
            ..call(mpi::MpiFunction::MPI_Sendrecv, Some(COMM_WORLD))
        };
        let receive = call(mpi::MpiFunction::MPI_Recv, Some(COMM_WORLD));
        let message = RequestCompletion { source: Some(1), tag: Some(9), ..RequestCompletion::default() };
        let mut out = RowOutbox::new(ShardOutput::into_nothing());
        let (mut process, mut thread) = (ProcessPairing::new(1), ThreadSpans::default());
        for call in [exchange, receive] {
            let events = [RingEvent::MpiEnter(call), RingEvent::MpiDone(message), RingEvent::MpiExit];
            for event in events {
                process.apply(&mut thread, 1, record(1, event), &mut out).unwrap();
            }
        }
        let rows = out.batch().items.iter().filter_map(|item| match item {
            OutputItem::Mpi(_, row) => Some((row.peer, row.tag, row.receive)),
            _ => None,
        });
        let received = MpiReceive { source: Some(1), tag: Some(9), ..any };
        let expected = [(sent, sent, Some(received)), (Some(1), Some(9), None)];
        assert_eq!(rows.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn calls_wait_for_a_communicator_that_another_thread_has_made() {
        let made = |handle, ordinal| NewCommunicator {
            library: RecordedLibrary::Mpi,
            function: mpi::MpiFunction::MPI_Comm_dup as u32,
            birth: CommunicatorBirth::Collective,
            handle,
            parent: Some(COMM_WORLD),
            id: 0,
            size_rank: Some((4, 0)),
            leader: 0,
            tag: 0,
            ordinal,
            side: None,
        };
        let mut out = RowOutbox::new(ShardOutput::into_nothing());
        let mut process = ProcessPairing::new(1);
        let (mut user, mut maker) = (ThreadSpans::default(), ThreadSpans::default());
        // The ring of the thread that uses the first communicator is read first. The creation of the second
        // one was dropped.
        for (time, comm) in [(10, COMM_MADE + 1), (20, COMM_MADE + 2)] {
            let call = call(mpi::MpiFunction::MPI_Barrier, Some(comm));
            for record in [record(time, RingEvent::MpiEnter(call)), record(time + 1, RingEvent::MpiExit)] {
                process.apply(&mut user, 1, record, &mut out).unwrap();
            }
        }
        let record = record(5, RingEvent::NewCommunicator(made(COMM_MADE + 1, 1)));
        process.apply(&mut maker, 2, record, &mut out).unwrap();
        process.end(&mut out);
        let names: Vec<_> = out
            .batch()
            .items
            .iter()
            .filter_map(|item| match item {
                OutputItem::Name(name) => Some(String::from_utf8_lossy(name).into_owned()),
                _ => None,
            })
            .collect();
        let on: Vec<_> = out
            .batch()
            .items
            .iter()
            .filter_map(|item| match item {
                OutputItem::Mpi(span, row) => Some((span.start, &*names[row.comm.unwrap().0 as usize])),
                _ => None,
            })
            .collect();
        assert_eq!(on, [(10, "MPI_COMM_WORLD/1@0"), (20, "comm-1")]);
    }

    proptest! {
        /// For any records: one row for every begin, unique stack ids, and parents that come before their
        /// children.
        #[test]
        fn every_beginning_is_one_row(kinds in proptest::collection::vec((0u8..7, 0u64..4), 0..200)) {
            let barrier = call(mpi::MpiFunction::MPI_Barrier, Some(5));
            let log: Vec<RingRecord<'_>> = kinds.iter().zip(1i64..).map(|((kind, id), time)| record(time, match kind {
                0 => RingEvent::Push(b"p"),
                1 => RingEvent::Pop,
                2 => RingEvent::RangeStart { id: *id + 10 * time as u64, name: b"s" },
                3 => RingEvent::RangeStop(*id + 10 * (time as u64).saturating_sub(1)),
                4 => RingEvent::Mark(b"m"),
                5 => RingEvent::MpiEnter(barrier),
                _ => RingEvent::MpiExit,
            })).collect();
            let begun = log.iter().filter(|record| matches!(record.event, RingEvent::Push(_) | RingEvent::RangeStart { .. }
                | RingEvent::Mark(_) | RingEvent::MpiEnter(_))).count();
            let (rows, _) = rows(&log);
            prop_assert_eq!(rows.len(), begun);
            let mut stacks: Vec<i64> = rows.iter().map(|row| row.3).collect();
            stacks.sort_unstable();
            prop_assert_eq!(stacks, (1..=begun as i64).collect::<Vec<_>>());
            for (_, start, end, stack, parent) in &rows {
                prop_assert!(parent < stack && end.is_none_or(|end| end >= *start));
            }
        }
    }
}
