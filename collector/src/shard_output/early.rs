//! The shard of a rank before its collector runs: the parent process creates it with its header before it
//! starts the command.
//!
//! The shard tells a merge about the rank even if the collector is killed at once. The header is in the file,
//! but not synced: it survives the death of every process, but not of the machine.

use super::ShardPlace;
use super::shard_file::ShardFile;
use super::shard_place::{NewShard, PlaceError};
use crate::run_folder::{RankFolder, identity};
use rpd_shard::file::WriteError;
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// State of the shard when the writing thread starts.
pub(crate) enum ShardBeginning {
    /// No shard yet. The writing thread creates it for the first row.
    Nothing,
    /// The parent process created this shard.
    Shard(File, EarlyShard),
    /// The file system refused a shard, and the parent process printed that.
    Refused,
}

/// A shard that was created before the command started. The parent process sends this description to the
/// collector process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct EarlyShard {
    folder: RankFolder,
    name: OsString,
    /// Device and inode, because another file may have the name by now.
    id: (u64, u64),
    /// Description of the entry that occupies the usual name of the shard, if that name was taken.
    pub(super) beside: Option<String>,
    /// Number of folders of the path that were created for the shard.
    made: usize,
}

impl EarlyShard {
    pub(super) fn path(&self) -> PathBuf {
        self.folder.path().join(&self.name)
    }

    /// Removes the file, and the folders that were created for it if they are empty.
    ///
    /// Both processes have this description, which holds no descriptor. So this opens the folder again, which
    /// must belong to this user.
    pub(crate) fn remove(&self) {
        self.folder.remove_file(Path::new(&self.name), self.id);
        self.folder.remove_empty(self.made);
    }
}

/// A shard that a separate thread creates, so that a stalled file system does not delay the command.
pub(crate) struct ShardCreation {
    thread: JoinHandle<Result<(File, EarlyShard), PlaceError>>,
    created: Receiver<()>,
}

impl ShardCreation {
    /// Starts a thread that creates the shard and writes its header. `None` if no thread can be started.
    pub(crate) fn begin(place: ShardPlace) -> Option<ShardCreation> {
        // The channel has no buffer: if the receiver is gone, the thread removes the shard that it created
        // too late.
        let (done, created) = sync_channel(0);
        let create = move || {
            let created = create(&place);
            if done.send(()).is_err()
                && let Ok((_, early)) = &created
            {
                early.remove();
            }
            created
        };
        let thread = std::thread::Builder::new().name("rpd-early".to_owned()).spawn(create).ok()?;
        Some(ShardCreation { thread, created })
    }

    /// Returns the shard. `Ok(None)` if the file system does not answer within `limit`. Then the parent
    /// process starts the command, and the collector creates the shard later.
    pub(crate) fn wait(self, limit: Duration) -> Result<Option<(File, EarlyShard)>, PlaceError> {
        if self.created.recv_timeout(limit).is_err() {
            return Ok(None);
        }
        // Joining the thread makes its result visible to sanitizers in this process as well.
        self.thread.join().ok().transpose()
    }
}

fn create(place: &ShardPlace) -> Result<(File, EarlyShard), PlaceError> {
    let folder = place.folder();
    let made = folder.count_missing();
    let new = create_again_if_removed(place).inspect_err(|_| folder.remove_empty(made))?;
    let NewShard { file, path, beside } = new;
    let id = identity(&file).map_err(|source| PlaceError::File { path: path.clone(), source })?;
    let name = path.file_name().unwrap_or_default().to_owned();
    let early = EarlyShard { folder, name, id, beside, made };
    match write_header(file, place) {
        Ok(file) => Ok((file, early)),
        Err(source) => {
            early.remove();
            Err(PlaceError::File { path, source })
        }
    }
}

/// Another process with the same run id may remove the empty folder after this one created it and before this
/// one creates the file.
fn create_again_if_removed(place: &ShardPlace) -> Result<NewShard, PlaceError> {
    match place.create() {
        Err(PlaceError::File { source, .. }) if source.kind() == io::ErrorKind::NotFound => place.create(),
        created => created,
    }
}

fn write_header(file: File, place: &ShardPlace) -> io::Result<File> {
    let io_error = |error| match error {
        WriteError::Io(error) => error,
        other => io::Error::other(other),
    };
    let mut shard = begin(file, place).map_err(io_error)?;
    shard.flush().map_err(io_error)?;
    Ok(shard.into_disk())
}

/// Begins a shard in memory: its header, its identity, and the selection of ranks.
pub(super) fn begin(file: File, place: &ShardPlace) -> Result<ShardFile<File>, WriteError> {
    let mut shard = ShardFile::new(file, &place.run, place.max_bytes)?;
    if let Some(selection) = place.ranks.selection() {
        shard.writer.selection(selection)?;
    }
    Ok(shard)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    fn place(root: &Path) -> ShardPlace {
        let run = rpd_shard::record::RunIdentity {
            run_id: "run".to_owned(),
            run_id_from: "--run-id".to_owned(),
            rank: Some(3),
            size: Some(4096),
            version: "0".to_owned(),
        };
        ShardPlace {
            root: root.to_owned(),
            run,
            ranks: Default::default(),
            domain: crate::host::machine::clock_domain(),
            max_bytes: 1 << 20,
            share_group: false,
            always: true,
        }
    }

    #[test]
    fn an_early_shard_and_its_folders_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let (_file, early) = create(&place(&folder.path().join("new/root"))).unwrap();
        assert!(early.path().exists() && early.path().parent().unwrap().ends_with("ranks-00000"));
        early.remove();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        // Folders that are not empty stay.
        fs::create_dir(folder.path().join("root")).unwrap();
        let (_file, early) = create(&place(&folder.path().join("root"))).unwrap();
        fs::write(folder.path().join("root/run/merge.wanted"), "").unwrap();
        early.remove();
        assert!(
            folder.path().join("root/run/merge.wanted").exists() && !early.path().parent().unwrap().exists()
        );
    }

    #[test]
    fn an_early_shard_of_a_run_that_became_a_link_removes_nothing_elsewhere() {
        let folder = tempfile::tempdir().unwrap();
        let (_file, early) = create(&place(folder.path())).unwrap();
        let elsewhere = folder.path().join("elsewhere");
        let copy = elsewhere.join(early.path().strip_prefix(folder.path().join("run")).unwrap());
        fs::create_dir_all(copy.parent().unwrap()).unwrap();
        fs::hard_link(early.path(), &copy).unwrap();
        fs::rename(folder.path().join("run"), folder.path().join("aside")).unwrap();
        symlink(&elsewhere, folder.path().join("run")).unwrap();
        early.remove();
        assert!(copy.exists());
        fs::remove_file(&copy).unwrap();
        early.remove();
        assert!(copy.parent().unwrap().exists(), "an empty folder is none of the run either");
    }

    #[test]
    fn another_file_of_the_name_of_an_early_shard_stays() {
        let folder = tempfile::tempdir().unwrap();
        let (_file, early) = create(&place(folder.path())).unwrap();
        fs::remove_file(early.path()).unwrap();
        fs::write(early.path(), "of another process").unwrap();
        early.remove();
        assert!(early.path().exists());
    }
}
