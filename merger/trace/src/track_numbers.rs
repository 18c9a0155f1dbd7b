//! Numbers of processes, threads and tracks, which are unique in the job and the same in all files.
//!
//! Processes and threads have those of the operating system, unless several have the same: readers would combine these.

use super::item::{EARLIER_CALLS_LANE, TrackKind, UnitLayout};
use rpd_comm::{Comm, all_gather_values};
use rpd_console::Failure;
use rpd_perfetto::{Thread, TrackId};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;

/// The largest number that Linux gives to a process or thread. Other numbers are larger.
const MAX_SYSTEM_ID: i64 = 1 << 22;

/// Returns whether Linux may give this number to a process or thread.
pub(super) fn is_system_id(id: i64) -> bool {
    (1..=MAX_SYSTEM_ID).contains(&id)
}

/// Number of ids that a unit or the whole job needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(super) struct TrackDemand {
    pub(super) processes: u64,
    pub(super) threads: u64,
    pub(super) tracks: u64,
}

impl TrackDemand {
    pub(super) fn of(layout: &UnitLayout) -> TrackDemand {
        let is_thread = |kind: &TrackKind| matches!(kind, TrackKind::Thread { .. });
        TrackDemand {
            processes: layout.processes.len() as u64,
            threads: layout.tracks.iter().filter(|track| is_thread(&track.kind)).count() as u64,
            tracks: layout.tracks.len() as u64,
        }
    }

    fn then(self, other: TrackDemand) -> TrackDemand {
        TrackDemand {
            processes: self.processes + other.processes,
            threads: self.threads + other.threads,
            tracks: self.tracks + other.tracks,
        }
    }
}

/// Numbers that the operating system gave to processes and threads of the job, with how many have them.
#[derive(Debug, Default)]
struct SystemIds(HashMap<i64, u32>);

impl SystemIds {
    /// Adds the processes of a unit, and the threads that are not the main thread of one.
    fn of_unit(layout: &UnitLayout) -> Vec<i64> {
        let mut ids: Vec<i64> = layout.processes.iter().map(|process| process.pid).collect();
        each_thread(layout, |_, _, tid, is_main| {
            if !is_main {
                ids.push(tid);
            }
        });
        ids
    }

    fn add(&mut self, ids: Vec<i64>) {
        ids.into_iter().for_each(|id| *self.0.entry(id).or_default() += 1);
    }

    /// Returns the number, if only one process or thread has it.
    fn unique(&self, id: i64) -> Option<i32> {
        let is_unique = is_system_id(id) && self.0.get(&id) == Some(&1);
        i32::try_from(id).ok().filter(|_| is_unique)
    }
}

/// Calls `take` for each thread of a unit: the place of its track, its process, its number in the operating system, and
/// whether it is the main thread.
fn each_thread(layout: &UnitLayout, mut take: impl FnMut(usize, u32, i64, bool)) {
    let mut has_main = vec![false; layout.processes.len()];
    for (place, track) in layout.tracks.iter().enumerate() {
        let TrackKind::Thread { tid } = track.kind else { continue };
        let process = track.process as usize;
        let is_main = layout.processes.get(process).is_some_and(|process| process.pid == tid)
            && !std::mem::replace(&mut has_main[process], true);
        take(place, track.process, tid, is_main);
    }
}

/// The numbers of a unit.
#[derive(Clone, Debug)]
pub(super) struct TrackNumbers {
    /// Demand of the preceding units.
    before: TrackDemand,
    /// Demand of the job.
    all: TrackDemand,
    /// The number of each process.
    pids: Vec<i32>,
    /// The thread of each track in the unit, if it is one.
    threads: Vec<Option<Thread>>,
}

/// Assigns numbers to the units of all ranks, and returns those of this rank. All ranks must call this.
pub(super) fn number(comm: &impl Comm, own: &[&UnitLayout]) -> Result<Vec<TrackNumbers>, Failure> {
    let demands: Vec<TrackDemand> = own.iter().map(|layout| TrackDemand::of(layout)).collect();
    let mine = demands.iter().fold(TrackDemand::default(), |sum, demand| sum.then(*demand));
    let mut before = TrackDemand::default();
    let mut all = TrackDemand::default();
    for (rank, theirs) in all_gather_values(comm, &mine)?.into_iter().enumerate() {
        before = if rank < comm.rank() { before.then(theirs) } else { before };
        all = all.then(theirs);
    }
    if i32::try_from(all.processes + all.threads + MAX_SYSTEM_ID as u64).is_err() {
        return Err(Failure::input(format!(
            "{} processes with {} threads are more than a trace can number; choose some with --ranks",
            all.processes, all.threads
        )));
    }
    let mut ids = SystemIds::default();
    let mine: Vec<i64> = own.iter().flat_map(|layout| SystemIds::of_unit(layout)).collect();
    all_gather_values(comm, &mine)?.into_iter().for_each(|theirs| ids.add(theirs));
    let numbers = own.iter().zip(demands).map(|(layout, demand)| {
        let numbers = TrackNumbers::new(layout, &ids, before, all);
        before = before.then(demand);
        numbers
    });
    Ok(numbers.collect())
}

impl TrackNumbers {
    fn new(layout: &UnitLayout, ids: &SystemIds, before: TrackDemand, all: TrackDemand) -> TrackNumbers {
        let other = |place: u64| (MAX_SYSTEM_ID as u64 + 1 + place) as i32;
        let places = before.processes..;
        let pids: Vec<i32> = layout
            .processes
            .iter()
            .zip(places)
            .map(|(process, place)| ids.unique(process.pid).unwrap_or_else(|| other(place)))
            .collect();
        let mut threads = vec![None; layout.tracks.len()];
        let mut next = all.processes + before.threads;
        each_thread(layout, |place, process, tid, is_main| {
            let Some(pid) = pids.get(process as usize).copied() else { return };
            // The main thread has the number of its process.
            let tid = if is_main { pid } else { ids.unique(tid).unwrap_or_else(|| other(next)) };
            next += 1;
            threads[place] = Some(Thread { pid, tid });
        });
        TrackNumbers { before, all, pids, threads }
    }

    /// Returns the displayed number of a process of the unit, from 1.
    pub(super) fn pid(&self, process: u32) -> i32 {
        self.pids.get(process as usize).copied().unwrap_or(i32::MAX)
    }

    /// Returns the position of a process among those of the job, from 0.
    pub(super) fn process_rank(&self, process: u32) -> i32 {
        (self.before.processes + u64::from(process)) as i32
    }

    /// Returns the thread of a track.
    pub(super) fn thread(&self, track: u32) -> Option<Thread> {
        self.threads.get(track as usize).copied().flatten()
    }

    /// Returns the track of a process.
    pub(super) fn process_track(&self, process: u32) -> TrackId {
        TrackId(1 + self.before.processes + u64::from(process))
    }

    /// Returns a lane of a track. The first lanes of all tracks have small numbers.
    pub(super) fn track(&self, track: u32, lane: u32) -> TrackId {
        let all = self.all.processes + self.all.tracks;
        let place = match lane {
            0 => 0,
            EARLIER_CALLS_LANE => 1,
            lane => u64::from(lane) + 1,
        };
        TrackId(1 + self.all.processes + self.before.tracks + u64::from(track) + place * all)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::item::DrawnTrack;
    use rpd_comm::Solo;
    use rpd_run::ProcessIdentity;

    fn unit(pid: i64, tids: &[i64]) -> UnitLayout {
        let process = ProcessIdentity {
            name: String::new(),
            order: (0, 0, 0),
            pid,
            host: String::new(),
            rank: None,
            id: 1,
        };
        let track = |tid: &i64| DrawnTrack {
            process: 0,
            parent: None,
            name: String::new(),
            kind: TrackKind::Thread { tid: *tid },
            order: 0,
            description: None,
        };
        UnitLayout {
            processes: vec![process],
            tracks: tids.iter().map(track).collect(),
            ..UnitLayout::default()
        }
    }

    #[test]
    fn numbers_of_the_system_are_shown_where_only_one_has_them() {
        let units = [unit(100, &[100, 101, 300]), unit(200, &[200, 101, 201]), unit(300, &[300, -1])];
        let numbers = number(&Solo, &units.iter().collect::<Vec<_>>()).unwrap();
        let shown = |unit: usize, track: u32| {
            let Thread { pid, tid } = numbers[unit].thread(track).unwrap();
            (i64::from(pid), i64::from(tid))
        };
        let is_other = |id: i64| id > MAX_SYSTEM_ID;
        assert_eq!((shown(0, 0), shown(1, 0), shown(1, 2)), ((100, 100), (200, 200), (200, 201)));
        // Two processes have a thread 101, and 300 is a thread of one and another process.
        let others = [shown(0, 1), shown(0, 2), shown(1, 1), shown(2, 0), shown(2, 1)];
        assert!(others.iter().all(|(_, tid)| is_other(*tid)), "{others:?}");
        let (pid, tid) = shown(2, 0);
        assert_eq!((pid, is_other(pid)), (tid, true));
        let mut all: Vec<i64> = others.iter().map(|(_, tid)| *tid).chain([100, 200, 201]).collect();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 8);
        assert_eq!([0, 1, 2].map(|unit| numbers[unit].process_rank(0)), [0, 1, 2]);
    }
}
