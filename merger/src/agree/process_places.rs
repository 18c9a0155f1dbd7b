//! Ids of processes. Processes of ranks come first, in the order of ranks. Viewers show these ids, so the process of
//! rank 7 has number 8 if no rank is missing.

use crate::input::{InputSource, OpenInput};
use rpd_shard::model::rocpd;
use rpd_shard::record::SYSTEM_SOURCE;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Properties that determine the position of a process among all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ProcessPlace {
    /// Rank; `None` for workers, collectors and processes without a rank.
    pub rank: Option<u32>,
    /// Process id of the operating system.
    pub pid: i64,
    /// Whether the process is known to be a collector.
    pub is_collector: bool,
}

/// Returns the processes of a source, by their numbers from 1.
pub(super) fn own_processes(input: &OpenInput, source: &InputSource) -> Vec<ProcessPlace> {
    let Some(space) = source.spaces.get(&rocpd::INFO_PROCESS) else { return Vec::new() };
    let mut places = vec![ProcessPlace::default(); usize::try_from(space.next - 1).unwrap_or(0)];
    let mut set = |key: i64, place: ProcessPlace| {
        let number = space.stored(key).and_then(|number| usize::try_from(number - 1).ok());
        if let Some(found) = number.and_then(|number| places.get_mut(number)) {
            *found = place;
        }
    };
    match input {
        OpenInput::None => {}
        OpenInput::Shard(_) => {
            let process = &source.process;
            let rank = process.rank.filter(|_| !process.worker);
            let is_collector = process.source == SYSTEM_SOURCE;
            set(source.first_process(), ProcessPlace { rank, pid: process.pid.into(), is_collector });
        }
        OpenInput::Database(open) => {
            for found in open.table_set_of(source).map_or(&[][..], |set| &set.processes) {
                let rank = found.rank.filter(|_| !found.worker);
                set(found.key, ProcessPlace { rank, pid: found.pid, is_collector: false });
            }
        }
    }
    places
}

/// Returns the ids of processes, given in merge order. The first process of each rank counts as the rank; all others
/// follow after the ranks, in merge order.
pub(super) fn process_ids(processes: &[ProcessPlace]) -> Vec<i64> {
    let mut first: BTreeMap<u32, usize> = BTreeMap::new();
    for (place, process) in processes.iter().enumerate() {
        if let Some(rank) = process.rank {
            first.entry(rank).or_insert(place);
        }
    }
    let mut ids = vec![0; processes.len()];
    let mut next = 1..;
    for place in first.into_values() {
        ids[place] = next.next().unwrap_or(0);
    }
    for id in ids.iter_mut().filter(|id| **id == 0) {
        *id = next.next().unwrap_or(0);
    }
    ids
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ids_of(ranks: &[Option<u32>]) -> Vec<i64> {
        let place = |rank: &Option<u32>| ProcessPlace { rank: *rank, ..ProcessPlace::default() };
        process_ids(&ranks.iter().map(place).collect::<Vec<_>>())
    }

    #[test]
    fn ranks_come_first_in_their_order_and_the_others_behind_them() {
        assert_eq!(ids_of(&[Some(0), None, Some(1), None, Some(2)]), [1, 4, 2, 5, 3]);
        assert_eq!(ids_of(&[None, Some(4), Some(2)]), [3, 2, 1]);
        let twice = [Some(0), Some(0), None, Some(1), Some(1)];
        assert_eq!(ids_of(&twice), [1, 3, 4, 2, 5], "of a rank that was started twice the first counts");
        assert_eq!(ids_of(&[]), [0; 0]);
    }

    proptest! {
        #[test]
        fn every_process_has_an_id_of_its_own_and_numbering_again_changes_nothing(
            ranks in proptest::collection::vec(proptest::option::of(0u32..9), 0..40),
        ) {
            let ids = ids_of(&ranks);
            let mut by_id: Vec<_> = ids.iter().zip(&ranks).collect();
            by_id.sort();
            prop_assert!(by_id.iter().map(|(id, _)| **id).eq(1..=ranks.len() as i64));
            let again: Vec<_> = by_id.into_iter().map(|(_, rank)| *rank).collect();
            prop_assert!(ids_of(&again).into_iter().eq(1..=ranks.len() as i64));
        }
    }
}
