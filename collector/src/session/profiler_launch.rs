//! A profiler that starts the command. If it does not, the command is started without it.

use super::command_under_profiler::CommandUnderProfiler;
use super::control::{ControlChannel, ToCollector};
use crate::backend::start::{self, StartOutcome};
use crate::backend::{BackendPlan, start_mark};
use crate::child::{self, CommandExitStatus, PROFILER, signals, signals::SignalForwarder};
use crate::command_line::TraceSelection;
use crate::log::warn;
use rpd_ring::message::TRACE_VARIABLE;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Child;
use std::time::Duration;

/// Signals that end a job. A profiler that died by one did not fail.
const CANCEL_SIGNALS: [i32; 8] = [1, 2, 3, 9, 10, 12, 15, 24];

/// How to start the profiler.
pub(super) struct ProfilerLaunch {
    words: Vec<OsString>,
    /// Folder of the start mark.
    scratch: PathBuf,
    wait: Duration,
    /// Selection that the collector's own library records without the profiler, if native is a backend.
    alone: Option<TraceSelection>,
    /// This rank prints the warning that the profiler did not start the command. The others only log it.
    prints_for_all: bool,
}

/// The command runs.
pub(super) struct RunningCommand {
    /// The process that was started: the command, or a profiler above it.
    pub(super) child: Child,
    /// The command, if a profiler stays above it.
    pub(super) below: Option<CommandUnderProfiler>,
    /// Why the command runs without the profiler.
    pub(super) without: Option<String>,
}

/// The command does not run.
pub(super) struct NotStarted {
    pub(super) exit_status: CommandExitStatus,
    /// The profiler that should have started the command, and why it did not.
    pub(super) profiler: Option<(i32, String)>,
}

impl From<i32> for NotStarted {
    fn from(code: i32) -> NotStarted {
        NotStarted { exit_status: CommandExitStatus::Code(code), profiler: None }
    }
}

impl ProfilerLaunch {
    /// Takes the words out of the plan; `None` if no profiler starts the command. `alone` is what our own
    /// library records without a profiler. `prints_for_all` if this rank prints the warnings that concern all ranks.
    pub(super) fn of(
        plan: &mut BackendPlan,
        alone: TraceSelection,
        prints_for_all: bool,
    ) -> Option<ProfilerLaunch> {
        let (Some(harvest), false) = (&plan.harvest, plan.profiler_command.is_empty()) else { return None };
        let (scratch, wait) = (PathBuf::from(&harvest.scratch), Duration::from_secs(harvest.wait_seconds));
        let mut words = std::mem::take(&mut plan.profiler_command);
        words.extend(start::words(&scratch, plan.ends_early));
        Some(ProfilerLaunch {
            words,
            scratch,
            wait,
            alone: Some(alone).filter(|_| plan.native),
            prints_for_all,
        })
    }

    /// Starts the command exactly once, with or without the profiler. A signal that ends the job while the
    /// profiler starts also ends the command.
    pub(super) fn start(
        &self,
        command: &[OsString],
        variables: &[(String, OsString)],
        forwarder: &SignalForwarder,
        control: &ControlChannel,
    ) -> Result<RunningCommand, NotStarted> {
        let whole: Vec<OsString> = self.words.iter().chain(command).cloned().collect();
        let sign = (PROFILER.to_owned(), self.scratch.clone().into_os_string());
        let of_profiler: Vec<_> = variables.iter().cloned().chain([sign]).collect();
        let name = self.words.first().map(|word| word.to_string_lossy().into_owned()).unwrap_or_default();
        let why = match child::start(&whole, &of_profiler) {
            Err(_) => "cannot be started".to_owned(),
            Ok(mut child) => {
                let pid = child.id() as i32;
                forwarder.aim_at_profiler(pid);
                let _ = control.send(&ToCollector::Starting { pid });
                let ended_by = |signal: i32| {
                    let why = format!("signal {signal} ended the job before {name} had started the command");
                    NotStarted { exit_status: CommandExitStatus::Signal(signal), profiler: Some((pid, why)) }
                };
                match start::wait(&mut child, &self.scratch, self.wait) {
                    StartOutcome::CommandStarted => return Ok(self.running(child)),
                    StartOutcome::Cancelled(signal) => return Err(ended_by(signal)),
                    StartOutcome::ProfilerExited(status) => match CommandExitStatus::from(status) {
                        CommandExitStatus::Signal(signal) if CANCEL_SIGNALS.contains(&signal) => {
                            return Err(ended_by(signal));
                        }
                        _ => format!("ended before it started the command ({status})"),
                    },
                    StartOutcome::TimedOut => {
                        format!("did not start the command within {} s, and was killed", self.wait.as_secs())
                    }
                }
            }
        };
        let described =
            self.alone.as_ref().map(TraceSelection::described).filter(|described| !described.is_empty());
        let native = described.map_or_else(String::new, |described| format!(", native records {described}"));
        let without = format!(
            "warning: {name} {why}: the command runs without it{native}; try it by hand on this node, or use --backend native"
        );
        if self.prints_for_all {
            warn(format_args!("{without}"));
        }
        if let Some(signal) = signals::cancelled() {
            return Err(NotStarted { exit_status: CommandExitStatus::Signal(signal), profiler: None });
        }
        let mut variables = variables.to_vec();
        if let Some(alone) = &self.alone {
            // The last setting of a variable takes effect.
            variables.push((TRACE_VARIABLE.to_owned(), alone.library_words().into()));
        }
        let child = child::start(command, &variables)?;
        Ok(RunningCommand { child, below: None, without: Some(without) })
    }

    fn running(&self, child: Child) -> RunningCommand {
        let record = start::record(&self.scratch).filter(start_mark::StartRecord::is_of_here);
        let below = record.and_then(|record| {
            CommandUnderProfiler::of(&record, self.scratch.clone(), self.wait, child.id() as i32)
        });
        RunningCommand { child, below, without: None }
    }
}
