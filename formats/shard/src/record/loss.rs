use crate::model::TableId;
use serde::{Deserialize, Serialize};

/// Reason why rows that were recorded or announced are not in the output.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum LossCause {
    /// The ring of a thread was full.
    RingFull,
    /// The memory of a ring could not be reserved, so a thread went untraced.
    NoMemory,
    /// An event arrived inside another one of the same thread, in a signal handler.
    Reentrant,
    /// A record in a ring was malformed.
    BadRecord,
    /// The shard reached `--max-size`, or the quota or disk was full.
    NoSpace,
    /// A block of the shard is damaged.
    DamagedBlock,
    /// The end of the shard is missing.
    Truncated,
    /// More than the format allows: strings of one shard, keys of one table.
    OverLimit,
    /// Rows of a table that this release cannot write.
    UnknownTable,
}

impl LossCause {
    /// Returns the short name for reports and metadata.
    pub fn name(self) -> &'static str {
        match self {
            LossCause::RingFull => "ring_full",
            LossCause::NoMemory => "no_memory",
            LossCause::Reentrant => "reentrant",
            LossCause::BadRecord => "bad_record",
            LossCause::NoSpace => "no_space",
            LossCause::DamagedBlock => "damaged_block",
            LossCause::Truncated => "truncated",
            LossCause::OverLimit => "over_limit",
            LossCause::UnknownTable => "unknown_table",
        }
    }
}

/// One entry of the loss ledger.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Loss {
    /// Number of the process in the shard; 0 if unknown.
    pub source: u32,
    /// The table, if known.
    pub table: Option<TableId>,
    /// Reason of the loss.
    pub cause: LossCause,
    /// Number of rows, if known.
    pub rows: Option<u64>,
}

/// Final record of a collector: counts of rows that it wrote and lost. Rows recorded = written + lost.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Ledger {
    /// Rows written, per process and table. A reader computes from them how many are missing.
    pub written: Vec<(u32, TableId, u64)>,
    /// Lost rows by cause.
    pub losses: Vec<Loss>,
}
