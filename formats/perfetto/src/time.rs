use std::fmt;
use thiserror::Error;

/// A time in ns since the T0 that the caller chose, from 0 to `i64::MAX`.
///
/// Perfetto's packets have unsigned times and its tables signed ones, so that only what both can hold may be
/// written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(u64);

/// A time that a trace cannot hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("{ns} ns is before the start of the trace: choose a T0 that is not after the first event")]
pub struct NoTimestamp {
    /// The time, ns since T0.
    pub ns: i64,
}

impl Timestamp {
    /// The last time there is.
    pub const MAX: Timestamp = Timestamp(i64::MAX as u64);

    /// A time from ns since T0.
    ///
    /// # Errors
    /// If it is before T0.
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

/// What has a beginning and an end, which may be equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Span {
    start: Timestamp,
    end: Timestamp,
}

/// A span that ends before it begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("a span from {start} to {end} has a negative duration: clamp it, and count that")]
pub struct NegativeDuration {
    /// Where it begins.
    pub start: Timestamp,
    /// Where it ends.
    pub end: Timestamp,
}

impl Span {
    /// A span from one time to another.
    ///
    /// # Errors
    /// If it ends before it begins.
    pub fn new(start: Timestamp, end: Timestamp) -> Result<Span, NegativeDuration> {
        if end < start { Err(NegativeDuration { start, end }) } else { Ok(Span { start, end }) }
    }

    /// Where it begins.
    pub const fn start(self) -> Timestamp {
        self.start
    }

    /// Where it ends.
    pub const fn end(self) -> Timestamp {
        self.end
    }

    /// How long it is, in ns.
    pub const fn duration(self) -> u64 {
        self.end.0 - self.start.0
    }

    /// Key by which spans are sorted: those that begin first, and of these the longest, which encloses the others.
    pub const fn order(self) -> (Timestamp, std::cmp::Reverse<Timestamp>) {
        (self.start, std::cmp::Reverse(self.end))
    }
}

/// The times of a file: the first belongs to it, the last does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Window {
    start: Timestamp,
    end: Timestamp,
}

/// A window without times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("a window from {start} to {end} has no times")]
pub struct EmptyWindow {
    /// Its first time.
    pub start: Timestamp,
    /// The first time after it.
    pub end: Timestamp,
}

impl Window {
    /// All times but the last.
    pub const ALL: Window = Window { start: Timestamp(0), end: Timestamp::MAX };

    /// The times from `start` to `end`, without `end`.
    ///
    /// # Errors
    /// If there are none.
    pub fn new(start: Timestamp, end: Timestamp) -> Result<Window, EmptyWindow> {
        if start < end { Ok(Window { start, end }) } else { Err(EmptyWindow { start, end }) }
    }

    /// Its first time.
    pub const fn start(self) -> Timestamp {
        self.start
    }

    /// The first time after it.
    pub const fn end(self) -> Timestamp {
        self.end
    }

    /// Whether a moment is in it.
    pub fn contains(self, at: Timestamp) -> bool {
        self.start <= at && at < self.end
    }

    /// The part of a span that is in this window, if there is any.
    ///
    /// Over windows that follow each other, the durations of the parts add up to that of the span, and a span
    /// of no duration is in exactly one.
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
    /// Which ends are not those of the span.
    pub cut: Cut,
}

/// Which ends of a span a window cut off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Cut {
    /// None: the span is whole.
    #[default]
    None,
    /// It began before the window.
    Begin,
    /// It ends after the window.
    End,
    /// Both.
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

    /// What was cut, in a word; `None` if nothing was.
    pub const fn word(self) -> Option<&'static str> {
        match self {
            Cut::None => None,
            Cut::Begin => Some("begin"),
            Cut::End => Some("end"),
            Cut::Both => Some("both"),
        }
    }
}
