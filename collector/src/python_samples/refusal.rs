//! Why the stacks of a process cannot be read.

use super::interpreter::InterpreterError;
use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;

/// File with the restriction of the Yama security module: 0 none, 1 parents only, 2 with CAP_SYS_PTRACE, 3 no process.
const YAMA: &str = "/proc/sys/kernel/yama/ptrace_scope";

/// A reason. Two equal ones are printed once.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum PythonRefusal {
    /// The process has no interpreter.
    NoInterpreter,
    /// Yama restricts the reading of other processes, as this level.
    Yama(u8),
    /// The system does not allow it for another reason.
    NotPermitted,
    /// The memory cannot be opened for this reason.
    System(String),
    /// The interpreter cannot be read.
    Interpreter(String),
    /// The process is in another pid namespace or time namespace.
    OtherNamespace,
}

impl PythonRefusal {
    /// Finds out why the memory of a process cannot be opened.
    pub(super) fn of_open(pid: i32, error: &io::Error) -> PythonRefusal {
        if error.kind() != io::ErrorKind::PermissionDenied {
            return PythonRefusal::System(error.to_string());
        }
        // The kernel gives the files of a process that is not dumpable to root.
        let owner = fs::metadata(format!("/proc/{pid}")).map(|process| process.uid()).ok();
        let is_own = owner == Some(rustix::process::geteuid().as_raw());
        match yama_level() {
            Some(level @ 1..) if is_own => PythonRefusal::Yama(level),
            _ => PythonRefusal::NotPermitted,
        }
    }

    /// Words why an interpreter cannot be read.
    pub(super) fn of_interpreter(error: InterpreterError) -> PythonRefusal {
        match error {
            InterpreterError::None => PythonRefusal::NoInterpreter,
            other => PythonRefusal::Interpreter(other.to_string()),
        }
    }
}

/// Returns the restriction of Yama; `None` if the kernel does not have it.
pub(crate) fn yama_level() -> Option<u8> {
    fs::read_to_string(YAMA).ok()?.trim().parse().ok()
}

impl fmt::Display for PythonRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PythonRefusal::NoInterpreter => f.write_str("it has no interpreter of CPython"),
            PythonRefusal::Yama(level) => write!(
                f,
                "{YAMA} is {level}, which forbids it; a site administrator can set kernel.yama.ptrace_scope to 0"
            ),
            PythonRefusal::NotPermitted => f.write_str(
                "the system does not allow to read its memory: it is not dumpable (prctl PR_SET_DUMPABLE), has capabilities that \
                 the collector lacks, or belongs to another user",
            ),
            PythonRefusal::System(error) => write!(f, "its memory cannot be opened: {error}"),
            PythonRefusal::Interpreter(why) => f.write_str(why),
            PythonRefusal::OtherNamespace => {
                f.write_str("it is in a pid or time namespace of its own, as in some containers")
            }
        }
    }
}
