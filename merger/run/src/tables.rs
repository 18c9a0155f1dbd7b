//! Reads rows of the database by ranges of ids.

use rpd_console::Failure;
use rpd_rocpd::read::{Database, Piece, ReadError, Wanted};
use rpd_shard::model::{Keys, Local, Rows, TableId};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::OnceLock;

/// Index of the table set. A merged database has a single one.
const ONLY_TABLE_SET: usize = 0;
/// Minimum number of pages that are read at once.
const MIN_PIECE_PAGES: usize = 4;

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

    /// Returns whether there are no ids.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
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

/// The tables of a merged database.
#[derive(Debug)]
pub struct RunTables {
    database: Database,
    tables: HashMap<TableId, OneTable>,
}

#[derive(Debug)]
struct OneTable {
    place: usize,
    pieces: Vec<Piece>,
    /// First id of each piece, if it has been read.
    firsts: Vec<OnceLock<i64>>,
}

impl OneTable {
    fn new(place: usize, pieces: Vec<Piece>) -> OneTable {
        let firsts = pieces.iter().map(|_| OnceLock::new()).collect();
        OneTable { place, pieces, firsts }
    }
}

impl RunTables {
    pub(crate) fn new(mut database: Database) -> RunTables {
        let tables = database.table_sets().get(ONLY_TABLE_SET).map_or(&[][..], |set| &set.tables);
        let one = |(place, table): (usize, &rpd_rocpd::read::StoredTable)| {
            (table.table.id, OneTable::new(place, table.pieces.clone()))
        };
        let tables = tables.iter().enumerate().map(one).collect();
        database.forget_pieces();
        RunTables { database, tables }
    }

    /// Divides the pieces so that each has about the rows of one unit. Otherwise, with many small units, each
    /// unit would read the rows of hundreds of others.
    pub(crate) fn divide_pieces(&mut self, units: usize) {
        for table in self.tables.values_mut() {
            let pages: usize = table.pieces.iter().map(Piece::pages).sum();
            let max_pages = pages.div_ceil(units.max(1)).max(MIN_PIECE_PAGES);
            let pieces = table.pieces.iter().flat_map(|piece| piece.of_at_most(max_pages)).collect();
            *table = OneTable::new(table.place, pieces);
        }
    }

    /// Returns the database.
    pub fn database(&self) -> &Database {
        &self.database
    }

    /// Returns a metadata tag; empty if it is missing.
    pub fn tag(&self, name: &str) -> &str {
        self.database
            .table_sets()
            .get(ONLY_TABLE_SET)
            .and_then(|set| set.tags.get(name))
            .map_or("", String::as_str)
    }

    /// Returns a failure that names the file.
    pub fn failure(&self, what: impl std::fmt::Display) -> Failure {
        Failure::input(format!("{}: {what}", self.database.path().display()))
    }

    /// Returns the failure for ids of a table that do not ascend.
    pub fn descending_ids(&self, table: TableId) -> Failure {
        self.failure(format_args!("ids of {table} do not ascend; merge its inputs again"))
    }

    /// Returns the approximate number of rows in a piece.
    pub fn row_count(&self, table: TableId, piece: usize) -> u64 {
        let table = self.tables.get(&table);
        table.and_then(|table| table.pieces.get(piece)).map_or(0, |piece| piece.rows)
    }

    /// Returns the first and the last id of a table; `None` if it has no rows.
    pub fn id_bounds(&self, table: TableId) -> Result<Option<(i64, i64)>, Failure> {
        let Some(known) = self.tables.get(&table) else { return Ok(None) };
        let Some(last_piece) = known.pieces.last() else { return Ok(None) };
        let mut last = None;
        // Reads only the last page, if the piece can be split into pages.
        let parts = last_piece.split();
        for part in parts.iter().rev() {
            self.read_part(known, part, &[], &mut |rows| {
                let end = rows.len.checked_sub(1).map(|place| rows.keys.get(place));
                last = last.max(end);
                Ok(())
            })?;
            if last.is_some() {
                break;
            }
        }
        let first = self.first_id(table, 0)?;
        Ok(last.map(|last| (first, last)))
    }

    /// Returns the first id of a piece; `i64::MAX` if it has no rows.
    pub fn first_id(&self, table: TableId, piece: usize) -> Result<i64, Failure> {
        let Some(known) = self.tables.get(&table) else { return Ok(i64::MAX) };
        let Some((cell, of)) = known.firsts.get(piece).zip(known.pieces.get(piece)) else {
            return Ok(i64::MAX);
        };
        if let Some(first) = cell.get() {
            return Ok(*first);
        }
        let mut first = None;
        for part in of.split() {
            self.read_part(known, &part, &[], &mut |rows| {
                if rows.len > 0 {
                    first.get_or_insert_with(|| rows.keys.get(0));
                }
                Ok(())
            })?;
            if first.is_some() {
                break;
            }
        }
        Ok(*cell.get_or_init(|| first.unwrap_or(i64::MAX)))
    }

    /// Returns the pieces that contain rows with these ids, ascending.
    pub fn pieces_with(&self, table: TableId, ids: &IdRanges) -> Result<Vec<usize>, Failure> {
        let Some(known) = self.tables.get(&table) else { return Ok(Vec::new()) };
        let all = known.pieces.len();
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
        let Some(known) = self.tables.get(&table) else { return Ok(()) };
        let read = |number: usize| {
            let piece = known.pieces.get(*pieces.get(number)?)?;
            Some((piece, self.database.rows(ONLY_TABLE_SET, known.place, piece, Wanted::Named(wanted))))
        };
        let mut ahead = read(0);
        for number in 0..pieces.len() {
            let Some((piece, rows)) = ahead.take() else { continue };
            rayon::in_place_scope(|scope| {
                if number + 1 < pieces.len() {
                    scope.spawn(|_| ahead = read(number + 1));
                }
                self.take_rows(known, piece, rows, wanted, &mut |rows| {
                    let mut places = ids.places(&rows.keys, rows.len);
                    places.try_for_each(|places| take(number, rows, places))
                })
            })?;
        }
        Ok(())
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

    /// Reads a piece, in parts if its rows are too large.
    fn read_part(
        &self,
        table: &OneTable,
        piece: &Piece,
        wanted: &'static [&'static str],
        take: &mut dyn FnMut(&Rows<Local>) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let rows = self.database.rows(ONLY_TABLE_SET, table.place, piece, Wanted::Named(wanted));
        self.take_rows(table, piece, rows, wanted, take)
    }

    /// Passes the rows of a piece on if they could be read at once, otherwise those of its parts.
    fn take_rows(
        &self,
        table: &OneTable,
        piece: &Piece,
        rows: Result<Rows<Local>, ReadError>,
        wanted: &'static [&'static str],
        take: &mut dyn FnMut(&Rows<Local>) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        match rows {
            Ok(rows) => take(&rows),
            Err(error @ ReadError::TooLarge { .. }) => {
                let smaller = self
                    .database
                    .smaller(ONLY_TABLE_SET, table.place, piece)
                    .map_err(|error| unreadable(&error))?;
                if smaller.first() == Some(piece) {
                    return Err(unreadable(&error));
                }
                smaller.iter().try_for_each(|part| self.read_part(table, part, wanted, take))
            }
            Err(error) => Err(unreadable(&error)),
        }
    }
}

/// Returns the failure for rows that cannot be read. The message names the file.
pub(crate) fn unreadable(error: &ReadError) -> Failure {
    let cause = std::error::Error::source(error).map_or(String::new(), |source| format!(" ({source})"));
    Failure::input(format!("{error}{cause}; merge its inputs again"))
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
