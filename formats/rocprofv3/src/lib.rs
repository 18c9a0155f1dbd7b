//! Reads the JSON of rocprofv3 in ROCm 6 as shards.
//!
//! ```text
//! {"rocprofiler-sdk-tool": [ {process}, ... ]}
//!                               |
//!     metadata, agents, counters, strings, code_objects, kernel_symbols      the tables: bounded
//!     callback_records.counter_collection, buffer_records.<kind>             the records: any number
//! ```
//!
//! A file is read twice, because its members may be in any order. The survey walks over it once and records the
//! offset and the number of elements of each array. Then the tables are read, and the records one element at a
//! time. A gzip file is decompressed again for each step backwards. Memory does not grow with the file. A malformed
//! element is counted, and reading continues. A truncated file yields the rows before its end.
//!
//! Times are `CLOCK_BOOTTIME` in ns. The file contains neither the rank nor the environment of the process. Secrets
//! in command lines are masked here, where the boundaries of arguments are known.

mod describe;
mod known;
mod messages;
mod process_output;
mod record;
mod record_rows;
mod scan;
mod source;
mod survey;
mod translate;

pub use translate::{read_processes, translate};

use std::io::Read;
use std::path::Path;

/// Name of the array of processes.
const TOOL: &str = "rocprofiler-sdk-tool";
/// Number of bytes of a file in which the name of the array is searched.
const HEAD_BYTES: u64 = 4096;

/// Returns whether a file, plain or compressed, begins like rocprofv3's JSON. Reads only its first bytes; returns
/// false if it cannot be read.
pub fn is_rocprofv3_json(path: &Path) -> bool {
    let mut head = Vec::new();
    // A truncated compressed file still has a readable head.
    let _ = source::JsonSource::open(path).and_then(|source| source.take(HEAD_BYTES).read_to_end(&mut head));
    let name = format!("\"{TOOL}\"");
    !head.is_empty()
        && head.iter().find(|b| !b.is_ascii_whitespace()) == Some(&b'{')
        && head.windows(name.len()).any(|w| w == name.as_bytes())
}
