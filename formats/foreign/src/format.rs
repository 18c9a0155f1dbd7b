//! Detection of an input's format by its first bytes, not by its name.

use crate::known_but_refused::{ANALYSIS, why_refused};
use crate::packed::why_packed;
use rpd_files::{EntryKind, entry_stat, open_input};
use rpd_kineto::is_kineto;
use rpd_omnistat::is_omnistat;
use rpd_perfetto::read::is_perfetto;
use rpd_rocpd::read::{FileKind, sniff};
use rpd_rocprofv3::is_rocprofv3_json;
use rpd_shard::file::FILE_MAGIC;
use serde::{Deserialize, Serialize};
use std::io::{ErrorKind, Read};
use std::path::Path;

/// Format of an input.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum Format {
    /// A shard of rpd-collect.
    Shard,
    /// A RocPD database.
    RocPd,
    /// A legacy `.rpd` database.
    LegacyRpd,
    /// JSON of rocprofv3 in ROCm 6.
    Rocprofv3Json,
    /// A trace of the PyTorch profiler, plain or gzip.
    Kineto,
    /// A Perfetto trace of track events, as rocprof-sys writes it.
    PerfettoTrace,
    /// CSV of `omnistat-query --export`.
    OmnistatCsv,
}

/// The message for a file of an unknown format.
const UNKNOWN: &str = "is not a shard, a RocPD or RPD database, JSON of rocprofv3 or the PyTorch profiler, a Perfetto trace or a table of \
                       omnistat";

/// Returns the format of a file. The error completes a sentence that starts with the path of the file.
pub fn format_of(path: &Path) -> Result<Format, &'static str> {
    // Opening a pipe would wait for its writer.
    match entry_stat(path) {
        Ok(found) if found.kind == EntryKind::File => {}
        Ok(_) => return Err("is not a regular file"),
        Err(error) if error.kind() == ErrorKind::NotFound => return Err("does not exist"),
        Err(_) => return Err("cannot be examined"),
    }
    let mut head = [0; FILE_MAGIC.len()];
    let is_shard =
        open_input(path).and_then(|mut file| file.read_exact(&mut head)).is_ok() && head == *FILE_MAGIC;
    if is_shard {
        return Ok(Format::Shard);
    }
    match sniff(path) {
        FileKind::RocPd => Ok(Format::RocPd),
        FileKind::LegacyRpd => Ok(Format::LegacyRpd),
        FileKind::ComputeAnalysis => Err(ANALYSIS),
        FileKind::UnclearProfile => Err(
            "is a SQLite database with tables rocpd_*, but without those that distinguish RocPD from RPD: its writer was killed, or it is of another release",
        ),
        FileKind::OtherDatabase => Err("is a SQLite database of neither RocPD nor RPD"),
        FileKind::DamagedDatabase => Err(
            "is a SQLite database whose schema cannot be read: it is damaged, or was cut at its beginning",
        ),
        FileKind::Empty => Err("is empty: its writer was killed before it wrote anything"),
        FileKind::NotADatabase if is_rocprofv3_json(path) => Ok(Format::Rocprofv3Json),
        FileKind::NotADatabase if is_kineto(path) => Ok(Format::Kineto),
        FileKind::NotADatabase if is_perfetto(path) => Ok(Format::PerfettoTrace),
        FileKind::NotADatabase if is_omnistat(path) => Ok(Format::OmnistatCsv),
        FileKind::NotADatabase => Err(why_refused(path).or_else(|| why_packed(path)).unwrap_or(UNKNOWN)),
        FileKind::Unreadable => Err("cannot be read; check that it is there, and its permissions"),
    }
}
