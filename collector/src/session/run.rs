//! Runs a session from the start of its command to the exit status.

use super::control::{ReceivedPacket, ToCollector, ToParent};
use super::prepare::{CommandSession, NOTE};
use super::profiler_launch::{NotStarted, RunningCommand};
use super::spawn;
use crate::backend::scratch::{self, ScratchFolder};
use crate::backend::{ProfilerOutcome, start_mark};
use crate::child::{self, CommandExitStatus, ignoring};
use crate::command_line::WarnSignal;
use crate::log::warn;
use crate::shard_output::EarlyShard;
use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

/// Maximum time that the parent process waits for a sign of the collector after the end of the command.
const TIME_TO_FINISH: Duration = Duration::from_secs(5);
/// Time within which a collector that has sent its last message ends.
const TIME_TO_EXIT: Duration = Duration::from_millis(100);
/// Maximum number of lines of the collector that no log could hold.
const MAX_LINES: usize = 20;

impl CommandSession {
    /// Runs the command to its end and waits for the shard. Returns how to end.
    pub(crate) fn run(self, command: &[OsString]) -> CommandExitStatus {
        let started = match &self.profiler_launch {
            Some(launch) => launch.start(command, &self.variables, &self.forwarder, &self.control),
            None => child::start(&self.words(command), &self.variables)
                .map(|child| RunningCommand { child, below: None, without: None })
                .map_err(NotStarted::from),
        };
        let RunningCommand { mut child, below, without } = match started {
            Ok(running) => running,
            Err(not_started) => return self.give_up(not_started),
        };
        if let Some(line) = self.announcement.as_ref().filter(|_| without.is_none()) {
            warn(format_args!("{line}"));
        }
        let top = child.id() as i32;
        let pid = below.as_ref().map_or(top, |below| below.pid);
        self.forwarder.aim_at_command(pid, top);
        if let Some(scratch) = self.scratch.as_ref().filter(|_| self.profiler_launch.is_none()) {
            // Files of the command there may be nowhere else.
            let _ = start_mark::claim(scratch.path());
        }
        // A collector that has died is reported at the end.
        let profiler = below.is_some().then_some(top);
        let _ = self.control.send(&ToCollector::Started { pid, profiler, without });
        let (exit_status, profiler) = match &below {
            None => {
                let exit_status = wait_for(&mut child);
                let above =
                    self.scratch.as_ref().and_then(|scratch| start_mark::StartRecord::read(scratch.path()));
                (above.and_then(|record| record.exit_status).unwrap_or(exit_status), ProfilerOutcome::Unseen)
            }
            Some(below) => {
                let ended = below.wait(&mut child, &self.forwarder);
                for text in ended.notes {
                    let _ = self.control.send(&ToCollector::Note { text });
                }
                (ended.exit_status, ended.profiler)
            }
        };
        let _ = self.control.send(&ToCollector::Finish { pid, exit: exit_status.to_record(), profiler });
        self.await_collector();
        exit_status
    }

    /// Returns the words that start the command.
    fn words(&self, command: &[OsString]) -> Vec<OsString> {
        let ignoring = self.warn_signal.and_then(|WarnSignal { name, .. }| {
            ignoring::words(ignoring::choose_wrapper(name).as_ref(), name, command)
        });
        ignoring.unwrap_or_else(|| command.to_vec())
    }

    /// Ends without a command. If a profiler ran, the log names it.
    fn give_up(mut self, NotStarted { exit_status, profiler }: NotStarted) -> CommandExitStatus {
        match profiler {
            Some((pid, why)) => {
                let _ = self.control.send(&ToCollector::Started { pid, profiler: None, without: Some(why) });
                let profiler = ProfilerOutcome::Unseen;
                let _ =
                    self.control.send(&ToCollector::Finish { pid, exit: exit_status.to_record(), profiler });
                self.await_collector();
            }
            None => {
                let _ = self.control.send(&ToCollector::Nothing);
                drop(self.control);
                spawn::wait(&mut self.launched.collector, Instant::now() + TIME_TO_EXIT);
                self.launched.early.iter().for_each(EarlyShard::remove);
                self.scratch.iter().for_each(ScratchFolder::remove);
            }
        }
        exit_status
    }

    /// Whether another rank prints a line of the collector: a note, or a consequence of what was printed at
    /// the start.
    fn is_printed_elsewhere(&self, text: &str) -> bool {
        !self.prints_for_all && (text.starts_with(NOTE) || self.launched.refused && self.scratch.is_none())
    }

    /// Waits for the collector, and prints what is in no log.
    fn await_collector(mut self) {
        let mut until = Instant::now() + TIME_TO_FINISH;
        let mut lines = Vec::new();
        let mut done = false;
        loop {
            match self.control.receive(Some(until)) {
                // Without a shard there is no place for the log either.
                ReceivedPacket::Message(ToParent::Say { text }) if self.is_printed_elsewhere(&text) => {}
                ReceivedPacket::Message(ToParent::Say { text }) => {
                    lines.push(text);
                    lines.truncate(MAX_LINES);
                }
                ReceivedPacket::Message(ToParent::SayOnce { text }) => {
                    lines.extend(self.prints_for_all.then_some(text));
                    self.printed_warnings += 1;
                }
                ReceivedPacket::Message(ToParent::Busy) => until = Instant::now() + TIME_TO_FINISH,
                ReceivedPacket::Message(ToParent::Done { warnings, log }) => {
                    done = true;
                    let warnings = warnings.saturating_sub(self.printed_warnings);
                    if warnings > 0 && self.prints_for_all {
                        let (s, log) = (if warnings > 1 { "s" } else { "" }, Path::new(&log).display());
                        lines.push(format!("warning: {warnings} warning{s} about this run in {log}"));
                    }
                }
                ReceivedPacket::Closed => break,
                ReceivedPacket::Nothing if done => break,
                ReceivedPacket::Nothing => {
                    lines.push(format!(
                        "warning: the shard was not finished: after the end of the command, the collector read nothing \
                         for {} s; what is in the shard so far can be read",
                        TIME_TO_FINISH.as_secs()
                    ));
                    lines.iter().for_each(|line| warn(format_args!("{line}")));
                    return;
                }
            }
        }
        // Otherwise the collector would be left to a process 1 that may not be an init.
        let ended = spawn::wait(
            &mut self.launched.collector,
            if done { Instant::now() + TIME_TO_EXIT } else { until },
        );
        if !done && lines.is_empty() {
            lines.push(why_it_died(ended));
        }
        if let Some(scratch) = self.scratch.filter(|scratch| !done && scratch.path().exists()) {
            let path = scratch.path().display();
            lines.push(format!("warning: the files of profilers stay on this node, in {path}"));
            scratch::leave(scratch.path());
        }
        lines.iter().for_each(|line| warn(format_args!("{line}")));
    }
}

fn wait_for(command: &mut Child) -> CommandExitStatus {
    command.wait().map_or_else(
        |error| {
            warn(format_args!("failed to wait for the command: {error}"));
            CommandExitStatus::Code(1)
        },
        CommandExitStatus::from,
    )
}

fn why_it_died(status: Option<ExitStatus>) -> String {
    let how = match status.map(|status| (status.code(), status.signal())) {
        Some((_, Some(9))) => "was killed (perhaps for want of memory)".to_owned(),
        Some((_, Some(signal))) => format!("died by signal {signal}"),
        Some((Some(code), _)) => format!("ended with status {code}"),
        _ => "ended".to_owned(),
    };
    format!("warning: the collector {how} before the command did; what it recorded until then can be read")
}
