//! The collector process: drains the rings and writes the shard, beside the command and not above it.
//!
//! The command and the parent process do not depend on it: it may be stopped or killed. Signals for the job's
//! processes do not end it before the shard is complete. When memory runs out, the kernel kills it before any
//! process of the job.

use super::busy::BusySignal;
use super::command_end::until_the_end;
use super::command_record::describe_command;
use super::control::{ControlChannel, ReceivedPacket, ToCollector, ToParent, WantedContent};
use super::empty_result::{explain_empty, name_unseen};
use super::preloaded::PreloadCheck;
use super::recorders::{ProbePlan, StartedRecorders, begin, beginning, step_aside};
use crate::backend::harvest::{HarvestTarget, import_profiler_files};
use crate::backend::scratch;
use crate::clock_probe::ProbeAgent;
use crate::drain::RingCollector;
use crate::host::machine;
use crate::log::{self, LogPlace, next_step, warn};
use crate::run_folder::RankFolder;
use crate::shard_output::{OutputBatch, OutputItem};
use rpd_shard::record::Process;
use rustix::fd::AsFd;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Maximum time for a file system to accept the rest of a shard after the end of the command.
const TIME_ALONE: Duration = Duration::from_secs(60);
/// Time between two looks at how many records were read.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Runs the collector process. Stdin is the control channel, stdout the listening socket.
pub(crate) fn main() -> io::Result<()> {
    let control = Arc::new(ControlChannel::from_descriptor(io::stdin().as_fd().try_clone_to_owned()?));
    let socket = io::stdout().as_fd().try_clone_to_owned()?;
    let (ReceivedPacket::Message(ToCollector::Start(start)), shard) = control.receive_with(None) else {
        return Err(io::Error::other("this argument is for rpd-collect itself"));
    };
    let scratch = start.harvest.as_ref().map(|harvest| PathBuf::from(&harvest.scratch));
    let _held = scratch.as_deref().and_then(scratch::HeldScratch::join);
    let folder = RankFolder::new(Path::new(&start.root), &start.run, start.share_group);
    let log_name = format!("rank-{:05}.log", start.run.rank.unwrap_or(0));
    let log = folder.path().join(&log_name);
    open_log(folder, log_name, &control);
    if let Some(cpus) = &start.cpus
        && let Err(error) = cpus.apply()
    {
        warn(format_args!("warning: the collector does not run on CPUs {cpus}: {error}"));
    }
    let beginning = beginning(&start, shard);
    let result = step_aside().and_then(|()| begin(&start, beginning?, socket));
    let StartedRecorders { collector, system, python, probes, finished, side, defaults, place } = match result
    {
        Ok(begun) => begun,
        Err(error) => {
            let text = format!("warning: the collector failed to start: {error}{}", next_step(&error));
            return control.send(&ToParent::Say { text: format!("{text}; nothing was recorded") });
        }
    };
    // Notes are for the log, and nothing is recorded without one.
    let logged =
        start.warnings.iter().filter(|text| !start.refused || !text.starts_with(super::prepare::NOTE));
    logged.for_each(|text| warn(format_args!("{text}")));
    let clearing = scratch.clone().and_then(clear_up_beside);
    // Our own library numbers the processes that it sees. Without it, a profiler may record the command, but
    // not if it crashes together with the command.
    let is_recorded_as_process = start.wanted != WantedContent::Events && start.library.is_empty();
    let record = |command: &Process| {
        // Without a writing thread nothing can be written, which is reported elsewhere.
        let send = |item| drop(side.send(OutputBatch::of(vec![item])));
        if start.is_recorded() {
            send(OutputItem::Command(Box::new(command.clone())));
        }
        if is_recorded_as_process {
            send(OutputItem::Process(Box::new(command.clone())));
        }
    };
    let (mut agent, mut own, mut wrapper_did_not_start) = (None, None, false);
    let (mut check, library) = (None, start.preloaded.as_ref().map(PathBuf::from));
    let started = |pid: i32, without: Option<String>| {
        wrapper_did_not_start = without.is_some();
        without.iter().for_each(|line| warn(format_args!("{line}")));
        // Now, because the job may be killed later.
        if start.ask_merge
            && let Err(error) = place.ask_for_merge()
        {
            warn(format_args!("warning: {error}; the site is not asked for a merge"));
        }
        if let Err(error) = start.marks.iter().try_for_each(|mark| place.leave(mark)) {
            warn(format_args!("warning: {error}; a merge at the end of the job does not find the run"));
        }
        agent = probes.and_then(ProbePlan::start);
        check = library.filter(|_| start.is_recorded()).and_then(|library| PreloadCheck::begin(pid, library));
        let process = describe_command(&defaults, pid, &start.command);
        record(&process);
        own = Some(process);
    };
    let next_deadline =
        start.harvest.as_ref().map_or(Duration::ZERO, |harvest| Duration::from_secs(harvest.wait_seconds));
    let warned = |signal| collector.sync(signal);
    let Some((finish, profiler)) =
        until_the_end(&control, scratch.as_deref(), next_deadline, started, warned)
    else {
        scratch.iter().for_each(|folder| scratch::remove(folder));
        return Ok(());
    };
    let own = own.map(|own| Process { last_seen: Some(machine::boottime()), exit: Some(finish.exit), ..own });
    own.iter().for_each(record);
    // The last burst continues while the metrics end.
    agent.iter_mut().for_each(ProbeAgent::stop);
    // Their last rows precede the end of the shard.
    if let Some(system) = system {
        system.stop();
    }
    if let Some(python) = python {
        python.stop();
    }
    agent.iter_mut().for_each(ProbeAgent::wait_until_measured);
    let exit = finish.exit;
    collector.finish(finish);
    let shard = await_shard(&finished, &collector, &control);
    if let Some(agent) = agent {
        agent.leave();
    }
    if let (Some(harvest), Some(rank_process)) = (&start.harvest, own) {
        let busy = BusySignal::begin(&control);
        import_profiler_files(
            harvest,
            &HarvestTarget { place: &place, shard, rank_process, wrapper_did_not_start, profiler },
        );
        busy.end();
    }
    // The log names everything that is left.
    scratch.iter().for_each(|folder| scratch::leave(folder));
    clearing.into_iter().for_each(|thread| drop(thread.join()));
    let unseen = check.and_then(PreloadCheck::end);
    if log::is_empty() && !start.refused {
        match unseen {
            Some(process) => name_unseen(&process, &start, &control),
            None if start.wanted == WantedContent::Events => explain_empty(&start, exit, &control),
            None => {}
        }
    }
    if let Some(launched) = log::singleton_of() {
        let text = singleton_line(launched);
        warn(format_args!("{text}"));
        let _ = control.send(&ToParent::SayOnce { text });
    }
    start.cpu_note.iter().for_each(|note| warn(format_args!("{note}")));
    let _ = control.send(&ToParent::Done { warnings: log::close(), log: log.into() });
    Ok(())
}

/// Waits for the output to report that the shard is complete, and returns what it reports. The parent process waits longer than
/// usual as long as records are read: a thread may have recorded for seconds while the collector got no CPU, and a job that
/// ends with its parent process would lose that.
fn await_shard<T>(
    finished: &Receiver<Option<T>>,
    collector: &RingCollector,
    control: &ControlChannel,
) -> Option<T> {
    let until = Instant::now() + TIME_ALONE;
    let mut records_read = collector.records_read();
    loop {
        let left = until.saturating_duration_since(Instant::now());
        match finished.recv_timeout(left.min(LOOK_EVERY)) {
            Ok(shard) => return shard,
            Err(RecvTimeoutError::Timeout) if !left.is_zero() => {}
            Err(_) => return None,
        }
        let now = collector.records_read();
        if now != records_read {
            // If the parent process has gone, the shard is completed all the same.
            let _ = control.send(&ToParent::Busy);
        }
        records_read = now;
    }
}

/// Returns the warning for ranks that do not belong to one MPI job.
fn singleton_line(launched: u32) -> String {
    format!(
        "warning: the launcher started {launched} processes, and MPI ran each as a job of its own (MPI_COMM_WORLD of size 1): the \
         program is probably linked against another MPI than the launcher's (`ldd PROGRAM` shows which); use that one's \
         mpirun, or `srun --mpi=TYPE` with a type of `srun --mpi=list` that it supports"
    )
}

fn open_log(folder: RankFolder, name: String, control: &Arc<ControlChannel>) {
    let parent = Arc::clone(control);
    let instead = Box::new(move |line: &str| {
        let _ = parent.send(&ToParent::Say { text: line.to_owned() });
    });
    log::open(LogPlace { folder, name, instead });
    // A panic message goes to the log, since stderr is closed.
    std::panic::set_hook(Box::new(|panic| {
        warn(format_args!("warning: internal error of rpd-collect: {panic}"))
    }));
}

/// Removes scratch folders of killed runs on this node, while the command runs.
fn clear_up_beside(scratch: PathBuf) -> Option<JoinHandle<()>> {
    let clear_up = move || {
        let removed = scratch.parent().map_or(0, scratch::clear_up);
        if removed > 0 {
            let root = scratch.parent().unwrap_or(&scratch).display();
            warn(format_args!("scratch folders in {root} of runs that were killed: {removed} removed"));
        }
    };
    std::thread::Builder::new().name("rpd-clear".to_owned()).spawn(clear_up).ok()
}
