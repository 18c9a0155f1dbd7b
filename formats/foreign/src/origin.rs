//! Decides whether a file that cannot be merged comes from a profiler, by its name and its first 64 KiB.
//!
//! A file is a profiler's if it has a profiler's mark. It may be one if its beginning is lost: it is empty, zeros
//! or broken text. Only such a file can contain data that a merge without it lacks.
//!
//! | file | a profiler's | perhaps a profiler's |
//! |---|---|---|
//! | `.json` | has one of `JSON_MARKS`, both `EVENT_NAMES`, or members of rocprof-sys | empty, zeros, not JSON, or cut before its first value ends |
//! | `.csv` | by its header or name | |
//! | `.db` | has tables `rocpd_*` or `compute_*` | a damaged SQLite database, empty, zeros, or not SQLite but with a profiler's name |
//! | `.proto` | has a profiler's name | not text |
//! | `.rpd`, `.pftrace`, shard, unreadable file | | always |
//! | compressed | begins as its compression does, and a profiler's suffix precedes that of the compression | |
//! | any other name, such as `.json.tmp` of a killed Kineto | begins with such a mark, header or tables | |
//!
//! The merge reads the beginning of at most 10,000 files in folders that it does not search. Files of spaces only, and
//! `._*` and `.#*` of macOS and editors, are no profiles.

use crate::head::FileHead;
use crate::json_head::{JsonHead, read_json};
use crate::known_but_refused::{BYTE_ORDER, SQLITE, is_of_sys, why_refused_head};
use rpd_perfetto::read::is_perfetto;
use rpd_rocpd::read::{FileKind, sniff};
use std::path::Path;

/// JSON names that profilers write: top-level members, or members of torch's events.
const JSON_MARKS: [&[u8]; 8] = [
    b"\"traceEvents\"",
    b"\"schemaVersion\"",
    b"\"deviceProperties\"",
    b"\"baseTimeNanoseconds\"",
    b"\"distributedInfo\"",
    b"\"rocprofiler-sdk-tool\"",
    b"\"External id\"",
    b"\"Ev Idx\"",
];
/// Names that every event of a Chrome trace has.
const EVENT_NAMES: [&[u8]; 2] = [b"\"ph\"", b"\"ts\""];

/// Suffixes of the names of profilers' tables and databases.
const NAME_SUFFIXES: [&str; 13] = [
    "kernel_trace.csv",
    "api_trace.csv",
    "memory_copy_trace.csv",
    "memory_allocation_trace.csv",
    "scratch_memory_trace.csv",
    "counter_collection.csv",
    "agent_info.csv",
    "kernel_stats.csv",
    "api_stats.csv",
    "memory_copy_stats.csv",
    "domain_stats.csv",
    "_results.db",
    ".rpd",
];
/// Prefixes of such names.
const NAME_BEGINNINGS: [&str; 5] = ["pmc_perf", "omnistat", "rocpd-", "rocpd_", "perfetto-trace"];
/// Complete names of such files.
const NAMES: [&str; 2] = ["trace.db", "results.db"];

/// First line of an omnistat table, and prefix of its second line.
const OMNISTAT: (&[u8], &[u8]) = (b"metric,", b"instance,");

/// Returns whether a profiler wrote a file or may have written it. The extension determines which marks are
/// searched. A file that cannot be read may be a profile.
pub fn may_be_profile(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
    let name = name.strip_suffix(".gz").unwrap_or(&name);
    let Ok(head) = FileHead::unpacked(path) else { return true };
    if name.ends_with(".json") {
        may_be_json(&head)
    } else if name.ends_with(".csv") {
        is_profiler_name(name) || is_table(&head)
    } else if name.ends_with(".db") {
        may_be_database(path, &head) || is_profiler_name(name) && !is_other_database(path)
    } else if name.ends_with(".proto") {
        is_profiler_name(name) || head.is_blank() || !is_text(&head)
    } else {
        true
    }
}

/// Returns whether a file of any name contains profiler data: JSON with a mark, a profiler's table or database, or
/// a Perfetto trace. A file that is empty or broken at its beginning does not count, since its name is not a
/// profiler's.
pub fn holds_profile(path: &Path) -> bool {
    let Ok(head) = FileHead::unpacked(path) else { return false };
    let text = head.bytes.strip_prefix(BYTE_ORDER).unwrap_or(&head.bytes);
    if head.bytes.starts_with(SQLITE) {
        let kind = sniff(path);
        return matches!(
            kind,
            FileKind::RocPd | FileKind::LegacyRpd | FileKind::ComputeAnalysis | FileKind::UnclearProfile
        );
    }
    match text.trim_ascii_start().first() {
        Some(b'{' | b'[') => has_json_mark(&head) || is_of_sys(text),
        _ => is_table(&head) || is_perfetto(path),
    }
}

/// Returns whether a name, in lower case, is one that profilers use for their files.
pub(crate) fn is_profiler_name(name: &str) -> bool {
    NAME_SUFFIXES.iter().any(|suffix| name.ends_with(suffix))
        || NAME_BEGINNINGS.iter().any(|begin| name.starts_with(begin))
        || NAMES.contains(&name)
}

/// Returns whether JSON has a mark, is blank, is broken, or ends inside its first value.
fn may_be_json(head: &FileHead) -> bool {
    let text = head.bytes.strip_prefix(BYTE_ORDER).unwrap_or(&head.bytes);
    // A killed program leaves an empty file or zeros, never only spaces.
    let is_of_spaces = !text.is_empty() && text.trim_ascii().is_empty();
    let is_broken = || match read_json(text) {
        JsonHead::Whole => false,
        JsonHead::Open => head.is_whole,
        JsonHead::Broken => true,
    };
    head.is_blank() || has_json_mark(head) || is_of_sys(text) || !is_of_spaces && is_broken()
}

fn has_json_mark(head: &FileHead) -> bool {
    JSON_MARKS.iter().any(|mark| head.has(mark)) || EVENT_NAMES.iter().all(|name| head.has(name))
}

/// Returns whether CSV has the header of a profiler.
fn is_table(head: &FileHead) -> bool {
    let text = head.bytes.strip_prefix(BYTE_ORDER).unwrap_or(&head.bytes);
    let mut lines = text.splitn(2, |byte| *byte == b'\n');
    let is_first = lines.next().is_some_and(|line| line.starts_with(OMNISTAT.0));
    let second = lines.next().unwrap_or_default();
    let is_second = second.starts_with(OMNISTAT.1) || OMNISTAT.1.starts_with(second);
    why_refused_head(text).is_some() || is_first && is_second
}

/// Returns whether a file is blank, a database with tables of profilers, or a damaged database.
fn may_be_database(path: &Path, head: &FileHead) -> bool {
    match sniff(path) {
        FileKind::OtherDatabase => false,
        FileKind::NotADatabase => head.is_blank() || head.bytes.starts_with(SQLITE),
        _ => true,
    }
}

fn is_other_database(path: &Path) -> bool {
    sniff(path) == FileKind::OtherDatabase
}

/// Returns whether the beginning of a file is text. Its last character may be incomplete.
fn is_text(head: &FileHead) -> bool {
    let is_utf8 = match std::str::from_utf8(&head.bytes) {
        Ok(_) => true,
        Err(error) => error.error_len().is_none() && !head.is_whole,
    };
    is_utf8 && head.bytes.iter().all(|byte| *byte >= b' ' || b"\t\n\r\x0c".contains(byte))
}
