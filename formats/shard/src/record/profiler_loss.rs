use serde::{Deserialize, Serialize};

/// Reason why the rows are missing that a profiler should have recorded for a rank.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum ProfilerLossReason {
    /// The profiler did not start the command, which then ran without it.
    NotStarted,
    /// The profiler did not end after the command, and the collector killed it.
    Killed,
    /// The profiler left no file for a process, although the profiler or the program failed.
    NoFile,
    /// The profiler left no file, and nothing failed: perhaps the program made no call that the profiler records.
    Silent,
    /// A file of the profiler could not be read, or could not be written to a shard.
    Unreadable,
    /// The profiler left more files than the collector imports.
    TooManyFiles,
    /// The profiler failed after the command, so that files may be missing or incomplete.
    Failed,
}

/// The collector's record of a profiler with missing rows. Their number is unknown.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct ProfilerLoss {
    /// Name of the backend, as in `--backend`; 1 to [`ProfilerLoss::MAX_NAME_BYTES`] bytes.
    pub profiler: String,
    /// Rank that the profiler should have recorded.
    pub rank: Option<u32>,
    /// Reason of the loss.
    pub reason: ProfilerLossReason,
}

impl ProfilerLoss {
    /// Maximum bytes of a profiler's name.
    pub const MAX_NAME_BYTES: usize = 64;

    /// Returns whether the record is within its limits.
    pub fn is_sound(&self) -> bool {
        let is_of_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
        (1..=ProfilerLoss::MAX_NAME_BYTES).contains(&self.profiler.len())
            && self.profiler.chars().all(is_of_name)
    }
}
