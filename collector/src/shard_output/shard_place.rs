//! Location of the shard.

use crate::run_folder::RankFolder;
use rpd_files::{EntryKind, HeldFolder, effective_uid, user_name};
use rpd_shard::rank_set::RankSet;
use rpd_shard::record::{ClockDomain, RunIdentity};
use std::fs::{File, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

/// Name of the empty file by which a run asks the site for a merge.
const MERGE_WANTED: &str = "merge.wanted";
/// Maximum number of shards of one rank in one folder: several steps may have the same run id by mistake.
const MAX_SHARDS_OF_ONE_RANK: u32 = 1000;

/// The shard could not be created.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PlaceError {
    /// The folder cannot be created.
    #[error("failed to create the folder {path}: {source}; choose another folder with -o DIR or RPD_OUTPUT")]
    Folder {
        /// The folder.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// Something else has the name of an empty file that scripts look for.
    #[error("failed to create {path}: {what} has that name; remove it")]
    Taken {
        /// The file.
        path: PathBuf,
        /// Description of the entry that has the name.
        what: String,
    },
    /// The file cannot be created.
    #[error("failed to create {path}: {source}; choose another folder with -o DIR or RPD_OUTPUT")]
    File {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
}

/// Default limit for the bytes of a shard.
pub(crate) const DEFAULT_MAX_BYTES: u64 = 2 << 30;

/// A shard and its location.
#[derive(Clone, Debug)]
pub struct ShardPlace {
    /// Output root, absolute.
    pub root: PathBuf,
    /// Identity of the run and the rank.
    pub run: RunIdentity,
    /// Ranks that are recorded.
    pub ranks: RankSet,
    /// Clock domain of the collector.
    pub domain: ClockDomain,
    /// Maximum number of bytes. The ledger counts the rows that do not fit.
    pub max_bytes: u64,
    /// The group may read the shard as well.
    pub share_group: bool,
    /// Create the shard even if nothing is recorded, for its clocks and its identity.
    pub always: bool,
}

/// A new shard.
pub(super) struct NewShard {
    pub(super) file: File,
    pub(super) path: PathBuf,
    /// Description of the entry that occupies the usual name of the shard, if that name was taken.
    pub(super) beside: Option<String>,
}

impl ShardPlace {
    /// Creates `rank-<rank>.rpdshard` in the folder of the rank, or `.1.rpdshard` and so on if that exists.
    /// The user alone may read the folder and the file, unless they are shared with the group.
    pub(super) fn create(&self) -> Result<NewShard, PlaceError> {
        let (file, path, attempt) = self.create_numbered(&self.stem(), "rpdshard")?;
        let beside = (attempt > 0).then(|| self.taken_by(&format!("{}.rpdshard", self.stem())));
        Ok(NewShard { file, path, beside })
    }

    /// Describes what has the usual name of a shard.
    fn taken_by(&self, name: &str) -> String {
        let trap = self.folder().open().ok().and_then(|folder| trap_in(&folder, name));
        trap.map_or_else(|| "a shard".to_owned(), |what| format!("{what} in place of the shard"))
    }

    /// Creates `rank-<rank>.<label>.<extension>` in the folder of the rank, with a number after the label if
    /// that exists.
    pub(crate) fn create_beside(&self, label: &str, extension: &str) -> Result<(File, PathBuf), PlaceError> {
        let (file, path, _) = self.create_numbered(&format!("{}.{label}", self.stem()), extension)?;
        Ok((file, path))
    }

    /// Returns the name of the rank's files, without their extension.
    fn stem(&self) -> String {
        format!("rank-{:05}", self.run.rank.unwrap_or(0))
    }

    /// Creates the first file that does not exist, and returns the number of the attempt.
    fn create_numbered(&self, stem: &str, extension: &str) -> Result<(File, PathBuf, u32), PlaceError> {
        let place = self.folder();
        let folder = place.make().map_err(|source| PlaceError::Folder { path: place.path(), source })?;
        for attempt in 0..MAX_SHARDS_OF_ONE_RANK {
            let name = match attempt {
                0 => format!("{stem}.{extension}"),
                n => format!("{stem}.{n}.{extension}"),
            };
            let path = place.path().join(&name);
            match create_in(&folder, &name, &place) {
                Ok(file) => return Ok((file, path, attempt)),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(source) => return Err(PlaceError::File { path, source }),
            }
        }
        let path = place.path().join(format!("{stem}.{extension}"));
        Err(PlaceError::File { path, source: io::ErrorKind::AlreadyExists.into() })
    }

    /// Returns the folder of the rank.
    pub(crate) fn folder(&self) -> RankFolder {
        RankFolder::new(&self.root, &self.run, self.share_group)
    }

    /// Asks the site to merge the run.
    pub(crate) fn ask_for_merge(&self) -> Result<(), PlaceError> {
        self.leave(MERGE_WANTED)
    }

    /// Creates an empty file in the folder of the run. Only rank 0 does, which every run has.
    pub(crate) fn leave(&self, name: &str) -> Result<(), PlaceError> {
        if self.run.rank.is_some_and(|rank| rank != 0) {
            return Ok(());
        }
        let place = RankFolder::of_run(&self.root, &self.run.run_id, self.share_group);
        let folder = place.make().map_err(|source| PlaceError::Folder { path: place.path(), source })?;
        let path = place.path().join(name);
        match create_in(&folder, name, &place) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => match trap_in(&folder, name) {
                Some(what) => Err(PlaceError::Taken { path, what }),
                None => Ok(()),
            },
            Err(source) => Err(PlaceError::File { path, source }),
            Ok(_) => Ok(()),
        }
    }
}

/// Describes what has the name of an empty file. `None` if an earlier process of this user created it, or if
/// nothing has the name any more.
fn trap_in(folder: &HeldFolder, name: &str) -> Option<String> {
    let found = folder.stat(name).ok()?;
    match found.kind {
        EntryKind::File if found.owner == effective_uid() => None,
        EntryKind::File => Some(format!("a file of {}", user_name(found.owner))),
        EntryKind::Folder => Some("a folder".to_owned()),
        EntryKind::Link => Some("a symbolic link".to_owned()),
        EntryKind::Other => Some("a FIFO, a socket or a device".to_owned()),
    }
}

/// Creates a file. If the folder is shared the group may read the file, whatever the umask.
fn create_in(folder: &HeldFolder, name: &str, place: &RankFolder) -> io::Result<File> {
    let file = folder.create(name, place.file_mode())?;
    if place.is_shared() {
        let _ = file.set_permissions(Permissions::from_mode(place.file_mode()));
    }
    Ok(file)
}
