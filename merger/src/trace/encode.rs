//! The sorted items of a unit, cut into windows: what begins, goes on and ends in each file.

use super::item::{Counts, Kind, StackNumber, TextId, TrackKind, UnitLayout};
use super::order::{Extra, Stored};
use super::window::Windows;
use crate::failure::Failure;
use rpd_perfetto::{CounterValue, Cut, Edge, Overlaps, Span, Timeline, Timestamp, Window};
use serde::{Deserialize, Serialize};

/// Bytes that are compressed together, about. The files depend on it.
pub(super) const PIECE: usize = 1 << 20;

/// Writes what is drawn of one unit, in one format.
pub(super) trait Paint {
    /// A file begins: nothing of the unit is in it yet.
    fn begin_file(&mut self, window: Window);
    /// A slice begins, or goes on from the file before.
    fn begin(&mut self, track: u32, lane: u32, part: &Part<'_>);
    /// The slice that began last on a lane ends, or goes on in the next file.
    fn end(&mut self, track: u32, lane: u32, at: Timestamp);
    /// A moment.
    fn instant(&mut self, track: u32, at: Timestamp, what: &What<'_>);
    /// A counter has this value from now on.
    fn counter(&mut self, track: u32, at: Timestamp, value: CounterValue);
    /// A thread was here.
    fn sample(&mut self, track: u32, at: Timestamp, stack: StackNumber);
    /// How many bytes there are to take.
    fn bytes(&self) -> usize;
    /// Takes the bytes that are there, and goes on in `empty`, whose memory is used again.
    fn take(&mut self, empty: Vec<u8>) -> Vec<u8>;
    /// How many texts were not written as they are, since the start.
    fn mended(&self) -> u64;
}

/// What an item is called, and what else there is to say.
#[derive(Clone, Copy, Debug)]
pub(super) struct What<'a> {
    pub(super) name: TextId,
    pub(super) category: TextId,
    /// Arrows; none of what goes on from another file.
    pub(super) flows: Extra<'a>,
    pub(super) args: Extra<'a>,
}

/// A slice, or the part of it that is in a file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part<'a> {
    /// Where it begins in this file.
    pub(super) at: Timestamp,
    /// Where it ends in this file.
    #[allow(dead_code, reason = "for formats that write slices whole")]
    pub(super) until: Timestamp,
    /// The whole slice.
    pub(super) span: Span,
    /// Which ends are not in this file.
    pub(super) cut: Cut,
    pub(super) what: What<'a>,
}

/// What is in a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(super) struct Tally {
    /// Slices that begin in it,
    pub(super) slices: u64,
    /// and that go on in it.
    pub(super) continued: u64,
    pub(super) instants: u64,
    /// Values of counters,
    pub(super) counters: u64,
    /// and such that stand for one before.
    pub(super) repeated: u64,
    pub(super) samples: u64,
    /// Ends of arrows.
    pub(super) flows: u64,
}

impl Tally {
    pub(super) fn add(&mut self, other: &Tally) {
        self.slices += other.slices;
        self.continued += other.continued;
        self.instants += other.instants;
        self.counters += other.counters;
        self.repeated += other.repeated;
        self.samples += other.samples;
        self.flows += other.flows;
    }

    fn is_empty(&self) -> bool {
        *self == Tally::default()
    }
}

/// What comes out for one window: pieces of bytes, and at the end what is in all of them.
pub(super) trait Pieces {
    /// Bytes of a window, behind those before; returns memory to use again.
    fn piece(&mut self, window: usize, bytes: Vec<u8>) -> Result<Vec<u8>, Failure>;
    /// A window is complete. Windows in which the unit has nothing are left out.
    fn done(&mut self, window: usize, tally: &Tally) -> Result<(), Failure>;
}

/// Draws the items of a unit, which come sorted, window after window.
pub(super) struct Canvas<'a, P, O> {
    layout: &'a UnitLayout,
    windows: &'a Windows,
    /// T0, ns in the clock of the job.
    t0: i64,
    paint: P,
    out: O,
    rows: Vec<Row>,
    /// Number of the window, and its times.
    window: (usize, Window),
    /// Tracks with something in this window, each once.
    touched: Vec<u32>,
    /// Tracks that have a value.
    counters: Vec<u32>,
    tally: Tally,
    spare: Vec<u8>,
}

/// A track as it is now.
#[derive(Default)]
struct Row {
    timeline: Option<Timeline<Option<Box<Held>>>>,
    /// When the last of its slices ends.
    end: Timestamp,
    value: Option<CounterValue>,
    /// The window that it was touched in last, counted from 1.
    touched: usize,
}

/// What a slice that is cut says again in the next file.
struct Held {
    name: TextId,
    category: TextId,
    extra: Box<[u8]>,
}

impl<'a, P: Paint, O: Pieces> Canvas<'a, P, O> {
    pub(super) fn new(
        layout: &'a UnitLayout,
        windows: &'a Windows,
        t0: i64,
        paint: P,
        out: O,
    ) -> Result<Canvas<'a, P, O>, Failure> {
        let mut rows = Vec::new();
        rows.resize_with(layout.tracks.len(), Row::default);
        let mut canvas = Canvas {
            layout,
            windows,
            t0,
            paint,
            out,
            rows,
            window: (0, Window::ALL),
            touched: Vec::new(),
            counters: Vec::new(),
            tally: Tally::default(),
            spare: Vec::new(),
        };
        canvas.enter(0)?;
        Ok(canvas)
    }

    /// Draws the next item.
    pub(super) fn draw(&mut self, item: &Stored<'_>) -> Result<(), Failure> {
        let at = self.time(item.start)?;
        while at >= self.window.1.end() {
            if !self.next()? {
                // Behind all that is wanted.
                return Ok(());
            }
        }
        let place = item.track as usize;
        if place >= self.rows.len() {
            return Err(Failure::Internal(format!("an item is on track {place} of {}", self.rows.len())));
        }
        let what = What { name: item.name, category: item.category, flows: item.extra, args: item.extra };
        match item.kind {
            Kind::Slice => self.slice(item.track, at, self.time(item.end)?, &what)?,
            Kind::Counter(value) => self.counter(item.track, at, value),
            Kind::Instant | Kind::Sample(_) if !self.window.1.contains(at) => {}
            Kind::Instant => {
                self.touch(item.track);
                self.tally.instants += 1;
                self.tally.flows += what.flows.flows().count() as u64;
                self.paint.instant(item.track, at, &what);
            }
            Kind::Sample(stack) => {
                self.touch(item.track);
                self.tally.samples += 1;
                self.paint.sample(item.track, at, stack);
            }
        }
        if self.paint.bytes() >= PIECE { self.flush() } else { Ok(()) }
    }

    /// Draws what goes on behind the last item. Returns how many texts were not written as they are.
    pub(super) fn finish(mut self) -> Result<(O, u64), Failure> {
        while self.next()? {}
        Ok((self.out, self.paint.mended()))
    }

    fn slice(
        &mut self,
        track: u32,
        start: Timestamp,
        end: Timestamp,
        what: &What<'_>,
    ) -> Result<(), Failure> {
        let window = self.window.1;
        let is_new = self.is_untouched(track);
        let overlaps = match self.layout.tracks.get(track as usize).map(|track| &track.kind) {
            Some(TrackKind::Thread { .. }) => Overlaps::Nest,
            Some(TrackKind::Slices(overlaps)) => *overlaps,
            _ => Overlaps::Separate,
        };
        let span = Span::new(start, end).map_err(|error| Failure::Internal(error.to_string()))?;
        let Some(row) = self.rows.get_mut(track as usize) else { return Ok(()) };
        let timeline = row.timeline.get_or_insert_with(|| Timeline::new(overlaps, window));
        if is_new {
            // Whatever goes on in this window has touched its track.
            timeline.open(window, |_| {});
        }
        let held = (end > window.end())
            .then(|| Box::new(Held { name: what.name, category: what.category, extra: what.args.0.into() }));
        let (paint, tally) = (&mut self.paint, &mut self.tally);
        let drawn = timeline.push(span, held, |edge| match edge {
            Edge::Begin { at, lane, span, cut, .. } => {
                begin(
                    paint,
                    tally,
                    (track, lane),
                    Part { at, until: end.min(window.end()), span, cut, what: *what },
                );
            }
            Edge::End { at, lane } => paint.end(track, lane as u32, at),
        });
        let drawn = drawn.map_err(|error| Failure::Internal(error.to_string()))?;
        if drawn {
            row.end = row.end.max(end);
            self.touch(track);
        }
        Ok(())
    }

    fn counter(&mut self, track: u32, at: Timestamp, value: CounterValue) {
        let start = self.window.1.start();
        let is_new = self.is_untouched(track);
        let Some(row) = self.rows.get_mut(track as usize) else { return };
        let before = row.value.replace(value);
        if before.is_none() {
            self.counters.push(track);
        }
        if at < start {
            // It is repeated where the window begins.
            return;
        }
        if let Some(before) = before.filter(|_| is_new && start < at) {
            self.tally.repeated += 1;
            self.paint.counter(track, start, before);
        }
        self.touch(track);
        self.tally.counters += 1;
        self.paint.counter(track, at, value);
    }

    fn is_untouched(&self, track: u32) -> bool {
        self.rows.get(track as usize).is_none_or(|row| row.touched != self.window.0 + 1)
    }

    /// Notes that a track has something in this window.
    fn touch(&mut self, track: u32) {
        let now = self.window.0 + 1;
        if let Some(row) = self.rows.get_mut(track as usize)
            && row.touched != now
        {
            row.touched = now;
            self.touched.push(track);
        }
    }

    /// Ends this window and begins the next one, if there is one.
    fn next(&mut self) -> Result<bool, Failure> {
        self.leave()?;
        let next = self.window.0 + 1;
        if next >= self.windows.len() {
            // Nothing is written twice if it is asked again.
            self.window.0 = next;
            return Ok(false);
        }
        self.enter(next)?;
        Ok(true)
    }

    fn enter(&mut self, number: usize) -> Result<(), Failure> {
        let Some((from, to)) = self.windows.get(number) else { return Ok(()) };
        let window = Window::new(self.time(from)?, self.time(to)?)
            .map_err(|error| Failure::Internal(error.to_string()))?;
        self.window = (number, window);
        self.paint.begin_file(window);
        let mut open = std::mem::take(&mut self.touched);
        open.retain(|track| self.rows.get(*track as usize).is_some_and(|row| row.end > window.start()));
        for track in open {
            let (paint, tally) = (&mut self.paint, &mut self.tally);
            let row = self.rows.get_mut(track as usize);
            if let Some(timeline) = row.and_then(|row| row.timeline.as_mut()) {
                timeline.open(window, |edge| {
                    if let Edge::Begin { at, lane, span, cut, item: Some(held) } = edge {
                        let (flows, args) = (Extra::default(), Extra(&held.extra));
                        let what = What { name: held.name, category: held.category, flows, args };
                        let until = span.end().min(window.end());
                        begin(paint, tally, (track, lane), Part { at, until, span, cut, what });
                    }
                });
            }
            self.touch(track);
        }
        Ok(())
    }

    fn leave(&mut self) -> Result<(), Failure> {
        let (number, window) = self.window;
        if number >= self.windows.len() {
            return Ok(());
        }
        let paint = &mut self.paint;
        for track in &self.touched {
            let row = self.rows.get_mut(*track as usize);
            if let Some(timeline) = row.and_then(|row| row.timeline.as_mut()) {
                timeline.close(|edge| {
                    if let Edge::End { at, lane } = edge {
                        paint.end(*track, lane as u32, at);
                    }
                });
            }
        }
        // A unit that has ended has no values any more.
        let ended =
            self.layout.last.is_some_and(|last| last.saturating_sub(self.t0) < window.start().ns() as i64);
        for track in self.counters.iter().filter(|_| !ended) {
            let Some(row) = self.rows.get(*track as usize) else { continue };
            if let Some(value) = row.value.filter(|_| row.touched != number + 1) {
                self.tally.repeated += 1;
                paint.counter(*track, window.start(), value);
            }
        }
        let tally = std::mem::take(&mut self.tally);
        if tally.is_empty() {
            return Ok(());
        }
        self.flush()?;
        self.out.done(number, &tally)
    }

    fn flush(&mut self) -> Result<(), Failure> {
        let bytes = self.paint.take(std::mem::take(&mut self.spare));
        self.spare = self.out.piece(self.window.0, bytes)?;
        Ok(())
    }

    fn time(&self, ns: i64) -> Result<Timestamp, Failure> {
        let since = ns.checked_sub(self.t0).ok_or_else(|| {
            Failure::Input(format!("{ns} ns is more than 292 years behind the first time of the job"))
        })?;
        Timestamp::new(since).map_err(|error| Failure::Internal(error.to_string()))
    }
}

fn begin<P: Paint>(paint: &mut P, tally: &mut Tally, (track, lane): (u32, usize), mut part: Part<'_>) {
    if matches!(part.cut, Cut::Begin | Cut::Both) {
        part.what.flows = Extra::default();
        tally.continued += 1;
    } else {
        tally.slices += 1;
        tally.flows += part.what.flows.flows().count() as u64;
    }
    paint.begin(track, lane as u32, &part);
}

impl From<Tally> for Counts {
    fn from(tally: Tally) -> Counts {
        let Tally { slices, instants, counters, samples, flows, .. } = tally;
        Counts { slices, instants, counters, samples, flows }
    }
}
