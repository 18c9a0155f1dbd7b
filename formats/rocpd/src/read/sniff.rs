//! What a file is, by its header and the names of its tables.

use super::catalog;
use super::error::ReadError;
use super::space::is_mark;
use std::path::Path;

/// What a file is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FileKind {
    /// A database with tables of RocPD.
    RocPd,
    /// A legacy `.rpd`.
    LegacyRpd,
    /// What `rocprof-compute analyze` writes: metrics of kernels, in tables called `compute_*`, and no events.
    ComputeAnalysis,
    /// A database with tables called `rocpd_*`, none of which identifies the format.
    UnclearProfile,
    /// A database of something else.
    OtherDatabase,
    /// A database whose schema cannot be read.
    DamagedDatabase,
    /// No bytes.
    Empty,
    /// No database.
    NotADatabase,
    /// A file that is not there, or may not be read.
    Unreadable,
}

/// How names of the tables of an analysis begin.
const ANALYSIS: &str = "compute_";

/// Examines a file, but not its rows. A journal beside it does not matter here.
pub fn sniff(path: &Path) -> FileKind {
    match catalog::of_any(path) {
        Ok(catalog) if catalog.is_legacy() => FileKind::LegacyRpd,
        Ok(catalog) if catalog.entries.iter().any(|entry| is_mark(&entry.name)) => FileKind::RocPd,
        Ok(catalog) if catalog.others.iter().any(|name| name.starts_with(ANALYSIS)) => {
            FileKind::ComputeAnalysis
        }
        Ok(catalog) if !catalog.entries.is_empty() || !catalog.remarks.is_empty() => FileKind::UnclearProfile,
        Ok(_) => FileKind::OtherDatabase,
        Err(ReadError::Empty(_)) => FileKind::Empty,
        Err(ReadError::NotADatabase(_)) => FileKind::NotADatabase,
        Err(ReadError::Io { .. }) => FileKind::Unreadable,
        Err(_) => FileKind::DamagedDatabase,
    }
}
