//! Decides whether unnumbered calls are the same in all processes. Only then is the n-th call of one process the
//! n-th of the others.
//!
//! Torch's profiler may record more calls in some processes than in others. Such processes are renumbered to
//! agree with the call sequence that most processes share.

use super::from_regions::{CallSequence, RegionSpec};
use super::participants::JobMembers;
use super::process_calls::ProcessCollectives;
use super::resync::align;
use rpd_comm::{Comm, all_gather_values};
use rpd_console::Failure;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of differences that are reported.
const MAX_SHOWN_DIFFERENCES: usize = 5;
/// Maximum number of different sequences of one communicator that are compared.
const MAX_SEQUENCES: usize = 64;

/// Summary of one process's call sequence on one communicator.
#[derive(Clone, Serialize, Deserialize)]
struct Brief {
    participant: u32,
    place: u32,
    comm: u64,
    len: u64,
    digest: u64,
    is_named: bool,
    /// Whether processes may have different numbers of calls, and all calls are kept.
    may_differ: bool,
}

/// A communicator of several processes, identified by its name or, if it has none, by its position in each
/// process.
type Group = (bool, u64);

impl Brief {
    fn new(participant: u32, sequence: &CallSequence) -> Brief {
        let CallSequence { place, comm, len, digest, is_named, is_torch, .. } = *sequence;
        let may_differ = is_torch && sequence.specs.len() as u64 == len;
        Brief { participant, place, comm, len, digest, is_named, may_differ }
    }

    fn group(&self) -> Group {
        if self.is_named { (true, self.comm) } else { (false, u64::from(self.place)) }
    }
}

/// Differences between the unnumbered calls of processes.
#[derive(Debug, Default)]
pub(super) struct CallDifferences {
    /// Communicators with calls that cannot be compared.
    pub(super) communicators: BTreeSet<u64>,
    /// Participants with calls on a communicator that cannot be compared with those of the others.
    pub(super) others: BTreeSet<(u32, u64)>,
    /// Number of calls that cannot be compared, of all processes.
    pub(super) calls: u64,
    /// One line for each of the first differences.
    pub(super) lines: Vec<String>,
    /// All communicators with calls that are matched by their order alone.
    pub(super) unnumbered: BTreeSet<u64>,
    /// Communicators among `unnumbered` that have a name.
    pub(super) named: BTreeSet<u64>,
}

/// Compares the call sequences of all processes. Two processes share a communicator if it has the same name or,
/// without a name, the same position among the communicators of each process. If `renumber` is set, all calls
/// are present, and calls that processes have in common get the same numbers.
pub(super) fn compare(
    comm: &impl Comm,
    members: &JobMembers,
    processes: &mut [ProcessCollectives],
    renumber: bool,
) -> Result<CallDifferences, Failure> {
    let mut mine = Vec::new();
    for (participant, process) in (members.first..).zip(processes.iter()) {
        mine.extend(process.sequences.iter().map(|sequence| Brief::new(participant, sequence)));
    }
    let mut by_group: BTreeMap<Group, Vec<Brief>> = BTreeMap::new();
    for brief in all_gather_values::<Vec<Brief>>(comm, &mine)?.into_iter().flatten() {
        by_group.entry(brief.group()).or_default().push(brief);
    }
    let mut differences = CallDifferences::default();
    let mut pairs = Vec::new();
    let renumbered =
        if renumber { renumber_all(comm, members, processes, &by_group)? } else { BTreeMap::new() };
    for (group, briefs) in &by_group {
        differences.unnumbered.extend(briefs.iter().map(|brief| brief.comm));
        differences.named.extend(briefs.iter().filter(|brief| brief.is_named).map(|brief| brief.comm));
        let Some((first, others)) = briefs.split_first() else { continue };
        let Some(other) = others.iter().find(|o| (o.digest, o.len) != (first.digest, first.len)) else {
            continue;
        };
        if let Some(found) = renumbered.get(group) {
            differences.calls += found.calls;
            differences.others.extend(&found.others);
            if let Some(pair) = found.pair.clone().filter(|_| pairs.len() < MAX_SHOWN_DIFFERENCES) {
                pairs.push(pair);
            }
            continue;
        }
        differences.communicators.extend(briefs.iter().map(|brief| brief.comm));
        differences.calls += briefs.iter().map(|b| b.len).sum::<u64>();
        if pairs.len() < MAX_SHOWN_DIFFERENCES {
            pairs.push((first.clone(), other.clone()));
        }
    }

    // Processes with a reported difference send their calls.
    let asked: BTreeSet<(u32, u32)> =
        pairs.iter().flat_map(|(a, b)| [(a.participant, a.place), (b.participant, b.place)]).collect();
    let specs = gather_calls(comm, members, processes, &asked, |sequence| Some(sequence.specs.clone()))?;
    let specs_of = |b: &Brief| specs.get(&(b.participant, b.place)).map_or(&[][..], Vec::as_slice);
    let line = |(a, b): &(Brief, Brief)| {
        let names = (members.name(a.participant), members.name(b.participant));
        difference((&names.0, a.len, specs_of(a)), (&names.1, b.len, specs_of(b)))
    };
    differences.lines = pairs.iter().map(line).collect();
    Ok(differences)
}

/// Returns the calls of selected sequences of all merge ranks, by participant and place. `calls_of` converts
/// those of one sequence.
fn gather_calls<T: Serialize + DeserializeOwned>(
    comm: &impl Comm,
    members: &JobMembers,
    processes: &[ProcessCollectives],
    wanted: &BTreeSet<(u32, u32)>,
    calls_of: impl Fn(&CallSequence) -> Option<Vec<T>>,
) -> Result<BTreeMap<(u32, u32), Vec<T>>, Failure> {
    let mut mine: BTreeMap<(u32, u32), Vec<T>> = BTreeMap::new();
    for (participant, process) in (members.first..).zip(processes) {
        let keyed = process.sequences.iter().map(|sequence| ((participant, sequence.place), sequence));
        let selected = keyed.filter(|(key, _)| wanted.contains(key));
        mine.extend(selected.filter_map(|(key, sequence)| Some((key, calls_of(sequence)?))));
    }
    Ok(all_gather_values::<BTreeMap<_, _>>(comm, &mine)?.into_iter().flatten().collect())
}

/// Result of renumbering the calls on one communicator.
#[derive(Default)]
struct Renumbered {
    calls: u64,
    others: BTreeSet<(u32, u64)>,
    /// The first two sequences that differ by more than the order of neighbouring calls.
    pair: Option<(Brief, Brief)>,
}

/// Renumbers the calls of processes that differ, with the sequence that most processes share as the reference.
/// All merge ranks compute the same result.
fn renumber_all(
    comm: &impl Comm,
    members: &JobMembers,
    processes: &mut [ProcessCollectives],
    by_group: &BTreeMap<Group, Vec<Brief>>,
) -> Result<BTreeMap<Group, Renumbered>, Failure> {
    // One process represents all processes with the same calls.
    let mut wanted: BTreeMap<Group, Vec<(&Brief, u64)>> = BTreeMap::new();
    for (group, briefs) in by_group {
        let mut kinds: Vec<(&Brief, u64)> = Vec::new();
        for brief in briefs {
            let is_below_limit = kinds.len() <= MAX_SEQUENCES;
            match kinds.iter_mut().find(|(kind, _)| (kind.digest, kind.len) == (brief.digest, brief.len)) {
                Some((_, count)) => *count += 1,
                None if is_below_limit => kinds.push((brief, 1)),
                None => break,
            }
        }
        let all_may = briefs.iter().all(|brief| brief.may_differ);
        if all_may && (2..=MAX_SEQUENCES).contains(&kinds.len()) {
            // If two sequences are equally frequent, the longer one is the reference, because it lacks no calls
            // of the shorter.
            kinds.sort_by_key(|(kind, count)| std::cmp::Reverse((*count, kind.len)));
            wanted.insert(*group, kinds);
        }
    }
    let asked: BTreeSet<(u32, u32)> =
        wanted.values().flatten().map(|(kind, _)| (kind.participant, kind.place)).collect();
    let hashes = gather_calls(comm, members, processes, &asked, CallSequence::hashes)?;
    let mut renumbered = BTreeMap::new();
    for (group, kinds) in &wanted {
        let Some((first, _)) = kinds.first() else { continue };
        let calls_of = |kind: &Brief| hashes.get(&(kind.participant, kind.place));
        let Some(reference) = calls_of(first) else { continue };
        let mut found = Renumbered::default();
        // The reference is renumbered too: all calls of a communicator need numbers, and hashes, computed in the
        // same way.
        for (kind, count) in kinds {
            let places = calls_of(kind).and_then(|own| align(reference, own));
            let missing =
                places.as_ref().map_or(kind.len, |p| p.iter().filter(|at| at.is_none()).count() as u64);
            found.calls += missing * count;
            if missing > 0 || kind.len != first.len {
                found.pair.get_or_insert_with(|| ((*first).clone(), (*kind).clone()));
            }
            let alike = by_group.get(group).into_iter().flatten();
            let alike = alike.filter(|brief| (brief.digest, brief.len) == (kind.digest, kind.len));
            for brief in alike {
                let own = brief
                    .participant
                    .checked_sub(members.first)
                    .and_then(|at| processes.get_mut(at as usize));
                match (&places, own) {
                    (None, _) => drop(found.others.insert((brief.participant, brief.comm))),
                    (Some(places), Some(own)) => own.renumber(brief.comm, places),
                    (Some(_), None) => {}
                }
            }
        }
        renumbered.insert(*group, found);
    }
    Ok(renumbered)
}

impl ProcessCollectives {
    /// Renumbers the calls on a communicator. `places` has the new number of each call, from 0, in call order.
    /// Calls without a new number are dropped.
    fn renumber(&mut self, comm: u64, places: &[Option<usize>]) {
        self.calls.retain_mut(|call| {
            if call.comm != comm {
                return true;
            }
            let before = usize::try_from(call.seq).ok().and_then(|seq| seq.checked_sub(1));
            let Some(place) = before.and_then(|at| *places.get(at)?) else { return false };
            *call = call.numbered(comm, place as u64 + 1);
            true
        });
    }
}

/// Describes the first difference between two processes. Each argument is the name, the number of calls and the
/// first calls of a process.
fn difference(a: (&str, u64, &[RegionSpec]), b: (&str, u64, &[RegionSpec])) -> String {
    let ((a, a_len, a_specs), (b, b_len, b_specs)) = (a, b);
    let place = a_specs.iter().zip(b_specs).position(|(x, y)| x != y);
    match place.and_then(|i| Some((i + 1, a_specs.get(i)?, b_specs.get(i)?))) {
        Some((n, x, y)) if x.describe() == y.describe() => {
            format!("{b}'s collective {n}, {}, has another datatype than {a}'s", y.describe())
        }
        Some((n, x, y)) => format!("{b}'s collective {n} is {}, {a}'s is {}", y.describe(), x.describe()),
        None if a_len != b_len => format!("{b} has {b_len} collectives, {a} has {a_len}"),
        None => format!("{a}'s and {b}'s collectives differ after the {}th", a_specs.len()),
    }
}
