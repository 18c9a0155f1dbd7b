//! LEB128 varints: 7 bits per byte, lowest bits first; the high bit is set on all bytes except the last. Signed
//! numbers are zigzag-encoded first (0, -1, 1, -2 become 0, 1, 2, 3).

use super::DecodeError;

/// Maximum bytes of a 64-bit varint.
const MAX_BYTES: usize = 10;
/// The high bit of each of eight bytes.
const CONTINUED: u64 = 0x8080_8080_8080_8080;

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

/// Appends all `values`. Does not branch on the length of each number: the lengths of times are random, and a
/// mispredicted branch costs more than the rest.
pub(crate) fn put_all(out: &mut Vec<u8>, mut values: impl ExactSizeIterator<Item = u64>) {
    const CHUNK: usize = 512;
    const TOGETHER: usize = 8;
    let mut buffer = [0u8; CHUNK + TOGETHER * MAX_BYTES];
    let mut at = 0;
    while values.len() >= TOGETHER {
        let eight: [u64; TOGETHER] = std::array::from_fn(|_| values.next().unwrap_or(0));
        let all = eight.iter().fold(0, |all, v| all | v);
        if all < 0x80 {
            // Typical for codes and small differences.
            buffer[at..at + TOGETHER].copy_from_slice(&eight.map(|v| v as u8));
            at += TOGETHER;
        } else if all < 1 << 56 {
            for v in eight {
                let (bytes, length) = spread(v);
                buffer[at..at + 8].copy_from_slice(&bytes.to_le_bytes());
                at += length;
            }
        } else {
            out.extend_from_slice(&buffer[..at]);
            at = 0;
            eight.iter().for_each(|v| put(out, *v));
        }
        if at >= CHUNK {
            out.extend_from_slice(&buffer[..at]);
            at = 0;
        }
    }
    out.extend_from_slice(&buffer[..at]);
    values.for_each(|v| put(out, v));
}

/// Encodes a number below 2^56. Returns the varint and its length, bytes.
#[inline]
fn spread(v: u64) -> (u64, usize) {
    let highest_bit = 63 - (v | 1).leading_zeros();
    // Equals highest_bit / 7 + 1, without a division.
    let length = (highest_bit * 9 + 73) / 64;
    // Groups of 28, 14 and 7 bits move to the start of 32, 16 and 8 bits.
    let x = (v & 0x0fff_ffff) | (v & 0x00ff_ffff_f000_0000) << 4;
    let x = (x & 0x0000_3fff_0000_3fff) | (x & 0x0fff_c000_0fff_c000) << 2;
    let x = (x & 0x007f_007f_007f_007f) | (x & 0x3f80_3f80_3f80_3f80) << 1;
    let more = CONTINUED & ((1 << (8 * (length - 1))) - 1);
    (x | more, length as usize)
}

/// Decodes the varint at the start of `word`, which has at most 8 bytes. Returns the number and its length, bytes.
#[inline]
fn gather(word: u64, ends: u64) -> (u64, usize) {
    let length = ends.trailing_zeros() / 8 + 1;
    // Mask of all bits up to the end of the last byte.
    let x = word & (ends ^ (ends - 1)) & !CONTINUED;
    let x = (x & 0x007f_007f_007f_007f) | (x & 0x7f00_7f00_7f00_7f00) >> 1;
    let x = (x & 0x0000_3fff_0000_3fff) | (x & 0x3fff_0000_3fff_0000) >> 2;
    let x = (x & 0x0fff_ffff) | (x & 0x0fff_ffff_0000_0000) >> 4;
    (x, length as usize)
}

/// Reads one number from the start of `input`.
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

/// Reads `count` numbers, and passes each to `map` in their order. Each takes at least one byte of input, so that the
/// input bounds the allocation.
pub(crate) fn take_all<T: Copy + Default>(
    input: &mut &[u8],
    count: usize,
    mut map: impl FnMut(u64) -> T,
) -> Result<Vec<T>, DecodeError> {
    if count > input.len() {
        return Err(DecodeError::Short);
    }
    // Numbers are written to places that exist: a vector that grows would check its capacity for each of them.
    let mut out = vec![T::default(); count];
    let (mut rest, mut at) = (*input, 0);
    while count - at >= 2 {
        let Some(word) = rest.first_chunk::<8>().map(|bytes| u64::from_le_bytes(*bytes)) else { break };
        let ends = !word & CONTINUED;
        let after_first = ends & ends.wrapping_sub(1);
        if ends == CONTINUED
            && let Some(eight) = out[at..].first_chunk_mut::<8>()
        {
            // Eight one-byte numbers: codes and small differences.
            eight.iter_mut().zip(word.to_le_bytes()).for_each(|(to, byte)| *to = map(u64::from(byte)));
            (rest, at) = (&rest[8..], at + 8);
        } else if after_first == 0 {
            out[at] = map(take(&mut rest)?);
            at += 1;
        } else {
            // Two numbers at once: the place of the next word depends on the end of the second only.
            let (first, length) = gather(word, ends);
            let (second, second_length) = gather(word >> (8 * length), after_first >> (8 * length));
            (out[at], out[at + 1]) = (map(first), map(second));
            (rest, at) = (&rest[length + second_length..], at + 2);
        }
    }
    for to in &mut out[at..] {
        *to = map(take(&mut rest)?);
    }
    *input = rest;
    Ok(out)
}

/// Skips `count` numbers. Fails in the same cases as [`take_all`].
pub(crate) fn skip_all(input: &mut &[u8], count: usize) -> Result<(), DecodeError> {
    if count > input.len() {
        return Err(DecodeError::Short);
    }
    let (mut rest, mut left) = (*input, count);
    // A word ends at most eight numbers.
    while left >= 8 {
        let Some(word) = rest.first_chunk::<8>().map(|bytes| u64::from_le_bytes(*bytes)) else { break };
        let ends = !word & CONTINUED;
        if ends == 0 {
            take(&mut rest)?;
            left -= 1;
        } else {
            left -= ends.count_ones() as usize;
            rest = &rest[8 - ends.leading_zeros() as usize / 8..];
        }
    }
    for _ in 0..left {
        take(&mut rest)?;
    }
    *input = rest;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Numbers of all lengths, so that short ones occur too.
    fn numbers() -> impl Strategy<Value = Vec<u64>> {
        let number = (any::<u64>(), 0u32..64).prop_map(|(v, shift)| v >> shift);
        proptest::collection::vec(number, 0..700)
    }

    proptest! {
        #[test]
        fn many_numbers_are_stored_as_one_by_one_and_read_back(numbers in numbers(), behind in any::<[u8; 9]>()) {
            let (mut many, mut single) = (Vec::new(), Vec::new());
            put_all(&mut many, numbers.iter().copied());
            numbers.iter().for_each(|v| put(&mut single, *v));
            prop_assert_eq!(&many, &single);
            many.extend(behind);
            let mut input = many.as_slice();
            prop_assert_eq!(take_all(&mut input, numbers.len(), |v| v), Ok(numbers.clone()));
            prop_assert_eq!(input, behind.as_slice());
            let mut skipped = many.as_slice();
            prop_assert_eq!(skip_all(&mut skipped, numbers.len()), Ok(()));
            prop_assert_eq!(skipped, behind.as_slice());
        }

        #[test]
        fn many_numbers_are_read_as_one_by_one_whatever_the_bytes(bytes in proptest::collection::vec(prop_oneof![any::<u8>(), 0x80u8..], 0..90), count in 0usize..40) {
            let (mut many, mut single) = (bytes.as_slice(), bytes.as_slice());
            let mut skipped = bytes.as_slice();
            prop_assert_eq!(skip_all(&mut skipped, count), take_all(&mut many, count, |v| v).map(drop));
            prop_assert!(many.len() == bytes.len() || many == skipped);
            many = bytes.as_slice();
            let one_by_one: Result<Vec<u64>, _> = (0..count).map(|_| take(&mut single)).collect();
            match (take_all(&mut many, count, |v| v), one_by_one) {
                (Ok(a), Ok(b)) => {
                    prop_assert_eq!(a, b);
                    prop_assert_eq!(many, single);
                }
                (Err(_), Err(_)) => {}
                (a, b) => prop_assert!(false, "{a:?} {b:?}"),
            }
        }
    }
}
