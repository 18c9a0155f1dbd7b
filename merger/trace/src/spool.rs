//! A temporary file without a name, which the operating system removes when the process ends in any way.

use rpd_console::Failure;
use rpd_files::{create_output, remove_output};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes stored by any number of threads.
#[derive(Debug)]
pub(super) struct ItemSpool {
    file: File,
    /// Former path, for messages.
    path: PathBuf,
    end: AtomicU64,
}

impl ItemSpool {
    /// Creates a spool in a folder that no other process uses. No other current file may have this `name`.
    pub(super) fn create(folder: &Path, name: &str) -> Result<ItemSpool, Failure> {
        let path = folder.join(name);
        let create = || -> io::Result<File> {
            let file = create_output(&path, 0o600)?;
            remove_output(&path)?;
            Ok(file)
        };
        let file = create().map_err(|error| Failure::write(&path, &error))?;
        Ok(ItemSpool { file, path, end: AtomicU64::new(0) })
    }

    /// Stores bytes and returns their position.
    pub(super) fn write(&self, bytes: &[u8]) -> Result<u64, Failure> {
        let place = self.end.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        self.file.write_all_at(bytes, place).map_err(|error| Failure::write(&self.path, &error))?;
        Ok(place)
    }

    /// Fills `bytes` from a position.
    pub(super) fn read(&self, place: u64, bytes: &mut [u8]) -> Result<(), Failure> {
        self.file.read_exact_at(bytes, place).map_err(|error| unreadable_again(&self.path, &error))
    }
}

/// Returns the failure to read a file of this trace that was written before.
pub(super) fn unreadable_again(path: &Path, error: &io::Error) -> Failure {
    let path = path.display();
    Failure::output(format!("cannot read {path} again: {error}; check its file system, or use -o"))
}
