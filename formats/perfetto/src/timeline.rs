use crate::lanes::{Overlaps, Room};
use crate::time::{Cut, Span, Timestamp, Window};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use thiserror::Error;

/// Turns the spans of one thread or queue into beginnings and ends, in the order that readers need.
///
/// Ends come before beginnings of the same time, but a span of no duration begins before it ends; what encloses
/// begins first and ends last; spans that cannot be drawn on one track are distinguished by lanes, of which a span
/// gets the first that has room. Times ascend.
///
/// Spans come sorted by [`Span::order`]. A window that ends cuts what is open, and [`Timeline::open`] continues with
/// the rest of it in the next window, on the same lanes. Spans of one window may come in pieces: there need be no
/// more of them in memory than are open.
#[derive(Clone, Debug)]
pub struct Timeline<T> {
    overlaps: Overlaps,
    window: Window,
    /// Start of the span that came last.
    last: Timestamp,
    room: Room,
    /// What is open on each lane, outermost first.
    lanes: Vec<Vec<Open<T>>>,
    /// Ends of what is open, first one first.
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
        /// When, in this window.
        at: Timestamp,
        /// On which lane, from 0.
        lane: usize,
        /// The whole span.
        span: Span,
        /// What of it is not in this window.
        cut: Cut,
        /// What came with it.
        item: &'a T,
    },
    /// What began last on a lane ends, or is cut.
    End {
        /// When.
        at: Timestamp,
        /// On which lane.
        lane: usize,
    },
}

/// A span that came too late or too early.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum MisplacedSpan {
    /// It begins before the one before it.
    #[error("a span that begins at {start} follows one that begins at {last}: sort them")]
    Unsorted {
        /// Where it begins.
        start: Timestamp,
        /// Where the one before it begins.
        last: Timestamp,
    },
    /// It begins after the window.
    #[error("a span that begins at {start} is after the window, which ends at {end}: open the next one")]
    AfterWindow {
        /// Where it begins.
        start: Timestamp,
        /// Where the window ends.
        end: Timestamp,
    },
}

impl<T> Timeline<T> {
    /// A timeline with its first window.
    pub fn new(overlaps: Overlaps, window: Window) -> Timeline<T> {
        Timeline {
            overlaps,
            window,
            last: Timestamp::default(),
            room: Room::new(),
            lanes: Vec::new(),
            ends: BinaryHeap::new(),
        }
    }

    /// How many lanes there are so far.
    pub fn lanes(&self) -> usize {
        self.room.lanes()
    }

    /// Adds a span, after all ends that come before it. A span that does not touch the window is left out: `false`.
    ///
    /// # Errors
    /// If it begins before the span before it, or after the window. Nothing has changed then.
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
        let lane = self.room.find(span.end());
        if lane == self.lanes.len() {
            self.lanes.push(Vec::new());
        }
        emit(Edge::Begin { at, lane, span, cut: clipped.cut, item: &item });
        self.lanes[lane].push(Open { span, item });
        self.ends.push(Reverse((span.end(), lane)));
        self.note_room(lane);
        Ok(true)
    }

    /// Ends what ends in this window, and cuts what does not.
    pub fn close(&mut self, mut emit: impl FnMut(Edge<'_, T>)) {
        let at = self.window.end();
        self.end_until(at, &mut emit);
        for (lane, open) in self.lanes.iter().enumerate() {
            open.iter().for_each(|_| emit(Edge::End { at, lane }));
        }
    }

    /// Goes on in another window, after the one that was closed: what is still open continues where it begins.
    /// What ended between the two windows is forgotten.
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

    /// Ends all that ends before or at a time.
    #[inline]
    fn end_until(&mut self, until: Timestamp, emit: &mut impl FnMut(Edge<'_, T>)) {
        while let Some(&Reverse((at, lane))) = self.ends.peek()
            && at <= until
        {
            self.ends.pop();
            // What is innermost ends first: of what is open on a lane, nothing ends before it.
            self.lanes[lane].pop();
            self.note_room(lane);
            emit(Edge::End { at, lane });
        }
    }

    #[inline]
    fn note_room(&mut self, lane: usize) {
        match (self.lanes[lane].last(), self.overlaps) {
            (None, _) => self.room.free(lane),
            (Some(innermost), Overlaps::Nest) => self.room.until(lane, innermost.span.end()),
            (Some(_), Overlaps::Separate) => self.room.fill(lane),
        }
    }
}
