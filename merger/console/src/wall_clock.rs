//! Wall-clock times in the format of RFC 3339.

use std::str::FromStr;

const NS: i64 = 1_000_000_000;
const DAY: i64 = 86_400;

/// Nanoseconds since 1970, UTC: from the year 1677 to 2262.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct WallClock(pub i64);

/// A text that is not a date and time with an offset.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no time: write it as 2025-06-01T12:00:00.5Z or 2025-06-01T14:00:00+02:00")]
pub struct WallClockError(String);

impl FromStr for WallClock {
    type Err = WallClockError;

    fn from_str(text: &str) -> Result<WallClock, WallClockError> {
        parse(text).ok_or_else(|| WallClockError(text.to_owned()))
    }
}

impl std::fmt::Display for WallClock {
    /// Formats with as many decimals as needed.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (seconds, ns) = (self.0.div_euclid(NS), self.0.rem_euclid(NS));
        let (year, month, day) = date(seconds.div_euclid(DAY));
        let second = seconds.rem_euclid(DAY);
        let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}")?;
        if ns > 0 {
            write!(f, ".{}", format!("{ns:09}").trim_end_matches('0'))?;
        }
        write!(f, "Z")
    }
}

fn parse(text: &str) -> Option<WallClock> {
    let mut rest = Rest(text);
    let year = rest.number(4)?;
    rest.one_of("-")?;
    let month = rest.number(2).filter(|month| (1..=12).contains(month))?;
    rest.one_of("-")?;
    let day = rest.number(2).filter(|day| (1..=days_of_month(year, month)).contains(day))?;
    rest.one_of("Tt ")?;
    let hour = rest.number(2).filter(|hour| *hour < 24)?;
    rest.one_of(":")?;
    let minute = rest.number(2).filter(|minute| *minute < 60)?;
    rest.one_of(":")?;
    // Second 60 is a leap second. Computer clocks do not have it, so it is read as the next second.
    let second = rest.number(2).filter(|second| *second <= 60)?;
    let ns = if rest.one_of(".").is_some() { rest.decimals()? } else { 0 };
    let offset = match rest.one_of("Zz+-")? {
        sign @ ('+' | '-') => {
            let hours = rest.number(2).filter(|hours| *hours < 24)?;
            rest.one_of(":")?;
            let minutes = rest.number(2).filter(|minutes| *minutes < 60)?;
            let offset = hours * 3600 + minutes * 60;
            if sign == '-' { -offset } else { offset }
        }
        _ => 0,
    };
    if !rest.0.is_empty() {
        return None;
    }
    let seconds = days(year, month, day) * DAY + hour * 3600 + minute * 60 + second - offset;
    // `i128`, because the earliest time fits into `i64` only after its decimals are added.
    let ns = i128::from(seconds) * i128::from(NS) + i128::from(ns);
    i64::try_from(ns).ok().map(WallClock)
}

/// Remaining text.
struct Rest<'a>(&'a str);

impl Rest<'_> {
    fn number(&mut self, digits: usize) -> Option<i64> {
        let (number, rest) = self.0.split_at_checked(digits)?;
        self.0 = rest;
        number.bytes().all(|byte| byte.is_ascii_digit()).then(|| number.parse().ok())?
    }

    /// Parses decimals as nanoseconds; digits after the ninth are ignored.
    fn decimals(&mut self) -> Option<i64> {
        let end = self.0.find(|c: char| !c.is_ascii_digit()).unwrap_or(self.0.len());
        let (digits, rest) = self.0.split_at(end);
        self.0 = rest;
        let first = digits.get(..digits.len().min(9)).filter(|first| !first.is_empty())?;
        format!("{first:0<9}").parse().ok()
    }

    fn one_of(&mut self, wanted: &str) -> Option<char> {
        let next = self.0.chars().next().filter(|next| wanted.contains(*next))?;
        self.0 = self.0.get(next.len_utf8()..)?;
        Some(next)
    }
}

fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

fn days_of_month(year: i64, month: i64) -> i64 {
    match month {
        2 => 28 + i64::from(is_leap(year)),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Returns the number of days before `year`, since the year 0.
fn days_before(year: i64) -> i64 {
    // Leap days of the years from 0 to `year` - 1.
    let last = year - 1;
    year * 365 + last.div_euclid(4) - last.div_euclid(100) + last.div_euclid(400) + 1
}

/// Returns the number of days since 1970.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let of_months: i64 = (1..month).map(|month| days_of_month(year, month)).sum();
    days_before(year) - days_before(1970) + of_months + day - 1
}

/// Returns the year, month and day of a number of days since 1970.
fn date(days: i64) -> (i64, i64, i64) {
    let since_0 = days + days_before(1970);
    // 400 years have 146,097 days. The estimate may be one year too late.
    let mut year = since_0 * 400 / 146_097 + 1;
    while days_before(year) > since_0 {
        year -= 1;
    }
    let mut day = since_0 - days_before(year) + 1;
    let mut month = 1;
    while day > days_of_month(year, month) {
        day -= days_of_month(year, month);
        month += 1;
    }
    (year, month, day)
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
            (951_782_400 * NS, "2000-02-29T00:00:00Z"),
            (4_107_542_400 * NS, "2100-03-01T00:00:00Z"),
            (i64::MAX, "2262-04-11T23:47:16.854775807Z"),
            (i64::MIN, "1677-09-21T00:12:43.145224192Z"),
        ] {
            assert_eq!(WallClock(ns).to_string(), text);
            assert_eq!(text.parse(), Ok(WallClock(ns)));
        }
        for (text, utc) in [
            ("2025-06-01T14:30:00+02:30", "2025-06-01T12:00:00Z"),
            ("2025-05-31 22:00:00-05:00", "2025-06-01T03:00:00Z"),
            ("2016-12-31t23:59:60z", "2017-01-01T00:00:00Z"),
            ("2025-06-01T12:00:00.0000000019Z", "2025-06-01T12:00:00.000000001Z"),
        ] {
            assert_eq!(text.parse::<WallClock>().unwrap().to_string(), utc, "{text}");
        }
        for nonsense in [
            "",
            "2025-06-01",
            "2025-06-01T12:00:00",
            "2025-06-01T12:00Z",
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
