//! Collects what is missing in the calls of a run.

use crate::call_gaps::ProcessGaps;
use crate::missing_calls::MissingCalls;
use crate::operations::ProcessNotes;
use crate::process_facts::CallLosses;
use crate::run_calls::RunCalls;
use rpd_graph::CallGap;
use std::collections::BTreeSet;

/// Where calls of a process may be missing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum MissingPlaces {
    Nowhere,
    /// Where numbers are missing.
    InGaps,
    /// There, and after the last calls that have numbers.
    InGapsAndLast,
    Anywhere,
}

impl MissingPlaces {
    /// Returns whether calls of a process are missing, and the gaps, if these are known.
    pub(crate) fn of_process(self, gaps: &ProcessGaps) -> (bool, Option<Vec<CallGap>>) {
        match self {
            MissingPlaces::Nowhere => (false, None),
            MissingPlaces::InGaps => (true, gaps.located(false)),
            MissingPlaces::InGapsAndLast => (true, gaps.located(true)),
            MissingPlaces::Anywhere => (true, None),
        }
    }
}

/// Returns what is missing, and for each process where.
pub(crate) fn missing_calls(
    calls: &RunCalls,
    notes: &[ProcessNotes],
    losses: &CallLosses,
    unknown_members: Vec<String>,
    unusable_regions: u64,
) -> (Vec<MissingCalls>, Vec<MissingPlaces>) {
    let rank_of = |process: usize| calls.processes.get(process).and_then(|process| process.rank);
    // Sums a count over the processes. Processes without a rank are in the sum only.
    let sum = |count: &dyn Fn(&ProcessNotes) -> u64| {
        let of = |(process, notes): (usize, &ProcessNotes)| (rank_of(process), count(notes));
        let counts = || notes.iter().enumerate().map(of).filter(|(_, count)| *count > 0);
        let ranks: BTreeSet<u32> = counts().filter_map(|(rank, _)| rank).collect();
        (Vec::from_iter(ranks), counts().map(|(_, count)| count).fold(0, u64::saturating_add))
    };
    let mut missing = Vec::new();
    if notes.is_empty() {
        missing.push(MissingCalls::NoMpiCalls);
    }
    for (ranks, missing_of) in [
        (&losses.missing_ranks, MissingCalls::MissingRanks as fn(Vec<u32>) -> MissingCalls),
        (&losses.unfinished_ranks, MissingCalls::UnfinishedRanks),
    ] {
        if !ranks.is_empty() {
            missing.push(missing_of(ranks.iter().copied().collect()));
        }
    }
    for (table, rows) in &losses.rows {
        let is_of_rings = !losses.otherwise.contains(table);
        missing.push(MissingCalls::LostRows { table: table.clone(), rows: *rows, is_of_rings });
    }
    let (ranks, cut_calls) = sum(&|notes| notes.cut_calls);
    if cut_calls > 0 {
        let ns = sum(&|notes| notes.cut_ns).1;
        missing.push(MissingCalls::CutCalls { ranks, calls: cut_calls, ns });
    }
    let mut add = |count: &dyn Fn(&ProcessNotes) -> u64, of: fn(Vec<u32>, u64) -> MissingCalls| {
        let (ranks, calls) = sum(count);
        if calls > 0 {
            missing.push(of(ranks, calls));
        }
    };
    add(&|notes| notes.missing_numbers, |ranks, calls| MissingCalls::DroppedCalls { ranks, calls });
    add(&|notes| notes.overlapping, |ranks, calls| MissingCalls::OverlappingCalls { ranks, calls });
    add(&|notes| notes.without_communicator, |ranks, calls| MissingCalls::WithoutCommunicator {
        ranks,
        calls,
    });
    add(&|notes| notes.unknown_receive_halves, |ranks, calls| MissingCalls::ReceiveHalves { ranks, calls });
    add(&|notes| notes.unknown_starts, |ranks, calls| MissingCalls::PersistentOperations { ranks, calls });
    add(&|notes| notes.unknown_probes, |ranks, calls| MissingCalls::MatchedProbes { ranks, calls });
    add(&|notes| notes.unknown_completions, |ranks, calls| MissingCalls::UnknownCompletions { ranks, calls });
    if !unknown_members.is_empty() && !notes.is_empty() {
        missing.push(MissingCalls::UnknownMembers(unknown_members));
    }
    let threads = |process: &usize| {
        let threads = calls.job.timelines.iter().filter(|timeline| !timeline.is_stream);
        threads.filter(|timeline| timeline.process as usize == *process).count()
    };
    let several: BTreeSet<u32> =
        (0..notes.len()).filter(|process| threads(process) > 1).filter_map(rank_of).collect();
    if !several.is_empty() {
        missing.push(MissingCalls::SeveralThreads(several.into_iter().collect()));
    }
    if unusable_regions > 0 {
        missing.push(MissingCalls::UnusableRegions { regions: unusable_regions });
    }
    missing.sort();
    (missing, lacking_processes(notes, losses, &rank_of))
}

/// Returns for each process where calls are missing. Missing numbers show where calls were dropped. If more rows were
/// lost than numbers are missing, the last calls of any process may be among them, and calls without numbers.
fn lacking_processes(
    notes: &[ProcessNotes],
    losses: &CallLosses,
    rank_of: &dyn Fn(usize) -> Option<u32>,
) -> Vec<MissingPlaces> {
    let seen: u64 = notes.iter().map(|notes| notes.missing_numbers).fold(0, u64::saturating_add);
    let are_unseen = losses.rows.values().any(|rows| rows.is_none_or(|rows| rows > seen));
    let lacks = |(process, notes): (usize, &ProcessNotes)| {
        let is_unfinished = rank_of(process)
            .map_or(losses.has_unfinished_without_rank, |rank| losses.unfinished_ranks.contains(&rank));
        let unusable = [
            notes.without_communicator,
            notes.unknown_receive_halves,
            notes.unknown_starts,
            notes.unknown_probes,
        ];
        if unusable.iter().any(|count| *count > 0) || are_unseen && notes.has_starts {
            MissingPlaces::Anywhere
        } else if are_unseen || is_unfinished {
            MissingPlaces::InGapsAndLast
        } else if notes.missing_numbers > 0 {
            MissingPlaces::InGaps
        } else {
            MissingPlaces::Nowhere
        }
    };
    notes.iter().enumerate().map(lacks).collect()
}
