//! Parses the time window that a user selects.

use crate::wall_clock::WallClock;
use std::str::FromStr;

const NS_PER_SECOND: i64 = 1_000_000_000;

/// One end of a window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WindowEnd {
    /// Nanoseconds since the first event of the job, not negative.
    SinceStart(i64),
    /// A wall-clock time.
    WallClock(WallClock),
}

/// A part of the job's time, from `from` to before `to`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TimeWindow {
    /// `None` starts at the first event.
    pub from: Option<WindowEnd>,
    /// `None` ends at the last event.
    pub to: Option<WindowEnd>,
}

/// Why a text is not a window, or why the window is empty.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WindowError {
    /// The text does not have two ends.
    #[error("{0:?} is not a window; write FROM..TO, as 10..20, 10.5.. or 2025-06-01T12:00:00Z..")]
    NoWindow(String),
    /// An end is not a time.
    #[error(
        "{0:?} is not a time; write seconds since the job's first event, or a time as 2025-06-01T12:00:00Z"
    )]
    NoTime(String),
    /// No event can be in the window.
    #[error(
        "the window {0} is empty; write FROM..TO, with TO later than FROM and than the job's first event"
    )]
    Empty(TimeWindow),
    /// The window has wall-clock times, but the wall clock of the job is not known.
    #[error(
        "no clock of this job recorded the time of day; write the window in seconds since its first event"
    )]
    NoWallClock,
}

impl FromStr for TimeWindow {
    type Err = WindowError;

    fn from_str(text: &str) -> Result<TimeWindow, WindowError> {
        let (from, to) = text.split_once("..").ok_or_else(|| WindowError::NoWindow(text.to_owned()))?;
        let window = TimeWindow { from: parse_end(from)?, to: parse_end(to)? };
        let empty = match (window.from, window.to) {
            (Some(WindowEnd::SinceStart(from)), Some(WindowEnd::SinceStart(to))) => from >= to,
            (Some(WindowEnd::WallClock(from)), Some(WindowEnd::WallClock(to))) => from >= to,
            (None, Some(WindowEnd::SinceStart(to))) => to == 0,
            // The wall-clock time of the first event is known only later.
            _ => false,
        };
        if empty { Err(WindowError::Empty(window)) } else { Ok(window) }
    }
}

impl TimeWindow {
    /// Returns the window in job time, ns: the first time inside, and the first time after it; `None` for an
    /// open end.
    ///
    /// `start` is the time of the first event, and `wall_clock` its wall-clock time, if known.
    pub fn of_job(
        self,
        start: i64,
        wall_clock: Option<WallClock>,
    ) -> Result<(Option<i64>, Option<i64>), WindowError> {
        let ns = |moment| match moment {
            WindowEnd::SinceStart(ns) => Ok(start.saturating_add(ns)),
            WindowEnd::WallClock(time) => {
                let WallClock(begin) = wall_clock.ok_or(WindowError::NoWallClock)?;
                Ok(start.saturating_add(time.0.saturating_sub(begin)))
            }
        };
        let (from, to) = (self.from.map(ns).transpose()?, self.to.map(ns).transpose()?);
        let begins = from.map_or(start, |from| from.max(start));
        if to.is_some_and(|to| to <= begins) { Err(WindowError::Empty(self)) } else { Ok((from, to)) }
    }
}

fn parse_end(text: &str) -> Result<Option<WindowEnd>, WindowError> {
    let text = text.trim();
    if text.is_empty() {
        return Ok(None);
    }
    let moment = parse_seconds(text)
        .map(WindowEnd::SinceStart)
        .or_else(|| text.parse().ok().map(WindowEnd::WallClock));
    moment.map(Some).ok_or_else(|| WindowError::NoTime(text.to_owned()))
}

/// Converts seconds with at most nine decimals to nanoseconds.
fn parse_seconds(text: &str) -> Option<i64> {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !digits(whole) || !digits(part) || part.len() > 9 {
        return None;
    }
    let part: i64 = format!("{part:0<9}").parse().ok()?;
    whole.parse::<i64>().ok()?.checked_mul(NS_PER_SECOND)?.checked_add(part)
}

impl std::fmt::Display for WindowEnd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            WindowEnd::SinceStart(ns) => {
                let decimals = format!("{:09}", ns % NS_PER_SECOND);
                let decimals = decimals.trim_end_matches('0');
                let point = if decimals.is_empty() { "" } else { "." };
                write!(f, "{}{point}{decimals}", ns / NS_PER_SECOND)
            }
            WindowEnd::WallClock(time) => time.fmt(f),
        }
    }
}

impl std::fmt::Display for TimeWindow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = |end: Option<WindowEnd>| end.map_or(String::new(), |moment| moment.to_string());
        write!(f, "{}..{}", text(self.from), text(self.to))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn windows_are_understood_to_the_nanosecond() {
        for (given, shown) in [
            ("10..20", "10..20"),
            ("..0.000000001", "..0.000000001"),
            (" 1.50 .. ", "1.5.."),
            ("..", ".."),
            ("0..9223372036.854775807", "0..9223372036.854775807"),
            (
                "2025-06-01T12:00:00Z..2025-06-01T14:00:01.5+02:00",
                "2025-06-01T12:00:00Z..2025-06-01T12:00:01.5Z",
            ),
            ("2025-06-01T12:00:00Z..3", "2025-06-01T12:00:00Z..3"),
        ] {
            let window: TimeWindow = given.parse().unwrap();
            assert_eq!(window.to_string(), shown, "{given}");
            assert_eq!(shown.parse::<TimeWindow>().unwrap(), window);
        }
        for nonsense in
            ["", "5", "a..", "-1..", "1..2..3", "1e3..", "0x1..", ".5..", "9223372037..", "1.0000000001.."]
        {
            let error = nonsense.parse::<TimeWindow>().unwrap_err();
            assert!(matches!(error, WindowError::NoWindow(_) | WindowError::NoTime(_)), "{nonsense}");
        }
        for empty in ["3..3", "4..3", "..0", "2025-06-01T12:00:00Z..2025-06-01T14:00:00+02:00"] {
            assert!(matches!(empty.parse::<TimeWindow>(), Err(WindowError::Empty(_))), "{empty}");
        }
    }

    #[test]
    fn a_window_is_put_on_the_clock_of_the_job() {
        let noon: WallClock = "2025-06-01T12:00:00Z".parse().unwrap();
        let on_job = |text: &str| text.parse::<TimeWindow>().unwrap().of_job(500, Some(noon));
        assert_eq!(on_job(".."), Ok((None, None)));
        assert_eq!(on_job("1..2"), Ok((Some(NS_PER_SECOND + 500), Some(2 * NS_PER_SECOND + 500))));
        assert_eq!(on_job("2025-06-01T12:00:01Z..2.5"), Ok((Some(NS_PER_SECOND + 500), Some(2_500_000_500))));
        assert_eq!(on_job("2025-06-01T11:59:59Z.."), Ok((Some(500 - NS_PER_SECOND), None)));
        for empty in [
            "..2025-06-01T12:00:00Z",
            "2025-06-01T12:00:02Z..2",
            "2025-06-01T11:00:00Z..2025-06-01T11:30:00Z",
        ] {
            assert!(matches!(on_job(empty), Err(WindowError::Empty(_))), "{empty}");
        }
        let from: TimeWindow = "2025-06-01T12:00:01Z..".parse().unwrap();
        assert_eq!(from.of_job(500, None), Err(WindowError::NoWallClock));
    }
}
