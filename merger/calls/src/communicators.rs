//! The communicators of a run, and which processes are members.

use crate::gpu_collectives::GpuCommunicator;
use crate::merged_metadata::MergedMembers;
use crate::operations::WORLD;
use crate::process_facts::ProcessFacts;
use crate::unit_calls::{Membership, UnitCalls};
use rpd_collectives::is_shared_communicator;
use rpd_graph::{CommunicatorMembers, UNKNOWN};
use std::collections::{BTreeSet, HashMap, HashSet};

/// Name of the communicator of all ranks.
const WORLD_NAME: &str = "MPI_COMM_WORLD";
/// Name of the communicator of each process alone.
const SELF_NAME: &str = "MPI_COMM_SELF";
/// A communicator has at most this many members, and more for each member that recorded it. A damaged size could
/// otherwise need any amount of memory.
const MAX_MEMBERS: u64 = 4096;
const MAX_MEMBERS_PER_KNOWN_ONE: u64 = 64;
/// Maximum number of times that an intercommunicator was duplicated from a duplicate.
const MAX_DUPLICATES: usize = 16;

/// The communicators of a run by name. Number 0 is `MPI_COMM_WORLD`.
#[derive(Debug)]
pub(crate) struct RunCommunicators {
    numbers: HashMap<String, u32>,
    pub(crate) names: Vec<String>,
    members: Vec<KnownMembers>,
    /// Those whose collectives are numbered by the order of kernels.
    pub(crate) by_order: HashSet<u32>,
}

#[derive(Clone, Debug, Default)]
struct KnownMembers {
    /// The only group, or that of each side of an intercommunicator.
    groups: [MemberGroup; 2],
    is_of_sides: bool,
    /// The communicators of both sides of an intercommunicator without recorded sides, or the intercommunicator from which
    /// this communicator was created.
    origins: BTreeSet<u32>,
    /// The processes of a communicator that only kernels show, and its size.
    participants: BTreeSet<u32>,
    expected_participants: Option<u32>,
}

#[derive(Clone, Debug, Default)]
struct MemberGroup {
    size: Option<u32>,
    /// Process of each rank that is known.
    processes: HashMap<u32, u32>,
    /// Whether two processes have the same rank, or the sizes differ.
    contradicts: bool,
}

impl RunCommunicators {
    pub(crate) fn new() -> RunCommunicators {
        let mut all = RunCommunicators {
            numbers: HashMap::new(),
            names: Vec::new(),
            members: Vec::new(),
            by_order: HashSet::new(),
        };
        all.number(WORLD_NAME.to_owned());
        all
    }

    fn number(&mut self, name: String) -> u32 {
        *self.numbers.entry(name).or_insert_with_key(|name| {
            self.names.push(name.clone());
            self.members.push(KnownMembers::default());
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
                self.members[number as usize].groups[0].add(Some(1), 0, process);
            }
            number
        };
        unit.communicators.iter().map(|name| &**name).map(of).collect()
    }

    /// Adds the communicators that the kernels of a process show, and returns their numbers in the run.
    pub(crate) fn add_gpu(&mut self, found: &[GpuCommunicator], process: u32) -> Vec<u32> {
        let of = |found: &GpuCommunicator| {
            let number = self.number(found.name.clone());
            let known = &mut self.members[number as usize];
            known.participants.insert(process);
            known.expected_participants = known.expected_participants.or(found.size);
            if found.is_by_order {
                self.by_order.insert(number);
            }
            number
        };
        found.iter().map(of).collect()
    }

    /// Adds the members that a process recorded.
    pub(crate) fn add_members(&mut self, memberships: &[Membership], numbers: &[u32], process: u32) {
        for membership in memberships {
            let Some(number) = numbers.get(membership.communicator as usize) else { continue };
            let origin = numbers.get(membership.origin as usize).copied();
            let members = &mut self.members[*number as usize];
            if is_between_groups(&self.names[*number as usize]) && membership.side.is_none() {
                members.origins.extend(origin);
            }
            members.is_of_sides |= membership.side.is_some();
            let group = &mut members.groups[usize::from(membership.side.unwrap_or(0).min(1))];
            group.add(Some(membership.size), membership.rank, process);
        }
    }

    /// Adds members that the metadata of the merge name. `processes` are the numbers of those with these keys.
    pub(crate) fn add_merged(&mut self, merged: &[MergedMembers], processes: &HashMap<i64, u32>) {
        for MergedMembers { name, size, side, members } in merged {
            let Some(number) = self.numbers.get(name).filter(|_| is_shared_communicator(name)) else {
                continue;
            };
            let known = &mut self.members[*number as usize];
            known.is_of_sides |= side.is_some();
            let group = &mut known.groups[usize::from(side.unwrap_or(0))];
            for (rank, process) in members {
                if let Some(process) = processes.get(process) {
                    group.add(Some(*size), *rank, *process);
                }
            }
        }
    }

    /// Adds a process to the communicator of all ranks.
    pub(crate) fn add_rank(&mut self, facts: &ProcessFacts, rank: u32, process: u32) {
        self.members[0].groups[0].add(facts.size, rank, process);
    }

    /// Returns the members of each communicator, and the names of those that are not completely known.
    pub(crate) fn finish(&self) -> (Vec<CommunicatorMembers>, Vec<String>) {
        let mut unknown = Vec::new();
        let of = |(members, name): (&KnownMembers, &String)| {
            if !members.participants.is_empty() {
                let found: Vec<u32> = members.participants.iter().copied().collect();
                let are_all = members.expected_participants.is_none_or(|size| size as usize == found.len());
                if !are_all {
                    unknown.push(name.clone());
                }
                return CommunicatorMembers { groups: if are_all { vec![found] } else { Vec::new() } };
            }
            let (groups, expected) = self.groups_of(members);
            let groups: Vec<Vec<u32>> =
                groups.into_iter().take(expected).filter_map(MemberGroup::processes).collect();
            let are_known = groups.len() == expected;
            if !are_known || groups.iter().any(|group| group.contains(&UNKNOWN)) {
                unknown.push(name.clone());
            }
            CommunicatorMembers { groups: if are_known { groups } else { Vec::new() } }
        };
        (self.members.iter().zip(&self.names).map(of).collect(), unknown)
    }

    /// Returns the groups of a communicator as far as they are known, and their number. An intercommunicator without
    /// recorded sides has those of the two communicators that it was created from; a duplicate of it is created from the
    /// intercommunicator itself. Where sides are recorded, a communicator without them has one group, also if it was
    /// created from one with sides, as by `MPI_Intercomm_merge`.
    fn groups_of<'a>(&'a self, members: &'a KnownMembers) -> (Vec<&'a MemberGroup>, usize) {
        if members.origins.is_empty() {
            return (members.groups.iter().collect(), 1 + usize::from(members.is_of_sides));
        }
        let mut created_from = members;
        for _ in 0..MAX_DUPLICATES {
            match created_from.origins.iter().collect::<Vec<_>>()[..] {
                [only] if self.members[*only as usize].is_of_sides => return (vec![&members.groups[0]], 1),
                [only] => created_from = &self.members[*only as usize],
                [first, second] => {
                    let groups = [first, second].map(|origin| &self.members[*origin as usize].groups[0]);
                    return (groups.to_vec(), 2);
                }
                _ => break,
            }
        }
        (Vec::new(), 2)
    }
}

/// Returns whether a name is that of an intercommunicator, or of what was created from one.
fn is_between_groups(name: &str) -> bool {
    name.starts_with("inter/")
}

impl MemberGroup {
    fn add(&mut self, size: Option<u32>, rank: u32, process: u32) {
        let known_size = self.size.or(size);
        let known_process = *self.processes.entry(rank).or_insert(process);
        let differs = size.is_some_and(|size| known_size != Some(size));
        self.contradicts |=
            differs || known_size.is_some_and(|size| rank >= size) || known_process != process;
        self.size = known_size;
    }

    /// Returns the process of each rank; `None` if the group contradicts itself.
    fn processes(&self) -> Option<Vec<u32>> {
        let from_ranks = self.processes.keys().max().map(|last| last.saturating_add(1));
        let size = self.size.or(from_ranks).unwrap_or(0);
        let max_size = MAX_MEMBERS + MAX_MEMBERS_PER_KNOWN_ONE * self.processes.len() as u64;
        if self.contradicts || size == 0 || u64::from(size) > max_size {
            return None;
        }
        let mut group = vec![UNKNOWN; size as usize];
        for (rank, process) in &self.processes {
            *group.get_mut(*rank as usize)? = *process;
        }
        Some(group)
    }
}

/// Returns the number in the run of a communicator of a unit.
pub(crate) fn run_number(numbers: &[u32], communicator: u32) -> u32 {
    if communicator == WORLD { 0 } else { numbers.get(communicator as usize).copied().unwrap_or(0) }
}
