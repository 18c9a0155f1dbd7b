//! The processes of each communicator, so that a reader can translate a rank in it into a process.

use super::RowNumbering;
use crate::input::memberships::{CommunicatorSide, SizeAndRank};
use crate::input::survey::InputSurvey;
use rpd_comm::{Comm, gather_values};
use rpd_console::Failure;
use rpd_shard::model::rocpd;
use serde_json::{Value as Json, json};
use std::collections::BTreeMap;

/// Maximum size of the description, bytes. Smaller communicators are left out first.
const MAX_BYTES: usize = 1 << 20;

/// Ranks with their processes: first rank, number of ranks, process of the first one, and the difference between
/// the processes of adjacent ranks.
type RankRun = [i64; 4];

/// Size of a communicator, its ranks and their processes.
type RankedProcesses = (u32, Vec<(u32, i64)>);

/// Returns the communicators of all shards on rank 0, and `None` on other ranks and if there are none.
///
/// # Errors
/// If a message is damaged.
pub(crate) fn gather_communicators(
    comm: &impl Comm,
    surveys: &[InputSurvey],
    numbering: &RowNumbering,
) -> Result<Option<Json>, Failure> {
    let mut own: BTreeMap<CommunicatorSide, RankedProcesses> = BTreeMap::new();
    for (survey, bases) in surveys.iter().zip(&numbering.bases) {
        for (source, bases) in survey.sources.iter().zip(bases) {
            let process = bases.id(rocpd::INFO_PROCESS, 1);
            for (side, size_and_rank) in source.memberships.iter() {
                add(own.entry(side.clone()).or_default(), size_and_rank, process);
            }
        }
    }
    let mut all: BTreeMap<CommunicatorSide, RankedProcesses> = BTreeMap::new();
    for (side, (size, processes)) in gather_values(comm, own)?.into_iter().flatten() {
        let known = all.entry(side).or_default();
        known.0 = known.0.max(size);
        known.1.extend(processes);
    }
    Ok(describe(all))
}

fn add(known: &mut RankedProcesses, (size, rank): SizeAndRank, process: i64) {
    known.0 = known.0.max(size);
    known.1.push((rank, process));
}

/// Returns the description, in the order of names.
fn describe(all: BTreeMap<CommunicatorSide, RankedProcesses>) -> Option<Json> {
    let mut described: Vec<_> = all
        .into_iter()
        .map(|(CommunicatorSide { name, side }, (size, mut processes))| {
            processes.sort_unstable();
            let mut one = json!({ "name": name, "size": size, "ranks": runs(&processes) });
            if let (Some(side), Some(one)) = (side, one.as_object_mut()) {
                one.insert("side".to_owned(), json!(side));
            }
            (processes.len(), one)
        })
        .collect();
    // The largest ones are kept.
    let mut by_size: Vec<usize> = (0..described.len()).collect();
    by_size.sort_by_key(|place| std::cmp::Reverse(described[*place].0));
    let mut bytes = 0;
    let mut is_kept = vec![false; described.len()];
    for place in by_size {
        bytes += described[place].1.to_string().len() + 1;
        is_kept[place] = bytes <= MAX_BYTES;
    }
    let mut kept = is_kept.into_iter();
    described.retain(|_| kept.next() == Some(true));
    let list: Vec<Json> = described.into_iter().map(|(_, one)| one).collect();
    (!list.is_empty()).then(|| json!(list))
}

/// Combines processes, by rank. A rank that several processes have is in several runs.
fn runs(processes: &[(u32, i64)]) -> Vec<RankRun> {
    let mut runs: Vec<RankRun> = Vec::new();
    for &(rank, process) in processes {
        let rank = i64::from(rank);
        match runs.last_mut() {
            Some([first, count, of_first, stride])
                if rank == *first + *count && (*count == 1 || process == *of_first + *count * *stride) =>
            {
                *stride = if *count == 1 { process - *of_first } else { *stride };
                *count += 1;
            }
            _ => runs.push([rank, 1, process, 0]),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(name: &str, side: Option<u8>) -> CommunicatorSide {
        CommunicatorSide { name: name.into(), side }
    }

    #[test]
    fn ranks_of_adjacent_processes_are_one_run() {
        assert_eq!(runs(&[(0, 4), (1, 5), (2, 6)]), [[0, 3, 4, 1]]);
        assert_eq!(runs(&[(0, 7), (1, 4), (2, 1), (3, 1)]), [[0, 3, 7, -3], [3, 1, 1, 0]]);
        assert_eq!(runs(&[(1, 7), (3, 8)]), [[1, 1, 7, 0], [3, 1, 8, 0]]);
        assert_eq!(runs(&[(0, 1), (0, 5), (1, 2), (1, 6)]), [[0, 1, 1, 0], [0, 2, 5, -3], [1, 1, 6, 0]]);
        assert!(runs(&[]).is_empty());
    }

    #[test]
    fn large_communicators_are_kept() {
        assert_eq!(describe(BTreeMap::new()), None);
        let pair = (named("b", Some(1)), (2, vec![(1, 8), (0, 9)]));
        let described = describe([pair.clone(), (named("a", None), (3, vec![(2, 1)]))].into());
        let expected = json!([
            { "name": "a", "size": 3, "ranks": [[2, 1, 1, 0]] },
            { "name": "b", "size": 2, "ranks": [[0, 2, 9, -1]], "side": 1 },
        ]);
        assert_eq!(described, Some(expected));
        let long = |n: usize| named(&format!("{n:0300}"), None);
        let many = (0..10_000).map(|n| (long(n), (2, vec![(0, 1)])));
        let described = describe(many.chain([pair]).collect()).unwrap();
        assert!(described.to_string().len() <= MAX_BYTES + 2);
        assert_eq!(described.as_array().unwrap().last().unwrap()["name"], "b");
    }
}
