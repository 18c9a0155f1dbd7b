//! Builds columns from rows that are added one at a time.

use super::rows::{Cells, Keys, Local, Nulls, Rows, TextCells};
use super::table::{Kind, Table};
use super::value::{OwnedValue, Value};
use std::collections::HashMap;
use std::sync::Arc;
use twox_hash::XxHash3_64;

/// Number of rows of integers that are collected before they move to their columns.
///
/// Writing one row directly to its columns touches one cache line per column. Moving many rows column by column
/// touches each cache line once.
const STAGED_ROWS: usize = 64;

/// Collects rows one at a time.
#[derive(Debug)]
pub struct RowsBuilder {
    table: Arc<Table>,
    columns: Vec<CellsBuilder>,
    /// Number of rows, staged ones included.
    len: usize,
    text_bytes: usize,
    staged: Stage,
}

#[derive(Debug, Default)]
struct CellsBuilder {
    cells: Cells,
    /// Whether any row gave a value, including NULL, for this column.
    given: bool,
    /// Maps the hash of a text to its code, while the column is text.
    codes: HashMap<u64, u32>,
    /// An empty vector with the capacity of an earlier batch.
    spare: Vec<i64>,
}

/// Rows of integers and NULL that have not moved to their columns yet.
#[derive(Debug)]
struct Stage {
    /// Whether rows are staged. False for tables with text columns, and after a row with another type of value.
    on: bool,
    /// The rows one after another, starting at the second position. The first position holds the row before them.
    values: Vec<i64>,
    /// One bit set per row: bit `i` is set if column `i` is NULL.
    nulls: [u64; STAGED_ROWS],
    rows: usize,
}

impl RowsBuilder {
    /// Returns an empty batch of this table.
    pub fn new(table: &Arc<Table>) -> RowsBuilder {
        let columns: Vec<_> = table.columns.iter().map(|_| CellsBuilder::default()).collect();
        let number =
            |kind: &Kind| matches!(kind, Kind::Ref(_) | Kind::Str | Kind::Stack | Kind::Time | Kind::Int);
        let on = columns.len() <= u64::BITS as usize && table.columns.iter().all(|c| number(&c.kind));
        let staged = Stage { on, values: Vec::new(), nulls: [0; STAGED_ROWS], rows: 0 };
        RowsBuilder { table: table.clone(), columns, len: 0, text_bytes: 0, staged }
    }

    /// Returns the number of rows so far.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether there are no rows yet.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the bytes of text in all rows; repeated texts count each time.
    pub fn text_bytes(&self) -> usize {
        self.text_bytes
    }

    /// Reuses the memory of columns that are no longer needed. The next batch of a busy table is as long as the
    /// last one, and fresh memory costs a page fault every 512 values.
    pub(crate) fn reuse(&mut self, columns: Vec<Cells>) {
        for (column, cells) in self.columns.iter_mut().zip(columns) {
            if let Cells::Int { mut values, .. } = cells {
                values.clear();
                column.spare = values;
            }
        }
    }

    /// Adds a row with one value per column, in the order of the description. Columns omitted at the end get their
    /// default.
    ///
    /// # Panics
    /// If there are more values than columns.
    pub fn push(&mut self, row: &[Value<'_>]) {
        if self.push_numbers(row) {
            return;
        }
        assert!(row.len() <= self.columns.len(), "{}: more values than columns", self.table.name);
        self.unstage();
        self.staged.on = false;
        let rows = self.len;
        for (column, value) in self.columns.iter_mut().zip(row) {
            if let Value::Text(text) | Value::Blob(text) = value {
                self.text_bytes += text.len();
            }
            column.given = true;
            column.push(rows, *value);
        }
        for column in &mut self.columns[row.len()..] {
            column.push(rows, Value::Null);
        }
        self.len += 1;
    }

    /// Adds a row if the table has only integer columns and each column has an integer or NULL. Otherwise returns
    /// false and adds nothing.
    #[inline]
    pub(crate) fn push_numbers(&mut self, row: &[Value<'_>]) -> bool {
        let width = self.columns.len();
        if !self.staged.on || row.len() != width {
            return false;
        }
        let Some((before, place)) = self.staged.place(width) else { return false };
        let mut nulls = 0;
        for (i, ((value, before), place)) in row.iter().zip(before).zip(place).enumerate() {
            match value {
                Value::Int(v) => *place = *v,
                Value::Null => {
                    // Repeats the previous value: a difference of zero is the cheapest to store.
                    *place = *before;
                    nulls |= 1 << i;
                }
                _ => return false,
            }
        }
        self.staged(nulls);
        true
    }

    /// Counts the row that was written to the stage.
    #[inline]
    fn staged(&mut self, nulls: u64) {
        self.staged.nulls[self.staged.rows] = nulls;
        self.staged.rows += 1;
        self.len += 1;
        if self.staged.rows == STAGED_ROWS {
            self.unstage();
        }
    }

    /// Moves the staged rows to the columns.
    fn unstage(&mut self) {
        let width = self.columns.len();
        let Stage { values, nulls, rows, .. } = &mut self.staged;
        if *rows == 0 {
            return;
        }
        let first = self.len - *rows;
        let nulls = &nulls[..*rows];
        let anywhere = nulls.iter().fold(0, |all, row| all | row);
        let everywhere = nulls.iter().fold(u64::MAX, |all, row| all & row);
        let staged = &values[width..][..*rows * width];
        for (i, column) in self.columns.iter_mut().enumerate() {
            column.given = true;
            if everywhere >> i & 1 == 1 && matches!(column.cells, Cells::Absent) {
                continue;
            }
            let null = if anywhere >> i & 1 == 1 { bits_of(i, nulls) } else { 0 };
            column.append(first, staged, (i, width), null);
        }
        values.copy_within(*rows * width..(*rows + 1) * width, 0);
        *rows = 0;
    }

    /// Returns the rows, with keys from `first` on.
    pub fn finish(mut self, first: i64) -> Rows<Local> {
        self.unstage();
        let described = self.table.columns.iter().zip(self.columns);
        let columns = described.map(|(column, builder)| match builder.cells {
            // An absent column reads as its default, but these rows are NULL.
            Cells::Absent if builder.given && column.sql.default.is_some() && !column.sql.not_null => {
                Cells::Any(vec![OwnedValue::Null; self.len])
            }
            cells => cells,
        });
        let columns = columns.collect();
        Rows::new(self.table, Keys::Dense(first), columns, self.len)
    }
}

/// Collects bit `i` of each row; the first row becomes the lowest bit.
fn bits_of(i: usize, rows: &[u64]) -> u64 {
    rows.iter().enumerate().fold(0, |bits, (row, columns)| bits | (columns >> i & 1) << row)
}

impl Stage {
    /// Returns the previous row and the position for the next one.
    #[inline]
    fn place(&mut self, width: usize) -> Option<(&mut [i64], &mut [i64])> {
        if self.values.is_empty() {
            self.values.resize((STAGED_ROWS + 1) * width, 0);
        }
        let at = self.rows * width;
        self.values.get_mut(at..at + 2 * width)?.split_at_mut_checked(width)
    }
}

impl CellsBuilder {
    /// Appends column `i` of the staged rows after `first` values. Rows with a bit in `null` are NULL.
    fn append(&mut self, first: usize, staged: &[i64], (i, width): (usize, usize), null: u64) {
        if matches!(self.cells, Cells::Absent) {
            let mut values = std::mem::take(&mut self.spare);
            values.resize(first, 0);
            self.cells = Cells::Int { values, nulls: Nulls::all(first) };
        }
        if let Cells::Int { values, nulls } = &mut self.cells {
            nulls.append(first, null);
            let rows = staged.len() / width;
            values.resize(first + rows, 0);
            let places = values[first..].iter_mut();
            places.zip(staged.chunks_exact(width)).for_each(|(place, row)| *place = row[i]);
        }
    }

    #[inline]
    fn push(&mut self, rows: usize, value: Value<'_>) {
        match (&mut self.cells, value) {
            (Cells::Int { values, .. }, Value::Int(v)) => values.push(v),
            (Cells::Absent, Value::Null) => {}
            (Cells::Int { values, nulls }, Value::Null) => {
                // Repeats the previous value: a difference of zero is the cheapest to store.
                values.push(values.last().copied().unwrap_or(0));
                nulls.set(rows);
            }
            (Cells::Real { values, .. }, Value::Real(v)) => values.push(v),
            (Cells::Real { values, nulls }, Value::Null) => {
                values.push(0.0);
                nulls.set(rows);
            }
            (Cells::Text(_), Value::Text(text)) => self.push_text(text),
            (Cells::Text(cells), Value::Null) => cells.codes.push(TextCells::NULL),
            (Cells::Any(values), value) => values.push(value.to_owned()),
            (_, value) => {
                self.widen(rows, value);
                self.push(rows, value);
            }
        }
    }

    fn push_text(&mut self, text: &[u8]) {
        let Cells::Text(cells) = &mut self.cells else { return };
        let hash = XxHash3_64::oneshot(text);
        let known = self.codes.get(&hash).copied().filter(|code| cells.entry(*code) == text);
        let code = known.unwrap_or_else(|| {
            let code = cells.add_entry(text);
            self.codes.insert(hash, code);
            code
        });
        cells.codes.push(code);
    }

    /// Converts the column so that it can hold the first value of a new type.
    #[cold]
    fn widen(&mut self, rows: usize, value: Value<'_>) {
        let nulls = Nulls::all(rows);
        self.cells = match (&self.cells, value) {
            (Cells::Absent, Value::Int(_)) => Cells::Int { values: vec![0; rows], nulls },
            (Cells::Absent, Value::Real(_)) => Cells::Real { values: vec![0.0; rows], nulls },
            (Cells::Absent, Value::Text(_)) => {
                Cells::Text(TextCells { codes: vec![TextCells::NULL; rows], ..TextCells::default() })
            }
            (old, _) => Cells::Any((0..rows).map(|i| old.get(i).to_owned()).collect()),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Schema, rocpd};

    #[test]
    fn a_null_that_was_given_is_not_the_default() {
        let mut rows = RowsBuilder::new(Schema::builtin().get(rocpd::PMC_EVENT).unwrap());
        rows.push(&[Value::Int(1), Value::Int(1), Value::Null]);
        let rows = rows.finish(1);
        assert_eq!(*rows.column("value"), Cells::Any(vec![OwnedValue::Null]));
        assert_eq!(*rows.column("extdata"), Cells::Absent);
    }
}
