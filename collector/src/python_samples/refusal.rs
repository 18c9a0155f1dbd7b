//! Why the stacks of a process cannot be read.

use super::interpreter::InterpreterError;
use super::memory::ReadError;
use crate::host::descriptors;
use rustix::io::Errno;
use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// File with the restriction of the Yama security module: 0 none, 1 parents only, 2 with CAP_SYS_PTRACE, 3 no process.
const YAMA: &str = "/proc/sys/kernel/yama/ptrace_scope";

/// A reason. Two equal ones are printed once.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum PythonRefusal {
    /// The process is ending.
    Ended,
    /// The process has no interpreter.
    NoInterpreter,
    /// Yama restricts the reading of other processes, as this level.
    Yama(u8),
    /// The process is not dumpable.
    NotDumpable,
    /// The process has capabilities that the collector lacks.
    MoreCapabilities,
    /// The process belongs to another user.
    OtherUser,
    /// The system does not allow it for another reason.
    NotPermitted,
    /// The memory cannot be opened for this reason.
    System(String),
    /// The interpreter cannot be read.
    Interpreter(String),
    /// The process is in another pid namespace or time namespace.
    OtherNamespace,
    /// The collector may open no more files.
    NoDescriptor,
}

impl PythonRefusal {
    /// Finds out why the memory of a process cannot be opened.
    pub(super) fn of_open(pid: i32, error: &io::Error) -> PythonRefusal {
        if is_end(error) {
            return PythonRefusal::Ended;
        }
        if descriptors::is_exhaustion(error) {
            return PythonRefusal::NoDescriptor;
        }
        if error.kind() != io::ErrorKind::PermissionDenied {
            return PythonRefusal::System(error.to_string());
        }
        let folder = Path::new("/proc").join(pid.to_string());
        // The folder itself always belongs to the user of the process.
        let owner = fs::metadata(folder.join("status")).map(|file| file.uid()).ok();
        let rights = |folder: &Path| ProcessRights::parse(&fs::read_to_string(folder.join("status")).ok()?);
        let (own, its) = (rights(Path::new("/proc/thread-self")), rights(&folder));
        let (Some(owner), Some(own), Some(its)) = (owner, own, its) else {
            return PythonRefusal::NotPermitted;
        };
        PythonRefusal::of_rights(own, its, owner, yama_level())
    }

    /// Finds the reason in the rights of this process and of another one, whose files belong to `owner`.
    fn of_rights(own: ProcessRights, its: ProcessRights, owner: u32, yama: Option<u8>) -> PythonRefusal {
        // As for ptrace, the real user counts.
        if its.user != own.user {
            PythonRefusal::OtherUser
        } else if its.capabilities & !own.capabilities != 0 {
            PythonRefusal::MoreCapabilities
        } else if owner != its.user {
            // The kernel gives the files of a process that is not dumpable to root. Those of root itself do not show it.
            PythonRefusal::NotDumpable
        } else {
            match yama {
                Some(level @ 1..) => PythonRefusal::Yama(level),
                _ => PythonRefusal::NotPermitted,
            }
        }
    }

    /// Words why an interpreter cannot be read.
    pub(super) fn of_interpreter(error: InterpreterError) -> PythonRefusal {
        match error {
            InterpreterError::None => PythonRefusal::NoInterpreter,
            InterpreterError::Read(ReadError::Ended) => PythonRefusal::Ended,
            InterpreterError::System(error) if is_end(&error) => PythonRefusal::Ended,
            InterpreterError::System(error) if descriptors::is_exhaustion(&error) => {
                PythonRefusal::NoDescriptor
            }
            other => PythonRefusal::Interpreter(other.to_string()),
        }
    }
}

/// The rights of a process that count when another one reads its memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct ProcessRights {
    /// Real user id.
    user: u32,
    /// Permitted capabilities, a bit each.
    capabilities: u64,
}

impl ProcessRights {
    /// Reads the text of `/proc/PID/status`.
    fn parse(status: &str) -> Option<ProcessRights> {
        let value = |key: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(key))?;
            line.split_ascii_whitespace().next()
        };
        let user = value("Uid:")?.parse().ok()?;
        Some(ProcessRights { user, capabilities: u64::from_str_radix(value("CapPrm:")?, 16).ok()? })
    }
}

/// Whether this is the error of the system for a process that has no memory any more.
fn is_end(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(Errno::SRCH.raw_os_error())
}

/// Returns the restriction of Yama; `None` if the kernel does not have it.
pub(crate) fn yama_level() -> Option<u8> {
    fs::read_to_string(YAMA).ok()?.trim().parse().ok()
}

impl fmt::Display for PythonRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PythonRefusal::Ended => f.write_str("it has ended"),
            PythonRefusal::NoInterpreter => f.write_str("it has no interpreter of CPython"),
            PythonRefusal::Yama(level) => write!(
                f,
                "{YAMA} is {level}, which forbids it; a site administrator can set kernel.yama.ptrace_scope to 0"
            ),
            PythonRefusal::NotDumpable => f.write_str(
                "it is not dumpable: it called prctl(PR_SET_DUMPABLE), or its file is not readable or has set-user-id or capabilities",
            ),
            PythonRefusal::MoreCapabilities => f.write_str("it has capabilities that the collector lacks"),
            PythonRefusal::OtherUser => f.write_str("it runs as another user"),
            PythonRefusal::NotPermitted => f.write_str(
                "the system forbids reading its memory: perhaps it is not dumpable (prctl PR_SET_DUMPABLE), or a security module \
                 such as SELinux or the container forbids it",
            ),
            PythonRefusal::NoDescriptor => {
                f.write_str("rpd-collect may open no more files; raise the hard limit (`ulimit -Hn`)")
            }
            PythonRefusal::System(error) => write!(f, "its memory cannot be opened: {error}"),
            PythonRefusal::Interpreter(why) => f.write_str(why),
            PythonRefusal::OtherNamespace => {
                f.write_str("it is in a pid or time namespace of its own, as in some containers")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rights_are_read_from_the_status() {
        let status = "Name:\tpython\nUid:\t1000\t0\t0\t0\nCapInh:\tff\nCapPrm:\t0000000000080000\n";
        let expected = ProcessRights { user: 1000, capabilities: 1 << 19 };
        assert_eq!(ProcessRights::parse(status), Some(expected));
        assert_eq!(ProcessRights::parse("Uid:\t1000\n"), None);
        let own = fs::read_to_string("/proc/self/status").unwrap();
        assert_eq!(ProcessRights::parse(&own).unwrap().user, rustix::process::getuid().as_raw());
    }

    #[test]
    fn a_process_that_ends_is_not_refused() {
        for errno in [Errno::SRCH, Errno::NOENT] {
            assert_eq!(PythonRefusal::of_open(1, &errno.into()), PythonRefusal::Ended);
        }
        assert_eq!(PythonRefusal::of_interpreter(ReadError::Ended.into()), PythonRefusal::Ended);
    }

    #[test]
    fn a_reached_limit_of_open_files_is_named() {
        for errno in [Errno::MFILE, Errno::NFILE] {
            let error = || io::Error::from(errno);
            assert_eq!(PythonRefusal::of_open(1, &error()), PythonRefusal::NoDescriptor);
            assert_eq!(
                PythonRefusal::of_interpreter(InterpreterError::System(error())),
                PythonRefusal::NoDescriptor
            );
        }
    }

    #[test]
    fn each_refusal_has_its_reason() {
        let plain = ProcessRights { user: 1000, capabilities: 0 };
        let of = |its: ProcessRights, owner, yama| PythonRefusal::of_rights(plain, its, owner, yama);
        let other = ProcessRights { user: 1001, ..plain };
        let capable = ProcessRights { capabilities: 1, ..plain };
        assert_eq!(of(other, 1001, Some(1)), PythonRefusal::OtherUser);
        assert_eq!(of(capable, 0, Some(1)), PythonRefusal::MoreCapabilities);
        assert_eq!(of(plain, 0, Some(1)), PythonRefusal::NotDumpable);
        assert_eq!(of(plain, 1000, Some(2)), PythonRefusal::Yama(2));
        assert_eq!(
            [of(plain, 1000, Some(0)), of(plain, 1000, None)],
            [const { PythonRefusal::NotPermitted }; 2]
        );
    }
}
