//! Combines what each merge rank found in its inputs; every rank gets the same totals.

use super::nodes::JobNodes;
use crate::input::KeySpace;
use crate::input::survey::{CommandExits, InputSurvey, ProcessCrash, ProfilerLosses, StoppedProcesses};
use rpd_comm::{Comm, all_gather_values};
use rpd_console::Failure;
use rpd_shard::model::{TableId, native, rocpd};
use rpd_shard::record::{ClockDomain, Loss, Node, Process, SYSTEM_SOURCE, wire};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use twox_hash::XxHash3_64;

/// Maximum number of lines of one kind that are printed; further ones are counted.
pub(crate) const MAX_SHOWN_LINES: usize = 10;

/// Findings of one rank in its inputs.
#[derive(Serialize, Deserialize)]
struct RankFindings {
    nodes: Vec<Node>,
    /// A hash for each process with a known start time. Equal hashes are two descriptions of one process, by a
    /// collector and by a profiler.
    identities: Vec<u64>,
    /// All other findings.
    totals: JobFindings,
}

/// Ranks that read the clocks of each domain.
type RanksOfDomains = BTreeMap<ClockDomain, BTreeSet<u32>>;

/// Totals of all ranks, in merge order.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct JobFindings {
    /// Nodes of the job.
    #[serde(skip)]
    pub nodes: JobNodes,
    /// Ids of the sources.
    pub inputs: Vec<u128>,
    /// Sums per table and cause.
    pub losses: Vec<Loss>,
    /// Warnings, one per damaged place.
    pub warnings: Vec<String>,
    /// Rows read per table.
    pub rows_read: BTreeMap<TableId, u64>,
    /// Maximum number of calls to MPI.
    pub mpi_calls: u64,
    /// Number of these that `rpd-collect` recorded.
    pub collected_calls: u64,
    /// Number of processes that call MPI in several threads.
    pub in_threads: u32,
    /// Number of processes.
    pub processes: u64,
    /// Number of these processes that are not ranks.
    pub kinds: ProcessKinds,
    /// The first processes that died by a signal, and ranks that failed.
    pub deaths: Vec<ProcessCrash>,
    /// Number of all these processes.
    pub died: u64,
    /// The first of these processes for which more than the exit of a command is reported.
    pub crashes: Vec<ProcessCrash>,
    /// Number of processes for which more is reported.
    pub crashed: u64,
    /// Those of these processes that a signal from outside ended.
    pub stopped: StoppedProcesses,
    /// How the commands ended.
    pub commands: CommandExits,
    /// Profilers with missing rows.
    pub profiler_losses: ProfilerLosses,
    /// Ranks that read the clocks of each domain, as far as known.
    pub ranks: RanksOfDomains,
}

/// Processes in shards that are not ranks of the job.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ProcessKinds {
    /// Collectors that recorded the metrics of their node.
    pub collectors: u64,
    /// Workers.
    pub workers: u64,
    /// Processes with two descriptions, one of rpd-collect and one of a profiler.
    pub recorded_twice: u64,
}

impl ProcessKinds {
    fn of<'a>(processes: impl Iterator<Item = &'a Process>) -> ProcessKinds {
        let mut kinds = ProcessKinds::default();
        for process in processes {
            match process.source {
                SYSTEM_SOURCE => kinds.collectors += 1,
                _ => kinds.workers += u64::from(process.worker),
            }
        }
        kinds
    }
}

/// Returns a hash of the fields that are equal in all descriptions of one process.
fn identity(process: &Process) -> u64 {
    XxHash3_64::oneshot(&wire::encode(&(&process.domain, process.pid, process.start_ticks)))
}

/// Exchanges what each rank found, and combines it to totals.
pub(crate) fn agree_on_findings(comm: &impl Comm, surveys: &[InputSurvey]) -> Result<JobFindings, Failure> {
    let sources = || surveys.iter().flat_map(|s| &s.sources);
    let mut nodes = JobNodes::default();
    sources().flat_map(|s| &s.nodes).for_each(|(_, node)| nodes.add(node));
    let deaths =
        || surveys.iter().flat_map(|s| s.deaths.iter().map(move |death| (s.commands.include(death), death)));
    let crashes = || deaths().filter(|(is_command, death)| !is_command || death.open > 0);
    let shards = surveys.iter().filter(|survey| survey.input.shard().is_some());
    let described = shards.flat_map(|survey| &survey.sources).map(|source| &source.process);
    let traced = || described.clone().filter(|process| process.source != SYSTEM_SOURCE);
    let mut totals = JobFindings {
        inputs: surveys.iter().flat_map(|s| s.sources.iter().map(|source| s.input.id_of(source))).collect(),
        processes: sources().filter_map(|s| s.spaces.get(&rocpd::INFO_PROCESS)).map(KeySpace::rows).sum(),
        kinds: ProcessKinds::of(described.clone()),
        losses: sum_losses(surveys.iter().flat_map(|s| &s.losses)),
        warnings: surveys.iter().flat_map(|s| s.warnings.clone()).collect(),
        deaths: first_deaths(deaths().map(|(_, death)| death.clone())),
        died: deaths().count() as u64,
        crashes: first_deaths(crashes().map(|(_, death)| death.clone())),
        crashed: crashes().count() as u64,
        ranks: ranks_of_domains(surveys),
        in_threads: sources().filter(|s| s.collectives.mpi.are_of_several_threads()).count() as u32,
        ..JobFindings::default()
    };
    crashes().for_each(|(is_command, death)| totals.stopped.add(death, is_command));
    for survey in surveys {
        add_rows(&mut totals.rows_read, &survey.rows_read);
        totals.mpi_calls = totals.mpi_calls.saturating_add(survey.mpi_calls());
        let collected = survey.rows_read.get(&native::MPI_CALL).copied().unwrap_or(0);
        totals.collected_calls = totals.collected_calls.saturating_add(collected);
        totals.commands.join(survey.commands.clone());
        totals.profiler_losses.join(survey.profiler_losses.clone());
    }
    let identities = traced().filter(|process| process.start_ticks > 0).map(identity).collect();
    let mine = RankFindings { nodes: nodes.nodes().to_vec(), identities, totals };
    let mut found = JobFindings::default();
    let mut known_identities = BTreeSet::new();
    for RankFindings { nodes, identities, totals: theirs } in all_gather_values(comm, &mine)? {
        nodes.iter().for_each(|node| found.nodes.add(node));
        add_rows(&mut found.rows_read, &theirs.rows_read);
        found.mpi_calls = found.mpi_calls.saturating_add(theirs.mpi_calls);
        found.collected_calls = found.collected_calls.saturating_add(theirs.collected_calls);
        found.in_threads = found.in_threads.saturating_add(theirs.in_threads);
        found.processes += theirs.processes;
        found.kinds.collectors += theirs.kinds.collectors;
        found.kinds.workers += theirs.kinds.workers;
        let repeated = identities.into_iter().filter(|identity| !known_identities.insert(*identity));
        found.kinds.recorded_twice += repeated.count() as u64;
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
        // For a rank that called nothing, the shard describes only its collector, which may have probed.
        let Some(shard) = survey.input.shard().filter(|_| survey.sources.is_empty()) else { continue };
        if let Some(set) = shard.clocks.first() {
            add(&set.domain, shard.identity.rank);
        }
    }
    ranks
}

/// Returns the first crashes, as many as are printed.
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

/// Sums up losses, with one entry per table and cause.
fn sum_losses<'a>(losses: impl Iterator<Item = &'a Loss>) -> Vec<Loss> {
    let mut sums: BTreeMap<_, Option<u64>> = BTreeMap::new();
    for loss in losses {
        let sum = sums.entry((loss.table, loss.cause)).or_insert(Some(0));
        *sum = sum.zip(loss.rows).map(|(a, b)| a.saturating_add(b));
    }
    sums.into_iter().map(|((table, cause), rows)| Loss { source: 0, table, cause, rows }).collect()
}
