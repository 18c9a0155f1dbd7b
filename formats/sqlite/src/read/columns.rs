//! Collects the values of one column, row by row, into cells.

use super::cell::{SERIALS, Serial, Types, class, eight, value, varint};
use rpd_shard::model::{Cells, Nulls, OwnedValue, TextCells, Value};
use std::iter::repeat_n;

/// Number of distinct texts that are remembered. Most columns hold a constant text or a few alternating texts. A
/// table of all texts would cost more than it saves.
const RECENT_TEXTS: usize = 64;

/// Collects the values of one column.
#[derive(Debug, Default)]
pub(super) struct Column {
    building: Building,
    /// Number of rows so far.
    rows: usize,
    /// One bit per row, lowest bit first, set if the row is NULL. Not used for texts and mixed columns.
    nulls: Vec<u8>,
    /// Whether integers are converted to floating-point numbers.
    real: bool,
}

#[derive(Debug, Default)]
enum Building {
    /// Every row so far is NULL.
    #[default]
    Nothing,
    Int(Vec<i64>),
    Real(Vec<f64>),
    Text(Box<Texts>),
    Any(Vec<OwnedValue>),
}

#[derive(Debug)]
struct Texts {
    cells: TextCells,
    /// By hash: code of the last text with that hash, or [`TextCells::NULL`] for none.
    recent: [u32; RECENT_TEXTS],
}

/// The texts of a column do not fit into [`TextCells`].
#[derive(Debug)]
pub(super) struct TooLong;

/// Position of a row in the bytes of a page, as offsets.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ColumnPlace {
    /// Offset of the next serial type.
    pub(super) types: u32,
    /// Offset of the end of the record's header.
    pub(super) header_end: u32,
    /// Offset of the next value.
    pub(super) values: u32,
    /// Offset of the end of the record.
    pub(super) end: u32,
}

/// Rows and bytes that are expected from the current page on, including this page.
#[derive(Clone, Copy)]
pub(super) struct Expected {
    pub(super) rows: usize,
    /// Number of bytes of the pages.
    pub(super) bytes: usize,
}

impl ColumnPlace {
    /// Creates the position of a row with a header from `types` to `values`.
    #[inline]
    pub(super) fn new(types: usize, values: usize, end: usize) -> ColumnPlace {
        ColumnPlace { types: types as u32, header_end: values as u32, values: values as u32, end: end as u32 }
    }

    /// Returns the serial type of a column, if the types before it have one byte each.
    #[inline(always)]
    pub(super) fn serial(&self, bytes: &[u8], column: usize) -> Serial {
        SERIALS[usize::from(bytes.get(self.types as usize + column).copied().unwrap_or(0))]
    }

    /// Returns the serial type and the first 8 bytes of the next value, and skips the value.
    #[inline(always)]
    fn number(&mut self, bytes: &[u8], column: usize) -> (Serial, u64) {
        let serial = self.serial(bytes, column);
        let first = eight(bytes, self.values as usize);
        self.values += u32::from(serial.length);
        (serial, first)
    }

    /// Returns the next value of any type; `Some(None)` if the record has no more columns.
    #[inline]
    pub(super) fn next<'a>(&mut self, bytes: &'a [u8]) -> Option<Option<Value<'a>>> {
        let (types, header_end) = (self.types as usize, self.header_end as usize);
        if types >= header_end {
            return Some(None);
        }
        let (serial, after) = varint(bytes, types).filter(|(_, after)| *after <= header_end)?;
        let (value, end) = value(bytes, serial, self.values as usize, self.end as usize)?;
        self.types = after as u32;
        self.values = end as u32;
        Some(Some(value))
    }
}

/// The way in which the values of a page are added.
enum Pass {
    Nulls,
    Ints,
    Reals,
    Texts,
    Mixed,
}

impl Column {
    /// Creates an empty column. `real`: integers are converted to floating-point numbers.
    pub(super) fn new(real: bool) -> Column {
        Column { real, ..Column::default() }
    }

    /// Adds column `column` of a page's rows, which have serial types of one byte each. Does not detect a value that
    /// extends beyond its row: `places` holds the end of each value, so that the caller can check.
    pub(super) fn append(
        &mut self,
        bytes: &[u8],
        expected: Expected,
        places: &mut [ColumnPlace],
        column: usize,
        types: Types,
    ) -> Result<(), TooLong> {
        let classes = types.classes;
        let rows = places.len();
        match self.pass(classes & !class::NULL) {
            Pass::Nulls => {
                self.append_nulls(rows);
                return Ok(());
            }
            Pass::Mixed => return self.append_mixed(bytes, places, column),
            Pass::Ints => {
                self.mark_nulls(bytes, places, column, classes);
                let values = self.ints();
                reserve_rows(values, rows, expected.rows);
                match types.only.map(|only| SERIALS[usize::from(only)]) {
                    Some(serial) if serial.length == 0 => values.extend(repeat_n(serial.int(0), rows)),
                    Some(serial) => values.extend(places.iter_mut().map(|place| {
                        let first = eight(bytes, place.values as usize);
                        place.values += u32::from(serial.length);
                        serial.bytes(first)
                    })),
                    None => values.extend(places.iter_mut().map(|place| {
                        let (serial, first) = place.number(bytes, column);
                        serial.int(first)
                    })),
                }
            }
            Pass::Reals => {
                self.mark_nulls(bytes, places, column, classes);
                let values = self.reals();
                reserve_rows(values, rows, expected.rows);
                values.extend(places.iter_mut().map(|place| match place.number(bytes, column) {
                    (serial, first) if serial.class == class::REAL => f64::from_bits(first),
                    (serial, first) => serial.int(first) as f64,
                }));
            }
            Pass::Texts => {
                let texts = self.texts();
                texts.reserve_rows(rows, expected);
                texts.append(bytes, places, column)?;
            }
        }
        self.rows += rows;
        Ok(())
    }

    /// Selects the fastest way to add values of these classes; NULL is ignored.
    fn pass(&self, classes: u8) -> Pass {
        let numbers = if self.real { class::REAL | class::INT } else { class::REAL };
        match &self.building {
            Building::Nothing if classes == 0 => Pass::Nulls,
            Building::Nothing | Building::Int(_) if classes & !class::INT == 0 && !self.real => Pass::Ints,
            Building::Nothing | Building::Real(_) if classes & !numbers == 0 => Pass::Reals,
            Building::Nothing | Building::Text(_) if classes & !class::TEXT == 0 => Pass::Texts,
            _ => Pass::Mixed,
        }
    }

    fn ints(&mut self) -> &mut Vec<i64> {
        if !matches!(self.building, Building::Int(_)) {
            self.building = Building::Int(vec![0; self.rows]);
        }
        match &mut self.building {
            Building::Int(values) => values,
            _ => unreachable!("it was made one of integers"),
        }
    }

    fn reals(&mut self) -> &mut Vec<f64> {
        if !matches!(self.building, Building::Real(_)) {
            self.building = Building::Real(vec![0.0; self.rows]);
        }
        match &mut self.building {
            Building::Real(values) => values,
            _ => unreachable!("it was made one of numbers"),
        }
    }

    fn texts(&mut self) -> &mut Texts {
        if !matches!(self.building, Building::Text(_)) {
            self.building = Building::Text(Box::new(Texts::nulls(self.rows)));
        }
        match &mut self.building {
            Building::Text(texts) => texts,
            _ => unreachable!("it was made one of texts"),
        }
    }

    fn append_nulls(&mut self, rows: usize) {
        let end = self.rows + rows;
        // All bits beyond the last row are zero, also in the last byte.
        while !self.rows.is_multiple_of(8) && self.rows < end {
            self.mark_null(self.rows);
            self.rows += 1;
        }
        self.nulls.resize(self.nulls.len().max(self.rows / 8), 0);
        self.nulls.resize(self.nulls.len().max(end / 8), 0xff);
        (end / 8 * 8..end).for_each(|row| self.mark_null(row));
        self.rows = end;
    }

    #[inline]
    fn mark_null(&mut self, row: usize) {
        if self.nulls.len() <= row / 8 {
            self.nulls.resize(row / 8 + 1, 0);
        }
        self.nulls[row / 8] |= 1 << (row % 8);
    }

    fn mark_nulls(&mut self, bytes: &[u8], places: &[ColumnPlace], column: usize, classes: u8) {
        if classes & class::NULL == 0 {
            return;
        }
        for (row, place) in places.iter().enumerate() {
            if place.serial(bytes, column).class == class::NULL {
                self.mark_null(self.rows + row);
            }
        }
    }

    fn append_mixed(
        &mut self,
        bytes: &[u8],
        places: &mut [ColumnPlace],
        column: usize,
    ) -> Result<(), TooLong> {
        for place in places {
            let kind = bytes.get(place.types as usize + column).copied().unwrap_or(0);
            let value = value(bytes, u64::from(kind), place.values as usize, bytes.len());
            place.values += u32::from(SERIALS[usize::from(kind)].length);
            self.push(value.map_or(Value::Null, |(value, _)| value))?;
        }
        Ok(())
    }

    /// Reserves memory for values that are added one by one.
    pub(super) fn reserve_rows(&mut self, rows: usize, expected: Expected) {
        match &mut self.building {
            Building::Int(values) => reserve_rows(values, rows, expected.rows),
            Building::Real(values) => reserve_rows(values, rows, expected.rows),
            Building::Text(texts) => texts.reserve_rows(rows, expected),
            Building::Nothing | Building::Any(_) => {}
        }
    }

    /// Adds the value of one row.
    pub(super) fn push(&mut self, value: Value<'_>) -> Result<(), TooLong> {
        let value = match value {
            Value::Int(v) if self.real => Value::Real(v as f64),
            value => value,
        };
        match (&mut self.building, value) {
            (Building::Int(values), Value::Int(v)) => values.push(v),
            (Building::Real(values), Value::Real(v)) => values.push(v),
            (Building::Text(texts), Value::Text(text)) => texts.push(text)?,
            (Building::Text(texts), Value::Null) => texts.cells.codes.push(TextCells::NULL),
            (Building::Any(values), value) => values.push(value.to_owned()),
            (Building::Nothing, Value::Null) => self.mark_null(self.rows),
            (Building::Int(values), Value::Null) => {
                values.push(0);
                self.mark_null(self.rows);
            }
            (Building::Real(values), Value::Null) => {
                values.push(0.0);
                self.mark_null(self.rows);
            }
            (Building::Nothing, Value::Int(v)) => self.ints().push(v),
            (Building::Nothing, Value::Real(v)) => self.reals().push(v),
            (Building::Nothing, Value::Text(text)) => self.texts().push(text)?,
            (_, value) => {
                let mut values = self.mixed();
                values.push(value.to_owned());
                self.building = Building::Any(values);
            }
        }
        self.rows += 1;
        Ok(())
    }

    /// Returns all values so far, each with its own type.
    #[cold]
    fn mixed(&mut self) -> Vec<OwnedValue> {
        let rows = self.rows;
        let cells = std::mem::take(self).finish();
        self.rows = rows;
        (0..rows).map(|row| cells.get(row).to_owned()).collect()
    }

    /// Returns the cells. A column that contains only NULL becomes an integer column.
    pub(super) fn finish(self) -> Cells {
        let nulls = Nulls::from_bitmap(self.nulls);
        match self.building {
            Building::Nothing => Cells::Int { values: vec![0; self.rows], nulls },
            Building::Int(values) => Cells::Int { values, nulls },
            Building::Real(values) => Cells::Real { values, nulls },
            Building::Text(texts) => Cells::Text(texts.cells),
            Building::Any(values) => Cells::Any(values),
        }
    }
}

impl Texts {
    fn nulls(rows: usize) -> Texts {
        let cells = TextCells { codes: vec![TextCells::NULL; rows], ..TextCells::default() };
        Texts { cells, recent: [TextCells::NULL; RECENT_TEXTS] }
    }

    /// Reserves memory for the rows of a page, and for distinct texts in the same proportion to rows as before.
    fn reserve_rows(&mut self, rows: usize, expected: Expected) {
        let TextCells { bytes, ends, codes } = &mut self.cells;
        let of =
            |some: usize, rows: usize| (some as u128 * rows as u128 / codes.len().max(1) as u128) as usize;
        // Texts in overflow pages cannot be predicted: a few of them do not show how long the others are.
        let most = expected.bytes.min(u32::MAX as usize - bytes.len());
        let length = (of(bytes.len(), rows).min(most), of(bytes.len(), expected.rows).min(most));
        let distinct = (of(ends.len(), rows), of(ends.len(), expected.rows));
        reserve_rows(ends, distinct.0, distinct.1);
        reserve_rows(bytes, length.0, length.1);
        reserve_rows(codes, rows, expected.rows);
    }

    fn append(&mut self, bytes: &[u8], places: &mut [ColumnPlace], column: usize) -> Result<(), TooLong> {
        // The previous text, if it had at most 8 bytes: equal bytes are an equal text.
        let mut short = (u8::MAX, 0, TextCells::NULL);
        for place in places {
            let start = place.values as usize;
            let (serial, first) = place.number(bytes, column);
            let length = usize::from(serial.length);
            if serial.class == class::NULL {
                self.cells.codes.push(TextCells::NULL);
                continue;
            }
            if length > 8 {
                self.push(bytes.get(start..start + length).unwrap_or_default())?;
                continue;
            }
            let first = leading(first, length);
            if (serial.length, first) != (short.0, short.1) {
                let code = self.code(bytes.get(start..start + length).unwrap_or_default())?;
                short = (serial.length, first, code);
            }
            self.cells.codes.push(short.2);
        }
        Ok(())
    }

    fn push(&mut self, text: &[u8]) -> Result<(), TooLong> {
        let code = match self.cells.codes.last() {
            Some(code) if *code != TextCells::NULL && self.cells.entry(*code) == text => *code,
            _ => self.code(text)?,
        };
        self.cells.codes.push(code);
        Ok(())
    }

    /// Returns the code of a text; a new code if the text is not among the recent ones.
    fn code(&mut self, text: &[u8]) -> Result<u32, TooLong> {
        let last = text.len().saturating_sub(8);
        let (first, last) = (eight(text, 0), eight(text, last));
        let short = text.iter().take(8).fold(0, |all, byte| all << 8 | u64::from(*byte));
        let mixed = (first ^ last.rotate_left(29) ^ short.rotate_left(13) ^ text.len() as u64)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let slot = &mut self.recent[(mixed >> 58) as usize % RECENT_TEXTS];
        if *slot != TextCells::NULL && self.cells.entry(*slot) == text {
            return Ok(*slot);
        }
        let free_bytes = u32::MAX as usize - self.cells.bytes.len();
        if text.len() > free_bytes || self.cells.ends.len() + 1 >= TextCells::NULL as usize {
            return Err(TooLong);
        }
        *slot = self.cells.add_entry(text);
        Ok(*slot)
    }
}

/// Reserves memory for the rows of a page. If memory is missing, reserves it for all expected rows at once. Growth
/// by doubling would copy every value and touch twice the memory.
#[inline]
fn reserve_rows<T>(values: &mut Vec<T>, rows: usize, expected: usize) {
    if values.capacity() - values.len() < rows {
        values.reserve_exact(expected.max(rows));
    }
}

/// Returns the first `length` bytes of `bytes`, shifted to the low end; the other bits are zero.
#[inline(always)]
fn leading(bytes: u64, length: usize) -> u64 {
    if length == 0 { 0 } else { bytes >> (64 - 8 * length) }
}
