//! LEB128 varints: 7 bits a byte, lowest first, the high bit set on all bytes but the last.
//! Signed numbers are zigzag-mapped first (0, -1, 1, -2 become 0, 1, 2, 3).

use super::DecodeError;

/// Longest varint of 64 bits.
const MAX_BYTES: usize = 10;

#[inline]
pub(crate) fn zigzag(v: i64) -> u64 {
    ((v << 1) ^ (v >> 63)) as u64
}

#[inline]
pub(crate) fn unzigzag(v: u64) -> i64 {
    (v >> 1) as i64 ^ -((v & 1) as i64)
}

/// Appends one number.
#[inline]
pub(crate) fn put(out: &mut Vec<u8>, mut v: u64) {
    while v >= 0x80 {
        out.push(v as u8 | 0x80);
        v >>= 7;
    }
    out.push(v as u8);
}

/// Appends one number for each of `values`. Reserves the worst case once and writes into it, so that
/// the loop has no capacity check.
pub(crate) fn put_all(out: &mut Vec<u8>, values: impl ExactSizeIterator<Item = u64>) {
    const CHUNK: usize = 512;
    let mut buffer = [0u8; CHUNK + MAX_BYTES];
    let mut at = 0;
    for mut v in values {
        while v >= 0x80 {
            buffer[at] = v as u8 | 0x80;
            at += 1;
            v >>= 7;
        }
        buffer[at] = v as u8;
        at += 1;
        if at >= CHUNK {
            out.extend_from_slice(&buffer[..at]);
            at = 0;
        }
    }
    out.extend_from_slice(&buffer[..at]);
}

/// Reads one number from the front of `input`.
#[inline]
pub(crate) fn take(input: &mut &[u8]) -> Result<u64, DecodeError> {
    let mut value = 0u64;
    for (i, byte) in input.iter().enumerate().take(MAX_BYTES) {
        value |= u64::from(byte & 0x7f) << (7 * i);
        if byte & 0x80 == 0 {
            *input = &input[i + 1..];
            return Ok(value);
        }
    }
    Err(DecodeError::Varint)
}

/// Reads `count` numbers. The caller has bounded `count`; each takes at least one byte of input, so
/// the allocation is bounded by the input too.
pub(crate) fn take_all<T>(
    input: &mut &[u8],
    count: usize,
    map: impl Fn(u64) -> T,
) -> Result<Vec<T>, DecodeError> {
    if count > input.len() {
        return Err(DecodeError::Short);
    }
    let mut out = Vec::with_capacity(count);
    let mut rest = *input;
    while out.len() < count {
        // Eight small numbers at once: the common case of differences and codes.
        if let Some(eight) = rest.first_chunk::<8>()
            && count - out.len() >= 8
            && u64::from_le_bytes(*eight) & 0x8080_8080_8080_8080 == 0
        {
            out.extend(eight.iter().map(|b| map(u64::from(*b))));
            rest = &rest[8..];
            continue;
        }
        // Two and three bytes: times.
        let value = match *rest {
            [a, ..] if a < 0x80 => {
                rest = &rest[1..];
                u64::from(a)
            }
            [a, b, ..] if b < 0x80 => {
                rest = &rest[2..];
                u64::from(a & 0x7f) | u64::from(b) << 7
            }
            [a, b, c, ..] if c < 0x80 => {
                rest = &rest[3..];
                u64::from(a & 0x7f) | u64::from(b & 0x7f) << 7 | u64::from(c) << 14
            }
            _ => take(&mut rest)?,
        };
        out.push(map(value));
    }
    *input = rest;
    Ok(out)
}
