//! Encoding of columns with few combinations of values.
//!
//! Without times and ids, a program that repeats its work produces few distinct rows. Columns that vary together
//! share one code byte per row, which selects the combination of their values.

use super::DecodeError;
use super::varint::{put, take, unzigzag, zigzag};
use crate::model::{Cells, Kind, Nulls, Table};

/// Maximum number of distinct combinations: a code is one byte.
const MAX_ENTRIES: usize = 256;
/// Number of rows that are sampled to choose the columns.
const SAMPLE: usize = 256;
/// Maximum number of distinct combinations in the sample.
const MAX_SAMPLED: usize = SAMPLE / 4;
/// Rows that are processed at once, so that intermediate values stay in the L1 cache.
const CHUNK: usize = 512;
const SLOTS: usize = 4 * MAX_ENTRIES;
/// Multiplier of the hash: odd, with irregular bits (the golden ratio).
const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

/// The columns of one block that share codes.
pub(super) struct Shared {
    /// Code of each row: the number of its combination.
    codes: Vec<u8>,
    /// Index of one row with each combination.
    examples: Vec<usize>,
    /// Bit set of the columns that share the codes.
    members: u64,
}

/// State of the choice of columns.
struct Choice {
    /// For each sampled row, the number of its combination of the columns chosen so far.
    codes: Vec<u8>,
    entries: usize,
}

impl Shared {
    /// Chooses columns and numbers their combinations. Returns `None` if sharing codes saves nothing.
    pub(super) fn of(table: &Table, columns: &[Cells], rows: usize) -> Option<Shared> {
        let step = rows.div_ceil(SAMPLE).max(1);
        let sample: Vec<usize> = (0..rows).step_by(step).collect();
        let none = Choice { codes: vec![0; sample.len()], entries: 1 };
        let mut able = Vec::new();
        for (i, (column, cells)) in table.columns.iter().zip(columns).enumerate().take(u64::BITS as usize) {
            let number = matches!(column.kind, Kind::Ref(_) | Kind::Str | Kind::Int);
            let whole = matches!(cells, Cells::Int { values, .. } if values.len() == rows);
            if !number || column.near.is_some() || !whole {
                continue;
            }
            if let Some(choice) = none.with(cells, &sample)
                && choice.entries > 1
            {
                able.push((i, choice));
            }
        }
        // The column with the most distinct values determines most other columns.
        let (first, mut choice) = able
            .iter()
            .max_by_key(|(_, choice)| choice.entries)
            .map(|(i, choice)| (*i, Choice { codes: choice.codes.clone(), entries: choice.entries }))?;
        // `keys` are columns that distinguish combinations; `members` also has the columns that depend on them.
        let mut keys = vec![first];
        let mut members = 1u64 << first;
        for (i, _) in able.iter().filter(|(i, _)| *i != first) {
            let Some(with) = choice.with(&columns[*i], &sample) else { continue };
            if with.entries > choice.entries + choice.entries / 4 + 2 {
                continue;
            }
            members |= 1 << i;
            if with.entries > choice.entries {
                keys.push(*i);
                choice = with;
            }
        }
        if members.count_ones() < 2 {
            return None;
        }
        let mut shared = Shared { codes: Vec::with_capacity(rows), examples: Vec::new(), members };
        if !shared.number(&keys, columns, rows) {
            return None;
        }
        let holds = |i: &usize| members >> i & 1 == 1 && shared.explains(&columns[*i]);
        let members = (0..columns.len()).filter(holds).fold(0, |members, i| members | 1 << i);
        shared.members = members;
        (members.count_ones() > 1).then_some(shared)
    }

    /// Numbers the combinations of `keys`. Returns false if there are too many. Compares hashes only;
    /// [`Shared::explains`] detects collisions.
    fn number(&mut self, keys: &[usize], columns: &[Cells], rows: usize) -> bool {
        // Hash and number of each combination.
        let mut slots = vec![(0u64, 0u8); SLOTS];
        let mut hashes = [0u64; CHUNK];
        for from in (0..rows).step_by(CHUNK) {
            let hashes = &mut hashes[..CHUNK.min(rows - from)];
            hashes.fill(0);
            for key in keys {
                let Cells::Int { values, nulls } = &columns[*key] else { return false };
                for_each_chunk(values, nulls, from, hashes.len(), |i, v, null| {
                    // The value of a NULL row is arbitrary; all NULL rows must have the same hash.
                    hashes[i] = (hashes[i] ^ ((v as u64 & !null) ^ (null >> 1))).wrapping_mul(MULTIPLIER);
                    hashes[i] ^= hashes[i] >> 32;
                });
            }
            for (i, hash) in hashes.iter().enumerate() {
                let hash = hash.wrapping_mul(MULTIPLIER) | 1;
                let mut slot = (hash >> 54) as usize;
                while slots[slot].0 != hash {
                    if slots[slot].0 == 0 {
                        if self.examples.len() == MAX_ENTRIES {
                            return false;
                        }
                        slots[slot] = (hash, self.examples.len() as u8);
                        self.examples.push(from + i);
                        break;
                    }
                    slot = (slot + 1) % SLOTS;
                }
                self.codes.push(slots[slot].1);
            }
        }
        // Combinations that rarely repeat cost more than they save.
        self.examples.len() * 4 <= rows
    }

    /// Returns whether all rows with the same code have the same value.
    fn explains(&self, cells: &Cells) -> bool {
        let Cells::Int { values, nulls } = cells else { return false };
        let mut entries = [0i64; MAX_ENTRIES];
        let mut entry_nulls = [0u64; MAX_ENTRIES];
        for (code, row) in self.examples.iter().enumerate() {
            entries[code] = values[*row];
            entry_nulls[code] = if nulls.get(*row) { u64::MAX } else { 0 };
        }
        self.codes.chunks(CHUNK).enumerate().all(|(n, codes)| {
            if !nulls.any() {
                let mut wrong = 0;
                let pairs = codes.iter().zip(&values[n * CHUNK..]);
                pairs.for_each(|(code, v)| wrong |= v ^ entries[usize::from(*code)]);
                return wrong == 0;
            }
            let mut wrong = 0;
            for_each_chunk(values, nulls, n * CHUNK, codes.len(), |i, v, null| {
                let code = usize::from(codes[i]);
                wrong |= (null ^ entry_nulls[code]) | ((v ^ entries[code]) as u64 & !null);
            });
            wrong == 0
        })
    }

    pub(super) fn has(&self, column: usize) -> bool {
        self.members >> column & 1 == 1
    }

    /// Returns whether the codes are stored with this column.
    pub(super) fn leads(&self, column: usize) -> bool {
        self.members.trailing_zeros() as usize == column
    }

    /// Encodes a column: the bitmap of combinations in which it is NULL, then its value in each combination. The
    /// leading column begins with the number of combinations and ends with the codes.
    pub(super) fn encode(&self, values: &[i64], nulls: &Nulls, leads: bool, out: &mut Vec<u8>) {
        if leads {
            put(out, self.examples.len() as u64);
        }
        let mut bitmap = vec![0u8; self.examples.len().div_ceil(8)];
        let null_entries = self.examples.iter().enumerate().filter(|(_, row)| nulls.get(**row));
        null_entries.for_each(|(code, _)| bitmap[code / 8] |= 1 << (code % 8));
        if nulls.any() {
            out.extend_from_slice(&bitmap);
        }
        for row in &self.examples {
            put(out, if nulls.get(*row) { 0 } else { zigzag(values[*row]) });
        }
        if leads {
            out.extend_from_slice(&self.codes);
        }
    }
}

impl Choice {
    /// Returns the combinations with one more column, or `None` if there are too many.
    fn with(&self, cells: &Cells, sample: &[usize]) -> Option<Choice> {
        let Cells::Int { values, nulls } = cells else { return None };
        let mut slots = [None; SLOTS];
        let mut with = Choice { codes: Vec::with_capacity(sample.len()), entries: 0 };
        for (before, row) in self.codes.iter().zip(sample) {
            let value = if nulls.get(*row) { None } else { Some(values[*row]) };
            let hash = (value.unwrap_or(i64::MAX) as u64).wrapping_add(u64::from(*before) << 40);
            let mut slot = (hash.wrapping_mul(MULTIPLIER) >> 54) as usize;
            let code = loop {
                match slots[slot] {
                    Some((b, v, code)) if b == *before && v == value => break code,
                    Some(_) => slot = (slot + 1) % SLOTS,
                    None if with.entries == MAX_SAMPLED => return None,
                    None => {
                        let code = with.entries as u8;
                        slots[slot] = Some((*before, value, code));
                        with.entries += 1;
                        break code;
                    }
                }
            };
            with.codes.push(code);
        }
        Some(with)
    }
}

/// Calls `each` with the index of each row in the chunk, its value, and all ones if it is NULL.
#[inline]
fn for_each_chunk(
    values: &[i64],
    nulls: &Nulls,
    from: usize,
    count: usize,
    mut each: impl FnMut(usize, i64, u64),
) {
    let values = &values[from..from + count];
    if !nulls.any() {
        return values.iter().enumerate().for_each(|(i, v)| each(i, *v, 0));
    }
    let bitmap = nulls.bitmap().get(from / 8..).unwrap_or(&[]).iter().copied().chain(std::iter::repeat(0));
    for (n, (eight, bits)) in values.chunks(8).zip(bitmap).enumerate() {
        for (i, v) in eight.iter().enumerate() {
            each(n * 8 + i, *v, 0u64.wrapping_sub(u64::from(bits >> i & 1)));
        }
    }
}

/// Codes read from a block.
#[derive(Clone, Copy)]
pub(super) struct Codes<'a> {
    /// Code of each row, below `entries`.
    codes: &'a [u8],
    entries: usize,
}

/// Reads a leading column, or a column that uses the codes of `leader`.
pub(super) fn decode<'a>(
    input: &mut &'a [u8],
    leader: Option<Codes<'a>>,
    has_nulls: bool,
    rows: usize,
) -> Result<(Cells, Codes<'a>), DecodeError> {
    let entries = match leader {
        Some(leader) => leader.entries,
        None => match take(input)? {
            entries @ 1..=256 => entries as usize,
            entries => return Err(DecodeError::Code(entries)),
        },
    };
    let take_bytes = |input: &mut &'a [u8], count: usize| {
        let (bytes, rest) = input.split_at_checked(count).ok_or(DecodeError::Short)?;
        *input = rest;
        Ok::<_, DecodeError>(bytes)
    };
    let bitmap = if has_nulls { take_bytes(input, entries.div_ceil(8))? } else { &[] };
    let null_entries = Nulls::from_bitmap(bitmap.to_vec());
    let mut values = [0i64; MAX_ENTRIES];
    for value in &mut values[..entries] {
        *value = unzigzag(take(input)?);
    }
    let codes = match leader {
        Some(leader) => leader.codes,
        None => take_bytes(input, rows)?,
    };
    if leader.is_none()
        && let Some(code) = codes.iter().max().filter(|code| usize::from(**code) >= entries)
    {
        return Err(DecodeError::Code(u64::from(*code)));
    }
    let nulls = if null_entries.any() {
        let null: [u8; MAX_ENTRIES] = std::array::from_fn(|code| u8::from(null_entries.get(code)));
        let eight = |codes: &[u8]| {
            codes.iter().enumerate().fold(0, |bits, (i, code)| bits | null[usize::from(*code)] << i)
        };
        Nulls::from_bitmap(codes.chunks(8).map(eight).collect())
    } else {
        Nulls::default()
    };
    let values = codes.iter().map(|code| values[usize::from(*code)]).collect();
    Ok((Cells::Int { values, nulls }, Codes { codes, entries }))
}

#[cfg(test)]
mod tests {
    use super::super::{decode_columns, encode_columns};
    use super::*;
    use crate::model::{RowsBuilder, Schema, Value, native};
    use proptest::prelude::*;

    /// A row without the columns that vary per row: name, communicator, peer, root, tag, bytes.
    type Call = (i64, Option<i64>, Option<i64>, Option<i64>, Option<i64>, Option<i64>);

    fn call() -> impl Strategy<Value = Call> {
        let maybe = || proptest::option::of(prop_oneof![any::<i64>(), 0i64..4]);
        (0i64..9, maybe(), maybe(), maybe(), maybe(), maybe())
    }

    fn encoded(program: &[Call], steps: &[usize]) -> (Vec<Cells>, Vec<u8>) {
        let table = Schema::builtin().get(native::MPI_CALL).unwrap();
        let mut rows = RowsBuilder::new(table);
        for (n, step) in steps.iter().enumerate() {
            let (name, comm, peer, root, tag, bytes) = program[step % program.len()];
            let n = n as i64;
            let always = [1, n * 100, n * 100 + 7, name, n, n - 1].map(Value::Int);
            let sometimes = [comm, peer, root, tag, bytes, Some(n)].map(Value::from);
            rows.push(&[always, sometimes].concat());
        }
        let rows = rows.finish(1);
        let mut bytes = Vec::new();
        encode_columns(table, &rows.columns, rows.len, &mut bytes);
        (rows.columns, bytes)
    }

    proptest! {
        #[test]
        fn a_program_that_repeats_survives_encoding(
            program in proptest::collection::vec(call(), 1..80),
            // Few or all steps, including row counts that do not fill a sample or a chunk.
            steps in proptest::collection::vec(0usize..80, 0..1400),
        ) {
            let table = Schema::builtin().get(native::MPI_CALL).unwrap();
            let (columns, bytes) = encoded(&program, &steps);
            let decoded = decode_columns(table, &bytes, steps.len()).unwrap();
            for (cells, wanted) in decoded.iter().zip(&columns) {
                (0..steps.len()).for_each(|row| assert_eq!(cells.get(row), wanted.get(row)));
            }
        }
    }

    #[test]
    fn columns_that_go_together_take_one_byte_per_row() {
        let call = |i: i64| (i, Some(3), Some(i * 1000), (i > 4).then_some(0), None, Some(i << 20));
        let program: Vec<Call> = (0..9).map(call).collect();
        let steps: Vec<usize> = (0..5000).map(|i| i * i % 11).collect();
        let (_, bytes) = encoded(&program, &steps);
        // Columns besides the codes: start (two bytes), end, stack, parent, seq.
        assert!(bytes.len() < 5000 * 7 + 500, "{}", bytes.len());
    }

    #[test]
    fn codes_out_of_range_are_refused() {
        let refused = |bytes: &[u8]| {
            decode_columns(Schema::builtin().get(native::MPI_CALL).unwrap(), bytes, 3).unwrap_err()
        };
        // Bytes: number of columns, encoding, entries, their values, codes.
        assert_eq!(refused(&[1, 0x05, 2, 8, 8, 0, 1, 2]), DecodeError::Code(2));
        assert_eq!(refused(&[1, 0x05, 0, 0, 0, 0]), DecodeError::Code(0));
        assert_eq!(refused(&[1, 0x05, 0x81, 2, 0, 0, 0]), DecodeError::Code(257));
        assert_eq!(refused(&[1, 0x05, 2, 8, 8, 0, 1]), DecodeError::Short);
        assert_eq!(refused(&[1, 0x85, 9, 0]), DecodeError::Short);
        assert_eq!(refused(&[1, 0x0b, 8]), DecodeError::NoCodes);
        assert_eq!(refused(&[2, 0x05, 1, 8, 0, 0, 0, 0x0b]), DecodeError::Varint);
    }
}
