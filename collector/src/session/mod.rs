//! One run of rpd-collect.
//!
//! ```text
//! rpd-collect          starts both, passes signals and the exit status on
//!   |- the command
//!   `- the collector   drains the rings, writes the shard
//! ```
//!
//! Two processes, so that a collector that is killed, stopped or out of memory takes neither the
//! command nor its exit status along.

mod announced;
mod below;
mod collecting;
mod command;
mod control;
mod empty;
mod front;
mod launch;
mod preloaded;
mod spawn;
mod unrecorded;
mod variables;
mod watched;

pub use announced::announced;
pub use collecting::main as collect;
pub use spawn::COLLECT;
pub use unrecorded::{PrepareError, run_unrecorded};
pub use variables::variables;

use crate::backend::scratch::{self, Scratch};
use crate::backend::{Plan, ProfilerEnding, plan, start_mark};
use crate::child::program::ProgramFile;
use crate::child::{self, Ending, ignoring, preload, signals, signals::Forwarder};
use crate::collect::Listener;
use crate::command_line::{Options, Share, WarnSignal};
use crate::host::cgroup;
use crate::host::cpus::Placement;
use crate::host::random::random;
use crate::launcher::{self, Environment, RankIdentity, RunId};
use crate::log::warn;
use crate::output::EarlyShard;
use control::{Control, Received, Start, ToCollector, ToLauncher, Wanted};
use front::{Front, NotStarted, Running};
use launch::{LaunchedCommand, launch};
use rpd_shard::identity::masked_command;
use rpd_shard::record::RunIdentity;
use spawn::Inherited;
use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use unrecorded::{SMALLEST_CGROUP, is_first};

/// After the command is dead, the launcher waits for nobody but us.
const TIME_TO_FINISH: Duration = Duration::from_secs(5);
/// A collector that has said its last word is gone at once.
const LAST_MOMENT: Duration = Duration::from_millis(100);
/// Characters of a command line that are told to the collector.
const LONGEST_COMMAND: usize = 4096;
/// How a line of the collector begins that is no warning.
const NOTE: &str = "note: ";
/// Lines of the collector that no log could hold; more would be a flood.
const MOST_LINES: usize = 20;

/// Who this collector is, and where its shard goes.
#[derive(Debug)]
pub struct Identity {
    /// Rank, and where it comes from.
    pub rank: RankIdentity,
    /// The run.
    pub run: RunId,
    /// Names of empty files in the folder of the run, by which scripts find it.
    pub marks: Vec<String>,
    /// Output root, absolute.
    pub root: PathBuf,
}

impl Identity {
    /// From the options and the launcher's variables. `random` names a lone run.
    pub fn detect(options: &Options, environment: &Environment, random: u128) -> Identity {
        let rank = launcher::detect_rank(environment, options.rank_env.as_deref());
        if let Some(name) = options.rank_env.as_deref().filter(|name| environment.number(name).is_none()) {
            warn(format_args!(
                "warning: --rank-env names {name}, which holds no number: the rank is another or none"
            ));
        }
        let run = launcher::detect_run_id(options.run_id.as_deref(), environment, launcher::hydra_job)
            .unwrap_or_else(|| launcher::lone_run_id(SystemTime::now(), std::process::id(), random as u32));
        let root = options.output.as_deref().unwrap_or(Path::new("rpd-out"));
        // The file is made later, by another process: by then the path must not depend on anything.
        let root = std::path::absolute(root).unwrap_or_else(|_| root.to_owned());
        Identity { marks: launcher::slurm_marks(environment, &run), rank, run, root }
    }

    /// Names this rank in the name of a folder on its node.
    pub fn label(&self) -> String {
        let rank = self.rank.rank.map_or("none".to_owned(), |rank| format!("{rank:05}"));
        let run: String = self.run.id.chars().filter(char::is_ascii_alphanumeric).take(40).collect();
        format!("{run}-{rank}")
    }

    /// One rank speaks for all.
    pub fn speaks(&self) -> bool {
        self.rank.rank.is_none_or(|rank| rank == 0)
    }
}

/// Everything that is ready before the command starts.
pub struct Session {
    variables: Vec<(String, OsString)>,
    /// A profiler that starts the command.
    front: Option<Front>,
    /// The line that names the backend of each kind of call. Printed once the profiler has started the command.
    announcement: Option<String>,
    /// What profilers write on the node.
    scratch: Option<Scratch>,
    forwarder: Forwarder,
    control: Arc<Control>,
    /// Does not end the command.
    warn_signal: Option<WarnSignal>,
    collector: Child,
    /// Has its header before the command starts.
    early: Option<EarlyShard>,
    /// There is no place for a shard, and that was said.
    refused: bool,
    /// This rank says where the log is.
    speaks: bool,
    /// Warnings that it has said, which are in the log, too.
    said: u64,
}

impl Session {
    /// Gets ready: finds the library, opens the socket, creates the shard, starts the collector. The warnings are
    /// about the options.
    pub fn prepare(
        options: &Options,
        mut placement: Placement,
        mut warnings: Vec<String>,
    ) -> Result<Session, PrepareError> {
        warnings.extend(placement.line.take_if(|line| !line.starts_with(NOTE)));
        let failed = |what| move |source| PrepareError::Resource { what, source };
        if let Some(cgroup) = cgroup::tightest().filter(|cgroup| cgroup.limit < SMALLEST_CGROUP) {
            return Err(PrepareError::Memory(cgroup.limit >> 10));
        }
        let inherited = Inherited::of_this_process();
        let random = random().map_err(failed("read /dev/urandom"))?;
        let (socket, name) =
            Listener::bind(random).map_err(failed("open a socket for the traced processes"))?;
        let own = Identity::detect(options, &Environment::of_this_process(), random);
        let speaks = own.speaks();
        let is_recorded = options.ranks.clone().unwrap_or_default().contains(own.rank.rank);
        // Who is ended while profilers are asked has to clear up.
        let forwarder = Forwarder::install(true).map_err(failed("catch signals"))?;
        let mut plan = plan(&options.asked(), &own.label(), is_recorded);
        let scratch = plan.scratch.take();
        let prepared = match signals::cancelled() {
            Some(signal) => Err(PrepareError::Cancelled(signal)),
            None => variables(options, &plan, &name).map_err(PrepareError::from),
        };
        let started = prepared.and_then(|variables| {
            warnings.append(&mut plan.said);
            if options.require && is_recorded {
                refuse_unseen(options, &plan, own.rank.rank)?;
            }
            let unseen = unseen_command(options, &plan);
            let is_command_unseen = unseen.is_some();
            warnings.extend(unseen);
            let told = warnings.iter().filter(|line| speaks && line.starts_with("warning"));
            let mut said = told.inspect(|line| warn(format_args!("{line}"))).count() as u64;
            let mut announcement = None;
            if let Some(line) = announced(options, &plan).filter(|_| is_recorded) {
                let is_printed = is_first(own.rank.rank, &options.ranks.clone().unwrap_or_default());
                announcement = is_printed.then(|| line.clone());
                warnings.push(line);
            }
            if let Some(chosen) = options.run_id.as_ref().filter(|chosen| speaks && **chosen != own.run.id) {
                let id = &own.run.id;
                warnings
                    .push(format!("warning: run id {chosen:?} is no name for a folder; the folder is {id}"));
            }
            forwarder.get_ready(plan.ends_early);
            let (control, theirs) = Control::pair().map_err(failed("open sockets"))?;
            let control = Arc::new(control);
            let front = Front::of(&mut plan, options.recorded_alone(), speaks);
            if let Some(line) = announcement.take_if(|_| front.is_none()) {
                warn(format_args!("{line}"));
                said += u64::from(line.starts_with("warning"));
            }
            let start = start_of(options, placement, own, plan, (warnings, is_command_unseen));
            let spawn = || spawn::start(&inherited, theirs, socket);
            let launched = launch(start, options.require, &control, spawn)?;
            let told = Arc::clone(&control);
            let warned = move |signal| drop(told.send(&ToCollector::Warned { signal }));
            forwarder.warn(options.warn_signal.map(|signal| signal.number), Box::new(warned));
            Ok((variables, front, announcement, control, launched, said))
        });
        match started {
            Ok((variables, front, announcement, control, launched, said)) => {
                let warn_signal = options.warn_signal;
                let LaunchedCommand { collector, early, refused } = launched;
                Ok(Session {
                    variables,
                    front,
                    announcement,
                    scratch,
                    forwarder,
                    control,
                    warn_signal,
                    collector,
                    early,
                    refused,
                    speaks,
                    said,
                })
            }
            Err(error) => {
                scratch.iter().for_each(Scratch::remove);
                // A signal that came meanwhile would be lost.
                Err(signals::cancelled().map_or(error, PrepareError::Cancelled))
            }
        }
    }

    /// Runs the command to its end, waits for the shard, and says how to end.
    pub fn run(self, command: &[OsString]) -> Ending {
        let started = match &self.front {
            Some(front) => front.start(command, &self.variables, &self.forwarder, &self.control),
            None => child::start(&self.words(command), &self.variables)
                .map(|child| Running { child, below: None, without: None })
                .map_err(NotStarted::from),
        };
        let Running { mut child, below, without } = match started {
            Ok(running) => running,
            Err(not_started) => return self.give_up(not_started),
        };
        if let Some(line) = self.announcement.as_ref().filter(|_| without.is_none()) {
            warn(format_args!("{line}"));
        }
        let top = child.id() as i32;
        let pid = below.as_ref().map_or(top, |below| below.pid);
        self.forwarder.aim_at_command(pid, top);
        if let Some(scratch) = self.scratch.as_ref().filter(|_| self.front.is_none()) {
            // What the command writes there may be nowhere else.
            let _ = start_mark::claim(scratch.path());
        }
        // A collector that is gone is told about at the end.
        let profiler = below.is_some().then_some(top);
        let _ = self.control.send(&ToCollector::Started { pid, profiler, without });
        let (ending, profiler) = match &below {
            None => {
                let ending = wait_for(&mut child);
                let above =
                    self.scratch.as_ref().and_then(|scratch| start_mark::Record::read(scratch.path()));
                (above.and_then(|record| record.ending).unwrap_or(ending), ProfilerEnding::Unseen)
            }
            Some(below) => {
                let ended = below.wait(&mut child, &self.forwarder);
                for text in ended.notes {
                    let _ = self.control.send(&ToCollector::Note { text });
                }
                (ended.ending, ended.profiler)
            }
        };
        let _ = self.control.send(&ToCollector::Finish { pid, exit: ending.exit(), profiler });
        self.hear_out();
        ending
    }

    /// What starts the command.
    fn words(&self, command: &[OsString]) -> Vec<OsString> {
        let ignoring = self
            .warn_signal
            .and_then(|WarnSignal { name, .. }| ignoring::words(ignoring::way(name).as_ref(), name, command));
        ignoring.unwrap_or_else(|| command.to_vec())
    }

    /// Ends without a command. A profiler that ran is worth a word in the log.
    fn give_up(mut self, NotStarted { ending, profiler }: NotStarted) -> Ending {
        match profiler {
            Some((pid, why)) => {
                let _ = self.control.send(&ToCollector::Started { pid, profiler: None, without: Some(why) });
                let profiler = ProfilerEnding::Unseen;
                let _ = self.control.send(&ToCollector::Finish { pid, exit: ending.exit(), profiler });
                self.hear_out();
            }
            None => {
                let _ = self.control.send(&ToCollector::Nothing);
                drop(self.control);
                spawn::wait(&mut self.collector, Instant::now() + LAST_MOMENT);
                self.early.iter().for_each(EarlyShard::remove);
                self.scratch.iter().for_each(Scratch::remove);
            }
        }
        ending
    }

    /// Whether another rank prints a line of the collector: a note, or a consequence of what was said at the start.
    fn is_said(&self, text: &str) -> bool {
        !self.speaks && (text.starts_with(NOTE) || self.refused && self.scratch.is_none())
    }

    /// Waits for the collector, and says what is in no log.
    fn hear_out(mut self) {
        let mut until = Instant::now() + TIME_TO_FINISH;
        let mut lines = Vec::new();
        let mut done = false;
        loop {
            match self.control.receive(Some(until)) {
                // Without a place for the log, either.
                Received::Message(ToLauncher::Say { text }) if self.is_said(&text) => {}
                Received::Message(ToLauncher::Say { text }) => {
                    lines.push(text);
                    lines.truncate(MOST_LINES);
                }
                Received::Message(ToLauncher::SayOnce { text }) => {
                    lines.extend(self.speaks.then_some(text));
                    self.said += 1;
                }
                Received::Message(ToLauncher::Busy) => until = Instant::now() + TIME_TO_FINISH,
                Received::Message(ToLauncher::Done { warnings, log }) => {
                    done = true;
                    let warnings = warnings.saturating_sub(self.said);
                    if warnings > 0 && self.speaks {
                        let (s, log) = (if warnings > 1 { "s" } else { "" }, Path::new(&log).display());
                        lines.push(format!("warning: {warnings} warning{s} about this run in {log}"));
                    }
                }
                Received::Closed => break,
                Received::Nothing if done => break,
                Received::Nothing => {
                    lines.push(format!(
                        "warning: the shard was not finished within {} s after the end of the command; what is \
                         in it so far can be read",
                        TIME_TO_FINISH.as_secs()
                    ));
                    lines.iter().for_each(|line| warn(format_args!("{line}")));
                    return;
                }
            }
        }
        // Otherwise it would be left to a process 1 that may be no init.
        let ended = spawn::wait(&mut self.collector, if done { Instant::now() + LAST_MOMENT } else { until });
        if !done && lines.is_empty() {
            lines.push(why_it_died(ended));
        }
        if let Some(scratch) = self.scratch.filter(|scratch| !done && scratch.path().exists()) {
            let path = scratch.path().display();
            lines.push(format!("warning: what profilers wrote stays on this node, in {path}"));
            scratch::leave(scratch.path());
        }
        lines.iter().for_each(|line| warn(format_args!("{line}")));
    }
}

fn wait_for(command: &mut Child) -> Ending {
    command.wait().map_or_else(
        |error| {
            warn(format_args!("failed to wait for the command: {error}"));
            Ending::Code(1)
        },
        Ending::from,
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

/// Warns of a command that our library cannot be in.
fn unseen_command(options: &Options, plan: &Plan) -> Option<String> {
    let (what, next) = traced_program(options, plan)?.unseen()?;
    Some(format!("warning: {what}; {next}"))
}

/// Refuses a command that our library certainly cannot be in.
fn refuse_unseen(options: &Options, plan: &Plan, rank: Option<u32>) -> Result<(), PrepareError> {
    match traced_program(options, plan).and_then(|program| program.unseen()) {
        Some((what, next)) => {
            let ranks = options.ranks.clone().unwrap_or_default();
            Err(PrepareError::Unseen { what, next, speaks: is_first(rank, &ranks) })
        }
        None => Ok(()),
    }
}

/// The program that our library is to be in; `None` if it is to be in none.
fn traced_program(options: &Options, plan: &Plan) -> Option<ProgramFile> {
    let wanted = plan.native && !options.recorded(plan).library.is_empty();
    options.command.first().filter(|_| wanted).map(|name| ProgramFile::find(name))
}

fn start_of(
    options: &Options,
    placement: Placement,
    own: Identity,
    plan: Plan,
    (warnings, is_command_unseen): (Vec<String>, bool),
) -> Start {
    let run = RunIdentity {
        run_id: own.run.id,
        run_id_from: own.run.from,
        rank: own.rank.rank,
        size: own.rank.size,
        version: env!("CARGO_PKG_VERSION").to_owned(),
    };
    let trace = options.recorded(&plan);
    let library = if plan.native { trace.library } else { Vec::new() };
    let preloaded = (!library.is_empty()).then(preload::library_of_this_process).and_then(Result::ok);
    let ranks = options.ranks.clone().unwrap_or_default();
    let wanted = match &plan.harvest {
        _ if !ranks.contains(own.rank.rank) => Wanted::Events,
        Some(_) if !plan.nothing => Wanted::Clocks,
        None if !plan.nothing && plan.native => Wanted::Events,
        // Nothing was asked for, or nothing of it is there.
        _ => Wanted::Identity,
    };
    let command: Vec<String> =
        options.command.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    Start {
        run,
        root: own.root.into(),
        rank_env: options.rank_env.clone(),
        ranks,
        max_bytes: options.max_bytes(),
        share_group: options.share == Some(Share::Group),
        ask_merge: options.ask_merge,
        marks: own.marks,
        library: library.iter().map(|word| (*word).to_owned()).collect(),
        preloaded: preloaded.map(PathBuf::into_os_string),
        cpus: placement.cpus,
        cpu_note: placement.line,
        system: trace.system && !plan.nothing,
        probes: options.probe_choice(),
        warnings,
        is_command_unseen,
        harvest: plan.harvest,
        wanted,
        // A packet has to hold it.
        command: masked_command(&command).chars().take(LONGEST_COMMAND).collect(),
        early: None,
        refused: false,
    }
}
