//! Columns of a record, and the steps that encode them.

use super::affinity::{Affinity, Stored, store};
use super::number;
use super::record::header_length;
use super::stage::{Bytes, put_number, put_varint};
use rpd_shard::model::{Cells, Nulls, TextCells, Value};

/// How one column of the record is made.
#[derive(Clone, Copy, Debug)]
pub enum Field<'a> {
    /// `INTEGER PRIMARY KEY`: the rowid, which the record does not repeat.
    Key,
    /// The same value in every row.
    Same {
        /// The value.
        value: Value<'a>,
        /// Of the column.
        affinity: Affinity,
    },
    /// A value per row.
    Cells {
        /// The values.
        cells: &'a Cells,
        /// Stands for NULL and for values that are absent: the column's default, or NULL.
        null: Value<'a>,
        /// Of the column.
        affinity: Affinity,
    },
}

/// Most columns of a table whose rows are encoded by steps.
pub(super) const MOST_COLUMNS: usize = 100;
/// Longest text whose serial type is one byte.
const SHORT: usize = 57;
/// A short text is copied in steps of this many bytes.
const STEP: usize = 16;
/// Bytes in front of a short text that the copy may read.
const PADDING: usize = 64;
/// No long text may reach below this offset of the staging buffer: there is room for the rest of any row.
const FLOOR: usize = 8192;
/// In [`Plan::types`]: the type is longer than a byte, and in [`Plan::long_types`].
const LONG: u8 = 0xff;

/// The steps that encode a row, from the last column to the first. Columns without bytes have none.
#[derive(Debug)]
pub(super) struct Plan<'a> {
    steps: Vec<(usize, Step<'a>)>,
    /// Serial types of the current row, at the end, and the header length in front of them.
    types: [u8; 128],
    long_types: [u64; 128],
    columns: usize,
}

#[derive(Debug)]
enum Step<'a> {
    /// Columns without NULL, the last first: each with its slot.
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

/// A value of at most [`SHORT`] bytes, encoded.
#[derive(Clone, Debug)]
struct Short {
    serial: u8,
    /// The value, behind [`PADDING`].
    bytes: Vec<u8>,
}

/// The row is too long for the staging buffer.
#[derive(Debug)]
pub(super) struct TooLong;

impl<'a> Field<'a> {
    /// The value of a row, as it is stored.
    pub(super) fn stored(&self, row: usize) -> Stored<'a> {
        match *self {
            Field::Key => Stored::Null,
            Field::Same { value, affinity } => store(value, affinity),
            Field::Cells { cells, null, affinity } => any(cells, row, store(null, affinity), affinity),
        }
    }
}

/// A cell as it is stored, or `null`.
#[inline]
fn any<'a>(cells: &'a Cells, row: usize, null: Stored<'a>, affinity: Affinity) -> Stored<'a> {
    match store(cells.get(row), affinity) {
        Stored::Null => null,
        stored => stored,
    }
}

impl<'a> Plan<'a> {
    /// The steps for these columns, or `None` if there are too many.
    pub(super) fn new(fields: &[Field<'a>], rows: usize) -> Option<Plan<'a>> {
        let columns = fields.len();
        if columns > MOST_COLUMNS {
            return None;
        }
        let mut plan = Plan { steps: Vec::new(), types: [0; 128], long_types: [0; 128], columns };
        plan.types[127 - columns] = columns as u8 + 1;
        for (i, field) in fields.iter().enumerate().rev() {
            let slot = 128 - columns + i;
            match step(field, rows) {
                Step::Short(short) if short.bytes.len() == PADDING => plan.types[slot] = short.serial,
                Step::Ints(more) => {
                    let more = more.into_iter().map(|(_, values)| (slot, values));
                    match plan.steps.last_mut() {
                        Some((_, Step::Ints(columns))) => columns.extend(more),
                        _ => plan.steps.push((slot, Step::Ints(more.collect()))),
                    }
                }
                step => plan.steps.push((slot, step)),
            }
        }
        Some(plan)
    }

    /// Writes the record of a row in front of `end`; returns where it starts.
    #[inline(always)]
    pub(super) fn record(&mut self, stage: &mut Bytes, end: usize, row: usize) -> Result<usize, TooLong> {
        let Plan { steps, types, long_types, columns } = self;
        let mut out = Out { stage, types, long_types, long: false };
        // Not in `out`, so that it stays in a register.
        let mut start = end;
        for (slot, step) in steps.iter() {
            let slot = *slot & 127;
            start = match step {
                Step::Ints(columns) => columns
                    .iter()
                    .fold(start, |start, (slot, values)| out.int(start, *slot & 127, values[row])),
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
        Ok(if out.long { out.long_header(start, *columns) } else { out.header(start, *columns) })
    }
}

/// What a column needs.
fn step<'a>(field: &Field<'a>, rows: usize) -> Step<'a> {
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
        Cells::Text(text) if !(affinity.prefers_numbers() && may_hold_numbers(text)) => match Short::of(null)
        {
            _ if text.ends.len() == 1 && text.codes.iter().take(rows).all(|code| *code == 0) => {
                same(Stored::Text(text.entry(0)))
            }
            Some(null) => Step::Text { cells: text, null },
            None => any,
        },
        Cells::Int { .. } | Cells::Real { .. } | Cells::Text(_) | Cells::Any(_) => any,
    }
}

fn same(stored: Stored<'_>) -> Step<'_> {
    Short::of(stored).map_or(Step::Same(stored), Step::Short)
}

/// Whether any distinct text could read as a number.
fn may_hold_numbers(cells: &TextCells) -> bool {
    let starts = std::iter::once(0).chain(cells.ends.iter().map(|end| *end as usize));
    starts.zip(&cells.ends).any(|(start, end)| {
        start < *end as usize && cells.bytes.get(start).is_some_and(|first| number::may_start(*first))
    })
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

/// Serial type and length of an integer.
#[inline(always)]
pub(super) fn int_type(v: i64) -> (u8, usize) {
    /// By number of bits without the sign; behind them for 0 and 1. The length is in the higher byte.
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

/// A row that is being written, from its end. Each method writes in front of `start`, and returns where what
/// is written then starts.
struct Out<'a> {
    stage: &'a mut Bytes,
    types: &'a mut [u8; 128],
    long_types: &'a mut [u64; 128],
    /// Whether any type is longer than a byte.
    long: bool,
}

impl Out<'_> {
    #[inline(always)]
    fn int(&mut self, start: usize, slot: usize, v: i64) -> usize {
        let (serial, length) = int_type(v);
        put_number(self.stage, start, v as u64);
        self.types[slot] = serial;
        start - length
    }

    #[inline(always)]
    fn short(&mut self, start: usize, slot: usize, value: &Short) -> usize {
        self.types[slot] = value.serial;
        self.copy(start, &value.bytes, PADDING, value.bytes.len())
    }

    #[inline(always)]
    fn text(&mut self, start: usize, slot: usize, cells: &TextCells, code: u32) -> Result<usize, TooLong> {
        let from = if code == 0 { 0 } else { cells.ends[code as usize - 1] as usize };
        let to = cells.ends[code as usize] as usize;
        if to - from > SHORT {
            return self.bytes(start, slot, &cells.bytes[from..to], 13);
        }
        self.types[slot] = 13 + 2 * (to - from) as u8;
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
            Ok(serial) if serial < 0x80 => self.types[slot] = serial,
            _ => {
                self.types[slot] = LONG;
                self.long_types[slot] = serial;
                self.long = true;
            }
        }
        Ok(start - value.len())
    }

    #[inline]
    fn stored(&mut self, start: usize, slot: usize, stored: Stored<'_>) -> Result<usize, TooLong> {
        match stored {
            Stored::Null => self.types[slot] = 0,
            Stored::Int(v) => return Ok(self.int(start, slot, v)),
            Stored::Real(v) => {
                put_number(self.stage, start, v.to_bits());
                self.types[slot] = 7;
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
        for copied in (0..=columns).step_by(STEP) {
            let (from_end, to_end) = (128 - copied, start - copied);
            self.stage[to_end - STEP..to_end].copy_from_slice(&self.types[from_end - STEP..from_end]);
        }
        start - (columns + 1)
    }

    #[cold]
    fn long_header(&mut self, body: usize, columns: usize) -> usize {
        let mut start = body;
        for slot in (128 - columns..128).rev() {
            let serial = match self.types[slot] {
                LONG => self.long_types[slot],
                serial => u64::from(serial),
            };
            start = put_varint(self.stage, start, serial);
        }
        put_varint(self.stage, start, header_length((body - start) as u64))
    }
}
