//! `.rpd` to shard: the rows of rocmProfileData as rows of RocPD.
//!
//! | `.rpd` | shard |
//! |---|---|
//! | process id | a process; its rank, node and command are not in the file |
//! | `rocpd_api` | event, region; an arg for the args string and for each value of `rocpd_kernelapi` and `rocpd_copyapi`. The category comes from the domain (schema 3) or from the name (schema 2). Text of a roctx range is the event's `$.message` |
//! | `rocpd_op` | event with the stack id of its call, and a memory copy if it is one, else a kernel dispatch. An operation without description (fill, barrier, marker) is a dispatch of a kernel called like its type, as AMD's view `top` names it |
//! | `gpuId`, `queueId`, `stream` | agent, queue, stream of the process |
//! | `rocpd_monitor` | counter, and per row an event, a sample on the track `system` and a value; how long it held is the sample's `$.rpd.duration_ns` |
//! | `rocpd_counter` | counter, and a value at the event of the operation |
//! | `rocpd_stackframe` | the event's call stack: `{"frames":[{"depth":0,"name":"f"}]}` |
//! | any other table | carried as `rpd_ext_NAME`, see `carried.rs` |
//!
//! A value that is missing or refers to nothing is counted as a miss, and its row is kept with a placeholder. A
//! row without a time cannot be kept, and is in the loss ledger.

mod api;
mod carried;
mod census;
mod clocks;
mod counters;
mod devices;
mod error;
mod follow;
mod ids;
mod launches;
mod ops;
mod output;
mod schema;
mod value;

pub use error::RpdReadError;

use census::ProcessCensus;
use devices::DeviceRows;
use output::{FinishedShard, RpdOutput};
use rpd_shard::ShardWriter;
use rpd_shard::file::Owner;
use rpd_shard::model::row_types::WholeNumber;
use rpd_shard::record::{Clock, Process};
use rpd_translator::{Translation, cut_text};
use schema::RpdFile;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

const ZERO: WholeNumber = WholeNumber::Signed(0);
const EMPTY_JSON: &[u8] = b"{}";
/// Represents what the file does not state.
const UNKNOWN: &[u8] = b"(unknown)";

/// Maximum number of rows of metadata, and bytes of each value, that are kept.
const MAX_METADATA: (i64, usize) = (4096, 64 << 10);

/// Maximum number of letters of a version that are reported.
const MAX_VERSION: usize = 32;

/// What the caller knows and the file does not.
#[derive(Clone, Debug)]
pub struct RpdOptions {
    /// Whose the file is.
    pub owner: Owner,
    /// The clock of all times. Without it that of the file is taken: what its metadata states, else
    /// `CLOCK_MONOTONIC`; but `CLOCK_BOOTTIME` where roctx ranges are seen to be on another clock than calls.
    pub clock: Option<Clock>,
    /// Added to the times of roctx ranges, ns: BOOTTIME minus MONOTONIC of the machine, for a file that has
    /// calls on one and ranges on the other.
    pub marker_offset: Option<i64>,
}

/// What became of a `.rpd`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RpdTranslation {
    /// What every reader counts. What is lost is counted per table of the file.
    pub translation: Translation,
    /// The clock that the shard's times are stamped with.
    pub clock: Clock,
    /// Number of processes.
    pub processes: u32,
    /// Rows read, per table of the file.
    pub rows_read: BTreeMap<String, u64>,
    /// Values that are missing, of a wrong type, or refer to no row, per table and column of the
    /// file. Their rows are kept, unless they are counted as lost too.
    pub misses: BTreeMap<(String, String), u64>,
    /// Copies whose size the file does not state; it is 0 in the shard.
    pub unknown_copy_sizes: u64,
    /// Tables that were carried: name in the file, name in the shard.
    pub carried: Vec<(String, String)>,
    /// Metadata of the file, tag and value. It is not in the shard.
    pub metadata: Vec<(String, String)>,
}

/// The processes of a `.rpd`, as [`translate`] describes them if no clock is given, but for `last_seen`,
/// which leaves operations out.
/// Reads the calls once.
pub fn peek(path: &Path) -> Result<Vec<Process>, RpdReadError> {
    let input = RpdFile::open(path)?;
    let census = ProcessCensus::take(&input)?;
    let (clock, _) = census.clock(None, None);
    Ok((1..=census.processes.len() as u32).filter_map(|source| census.process(source, clock)).collect())
}

impl RpdTranslation {
    /// What the file states of its schema, where that is none of the versions that this release knows.
    pub fn unknown_version(&self) -> Option<String> {
        let tagged = self.metadata.iter().find(|(tag, _)| tag == "schema_version");
        match tagged.map(|(_, version)| version.trim()) {
            None => Some("a .rpd does not state its schema version".to_owned()),
            Some("2" | "3") => None,
            Some(other) => {
                let other: String = other.chars().take(MAX_VERSION).collect();
                Some(format!("a .rpd has schema version {other:?}"))
            }
        }
    }
}

/// Whether a file is a `.rpd` that [`crate::write()`] wrote: it states its clock.
pub fn is_merge(path: &Path) -> bool {
    let rows = RpdFile::open(path).and_then(|input| metadata(&input));
    rows.is_ok_and(|rows| rows.iter().any(|(tag, _)| tag == crate::CLOCK_TAG))
}

/// Writes a `.rpd` as a shard. The file is read in a stream, three times at most; nothing is made beside it.
///
/// Memory is bounded whatever the file: by the string table of a shard (256 MiB), by the pending rows, and by
/// 32 bytes for each run of consecutive ids.
pub fn translate<W: Write>(
    path: &Path,
    sink: W,
    options: &RpdOptions,
) -> Result<(W, RpdTranslation), RpdReadError> {
    let input = RpdFile::open(path)?;
    let census = ProcessCensus::take(&input)?;
    let (clock, mixed) = census.clock(options.clock, options.marker_offset);
    let shard = ShardWriter::of_owner(sink, &options.owner)?;
    let mut output = RpdOutput::new(shard, &input);
    let metadata = metadata(&input)?;
    if let Some(why) = mixed {
        output.warn(clock_warning(&why, options));
    }
    let mut devices = DeviceRows::default();

    for source in 1..=census.processes.len() as u32 {
        if let Some(process) = census.process(source, clock) {
            output.process(&process)?;
        }
    }
    devices.threads(&census, &mut output)?;
    let calls = api::translate(&input, &census, options, &mut devices, &mut output)?;
    let ops::TranslatedOps { ids: operations, last, unknown_copy_sizes } =
        ops::translate(&input, &census, &calls, &mut devices, &mut output)?;
    counters::monitors(&input, &census, &mut devices, &mut output)?;
    counters::values(&input, &census, &operations, &mut devices, &mut output)?;
    let carried = carried::translate(&input, &census, (&calls, &operations), &metadata, &mut output)?;
    for (source, last) in last {
        if let Some(mut process) = census.process(source, clock) {
            process.last_seen = process.last_seen.max(Some(last));
            output.process(&process)?;
        }
    }
    let FinishedShard { sink, translation, rows_read, misses } = output.finish()?;
    let processes = census.processes.len() as u32;
    let translation = RpdTranslation {
        translation,
        clock,
        processes,
        rows_read,
        misses,
        unknown_copy_sizes,
        carried,
        metadata,
    };
    Ok((sink, translation))
}

fn clock_warning(why: &str, options: &RpdOptions) -> String {
    match options.marker_offset {
        Some(offset) => format!("{why}: they are on another clock; {offset} ns are added to them"),
        None => format!(
            "{why}: they are on CLOCK_MONOTONIC and the calls on CLOCK_BOOTTIME, by a difference that the file does \
             not tell; they are kept as they are and DO NOT LINE UP with calls and kernels; give the time for which \
             the machine was suspended to shift them"
        ),
    }
}

/// Rows of the metadata, tag and value.
fn metadata(input: &RpdFile) -> Result<Vec<(String, String)>, RpdReadError> {
    if input.table("rocpd_metadata").is_none() {
        return Ok(Vec::new());
    }
    let failed = |source| input.error("rocpd_metadata", source);
    let mut select = input.select("rocpd_metadata", "m");
    select.column("rocpd_metadata", "m", "tag");
    select.column("rocpd_metadata", "m", "value");
    let mut query = input.conn.prepare(&select.sql("LIMIT ?")).map_err(failed)?;
    let mut rows = query.query([MAX_METADATA.0]).map_err(failed)?;
    let mut metadata = Vec::new();
    while let Some(row) = rows.next().map_err(failed)? {
        let text = |i| {
            let text = row.get_ref(i).ok().and_then(value::text)?;
            Some(String::from_utf8_lossy(cut_text(&text, MAX_METADATA.1)).into_owned())
        };
        metadata.push((text(0).unwrap_or_default(), text(1).unwrap_or_default()));
    }
    Ok(metadata)
}

/// The names of the tables that have a meaning here. All others are carried.
const KNOWN_TABLES: [&str; 11] = [
    "rocpd_metadata",
    "rocpd_string",
    "rocpd_ustring",
    "rocpd_api",
    "rocpd_op",
    "rocpd_api_ops",
    "rocpd_kernelapi",
    "rocpd_copyapi",
    "rocpd_monitor",
    "rocpd_counter",
    "rocpd_stackframe",
];
