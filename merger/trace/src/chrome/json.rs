//! Writes JSON in bulk: texts, numbers and exact times.

/// Largest integer that JavaScript represents exactly.
const MAX_EXACT_INTEGER: u64 = 1 << 53;

/// JSON that is being written.
#[derive(Debug, Default)]
pub(super) struct JsonText {
    pub(super) out: Vec<u8>,
    /// Number of texts with NUL, which is replaced by U+2400. Perfetto v52 shows the escape of NUL literally.
    pub(super) mended: u64,
}

impl JsonText {
    /// Appends text that is already JSON.
    #[inline]
    pub(super) fn raw(&mut self, json: &str) {
        self.out.extend_from_slice(json.as_bytes());
    }

    /// Appends a quoted text.
    pub(super) fn text(&mut self, text: &str) {
        self.out.push(b'"');
        self.part(text);
        self.out.push(b'"');
    }

    /// Appends a part of a quoted text.
    pub(super) fn part(&mut self, text: &str) {
        let mut has_nul = false;
        let mut plain = 0;
        let bytes = text.as_bytes();
        for (at, &byte) in bytes.iter().enumerate() {
            if byte >= b' ' && byte != b'"' && byte != b'\\' {
                continue;
            }
            self.out.extend_from_slice(bytes.get(plain..at).unwrap_or_default());
            plain = at + 1;
            match byte {
                b'"' => self.raw("\\\""),
                b'\\' => self.raw("\\\\"),
                b'\n' => self.raw("\\n"),
                b'\r' => self.raw("\\r"),
                b'\t' => self.raw("\\t"),
                0 => {
                    has_nul = true;
                    self.raw("\u{2400}");
                }
                other => {
                    let digit = |value: u8| if value < 10 { b'0' + value } else { b'a' + value - 10 };
                    self.raw("\\u00");
                    self.out.extend([digit(other >> 4), digit(other & 15)]);
                }
            }
        }
        self.out.extend_from_slice(bytes.get(plain..).unwrap_or_default());
        self.mended += u64::from(has_nul);
    }

    /// Appends decimal digits.
    #[inline]
    pub(super) fn digits(&mut self, mut value: u64) {
        let mut digits = [0; 20];
        let mut at = digits.len();
        for digit in digits.iter_mut().rev() {
            *digit = b'0' + (value % 10) as u8;
            value /= 10;
            at -= 1;
            if value == 0 {
                break;
            }
        }
        self.out.extend_from_slice(digits.get(at..).unwrap_or_default());
    }

    /// Appends hexadecimal digits.
    pub(super) fn hex(&mut self, value: u64) {
        let bits = (u64::BITS - value.leading_zeros()).max(1).next_multiple_of(4);
        let digit = |shift: u32| b"0123456789abcdef".get((value >> shift & 15) as usize);
        self.out.extend((0..bits).step_by(4).rev().filter_map(digit));
    }

    /// Appends an unsigned integer, quoted if JavaScript would round it.
    pub(super) fn uint(&mut self, value: u64) {
        self.signed("", value);
    }

    /// Appends a signed integer, quoted if JavaScript would round it.
    pub(super) fn int(&mut self, value: i64) {
        self.signed(if value < 0 { "-" } else { "" }, value.unsigned_abs());
    }

    fn signed(&mut self, sign: &str, size: u64) {
        let quote = if size > MAX_EXACT_INTEGER { "\"" } else { "" };
        self.raw(quote);
        self.raw(sign);
        self.digits(size);
        self.raw(quote);
    }

    /// Appends a number, quoted if it is not finite.
    pub(super) fn double(&mut self, value: f64) {
        let quote = if value.is_finite() { "" } else { "\"" };
        self.raw(&format!("{quote}{value:?}{quote}"));
    }

    /// Appends nanoseconds as microseconds with three decimals.
    #[inline]
    pub(super) fn micros(&mut self, ns: u64) {
        self.digits(ns / 1000);
        let part = (ns % 1000) as u16;
        let digit = |value: u16| b'0' + (value % 10) as u8;
        self.out.extend([b'.', digit(part / 100), digit(part / 10), digit(part)]);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    fn written(write: impl FnOnce(&mut JsonText)) -> String {
        let mut json = JsonText::default();
        write(&mut json);
        String::from_utf8(json.out).unwrap()
    }

    fn read(write: impl FnOnce(&mut JsonText)) -> Value {
        serde_json::from_str(&written(write)).unwrap()
    }

    #[test]
    fn nul_becomes_visible_and_is_counted() {
        let mut json = JsonText::default();
        json.text("a\0b\0");
        json.text("plain");
        assert_eq!(
            (String::from_utf8(json.out).unwrap().as_str(), json.mended),
            ("\"a\u{2400}b\u{2400}\"\"plain\"", 1)
        );
    }

    #[test]
    fn numbers_that_readers_would_round_are_texts() {
        assert_eq!(read(|json| json.uint(MAX_EXACT_INTEGER)), json!(MAX_EXACT_INTEGER));
        assert_eq!(read(|json| json.uint(u64::MAX)), json!("18446744073709551615"));
        assert_eq!(read(|json| json.int(-(MAX_EXACT_INTEGER as i64))), json!(-(MAX_EXACT_INTEGER as i64)));
        assert_eq!(read(|json| json.int(i64::MIN)), json!("-9223372036854775808"));
        assert_eq!(read(|json| json.double(f64::NEG_INFINITY)), json!("-inf"));
        assert_eq!(read(|json| json.double(f64::NAN)), json!("NaN"));
    }

    #[test]
    fn times_have_three_decimals() {
        let shown = [0, 1, 999, 1000, 1_234_567, u64::MAX].map(|ns| written(|json| json.micros(ns)));
        assert_eq!(shown, ["0.000", "0.001", "0.999", "1.000", "1234.567", "18446744073709551.615"]);
    }

    proptest! {
        #[test]
        fn texts_and_numbers_come_back(
            text in any::<String>(), more in "[\\x01-\\x7f\"\\\\]*", int in any::<i64>(), double in any::<f64>(),
        ) {
            let text = text.replace('\0', "\u{2400}") + &more;
            prop_assert_eq!(read(|json| json.text(&text)), json!(text));
            let small = int % MAX_EXACT_INTEGER as i64;
            prop_assert_eq!(read(|json| json.int(small)), json!(small));
            prop_assert_eq!(written(|json| json.digits(int as u64)), (int as u64).to_string());
            if double.is_finite() {
                let back: f64 = written(|json| json.double(double)).parse().unwrap();
                prop_assert_eq!(back.to_bits(), double.to_bits());
                prop_assert!(read(|json| json.double(double)).is_f64());
            }
        }
    }
}
