//! Rows of one table, as columns, in one id space.

use super::table::{Table, TableId};
use super::value::{OwnedValue, Value};
use std::collections::HashMap;
use std::marker::PhantomData;
use std::sync::Arc;
use twox_hash::XxHash3_64;

/// Ids and times of one source: shard-local keys, strings of the shard, clock domain of the process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Local {}

/// Ids and times of the merged output. Only a merge makes such rows, and only they can be written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Merged {}

/// The keys of consecutive rows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Keys {
    /// `first, first + 1, ...`: native shards.
    Dense(i64),
    /// Any ascending values: rows of a database.
    Sparse(Vec<i64>),
}

impl Keys {
    /// Key of the row at `i`.
    pub fn get(&self, i: usize) -> i64 {
        match self {
            Keys::Dense(first) => first + i as i64,
            Keys::Sparse(keys) => keys[i],
        }
    }
}

/// One bit per row, set where the value is NULL. Empty when no row is NULL.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Nulls(Vec<u8>);

impl Nulls {
    /// From a bitmap, lowest bit first.
    pub fn from_bitmap(bits: Vec<u8>) -> Nulls {
        Nulls(bits)
    }
    /// The bitmap, lowest bit first; it may be shorter than the rows are many.
    pub fn bitmap(&self) -> &[u8] {
        &self.0
    }
    /// Whether any row may be NULL.
    pub fn any(&self) -> bool {
        self.0.iter().any(|b| *b != 0)
    }
    /// Whether row `i` is NULL.
    #[inline]
    pub fn get(&self, i: usize) -> bool {
        self.0.get(i / 8).is_some_and(|byte| byte >> (i % 8) & 1 == 1)
    }
    /// Marks row `i` as NULL.
    pub fn set(&mut self, i: usize) {
        if self.0.len() <= i / 8 {
            self.0.resize(i / 8 + 1, 0);
        }
        self.0[i / 8] |= 1 << (i % 8);
    }
    /// How many of the first `rows` rows are NULL.
    pub fn count(&self, rows: usize) -> usize {
        (0..rows.min(self.0.len() * 8)).filter(|i| self.get(*i)).count()
    }
}

/// Text cells: distinct values once, and a code for each row.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TextCells {
    /// The distinct values, one behind the other.
    pub bytes: Vec<u8>,
    /// End of each distinct value in `bytes`.
    pub ends: Vec<u32>,
    /// Per row the number of its value, [`TextCells::NULL`] for NULL.
    pub codes: Vec<u32>,
}

impl TextCells {
    /// The code of a NULL row.
    pub const NULL: u32 = u32::MAX;

    /// The distinct value with this number.
    #[inline]
    pub fn entry(&self, code: u32) -> &[u8] {
        let start = if code == 0 { 0 } else { self.ends[code as usize - 1] };
        &self.bytes[start as usize..self.ends[code as usize] as usize]
    }

    /// Adds a distinct value.
    pub fn add_entry(&mut self, text: &[u8]) -> u32 {
        self.bytes.extend_from_slice(text);
        self.ends.push(self.bytes.len() as u32);
        self.ends.len() as u32 - 1
    }

    /// `rows` times the same text.
    pub fn constant(text: &[u8], rows: usize) -> TextCells {
        TextCells { bytes: text.to_vec(), ends: vec![text.len() as u32], codes: vec![0; rows] }
    }
}

/// The values of one column.
#[derive(Clone, PartialEq, Debug, Default)]
pub enum Cells {
    /// Nothing stored: every row has the column's default, or NULL where there is none.
    #[default]
    Absent,
    /// Integers.
    Int {
        /// One per row; 0 or anything else where NULL.
        values: Vec<i64>,
        /// Which rows are NULL.
        nulls: Nulls,
    },
    /// Floating point numbers.
    Real {
        /// One per row.
        values: Vec<f64>,
        /// Which rows are NULL.
        nulls: Nulls,
    },
    /// Text.
    Text(TextCells),
    /// Rows of different types.
    Any(Vec<OwnedValue>),
}

impl Cells {
    /// Integers without NULL.
    pub fn ints(values: Vec<i64>) -> Cells {
        Cells::Int { values, nulls: Nulls::default() }
    }

    /// The value of row `i`.
    #[inline]
    pub fn get(&self, i: usize) -> Value<'_> {
        match self {
            Cells::Absent => Value::Null,
            Cells::Int { values, nulls } if !nulls.get(i) => Value::Int(values[i]),
            Cells::Real { values, nulls } if !nulls.get(i) => Value::Real(values[i]),
            Cells::Int { .. } | Cells::Real { .. } => Value::Null,
            Cells::Text(text) => match text.codes[i] {
                TextCells::NULL => Value::Null,
                code => Value::Text(text.entry(code)),
            },
            Cells::Any(values) => values[i].as_value(),
        }
    }

    /// The integer of row `i`; `None` for NULL and for anything that is no integer.
    #[inline]
    pub fn int(&self, i: usize) -> Option<i64> {
        match self.get(i) {
            Value::Int(v) => Some(v),
            _ => None,
        }
    }

    /// Smallest and largest integer of `rows` rows; `None` where there is none.
    fn int_bounds(&self, rows: usize) -> Option<(i64, i64)> {
        match self {
            Cells::Int { values, nulls } if !nulls.any() => {
                Some((*values.iter().min()?, *values.iter().max()?))
            }
            _ => {
                let all = || (0..rows).filter_map(|i| self.int(i));
                Some((all().min()?, all().max()?))
            }
        }
    }

    /// How many of `rows` rows hold a value.
    pub fn filled(&self, rows: usize) -> usize {
        match self {
            Cells::Absent => 0,
            Cells::Int { nulls, .. } | Cells::Real { nulls, .. } => rows - nulls.count(rows),
            Cells::Text(text) => text.codes.iter().filter(|c| **c != TextCells::NULL).count(),
            Cells::Any(values) => values.iter().filter(|v| **v != OwnedValue::Null).count(),
        }
    }
}

/// Consecutive rows of one table. `S` says whose ids and times they hold: [`Local`] or [`Merged`].
#[derive(Clone, PartialEq, Debug)]
pub struct Rows<S> {
    /// The description of the table.
    pub table: Arc<Table>,
    /// Key of each row.
    pub keys: Keys,
    /// One entry per column of the table, in its order.
    pub columns: Vec<Cells>,
    /// Number of rows.
    pub len: usize,
    space: PhantomData<S>,
}

impl<S> Rows<S> {
    /// Rows with the given columns.
    pub fn new(table: Arc<Table>, keys: Keys, columns: Vec<Cells>, len: usize) -> Rows<S> {
        debug_assert_eq!(table.columns.len(), columns.len());
        Rows { table, keys, columns, len, space: PhantomData }
    }

    /// Number of the table.
    pub fn id(&self) -> TableId {
        self.table.id
    }

    /// The cells of a column; an unknown name has no values.
    pub fn column(&self, name: &str) -> &Cells {
        const ABSENT: &Cells = &Cells::Absent;
        self.table.position(name).map_or(ABSENT, |i| &self.columns[i])
    }

    /// Smallest and largest time in these rows, or `None` where the table or the rows have none.
    pub fn time_bounds(&self) -> Option<(i64, i64)> {
        let (first, last) = self.table.span()?;
        let of = [&self.columns[first], &self.columns[last]].map(|cells| cells.int_bounds(self.len));
        let low = of.iter().flatten().map(|(low, _)| *low).min()?;
        let high = of.iter().flatten().map(|(_, high)| *high).max()?;
        Some((low, high))
    }
}

impl Rows<Local> {
    /// Reads the rows as ones of the merged space, after `columns` and `keys` were rewritten. This is
    /// the one door between the spaces; the merger's renumbering is its only caller.
    pub fn into_merged(self, keys: Keys, columns: Vec<Cells>) -> Rows<Merged> {
        Rows::new(self.table, keys, columns, self.len)
    }
}

/// Collects rows one at a time.
#[derive(Debug)]
pub struct RowsBuilder {
    table: Arc<Table>,
    columns: Vec<CellsBuilder>,
    len: usize,
    text_bytes: usize,
}

#[derive(Debug, Default)]
struct CellsBuilder {
    cells: Cells,
    /// Whether a value, NULL included, was given and not left out.
    given: bool,
    /// Hash of a text to its code, while the column is text.
    codes: HashMap<u64, u32>,
}

impl RowsBuilder {
    /// An empty batch of this table.
    pub fn new(table: &Arc<Table>) -> RowsBuilder {
        let columns = table.columns.iter().map(|_| CellsBuilder::default()).collect();
        RowsBuilder { table: table.clone(), columns, len: 0, text_bytes: 0 }
    }

    /// Number of rows so far.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no row yet.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes of text in all rows, repeated texts counted each time.
    pub fn text_bytes(&self) -> usize {
        self.text_bytes
    }

    /// Adds a row: one value per column, in the order of the description. Columns that are left out
    /// at the end get their default.
    ///
    /// # Panics
    /// If there are more values than columns.
    pub fn push(&mut self, row: &[Value<'_>]) {
        assert!(row.len() <= self.columns.len(), "{}: more values than columns", self.table.name);
        let rows = self.len;
        for (column, value) in self.columns.iter_mut().zip(row) {
            // Most values by far: numbers in a column of numbers.
            if let (Cells::Int { values, .. }, Value::Int(v)) = (&mut column.cells, value) {
                values.push(*v);
                continue;
            }
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

    /// The rows, with keys from `first` on.
    pub fn finish(self, first: i64) -> Rows<Local> {
        let described = self.table.columns.iter().zip(self.columns);
        let columns = described.map(|(column, builder)| match builder.cells {
            // Absent would read as the default, and NULL was meant.
            Cells::Absent if builder.given && column.sql.default.is_some() && !column.sql.not_null => {
                Cells::Any(vec![OwnedValue::Null; self.len])
            }
            cells => cells,
        });
        let columns = columns.collect();
        Rows::new(self.table, Keys::Dense(first), columns, self.len)
    }
}

impl CellsBuilder {
    #[inline]
    fn push(&mut self, rows: usize, value: Value<'_>) {
        match (&mut self.cells, value) {
            (Cells::Int { values, .. }, Value::Int(v)) => values.push(v),
            (Cells::Absent, Value::Null) => {}
            (Cells::Int { values, nulls }, Value::Null) => {
                // The value before it: a difference of zero is the cheapest to store.
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

    /// Makes room for the first value of a type that the column does not hold yet.
    #[cold]
    fn widen(&mut self, rows: usize, value: Value<'_>) {
        let mut nulls = Nulls::default();
        (0..rows).for_each(|i| nulls.set(i));
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
