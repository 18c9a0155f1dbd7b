//! The part of a run that is read.

use crate::analysis_memory::AnalysisMemory;

/// Selects the part of a run to read.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ReadOptions {
    /// Name of the ranges that mark steps, with or without a number. They are found if it is not given.
    pub step: Option<String>,
    /// First time and end of the part of the run that is read, ns in job time. Calls that it cuts are left out.
    pub window_ns: Option<(i64, i64)>,
    /// Whether [`RunCalls::region_ids`](crate::RunCalls::region_ids) are read.
    pub keeps_row_keys: bool,
    /// Memory for the calls and their analysis; `None` for any amount.
    pub memory: Option<AnalysisMemory>,
}

impl ReadOptions {
    /// Returns whether the whole run is read, as it is stored in a file of calls.
    pub fn is_whole_run(&self) -> bool {
        *self == ReadOptions { memory: self.memory, ..ReadOptions::default() }
    }
}
