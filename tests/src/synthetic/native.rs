use std::sync::Arc;

/// What the collector itself records: a range, a mark or an MPI call of one thread.
#[derive(Clone, PartialEq, Debug)]
pub struct Native {
    /// The thread, by its position among those of the process.
    pub thread: usize,
    /// What it is.
    pub call: Call,
    /// True time of its beginning.
    pub start: i64,
    /// True time of its end; that of the beginning for a mark.
    pub end: i64,
    /// Its stack id.
    pub stack: i64,
    /// That of the range around it, else 0.
    pub parent: i64,
}

/// Kinds of [`Native`] events.
#[derive(Clone, PartialEq, Debug)]
pub enum Call {
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
}

impl Native {
    /// Name of the RocPD region or sample that it becomes.
    pub fn name(&self) -> &str {
        match &self.call {
            Call::Range(name) | Call::Mark(name) => name,
            Call::Mpi { function, .. } => function,
        }
    }
}
