//! Stored values of args.

use crate::item::{ArgValue, TextId};

/// A value of an arg.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum StoredValue {
    Int(i64),
    Uint(u64),
    Double(f64),
    Bool(bool),
    /// Position and length in the texts of a chunk, bytes.
    Text(u32, u32),
    Known(TextId),
}

impl StoredValue {
    #[inline]
    pub(super) fn arg_value(self, texts: &str) -> ArgValue<'_> {
        match self {
            StoredValue::Int(value) => ArgValue::Int(value),
            StoredValue::Uint(value) => ArgValue::Uint(value),
            StoredValue::Double(value) => ArgValue::Double(value),
            StoredValue::Bool(value) => ArgValue::Bool(value),
            StoredValue::Text(start, len) => {
                let start = start as usize;
                ArgValue::Text(texts.get(start..start.saturating_add(len as usize)).unwrap_or(""))
            }
            StoredValue::Known(id) => ArgValue::Known(id),
        }
    }
}

/// Length of the longest number that is restored exactly: `-2.2250738585072014e-308`.
const MAX_NUMBER_BYTES: usize = 24;

/// Parses a text as a number, if it is written exactly as this crate writes numbers.
pub(super) fn number_or_text(text: &[u8]) -> Option<StoredValue> {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    let (first, rest) = digits.split_first()?;
    if !first.is_ascii_digit() || text.len() > MAX_NUMBER_BYTES {
        return None;
    }
    let text = std::str::from_utf8(text).ok()?;
    if rest.iter().all(u8::is_ascii_digit) {
        // Rejects leading zeros and -0.
        if *first == b'0' && (!rest.is_empty() || digits.len() < text.len()) {
            return None;
        }
        let int = || text.parse().ok().map(StoredValue::Int);
        return int().or_else(|| text.parse().ok().map(StoredValue::Uint));
    }
    let is_plain = rest.iter().all(|byte| byte.is_ascii_digit() || b".e-".contains(byte));
    let number: f64 = text.parse().ok().filter(|_| is_plain)?;
    (number.to_string() == text).then_some(StoredValue::Double(number))
}

/// Appends an address to a text: `0x` and at most 16 digits, as other tools write it.
pub(super) fn push_hex(address: u64, texts: &mut String) {
    use std::fmt::Write;
    let _ = write!(texts, "{address:#x}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_that_are_numbers_are_numbers() {
        let of = |text: &str| number_or_text(text.as_bytes());
        assert_eq!(of("0"), Some(StoredValue::Int(0)));
        assert_eq!(of("-9223372036854775808"), Some(StoredValue::Int(i64::MIN)));
        assert_eq!(of("18446744073709551615"), Some(StoredValue::Uint(u64::MAX)));
        assert_eq!(of("1.5"), Some(StoredValue::Double(1.5)));
        assert_eq!(of("-0.25"), Some(StoredValue::Double(-0.25)));
        let no = [
            "",
            "-",
            "-0",
            "007",
            "+1",
            " 1",
            "1 ",
            "0x10",
            "1e5",
            "1.50",
            "nan",
            "inf",
            "1.",
            "18446744073709551616",
            "{1,2,3}",
        ];
        for no in no {
            assert_eq!(of(no), None, "{no}");
        }
        assert_eq!(number_or_text(b"1\xff"), None);
    }
}
