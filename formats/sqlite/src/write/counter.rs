//! Resets the change counter, so that it does not depend on the number of commits.

use super::error::SealError;
use crate::format::{HEADER, u32_at};
use rpd_files::{FileAccess, open_output};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Offsets of the change counter and of its copy that belongs to the page count.
const COUNTERS: [usize; 2] = [24, 92];

/// Sets the change counter of a finished database to 1. SQLite counts every commit, but databases with the same
/// rows should be identical. No other process may have the file open.
pub fn reset_change_counter(path: &Path) -> Result<(), SealError> {
    let failed = |source| SealError::Io { path: path.to_owned(), source };
    let file = open_output(path, FileAccess::ReadWrite).map_err(failed)?;
    let mut header = [0; HEADER];
    file.read_exact_at(&mut header, 0).map_err(failed)?;
    let [first, second] = COUNTERS.map(|offset| u32_at(&header, offset));
    // If the counters differ, the page count between them is invalid and must stay invalid.
    if first == second {
        for offset in COUNTERS {
            file.write_all_at(&1u32.to_be_bytes(), offset as u64).map_err(failed)?;
        }
    }
    Ok(())
}
