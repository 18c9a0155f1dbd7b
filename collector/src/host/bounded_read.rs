//! Files of any length, read up to a limit.

use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Returns the first bytes of a file, at most `max_bytes`. Returns what could be read before an error.
pub(crate) fn read_at_most(path: impl AsRef<Path>, max_bytes: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    let _ = File::open(path).and_then(|file| file.take(max_bytes).read_to_end(&mut bytes));
    bytes
}
