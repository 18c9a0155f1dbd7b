use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// An input that could be read when the merge was planned and cannot be read now.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct VanishedInput {
    /// Path of the input.
    pub path: PathBuf,
    /// Why it cannot be read.
    pub reason: String,
    /// The merge rank that failed to read it.
    pub rank: usize,
    /// Whether opening it failed (`ENOENT`, `EACCES` or `ESTALE`).
    pub is_missing: bool,
    /// Number of its rows by table, from the survey; `None` without a survey.
    pub rows: Option<Vec<(String, u64)>>,
}
