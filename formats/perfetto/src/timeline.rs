use crate::lanes::{FreeLanes, Overlaps};
use crate::time::{Cut, Span, Timestamp, Window};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use thiserror::Error;

/// Converts the spans of one thread or queue to beginnings and ends, in the order that readers require.
///
/// Times ascend. Ends precede beginnings of the same time, but a span of duration 0 begins before it ends. An
/// enclosing span begins first and ends last. Spans that cannot share a track get separate lanes; each span gets
/// the first free lane.
///
/// Spans must be sorted by [`Span::order`]. The end of a window cuts open spans. [`Timeline::open`] continues them
/// in the next window, on the same lanes. Spans of one window may be added one at a time; only open spans are kept
/// in memory.
#[derive(Clone, Debug)]
pub struct Timeline<T> {
    overlaps: Overlaps,
    window: Window,
    /// Start of the last span.
    last: Timestamp,
    free_lanes: FreeLanes,
    /// Open spans of each lane, outermost first.
    lanes: Vec<Vec<Open<T>>>,
    /// Ends of open spans, earliest first.
    ends: BinaryHeap<Reverse<(Timestamp, usize)>>,
}

#[derive(Clone, Debug)]
struct Open<T> {
    span: Span,
    item: T,
}

/// A beginning or an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edge<'a, T> {
    /// A span begins, or continues in this window.
    Begin {
        /// Time in this window.
        at: Timestamp,
        /// Lane, from 0.
        lane: usize,
        /// The whole span.
        span: Span,
        /// Parts of the span that are not in this window.
        cut: Cut,
        /// The item that was added with the span.
        item: &'a T,
    },
    /// The span that began last on a lane ends, or is cut.
    End {
        /// Time of the end.
        at: Timestamp,
        /// Lane, from 0.
        lane: usize,
    },
}

/// A span in the wrong order or after the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum MisplacedSpan {
    /// The span begins before the previous one.
    #[error("a span that begins at {start} follows one that begins at {last}: sort them")]
    Unsorted {
        /// Beginning of the span.
        start: Timestamp,
        /// Beginning of the previous span.
        last: Timestamp,
    },
    /// The span begins after the window.
    #[error("a span that begins at {start} is after the window, which ends at {end}; open the next one")]
    AfterWindow {
        /// Beginning of the span.
        start: Timestamp,
        /// End of the window.
        end: Timestamp,
    },
}

impl<T> Timeline<T> {
    /// Creates a timeline with its first window.
    pub fn new(overlaps: Overlaps, window: Window) -> Timeline<T> {
        Timeline {
            overlaps,
            window,
            last: Timestamp::default(),
            free_lanes: FreeLanes::new(),
            lanes: Vec::new(),
            ends: BinaryHeap::new(),
        }
    }

    /// Number of lanes so far.
    pub fn lanes(&self) -> usize {
        self.free_lanes.lanes()
    }

    /// Adds a span, after all earlier ends. Returns `false` for a span outside the window, which is skipped.
    ///
    /// # Errors
    /// Returns an error if the span begins before the previous one, or after the window. The timeline is then
    /// unchanged.
    #[inline]
    pub fn push(
        &mut self,
        span: Span,
        item: T,
        mut emit: impl FnMut(Edge<'_, T>),
    ) -> Result<bool, MisplacedSpan> {
        let start = span.start();
        if start < self.last {
            return Err(MisplacedSpan::Unsorted { start, last: self.last });
        }
        if start >= self.window.end() {
            return Err(MisplacedSpan::AfterWindow { start, end: self.window.end() });
        }
        self.last = start;
        let Some(clipped) = self.window.clip(span) else { return Ok(false) };
        let at = clipped.part.start();
        self.end_until(at, &mut emit);
        let lane = self.free_lanes.find(span.end());
        if lane == self.lanes.len() {
            self.lanes.push(Vec::new());
        }
        emit(Edge::Begin { at, lane, span, cut: clipped.cut, item: &item });
        self.lanes[lane].push(Open { span, item });
        self.ends.push(Reverse((span.end(), lane)));
        self.update_free_lanes(lane);
        Ok(true)
    }

    /// Ends the spans that end in this window, and cuts the others.
    pub fn close(&mut self, mut emit: impl FnMut(Edge<'_, T>)) {
        let at = self.window.end();
        self.end_until(at, &mut emit);
        for (lane, open) in self.lanes.iter().enumerate() {
            open.iter().for_each(|_| emit(Edge::End { at, lane }));
        }
    }

    /// Continues in a later window after [`Timeline::close`]: open spans continue at its beginning. Spans that
    /// ended between the two windows are dropped.
    pub fn open(&mut self, window: Window, mut emit: impl FnMut(Edge<'_, T>)) {
        self.window = window;
        self.end_until(window.start(), &mut |_: Edge<'_, T>| {});
        for (lane, open) in self.lanes.iter().enumerate() {
            for Open { span, item } in open {
                if let Some(clipped) = window.clip(*span) {
                    emit(Edge::Begin { at: clipped.part.start(), lane, span: *span, cut: clipped.cut, item });
                }
            }
        }
    }

    /// Ends all spans that end at or before a time.
    #[inline]
    fn end_until(&mut self, until: Timestamp, emit: &mut impl FnMut(Edge<'_, T>)) {
        while let Some(&Reverse((at, lane))) = self.ends.peek()
            && at <= until
        {
            self.ends.pop();
            // The innermost span ends first: no other open span of a lane ends before it.
            self.lanes[lane].pop();
            self.update_free_lanes(lane);
            emit(Edge::End { at, lane });
        }
    }

    #[inline]
    fn update_free_lanes(&mut self, lane: usize) {
        match (self.lanes[lane].last(), self.overlaps) {
            (None, _) => self.free_lanes.free(lane),
            (Some(innermost), Overlaps::Nest) => self.free_lanes.until(lane, innermost.span.end()),
            (Some(_), Overlaps::Separate) => self.free_lanes.fill(lane),
        }
    }
}
