//! A command below a profiler that stays above it. Both ends are waited for; the end of the command is that
//! of the job.

use super::spawn;
use super::watched_process::WatchedProcess;
use crate::backend::start_mark::StartRecord;
use crate::backend::{ProfilerOutcome, processes};
use crate::child::CommandExitStatus;
use crate::child::signals::{self, SignalForwarder};
use rustix::process::{Pid, Signal, kill_process};
use std::path::PathBuf;
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

/// Time that a profiler has to end after SIGTERM.
const TIME_TO_END: Duration = Duration::from_secs(3);
/// Batch systems leave 30 s between SIGTERM and SIGKILL, and the harvest needs time as well.
const TIME_BEFORE_A_KILL: Duration = Duration::from_secs(15);
/// Interval at which the end of the job is checked.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Maximum time for a killed process to disappear, unless the kernel cannot end it.
const TIME_TO_DIE: Duration = Duration::from_secs(5);

/// The command and the processes around it.
pub(super) struct CommandUnderProfiler {
    pub(super) pid: i32,
    command: WatchedProcess,
    /// The process that waits for the command, and ends as it does.
    witness: WatchedProcess,
    scratch: PathBuf,
    /// Maximum time that the profiler may stay after the command.
    next_deadline: Duration,
}

/// How the command and its profiler ended.
pub(super) struct EndedCommand {
    pub(super) exit_status: CommandExitStatus,
    pub(super) profiler: ProfilerOutcome,
    /// Lines for the log.
    pub(super) notes: Vec<String>,
}

impl CommandUnderProfiler {
    /// `None` if the command is the process `top` that was started. The profiler may stay for `next_deadline`
    /// after the command. Its start mark is in `scratch`.
    pub(super) fn of(
        record: &StartRecord,
        scratch: PathBuf,
        next_deadline: Duration,
        top: i32,
    ) -> Option<CommandUnderProfiler> {
        let witness = record.witness.filter(|_| record.command.pid != top)?;
        Some(CommandUnderProfiler {
            pid: record.command.pid,
            command: watched(record.command),
            witness: watched(witness),
            scratch,
            next_deadline,
        })
    }

    /// Waits for the end of the command, and then for that of the profiler.
    pub(super) fn wait(&self, profiler: &mut Child, forwarder: &SignalForwarder) -> EndedCommand {
        self.witness.wait(None);
        let mut recorded = StartRecord::read(&self.scratch).and_then(|record| record.exit_status);
        if recorded.is_none() && !self.command.wait(Some(Duration::ZERO)) {
            // Only SIGKILL ends the witness before the command. Its sender meant the command.
            self.command.send(Signal::KILL);
            self.command.wait(None);
            recorded = Some(CommandExitStatus::Signal(Signal::KILL.as_raw()));
        }
        let top = profiler.id() as i32;
        // Signals for the command, which has ended, must not end a profiler that writes.
        forwarder.spare();
        let mut notes = Vec::new();
        let mut ended = ProfilerOutcome::AsTheCommand;
        let (mut status, waited) = self.wait_for_profiler(profiler);
        if status.is_none() {
            ended = ProfilerOutcome::Killed;
            notes.push(format!(
                "warning: the profiler had not ended {} s after the command, and was killed: its files may be \
                 incomplete{}",
                waited.as_secs(),
                if waited < self.next_deadline { "" } else { "; --backend-wait gives it more time" }
            ));
            if let Some(pid) = Pid::from_raw(top) {
                let _ = kill_process(pid, Signal::TERM);
            }
            status = spawn::wait(profiler, Instant::now() + TIME_TO_END);
            processes::kill(&self.scratch, status.is_none().then_some(top), false);
            status = status.or_else(|| spawn::wait(profiler, Instant::now() + TIME_TO_DIE));
        }
        let of_profiler = status.map(CommandExitStatus::from);
        let exit_status = recorded.or(of_profiler).unwrap_or(CommandExitStatus::Code(1));
        if let Some(other) = of_profiler.filter(|other| *other != exit_status && notes.is_empty()) {
            // Some profilers use one status for every failure.
            let warning = if exit_status == CommandExitStatus::Code(0)
                || matches!(other, CommandExitStatus::Signal(_))
            {
                ended = ProfilerOutcome::Failed;
                "warning: "
            } else {
                ""
            };
            notes.push(format!(
                "{warning}the command ended with {exit_status}, and the profiler above it with {other}"
            ));
        }
        if recorded.is_none() {
            notes.push(
                "warning: how the command ended is not known; the exit status is the profiler's".to_owned(),
            );
        }
        EndedCommand { exit_status, profiler: ended, notes }
    }

    /// Waits for a profiler after its command has ended. Waits less after a signal that ends the job, since the
    /// batch system will kill everything soon. Returns the time limit as well.
    fn wait_for_profiler(&self, profiler: &mut Child) -> (Option<ExitStatus>, Duration) {
        let began = Instant::now();
        loop {
            let next_deadline = match signals::job_is_ending() {
                true => self.next_deadline.min(TIME_BEFORE_A_KILL),
                false => self.next_deadline,
            };
            let until = began + next_deadline;
            let status = spawn::wait(profiler, until.min(Instant::now() + LOOK_EVERY));
            if status.is_some() || Instant::now() >= until {
                return (status, next_deadline);
            }
        }
    }
}

fn watched(process: crate::backend::start_mark::NamedProcess) -> WatchedProcess {
    let watched = WatchedProcess::of(process.pid);
    if process.is_there() { watched } else { WatchedProcess::gone(process.pid) }
}
