//! Rows of a table by SQLite.

use super::catalog::{Entry, FileTable};
use super::database::Wanted;
use super::error::ReadError;
use super::piece::Piece;
use crate::connect::identifier;
use rpd_shard::model::{Cells, Column, Keys, Kind, Local, Rows, RowsBuilder, Table, Value};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OptionalExtension};
use std::path::Path;
use std::sync::Arc;

/// Rows of a piece that SQLite reads.
const PIECE_ROWS: i64 = 8192;
/// Most bytes of text in a piece of several rows.
pub(super) const PIECE_BYTES: usize = 256 << 20;

/// Where the file has a table.
#[derive(Debug)]
pub(super) struct Stored {
    /// Name with suffix.
    pub(super) name: String,
    /// For each column of its description the name in the file; `None` where the file has none.
    columns: Vec<Option<String>>,
}

/// Whether a column is asked for.
pub(super) fn is_wanted(column: &Column, wanted: Wanted) -> bool {
    match wanted {
        Wanted::All => true,
        Wanted::Links => matches!(column.kind, Kind::Ref(_) | Kind::Str | Kind::Stack),
    }
}

impl Stored {
    pub(super) fn new(entry: &Entry, file: &FileTable, places: &[Option<usize>]) -> Stored {
        let name = |place: &Option<usize>| Some(file.columns.get((*place)?)?.name.clone());
        Stored { name: entry.name.clone(), columns: places.iter().map(name).collect() }
    }

    /// Divides the table into pieces; reads its keys. Of a damaged table these are the keys that can
    /// be reached from its beginning and from its end, and the error.
    pub(super) fn pieces(&self, conn: &Connection) -> (Vec<Piece>, Option<rusqlite::Error>) {
        let mut pieces = Vec::new();
        match self.step(conn, &mut pieces) {
            Ok(()) => (pieces, None),
            Err(error) => {
                let first = pieces.last().and_then(|piece: &Piece| piece.last_key()?.checked_add(1));
                if !pieces.is_empty() && first.is_none() {
                    return (pieces, Some(error));
                }
                let forth = self.reach(conn, first.unwrap_or(i64::MIN), i64::MAX, "ASC");
                let behind = forth.last().copied().or(first).unwrap_or(i64::MIN);
                let mut back = self.reach(conn, behind.saturating_add(1), i64::MAX, "DESC");
                back.reverse();
                for keys in [forth, back] {
                    for some in keys.chunks(PIECE_ROWS as usize) {
                        if let [first, .., last] | [first @ last] = some {
                            pieces.push(Piece::keys(*first, *last, some.len() as u64));
                        }
                    }
                }
                (pieces, Some(error))
            }
        }
    }

    /// Adds the pieces of a sound table.
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

    /// The keys between two, in one direction, until SQLite finds damage.
    fn reach(&self, conn: &Connection, first: i64, last: i64, direction: &str) -> Vec<i64> {
        let table = identifier(&self.name);
        let sql = format!("SELECT id FROM {table} WHERE id BETWEEN ?1 AND ?2 ORDER BY id {direction}");
        let Ok(mut query) = conn.prepare(&sql) else { return Vec::new() };
        let Ok(keys) = query.query_map([first, last], |row| row.get::<_, i64>(0)) else { return Vec::new() };
        keys.map_while(Result::ok).collect()
    }

    /// The rows with keys from `first` to `last`.
    pub(super) fn rows(
        &self,
        conn: &Connection,
        path: &Path,
        table: &Arc<Table>,
        (first, last): (i64, i64),
        wanted: Wanted,
    ) -> Result<Rows<Local>, ReadError> {
        let failed =
            |source| ReadError::Rows { path: path.to_owned(), table: self.name.clone(), first, last, source };
        // Place of each column of the table in what is selected.
        let mut sql = "SELECT id".to_owned();
        let mut selected = 0;
        let mut places = Vec::with_capacity(table.columns.len());
        for (column, name) in table.columns.iter().zip(&self.columns) {
            let name = name.as_ref().filter(|_| is_wanted(column, wanted));
            places.push(name.map(|name| {
                sql = format!("{sql}, {}", identifier(name));
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
            let value = |place: &Option<usize>| place.map_or(Ok(Value::Null), |at| value(row.get_ref(at)?));
            let values = places.iter().map(value).collect::<rusqlite::Result<Vec<_>>>().map_err(failed)?;
            builder.push(&values);
            keys.push(key);
            if builder.text_bytes() > PIECE_BYTES && keys.len() > 1 {
                let (path, table) = (path.to_owned(), self.name.clone());
                return Err(ReadError::TooLarge { path, table, limit: PIECE_BYTES });
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

fn value(value: ValueRef<'_>) -> rusqlite::Result<Value<'_>> {
    Ok(match value {
        ValueRef::Null => Value::Null,
        ValueRef::Integer(v) => Value::Int(v),
        ValueRef::Real(v) => Value::Real(v),
        ValueRef::Text(v) => Value::Text(v),
        ValueRef::Blob(v) => Value::Blob(v),
    })
}
