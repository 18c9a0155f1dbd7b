//! A file that can be closed and reopened between reads.

use super::error::PageProblem;
use rpd_files::{FileRefused, open_input};
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

/// A file that any number of threads read by position. No process writes it.
#[derive(Debug)]
pub(super) struct QuietFile {
    path: Arc<Path>,
    identity: Identity,
    file: Mutex<Option<Arc<File>>>,
}

/// Properties that must be unchanged when the file is opened again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Identity {
    device: u64,
    inode: u64,
    length: u64,
    modified: (i64, i64),
}

impl QuietFile {
    pub(super) fn open(path: Arc<Path>) -> io::Result<QuietFile> {
        let file = open_input(&path)?;
        let identity = Identity::of(&file.metadata()?);
        Ok(QuietFile { path, identity, file: Mutex::new(Some(Arc::new(file))) })
    }

    pub(super) fn path(&self) -> &Arc<Path> {
        &self.path
    }

    /// Length of the file in bytes when it was opened.
    pub(super) fn len(&self) -> u64 {
        self.identity.length
    }

    /// Fills `out` with the bytes from `offset` on.
    pub(super) fn read(&self, out: &mut [u8], offset: u64) -> Result<(), PageProblem> {
        self.get()?.read_exact_at(out, offset).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => PageProblem::Changed,
            _ => PageProblem::Io(error),
        })
    }

    /// Closes the file. The next read opens it again.
    pub(super) fn release(&self) {
        *self.file.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    fn get(&self) -> Result<Arc<File>, PageProblem> {
        let mut open = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = &*open {
            return Ok(file.clone());
        }
        let file = open_input(&self.path).map_err(|error| match FileRefused::in_error(&error) {
            Some(_) => PageProblem::Changed,
            None => PageProblem::Io(error),
        })?;
        if Identity::of(&file.metadata()?) != self.identity {
            return Err(PageProblem::Changed);
        }
        let file = Arc::new(file);
        *open = Some(file.clone());
        Ok(file)
    }
}

impl Identity {
    fn of(found: &Metadata) -> Identity {
        Identity {
            device: found.dev(),
            inode: found.ino(),
            length: found.len(),
            modified: (found.mtime(), found.mtime_nsec()),
        }
    }
}
