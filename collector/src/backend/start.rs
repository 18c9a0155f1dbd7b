//! The program that a profiler starts in place of the command.
//!
//! A profiler comes before the command and becomes it. If the profiler fails before that, the command must
//! run without it, and must not run twice. So the profiler starts `rpd-collect @start ... COMMAND`, which
//! takes the start mark (`start_mark`), and becomes the command. The mark can be taken once. To start the
//! command without the profiler, rpd-collect takes the mark first: a profiler that starts `@start` later
//! starts nothing.
//!
//! A profiler may also stay above the command. Then its exit status is its own, and only a parent learns that
//! of the command. So `rpd-collect @below ...` stays between the two, passes signals on, writes to the mark
//! how the command ended, and ends in the same way.

use super::processes;
use super::start_mark::{self, NamedProcess, StartRecord};
use crate::child::signals::{self, SignalForwarder};
use crate::child::{self, CommandExitStatus, ignoring, replace};
use crate::log::warn;
use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

/// First argument of the program that a profiler starts.
pub(crate) const START: &str = "@start";
/// First argument of the process between a profiler and the command.
pub(crate) const BELOW: &str = "@below";
/// Interval at which the mark is checked.
const LOOK_EVERY: Duration = Duration::from_millis(2);
/// Time that a profiler has to end when the job is cancelled.
const TIME_TO_LEAVE: Duration = Duration::from_millis(300);
/// Maximum time from taking the mark to writing it.
const TIME_TO_WRITE: Duration = Duration::from_secs(2);
/// Signals that a batch system sends some time before the end. The profiler writes when the program ends, so
/// these must not end it directly: rpd-collect converts them to SIGTERM.
const EARLY: &str = "USR1 USR2 XCPU";
/// The user or rpd-collect sets it for a profiler. A process in between must not be profiled.
const PRELOAD: &str = "LD_PRELOAD";

/// Returns the words that a profiler gets as its command.
pub(crate) fn words(scratch: &Path, ends_early: bool) -> Vec<OsString> {
    let executable = std::env::current_exe().unwrap_or_else(|_| "rpd-collect".into());
    let mode = if ends_early { ignoring::choose_wrapper(EARLY) } else { ignoring::NO_WRAPPER };
    let parent = std::process::id().to_string();
    vec![executable.into(), START.into(), mode.into(), scratch.into(), parent.into()]
}

/// Runs the program that the profiler starts. Returns the exit status if the command cannot be executed.
pub(crate) fn main(arguments: &[OsString]) -> i32 {
    let [executable, _, mode, folder, parent, command @ ..] = arguments else { return 2 };
    let scratch = Path::new(folder);
    match start_mark::claim(scratch) {
        Ok(true) => {}
        Ok(false) => {
            // The command was started before, or without the profiler.
            start_mark::note_again(scratch);
            return 0;
        }
        Err(error) => {
            warn(format_args!("warning: the mark in {} cannot be taken: {error}", scratch.display()));
            return 1;
        }
    }
    let is_child = rustix::process::getppid().is_some_and(|own| *parent == *own.as_raw_nonzero().to_string());
    if is_child {
        let own = NamedProcess::of(std::process::id() as i32);
        // Without the record, the process id is that of the child.
        let _ = StartRecord::new(own, None, None).write(scratch);
        return replace(&ignoring::words(mode, EARLY, command).unwrap_or_else(|| command.to_vec()));
    }
    if let Some(preload) = std::env::var_os(PRELOAD) {
        // Runs this program again without the libraries that record programs.
        let mut alone = Command::new("/proc/self/exe");
        alone.arg0(executable).args([BELOW.as_ref(), &**mode, &**folder, &*preload]).args(command);
        // If that fails, it continues with them.
        let _ = alone.env_remove(PRELOAD).exec();
    }
    wait_for(mode, scratch, None, command).leave()
}

/// Runs between a profiler and the command, and ends as the command does.
pub(crate) fn below(arguments: &[OsString]) -> CommandExitStatus {
    let [_, _, mode, folder, preload, command @ ..] = arguments else { return CommandExitStatus::Code(2) };
    wait_for(mode, Path::new(folder), Some(preload), command)
}

fn wait_for(
    mode: &OsStr,
    scratch: &Path,
    preload: Option<&OsString>,
    command: &[OsString],
) -> CommandExitStatus {
    let own = NamedProcess::of(std::process::id() as i32);
    // Without a thread for signals, they end this process.
    let forwarder = SignalForwarder::install(false).ok();
    let variables: Vec<(String, OsString)> =
        preload.map(|preload| (PRELOAD.to_owned(), preload.clone())).into_iter().collect();
    let words = ignoring::words(mode, EARLY, command);
    let (started, exit_status) = match child::start(words.as_deref().unwrap_or(command), &variables) {
        Ok(mut child) => {
            let started = NamedProcess::of(child.id() as i32);
            let _ = StartRecord::new(started, Some(own), None).write(scratch);
            if let Some(forwarder) = &forwarder {
                forwarder.aim_at_command(started.pid, started.pid);
            }
            (started, child.wait().map_or(CommandExitStatus::Code(1), CommandExitStatus::from))
        }
        Err(code) => (own, CommandExitStatus::Code(code)),
    };
    let _ = StartRecord::new(started, Some(own), Some(exit_status)).write(scratch);
    exit_status
}

/// How the start of the command by a profiler ended.
#[derive(Debug)]
pub(crate) enum StartOutcome {
    /// It has started the command.
    CommandStarted,
    /// It ended without starting the command.
    ProfilerExited(ExitStatus),
    /// It took too long and was killed.
    TimedOut,
    /// This signal ended the job first.
    Cancelled(i32),
}

/// Waits until the command runs. Unless this returns [`StartOutcome::CommandStarted`], the caller has the
/// mark, must start the command, and no process of the profiler is left.
pub(crate) fn wait(child: &mut Child, scratch: &Path, most: Duration) -> StartOutcome {
    let top = child.id() as i32;
    let until = Instant::now() + most;
    loop {
        let mut ended = child.try_wait().ok().flatten();
        if start_mark::is_claimed(scratch) {
            return StartOutcome::CommandStarted;
        }
        let cancelled = signals::cancelled();
        if ended.is_none() && cancelled.is_none() && Instant::now() < until {
            std::thread::sleep(LOOK_EVERY);
            continue;
        }
        // The process that takes the mark starts the command.
        if !start_mark::claim(scratch).unwrap_or_else(|_| !start_mark::is_claimed(scratch)) {
            return StartOutcome::CommandStarted;
        }
        let until = Instant::now() + TIME_TO_LEAVE;
        while cancelled.is_some() && ended.is_none() && Instant::now() < until {
            std::thread::sleep(LOOK_EVERY);
            ended = child.try_wait().ok().flatten();
        }
        // The process id may belong to another process after the wait.
        processes::kill(scratch, ended.is_none().then_some(top), true);
        return match (cancelled, ended) {
            (Some(signal), _) => {
                let _ = child.wait();
                StartOutcome::Cancelled(signal)
            }
            (None, Some(status)) => StartOutcome::ProfilerExited(status),
            (None, None) => {
                let _ = child.wait();
                StartOutcome::TimedOut
            }
        };
    }
}

/// Returns the record of a command that runs; `None` if it could not be written.
pub(crate) fn record(scratch: &Path) -> Option<StartRecord> {
    let until = Instant::now() + TIME_TO_WRITE;
    loop {
        let record = StartRecord::read(scratch);
        if record.is_some() || Instant::now() >= until {
            return record;
        }
        std::thread::sleep(LOOK_EVERY);
    }
}
