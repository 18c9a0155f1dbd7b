//! The start mark in the scratch folder. By it a command is started exactly once, and it records how the
//! command ended.
//!
//! The folder is created with the file `ready`, which has room for all that is written later: a full disk
//! must not start a command twice or lose an exit status. The process that renames it to `started` starts the
//! command. The file is then overwritten in place:
//!
//! ```text
//! PID TICKS            the command, and its start: field 22 of /proc/PID/stat
//! PID TICKS NAMESPACE  the process that waits for it, if a profiler stays above it; the pid namespace of both
//! code 7               how the command ended; or `signal 9`
//! ```

use crate::child::CommandExitStatus;
use crate::host::process;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

const READY: &str = "ready";
const STARTED: &str = "started";
/// Created when a process tries to start the command again.
const AGAIN: &str = "again";
/// Size of the file.
const MARK_BYTES: usize = 256;

/// Creates the mark in a new folder.
pub(super) fn make(folder: &Path) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(folder.join(READY))?;
    file.write_all(&[b' '; MARK_BYTES])
}

/// Takes the mark. Returns `false` if another process has it, or if the folder is gone.
pub(crate) fn claim(folder: &Path) -> io::Result<bool> {
    match std::fs::rename(folder.join(READY), folder.join(STARTED)) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Whether a process has taken the mark.
pub(super) fn is_claimed(folder: &Path) -> bool {
    folder.join(STARTED).exists()
}

/// Notes that a process tried to take the mark in vain.
pub(super) fn note_again(folder: &Path) {
    if is_claimed(folder) {
        let _ = DirBuilder::new().create(folder.join(AGAIN));
    }
}

/// Whether a process tried to start the command again.
pub(super) fn was_asked_again(folder: &Path) -> bool {
    folder.join(AGAIN).exists()
}

/// A process, identified by its start time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct NamedProcess {
    pub(crate) pid: i32,
    ticks: u64,
}

impl NamedProcess {
    pub(super) fn of(pid: i32) -> NamedProcess {
        NamedProcess { pid, ticks: process::stat(pid).map_or(0, |stat| stat.start_ticks) }
    }

    /// Whether the process still runs. Its number may have been reused.
    pub(crate) fn is_there(self) -> bool {
        process::stat(self.pid).is_some_and(|stat| stat.start_ticks == self.ticks)
    }
}

/// The content of the mark.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct StartRecord {
    pub(crate) command: NamedProcess,
    /// The process that waits for the command, if a profiler stays above it.
    pub(crate) witness: Option<NamedProcess>,
    /// How the command ended, if a process waited for it.
    pub(crate) exit_status: Option<CommandExitStatus>,
    namespace: u64,
}

impl StartRecord {
    pub(super) fn new(
        command: NamedProcess,
        witness: Option<NamedProcess>,
        exit_status: Option<CommandExitStatus>,
    ) -> StartRecord {
        StartRecord { command, witness, exit_status, namespace: namespace() }
    }

    /// Whether the numbers belong to this pid namespace.
    pub(crate) fn is_of_here(&self) -> bool {
        self.namespace == namespace()
    }

    pub(super) fn write(&self, folder: &Path) -> io::Result<()> {
        let StartRecord { command, witness, exit_status, namespace } = self;
        let witness = witness.unwrap_or(NamedProcess { pid: 0, ticks: 0 });
        let mut text =
            format!("{} {}\n{} {} {namespace}\n", command.pid, command.ticks, witness.pid, witness.ticks);
        match exit_status {
            Some(CommandExitStatus::Code(code)) => text += &format!("code {code}\n"),
            Some(CommandExitStatus::Signal(signal)) => text += &format!("signal {signal}\n"),
            None => {}
        }
        OpenOptions::new().write(true).open(folder.join(STARTED))?.write_all_at(text.as_bytes(), 0)
    }

    /// Reads the mark. `None` until something is written.
    pub(crate) fn read(folder: &Path) -> Option<StartRecord> {
        let mut text = String::new();
        File::open(folder.join(STARTED)).ok()?.take(MARK_BYTES as u64).read_to_string(&mut text).ok()?;
        // After the last line end there is only padding.
        let mut lines = text.rsplit_once('\n')?.0.lines();
        let named = |words: &mut std::str::SplitWhitespace<'_>| {
            Some(NamedProcess { pid: words.next()?.parse().ok()?, ticks: words.next()?.parse().ok()? })
        };
        let command = named(&mut lines.next()?.split_whitespace())?;
        let mut words = lines.next()?.split_whitespace();
        let witness = named(&mut words)?;
        let namespace = words.next()?.parse().ok()?;
        let exit_status = lines.next().and_then(|line| {
            let (kind, number) = line.split_once(' ')?;
            let number = number.parse().ok()?;
            Some(if kind == "signal" {
                CommandExitStatus::Signal(number)
            } else {
                CommandExitStatus::Code(number)
            })
        });
        Some(StartRecord {
            command,
            witness: Some(witness).filter(|witness| witness.pid > 0),
            exit_status,
            namespace,
        })
    }
}

/// Returns the pid namespace of this process.
fn namespace() -> u64 {
    std::fs::metadata("/proc/self/ns/pid").map_or(0, |found| found.ino())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_taken_once_and_says_what_was_written_last() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        assert!(!claim(folder).unwrap() && !is_claimed(folder), "there is none");
        make(folder).unwrap();
        note_again(folder);
        assert_eq!((claim(folder).unwrap(), claim(folder).unwrap()), (true, false));
        assert!(is_claimed(folder) && !was_asked_again(folder) && StartRecord::read(folder).is_none());
        note_again(folder);
        assert!(was_asked_again(folder));
        let own = NamedProcess::of(std::process::id() as i32);
        for (witness, exit_status) in [
            (None, None),
            (Some(own), None),
            (Some(own), Some(CommandExitStatus::Code(-7))),
            (None, Some(CommandExitStatus::Signal(9))),
        ] {
            let record = StartRecord::new(own, witness, exit_status);
            record.write(folder).unwrap();
            let read = StartRecord::read(folder).unwrap();
            // Earlier content is never erased.
            assert_eq!((read.command, read.witness), (own, witness));
            assert!(read.exit_status == exit_status || exit_status.is_none());
            assert!(read.is_of_here() && read.command.is_there());
        }
        assert_eq!(std::fs::metadata(folder.join(STARTED)).unwrap().len(), MARK_BYTES as u64);
    }

    #[test]
    fn a_mark_with_other_content_is_ignored() {
        let folder = tempfile::tempdir().unwrap();
        for text in ["", "\n", "7", "7 8\n", "x 8\n0 0 1\n", "7 8\n0 0 x\n"] {
            std::fs::write(folder.path().join(STARTED), text).unwrap();
            assert!(StartRecord::read(folder.path()).is_none(), "{text:?}");
        }
    }
}
