//! The change counter: how often a file was written is no content of it.

use super::error::SealError;
use crate::format::{HEADER, u32_at};
use rpd_files::{FileAccess, open_output};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Offsets of the change counter and of the one that the page count belongs to.
const COUNTERS: [usize; 2] = [24, 92];

/// Sets the change counter of a finished database to 1: SQLite counts every commit, and files with the same rows
/// are to be the same. Nobody else may have the file open.
pub fn reset_change_counter(path: &Path) -> Result<(), SealError> {
    let failed = |source| SealError::Io { path: path.to_owned(), source };
    let file = open_output(path, FileAccess::ReadWrite).map_err(failed)?;
    let mut header = [0; HEADER];
    file.read_exact_at(&mut header, 0).map_err(failed)?;
    let [first, second] = COUNTERS.map(|offset| u32_at(&header, offset));
    // Where they differ the page count in between is not to be believed, and stays so.
    if first == second {
        for offset in COUNTERS {
            file.write_all_at(&1u32.to_be_bytes(), offset as u64).map_err(failed)?;
        }
    }
    Ok(())
}
