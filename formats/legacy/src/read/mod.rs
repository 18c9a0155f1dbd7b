//! Converts `.rpd` to shards: rows of rocmProfileData become rows of RocPD.
//!
//! | `.rpd` | shard |
//! |---|---|
//! | process id | a process; the file does not state its rank, node and command |
//! | `rocpd_api` | event, region; an arg for the args string and for each value of `rocpd_kernelapi` and `rocpd_copyapi`. The domain (schema 3) or the name (schema 2) determines the category. The text of a roctx range is the event's `$.message` |
//! | `rocpd_op` | event with the stack id of its call; a memory copy or else a kernel dispatch. An operation without description (fill, barrier, marker) is a dispatch of a kernel named after its type, as in AMD's view `top` |
//! | `gpuId`, `queueId`, `stream` | agent, queue, stream of the process |
//! | `rocpd_monitor` | counter, and per row an event, a sample on the track `system` and a value; the duration of the value is the sample's `$.rpd.duration_ns` |
//! | `rocpd_counter` | counter, and a value at the event of the operation |
//! | `rocpd_stackframe` | the event's call stack: `{"frames":[{"depth":0,"name":"f"}]}` |
//! | any other table | carried as `rpd_ext_NAME`, see `carried.rs` |
//!
//! A file names no node: the merge gives each file a node of its own, and a merged file one for each of its nodes.
//! An operation has one call in RocPD: further links of it in `rocpd_api_ops` are in the loss ledger, without a table.
//!
//! A value that is missing or refers to no row is counted as a miss, and its row is kept with a placeholder. A row
//! without a time cannot be kept and is in the loss ledger.

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
use output::RpdOutput;
use rpd_shard::file::Owner;
use rpd_shard::model::row_types::{EventRow, StackId, WholeNumber};
use rpd_shard::record::{Clock, Process};
use rpd_translator::{PendingLimit, Translation, Translator, cut_text};
use schema::RpdFile;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

const ZERO: WholeNumber = WholeNumber::Signed(0);
const EMPTY_JSON: &[u8] = b"{}";
/// An event of which the file states nothing.
const PLAIN_EVENT: EventRow<'static> = EventRow {
    category_id: None,
    stack_id: Some(StackId::NONE),
    parent_stack_id: Some(StackId::NONE),
    correlation_id: Some(ZERO),
    call_stack: Some(EMPTY_JSON),
    line_info: Some(EMPTY_JSON),
    extdata: Some(EMPTY_JSON),
};
/// Text for values that the file does not state.
const UNKNOWN: &[u8] = b"(unknown)";

/// Maximum number of metadata rows, and maximum bytes of each value.
const MAX_METADATA: (i64, usize) = (4096, 64 << 10);

/// Maximum number of characters of a version in messages.
const MAX_VERSION: usize = 32;

/// Information that the file does not contain.
#[derive(Clone, Debug)]
pub struct RpdOptions {
    /// Owner of the file.
    pub owner: Owner,
    /// Clock of all times. Without it, the clock that the file's metadata states is used, or else
    /// `CLOCK_MONOTONIC`. If roctx ranges are evidently on another clock than calls, the clock is `CLOCK_BOOTTIME`.
    pub clock: Option<Clock>,
    /// Offset in ns that is added to the times of roctx ranges: BOOTTIME minus MONOTONIC of the machine. Needed for
    /// files in which calls and ranges use different clocks.
    pub marker_offset: Option<i64>,
}

/// The result of translating a `.rpd`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RpdTranslation {
    /// Counts that every reader provides. Losses are counted per table of the file.
    pub translation: Translation,
    /// Clock of the times in the shard.
    pub clock: Clock,
    /// Number of processes.
    pub processes: u32,
    /// Number of rows read, per table of the file.
    pub rows_read: BTreeMap<String, u64>,
    /// Number of values that are missing, have the wrong type, or refer to no row, per table and column of the
    /// file. Their rows are kept, unless they are also counted as lost.
    pub misses: BTreeMap<(String, String), u64>,
    /// Number of copies for which the file states no size; the shard has 0.
    pub unknown_copy_sizes: u64,
    /// Carried tables: name in the file, name in the shard.
    pub carried: Vec<(String, String)>,
    /// Metadata of the file as tags and values. The shard does not contain it.
    pub metadata: Vec<(String, String)>,
}

/// Returns the processes of a `.rpd`, as [`translate`] describes them without a given clock. `last_seen` does not
/// include operations. Reads the calls once.
pub fn read_processes(path: &Path) -> Result<Vec<Process>, RpdReadError> {
    let input = RpdFile::open(path)?;
    let census = ProcessCensus::take(&input)?;
    let (clock, _) = census.clock(None, None);
    Ok((1..=census.processes.len() as u32).filter_map(|source| census.process(source, clock)).collect())
}

impl RpdTranslation {
    /// Returns a message about the schema version that the file states, if this release does not support it.
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

/// Returns whether [`crate::write()`] wrote the file: such a file states its clock.
pub fn is_merge(path: &Path) -> bool {
    let rows = RpdFile::open(path).and_then(|input| metadata(&input));
    rows.is_ok_and(|rows| rows.iter().any(|(tag, _)| tag == crate::CLOCK_TAG))
}

/// Writes a `.rpd` as a shard. Reads the file as a stream at most three times, and creates no file beside it.
///
/// Memory is bounded for any file: by the string table of a shard (256 MiB), the pending rows, and 32 bytes for
/// each range of consecutive ids.
pub fn translate(
    path: &Path,
    sink: &mut dyn Write,
    options: &RpdOptions,
) -> Result<RpdTranslation, RpdReadError> {
    let input = RpdFile::open(path)?;
    let census = ProcessCensus::take(&input)?;
    let (clock, mixed) = census.clock(options.clock, options.marker_offset);
    let translator = Translator::new(sink, &options.owner, PendingLimit::MANY_PROCESSES)?;
    let mut output = RpdOutput::new(translator, &input, &census);
    let metadata = metadata(&input)?;
    if let Some(why) = mixed {
        output.translator.warn(clock_warning(&why, options));
    }
    for source in 1..=census.processes.len() as u32 {
        if let Some(process) = census.process(source, clock) {
            output.translator.process(&process)?;
        }
    }
    output.threads()?;
    let calls = api::translate(options, &mut output)?;
    let ops::TranslatedOps { ids: operations, last } = ops::translate(&calls, &mut output)?;
    counters::monitors(&mut output)?;
    counters::values(&operations, &mut output)?;
    let carried = carried::translate((&calls, &operations), &metadata, &mut output)?;
    for (source, last) in last {
        if let Some(mut process) = census.process(source, clock) {
            process.last_seen = process.last_seen.max(Some(last));
            output.translator.process(&process)?;
        }
    }
    Ok(RpdTranslation {
        translation: output.translator.finish()?,
        clock,
        processes: census.processes.len() as u32,
        rows_read: output.rows_read,
        misses: output.misses,
        unknown_copy_sizes: output.unknown_copy_sizes,
        carried,
        metadata,
    })
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

/// Returns the metadata as tags and values.
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

/// Tables that this reader interprets. All others are carried.
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
