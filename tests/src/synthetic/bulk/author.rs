//! The rows of one rank.

use super::BulkRun;
use super::events::{Event, GPUS, QUEUES, STREAMS, What, events};
use super::sink::{Sink, SinkError};
use crate::synthetic::clock::{NodeClock, RUN_START};
use crate::synthetic::random::Random;
use crate::synthetic::run::{PlannedProcess, Run};
use rpd_shard::model::{TableId, Value, native, rocpd};
use serde_json::json;
use std::collections::HashMap;
use std::sync::Arc;

/// Categories and functions that events have; the other operations have no event.
const USED: [&str; 15] = [
    "",
    "HIP_RUNTIME_API_EXT",
    "MARKER_CORE_RANGE_API",
    "KERNEL_DISPATCH",
    "MEMORY_COPY",
    "MEMORY_ALLOCATION",
    "hipLaunchKernel",
    "hipMemcpyAsync",
    "hipMalloc",
    "hipGetLastError",
    "roctxThreadRangeA",
    "MEMORY_COPY_HOST_TO_DEVICE",
    "MEMORY_COPY_DEVICE_TO_HOST",
    "MPI_Allreduce",
    "MPI_COMM_WORLD",
];
const CODE_OBJECTS: usize = 8;
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
    bulk: &'a BulkRun,
    run: &'a Run,
    process: &'a PlannedProcess,
    clock: &'a NodeClock,
    sink: Sink<'c>,
    random: Random,
    kernels: Vec<Arc<str>>,
    used: HashMap<&'static str, i64>,
    /// Ids of the names of markers.
    markers: Vec<i64>,
    /// Rows so far, by the number of the table.
    rows: [i64; 80],
}

type Result<T = ()> = std::result::Result<T, SinkError>;

impl<'a, 'c> Author<'a, 'c> {
    pub(super) fn new(
        bulk: &'a BulkRun,
        run: &'a Run,
        process: &'a PlannedProcess,
        sink: Sink<'c>,
    ) -> Author<'a, 'c> {
        Author {
            bulk,
            run,
            process,
            clock: &run.nodes[process.node].clock,
            sink,
            random: Random::new(&[bulk.seed, 7, u64::from(process.rank)]),
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
    pub(super) fn done(self) -> (Sink<'c>, u64) {
        let rows = self.rows.iter().sum::<i64>() as u64;
        (self.sink, rows)
    }

    /// Adds a row to a table; returns its number from 1.
    #[inline]
    fn push(&mut self, table: TableId, row: &[Value<'_>]) -> Result<i64> {
        let number = self.next(table);
        self.sink.push(table, number, row)?;
        Ok(number)
    }

    /// Adds a row with an id that a database takes over.
    #[inline]
    fn push_as(&mut self, table: TableId, id: i64, row: &[Value<'_>]) -> Result {
        self.next(table);
        self.sink.push(table, id, row)
    }

    #[inline]
    fn next(&mut self, table: TableId) -> i64 {
        let count = &mut self.rows[usize::from(table.0)];
        *count += 1;
        *count
    }

    /// The strings of the rank. A shard has those that it refers to.
    fn strings(&mut self) -> Result {
        for text in USED {
            let id = self.string(text)?;
            self.used.insert(text, id);
        }
        if !self.sink.is_native() {
            for i in USED.len()..self.bulk.operations {
                self.string(&format!("operation_{i:05}_of_the_runtime"))?;
            }
            for kernel in 0..self.kernels.len() {
                for name in self.kernel_names(kernel) {
                    self.string(&name)?;
                }
            }
        }
        let (count, first) = self.bulk.share(self.process.rank);
        for i in first..first + count.max(1) {
            let id = self.string(&format!("phase {i} of the program"))?;
            self.markers.push(id);
        }
        Ok(())
    }

    fn string(&mut self, text: &str) -> Result<i64> {
        self.next(rocpd::STRING);
        self.sink.string(text)
    }

    /// The four names of a kernel: as in the code object, and three forms of it for people.
    fn kernel_names(&self, kernel: usize) -> [String; 4] {
        let name = &self.kernels[kernel];
        let short: String = name.chars().take_while(|c| *c != '<').collect();
        [format!("{name}.kd"), name.to_string(), format!("{name} [clone .kd]"), format!("{short} ({kernel})")]
    }

    /// Node, process, threads, devices and code.
    fn describe(&mut self) -> Result {
        let [nid, pid] = self.owner();
        if !self.sink.is_native() {
            self.node_and_process()?;
        }
        let ppid = Value::Int(self.process.ppid.into());
        for thread in 0..self.bulk.threads.max(1) {
            let tid = self.tid(thread);
            let row = [nid, ppid, pid, Value::Int(tid)];
            self.push_as(rocpd::INFO_THREAD, tid, &row)?;
        }
        for agent in 0..=GPUS {
            let index = Value::Int(agent as i64);
            let (kind, name) = if agent == 0 { ("CPU", "AMD EPYC 9654") } else { ("GPU", "gfx942") };
            let type_index = Value::Int(agent.saturating_sub(1) as i64);
            let extdata = json!({ "size": 288, "node_id": agent, "cu_count": 304, "name": name }).to_string();
            let (name, none) = (Value::from(name), Value::from(""));
            let extdata = extdata.as_str().into();
            let row = [
                nid,
                pid,
                kind.into(),
                index,
                index,
                type_index,
                0.into(),
                name,
                none,
                none,
                none,
                none,
                extdata,
            ];
            self.push_as(rocpd::INFO_AGENT, agent as i64, &row)?;
        }
        for (table, what, count) in
            [(rocpd::INFO_QUEUE, "Queue", QUEUES), (rocpd::INFO_STREAM, "Stream", STREAMS)]
        {
            for i in 0..count {
                let name = if i == 0 { format!("Default {what}") } else { format!("{what} {}", i - 1) };
                self.push_as(table, i as i64, &[nid, pid, name.as_str().into()])?;
            }
        }
        for object in 1..=CODE_OBJECTS {
            let uri = format!("file:///opt/lib/libkernels{object}.so#offset=4096&size=77");
            let extdata = json!({ "size": 88, "code_object_id": object }).to_string();
            let agent = self.agent(1);
            let (base, size) = (Value::Int(1 << 40), Value::Int(65_536));
            let (uri, extdata) = (uri.as_str().into(), extdata.as_str().into());
            let row = [nid, pid, agent, uri, base, size, base, "FILE".into(), extdata];
            self.push(rocpd::INFO_CODE_OBJECT, &row)?;
        }
        for kernel in 0..self.kernels.len() {
            self.kernel_symbol(kernel)?;
        }
        for thread in 0..self.bulk.threads.max(1) {
            let row = [nid, pid, self.thread(thread), self.used("HIP_RUNTIME_API_EXT")];
            self.push(rocpd::TRACK, &row)?;
        }
        Ok(())
    }

    fn kernel_symbol(&mut self, kernel: usize) -> Result {
        let [nid, pid] = self.owner();
        let object = 1 + kernel % CODE_OBJECTS;
        let names = self.kernel_names(kernel);
        let extdata = json!({
            "size": 88, "kernel_id": kernel + 1, "code_object_id": object,
            "kernel_code_entry_byte_offset": 6_912, "kernel_address": { "handle": 140_341_013_926_144u64 },
            "formatted_kernel_name": names[1], "demangled_kernel_name": names[2],
            "truncated_kernel_name": names[3],
        });
        let extdata = extdata.to_string();
        let [size, alignment, zero, sgprs, vgprs] = [48, 16, 0, 32, 64].map(Value::Int);
        let address = Value::Int(140_341_013_919_232 + 64 * kernel as i64);
        let (name, shown) = (names[0].as_str().into(), names[1].as_str().into());
        let object = Value::Int(object as i64);
        let extdata = extdata.as_str().into();
        let row = [
            nid, pid, object, name, shown, address, size, alignment, zero, zero, sgprs, vgprs, zero, extdata,
        ];
        self.push(rocpd::INFO_KERNEL_SYMBOL, &row).map(drop)
    }

    /// A shard has records instead.
    fn node_and_process(&mut self) -> Result {
        let [nid, pid] = self.owner();
        let Run { nodes, .. } = self.run;
        let node = &nodes[self.process.node].node;
        let hash = Value::Int(308_220_289_812_934_058 + self.process.node as i64);
        let text = |text: &'a String| Value::from(text.as_str());
        let row = [
            hash,
            text(&node.machine_id),
            text(&node.system_name),
            text(&node.hostname),
            text(&node.release),
            text(&node.version),
            text(&node.hardware_name),
            text(&node.domain_name),
        ];
        let (Value::Int(node), Value::Int(process)) = (nid, pid) else { return Ok(()) };
        self.push_as(rocpd::INFO_NODE, node, &row)?;
        let payload = self.payload();
        let environment = json!({
            "OMPI_COMM_WORLD_RANK": self.process.rank.to_string(),
            "OMPI_COMM_WORLD_SIZE": self.run.ranks.len().to_string(),
            "OMPI_COMM_WORLD_LOCAL_RANK": self.process.local_rank.to_string(),
            "PATH": "/opt/rocm/bin:/usr/bin:/bin", "HOME": "/home/user",
            "SERVICE_TOKEN": "not-a-secret-but-looks-like-one", "LARGE": payload,
        });
        let environment = environment.to_string();
        let command = format!("python3 train.py --rank {}", self.process.rank);
        let (from, to) = (self.time(RUN_START), self.time(RUN_START + self.run.length()));
        let ppid = Value::Int(self.process.ppid.into());
        let (command, environment) = (command.as_str().into(), environment.as_str().into());
        let row = [nid, ppid, pid, from, to, from, to, command, environment];
        self.push_as(rocpd::INFO_PROCESS, process, &row)
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

    fn used(&self, name: &str) -> Value<'static> {
        Value::Int(self.used[name])
    }

    fn time(&self, true_ns: i64) -> Value<'static> {
        Value::Int(self.clock.local(true_ns))
    }

    /// The node and the process.
    fn owner(&self) -> [Value<'static>; 2] {
        if self.sink.is_native() {
            return [1, 1].map(Value::Int);
        }
        [2_066_035_298 + self.process.node as i64, self.process.pid.into()].map(Value::Int)
    }

    /// A handle of the runtime, from 0; keys of a shard are from 1.
    fn id(&self, handle: i64) -> Value<'static> {
        Value::Int(handle + i64::from(self.sink.is_native()))
    }

    fn agent(&self, agent: usize) -> Value<'static> {
        self.id(agent as i64)
    }

    fn tid(&self, thread: usize) -> i64 {
        i64::from(self.process.pid) + 100_000 * thread as i64
    }

    fn thread(&self, thread: usize) -> Value<'static> {
        Value::Int(if self.sink.is_native() { thread as i64 + 1 } else { self.tid(thread) })
    }

    /// Whether the next text is a large one.
    fn is_large(&mut self) -> bool {
        self.bulk.payload_bytes > 0 && self.random.bits().is_multiple_of(PAYLOAD_EVERY)
    }

    fn payload(&mut self) -> String {
        let least = self.bulk.payload_bytes;
        let length = self.random.between(least as i64, 2 * least as i64) as usize;
        let word = format!("{:016x} ", self.random.bits());
        let mut text = word.repeat(length.div_ceil(word.len()));
        text.truncate(length);
        text
    }
}
