//! `index.json`: the list of a trace's files and their content.

use super::files::FileFrame;
use super::output_files::TraceTarget;
use super::write_items::FileCounts;
use rpd_comm::Comm;
use rpd_console::wording::rank_list;
use rpd_console::{Failure, WallClock};
use rpd_files::open_input;
use rpd_shard::record::{Selection, wire};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;

/// Name of the index.
pub(super) const INDEX: &str = "index.json";
/// Version of the index format.
pub(super) const VERSION: u32 = 1;
/// Maximum size of an index that is read, bytes: 99,999 files of 500 bytes fit.
const MAX_BYTES: u64 = 64 << 20;

/// Content of a file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct FileFacts {
    pub(super) window: usize,
    pub(super) tally: FileCounts,
    pub(super) bytes: u64,
    pub(super) raw_bytes: u64,
    pub(super) sha256: [u8; 32],
}

/// Gathers the facts of all files on rank 0, in the order of the files. Other ranks get an empty list.
pub(super) fn gather(comm: &impl Comm, own: Vec<FileFacts>) -> Result<Vec<FileFacts>, Failure> {
    let mut facts: Vec<FileFacts> = to_rank_0(comm, &own)?.into_iter().flatten().collect();
    facts.sort_by_key(|file| file.window);
    Ok(facts)
}

/// Gathers on rank 0 the job's ranks with items in each file.
pub(super) fn gather_ranks(
    comm: &impl Comm,
    own: &BTreeMap<u32, Selection>,
) -> Result<BTreeMap<u32, Selection>, Failure> {
    let mut all: BTreeMap<u32, Selection> = BTreeMap::new();
    for (window, theirs) in to_rank_0(comm, own)?.into_iter().flatten() {
        let ranks = all.entry(window).or_default();
        *ranks = Selection::of(ranks.ranks.iter().chain(&theirs.ranks).copied());
    }
    Ok(all)
}

fn to_rank_0<T: Serialize + for<'a> Deserialize<'a>>(comm: &impl Comm, own: &T) -> Result<Vec<T>, Failure> {
    let mut outgoing = vec![Vec::new(); comm.size()];
    outgoing[0] = wire::encode(own);
    let messages = comm.all_to_all(outgoing);
    if comm.rank() != 0 {
        return Ok(Vec::new());
    }
    messages.iter().map(|message| wire::decode_message(message).map_err(Failure::message)).collect()
}

#[derive(Serialize)]
struct Index<'a> {
    version: u32,
    format: &'a str,
    run_id: &'a str,
    clock: &'a str,
    t0_ns: i64,
    wall_clock: Option<String>,
    files: Vec<Entry>,
    not_drawn: &'a BTreeMap<String, u64>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    empty_files: &'a [String],
}

#[derive(Serialize)]
struct Entry {
    name: String,
    from_ns: i64,
    to_ns: i64,
    from_wall_clock: Option<String>,
    events: FileCounts,
    ranks: String,
    bytes: u64,
    raw_bytes: u64,
    sha256: String,
}

/// Properties of the whole run.
pub(super) struct IndexedRun<'a> {
    pub(super) run_id: &'a str,
    pub(super) clock: &'a str,
    pub(super) not_drawn: &'a BTreeMap<String, u64>,
    pub(super) empty_files: &'a [String],
}

/// Returns the text of the index. Times are ns since T0.
pub(super) fn text(
    job: &IndexedRun<'_>,
    frame: &FileFrame,
    target: &TraceTarget,
    files: &[FileFacts],
    ranks: &BTreeMap<u32, Selection>,
) -> Result<String, Failure> {
    let wall_clock = |ns: i64| frame.wall_clock(ns).map(|ns| WallClock(ns).to_string());
    let entry = |file: &FileFacts| {
        let (from, to) = frame.windows.get(file.window).unwrap_or_default();
        Entry {
            name: target.name(file.window, files.len()),
            from_ns: from.saturating_sub(frame.t0),
            to_ns: to.saturating_sub(frame.t0),
            from_wall_clock: wall_clock(from),
            events: file.tally,
            ranks: ranks.get(&(file.window as u32)).map_or(String::new(), |ranks| rank_list(&ranks.ranks)),
            bytes: file.bytes,
            raw_bytes: file.raw_bytes,
            sha256: file.sha256.iter().map(|byte| format!("{byte:02x}")).collect(),
        }
    };
    let index = Index {
        version: VERSION,
        format: frame.form.name(),
        run_id: job.run_id,
        clock: job.clock,
        t0_ns: frame.t0,
        wall_clock: wall_clock(frame.t0),
        files: files.iter().map(entry).collect(),
        not_drawn: job.not_drawn,
        empty_files: job.empty_files,
    };
    let text = serde_json::to_string_pretty(&index);
    text.map_err(|error| Failure::internal(format!("the index cannot be written: {error}")))
}

/// The parts of an index that are needed to replace its files.
#[derive(Deserialize)]
struct Known {
    version: u32,
    #[serde(rename = "t0_ns")]
    _t0: i64,
    files: Vec<KnownFile>,
}

#[derive(Deserialize)]
struct KnownFile {
    name: String,
}

fn known(path: &Path) -> Option<Known> {
    let mut text = String::new();
    open_input(path).ok()?.take(MAX_BYTES).read_to_string(&mut text).ok()?;
    serde_json::from_str(&text).ok().filter(|known: &Known| known.version == VERSION)
}

/// Returns whether a file is an index written by rpd-merge.
pub(super) fn is_ours(path: &Path) -> bool {
    known(path).is_some()
}

/// Returns the names of the files that an index lists; none if it is missing or invalid.
pub(super) fn names(path: &Path) -> Vec<String> {
    known(path).map_or(Vec::new(), |known| known.files.into_iter().map(|file| file.name).collect())
}
