//! Meaning of each function of MPI, RCCL, HIP and CUDA in the analysis of waits.

use rpd_collectives::CollectiveFunction;
use rpd_graph::{CollectiveWaits, MessageRole};

/// The work of its GPUs for which a call of a process waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum GpuWait {
    /// None: it launches work at most.
    Nothing,
    /// That of one stream, which is not recorded.
    OneStream,
    /// All work that was launched before.
    AllStreams,
}

/// Meaning of a function.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FunctionKind {
    /// `MPI_Init`, `MPI_Init_thread`.
    Initialize,
    /// `MPI_Finalize`.
    Finalize,
    /// Sends a message.
    Send { role: MessageRole, is_blocking: bool },
    /// Receives a message.
    Receive { is_blocking: bool },
    /// Sends a message and receives another one.
    SendAndReceive { is_blocking: bool },
    /// Waits for a message and leaves it.
    Probe,
    /// Waits for a message and takes it from its channel.
    MatchedProbe,
    /// Receives a message that a matched probe took.
    ReceiveMatched,
    /// Looks whether a message has arrived.
    PollMessage,
    /// The same, and takes it from its channel.
    PollMatched,
    /// Looks whether operations are complete.
    PollRequests,
    /// Creates the request of a persistent operation.
    Prepare(MessageRole),
    /// Starts persistent operations.
    Start,
    /// All members of a communicator enter, and pass as many bytes each if the size is shared.
    Collective { waits: CollectiveWaits, is_blocking: bool, is_size_shared: bool },
    /// A function of HIP or CUDA.
    Gpu(GpuWait),
    /// A function of RCCL or NCCL, which launches kernels.
    Rccl,
    /// Anything else.
    Other,
}

impl FunctionKind {
    /// Returns whether a program repeats the call until it succeeds.
    pub(crate) fn is_poll(self) -> bool {
        matches!(self, FunctionKind::PollMessage | FunctionKind::PollMatched | FunctionKind::PollRequests)
    }

    /// Returns whether the function is one of MPI.
    pub(crate) fn is_of_mpi(self) -> bool {
        !matches!(self, FunctionKind::Gpu(_) | FunctionKind::Rccl)
    }
}

/// Functions that create a communicator by a collective of all members of its parent, in which all wait for all.
const CREATING: [&str; 10] = [
    "MPI_Comm_create",
    "MPI_Comm_dup",
    "MPI_Comm_dup_with_info",
    "MPI_Comm_split",
    "MPI_Comm_split_type",
    "MPI_Cart_create",
    "MPI_Cart_sub",
    "MPI_Dist_graph_create",
    "MPI_Dist_graph_create_adjacent",
    "MPI_Graph_create",
];
/// Functions that are collectives of a communicator, of which nothing says which member waits.
const UNKNOWN_WAITS: [&str; 3] = ["MPI_Comm_free", "MPI_Comm_disconnect", "MPI_Intercomm_merge"];
/// Maximum length of a function name, in bytes.
const MAX_NAME_BYTES: usize = 64;

/// Returns the name of a function without the forms of the profiling interface and for large counts, and its
/// meaning; `None` if a text names no function of MPI, RCCL, HIP or CUDA.
pub(crate) fn function_named(name: &[u8]) -> Option<(&str, FunctionKind)> {
    gpu_function_named(name).or_else(|| mpi_function_named(name))
}

fn gpu_function_named(name: &[u8]) -> Option<(&str, FunctionKind)> {
    const PREFIXES: [&[u8]; 5] = [b"hip", b"cuda", b"cu", b"nccl", b"rccl"];
    let prefix = PREFIXES.into_iter().find(|prefix| name.starts_with(prefix))?;
    let rest = &name[prefix.len()..];
    let is_plain = rest.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'_');
    if name.len() > MAX_NAME_BYTES || !is_plain || !rest.first().is_some_and(u8::is_ascii_uppercase) {
        return None;
    }
    let (name, rest) = (std::str::from_utf8(name).ok()?, std::str::from_utf8(rest).ok()?);
    if prefix.ends_with(b"ccl") {
        return Some((name, FunctionKind::Rccl));
    }
    // Copies without this word return when the data are there.
    let is_blocking_copy = rest.starts_with("Memcpy") && !rest.contains("Async");
    let wait = match rest {
        "DeviceSynchronize" | "CtxSynchronize" => GpuWait::AllStreams,
        _ if rest.ends_with("Synchronize") || is_blocking_copy => GpuWait::OneStream,
        _ => GpuWait::Nothing,
    };
    Some((name, FunctionKind::Gpu(wait)))
}

fn mpi_function_named(name: &[u8]) -> Option<(&str, FunctionKind)> {
    let name = name.strip_prefix(b"P").unwrap_or(name);
    if name.len() > MAX_NAME_BYTES || !name.starts_with(b"MPI_") {
        return None;
    }
    let name = name.strip_suffix(b"_c").unwrap_or(name);
    let rest = name.get(4..)?;
    let is_plain = rest.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'_');
    let is_capitalised = rest.first().is_some_and(u8::is_ascii_uppercase);
    if !is_plain || !is_capitalised || !rest.iter().any(u8::is_ascii_lowercase) {
        return None;
    }
    let name = std::str::from_utf8(name).ok()?;
    Some((name, kind_of(name)))
}

fn kind_of(name: &str) -> FunctionKind {
    let send = |role, is_blocking| FunctionKind::Send { role, is_blocking };
    match name {
        "MPI_Init" | "MPI_Init_thread" => FunctionKind::Initialize,
        "MPI_Finalize" => FunctionKind::Finalize,
        "MPI_Send" => send(MessageRole::Send, true),
        "MPI_Ssend" => send(MessageRole::SynchronousSend, true),
        "MPI_Bsend" | "MPI_Rsend" => send(MessageRole::BufferedSend, true),
        "MPI_Isend" => send(MessageRole::Send, false),
        "MPI_Issend" => send(MessageRole::SynchronousSend, false),
        "MPI_Ibsend" | "MPI_Irsend" => send(MessageRole::BufferedSend, false),
        "MPI_Recv" => FunctionKind::Receive { is_blocking: true },
        "MPI_Irecv" => FunctionKind::Receive { is_blocking: false },
        "MPI_Sendrecv" | "MPI_Sendrecv_replace" => FunctionKind::SendAndReceive { is_blocking: true },
        "MPI_Isendrecv" | "MPI_Isendrecv_replace" => FunctionKind::SendAndReceive { is_blocking: false },
        "MPI_Probe" => FunctionKind::Probe,
        "MPI_Mprobe" => FunctionKind::MatchedProbe,
        "MPI_Mrecv" | "MPI_Imrecv" => FunctionKind::ReceiveMatched,
        "MPI_Iprobe" => FunctionKind::PollMessage,
        "MPI_Improbe" => FunctionKind::PollMatched,
        "MPI_Test"
        | "MPI_Testall"
        | "MPI_Testany"
        | "MPI_Testsome"
        | "MPI_Request_get_status"
        | "MPI_Win_test" => FunctionKind::PollRequests,
        "MPI_Send_init" => FunctionKind::Prepare(MessageRole::Send),
        "MPI_Ssend_init" => FunctionKind::Prepare(MessageRole::SynchronousSend),
        "MPI_Bsend_init" | "MPI_Rsend_init" => FunctionKind::Prepare(MessageRole::BufferedSend),
        "MPI_Recv_init" => FunctionKind::Prepare(MessageRole::Receive),
        "MPI_Start" | "MPI_Startall" => FunctionKind::Start,
        _ => collective_kind(name).unwrap_or(FunctionKind::Other),
    }
}

fn collective_kind(name: &str) -> Option<FunctionKind> {
    if CREATING.contains(&name) {
        return Some(FunctionKind::Collective {
            waits: CollectiveWaits::ForAll,
            is_blocking: true,
            is_size_shared: false,
        });
    }
    if name == "MPI_Comm_idup" {
        return Some(FunctionKind::Collective {
            waits: CollectiveWaits::ForAll,
            is_blocking: false,
            is_size_shared: false,
        });
    }
    if UNKNOWN_WAITS.contains(&name) {
        return Some(FunctionKind::Collective {
            waits: CollectiveWaits::Unknown,
            is_blocking: true,
            is_size_shared: false,
        });
    }
    let function = CollectiveFunction::named(name.as_bytes())?;
    let operation = name.strip_prefix("MPI_")?.to_ascii_lowercase();
    let operation = match function.only_starts() {
        true => operation.strip_prefix('i')?,
        false => &operation,
    };
    let is_size_shared = function.is_size_shared();
    Some(FunctionKind::Collective {
        waits: waits_of(operation),
        is_blocking: !function.only_starts(),
        is_size_shared,
    })
}

/// Returns which members of a collective wait. In those that are not named here a member may send or receive
/// nothing.
fn waits_of(operation: &str) -> CollectiveWaits {
    match operation {
        "barrier" | "allgather" | "allgatherv" | "alltoall" | "allreduce" | "reduce_scatter_block" => {
            CollectiveWaits::ForAll
        }
        "bcast" | "scatter" | "scatterv" => CollectiveWaits::ForRoot,
        "gather" | "gatherv" | "reduce" => CollectiveWaits::RootForAll,
        "scan" | "exscan" => CollectiveWaits::ForLower,
        _ => CollectiveWaits::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_have_one_meaning_in_all_forms() {
        let kind = |name: &str| function_named(name.as_bytes()).map(|(_, kind)| kind);
        let all = |is_blocking, is_size_shared| {
            let waits = CollectiveWaits::ForAll;
            Some(FunctionKind::Collective { waits, is_blocking, is_size_shared })
        };
        for name in ["MPI_Allreduce", "PMPI_Allreduce", "MPI_Allreduce_c"] {
            assert_eq!(kind(name), all(true, true), "{name}");
        }
        assert_eq!(kind("MPI_Iallreduce"), all(false, true));
        assert_eq!(kind("MPI_Comm_split"), all(true, false));
        let waits = |name: &str| match kind(name) {
            Some(FunctionKind::Collective { waits, .. }) => Some(waits),
            _ => None,
        };
        assert_eq!(waits("MPI_Igatherv"), Some(CollectiveWaits::RootForAll));
        assert_eq!(waits("MPI_Iexscan"), Some(CollectiveWaits::ForLower));
        assert_eq!(waits("MPI_Scatter"), Some(CollectiveWaits::ForRoot));
        assert_eq!(waits("MPI_Alltoallv"), Some(CollectiveWaits::Unknown));
        assert_eq!(waits("MPI_Ineighbor_allgather"), Some(CollectiveWaits::Unknown));
        assert_eq!(kind("MPI_Recv_init"), Some(FunctionKind::Prepare(MessageRole::Receive)));
        assert!(kind("MPI_Testsome").is_some_and(FunctionKind::is_poll));
        let gpu = |wait| Some(FunctionKind::Gpu(wait));
        assert_eq!(kind("hipModuleLaunchKernel"), gpu(GpuWait::Nothing));
        assert_eq!(kind("cudaMemcpyAsync"), gpu(GpuWait::Nothing));
        assert_eq!(kind("hipMemcpyWithStream"), gpu(GpuWait::OneStream));
        assert_eq!(kind("cudaStreamSynchronize"), gpu(GpuWait::OneStream));
        assert_eq!(kind("hipDeviceSynchronize"), gpu(GpuWait::AllStreams));
        assert_eq!(kind("ncclAllReduce"), Some(FunctionKind::Rccl));
        let others = [
            "MPI_",
            "MPI_COMM_WORLD",
            "MPI_send phase",
            "mpi_send",
            "nccl:send",
            "custom",
            "hipster",
            "P",
            "",
        ];
        for other in others {
            assert_eq!(kind(other), None, "{other}");
        }
    }
}
