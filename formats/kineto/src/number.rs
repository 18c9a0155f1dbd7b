//! Parses decimals exactly. A current time has 16 digits before the point and 3 after it, more than an `f64` holds.

/// Maximum number of digits that are read; no sensible number has more.
const MAX_DIGITS: u32 = 34;
/// Largest exponent that is examined.
const MAX_EXPONENT: i64 = 400;

/// Returns a decimal number times ten to the power of `shift`, truncated to an integer. Returns `None` if the text
/// is not a JSON number or the result does not fit an `i64`.
pub(crate) fn scaled(text: &[u8], shift: i64) -> Option<i64> {
    let (negative, digits) = match text.split_first()? {
        (b'-', rest) => (true, rest),
        _ => (false, text),
    };
    let (mut value, mut point, mut taken): (i128, i64, u32) = (0, 0, 0);
    let mut at = 0;
    let mut after_point = false;
    let mut any = false;
    while let Some(&byte) = digits.get(at) {
        match byte {
            b'0'..=b'9' => {
                any = true;
                if taken < MAX_DIGITS {
                    value = value * 10 + i128::from(byte - b'0');
                    taken += u32::from(value != 0);
                    point += i64::from(after_point);
                } else if !after_point {
                    return None;
                }
            }
            b'.' if !after_point && any => after_point = true,
            b'e' | b'E' if any => break,
            _ => return None,
        }
        at += 1;
    }
    if !any {
        return None;
    }
    let exponent = match digits.get(at + 1..) {
        Some(text) if at < digits.len() => exponent(text)?,
        _ => 0,
    };
    let mut by = shift + exponent - point;
    while by > 0 && value != 0 {
        value = value.checked_mul(10)?;
        by -= 1;
    }
    while by < 0 && value != 0 {
        value /= 10;
        by += 1;
    }
    i64::try_from(if negative { -value } else { value }).ok()
}

fn exponent(text: &[u8]) -> Option<i64> {
    let text = text.strip_prefix(b"+").unwrap_or(text);
    let value: i64 = std::str::from_utf8(text).ok()?.parse().ok()?;
    Some(value.clamp(-MAX_EXPONENT, MAX_EXPONENT))
}

/// Converts microseconds to ns.
#[inline]
pub(crate) fn nanoseconds(text: &[u8]) -> Option<i64> {
    // Nearly all times are digits, a point and three digits.
    if let [whole @ .., b'.', a, b, c] = text
        && (1..=15).contains(&whole.len())
        && whole.iter().chain([a, b, c]).all(u8::is_ascii_digit)
    {
        let digits = whole.iter().chain([a, b, c]);
        return Some(digits.fold(0i64, |sum, digit| sum * 10 + i64::from(digit - b'0')));
    }
    scaled(text, 3)
}

/// Parses an integer; returns `None` for a number with a fraction.
#[inline]
pub(crate) fn integer(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text.split_first()? {
        (b'-', rest) => (true, rest),
        _ => (false, text),
    };
    if digits.is_empty() || digits.len() > 18 || !digits.iter().all(u8::is_ascii_digit) {
        return std::str::from_utf8(text).ok()?.parse().ok();
    }
    let value = digits.iter().fold(0i64, |sum, digit| sum * 10 + i64::from(digit - b'0'));
    Some(if negative { -value } else { value })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_today_keep_all_their_digits() {
        for (text, ns) in [
            ("1790861388700179.719", 1_790_861_388_700_179_719),
            ("4362700179719.357", 4_362_700_179_719_357),
            ("0.001", 1),
            ("0", 0),
            ("12", 12_000),
            ("12.5", 12_500),
            ("12.0009", 12_000),
            ("-1.5", -1_500),
            ("1.5e3", 1_500_000),
            ("1E-3", 1),
            ("000000000000000000000000000000000000000000000000007.000", 7_000),
            ("1e-400", 0),
        ] {
            assert_eq!(nanoseconds(text.as_bytes()), Some(ns), "{text}");
        }
    }

    #[test]
    fn what_is_no_number_or_too_large_is_none() {
        for text in
            ["", "-", ".", "1.2.3", "1e", "1e99", "9223372036854775808", "abc", "1e400", ".5", "NaN", "--1"]
        {
            assert_eq!(nanoseconds(text.as_bytes()), None, "{text}");
        }
        for text in ["1.5", "", "-", "9223372036854775808", "0x1", "1e3"] {
            assert_eq!(integer(text.as_bytes()), None, "{text}");
        }
        assert_eq!(integer(b"-9223372036854775808"), Some(i64::MIN));
        assert_eq!(integer(b"-42"), Some(-42));
    }
}
