//! The lock of an output.

use crate::interrupt::{keep_on_interrupt, make_removed_on_interrupt};
use rpd_files::{FileAccess, output_place, remove_output};
use std::fs::{File, TryLockError};
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A locked file beside the output. It prevents two merges from writing or removing the same file. The operating
/// system releases the lock with its process, so a killed merge blocks no other.
#[derive(Debug)]
pub struct OutputLock {
    path: PathBuf,
    _file: File,
    was_there: bool,
}

impl Drop for OutputLock {
    fn drop(&mut self) {
        let _ = remove_output(&self.path);
        keep_on_interrupt(&self.path);
    }
}

impl OutputLock {
    /// Acquires the lock; returns `None` if another process holds it.
    ///
    /// The file is created, or is an empty file of this user that a killed merge has left. A link, a FIFO or a
    /// file of another user is an error, and the function does not wait for it. An interrupted merge removes the
    /// file.
    ///
    /// # Errors
    /// If the file is not a lock, or cannot be created.
    pub fn acquire(path: PathBuf) -> io::Result<Option<OutputLock>> {
        let (folder, name) = output_place(&path)?;
        loop {
            let created = make_removed_on_interrupt(&path, || folder.create(&name, 0o600));
            let (file, was_there) = match created {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                    match folder.open_own(&name, FileAccess::Write) {
                        // The holder has just removed it.
                        Err(error) if error.kind() == ErrorKind::NotFound => continue,
                        opened => (opened.map_err(|error| foreign_lock(&path, &error))?, true),
                    }
                }
                created => (created?, false),
            };
            let lock = || lock_opened(&file, &path, || Ok(folder.stat(&name)?.identity));
            let locked = match was_there {
                true => make_removed_on_interrupt(&path, lock),
                false => lock().inspect_err(|_| keep_on_interrupt(&path)),
            };
            match locked {
                Ok(()) => return Ok(Some(OutputLock { path, _file: file, was_there })),
                Err(NotLocked::Held) => return Ok(None),
                Err(NotLocked::Exchanged) => {}
                Err(NotLocked::Refused(error)) => return Err(error),
            }
        }
    }

    /// Returns whether the lock file already existed, because a killed merge left it.
    pub fn was_left(&self) -> bool {
        self.was_there
    }
}

/// Why an open file is not the lock of this process.
enum NotLocked {
    /// Another process has locked it.
    Held,
    /// The holder removed it between opening and locking.
    Exchanged,
    /// It is not a lock.
    Refused(io::Error),
}

/// Locks a file. `identity` returns the identity of the file that then has its name.
fn lock_opened(
    file: &File,
    path: &Path,
    identity: impl FnOnce() -> io::Result<(u64, u64)>,
) -> Result<(), NotLocked> {
    let found = file.metadata().map_err(NotLocked::Refused)?;
    if found.len() > 0 {
        return Err(NotLocked::Refused(foreign_lock(path, "it is not empty")));
    }
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Err(NotLocked::Held),
        // On a file system without locks, as Lustre may be mounted, the existence of the file must suffice.
        Err(TryLockError::Error(_)) => return Ok(()),
    }
    match identity() {
        Ok(now) if now == (found.dev(), found.ino()) => Ok(()),
        _ => Err(NotLocked::Exchanged),
    }
}

fn foreign_lock(path: &Path, why: impl std::fmt::Display) -> io::Error {
    io::Error::other(format!("its lock {} was not left by a merge ({why}); move it away", path.display()))
}
