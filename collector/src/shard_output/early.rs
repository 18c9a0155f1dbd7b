//! The shard of a rank before its collector runs: created, with its header, before the command starts.
//!
//! A merge finds the rank by it even if the collector is killed at once. The header is in the file, not
//! synced: it survives the death of every process, not that of the machine.

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
    /// No shard yet: it is created when there is something to write.
    Nothing,
    /// A shard that was created before the command.
    Shard(File, EarlyShard),
    /// The file system has refused a shard, and that was said.
    Refused,
}

/// A shard that was created before the command started; the launcher and the collector share this description.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct EarlyShard {
    folder: RankFolder,
    name: OsString,
    /// Device and inode: another file may have the name by now.
    id: (u64, u64),
    /// What has the usual name of the shard, if that was taken.
    pub(super) beside: Option<String>,
    /// How many folders of its path were made for it.
    made: usize,
}

impl EarlyShard {
    pub(super) fn path(&self) -> PathBuf {
        self.folder.path().join(&self.name)
    }

    /// Removes the file, and the folders that were made for it if nothing else is in them.
    ///
    /// The launcher and the collector share this description, which holds no descriptor: the folder is opened again, and
    /// has to belong to this user.
    pub(crate) fn remove(&self) {
        self.folder.remove_file(Path::new(&self.name), self.id);
        self.folder.remove_empty(self.made);
    }
}

/// A shard that is being created, in a thread of its own: a file system that stalls must not hold the command.
pub(crate) struct ShardCreation {
    thread: JoinHandle<Result<(File, EarlyShard), PlaceError>>,
    created: Receiver<()>,
}

impl ShardCreation {
    /// Starts to create the shard and to write its header; `None` if there is no thread for that.
    pub(crate) fn begin(place: ShardPlace) -> Option<ShardCreation> {
        // The channel has no buffer: a shard that is created too late has no receiver and is removed.
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

    /// The shard. `Ok(None)` if the file system does not answer within `limit`: then the command starts, and the
    /// collector creates the shard when that is possible.
    pub(crate) fn wait(self, limit: Duration) -> Result<Option<(File, EarlyShard)>, PlaceError> {
        if self.created.recv_timeout(limit).is_err() {
            return Ok(None);
        }
        // What the thread has made is read after its end, which sanitizers in this process understand, too.
        self.thread.join().ok().transpose()
    }
}

fn create(place: &ShardPlace) -> Result<(File, EarlyShard), PlaceError> {
    let folder = place.folder();
    let made = folder.count_missing();
    let new = create_again_if_removed(place).inspect_err(|_| folder.remove_empty(made))?;
    let NewShard { file, path, beside } = new;
    let id = identity(&file);
    let failed = |source| PlaceError::File { path: path.clone(), source };
    let id = id.map_err(failed)?;
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

/// Another process of the same run id may remove the folder between its creation and that of the file,
/// because nothing happened there.
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

/// A shard in memory: its header, its identity, and the ranks that were chosen.
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
        // What is not empty stays.
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
