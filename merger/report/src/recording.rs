//! How to record what is missing in the calls of a run.

use rpd_calls::MissingCalls;

/// What records calls to MPI.
const MPI_CALLS: &str = "rpd-collect, of programs that use MPI";
/// What records steps.
const STEPS: &str = "mark steps by ranges, or name ranges of the run by --step NAME";

/// Returns an option of rpd-collect, or what the program can do, so that nothing is missing; `None` if nothing helps.
///
/// `is_part`: it is missing in a window of the run.
pub(crate) fn how_to_record(missing: &MissingCalls, is_part: bool) -> Option<&'static str> {
    match missing {
        MissingCalls::NoMpiCalls | MissingCalls::NoSteps if is_part => None,
        MissingCalls::NoMpiCalls => Some(MPI_CALLS),
        MissingCalls::MissingRanks(_) => Some("start each rank by rpd-collect, and merge all shards"),
        // Damage, limits or killed collectors lost the others.
        MissingCalls::LostRows { rows: None, .. } | MissingCalls::LostRows { is_of_rings: false, .. } => None,
        MissingCalls::LostRows { .. } | MissingCalls::DroppedCalls { .. } => Some("rpd-collect --ring-size"),
        MissingCalls::WithoutCommunicator { .. } => Some("rpd-collect"),
        MissingCalls::ReceiveHalves { .. } | MissingCalls::PersistentOperations { .. } => {
            Some("rpd-collect of this version")
        }
        MissingCalls::SeveralThreads(_) => Some("call MPI in one thread"),
        MissingCalls::NoSteps => Some(STEPS),
        MissingCalls::UnfinishedRanks(_)
        | MissingCalls::UnknownMembers(_)
        | MissingCalls::OverlappingCalls { .. }
        | MissingCalls::CutCalls { .. }
        | MissingCalls::MatchedProbes { .. }
        | MissingCalls::UnknownCompletions { .. }
        | MissingCalls::UnusableRegions { .. } => None,
    }
}
