//! The folder of a run, below an output root that other users may write to.
//!
//! The collector opens the root as the user names it. Below the root it opens everything relative to a
//! descriptor, follows no link, and refuses a folder of another user, as that user could exchange it while the rank
//! writes.

use rpd_files::{FileRefused, HeldFolder};
use rpd_shard::file::folder_of_ranks;
use rpd_shard::record::RunIdentity;
use serde::{Deserialize, Serialize};
use std::ffi::{OsStr, OsString};
use std::fs::{DirBuilder, File, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// The run folder was created. If it is missing later, somebody removed it on purpose.
static WAS_MADE: AtomicBool = AtomicBool::new(false);

/// Notes that the run folder was created.
pub(crate) fn note_made() {
    WAS_MADE.store(true, Relaxed);
}

/// Whether this process or its parent process created the run folder.
pub(crate) fn was_made() -> bool {
    WAS_MADE.load(Relaxed)
}

/// The folder for the files of one rank: the folder of the run, or in a run of many ranks a folder below it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct RankFolder {
    /// A path, which is not necessarily UTF-8.
    root: OsString,
    run_id: String,
    /// Folder for a range of ranks, in the folder of the run.
    below: Option<String>,
    share_group: bool,
}

impl RankFolder {
    pub(crate) fn new(root: &Path, run: &RunIdentity, share_group: bool) -> RankFolder {
        let below = folder_of_ranks(run.rank, run.size);
        RankFolder { root: root.into(), run_id: run.run_id.clone(), below, share_group }
    }

    /// The folder of the run itself.
    pub(crate) fn of_run(root: &Path, run_id: &str, share_group: bool) -> RankFolder {
        RankFolder { root: root.into(), run_id: run_id.to_owned(), below: None, share_group }
    }

    /// The path, for messages and for other processes.
    pub(crate) fn path(&self) -> PathBuf {
        let of_run = self.root().join(&self.run_id);
        self.below.as_ref().map_or(of_run.clone(), |below| of_run.join(below))
    }

    fn root(&self) -> &Path {
        Path::new(&self.root)
    }

    /// Whether the group may read the files in it.
    pub(crate) fn is_shared(&self) -> bool {
        self.share_group
    }

    /// Mode of a file in the folder.
    pub(crate) fn file_mode(&self) -> u32 {
        if self.share_group { 0o640 } else { 0o600 }
    }

    fn mode(&self) -> u32 {
        if self.share_group { 0o750 } else { 0o700 }
    }

    /// Creates the folder and its missing parents, and opens it. The user alone may read them, unless they
    /// are shared with the group.
    pub(crate) fn make(&self) -> io::Result<HeldFolder> {
        self.make_root()?;
        let root = HeldFolder::open(self.root())?;
        let run = self.make_in(&root, &self.run_id)?;
        let made = match &self.below {
            Some(below) => self.make_in(&run, below)?,
            None => run,
        };
        note_made();
        Ok(made)
    }

    /// Opens the folder if it exists.
    pub(crate) fn open(&self) -> io::Result<HeldFolder> {
        let run = self.open_run()?;
        match &self.below {
            Some(below) => check_owner(run.open_folder(below)?),
            None => Ok(run),
        }
    }

    fn open_run(&self) -> io::Result<HeldFolder> {
        check_owner(HeldFolder::open(self.root())?.open_folder(&self.run_id)?)
    }

    /// Removes the file with this path from the folder if it has this device and inode. Returns whether it
    /// did.
    pub(crate) fn remove_file(&self, path: &Path, identity: (u64, u64)) -> bool {
        let name = path.file_name().unwrap_or_default();
        self.open().and_then(|folder| folder.remove_if(name, identity)).unwrap_or(false)
    }

    /// Counts the folders of the path that do not exist.
    pub(crate) fn count_missing(&self) -> usize {
        self.path().ancestors().take_while(|folder| folder.symlink_metadata().is_err()).count()
    }

    /// Removes the `count` innermost folders of the path, as long as they are empty.
    pub(crate) fn remove_empty(&self, count: usize) {
        for level in 0..count {
            let _ = self.remove_level(level);
        }
    }

    /// Removes the folder that has `level` folders of the path below it. The folder is empty and belongs to
    /// this user. Another user with write access to its parent can exchange it for another empty folder
    /// there, but cannot reach any other folder.
    fn remove_level(&self, level: usize) -> io::Result<()> {
        let levels_of_run = 1 + usize::from(self.below.is_some());
        let (above, name) = match &self.below {
            Some(below) if level == 0 => (self.open_run()?, OsStr::new(below)),
            _ if level < levels_of_run => (HeldFolder::open(self.root())?, OsStr::new(&self.run_id)),
            _ => {
                let made = self.root().ancestors().nth(level - levels_of_run);
                let Some((above, name)) = made.and_then(|made| Some((made.parent()?, made.file_name()?)))
                else {
                    return Ok(());
                };
                (HeldFolder::open(above)?, name)
            }
        };
        check_owner(above.open_folder(name)?)?;
        above.remove_folder(name)
    }

    fn make_in(&self, above: &HeldFolder, name: &str) -> io::Result<HeldFolder> {
        let (folder, is_new) = above.make_folder(name, self.mode())?;
        let folder = check_owner(folder)?;
        // The user asked for sharing, so the umask does not apply. Other ranks create the same folders: a
        // rank may find a folder before the creating rank has shared it, but that rank will.
        if is_new && self.share_group {
            // Files inherit the group of the folder if it has the setgid bit.
            let _ = folder.set_mode(self.mode() | folder.mode() & 0o2000);
        }
        Ok(folder)
    }

    fn make_root(&self) -> io::Result<()> {
        let new: Vec<&Path> = self.root().ancestors().take_while(|made| !made.exists()).collect();
        let made = DirBuilder::new().recursive(true).mode(self.mode()).create(self.root());
        made.map_err(|error| match error.kind() {
            // Something that is not a folder has this name.
            io::ErrorKind::AlreadyExists => rustix::io::Errno::NOTDIR.into(),
            _ => error,
        })?;
        for made in new.into_iter().filter(|_| self.share_group) {
            let inherited = made.metadata().map_or(0, |found| found.permissions().mode() & 0o2000);
            let _ = std::fs::set_permissions(made, Permissions::from_mode(self.mode() | inherited));
        }
        Ok(())
    }
}

/// Returns the device and the inode of a file.
pub(crate) fn identity(file: &File) -> io::Result<(u64, u64)> {
    let found = file.metadata()?;
    Ok((found.dev(), found.ino()))
}

fn check_owner(folder: HeldFolder) -> io::Result<HeldFolder> {
    match folder.is_own() {
        true => Ok(folder),
        false => Err(FileRefused::OtherOwner { owner: folder.owner() }.into()),
    }
}
