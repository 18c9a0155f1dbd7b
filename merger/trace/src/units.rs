//! Surveys and then draws the units of this rank on all threads.

use super::compressed_pieces::{CompressedPiece, PieceStore, UnitPieces};
use super::draw::{JobRows, UnitPlan};
use super::files::FileFrame;
use super::item::{DrawnTrack, ItemCounts, TraceItem, UnitDictionary, UnitFacts, UnitLayout};
use super::sort_items::ItemSorter;
use super::spool::ItemSpool;
use super::time_slices::TimeHistogram;
use super::track_numbers::TrackNumbers;
use super::write_items::FileCounts;
use crate::format::{EncodedUnit, draw};
use crate::memory::{DrawingMemory, MemoryShares};
use crate::options::TraceFormat;
use rayon::prelude::*;
use rpd_comm::{Comm, gather_counts};
use rpd_console::{Failure, Progress};
use rpd_shard::record::{Selection, wire};
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// The units of this rank.
pub(super) struct RankUnits {
    /// Range of their indices in the job.
    units: Range<usize>,
    /// Approximate size of each unit in the database, bytes, for the progress.
    bytes: Vec<u64>,
    layouts: Vec<UnitLayout>,
}

/// First and last time of the run, ns in job time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct RunTimes {
    pub(super) first: i64,
    pub(super) last: i64,
}

/// Encoded units of this rank.
pub(super) struct EncodedUnits {
    pub(super) pieces: Vec<CompressedPiece>,
    pub(super) tallies: Vec<FileCounts>,
    pub(super) spool: ItemSpool,
    facts: UnitFacts,
    /// Number of texts that were not written unchanged.
    mended: u64,
}

impl RankUnits {
    /// Assigns units to ranks by weight. Each rank gets consecutive units, so that files have them in the order
    /// of the job. `length` is the size of the database in bytes.
    pub(super) fn share(rows: &JobRows, length: u64, rank: usize, ranks: usize) -> RankUnits {
        let units = share(rows.units(), rank, ranks);
        let all: u128 = rows.units().iter().map(|unit| u128::from(unit.weight)).sum();
        let bytes = |unit: &UnitPlan| (u128::from(unit.weight) * u128::from(length) / all.max(1)) as u64;
        let bytes = rows.units().get(units.clone()).unwrap_or_default().iter().map(bytes).collect();
        RankUnits { units, bytes, layouts: Vec::new() }
    }

    /// Returns the approximate size of the units in the database, bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.iter().sum()
    }

    pub(super) fn layouts(&self) -> impl Iterator<Item = &UnitLayout> {
        self.layouts.iter()
    }

    /// Surveys all units. If `event_bytes`, the size of an event, is set, it also counts the events by time.
    pub(super) fn survey(
        &mut self,
        rows: &JobRows,
        event_bytes: Option<u64>,
        progress: &Progress,
    ) -> Result<TimeHistogram, Failure> {
        let survey = |(unit, bytes): (usize, &u64)| {
            let mut histogram = TimeHistogram::default();
            let layout = rows.survey(unit, &mut |start, _, _| {
                if let Some(bytes) = event_bytes {
                    histogram.add(start, bytes);
                }
            })?;
            histogram.flush_last_bin();
            progress.add(*bytes);
            Ok((layout, histogram))
        };
        let units: Vec<(usize, &u64)> = self.units.clone().zip(&self.bytes).collect();
        let surveyed: Result<Vec<(UnitLayout, TimeHistogram)>, Failure> =
            units.into_par_iter().map(survey).collect();
        let mut sum = TimeHistogram::default();
        for (layout, histogram) in surveyed? {
            self.layouts.push(layout);
            sum.join(histogram);
        }
        Ok(sum)
    }

    /// Returns the first and the last time of the run; 0 if no row has a time. `rest` is the time span of rows
    /// that are not drawn.
    pub(super) fn times(&self, comm: &impl Comm, rest: Option<(i64, i64)>) -> Result<RunTimes, Failure> {
        let drawn = self.layouts.iter().filter_map(|layout| layout.first.zip(layout.last));
        let own = drawn.chain(rest).reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)));
        let mine = own.map_or(vec![0, 0, 0], |(first, last)| vec![1, first as u64, last as u64]);
        let all = gather_counts(comm, &mine)?;
        let times = all.iter().filter_map(|theirs| match theirs[..] {
            [1, first, last] => Some(RunTimes { first: first as i64, last: last as i64 }),
            _ => None,
        });
        let join =
            |a: RunTimes, b: RunTimes| RunTimes { first: a.first.min(b.first), last: a.last.max(b.last) };
        Ok(times.reduce(join).unwrap_or(RunTimes { first: 0, last: 0 }))
    }

    /// Draws all units, several at once. Threads without a unit compress pieces.
    pub(super) fn draw(
        &self,
        rows: &JobRows,
        numbers: &[TrackNumbers],
        frame: &FileFrame,
        memory: DrawingMemory,
        (folder, rank): (&Path, usize),
        progress: &Progress,
    ) -> Result<EncodedUnits, Failure> {
        let threads = rayon::current_num_threads();
        let means = memory.share(threads, self.units.len());
        let store =
            PieceStore::new(folder, rank, self.units.len(), frame.windows.len(), means.waiting_pieces)?;
        let told = Mutex::new((UnitFacts::default(), 0));
        let work = Work { own: self, rows, numbers, frame, means, folder, store: &store, told: &told };
        let next = AtomicUsize::new(0);
        rayon::scope(|scope| {
            for _ in 0..means.units_at_once {
                scope.spawn(|scope| {
                    loop {
                        let number = next.fetch_add(1, Ordering::Relaxed);
                        if number >= self.units.len() || store.has_failed() {
                            break;
                        }
                        match work.draw(number, scope) {
                            Ok(()) => progress.add(self.bytes.get(number).copied().unwrap_or(0)),
                            Err(failure) => store.fail(failure),
                        }
                    }
                });
            }
        });
        let (facts, mended) = told.into_inner().unwrap_or_else(PoisonError::into_inner);
        let (pieces, tallies, spool) = store.finish()?;
        Ok(EncodedUnits { pieces, tallies, spool, facts, mended })
    }

    /// Returns the job's ranks with pieces in each file.
    pub(super) fn ranks_of_files(&self, pieces: &[CompressedPiece]) -> BTreeMap<u32, Selection> {
        let windows = pieces.chunk_by(|a, b| a.window == b.window);
        let ranks_of = |piece: &CompressedPiece| {
            let processes = self.layouts.get(piece.unit as usize).map_or(&[][..], |layout| &layout.processes);
            processes.iter().filter_map(|process| process.rank).map(|rank| (rank, rank))
        };
        let units = |pieces: &[CompressedPiece]| {
            let units = pieces.chunk_by(|a, b| a.unit == b.unit).filter_map(|pieces| pieces.first());
            Selection::of(units.flat_map(ranks_of))
        };
        windows.filter_map(|pieces| Some((pieces.first()?.window, units(pieces)))).collect()
    }
}

/// Everything that is needed to draw a unit.
struct Work<'a> {
    own: &'a RankUnits,
    rows: &'a JobRows,
    numbers: &'a [TrackNumbers],
    frame: &'a FileFrame,
    means: MemoryShares,
    folder: &'a Path,
    store: &'a PieceStore,
    told: &'a Mutex<(UnitFacts, u64)>,
}

impl<'a> Work<'a> {
    fn draw<'scope>(&self, number: usize, scope: &rayon::Scope<'scope>) -> Result<(), Failure>
    where
        'a: 'scope,
    {
        let (Some(layout), Some(numbers)) = (self.own.layouts.get(number), self.numbers.get(number)) else {
            return Ok(());
        };
        let place = self.own.units.start + number;
        let mut dictionary = UnitDictionary::default();
        let ItemCounts { slices, instants, counters, samples, .. } = layout.counts;
        let mut items =
            ItemSorter::new(self.folder, self.means.sort_bytes, slices + instants + counters + samples);
        let mut take = |item: &TraceItem<'_>| items.push(item);
        let facts = self.rows.items(place, layout, &mut dictionary, self.means.read_bytes, &mut take)?;
        let unit = EncodedUnit { place, layout, dictionary: &dictionary, numbers };
        let out = UnitPieces { store: self.store, scope, unit: number };
        let mended = draw(self.frame.form, unit, (&self.frame.windows, self.frame.t0), items, out)?;
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        told.0.add(&facts);
        told.1 += mended;
        Ok(())
    }
}

/// Adds the facts and the numbers of changed texts of all ranks; all ranks get the sum.
pub(super) fn gather_facts(comm: &impl Comm, made: &EncodedUnits) -> Result<(UnitFacts, u64), Failure> {
    let mut sum = (UnitFacts::default(), 0);
    for message in comm.all_gather(wire::encode(&(&made.facts, made.mended))) {
        let (facts, mended): (UnitFacts, u64) = wire::decode_message(&message).map_err(Failure::message)?;
        sum.0.add(&facts);
        sum.1 += mended;
    }
    Ok(sum)
}

/// Returns the approximate maximum size of the descriptions of processes and tracks in a file, in all units of
/// all ranks, bytes.
pub(super) fn described<'a>(
    comm: &impl Comm,
    layouts: impl Iterator<Item = &'a UnitLayout>,
    form: TraceFormat,
) -> Result<u64, Failure> {
    let of = |layout: &UnitLayout| {
        let processes = layout.processes.iter().map(|process| form.track_bytes() + process.name.len());
        let text = |track: &DrawnTrack| track.name.len() + track.description.as_ref().map_or(0, String::len);
        let tracks = layout.tracks.iter().map(|track| form.track_bytes() + text(track));
        processes.chain(tracks).sum::<usize>() as u64
    };
    Ok(gather_counts(comm, &[layouts.map(of).sum()])?.iter().flatten().sum())
}

/// Returns the units of a rank. A unit belongs to the rank whose share of all rows contains its middle.
fn share(units: &[UnitPlan], rank: usize, ranks: usize) -> Range<usize> {
    let total: u128 = units.iter().map(|unit| u128::from(unit.weight.max(1))).sum();
    let mut before: u128 = 0;
    let owners = units.iter().map(|unit| {
        let weight = u128::from(unit.weight.max(1));
        let middle = before + weight / 2;
        before += weight;
        ((middle * ranks as u128 / total.max(1)) as usize).min(ranks - 1)
    });
    let owners: Vec<usize> = owners.collect();
    owners.partition_point(|owner| *owner < rank)..owners.partition_point(|owner| *owner <= rank)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn each_unit_has_one_rank_and_they_stay_in_order(weights in prop::collection::vec(0u64..1000, 0..40), ranks in 1usize..9) {
            let units: Vec<UnitPlan> = weights.iter().map(|weight| UnitPlan { weight: *weight }).collect();
            let dealt: Vec<usize> = (0..ranks).flat_map(|rank| share(&units, rank, ranks)).collect();
            prop_assert_eq!(dealt, (0..units.len()).collect::<Vec<_>>());
        }
    }
}
