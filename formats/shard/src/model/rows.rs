//! Rows of one table as columns, in one id space.

use super::table::{Table, TableId};
use super::value::{OwnedValue, Value};
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

/// Id space and times of one source: keys and strings of its shard, times of the clock domain of its process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Local {}

/// Id space and times of the merged database. Only a merge creates such rows, and only such rows can be written to
/// it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Merged {}

/// The keys of consecutive rows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Keys {
    /// `first, first + 1, ...`: rows of native shards.
    Dense(i64),
    /// Any ascending values: keys of a database.
    Sparse(Vec<i64>),
}

impl Keys {
    /// Returns the key of the row at index `i`.
    pub fn get(&self, i: usize) -> i64 {
        match self {
            Keys::Dense(first) => first + i as i64,
            Keys::Sparse(keys) => keys[i],
        }
    }

    /// Returns the ranges of consecutive keys of `rows` rows: the first key of each range, and its last key plus one. A
    /// range that ends with `i64::MAX` has no such end and is omitted.
    pub fn ranges(&self, rows: usize) -> Vec<(i64, i64)> {
        match self {
            _ if rows == 0 => Vec::new(),
            Keys::Dense(first) => vec![(*first, first + rows as i64)],
            Keys::Sparse(keys) => {
                let ranges = keys.chunk_by(|a, b| a.checked_add(1) == Some(*b));
                ranges.filter_map(|range| Some((*range.first()?, range.last()?.checked_add(1)?))).collect()
            }
        }
    }
}

/// One bit per row, set if the value is NULL. Empty if no row is NULL.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Nulls(Vec<u8>);

impl Nulls {
    /// Creates it from a bitmap, lowest bit first.
    pub fn from_bitmap(bits: Vec<u8>) -> Nulls {
        Nulls(bits)
    }
    /// Returns the bitmap, lowest bit first. It may be shorter than the number of rows.
    pub fn bitmap(&self) -> &[u8] {
        &self.0
    }
    /// Returns whether any row is NULL.
    pub fn any(&self) -> bool {
        self.0.iter().any(|b| *b != 0)
    }
    /// Returns whether row `i` is NULL.
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
    /// Marks all of `rows` rows as NULL.
    pub(super) fn all(rows: usize) -> Nulls {
        let mut nulls = Nulls(vec![0xff; rows / 8]);
        (rows / 8 * 8..rows).for_each(|i| nulls.set(i));
        nulls
    }
    /// Appends flags for the rows after the first `rows`: row `rows + i` is NULL if bit `i` is set.
    pub(super) fn append(&mut self, rows: usize, bits: u64) {
        if bits == 0 {
            return;
        }
        debug_assert!(rows.is_multiple_of(8) && self.0.len() <= rows / 8);
        self.0.resize(rows / 8, 0);
        let bytes = (u64::BITS - bits.leading_zeros()).div_ceil(8);
        self.0.extend_from_slice(&bits.to_le_bytes()[..bytes as usize]);
    }
    /// Returns how many of the first `rows` rows are NULL.
    pub fn count(&self, rows: usize) -> usize {
        (0..rows.min(self.0.len() * 8)).filter(|i| self.get(*i)).count()
    }
}

/// Text cells: each distinct value once, and a code for each row.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TextCells {
    /// The distinct values, concatenated.
    pub bytes: Vec<u8>,
    /// End of each distinct value in `bytes`.
    pub ends: Vec<u32>,
    /// For each row the number of its value; [`TextCells::NULL`] for NULL.
    pub codes: Vec<u32>,
}

impl TextCells {
    /// The code of a NULL row.
    pub const NULL: u32 = u32::MAX;

    /// Returns the distinct value with number `code`.
    #[inline]
    pub fn entry(&self, code: u32) -> &[u8] {
        let start = if code == 0 { 0 } else { self.ends[code as usize - 1] };
        &self.bytes[start as usize..self.ends[code as usize] as usize]
    }

    /// Adds a distinct value and returns its code.
    pub fn add_entry(&mut self, text: &[u8]) -> u32 {
        self.bytes.extend_from_slice(text);
        self.ends.push(self.bytes.len() as u32);
        self.ends.len() as u32 - 1
    }

    /// Creates cells with the same text in all `rows` rows.
    pub fn constant(text: &[u8], rows: usize) -> TextCells {
        TextCells { bytes: text.to_vec(), ends: vec![text.len() as u32], codes: vec![0; rows] }
    }
}

/// The values of one column.
#[derive(Clone, PartialEq, Debug, Default)]
pub enum Cells {
    /// No stored values: every row has the column's default, or NULL if there is no default.
    #[default]
    Absent,
    /// Integers.
    Int {
        /// One value per row; arbitrary if the row is NULL.
        values: Vec<i64>,
        /// Rows that are NULL.
        nulls: Nulls,
    },
    /// Floating point numbers.
    Real {
        /// One value per row; arbitrary if the row is NULL.
        values: Vec<f64>,
        /// Rows that are NULL.
        nulls: Nulls,
    },
    /// Text.
    Text(TextCells),
    /// Values of different types.
    Any(Vec<OwnedValue>),
}

impl Cells {
    /// Creates cells of integers without NULL.
    pub fn ints(values: Vec<i64>) -> Cells {
        Cells::Int { values, nulls: Nulls::default() }
    }

    /// Returns the value of row `i`.
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

    /// Returns the integer of row `i`; `None` for NULL and other types.
    #[inline]
    pub fn int(&self, i: usize) -> Option<i64> {
        match self {
            Cells::Int { values, nulls } => (!nulls.get(i)).then(|| values[i]),
            Cells::Any(values) => match values[i].as_value() {
                Value::Int(v) => Some(v),
                _ => None,
            },
            Cells::Absent | Cells::Real { .. } | Cells::Text(_) => None,
        }
    }

    /// Returns the integers, if all cells are integers without NULL. Most columns are.
    #[inline]
    pub fn plain_ints(&self) -> Option<&[i64]> {
        match self {
            Cells::Int { values, nulls } if !nulls.any() => Some(values),
            _ => None,
        }
    }

    /// Returns the smallest and largest integer of `rows` rows, or `None` if there are no integers.
    fn int_bounds(&self, rows: usize) -> Option<(i64, i64)> {
        match self {
            Cells::Int { values, nulls } if !nulls.any() => {
                let first = *values.first()?;
                let wider = |(low, high): (i64, i64), v: &i64| (low.min(*v), high.max(*v));
                Some(values.iter().fold((first, first), wider))
            }
            _ => {
                let all = || (0..rows).filter_map(|i| self.int(i));
                Some((all().min()?, all().max()?))
            }
        }
    }

    /// Returns how many of `rows` rows are not NULL.
    pub fn filled(&self, rows: usize) -> usize {
        match self {
            Cells::Absent => 0,
            Cells::Int { nulls, .. } | Cells::Real { nulls, .. } => rows - nulls.count(rows),
            Cells::Text(text) => text.codes.iter().filter(|c| **c != TextCells::NULL).count(),
            Cells::Any(values) => values.iter().filter(|v| **v != OwnedValue::Null).count(),
        }
    }
}

/// Integers of a column by row. For many rows, this is faster than [`Cells::int`].
#[derive(Clone, Copy, Debug)]
pub struct IntColumn<'a> {
    /// The integers, if all are; otherwise none.
    plain: &'a [i64],
    cells: &'a Cells,
}

impl<'a> IntColumn<'a> {
    /// Returns the integers of a column.
    pub fn of(cells: &'a Cells) -> IntColumn<'a> {
        IntColumn { plain: cells.plain_ints().unwrap_or_default(), cells }
    }

    /// Returns the integer of row `i`; `None` for NULL and other types.
    #[inline]
    pub fn at(self, i: usize) -> Option<i64> {
        match self.plain.get(i) {
            Some(value) => Some(*value),
            None => self.cells.int(i),
        }
    }
}

impl Nulls {
    fn portion(&self, rows: Range<usize>) -> Nulls {
        if !self.any() {
            return Nulls::default();
        }
        let mut nulls = Nulls::default();
        rows.enumerate().filter(|(_, i)| self.get(*i)).for_each(|(to, _)| nulls.set(to));
        nulls
    }
}

impl Cells {
    /// Returns the cells of a range of rows. Text keeps all of its distinct values.
    fn portion(&self, rows: Range<usize>) -> Cells {
        match self {
            Cells::Absent => Cells::Absent,
            Cells::Int { values, nulls } => {
                Cells::Int { values: values[rows.clone()].to_vec(), nulls: nulls.portion(rows) }
            }
            Cells::Real { values, nulls } => {
                Cells::Real { values: values[rows.clone()].to_vec(), nulls: nulls.portion(rows) }
            }
            Cells::Text(text) => Cells::Text(TextCells {
                bytes: text.bytes.clone(),
                ends: text.ends.clone(),
                codes: text.codes[rows].to_vec(),
            }),
            Cells::Any(values) => Cells::Any(values[rows].to_vec()),
        }
    }
}

/// Consecutive rows of one table. `S` is the space of their ids and times: [`Local`] or [`Merged`].
#[derive(Clone, PartialEq, Debug)]
pub struct Rows<S> {
    /// The description of the table.
    pub table: Arc<Table>,
    /// Key of each row.
    pub keys: Keys,
    /// One entry per column, in the order of the table.
    pub columns: Vec<Cells>,
    /// Number of rows.
    pub len: usize,
    space: PhantomData<S>,
}

impl<S> Rows<S> {
    /// Creates rows from their columns.
    pub fn new(table: Arc<Table>, keys: Keys, columns: Vec<Cells>, len: usize) -> Rows<S> {
        debug_assert_eq!(table.columns.len(), columns.len());
        Rows { table, keys, columns, len, space: PhantomData }
    }

    /// Returns a range of the rows.
    ///
    /// # Panics
    /// If the range exceeds the number of rows.
    pub fn portion(&self, rows: Range<usize>) -> Rows<S> {
        let keys = match &self.keys {
            Keys::Dense(first) => Keys::Dense(first + rows.start as i64),
            Keys::Sparse(keys) => Keys::Sparse(keys[rows.clone()].to_vec()),
        };
        let columns = self.columns.iter().map(|cells| cells.portion(rows.clone())).collect();
        Rows::new(self.table.clone(), keys, columns, rows.len())
    }

    /// Returns the number of the table.
    pub fn id(&self) -> TableId {
        self.table.id
    }

    /// Returns the cells of a column. An unknown column has no values.
    pub fn column(&self, name: &str) -> &Cells {
        const ABSENT: &Cells = &Cells::Absent;
        self.table.position(name).map_or(ABSENT, |i| &self.columns[i])
    }

    /// Returns the smallest and largest time in these rows, or `None` if the table or the rows have no times.
    pub fn time_bounds(&self) -> Option<(i64, i64)> {
        let (first, last) = self.table.span()?;
        let of = [&self.columns[first], &self.columns[last]].map(|cells| cells.int_bounds(self.len));
        let low = of.iter().flatten().map(|(low, _)| *low).min()?;
        let high = of.iter().flatten().map(|(_, high)| *high).max()?;
        Some((low, high))
    }
}

impl Rows<Local> {
    /// Moves the rows to the merged space after the caller has rewritten `columns` and `keys`.
    ///
    /// The merger's renumbering uses this conversion, and so do its string and node rows, which are created with merged
    /// ids.
    pub fn into_merged(self, keys: Keys, columns: Vec<Cells>) -> Rows<Merged> {
        Rows::new(self.table, keys, columns, self.len)
    }
}

impl Rows<Merged> {
    /// Returns the rows as a reader of the merged database reads them.
    pub fn into_stored(self) -> Rows<Local> {
        Rows::new(self.table, self.keys, self.columns, self.len)
    }
}
