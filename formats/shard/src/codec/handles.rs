//! Encoding of row keys that are handles: keys of a database, which have gaps and may be negative. They precede the
//! columns; each is stored as the difference to the previous key.

use super::DecodeError;
use super::varint::{put_all, take_all, unzigzag, zigzag};

/// Appends the keys of a block, which must ascend.
pub(crate) fn encode_handles(keys: &[i64], out: &mut Vec<u8>) {
    let mut before = 0i64;
    let distances = keys.iter().map(|key| {
        let distance = key.wrapping_sub(before);
        before = *key;
        zigzag(distance)
    });
    put_all(out, distances);
}

/// Reads the keys of `rows` rows. The last key is below `i64::MAX`, so that a next key always exists.
pub(crate) fn decode_handles(input: &mut &[u8], rows: usize) -> Result<Vec<i64>, DecodeError> {
    let mut keys = take_all(input, rows, unzigzag)?;
    let mut sum = 0i64;
    for key in &mut keys {
        sum = sum.wrapping_add(*key);
        *key = sum;
    }
    let ascend = keys.windows(2).all(|two| two[0] < two[1]) && keys.last() != Some(&i64::MAX);
    if ascend { Ok(keys) } else { Err(DecodeError::Keys) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn keys_come_back(keys in proptest::collection::btree_set(any::<i64>(), 0..200)) {
            let keys: Vec<i64> = keys.into_iter().filter(|key| *key != i64::MAX).collect();
            let mut bytes = Vec::new();
            encode_handles(&keys, &mut bytes);
            bytes.push(7);
            let mut input = &bytes[..];
            prop_assert_eq!(decode_handles(&mut input, keys.len()), Ok(keys));
            prop_assert_eq!(input, &[7][..]);
        }

        #[test]
        fn bytes_are_ascending_keys_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..60), rows in 0usize..20) {
            if let Ok(keys) = decode_handles(&mut &bytes[..], rows) {
                prop_assert!(keys.len() == rows && keys.is_sorted_by(|a, b| a < b));
            }
        }
    }

    #[test]
    fn keys_that_do_not_ascend_or_have_no_next_one_are_damage() {
        for keys in [&[3, 3][..], &[4, 2], &[i64::MAX]] {
            let mut bytes = Vec::new();
            encode_handles(keys, &mut bytes);
            assert_eq!(decode_handles(&mut &bytes[..], keys.len()), Err(DecodeError::Keys), "{keys:?}");
        }
    }
}
