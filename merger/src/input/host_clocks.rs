//! Nodes of the job and their clocks, from shards. Finds the node of a foreign file, which names a host at best, and
//! the offset from the file's clock to that node's `CLOCK_BOOTTIME`.

use rpd_shard::Shard;
use rpd_shard::identity::{SPAWNED_MEMBER, is_no_name};
use rpd_shard::record::{Clock, ClockDomain, ClockSet, Node, Process};
use serde::{Deserialize, Serialize};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Time namespace of a process with times that a previous merge converted to job time. It is not a clock of a node.
pub(crate) const MERGED_TIME_NAMESPACE: u64 = u64::MAX;
/// Prefix of the machine id of a node that no file names.
const UNNAMED_PREFIX: &str = "unknown-";
/// Environment variables with the number of nodes of a job. The one of the step comes first, because a step can use a
/// part of the nodes.
const NODES_OF_JOB: [&str; 4] =
    ["SLURM_STEP_NUM_NODES", "SLURM_JOB_NUM_NODES", "SLURM_NNODES", "FLUX_JOB_NNODES"];
/// Environment variables with the number of ranks on a node.
const RANKS_OF_NODE: [&str; 4] =
    ["OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "MV2_COMM_WORLD_LOCAL_SIZE", "LOCAL_WORLD_SIZE"];

/// Largest difference of two offset readings, beyond their brackets, that still counts as the same offset, ns.
const SAME_OFFSET_NS: i64 = 1_000;
/// Maximum number of steps of a wall clock that are kept per node.
const MAX_STEPS: usize = 1_024;
/// Maximum distance between a file's times and the times of a boot's shards for which the file can belong to that
/// boot, ns.
const MAX_BOOT_DISTANCE_NS: i64 = 3_600 * 1_000_000_000;

/// Offset that is added to a clock to get BOOTTIME, valid from a given time on.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct BoottimeOffset {
    /// BOOTTIME of the first reading with this offset, ns.
    from: i64,
    /// BOOTTIME minus the clock, ns.
    pub offset: i64,
    /// Width of the bracket of the reading, ns. The offset is exact to half of it.
    pub bracket: i64,
}

/// Clocks of one boot of a node.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct NodeClocks {
    /// Node as recorded by one of its processes; empty if no process records it.
    node: Node,
    /// First and last BOOTTIME that was read, ns.
    first: i64,
    last: i64,
    monotonic: Vec<BoottimeOffset>,
    realtime: Vec<BoottimeOffset>,
}

/// Clocks of all nodes that have shards.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct HostClocks {
    nodes: BTreeMap<ClockDomain, NodeClocks>,
    /// All host names in shards and translated files.
    names: BTreeSet<String>,
    job: JobExtent,
    /// Rank and size of processes that torch spawned, by run, boot id and pid. Only torch's own files contain them.
    spawned: BTreeMap<ProcessKey, RankAndSize>,
    /// Files that do not name a host, with one process of each.
    nameless: Vec<(String, Process)>,
}

/// Size of the job, from shards with clock records.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct JobExtent {
    ranks: BTreeSet<u32>,
    size: u32,
    nodes: u32,
    ranks_of_node: u32,
}

impl JobExtent {
    fn add(&mut self, process: &Process) {
        let number = |names: &[&str]| {
            let of = |name: &&str| process.environment.iter().find(|(key, _)| key == name);
            names.iter().find_map(|name| of(name)?.1.parse::<u32>().ok()).unwrap_or(0)
        };
        self.ranks.extend(process.rank);
        self.size = self.size.max(process.size.unwrap_or(0));
        self.nodes = self.nodes.max(number(&NODES_OF_JOB));
        self.ranks_of_node = self.ranks_of_node.max(number(&RANKS_OF_NODE));
    }

    fn join(&mut self, other: JobExtent) {
        self.ranks.extend(other.ranks);
        self.size = self.size.max(other.size);
        self.nodes = self.nodes.max(other.nodes);
        self.ranks_of_node = self.ranks_of_node.max(other.ranks_of_node);
    }

    /// Returns whether a process may have run on another node than the only one that has shards. A process of a rank
    /// that has a shard did not.
    fn goes_beyond(&self, process: &Process) -> bool {
        if process.rank.is_some_and(|rank| self.ranks.contains(&rank)) {
            return false;
        }
        let size = if self.ranks.is_empty() { 0 } else { process.size.unwrap_or(0).max(self.size) };
        let here = self.ranks_of_node.max(self.ranks.len() as u32);
        self.nodes > 1 || size > here
    }
}

/// Combines successive readings with the same offset.
fn steps(mut readings: Vec<BoottimeOffset>) -> Vec<BoottimeOffset> {
    readings.sort_unstable();
    let mut steps: Vec<BoottimeOffset> = Vec::new();
    for reading in readings {
        let is_the_same = |last: &&mut BoottimeOffset| {
            reading.offset.saturating_sub(last.offset).saturating_abs()
                <= SAME_OFFSET_NS.saturating_add(last.bracket).saturating_add(reading.bracket)
        };
        let is_below_limit = steps.len() < MAX_STEPS;
        match steps.last_mut().filter(is_the_same) {
            Some(last) if reading.bracket < last.bracket => {
                (last.offset, last.bracket) = (reading.offset, reading.bracket);
            }
            Some(_) => {}
            None if is_below_limit => steps.push(reading),
            None => {}
        }
    }
    steps
}

/// Run id, boot id and pid of a process.
type ProcessKey = (String, String, i32);
/// Rank and size of a process, as far as known.
type RankAndSize = (Option<u32>, Option<u32>);

fn key_of(run: &str, process: &Process) -> ProcessKey {
    (run.to_owned(), process.node.boot_id.clone(), process.pid)
}

/// Returns whether a file does not identify its node.
fn is_nameless(node: &Node) -> bool {
    node.machine_id.starts_with(UNNAMED_PREFIX)
}

/// Returns the BOOTTIME at which a clock showed a time. If the clock was set back and showed a time twice, returns
/// the first BOOTTIME.
pub(crate) fn to_boottime(steps: &[BoottimeOffset], time: i64) -> i64 {
    let next = |place: usize| steps.get(place + 1).map_or(i64::MAX, |next| next.from);
    let mut all = steps.iter().enumerate().map(|(place, step)| (place, time.saturating_add(step.offset)));
    let found = all.find(|(place, boottime)| *boottime < next(*place));
    found.map_or(time, |(_, boottime)| boottime)
}

impl NodeClocks {
    fn of(shard: &Shard) -> Vec<(ClockDomain, NodeClocks)> {
        let mut domains: BTreeMap<&ClockDomain, Vec<&ClockSet>> = BTreeMap::new();
        for set in &shard.clocks {
            domains.entry(&set.domain).or_default().push(set);
        }
        let of = |(domain, sets): (&ClockDomain, Vec<&ClockSet>)| {
            let process = shard.processes.values().find(|process| process.domain == *domain);
            let step = |set: &&ClockSet, clock: i64| BoottimeOffset {
                from: set.boottime,
                offset: set.boottime.saturating_sub(clock),
                bracket: set.bracket.max(0),
            };
            let clocks = NodeClocks {
                node: process.map(|process| process.node.clone()).unwrap_or_default(),
                first: sets.iter().map(|set| set.boottime).min()?,
                last: sets.iter().map(|set| set.boottime).max()?,
                monotonic: steps(sets.iter().map(|set| step(set, set.monotonic)).collect()),
                realtime: steps(sets.iter().map(|set| step(set, set.realtime)).collect()),
            };
            Some((domain.clone(), clocks))
        };
        domains.into_iter().filter_map(of).collect()
    }

    fn join(&mut self, other: NodeClocks) {
        if self.node.hostname.is_empty() {
            self.node = other.node;
        }
        (self.first, self.last) = (self.first.min(other.first), self.last.max(other.last));
        let both =
            |a: &mut Vec<BoottimeOffset>, b: Vec<BoottimeOffset>| *a = steps(a.drain(..).chain(b).collect());
        both(&mut self.monotonic, other.monotonic);
        both(&mut self.realtime, other.realtime);
    }

    fn steps(&self, clock: Clock) -> &[BoottimeOffset] {
        match clock {
            Clock::Boottime => &[],
            Clock::Monotonic => &self.monotonic,
            Clock::Realtime => &self.realtime,
        }
    }

    /// Returns whether a file with this node is from this machine. `same` compares two host names.
    fn is_called(&self, node: &Node, same: impl Fn(&str, &str) -> bool) -> bool {
        let (machine, host) = (&node.machine_id, &node.hostname);
        match machine.is_empty() || machine == host {
            true => same(&self.node.hostname, host),
            false => {
                self.node.machine_id == *machine && (is_no_name(host) || same(&self.node.hostname, host))
            }
        }
    }

    /// Returns whether this boot was running at the time, within [`MAX_BOOT_DISTANCE_NS`].
    fn was_there(&self, clock: Clock, time: i64) -> bool {
        let boottime = to_boottime(self.steps(clock), time);
        time != 0
            && boottime >= self.first.saturating_sub(MAX_BOOT_DISTANCE_NS)
            && boottime <= self.last.saturating_add(MAX_BOOT_DISTANCE_NS)
    }
}

impl HostClocks {
    /// Returns whether no shard contains clock records.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Adds the clocks, host names and processes of a shard.
    pub(super) fn add(&mut self, shard: &Shard) {
        NodeClocks::of(shard).into_iter().for_each(|(domain, found)| self.put(domain, found));
        self.names.extend(shard.processes.values().map(|process| process.node.hostname.clone()));
        for process in shard.processes.values() {
            if process.rank_from.as_deref() == Some(SPAWNED_MEMBER) {
                let key = key_of(&shard.identity.run_id, process);
                self.spawned.insert(key, (process.rank, process.size));
            }
        }
        match shard.clocks.is_empty() {
            false => shard.processes.values().for_each(|process| self.job.add(process)),
            true => {
                let nameless = shard.processes.values().find(|process| is_nameless(&process.node));
                let known = nameless.map(|process| (shard.path().display().to_string(), process.clone()));
                self.nameless.extend(known);
            }
        }
    }

    /// Adds a file that is not a shard and does not name a host.
    pub(super) fn add_nameless(&mut self, path: &Path, process: Process) {
        self.nameless.push((path.display().to_string(), process));
    }

    /// Returns notes about files that do not name a host, if exactly one node has shards.
    pub(super) fn notes(&mut self) -> Vec<String> {
        let nameless = std::mem::take(&mut self.nameless);
        let Some(only) = self.nodes.values().next().filter(|_| self.nodes.len() == 1) else {
            return Vec::new();
        };
        let (mut assumed, mut elsewhere) = (Vec::new(), Vec::new());
        for (path, process) in nameless {
            let mut settled = process.clone();
            if self.find_node(&mut settled) {
                assumed.push(path);
            } else if self.job.goes_beyond(&process) {
                elsewhere.push(path);
            }
        }
        let files = |paths: &[String]| match paths {
            [] => None,
            [path] => Some(format!("{path} names no host of its own")),
            [path, ..] => Some(format!("{} files name no host of their own, as {path}", paths.len())),
        };
        let host = &only.node.hostname;
        let assumed = files(&assumed)
            .map(|files| format!("{files}: taken to be of {host}, the only node that has shards"));
        let elsewhere = files(&elsewhere).map(|files| {
            format!("{files}, and the job has ranks or nodes without shards: not taken to be of {host}, and aligned by wall clocks at best")
        });
        assumed.into_iter().chain(elsewhere).collect()
    }

    /// Adds the clocks of other inputs.
    pub(super) fn join(&mut self, others: HostClocks) {
        for (domain, found) in others.nodes {
            self.put(domain, found);
        }
        self.names.extend(others.names);
        self.spawned.extend(others.spawned);
        self.job.join(others.job);
        self.nameless.extend(others.nameless);
    }

    /// Returns whether two names denote one host. They do if they are equal, or if one is the other without its
    /// domain and no third known name has the same prefix.
    fn are_of_one(&self, a: &str, b: &str) -> bool {
        let (short, long) = if a.len() < b.len() { (a, b) } else { (b, a) };
        let is_long = |name: &str| name.strip_prefix(short).is_some_and(|rest| rest.starts_with('.'));
        let first = format!("{short}.");
        let mut others = self.names.range(first.clone()..).take_while(|name| name.starts_with(&first));
        !short.is_empty() && (a == b || is_long(long) && others.all(|other| other == long))
    }

    fn put(&mut self, domain: ClockDomain, found: NodeClocks) {
        match self.nodes.entry(domain) {
            Entry::Occupied(mut known) => known.get_mut().join(found),
            Entry::Vacant(place) => _ = place.insert(found),
        }
    }

    /// Returns whether shards contain clocks of this boot.
    fn knows_boot(&self, boot_id: &str) -> bool {
        let first = ClockDomain { boot_id: boot_id.to_owned(), time_namespace: 0 };
        self.nodes.range(first..).next().is_some_and(|(domain, _)| domain.boot_id == boot_id)
    }

    /// Returns the offsets from a clock to the BOOTTIME of its domain; empty if they are unknown or not needed.
    pub fn steps(&self, domain: &ClockDomain, clock: Clock) -> &[BoottimeOffset] {
        self.nodes.get(domain).map_or(&[], |known| known.steps(clock))
    }

    /// Assigns the torch rank to a process that torch spawned and that another collector or profiler recorded, too.
    /// For a launcher, such a process is only a part of the process that it started.
    pub(super) fn settle_rank(&self, run: &str, process: &mut Process) {
        if self.spawned.is_empty() || process.rank_from.as_deref() == Some(SPAWNED_MEMBER) {
            return;
        }
        if let Some((rank, size)) = self.spawned.get(&key_of(run, process)) {
            (process.rank, process.size, process.worker) = (*rank, *size, false);
            (process.local_rank, process.rank_from) = (None, Some(SPAWNED_MEMBER.to_owned()));
        }
    }

    /// Finds node and boot of a process that no collector recorded, and replaces the values of its file. The node has
    /// the same host name and was running at the time. If the file names no host, the only node with shards is used,
    /// unless shards show that the job is larger. Returns whether a node was found.
    pub(super) fn find_node(&self, process: &mut Process) -> bool {
        let is_unknown = process.domain.time_namespace != MERGED_TIME_NAMESPACE
            && process.domain.boot_id == process.node.boot_id
            && !self.knows_boot(&process.domain.boot_id);
        if !is_unknown {
            return false;
        }
        let there = |(_, known): &(&ClockDomain, &NodeClocks)| {
            !known.node.hostname.is_empty() && known.was_there(process.clock, process.first_seen)
        };
        let mut found = match is_nameless(&process.node) {
            false => {
                let same = |a: &str, b: &str| self.are_of_one(a, b);
                let called = self.nodes.iter().filter(|(_, known)| known.is_called(&process.node, same));
                called.filter(there).collect::<Vec<_>>()
            }
            true if self.nodes.len() == 1 && !self.job.goes_beyond(process) => {
                self.nodes.iter().filter(there).collect()
            }
            true => Vec::new(),
        };
        let (Some((domain, found_node)), true) = (found.pop(), found.is_empty()) else { return false };
        (process.node, process.domain) = (found_node.node.clone(), domain.clone());
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000_000;

    fn reading(from: i64, offset: i64) -> BoottimeOffset {
        BoottimeOffset { from: from * SECOND, offset, bracket: 100 }
    }

    #[test]
    fn readings_are_one_step_until_the_clock_is_set() {
        let found = steps(vec![
            reading(5, -40),
            reading(1, -50),
            reading(9, 7 * SECOND),
            reading(12, 7 * SECOND + 30),
        ]);
        assert_eq!(found.iter().map(|step| step.from / SECOND).collect::<Vec<_>>(), [1, 9]);
        // Before the first reading, between both, and after the second.
        assert_eq!(to_boottime(&found, -3 * SECOND), -3 * SECOND - 50);
        assert_eq!(to_boottime(&found, 8 * SECOND), 8 * SECOND - 50);
        assert_eq!(to_boottime(&found, 20 * SECOND), 27 * SECOND);
        assert_eq!(to_boottime(&[], 7), 7);
    }

    #[test]
    fn a_time_that_was_skipped_is_placed_behind_the_step() {
        // At 10 s the wall clock was set forward by 5 s.
        let found = steps(vec![reading(0, 0), reading(10, -5 * SECOND)]);
        assert_eq!(to_boottime(&found, 9 * SECOND), 9 * SECOND);
        assert_eq!(to_boottime(&found, 16 * SECOND), 11 * SECOND);
    }

    #[test]
    fn a_name_without_its_domain_is_known_if_it_is_that_of_one_host() {
        let host_clocks = |names: &[&str]| HostClocks {
            names: names.iter().map(|name| (*name).to_owned()).collect(),
            ..HostClocks::default()
        };
        let one = host_clocks(&["node7", "node7.cluster", "node70.cluster", "node8"]);
        assert!(one.are_of_one("node7", "node7.cluster") && one.are_of_one("node7.cluster", "node7"));
        assert!(one.are_of_one("node8", "node8") && one.are_of_one("node9", "node9.cluster"));
        for (a, b) in [("node7", "node70.cluster"), ("node7", "node8"), ("", ".cluster"), ("", "")] {
            assert!(!one.are_of_one(a, b), "{a} {b}");
        }
        let two = host_clocks(&["node7.a", "node7.b"]);
        assert!(!two.are_of_one("node7", "node7.a") && !two.are_of_one("node7.a", "node7.b"));
        assert!(two.are_of_one("node7.a", "node7.a"));
    }
}
