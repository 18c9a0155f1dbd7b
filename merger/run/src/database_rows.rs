//! The rows of a merged database.

use crate::row_source::{RowSource, TakePieceRows};
use crate::units::RowUnit;
use rpd_console::Failure;
use rpd_rocpd::read::{Database, Piece, ReadError, Wanted};
use rpd_shard::model::{Local, Rows, TableId};
use std::collections::HashMap;
use std::sync::OnceLock;

/// Index of the table set. A merged database has a single one.
const ONLY_TABLE_SET: usize = 0;
/// Minimum number of pages that are read at once.
const MIN_PIECE_PAGES: usize = 4;

/// The rows of a merged database.
#[derive(Debug)]
pub(crate) struct DatabaseRows {
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

impl DatabaseRows {
    pub(crate) fn new(mut database: Database) -> DatabaseRows {
        let tables = database.table_sets().get(ONLY_TABLE_SET).map_or(&[][..], |set| &set.tables);
        let one = |(place, table): (usize, &rpd_rocpd::read::StoredTable)| {
            (table.table.id, OneTable::new(place, table.pieces.clone()))
        };
        let tables = tables.iter().enumerate().map(one).collect();
        database.forget_pieces();
        DatabaseRows { database, tables }
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

impl RowSource for DatabaseRows {
    fn failure(&self, problem: &str) -> Failure {
        Failure::input(format!("{}: {problem}; merge its inputs again", self.database.path().display()))
    }

    fn tag(&self, name: &str) -> Option<&str> {
        let set = self.database.table_sets().get(ONLY_TABLE_SET)?;
        set.tags.get(name).map(String::as_str)
    }

    fn database(&self) -> Option<&Database> {
        Some(&self.database)
    }

    /// Divides the pieces so that each has about the rows of one unit. Otherwise, with many small units, each
    /// unit would read the rows of hundreds of others.
    fn divide_pieces(&mut self, units: usize) {
        for table in self.tables.values_mut() {
            let pages: usize = table.pieces.iter().map(Piece::pages).sum();
            let max_pages = pages.div_ceil(units.max(1)).max(MIN_PIECE_PAGES);
            let pieces = table.pieces.iter().flat_map(|piece| piece.of_at_most(max_pages)).collect();
            *table = OneTable::new(table.place, pieces);
        }
    }

    fn pieces(&self, table: TableId) -> usize {
        self.tables.get(&table).map_or(0, |table| table.pieces.len())
    }

    fn row_count(&self, table: TableId, piece: usize) -> u64 {
        let table = self.tables.get(&table);
        table.and_then(|table| table.pieces.get(piece)).map_or(0, |piece| piece.rows)
    }

    fn first_id(&self, table: TableId, piece: usize) -> Result<i64, Failure> {
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

    fn id_bounds(&self, table: TableId) -> Result<Option<(i64, i64)>, Failure> {
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

    fn has_unit(&self, _unit: &RowUnit) -> bool {
        true
    }

    fn read_pieces(
        &self,
        table: TableId,
        pieces: &[usize],
        wanted: &'static [&'static str],
        take: &mut TakePieceRows<'_>,
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
                self.take_rows(known, piece, rows, wanted, &mut |rows| take(number, rows))
            })?;
        }
        Ok(())
    }
}

/// Returns the failure for rows that cannot be read. The message names the file.
pub(crate) fn unreadable(error: &ReadError) -> Failure {
    let cause = std::error::Error::source(error).map_or(String::new(), |source| format!(" ({source})"));
    Failure::input(format!("{error}{cause}; merge its inputs again"))
}
