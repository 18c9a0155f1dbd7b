//! The processes that take part in collectives. All merge ranks have the complete list and learn how many of the
//! processes share each communicator.

use super::process_calls::ProcessCollectives;
use rpd_comm::{Comm, all_gather_values};
use rpd_console::Failure;
use rpd_shard::record::ClockDomain;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// A process that takes part in collectives.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct JobParticipant {
    /// Rank in the job, where the process has one.
    pub rank: Option<u32>,
    /// Whether the process is a worker of its rank.
    pub worker: bool,
    /// Time of its first collective call, ns of its node's clock.
    pub began: i64,
    /// Earliest recorded time of the process, ns; the process started no later than this.
    pub first_seen: i64,
    /// Duration from `first_seen` to the last recorded time, ns.
    pub seen_ns: i64,
    /// End of its `MPI_Init`, ns, where it is recorded.
    pub initialized: Option<i64>,
    /// Duration of its `MPI_Init`, ns.
    pub initialization_ns: Option<i64>,
    /// Duration of its `MPI_Finalize`, ns, where it is recorded.
    pub finalization_ns: Option<i64>,
    /// Time that it worked or waited between polls for messages, ns.
    pub poll_gaps_ns: i64,
    /// Whether calls are missing in which it may have waited.
    pub lacks_calls: bool,
    /// Whether its last calls may be missing, because it is still being recorded or its file is truncated.
    pub is_cut: bool,
    /// Whether it has messages that are not compared by time.
    pub hides_messages: bool,
    /// Whether it calls MPI in several threads, so that its own times are not known.
    pub is_in_threads: bool,
    /// Whether MPI put it into an `MPI_COMM_WORLD` of its own although the launcher started several processes.
    pub is_singleton: bool,
    /// Process id.
    pub pid: i32,
    /// Host name of its node.
    pub host: String,
    /// Clock domain of the clocks that it read.
    pub domain: ClockDomain,
}

impl JobParticipant {
    /// Returns the name of the process in messages.
    pub fn name(&self) -> String {
        match self.rank {
            Some(rank) => format!("rank {rank}"),
            None => format!("pid {} on {}", self.pid, self.host),
        }
    }
}

#[cfg(test)]
impl JobParticipant {
    /// A rank for tests: two ranks on each node, and nothing that hides a call.
    pub(crate) fn for_test(rank: u32) -> JobParticipant {
        JobParticipant {
            rank: Some(rank),
            worker: false,
            began: 0,
            first_seen: 0,
            seen_ns: 0,
            initialized: None,
            initialization_ns: None,
            finalization_ns: None,
            poll_gaps_ns: 0,
            lacks_calls: false,
            is_cut: false,
            hides_messages: false,
            is_in_threads: false,
            is_singleton: false,
            pid: 1,
            host: format!("h{}", rank / 2),
            domain: ClockDomain { boot_id: format!("node-{}", rank / 2), time_namespace: 0 },
        }
    }
}

/// The participants of the job.
#[derive(Debug, Default)]
pub struct JobMembers {
    /// All participants, in merge order.
    pub all: Vec<JobParticipant>,
    /// Index of the first participant of this merge rank.
    pub first: u32,
}

impl JobMembers {
    /// Gathers the participants of all merge ranks.
    pub fn gather(comm: &impl Comm, own: &Vec<JobParticipant>) -> Result<JobMembers, Failure> {
        let mut members = JobMembers::default();
        for (rank, theirs) in all_gather_values(comm, own)?.into_iter().enumerate() {
            if rank == comm.rank() {
                members.first = members.all.len() as u32;
            }
            members.all.extend(theirs);
        }
        Ok(members)
    }

    /// Returns the ranks that the launcher started together, but that MPI put into separate jobs of one process
    /// each.
    pub fn singleton_ranks(&self) -> BTreeSet<u32> {
        self.all.iter().filter(|one| one.is_singleton && !one.worker).filter_map(|one| one.rank).collect()
    }

    /// Returns the recorded duration of the run, ns.
    pub(super) fn run_ns(&self) -> i64 {
        self.all.iter().map(|one| one.seen_ns).max().unwrap_or(0)
    }

    /// Returns the participant with this index.
    pub fn get(&self, number: u32) -> Option<&JobParticipant> {
        self.all.get(number as usize)
    }

    /// Returns for each participant the first one of the same rank on the same node. A rank may have several
    /// processes, and a process several files.
    pub(super) fn firsts<'a>(&'a self) -> Vec<u32> {
        let mut known: BTreeMap<(u32, bool, &str), u32> = BTreeMap::new();
        let first = |(number, member): (u32, &'a JobParticipant)| match member.rank {
            Some(rank) => *known.entry((rank, member.worker, &member.host)).or_insert(number),
            None => number,
        };
        (0..).zip(&self.all).map(first).collect()
    }

    /// Returns the name of a participant in messages.
    pub fn name(&self, number: u32) -> String {
        self.get(number).map_or_else(|| "a process".to_owned(), JobParticipant::name)
    }
}

/// A participant that used a communicator: whether it is a worker, when it began, and its index.
type User = (bool, i64, u32);

/// Separates communicators of one name that several processes of one rank used. It does the same for several
/// files of one process that each have a part of its calls. The first users of all ranks belong together, then
/// the second users, and so on.
pub(super) fn separate_communicators(
    comm: &impl Comm,
    members: &JobMembers,
    processes: &mut [ProcessCollectives],
) -> Result<(), Failure> {
    let mut of_rank: BTreeMap<u32, u32> = BTreeMap::new();
    for rank in members.all.iter().filter_map(|member| member.rank) {
        *of_rank.entry(rank).or_default() += 1;
    }
    let is_one_of_several = |member: &JobParticipant| {
        member.rank.is_some_and(|rank| of_rank.get(&rank).is_some_and(|count| *count > 1))
    };
    let numbers = || (members.first..).zip(members.all.iter().skip(members.first as usize));
    let mine: Vec<(u32, Vec<u64>)> = numbers()
        .zip(processes.iter())
        .filter(|((_, member), _)| is_one_of_several(member))
        .map(|((number, _), process)| (number, process.communicators.keys().copied().collect()))
        .collect();
    let mut by_comm: BTreeMap<(u32, u64), Vec<User>> = BTreeMap::new();
    for (number, comms) in all_gather_values::<Vec<(u32, Vec<u64>)>>(comm, &mine)?.into_iter().flatten() {
        let Some(member) = members.get(number) else { continue };
        let Some(rank) = member.rank else { continue };
        for hash in comms {
            by_comm.entry((rank, hash)).or_default().push((member.worker, member.began, number));
        }
    }
    by_comm.values_mut().for_each(|users| users.sort_unstable());
    for ((number, member), process) in numbers().zip(processes) {
        let Some(rank) = member.rank.filter(|_| is_one_of_several(member)) else { continue };
        let place = |hash: &u64| {
            let users = by_comm.get(&(rank, *hash))?;
            Some((*hash, users.iter().position(|(_, _, user)| *user == number)? as u32))
        };
        let earlier = process.communicators.keys().filter_map(place).collect();
        process.rename_communicators(&earlier);
    }
    Ok(())
}

/// Returns for each process of this merge rank the number of processes in the job that share each of its
/// communicators.
pub(super) fn sizes(
    comm: &impl Comm,
    processes: &[ProcessCollectives],
) -> Result<Vec<BTreeMap<u64, u32>>, Failure> {
    let ranks = comm.size();
    let owner = |hash: u64| (hash % ranks as u64) as usize;
    let mut asked: Vec<Vec<u8>> = vec![Vec::new(); ranks];
    for hash in processes.iter().flat_map(|process| process.communicators.keys()) {
        asked[owner(*hash)].extend_from_slice(&hash.to_le_bytes());
    }
    let questions = comm.all_to_all(asked);
    let mut counts: BTreeMap<u64, u32> = BTreeMap::new();
    for hash in questions.iter().flat_map(|q| hashes(q)) {
        *counts.entry(hash).or_default() += 1;
    }
    let answer = |question: &Vec<u8>| {
        let counts = hashes(question).map(|hash| counts.get(&hash).copied().unwrap_or(0));
        counts.flat_map(u32::to_le_bytes).collect::<Vec<u8>>()
    };
    let answers = comm.all_to_all(questions.iter().map(answer).collect());
    let mut next: Vec<_> = answers.iter().map(|a| a.as_chunks::<4>().0.iter()).collect();
    let mut size_of = |hash: u64| {
        let bytes = next.get_mut(owner(hash))?.next()?;
        Some((hash, u32::from_le_bytes(*bytes)))
    };
    let sizes = processes
        .iter()
        .map(|process| process.communicators.keys().map(|hash| size_of(*hash)).collect::<Option<_>>());
    sizes.collect::<Option<Vec<_>>>().ok_or_else(|| Failure::damaged_message("too few answers"))
}

/// Returns the name and the participants of each of the given communicators.
pub(super) fn details(
    comm: &impl Comm,
    first: u32,
    processes: &[ProcessCollectives],
    communicators: &BTreeSet<u64>,
) -> Result<BTreeMap<u64, (String, Vec<u32>)>, Failure> {
    let mut mine: Vec<(u64, u32, String)> = Vec::new();
    for (number, process) in (first..).zip(processes) {
        let known = communicators.iter().filter_map(|hash| Some((hash, process.communicators.get(hash)?)));
        mine.extend(known.map(|(hash, known)| (*hash, number, known.name.to_string())));
    }
    let mut all: BTreeMap<u64, (String, Vec<u32>)> = BTreeMap::new();
    for (hash, number, name) in
        all_gather_values::<Vec<(u64, u32, String)>>(comm, &mine)?.into_iter().flatten()
    {
        all.entry(hash).or_insert_with(|| (name, Vec::new())).1.push(number);
    }
    Ok(all)
}

fn hashes(bytes: &[u8]) -> impl Iterator<Item = u64> + '_ {
    bytes.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word))
}
