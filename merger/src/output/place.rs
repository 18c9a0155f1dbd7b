//! Pages into their places: every rank, and every thread of it, writes its own part of the file.
//!
//! A unit's pages stand behind those of the units before it. Alone, a rank knows how many those are when it
//! is a unit's turn. Of several ranks each first learns how many pages the ranks before it have: they
//! encode their units, keep what memory allows, and encode the rest again when it is written. Rank 0 has
//! nobody before it and writes at once.

use super::encode::{EncodedUnit, UnitEncoder};
use super::index::LeafIndex;
use super::rows::WrittenRows;
use super::size_limit::SizeLimit;
use super::stream::PageStream;
use super::turns::in_turns;
use rpd_comm::{Comm, agree_on_result, gather_counts};
use rpd_console::Failure;
use rpd_sqlite::write::{LogicalPage, PAGE_SIZE};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// What a rank may use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WriteLimits {
    /// Threads that encode.
    pub threads: usize,
    /// Bytes of pages on their way to the disk.
    pub stream_bytes: usize,
    /// Bytes of pages that are kept between the two passes of several ranks.
    pub kept_bytes: u64,
    /// Bytes that the output may have.
    pub most_bytes: u64,
}

/// What this rank wrote.
#[derive(Debug, Default)]
pub(crate) struct RankPages {
    /// Rows.
    pub written: WrittenRows,
    /// Leaves; page numbers count from the first page behind the schema.
    pub index: LeafIndex,
    /// Pages of all ranks.
    pub pages: u64,
}

struct Progressing {
    next: u64,
    placed: RankPages,
    stream: PageStream,
}

/// Where the pages go.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WriteTarget<'a> {
    /// The file, with empty tables.
    pub path: &'a Path,
    /// The logical page that those of all ranks begin at.
    pub first: LogicalPage,
}

/// Encodes this rank's units and writes their pages, behind those of the ranks before. What one rank fails
/// with, all do.
pub(crate) fn place(
    comm: &impl Comm,
    target: WriteTarget<'_>,
    encoder: &UnitEncoder<'_>,
    means: WriteLimits,
) -> Result<RankPages, Failure> {
    let kept: Vec<Kept> = (0..encoder.units()).map(|_| Mutex::default()).collect();
    if comm.size() == 1 {
        encoder.expect(0..encoder.units());
        return agree_on_result(comm, write(target, 0, encoder, &kept, means));
    }
    // Rank 0 has nobody before it, and writes while the others count.
    encoder.expect(0..encoder.units());
    let counted = match comm.rank() {
        0 => write(target, 0, encoder, &kept, means).map(|placed| (placed.pages, Some(placed))),
        _ => measure(&kept, means, encoder).map(|pages| (pages, None)),
    };
    let (pages, own) = agree_on_result(comm, counted)?;
    let all = gather_counts(comm, &[pages])?;
    let total = all.iter().map(|n| n[0]).sum();
    let placed = match own {
        Some(placed) => Ok(placed),
        None => {
            let is_kept = |unit: &usize| kept[*unit].lock().unwrap_or_else(PoisonError::into_inner).is_some();
            encoder.expect((0..encoder.units()).filter(|unit| !is_kept(unit)));
            write(target, all[..comm.rank()].iter().map(|n| n[0]).sum(), encoder, &kept, means)
        }
    };
    Ok(RankPages { pages: total, ..agree_on_result(comm, placed)? })
}

/// Writes this rank's pages behind `before` pages; what is kept is not encoded again. The pages returned are
/// this rank's.
fn write(
    target: WriteTarget<'_>,
    before: u64,
    encoder: &UnitEncoder<'_>,
    kept: &[Kept],
    means: WriteLimits,
) -> Result<RankPages, Failure> {
    let stream = PageStream::begin(target.path, means.stream_bytes, encoder.memory().clone())?;
    let ready = in_turns(
        encoder.units(),
        means.threads,
        Progressing { next: before, placed: RankPages::default(), stream },
        |unit, hand_on| {
            let parts = std::mem::take(&mut *kept[unit].lock().unwrap_or_else(PoisonError::into_inner));
            let Some(mut parts) = parts else { return encoder.encode(unit, hand_on) };
            let last = parts.pop();
            parts.into_iter().try_for_each(hand_on)?;
            last.ok_or_else(|| Failure::internal("a unit without parts"))
        },
        |state, _, unit| {
            for (slot, run) in unit.runs {
                state.placed.index.add(slot, state.next, run.last_rowids());
                let pages = run.pages();
                let place = target.first.plus(state.next);
                state.stream.push(run.place(place).map_err(|e| Failure::output(e.to_string()))?)?;
                state.next += pages;
                if state.next.saturating_mul(PAGE_SIZE as u64) > means.most_bytes {
                    return Err(SizeLimit::exceeded(means.most_bytes, target.path));
                }
            }
            state.placed.written.add(unit.written);
            encoder.finished(unit.finished);
            Ok(())
        },
    )?;
    ready.stream.finish()?;
    Ok(RankPages { pages: ready.next - before, ..ready.placed })
}

/// The parts of a unit, where memory allows to keep all of them.
type Kept = Mutex<Option<Vec<EncodedUnit>>>;

#[derive(Default)]
struct Counted {
    pages: u64,
    /// Bytes that are kept.
    bytes: u64,
    /// The last unit that found no room.
    dropped: Option<usize>,
}

/// Counts the pages of all units, and keeps the first ones.
fn measure(kept: &[Kept], means: WriteLimits, encoder: &UnitEncoder<'_>) -> Result<u64, Failure> {
    let counted = in_turns(
        kept.len(),
        means.threads,
        Counted::default(),
        |unit, hand_on| encoder.encode(unit, hand_on),
        |counted, number, part| {
            counted.pages += part.pages;
            let length = part.pages * PAGE_SIZE as u64;
            let mut parts = kept[number].lock().unwrap_or_else(PoisonError::into_inner);
            if counted.dropped == Some(number) {
            } else if counted.bytes + length <= means.kept_bytes {
                counted.bytes += length;
                parts.get_or_insert_default().push(part);
            } else {
                // A unit is kept whole, or encoded again.
                counted.dropped = Some(number);
                let pages: u64 = parts.take().iter().flatten().map(|part| part.pages).sum();
                counted.bytes -= pages * PAGE_SIZE as u64;
            }
            Ok(())
        },
    )?;
    Ok(counted.pages)
}
