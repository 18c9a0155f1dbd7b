use rpd_files::open_input;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// Storage of a shard's bytes: a file or memory.
///
/// Files are read by position and never mapped. If a file is truncated during a read, the read returns an error; a
/// mapping would raise SIGBUS.
#[derive(Debug)]
pub(super) enum Bytes {
    File(OpenFile),
    Memory(Arc<[u8]>),
}

/// A file that can be closed and reopened.
#[derive(Debug)]
pub(super) struct OpenFile {
    path: PathBuf,
    length: u64,
    /// Device and inode of the file, which must be the same when it is reopened.
    id: (u64, u64),
    file: Mutex<Option<Arc<File>>>,
}

impl Bytes {
    pub(super) fn open(path: &Path) -> io::Result<Bytes> {
        let file = open_input(path)?;
        let found = file.metadata()?;
        Ok(Bytes::File(OpenFile {
            path: path.to_owned(),
            length: found.len(),
            id: (found.dev(), found.ino()),
            file: Mutex::new(Some(Arc::new(file))),
        }))
    }

    pub(super) fn memory(bytes: &[u8]) -> Bytes {
        Bytes::Memory(bytes.into())
    }

    /// Returns the number of bytes at the time the shard was opened.
    pub(super) fn len(&self) -> u64 {
        match self {
            Bytes::File(file) => file.length,
            Bytes::Memory(bytes) => bytes.len() as u64,
        }
    }

    /// Reads exactly `length` bytes from `offset`. The caller bounds `length`.
    pub(super) fn read(&self, offset: u64, length: usize) -> io::Result<Vec<u8>> {
        if offset.checked_add(length as u64).is_none_or(|end| end > self.len()) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        match self {
            Bytes::File(file) => {
                let mut out = vec![0; length];
                file.get()?.read_exact_at(&mut out, offset)?;
                Ok(out)
            }
            Bytes::Memory(bytes) => Ok(bytes[offset as usize..offset as usize + length].to_vec()),
        }
    }

    /// Closes the file until the next read.
    pub(super) fn release(&self) {
        if let Bytes::File(file) = self {
            *file.file.lock().unwrap_or_else(PoisonError::into_inner) = None;
        }
    }
}

impl OpenFile {
    fn get(&self) -> io::Result<Arc<File>> {
        let mut open = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = &*open {
            return Ok(file.clone());
        }
        let file = open_input(&self.path)?;
        let found = file.metadata()?;
        if (found.dev(), found.ino()) != self.id || found.len() < self.length {
            return Err(io::Error::other("the file was replaced or cut in the meantime"));
        }
        let file = Arc::new(file);
        *open = Some(file.clone());
        Ok(file)
    }
}
