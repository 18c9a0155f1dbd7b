//! Rows that events refer to: threads, agents, queues, streams, kernels, counters and tracks. A row is written when
//! an event first names it. Rows of threads and agents are written at the end of the file, because their names may
//! be anywhere in it.

use crate::SOURCE;
use crate::event::EventPlace;
use crate::facts::GpuDevice;
use crate::rows::EventRows;
use crate::text::{short, unescape};
use crate::threads::ThreadList;
use rpd_shard::WriteError;
use rpd_shard::model::row_types::{
    AgentKey, AgentRow, CodeObjectKey, CodeObjectRow, KernelSymbolKey, KernelSymbolRow, PmcKey, PmcRow,
    QueueRow, RowKey, StreamKey, StreamRow, StringId, TableRow, ThreadKey, TrackKey, TrackRow, WholeNumber,
};
use rpd_shard::record::LossCause;
use rpd_translator::Translator;
use serde_json::json;
use std::collections::HashMap;
use std::hash::Hash;
use twox_hash::{XxHash3_64, XxHash3_128};

pub(crate) const ZERO: WholeNumber = WholeNumber::Signed(0);
const EMPTY_JSON: &[u8] = b"{}";
/// Maximum number of rows of each kind.
const MAX_ENTRIES: usize = 1 << 20;
/// Text for values that the file does not state.
pub(crate) const UNKNOWN: &str = "(unknown)";
/// The reason why an event yields no row.
#[derive(Debug)]
pub(crate) enum RowError {
    /// The event is malformed, for this reason.
    Bad(&'static str),
    /// There are too many rows of its kind.
    OverLimit,
    /// RocPD has no place for it.
    NoPlace,
    /// The shard cannot be written.
    Write(WriteError),
}

impl From<WriteError> for RowError {
    fn from(error: WriteError) -> RowError {
        match error {
            WriteError::TextTooLong { .. } => RowError::Bad("it is too long"),
            error => RowError::Write(error),
        }
    }
}

impl RowError {
    pub(crate) fn words(&self) -> (&'static str, LossCause) {
        match self {
            RowError::Bad(why) => (why, LossCause::BadRecord),
            RowError::OverLimit => ("there are too many of its kind", LossCause::OverLimit),
            RowError::NoPlace => ("RocPD has no place for events of its phase", LossCause::UnknownTable),
            RowError::Write(_) => ("it cannot be written", LossCause::NoSpace),
        }
    }
}

/// A hashable key of an [`EventPlace`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum PlaceKey {
    None,
    Number(i64),
    /// Hash of a word.
    Word(u64),
}

impl PlaceKey {
    pub(crate) fn of(place: EventPlace<'_>) -> PlaceKey {
        match place {
            EventPlace::None => PlaceKey::None,
            EventPlace::Number(number) => PlaceKey::Number(number),
            EventPlace::Word(word) => PlaceKey::Word(XxHash3_64::oneshot(word)),
        }
    }
}

/// The rows that events refer to; see the module.
#[derive(Debug, Default)]
pub(crate) struct ReferredRows {
    pub(crate) threads: ThreadList,
    pub(crate) devices: Vec<GpuDevice>,
    /// Keys that the rows of the agents will have, by GPU; `None` is the host.
    agents: HashMap<Option<i64>, AgentKey>,
    /// GPUs in the order of their keys.
    agent_list: Vec<Option<i64>>,
    /// Streams by GPU and stream number. Each has a queue with the same key.
    streams: HashMap<(i64, i64), StreamKey>,
    kernels: HashMap<u128, KernelSymbolKey>,
    code_object: Option<CodeObjectKey>,
    counters: HashMap<(Option<i64>, u64), PmcKey>,
    /// Tracks by thread and name.
    tracks: HashMap<(Option<ThreadKey>, StringId), TrackKey>,
}

/// Writes a row and remembers its key.
fn add<K: Hash + Eq, R: TableRow<Key: Copy>>(
    known: &mut HashMap<K, R::Key>,
    key: K,
    out: &mut Translator<'_>,
    row: &R,
) -> Result<R::Key, RowError> {
    if known.len() >= MAX_ENTRIES {
        return Err(RowError::OverLimit);
    }
    let id = out.row(SOURCE, row)?;
    known.insert(key, id);
    Ok(id)
}

/// Assigns a key to an entry and leaves its row for later.
pub(crate) fn list<K: Hash + Eq, T, const TABLE: u16>(
    known: &mut HashMap<K, RowKey<TABLE>>,
    list: &mut Vec<T>,
    key: K,
    listed: T,
) -> Result<RowKey<TABLE>, RowError> {
    if list.len() >= MAX_ENTRIES {
        return Err(RowError::OverLimit);
    }
    list.push(listed);
    let id = RowKey::new(list.len() as i64);
    known.insert(key, id);
    Ok(id)
}

impl ReferredRows {
    /// Returns the key of a GPU by its index, or of the host.
    pub(crate) fn agent(&mut self, gpu: Option<i64>) -> Result<AgentKey, RowError> {
        if let Some(agent) = self.agents.get(&gpu) {
            return Ok(*agent);
        }
        if gpu.is_some() {
            self.agent(None)?;
        }
        list(&mut self.agents, &mut self.agent_list, gpu, gpu)
    }

    /// Writes the rows of threads and agents after the whole file was read.
    pub(crate) fn finish(&mut self, out: &mut Translator<'_>) -> Result<(), WriteError> {
        self.threads.finish(out)?;
        for gpu in std::mem::take(&mut self.agent_list) {
            self.push_agent(out, gpu)?;
        }
        Ok(())
    }

    fn push_agent(&self, out: &mut Translator<'_>, gpu: Option<i64>) -> Result<(), WriteError> {
        let described = self.devices.iter().find(|device| Some(device.id) == gpu);
        let (kind, vendor) = if gpu.is_some() { ("GPU", "AMD") } else { ("CPU", "CPU") };
        let name = gpu.map_or("CPU".to_owned(), |gpu| format!("GPU {gpu}"));
        // AMD counts CPUs first. The file does not state how many there are.
        let index = Some(gpu.map_or(0, |gpu| gpu.saturating_add(1)).into());
        let product = Some(described.map_or("", |device| device.name.as_str()).as_bytes());
        let row = AgentRow {
            kind: Some(kind.as_bytes()),
            absolute_index: index,
            logical_index: index,
            type_index: Some(gpu.unwrap_or(0).into()),
            uuid: Some(ZERO),
            name: Some(name.as_bytes()),
            model_name: product,
            vendor_name: Some(vendor.as_bytes()),
            product_name: product,
            user_name: product,
            extdata: Some(described.map_or(EMPTY_JSON, |device| &device.json)),
        };
        out.row(SOURCE, &row).map(drop)
    }
}

impl EventRows<'_> {
    /// Returns the key of a GPU's stream, which is also the key of its queue.
    #[inline]
    pub(crate) fn stream(&mut self, gpu: i64, stream: i64) -> Result<StreamKey, RowError> {
        if let Some(stream) = self.known.streams.get(&(gpu, stream)) {
            return Ok(*stream);
        }
        let (queue_name, name) = (format!("Queue {stream}"), format!("Stream {stream}"));
        let extdata = json!({ "kineto": { "device": gpu, "stream": stream } }).to_string();
        let extdata = Some(extdata.as_bytes());
        if self.known.streams.len() < MAX_ENTRIES {
            self.out.row(SOURCE, &QueueRow { name: Some(queue_name.as_bytes()), extdata })?;
        }
        add(
            &mut self.known.streams,
            (gpu, stream),
            &mut self.out,
            &StreamRow { name: Some(name.as_bytes()), extdata },
        )
    }

    /// Returns the symbol of a kernel by its name.
    #[inline]
    pub(crate) fn kernel(&mut self, raw_name: &[u8]) -> Result<KernelSymbolKey, RowError> {
        let hash = XxHash3_128::oneshot(raw_name);
        if let Some(kernel) = self.known.kernels.get(&hash) {
            return Ok(*kernel);
        }
        let code_object_id = match self.known.code_object {
            Some(known) => known,
            // The file does not describe the code objects of its kernels.
            None => {
                let row = CodeObjectRow { uri: Some(UNKNOWN.as_bytes()), ..CodeObjectRow::default() };
                *self.known.code_object.insert(self.out.row(SOURCE, &row)?)
            }
        };
        let name = unescape(raw_name);
        let name = Some(short(&name));
        let row = KernelSymbolRow::named(code_object_id, name, name);
        add(&mut self.known.kernels, hash, &mut self.out, &row)
    }

    /// Returns the counter of a GPU or of the host.
    pub(crate) fn counter(
        &mut self,
        gpu: Option<i64>,
        (name, symbol): (&[u8], &[u8]),
        units: &str,
    ) -> Result<PmcKey, RowError> {
        let key = (gpu, XxHash3_64::oneshot(name));
        if let Some(counter) = self.known.counters.get(&key) {
            return Ok(*counter);
        }
        let row = PmcRow {
            agent_id: Some(self.known.agent(gpu)?),
            target_arch: Some(if gpu.is_some() { b"GPU" } else { b"CPU" }),
            instance_id: Some(gpu.unwrap_or(0).into()),
            component: Some(b"torch"),
            units: Some(units.as_bytes()),
            extdata: Some(EMPTY_JSON),
            ..PmcRow::absolute(short(name), short(symbol))
        };
        add(&mut self.known.counters, key, &mut self.out, &row)
    }

    /// Returns the track for samples of a thread, or of the process. `name` is the id of a string.
    pub(crate) fn track(&mut self, thread: Option<ThreadKey>, name: StringId) -> Result<TrackKey, RowError> {
        if let Some(track) = self.known.tracks.get(&(thread, name)) {
            return Ok(*track);
        }
        let row = TrackRow { tid: thread, name_id: Some(name), extdata: Some(EMPTY_JSON) };
        add(&mut self.known.tracks, (thread, name), &mut self.out, &row)
    }
}
