//! Reads rows of a run by ranges of ids.

use crate::row_source::{JoinedEvents, RowSource};
use crate::units::RowUnit;
use rpd_console::Failure;
use rpd_rocpd::read::Database;
use rpd_shard::model::{Keys, Local, Rows, TableId};
use std::ops::Range;

/// Ascending ranges of ids, first and last, which do not touch each other.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct IdRanges(Vec<(i64, i64)>);

impl IdRanges {
    /// Returns an empty set of ids.
    pub(crate) const fn none() -> IdRanges {
        IdRanges(Vec::new())
    }

    /// Returns all ids.
    pub fn all() -> IdRanges {
        IdRanges(vec![(i64::MIN, i64::MAX)])
    }

    /// Returns the ids from `first` to `last`; empty if `last` is less than `first`.
    pub(crate) fn range(first: i64, last: i64) -> IdRanges {
        IdRanges(if first <= last { vec![(first, last)] } else { Vec::new() })
    }

    /// Returns the ids from `first` to `last` that are in none of the `taken` ranges, which must ascend.
    pub(crate) fn between(first: i64, last: i64, taken: &[(i64, i64)]) -> IdRanges {
        let mut free = Vec::new();
        let mut next = Some(first);
        for (from, to) in taken {
            let Some(start) = next.filter(|start| *start <= last) else { break };
            if *from > start {
                free.push((start, (from - 1).min(last)));
            }
            next = to.checked_add(1).map(|after| after.max(start));
        }
        if let Some(start) = next.filter(|start| *start <= last) {
            free.push((start, last));
        }
        IdRanges(free)
    }

    /// Returns those of the ids that are from `first` to `last`.
    pub fn within(&self, first: i64, last: i64) -> IdRanges {
        let cut = |(from, to): &(i64, i64)| (first.max(*from), last.min(*to));
        IdRanges(self.0.iter().map(cut).filter(|(from, to)| from <= to).collect())
    }

    /// Returns whether there are no ids.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns whether any of the ids is from `first` to `last`.
    pub(crate) fn overlaps(&self, first: i64, last: i64) -> bool {
        self.0.iter().any(|(from, to)| *from <= last && first <= *to)
    }

    /// Returns the maximum number of ids.
    pub fn count(&self) -> u64 {
        let width = |(first, last): &(i64, i64)| last.abs_diff(*first).saturating_add(1);
        self.0.iter().map(width).fold(0, u64::saturating_add)
    }

    /// Returns the places of rows with keys among these ids.
    fn places(&self, keys: &Keys, len: usize) -> impl Iterator<Item = Range<usize>> {
        let below = move |id: i64| match keys {
            Keys::Dense(first) => usize::try_from(i128::from(id) - i128::from(*first)).unwrap_or(0).min(len),
            Keys::Sparse(keys) => keys.partition_point(|key| *key < id),
        };
        let place = move |(first, last): &(i64, i64)| {
            let end = last.checked_add(1).map_or(len, below);
            below(*first).min(end)..end
        };
        self.0.iter().map(place).filter(|places| !places.is_empty())
    }
}

/// Callback that receives rows; the range selects the rows to use.
pub(crate) type TakeRows<'a> = dyn FnMut(&Rows<Local>, Range<usize>) -> Result<(), Failure> + 'a;

/// Callback that receives rows of several pieces: the index of the piece in the request, its rows, and the range
/// of rows to use.
pub(crate) type TakePieces<'a> = dyn FnMut(usize, &Rows<Local>, Range<usize>) -> Result<(), Failure> + 'a;

/// Callback that receives regions or samples, the range of rows to use, and what is joined with all of them.
pub(crate) type TakeJoined<'a> =
    dyn FnMut(&Rows<Local>, Range<usize>, Option<JoinedEvents<'_>>) -> Result<(), Failure> + 'a;

/// The tables of a run.
#[derive(Debug)]
pub struct RunTables {
    source: Box<dyn RowSource>,
}

impl RunTables {
    pub(crate) fn new(source: Box<dyn RowSource>) -> RunTables {
        RunTables { source }
    }

    /// Returns whether the rows of a unit can be read here.
    pub(crate) fn has_unit(&self, unit: &RowUnit) -> bool {
        self.source.has_unit(unit)
    }

    pub(crate) fn divide_pieces(&mut self, units: usize) {
        self.source.divide_pieces(units);
    }

    /// Returns the merged database, if the rows are in one.
    pub fn database(&self) -> Option<&Database> {
        self.source.database()
    }

    /// Returns a metadata tag; empty if it is missing.
    pub fn tag(&self, name: &str) -> &str {
        self.source.tag(name).unwrap_or_default()
    }

    /// Returns a failure that names the place of the rows.
    pub fn failure(&self, problem: impl std::fmt::Display) -> Failure {
        self.source.failure(&problem.to_string())
    }

    /// Returns the failure for ids of a table that do not ascend.
    pub fn descending_ids(&self, table: TableId) -> Failure {
        self.failure(format_args!("ids of {table} do not ascend"))
    }

    /// Returns the approximate number of rows in a piece.
    pub fn row_count(&self, table: TableId, piece: usize) -> u64 {
        self.source.row_count(table, piece)
    }

    /// Returns the first and the last id of a table; `None` if it has no rows.
    pub fn id_bounds(&self, table: TableId) -> Result<Option<(i64, i64)>, Failure> {
        self.source.id_bounds(table)
    }

    /// Returns the first id of a piece; `i64::MAX` if it has no rows.
    pub fn first_id(&self, table: TableId, piece: usize) -> Result<i64, Failure> {
        self.source.first_id(table, piece)
    }

    /// Returns the pieces that contain rows with these ids, ascending.
    pub fn pieces_with(&self, table: TableId, ids: &IdRanges) -> Result<Vec<usize>, Failure> {
        let all = self.source.pieces(table);
        let mut found: Vec<usize> = Vec::new();
        for (first, last) in &ids.0 {
            // Finds the first piece that starts after an id.
            let first_after = |id: i64| -> Result<usize, Failure> {
                let (mut low, mut high) = (0, all);
                while low < high {
                    let middle = low.midpoint(high);
                    if self.first_id(table, middle)? > id {
                        high = middle;
                    } else {
                        low = middle + 1;
                    }
                }
                Ok(low)
            };
            let next = found.last().map_or(0, |last| last + 1);
            found.extend(first_after(*first)?.saturating_sub(1).max(next)..first_after(*last)?);
        }
        Ok(found)
    }

    /// Passes the rows of several pieces in order, each with its index in `pieces`. Only the `wanted` columns are
    /// read. While `take` processes one piece, another thread may read the next.
    pub fn read_pieces(
        &self,
        table: TableId,
        pieces: &[usize],
        ids: &IdRanges,
        wanted: &'static [&'static str],
        take: &mut TakePieces<'_>,
    ) -> Result<(), Failure> {
        self.source.read_pieces(table, pieces, wanted, &mut |number, rows| {
            let mut places = ids.places(&rows.keys, rows.len);
            places.try_for_each(|places| take(number, rows, places))
        })
    }

    /// Passes all rows with these ids to `take`.
    pub fn read_rows(
        &self,
        table: TableId,
        ids: &IdRanges,
        wanted: &'static [&'static str],
        take: &mut TakeRows<'_>,
    ) -> Result<(), Failure> {
        let pieces = self.pieces_with(table, ids)?;
        self.read_pieces(table, &pieces, ids, wanted, &mut |_, rows, places| take(rows, places))
    }

    /// Returns the pieces that contain events or args with these ids and are not joined with regions or samples.
    pub fn unjoined_pieces(&self, table: TableId, ids: &IdRanges) -> Result<Vec<usize>, Failure> {
        let mut pieces = self.pieces_with(table, ids)?;
        pieces.retain(|piece| !self.source.is_joined(table, *piece));
        Ok(pieces)
    }

    /// As [`RunTables::read_pieces`], for regions or samples, with their events and args where these are at hand: their
    /// category, or all of them if `whole_events`.
    pub fn read_joined(
        &self,
        table: TableId,
        pieces: &[usize],
        ids: &IdRanges,
        (wanted, whole_events): (&'static [&'static str], bool),
        take: &mut TakeJoined<'_>,
    ) -> Result<(), Failure> {
        self.source.read_joined(table, pieces, wanted, whole_events, &mut |_, rows, joined| {
            let mut places = ids.places(&rows.keys, rows.len);
            places.try_for_each(|places| take(rows, places, joined))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_taken_is_free() {
        assert_eq!(IdRanges::between(1, 10, &[]).0, [(1, 10)]);
        assert_eq!(IdRanges::between(1, 10, &[(1, 3), (4, 10)]).0, []);
        assert_eq!(IdRanges::between(1, 10, &[(2, 3), (6, 8)]).0, [(1, 1), (4, 5), (9, 10)]);
        assert_eq!(IdRanges::between(5, 10, &[(1, 3), (8, 20)]).0, [(5, 7)]);
        assert_eq!(IdRanges::between(5, 10, &[(1, i64::MAX)]).0, []);
        assert_eq!(IdRanges::between(i64::MIN, i64::MAX, &[(0, 0)]).0, [(i64::MIN, -1), (1, i64::MAX)]);
        assert_eq!(IdRanges::between(i64::MIN, i64::MAX, &[]).count(), u64::MAX);
    }

    #[test]
    fn a_part_of_the_ids_has_no_others() {
        let ids = IdRanges(vec![(1, 3), (6, 8), (20, i64::MAX)]);
        assert_eq!(ids.within(2, 7).0, [(2, 3), (6, 7)]);
        assert_eq!(ids.within(i64::MIN, i64::MAX), ids);
        assert!(ids.within(4, 5).is_empty() && ids.within(7, 6).is_empty());
    }

    #[test]
    fn rows_are_found_by_their_ids() {
        let places = |ids: &IdRanges, keys: &Keys, len| ids.places(keys, len).collect::<Vec<_>>();
        let ids = IdRanges(vec![(3, 5), (9, i64::MAX)]);
        assert_eq!(places(&ids, &Keys::Dense(1), 20), [2..5, 8..20]);
        assert_eq!(places(&ids, &Keys::Sparse(vec![1, 4, 8, 11]), 4), [1..2, 3..4]);
        assert_eq!(places(&ids, &Keys::Dense(6), 3), []);
        let all = places(&IdRanges::all(), &Keys::Dense(-3), 7);
        assert_eq!(all, std::slice::from_ref(&(0..7)));
        assert_eq!(places(&IdRanges::range(5, 4), &Keys::Dense(-3), 7), []);
    }
}
