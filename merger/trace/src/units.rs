//! Surveys and then draws the units of this rank on all threads.

use super::collective_arrows::CollectiveEnds;
use super::compressed_pieces::{CompressedPiece, PieceStore, UnitPieces};
use super::draw::JobRows;
use super::files::FileFrame;
use super::item::{DrawnTrack, EventCounts, UnitFacts, UnitLayout};
use super::sort_items::ItemSorter;
use super::spool::ItemSpool;
use super::time_slices::TimeHistogram;
use super::track_numbers::TrackNumbers;
use super::write_items::EncodedUnit;
use crate::format::draw;
use crate::memory::MemoryShares;
use crate::options::TraceFormat;
use rayon::prelude::*;
use rpd_comm::{Comm, all_gather_counts, all_gather_values};
use rpd_console::{Failure, Progress};
use rpd_run::RowUnit;
use rpd_shard::record::Selection;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// Part of the memory that ends of arrows of collectives may use. They are kept to count the arrows.
const COLLECTIVES_SHARE: u64 = 8;

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
    pub(super) tallies: Vec<EventCounts>,
    pub(super) spool: ItemSpool,
    facts: UnitFacts,
    /// Where arrows of collectives end; empty for a single file.
    collectives: CollectiveEnds,
}

impl EncodedUnits {
    /// Takes where arrows of collectives end.
    pub(super) fn take_collectives(&mut self) -> CollectiveEnds {
        std::mem::take(&mut self.collectives)
    }
}

impl RankUnits {
    /// Assigns units to ranks by weight. Each rank gets consecutive units, so that files have them in the order
    /// of the job. `length` is the size of the database in bytes.
    pub(super) fn share(rows: &JobRows, length: u64, rank: usize, ranks: usize) -> RankUnits {
        let weights: Vec<u64> = rows.units().iter().map(RowUnit::weight).collect();
        let units = share_units(&weights, rank, ranks);
        let all: u128 = weights.iter().map(|weight| u128::from(*weight)).sum();
        let bytes = |weight: &u64| (u128::from(*weight) * u128::from(length) / all.max(1)) as u64;
        let bytes = weights[units.clone()].iter().map(bytes).collect();
        RankUnits { units, bytes, layouts: Vec::new() }
    }

    /// Returns the approximate size of the units in the database, bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.iter().sum()
    }

    /// Returns the index of the first unit, and that after the last.
    pub(super) fn bounds(&self) -> (u64, u64) {
        (self.units.start as u64, self.units.end as u64)
    }

    pub(super) fn layouts(&self) -> impl Iterator<Item = &UnitLayout> {
        self.layouts.iter()
    }

    /// Surveys all units, and counts their events by time if `counts_events`.
    pub(super) fn survey(
        &mut self,
        rows: &JobRows,
        counts_events: bool,
        progress: &Progress,
    ) -> Result<TimeHistogram, Failure> {
        let survey = |(unit, bytes): (usize, &u64)| {
            let mut histogram = TimeHistogram::default();
            let layout = rows.survey(unit, &mut |start| {
                if counts_events {
                    histogram.add(start);
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
    pub(super) fn gather_times(
        &self,
        comm: &impl Comm,
        rest: Option<(i64, i64)>,
    ) -> Result<RunTimes, Failure> {
        let drawn = self.layouts.iter().filter_map(|layout| layout.first.zip(layout.last));
        let join = |a: (i64, i64), b: (i64, i64)| (a.0.min(b.0), a.1.max(b.1));
        let own = drawn.chain(rest).reduce(join);
        let all = all_gather_values(comm, &own)?.into_iter().flatten();
        let (first, last) = all.reduce(join).unwrap_or((0, 0));
        Ok(RunTimes { first, last })
    }

    /// Draws all units, several at once. Threads without a unit compress pieces.
    pub(super) fn draw(
        &self,
        rows: &JobRows,
        numbers: &[TrackNumbers],
        frame: &FileFrame,
        memory: u64,
        (folder, rank): (&Path, usize),
        progress: &Progress,
    ) -> Result<EncodedUnits, Failure> {
        let threads = rayon::current_num_threads();
        let shares = MemoryShares::new(memory, threads, self.units.len());
        let store =
            PieceStore::new(folder, rank, self.units.len(), frame.windows.len(), shares.waiting_pieces)?;
        let ends_bytes = memory / COLLECTIVES_SHARE;
        let found = Mutex::new((UnitFacts::default(), CollectiveEnds::within(ends_bytes)));
        let has_borders = frame.windows.len() > 1;
        let next = AtomicUsize::new(0);
        let next_unit = || {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let (layout, numbers) = self.layouts.get(number).zip(numbers.get(number))?;
            (!store.has_failed()).then_some((number, layout, numbers))
        };
        rayon::scope(|scope| {
            for _ in 0..shares.units_at_once {
                scope.spawn(|scope| {
                    while let Some((number, layout, numbers)) = next_unit() {
                        let place = self.units.start + number;
                        let mut items = ItemSorter::new(folder, shares.sort_bytes, layout.counts.items());
                        let mut ends = CollectiveEnds::within(ends_bytes / shares.units_at_once as u64);
                        let read = rows.items(place, layout, shares.read_bytes, &mut |item| {
                            if has_borders {
                                ends.add(item.flows, item.start, &frame.windows);
                            }
                            items.push(item)
                        });
                        let drawn = read.and_then(|(mut facts, dictionary)| {
                            let unit = EncodedUnit { place, layout, dictionary: &dictionary, numbers };
                            let out = UnitPieces { store: &store, scope, unit: number };
                            let changes = draw(frame.format, unit, (&frame.windows, frame.t0), items, out)?;
                            facts.replaced = changes.mended;
                            facts.without_source = changes.without_source;
                            let (sum, all_ends) = &mut *found.lock().unwrap_or_else(PoisonError::into_inner);
                            sum.add(&facts);
                            all_ends.join(ends);
                            Ok(())
                        });
                        match drawn {
                            Ok(()) => progress.add(self.bytes[number]),
                            Err(failure) => store.fail(failure),
                        }
                    }
                });
            }
        });
        let (facts, collectives) = found.into_inner().unwrap_or_else(PoisonError::into_inner);
        let (pieces, tallies, spool) = store.finish()?;
        Ok(EncodedUnits { pieces, tallies, spool, facts, collectives })
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

/// Adds the facts of all ranks; all ranks get the sum.
pub(super) fn gather_facts(comm: &impl Comm, encoded: &EncodedUnits) -> Result<UnitFacts, Failure> {
    let mut sum = UnitFacts::default();
    all_gather_values(comm, &encoded.facts)?.iter().for_each(|facts| sum.add(facts));
    Ok(sum)
}

/// Returns the approximate maximum size of the descriptions of processes and tracks in a file, in all units of
/// all ranks, bytes.
pub(super) fn description_bytes<'a>(
    comm: &impl Comm,
    layouts: impl Iterator<Item = &'a UnitLayout>,
    format: TraceFormat,
) -> Result<u64, Failure> {
    let of = |layout: &UnitLayout| {
        let processes = layout.processes.iter().map(|process| format.track_bytes() + process.name.len());
        let text = |track: &DrawnTrack| track.name.len() + track.description.as_ref().map_or(0, String::len);
        let tracks = layout.tracks.iter().map(|track| format.track_bytes() + text(track));
        processes.chain(tracks).sum::<usize>() as u64
    };
    Ok(all_gather_counts(comm, &[layouts.map(of).sum()])?.iter().flatten().sum())
}

/// Returns the units of a rank. A unit belongs to the rank with the share of all rows that contains its middle.
fn share_units(weights: &[u64], rank: usize, ranks: usize) -> Range<usize> {
    let weights = weights.iter().map(|weight| u128::from((*weight).max(1)));
    let total: u128 = weights.clone().sum();
    let mut before: u128 = 0;
    let owners = weights.map(|weight| {
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
            let dealt: Vec<usize> = (0..ranks).flat_map(|rank| share_units(&weights, rank, ranks)).collect();
            prop_assert_eq!(dealt, (0..weights.len()).collect::<Vec<_>>());
        }
    }
}
