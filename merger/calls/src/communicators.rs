//! The communicators of a run, and which processes are members.

use crate::operations::WORLD;
use crate::process_facts::ProcessFacts;
use crate::unit_calls::{Membership, UnitCalls};
use rpd_collectives::is_shared_communicator;
use rpd_graph::{CommunicatorMembers, UNKNOWN};
use std::collections::HashMap;

/// Name of the communicator of all ranks.
const WORLD_NAME: &str = "MPI_COMM_WORLD";
/// Name of the communicator of each process alone.
const SELF_NAME: &str = "MPI_COMM_SELF";
/// A communicator has at most this many members, and more for each member that recorded it. A damaged size could
/// otherwise need any amount of memory.
const MAX_MEMBERS: u64 = 4096;
const MAX_MEMBERS_PER_KNOWN_ONE: u64 = 64;

/// The communicators of a run by name. Number 0 is `MPI_COMM_WORLD`.
#[derive(Debug)]
pub(crate) struct RunCommunicators {
    numbers: HashMap<String, u32>,
    pub(crate) names: Vec<String>,
    members: Vec<Members>,
}

#[derive(Clone, Debug, Default)]
struct Members {
    size: Option<u32>,
    /// Process of each rank that is known.
    processes: HashMap<u32, u32>,
    /// Whether two processes have the same rank, or the sizes differ.
    contradicts: bool,
}

impl RunCommunicators {
    pub(crate) fn new() -> RunCommunicators {
        let mut all = RunCommunicators { numbers: HashMap::new(), names: Vec::new(), members: Vec::new() };
        all.number(WORLD_NAME.to_owned());
        all
    }

    fn number(&mut self, name: String) -> u32 {
        *self.numbers.entry(name).or_insert_with_key(|name| {
            self.names.push(name.clone());
            self.members.push(Members::default());
            self.names.len() as u32 - 1
        })
    }

    /// Adds the communicators of a unit as `process` uses them and returns their numbers in the run. Communicators
    /// whose names differ between processes get a name for each process.
    pub(crate) fn add_names(&mut self, unit: &UnitCalls, process: u32, title: &str) -> Vec<u32> {
        let of = |name: &[u8]| {
            let name = String::from_utf8_lossy(name).into_owned();
            if is_shared_communicator(&name) {
                return self.number(name);
            }
            let is_self = name == SELF_NAME;
            let number = self.number(format!("{name} of {title}"));
            if is_self {
                self.add_member(number, 1, 0, process);
            }
            number
        };
        unit.communicators.iter().map(|name| &**name).map(of).collect()
    }

    /// Adds the members that a process recorded.
    pub(crate) fn add_members(&mut self, memberships: &[Membership], numbers: &[u32], process: u32) {
        for membership in memberships {
            if let Some(number) = numbers.get(membership.communicator as usize) {
                self.add_member(*number, membership.size, membership.rank, process);
            }
        }
    }

    /// Adds a process to the communicator of all ranks.
    pub(crate) fn add_rank(&mut self, facts: &ProcessFacts, rank: u32, process: u32) {
        let size = facts.size.or(self.members[0].size);
        match size {
            Some(size) => self.add_member(0, size, rank, process),
            None => self.add_rank_without_size(rank, process),
        }
    }

    fn add_rank_without_size(&mut self, rank: u32, process: u32) {
        let members = &mut self.members[0];
        members.contradicts |= members.processes.insert(rank, process).is_some_and(|known| known != process);
    }

    fn add_member(&mut self, number: u32, size: u32, rank: u32, process: u32) {
        let members = &mut self.members[number as usize];
        let known_size = *members.size.get_or_insert(size);
        let known_process = *members.processes.entry(rank).or_insert(process);
        members.contradicts |= known_size != size || rank >= size || known_process != process;
    }

    /// Returns the members of each communicator, and the names of those that are not completely known.
    pub(crate) fn finish(&self) -> (Vec<CommunicatorMembers>, Vec<String>) {
        let mut unknown = Vec::new();
        let of = |(members, name): (&Members, &String)| {
            let from_ranks = members.processes.keys().max().map(|last| last.saturating_add(1));
            let size = members.size.or(from_ranks).unwrap_or(0);
            let known = members.processes.len() as u64;
            let max_size = MAX_MEMBERS + MAX_MEMBERS_PER_KNOWN_ONE * known;
            if members.contradicts || size == 0 || u64::from(size) > max_size {
                unknown.push(name.clone());
                return CommunicatorMembers::default();
            }
            let mut group = vec![UNKNOWN; size as usize];
            for (rank, process) in &members.processes {
                group[*rank as usize] = *process;
            }
            if group.contains(&UNKNOWN) {
                unknown.push(name.clone());
            }
            CommunicatorMembers { groups: vec![group] }
        };
        (self.members.iter().zip(&self.names).map(of).collect(), unknown)
    }
}

/// Returns the number in the run of a communicator of a unit.
pub(crate) fn run_number(numbers: &[u32], communicator: u32) -> u32 {
    if communicator == WORLD { 0 } else { numbers.get(communicator as usize).copied().unwrap_or(0) }
}
