//! An input of the plan.

use rpd_foreign::Format;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// One input of the plan.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PlannedInput {
    /// Path of the input, or of the shard that it was translated to.
    pub path: PathBuf,
    /// Shard or RocPD database.
    pub format: Format,
    /// Positions of the table sets of a database that are merged.
    pub table_sets: Vec<usize>,
    /// Guid of each of these table sets.
    pub guids: Vec<String>,
    /// Lowest rank in the input.
    pub rank: Option<u32>,
    /// Length in bytes.
    pub bytes: u64,
    /// Whether its collector finished it.
    pub complete: bool,
    /// Wall time up to which it is complete, if its collector is still writing it, ns since 1970.
    pub running_until: Option<i64>,
    /// Whether it describes no process: a shard with nothing but a header, or of a silent rank.
    pub has_no_process: bool,
    /// Whether its command becomes a process, because no shard describes a traced process of its rank.
    pub shows_command: bool,
}

impl PlannedInput {
    /// Returns whether the collector stopped without finishing the input.
    pub fn is_abandoned(&self) -> bool {
        !self.complete && self.running_until.is_none()
    }
}
