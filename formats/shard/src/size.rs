//! Sizes on the command line.

use std::str::FromStr;

/// A number of bytes, at least 1.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Size(pub u64);

/// Error of parsing a size.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid size {0:?}; expected bytes, or 64K, 512M, 2G (powers of 1024)")]
pub struct SizeError(String);

impl Size {
    /// Returns the size as a `usize` for memory of this process; saturates.
    pub fn as_usize(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }
}

impl FromStr for Size {
    type Err = SizeError;

    /// Parses `4096`, `64K`, `64KB` and `64KiB` (the same), `0.5G`. Case does not matter.
    fn from_str(text: &str) -> Result<Size, SizeError> {
        let lower = text.trim().to_ascii_lowercase();
        let end = lower.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(lower.len());
        let (number, unit) = lower.split_at(end);
        let shift = match unit.trim() {
            "" | "b" => 0,
            "k" | "kb" | "kib" => 10,
            "m" | "mb" | "mib" => 20,
            "g" | "gb" | "gib" => 30,
            "t" | "tb" | "tib" => 40,
            _ => return Err(SizeError(text.to_owned())),
        };
        let whole = || number.parse::<u64>().ok()?.checked_mul(1 << shift);
        // Fractions of a byte are rejected; 53 bits are exact enough for fractions of a gigabyte.
        let part = || {
            let bytes = number.parse::<f64>().ok()? * (1u64 << shift) as f64;
            (shift > 0 && bytes < (1u64 << 53) as f64).then_some(bytes as u64)
        };
        let bytes = whole().or_else(part).filter(|bytes| *bytes > 0);
        bytes.map(Size).ok_or_else(|| SizeError(text.to_owned()))
    }
}

impl std::fmt::Display for Size {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let units = [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
        match units.into_iter().find(|(shift, _)| self.0 >= 1 << shift) {
            Some((shift, unit)) if self.0.trailing_zeros() >= shift => {
                write!(f, "{} {unit}", self.0 >> shift)
            }
            Some((shift, unit)) => write!(f, "{:.1} {unit}", self.0 as f64 / (1u64 << shift) as f64),
            None => write!(f, "{} bytes", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_binary() {
        let cases = [
            ("1", 1),
            ("4096", 4096),
            ("64k", 64 << 10),
            ("64 KiB", 64 << 10),
            ("512M", 512 << 20),
            ("2GiB", 2 << 30),
            ("0.5g", 1 << 29),
            ("1T", 1 << 40),
        ];
        for (given, bytes) in cases {
            assert_eq!(given.parse(), Ok(Size(bytes)), "{given}");
        }
        for nonsense in
            ["", "G", "-1", "1.5", "abc", "1x", "0", "0.0001k", "1e3", "99999999999999999999", "20000000T"]
        {
            assert_eq!(nonsense.parse::<Size>(), Err(SizeError(nonsense.to_owned())));
        }
        let shown = [(5, "5 bytes"), (64 << 10, "64 KiB"), (2 << 30, "2 GiB"), (3 << 29, "1.5 GiB")];
        for (bytes, text) in shown {
            assert_eq!(Size(bytes).to_string(), text);
        }
    }
}
