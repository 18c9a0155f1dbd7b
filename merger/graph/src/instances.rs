//! Matches entries into collectives: an instance has one entry of every member of its communicator.

use crate::job_calls::{CollectiveEntry, CollectiveWaits, JobCalls, UNKNOWN};
use std::collections::HashMap;

/// An entry of the job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Member {
    pub(crate) timeline: u32,
    /// The call that enters.
    pub(crate) call: u32,
}

/// A collective that all members entered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Instance {
    pub(crate) communicator: u32,
    pub(crate) waits: CollectiveWaits,
    /// Range of its members, in the order of their ranks.
    pub(crate) first_member: u32,
    pub(crate) members: u32,
    /// Number of the root among the members.
    pub(crate) root: Option<u32>,
}

/// Numbers of collectives by what became of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct InstanceCounts {
    /// Collectives that all members entered.
    pub matched: u64,
    /// Collectives that not all members entered, as far as is recorded.
    pub incomplete: u64,
    /// Collectives into which members entered by different functions or with different roots.
    pub mismatched: u64,
}

/// The collectives of a job.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Instances {
    all: Vec<Instance>,
    members: Vec<Member>,
    /// Instance and number among its members of each entry, by timeline.
    of_entry: Vec<Vec<(u32, u32)>>,
    pub(crate) counts: InstanceCounts,
}

/// Instance of an entry that belongs to none.
const NO_INSTANCE: (u32, u32) = (u32::MAX, u32::MAX);

impl Instances {
    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    pub(crate) fn get(&self, instance: u32) -> &Instance {
        &self.all[instance as usize]
    }

    pub(crate) fn members(&self, instance: u32) -> &[Member] {
        let Instance { first_member, members, .. } = self.all[instance as usize];
        &self.members[first_member as usize..][..members as usize]
    }

    /// Returns the instance of an entry and the number of the entry among its members.
    pub(crate) fn of_entry(&self, timeline: usize, entry: usize) -> Option<(u32, u32)> {
        Some(self.of_entry[timeline][entry]).filter(|found| *found != NO_INSTANCE)
    }
}

/// An entry with its place in the job.
#[derive(Clone, Copy, Debug)]
struct Arrival {
    rank: u32,
    timeline: u32,
    entry: u32,
}

/// Matches the entries of a job.
pub(crate) fn match_instances(job: &JobCalls) -> Instances {
    let ranks = ranks_in_communicators(job);
    let mut numbers: HashMap<(u32, u32), u32> = HashMap::new();
    let mut arrivals: Vec<Vec<Arrival>> = Vec::new();
    for (timeline, calls) in (0u32..).zip(&job.timelines) {
        for (entry, found) in (0u32..).zip(&calls.entries) {
            let Some(rank) = ranks.get(&(found.communicator, calls.process)).copied() else { continue };
            let next = arrivals.len() as u32;
            let number = *numbers.entry((found.communicator, found.number)).or_insert(next);
            if number == next {
                arrivals.push(Vec::new());
            }
            arrivals[number as usize].push(Arrival { rank, timeline, entry });
        }
    }
    let mut instances = Instances {
        of_entry: job.timelines.iter().map(|calls| vec![NO_INSTANCE; calls.entries.len()]).collect(),
        ..Instances::default()
    };
    for mut arrived in arrivals {
        arrived.sort_unstable_by_key(|arrival| arrival.rank);
        instances.add(job, &arrived);
    }
    instances
}

impl Instances {
    fn add(&mut self, job: &JobCalls, arrived: &[Arrival]) {
        let entry_of = |arrival: &Arrival| -> &CollectiveEntry {
            &job.timelines[arrival.timeline as usize].entries[arrival.entry as usize]
        };
        let Some(first) = arrived.first().map(entry_of) else { return };
        let groups = &job.communicators[first.communicator as usize].groups;
        let size: usize = groups.iter().map(Vec::len).sum();
        let entered_once = arrived.windows(2).all(|pair| pair[0].rank < pair[1].rank);
        if arrived.len() < size || groups.iter().flatten().any(|process| *process == UNKNOWN) {
            self.counts.incomplete += 1;
            return;
        }
        let is_same = |entry: &CollectiveEntry| (entry.function, entry.root) == (first.function, first.root);
        let between_groups = groups.len() > 1;
        if !entered_once || !(between_groups || arrived.iter().map(entry_of).all(is_same)) {
            self.counts.mismatched += 1;
            return;
        }
        let instance = self.all.len() as u32;
        let first_member = self.members.len() as u32;
        for (number, arrival) in (0u32..).zip(arrived) {
            self.members.push(Member { timeline: arrival.timeline, call: entry_of(arrival).call });
            self.of_entry[arrival.timeline as usize][arrival.entry as usize] = (instance, number);
        }
        // Between two groups the root is named by its own group alone, and both groups have ranks from 0.
        let waits = match first.waits {
            CollectiveWaits::ForAll => CollectiveWaits::ForAll,
            _ if between_groups => CollectiveWaits::Unknown,
            waits => waits,
        };
        let root = u32::try_from(first.root).ok().filter(|root| (*root as usize) < size);
        let needs_root = matches!(waits, CollectiveWaits::ForRoot | CollectiveWaits::RootForAll);
        let waits = if needs_root && root.is_none() { CollectiveWaits::Unknown } else { waits };
        let communicator = first.communicator;
        self.all.push(Instance { communicator, waits, first_member, members: arrived.len() as u32, root });
        self.counts.matched += 1;
    }
}

/// Returns the rank of each process in each communicator. In the second group of an intercommunicator, ranks
/// continue those of the first.
fn ranks_in_communicators(job: &JobCalls) -> HashMap<(u32, u32), u32> {
    let mut ranks = HashMap::new();
    for (communicator, members) in (0u32..).zip(&job.communicators) {
        for (rank, process) in (0u32..).zip(members.groups.iter().flatten()) {
            ranks.entry((communicator, *process)).or_insert(rank);
        }
    }
    ranks
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job_calls::{Call, CallTimeline, CommunicatorMembers};

    /// A job of three processes with these entries: number, function, root.
    fn job(entries: &[&[(u32, u32, i32)]; 3]) -> JobCalls {
        let timeline = |(process, entries): (u32, &&[(u32, u32, i32)])| CallTimeline {
            process,
            calls: (0..entries.len() as i64)
                .map(|call| Call { enter_ns: call, duration_ns: 1, label: 0 })
                .collect(),
            first_work: vec![0; entries.len() + 2],
            entries: (0u32..)
                .zip(*entries)
                .map(|(call, (number, function, root))| CollectiveEntry {
                    call,
                    communicator: 0,
                    number: *number,
                    function: *function,
                    root: *root,
                    waits: CollectiveWaits::ForRoot,
                    is_blocking: true,
                })
                .collect(),
            ..CallTimeline::default()
        };
        JobCalls {
            timelines: (0u32..).zip(entries).map(timeline).collect(),
            communicators: vec![CommunicatorMembers { groups: vec![vec![2, 0, 1]] }],
            processes: 3,
            labels: 1,
            ..JobCalls::default()
        }
    }

    #[test]
    fn members_stand_in_the_order_of_their_ranks() {
        let job = job(&[&[(4, 1, 2)], &[(4, 1, 2)], &[(4, 1, 2)]]);
        assert_eq!(job.check(), Ok(()));
        let found = match_instances(&job);
        let members: Vec<u32> = found.members(0).iter().map(|member| member.timeline).collect();
        assert_eq!((members, found.get(0).root), (vec![2, 0, 1], Some(2)));
        assert_eq!(found.of_entry(2, 0), Some((0, 0)));
    }

    #[test]
    fn what_does_not_fit_is_counted_and_not_used() {
        let lacking = match_instances(&job(&[&[(0, 1, 0)], &[(0, 1, 0), (1, 1, 0)], &[(0, 1, 0)]]));
        assert_eq!((lacking.counts.matched, lacking.counts.incomplete), (1, 1));
        assert_eq!(lacking.of_entry(1, 1), None);
        let functions = match_instances(&job(&[&[(0, 1, 0)], &[(0, 2, 0)], &[(0, 1, 0)]]));
        assert_eq!((functions.counts.mismatched, functions.len()), (1, 0));
        let roots = match_instances(&job(&[&[(0, 1, 0)], &[(0, 1, 1)], &[(0, 1, 0)]]));
        assert_eq!(roots.counts.mismatched, 1);
        let twice = match_instances(&job(&[&[(0, 1, 0), (0, 1, 0)], &[(0, 1, 0)], &[]]));
        assert_eq!(twice.counts.mismatched, 1);
        let no_root = match_instances(&job(&[&[(0, 1, 9)], &[(0, 1, 9)], &[(0, 1, 9)]]));
        assert_eq!(no_root.get(0).waits, CollectiveWaits::Unknown);
    }
}
