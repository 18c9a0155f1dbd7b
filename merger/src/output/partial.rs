//! The output under its temporary name.

use super::own::may_be_left;
use crate::failure::Failure;
use crate::output::share::Share;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Ends the name of the partial file.
const PARTIAL: &str = ".partial";
/// Ends the name of what it is turned into.
const CONVERTED: &str = ".partial.rpd";

/// `NAME.partial` beside the output; renamed when it is whole, removed when the merge fails.
#[derive(Debug)]
pub struct Partial {
    path: PathBuf,
    output: PathBuf,
    /// Held by rank 0 for the length of the merge.
    lock: Option<Lock>,
    /// Whether an output that is there may be replaced.
    force: bool,
    /// Whether this rank removes the file on failure.
    armed: bool,
}

/// A locked file beside the output: two merges must not write, or clear away, the same file. The lock
/// goes with its process, so a killed merge blocks nobody.
#[derive(Debug)]
pub(crate) struct Lock {
    path: PathBuf,
    _file: File,
    /// Whether the file was there: a killed merge leaves it.
    was_there: bool,
}

impl Drop for Lock {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

impl Partial {
    /// `force` says whether an output that is there may be replaced. Names the file; on rank 0 (`owner`) also locks it,
    /// and clears away what a killed merge left. The others call [`Partial::share`] when that went well.
    pub fn begin(output: &Path, owner: bool, force: bool) -> Result<Partial, Failure> {
        let path = beside(output, PARTIAL);
        let cannot = |error: io::Error| {
            if error.kind() == ErrorKind::NotFound {
                let folder = path.parent().unwrap_or(Path::new(".")).display();
                return Failure::Output(format!(
                    "cannot write {}: the folder {folder} is not there; make it first, or choose another place with -o",
                    path.display()
                ));
            }
            let path = path.display();
            Failure::Output(format!("cannot write {path}: {error}; choose another place with -o"))
        };
        let mut lock = None;
        if owner {
            let taken = lock_file(beside(output, ".lock")).map_err(cannot)?.ok_or_else(|| {
                let output = output.display();
                Failure::Output(format!(
                    "another merge is writing {output}: wait for it, or choose another place with -o"
                ))
            })?;
            for left in temporary_names(output) {
                // A file of that name that no merge has left is somebody's own.
                if fs::symlink_metadata(&left).is_ok() && !may_be_left(&left, taken.was_there) {
                    let left = left.display();
                    return Err(Failure::Output(format!(
                        "{left} was not left by a merge: move it away, or use -o"
                    )));
                }
                match fs::remove_file(&left) {
                    Err(error) if error.kind() != ErrorKind::NotFound => return Err(cannot(error)),
                    _ => {}
                }
            }
            lock = Some(taken);
        }
        Ok(Partial { path, output: output.to_owned(), lock, force, armed: owner })
    }

    /// From now on this rank, too, removes the file if it fails. Before, it may be somebody else's.
    pub fn share(&mut self) {
        self.armed = true;
    }

    /// Where to write.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Forgets what is written: the merge begins anew. A rank whose writing was cut short may still be at it,
    /// in the file that has no name any more.
    pub fn forget(&self) -> Result<(), Failure> {
        match fs::remove_file(&self.path) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(Failure::write(&self.path, &error)),
            _ => Ok(()),
        }
    }

    /// Where to write what it is turned into.
    pub fn converted_path(&self) -> PathBuf {
        beside(&self.output, CONVERTED)
    }

    /// Gives the finished file its name.
    pub fn publish(&mut self, share: Share) -> Result<(), Failure> {
        share.file(&self.path);
        let published =
            File::open(&self.path).and_then(|file| file.sync_all()).and_then(|()| match self.force {
                true => fs::rename(&self.path, &self.output),
                false => rename_new(&self.path, &self.output),
            });
        published.map_err(|error| {
            let output = self.output.display();
            Failure::Output(match error.kind() {
                ErrorKind::AlreadyExists => format!(
                    "{output} has appeared in the meantime: use --force to overwrite it, or -o for another place"
                ),
                _ => format!("cannot finish {output}: {error}; free space or choose another place with -o"),
            })
        })?;
        self.release();
        Ok(())
    }

    /// The merge went well: the file is no longer this rank's to remove.
    pub fn release(&mut self) {
        self.armed = false;
        self.lock = None;
    }
}

/// What a merge to this output writes before it gets its name. No merge keeps it.
pub fn temporary_names(output: &Path) -> [PathBuf; 2] {
    [PARTIAL, CONVERTED].map(|ending| beside(output, ending))
}

fn beside(output: &Path, ending: &str) -> PathBuf {
    let mut name = output.as_os_str().to_owned();
    name.push(ending);
    name.into()
}

/// A rename that never replaces a file.
pub(crate) fn rename_new(from: &Path, to: &Path) -> io::Result<()> {
    match fs::hard_link(from, to) {
        Ok(()) => fs::remove_file(from),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Err(error),
        // A file system without hard links.
        Err(_) if to.exists() => Err(ErrorKind::AlreadyExists.into()),
        Err(_) => fs::rename(from, to),
    }
}

/// Takes the lock; `None` if another process has it.
pub(crate) fn lock_file(path: PathBuf) -> io::Result<Option<Lock>> {
    loop {
        let was_there = fs::symlink_metadata(&path).is_ok();
        let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path)?;
        if file.metadata()?.len() > 0 {
            return Err(io::Error::other("its .lock file was not left by a merge: move it away"));
        }
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(None),
            // A file system without locks, as Lustre may be mounted: the file alone has to do.
            Err(TryLockError::Error(_)) => return Ok(Some(Lock { path, _file: file, was_there })),
        }
        // The holder before may have removed the file between the opening and the locking.
        let locked = file.metadata()?.ino();
        if fs::metadata(&path).is_ok_and(|now| now.ino() == locked) {
            return Ok(Some(Lock { path, _file: file, was_there }));
        }
    }
}

impl Drop for Partial {
    /// A failing rank removes the file, whichever it is: after it the launcher kills the others.
    fn drop(&mut self) {
        if self.armed {
            let _ = fs::remove_file(&self.path);
            let _ = fs::remove_file(self.converted_path());
        }
    }
}
