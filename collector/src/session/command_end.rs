//! Waits for the start and the end of the command in the collector process.

use super::control::{ControlChannel, ReceivedPacket, ToCollector};
use super::watched_process::WatchedProcess;
use crate::backend::{ProfilerOutcome, processes, start_mark};
use crate::child::CommandExitStatus;
use crate::drain::CommandEnd;
use crate::log::warn;
use rpd_shard::record::ProcessExit;
use std::path::Path;
use std::time::{Duration, Instant};

/// Time within which a command ends that was killed together with the parent process.
const TIME_TO_FOLLOW: Duration = Duration::from_millis(500);
/// Time for the process between profiler and command to record the exit status.
const TIME_TO_WRITE: Duration = Duration::from_secs(2);
/// Interval at which the record is checked.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// Maximum time for a killed process to disappear, unless the kernel cannot end it.
const TIME_TO_DIE: Duration = Duration::from_secs(5);

/// Waits for the end of the command, and calls `begun` at its start. `None` if it was never started.
pub(super) fn until_the_end(
    control: &ControlChannel,
    scratch: Option<&Path>,
    next_deadline: Duration,
    begun: impl FnOnce(i32, Option<String>),
    warned: impl Fn(i32),
) -> Option<(CommandEnd, ProfilerOutcome)> {
    let (mut command, mut profiler, mut begun) = (None, None, Some(begun));
    loop {
        match control.receive(None) {
            ReceivedPacket::Message(ToCollector::Starting { pid }) => {
                profiler = Some(WatchedProcess::of(pid))
            }
            ReceivedPacket::Message(ToCollector::Started { pid, profiler: above, without }) => {
                command = Some(WatchedProcess::of(pid));
                profiler = above.map(WatchedProcess::of);
                if let Some(begun) = begun.take() {
                    begun(pid, without);
                }
            }
            ReceivedPacket::Message(ToCollector::Nothing) => return None,
            ReceivedPacket::Message(ToCollector::Note { text }) => warn(format_args!("{text}")),
            ReceivedPacket::Message(ToCollector::Warned { signal }) => warned(signal),
            ReceivedPacket::Message(ToCollector::Finish { pid, exit, profiler }) => {
                return Some((CommandEnd { pid, exit }, profiler));
            }
            ReceivedPacket::Message(ToCollector::Start(_)) | ReceivedPacket::Nothing => {}
            ReceivedPacket::Closed => break,
        }
    }
    // A profiler that has not started the command yet will start it, or become it.
    let above = profiler.take_if(|_| command.is_some());
    let process = command.or(profiler)?;
    if let Some(begun) = begun {
        begun(process.pid, None);
    }
    // A launcher that ends a job kills both.
    let ended_with_it = process.wait(Some(TIME_TO_FOLLOW));
    process.wait(None);
    // The process between a profiler and the command records the exit status as soon as it knows it.
    let recorded_status =
        || scratch.and_then(start_mark::StartRecord::read).and_then(|record| record.exit_status);
    let until = Instant::now() + TIME_TO_WRITE;
    let mut exit = recorded_status();
    while exit.is_none() && above.is_some() && Instant::now() < until {
        std::thread::sleep(LOOK_EVERY);
        exit = recorded_status();
    }
    let what = if ended_with_it { "and the command ended with it" } else { "the command ran on without it" };
    let how =
        exit.map_or("how the command ended is not known".to_owned(), |exit| format!("it ended with {exit}"));
    warn(format_args!("warning: rpd-collect was killed, {what}; {how}"));
    let profiler = match (above, scratch) {
        (Some(above), Some(scratch)) => end_in_time(&above, scratch, next_deadline),
        _ => ProfilerOutcome::Unseen,
    };
    Some((
        CommandEnd {
            pid: process.pid,
            exit: exit.map_or(ProcessExit::Unknown, CommandExitStatus::to_record),
        },
        profiler,
    ))
}

/// Waits for a profiler after its command has ended. Kills it if it stays too long.
fn end_in_time(profiler: &WatchedProcess, scratch: &Path, next_deadline: Duration) -> ProfilerOutcome {
    if profiler.wait(Some(next_deadline)) {
        return ProfilerOutcome::Unseen;
    }
    warn(format_args!(
        "warning: the profiler had not ended {} s after the command, and was killed: its files may be incomplete",
        next_deadline.as_secs()
    ));
    processes::kill(scratch, Some(profiler.pid), false);
    profiler.wait(Some(TIME_TO_DIE));
    ProfilerOutcome::Killed
}
