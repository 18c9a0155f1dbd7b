//! Parses dates.

/// Parses a text like `2025-01-01 10:00:00.123+00:00` to ns since 1970. A time without a zone is UTC.
pub(crate) fn parse(text: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(text).ok()?.trim();
    let (date, rest) = text.split_once([' ', 'T'])?;
    let (rest, zone) = zone(rest)?;
    let (clock, fraction) = rest.split_once('.').unwrap_or((rest, ""));
    let mut date = date.splitn(3, '-').map(number);
    let mut clock = clock.splitn(3, ':').map(number);
    let (year, month, day) = (date.next()??, date.next()??, date.next()??);
    let (hour, minute, second) = (clock.next()??, clock.next()??, clock.next()??);
    let is_date = (1970..2262).contains(&year) && (1..=12).contains(&month) && (1..=31).contains(&day);
    if !is_date || hour > 23 || minute > 59 || second > 60 || fraction.len() > 9 {
        return None;
    }
    let nanoseconds = match fraction {
        "" => 0,
        digits => number(digits)? * 10i64.pow(9 - digits.len() as u32),
    };
    let seconds = days(year, month, day) * 86_400 + hour * 3_600 + minute * 60 + second - zone;
    seconds.checked_mul(1_000_000_000)?.checked_add(nanoseconds)
}

/// Returns the text before a time zone, and the zone's offset from UTC in seconds.
fn zone(text: &str) -> Option<(&str, i64)> {
    if let Some(rest) = text.strip_suffix('Z') {
        return Some((rest, 0));
    }
    let Some(at) = text.rfind(['+', '-']) else { return Some((text, 0)) };
    let (rest, zone) = text.split_at(at);
    let (hours, minutes) = zone.get(1..)?.split_once(':').unwrap_or((zone.get(1..)?, "0"));
    let seconds = number(hours)? * 3_600 + number(minutes)? * 60;
    Some((rest, if zone.starts_with('-') { -seconds } else { seconds }))
}

/// Parses a number that consists of 1 to 9 digits.
fn number(text: &str) -> Option<i64> {
    let is_number = (1..=9).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().ok()).flatten()
}

/// Returns the days since 1970 in the Gregorian calendar. Years begin in March, so that the leap day is last.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let before_1970 = 719_468;
    year * 365 + year / 4 - year / 100 + year / 400 + (month * 153 + 2) / 5 + day - 1 - before_1970
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_date() {
        // Expected values from `date -u -d TEXT +%s`.
        for (text, seconds) in [
            ("1970-01-01 00:00:00", 0),
            ("2000-02-29 12:00:00", 951_825_600),
            ("2000-03-01 00:00:00", 951_868_800),
            ("2025-01-01 10:00:00", 1_735_725_600),
            ("2025-12-31T23:59:59Z", 1_767_225_599),
            ("2025-01-01 10:00:00+01:00", 1_735_722_000),
            ("2025-01-01 10:00:00-00:30", 1_735_727_400),
        ] {
            assert_eq!(parse(text.as_bytes()), Some(seconds * 1_000_000_000), "{text}");
        }
        assert_eq!(parse(b"2025-01-01 10:00:00.25"), Some(1_735_725_600_250_000_000));
        for text in [
            "",
            "2025-01-01",
            "2025-13-01 10:00:00",
            "2025-01-01 10:00",
            "x",
            "2025-01-01 10:00:00.1234567890",
            "1969-12-31 23:59:59",
        ] {
            assert_eq!(parse(text.as_bytes()), None, "{text}");
        }
    }
}
