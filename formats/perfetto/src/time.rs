use std::fmt;
use thiserror::Error;

/// A time in ns since the T0 that the caller chose, from 0 to `i64::MAX`.
///
/// Perfetto uses unsigned times in packets and signed ones in its tables. Only values that both can hold may be
/// written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(u64);

/// A time that a trace cannot represent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("{ns} ns is before the start of the trace; choose a T0 that is not after the first event")]
pub struct NoTimestamp {
    /// The time, ns since T0.
    pub ns: i64,
}

impl Timestamp {
    /// The last possible time.
    pub const MAX: Timestamp = Timestamp(i64::MAX as u64);

    /// Creates a time from ns since T0.
    ///
    /// # Errors
    /// Returns an error if the time is before T0.
    pub fn new(ns: i64) -> Result<Timestamp, NoTimestamp> {
        u64::try_from(ns).map(Timestamp).map_err(|_| NoTimestamp { ns })
    }

    /// ns since T0.
    pub const fn ns(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ns", self.0)
    }
}

/// An interval with a beginning and an end, which may be equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Span {
    start: Timestamp,
    end: Timestamp,
}

/// A span that ends before it begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("a span from {start} to {end} has a negative duration: clamp it, and count that")]
pub struct NegativeDuration {
    /// Beginning of the span.
    pub start: Timestamp,
    /// End of the span.
    pub end: Timestamp,
}

impl Span {
    /// Creates a span from one time to another.
    ///
    /// # Errors
    /// Returns an error if the span ends before it begins.
    pub fn new(start: Timestamp, end: Timestamp) -> Result<Span, NegativeDuration> {
        if end < start { Err(NegativeDuration { start, end }) } else { Ok(Span { start, end }) }
    }

    /// Beginning of the span.
    pub const fn start(self) -> Timestamp {
        self.start
    }

    /// End of the span.
    pub const fn end(self) -> Timestamp {
        self.end
    }

    /// Duration in ns.
    pub const fn duration(self) -> u64 {
        self.end.0 - self.start.0
    }

    /// Sort key of spans: by beginning, then longest first, so that a span follows those that enclose it.
    pub const fn order(self) -> (Timestamp, std::cmp::Reverse<Timestamp>) {
        (self.start, std::cmp::Reverse(self.end))
    }
}

/// The time range of a file: it includes its first time and excludes its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Window {
    start: Timestamp,
    end: Timestamp,
}

/// A window without times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("a window from {start} to {end} has no times")]
pub struct EmptyWindow {
    /// First time of the window.
    pub start: Timestamp,
    /// First time after the window.
    pub end: Timestamp,
}

impl Window {
    /// All times except the last one.
    pub const ALL: Window = Window { start: Timestamp(0), end: Timestamp::MAX };

    /// Creates the window from `start` to `end`, without `end`.
    ///
    /// # Errors
    /// Returns an error if the window is empty.
    pub fn new(start: Timestamp, end: Timestamp) -> Result<Window, EmptyWindow> {
        if start < end { Ok(Window { start, end }) } else { Err(EmptyWindow { start, end }) }
    }

    /// First time of the window.
    pub const fn start(self) -> Timestamp {
        self.start
    }

    /// First time after the window.
    pub const fn end(self) -> Timestamp {
        self.end
    }

    /// Returns whether a time is in the window.
    pub fn contains(self, at: Timestamp) -> bool {
        self.start <= at && at < self.end
    }

    /// Returns the part of a span that is in this window, if any.
    ///
    /// Over consecutive windows, the durations of the parts add up to the duration of the span. A span of duration
    /// 0 is in exactly one of them.
    pub fn clip(self, span: Span) -> Option<Clipped> {
        let inside = if span.start == span.end {
            self.contains(span.start)
        } else {
            span.start < self.end && self.start < span.end
        };
        let part = Span { start: span.start.max(self.start), end: span.end.min(self.end) };
        inside.then(|| Clipped { part, cut: Cut::of(span.start < self.start, self.end < span.end) })
    }
}

/// The part of a span that is in a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clipped {
    /// The part.
    pub part: Span,
    /// Ends of the part that are not ends of the span.
    pub cut: Cut,
}

/// The ends of a span that a window cut off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Cut {
    /// Neither end: the span is complete.
    #[default]
    None,
    /// The span began before the window.
    Begin,
    /// The span ends after the window.
    End,
    /// Both ends.
    Both,
}

impl Cut {
    fn of(begin: bool, end: bool) -> Cut {
        match (begin, end) {
            (false, false) => Cut::None,
            (true, false) => Cut::Begin,
            (false, true) => Cut::End,
            (true, true) => Cut::Both,
        }
    }

    /// Returns a word for the ends that were cut; `None` if nothing was cut.
    pub const fn word(self) -> Option<&'static str> {
        match self {
            Cut::None => None,
            Cut::Begin => Some("begin"),
            Cut::End => Some("end"),
            Cut::Both => Some("both"),
        }
    }
}
