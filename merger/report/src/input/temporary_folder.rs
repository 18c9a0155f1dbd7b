//! A private folder for shards that are translated from files of foreign formats and read only once.

use rpd_console::Failure;
use rpd_files::effective_uid;
use rpd_output_file::{OutputLock, UnfinishedOutput, keep_on_interrupt, remove_on_interrupt};
use std::fs::{self, DirBuilder, Metadata};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Names that are tried. Killed processes with the same number may have left some.
const MAX_NAMES: u32 = 1000;
/// Beginning of the names.
const PREFIX: &str = "rpd-report-";
/// Lock that is held until the folder is removed.
const LOCK: &str = "report.lock";
/// Age from which on a folder may have been left. Where the file system has no locks, all seem to be free.
const MIN_AGE: Duration = Duration::from_secs(3600);
/// Maximum number of entries of `$TMPDIR` among which folders of killed reports are searched.
const MAX_SEARCHED: usize = 10_000;

/// A folder below `$TMPDIR` that only this user can open. It is removed with this value, and if a signal ends the program.
#[derive(Debug)]
pub(crate) struct TemporaryFolder {
    path: PathBuf,
    _lock: Option<OutputLock>,
}

impl TemporaryFolder {
    /// Creates the folder, and removes those that killed reports of this user have left.
    pub(crate) fn create() -> Result<TemporaryFolder, Failure> {
        let root = std::env::temp_dir();
        remove_left_folders(&root);
        for number in 0..MAX_NAMES {
            let path = root.join(format!("{PREFIX}{}-{number}", std::process::id()));
            // The system creates no folder in place of anything that exists, not even of a link.
            match DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => {
                    remove_on_interrupt(UnfinishedOutput::Folder(path.clone()));
                    // Reports that start later remove folders with a lock that no process holds.
                    let lock = OutputLock::acquire(path.join(LOCK));
                    let mut folder = TemporaryFolder { path, _lock: None };
                    folder._lock = lock.map_err(|error| set_tmpdir(&root, &error))?;
                    if folder._lock.is_some() {
                        return Ok(folder);
                    }
                }
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(set_tmpdir(&root, &error)),
            }
        }
        Err(Failure::output(format!("remove the folders rpd-report-* in {}, or set TMPDIR", root.display())))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

fn set_tmpdir(root: &Path, error: &dyn std::fmt::Display) -> Failure {
    let root = root.display();
    Failure::output(format!("cannot create a folder in {root}: {error}; set TMPDIR to another place"))
}

/// Removes folders of this user with a lock that no process holds.
fn remove_left_folders(root: &Path) {
    let Ok(entries) = fs::read_dir(root) else { return };
    for entry in entries.take(MAX_SEARCHED).flatten() {
        let path = entry.path();
        let is_own = || {
            let found = fs::symlink_metadata(&path);
            let is_old = |found: &Metadata| {
                found.modified().is_ok_and(|time| time.elapsed().is_ok_and(|age| age >= MIN_AGE))
            };
            found.is_ok_and(|found| found.is_dir() && found.uid() == effective_uid() && is_old(&found))
        };
        let lock = path.join(LOCK);
        if !entry.file_name().to_string_lossy().starts_with(PREFIX)
            || !is_own()
            || fs::symlink_metadata(&lock).is_err()
        {
            continue;
        }
        if let Ok(Some(_lock)) = OutputLock::acquire(lock) {
            let _ = fs::remove_dir_all(path);
        }
    }
}

impl Drop for TemporaryFolder {
    fn drop(&mut self) {
        // What cannot be removed now cannot be removed by a signal either.
        let _ = fs::remove_dir_all(&self.path);
        keep_on_interrupt(&self.path);
    }
}
