use crate::model::TableId;
use serde::{Deserialize, Serialize};

/// Why rows that were once seen, or announced, are in no output.
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
    /// Short name for reports and metadata.
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
    /// The process, by its number in the shard; 0 when unknown.
    pub source: u32,
    /// The table, where it is known.
    pub table: Option<TableId>,
    /// Why.
    pub cause: LossCause,
    /// How many rows, where it is known.
    pub rows: Option<u64>,
}

/// Last word of a collector: what it wrote and what it lost. Rows seen = written + lost.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Ledger {
    /// Rows written, per process and table: a reader knows from it how many are missing.
    pub written: Vec<(u32, TableId, u64)>,
    /// Rows lost.
    pub losses: Vec<Loss>,
}
