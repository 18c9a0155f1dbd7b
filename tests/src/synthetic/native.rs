use std::sync::Arc;

/// What the collector itself records of one thread: a range, a mark, a call of MPI or RCCL, a request
/// that was complete, a new communicator.
#[derive(Clone, PartialEq, Debug)]
pub struct NativeRows {
    /// The thread, by its position among those of the process.
    pub thread: usize,
    /// What it is.
    pub call: NativeCall,
    /// True time of its beginning.
    pub start: i64,
    /// True time of its end; that of the beginning for what happens at a moment.
    pub end: i64,
    /// Its stack id; of a request and a communicator that of the call that started or made it.
    pub stack: i64,
    /// That of the range around it, else 0; of a request that of the call that saw it complete.
    pub parent: i64,
}

/// Kinds of [`NativeRows`] events.
#[derive(Clone, PartialEq, Debug)]
pub enum NativeCall {
    /// A roctx range with its name.
    Range(Arc<str>),
    /// A roctx mark with its text.
    Mark(Arc<str>),
    /// An MPI call.
    Mpi {
        /// `MPI_Allreduce` and the like.
        function: &'static str,
        /// Name of the communicator.
        comm: Option<&'static str>,
        /// The other rank of a message.
        peer: Option<i64>,
        /// Root of a rooted collective.
        root: Option<i64>,
        /// Tag of a message.
        tag: Option<i64>,
        /// Bytes.
        bytes: Option<i64>,
        /// Number of the call on this communicator in this process.
        seq: Option<i64>,
    },
    /// A call of RCCL.
    Rccl {
        /// `ncclAllReduce` and the like.
        function: &'static str,
        /// Name of the communicator.
        comm: Option<&'static str>,
        /// Root of a rooted collective.
        root: Option<i64>,
        /// Elements, their type, and bytes.
        elements: Option<(i64, &'static str, i64)>,
        /// Number of the call on this communicator in this process.
        seq: Option<i64>,
    },
    /// A non-blocking MPI operation that was seen to be complete.
    Request {
        /// `MPI_Irecv` and the like.
        function: &'static str,
        /// Rank and tag of the message, where a status was asked for.
        message: Option<(i64, i64)>,
        /// Bytes of the message.
        bytes: Option<i64>,
    },
    /// A communicator that was made or named.
    Communicator {
        /// `MPI_Comm_split` and the like.
        function: &'static str,
        /// Its name among the ranks.
        comm: &'static str,
        /// The name that the program gave it.
        label: Option<&'static str>,
        /// Number of its ranks, and which of them this process is.
        size_rank: Option<(i64, i64)>,
    },
}

impl NativeRows {
    /// Name of the RocPD region or sample that it becomes.
    pub fn name(&self) -> &str {
        match &self.call {
            NativeCall::Range(name) | NativeCall::Mark(name) => name,
            NativeCall::Mpi { function, .. }
            | NativeCall::Rccl { function, .. }
            | NativeCall::Request { function, .. }
            | NativeCall::Communicator { function, .. } => function,
        }
    }
}
