//! `index.json`: the list of a trace's files and their content.

use super::file_note::FileNotes;
use super::files::FileFrame;
use super::item::EventCounts;
use super::outcome::TraceOutcome;
use super::output_files::TraceFiles;
use super::rank_order::page_in_order;
use rpd_comm::{Comm, broadcast_result, gather_values};
use rpd_console::wording::rank_list;
use rpd_console::{Failure, WallClock};
use rpd_files::{create_output, open_input};
use rpd_run::RunDatabase;
use rpd_shard::record::Selection;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;

/// Name of the index.
pub(super) const INDEX: &str = "index.json";
/// Version of the index format.
const VERSION: u32 = 1;
/// Maximum size of an index that is read, bytes: 99,999 files of 600 bytes fit.
const MAX_INDEX_BYTES: u64 = 64 << 20;

/// Content of a file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct FileFacts {
    pub(super) window: usize,
    pub(super) tally: EventCounts,
    pub(super) bytes: u64,
    pub(super) raw_bytes: u64,
    pub(super) sha256: [u8; 32],
}

/// Gathers the facts of all files on rank 0, in the order of the files. Other ranks get an empty list.
pub(super) fn gather_files(comm: &impl Comm, own: Vec<FileFacts>) -> Result<Vec<FileFacts>, Failure> {
    let mut facts: Vec<FileFacts> = gather_values(comm, own)?.into_iter().flatten().collect();
    facts.sort_by_key(|file| file.window);
    Ok(facts)
}

/// Gathers the job's ranks with items in each of `count` files, such as `0-3,8`.
pub(super) fn gather_ranks(
    comm: &impl Comm,
    own: BTreeMap<u32, Selection>,
    count: usize,
) -> Result<Vec<String>, Failure> {
    let mut all: BTreeMap<u32, Selection> = BTreeMap::new();
    for (window, theirs) in gather_values(comm, own)?.into_iter().flatten() {
        let ranks = all.entry(window).or_default();
        *ranks = Selection::of(ranks.ranks.iter().chain(&theirs.ranks).copied());
    }
    let list = |file: usize| all.get(&(file as u32)).map_or(String::new(), |ranks| rank_list(&ranks.ranks));
    broadcast_result(comm, || Ok((0..count).map(list).collect()))
}

#[derive(Serialize)]
struct Index<'a> {
    version: u32,
    format: &'a str,
    run_id: &'a str,
    clock: &'a str,
    t0_ns: i64,
    wall_clock: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    page_with_ranks_in_order: Option<String>,
    files: Vec<Entry>,
    not_drawn: &'a BTreeMap<String, u64>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    left_out: &'a [String],
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    empty_files: &'a [String],
}

#[derive(Serialize)]
struct Entry {
    name: String,
    from_ns: i64,
    to_ns: i64,
    from_wall_clock: Option<String>,
    events: EventCounts,
    ranks: String,
    bytes: u64,
    raw_bytes: u64,
    sha256: String,
}

/// Writes the index of a trace and makes it durable. Its times are ns since T0.
pub(super) fn write(
    output: &TraceFiles,
    run: &RunDatabase,
    outcome: &TraceOutcome,
    frame: &FileFrame,
    files: &[FileFacts],
    notes: &FileNotes,
) -> Result<(), Failure> {
    let wall_clock = |ns: i64| frame.wall_clock(ns).map(|ns| WallClock(ns).to_string());
    let entry = |file: &FileFacts| {
        let (from, to) = frame.windows.get(file.window).unwrap_or_default();
        Entry {
            name: output.target().name(file.window, files.len()),
            from_ns: from.saturating_sub(frame.t0),
            to_ns: to.saturating_sub(frame.t0),
            from_wall_clock: wall_clock(from),
            events: file.tally,
            ranks: notes.ranks(file.window).to_owned(),
            bytes: file.bytes,
            raw_bytes: file.raw_bytes,
            sha256: file.sha256.iter().map(|byte| format!("{byte:02x}")).collect(),
        }
    };
    let index = Index {
        version: VERSION,
        format: frame.format.name(),
        run_id: run.run_id(),
        clock: run.clock(),
        t0_ns: frame.t0,
        wall_clock: wall_clock(frame.t0),
        page_with_ranks_in_order: page_in_order(files.iter().map(|file| notes.ranks(file.window))),
        files: files.iter().map(entry).collect(),
        not_drawn: &outcome.not_drawn,
        left_out: &outcome.left_out,
        empty_files: &outcome.empty_files,
    };
    let text = serde_json::to_string_pretty(&index)
        .map_err(|error| Failure::internal(format!("the index cannot be written: {error}")))?;
    let path = output.work_folder().join(INDEX);
    let written = create_output(&path, 0o600).and_then(|mut file| {
        writeln!(file, "{text}")?;
        file.sync_all()
    });
    written.map_err(|error| Failure::write(&path, &error))
}

/// The parts of an index that are read.
#[derive(Deserialize)]
pub(super) struct StoredIndex {
    version: u32,
    t0_ns: Option<i64>,
    pub(super) files: Vec<StoredEntry>,
}

/// A file in an index. Only the name is needed to replace the file.
#[derive(Deserialize)]
pub(super) struct StoredEntry {
    pub(super) name: String,
    #[serde(default)]
    pub(super) from_ns: i64,
    #[serde(default)]
    pub(super) to_ns: i64,
    #[serde(default)]
    pub(super) ranks: String,
}

/// Reads an index. The error says why the file is not a current one.
pub(super) fn read(file: File) -> Result<StoredIndex, String> {
    let mut text = Vec::new();
    file.take(MAX_INDEX_BYTES).read_to_end(&mut text).map_err(|error| error.to_string())?;
    let index: StoredIndex =
        serde_json::from_slice(&text).map_err(|error| format!("it is not an index of a trace ({error})"))?;
    match index.version {
        VERSION => Ok(index),
        version => Err(format!("its version is {version}, and this rpd-merge knows {VERSION}")),
    }
}

fn read_ours(path: &Path) -> Option<StoredIndex> {
    read(open_input(path).ok()?).ok().filter(|index| index.t0_ns.is_some())
}

/// Returns whether a file is an index written by rpd-merge.
pub(super) fn is_ours(path: &Path) -> bool {
    read_ours(path).is_some()
}

/// Returns the names of the files that an index lists; none if it is missing or invalid.
pub(super) fn file_names(path: &Path) -> Vec<String> {
    read_ours(path).map_or(Vec::new(), |index| index.files.into_iter().map(|file| file.name).collect())
}
