//! Joins a second table to the table that is being read, both ordered by the same id.

use super::RpdReadError;
use super::schema::RpdFile;
use super::value::int;
use rusqlite::{Row, Rows};

/// Rows in the order of their first column, which is an id of the other table. `T` holds the values of the other
/// columns.
pub(super) struct JoinedRows<'a, T> {
    rows: Rows<'a>,
    input: &'a RpdFile,
    table: &'static str,
    take: fn(&Row<'_>) -> T,
    /// The next row; `None` after the last one.
    next: Option<(i64, T)>,
    /// Number of rows so far.
    rows_read: u64,
    /// Number of rows so far without a row in the other table.
    strays: u64,
}

impl<'a, T> JoinedRows<'a, T> {
    /// Starts before the first row.
    pub(super) fn new(
        rows: Rows<'a>,
        input: &'a RpdFile,
        table: &'static str,
        take: fn(&Row<'_>) -> T,
    ) -> Result<JoinedRows<'a, T>, RpdReadError> {
        let mut follow = JoinedRows { rows, input, table, take, next: None, rows_read: 0, strays: 0 };
        follow.step()?;
        Ok(follow)
    }

    /// Moves to the next row that has an id; returns the previous one.
    fn step(&mut self) -> Result<Option<(i64, T)>, RpdReadError> {
        let before = self.next.take();
        while self.next.is_none() {
            let row = self.rows.next().map_err(|source| self.input.error(self.table, source))?;
            let Some(row) = row else { break };
            self.rows_read += 1;
            match row.get_ref(0).ok().and_then(int) {
                Some(id) => self.next = Some((id, (self.take)(row))),
                None => self.strays += 1,
            }
        }
        Ok(before)
    }

    /// Returns the next row with this id. Rows with lower ids are counted as strays.
    pub(super) fn next_of(&mut self, id: i64) -> Result<Option<T>, RpdReadError> {
        while self.next.as_ref().is_some_and(|(at, _)| *at < id) {
            self.step()?;
            self.strays += 1;
        }
        match &self.next {
            Some((at, _)) if *at == id => Ok(self.step()?.map(|(_, row)| row)),
            _ => Ok(None),
        }
    }

    /// Reads to the end; returns the number of rows and of strays among them.
    pub(super) fn finish(mut self) -> Result<(u64, u64), RpdReadError> {
        while self.step()?.is_some() {
            self.strays += 1;
        }
        Ok((self.rows_read, self.strays))
    }
}
