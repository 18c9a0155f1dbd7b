//! Recognises files that rpd-merge wrote and may therefore replace or remove.

use rpd_calls::CallFile;
use rpd_files::open_input;
use rpd_foreign::{Format, format_of};
use rpd_rocpd::read::{Database, FileKind, StoredTableSet, sniff};
use rpd_shard::MERGE_APPLICATION_ID;
use std::fs;
use std::io::Read;
use std::path::Path;

/// Metadata tag of the run.
const RUN_ID: &str = "rpd.run_id";
/// Metadata tag of a database of a run that was still being written: its ranks, and the time up to which they are
/// complete.
pub(crate) const STILL_RUNNING: &str = "rpd.still_running";
/// Bytes of the header of a SQLite database.
const HEADER: usize = 100;
/// First bytes of that header.
const MAGIC: &[u8] = b"SQLite format 3\0";
/// Offset of the application id in it.
const APPLICATION_ID: usize = 68;

/// Returns whether `rpd-merge` created this database. Its header shows that; for older versions, its metadata does.
pub(crate) fn is_made_by_merge(path: &Path) -> bool {
    header(path).is_some_and(|header| is_marked(&header)) || is_merge(path)
}

/// Returns whether a file with the name of an unfinished output may be the remainder of a killed merge. SQLite writes
/// the first page last. Without this page, only the lock of the merge (`was_locked`) shows that it was its file.
pub(crate) fn may_be_left(path: &Path, was_locked: bool) -> bool {
    let Ok(found) = fs::symlink_metadata(path) else { return false };
    let has_no_header = || was_locked && header(path).is_some_and(|header| header == [0; HEADER]);
    found.is_file()
        && (found.len() == 0 || is_made_by_merge(path) || CallFile::is_one(path) || has_no_header())
}

/// Returns the run of a database that was merged while the run was still being written; `None` for any other file.
pub(crate) fn unfinished_run(path: &Path) -> Option<String> {
    if !is_made_by_merge(path) || format_of(path) != Ok(Format::RocPd) {
        return None;
    }
    let database = Database::open(path).ok()?;
    let tags =
        database.table_sets().iter().map(|set| &set.tags).find(|tags| tags.contains_key(STILL_RUNNING))?;
    tags.get(RUN_ID).filter(|run| !run.is_empty()).cloned()
}

/// Describes a file that no merge created, or why it cannot be identified.
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
        _ => "is not a SQLite database",
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

/// Returns whether a merge wrote a file, by its metadata.
pub(crate) fn is_merge(path: &Path) -> bool {
    match format_of(path) {
        Ok(Format::RocPd) => Database::open(path)
            .is_ok_and(|database| database.table_sets().iter().any(StoredTableSet::is_merged)),
        Ok(Format::LegacyRpd) => rpd_legacy::is_merge(path),
        _ => false,
    }
}
