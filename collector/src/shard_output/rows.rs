//! Items that the collecting thread sends to the writing thread.

use super::python_rows::PythonSample;
use super::system_rows::{MetricsDescription, MetricsTick};
use rpd_ring::record::MpiReceive;
use rpd_shard::record::{ClockSet, Loss, ProbeBurst, Process};

/// A string. Strings are numbered from 0 in the order of [`OutputItem::Name`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct NameId(pub u32);

/// An interval or a point in time in a thread. Times in ns of `CLOCK_BOOTTIME`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EventSpan {
    /// Number of the process in the shard.
    pub source: u32,
    /// Key of the row of the thread.
    pub thread: i64,
    /// Start.
    pub start: i64,
    /// End; `None` if it was still open, and for a point.
    pub end: Option<i64>,
    /// Text of the range, or name of the function.
    pub name: NameId,
    /// Stack id.
    pub stack: i64,
    /// Parent stack id; 0 for none.
    pub parent: i64,
}

/// Columns of an MPI call besides those of an [`EventSpan`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MpiRow {
    /// Communicator.
    pub comm: Option<NameId>,
    /// Rank of the peer.
    pub peer: Option<i32>,
    /// Root.
    pub root: Option<i32>,
    /// Tag.
    pub tag: Option<i32>,
    /// Bytes that the call sends, or size of its receive buffer.
    pub bytes: Option<i64>,
    /// Number of the call on the communicator, from 1.
    pub seq: Option<i64>,
    /// Receive half of a call that also sends to its peer.
    pub receive: Option<MpiReceive>,
    /// Stack id of the matched probe that found the message of the call.
    pub probe_stack: Option<i64>,
}

/// Columns of an RCCL call besides those of an [`EventSpan`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RcclRow {
    /// Communicator.
    pub comm: Option<NameId>,
    /// Rank of the peer.
    pub peer: Option<i32>,
    /// Root.
    pub root: Option<i32>,
    /// Number of elements.
    pub count: Option<i64>,
    /// Type of the elements.
    pub datatype: Option<NameId>,
    /// Bytes of the elements.
    pub bytes: Option<i64>,
    /// Number of the call on the communicator, from 1.
    pub seq: Option<i64>,
    /// Handle of the stream that gets the operation.
    pub stream: Option<i64>,
}

/// Columns of a completed request besides those of an [`EventSpan`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RequestRow {
    /// Rank that sent the message.
    pub peer: Option<i32>,
    /// Tag of the message.
    pub tag: Option<i32>,
    /// Bytes of the message.
    pub bytes: Option<i64>,
    /// Stack id of the call that created a persistent request.
    pub init_stack: Option<i64>,
}

/// Columns of a communicator besides those of an [`EventSpan`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CommunicatorRow {
    /// The name by which calls refer to it.
    pub comm: NameId,
    /// The name that the program gave it.
    pub label: Option<NameId>,
    /// Number of its ranks, and rank of this process in it.
    pub size_rank: Option<(u32, u32)>,
    /// Side of an intercommunicator: 0 or 1.
    pub side: Option<u8>,
    /// Neighbours in a topology.
    pub neighbours: TopologyNeighbours,
}

/// Ranks of the neighbours of a process in a topology, each as a JSON list.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TopologyNeighbours {
    /// Neighbours that send to the process.
    pub sources: Option<Box<str>>,
    /// Neighbours to which the process sends.
    pub destinations: Option<Box<str>>,
}

/// An item to write.
#[derive(Clone, PartialEq, Debug)]
pub enum OutputItem {
    /// The next string.
    Name(Box<[u8]>),
    /// A thread. Its key is its ordinal among the threads of its process.
    Thread {
        /// The process.
        source: u32,
        /// Process id of the parent.
        ppid: i32,
        /// Thread id from the system.
        tid: i32,
        /// Name.
        name: Box<str>,
        /// Time at which its ring was created.
        start: i64,
    },
    /// A roctx mark at time `start`.
    Mark(EventSpan),
    /// An MPI call.
    Mpi(EventSpan, MpiRow),
    /// An RCCL call.
    Rccl(EventSpan, RcclRow),
    /// A completed request at time `start`. `stack` is the stack id of the call that started it, `parent`
    /// that of the call that completed it.
    Request(EventSpan, RequestRow),
    /// A communicator that was created or named at time `start`.
    Communicator(EventSpan, CommunicatorRow),
    /// A process that is new or has changed.
    Process(Box<Process>),
    /// The command of this rank, when it starts and when it ends.
    Command(Box<Process>),
    /// A reading of the clocks.
    Clock(Box<ClockSet>),
    /// A probe burst to another node.
    Probes(Box<ProbeBurst>),
    /// The counters of the node. Sent once, before the first tick.
    MetricsDescription(Box<MetricsDescription>),
    /// Values of counters at one time.
    MetricsTick(Box<MetricsTick>),
    /// The Python stack of a thread at one time.
    PythonSample(Box<PythonSample>),
    /// An entry of the loss ledger.
    Loss(Loss),
    /// Asks the writing thread to sync everything before this item, because a signal announces the end.
    Sync {
        /// Number of the signal.
        signal: i32,
    },
    /// The end of the shard.
    End,
}

/// Items that are sent together: first the items in order, then the ranges.
#[derive(Debug, Default)]
pub struct OutputBatch {
    /// Everything but ranges.
    pub items: Vec<OutputItem>,
    /// roctx ranges, which refer to names and threads of the items. Ranges are most of the data and much
    /// smaller than an item.
    pub ranges: Vec<EventSpan>,
}

impl OutputBatch {
    /// Number of items at which a batch is full.
    pub const FULL: usize = 2048;
    /// Number of ranges at which a batch is full.
    pub const FULL_RANGES: usize = 8192;

    /// Makes a batch without ranges.
    pub fn of(items: Vec<OutputItem>) -> OutputBatch {
        OutputBatch { items, ranges: Vec::new() }
    }

    /// Whether the batch should be sent.
    pub fn is_full(&self) -> bool {
        self.items.len() >= OutputBatch::FULL || self.ranges.len() >= OutputBatch::FULL_RANGES
    }

    /// Whether the batch has neither items nor ranges.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty() && self.ranges.is_empty()
    }

    /// Whether this is the last batch.
    pub fn is_last(&self) -> bool {
        self.items.last() == Some(&OutputItem::End)
    }

    /// Empties the batch, but keeps its memory.
    pub fn clear(&mut self) {
        self.items.clear();
        self.ranges.clear();
    }
}
