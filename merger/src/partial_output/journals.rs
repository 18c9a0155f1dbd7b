//! SQLite journals beside a database: `-wal`, `-shm` and `-journal`.
//!
//! SQLite finds them by name. If an older file of the same name left a journal, the next reader replays it into the
//! new file. [`check`] rejects journals that are in use. [`clear`] also removes the others, and [`clear_published`]
//! those that appear while a file is renamed.

use rpd_console::Failure;
use rpd_files::{EntryKind, EntryStat, HeldFolder, output_place};
use rustix::process::{Flock, FlockOffsetType, FlockType, fcntl_getlk};
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Suffixes of journal names, in the order in which journals are removed.
const SUFFIXES: [&str; 3] = ["-wal", "-shm", "-journal"];
/// First byte of a database that SQLite uses for locks (`PENDING_BYTE`).
const FIRST_LOCK_BYTE: u64 = 0x4000_0000;
/// Number of bytes from there that SQLite uses for locks: pending, reserved, and 510 shared ones.
const LOCK_BYTES: u64 = 512;
/// First bytes of a write-ahead log, without the bit for the byte order of its checksums.
const WAL_MAGIC: [u8; 4] = [0x37, 0x7f, 0x06, 0x82];
/// First bytes of a rollback journal.
const JOURNAL_MAGIC: [u8; 8] = [0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7];
/// Version of the index of a write-ahead log, in the byte order of the machine.
const INDEX_VERSION: u32 = 3_007_000;

/// Fails if journals of a database are in use, or if files with their names are not journals.
///
/// A process uses a journal if it holds a lock of SQLite on the index or on the database. It also does if `/proc`
/// shows that it has a journal open. Processes on other nodes are found only by their locks.
///
/// # Errors
/// [`Failure::output`] that names the journal, its user and the next step.
pub(crate) fn check(database: &Path) -> Result<(), Failure> {
    let checked = Beside::look(database).and_then(|beside| beside.check());
    checked.map_err(|obstacle| obstacle.before(database))
}

/// Removes the journals of a database before it is renamed to its final name. Links are never followed.
///
/// # Errors
/// As [`check`], or if a journal cannot be removed.
pub(crate) fn clear(database: &Path) -> Result<(), Failure> {
    remove_all(database).map_err(|obstacle| obstacle.before(database))
}

/// Removes the journals of a database that was just renamed: a program that opened the older file of that name may
/// have left new ones.
///
/// # Errors
/// As [`clear`]. The database is complete and is kept; the message names the journal.
pub(crate) fn clear_published(database: &Path) -> Result<(), Failure> {
    remove_all(database).map_err(|obstacle| obstacle.after(database))
}

fn remove_all(database: &Path) -> Result<(), Obstacle> {
    let beside = Beside::look(database)?;
    beside.check()?;
    beside.remove()
}

/// Why the journals of a database cannot be removed.
#[derive(Debug, thiserror::Error)]
enum Obstacle {
    #[error("the names beside it cannot be looked up ({0})")]
    Folder(io::Error),
    #[error("{} is not a journal of SQLite, and SQLite would take it for one", .0.display())]
    NoJournal(PathBuf),
    #[error("its journal {} cannot be read ({source})", journal.display())]
    Unreadable { journal: PathBuf, source: io::Error },
    #[error("{user} uses its journal {}", journal.display())]
    Used { journal: PathBuf, user: String },
    #[error("its journal {}, which an older file of that name left, cannot be removed ({source})", journal.display())]
    NotRemoved { journal: PathBuf, source: io::Error },
}

impl Obstacle {
    /// Returns the failure for a database that is not written yet.
    fn before(&self, database: &Path) -> Failure {
        let (database, remedy) = (database.display(), self.remedy());
        Failure::output(format!("cannot write {database}: {self}; {remedy}, or choose another name with -o"))
    }

    /// Returns the failure for a database that has its final name.
    fn after(&self, database: &Path) -> Failure {
        let (database, remedy) = (database.display(), self.remedy());
        let left =
            if matches!(self, Obstacle::Used { .. }) { ", remove the journal if it remains," } else { "" };
        Failure::output(format!(
            "{database} is complete, but {self}, and its next reader may take rows of another file from there; \
             {remedy}{left} before you open {database}"
        ))
    }

    fn remedy(&self) -> &'static str {
        match self {
            Obstacle::Folder(_) => "check the folder and its file system",
            Obstacle::NoJournal(_) => "move it away",
            Obstacle::Unreadable { .. } => "make it readable or move it away",
            Obstacle::Used { .. } => "close the database there",
            Obstacle::NotRemoved { .. } => "remove it",
        }
    }
}

/// Journals beside a database.
struct Beside<'a> {
    database: &'a Path,
    folder: Arc<HeldFolder>,
    found: Vec<Journal>,
}

/// One journal.
struct Journal {
    name: OsString,
    /// Device and inode.
    identity: (u64, u64),
}

impl<'a> Beside<'a> {
    /// Lists the files with names of journals.
    fn look(database: &'a Path) -> Result<Beside<'a>, Obstacle> {
        let (folder, _) = output_place(database).map_err(Obstacle::Folder)?;
        let mut beside = Beside { database, folder, found: Vec::new() };
        for suffix in SUFFIXES {
            let mut name = database.file_name().unwrap_or_default().to_owned();
            name.push(suffix);
            match beside.folder.stat(&name) {
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(Obstacle::Folder(error)),
                Ok(found) => beside.add(name, &found)?,
            }
        }
        Ok(beside)
    }

    /// Adds a journal. Fails for any other file with this name, because it belongs to its owner.
    fn add(&mut self, name: OsString, found: &EntryStat) -> Result<(), Obstacle> {
        let is_journal = match found.kind {
            EntryKind::File => {
                self.folder.open_file(&name).and_then(|file| has_content_of_journal(file, &name))
            }
            _ => Ok(false),
        };
        match is_journal {
            Ok(true) => self.found.push(Journal { name, identity: found.identity }),
            Ok(false) => return Err(Obstacle::NoJournal(self.path(&name))),
            // The program that had it open removed it.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(Obstacle::Unreadable { journal: self.path(&name), source: error }),
        }
        Ok(())
    }

    fn path(&self, name: &OsStr) -> PathBuf {
        self.database.with_file_name(name)
    }

    fn check(&self) -> Result<(), Obstacle> {
        let Some(first) = self.found.first() else { return Ok(()) };
        let (name, user) = match self.holder_of_lock() {
            Some(user) => (first.name.as_os_str(), user),
            None => match self.holder_of_file() {
                Some((journal, user)) => (journal.name.as_os_str(), user),
                None => return Ok(()),
            },
        };
        Err(Obstacle::Used { journal: self.path(name), user })
    }

    /// Returns the process that holds a lock of SQLite. A reader of a write-ahead log holds a lock on its index and
    /// one on the database as long as they are open. The owner of a rollback journal holds one on the database.
    fn holder_of_lock(&self) -> Option<String> {
        let lock = Flock {
            start: FIRST_LOCK_BYTE,
            length: LOCK_BYTES,
            pid: None,
            typ: FlockType::WriteLock,
            offset_type: FlockOffsetType::Set,
        };
        let all = Flock { start: 0, length: 0, ..lock };
        let index = self.found.iter().find(|journal| journal.name.as_encoded_bytes().ends_with(b"-shm"));
        let database = self.database.file_name().map(|name| (name, lock));
        let places = index.map(|index| (index.name.as_os_str(), all)).into_iter().chain(database);
        let held = places.filter_map(|(name, lock)| {
            let file = self.folder.open_file(name).ok()?;
            fcntl_getlk(&file, &lock).ok().flatten()
        });
        held.map(|lock| lock.pid.map_or("another process".to_owned(), |pid| named(pid.as_raw_pid()))).next()
    }

    /// Returns the process of this node that has a journal open, as far as this user can see.
    fn holder_of_file(&self) -> Option<(&Journal, String)> {
        let own = std::process::id();
        let processes = fs::read_dir("/proc").ok()?.flatten();
        let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        let mut others = pids.filter(|pid| *pid != own);
        others.find_map(|pid| Some((self.opened_by(pid)?, named(pid as i32))))
    }

    fn opened_by(&self, pid: u32) -> Option<&Journal> {
        let mut files = fs::read_dir(format!("/proc/{pid}/fd")).ok()?.flatten().map(|entry| entry.path());
        files.find_map(|link| {
            // Compares the name first, because `stat` blocks if the file's file system hangs.
            let target = fs::read_link(&link).ok()?;
            let mut named = self.found.iter().filter(|journal| target.file_name() == Some(&journal.name));
            let file = named.clone().next().and_then(|_| fs::metadata(&link).ok())?;
            named.find(|journal| journal.identity == (file.dev(), file.ino()))
        })
    }

    fn remove(&self) -> Result<(), Obstacle> {
        for Journal { name, .. } in &self.found {
            match self.folder.remove(name) {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    return Err(Obstacle::NotRemoved { journal: self.path(name), source: error });
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// Returns whether a file begins like the kind of journal that its name indicates. SQLite also leaves empty and
/// zeroed journals.
fn has_content_of_journal(file: File, name: &OsStr) -> io::Result<bool> {
    let mut head = Vec::new();
    file.take(8).read_to_end(&mut head)?;
    if head.iter().all(|byte| *byte == 0) {
        return Ok(true);
    }
    let ends_with = |suffix: &str| name.as_encoded_bytes().ends_with(suffix.as_bytes());
    Ok(if ends_with("-wal") {
        let [a, b, c, d] = WAL_MAGIC;
        head.starts_with(&[a, b, c, d]) || head.starts_with(&[a, b, c, d | 1])
    } else if ends_with("-shm") {
        head.starts_with(&INDEX_VERSION.to_ne_bytes())
    } else {
        head.starts_with(&JOURNAL_MAGIC)
    })
}

/// Describes a process by pid and program name.
fn named(pid: i32) -> String {
    let program = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    match program.trim_end() {
        "" => format!("process {pid}"),
        program => format!("process {pid} ({program})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command, Stdio};

    /// A process that has a file open; it is killed when this value is dropped.
    struct Reader(Child);

    impl Reader {
        fn start(path: &Path) -> Reader {
            let input = Stdio::from(File::open(path).unwrap());
            Reader(Command::new("sleep").arg("60").stdin(input).spawn().unwrap())
        }
    }

    impl Drop for Reader {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    #[test]
    fn a_journal_that_appears_while_the_file_gets_its_name_is_one_message() {
        let folder = tempfile::tempdir().unwrap();
        let database = folder.path().join("out.db");
        let wal = folder.path().join("out.db-wal");
        fs::write(&database, "whole").unwrap();
        fs::write(&wal, WAL_MAGIC).unwrap();
        let reader = Reader::start(&wal);
        let (before, after) = (clear(&database).unwrap_err(), clear_published(&database).unwrap_err());
        let (before, after) = (before.to_string(), after.to_string());
        for words in ["uses its journal", "out.db-wal", "close the database there"] {
            assert!(before.contains(words) && after.contains(words), "{before}\n{after}");
        }
        assert!(
            before.starts_with("cannot write") && before.ends_with("or choose another name with -o"),
            "{before}"
        );
        // The database is written already, and another name does not help.
        assert!(after.contains("out.db is complete, but") && after.ends_with("out.db"), "{after}");
        assert!(!after.contains("cannot write") && !after.contains("-o"), "{after}");
        assert_eq!(
            (fs::read(&database).unwrap(), fs::read(&wal).unwrap()),
            (b"whole".to_vec(), WAL_MAGIC.to_vec())
        );
        drop(reader);
        clear_published(&database).unwrap();
        assert!(database.exists() && !wal.exists());
    }
}
