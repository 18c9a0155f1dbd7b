//! Numbers of processes, threads and tracks, which are unique in the job and the same in all files.

use super::item::{TrackKind, UnitLayout};
use rpd_comm::{Comm, all_gather_values};
use rpd_console::Failure;
use rpd_perfetto::{Thread, TrackId};
use serde::{Deserialize, Serialize};

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

/// The numbers of a unit.
#[derive(Clone, Debug)]
pub(super) struct TrackNumbers {
    /// Demand of the preceding units.
    before: TrackDemand,
    /// Demand of the job.
    all: TrackDemand,
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
    if i32::try_from(all.processes + all.threads).is_err() {
        return Err(Failure::input(format!(
            "{} processes with {} threads are more than a trace can number; choose some with --ranks",
            all.processes, all.threads
        )));
    }
    let numbers = own.iter().zip(demands).map(|(layout, demand)| {
        let numbers = TrackNumbers::new(layout, before, all);
        before = before.then(demand);
        numbers
    });
    Ok(numbers.collect())
}

impl TrackNumbers {
    fn new(layout: &UnitLayout, before: TrackDemand, all: TrackDemand) -> TrackNumbers {
        let mut numbers = TrackNumbers { before, all, threads: vec![None; layout.tracks.len()] };
        let mut next = all.processes + before.threads;
        let mut has_main = vec![false; layout.processes.len()];
        for (place, track) in layout.tracks.iter().enumerate() {
            let TrackKind::Thread { tid } = track.kind else { continue };
            let process = track.process as usize;
            let pid = numbers.pid(track.process);
            next += 1;
            // The main thread has the number of its process.
            let is_main = layout.processes.get(process).is_some_and(|process| process.pid == tid)
                && !std::mem::replace(&mut has_main[process], true);
            let tid = if is_main { pid } else { next as i32 };
            numbers.threads[place] = Some(Thread { pid, tid });
        }
        numbers
    }

    /// Returns the displayed number of a process of the unit, from 1.
    pub(super) fn pid(&self, process: u32) -> i32 {
        (self.before.processes + u64::from(process) + 1) as i32
    }

    /// Returns the position of a process among those of the job, from 0.
    pub(super) fn process_rank(&self, process: u32) -> i32 {
        self.pid(process) - 1
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
        TrackId(1 + self.all.processes + self.before.tracks + u64::from(track) + u64::from(lane) * all)
    }
}
