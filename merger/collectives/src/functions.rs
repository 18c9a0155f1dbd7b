//! The collective functions of MPI and RCCL, and torch's names for those of gloo.

use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// Which ranks wait for which in every call of a function, by its definition. [`rpd_clocks::ObservedWaits`] describes
/// one collective, with its root.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FunctionWaits {
    /// Every rank waits for all ranks.
    AllForAll,
    /// Every rank waits for the root.
    AllForRoot,
    /// The root waits for all ranks.
    RootForAll,
    /// No rank waits for another, or the waiting is not known because a rank may send or receive nothing.
    Unknown,
}

/// How the sizes of one collective compare between ranks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DataPattern {
    /// The call has no size.
    None,
    /// The size is the same on all ranks.
    Same,
    /// Each rank has its own size.
    Own,
}

/// A collective function.
#[derive(Clone, Copy, Debug)]
struct Collective {
    name: &'static str,
    waits: FunctionWaits,
    data: DataPattern,
}

const fn collective(name: &'static str, waits: FunctionWaits, data: DataPattern) -> Collective {
    Collective { name, waits, data }
}

/// Known collective functions.
///
/// In `Alltoallv` and `Alltoallw` two ranks may exchange no data, and in `Reduce_scatter` a rank may receive
/// none. The recorded sizes are sums, so they do not show which ranks wait.
const COLLECTIVES: [Collective; 43] = [
    collective("MPI_Barrier", FunctionWaits::AllForAll, DataPattern::None),
    collective("MPI_Bcast", FunctionWaits::AllForRoot, DataPattern::Same),
    collective("MPI_Gather", FunctionWaits::RootForAll, DataPattern::Own),
    collective("MPI_Gatherv", FunctionWaits::RootForAll, DataPattern::Own),
    collective("MPI_Scatter", FunctionWaits::AllForRoot, DataPattern::Own),
    collective("MPI_Scatterv", FunctionWaits::AllForRoot, DataPattern::Own),
    collective("MPI_Allgather", FunctionWaits::AllForAll, DataPattern::Same),
    collective("MPI_Allgatherv", FunctionWaits::AllForAll, DataPattern::Own),
    collective("MPI_Alltoall", FunctionWaits::AllForAll, DataPattern::Same),
    collective("MPI_Alltoallv", FunctionWaits::Unknown, DataPattern::Own),
    collective("MPI_Alltoallw", FunctionWaits::Unknown, DataPattern::Own),
    collective("MPI_Allreduce", FunctionWaits::AllForAll, DataPattern::Same),
    collective("MPI_Reduce", FunctionWaits::RootForAll, DataPattern::Same),
    collective("MPI_Reduce_scatter", FunctionWaits::Unknown, DataPattern::Same),
    collective("MPI_Reduce_scatter_block", FunctionWaits::AllForAll, DataPattern::Same),
    collective("MPI_Scan", FunctionWaits::Unknown, DataPattern::Same),
    collective("MPI_Exscan", FunctionWaits::Unknown, DataPattern::Same),
    collective("MPI_Neighbor_allgather", FunctionWaits::Unknown, DataPattern::Own),
    collective("MPI_Neighbor_allgatherv", FunctionWaits::Unknown, DataPattern::Own),
    collective("MPI_Neighbor_alltoall", FunctionWaits::Unknown, DataPattern::Own),
    collective("MPI_Neighbor_alltoallv", FunctionWaits::Unknown, DataPattern::Own),
    collective("MPI_Neighbor_alltoallw", FunctionWaits::Unknown, DataPattern::Own),
    collective("ncclAllReduce", FunctionWaits::AllForAll, DataPattern::Same),
    collective("ncclBroadcast", FunctionWaits::AllForRoot, DataPattern::Same),
    collective("ncclBcast", FunctionWaits::AllForRoot, DataPattern::Same),
    collective("ncclReduce", FunctionWaits::RootForAll, DataPattern::Same),
    collective("ncclAllGather", FunctionWaits::AllForAll, DataPattern::Same),
    collective("ncclReduceScatter", FunctionWaits::AllForAll, DataPattern::Same),
    collective("ncclGather", FunctionWaits::RootForAll, DataPattern::Same),
    collective("ncclScatter", FunctionWaits::AllForRoot, DataPattern::Same),
    collective("ncclAllToAll", FunctionWaits::AllForAll, DataPattern::Same),
    collective("ncclAllToAllv", FunctionWaits::Unknown, DataPattern::Own),
    collective("gloo:all_reduce", FunctionWaits::AllForAll, DataPattern::Same),
    collective("gloo:sparse_all_reduce", FunctionWaits::AllForAll, DataPattern::Own),
    collective("gloo:broadcast", FunctionWaits::AllForRoot, DataPattern::Same),
    collective("gloo:reduce", FunctionWaits::RootForAll, DataPattern::Same),
    collective("gloo:all_gather", FunctionWaits::AllForAll, DataPattern::Same),
    collective("gloo:gather", FunctionWaits::RootForAll, DataPattern::Own),
    collective("gloo:scatter", FunctionWaits::AllForRoot, DataPattern::Own),
    collective("gloo:all_to_all", FunctionWaits::Unknown, DataPattern::Own),
    collective("gloo:reduce_scatter", FunctionWaits::AllForAll, DataPattern::Same),
    collective("gloo:barrier", FunctionWaits::AllForAll, DataPattern::None),
    collective(NAMED_BY_ARGS, FunctionWaits::Unknown, DataPattern::Own),
];

/// Meaning of an MPI call for the own time of its rank.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MessageCall {
    /// `MPI_Init` or `MPI_Init_thread`.
    Initializes,
    /// A call that a program repeats until a message has arrived or a window holds a value.
    Polls,
    /// A call that sends a message or posts a receive. A program also does that between two polls.
    Posts,
    /// Any other call.
    Other,
}

impl MessageCall {
    /// Returns the kind of the function with this name.
    pub fn named(name: &[u8]) -> MessageCall {
        match name {
            b"MPI_Init" | b"MPI_Init_thread" => MessageCall::Initializes,
            b"MPI_Test"
            | b"MPI_Testall"
            | b"MPI_Testany"
            | b"MPI_Testsome"
            | b"MPI_Iprobe"
            | b"MPI_Improbe"
            | b"MPI_Request_get_status"
            | b"MPI_Win_test"
            | b"MPI_Win_unlock"
            | b"MPI_Win_unlock_all"
            | b"MPI_Win_flush"
            | b"MPI_Win_flush_all" => MessageCall::Polls,
            b"MPI_Send" | b"MPI_Ssend" | b"MPI_Bsend" | b"MPI_Rsend" | b"MPI_Isend" | b"MPI_Issend"
            | b"MPI_Ibsend" | b"MPI_Irsend" | b"MPI_Irecv" | b"MPI_Start" | b"MPI_Startall"
            | b"MPI_Win_lock" | b"MPI_Win_lock_all" => MessageCall::Posts,
            _ => MessageCall::Other,
        }
    }

    /// Returns whether a rank may wait for a message in a region of this name that a profiler recorded.
    pub fn is_message(name: &[u8]) -> bool {
        let of_mpi = name.strip_prefix(b"MPI_").is_some_and(|rest| {
            let kinds: [&[u8]; 6] = [b"Recv", b"Send", b"Ssend", b"Wait", b"Probe", b"Mrecv"];
            kinds.iter().any(|kind| rest.starts_with(kind))
        });
        let rest = name.strip_prefix(b"nccl").or_else(|| name.strip_prefix(b"rccl"));
        let of_rccl = rest.is_some_and(|rest| matches!(rest, b"Send" | b"Recv" | b":send" | b":recv"));
        of_mpi || of_rccl || matches!(name, b"gloo:send" | b"gloo:recv" | b"gloo:recvAnySource")
    }
}

/// Torch's name for every RCCL call. The args of the call name the function.
const NAMED_BY_ARGS: &str = "record_param_comms";
/// Torch's names for RCCL functions in these args. A barrier is an all-reduce of one element.
const TORCH_NAMES: [(&str, &str); 19] = [
    ("allreduce", "ncclAllReduce"),
    ("all_reduce", "ncclAllReduce"),
    ("allreduce_coalesced", "ncclAllReduce"),
    ("barrier", "ncclAllReduce"),
    ("broadcast", "ncclBroadcast"),
    ("_broadcast_oop", "ncclBroadcast"),
    ("reduce", "ncclReduce"),
    ("_reduce_oop", "ncclReduce"),
    ("allgather", "ncclAllGather"),
    ("all_gather", "ncclAllGather"),
    ("_allgather_base", "ncclAllGather"),
    ("allgather_into_tensor_coalesced", "ncclAllGather"),
    ("reduce_scatter", "ncclReduceScatter"),
    ("_reduce_scatter_base", "ncclReduceScatter"),
    ("reduce_scatter_tensor_coalesced", "ncclReduceScatter"),
    ("gather", "ncclGather"),
    ("scatter", "ncclScatter"),
    ("all_to_all", "ncclAllToAllv"),
    ("all_to_allv", "ncclAllToAllv"),
];

/// Maximum length of a function name, in bytes.
const MAX_NAME_BYTES: usize = 40;
/// Bit of [`CollectiveFunction`] that marks the form of a function that only starts the operation.
const STARTS_BIT: u8 = 0x80;

/// A function, stored as its index in the table and a bit that marks the form that only starts the operation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct CollectiveFunction(u8);

impl CollectiveFunction {
    /// Returns the collective function of this name. For MPI this includes the forms with a capital `I` and for
    /// large counts, for RCCL names with the prefix `rccl`.
    pub fn named(name: &[u8]) -> Option<CollectiveFunction> {
        // Most strings are not collectives and are rejected here.
        if name.len() > MAX_NAME_BYTES
            || !matches!(name.get(..4), Some(b"MPI_" | b"nccl" | b"rccl" | b"gloo" | b"reco"))
        {
            return None;
        }
        let name = std::str::from_utf8(name).ok()?;
        if name == NAMED_BY_ARGS || name.starts_with("gloo:") {
            return CollectiveFunction::exactly(|known| known == name);
        }
        let name = name.strip_suffix("_c").unwrap_or(name);
        if let Some(rest) = name.strip_prefix("rccl").or_else(|| name.strip_prefix("nccl")) {
            return CollectiveFunction::exactly(|known| known.strip_prefix("nccl") == Some(rest));
        }
        let rest = name.strip_prefix("MPI_")?;
        if let Some(found) = CollectiveFunction::exactly(|known| known.strip_prefix("MPI_") == Some(rest)) {
            return Some(found);
        }
        let started = rest.strip_prefix('I')?;
        let same_but_first = |known: &str| {
            let known = known.strip_prefix("MPI_")?;
            let (own, theirs) = (started.split_at_checked(1)?, known.split_at_checked(1)?);
            Some(own.0.to_ascii_uppercase() == theirs.0 && own.1 == theirs.1 && own.0 != theirs.0)
        };
        let CollectiveFunction(place) =
            CollectiveFunction::exactly(|known| same_but_first(known) == Some(true))?;
        Some(CollectiveFunction(place | STARTS_BIT))
    }

    fn exactly(is_it: impl Fn(&str) -> bool) -> Option<CollectiveFunction> {
        let place = COLLECTIVES.iter().position(|c| is_it(c.name))?;
        u8::try_from(place).ok().map(CollectiveFunction)
    }

    /// Returns the RCCL function for the name that torch writes into the args of a call.
    pub fn of_torch(name: &str) -> Option<CollectiveFunction> {
        let (_, known) = TORCH_NAMES.iter().find(|(torch, _)| *torch == name)?;
        CollectiveFunction::exactly(|function| function == *known)
    }

    /// Returns whether the args of the call must name the function.
    pub fn is_by_args(self) -> bool {
        self.known().is_some_and(|known| known.name == NAMED_BY_ARGS)
    }

    /// Returns whether it is a gloo function, which torch's threads run concurrently.
    pub fn is_gloo(self) -> bool {
        self.known().is_some_and(|known| known.name.starts_with("gloo:"))
    }

    /// Returns the name of the function in the form in which it was called.
    pub fn name(self) -> Cow<'static, str> {
        let Some(known) = self.known() else { return Cow::Borrowed("?") };
        match known.name.strip_prefix("MPI_") {
            Some(rest) if self.only_starts() => Cow::Owned(format!("MPI_I{}", rest.to_ascii_lowercase())),
            _ => Cow::Borrowed(known.name),
        }
    }

    /// Describes a call: function, size and root.
    pub(super) fn describe(self, size: Option<i64>, root: Option<u32>) -> String {
        // For libraries other than MPI, some recorders store the number of elements instead of bytes.
        let unit = if self.name().starts_with("MPI_") { " B" } else { "" };
        let size = size.map_or(String::new(), |size| format!(" of {size}{unit}"));
        let root = root.map_or(String::new(), |root| format!(" with root {root}"));
        format!("{}{size}{root}", self.name())
    }

    /// Returns whether the call only starts the operation, so that its end does not show that other ranks
    /// entered.
    pub fn only_starts(self) -> bool {
        self.0 & STARTS_BIT != 0
    }

    /// Returns whether it belongs to RCCL. Host calls of RCCL end before the operation does.
    pub fn is_rccl(self) -> bool {
        self.known().is_some_and(|known| known.name.starts_with("nccl"))
    }

    /// Returns which ranks wait for which.
    pub fn waits(self) -> FunctionWaits {
        self.known().map_or(FunctionWaits::Unknown, |known| known.waits)
    }

    /// Returns whether all ranks must pass as many bytes.
    pub fn is_size_shared(self) -> bool {
        self.data() == DataPattern::Same
    }

    /// Returns how the sizes compare between ranks.
    pub fn data(self) -> DataPattern {
        self.known().map_or(DataPattern::Own, |known| known.data)
    }

    fn known(self) -> Option<&'static Collective> {
        COLLECTIVES.get(usize::from(self.0 & !STARTS_BIT))
    }

    /// Returns the function as a byte of a hash.
    pub(super) fn byte(self) -> u8 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_known_in_all_their_forms() {
        let all_reduce = CollectiveFunction::named(b"MPI_Allreduce").unwrap();
        assert_eq!((all_reduce.waits(), all_reduce.data()), (FunctionWaits::AllForAll, DataPattern::Same));
        assert_eq!(CollectiveFunction::named(b"MPI_Allreduce_c"), Some(all_reduce));
        let started = CollectiveFunction::named(b"MPI_Iallreduce").unwrap();
        assert!(started.only_starts() && started != all_reduce);
        assert_eq!(started.name(), "MPI_Iallreduce");
        assert_eq!(CollectiveFunction::named(b"rcclAllReduce"), CollectiveFunction::named(b"ncclAllReduce"));
        assert!(CollectiveFunction::named(b"ncclAllReduce").unwrap().is_rccl());
        let gloo = CollectiveFunction::named(b"gloo:all_reduce").unwrap();
        assert!(gloo.is_gloo() && !gloo.is_rccl() && gloo.waits() == FunctionWaits::AllForAll);
        assert!(CollectiveFunction::named(b"record_param_comms").unwrap().is_by_args());
        assert_eq!(
            CollectiveFunction::of_torch("_allgather_base"),
            CollectiveFunction::named(b"ncclAllGather")
        );
        assert!(TORCH_NAMES.iter().all(|(name, _)| CollectiveFunction::of_torch(name).is_some()));
        assert_eq!(CollectiveFunction::of_torch("wait"), None);
        for other in [
            "gloo:send",
            "nccl:all_reduce",
            "record_function",
            "MPI_Send",
            "MPI_IAllreduce",
            "MPI_Init",
            "ncclGroupEnd",
            "MPI_",
            "MPI_I",
            "MPI_Iä",
            "",
        ] {
            assert_eq!(CollectiveFunction::named(other.as_bytes()), None, "{other}");
        }
    }

    #[test]
    fn calls_that_may_wait_for_a_message_are_known() {
        for name in ["MPI_Recv", "MPI_Sendrecv", "MPI_Waitall", "ncclSend", "nccl:recv", "gloo:recv"] {
            assert!(MessageCall::is_message(name.as_bytes()), "{name}");
        }
        for name in ["MPI_Irecv", "MPI_Barrier", "ncclAllReduce", "gloo:all_reduce", "send", ""] {
            assert!(!MessageCall::is_message(name.as_bytes()), "{name}");
        }
        assert_eq!(MessageCall::named(b"MPI_Init_thread"), MessageCall::Initializes);
        assert_eq!(MessageCall::named(b"MPI_Testall"), MessageCall::Polls);
        assert_eq!(MessageCall::named(b"MPI_Recv"), MessageCall::Other);
    }

    #[test]
    fn a_function_has_the_name_by_which_it_was_found() {
        for name in
            ["MPI_Barrier", "MPI_Ibarrier", "ncclAllToAllv", "MPI_Reduce_scatter_block", "gloo:barrier"]
        {
            let function = CollectiveFunction::named(name.as_bytes()).unwrap();
            assert_eq!(function.name(), name);
        }
    }
}
