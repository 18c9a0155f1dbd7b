//! Classifies files that are not merged, by name and content.

use crate::input::listing::find::{is_default_output, is_looked_into, is_output};
use crate::input::listing::{UnusedKind, is_shard};
use rpd_calls::CallFile;
use rpd_files::open_input;
use rpd_foreign::{Format, format_of, holds_profile, may_be_profile, why_packed};
use rpd_trace::WrittenTrace;
use std::fs;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Rendezvous folder of a run, where agents of the collector publish their addresses.
const RENDEZVOUS_FOLDER: &str = "clocks";
/// Root file in the rendezvous folder, and the message key of earlier collectors.
const AGENT_FILES: [&str; 2] = ["root", "secret"];
/// Suffixes that a merge and SQLite append to the name of an output while they write it.
const OUTPUT_SUFFIXES: [&str; 8] =
    [".partial.calls", ".lock", ".partial", ".lease", ".status", "-wal", "-shm", "-journal"];
/// Prefixes of the files that coordinate the merges of one run.
const MERGE_FILE_PREFIXES: [&str; 7] =
    ["merge.status", "merge.lease", "merge.wanted", "trace.status", "trace.lease", ".merge.", ".trace."];

pub(super) const RUN_FILE: &str = "belongs to the run, and holds no events";
pub(super) const PREVIOUS_OUTPUT: &str =
    "was written by rpd-merge, and other inputs are there; name it to have it merged";
const REPORT: &str = "is a report of rpd-merge";
const NAMED_LIKE_OUTPUT: &str =
    "has the name that a merge gives its output; name it on the command line to have it merged";
pub(super) const UNRELATED: &str = "neither its name nor its beginning is that of a profiler's file";
pub(super) const NOT_READ_OTHER: &str =
    "its name is not one of a profiler's file, and it was not read, since many others were";
const OTHER_NAME: &str = "holds what a profiler records, under a name that no profiler gives a finished file; name it on the command line";
/// Prefixes that macOS and editors use for files beside another one with the same extension.
const COMPANION_PREFIXES: [&str; 2] = ["._", ".#"];
const FOREIGN: &str = "no profiler wrote it, as its content shows";
pub(super) const LATE: &str = "was not there when the inputs were listed; merge again";

/// Returns what a file is and why it is not merged. A file that could be merged is [`LATE`]. `reads_all`: also reads
/// files with names that are not those of profiler files.
pub(super) fn judge(path: &Path, reads_all: bool) -> (UnusedKind, &'static str) {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    if is_run_file(&name, path) {
        return (UnusedKind::RunFile, RUN_FILE);
    }
    if !is_shard(path) && !is_looked_into(&name) {
        return if reads_all { judge_other_name(path) } else { (UnusedKind::Unrelated, NOT_READ_OTHER) };
    }
    if COMPANION_PREFIXES.iter().any(|begin| name.starts_with(begin)) && !holds_profile(path) {
        return (UnusedKind::Unrelated, FOREIGN);
    }
    let is_empty = || fs::metadata(path).is_ok_and(|found| found.len() == 0);
    match format_of(path) {
        Ok(_) if is_output(path) => (UnusedKind::Result, PREVIOUS_OUTPUT),
        Ok(_) if is_default_output(path) => (UnusedKind::Refused, NAMED_LIKE_OUTPUT),
        Ok(_) => (UnusedKind::Refused, LATE),
        Err(_) if is_default_output(path) && is_empty() => (UnusedKind::Result, PREVIOUS_OUTPUT),
        Err(_) if is_report(path) => (UnusedKind::Result, REPORT),
        Err(_) if is_printed_to(path) => (UnusedKind::RunFile, REPORT),
        Err(_) if !is_shard(path) && !may_be_profile(path) => (UnusedKind::Unrelated, FOREIGN),
        Err(_) if is_default_output(path) && open_input(path).is_ok() => {
            (UnusedKind::Refused, NAMED_LIKE_OUTPUT)
        }
        Err(reason) => (UnusedKind::Refused, reason),
    }
}

/// Does the same for a file with a name that is not that of a profiler file.
fn judge_other_name(path: &Path) -> (UnusedKind, &'static str) {
    match why_packed(path) {
        None if CallFile::is_one(path) => (UnusedKind::RunFile, RUN_FILE),
        Some(why) => (UnusedKind::Refused, why),
        None if !holds_profile(path) => (UnusedKind::Unrelated, UNRELATED),
        None if is_output(path) => (UnusedKind::Result, PREVIOUS_OUTPUT),
        None if is_report(path) => (UnusedKind::Result, REPORT),
        None => (UnusedKind::Refused, OTHER_NAME),
    }
}

/// Returns whether `rpd-collect`, a merge or SQLite uses this name for files without events.
pub(super) fn is_run_file(name: &str, path: &Path) -> bool {
    let is_other = |name: &str| !is_looked_into(name);
    let of_rank = name.strip_prefix("rank-").and_then(|rest| rest.split_once('.'));
    let is_of_rank =
        of_rank.is_some_and(|(rank, _)| rank.len() >= 5 && rank.bytes().all(|b| b.is_ascii_digit()));
    let beside = OUTPUT_SUFFIXES.iter().find_map(|suffix| name.strip_suffix(suffix));
    let is_beside = beside.is_some_and(|output| output == "trace" || !is_other(output));
    let folder = path.parent().and_then(Path::file_name);
    let is_of_agent = folder.is_some_and(|folder| folder == RENDEZVOUS_FOLDER) && is_agent_file(name);
    let is_agreed = MERGE_FILE_PREFIXES.iter().any(|begin| name.starts_with(begin));
    (is_of_rank || is_of_agent) && is_other(name) && !is_shard(path) || is_beside || is_agreed
}

/// Returns whether agents of the collector use this name in the rendezvous folder: for the root file and its drafts.
/// Earlier collectors used it for the secret, claims, cards and drafts of these.
fn is_agent_file(name: &str) -> bool {
    let is_hex = |text: &str, digits: usize| {
        text.len() == digits
            && text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
    };
    let is_domain = |text: &str| is_hex(text, 32);
    let is_card = |card: &str| {
        let parts = card.split_once('-');
        parts.is_some_and(|(rank, domain)| {
            rank.parse::<u32>().is_ok() && rank.len() == 10 && is_domain(domain)
        })
    };
    let draft = name.strip_prefix('.').and_then(|rest| rest.rsplit_once('.'));
    let name = draft.filter(|(_, number)| is_hex(number, 16)).map_or(name, |(draft, _)| draft);
    AGENT_FILES.contains(&name)
        || name.strip_suffix(".agent").is_some_and(is_domain)
        || name.strip_suffix(".card").is_some_and(is_card)
}

/// Returns whether a merge wrote this file beside databases and Perfetto traces: a part of a trace, or the output of
/// `--json`.
fn is_report(path: &Path) -> bool {
    let begin = b"{\n  \"run_id\": ";
    let mut head = [0; 14];
    let is_json = open_input(path).and_then(|mut file| file.read_exact(&mut head)).is_ok() && head == *begin;
    is_json || WrittenTrace::is_part(path)
}

/// Returns whether standard output or standard error of this process is this file.
fn is_printed_to(path: &Path) -> bool {
    let place = |path: &Path| fs::metadata(path).ok().map(|found| (found.dev(), found.ino()));
    let own = place(path);
    own.is_some() && ["/proc/self/fd/1", "/proc/self/fd/2"].iter().any(|fd| place(Path::new(fd)) == own)
}

/// Returns whether profilers write tables and descriptions beside files of a format.
pub(super) fn has_companions(format: Format) -> bool {
    matches!(format, Format::RocPd | Format::LegacyRpd | Format::Rocprofv3Json | Format::PerfettoTrace)
}
