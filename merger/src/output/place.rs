//! Writes pages to their position: every thread of every rank writes its own part of the file.
//!
//! The pages of a unit follow those of the units before it. A single rank knows their number when the unit is next in
//! order. Several ranks first exchange how many pages each of them has. For this, each rank encodes its units, keeps
//! as many pages as memory allows, and encodes the others again when it writes. No rank precedes rank 0, so rank 0
//! writes at once.

use super::encode::{EncodedUnit, UnitEncoder};
use super::index::LeafIndex;
use super::size_limit::SizeLimit;
use super::stream::PageStream;
use super::turns::run_ordered;
use super::written_rows::WrittenRows;
use rpd_comm::{Comm, agree_on_result, all_gather_counts};
use rpd_console::Failure;
use rpd_sqlite::write::{LogicalPage, PAGE_SIZE};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// Destination of the pages of all ranks, and limits for the writing of this rank.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WriteTarget<'a> {
    /// The file, with empty tables.
    pub path: &'a Path,
    /// Logical page at which the pages of all ranks begin.
    pub first: LogicalPage,
    /// Number of encoding threads.
    pub threads: usize,
    /// Maximum bytes of pages that wait to be written to disk.
    pub stream_bytes: usize,
    /// Maximum bytes of pages that are kept between the two passes, if there are several ranks.
    pub kept_bytes: u64,
    /// Maximum bytes of the output.
    pub max_bytes: u64,
}

/// Pages that this rank wrote.
#[derive(Debug, Default)]
pub(crate) struct RankPages {
    /// Number of rows.
    pub written: WrittenRows,
    /// Leaf pages; page numbers count from the first page after the schema.
    pub index: LeafIndex,
    /// Number of pages of all ranks.
    pub pages: u64,
}

struct WriteProgress {
    next: u64,
    placed: RankPages,
    stream: PageStream,
}

/// Encodes this rank's units and writes their pages after those of the previous ranks. If any rank fails, all ranks
/// return its failure.
pub(crate) fn write_pages(
    comm: &impl Comm,
    target: WriteTarget<'_>,
    encoder: &UnitEncoder<'_>,
) -> Result<RankPages, Failure> {
    let kept: Vec<KeptUnit> = (0..encoder.units()).map(|_| Mutex::default()).collect();
    encoder.expect(0..encoder.units());
    if comm.size() == 1 {
        return agree_on_result(comm, write(target, 0, encoder, &kept));
    }
    // No rank precedes rank 0, so it writes while the others count.
    let counted = match comm.rank() {
        0 => write(target, 0, encoder, &kept).map(|placed| (placed.pages, Some(placed))),
        _ => measure(&kept, target, encoder).map(|pages| (pages, None)),
    };
    let (pages, own) = agree_on_result(comm, counted)?;
    let all = all_gather_counts(comm, &[pages])?;
    let total = all.iter().map(|n| n[0]).sum();
    let placed = match own {
        Some(placed) => Ok(placed),
        None => {
            let is_kept = |unit: &usize| kept[*unit].lock().unwrap_or_else(PoisonError::into_inner).is_some();
            encoder.expect((0..encoder.units()).filter(|unit| !is_kept(unit)));
            write(target, all[..comm.rank()].iter().map(|n| n[0]).sum(), encoder, &kept)
        }
    };
    Ok(RankPages { pages: total, ..agree_on_result(comm, placed)? })
}

/// Writes this rank's pages after `before` pages. Kept pages are not encoded again. The returned page count is that
/// of this rank.
fn write(
    target: WriteTarget<'_>,
    before: u64,
    encoder: &UnitEncoder<'_>,
    kept: &[KeptUnit],
) -> Result<RankPages, Failure> {
    let stream = PageStream::begin(target.path, target.stream_bytes, encoder.memory.clone())?;
    let ready = run_ordered(
        encoder.units(),
        target.threads,
        WriteProgress { next: before, placed: RankPages::default(), stream },
        |unit, emit| {
            let parts = std::mem::take(&mut *kept[unit].lock().unwrap_or_else(PoisonError::into_inner));
            let Some(mut parts) = parts else { return encoder.encode(unit, emit) };
            let last = parts.pop();
            parts.into_iter().try_for_each(emit)?;
            last.ok_or_else(|| Failure::internal("a unit without parts"))
        },
        |state, _, unit| {
            for (slot, run) in unit.runs {
                state.placed.index.add(slot, state.next, run.last_rowids());
                let pages = run.pages();
                let place = target.first.plus(state.next);
                state.stream.push(run.place(place).map_err(|e| Failure::output(e.to_string()))?)?;
                state.next += pages;
                if state.next.saturating_mul(PAGE_SIZE as u64) > target.max_bytes {
                    return Err(SizeLimit::exceeded(target.max_bytes, target.path));
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

/// Parts of a unit, if memory suffices to keep all of them.
type KeptUnit = Mutex<Option<Vec<EncodedUnit>>>;

#[derive(Default)]
struct Counted {
    pages: u64,
    /// Bytes of the kept pages.
    bytes: u64,
    /// The last unit that exceeded the memory limit.
    dropped: Option<usize>,
}

/// Counts the pages of all units, and keeps pages as long as memory suffices.
fn measure(kept: &[KeptUnit], target: WriteTarget<'_>, encoder: &UnitEncoder<'_>) -> Result<u64, Failure> {
    let counted = run_ordered(
        kept.len(),
        target.threads,
        Counted::default(),
        |unit, emit| encoder.encode(unit, emit),
        |counted, number, part| {
            counted.pages += part.pages;
            let length = part.pages * PAGE_SIZE as u64;
            let mut parts = kept[number].lock().unwrap_or_else(PoisonError::into_inner);
            if counted.dropped == Some(number) {
            } else if counted.bytes + length <= target.kept_bytes {
                counted.bytes += length;
                parts.get_or_insert_default().push(part);
            } else {
                // A unit is either kept completely or encoded again.
                counted.dropped = Some(number);
                let pages: u64 = parts.take().iter().flatten().map(|part| part.pages).sum();
                counted.bytes -= pages * PAGE_SIZE as u64;
            }
            Ok(())
        },
    )?;
    Ok(counted.pages)
}
