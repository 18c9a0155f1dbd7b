//! A folder on the node for the files of profilers, one per rank and run of a command.
//!
//! Its owner locks the file `owner`, which names the boot of the node. So the next owner of the same user
//! finds the folders of killed owners.

use super::profiler_files::files_in;
use super::{processes, start_mark};
use crate::host::machine;
use crate::host::random::random;
use rpd_files::is_safe_folder;
use rustix::fs::{FlockOperation, OFlags, flock};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Prefix of the name. `ci` and site scripts find leftover folders by it.
pub(crate) const PREFIX: &str = "rpd-scratch-";
const OWNER: &str = "owner";
/// Maximum number of entries beside a folder to inspect.
const MAX_ENTRIES: usize = 100_000;
/// Time for which leftover files of a command are kept, since they may be nowhere else.
const TIME_TO_FETCH: Duration = Duration::from_secs(24 * 3600);

/// A new folder, private to the user.
#[derive(Debug)]
pub struct ScratchFolder {
    path: PathBuf,
    _held: Option<HeldScratch>,
}

impl ScratchFolder {
    /// Creates `<root>/rpd-scratch-<rank>-<random>`. The name is unique for ranks that share a node and for
    /// steps of a job.
    pub fn make(root: &Path, rank: &str) -> io::Result<ScratchFolder> {
        let random = random()? as u64;
        let root = std::path::absolute(root)?;
        // Another user could place code in such a folder, which a profiler hook would run.
        if root.exists() && !is_safe_folder(&root) {
            return Err(io::Error::other("other users may exchange folders in it"));
        }
        let path = root.join(format!("{PREFIX}{rank}-{random:016x}"));
        DirBuilder::new().mode(0o700).create(&path)?;
        let prepared = HeldScratch::begin(&path).and_then(|held| start_mark::make(&path).map(|()| held));
        match prepared {
            Ok(held) => Ok(ScratchFolder { path, _held: held }),
            Err(error) => {
                remove(&path);
                Err(error)
            }
        }
    }

    /// Returns the path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Creates a folder in it.
    pub fn folder(&self, name: &str) -> io::Result<PathBuf> {
        let path = self.path.join(name);
        DirBuilder::new().recursive(true).mode(0o700).create(&path)?;
        Ok(path)
    }

    /// Removes the folder and its content.
    pub fn remove(&self) {
        remove(&self.path);
    }
}

/// Holds the lock of a folder, until this is dropped or its process ends.
#[derive(Debug)]
pub(crate) struct HeldScratch {
    _lock: File,
}

impl HeldScratch {
    /// Locks a new folder. `None` if files cannot be locked. Then no process removes leftovers.
    fn begin(folder: &Path) -> io::Result<Option<HeldScratch>> {
        let mut file =
            OpenOptions::new().write(true).create_new(true).mode(0o600).open(folder.join(OWNER))?;
        if flock(&file, FlockOperation::NonBlockingLockShared).is_err() {
            return Ok(None);
        }
        // The lock comes first, because the folder has no owner without this text.
        file.write_all(machine::node().boot_id.as_bytes())?;
        Ok(Some(HeldScratch { _lock: file }))
    }

    /// Shares the lock with the process that created the folder.
    pub(crate) fn join(folder: &Path) -> Option<HeldScratch> {
        let file = File::open(folder.join(OWNER)).ok()?;
        flock(&file, FlockOperation::NonBlockingLockShared).ok()?;
        Some(HeldScratch { _lock: file })
    }
}

/// Removes a scratch folder. Removes links in it, but not their targets.
pub(crate) fn remove(path: &Path) {
    if is_named_so(path) {
        let _ = fs::remove_dir_all(path);
    }
}

/// Releases a folder that stays: it was named to the user, and no collector removes it from now on.
pub(crate) fn leave(path: &Path) {
    let _ = fs::remove_file(path.join(OWNER));
}

/// Removes folders in `root` that belonged to killed processes of this user. Returns their number.
pub(crate) fn clear_up(root: &Path) -> usize {
    // Between a check and its removal another user could exchange a folder for any other one.
    if !is_safe_folder(root) {
        return 0;
    }
    let boot_id = machine::node().boot_id;
    let entries = fs::read_dir(root).into_iter().flatten().flatten().take(MAX_ENTRIES);
    let left = entries.map(|entry| entry.path()).filter(|path| is_named_so(path));
    left.filter(|path| {
        let Some(_lock) = abandoned(path, &boot_id) else { return false };
        // The owner's file goes last, since this may be interrupted as well.
        let entries = fs::read_dir(path).into_iter().flatten().flatten();
        entries.filter(|entry| entry.file_name() != OWNER).for_each(|entry| drop(clear(&entry.path())));
        remove(path);
        !path.exists()
    })
    .count()
}

fn clear(path: &Path) -> io::Result<()> {
    if fs::symlink_metadata(path)?.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) }
}

/// Returns the lock of a folder that no process owns or writes to.
fn abandoned(path: &Path, boot_id: &str) -> Option<File> {
    let folder = fs::symlink_metadata(path).ok()?;
    if !folder.is_dir() || folder.uid() != rustix::process::geteuid().as_raw() {
        return None;
    }
    let mut options = OpenOptions::new();
    let owner =
        options.read(true).custom_flags(OFlags::NOFOLLOW.bits() as i32).open(path.join(OWNER)).ok()?;
    let mut text = String::new();
    (&owner).take(64).read_to_string(&mut text).ok()?;
    // A lock of another node may be invisible here, and after a boot the process ids are reused.
    if text.is_empty() || text != boot_id {
        return None;
    }
    flock(&owner, FlockOperation::NonBlockingLockExclusive).ok()?;
    let is_done_with = || age(path, &owner).is_some_and(|age| age > TIME_TO_FETCH);
    let is_done_with = !start_mark::is_claimed(path) || is_done_with();
    (is_done_with && !processes::know(path)).then_some(owner)
}

/// Returns the time since the newest file below a folder was written; `None` if it is unknown.
fn age(folder: &Path, owner: &File) -> Option<Duration> {
    let (files, more) = files_in(folder);
    let written = |found: io::Result<fs::Metadata>| found.ok()?.modified().ok();
    let mut newest = written(owner.metadata())?;
    for file in files {
        newest = newest.max(written(fs::symlink_metadata(&file))?);
    }
    newest.elapsed().ok().filter(|_| !more)
}

fn is_named_so(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(PREFIX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_abandoned_folders_are_removed() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        let make = |rank: &str| ScratchFolder::make(root, rank).unwrap();
        let (held, started, told, elsewhere, left) =
            (make("held"), make("started"), make("told"), make("elsewhere"), make("left"));
        let joined = make("joined");
        let by_another = HeldScratch::join(joined.path()).unwrap();
        start_mark::claim(started.path()).unwrap();
        leave(told.path());
        fs::write(elsewhere.path().join(OWNER), "another boot").unwrap();
        fs::create_dir(root.join("other")).unwrap();
        fs::create_dir(root.join(format!("{PREFIX}of-an-older-release"))).unwrap();
        std::os::unix::fs::symlink(left.path(), root.join(format!("{PREFIX}link"))).unwrap();
        let path = left.path().to_owned();
        assert_eq!(clear_up(root), 0);
        drop((started, told, elsewhere, left, joined));
        assert_eq!(clear_up(root), 1);
        assert!(!path.exists() && held.path().exists());
        drop((by_another, held));
        assert_eq!(clear_up(root), 2);
        assert_eq!(clear_up(root), 0);
    }

    #[test]
    fn what_was_written_lately_is_young_however_long_the_job_ran() {
        let root = tempfile::tempdir().unwrap();
        let scratch = ScratchFolder::make(root.path(), "x").unwrap();
        start_mark::claim(scratch.path()).unwrap();
        let folder = scratch.folder("rocprofv3").unwrap();
        fs::write(folder.join("1_results.db"), "x").unwrap();
        let path = scratch.path().to_owned();
        drop(scratch);
        let long_ago = std::time::SystemTime::now() - TIME_TO_FETCH * 2;
        let set_back = |file: PathBuf| File::open(file).unwrap().set_modified(long_ago).unwrap();
        for (file, gone) in [(OWNER, 0), ("started", 0), ("rocprofv3/1_results.db", 1)] {
            set_back(path.join(file));
            assert_eq!(clear_up(root.path()), gone, "{file}");
        }
    }

    #[test]
    fn a_folder_that_a_process_knows_of_stays() {
        let root = tempfile::tempdir().unwrap();
        let scratch = ScratchFolder::make(root.path(), "x").unwrap();
        let path = scratch.path().to_owned();
        drop(scratch);
        let mut command = std::process::Command::new("sleep");
        let mut child = command.arg("60").env("SOME_OUTPUT", path.join("files")).spawn().unwrap();
        // A process that is just starting has no variables for a moment.
        let environment = format!("/proc/{}/environ", child.id());
        while fs::read(&environment).unwrap().is_empty() {}
        assert_eq!(clear_up(root.path()), 0);
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(clear_up(root.path()), 1);
    }
}
