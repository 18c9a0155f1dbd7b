//! Wall-clock times as RFC 3339 writes them.

use jiff::Timestamp;
use std::fmt;
use std::str::FromStr;

/// Nanoseconds since 1970, UTC: from the year 1677 to 2262.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct WallClock(pub i64);

/// A text that is not a wall-clock time with a date and an offset.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a time; write it as 2025-06-01T12:00:00.5Z or 2025-06-01T14:00:00+02:00")]
pub struct WallClockError(String);

impl FromStr for WallClock {
    type Err = WallClockError;

    /// Reads a time with at most nine decimals. A leap second counts as the second before it.
    fn from_str(text: &str) -> Result<WallClock, WallClockError> {
        let timestamp: Option<Timestamp> = text.parse().ok();
        let ns = timestamp.and_then(|timestamp| i64::try_from(timestamp.as_nanosecond()).ok());
        ns.map(WallClock).ok_or_else(|| WallClockError(text.to_owned()))
    }
}

impl fmt::Display for WallClock {
    /// Writes as many decimals as the time has.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Timestamp::from_nanosecond(self.0.into()).map_err(|_| fmt::Error)?.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn times_of_day_are_read_and_shown() {
        for (ns, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (-1, "1969-12-31T23:59:59.999999999Z"),
            (1_700_000_000_123_000_000, "2023-11-14T22:13:20.123Z"),
            (951_782_400_000_000_000, "2000-02-29T00:00:00Z"),
            (4_107_542_400_000_000_000, "2100-03-01T00:00:00Z"),
            (i64::MAX, "2262-04-11T23:47:16.854775807Z"),
            (i64::MIN, "1677-09-21T00:12:43.145224192Z"),
        ] {
            assert_eq!(WallClock(ns).to_string(), text);
            assert_eq!(text.parse(), Ok(WallClock(ns)));
        }
        for (text, utc) in [
            ("2025-06-01T14:30:00+02:30", "2025-06-01T12:00:00Z"),
            ("2025-05-31 22:00:00-05:00", "2025-06-01T03:00:00Z"),
            ("2016-12-31t23:59:60z", "2016-12-31T23:59:59Z"),
            ("2025-06-01T12:00Z", "2025-06-01T12:00:00Z"),
        ] {
            assert_eq!(text.parse::<WallClock>().unwrap().to_string(), utc, "{text}");
        }
        for nonsense in [
            "",
            "2025-06-01",
            "2025-06-01T12:00:00",
            "2025-06-01T12:00:00.0000000019Z",
            "2025-02-29T12:00:00Z",
            "2025-13-01T12:00:00Z",
            "2025-06-31T12:00:00Z",
            "2025-06-01T24:00:00Z",
            "2025-06-01T12:00:00.Z",
            "2025-06-01T12:00:00Zzz",
            "2025-06-01T12:00:00+2:00",
            "+025-06-01T12:00:00Z",
            "9999-06-01T12:00:00Z",
            "é025-06-01T12:00:00Z",
        ] {
            assert_eq!(nonsense.parse::<WallClock>(), Err(WallClockError(nonsense.to_owned())));
        }
    }

    proptest! {
        #[test]
        fn each_time_comes_back(ns in any::<i64>()) {
            prop_assert_eq!(WallClock(ns).to_string().parse(), Ok(WallClock(ns)));
        }
    }
}
