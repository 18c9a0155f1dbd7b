//! Columns of a record, and the steps that encode them.

use super::affinity::{Affinity, Stored, store};
use super::number;
use super::stage::{Bytes, put_number, put_varint};
use rpd_shard::model::{Cells, Nulls, TextCells, Value};
use std::ops::Range;

/// The source of one column of the record.
#[derive(Clone, Copy, Debug)]
pub enum Field<'a> {
    /// `INTEGER PRIMARY KEY`: the rowid, which the record does not repeat.
    Key,
    /// The same value in every row.
    Same {
        /// The value.
        value: Value<'a>,
        /// Affinity of the column.
        affinity: Affinity,
    },
    /// One value per row.
    Cells {
        /// The values.
        cells: &'a Cells,
        /// Replaces NULL and absent values: the column's default, or NULL.
        null: Value<'a>,
        /// Affinity of the column.
        affinity: Affinity,
    },
}

/// Maximum number of columns of a table with rows that a [`Plan`] encodes.
pub(super) const MAX_COLUMNS: usize = 100;
/// Maximum length, in bytes, of a text with a serial type of one byte.
const SHORT: usize = 57;
/// Number of bytes per step in which a short text is copied.
const STEP: usize = 16;
/// Number of bytes before a short text that the copy may read.
const PADDING: usize = 64;
/// Lowest offset of the staging buffer that a long text may reach: the space below is enough for the rest of any
/// row.
const FLOOR: usize = 8192;
/// Marks a type in [`Types::words`] that is longer than a byte; the type itself is in [`Types::long`].
const LONG: u8 = 0xff;
/// Number of slots of a record's header. The last column's type is in the last slot; the header length is in the
/// slot before the first type.
const SLOTS: usize = 128;
/// Number of slots in a word.
const WORD: usize = 8;

/// The steps that encode a row, from the last column to the first. Columns without value bytes have no step.
#[derive(Debug)]
pub(super) struct Plan<'a> {
    steps: Vec<(usize, Step<'a>)>,
    types: Types,
    columns: usize,
}

/// The header of the current row, one byte per slot. Single bytes are combined to words in a register: a processor
/// stalls on a wide load of bytes that it has just stored one by one.
#[derive(Debug)]
struct Types {
    /// The words of this row; the first slot of each is in its lowest byte.
    words: [u64; SLOTS / WORD],
    /// The parts that are equal in all rows.
    same: [u64; SLOTS / WORD],
    /// Types of more than a byte, by slot.
    long: [u64; SLOTS],
}

/// Returns the position of a slot: its word, and the number of its first bit in that word.
#[inline(always)]
fn place(slot: usize) -> (usize, usize) {
    (slot / WORD % (SLOTS / WORD), slot % WORD * 8)
}

#[derive(Debug)]
enum Step<'a> {
    /// Integer columns with values of the same length in all rows, last column first, each with this length in
    /// bytes. Their serial types are equal in all rows.
    Fixed(Vec<(&'a [i64], usize)>),
    /// Integer columns without NULL, last column first, each with its slot.
    Ints(Vec<(usize, &'a [i64])>),
    IntOrNull {
        values: &'a [i64],
        nulls: &'a Nulls,
        null: Short,
    },
    Real {
        values: &'a [f64],
        nulls: &'a Nulls,
        null: Stored<'a>,
        affinity: Affinity,
    },
    Text {
        cells: &'a TextCells,
        null: Short,
    },
    Short(Short),
    Any {
        cells: &'a Cells,
        null: Stored<'a>,
        affinity: Affinity,
    },
    Same(Stored<'a>),
}

/// An encoded value of at most [`SHORT`] bytes.
#[derive(Clone, Debug)]
struct Short {
    serial: u8,
    /// The value, after [`PADDING`] bytes.
    bytes: Vec<u8>,
}

/// The row is too long for the staging buffer.
#[derive(Debug)]
pub(super) struct TooLong;

impl<'a> Field<'a> {
    /// Returns the value of a row in its stored form.
    pub(super) fn stored(&self, row: usize) -> Stored<'a> {
        match *self {
            Field::Key => Stored::Null,
            Field::Same { value, affinity } => store(value, affinity),
            Field::Cells { cells, null, affinity } => any(cells, row, store(null, affinity), affinity),
        }
    }
}

/// Returns a cell in its stored form, or `null`.
#[inline]
fn any<'a>(cells: &'a Cells, row: usize, null: Stored<'a>, affinity: Affinity) -> Stored<'a> {
    match store(cells.get(row), affinity) {
        Stored::Null => null,
        stored => stored,
    }
}

impl<'a> Plan<'a> {
    /// Plans the steps for these columns in these rows; returns `None` if there are too many columns.
    pub(super) fn new(fields: &[Field<'a>], rows: Range<usize>) -> Option<Plan<'a>> {
        let columns = fields.len();
        if columns > MAX_COLUMNS {
            return None;
        }
        let mut same = [0; SLOTS / WORD];
        let mut always = |slot, serial: u8| {
            let (word, bits) = place(slot);
            same[word] |= u64::from(serial) << bits;
        };
        always(SLOTS - 1 - columns, columns as u8 + 1);
        let mut steps: Vec<(usize, Step<'a>)> = Vec::new();
        for (i, field) in fields.iter().enumerate().rev() {
            let slot = SLOTS - columns + i;
            match step(field, rows.clone()) {
                Step::Short(short) if short.bytes.len() == PADDING => always(slot, short.serial),
                Step::Ints(more) => {
                    if let [(_, values)] = more[..]
                        && let Some((serial, length)) = fixed_type(&values[rows.clone()])
                    {
                        always(slot, serial);
                        match steps.last_mut() {
                            _ if length == 0 => {}
                            Some((_, Step::Fixed(columns))) => columns.push((values, length)),
                            _ => steps.push((slot, Step::Fixed(vec![(values, length)]))),
                        }
                        continue;
                    }
                    let more = more.into_iter().map(|(_, values)| (slot, values));
                    match steps.last_mut() {
                        Some((_, Step::Ints(columns))) => columns.extend(more),
                        _ => steps.push((slot, Step::Ints(more.collect()))),
                    }
                }
                step => steps.push((slot, step)),
            }
        }
        let types = Types { words: same, same, long: [0; SLOTS] };
        Some(Plan { steps, types, columns })
    }

    /// Writes the record of a row so that it ends at `end`; returns its start.
    #[inline(always)]
    pub(super) fn record(&mut self, stage: &mut Bytes, end: usize, row: usize) -> Result<usize, TooLong> {
        let Plan { steps, types, columns } = self;
        let mut out = Out { stage, types, word: 0, of_word: 0, long: false };
        // Not a field of `out`, so that it stays in a register.
        let mut start = end;
        for (slot, step) in steps.iter() {
            let slot = *slot;
            start = match step {
                Step::Fixed(columns) => columns.iter().fold(start, |start, (values, length)| {
                    put_number(out.stage, start, values[row] as u64);
                    start - length
                }),
                Step::Ints(columns) => {
                    columns.iter().fold(start, |start, (slot, values)| out.int(start, *slot, values[row]))
                }
                Step::IntOrNull { nulls, null, .. } if nulls.get(row) => out.short(start, slot, null),
                Step::IntOrNull { values, .. } => out.int(start, slot, values[row]),
                Step::Text { cells, null } => match cells.codes[row] {
                    TextCells::NULL => out.short(start, slot, null),
                    code => out.text(start, slot, cells, code)?,
                },
                Step::Short(short) => out.short(start, slot, short),
                Step::Real { values, nulls, null, affinity } => {
                    let value = if nulls.get(row) { Value::Null } else { Value::Real(values[row]) };
                    match store(value, *affinity) {
                        Stored::Null => out.stored(start, slot, *null)?,
                        stored => out.stored(start, slot, stored)?,
                    }
                }
                Step::Any { cells, null, affinity } => {
                    out.stored(start, slot, any(cells, row, *null, *affinity))?
                }
                Step::Same(stored) => out.stored(start, slot, *stored)?,
            };
        }
        out.turn(0);
        Ok(if out.long { out.long_header(start, *columns) } else { out.header(start, *columns) })
    }
}

/// Selects the step that a column needs.
fn step<'a>(field: &Field<'a>, rows: Range<usize>) -> Step<'a> {
    let (cells, null, affinity) = match *field {
        Field::Key => return Step::Short(Short::number(0)),
        Field::Same { value, affinity } => return same(store(value, affinity)),
        Field::Cells { cells, null, affinity } => (cells, store(null, affinity), affinity),
    };
    let any = Step::Any { cells, null, affinity };
    match cells {
        Cells::Absent => same(null),
        Cells::Int { values, nulls } if !matches!(affinity, Affinity::Text | Affinity::Real) => {
            match Short::of(null) {
                _ if !nulls.any() => Step::Ints(vec![(0, values)]),
                Some(null) => Step::IntOrNull { values, nulls, null },
                None => any,
            }
        }
        Cells::Real { values, nulls } if affinity != Affinity::Text => {
            Step::Real { values, nulls, null, affinity }
        }
        Cells::Text(text) if !(affinity.prefers_numbers() && may_hold_numbers(text, rows.clone())) => {
            match Short::of(null) {
                _ if text.ends.len() == 1 && text.codes[rows].iter().all(|code| *code == 0) => {
                    same(Stored::Text(text.entry(0)))
                }
                Some(null) => Step::Text { cells: text, null },
                None => any,
            }
        }
        Cells::Int { .. } | Cells::Real { .. } | Cells::Text(_) | Cells::Any(_) => any,
    }
}

fn same(stored: Stored<'_>) -> Step<'_> {
    Short::of(stored).map_or(Step::Same(stored), Step::Short)
}

/// Returns whether a text of these rows could be read as a number.
fn may_hold_numbers(cells: &TextCells, rows: Range<usize>) -> bool {
    let is_one = |code: u32| cells.entry(code).first().is_some_and(|first| number::may_start(*first));
    if cells.ends.len() <= rows.len() {
        return (0..cells.ends.len() as u32).any(is_one);
    }
    cells.codes[rows].iter().any(|code| *code != TextCells::NULL && is_one(*code))
}

impl Short {
    fn number(serial: u8) -> Short {
        Short { serial, bytes: vec![0; PADDING] }
    }

    fn padded(serial: u8, value: &[u8]) -> Short {
        let mut bytes = vec![0; PADDING];
        bytes.extend_from_slice(value);
        Short { serial, bytes }
    }

    fn of(stored: Stored<'_>) -> Option<Short> {
        match stored {
            Stored::Null => Some(Short::number(0)),
            Stored::Int(v) => {
                let (serial, length) = int_type(v);
                Some(Short::padded(serial, &v.to_be_bytes()[8 - length..]))
            }
            Stored::Real(v) => Some(Short::padded(7, &v.to_be_bytes())),
            Stored::Number(digits) => Short::of_bytes(digits.as_bytes(), 13),
            Stored::Text(v) => Short::of_bytes(v, 13),
            Stored::Blob(v) => Short::of_bytes(v, 12),
        }
    }

    fn of_bytes(value: &[u8], empty: u8) -> Option<Short> {
        (value.len() <= SHORT).then(|| Short::padded(empty + 2 * value.len() as u8, value))
    }
}

/// Returns the serial type and the length in bytes of an integer.
#[inline(always)]
pub(super) fn int_type(v: i64) -> (u8, usize) {
    /// By number of bits without the sign, then the entries for 0 and 1. The high byte is the length.
    const TYPES: [u16; 128] = {
        let mut types = [6 | 8 << 8; 128];
        let mut bits = 0;
        while bits < 48 {
            types[bits] = match bits {
                0..8 => 1 | 1 << 8,
                8..16 => 2 | 2 << 8,
                16..24 => 3 | 3 << 8,
                24..32 => 4 | 4 << 8,
                _ => 5 | 6 << 8,
            };
            bits += 1;
        }
        types[64] = 8;
        types[65] = 9;
        types
    };
    let size = (v ^ v >> 63) as u64 | 1;
    let bits = u64::from(u64::BITS - size.leading_zeros());
    let place = if (v as u64) < 2 { 64 + v as u64 } else { bits };
    let found = TYPES[(place & 127) as usize];
    (found as u8, usize::from(found >> 8))
}

/// Returns the serial type and length that all values have in common, if any. Ids and times of neighbouring rows
/// usually have one.
fn fixed_type(values: &[i64]) -> Option<(u8, usize)> {
    let (any, all) = values.iter().fold((0, -1), |(any, all), v| (any | v, all & v));
    let (serial, length) = int_type(any);
    // The smallest number of that length; 0 and 1 have no value bytes.
    let least = match length {
        0 | 1 => 2,
        6 => 1 << 31,
        8 => 1 << 47,
        _ => 1 << (8 * length - 9),
    };
    let is_fixed = any == all || any >= 0 && length > 0 && values.iter().all(|v| *v >= least);
    (is_fixed && !values.is_empty()).then_some((serial, length))
}

/// A row that is written from its end to its start. Each method writes the bytes before `start` and returns the new
/// start.
struct Out<'a> {
    stage: &'a mut Bytes,
    types: &'a mut Types,
    /// The word of the types that is being combined, and its content so far.
    word: usize,
    of_word: u64,
    /// Whether any type is longer than a byte.
    long: bool,
}

impl Out<'_> {
    #[inline(always)]
    fn put_type(&mut self, slot: usize, serial: u8) {
        let (word, bits) = place(slot);
        if word != self.word {
            self.turn(word);
        }
        self.of_word |= u64::from(serial) << bits;
    }

    /// Stores the current word of the types and starts another one.
    #[inline(always)]
    fn turn(&mut self, word: usize) {
        self.types.words[self.word] = self.types.same[self.word] | self.of_word;
        (self.word, self.of_word) = (word, 0);
    }

    #[inline(always)]
    fn int(&mut self, start: usize, slot: usize, v: i64) -> usize {
        let (serial, length) = int_type(v);
        put_number(self.stage, start, v as u64);
        self.put_type(slot, serial);
        start - length
    }

    #[inline(always)]
    fn short(&mut self, start: usize, slot: usize, value: &Short) -> usize {
        self.put_type(slot, value.serial);
        self.copy(start, &value.bytes, PADDING, value.bytes.len())
    }

    #[inline(always)]
    fn text(&mut self, start: usize, slot: usize, cells: &TextCells, code: u32) -> Result<usize, TooLong> {
        let from = if code == 0 { 0 } else { cells.ends[code as usize - 1] as usize };
        let to = cells.ends[code as usize] as usize;
        if to - from > SHORT {
            return self.bytes(start, slot, &cells.bytes[from..to], 13);
        }
        self.put_type(slot, 13 + 2 * (to - from) as u8);
        Ok(self.copy(start, &cells.bytes, from, to))
    }

    /// Copies `from..to` of `bytes`, at most [`SHORT`] bytes.
    #[inline(always)]
    fn copy(&mut self, start: usize, bytes: &[u8], from: usize, to: usize) -> usize {
        let length = to - from;
        if to < PADDING {
            self.stage[start - length..start].copy_from_slice(&bytes[from..to]);
        } else {
            for copied in (0..length).step_by(STEP) {
                let (from_end, to_end) = (to - copied, start - copied);
                self.stage[to_end - STEP..to_end].copy_from_slice(&bytes[from_end - STEP..from_end]);
            }
        }
        start - length
    }

    fn bytes(&mut self, start: usize, slot: usize, value: &[u8], empty: u64) -> Result<usize, TooLong> {
        if value.len() > start.saturating_sub(FLOOR) {
            return Err(TooLong);
        }
        self.stage[start - value.len()..start].copy_from_slice(value);
        let serial = empty + 2 * value.len() as u64;
        match u8::try_from(serial) {
            Ok(serial) if serial < 0x80 => self.put_type(slot, serial),
            _ => {
                self.put_type(slot, LONG);
                self.types.long[slot % SLOTS] = serial;
                self.long = true;
            }
        }
        Ok(start - value.len())
    }

    #[inline]
    fn stored(&mut self, start: usize, slot: usize, stored: Stored<'_>) -> Result<usize, TooLong> {
        match stored {
            Stored::Null => self.put_type(slot, 0),
            Stored::Int(v) => return Ok(self.int(start, slot, v)),
            Stored::Real(v) => {
                put_number(self.stage, start, v.to_bits());
                self.put_type(slot, 7);
                return Ok(start - 8);
            }
            Stored::Number(digits) => return self.bytes(start, slot, digits.as_bytes(), 13),
            Stored::Text(v) => return self.bytes(start, slot, v, 13),
            Stored::Blob(v) => return self.bytes(start, slot, v, 12),
        }
        Ok(start)
    }

    #[inline(always)]
    fn header(&mut self, start: usize, columns: usize) -> usize {
        for (word, copied) in self.types.words.iter().rev().zip((0..=columns).step_by(WORD)) {
            put_number(self.stage, start - copied, word.swap_bytes());
        }
        start - (columns + 1)
    }

    #[cold]
    fn long_header(&mut self, body: usize, columns: usize) -> usize {
        let mut start = body;
        for slot in (SLOTS - columns..SLOTS).rev() {
            let (word, bits) = place(slot);
            let serial = match (self.types.words[word] >> bits) as u8 {
                LONG => self.types.long[slot],
                serial => u64::from(serial),
            };
            start = put_varint(self.stage, start, serial);
        }
        put_varint(self.stage, start, header_length((body - start) as u64))
    }
}

/// Returns the length of a record's header with this many bytes of types. The length includes itself.
pub(super) fn header_length(types: u64) -> u64 {
    let fits = |size: &u64| types + size < 1 << (7 * size);
    types + (1..9).find(fits).unwrap_or(9)
}

#[cfg(test)]
mod tests {
    use super::{fixed_type, int_type};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_fixed_type_is_that_of_each_value(
            near in (any::<i64>(), 0u32..64, 0i64..3),
            differences in proptest::collection::vec(-3i64..4, 1..20),
        ) {
            let (base, shift, one) = near;
            let base = (base >> shift).wrapping_add(one);
            for base in [base, 1 << (shift % 63), (1 << (shift % 63)) - 1] {
                let values: Vec<i64> = differences.iter().map(|d| base.wrapping_add(*d)).collect();
                let types: Vec<_> = values.iter().map(|v| int_type(*v)).collect();
                let same = types.iter().all(|t| *t == types[0]);
                match fixed_type(&values) {
                    Some(found) => prop_assert!(same && found == types[0], "{values:?} {found:?}"),
                    None => prop_assert!(!same || values.iter().any(|v| *v < 0), "{values:?}"),
                }
            }
        }
    }
}
