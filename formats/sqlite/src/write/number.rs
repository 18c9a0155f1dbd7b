//! Converts text to numbers and numbers to text, as SQLite 3.54 does.

/// The number that a text represents.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Number {
    Int(i64),
    Real(f64),
}

/// The text of a number.
#[derive(Clone, Copy, Debug)]
pub(super) struct Digits {
    bytes: [u8; 28],
    len: u8,
}

/// Largest mantissa to which another digit is added: SQLite's mantissa has 64 bits.
const MANTISSA_FULL: u64 = (u64::MAX - 9) / 10;
/// Number of significant digits of a floating-point number's text.
const PRECISION: usize = 17;

/// Returns the integer that equals this number, except for the smallest and the largest 64-bit integer.
#[inline]
pub(super) fn integral(v: f64) -> Option<i64> {
    let int = v as i64;
    (int as f64 == v && int != i64::MIN && int != i64::MAX).then_some(int)
}

/// Returns whether a text that starts with this byte can be read as a number.
#[inline]
pub(super) fn may_start(byte: u8) -> bool {
    matches!(byte, b'0'..=b'9' | b'+' | b'-' | b'.') || is_space(byte)
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r')
}

/// Returns the number that a text represents, with or without white space around it; `None` for any other text.
pub(super) fn parse(text: &[u8]) -> Option<Number> {
    let (sign, digits, exponent, fractional) = scan(text)?;
    if !fractional && let Some(int) = std::str::from_utf8(digits.whole).ok().and_then(|d| integer(sign, d)) {
        return Some(Number::Int(int));
    }
    let value = real(digits, exponent);
    let value = if sign { -value } else { value };
    Some(match integral(value).filter(|_| fractional || value.abs() < (1u64 << 51) as f64) {
        Some(int) => Number::Int(int),
        None => integral(value).map_or(Number::Real(value), Number::Int),
    })
}

/// Digits before and after the decimal point.
#[derive(Clone, Copy)]
struct Parts<'a> {
    whole: &'a [u8],
    fraction: &'a [u8],
}

/// Splits a number into sign (true = minus), digits, exponent, and whether it has a point or an exponent.
fn scan(text: &[u8]) -> Option<(bool, Parts<'_>, i64, bool)> {
    let text = text.trim_start_with(is_space).trim_end_with(is_space);
    let (negative, text) = match text.split_first()? {
        (b'-', rest) => (true, rest),
        (b'+', rest) => (false, rest),
        _ => (false, text),
    };
    let (whole, mut rest) = leading_digits(text);
    let mut fractional = false;
    let mut fraction: &[u8] = &[];
    if let Some(digits) = rest.strip_prefix(b".") {
        fractional = true;
        (fraction, rest) = leading_digits(digits);
    }
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let mut exponent = 0;
    if let [b'e' | b'E', after @ ..] = rest {
        fractional = true;
        let (minus, digits) = match after {
            [b'-', digits @ ..] => (true, digits),
            [b'+', digits @ ..] => (false, digits),
            digits => (false, digits),
        };
        let (digits, after) = leading_digits(digits);
        if digits.is_empty() {
            return None;
        }
        rest = after;
        let size =
            digits.iter().fold(0i64, |e, d| if e < 10_000 { e * 10 + i64::from(d - b'0') } else { 10_000 });
        exponent = if minus { -size } else { size };
    }
    rest.is_empty().then_some((negative, Parts { whole, fraction }, exponent, fractional))
}

fn leading_digits(text: &[u8]) -> (&[u8], &[u8]) {
    text.split_at(text.iter().take_while(|b| b.is_ascii_digit()).count())
}

fn integer(negative: bool, digits: &str) -> Option<i64> {
    let size: i128 =
        if digits.len() < 36 { digits.parse().ok()? } else { return long_integer(negative, digits) };
    i64::try_from(if negative { -size } else { size }).ok()
}

/// Parses an integer of many digits; ignores leading zeros.
fn long_integer(negative: bool, digits: &str) -> Option<i64> {
    let digits = digits.trim_start_matches('0');
    if digits.is_empty() {
        Some(0)
    } else if digits.len() < 36 {
        integer(negative, digits)
    } else {
        None
    }
}

/// Returns the value of digits and exponent, using as many digits as SQLite does.
fn real(digits: Parts<'_>, exponent: i64) -> f64 {
    let (mut mantissa, mut power) = (0u64, exponent);
    let mut whole = digits.whole.iter();
    for digit in whole.by_ref() {
        mantissa = mantissa * 10 + u64::from(digit - b'0');
        if mantissa >= MANTISSA_FULL {
            break;
        }
    }
    power += whole.count() as i64;
    for digit in digits.fraction {
        if mantissa >= MANTISSA_FULL {
            break;
        }
        mantissa = mantissa * 10 + u64::from(digit - b'0');
        power -= 1;
    }
    scaled(mantissa, power)
}

/// Returns `mantissa * 10^power`, correctly rounded. Beyond SQLite's table of powers the result is 0 or infinity.
fn scaled(mantissa: u64, power: i64) -> f64 {
    match power {
        _ if mantissa == 0 => 0.0,
        ..-348 => 0.0,
        348.. => f64::INFINITY,
        _ => format!("{mantissa}e{power}").parse().unwrap_or(0.0),
    }
}

impl Digits {
    /// Formats an integer in decimal.
    pub(super) fn of_int(v: i64) -> Digits {
        Digits::new(&v.to_string())
    }

    /// Formats a floating-point number as SQLite casts it to text. The text has 17 significant digits, or fewer if
    /// they end in zeros or nines and fewer digits give the same number. The digits are correctly rounded, whereas
    /// SQLite's 17th digit is sometimes off by one.
    pub(super) fn of_real(v: f64) -> Digits {
        if v == 0.0 {
            return Digits::new("0.0");
        }
        if v.is_infinite() {
            return Digits::new(if v > 0.0 { "Inf" } else { "-Inf" });
        }
        let (digits, exponent) = significant(v.abs());
        let sign = if v < 0.0 { "-" } else { "" };
        let (first, rest) = digits.split_at(1);
        let point = if rest.is_empty() { "0" } else { rest };
        let place = usize::try_from(exponent).unwrap_or(0);
        Digits::new(&match exponent {
            17.. | ..-4 => {
                let minus = if exponent < 0 { '-' } else { '+' };
                format!("{sign}{first}.{point}e{minus}{:02}", exponent.abs())
            }
            -4..0 => format!("{sign}0.{}{digits}", "0".repeat(exponent.unsigned_abs() as usize - 1)),
            _ if digits.len() <= place + 1 => format!("{sign}{digits:0<width$}.0", width = place + 1),
            _ => format!("{sign}{}.{}", &digits[..place + 1], &digits[place + 1..]),
        })
    }

    fn new(text: &str) -> Digits {
        let mut bytes = [0; 28];
        let len = text.len().min(bytes.len());
        bytes[..len].copy_from_slice(&text.as_bytes()[..len]);
        Digits { bytes, len: len as u8 }
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

/// Returns the digits of a positive number without trailing zeros, and the power of ten of the first digit.
fn significant(v: f64) -> (String, i32) {
    let exact = format!("{v:.60e}");
    let exponent: i32 = exact.split_once('e').and_then(|(_, e)| e.parse().ok()).unwrap_or(0);
    // SQLite examines one more digit if the power of ten exceeds that of the next lower power of two.
    let binary = (v.to_bits() >> 52) as i32 - 1023;
    let more = usize::from(exponent > (binary * 78_913) >> 18);
    let long = format!("{v:.*e}", PRECISION + more);
    let (mantissa, exponent) = long.split_once('e').unwrap_or((&long, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let all: String = mantissa.chars().filter(|c| *c != '.').collect();
    shortened(&all, exponent, v).unwrap_or_else(|| round(&all, PRECISION, exponent))
}

/// Returns fewer digits if the long text ends in nines or zeros and the short one gives the same number.
fn shortened(all: &str, exponent: i32, v: f64) -> Option<(String, i32)> {
    let z = all.as_bytes();
    let kept = if z.get(14..16)? == b"99" {
        14 - z[..14].iter().rev().take_while(|d| **d == b'9').count()
    } else if exponent + 1 >= z.len() as i32 || z.get(13..16)? == b"000" {
        13 - z[..13].iter().rev().take_while(|d| **d == b'0').count()
    } else {
        return None;
    };
    let up = u64::from(z[14..16] == *b"99");
    let short = all[..kept].parse::<u64>().unwrap_or(0) + up;
    let power = i64::from(exponent) + 1 - kept as i64;
    (scaled(short, power) == v).then(|| round(all, kept + 1, exponent))
}

/// Returns the first `count` digits, rounded half up by the next digit.
fn round(all: &str, count: usize, exponent: i32) -> (String, i32) {
    let kept: u64 = all[..count].parse().unwrap_or(0);
    let up = all.as_bytes().get(count).is_some_and(|d| *d >= b'5');
    let rounded = (kept + u64::from(up)).to_string();
    let exponent = exponent + (rounded.len() as i32 - count as i32);
    let digits = rounded.trim_end_matches('0');
    (if digits.is_empty() { "0" } else { digits }.to_owned(), exponent)
}

/// Trims bytes by a predicate.
trait TrimBytes {
    fn trim_start_with(&self, skip: fn(u8) -> bool) -> &Self;
    fn trim_end_with(&self, skip: fn(u8) -> bool) -> &Self;
}

impl TrimBytes for [u8] {
    fn trim_start_with(&self, skip: fn(u8) -> bool) -> &[u8] {
        &self[self.iter().take_while(|b| skip(**b)).count()..]
    }
    fn trim_end_with(&self, skip: fn(u8) -> bool) -> &[u8] {
        &self[..self.len() - self.iter().rev().take_while(|b| skip(**b)).count()]
    }
}
