//! The collector process: drains the rings and writes the shard, beside the command and not above it.
//!
//! Whatever happens to it, the command runs on and its launcher is not kept waiting: it may be
//! stopped or killed. What is meant for the job's processes does not end it before the shard is
//! complete, and when memory runs out the kernel takes it before any of the job's.

use super::command;
use super::control::{Control, Received, Start, ToCollector, ToLauncher, Wanted};
use super::empty::{explain_empty, name_unseen};
use super::preloaded::PreloadCheck;
use super::watched::Watched;
use crate::backend::harvest::{Target, bring_in};
use crate::backend::{ProfilerEnding, processes, scratch, start_mark};
use crate::child::{Ending, signals};
use crate::collect::{Collector, Finish, Listener};
use crate::host::machine;
use crate::launcher::{Environment, RankIdentity, SourceDefaults, detect_rank, is_on_one_node};
use crate::log::TOO_MANY_FILES;
use crate::log::next_step;
use crate::log::warn;
use crate::log::{self, LogPlace};
use crate::output::{Output, ShardBeginning, ShardPlace, SideOutput};
use crate::probe::{ProbeAgent, ProbeConfig};
use crate::run_folder::{self, RankFolder};
use crate::system::{SystemConfig, SystemSampler};
use rpd_shard::record::{ClockDomain, Exit, Process, SYSTEM_SOURCE};
use rustix::fd::{AsFd, OwnedFd};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A file system that takes longer to take the rest of a shard is given up, when nobody waits any
/// more.
const TIME_ALONE: Duration = Duration::from_secs(60);
/// So long the launcher waits for files of profilers to be read; what is not read by then goes on without it.
const TIME_TO_HARVEST: Duration = Duration::from_secs(30 * 60);
/// It waits no longer than some seconds for a word.
const TELL_EVERY: Duration = Duration::from_secs(1);
/// Who is killed together with us is gone after this time.
const TIME_TO_FOLLOW: Duration = Duration::from_millis(500);

/// What writes down how the command ended has this long.
const TIME_TO_WRITE: Duration = Duration::from_secs(2);
/// Time between two looks for that.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// Who was killed is gone by then, unless the kernel cannot let go of it.
const TIME_TO_DIE: Duration = Duration::from_secs(5);

/// Runs the collector process. Stdin is the control channel, stdout the listening socket.
pub fn main() -> io::Result<()> {
    let control = Arc::new(Control::from_descriptor(io::stdin().as_fd().try_clone_to_owned()?));
    let socket = io::stdout().as_fd().try_clone_to_owned()?;
    let (Received::Message(ToCollector::Start(start)), shard) = control.receive_with(None) else {
        return Err(io::Error::other("this argument is for rpd-collect itself"));
    };
    let scratch = start.harvest.as_ref().map(|harvest| PathBuf::from(&harvest.scratch));
    let _held = scratch.as_deref().and_then(scratch::Held::join);
    let log = log_path(&start);
    open_log(&start, &control);
    if let Some(cpus) = &start.cpus
        && let Err(error) = cpus.apply()
    {
        warn(format_args!("warning: the collector does not run on CPUs {cpus}: {error}"));
    }
    let beginning = beginning(&start, shard);
    let result = step_aside().and_then(|()| begin(&start, beginning?, socket));
    let Begun { collector, system, probes, finished, side, defaults, place } = match result {
        Ok(begun) => begun,
        Err(error) => {
            let text = format!("warning: the collector failed to start: {error}{}", next_step(&error));
            return control.send(&ToLauncher::Say { text: format!("{text}; nothing was recorded") });
        }
    };
    start.warnings.iter().for_each(|warning| warn(format_args!("{warning}")));
    let clearing = scratch.clone().and_then(clear_up_beside);
    let (mut agent, mut own, mut without_front, mut is_told) = (None, None, false, false);
    let (mut check, library) = (None, start.preloaded.as_ref().map(PathBuf::from));
    let started = |pid: i32, without: Option<String>| {
        without_front = without.is_some();
        // Our own library numbers the processes that it sees. Where there is none, a profiler may tell of the command, but one
        // that crashes with it does not.
        is_told = start.wanted != Wanted::Events && start.library.is_empty();
        without.iter().for_each(|line| warn(format_args!("{line}")));
        // Now, since the job may be killed.
        if start.ask_merge
            && let Err(error) = place.ask_for_merge()
        {
            warn(format_args!("warning: {error}; no merge is asked for"));
        }
        if let Err(error) = start.marks.iter().try_for_each(|mark| place.leave(mark)) {
            warn(format_args!("warning: {error}; a merge at the end of the job does not find the run"));
        }
        agent = probes.and_then(ProbePlan::start);
        check = library.filter(|_| start.is_recorded()).and_then(|library| PreloadCheck::begin(pid, library));
        let process = command::process(&defaults, pid, &start.command);
        own = Some(process.clone());
        if start.is_recorded() {
            command::record(&side, process.clone());
        }
        if is_told {
            command::tell(&side, process);
        }
    };
    let patience =
        start.harvest.as_ref().map_or(Duration::ZERO, |harvest| Duration::from_secs(harvest.wait_seconds));
    let warned = |signal| collector.keep(signal);
    let Some((finish, profiler)) = until_the_end(&control, scratch.as_deref(), patience, started, warned)
    else {
        scratch.iter().for_each(|folder| scratch::remove(folder));
        return Ok(());
    };
    let own = own.map(|own| Process { last_seen: Some(machine::boottime()), exit: Some(finish.exit), ..own });
    if let Some(own) = own.clone().filter(|_| start.is_recorded()) {
        command::record(&side, own);
    }
    if let Some(own) = own.clone().filter(|_| is_told) {
        command::tell(&side, own);
    }
    // The last burst goes on while the counters end.
    agent.iter_mut().for_each(ProbeAgent::stop);
    // Its last counters go in front of the end of the shard.
    if let Some(system) = system {
        system.stop();
    }
    agent.iter_mut().for_each(ProbeAgent::wait_until_measured);
    let exit = finish.exit;
    collector.finish(finish);
    let shard = finished.recv_timeout(TIME_ALONE).ok().flatten();
    if let Some(agent) = agent {
        agent.leave();
    }
    if let (Some(harvest), Some(usual)) = (&start.harvest, own) {
        let busy = Busy::begin(&control);
        bring_in(harvest, &Target { place: &place, shard, usual, without_front, profiler });
        busy.end();
    }
    // What is left was told in the log.
    scratch.iter().for_each(|folder| scratch::leave(folder));
    clearing.into_iter().for_each(|thread| drop(thread.join()));
    let unseen = check.and_then(PreloadCheck::end);
    if log::is_empty() && !start.refused {
        match unseen {
            Some(process) => name_unseen(&process, &start, &control),
            None if start.wanted == Wanted::Events => explain_empty(&start, exit, &control),
            None => {}
        }
    }
    if let Some(launched) = log::singleton_of() {
        let text = singleton_line(launched);
        warn(format_args!("{text}"));
        let _ = control.send(&ToLauncher::SayOnce { text });
    }
    start.cpu_note.iter().for_each(|note| warn(format_args!("{note}")));
    let _ = control.send(&ToLauncher::Done { warnings: log::close(), log: log.into() });
    Ok(())
}

/// What is printed of ranks that do not belong to one MPI job.
fn singleton_line(launched: u32) -> String {
    format!(
        "warning: the launcher started {launched} processes, and MPI ran each as a job of its own (MPI_COMM_WORLD of size 1): the \
         program is probably linked against another MPI than the launcher's; `ldd PROGRAM` shows which: use that one's \
         mpirun, or `srun --mpi=TYPE` with a type of `srun --mpi=list` that it supports"
    )
}

fn log_path(start: &Start) -> PathBuf {
    log_folder(start).path().join(log_name(start))
}

fn log_folder(start: &Start) -> RankFolder {
    RankFolder::new(Path::new(&start.root), &start.run, start.share_group)
}

fn log_name(start: &Start) -> String {
    format!("rank-{:05}.log", start.run.rank.unwrap_or(0))
}

fn open_log(start: &Start, control: &Arc<Control>) {
    let launcher = Arc::clone(control);
    let instead = Box::new(move |line: &str| {
        let _ = launcher.send(&ToLauncher::Say { text: line.to_owned() });
    });
    log::open(LogPlace { folder: log_folder(start), name: log_name(start), instead });
    // A fault of ours belongs into the log, not into the void of our stderr.
    std::panic::set_hook(Box::new(|panic| warn(format_args!("warning: a fault of rpd-collect: {panic}"))));
}

/// Removes what runs that were killed have left on this node, while the command runs.
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

/// Lets nothing end this process that is meant for the job, and holds nothing that the job needs.
fn step_aside() -> io::Result<()> {
    signals::survive()?;
    // Its name would be that of `/proc/self/exe`.
    let _ = rustix::thread::set_name(c"rpd-collector");
    // Anyone may raise it. Where it cannot be, the kernel chooses by size.
    let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
    // Threads that start together have a connection each.
    let files = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: files.maximum, ..files });
    std::env::set_current_dir("/")
}

/// What runs until the command has ended.
struct Begun {
    collector: Collector,
    system: Option<SystemSampler>,
    probes: Option<ProbePlan>,
    finished: Receiver<Option<PathBuf>>,
    side: SideOutput,
    defaults: SourceDefaults,
    place: ShardPlace,
}

/// What starts with the command, so that one that cannot be started leaves nothing.
struct ProbePlan {
    config: ProbeConfig,
    output: SideOutput,
}

impl ProbePlan {
    /// None for a node without others, and for one of which nothing is recorded.
    fn of(start: &Start, rank: &RankIdentity, domain: &ClockDomain, output: &Output) -> Option<ProbePlan> {
        let choice = start.probes.clone()?;
        let own = start.run.rank.filter(|own| start.ranks.contains(Some(*own)))?;
        if is_on_one_node(&Environment::of_this_process(), rank) {
            return None;
        }
        let (root, run_id) = (PathBuf::from(&start.root), start.run.run_id.clone());
        let config = ProbeConfig::new(root, run_id, own, domain.clone(), start.share_group, choice);
        Some(ProbePlan { config, output: output.side() })
    }

    fn start(self) -> Option<ProbeAgent> {
        let agent = ProbeAgent::start(self.config, self.output);
        agent.inspect_err(|error| warn(format_args!("no clock probes: {error}"))).ok()
    }
}

/// What the launcher has made of the shard.
fn beginning(start: &Start, file: Option<File>) -> io::Result<ShardBeginning> {
    let Some(early) = start.early.clone() else {
        return Ok(if start.refused { ShardBeginning::Refused } else { ShardBeginning::Nothing });
    };
    run_folder::note_made();
    // The kernel passes no file to a process that has no descriptor left for it.
    let file = file.ok_or_else(|| io::Error::from_raw_os_error(TOO_MANY_FILES))?;
    Ok(ShardBeginning::Shard(file, early))
}

fn begin(start: &Start, beginning: ShardBeginning, socket: OwnedFd) -> io::Result<Begun> {
    let domain = machine::clock_domain();
    let defaults = SourceDefaults {
        rank: detect_rank(&Environment::of_this_process(), start.rank_env.as_deref()),
        rank_is_named: start.rank_env.is_some(),
        ranks: start.ranks.clone(),
        node: machine::node(),
        domain: domain.clone(),
    };
    let place = start.place(domain);
    let metrics = SystemConfig {
        source: SYSTEM_SOURCE,
        run: Path::new(&start.root).join(&start.run.run_id),
        defaults: defaults.clone(),
        root: PathBuf::from("/"),
        retry: SystemConfig::RETRY,
    };
    let (output, finished) = Output::start_with(place.clone(), beginning)?;
    let side = output.side();
    // Of a node without a rank that is recorded there are no counters either.
    let wanted = start.system && start.ranks.contains(start.run.rank);
    let system = wanted.then(|| SystemSampler::start(metrics, output.side())).transpose();
    let system = system.unwrap_or_else(|error| {
        warn(format_args!("warning: no system metrics: no thread: {error}"));
        None
    });
    let probes = ProbePlan::of(start, &defaults.rank, &defaults.domain, &output);
    let collector = Collector::start(Listener::new(socket), defaults.clone(), output)?;
    Ok(Begun { collector, system, probes, finished, side, defaults, place })
}

/// Waits for the end of the command, and says when it has begun. None if it was never started.
fn until_the_end(
    control: &Control,
    scratch: Option<&Path>,
    patience: Duration,
    begun: impl FnOnce(i32, Option<String>),
    warned: impl Fn(i32),
) -> Option<(Finish, ProfilerEnding)> {
    let (mut command, mut profiler, mut begun) = (None, None, Some(begun));
    loop {
        match control.receive(None) {
            Received::Message(ToCollector::Starting { pid }) => profiler = Some(Watched::of(pid)),
            Received::Message(ToCollector::Started { pid, profiler: above, without }) => {
                command = Some(Watched::of(pid));
                profiler = above.map(Watched::of);
                if let Some(begun) = begun.take() {
                    begun(pid, without);
                }
            }
            Received::Message(ToCollector::Nothing) => return None,
            Received::Message(ToCollector::Note { text }) => warn(format_args!("{text}")),
            Received::Message(ToCollector::Warned { signal }) => warned(signal),
            Received::Message(ToCollector::Finish { pid, exit, profiler }) => {
                return Some((Finish { pid, exit }, profiler));
            }
            Received::Message(ToCollector::Start(_)) | Received::Nothing => {}
            Received::Closed => break,
        }
    }
    // A profiler that had not started the command yet does so now, or becomes it.
    let above = profiler.take_if(|_| command.is_some());
    let process = command.or(profiler)?;
    if let Some(begun) = begun {
        begun(process.pid, None);
    }
    // A launcher that ends a job kills both.
    let together = process.wait(Some(TIME_TO_FOLLOW));
    process.wait(None);
    // Who stands between a profiler and the command writes it down as soon as it knows.
    let ending = || scratch.and_then(start_mark::Record::read).and_then(|record| record.ending);
    let until = Instant::now() + TIME_TO_WRITE;
    let mut exit = ending();
    while exit.is_none() && above.is_some() && Instant::now() < until {
        std::thread::sleep(LOOK_EVERY);
        exit = ending();
    }
    let what = if together { "and the command ended with it" } else { "the command ran on without it" };
    let how =
        exit.map_or("how the command ended is not known".to_owned(), |exit| format!("it ended with {exit}"));
    warn(format_args!("warning: rpd-collect was killed, {what}; {how}"));
    let profiler = match (above, scratch) {
        (Some(above), Some(scratch)) => end_in_time(&above, scratch, patience),
        _ => ProfilerEnding::Unseen,
    };
    Some((Finish { pid: process.pid, exit: exit.map_or(Exit::Unknown, Ending::exit) }, profiler))
}

/// Waits for a profiler whose command has ended, and kills it if it stays too long.
fn end_in_time(profiler: &Watched, scratch: &Path, patience: Duration) -> ProfilerEnding {
    if profiler.wait(Some(patience)) {
        return ProfilerEnding::Unseen;
    }
    warn(format_args!(
        "warning: the profiler had not ended {} s after the command, and was killed: its files may be incomplete",
        patience.as_secs()
    ));
    processes::kill(scratch, Some(profiler.pid), false);
    profiler.wait(Some(TIME_TO_DIE));
    ProfilerEnding::Killed
}

/// Tells the launcher every second that it has to wait on, for a time.
struct Busy(Sender<()>);

impl Busy {
    fn begin(control: &Arc<Control>) -> Busy {
        let (ended, end) = channel();
        let control = Arc::clone(control);
        let tell = move || {
            let until = Instant::now() + TIME_TO_HARVEST;
            while Instant::now() < until
                && control.send(&ToLauncher::Busy).is_ok()
                && end.recv_timeout(TELL_EVERY) == Err(RecvTimeoutError::Timeout)
            {}
        };
        // Without the thread, the launcher leaves earlier, and this goes on alone.
        let _ = std::thread::Builder::new().name("rpd-busy".to_owned()).spawn(tell);
        Busy(ended)
    }

    fn end(self) {
        let _ = self.0.send(());
    }
}
