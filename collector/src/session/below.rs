//! A command below a profiler that stays: two ends to wait for, and one of them is the job's.

use super::spawn;
use super::watched::WatchedProcess;
use crate::backend::ProfilerEnding;
use crate::backend::processes;
use crate::backend::start_mark::StartRecord;
use crate::child::CommandEnding;
use crate::child::signals::{self, SignalForwarder};
use rustix::process::{Pid, Signal, kill_process};
use std::path::PathBuf;
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

/// A profiler that is asked to end has this long.
const TIME_TO_END: Duration = Duration::from_secs(3);
/// Batch systems leave 30 s between SIGTERM and SIGKILL, and files have to be fetched, too.
const TIME_BEFORE_A_KILL: Duration = Duration::from_secs(15);
/// Time between two looks whether the job is to end.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Who was killed is gone by then, unless the kernel cannot let go of it.
const TIME_TO_DIE: Duration = Duration::from_secs(5);

/// The command.
pub(super) struct CommandUnderProfiler {
    pub(super) pid: i32,
    command: WatchedProcess,
    /// Who waits for it, and ends as it does.
    witness: WatchedProcess,
    scratch: PathBuf,
    /// A profiler may stay so long behind its end.
    patience: Duration,
}

/// How it ended, and how its profiler did.
pub(super) struct EndedCommand {
    pub(super) ending: CommandEnding,
    pub(super) profiler: ProfilerEnding,
    /// For the log.
    pub(super) notes: Vec<String>,
}

impl CommandUnderProfiler {
    /// `None` where the command is the process `top` that was started. The profiler may stay for `patience` after the command.
    /// Its mark is in `scratch`.
    pub(super) fn of(
        record: &StartRecord,
        scratch: PathBuf,
        patience: Duration,
        top: i32,
    ) -> Option<CommandUnderProfiler> {
        let witness = record.witness.filter(|_| record.command.pid != top)?;
        Some(CommandUnderProfiler {
            pid: record.command.pid,
            command: watched(record.command),
            witness: watched(witness),
            scratch,
            patience,
        })
    }

    /// Waits for the end of the command, and for that of the profiler, which has to come then.
    pub(super) fn wait(&self, profiler: &mut Child, forwarder: &SignalForwarder) -> EndedCommand {
        self.witness.wait(None);
        let mut told = StartRecord::read(&self.scratch).and_then(|record| record.ending);
        if told.is_none() && !self.command.wait(Some(Duration::ZERO)) {
            // Only SIGKILL ends the witness before the command, and whoever sent it to the witness meant the command.
            self.command.send(Signal::KILL);
            self.command.wait(None);
            told = Some(CommandEnding::Signal(Signal::KILL.as_raw()));
        }
        let top = profiler.id() as i32;
        // A profiler that writes is not to be ended by what was for the command, which is gone.
        forwarder.spare();
        let mut notes = Vec::new();
        let mut ended = ProfilerEnding::AsTheCommand;
        let (mut status, waited) = self.wait_behind(profiler);
        if status.is_none() {
            ended = ProfilerEnding::Killed;
            notes.push(format!(
                "warning: the profiler had not ended {} s after the command, and was killed: its files may be \
                 incomplete{}",
                waited.as_secs(),
                if waited < self.patience { "" } else { "; --backend-wait gives it more time" }
            ));
            if let Some(pid) = Pid::from_raw(top) {
                let _ = kill_process(pid, Signal::TERM);
            }
            status = spawn::wait(profiler, Instant::now() + TIME_TO_END);
            processes::kill(&self.scratch, status.is_none().then_some(top), false);
            status = status.or_else(|| spawn::wait(profiler, Instant::now() + TIME_TO_DIE));
        }
        let of_profiler = status.map(CommandEnding::from);
        let ending = told.or(of_profiler).unwrap_or(CommandEnding::Code(1));
        if let Some(other) = of_profiler.filter(|other| *other != ending && notes.is_empty()) {
            // Some have one status for all that is not success.
            let warning = if ending == CommandEnding::Code(0) || matches!(other, CommandEnding::Signal(_)) {
                ended = ProfilerEnding::Failed;
                "warning: "
            } else {
                ""
            };
            notes.push(format!(
                "{warning}the command ended with {ending}, and the profiler above it with {other}"
            ));
        }
        if told.is_none() {
            notes.push(
                "warning: how the command ended is not known; the exit status is the profiler's".to_owned(),
            );
        }
        EndedCommand { ending, profiler: ended, notes }
    }

    /// Waits for a profiler whose command has ended: less long where a signal has ended the job, since a batch system kills
    /// what is still there soon. Returns how long that was.
    fn wait_behind(&self, profiler: &mut Child) -> (Option<ExitStatus>, Duration) {
        let began = Instant::now();
        loop {
            let patience = match signals::is_ending() {
                true => self.patience.min(TIME_BEFORE_A_KILL),
                false => self.patience,
            };
            let until = began + patience;
            let status = spawn::wait(profiler, until.min(Instant::now() + LOOK_EVERY));
            if status.is_some() || Instant::now() >= until {
                return (status, patience);
            }
        }
    }
}

fn watched(process: crate::backend::start_mark::NamedProcess) -> WatchedProcess {
    let watched = WatchedProcess::of(process.pid);
    if process.is_there() { watched } else { WatchedProcess::gone(process.pid) }
}
