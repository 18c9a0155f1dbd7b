//! What the calls of a run do not tell.

/// Why a part of the calls is missing or cannot be used.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum MissingCalls {
    /// The run has no call to MPI.
    NoMpiCalls,
    /// Nothing was recorded of these ranks.
    MissingRanks(Vec<u32>),
    /// The collectors of these ranks did not finish; their last calls are missing.
    UnfinishedRanks(Vec<u32>),
    /// Rows were lost that may be calls or belong to calls.
    LostRows {
        /// Table of the rows.
        table: String,
        /// Number of rows; `None` if it is not known.
        rows: Option<u64>,
        /// Whether larger rings would have avoided it.
        is_of_rings: bool,
    },
    /// Calls were dropped: their numbers are missing.
    DroppedCalls {
        /// The ranks.
        ranks: Vec<u32>,
        /// Number of calls.
        calls: u64,
    },
    /// The members of these communicators are not all known.
    UnknownMembers(Vec<String>),
    /// Several threads of these ranks call MPI. Each has its own timeline.
    SeveralThreads(Vec<u32>),
    /// Calls of one thread overlap, so they belong to several threads, or their times are wrong.
    OverlappingCalls {
        /// The ranks.
        ranks: Vec<u32>,
        /// Number of calls.
        calls: u64,
    },
    /// Calls that the window cuts are left out, as it is not known how long they wait in it.
    CutCalls {
        /// The ranks.
        ranks: Vec<u32>,
        /// Number of calls.
        calls: u64,
        /// Time of the window in these calls, ns.
        ns: u64,
    },
    /// Messages and collectives without a communicator or a number, as profilers record them.
    WithoutCommunicator {
        /// The ranks.
        ranks: Vec<u32>,
        /// Number of calls.
        calls: u64,
    },
    /// The source of what `MPI_Sendrecv` receives is not recorded.
    ReceiveHalves {
        /// The ranks.
        ranks: Vec<u32>,
        /// Number of calls.
        calls: u64,
    },
    /// Which persistent operations `MPI_Start` starts is not recorded.
    PersistentOperations {
        /// The ranks.
        ranks: Vec<u32>,
        /// Number of calls.
        calls: u64,
    },
    /// Messages of `MPI_Mrecv` of which it is not known which `MPI_Improbe` took them.
    MatchedProbes {
        /// The ranks.
        ranks: Vec<u32>,
        /// Number of calls.
        calls: u64,
    },
    /// Operations completed of which the beginning is not known.
    UnknownCompletions {
        /// The ranks.
        ranks: Vec<u32>,
        /// Number of completions.
        calls: u64,
    },
    /// Regions without valid times or name.
    UnusableRegions {
        /// Number of regions.
        regions: u64,
    },
    /// No range or repetition marks steps, and the run is too short for windows; or no range has the name that
    /// the user wants.
    NoSteps,
}
