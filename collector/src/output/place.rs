//! Where the shard goes.

use rpd_shard::file::folder_of_ranks;
use rpd_shard::rank_set::RankSet;
use rpd_shard::record::{ClockDomain, RunIdentity};
use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Asks the site for a merge of the run that it lies in.
const MERGE_WANTED: &str = "merge.wanted";
/// Shards of one rank in one folder: several steps may have the same run id by mistake.
const MOST_OF_ONE_RANK: u32 = 1000;

/// The shard could not be made.
#[derive(Debug, thiserror::Error)]
pub enum PlaceError {
    /// No folder.
    #[error("failed to make the folder {path}: {source}; choose another place with -o DIR or RPD_OUTPUT")]
    Folder {
        /// The folder.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// No file.
    #[error("failed to create {path}: {source}; choose another place with -o DIR or RPD_OUTPUT")]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// Most bytes of a shard unless told otherwise.
pub const DEFAULT_MAX_BYTES: u64 = 2 << 30;

/// Which shard, and where.
#[derive(Clone, Debug)]
pub struct ShardPlace {
    /// Output root, absolute.
    pub root: PathBuf,
    /// Run and rank.
    pub run: RunIdentity,
    /// Ranks that are recorded.
    pub ranks: RankSet,
    /// Clocks of the collector.
    pub domain: ClockDomain,
    /// Most bytes of the shard. Rows that find no room are counted in its ledger.
    pub max_bytes: u64,
    /// The group may read it, too.
    pub share_group: bool,
    /// It is made even if nothing happens: for its clocks and its identity.
    pub always: bool,
}

/// A shard that did not exist before.
pub(super) struct NewShard {
    pub(super) file: File,
    pub(super) path: PathBuf,
    /// Another shard of this rank is already there.
    pub(super) beside_another: bool,
}

impl ShardPlace {
    /// Creates `rank-<rank>.rpdshard` in [`folder_of`] the rank, or `.1.rpdshard` and so on if that exists.
    /// The folder is for the user alone, and so is the file, unless they are shared with the group.
    pub(super) fn create(&self) -> Result<NewShard, PlaceError> {
        let file_mode = if self.share_group { 0o640 } else { 0o600 };
        let folder = folder_of(&self.root, &self.run);
        let failed = |source| PlaceError::Folder { path: folder.clone(), source };
        make_run_folder(&folder, self.share_group).map_err(failed)?;
        let rank = self.run.rank.unwrap_or(0);
        for attempt in 0..MOST_OF_ONE_RANK {
            let path = match attempt {
                0 => folder.join(format!("rank-{rank:05}.rpdshard")),
                n => folder.join(format!("rank-{rank:05}.{n}.rpdshard")),
            };
            match create_new(&path, file_mode) {
                Ok(file) => {
                    if self.share_group {
                        let _ = file.set_permissions(Permissions::from_mode(file_mode));
                    }
                    return Ok(NewShard { file, path, beside_another: attempt > 0 });
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(source) => return Err(PlaceError::File { path, source }),
            }
        }
        let source = io::Error::from(io::ErrorKind::AlreadyExists);
        Err(PlaceError::File { path: folder.join(format!("rank-{rank:05}.rpdshard")), source })
    }
}

impl ShardPlace {
    /// Creates `rank-<rank>.<label>.<ending>` there, or with a number behind the label if that exists.
    pub(crate) fn create_beside(&self, label: &str, ending: &str) -> Result<(File, PathBuf), PlaceError> {
        let mode = if self.share_group { 0o640 } else { 0o600 };
        let folder = folder_of(&self.root, &self.run);
        let failed = |source| PlaceError::Folder { path: folder.clone(), source };
        make_run_folder(&folder, self.share_group).map_err(failed)?;
        let rank = self.run.rank.unwrap_or(0);
        let mut path = folder.join(format!("rank-{rank:05}.{label}.{ending}"));
        for attempt in 1..MOST_OF_ONE_RANK {
            match create_new(&path, mode) {
                Ok(file) => {
                    if self.share_group {
                        let _ = file.set_permissions(Permissions::from_mode(mode));
                    }
                    return Ok((file, path));
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    path = folder.join(format!("rank-{rank:05}.{label}.{attempt}.{ending}"));
                }
                Err(source) => return Err(PlaceError::File { path, source }),
            }
        }
        Err(PlaceError::File { path, source: io::ErrorKind::AlreadyExists.into() })
    }
}

impl ShardPlace {
    /// Asks the site to merge the run.
    pub(crate) fn ask_for_merge(&self) -> Result<(), PlaceError> {
        self.leave(MERGE_WANTED)
    }

    /// An empty file in the folder of the run. One rank makes it, which all runs have.
    pub(crate) fn leave(&self, name: &str) -> Result<(), PlaceError> {
        if self.run.rank.is_some_and(|rank| rank != 0) {
            return Ok(());
        }
        let folder = self.root.join(&self.run.run_id);
        let failed = |source| PlaceError::Folder { path: folder.clone(), source };
        make_run_folder(&folder, self.share_group).map_err(failed)?;
        let path = folder.join(name);
        let mode = if self.share_group { 0o640 } else { 0o600 };
        match create_new(&path, mode) {
            Ok(file) => {
                if self.share_group {
                    let _ = file.set_permissions(Permissions::from_mode(mode));
                }
                Ok(())
            }
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                Err(PlaceError::File { path, source: error })
            }
            _ => Ok(()),
        }
    }
}

/// The folder of a rank's files: that of the run, or one below it in a run of many ranks.
pub(crate) fn folder_of(root: &Path, run: &RunIdentity) -> PathBuf {
    let of_run = root.join(&run.run_id);
    folder_of_ranks(run.rank, run.size).map_or(of_run.clone(), |below| of_run.join(below))
}

/// Makes a folder of a run and those above it, for the user alone or shared with the group.
pub(crate) fn make_run_folder(folder: &Path, share_group: bool) -> io::Result<()> {
    let mode = if share_group { 0o750 } else { 0o700 };
    let new: Vec<&Path> = folder.ancestors().take_while(|made| !made.exists()).collect();
    DirBuilder::new().recursive(true).mode(mode).create(folder)?;
    // The user's word counts before the umask. Other ranks make the same folders: who is too late to
    // make one may be too early to find it shared, but it will be.
    for made in new.into_iter().filter(|_| share_group) {
        // Files go on to belong to the group of the folder, where that is so.
        let inherited = made.metadata().map_or(0, |found| found.permissions().mode() & 0o2000);
        let _ = std::fs::set_permissions(made, Permissions::from_mode(mode | inherited));
    }
    crate::log::note_folder();
    Ok(())
}

fn create_new(path: &Path, mode: u32) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(mode).open(path)
}
