//! Reads tables of `omnistat-query --export` as shards: counters of nodes and GPUs over time.
//!
//! omnistat writes `omnistat-rocm.gpu.csv`, `omnistat-network.csv` and others, all in one format. Each column is a
//! series. Its labels are at the top, one per line. Its values follow the line `timestamp`:
//!
//! ```text
//! metric,rocm_utilization_percentage,rocm_utilization_percentage
//! instance,node01,node02
//! card,0,0
//! timestamp,,
//! 2025-01-01 10:00:00,100.0,97.5
//! ```
//!
//! | table | shard |
//! |---|---|
//! | `instance` | a process with the id 0 on a node of this name, because a table states nothing else about it |
//! | `card`, `accel` | an agent of that process: the GPU with this number on the node |
//! | a column | a counter with the name of the metric and the remaining labels: `omnistat_network_rx_bytes{interface=hsn0}`. Its unit is the suffix of the metric name |
//! | a line and an instance | an event and a sample, category `SYSTEM_METRICS`, on the track `system`, like the counters of rpd-collect |
//! | a value | `rocpd_pmc_event` |
//!
//! Times are `CLOCK_REALTIME` in ns. The table states them in UTC, usually in whole seconds: a sample may be up to a
//! second off, which no error bound of a clock includes. A note of the merge states it. An empty cell has no
//! value. A value that is not a number, and a line without a time, are in the loss ledger.

mod rows;
mod series;
mod table;
mod time;
mod translate;

pub use translate::{read_processes, translate};

use std::path::Path;

/// Number of bytes of a file that are examined to recognize its format.
const HEAD_BYTES: u64 = 64 << 10;
/// Prefix of the first line; the second constant is the prefix of the second line.
const HEADING_START: &[u8] = b"metric,";
const SECOND: &[u8] = b"instance,";

/// Returns whether a file begins like a table of omnistat; false if it cannot be read.
pub fn is_omnistat(path: &Path) -> bool {
    let Ok(head) = rpd_files::read_head(path, HEAD_BYTES) else { return false };
    if !head.starts_with(HEADING_START) {
        return false;
    }
    // The labels of many series can be longer than the examined bytes.
    match head.iter().position(|byte| *byte == b'\n') {
        Some(end) => head.get(end + 1..).is_some_and(|rest| rest.starts_with(SECOND)),
        None => head.len() as u64 == HEAD_BYTES,
    }
}
