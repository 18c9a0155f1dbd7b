use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// An input that was there when a merge was planned and cannot be read now.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct VanishedInput {
    /// Its path.
    pub path: PathBuf,
    /// Why it cannot be read.
    pub reason: String,
    /// The merge rank that failed to read it.
    pub rank: usize,
    /// Whether the system did not find it, or did not open it.
    pub is_missing: bool,
    /// Rows that a survey counted in it, by table; `None` without a survey.
    pub rows: Option<Vec<(String, u64)>>,
}
