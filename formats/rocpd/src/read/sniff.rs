//! Detects the kind of a file by its header and the names of its tables.

use super::catalog;
use super::error::ReadError;
use super::table_set::is_mark;
use std::path::Path;

/// Kind of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FileKind {
    /// A database with RocPD tables.
    RocPd,
    /// A legacy `.rpd`.
    LegacyRpd,
    /// Output of `rocprof-compute analyze`: metrics of kernels in tables named `compute_*`, without events.
    ComputeAnalysis,
    /// A database with tables named `rocpd_*`, none of which identifies the format.
    UnclearProfile,
    /// Any other database.
    OtherDatabase,
    /// A database with an unreadable schema.
    DamagedDatabase,
    /// An empty file.
    Empty,
    /// Not a database.
    NotADatabase,
    /// A file that does not exist or cannot be read.
    Unreadable,
}

/// Prefix of the names of the tables of an analysis.
const ANALYSIS: &str = "compute_";

/// Detects the kind of a file without reading its rows. Ignores a journal of the file.
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
