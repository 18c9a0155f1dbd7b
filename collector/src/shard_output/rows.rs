//! What the collecting thread hands to the writing thread.

use super::system_rows::SystemRows;
use rpd_shard::record::{ClockSet, Loss, ProbeBurst, Process};

/// A string, numbered from 0 in the order of [`OutputItem::Name`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct NameId(pub u32);

/// Something with a beginning and mostly an end. Times in ns of `CLOCK_BOOTTIME`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EventSpan {
    /// The process, by its number in the shard.
    pub source: u32,
    /// Key of the thread's row.
    pub thread: i64,
    /// Beginning.
    pub start: i64,
    /// End; none if it was still open.
    pub end: Option<i64>,
    /// Text of the range, or name of the function.
    pub name: NameId,
    /// Its own stack id.
    pub stack: i64,
    /// Stack id of what it is in, 0 for nothing.
    pub parent: i64,
}

/// What an MPI call has beyond a [`EventSpan`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MpiRow {
    /// Communicator.
    pub comm: Option<NameId>,
    /// Rank of the other side.
    pub peer: Option<i32>,
    /// Root.
    pub root: Option<i32>,
    /// Tag.
    pub tag: Option<i32>,
    /// Bytes handed over or room given.
    pub bytes: Option<i64>,
    /// Number of the call on the communicator, from 1.
    pub seq: Option<i64>,
}

/// What an RCCL call has beyond a [`EventSpan`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RcclRow {
    /// Communicator.
    pub comm: Option<NameId>,
    /// Rank of the other side.
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
}

/// What a completed request has beyond a [`EventSpan`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RequestRow {
    /// Rank that the message came from.
    pub peer: Option<i32>,
    /// Its tag.
    pub tag: Option<i32>,
    /// Its bytes.
    pub bytes: Option<i64>,
}

/// What a communicator has beyond a [`EventSpan`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CommunicatorRow {
    /// What calls on it say.
    pub comm: NameId,
    /// The name that the program gave it.
    pub label: Option<NameId>,
    /// Number of its ranks, and which of them this process is.
    pub size_rank: Option<(u32, u32)>,
}

/// One thing to write.
#[derive(Clone, PartialEq, Debug)]
pub enum OutputItem {
    /// The next string.
    Name(Box<[u8]>),
    /// A thread; its key is the number of threads of its process so far.
    Thread {
        /// The process.
        source: u32,
        /// Parent's process id.
        ppid: i32,
        /// Thread id of the system.
        tid: i32,
        /// Name.
        name: Box<str>,
        /// When its ring was made.
        start: i64,
    },
    /// A roctx mark: its time is `start`.
    Mark(EventSpan),
    /// An MPI call.
    Mpi(EventSpan, MpiRow),
    /// An RCCL call.
    Rccl(EventSpan, RcclRow),
    /// A request that is complete: its time is `start`, `stack` that of the call that started it, and
    /// `parent` that of the call that saw it complete.
    Request(EventSpan, RequestRow),
    /// A communicator was made or named: its time is `start`.
    Communicator(EventSpan, CommunicatorRow),
    /// A process, new or changed.
    Process(Box<Process>),
    /// The command of this rank, started or ended.
    Command(Box<Process>),
    /// A reading of the clocks.
    Clock(Box<ClockSet>),
    /// Clocks of another node.
    Probes(Box<ProbeBurst>),
    /// Counters of the node.
    System(Box<SystemRows>),
    /// Something that is lost.
    Loss(Loss),
    /// All that came before goes to the disk now: a signal says that the end is near.
    Keep {
        /// Its number.
        signal: i32,
    },
    /// The shard is complete.
    End,
}

/// What is handed over at a time: first the items in order, then the ranges.
#[derive(Debug, Default)]
pub struct OutputBatch {
    /// Everything but ranges.
    pub items: Vec<OutputItem>,
    /// roctx ranges, which use names and threads of the items. They are most of what there is, and
    /// much smaller than an item.
    pub ranges: Vec<EventSpan>,
}

impl OutputBatch {
    /// Handed over when it has this many items, ...
    pub const FULL: usize = 2048;
    /// ... or this many ranges.
    pub const FULL_RANGES: usize = 8192;

    /// A batch without ranges.
    pub fn of(items: Vec<OutputItem>) -> OutputBatch {
        OutputBatch { items, ranges: Vec::new() }
    }

    /// Whether it should be handed over.
    pub fn is_full(&self) -> bool {
        self.items.len() >= OutputBatch::FULL || self.ranges.len() >= OutputBatch::FULL_RANGES
    }

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty() && self.ranges.is_empty()
    }

    /// Whether it is the last one.
    pub fn is_last(&self) -> bool {
        self.items.last() == Some(&OutputItem::End)
    }

    /// Empties it, but keeps its memory.
    pub fn clear(&mut self) {
        self.items.clear();
        self.ranges.clear();
    }
}
