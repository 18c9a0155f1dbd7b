use rpd_graph::CollectiveWaits;

/// Number of a request among those that a rank has open.
pub type Slot = usize;

/// What a modelled rank does next.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Operation {
    /// Work between calls.
    Work(WorkPiece),
    /// `MPI_Send`, `MPI_Ssend`, `MPI_Bsend`.
    Send(Message, SendMode),
    /// `MPI_Recv`.
    Receive(Message),
    /// `MPI_Sendrecv`: what it sends, what it receives.
    SendReceive(Message, Message),
    /// `MPI_Isend`.
    BeginSend(Message, Slot),
    /// `MPI_Irecv`.
    BeginReceive(Message, Slot),
    /// `MPI_Send_init`.
    PrepareSend(Message, Slot),
    /// `MPI_Recv_init`.
    PrepareReceive(Message, Slot),
    /// `MPI_Start` of one prepared request, `MPI_Startall` of several.
    Start(Vec<Slot>),
    /// `MPI_Wait` for one request, `MPI_Waitall` for several.
    Wait(Vec<Slot>),
    /// A collective that blocks.
    Collective(Collective),
    /// A collective that a later `MPI_Wait` completes.
    BeginCollective(Collective, Slot),
    /// Goes back to the first operation of this part of the program.
    Repeat,
    /// Ends this part of the program if the last message had this tag.
    EndOnTag(i32),
}

/// Work of a rank.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WorkPiece {
    /// Name of the range around it; work without a range has its place between two calls as its label.
    pub range: Option<&'static str>,
    /// Duration, ns, to which noise is added.
    pub ns: u64,
    /// Planted excess, ns, in the runs that have it.
    pub excess_ns: u64,
}

impl WorkPiece {
    /// Returns work in a range.
    pub fn operation(range: &'static str, ns: u64, excess_ns: u64) -> Operation {
        Operation::Work(WorkPiece { range: Some(range), ns, excess_ns })
    }
}

/// One end of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Message {
    /// Index of the communicator.
    pub communicator: u32,
    /// The other end.
    pub peer: Peer,
    /// Tag; of a receive [`rpd_graph::ANY`] accepts all.
    pub tag: i32,
    /// Size, bytes: of a receive the size of its buffer.
    pub bytes: u64,
    /// Whether the program asks for the status of a receive, so that the actual source and tag are recorded.
    pub has_status: bool,
}

impl Message {
    /// Returns an end of a message on `MPI_COMM_WORLD`.
    pub fn with(rank: u32, tag: i32, bytes: u64) -> Message {
        Message { communicator: 0, peer: Peer::Rank(rank), tag, bytes, has_status: true }
    }
}

/// The other end of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Peer {
    /// A rank of the communicator, of an intercommunicator in the other group.
    Rank(u32),
    /// `MPI_ANY_SOURCE`.
    Any,
    /// The source of the message that this rank received last.
    LastSource,
}

/// How a send ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SendMode {
    /// Small messages are copied, large ones wait for their receive.
    Standard,
    /// Waits for its receive.
    Synchronous,
    /// Never waits.
    Buffered,
}

/// A collective of a rank.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Collective {
    /// Operation.
    pub kind: CollectiveKind,
    /// Index of the communicator.
    pub communicator: u32,
    /// Rank of the root in the communicator, of an operation that has one.
    pub root: Option<u32>,
    /// Bytes.
    pub bytes: u64,
}

impl Collective {
    /// Returns a collective without a root.
    pub fn of_all(kind: CollectiveKind, communicator: u32) -> Collective {
        Collective { kind, communicator, root: None, bytes: 8 }
    }

    /// Returns a collective with a root.
    pub fn rooted(kind: CollectiveKind, communicator: u32, root: u32) -> Collective {
        Collective { kind, communicator, root: Some(root), bytes: 1024 }
    }
}

/// Operation of a collective.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum CollectiveKind {
    /// `MPI_Init`
    Init,
    /// `MPI_Finalize`
    Finalize,
    /// `MPI_Barrier`
    Barrier,
    /// `MPI_Allreduce`
    Allreduce,
    /// `MPI_Bcast`
    Bcast,
    /// `MPI_Reduce`
    Reduce,
    /// `MPI_Gather`
    Gather,
    /// `MPI_Scan`
    Scan,
    /// `MPI_Exscan`
    Exscan,
    /// `MPI_Alltoallv`
    Alltoallv,
}

impl CollectiveKind {
    /// Returns whether all ranks pass as many bytes.
    pub fn is_size_shared(self) -> bool {
        use CollectiveKind::{Allreduce, Bcast, Exscan, Reduce, Scan};
        matches!(self, Allreduce | Bcast | Reduce | Scan | Exscan)
    }

    /// Returns the function that blocks.
    pub fn function(self) -> &'static str {
        match self {
            CollectiveKind::Init => "MPI_Init",
            CollectiveKind::Finalize => "MPI_Finalize",
            CollectiveKind::Barrier => "MPI_Barrier",
            CollectiveKind::Allreduce => "MPI_Allreduce",
            CollectiveKind::Bcast => "MPI_Bcast",
            CollectiveKind::Reduce => "MPI_Reduce",
            CollectiveKind::Gather => "MPI_Gather",
            CollectiveKind::Scan => "MPI_Scan",
            CollectiveKind::Exscan => "MPI_Exscan",
            CollectiveKind::Alltoallv => "MPI_Alltoallv",
        }
    }

    /// Returns the function that does not block.
    pub fn begin_function(self) -> &'static str {
        match self {
            CollectiveKind::Barrier => "MPI_Ibarrier",
            CollectiveKind::Bcast => "MPI_Ibcast",
            CollectiveKind::Reduce => "MPI_Ireduce",
            CollectiveKind::Gather => "MPI_Igather",
            _ => "MPI_Iallreduce",
        }
    }

    /// Returns which members wait for which.
    pub fn waits(self) -> CollectiveWaits {
        match self {
            CollectiveKind::Bcast => CollectiveWaits::ForRoot,
            CollectiveKind::Reduce | CollectiveKind::Gather => CollectiveWaits::RootForAll,
            CollectiveKind::Scan | CollectiveKind::Exscan => CollectiveWaits::ForLower,
            CollectiveKind::Alltoallv => CollectiveWaits::Unknown,
            _ => CollectiveWaits::ForAll,
        }
    }
}
