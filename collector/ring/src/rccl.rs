//! The RCCL functions that are recorded, with their numbers. NCCL has the same ones.

use crate::functions::numbered_functions;

numbered_functions! {
    /// An RCCL function. The numbers are part of the contract, not of any file.
    RcclFunction:
    ncclCommInitRank ncclCommInitRankConfig ncclCommInitAll ncclCommSplit
    ncclCommFinalize ncclCommDestroy ncclCommAbort ncclGroupStart ncclGroupEnd
    ncclSend ncclRecv
    ncclAllReduce ncclBroadcast ncclBcast ncclReduce ncclAllGather ncclReduceScatter
    ncclGather ncclScatter ncclAllToAll ncclAllToAllv
}

/// Whether the function with this number is a collective: the n-th one on a communicator is the
/// same call in all its ranks.
pub fn is_collective(number: u32) -> bool {
    number >= RcclFunction::ncclAllReduce as u32
}

/// Name and bytes of the values of `ncclDataType_t`, from 0 (`rccl.h` of ROCm 6 and 7).
const DATATYPES: [(&str, u64); 12] = [
    ("ncclInt8", 1),
    ("ncclUint8", 1),
    ("ncclInt32", 4),
    ("ncclUint32", 4),
    ("ncclInt64", 8),
    ("ncclUint64", 8),
    ("ncclFloat16", 2),
    ("ncclFloat32", 4),
    ("ncclFloat64", 8),
    ("ncclBfloat16", 2),
    ("ncclFloat8e4m3", 1),
    ("ncclFloat8e5m2", 1),
];

/// Returns name and bytes of a `ncclDataType_t`; `None` for a value of a newer release.
pub fn datatype(number: u32) -> Option<(&'static str, u64)> {
    DATATYPES.get(usize::try_from(number).ok()?).copied()
}
