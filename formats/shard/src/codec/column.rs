use super::codes::{self, Codes, Shared};
use super::varint::{put, put_all, skip_all, take, take_all, unzigzag, zigzag};
use super::{DecodeError, MAX_RAW_BYTES};
use crate::model::{Cells, Column, Kind, Nulls, OwnedValue, Table, TextCells};

// Encodings: the first byte of a column.
const ABSENT: u8 = 0x00;
const INT_CONSTANT: u8 = 0x01;
const INT_PLAIN: u8 = 0x02;
const INT_DELTA: u8 = 0x03;
const INT_NEAR: u8 = 0x04;
const INT_CODES: u8 = 0x05;
const REAL_RAW: u8 = 0x06;
const TEXT_DICTIONARY: u8 = 0x07;
const TEXT_IN_ORDER: u8 = 0x08;
const TEXT_CONSTANT: u8 = 0x09;
const ANY: u8 = 0x0a;
const INT_FOLLOWS: u8 = 0x0b;
/// Flag in the first byte of a column: a bitmap of NULL rows follows.
const HAS_NULLS: u8 = 0x80;

/// Maximum number of columns of one block.
const MAX_COLUMNS: u64 = 64;

// Value types in an `ANY` column.
const ANY_NULL: u8 = 0;
const ANY_INT: u8 = 1;
const ANY_REAL: u8 = 2;
const ANY_TEXT: u8 = 3;
const ANY_BLOB: u8 = 4;

/// Appends the columns of `rows` rows: the number of columns, then each column. A column that the block lacks and
/// the reader's description has is read as absent.
pub fn encode_columns(table: &Table, columns: &[Cells], rows: usize, out: &mut Vec<u8>) {
    put(out, columns.len() as u64);
    let shared = Shared::of(table, columns, rows);
    for (i, cells) in columns.iter().enumerate() {
        if let (Some(shared), Cells::Int { values, nulls }) = (&shared, cells)
            && shared.has(i)
        {
            let leads = shared.leads(i);
            let null = if nulls.any() { HAS_NULLS } else { 0 };
            out.push(null | if leads { INT_CODES } else { INT_FOLLOWS });
            shared.encode(values, nulls, leads, out);
            continue;
        }
        encode(&table.columns[i], i, columns, cells, rows, out);
    }
}

fn encode(column: &Column, position: usize, all: &[Cells], cells: &Cells, rows: usize, out: &mut Vec<u8>) {
    match cells {
        Cells::Absent => out.push(ABSENT),
        Cells::Int { values, nulls } => {
            let near = match column.near {
                Some(n) if usize::from(n) < position => match &all[usize::from(n)] {
                    Cells::Int { values, .. } => Some((n, values)),
                    _ => None,
                },
                _ => None,
            };
            encode_ints(&column.kind, values, nulls, near, rows, out);
        }
        Cells::Real { values, nulls } => {
            tag(REAL_RAW, nulls, rows, out);
            values.iter().for_each(|v| out.extend_from_slice(&v.to_le_bytes()));
        }
        Cells::Text(text) => encode_text(text, rows, out),
        Cells::Any(values) => {
            out.push(ANY);
            values.iter().for_each(|v| encode_any(v, out));
        }
    }
}

fn tag(encoding: u8, nulls: &Nulls, rows: usize, out: &mut Vec<u8>) {
    if !nulls.any() {
        return out.push(encoding);
    }
    out.push(encoding | HAS_NULLS);
    let bytes = rows.div_ceil(8);
    let bitmap = nulls.bitmap();
    out.extend((0..bytes).map(|i| bitmap.get(i).copied().unwrap_or(0)));
}

fn encode_ints(
    kind: &Kind,
    values: &[i64],
    nulls: &Nulls,
    near: Option<(u8, &Vec<i64>)>,
    rows: usize,
    out: &mut Vec<u8>,
) {
    let first = values.first().copied().unwrap_or(0);
    if values.iter().all(|v| *v == first) {
        tag(INT_CONSTANT, nulls, rows, out);
        return put(out, zigzag(first));
    }
    if let Some((other, base)) = near {
        tag(INT_NEAR, nulls, rows, out);
        out.push(other);
        return put_all(out, values.iter().zip(base).map(|(v, b)| zigzag(v.wrapping_sub(*b))));
    }
    if matches!(kind, Kind::Time | Kind::Stack) || delta_is_smaller(values) {
        tag(INT_DELTA, nulls, rows, out);
        let mut previous = 0i64;
        return put_all(
            out,
            values.iter().map(|v| {
                let difference = v.wrapping_sub(previous);
                previous = *v;
                zigzag(difference)
            }),
        );
    }
    tag(INT_PLAIN, nulls, rows, out);
    put_all(out, values.iter().map(|v| zigzag(*v)));
}

/// Returns whether differences need fewer bits than plain values, judged by the first 256 values. Ascending ids and
/// addresses favour differences; small codes that vary favour plain values.
fn delta_is_smaller(values: &[i64]) -> bool {
    let bits = |v: i64| u64::BITS - zigzag(v).leading_zeros();
    let sample = &values[..values.len().min(256)];
    let plain: u32 = sample.iter().map(|v| bits(*v)).sum();
    let delta: u32 = sample.windows(2).map(|w| bits(w[1].wrapping_sub(w[0]))).sum();
    delta < plain
}

fn encode_text(text: &TextCells, rows: usize, out: &mut Vec<u8>) {
    let mut nulls = Nulls::default();
    text.codes.iter().enumerate().filter(|(_, c)| **c == TextCells::NULL).for_each(|(i, _)| nulls.set(i));
    let present = || text.codes.iter().copied().filter(|c| *c != TextCells::NULL);
    let entries = text.ends.len();
    let encoding = if entries == 1 {
        TEXT_CONSTANT
    } else if present().eq(0..entries as u32) {
        TEXT_IN_ORDER
    } else {
        TEXT_DICTIONARY
    };
    tag(encoding, &nulls, rows, out);
    put(out, entries as u64);
    let starts = std::iter::once(&0).chain(&text.ends);
    text.ends.iter().zip(starts).for_each(|(end, start)| put(out, u64::from(end - start)));
    out.extend_from_slice(&text.bytes);
    if encoding == TEXT_DICTIONARY {
        present().for_each(|code| put(out, u64::from(code)));
    }
}

fn encode_any(value: &OwnedValue, out: &mut Vec<u8>) {
    match value {
        OwnedValue::Null => out.push(ANY_NULL),
        OwnedValue::Int(v) => {
            out.push(ANY_INT);
            put(out, zigzag(*v));
        }
        OwnedValue::Real(v) => {
            out.push(ANY_REAL);
            out.extend_from_slice(&v.to_le_bytes());
        }
        OwnedValue::Text(v) | OwnedValue::Blob(v) => {
            out.push(if matches!(value, OwnedValue::Text(_)) { ANY_TEXT } else { ANY_BLOB });
            put(out, v.len() as u64);
            out.extend_from_slice(v);
        }
    }
}

/// Reads the columns of `rows` rows of `table`. The caller bounds `rows` by [`super::MAX_ROWS`] and the input by
/// [`super::MAX_RAW_BYTES`].
pub fn decode_columns(table: &Table, input: &[u8], rows: usize) -> Result<Vec<Cells>, DecodeError> {
    decode_needed(table, input, rows, &|_| true)
}

/// Reads columns for a caller that does not need all of them. Columns for which `needed` returns false may become
/// [`Cells::Absent`] if they are integers without NULL. Fails in the same cases as [`decode_columns`].
pub fn decode_needed(
    table: &Table,
    input: &[u8],
    rows: usize,
    needed: &dyn Fn(&Column) -> bool,
) -> Result<Vec<Cells>, DecodeError> {
    let skips = |i: usize| table.columns.get(i).is_some_and(|column| !needed(column));
    match decode_all(table, input, rows, skips) {
        // A needed column is stored as differences to a skipped column.
        Err(Stop::Skipped) => decode_needed(table, input, rows, &|_| true),
        Err(Stop::Damage(damage)) => Err(damage),
        Ok(columns) => Ok(columns),
    }
}

/// Reason why decoding stopped.
enum Stop {
    Damage(DecodeError),
    /// A column is encoded relative to a column that was skipped.
    Skipped,
}

impl From<DecodeError> for Stop {
    fn from(damage: DecodeError) -> Stop {
        Stop::Damage(damage)
    }
}

fn decode_all(
    table: &Table,
    mut input: &[u8],
    rows: usize,
    skips: impl Fn(usize) -> bool,
) -> Result<Vec<Cells>, Stop> {
    let stored = take(&mut input)?;
    let mut earlier = Earlier { columns: Vec::with_capacity(table.columns.len()), skipped: 0, codes: None };
    for i in 0..stored.min(MAX_COLUMNS) {
        let cells = decode(&mut input, &mut earlier, skips(i as usize), rows)?;
        earlier.columns.push(cells);
    }
    if !input.is_empty() {
        return Err(DecodeError::LeftOver(input.len()).into());
    }
    // A newer writer has columns beyond this description, and an older writer lacks some.
    let mut columns = earlier.columns;
    columns.resize(table.columns.len(), Cells::Absent);
    Ok(columns)
}

/// Columns decoded so far, relative to which a later column may be encoded.
struct Earlier<'a> {
    columns: Vec<Cells>,
    /// Bit set of integer columns with skipped values.
    skipped: u64,
    codes: Option<Codes<'a>>,
}

impl Earlier<'_> {
    /// Returns the values of the column that another column refers to, or `None` if they were skipped. Fails if it
    /// is not an integer column.
    fn base(&self, column: u8) -> Result<Option<&[i64]>, DecodeError> {
        match self.columns.get(usize::from(column)) {
            Some(Cells::Int { values, .. }) => Ok(Some(values)),
            Some(Cells::Absent) if self.skipped >> column & 1 == 1 => Ok(None),
            _ => Err(DecodeError::Near(column)),
        }
    }
}

fn take_bytes<'a>(input: &mut &'a [u8], count: usize) -> Result<&'a [u8], DecodeError> {
    let (bytes, rest) = input.split_at_checked(count).ok_or(DecodeError::Short)?;
    *input = rest;
    Ok(bytes)
}

fn take_byte(input: &mut &[u8]) -> Result<u8, DecodeError> {
    Ok(take_bytes(input, 1)?[0])
}

fn take_real(input: &mut &[u8]) -> Result<f64, DecodeError> {
    let bytes = take_bytes(input, 8)?;
    Ok(f64::from_le_bytes(bytes.try_into().map_err(|_| DecodeError::Short)?))
}

/// Decodes the next column. A column to be skipped becomes absent if it has integers without NULL.
fn decode<'a>(
    input: &mut &'a [u8],
    earlier: &mut Earlier<'a>,
    skip: bool,
    rows: usize,
) -> Result<Cells, Stop> {
    let first = take_byte(input)?;
    let has_nulls = first & HAS_NULLS != 0;
    if let encoding @ (INT_CODES | INT_FOLLOWS) = first & !HAS_NULLS {
        let leader =
            if encoding == INT_FOLLOWS { Some(earlier.codes.ok_or(DecodeError::NoCodes)?) } else { None };
        let (cells, read) = codes::decode(input, leader, has_nulls, rows)?;
        earlier.codes = Some(read);
        return Ok(cells);
    }
    let nulls = if has_nulls {
        Nulls::from_bitmap(take_bytes(input, rows.div_ceil(8))?.to_vec())
    } else {
        Nulls::default()
    };
    match first & !HAS_NULLS {
        encoding @ (INT_PLAIN | INT_DELTA | INT_NEAR) if skip && !has_nulls => {
            if encoding == INT_NEAR {
                earlier.base(take_byte(input)?)?;
            }
            skip_all(input, rows)?;
            earlier.skipped |= 1 << earlier.columns.len();
            Ok(Cells::Absent)
        }
        ABSENT => Ok(Cells::Absent),
        INT_CONSTANT => Ok(Cells::Int { values: vec![unzigzag(take(input)?); rows], nulls }),
        INT_PLAIN => Ok(Cells::Int { values: take_all(input, rows, unzigzag)?, nulls }),
        INT_DELTA => {
            let mut sum = 0i64;
            let values = take_all(input, rows, |v| {
                sum = sum.wrapping_add(unzigzag(v));
                sum
            })?;
            Ok(Cells::Int { values, nulls })
        }
        INT_NEAR => {
            let other = take_byte(input)?;
            let base = earlier.base(other)?.ok_or(Stop::Skipped)?;
            let mut base = base.iter();
            let values =
                take_all(input, rows, |v| unzigzag(v).wrapping_add(base.next().copied().unwrap_or(0)))?;
            Ok(Cells::Int { values, nulls })
        }
        REAL_RAW => {
            if input.len() < rows * 8 {
                return Err(DecodeError::Short.into());
            }
            let values = (0..rows).map(|_| take_real(input)).collect::<Result<_, DecodeError>>()?;
            Ok(Cells::Real { values, nulls })
        }
        encoding @ (TEXT_DICTIONARY | TEXT_IN_ORDER | TEXT_CONSTANT) => {
            Ok(Cells::Text(decode_text(encoding, input, &nulls, rows)?))
        }
        ANY => Ok(Cells::Any((0..rows).map(|_| decode_any(input)).collect::<Result<_, DecodeError>>()?)),
        other => Err(DecodeError::Encoding(other).into()),
    }
}

fn decode_text(
    encoding: u8,
    input: &mut &[u8],
    nulls: &Nulls,
    rows: usize,
) -> Result<TextCells, DecodeError> {
    let entries = take(input)?;
    if entries > rows as u64 {
        return Err(DecodeError::Code(entries));
    }
    let lengths = take_all(input, entries as usize, |v| v)?;
    let mut ends = Vec::with_capacity(lengths.len());
    let mut end = 0u64;
    for length in lengths {
        end = end.saturating_add(length);
        if end > input.len() as u64 {
            return Err(DecodeError::Short);
        }
        ends.push(end as u32);
    }
    let bytes = take_bytes(input, end as usize)?.to_vec();
    let mut text = TextCells { bytes, ends, codes: vec![TextCells::NULL; rows] };
    let mut next = 0u64;
    let mut written_out = 0usize;
    for i in 0..rows {
        if nulls.get(i) {
            continue;
        }
        let code = match encoding {
            TEXT_DICTIONARY => take(input)?,
            TEXT_IN_ORDER => next,
            _ => 0,
        };
        next += 1;
        if code >= entries {
            return Err(DecodeError::Code(code));
        }
        text.codes[i] = code as u32;
        written_out += text.entry(code as u32).len();
        if written_out > MAX_RAW_BYTES {
            return Err(DecodeError::TooMuchText);
        }
    }
    Ok(text)
}

fn decode_any(input: &mut &[u8]) -> Result<OwnedValue, DecodeError> {
    match take_byte(input)? {
        ANY_NULL => Ok(OwnedValue::Null),
        ANY_INT => Ok(OwnedValue::Int(unzigzag(take(input)?))),
        ANY_REAL => Ok(OwnedValue::Real(take_real(input)?)),
        kind @ (ANY_TEXT | ANY_BLOB) => {
            let length = usize::try_from(take(input)?).map_err(|_| DecodeError::Short)?;
            let bytes = take_bytes(input, length)?.into();
            Ok(if kind == ANY_TEXT { OwnedValue::Text(bytes) } else { OwnedValue::Blob(bytes) })
        }
        other => Err(DecodeError::Encoding(other)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{RowsBuilder, Schema, Value};
    use proptest::prelude::*;

    /// All values that a column can hold, in mixes that select each encoding.
    fn value() -> impl Strategy<Value = OwnedValue> {
        prop_oneof![
            3 => Just(OwnedValue::Null),
            6 => any::<i64>().prop_map(OwnedValue::Int),
            6 => (0i64..5).prop_map(OwnedValue::Int),
            1 => any::<f64>().prop_filter("NaN is unequal to itself", |v| !v.is_nan()).prop_map(OwnedValue::Real),
            4 => "[a-c]{0,3}".prop_map(|s| OwnedValue::Text(s.into_bytes().into())),
            1 => proptest::collection::vec(any::<u8>(), 0..4).prop_map(|b| OwnedValue::Blob(b.into())),
        ]
    }

    fn column_of_values() -> impl Strategy<Value = Vec<OwnedValue>> {
        let ints = proptest::collection::vec(
            prop_oneof![any::<i64>().prop_map(OwnedValue::Int), Just(OwnedValue::Null)],
            40,
        );
        let near = any::<i64>()
            .prop_map(|first| (0..40).map(|i| OwnedValue::Int(first.wrapping_add(i * 7))).collect());
        let texts = proptest::collection::vec(
            prop_oneof![
                "[ab]{0,2}".prop_map(|s| OwnedValue::Text(s.into_bytes().into())),
                Just(OwnedValue::Null)
            ],
            40,
        );
        prop_oneof![
            proptest::collection::vec(value(), 40),
            ints,
            near,
            texts,
            value().prop_map(|v| vec![v; 40])
        ]
    }

    proptest! {
        #[test]
        fn any_mix_of_values_survives_encoding(columns in proptest::collection::vec(column_of_values(), 7)) {
            let table = Schema::builtin().get(crate::model::rocpd::EVENT).unwrap();
            let mut builder = RowsBuilder::new(table);
            for row in 0..40 {
                let values: Vec<Value<'_>> = columns.iter().map(|c| c[row].as_value()).collect();
                builder.push(&values);
            }
            let rows = builder.finish(1);
            let mut bytes = Vec::new();
            encode_columns(table, &rows.columns, rows.len, &mut bytes);
            let decoded = decode_columns(table, &bytes, rows.len).unwrap();
            for (cells, wanted) in decoded.iter().zip(&columns) {
                for (row, value) in wanted.iter().enumerate() {
                    prop_assert_eq!(cells.get(row), value.as_value());
                }
            }
        }

        /// Needed columns are read whichever others are skipped, and only integers without NULL are skipped.
        #[test]
        fn some_columns_are_read_as_all_are(
            columns in proptest::collection::vec(column_of_values(), 7),
            needed in proptest::collection::vec(any::<bool>(), 7),
            near in proptest::collection::vec(proptest::option::of(0u8..7), 7),
        ) {
            let mut table = Table::clone(Schema::builtin().get(crate::model::rocpd::EVENT).unwrap());
            for (i, column) in table.columns.iter_mut().enumerate() {
                column.near = near[i].filter(|n| usize::from(*n) < i);
            }
            let is_needed: Vec<&str> =
                table.columns.iter().zip(&needed).filter(|(_, n)| **n).map(|(c, _)| c.name.as_str()).collect();
            let mut builder = RowsBuilder::new(&table.clone().into());
            for row in 0..40 {
                let values: Vec<Value<'_>> = columns.iter().map(|c| c[row].as_value()).collect();
                builder.push(&values);
            }
            let rows = builder.finish(1);
            let mut bytes = Vec::new();
            encode_columns(&table, &rows.columns, rows.len, &mut bytes);
            let all = decode_columns(&table, &bytes, rows.len).unwrap();
            let some = decode_needed(&table, &bytes, rows.len, &|c: &Column| is_needed.contains(&c.name.as_str())).unwrap();
            for ((some, all), needed) in some.iter().zip(&all).zip(&needed) {
                let is_plain = matches!(all, Cells::Int { nulls, .. } if !nulls.any());
                prop_assert!(some == all || !needed && is_plain && *some == Cells::Absent, "{:?} {:?}", some, all);
            }
        }

        #[test]
        fn garbage_is_an_error_or_rows_but_never_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let table = Schema::builtin().get(crate::model::native::MPI_CALL).unwrap();
            let all = decode_columns(table, &bytes, 9);
            if let Ok(columns) = &all {
                for cells in columns {
                    (0..9).for_each(|i| { cells.get(i); });
                }
            }
            for kind in [Kind::Time, Kind::Stack, Kind::Int] {
                prop_assert_eq!(decode_needed(table, &bytes, 9, &|c: &Column| c.kind == kind).err(), all.clone().err());
            }
        }
    }

    #[test]
    fn a_text_repeated_to_more_than_a_block_may_hold_is_refused() {
        let table = Schema::builtin().get(crate::model::rocpd::STRING).unwrap();
        let cells = [Cells::Text(TextCells::constant(&[b'x'; 4096], super::super::MAX_ROWS))];
        let mut bytes = Vec::new();
        encode_columns(table, &cells, super::super::MAX_ROWS, &mut bytes);
        assert_eq!(decode_columns(table, &bytes, super::super::MAX_ROWS), Err(DecodeError::TooMuchText));
    }
}
