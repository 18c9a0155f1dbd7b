//! Decodes varints, serial types and values at an offset.

use rpd_shard::model::Value;

/// Classes of one-byte serial types. A set of classes is the bitwise OR of these constants.
pub(super) mod class {
    pub(in crate::read) const NULL: u8 = 1;
    pub(in crate::read) const INT: u8 = 2;
    pub(in crate::read) const REAL: u8 = 4;
    pub(in crate::read) const BLOB: u8 = 8;
    pub(in crate::read) const TEXT: u8 = 16;
    /// The serial type continues in the next byte.
    pub(in crate::read) const LONG: u8 = 32;
    /// Serial types that SQLite does not use in files.
    pub(in crate::read) const BAD: u8 = 64;
}

/// Properties of a one-byte serial type that decoding needs.
#[derive(Clone, Copy)]
pub(super) struct Serial {
    /// One of [`class`].
    pub(super) class: u8,
    /// Bytes of the value.
    pub(super) length: u8,
    /// Number of bits by which the 8 bytes starting at the value are shifted right to leave the integer.
    shift: u8,
    /// The integer, for serial types without value bytes.
    constant: u8,
}

/// The serial types of a column's values on a page.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Types {
    /// A set of [`class`].
    pub(super) classes: u8,
    /// The serial type, if all values have the same one.
    pub(super) only: Option<u8>,
}

/// [`Serial`] by the first byte of a serial type.
pub(super) const SERIALS: [Serial; 256] = {
    let mut all = [Serial { class: class::LONG, length: 0, shift: 0, constant: 0 }; 256];
    let mut serial = 0;
    while serial < 128 {
        let (class, length) = match serial {
            0 => (class::NULL, 0),
            1..=4 => (class::INT, serial as u8),
            5 => (class::INT, 6),
            6 => (class::INT, 8),
            7 => (class::REAL, 8),
            8 | 9 => (class::INT, 0),
            10 | 11 => (class::BAD, 0),
            _ if serial % 2 == 0 => (class::BLOB, (serial - 12) as u8 / 2),
            _ => (class::TEXT, (serial - 13) as u8 / 2),
        };
        let shift = if length == 0 || length > 8 { 0 } else { 64 - 8 * length };
        let constant = if serial == 9 { 1 } else { 0 };
        all[serial] = Serial { class, length, shift, constant };
        serial += 1;
    }
    all
};

impl Serial {
    /// Returns the integer in the first of these 8 bytes; 0 for NULL.
    #[inline(always)]
    pub(super) fn int(self, bytes: u64) -> i64 {
        if self.length == 0 { i64::from(self.constant) } else { self.bytes(bytes) }
    }

    /// Returns the integer like [`int`](Serial::int), for a type that has value bytes.
    #[inline(always)]
    pub(super) fn bytes(self, bytes: u64) -> i64 {
        bytes as i64 >> (self.shift & 63)
    }
}

/// Determines the classes of the serial types of up to 8 columns. `types` returns one word per row; the first
/// column's type is in the highest byte.
///
/// Tests all 8 columns in one word: each test leaves its result in the highest bit of each byte.
#[inline]
pub(super) fn classify(types: impl Iterator<Item = u64>, columns: &mut [Types]) {
    const HIGH: u64 = 0x8080_8080_8080_8080;
    const LOW: u64 = !HIGH;
    const ONES: u64 = 0x0101_0101_0101_0101;
    let not_zero = |v: u64| ((v & LOW) + LOW) | v;
    let at_least = |v: u64, least: u64| (v & LOW) + ONES * (0x80 - least);
    let (mut null, mut int, mut real, mut blob, mut text, mut long, mut bad) = (0, 0, 0, 0, 0, 0, 0);
    let mut every = u64::MAX;
    for types in types {
        let (some, no_real) = (not_zero(types), not_zero(types ^ (7 * ONES)));
        let (from_10, from_12, odd) = (at_least(types, 10), at_least(types, 12), types << 7);
        null |= !some;
        int |= some & no_real & !from_10;
        real |= !no_real;
        blob |= from_12 & !odd;
        text |= from_12 & odd;
        long |= types;
        every &= types;
        bad |= from_10 & !from_12;
    }
    let all = [
        (null, class::NULL),
        (int, class::INT),
        (real, class::REAL),
        (blob, class::BLOB),
        (text, class::TEXT),
        (long, class::LONG),
        (bad, class::BAD),
    ];
    let (any, every) = (long.to_be_bytes(), every.to_be_bytes());
    for (i, column) in columns.iter_mut().take(8).enumerate() {
        let bit = 1 << (63 - 8 * i);
        column.classes =
            all.iter().filter(|(seen, _)| seen & bit != 0).fold(0, |set, (_, class)| set | class);
        column.only = (any[i] == every[i]).then_some(any[i]);
    }
}

/// Returns the 8 bytes from `at` on; zero if fewer than 8 bytes are left.
#[inline(always)]
pub(super) fn eight(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..).and_then(|b| b.first_chunk()).map_or(0, |b| u64::from_be_bytes(*b))
}

/// Returns the varint at `at` and the offset after it, or `None` if the bytes end inside the varint.
#[inline(always)]
pub(super) fn varint(bytes: &[u8], at: usize) -> Option<(u64, usize)> {
    let rest = bytes.get(at..)?;
    if let Some(first) = rest.first().filter(|first| **first < 0x80) {
        return Some((u64::from(*first), at + 1));
    }
    let chunk = rest.first_chunk::<8>().map_or(u64::MAX, |b| u64::from_le_bytes(*b));
    let ends = !chunk & 0x8080_8080_8080_8080;
    if ends == 0 {
        return long_varint(bytes, at);
    }
    let length = ends.trailing_zeros() / 8 + 1;
    // The inverse of the encoder: joins groups of 7 bits to pairs, then quarters, then halves.
    let groups = (chunk.swap_bytes() >> (64 - 8 * length)) & 0x7f7f_7f7f_7f7f_7f7f;
    let pairs = groups & 0x007f_007f_007f_007f | (groups & 0x7f00_7f00_7f00_7f00) >> 1;
    let quarters = pairs & 0x0000_3fff_0000_3fff | (pairs & 0x3fff_0000_3fff_0000) >> 2;
    let value = quarters & 0x0fff_ffff | (quarters & 0x0fff_ffff_0000_0000) >> 4;
    Some((value, at + length as usize))
}

/// Decodes a varint of 9 bytes, or one close to the end of the bytes.
#[cold]
fn long_varint(bytes: &[u8], at: usize) -> Option<(u64, usize)> {
    let bytes = bytes.get(at..)?;
    let mut value = 0;
    for (i, byte) in bytes.iter().take(8).enumerate() {
        value = value << 7 | u64::from(byte & 0x7f);
        if byte & 0x80 == 0 {
            return Some((value, at + i + 1));
        }
    }
    Some((value << 8 | u64::from(*bytes.get(8)?), at + 9))
}

/// Returns the value of any serial type at `at` and the offset after it; `None` if the value extends beyond `end`.
pub(super) fn value(bytes: &[u8], serial: u64, at: usize, end: usize) -> Option<(Value<'_>, usize)> {
    let length = match serial {
        0..=11 => u64::from(SERIALS[serial as usize].length),
        _ => (serial - 12) / 2,
    };
    let after = at.checked_add(usize::try_from(length).ok()?).filter(|after| *after <= end)?;
    let bytes = bytes.get(at..after)?;
    let value = match serial {
        0 => Value::Null,
        7 => Value::Real(f64::from_be_bytes(*bytes.first_chunk()?)),
        10 | 11 => return None,
        1..=9 => {
            let mut wide = [0; 8];
            wide[..bytes.len()].copy_from_slice(bytes);
            Value::Int(SERIALS[serial as usize].int(u64::from_be_bytes(wide)))
        }
        _ if serial.is_multiple_of(2) => Value::Blob(bytes),
        _ => Value::Text(bytes),
    };
    Some((value, after))
}
