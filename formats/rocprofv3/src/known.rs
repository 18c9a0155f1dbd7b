//! Maps the runtime's handles to keys of the rows that records of one process refer to.
//!
//! The file does not describe threads, queues, streams and tracks: a row is written when a record first names one.
//! The same applies to agents, kernels and counters that the file should describe but does not. AMD's views drop
//! rows with references to nothing.

use crate::messages::MessageTexts;
use crate::process_output::{ElementError, ProcessOutput};
use crate::record::KindNames;
use rpd_shard::model::rocpd;
use rpd_shard::model::row_types::{
    AgentKey, AgentRow, CodeObjectKey, CodeObjectRow, EventKey, KernelSymbolKey, KernelSymbolRow, PmcKey,
    PmcRow, QueueKey, QueueRow, RowKey, StreamKey, StreamRow, StringId, TableRow, ThreadKey, ThreadRow,
    TrackKey, TrackRow,
};
use rpd_translator::Translator;
use std::collections::HashMap;

/// Maximum number of rows of each descriptive table.
const MAX_DESCRIBED: usize = 1 << 20;
/// Maximum number of dispatches to which counters can be joined.
const MAX_COUNTED_DISPATCHES: usize = 4 << 20;

/// Keys of the rows of one table. Keys are dense, so that the next one is known.
#[derive(Debug, Default)]
pub(crate) struct HandleKeys<const TABLE: u16>(HashMap<u64, RowKey<TABLE>>);

impl<const TABLE: u16> HandleKeys<TABLE> {
    pub(crate) fn get(&self, handle: u64) -> Option<RowKey<TABLE>> {
        self.0.get(&handle).copied()
    }

    /// Returns the key of the next row.
    pub(crate) fn next_key(&self) -> RowKey<TABLE> {
        RowKey::new(self.0.len() as i64 + 1)
    }

    /// Writes a row and remembers its key.
    pub(crate) fn add<R: TableRow<Key = RowKey<TABLE>>>(
        &mut self,
        handle: u64,
        translator: &mut Translator<'_>,
        source: u32,
        row: &R,
    ) -> Result<RowKey<TABLE>, ElementError> {
        if self.0.len() >= MAX_DESCRIBED {
            return Err(ElementError::OverLimit);
        }
        let key = translator.row(source, row)?;
        self.0.insert(handle, key);
        Ok(key)
    }
}

/// The rows that records refer to; see the module.
#[derive(Debug, Default)]
pub(crate) struct ReferredRows {
    ppid: Option<i32>,
    pub(crate) kinds: Vec<KindNames>,
    /// Marker messages by the internal correlation id of the marker.
    pub(crate) markers: MessageTexts,
    /// New kernel names by external correlation id.
    pub(crate) renames: MessageTexts,
    pub(crate) agents: HandleKeys<{ rocpd::INFO_AGENT.0 }>,
    pub(crate) code_objects: HandleKeys<{ rocpd::INFO_CODE_OBJECT.0 }>,
    pub(crate) kernels: HandleKeys<{ rocpd::INFO_KERNEL_SYMBOL.0 }>,
    pub(crate) counters: HandleKeys<{ rocpd::INFO_PMC.0 }>,
    threads: HandleKeys<{ rocpd::INFO_THREAD.0 }>,
    queues: HandleKeys<{ rocpd::INFO_QUEUE.0 }>,
    streams: HandleKeys<{ rocpd::INFO_STREAM.0 }>,
    /// Tracks by thread and category.
    tracks: HashMap<(ThreadKey, StringId), TrackKey>,
    /// Events of dispatches by dispatch id, if there are counters for them.
    dispatches: HashMap<u64, EventKey>,
}

impl ReferredRows {
    /// Creates empty tables for a process with this parent.
    pub(crate) fn new(ppid: Option<i32>) -> ReferredRows {
        ReferredRows { ppid, ..ReferredRows::default() }
    }

    /// Returns the name of a kind of records.
    pub(crate) fn kind<'a>(&'a self, kind: Option<u64>, otherwise: &'a str) -> &'a str {
        self.names(kind).map_or(otherwise, |names| &names.kind)
    }

    /// Returns the name of an operation.
    pub(crate) fn operation(&self, kind: Option<u64>, operation: Option<u64>) -> Option<&str> {
        let operation = usize::try_from(operation?).ok()?;
        Some(self.names(kind)?.operations.get(operation)?)
    }

    fn names(&self, kind: Option<u64>) -> Option<&KindNames> {
        self.kinds.get(usize::try_from(kind?).ok()?)
    }

    /// Returns the event of a dispatch that was remembered.
    pub(crate) fn dispatch(&self, dispatch: u64) -> Option<EventKey> {
        self.dispatches.get(&dispatch).copied()
    }

    /// Returns whether another dispatch can be remembered.
    pub(crate) fn can_remember(&self) -> bool {
        self.dispatches.len() < MAX_COUNTED_DISPATCHES
    }

    /// Remembers the event of a dispatch; of equal ids the first one counts.
    pub(crate) fn remember(&mut self, dispatch: u64, event: EventKey) {
        if self.can_remember() {
            self.dispatches.entry(dispatch).or_insert(event);
        }
    }
}

impl ProcessOutput<'_> {
    pub(crate) fn thread_key(&mut self, tid: u64) -> Result<ThreadKey, ElementError> {
        if let Some(key) = self.known.threads.get(tid) {
            return Ok(key);
        }
        let id = i64::try_from(tid).map_err(|_| ElementError::Bad(format!("{tid} is not a thread id")))?;
        let ppid = self.known.ppid.map(|ppid| i64::from(ppid).into());
        let row = ThreadRow { ppid, tid: id.into(), name: None, start: None, end: None, extdata: None };
        self.known.threads.add(tid, &mut self.translator, self.source, &row)
    }

    pub(crate) fn queue_key(&mut self, handle: u64) -> Result<QueueKey, ElementError> {
        if let Some(key) = self.known.queues.get(handle) {
            return Ok(key);
        }
        if handle != 0 {
            // The default queue is first.
            self.queue_key(0)?;
        }
        let (name, extdata) = numbered(handle, self.known.queues.next_key(), "Queue");
        let row = QueueRow { name: Some(name.as_bytes()), extdata: Some(extdata.as_bytes()) };
        self.known.queues.add(handle, &mut self.translator, self.source, &row)
    }

    pub(crate) fn stream_key(&mut self, handle: u64) -> Result<StreamKey, ElementError> {
        if let Some(key) = self.known.streams.get(handle) {
            return Ok(key);
        }
        if handle != 0 {
            // The default stream is first.
            self.stream_key(0)?;
        }
        let (name, extdata) = numbered(handle, self.known.streams.next_key(), "Stream");
        let row = StreamRow { name: Some(name.as_bytes()), extdata: Some(extdata.as_bytes()) };
        self.known.streams.add(handle, &mut self.translator, self.source, &row)
    }

    pub(crate) fn agent_key(&mut self, handle: u64) -> Result<AgentKey, ElementError> {
        if let Some(key) = self.known.agents.get(handle) {
            return Ok(key);
        }
        self.warn(format!("agent {handle} is used and not described"));
        let name = format!("agent {handle}");
        let index = Some((self.known.agents.next_key().get() - 1).into());
        let row = AgentRow {
            absolute_index: index,
            logical_index: index,
            name: Some(name.as_bytes()),
            ..AgentRow::default()
        };
        self.known.agents.add(handle, &mut self.translator, self.source, &row)
    }

    pub(crate) fn code_object_key(&mut self, id: u64) -> Result<CodeObjectKey, ElementError> {
        if let Some(key) = self.known.code_objects.get(id) {
            return Ok(key);
        }
        self.warn(format!("code object {id} is used and not described"));
        self.known.code_objects.add(id, &mut self.translator, self.source, &CodeObjectRow::default())
    }

    pub(crate) fn kernel_key(&mut self, id: u64) -> Result<KernelSymbolKey, ElementError> {
        if let Some(key) = self.known.kernels.get(id) {
            return Ok(key);
        }
        self.warn(format!("kernel {id} is used and not described"));
        let name = format!("kernel {id}");
        let name = Some(name.as_bytes());
        let row = KernelSymbolRow::named(self.code_object_key(0)?, name, name);
        self.known.kernels.add(id, &mut self.translator, self.source, &row)
    }

    pub(crate) fn counter_key(&mut self, handle: u64) -> Result<PmcKey, ElementError> {
        if let Some(key) = self.known.counters.get(handle) {
            return Ok(key);
        }
        self.warn(format!("counter {handle} is used and not described"));
        let name = format!("counter {handle}");
        let row = PmcRow {
            target_arch: Some(b"GPU"),
            name: name.as_bytes(),
            symbol: name.as_bytes(),
            ..PmcRow::default()
        };
        self.known.counters.add(handle, &mut self.translator, self.source, &row)
    }

    /// Returns the track of a thread for calls of a category that have no duration.
    pub(crate) fn track_key(
        &mut self,
        thread: ThreadKey,
        category: StringId,
    ) -> Result<TrackKey, ElementError> {
        if let Some(key) = self.known.tracks.get(&(thread, category)) {
            return Ok(*key);
        }
        let key = self.row(&TrackRow { tid: Some(thread), name_id: Some(category), extdata: None })?;
        self.known.tracks.insert((thread, category), key);
        Ok(key)
    }
}

/// Returns name and extdata of a queue or stream with the key `next`. Handle 0 is the default one; the others are
/// numbered in the order in which they occur. The handle is `$.rpd.id` of the extdata.
fn numbered<const TABLE: u16>(handle: u64, next: RowKey<TABLE>, what: &str) -> (String, String) {
    let name = match handle {
        0 => format!("Default {what}"),
        _ => format!("{what} {}", next.get() - 2),
    };
    (name, format!("{{\"rpd\":{{\"id\":{handle}}}}}"))
}
