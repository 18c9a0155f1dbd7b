use serde::{Deserialize, Serialize};

/// The reason why rows of a rank are missing that a profiler was started to record.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum ProfilerLossReason {
    /// It did not start the command, which then ran without it.
    NotStarted,
    /// It did not end after the command, and the collector killed it.
    Killed,
    /// A process has no file of it although it, or the program, failed.
    NoFile,
    /// It left no file, and nothing failed: the program may have called nothing that this profiler records.
    Silent,
    /// A file of it could not be read, or could not be written to a shard.
    Unreadable,
    /// There were more files than the collector fetches.
    TooManyFiles,
    /// It failed after the command, so that files may be missing or incomplete.
    Failed,
}

/// The collector's record of a profiler whose rows are missing. How many there were is not known.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct ProfilerLoss {
    /// Name of the backend, as in `--backend`; 1 to [`ProfilerLoss::MAX_NAME_BYTES`] bytes.
    pub profiler: String,
    /// The rank that it was to record.
    pub rank: Option<u32>,
    /// Why.
    pub reason: ProfilerLossReason,
}

impl ProfilerLoss {
    /// Limit of a profiler's name.
    pub const MAX_NAME_BYTES: usize = 64;

    /// Whether the record is within its limits.
    pub fn is_sound(&self) -> bool {
        let is_of_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
        (1..=ProfilerLoss::MAX_NAME_BYTES).contains(&self.profiler.len())
            && self.profiler.chars().all(is_of_name)
    }
}
