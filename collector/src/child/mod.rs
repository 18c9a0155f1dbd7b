//! Starts the command, and ends this process as the command ended.

pub(crate) mod ignoring;
pub(crate) mod preload;
pub(crate) mod program;
pub(crate) mod signals;

use crate::host::bounded_read::read_at_most;
use crate::log::{next_step, warn};
use rpd_shard::record::ProcessExit;
use rustix::fs::{Access, access};
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};

/// Exit status for a command that does not exist, as in a shell.
const NOT_FOUND: i32 = 127;
/// Exit status for a command that cannot be executed, as in a shell.
const NOT_EXECUTABLE: i32 = 126;
/// `ENOEXEC`: the first line of a script does not name an interpreter.
const NO_FORMAT: i32 = 8;
/// `E2BIG`: arguments and environment exceed the limit of the system.
const TOO_BIG: i32 = 7;

/// Variable that marks a profiler that is to start the command; it holds the scratch folder. Processes of the
/// profiler inherit it, the command does not.
pub(crate) const PROFILER: &str = "RPD_PROFILER";

/// Replaces this process by the command. Returns only if that fails, with the exit status.
pub(crate) fn replace(command: &[OsString]) -> i32 {
    let Some((program, arguments)) = command.split_first() else { return NOT_FOUND };
    let error = of_no_profiler(Command::new(program).args(arguments)).exec();
    let error = if error.raw_os_error() == Some(NO_FORMAT) {
        of_no_profiler(&mut shell_for(program, arguments)).exec()
    } else {
        error
    };
    failed_to_start(program, &error)
}

/// Starts the command with additional variables. On failure, prints the reason and returns the exit status.
pub(crate) fn start(command: &[OsString], variables: &[(String, OsString)]) -> Result<Child, i32> {
    let Some((program, arguments)) = command.split_first() else { return Err(NOT_FOUND) };
    let spawn = |command: &mut Command| {
        of_no_profiler(command).envs(variables.iter().map(|(name, value)| (name, value))).spawn()
    };
    spawn(Command::new(program).args(arguments))
        .or_else(|error| match error.raw_os_error() {
            Some(NO_FORMAT) => spawn(&mut shell_for(program, arguments)),
            Some(TOO_BIG) => {
                // The program's own environment fits, but not our variables as well.
                let child = of_no_profiler(Command::new(program).args(arguments)).spawn()?;
                warn(format_args!(
                    "warning: the environment has no space left for the variables of rpd-collect; the command runs untraced"
                ));
                Ok(child)
            }
            _ => Err(error),
        })
        .map_err(|error| failed_to_start(program, &error))
}

/// Removes the variable that marks a profiler. If it is not set, the environment keeps its order.
fn of_no_profiler(command: &mut Command) -> &mut Command {
    if std::env::var_os(PROFILER).is_some() { command.env_remove(PROFILER) } else { command }
}

/// Runs a file that the kernel cannot execute with a shell, as `execvp` does.
fn shell_for(program: &OsStr, arguments: &[OsString]) -> Command {
    let mut command = Command::new("/bin/sh");
    command.arg(program).args(arguments);
    command
}

/// Prints the reason in one line. Returns the exit status that a shell would return.
fn failed_to_start(program: &OsStr, error: &io::Error) -> i32 {
    let name = program.to_string_lossy();
    if error.kind() == io::ErrorKind::NotFound {
        match find(program).map(|path| first_line_of_script(&path)?.into_iter().next()) {
            None => warn(format_args!("{name}: command not found")),
            Some(Some(interpreter)) => warn(format_args!(
                "{name}: its interpreter {} is not found; correct its first line or install it",
                interpreter.display()
            )),
            Some(None) => warn(format_args!(
                "{name}: its loader is not found: it was built for another system; see `readelf -l`"
            )),
        }
        return NOT_FOUND;
    }
    warn(format_args!("{name}: cannot be executed: {error}{}", next_step(error)));
    NOT_EXECUTABLE
}

/// Finds the file of a command as a shell does: files in `PATH` that may not be executed come last.
pub(crate) fn find(program: &OsStr) -> Option<PathBuf> {
    if program.as_bytes().contains(&b'/') {
        return Some(PathBuf::from(program)).filter(|path| path.exists());
    }
    let path = std::env::var_os("PATH")?;
    let files =
        || std::env::split_paths(&path).map(|folder| folder.join(program)).filter(|path| path.is_file());
    files().find(|file| access(file, Access::EXEC_OK).is_ok()).or_else(|| files().next())
}

/// Returns the words of the first line of a script: its interpreter and arguments. `None` for other files.
pub(crate) fn first_line_of_script(path: &Path) -> Option<Vec<OsString>> {
    const MAX_LINE_BYTES: u64 = 256;
    let start = read_at_most(path, MAX_LINE_BYTES);
    let line = start.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    let words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    Some(words.map(|word| OsStr::from_bytes(word).to_owned()).collect())
}

/// How the command ended, and how rpd-collect is to end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CommandExitStatus {
    /// With this exit status.
    Code(i32),
    /// By this signal.
    Signal(i32),
}

impl fmt::Display for CommandExitStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CommandExitStatus::Code(code) => write!(f, "status {code}"),
            CommandExitStatus::Signal(signal) => write!(f, "signal {signal}"),
        }
    }
}

impl From<ExitStatus> for CommandExitStatus {
    fn from(status: ExitStatus) -> CommandExitStatus {
        match (status.code(), status.signal()) {
            (Some(code), _) => CommandExitStatus::Code(code),
            (None, Some(signal)) => CommandExitStatus::Signal(signal),
            (None, None) => CommandExitStatus::Code(1),
        }
    }
}

impl CommandExitStatus {
    /// Converts it to the form in the shard.
    pub(crate) fn to_record(self) -> ProcessExit {
        match self {
            CommandExitStatus::Code(code) => ProcessExit::Code(code),
            CommandExitStatus::Signal(signal) => ProcessExit::Signal(signal),
        }
    }

    /// Ends this process in the same way.
    pub(crate) fn leave(self) -> ! {
        let signal = match self {
            CommandExitStatus::Code(code) => std::process::exit(code),
            CommandExitStatus::Signal(signal) => signal,
        };
        // The command has written its core dump. A dump of this process would overwrite it.
        let none = rustix::process::Rlimit { current: Some(0), maximum: Some(0) };
        let _ = rustix::process::setrlimit(rustix::process::Resource::Core, none);
        let _ = signal_hook::low_level::emulate_default_handler(signal);
        if let Some(signal) = rustix::process::Signal::from_named_raw(signal) {
            let _ = rustix::process::kill_process(rustix::process::getpid(), signal);
        }
        // This process still runs, so the signal has a handler that cannot be removed. An exec removes it.
        // 128 + signal is the status by which a shell reports a signal.
        let _ = Command::new("/bin/sh").args(["-c", &format!("kill -{signal} $$")]).exec();
        std::process::exit(128 + signal)
    }
}
