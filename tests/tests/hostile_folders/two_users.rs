//! Folders of root and of an attacking user, and programs that every user can start.

use rpd_tests::harness::{Job, binary, skip};
use rpd_tests::synthetic::{SyntheticRun, write_shards};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, lchown, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::TempDir;

/// The user that plants links.
pub(super) const EVE: u32 = 60_001;
/// A user that wants to record and merge.
pub(super) const BOB: u32 = 60_002;

pub(super) struct TwoUsers {
    folder: TempDir,
}

/// What is planted under a name that a program will open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Trap {
    LinkToFile,
    LinkToNothing,
    LinkToFolder,
    Fifo,
    Folder,
    HardLink,
}

pub(super) const TRAPS: [Trap; 6] =
    [Trap::LinkToFile, Trap::LinkToNothing, Trap::LinkToFolder, Trap::Fifo, Trap::Folder, Trap::HardLink];

/// Everything about the files below a folder but their times of access.
pub(super) type Snapshot = BTreeMap<PathBuf, (Vec<u8>, u32, u32)>;

impl TwoUsers {
    /// `None`, and a line that says so, where the tests cannot be two users.
    pub(super) fn new(what: &str) -> Option<TwoUsers> {
        let folder = tempfile::tempdir().unwrap();
        let possible = || as_user(Job::new("true"), EVE).run().code() == Some(0);
        if !rustix::process::geteuid().is_root() || !possible() {
            skip(what, "the tests do not run as root with setpriv");
            return None;
        }
        set_mode(folder.path(), 0o755);
        let users = TwoUsers { folder };
        fs::create_dir(users.path("private")).unwrap();
        set_mode(&users.path("private"), 0o700);
        fs::write(users.secret(), "of root").unwrap();
        set_mode(&users.secret(), 0o600);
        fs::create_dir(users.path("eve")).unwrap();
        give(&users.path("eve"), EVE);
        Some(users)
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A folder of root that nobody else may enter.
    pub(super) fn private(&self) -> PathBuf {
        self.path("private")
    }

    /// A file in it.
    pub(super) fn secret(&self) -> PathBuf {
        self.private().join("secret")
    }

    /// A run of root in the private folder.
    pub(super) fn private_run(&self) -> PathBuf {
        write_shards(&private_run().plan(), &self.private()).unwrap()
    }

    /// A new run in Eve's folder.
    pub(super) fn run_of_eve(&self) -> PathBuf {
        let run = write_shards(&small_run().plan(), &self.path("eve")).unwrap();
        give(&run, EVE);
        run
    }

    /// A program in a folder that every user can enter, with what it looks for beside itself.
    pub(super) fn program(&self, name: &str) -> Job {
        let copy = self.path("bin").join(name);
        if !copy.exists() {
            fs::create_dir_all(self.path("bin")).unwrap();
            fs::copy(binary(name), &copy).unwrap();
            if name == "rpd-collect" {
                let library = "librpd_intercept.so";
                fs::copy(binary(library), self.path("bin").join(library)).unwrap();
            }
        }
        let variables = ["RPD_OUTPUT", "SLURM_JOB_UID", "SLURM_PROCID", "PMI_RANK", "OMPI_COMM_WORLD_SIZE"];
        let job = Job::new(copy).limit(Duration::from_secs(30)).folder(self.folder.path());
        variables.iter().fold(job, |job, name| job.without_env(name))
    }

    /// Plants a trap of Eve. Root makes it, as the kernel may forbid her hard links to files of others.
    pub(super) fn plant(&self, trap: Trap, path: &Path) {
        match trap {
            Trap::LinkToFile => symlink(self.secret(), path).unwrap(),
            Trap::LinkToNothing => symlink(self.private().join("new"), path).unwrap(),
            Trap::LinkToFolder => symlink(self.private(), path).unwrap(),
            Trap::Fifo => make_fifo(path),
            Trap::Folder => fs::create_dir(path).unwrap(),
            Trap::HardLink => return fs::hard_link(self.secret(), path).unwrap(),
        }
        lchown(path, Some(EVE), Some(EVE)).unwrap();
    }

    /// What must not change.
    pub(super) fn snapshot(&self) -> Snapshot {
        snapshot(&self.private())
    }
}

pub(super) fn small_run() -> SyntheticRun {
    SyntheticRun { kernels: 5, events_per_rank: 20, ..SyntheticRun::default() }
}

/// More rows than in [`small_run`]: a merge shows which of the two it read.
pub(super) fn private_run() -> SyntheticRun {
    SyntheticRun { seed: 77, kernels: 7, events_per_rank: 333, ..SyntheticRun::default() }
}

pub(super) fn as_user(job: Job, uid: u32) -> Job {
    let (user, group) = (format!("--reuid={uid}"), format!("--regid={uid}"));
    job.wrapped("setpriv", &[&user, &group, "--clear-groups", "--"])
}

pub(super) fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// Gives a folder, with all in it, to a user.
pub(super) fn give(path: &Path, uid: u32) {
    lchown(path, Some(uid), Some(uid)).unwrap();
    if fs::symlink_metadata(path).unwrap().is_dir() {
        fs::read_dir(path).unwrap().flatten().for_each(|entry| give(&entry.path(), uid));
    }
}

pub(super) fn make_fifo(path: &Path) {
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    mknodat(CWD, path, FileType::Fifo, Mode::from_raw_mode(0o666), 0).unwrap();
}

fn snapshot(folder: &Path) -> Snapshot {
    let mut found = Snapshot::new();
    for path in fs::read_dir(folder).unwrap().flatten().map(|entry| entry.path()) {
        let kind = fs::symlink_metadata(&path).unwrap();
        if kind.is_dir() {
            found.extend(snapshot(&path));
        }
        let content = if kind.is_file() { fs::read(&path).unwrap() } else { Vec::new() };
        found.insert(path, (content, kind.mode(), kind.uid()));
    }
    found
}
