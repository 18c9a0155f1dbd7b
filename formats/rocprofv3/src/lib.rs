//! The JSON of rocprofv3 in ROCm 6, read as shards.
//!
//! ```text
//! {"rocprofiler-sdk-tool": [ {process}, ... ]}
//!                               |
//!     metadata, agents, counters, strings, code_objects, kernel_symbols      the tables: bounded
//!     callback_records.counter_collection, buffer_records.<kind>             the records: any number
//! ```
//!
//! A file is read twice, since its members may be in any order. The survey walks over it once and remembers
//! where each array begins and how many elements it has; then the tables are read, and the records an element
//! at a time. A packed file (gzip) is unpacked again for each step backwards. Memory does not grow with the
//! file. A malformed element is counted, and the rest continues. A file that ends early yields what came
//! before.
//!
//! Times are `CLOCK_BOOTTIME`, ns. The file has neither the rank nor the environment of the process.
//! Secrets of command lines are masked here, where it is known which words are one argument.

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

pub use translate::{peek, translate};

use std::io::Read;
use std::path::Path;

/// Name of the array of processes.
const TOOL: &str = "rocprofiler-sdk-tool";
/// How far into a file its name is looked for.
const HEAD_BYTES: u64 = 4096;

/// Whether a file begins like rocprofv3's JSON, plain or packed. Reads its first bytes only; a file that cannot
/// be read is none.
pub fn is_rocprofv3_json(path: &Path) -> bool {
    let mut head = Vec::new();
    // A packed file that is cut has a head all the same.
    let _ = source::JsonSource::open(path).and_then(|source| source.take(HEAD_BYTES).read_to_end(&mut head));
    let name = format!("\"{TOOL}\"");
    !head.is_empty()
        && head.iter().find(|b| !b.is_ascii_whitespace()) == Some(&b'{')
        && head.windows(name.len()).any(|w| w == name.as_bytes())
}
