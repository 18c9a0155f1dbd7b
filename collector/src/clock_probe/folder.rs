//! The rendezvous file by which the agents of a run find each other: `<run>/clocks/root`.
//!
//! ```text
//! rpd clock root 1
//! secret 64 hexadecimal digits: key of all packets
//! agent ...                     card of the root: see AgentCard::text
//! end
//! ```
//!
//! An agent reads the file when it starts and when no agent that it probes replies, never in between. The
//! file appears complete, because it is written under another name first. Everything else is sent in packets.
//! Only the root writes and removes the file, and removes what other agents left in the folder.

use super::card::{AgentCard, AgentId};
use super::packet::PacketKey;
use crate::host::random::random;
use rpd_files::{FileRefused, HeldFolder};
use std::ffi::OsStr;
use std::fs::Permissions;
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::sync::Arc;
use std::time::Duration;

/// Name of the rendezvous folder in the folder of the run.
const FOLDER_NAME: &str = "clocks";
const ROOT_FILE: &str = "root";
/// First and last line of the file.
const TITLE: &str = "rpd clock root 1";
const END: &str = "end";
/// The file contains the secret, so the user alone may read it, even if the group may read the run.
const ROOT_FILE_MODE: u32 = 0o600;
/// Maximum length of the file.
const MAX_ROOT_FILE_BYTES: u64 = 4096;
/// Maximum number of entries that the sweeper inspects.
const MAX_SWEPT_ENTRIES: usize = 1 << 16;
/// Age by which a shared file system may report outdated times.
const MAX_TIME_ERROR: Duration = Duration::from_secs(60);

/// The agent that assigns the others their places in the tree.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct RootAgent {
    pub(super) card: AgentCard,
    /// The secret of the run.
    pub(super) key: PacketKey,
}

/// Content of the file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum RootFileContent {
    /// There is no file.
    Nothing,
    /// The file is incomplete or invalid.
    Nonsense,
    Root(RootAgent),
}

/// The rendezvous folder, held open for a few operations.
#[derive(Debug)]
pub(super) struct RendezvousFolder {
    run: Arc<HeldFolder>,
    entries: HeldFolder,
    #[cfg(test)]
    counts: Arc<counts::FileCounts>,
}

impl RendezvousFolder {
    /// Opens the folder below the folder of the run.
    pub(super) fn open(
        run: &Arc<HeldFolder>,
        #[cfg(test)] counts: &Arc<counts::FileCounts>,
    ) -> io::Result<RendezvousFolder> {
        #[cfg(test)]
        counts.add(1);
        let entries = run.open_folder(FOLDER_NAME)?;
        #[cfg(test)]
        counts.add(1);
        check_owner(&entries)?;
        Ok(RendezvousFolder {
            run: Arc::clone(run),
            entries,
            #[cfg(test)]
            counts: Arc::clone(counts),
        })
    }

    /// Opens the folder below the folder of the run. Creates it if it does not exist.
    pub(super) fn make(
        run: &Arc<HeldFolder>,
        shared: bool,
        #[cfg(test)] counts: &Arc<counts::FileCounts>,
    ) -> io::Result<RendezvousFolder> {
        let mode = if shared { 0o750 } else { 0o700 };
        #[cfg(test)]
        counts.add(3);
        let (entries, is_new) = run.make_folder(FOLDER_NAME, mode)?;
        check_owner(&entries)?;
        if is_new && shared {
            // The user asked for sharing, so the umask does not apply.
            entries.set_mode(mode)?;
        }
        Ok(RendezvousFolder {
            run: Arc::clone(run),
            entries,
            #[cfg(test)]
            counts: Arc::clone(counts),
        })
    }

    /// Reads the file of the root.
    ///
    /// # Errors
    /// If the file system fails, if the file belongs to another user, or if others may read or write it.
    pub(super) fn read_root(&self) -> io::Result<RootFileContent> {
        self.count(1);
        let file = match self.entries.open_file(ROOT_FILE) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(RootFileContent::Nothing),
            Err(error) => return Err(self.refused(&error.to_string())),
        };
        self.count(4);
        let found = file.metadata()?;
        if found.uid() != self.entries.owner() {
            return Err(self.refused("it belongs to another user"));
        }
        if found.mode() & 0o077 != 0 {
            return Err(self.refused("others may read or write it, and it has the secret of the run"));
        }
        // With room for the whole file, two calls suffice.
        let mut text = Vec::with_capacity(MAX_ROOT_FILE_BYTES as usize);
        file.take(MAX_ROOT_FILE_BYTES).read_to_end(&mut text)?;
        let root = std::str::from_utf8(&text).ok().and_then(parse);
        Ok(root.map_or(RootFileContent::Nonsense, RootFileContent::Root))
    }

    /// Writes the file if there is none. Returns `false` if there is one.
    pub(super) fn create_root(&self, root: &RootAgent) -> io::Result<bool> {
        let draft = self.draft(root)?;
        self.count(2);
        let linked = self.entries.link(&draft, ROOT_FILE);
        let _ = self.entries.remove(&draft);
        let created = match linked {
            // The file system has no hard links: the file is incomplete for a moment.
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => self.write_new(ROOT_FILE, root),
            linked => linked,
        };
        match created {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
            created => created.map(|()| true),
        }
    }

    /// Replaces the file of a root that is silent or has handed over.
    pub(super) fn replace_root(&self, root: &RootAgent) -> io::Result<()> {
        let draft = self.draft(root)?;
        self.count(1);
        self.entries.rename(&draft, ROOT_FILE).inspect_err(|_| drop(self.entries.remove(&draft)))
    }

    /// Removes the file and the folder if the file names this root, which leaves and has no heir. Also
    /// removes files of killed runs that are older than `expiry`.
    pub(super) fn remove_root(&self, root: AgentId, expiry: Duration) -> io::Result<()> {
        match self.read_root()? {
            RootFileContent::Root(found) if found.card.agent == root => {}
            _ => return Ok(()),
        }
        self.count(1);
        self.entries.remove(ROOT_FILE)?;
        self.sweep(expiry + MAX_TIME_ERROR)?;
        self.count(1);
        self.run.remove_folder(FOLDER_NAME)
    }

    /// Removes drafts and files of earlier versions. All times are those of the file system.
    fn sweep(&self, age: Duration) -> io::Result<()> {
        self.count(1);
        // The removal of the root's file has just changed this time.
        let now = self.entries.own_stat()?.modified;
        let is_old = |name: &OsStr| {
            self.count(1);
            let written = self.entries.stat(name).map(|file| file.modified);
            written.is_ok_and(|written| now.duration_since(written).is_ok_and(|passed| passed > age))
        };
        self.count_listing();
        for name in self.entries.names(MAX_SWEPT_ENTRIES)? {
            if is_agent_file(&name) && is_old(&name) {
                self.count(1);
                let _ = self.entries.remove(&name);
            }
        }
        Ok(())
    }

    /// Writes the file under a name that no other agent uses.
    fn draft(&self, root: &RootAgent) -> io::Result<String> {
        let draft = format!(".{ROOT_FILE}.{:016x}", random()? as u64);
        self.write_new(&draft, root).inspect_err(|_| drop(self.entries.remove(&draft)))?;
        Ok(draft)
    }

    fn write_new(&self, name: &str, root: &RootAgent) -> io::Result<()> {
        self.count(3);
        let mut file = self.entries.create(name, ROOT_FILE_MODE)?;
        file.set_permissions(Permissions::from_mode(ROOT_FILE_MODE))?;
        file.write_all(text(root).as_bytes())
    }

    fn refused(&self, why: &str) -> io::Error {
        let path = self.entries.path().join(ROOT_FILE);
        io::Error::other(format!("{} is not used ({why}); remove it", path.display()))
    }

    #[cfg(test)]
    fn count(&self, operations: u64) {
        self.counts.add(operations);
    }

    #[cfg(test)]
    fn count_listing(&self) {
        self.counts.add_listing();
    }

    #[cfg(not(test))]
    fn count(&self, _operations: u64) {}

    #[cfg(not(test))]
    fn count_listing(&self) {}
}

fn check_owner(folder: &HeldFolder) -> io::Result<()> {
    if folder.is_own() { Ok(()) } else { Err(FileRefused::OtherOwner { owner: folder.owner() }.into()) }
}

/// Whether agents of this or an earlier version use this file name.
fn is_agent_file(name: &OsStr) -> bool {
    let is_old = |name: &str| name == "secret" || name.ends_with(".agent") || name.ends_with(".card");
    name.to_str().is_some_and(|name| name.starts_with('.') || is_old(name))
}

fn text(root: &RootAgent) -> String {
    format!("{TITLE}\nsecret {}\n{}{END}\n", root.key.to_hex(), root.card.text())
}

fn parse(text: &str) -> Option<RootAgent> {
    let mut lines = text.lines();
    lines.next().filter(|title| *title == TITLE)?;
    let key = PacketKey::from_hex(lines.next()?.strip_prefix("secret ")?)?;
    Some(RootAgent { card: AgentCard::parse(lines, END)?, key })
}

/// Counts the file operations of an agent in tests, as system calls without `close`.
#[cfg(test)]
pub(super) mod counts {
    use std::sync::atomic::{AtomicU64, Ordering};

    #[derive(Debug, Default)]
    pub(in crate::clock_probe) struct FileCounts {
        all: AtomicU64,
        listings: AtomicU64,
    }

    impl FileCounts {
        pub(super) fn add(&self, operations: u64) {
            self.all.fetch_add(operations, Ordering::Relaxed);
        }

        /// A listing opens the folder and reads it at least twice.
        pub(super) fn add_listing(&self) {
            self.add(3);
            self.listings.fetch_add(1, Ordering::Relaxed);
        }

        pub(in crate::clock_probe) fn all(&self) -> u64 {
            self.all.load(Ordering::Relaxed)
        }

        pub(in crate::clock_probe) fn listings(&self) -> u64 {
            self.listings.load(Ordering::Relaxed)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::card::tests::card;
    use super::*;
    use std::fs::{self, File};
    use std::path::{Path, PathBuf};
    use std::sync::Barrier;

    const EXPIRY: Duration = Duration::from_secs(30);

    fn folder(run: &Path) -> RendezvousFolder {
        let run = Arc::new(HeldFolder::open(run).unwrap());
        RendezvousFolder::make(&run, false, &Arc::default()).unwrap()
    }

    fn root(agent: u64) -> RootAgent {
        RootAgent { card: card(agent), key: PacketKey::random().unwrap() }
    }

    fn path(run: &tempfile::TempDir, name: &str) -> PathBuf {
        run.path().join(FOLDER_NAME).join(name)
    }

    #[test]
    fn one_of_many_is_the_root_and_all_read_the_same() {
        let run = tempfile::tempdir().unwrap();
        for _ in 0..20 {
            let barrier = Barrier::new(8);
            let found: Vec<(bool, RootFileContent)> = std::thread::scope(|scope| {
                let agents = (0..8).map(|agent| {
                    let (barrier, folder) = (&barrier, folder(run.path()));
                    scope.spawn(move || {
                        barrier.wait();
                        (folder.create_root(&root(agent)).unwrap(), folder.read_root().unwrap())
                    })
                });
                let agents: Vec<_> = agents.collect();
                agents.into_iter().map(|agent| agent.join().unwrap()).collect()
            });
            assert_eq!(found.iter().filter(|(is_first, _)| *is_first).count(), 1);
            assert!(matches!(found[0].1, RootFileContent::Root(_)));
            assert!(found.windows(2).all(|pair| pair[0].1 == pair[1].1));
            let file = path(&run, ROOT_FILE);
            assert_eq!(fs::metadata(&file).unwrap().mode() & 0o777, 0o600);
            assert_eq!(fs::read_dir(run.path().join(FOLDER_NAME)).unwrap().count(), 1, "no draft is left");
            fs::remove_file(file).unwrap();
        }
    }

    #[test]
    fn a_root_that_others_may_change_or_read_is_refused_by_name() {
        let run = tempfile::tempdir().unwrap();
        let folder = folder(run.path());
        let file = path(&run, ROOT_FILE);
        assert_eq!(folder.read_root().unwrap(), RootFileContent::Nothing);
        assert!(folder.create_root(&root(5)).unwrap());
        for mode in [0o640, 0o604, 0o620, 0o602] {
            fs::set_permissions(&file, Permissions::from_mode(mode)).unwrap();
            let error = folder.read_root().unwrap_err().to_string();
            assert!(error.contains(&format!("{} is not used (others may", file.display())), "{error}");
        }
        fs::remove_file(&file).unwrap();
        std::os::unix::fs::symlink("/dev/zero", &file).unwrap();
        let error = folder.read_root().unwrap_err().to_string();
        assert!(error.contains("symbolic link") && error.contains("clocks/root"), "{error}");
        assert!(!folder.create_root(&root(6)).unwrap());
        fs::remove_file(&file).unwrap();
        if rustix::process::geteuid().is_root() {
            folder.create_root(&root(5)).unwrap();
            std::os::unix::fs::chown(&file, Some(12), None).unwrap();
            let error = folder.read_root().unwrap_err().to_string();
            assert!(error.contains("it belongs to another user"), "{error}");
        }
    }

    #[test]
    fn texts_that_make_no_sense_are_no_root() {
        let good = root(5);
        let text = text(&good);
        assert_eq!(parse(&text), Some(good));
        for length in 0..text.len() - 1 {
            assert_eq!(parse(&text[..length]), None, "{length}");
        }
        let bad = ["root 2", "root 1\nsecret 00"].map(|words| text.replace("root 1", words));
        bad.iter().for_each(|text| assert_eq!(parse(text), None, "{text}"));
        assert_eq!(parse(&text.replace("secret ", "secret +")), None);
        let run = tempfile::tempdir().unwrap();
        let folder = folder(run.path());
        for content in [&b""[..], &[0; 10_000], b"\xff\xfe", &text.as_bytes()[..40]] {
            fs::write(path(&run, ROOT_FILE), content).unwrap();
            fs::set_permissions(path(&run, ROOT_FILE), Permissions::from_mode(0o600)).unwrap();
            assert_eq!(folder.read_root().unwrap(), RootFileContent::Nonsense);
        }
    }

    #[test]
    fn the_last_root_removes_what_agents_have_left_and_nothing_else() {
        let run = tempfile::tempdir().unwrap();
        let agent = folder(run.path());
        let age = |name: &str, seconds| {
            fs::write(path(&run, name), "text").unwrap();
            let file = File::options().write(true).open(path(&run, name)).unwrap();
            file.set_modified(std::time::SystemTime::now() - Duration::from_secs(seconds)).unwrap();
        };
        assert!(agent.create_root(&root(5)).unwrap());
        agent.remove_root(AgentId(6), EXPIRY).unwrap();
        assert!(path(&run, ROOT_FILE).exists(), "it is that of another agent");
        agent.replace_root(&root(6)).unwrap();
        let old = [".root.0123456789abcdef", "secret", "ab.agent", "0000000001-ab.card"];
        old.iter().for_each(|name| age(name, 100));
        age(".root.fedcba9876543210", 80);
        age("notes", 1_000);
        assert!(agent.remove_root(AgentId(6), EXPIRY).is_err(), "the folder is not empty");
        let left = fs::read_dir(run.path().join(FOLDER_NAME)).unwrap().map(|file| file.unwrap().file_name());
        let mut left: Vec<_> = left.collect();
        left.sort();
        assert_eq!(left, [".root.fedcba9876543210", "notes"]);
        left.iter().for_each(|name| fs::remove_file(path(&run, name.to_str().unwrap())).unwrap());
        assert!(agent.create_root(&root(7)).unwrap());
        agent.remove_root(AgentId(7), EXPIRY).unwrap();
        assert!(!run.path().join(FOLDER_NAME).exists());
        // Another agent that has the folder open can create it again.
        assert!(agent.create_root(&root(8)).is_err());
        assert!(folder(run.path()).create_root(&root(8)).unwrap());
    }
}
