//! Starts the threads of the collector process and their shard, before the command starts.

use super::control::StartMessage;
use crate::child::signals;
use crate::clock_probe::{ProbeAgent, ProbeConfig};
use crate::drain::{RecordedThreads, RingCollector, RingListener};
use crate::host::machine;
use crate::launcher::{
    LauncherEnvironment, RankIdentity, SourceDefaults, detect_rank, is_on_one_node, most_ranks_of_node,
};
use crate::log::{TOO_MANY_FILES, warn};
use crate::node_metrics::{SystemConfig, SystemSampler};
use crate::python_samples::PythonSampler;
use crate::run_folder;
use crate::shard_output::{ShardBeginning, ShardOutput, ShardPlace, SideOutput};
use rpd_shard::record::{ClockDomain, SYSTEM_SOURCE};
use rustix::fd::OwnedFd;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::Receiver;

/// Ignores the signals that are for the job, and releases what the job needs.
pub(super) fn step_aside() -> io::Result<()> {
    signals::survive()?;
    // The default name would be that of `/proc/self/exe`.
    let _ = rustix::thread::set_name(c"rpd-collector");
    // Every process may raise its own score. If that fails, the kernel chooses by size.
    let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
    // Threads that start together need a connection each.
    let files = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: files.maximum, ..files });
    std::env::set_current_dir("/")
}

/// The recorders that run until the command has ended.
pub(super) struct StartedRecorders {
    pub(super) collector: RingCollector,
    pub(super) system: Option<SystemSampler>,
    pub(super) python: Option<PythonSampler>,
    pub(super) probes: Option<ProbePlan>,
    pub(super) finished: Receiver<Option<PathBuf>>,
    pub(super) side: SideOutput,
    pub(super) defaults: SourceDefaults,
    pub(super) place: ShardPlace,
}

/// The clock probes start with the command, so that a command that cannot be started leaves nothing.
pub(super) struct ProbePlan {
    config: ProbeConfig,
    output: SideOutput,
}

impl ProbePlan {
    /// `None` for a job on one node, and for a rank that is not recorded.
    fn of(
        start: &StartMessage,
        rank: &RankIdentity,
        domain: &ClockDomain,
        output: &ShardOutput,
    ) -> Option<ProbePlan> {
        let choice = start.probes.clone()?;
        let own = start.run.rank.filter(|own| start.ranks.contains(Some(*own)))?;
        if is_on_one_node(&LauncherEnvironment::of_this_process(), rank) {
            return None;
        }
        let (root, run_id) = (PathBuf::from(&start.root), start.run.run_id.clone());
        let config = ProbeConfig::new(root, run_id, own, domain.clone(), start.share_group, choice);
        Some(ProbePlan { config, output: output.side() })
    }

    pub(super) fn start(self) -> Option<ProbeAgent> {
        let agent = ProbeAgent::start(self.config, self.output);
        agent.inspect_err(|error| warn(format_args!("no clock probes: {error}"))).ok()
    }
}

/// Returns the state in which the parent process left the shard.
pub(super) fn beginning(start: &StartMessage, file: Option<File>) -> io::Result<ShardBeginning> {
    let Some(early) = start.early.clone() else {
        return Ok(if start.refused { ShardBeginning::Refused } else { ShardBeginning::Nothing });
    };
    run_folder::note_made();
    // The kernel passes no file to a process without a free descriptor.
    let file = file.ok_or_else(|| io::Error::from_raw_os_error(TOO_MANY_FILES))?;
    Ok(ShardBeginning::Shard(file, early))
}

pub(super) fn begin(
    start: &StartMessage,
    beginning: ShardBeginning,
    socket: OwnedFd,
) -> io::Result<StartedRecorders> {
    let domain = machine::clock_domain();
    let defaults = SourceDefaults {
        rank: detect_rank(&LauncherEnvironment::of_this_process(), start.rank_env.as_deref()),
        rank_is_named: start.rank_env.is_some(),
        ranks: start.ranks.clone(),
        node: machine::node(),
        domain: domain.clone(),
    };
    let place = start.place(domain);
    let threads = RecordedThreads::default();
    let metrics = SystemConfig {
        source: SYSTEM_SOURCE,
        run: Path::new(&start.root).join(&start.run.run_id),
        defaults: defaults.clone(),
        root: PathBuf::from("/"),
        retry: SystemConfig::RETRY,
        threads: threads.clone(),
    };
    let (output, finished) = ShardOutput::start_with(place.clone(), beginning)?;
    let side = output.side();
    // A node without a recorded rank has no counters either.
    let wanted = start.system && start.is_recorded();
    let system = wanted.then(|| SystemSampler::start(metrics, output.side())).transpose();
    let system = system.unwrap_or_else(|error| {
        warn(format_args!("warning: no system metrics are recorded: failed to start a thread: {error}"));
        None
    });
    let python = start_python(start, &threads, side.clone());
    let probes = ProbePlan::of(start, &defaults.rank, &defaults.domain, &output);
    let collector = RingCollector::start(RingListener::new(socket), defaults.clone(), threads, output)?;
    Ok(StartedRecorders { collector, system, python, probes, finished, side, defaults, place })
}

/// Starts to sample Python stacks, if that is wanted.
fn start_python(start: &StartMessage, threads: &RecordedThreads, side: SideOutput) -> Option<PythonSampler> {
    if !start.python || !start.is_recorded() {
        return None;
    }
    let ranks = most_ranks_of_node(&LauncherEnvironment::of_this_process()).unwrap_or(1);
    let started = PythonSampler::start(threads.clone(), ranks, side);
    started
        .inspect_err(|error| {
            warn(format_args!("warning: no Python stacks are recorded: failed to start a thread: {error}"));
        })
        .ok()
}
