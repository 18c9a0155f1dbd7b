//! What the records of one process refer to: keys of its rows by the runtime's handles.
//!
//! Threads, queues, streams and tracks have no description in the file: their rows are made when the
//! first record names them. So are the rows of agents, kernels and counters that ought to be described
//! and are not, since AMD's views drop what refers to nothing.

use crate::messages::Messages;
use crate::output::{Output, Refused};
use crate::record::KindNames;
use rpd_shard::model::{TableId, Value, rocpd};
use std::collections::HashMap;
use std::io::Write;

/// Most rows of each table that describes something.
const MAX_DESCRIBED: usize = 1 << 20;
/// Most dispatches that counters can be joined to.
const MAX_COUNTED_DISPATCHES: usize = 4 << 20;

/// Every row begins with its node and its process, whose keys are 1.
pub(crate) const NODE: Value<'static> = Value::Int(1);
/// See [`NODE`].
pub(crate) const PROCESS: Value<'static> = Value::Int(1);

/// Keys of the rows of one table. They are dense, so that the next one is known.
#[derive(Debug, Default)]
pub(crate) struct Handles(HashMap<u64, i64>);

impl Handles {
    pub(crate) fn get(&self, handle: u64) -> Option<i64> {
        self.0.get(&handle).copied()
    }

    /// The key that the next row gets.
    pub(crate) fn next_key(&self) -> i64 {
        self.0.len() as i64 + 1
    }

    /// Adds a row.
    pub(crate) fn add<W: Write>(
        &mut self,
        handle: u64,
        out: &mut Output<'_, W>,
        table: TableId,
        row: &[Value<'_>],
    ) -> Result<i64, Refused> {
        if self.0.len() >= MAX_DESCRIBED {
            return Err(Refused::OverLimit);
        }
        let key = out.push(table, row)?;
        self.0.insert(handle, key);
        Ok(key)
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Known {
    ppid: Option<i32>,
    pub(crate) kinds: Vec<KindNames>,
    /// By the internal correlation id of the marker.
    pub(crate) markers: Messages,
    /// New names of kernels, by external correlation id.
    pub(crate) renames: Messages,
    pub(crate) agents: Handles,
    pub(crate) code_objects: Handles,
    pub(crate) kernels: Handles,
    pub(crate) counters: Handles,
    threads: Handles,
    queues: Handles,
    streams: Handles,
    /// By thread and category.
    tracks: HashMap<(i64, i64), i64>,
    /// Events of dispatches, by dispatch id, where there are counters for them.
    dispatches: HashMap<u64, i64>,
}

impl Known {
    /// Nothing is known yet of a process with this parent.
    pub(crate) fn new(ppid: Option<i32>) -> Known {
        Known { ppid, ..Known::default() }
    }

    /// Name of a kind of records.
    pub(crate) fn kind<'a>(&'a self, kind: Option<u64>, otherwise: &'a str) -> &'a str {
        self.names(kind).map_or(otherwise, |names| &names.kind)
    }

    /// Name of an operation.
    pub(crate) fn operation(&self, kind: Option<u64>, operation: Option<u64>) -> Option<&str> {
        let operation = usize::try_from(operation?).ok()?;
        Some(self.names(kind)?.operations.get(operation)?)
    }

    fn names(&self, kind: Option<u64>) -> Option<&KindNames> {
        self.kinds.get(usize::try_from(kind?).ok()?)
    }

    pub(crate) fn thread<W: Write>(&mut self, out: &mut Output<'_, W>, tid: u64) -> Result<i64, Refused> {
        if let Some(key) = self.threads.get(tid) {
            return Ok(key);
        }
        let id = i64::try_from(tid).map_err(|_| Refused::Bad(format!("{tid} is no thread id")))?;
        let ppid = Value::from(self.ppid.map(i64::from));
        self.threads.add(tid, out, rocpd::INFO_THREAD, &[NODE, ppid, PROCESS, Value::Int(id)])
    }

    pub(crate) fn queue<W: Write>(&mut self, out: &mut Output<'_, W>, handle: u64) -> Result<i64, Refused> {
        numbered(&mut self.queues, out, handle, rocpd::INFO_QUEUE, "Queue")
    }

    pub(crate) fn stream<W: Write>(&mut self, out: &mut Output<'_, W>, handle: u64) -> Result<i64, Refused> {
        numbered(&mut self.streams, out, handle, rocpd::INFO_STREAM, "Stream")
    }

    pub(crate) fn agent<W: Write>(&mut self, out: &mut Output<'_, W>, handle: u64) -> Result<i64, Refused> {
        if let Some(key) = self.agents.get(handle) {
            return Ok(key);
        }
        out.warn(format!("agent {handle} is used and not described"));
        let name = format!("agent {handle}");
        let index = Value::Int(self.agents.next_key() - 1);
        let row = [NODE, PROCESS, Value::Null, index, index, Value::Null, Value::Null, name.as_str().into()];
        self.agents.add(handle, out, rocpd::INFO_AGENT, &row)
    }

    pub(crate) fn code_object<W: Write>(&mut self, out: &mut Output<'_, W>, id: u64) -> Result<i64, Refused> {
        if let Some(key) = self.code_objects.get(id) {
            return Ok(key);
        }
        out.warn(format!("code object {id} is used and not described"));
        self.code_objects.add(id, out, rocpd::INFO_CODE_OBJECT, &[NODE, PROCESS])
    }

    pub(crate) fn kernel<W: Write>(&mut self, out: &mut Output<'_, W>, id: u64) -> Result<i64, Refused> {
        if let Some(key) = self.kernels.get(id) {
            return Ok(key);
        }
        out.warn(format!("kernel {id} is used and not described"));
        let object = self.code_object(out, 0)?;
        let name = format!("kernel {id}");
        let row = [NODE, PROCESS, object.into(), name.as_str().into(), name.as_str().into()];
        self.kernels.add(id, out, rocpd::INFO_KERNEL_SYMBOL, &row)
    }

    pub(crate) fn counter<W: Write>(&mut self, out: &mut Output<'_, W>, handle: u64) -> Result<i64, Refused> {
        if let Some(key) = self.counters.get(handle) {
            return Ok(key);
        }
        out.warn(format!("counter {handle} is used and not described"));
        let name = format!("counter {handle}");
        let (null, name) = (Value::Null, Value::Text(name.as_bytes()));
        let row = [NODE, PROCESS, null, "GPU".into(), null, null, name, name];
        self.counters.add(handle, out, rocpd::INFO_PMC, &row)
    }

    /// The track of a thread on which calls of a category without length are.
    pub(crate) fn track<W: Write>(
        &mut self,
        out: &mut Output<'_, W>,
        thread: i64,
        category: Value<'_>,
    ) -> Result<i64, Refused> {
        let Value::Int(name) = category else { return Err(Refused::Bad("a category without name".into())) };
        if let Some(key) = self.tracks.get(&(thread, name)) {
            return Ok(*key);
        }
        let key = out.push(rocpd::TRACK, &[NODE, PROCESS, thread.into(), category])?;
        self.tracks.insert((thread, name), key);
        Ok(key)
    }

    /// The event of a dispatch that was remembered.
    pub(crate) fn dispatch(&self, dispatch: u64) -> Option<i64> {
        self.dispatches.get(&dispatch).copied()
    }

    /// Whether another dispatch can be remembered.
    pub(crate) fn has_room(&self) -> bool {
        self.dispatches.len() < MAX_COUNTED_DISPATCHES
    }

    /// Remembers the event of a dispatch; of equal ids the first one counts.
    pub(crate) fn remember(&mut self, dispatch: u64, event: i64) {
        if self.has_room() {
            self.dispatches.entry(dispatch).or_insert(event);
        }
    }
}

/// The row of a queue or stream: 0 is the default one, the others count in the order in which they
/// appear. The handle is `$.rpd.id` of its extdata.
fn numbered<W: Write>(
    handles: &mut Handles,
    out: &mut Output<'_, W>,
    handle: u64,
    table: TableId,
    what: &str,
) -> Result<i64, Refused> {
    if let Some(key) = handles.get(handle) {
        return Ok(key);
    }
    let name = if handle == 0 {
        format!("Default {what}")
    } else {
        // The default one stands first.
        numbered(handles, out, 0, table, what)?;
        format!("{what} {}", handles.next_key() - 2)
    };
    let extdata = format!("{{\"rpd\":{{\"id\":{handle}}}}}");
    handles.add(handle, out, table, &[NODE, PROCESS, name.as_str().into(), extdata.as_str().into()])
}
