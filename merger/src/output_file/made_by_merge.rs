//! What rpd-merge made itself, and may therefore replace or clear away.

use rpd_files::open_input;
use rpd_foreign::{Format, format_of};
use rpd_rocpd::read::{Database, FileKind, sniff};
use rpd_run::is_merged_set;
use rpd_shard::MERGE_APPLICATION_ID;
use std::fs;
use std::io::Read;
use std::path::Path;

/// The tag of the run.
const RUN_ID: &str = "rpd.run_id";
/// The tag of a database whose run was still being written: which ranks, and up to when they are complete.
pub(crate) const STILL_RUNNING: &str = "rpd.still_running";
/// Bytes of the header of a SQLite database.
const HEADER: usize = 100;
/// What it begins with.
const MAGIC: &[u8] = b"SQLite format 3\0";
/// Where the application is named in it.
const APPLICATION_ID: usize = 68;

/// Whether a merge of ours made this database, or began to: its header says so, or, of an older one, its metadata.
pub(crate) fn is_made_by_merge(path: &Path) -> bool {
    header(path).is_some_and(|header| is_marked(&header)) || is_merge(path)
}

/// Whether a file with the name of an unfinished output may be what a killed merge left. SQLite writes the first page
/// last: of a file without it only the lock of the merge tells (`was_locked`) whose it was.
pub(crate) fn may_be_left(path: &Path, was_locked: bool) -> bool {
    let Ok(found) = fs::symlink_metadata(path) else { return false };
    let has_no_header = || was_locked && header(path).is_some_and(|header| header == [0; HEADER]);
    found.is_file() && (found.len() == 0 || is_made_by_merge(path) || has_no_header())
}

/// The run of a database that was merged while the run was still being written; `None` of any other file.
pub(crate) fn unfinished_run(path: &Path) -> Option<String> {
    if !is_made_by_merge(path) || format_of(path) != Ok(Format::RocPd) {
        return None;
    }
    let database = Database::open(path).ok()?;
    let tags =
        database.spaces().iter().map(|space| &space.tags).find(|tags| tags.contains_key(STILL_RUNNING))?;
    tags.get(RUN_ID).filter(|run| !run.is_empty()).cloned()
}

/// What a file is that no merge made, or why that is not known.
pub(crate) fn what_else(path: &Path) -> String {
    if let Err(error) = open_input(path) {
        return format!("cannot be read ({error})");
    }
    let what = match format_of(path) {
        Ok(Format::RocPd) => "is a RocPD database of a profiler",
        Ok(Format::LegacyRpd) => "is a .rpd of a profiler",
        _ if sniff(path) == FileKind::ComputeAnalysis => "is an analysis database of rocprof-compute",
        _ if header(path).is_some_and(|header| header.starts_with(MAGIC)) => {
            "is a SQLite database of somebody else"
        }
        _ => "is no SQLite database",
    };
    what.to_owned()
}

fn header(path: &Path) -> Option<[u8; HEADER]> {
    let mut header = [0; HEADER];
    open_input(path).and_then(|mut file| file.read_exact(&mut header)).ok()?;
    Some(header)
}

fn is_marked(header: &[u8; HEADER]) -> bool {
    header.starts_with(MAGIC) && header[APPLICATION_ID..].starts_with(&MERGE_APPLICATION_ID.to_be_bytes())
}

/// Whether a file is one that a merge wrote, by its metadata.
pub(crate) fn is_merge(path: &Path) -> bool {
    match format_of(path) {
        Ok(Format::RocPd) => {
            Database::open(path).is_ok_and(|database| database.spaces().iter().any(is_merged_set))
        }
        Ok(Format::LegacyRpd) => rpd_legacy::is_merge(path),
        _ => false,
    }
}
