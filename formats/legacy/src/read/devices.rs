//! Threads, agents, queues, streams, kernels and counters to which the rows of a process refer. The first reference
//! writes the row.

use super::output::RpdOutput;
use super::{EMPTY_JSON, RpdReadError, UNKNOWN, ZERO};
use rpd_shard::model::LocalNs;
use rpd_shard::model::row_types::{
    AgentKey, AgentRow, CodeObjectKey, CodeObjectRow, KernelSymbolKey, KernelSymbolRow, PmcKey, PmcRow,
    QueueKey, QueueRow, StreamKey, StreamRow, ThreadKey, ThreadRow,
};
use rpd_translator::cut_text;
use serde_json::json;
use std::collections::HashMap;

/// Maximum number of agents, queues, streams, kernels or counters of one file.
const MAX_ENTRIES: usize = 1 << 20;
/// Maximum length in bytes of a stream name, which is an address.
const MAX_STREAM: usize = 256;
/// Maximum length in bytes of a kernel name.
const MAX_KERNEL: usize = 64 << 10;

/// A processor as a row identifies it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum RpdProcessor {
    /// The CPUs of the process.
    Host,
    /// A GPU by its number in the process; `None` if the row has none.
    Gpu(Option<i64>),
    /// A GPU by its number in the monitor, which differs from its number in the process.
    MonitoredGpu(Option<i64>),
    /// Another device of the monitor.
    Monitored(Option<i64>),
}

/// A kernel, identified by its text ids in the file. Two kernels with the same texts become two rows with the same
/// names.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct KernelIds {
    pub(super) description: Option<i64>,
    pub(super) op_type: Option<i64>,
    pub(super) kernel_name: Option<i64>,
}

/// A counter: name and agent.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct CounterName {
    pub(super) agent: RpdProcessor,
    pub(super) name: Box<[u8]>,
}

/// Keys of the rows, per process.
#[derive(Debug, Default)]
pub(super) struct DeviceRows {
    threads: HashMap<(u32, i64), ThreadKey>,
    agents: HashMap<(u32, RpdProcessor), AgentKey>,
    queues: HashMap<(u32, Option<i64>, Option<i64>), QueueKey>,
    streams: HashMap<(u32, Box<[u8]>), StreamKey>,
    code_objects: HashMap<u32, CodeObjectKey>,
    kernels: HashMap<(u32, KernelIds), KernelSymbolKey>,
    counters: HashMap<(u32, CounterName), PmcKey>,
}

impl RpdOutput<'_> {
    /// Returns an error if there are more rows than a job can have.
    fn check_limit(&self, rows: usize, what: &'static str) -> Result<(), RpdReadError> {
        if rows < MAX_ENTRIES { Ok(()) } else { Err(self.input.too_many(what, MAX_ENTRIES)) }
    }

    /// Writes the threads that the census found.
    pub(super) fn threads(&mut self) -> Result<(), RpdReadError> {
        for ((source, tid), (start, end)) in &self.census.threads {
            self.push_thread(*source, *tid, Some((LocalNs(*start), LocalNs(*end))))?;
        }
        Ok(())
    }

    /// Returns the thread with this id; 0 is an unknown thread.
    pub(super) fn thread(&mut self, source: u32, tid: i64) -> Result<ThreadKey, RpdReadError> {
        match self.devices.threads.get(&(source, tid)) {
            Some(key) => Ok(*key),
            None => {
                self.check_limit(self.devices.threads.len(), "threads")?;
                self.push_thread(source, tid, None)
            }
        }
    }

    fn push_thread(
        &mut self,
        source: u32,
        tid: i64,
        times: Option<(LocalNs, LocalNs)>,
    ) -> Result<ThreadKey, RpdReadError> {
        let row = ThreadRow {
            ppid: None,
            tid: tid.into(),
            name: (tid == 0).then_some(UNKNOWN),
            start: times.map(|(start, _)| start),
            end: times.map(|(_, end)| end),
            extdata: Some(EMPTY_JSON),
        };
        let key = self.row(source, &row)?;
        self.devices.threads.insert((source, tid), key);
        Ok(key)
    }

    /// Returns the agent of a processor. The first agent of a process is its CPUs, to which copies refer.
    pub(super) fn agent(&mut self, source: u32, agent: RpdProcessor) -> Result<AgentKey, RpdReadError> {
        if let Some(key) = self.devices.agents.get(&(source, agent)) {
            return Ok(*key);
        }
        self.check_limit(self.devices.agents.len(), "agents")?;
        if agent != RpdProcessor::Host {
            self.agent(source, RpdProcessor::Host)?;
        }
        let (kind, number, extdata) = match agent {
            RpdProcessor::Host => ("CPU", Some(0), json!({})),
            RpdProcessor::Gpu(gpu) => ("GPU", gpu, json!({ "rpd": { "gpu": gpu } })),
            RpdProcessor::MonitoredGpu(device) => {
                ("GPU", device, json!({ "rpd": { "monitored_device": device } }))
            }
            RpdProcessor::Monitored(device) => {
                ("CPU", device, json!({ "rpd": { "monitored_device": device } }))
            }
        };
        let shown = number.map_or("?".to_owned(), |n| n.to_string());
        let name = match agent {
            RpdProcessor::Host => "CPU".to_owned(),
            RpdProcessor::Gpu(_) => format!("GPU {shown}"),
            RpdProcessor::MonitoredGpu(_) => format!("GPU {shown} (monitor)"),
            RpdProcessor::Monitored(_) => format!("device {shown} (monitor)"),
        };
        // AMD counts CPUs first. The file does not state their number, nor which GPU of the process a monitored GPU
        // is.
        let index = match agent {
            RpdProcessor::Host => Some(0),
            RpdProcessor::Gpu(gpu) => gpu.and_then(|gpu| gpu.checked_add(1)),
            RpdProcessor::MonitoredGpu(_) | RpdProcessor::Monitored(_) => None,
        };
        let extdata = extdata.to_string();
        let row = AgentRow {
            kind: Some(kind.as_bytes()),
            absolute_index: index.map(Into::into),
            logical_index: index.map(Into::into),
            type_index: number.map(Into::into),
            uuid: Some(ZERO),
            name: Some(name.as_bytes()),
            model_name: Some(b""),
            vendor_name: Some(if kind == "GPU" { b"AMD" } else { b"CPU" }),
            product_name: Some(b""),
            user_name: Some(b""),
            extdata: Some(extdata.as_bytes()),
        };
        let key = self.row(source, &row)?;
        self.devices.agents.insert((source, agent), key);
        Ok(key)
    }

    /// Returns the queue with this number on this GPU.
    pub(super) fn queue(
        &mut self,
        source: u32,
        gpu: Option<i64>,
        queue: Option<i64>,
    ) -> Result<QueueKey, RpdReadError> {
        if let Some(key) = self.devices.queues.get(&(source, gpu, queue)) {
            return Ok(*key);
        }
        self.check_limit(self.devices.queues.len(), "queues")?;
        let name = queue.map_or("(unknown)".to_owned(), |queue| format!("Queue {queue}"));
        let extdata = json!({ "rpd": { "gpu": gpu, "queue": queue } }).to_string();
        let row = QueueRow { name: Some(name.as_bytes()), extdata: Some(extdata.as_bytes()) };
        let key = self.row(source, &row)?;
        self.devices.queues.insert((source, gpu, queue), key);
        Ok(key)
    }

    /// Returns the stream at this address, which is empty if it is unknown.
    pub(super) fn stream(&mut self, source: u32, stream: &[u8]) -> Result<StreamKey, RpdReadError> {
        let place = (source, Box::from(cut_text(stream, MAX_STREAM)));
        if let Some(key) = self.devices.streams.get(&place) {
            return Ok(*key);
        }
        self.check_limit(self.devices.streams.len(), "streams")?;
        let handle = String::from_utf8_lossy(&place.1).into_owned();
        let (name, extdata) = match handle.as_str() {
            "" => ("(unknown)".to_owned(), "{}".to_owned()),
            "0x0" | "0" => ("Default Stream".to_owned(), json!({ "rpd": { "stream": handle } }).to_string()),
            _ => (format!("Stream {handle}"), json!({ "rpd": { "stream": handle } }).to_string()),
        };
        let row = StreamRow { name: Some(name.as_bytes()), extdata: Some(extdata.as_bytes()) };
        let key = self.row(source, &row)?;
        self.devices.streams.insert(place, key);
        Ok(key)
    }

    /// Returns the symbol of a kernel. `shown` is the name of its operations, `kernel` the name at the launch.
    pub(super) fn kernel(
        &mut self,
        source: u32,
        ids: KernelIds,
        (shown, kernel): (&[u8], Option<&[u8]>),
    ) -> Result<KernelSymbolKey, RpdReadError> {
        if let Some(key) = self.devices.kernels.get(&(source, ids)) {
            return Ok(*key);
        }
        self.check_limit(self.devices.kernels.len(), "kernels")?;
        let code_object = self.code_object(source)?;
        let shown = self.cut(shown, MAX_KERNEL);
        let kernel = kernel.map_or(shown, |kernel| self.cut(kernel, MAX_KERNEL));
        let row = KernelSymbolRow::named(code_object, Some(kernel), Some(shown));
        let key = self.row(source, &row)?;
        self.devices.kernels.insert((source, ids), key);
        Ok(key)
    }

    /// Writes the placeholder for all code of the process, which the file does not describe.
    fn code_object(&mut self, source: u32) -> Result<CodeObjectKey, RpdReadError> {
        if let Some(key) = self.devices.code_objects.get(&source) {
            return Ok(*key);
        }
        let row = CodeObjectRow { uri: Some(UNKNOWN), ..CodeObjectRow::default() };
        let key = self.row(source, &row)?;
        self.devices.code_objects.insert(source, key);
        Ok(key)
    }

    /// Returns a counter. `units` is empty if they are unknown.
    pub(super) fn counter(
        &mut self,
        source: u32,
        counter: CounterName,
        (symbol, units, component): (&[u8], &str, &str),
    ) -> Result<PmcKey, RpdReadError> {
        let place = (source, counter);
        if let Some(key) = self.devices.counters.get(&place) {
            return Ok(*key);
        }
        self.check_limit(self.devices.counters.len(), "counters")?;
        let agent = self.agent(source, place.1.agent)?;
        let (arch, instance) = match place.1.agent {
            RpdProcessor::Gpu(gpu) | RpdProcessor::MonitoredGpu(gpu) => ("GPU", gpu),
            RpdProcessor::Host => ("CPU", Some(0)),
            RpdProcessor::Monitored(device) => ("CPU", device),
        };
        let row = PmcRow {
            agent_id: Some(agent),
            target_arch: Some(arch.as_bytes()),
            instance_id: instance.map(Into::into),
            component: Some(component.as_bytes()),
            units: Some(units.as_bytes()),
            extdata: Some(EMPTY_JSON),
            ..PmcRow::absolute(&place.1.name, symbol)
        };
        let key = self.row(source, &row)?;
        self.devices.counters.insert(place, key);
        Ok(key)
    }
}
