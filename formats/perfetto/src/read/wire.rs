//! Reads the protobuf wire format: fields of a message in memory, none longer than the message.

/// The value of a field on the wire.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Field<'a> {
    Varint(u64),
    Fixed64(u64),
    Fixed32(u32),
    Bytes(&'a [u8]),
}

/// A malformed message: truncated, or with invalid bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a field is malformed")]
pub(super) struct MalformedField;

/// Largest valid field number.
const MAX_FIELD: u64 = (1 << 29) - 1;

impl<'a> Field<'a> {
    pub(super) fn uint(self) -> Result<u64, MalformedField> {
        match self {
            Field::Varint(value) | Field::Fixed64(value) => Ok(value),
            Field::Fixed32(value) => Ok(value.into()),
            Field::Bytes(_) => Err(MalformedField),
        }
    }

    /// Returns the value of a field of type int32 or int64: two's complement of 64 bits.
    pub(super) fn int(self) -> Result<i64, MalformedField> {
        self.uint().map(|value| value as i64)
    }

    /// Returns a process or thread id, clock or enum. Only values of 32 bits are valid.
    pub(super) fn int32(self) -> Result<i32, MalformedField> {
        self.int().map(|value| value as i32)
    }

    pub(super) fn uint32(self) -> Result<u32, MalformedField> {
        self.uint().map(|value| value as u32)
    }

    pub(super) fn double(self) -> Result<f64, MalformedField> {
        match self {
            Field::Fixed64(bits) => Ok(f64::from_bits(bits)),
            _ => Err(MalformedField),
        }
    }

    pub(super) fn bytes(self) -> Result<&'a [u8], MalformedField> {
        match self {
            Field::Bytes(bytes) => Ok(bytes),
            _ => Err(MalformedField),
        }
    }

    /// Returns the fields of a message.
    pub(super) fn message(self) -> Result<Fields<'a>, MalformedField> {
        self.bytes().map(Fields)
    }

    /// Adds the value of a repeated varint field, or all its values if they are packed.
    pub(super) fn uints(self, into: &mut Vec<u64>) -> Result<(), MalformedField> {
        let Field::Bytes(mut packed) = self else {
            into.push(self.uint()?);
            return Ok(());
        };
        while !packed.is_empty() {
            into.push(varint(&mut packed)?);
        }
        Ok(())
    }

    /// Adds the values of a repeated field of eight bytes each.
    pub(super) fn fixed64s(self, into: &mut Vec<u64>) -> Result<(), MalformedField> {
        let Field::Bytes(packed) = self else {
            into.push(self.uint()?);
            return Ok(());
        };
        let (words, rest) = packed.as_chunks::<8>();
        into.extend(words.iter().map(|word| u64::from_le_bytes(*word)));
        if rest.is_empty() { Ok(()) } else { Err(MalformedField) }
    }
}

/// The fields of a message in order.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fields<'a>(pub(super) &'a [u8]);

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u32, Field<'a>), MalformedField>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let field = field(&mut self.0);
        if field.is_err() {
            self.0 = &[];
        }
        Some(field)
    }
}

fn field<'a>(rest: &mut &'a [u8]) -> Result<(u32, Field<'a>), MalformedField> {
    let tag = varint(rest)?;
    let number = tag >> 3;
    if number == 0 || number > MAX_FIELD {
        return Err(MalformedField);
    }
    let value = match tag & 7 {
        0 => Field::Varint(varint(rest)?),
        1 => Field::Fixed64(u64::from_le_bytes(array(rest)?)),
        2 => {
            let length = usize::try_from(varint(rest)?).map_err(|_| MalformedField)?;
            Field::Bytes(take(rest, length)?)
        }
        5 => Field::Fixed32(u32::from_le_bytes(array(rest)?)),
        _ => return Err(MalformedField),
    };
    Ok((number as u32, value))
}

fn varint(rest: &mut &[u8]) -> Result<u64, MalformedField> {
    let mut value = 0;
    for (place, byte) in rest.iter().take(10).enumerate() {
        value |= u64::from(byte & 0x7f) << (7 * place);
        if byte & 0x80 == 0 {
            *rest = rest.get(place + 1..).unwrap_or_default();
            return Ok(value);
        }
    }
    Err(MalformedField)
}

fn take<'a>(rest: &mut &'a [u8], length: usize) -> Result<&'a [u8], MalformedField> {
    let (taken, left) = rest.split_at_checked(length).ok_or(MalformedField)?;
    *rest = left;
    Ok(taken)
}

fn array<const N: usize>(rest: &mut &[u8]) -> Result<[u8; N], MalformedField> {
    take(rest, N)?.try_into().map_err(|_| MalformedField)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire as written;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn fields_are_read_as_they_are_written(number in 1u32..1000, value: u64, shift in 0u32..64, bytes: Vec<u8>) {
            let value = value >> shift;
            let mut out = Vec::new();
            written::uint(&mut out, number, value);
            written::fixed64(&mut out, number, value);
            written::bytes(&mut out, number, &bytes);
            let fields: Vec<_> = Fields(&out).map(Result::unwrap).collect();
            let wanted = [Field::Varint(value), Field::Fixed64(value), Field::Bytes(&bytes)];
            prop_assert_eq!(fields, wanted.map(|field| (number, field)).to_vec());
            for cut in 0..out.len() {
                // Complete fields precede the cut, then nothing or an error follows.
                prop_assert!(Fields(&out[..cut]).filter(Result::is_ok).count() < 3);
            }
        }
    }

    #[test]
    fn what_is_no_field_is_malformed() {
        let long = [0xff; 11];
        for bytes in
            [&[0x0a, 5, 1][..], &[0x0b], &[0x0c], &[0x0e], &[0x00, 0], &[0x09, 1, 2], &[0x0d, 1], &long]
        {
            assert_eq!(Fields(bytes).collect::<Vec<_>>(), [Err(MalformedField)], "{bytes:x?}");
        }
        // A length of nearly 2^64.
        let hostile = [0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01];
        assert_eq!(Fields(&hostile).next(), Some(Err(MalformedField)));
    }

    #[test]
    fn repeated_numbers_may_be_packed() {
        let mut values = Vec::new();
        Field::Bytes(&[1, 0x80, 1]).uints(&mut values).unwrap();
        Field::Varint(7).uints(&mut values).unwrap();
        Field::Fixed64(8).fixed64s(&mut values).unwrap();
        Field::Bytes(&9u64.to_le_bytes()).fixed64s(&mut values).unwrap();
        assert_eq!(values, [1, 128, 7, 8, 9]);
        assert_eq!(Field::Bytes(&[0x80]).uints(&mut values), Err(MalformedField));
        assert_eq!(Field::Bytes(&[1, 2, 3]).fixed64s(&mut values), Err(MalformedField));
    }
}
