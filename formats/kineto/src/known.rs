//! What events refer to: threads, agents, queues, streams, kernels, counters and tracks. Their rows are made when the
//! first event names them; those of threads and agents at the end of the file, since their names may stand anywhere.

use crate::event::Place;
use crate::facts::Device;
use crate::output::{Output, short};
use crate::text::unescape;
use crate::threads::Threads;
use rpd_shard::WriteError;
use rpd_shard::model::{TableId, Value, rocpd};
use rpd_shard::record::LossCause;
use serde_json::json;
use std::collections::HashMap;
use std::hash::Hash;
use std::io::Write;
use twox_hash::{XxHash3_64, XxHash3_128};

/// The node and process rows of a shard with one process.
pub(crate) const OWNER: Value<'static> = Value::Int(1);
pub(crate) const NULL: Value<'static> = Value::Null;
pub(crate) const ZERO: Value<'static> = Value::Int(0);
const EMPTY_JSON: Value<'static> = Value::Text(b"{}");
/// Most rows of each kind.
const MAX_ENTRIES: usize = 1 << 20;
/// Stands for what the file does not tell.
pub(crate) const UNKNOWN: &str = "(unknown)";

/// Why an event yields no row.
#[derive(Debug)]
pub(crate) enum Refused {
    /// It does not make sense.
    Bad(&'static str),
    /// There are too many of its kind.
    OverLimit,
    /// RocPD has no place for it.
    NoPlace,
    /// The shard cannot be written.
    Write(WriteError),
}

impl From<WriteError> for Refused {
    fn from(error: WriteError) -> Refused {
        match error {
            WriteError::TextTooLong { .. } => Refused::Bad("it is too long"),
            error => Refused::Write(error),
        }
    }
}

impl Refused {
    pub(crate) fn words(&self) -> (&'static str, LossCause) {
        match self {
            Refused::Bad(why) => (why, LossCause::BadRecord),
            Refused::OverLimit => ("there are too many of its kind", LossCause::OverLimit),
            Refused::NoPlace => ("RocPD has no place for events of its phase", LossCause::UnknownTable),
            Refused::Write(_) => ("it cannot be written", LossCause::NoSpace),
        }
    }
}

/// A [`Place`] to remember.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Key {
    None,
    Number(i64),
    /// Hash of a word.
    Word(u64),
}

impl Key {
    pub(crate) fn of(place: Place<'_>) -> Key {
        match place {
            Place::None => Key::None,
            Place::Number(number) => Key::Number(number),
            Place::Word(word) => Key::Word(XxHash3_64::oneshot(word)),
        }
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Known {
    pub(crate) threads: Threads,
    pub(crate) devices: Vec<Device>,
    /// Keys of the rows that the agents will get, by GPU; `None` is the host.
    agents: HashMap<Option<i64>, i64>,
    /// In the order of their keys.
    agent_list: Vec<Option<i64>>,
    /// By GPU and stream. Each has a queue with the same key.
    streams: HashMap<(i64, i64), i64>,
    kernels: HashMap<u128, i64>,
    has_code_object: bool,
    counters: HashMap<(Option<i64>, u64), i64>,
    /// By thread and name.
    tracks: HashMap<(Option<i64>, i64), i64>,
}

/// Adds a row and remembers its key.
fn add<W: Write, K: Hash + Eq>(
    known: &mut HashMap<K, i64>,
    key: K,
    out: &mut Output<W>,
    table: TableId,
    row: &[Value<'_>],
) -> Result<i64, Refused> {
    if known.len() >= MAX_ENTRIES {
        return Err(Refused::OverLimit);
    }
    let id = out.push(table, row)?;
    known.insert(key, id);
    Ok(id)
}

/// Gives something its key, which is that of its row later.
pub(crate) fn list<K: Hash + Eq, T>(
    known: &mut HashMap<K, i64>,
    list: &mut Vec<T>,
    key: K,
    listed: T,
) -> Result<i64, Refused> {
    if list.len() >= MAX_ENTRIES {
        return Err(Refused::OverLimit);
    }
    list.push(listed);
    let id = list.len() as i64;
    known.insert(key, id);
    Ok(id)
}

impl Known {
    /// A GPU by its index, or the host.
    pub(crate) fn agent(&mut self, gpu: Option<i64>) -> Result<i64, Refused> {
        if let Some(agent) = self.agents.get(&gpu) {
            return Ok(*agent);
        }
        if gpu.is_some() {
            self.agent(None)?;
        }
        list(&mut self.agents, &mut self.agent_list, gpu, gpu)
    }

    /// Adds the rows of threads and agents, when the whole file has been read.
    pub(crate) fn finish<W: Write>(&mut self, out: &mut Output<W>) -> Result<(), WriteError> {
        self.threads.finish(out)?;
        for gpu in std::mem::take(&mut self.agent_list) {
            self.push_agent(out, gpu)?;
        }
        Ok(())
    }

    fn push_agent<W: Write>(&self, out: &mut Output<W>, gpu: Option<i64>) -> Result<(), WriteError> {
        let described = self.devices.iter().find(|device| Some(device.id) == gpu);
        let (kind, vendor) = if gpu.is_some() { ("GPU", "AMD") } else { ("CPU", "CPU") };
        let name = gpu.map_or("CPU".to_owned(), |gpu| format!("GPU {gpu}"));
        // AMD counts CPUs first. How many there are is not in the file.
        let index = Value::from(Some(gpu.map_or(0, |gpu| gpu.saturating_add(1))));
        let product = Value::from(described.map_or("", |device| device.name.as_str()));
        let row = [
            OWNER,
            OWNER,
            Value::from(kind),
            index,
            index,
            Value::Int(gpu.unwrap_or(0)),
            ZERO,
            Value::from(name.as_str()),
            product,
            Value::from(vendor),
            product,
            product,
            described.map_or(EMPTY_JSON, |device| Value::Text(&device.json)),
        ];
        out.push(rocpd::INFO_AGENT, &row).map(drop)
    }

    /// A stream of a GPU, and its queue: both have this key.
    #[inline]
    pub(crate) fn stream<W: Write>(
        &mut self,
        out: &mut Output<W>,
        gpu: i64,
        stream: i64,
    ) -> Result<i64, Refused> {
        if let Some(stream) = self.streams.get(&(gpu, stream)) {
            return Ok(*stream);
        }
        let (queue_name, name) = (format!("Queue {stream}"), format!("Stream {stream}"));
        let extdata = json!({ "kineto": { "device": gpu, "stream": stream } }).to_string();
        let row = |name| [OWNER, OWNER, Value::Text(name), Value::from(extdata.as_str())];
        if self.streams.len() < MAX_ENTRIES {
            out.push(rocpd::INFO_QUEUE, &row(queue_name.as_bytes()))?;
        }
        add(&mut self.streams, (gpu, stream), out, rocpd::INFO_STREAM, &row(name.as_bytes()))
    }

    /// The symbol of a kernel, by its name.
    #[inline]
    pub(crate) fn kernel<W: Write>(&mut self, out: &mut Output<W>, raw_name: &[u8]) -> Result<i64, Refused> {
        let hash = XxHash3_128::oneshot(raw_name);
        if let Some(kernel) = self.kernels.get(&hash) {
            return Ok(*kernel);
        }
        if !self.has_code_object {
            out.push(rocpd::INFO_CODE_OBJECT, &[OWNER, OWNER, NULL, Value::from(UNKNOWN)])?;
            self.has_code_object = true;
        }
        let name = unescape(raw_name);
        let name = Value::Text(short(&name));
        add(
            &mut self.kernels,
            hash,
            out,
            rocpd::INFO_KERNEL_SYMBOL,
            &[OWNER, OWNER, Value::Int(1), name, name],
        )
    }

    /// A counter of a GPU or of the host.
    pub(crate) fn counter<W: Write>(
        &mut self,
        out: &mut Output<W>,
        gpu: Option<i64>,
        (name, symbol): (&[u8], &[u8]),
        units: &str,
    ) -> Result<i64, Refused> {
        let key = (gpu, XxHash3_64::oneshot(name));
        if let Some(counter) = self.counters.get(&key) {
            return Ok(*counter);
        }
        let agent = self.agent(gpu)?;
        let row = [
            OWNER,
            OWNER,
            Value::Int(agent),
            Value::from(if gpu.is_some() { "GPU" } else { "CPU" }),
            ZERO,
            Value::Int(gpu.unwrap_or(0)),
            Value::Text(short(name)),
            Value::Text(short(symbol)),
            Value::from(""),
            Value::from(""),
            Value::from("torch"),
            Value::from(units),
            Value::from("ABS"),
            Value::from(""),
            Value::from(""),
            ZERO,
            ZERO,
            EMPTY_JSON,
        ];
        add(&mut self.counters, key, out, rocpd::INFO_PMC, &row)
    }

    /// A track of samples, of a thread or of the process; `name` is the id of a string.
    pub(crate) fn track<W: Write>(
        &mut self,
        out: &mut Output<W>,
        thread: Option<i64>,
        name: i64,
    ) -> Result<i64, Refused> {
        if let Some(track) = self.tracks.get(&(thread, name)) {
            return Ok(*track);
        }
        let row = [OWNER, OWNER, thread.into(), Value::Int(name), EMPTY_JSON];
        add(&mut self.tracks, (thread, name), out, rocpd::TRACK, &row)
    }
}
