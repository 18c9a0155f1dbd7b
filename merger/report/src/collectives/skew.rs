//! The time between the first and the last entry of a collective.

use super::calls::{CollectiveCall, CollectiveCalls};
use crate::input::{ProcessGroups, ReportRun};
use rpd_collectives::{CollectiveFunction, is_shared_communicator};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// The skew of a collective that all ranks of its communicator entered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct InstanceSkew {
    /// Place of the call that has the lowest place.
    pub(super) first_call: usize,
    /// Time from the first to the last entry, ns.
    pub(super) ns: i64,
}

/// A communicator of the programs that ranks run at the same time.
type ProgramCommunicator = (u32, u32);

/// Returns the skews of all collectives that are recorded of each rank of their communicator, in order of the first call.
///
/// The ranks of a communicator are those that recorded any collective on it; with fewer than two, nothing is compared. If
/// a rank runs several programs one after another, each has communicators with the same names.
pub(super) fn instance_skews(
    run: &ReportRun,
    groups: &ProcessGroups,
    calls: &CollectiveCalls,
) -> Vec<InstanceSkew> {
    let programs = program_numbers(run, groups, calls);
    let program = |call: &CollectiveCall| -> Option<ProgramCommunicator> {
        let number = call.communicator?;
        let is_shared =
            calls.communicators.get(number as usize).is_some_and(|name| is_shared_communicator(name));
        is_shared.then(|| (programs.get(&call.process).copied().unwrap_or(0), number))
    };
    let mut members: HashMap<ProgramCommunicator, BTreeSet<u32>> = HashMap::new();
    let mut instances: HashMap<(ProgramCommunicator, CollectiveFunction, u64), Vec<usize>> = HashMap::new();
    for (place, call) in calls.calls.iter().enumerate() {
        let Some((key, seq)) = program(call).zip(call.seq) else { continue };
        members.entry(key).or_default().insert(groups.of(call.process));
        instances.entry((key, call.function, seq)).or_default().push(place);
    }
    let skew = |((key, ..), places): (&(ProgramCommunicator, CollectiveFunction, u64), &Vec<usize>)| {
        let ranks = members.get(key).map_or(0, BTreeSet::len);
        let of = || places.iter().filter_map(|place| calls.calls.get(*place));
        let entered: BTreeSet<u32> = of().map(|call| groups.of(call.process)).collect();
        if ranks < 2 || entered.len() != ranks || places.len() != ranks {
            return None;
        }
        let starts = || of().map(|call| call.start);
        Some(InstanceSkew {
            first_call: *places.first()?,
            ns: starts().max()?.saturating_sub(starts().min()?),
        })
    };
    let mut skews: Vec<InstanceSkew> = instances.iter().filter_map(skew).collect();
    skews.sort_unstable_by_key(|skew| skew.first_call);
    skews
}

/// Returns, for each process with calls, how many earlier processes of its rank have calls.
fn program_numbers(run: &ReportRun, groups: &ProcessGroups, calls: &CollectiveCalls) -> HashMap<u32, u32> {
    let with_calls: BTreeSet<u32> = calls.calls.iter().map(|call| call.process).collect();
    let mut by_rank: BTreeMap<u32, Vec<(i64, u32)>> = BTreeMap::new();
    for process in with_calls {
        let id = run.process(process).map_or(0, |info| info.id);
        by_rank.entry(groups.of(process)).or_default().push((id, process));
    }
    let mut numbers = HashMap::new();
    for mut processes in by_rank.into_values() {
        processes.sort_unstable();
        numbers
            .extend(processes.into_iter().enumerate().map(|(number, (_, process))| (process, number as u32)));
    }
    numbers
}
