//! Matches entries into collectives: an instance has one entry of every member of its communicator.

use crate::job_calls::{CallTimeline, CollectiveEntry, CollectiveWaits, JobCalls, UNKNOWN};
use std::collections::{HashMap, HashSet};

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
    /// Collectives of which the entries of less than half of the members are missing, because calls were dropped
    /// there. The others wait for one another.
    pub partial: u64,
    /// Collectives that not all members entered, as far as is recorded.
    pub incomplete: u64,
    /// Collectives into which members entered by different functions or with different roots.
    pub mismatched: u64,
    /// Entries into collectives that match.
    pub matched_entries: u64,
    /// Entries that are missing or do not match, and those into collectives with unknown members.
    pub lost_entries: u64,
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

    /// Forgets the instances of entries, which only dependencies need.
    pub(crate) fn forget_entries(&mut self) {
        self.of_entry = Vec::new();
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

/// Rank of an arrival that is not filled in.
const NO_RANK: u32 = u32::MAX;

/// Matches the entries of a job.
pub(crate) fn match_instances(job: &JobCalls) -> Instances {
    let collectives = EnteredCollectives::new(job);
    let closed = closed_gaps(job);
    let counts = InstanceCounts { lost_entries: collectives.by_unknown_members, ..InstanceCounts::default() };
    let mut instances = Instances {
        of_entry: job.timelines.iter().map(|calls| vec![NO_INSTANCE; calls.entries.len()]).collect(),
        counts,
        ..Instances::default()
    };
    collectives.for_each(job, |arrived| instances.add(job, arrived, &closed));
    instances
}

/// The entries of a job by collective.
struct EnteredCollectives {
    /// Collective of each entry, by timeline; [`NO_RANK`] if the process is no member.
    of_entry: Vec<Vec<u32>>,
    /// Number of entries into each.
    counts: Vec<u32>,
    /// Number of entries by processes that are no known members.
    by_unknown_members: u64,
    ranks: HashMap<(u32, u32), u32>,
}

impl EnteredCollectives {
    fn new(job: &JobCalls) -> EnteredCollectives {
        let ranks = ranks_in_communicators(job);
        let mut numbers: HashMap<(u32, u32), u32> = HashMap::new();
        // Key of each collective, and the collective that followed it: all processes enter in about the same order.
        let mut keys: Vec<((u32, u32), u32)> = Vec::new();
        let mut counts: Vec<u32> = Vec::new();
        let mut by_unknown_members = 0;
        let mut of_timeline = |calls: &CallTimeline| {
            let mut last: Option<u32> = None;
            let mut member = (UNKNOWN, false);
            let of_entry = |entry: &CollectiveEntry| {
                if member.0 != entry.communicator {
                    let is_member = ranks.contains_key(&(entry.communicator, calls.process));
                    member = (entry.communicator, is_member);
                }
                if !member.1 {
                    // Processes that are no ranks enter MPI_Init, too.
                    by_unknown_members += u64::from(entry.number < CollectiveEntry::INIT_NUMBER);
                    return NO_RANK;
                }
                let key = (entry.communicator, entry.number);
                let expected = last.map(|last| keys[last as usize].1);
                let number = match expected {
                    Some(number) if keys.get(number as usize).is_some_and(|(of, _)| *of == key) => number,
                    _ => *numbers.entry(key).or_insert_with(|| {
                        keys.push((key, NO_RANK));
                        counts.push(0);
                        keys.len() as u32 - 1
                    }),
                };
                if let Some(last) = last {
                    keys[last as usize].1 = number;
                }
                last = Some(number);
                counts[number as usize] += 1;
                number
            };
            calls.entries.iter().map(of_entry).collect()
        };
        let of_entry = job.timelines.iter().map(&mut of_timeline).collect();
        EnteredCollectives { of_entry, counts, by_unknown_members, ranks }
    }

    /// Calls a function with the entries into each collective, by rank.
    fn for_each(self, job: &JobCalls, mut with: impl FnMut(&[Arrival])) {
        let mut next = 0usize;
        let mut starts: Vec<usize> = Vec::with_capacity(self.counts.len());
        for count in &self.counts {
            starts.push(next);
            next += *count as usize;
        }
        let mut arrivals = vec![Arrival { rank: NO_RANK, timeline: 0, entry: 0 }; next];
        for ((timeline, calls), collectives) in (0u32..).zip(&job.timelines).zip(self.of_entry) {
            let mut member = (UNKNOWN, NO_RANK);
            for ((entry, found), collective) in (0u32..).zip(&calls.entries).zip(collectives) {
                if collective == NO_RANK {
                    continue;
                }
                if member.0 != found.communicator {
                    let rank = self.ranks.get(&(found.communicator, calls.process)).copied();
                    member = (found.communicator, rank.unwrap_or(NO_RANK));
                }
                let start = &mut starts[collective as usize];
                arrivals[*start] = Arrival { rank: member.1, timeline, entry };
                *start += 1;
            }
        }
        for (count, end) in self.counts.iter().zip(starts) {
            let arrived = &mut arrivals[end - *count as usize..end];
            arrived.sort_unstable_by_key(|arrival| (arrival.rank, arrival.timeline, arrival.entry));
            with(arrived);
        }
    }
}

/// Returns the number of the last collective of each process that lacks calls, by communicator and process. Entries
/// of the process into earlier ones were dropped if they are missing.
fn closed_gaps(job: &JobCalls) -> HashMap<(u32, u32), u32> {
    let mut last = HashMap::new();
    for calls in job.timelines.iter().filter(|calls| calls.lacks_calls) {
        for entry in calls.entries.iter().filter(|entry| entry.number < CollectiveEntry::INIT_NUMBER) {
            let known = last.entry((entry.communicator, calls.process)).or_insert(entry.number);
            *known = entry.number.max(*known);
        }
    }
    last
}

impl Instances {
    fn add(&mut self, job: &JobCalls, arrived: &[Arrival], closed: &HashMap<(u32, u32), u32>) {
        let entry_of = |arrival: &Arrival| -> &CollectiveEntry {
            &job.timelines[arrival.timeline as usize].entries[arrival.entry as usize]
        };
        let Some(first) = arrived.first().map(entry_of) else { return };
        let groups = &job.communicators[first.communicator as usize].groups;
        let size: usize = groups.iter().map(Vec::len).sum();
        let entered_once = arrived.windows(2).all(|pair| pair[0].rank < pair[1].rank);
        let is_known = groups.iter().flatten().all(|process| *process != UNKNOWN);
        let is_partial = arrived.len() < size;
        let was_dropped = |process: &u32| {
            closed.get(&(first.communicator, *process)).is_some_and(|last| *last > first.number)
        };
        let is_usable = || {
            let ranks: HashSet<u32> = arrived.iter().map(|arrival| arrival.rank).collect();
            let missing = (0u32..).zip(groups.iter().flatten()).filter(|(rank, _)| !ranks.contains(rank));
            arrived.len() >= 2
                && arrived.len() * 2 > size
                && missing.map(|(_, process)| process).all(was_dropped)
        };
        if !is_known || is_partial && !is_usable() {
            self.counts.incomplete += 1;
            self.counts.lost_entries += size as u64;
            return;
        }
        let is_same = |entry: &CollectiveEntry| (entry.function, entry.root) == (first.function, first.root);
        let between_groups = groups.len() > 1;
        if !entered_once || !(between_groups || arrived.iter().map(entry_of).all(is_same)) {
            self.counts.mismatched += 1;
            self.counts.lost_entries += size as u64;
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
        let root = root.and_then(|root| arrived.binary_search_by_key(&root, |arrival| arrival.rank).ok());
        let root = root.map(|root| root as u32);
        let needs_root = matches!(waits, CollectiveWaits::ForRoot | CollectiveWaits::RootForAll);
        let waits = if needs_root && root.is_none() { CollectiveWaits::Unknown } else { waits };
        let communicator = first.communicator;
        self.all.push(Instance { communicator, waits, first_member, members: arrived.len() as u32, root });
        self.counts.matched += u64::from(!is_partial);
        self.counts.partial += u64::from(is_partial);
        self.counts.matched_entries += arrived.len() as u64;
        self.counts.lost_entries += (size - arrived.len()) as u64;
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
                    size_class: 0,
                    is_size_shared: false,
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

    #[test]
    fn entries_into_collectives_with_unknown_members_are_lost() {
        let entries = [(0, 1, 2), (1, 1, 2), (CollectiveEntry::FINALIZE_NUMBER, 1, 2)];
        let mut job = job(&[&entries, &entries, &entries]);
        for (groups, lost) in [(vec![], 6), (vec![vec![0, 1, UNKNOWN]], 11)] {
            job.communicators[0].groups = groups;
            let counts = match_instances(&job).counts;
            assert_eq!((counts.matched_entries, counts.lost_entries), (0, lost));
        }
    }

    #[test]
    fn dropped_entries_of_a_member_do_not_hide_the_others() {
        let entries = [(0, 1, 2), (1, 1, 2), (2, 1, 2)];
        let mut job = job(&[&entries, &[entries[0], entries[2]], &entries]);
        assert_eq!(match_instances(&job).counts.incomplete, 1);
        job.timelines[1].lacks_calls = true;
        let found = match_instances(&job);
        let counts = found.counts;
        assert_eq!((counts.matched, counts.partial, counts.incomplete), (2, 1, 0));
        assert_eq!((counts.matched_entries, counts.lost_entries), (8, 1));
        // Rank 2 is the process 1.
        assert_eq!((found.members(1).len(), found.get(1).waits), (2, CollectiveWaits::Unknown));
        // A later entry shows that the entry was dropped, and that the process did not end before.
        job.timelines[1].entries.truncate(1);
        assert_eq!(match_instances(&job).counts.incomplete, 2);
    }
}
