//! What each rank found in its inputs, told to all.

use super::nodes::JobNodes;
use crate::input::command_endings::CommandEndings;
use crate::input::death::{ProcessCrash, StoppedProcesses};
use crate::input::opened::OpenInput;
use crate::input::profiler_losses::ProfilerLosses;
use crate::input::source::KeySpace;
use crate::input::survey::InputSurvey;
use rpd_comm::Comm;
use rpd_console::Failure;
use rpd_shard::model::{TableId, rocpd};
use rpd_shard::record::{ClockDomain, Loss, Node, Process, SYSTEM_SOURCE, wire};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use twox_hash::XxHash3_64;

/// Lines of one kind that are printed one by one; the rest is counted.
pub(crate) const MAX_SHOWN_LINES: usize = 10;
/// What one rank found in its shards.
#[derive(Serialize, Deserialize, Default)]
struct Findings {
    nodes: Vec<Node>,
    inputs: Vec<u128>,
    processes: u64,
    kinds: ProcessKinds,
    /// A hash for each process that collectors and profilers have named fully.
    identities: Vec<u64>,
    losses: Vec<Loss>,
    warnings: Vec<String>,
    rows_read: BTreeMap<TableId, u64>,
    /// Processes that died by a signal; the first ones.
    deaths: Vec<ProcessCrash>,
    died: u64,
    crashes: Vec<ProcessCrash>,
    crashed: u64,
    stopped: StoppedProcesses,
    commands: CommandEndings,
    profiler_losses: ProfilerLosses,
    ranks: RanksOfDomains,
}

/// The ranks that read the clocks of each domain.
type RanksOfDomains = BTreeMap<ClockDomain, BTreeSet<u32>>;

/// What all ranks found, in merge order.
#[derive(Debug, Default)]
pub struct JobFindings {
    /// The nodes.
    pub nodes: JobNodes,
    /// Names of the sources.
    pub inputs: Vec<u128>,
    /// Sums per table and cause.
    pub losses: Vec<Loss>,
    /// Damaged places.
    pub warnings: Vec<String>,
    /// Rows read per table.
    pub rows_read: BTreeMap<TableId, u64>,
    /// Number of processes.
    pub processes: u64,
    /// Those of them that are no rank.
    pub kinds: ProcessKinds,
    /// Processes that died; the first ones.
    pub deaths: Vec<ProcessCrash>,
    /// How many died.
    pub died: u64,
    /// Those of them of which there is more to report than the ending of a command; the first ones.
    pub crashes: Vec<ProcessCrash>,
    /// How many these are.
    pub crashed: u64,
    /// Those of them that were ended from outside.
    pub stopped: StoppedProcesses,
    /// How the commands ended.
    pub commands: CommandEndings,
    /// Profilers whose rows are missing.
    pub profiler_losses: ProfilerLosses,
    /// The ranks that read the clocks of each domain, as far as they are known.
    pub ranks: RanksOfDomains,
}

/// Processes of shards that are no rank of the job.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ProcessKinds {
    /// Collectors that recorded the metrics of their node.
    pub collectors: u64,
    /// Children of ranks.
    pub workers: u64,
    /// Second descriptions of a process: rpd-collect recorded it, and a profiler did.
    pub recorded_twice: u64,
}

impl ProcessKinds {
    fn of(surveys: &[InputSurvey]) -> ProcessKinds {
        let mut kinds = ProcessKinds::default();
        for survey in surveys.iter().filter(|survey| matches!(survey.input, OpenInput::Shard(_))) {
            for source in &survey.sources {
                match source.process.source {
                    SYSTEM_SOURCE => kinds.collectors += 1,
                    _ => kinds.workers += u64::from(source.process.worker),
                }
            }
        }
        kinds
    }
}

/// What is the same in all descriptions of one process.
fn identity(process: &Process) -> u64 {
    XxHash3_64::oneshot(&wire::encode(&(&process.domain, process.pid, process.start_ticks)))
}

/// Tells all ranks what each of them found.
pub(crate) fn agree_on_findings(comm: &impl Comm, surveys: &[InputSurvey]) -> Result<JobFindings, Failure> {
    let sources = || surveys.iter().flat_map(|s| &s.sources);
    let mut nodes = JobNodes::default();
    sources().flat_map(|s| &s.nodes).for_each(|(_, node)| nodes.add(node));
    let deaths =
        || surveys.iter().flat_map(|s| s.deaths.iter().map(move |death| (s.commands.include(death), death)));
    let crashes = || deaths().filter(|(is_command, death)| !is_command || death.open > 0);
    let shards = surveys.iter().filter(|survey| matches!(survey.input, OpenInput::Shard(_)));
    let described = shards.flat_map(|survey| &survey.sources).map(|source| &source.process);
    let traced = || described.clone().filter(|process| process.source != SYSTEM_SOURCE);
    let mut mine = Findings {
        nodes: nodes.nodes().to_vec(),
        inputs: surveys.iter().flat_map(|s| s.sources.iter().map(|source| s.input.id_of(source))).collect(),
        processes: sources().filter_map(|s| s.spaces.get(&rocpd::INFO_PROCESS)).map(KeySpace::rows).sum(),
        kinds: ProcessKinds::of(surveys),
        identities: traced().filter(|process| process.start_ticks > 0).map(identity).collect(),
        losses: sum_losses(surveys.iter().flat_map(|s| &s.losses)),
        warnings: surveys.iter().flat_map(|s| s.warnings.clone()).collect(),
        rows_read: BTreeMap::new(),
        deaths: first_deaths(deaths().map(|(_, death)| death.clone())),
        died: deaths().count() as u64,
        crashes: first_deaths(crashes().map(|(_, death)| death.clone())),
        crashed: crashes().count() as u64,
        stopped: StoppedProcesses::default(),
        commands: CommandEndings::default(),
        profiler_losses: ProfilerLosses::default(),
        ranks: ranks_of_domains(surveys),
    };
    surveys.iter().for_each(|s| add_rows(&mut mine.rows_read, &s.rows_read));
    crashes().for_each(|(is_command, death)| mine.stopped.add(death, is_command));
    surveys.iter().for_each(|s| mine.commands.join(s.commands.clone()));
    surveys.iter().for_each(|s| mine.profiler_losses.join(s.profiler_losses.clone()));
    let mut found = JobFindings::default();
    let mut identities = BTreeSet::new();
    for message in comm.all_gather(wire::encode(&mine)) {
        let theirs: Findings = wire::decode_message(&message).map_err(Failure::message)?;
        theirs.nodes.iter().for_each(|node| found.nodes.add(node));
        add_rows(&mut found.rows_read, &theirs.rows_read);
        found.processes += theirs.processes;
        found.kinds.collectors += theirs.kinds.collectors;
        found.kinds.workers += theirs.kinds.workers;
        let is_known = |identity: &u64| !identities.insert(*identity);
        found.kinds.recorded_twice += theirs.identities.iter().copied().filter(is_known).count() as u64;
        found.inputs.extend(theirs.inputs);
        found.losses.extend(theirs.losses);
        found.warnings.extend(theirs.warnings);
        found.deaths.extend(theirs.deaths);
        found.died += theirs.died;
        found.crashes.extend(theirs.crashes);
        found.crashed += theirs.crashed;
        found.stopped.join(theirs.stopped);
        found.commands.join(theirs.commands);
        found.profiler_losses.join(theirs.profiler_losses);
        for (domain, ranks) in theirs.ranks {
            found.ranks.entry(domain).or_default().extend(ranks);
        }
    }
    found.deaths = first_deaths(found.deaths.into_iter());
    found.crashes = first_deaths(found.crashes.into_iter());
    found.losses = sum_losses(found.losses.iter());
    Ok(found)
}

fn ranks_of_domains(surveys: &[InputSurvey]) -> RanksOfDomains {
    let mut ranks = RanksOfDomains::new();
    let mut add = |domain: &ClockDomain, rank: Option<u32>| {
        ranks.entry(domain.clone()).or_default().extend(rank);
    };
    for survey in surveys {
        survey.sources.iter().for_each(|source| add(&source.process.domain, source.process.rank));
        // Of a rank that called nothing there is its collector, which may be the one that probed.
        let (true, Some(set)) = (survey.sources.is_empty(), survey.input.clocks().first()) else { continue };
        if let OpenInput::Shard(shard) = &survey.input {
            add(&set.domain, shard.identity.rank);
        }
    }
    ranks
}

/// As many as are told.
fn first_deaths(deaths: impl Iterator<Item = ProcessCrash>) -> Vec<ProcessCrash> {
    let mut all: Vec<ProcessCrash> = deaths.collect();
    all.sort_by_cached_key(ProcessCrash::order);
    all.truncate(MAX_SHOWN_LINES);
    all
}

fn add_rows(to: &mut BTreeMap<TableId, u64>, rows: &BTreeMap<TableId, u64>) {
    for (table, rows) in rows {
        *to.entry(*table).or_default() += rows;
    }
}

/// One entry per table and cause.
fn sum_losses<'a>(losses: impl Iterator<Item = &'a Loss>) -> Vec<Loss> {
    let mut sums: BTreeMap<_, Option<u64>> = BTreeMap::new();
    for loss in losses {
        let sum = sums.entry((loss.table, loss.cause)).or_insert(Some(0));
        *sum = sum.zip(loss.rows).map(|(a, b)| a.saturating_add(b));
    }
    sums.into_iter().map(|((table, cause), rows)| Loss { source: 0, table, cause, rows }).collect()
}
