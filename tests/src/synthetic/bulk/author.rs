//! The rows of one rank.

use super::BulkRun;
use super::events::{Event, GPUS, What, events};
use super::sink::{BulkSink, SinkError};
use crate::synthetic::clock::ModelClock;
use crate::synthetic::random::RandomSource;
use crate::synthetic::run::{PlannedProcess, Run};
use rpd_shard::model::{TableId, Value, native, rocpd};
use serde_json::json;
use std::collections::HashMap;
use std::sync::Arc;

/// One in so many call stacks and arguments is a large one.
const PAYLOAD_EVERY: u64 = 100;

/// Which events are written in one go: rocprofv3 writes one kind after the other.
const PASSES: [fn(&What) -> bool; 4] = [
    |what| matches!(what, What::Call { .. } | What::Marker { .. } | What::Instant),
    |what| matches!(what, What::Dispatch { .. }),
    |what| matches!(what, What::Copy { .. }),
    |what| matches!(what, What::Allocation { .. }),
];

pub(super) struct Author<'a, 'c> {
    pub(super) bulk: &'a BulkRun,
    pub(super) run: &'a Run,
    pub(super) process: &'a PlannedProcess,
    clock: &'a ModelClock,
    pub(super) sink: BulkSink<'c>,
    random: RandomSource,
    pub(super) kernels: Vec<Arc<str>>,
    pub(super) used: HashMap<&'static str, i64>,
    /// Ids of the names of markers.
    pub(super) markers: Vec<i64>,
    /// Rows so far, by the number of the table.
    rows: [i64; 80],
}

pub(super) type Result<T = ()> = std::result::Result<T, SinkError>;

impl<'a, 'c> Author<'a, 'c> {
    pub(super) fn new(
        bulk: &'a BulkRun,
        run: &'a Run,
        process: &'a PlannedProcess,
        sink: BulkSink<'c>,
    ) -> Author<'a, 'c> {
        Author {
            bulk,
            run,
            process,
            clock: &run.nodes[process.node].clock,
            sink,
            random: RandomSource::new(&[bulk.seed, 7, u64::from(process.rank)]),
            kernels: run.names.kernels(process.rank),
            used: HashMap::new(),
            markers: Vec::new(),
            rows: [0; 80],
        }
    }

    pub(super) fn write(&mut self) -> Result {
        self.strings()?;
        self.describe()?;
        let (bulk, rank) = (self.bulk, self.process.rank);
        if self.sink.is_native() {
            return events(bulk, rank, &mut |event| self.event(&event));
        }
        for pass in PASSES {
            events(bulk, rank, &mut |event| if pass(&event.what) { self.event(&event) } else { Ok(()) })?;
        }
        Ok(())
    }

    /// The sink, and the number of rows.
    pub(super) fn done(self) -> (BulkSink<'c>, u64) {
        let rows = self.rows.iter().sum::<i64>() as u64;
        (self.sink, rows)
    }

    /// Adds a row to a table; returns its number from 1.
    #[inline]
    pub(super) fn push(&mut self, table: TableId, row: &[Value<'_>]) -> Result<i64> {
        let number = self.next(table);
        self.sink.push(table, number, row)?;
        Ok(number)
    }

    /// Adds a row with an id that a database takes over.
    #[inline]
    pub(super) fn push_as(&mut self, table: TableId, id: i64, row: &[Value<'_>]) -> Result {
        self.next(table);
        self.sink.push(table, id, row)
    }

    #[inline]
    pub(super) fn next(&mut self, table: TableId) -> i64 {
        let count = &mut self.rows[usize::from(table.0)];
        *count += 1;
        *count
    }

    fn event(&mut self, event: &Event) -> Result {
        match event.what {
            What::Call { function, arguments } => self.call(event, function, arguments),
            What::Dispatch { kernel, gpu, queue, blocks } => {
                self.dispatch(event, (kernel, gpu, queue), blocks)
            }
            What::Copy { to_device, bytes } => self.copy(event, to_device, bytes),
            What::Allocation { bytes, address } => self.allocation(event, bytes, address),
            What::Marker { name } => self.marker(event, name),
            What::Instant => self.instant(event),
        }
    }

    /// The row of `rocpd_event`.
    fn base(
        &mut self,
        event: &Event,
        category: &str,
        parent: i64,
        message: Option<&str>,
    ) -> Result<Value<'static>> {
        let (category, stack) = (self.used(category), Value::Int(event.stack));
        let (parent, zero, none) = (Value::Int(parent), Value::Int(0), Value::Null);
        let message = message.map(|text| format!("{{\"message\": \"{text}\"}}"));
        let large = self.is_large().then(|| json!({ "frames": self.payload() }).to_string());
        let call_stack = large.as_deref().map_or(none, Value::from);
        let message = message.as_deref().map_or(none, Value::from);
        let row = [category, stack, parent, zero, call_stack, none, message];
        Ok(Value::Int(self.push(rocpd::EVENT, &row)?))
    }

    fn call(&mut self, event: &Event, function: &str, arguments: bool) -> Result {
        let id = self.base(event, "HIP_RUNTIME_API_EXT", 0, None)?;
        self.region(event, self.used(function), id)?;
        if arguments {
            let stream = format!("0x7f12{:08x}", event.stream);
            let none = Value::Null;
            let extdata = match self.id(event.stream as i64) {
                Value::Int(stream) => format!("{{\"stream_id\": {stream}}}"),
                _ => String::new(),
            };
            let (stream, extdata) = (stream.as_str().into(), extdata.as_str().into());
            self.push(rocpd::ARG, &[id, 0.into(), "hipStream_t".into(), "stream".into(), stream, extdata])?;
            let large = self.is_large().then(|| self.payload());
            let value = large.as_deref().unwrap_or("{1024,1,1}").into();
            self.push(rocpd::ARG, &[id, 1.into(), "dim3".into(), "numBlocks".into(), value, none])?;
        }
        Ok(())
    }

    /// Its id is the correlation id, as that of a sample.
    fn region(&mut self, event: &Event, name: Value<'_>, id: Value<'_>) -> Result {
        let [nid, pid] = self.owner();
        let row = [
            nid,
            pid,
            self.thread(event.thread),
            self.time(event.time.start),
            self.time(event.time.end),
            name,
            id,
            Value::Null,
        ];
        self.push_as(rocpd::REGION, event.stack, &row)
    }

    fn dispatch(&mut self, event: &Event, on: (usize, usize, usize), blocks: i64) -> Result {
        let (kernel, gpu, queue) = on;
        let id = self.base(event, "KERNEL_DISPATCH", event.stack, None)?;
        let [nid, pid] = self.owner();
        let (zero, one) = (Value::Int(0), Value::Int(1));
        let row = [
            nid,
            pid,
            self.thread(event.thread),
            self.agent(1 + gpu),
            Value::Int(kernel as i64 + 1),
            Value::Int(self.rows[usize::from(rocpd::KERNEL_DISPATCH.0)] + 1),
            self.id(queue as i64),
            self.id(event.stream as i64),
            self.time(event.time.start),
            self.time(event.time.end),
            zero,
            zero,
            Value::Int(256),
            one,
            one,
            Value::Int(blocks * 256),
            one,
            one,
            self.used(""),
            id,
            Value::Null,
        ];
        self.push(rocpd::KERNEL_DISPATCH, &row).map(drop)
    }

    fn copy(&mut self, event: &Event, to_device: bool, bytes: i64) -> Result {
        let id = self.base(event, "MEMORY_COPY", event.stack, None)?;
        let [nid, pid] = self.owner();
        let gpu = self.agent(1 + self.process.rank as usize % GPUS);
        let (from, to, name) = if to_device {
            (self.agent(0), gpu, "MEMORY_COPY_HOST_TO_DEVICE")
        } else {
            (gpu, self.agent(0), "MEMORY_COPY_DEVICE_TO_HOST")
        };
        let row = [
            nid,
            pid,
            self.thread(event.thread),
            self.time(event.time.start),
            self.time(event.time.end),
            self.used(name),
            to,
            Value::Int(0x2000_0000_0000 + bytes),
            from,
            Value::Int(0x1000_0000_0000 + bytes),
            Value::Int(bytes),
            Value::Null,
            self.id(event.stream as i64),
            Value::Null,
            id,
            Value::Null,
        ];
        self.push(rocpd::MEMORY_COPY, &row).map(drop)
    }

    fn allocation(&mut self, event: &Event, bytes: i64, address: i64) -> Result {
        let id = self.base(event, "MEMORY_ALLOCATION", 0, None)?;
        let [nid, pid] = self.owner();
        let free = bytes == 0;
        let row = [
            nid,
            pid,
            self.thread(event.thread),
            if free { Value::Null } else { self.agent(1 + self.process.rank as usize % GPUS) },
            if free { "FREE" } else { "ALLOC" }.into(),
            "REAL".into(),
            self.time(event.time.start),
            self.time(event.time.end),
            Value::Int(address),
            Value::Int(bytes),
            self.id(0),
            self.id(0),
            id,
        ];
        self.push(rocpd::MEMORY_ALLOCATE, &row).map(drop)
    }

    fn marker(&mut self, event: &Event, name: usize) -> Result {
        let name = Value::Int(self.markers[name]);
        if !self.sink.is_native() {
            let id = self.base(event, "MARKER_CORE_RANGE_API", 0, Some("a step of the program"))?;
            return self.region(event, name, id);
        }
        let (start, end) = (self.time(event.time.start), self.time(event.time.end));
        let row = [self.thread(event.thread), start, end, name, Value::Int(event.stack), Value::Int(0)];
        self.next(native::RANGE);
        self.sink.push_native(native::RANGE, &row)
    }

    fn instant(&mut self, event: &Event) -> Result {
        let at = self.time(event.time.start);
        if !self.sink.is_native() {
            let id = self.base(event, "HIP_RUNTIME_API_EXT", 0, Some("hipGetLastError"))?;
            let track = Value::Int(event.thread as i64 + 1);
            return self.push_as(rocpd::SAMPLE, event.stack, &[track, at, id]);
        }
        let end = self.time(event.time.start + 5_000);
        let (thread, stack, none) = (self.thread(event.thread), Value::Int(event.stack), Value::Null);
        let (function, comm) = (self.used("MPI_Allreduce"), self.used("MPI_COMM_WORLD"));
        let seq = Value::Int(self.next(native::MPI_CALL));
        let row = [thread, at, end, function, stack, 0.into(), comm, none, none, none, 4_096.into(), seq];
        self.sink.push_native(native::MPI_CALL, &row)
    }

    pub(super) fn used(&self, name: &str) -> Value<'static> {
        Value::Int(self.used[name])
    }

    pub(super) fn time(&self, true_ns: i64) -> Value<'static> {
        Value::Int(self.clock.local(true_ns))
    }

    /// The node and the process.
    pub(super) fn owner(&self) -> [Value<'static>; 2] {
        if self.sink.is_native() {
            return [1, 1].map(Value::Int);
        }
        [2_066_035_298 + self.process.node as i64, self.process.pid.into()].map(Value::Int)
    }

    /// A handle of the runtime, from 0; keys of a shard are from 1.
    pub(super) fn id(&self, handle: i64) -> Value<'static> {
        Value::Int(handle + i64::from(self.sink.is_native()))
    }

    pub(super) fn agent(&self, agent: usize) -> Value<'static> {
        self.id(agent as i64)
    }

    pub(super) fn tid(&self, thread: usize) -> i64 {
        i64::from(self.process.pid) + 100_000 * thread as i64
    }

    pub(super) fn thread(&self, thread: usize) -> Value<'static> {
        Value::Int(if self.sink.is_native() { thread as i64 + 1 } else { self.tid(thread) })
    }

    /// Whether the next text is a large one.
    fn is_large(&mut self) -> bool {
        self.bulk.payload_bytes > 0 && self.random.bits().is_multiple_of(PAYLOAD_EVERY)
    }

    pub(super) fn payload(&mut self) -> String {
        let least = self.bulk.payload_bytes;
        let length = self.random.between(least as i64, 2 * least as i64) as usize;
        let word = format!("{:016x} ", self.random.bits());
        let mut text = word.repeat(length.div_ceil(word.len()));
        text.truncate(length);
        text
    }
}
