//! Storage of a table in the file, and reading of its rows.

use super::catalog::Entry;
use super::declaration::{FileColumn, FileTable, Literal};
use super::error::{ReadError, is_after_the_end};
use super::piece::{Piece, PiecePlace};
use super::shared::Shared;
use super::wanted::Wanted;
use crate::connect::identifier;
use rpd_shard::model::{Cells, Column, Keys, Kind, Local, OwnedValue, Rows, RowsBuilder, Table, Value};
use rpd_sqlite::read as pages;
use rpd_sqlite::write::Affinity;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OptionalExtension};
use std::path::Path;
use std::sync::Arc;

/// Number of rows of a piece that SQLite reads.
const PIECE_ROWS: i64 = 8192;
/// Bytes of the leaf pages of a piece.
const PIECE_BYTES: usize = 1 << 20;
/// Assumed bytes per row, to estimate the number of rows from pages.
const ROW_BYTES: usize = 64;
/// Maximum bytes on overflow pages in a piece of leaf pages. A page with more is read cell by cell.
const MAX_OVERFLOW_BYTES: u64 = 2 << 20;
/// Maximum bytes of text in a piece of several rows that SQLite reads.
const MAX_TEXT_BYTES: usize = 256 << 20;

/// Storage of a table in the file.
#[derive(Debug)]
pub(super) struct Stored {
    /// Name with its suffix.
    pub(super) name: String,
    root: u32,
    /// Number of values in a stored row, including the key.
    width: usize,
    /// For each column of its description; `None` if the file lacks the column.
    columns: Arc<[Option<Source>]>,
}

/// Column lists of all open files.
static COLUMNS: Shared<[Option<Source>]> = Shared::new();

/// Storage of a column in the file.
#[derive(PartialEq, Debug)]
struct Source {
    /// Name as spelled in the file.
    name: String,
    /// Index in a stored row.
    at: usize,
    /// Value in rows that end before this column; `None` if only SQLite can determine it.
    default: Option<OwnedValue>,
    /// Whether integers are read as floating point numbers.
    real: bool,
}

/// Returns whether a column is requested.
fn is_wanted(column: &Column, wanted: Wanted) -> bool {
    match wanted {
        Wanted::All => true,
        Wanted::Links => matches!(column.kind, Kind::Ref(_) | Kind::Str | Kind::Stack),
        Wanted::Named(names) => names.contains(&column.name.as_str()),
    }
}

impl Stored {
    /// Creates the description. `places` has, for each column of the table, its index among those of the file.
    pub(super) fn new(entry: &Entry, file: &FileTable, places: &[Option<usize>]) -> Stored {
        let source = |place: &Option<usize>| Source::of(file.columns.get((*place)?)?);
        Stored {
            name: entry.name.clone(),
            root: entry.root,
            width: file.stored,
            columns: COLUMNS.one_of(places.iter().map(source).collect()),
        }
    }

    /// Returns whether its rows can be decoded without SQLite.
    pub(super) fn is_plain(&self) -> bool {
        self.columns.iter().flatten().all(|source| source.default.is_some())
    }

    /// Divides the table into pieces by its leaf pages. Also returns the losses, one line each, except pages beyond
    /// the end of a truncated file.
    pub(super) fn page_pieces(&self, database: &pages::PageDatabase) -> (Vec<Piece>, Vec<String>) {
        let found = database.leaves(self.root);
        let reported = found.damage.iter().filter(|error| !is_after_the_end(error, database));
        let line = |error: &pages::PageError| {
            format!("rows of {} are lost: page {}: {}", self.name, error.page, error.problem)
        };
        let damage = reported.map(line).collect();
        let many = (PIECE_BYTES / database.page_size()).max(1);
        let piece = |pages: &[u32]| {
            let rows = pages.len() * database.page_size() / ROW_BYTES;
            Piece::of_pages(pages, rows as u64)
        };
        (found.pages.chunks(many).map(piece).collect(), damage)
    }

    /// Divides a piece of rows that are too long to be read at once.
    pub(super) fn smaller(
        &self,
        database: &pages::PageDatabase,
        piece: &Piece,
    ) -> Result<Vec<Piece>, ReadError> {
        match &piece.place {
            PiecePlace::Pages(leaves) if leaves.len() == 1 => {
                let payloads = database.payloads(leaves[0]);
                let payloads = payloads.map_err(|error| ReadError::page(error, database, &self.name))?;
                // Rows that share overflow pages could be larger than the file.
                let sum = payloads.iter().fold(0u64, |sum, length| sum.saturating_add(*length));
                if sum > u64::from(database.page_count()) * database.page_size() as u64 {
                    return Ok(vec![piece.clone()]);
                }
                Ok(Piece::of_cells(leaves[0], &payloads, MAX_OVERFLOW_BYTES))
            }
            _ => Ok(piece.split()),
        }
    }

    /// Reads the rows of some leaf pages, or of cells of one page.
    pub(super) fn page_rows(
        &self,
        database: &pages::PageDatabase,
        table: &Arc<Table>,
        place: &PiecePlace,
        wanted: Wanted,
    ) -> Result<Rows<Local>, ReadError> {
        let mut places = vec![pages::Wanted::Skip; self.width];
        let sources = || {
            let columns = table.columns.iter().zip(&*self.columns);
            columns.map(|(column, source)| source.as_ref().filter(|_| is_wanted(column, wanted)))
        };
        for source in sources().flatten() {
            let default = source.default.as_ref().map_or(Value::Null, OwnedValue::as_value);
            if let Some(place) = places.get_mut(source.at) {
                let value = pages::Wanted::Value { default };
                *place = if source.real { pages::Wanted::Real { default } } else { value };
            }
        }
        let rows = match place {
            PiecePlace::Cells { page, first, next } => {
                database.rows_of_cells(*page, usize::from(*first)..usize::from(*next), &places)
            }
            PiecePlace::Pages(leaves) => database.rows_bounded(leaves, &places, MAX_OVERFLOW_BYTES),
            // Only SQLite searches for keys.
            PiecePlace::Keys { .. } => return Err(ReadError::Changed(database.path().to_owned())),
        };
        let mut rows = rows.map_err(|error| ReadError::page(error, database, &self.name))?;
        let columns = sources().zip(&table.columns).map(|(source, column)| {
            let cells = source.and_then(|source| rows.columns.get_mut(source.at)).map(std::mem::take);
            // NULL in all rows is equivalent to an absent column without a default, which needs no memory.
            cells
                .filter(|cells| column.sql.default.is_some() || !is_empty(cells, rows.len))
                .unwrap_or_default()
        });
        let columns = columns.collect();
        Ok(Rows::new(table.clone(), rows.keys, columns, rows.len))
    }

    /// Divides the table into pieces by its keys, which SQLite reads. For a damaged table, returns the pieces
    /// before the damage and the error.
    pub(super) fn key_pieces(&self, conn: &Connection) -> (Vec<Piece>, Option<rusqlite::Error>) {
        let mut pieces = Vec::new();
        let error = self.step(conn, &mut pieces).err();
        (pieces, error)
    }

    fn step(&self, conn: &Connection, pieces: &mut Vec<Piece>) -> rusqlite::Result<()> {
        let table = identifier(&self.name);
        let first = conn.query_row(&format!("SELECT min(id) FROM {table}"), [], |row| row.get(0))?;
        let Some(mut first) = first else { return Ok(()) };
        let sql =
            format!("SELECT id FROM {table} WHERE id >= ?1 ORDER BY id LIMIT 1 OFFSET {}", PIECE_ROWS - 1);
        let mut step = conn.prepare(&sql)?;
        while let Some(last) = step.query_row([first], |row| row.get::<_, i64>(0)).optional()? {
            pieces.push(Piece::keys(first, last, PIECE_ROWS as u64));
            match last.checked_add(1) {
                Some(next) => first = next,
                None => return Ok(()),
            }
        }
        let sql = format!("SELECT count(*), max(id) FROM {table} WHERE id >= ?1");
        let (rows, last): (i64, Option<i64>) =
            conn.query_row(&sql, [first], |row| Ok((row.get(0)?, row.get(1)?)))?;
        if let Some(last) = last {
            pieces.push(Piece::keys(first, last, rows.cast_unsigned()));
        }
        Ok(())
    }

    /// Reads the rows with keys from `first` to `last` with SQLite.
    pub(super) fn key_rows(
        &self,
        conn: &Connection,
        path: &Path,
        table: &Arc<Table>,
        (first, last): (i64, i64),
        wanted: Wanted,
    ) -> Result<Rows<Local>, ReadError> {
        let failed = |source| {
            let (path, table, source) = (path.to_owned(), self.name.clone(), Box::new(source));
            ReadError::Rows { path, table, first, last, source }
        };
        // Index of each column of the table in the SELECT.
        let mut sql = "SELECT id".to_owned();
        let mut selected = 0;
        let mut places = Vec::with_capacity(table.columns.len());
        for (column, source) in table.columns.iter().zip(&*self.columns) {
            let source = source.as_ref().filter(|_| is_wanted(column, wanted));
            places.push(source.map(|source| {
                sql = format!("{sql}, {}", identifier(&source.name));
                selected += 1;
                selected
            }));
        }
        let sql = format!("{sql} FROM {} WHERE id BETWEEN ?1 AND ?2 ORDER BY id", identifier(&self.name));
        let mut query = conn.prepare(&sql).map_err(failed)?;
        let mut found = query.query([first, last]).map_err(failed)?;
        let mut keys: Vec<i64> = Vec::new();
        let mut builder = RowsBuilder::new(table);
        while let Some(row) = found.next().map_err(failed)? {
            let key = row.get(0).map_err(failed)?;
            if keys.last().is_some_and(|before| *before >= key) {
                return Err(ReadError::Order { path: path.to_owned(), table: self.name.clone(), key });
            }
            let value =
                |place: &Option<usize>| place.map_or(Ok(Value::Null), |at| row.get_ref(at).map(value));
            let values = places.iter().map(value).collect::<rusqlite::Result<Vec<_>>>().map_err(failed)?;
            builder.push(&values);
            keys.push(key);
            if builder.text_bytes() > MAX_TEXT_BYTES && keys.len() > 1 {
                return Err(ReadError::TooLarge { path: path.to_owned(), table: self.name.clone() });
            }
        }
        let mut rows = builder.finish(0);
        rows.keys = Keys::Sparse(keys);
        for (cells, place) in rows.columns.iter_mut().zip(&places) {
            if place.is_none() {
                *cells = Cells::Absent;
            }
        }
        Ok(rows)
    }
}

impl Source {
    /// Returns `None` for a generated column.
    fn of(column: &FileColumn) -> Option<Source> {
        let affinity = Affinity::of(&column.type_name);
        Some(Source {
            name: column.name.clone(),
            at: column.stored_at?,
            default: default_value(&column.default, affinity),
            real: affinity == Affinity::Real,
        })
    }
}

/// Returns the value that SQLite stores for a default in a column of this affinity, or `None` if that is not obvious.
fn default_value(default: &Literal, affinity: Affinity) -> Option<OwnedValue> {
    let text = |text: &str| OwnedValue::Text(text.as_bytes().into());
    match default {
        Literal::Null => Some(OwnedValue::Null),
        Literal::Number(number) => match (number.parse::<i64>(), affinity) {
            // SQLite stores the text as it was written.
            (_, Affinity::Text) => None,
            (Ok(value), Affinity::Real) => Some(OwnedValue::Real(value as f64)),
            (Ok(value), _) => Some(OwnedValue::Int(value)),
            (Err(_), Affinity::Real | Affinity::Blob) => number.parse().ok().map(OwnedValue::Real),
            (Err(_), _) => None,
        },
        // SQLite may convert any text that reads as a number.
        Literal::Text(value) => {
            let may_be_number =
                value.trim_start().starts_with(|first: char| first.is_ascii_digit() || "+-.".contains(first));
            let stays = matches!(affinity, Affinity::Text | Affinity::Blob) || !may_be_number;
            stays.then(|| text(value))
        }
        Literal::Other => None,
    }
}

/// Returns whether a column is NULL in all rows.
fn is_empty(cells: &Cells, rows: usize) -> bool {
    matches!(cells, Cells::Int { nulls, .. } if rows > 0 && nulls.get(0)) && cells.filled(rows) == 0
}

fn value(value: ValueRef<'_>) -> Value<'_> {
    match value {
        ValueRef::Null => Value::Null,
        ValueRef::Integer(v) => Value::Int(v),
        ValueRef::Real(v) => Value::Real(v),
        ValueRef::Text(v) => Value::Text(v),
        ValueRef::Blob(v) => Value::Blob(v),
    }
}
