//! Divides the sorted items of a unit into time slices: what begins, continues and ends in each file.

use super::earlier_calls::{FlowSource, OpenFlows};
use super::item::{
    EARLIER_CALLS_LANE, EventCounts, FIRST_UNIT_FLOW, FlowEnd, ItemKind, StackNumber, TextId, TrackKind,
    UnitDictionary, UnitLayout,
};
use super::sort_items::{ItemExtra, StoredItem};
use super::time_slices::TimeSlices;
use super::track_numbers::TrackNumbers;
use rpd_console::Failure;
use rpd_perfetto::{CounterValue, Cut, Edge, Overlaps, Span, Timeline, Timestamp, Window};

/// Approximate number of bytes that are compressed together. It affects the content of the files.
pub(super) const PIECE_BYTES: usize = 1 << 20;

/// A unit that is drawn.
#[derive(Clone, Copy)]
pub(super) struct EncodedUnit<'a> {
    /// Index of the unit in the job.
    pub(super) place: usize,
    pub(super) layout: &'a UnitLayout,
    pub(super) dictionary: &'a UnitDictionary,
    pub(super) numbers: &'a TrackNumbers,
}

/// Writes the items of one unit in one format.
pub(super) trait SliceWriter {
    /// Starts a file, which has no content of the unit yet.
    fn begin_file(&mut self, window: Window);
    /// Begins a slice, or continues it from the previous file.
    fn begin(&mut self, track: u32, lane: u32, part: &SlicePart<'_>);
    /// Ends the slice that began last on a lane, or interrupts it until the next file.
    fn end(&mut self, track: u32, lane: u32, at: Timestamp);
    /// Writes an instant.
    fn instant(&mut self, track: u32, at: Timestamp, what: &ItemDetails<'_>);
    /// Writes a value of a counter from this time on.
    fn counter(&mut self, track: u32, at: Timestamp, value: CounterValue);
    /// Writes the call stack of a thread.
    fn sample(&mut self, track: u32, at: Timestamp, stack: StackNumber);
    /// Returns the number of bytes that are ready to be taken.
    fn bytes(&self) -> usize;
    /// Returns the bytes so far and continues in `empty` to reuse its memory.
    fn take(&mut self, empty: Vec<u8>) -> Vec<u8>;
    /// Returns the number of texts that were not written unchanged since the start.
    fn mended(&self) -> u64;
}

/// Name and further content of an item.
#[derive(Clone, Copy, Debug)]
pub(super) struct ItemDetails<'a> {
    pub(super) name: TextId,
    pub(super) category: TextId,
    /// Flows. A slice that continues from another file has those that begin at it and did not end in earlier files.
    pub(super) flows: &'a [FlowEnd],
    pub(super) args: ItemExtra<'a>,
}

/// A slice, or its part in a file.
#[derive(Clone, Copy, Debug)]
pub(super) struct SlicePart<'a> {
    /// Beginning in this file.
    pub(super) at: Timestamp,
    /// End in this file.
    pub(super) until: Timestamp,
    /// The whole slice.
    pub(super) span: Span,
    /// The ends that are not in this file.
    pub(super) cut: Cut,
    pub(super) what: ItemDetails<'a>,
}

/// Receives the output of each time slice: pieces of bytes, and finally their numbers of events.
pub(super) trait SlicePieces {
    /// Receives the next bytes of a time slice and returns memory for reuse.
    fn piece(&mut self, window: usize, bytes: Vec<u8>) -> Result<Vec<u8>, Failure>;
    /// Completes a time slice. Time slices without items of the unit are skipped.
    fn done(&mut self, window: usize, tally: &EventCounts) -> Result<(), Failure>;
}

/// Draws the sorted items of a unit, one time slice after another.
pub(super) struct FileCanvas<'a, P, O> {
    layout: &'a UnitLayout,
    windows: &'a TimeSlices,
    /// T0, ns in job time.
    t0: i64,
    writer: P,
    out: O,
    rows: Vec<TrackState>,
    /// Index of the current time slice, and its times.
    window: (usize, Window),
    /// Tracks with content in this time slice, without duplicates.
    touched: Vec<u32>,
    /// Tracks that have a value.
    counters: Vec<u32>,
    tally: EventCounts,
    /// Flows that began and did not end, if there are several files or a part of the run is drawn.
    open_flows: Option<OpenFlows>,
    /// Flows of the current item.
    flows: Vec<FlowEnd>,
    spare: Vec<u8>,
}

/// What the writer could not write unchanged.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct WrittenChanges {
    /// Texts that were replaced or cut.
    pub(super) mended: u64,
    /// Flows that end in a file without a slice at which they begin.
    pub(super) without_source: u64,
}

/// Current state of a track.
#[derive(Default)]
struct TrackState {
    timeline: Option<Timeline<Option<Box<HeldSlice>>>>,
    /// Time slice in which the timeline is open, counted from 1.
    opened: usize,
    /// End of its last slice.
    end: Timestamp,
    value: Option<CounterValue>,
    /// Time slice in which the track last had content, counted from 1.
    touched: usize,
}

/// Content of an interrupted slice that the next file repeats.
struct HeldSlice {
    name: TextId,
    category: TextId,
    extra: Box<[u8]>,
}

impl<'a, P: SliceWriter, O: SlicePieces> FileCanvas<'a, P, O> {
    pub(super) fn new(
        layout: &'a UnitLayout,
        windows: &'a TimeSlices,
        t0: i64,
        writer: P,
        out: O,
    ) -> Result<FileCanvas<'a, P, O>, Failure> {
        let mut canvas = FileCanvas {
            layout,
            windows,
            t0,
            writer,
            out,
            rows: layout.tracks.iter().map(|_| TrackState::default()).collect(),
            window: (0, Window::ALL),
            touched: Vec::new(),
            counters: Vec::new(),
            tally: EventCounts::default(),
            open_flows: (windows.len() > 1 || windows.first() > t0).then(OpenFlows::default),
            flows: Vec::new(),
            spare: Vec::new(),
        };
        canvas.enter(0)?;
        Ok(canvas)
    }

    /// Draws the next item.
    pub(super) fn draw(&mut self, item: &StoredItem<'_>) -> Result<(), Failure> {
        let at = self.time(item.start)?;
        while at >= self.window.1.end() {
            if !self.next()? {
                // The item is after the requested time.
                return Ok(());
            }
        }
        let place = item.track as usize;
        if place >= self.rows.len() {
            return Err(Failure::internal(format!("an item is on track {place} of {}", self.rows.len())));
        }
        let mut flows = std::mem::take(&mut self.flows);
        flows.clear();
        flows.extend(item.extra.flows());
        let what = ItemDetails { name: item.name, category: item.category, flows: &flows, args: item.extra };
        match item.kind {
            ItemKind::Slice => self.slice(item.track, at, self.time(item.end)?, &what)?,
            ItemKind::Counter(value) => self.counter(item.track, at, value),
            ItemKind::Instant | ItemKind::Sample(_) if !self.window.1.contains(at) => {}
            ItemKind::Instant => {
                self.touch(item.track);
                self.tally.instants += 1;
                self.tally.flows += what.flows.len() as u64;
                self.writer.instant(item.track, at, &what);
            }
            ItemKind::Sample(stack) => {
                self.touch(item.track);
                self.tally.samples += 1;
                self.writer.sample(item.track, at, stack);
            }
        }
        self.flows = flows;
        if self.writer.bytes() >= PIECE_BYTES { self.flush() } else { Ok(()) }
    }

    /// Draws slices that continue after the last item.
    pub(super) fn finish(mut self) -> Result<(O, WrittenChanges), Failure> {
        while self.next()? {}
        let without_source = self.open_flows.as_ref().map_or(0, OpenFlows::without_source);
        Ok((self.out, WrittenChanges { mended: self.writer.mended(), without_source }))
    }

    fn slice(
        &mut self,
        track: u32,
        start: Timestamp,
        end: Timestamp,
        what: &ItemDetails<'_>,
    ) -> Result<(), Failure> {
        let window = self.window.1;
        let now = self.window.0 + 1;
        let overlaps = match self.layout.tracks.get(track as usize).map(|track| &track.kind) {
            Some(TrackKind::Thread { .. }) => Overlaps::Nest,
            Some(TrackKind::Slices(overlaps)) => *overlaps,
            _ => Overlaps::Separate,
        };
        let span = Span::new(start, end).map_err(Failure::internal)?;
        self.follow_flows(FlowSource { track, name: what.name, category: what.category, span }, what.flows);
        let Some(row) = self.rows.get_mut(track as usize) else { return Ok(()) };
        let timeline = row.timeline.get_or_insert_with(|| Timeline::new(overlaps, window));
        if std::mem::replace(&mut row.opened, now) != now {
            // If slices continue in this time slice, the timeline is open already.
            timeline.open(window, |_| {});
        }
        let held = (end > window.end()).then(|| {
            Box::new(HeldSlice { name: what.name, category: what.category, extra: what.args.0.into() })
        });
        let (writer, tally) = (&mut self.writer, &mut self.tally);
        let begun: Vec<FlowEnd>;
        let mut what = *what;
        if start < window.start() {
            // Messages are drawn only in the file with the beginnings of both calls.
            let begins = |flow: &FlowEnd| matches!(flow, FlowEnd::From(number) if *number >= FIRST_UNIT_FLOW);
            begun = what.flows.iter().copied().filter(begins).collect();
            what.flows = &begun;
        }
        let drawn = timeline.push(span, held, |edge| match edge {
            Edge::Begin { at, lane, span, cut, .. } => {
                let part = SlicePart { at, until: end.min(window.end()), span, cut, what };
                begin_part(writer, tally, (track, lane), part);
            }
            Edge::End { at, lane } => writer.end(track, lane as u32, at),
        });
        let drawn = drawn.map_err(Failure::internal)?;
        if drawn {
            row.end = row.end.max(end);
            self.touch(track);
        }
        Ok(())
    }

    /// Begins and ends the flows at a slice.
    fn follow_flows(&mut self, slice: FlowSource, flows: &[FlowEnd]) {
        let Some(open_flows) = &mut self.open_flows else { return };
        let start = self.window.1.start();
        for flow in flows {
            match flow {
                // Messages end in another unit.
                FlowEnd::From(number) | FlowEnd::To(number) if *number < FIRST_UNIT_FLOW => {}
                FlowEnd::From(number) => open_flows.begin(*number, slice),
                FlowEnd::To(number) if slice.span.start() >= start => open_flows.end(*number, start),
                FlowEnd::To(_) | FlowEnd::Through(_) => {}
            }
        }
        if slice.span.start() == start {
            // Readers find the end of a flow only after its beginning, also if both have the same time.
            self.repeat_earlier_calls();
        }
    }

    /// Repeats the calls of earlier files that launched something in the current file.
    fn repeat_earlier_calls(&mut self) {
        let at = self.window.1.start();
        let calls = self.open_flows.as_mut().map(OpenFlows::take_earlier);
        for (call, flows) in calls.into_iter().flatten() {
            let FlowSource { track, name, category, span } = call;
            let what = ItemDetails { name, category, flows: &flows, args: ItemExtra::default() };
            self.tally.earlier_calls += 1;
            let part = SlicePart { at, until: at, span, cut: Cut::Both, what };
            self.writer.begin(track, EARLIER_CALLS_LANE, &part);
            self.writer.end(track, EARLIER_CALLS_LANE, at);
        }
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
            // The value is repeated at the beginning of the time slice.
            return;
        }
        if let Some(before) = before.filter(|_| is_new && start < at) {
            self.tally.repeated += 1;
            self.writer.counter(track, start, before);
        }
        self.touch(track);
        self.tally.counters += 1;
        self.writer.counter(track, at, value);
    }

    fn is_untouched(&self, track: u32) -> bool {
        self.rows.get(track as usize).is_none_or(|row| row.touched != self.window.0 + 1)
    }

    /// Records that a track has content in this time slice.
    fn touch(&mut self, track: u32) {
        let now = self.window.0 + 1;
        if let Some(row) = self.rows.get_mut(track as usize)
            && row.touched != now
        {
            row.touched = now;
            self.touched.push(track);
        }
    }

    /// Ends the current time slice and begins the next one, if there is one.
    fn next(&mut self) -> Result<bool, Failure> {
        self.leave()?;
        let next = self.window.0 + 1;
        if next >= self.windows.len() {
            // A further call must not write anything twice.
            self.window.0 = next;
            return Ok(false);
        }
        self.enter(next)?;
        Ok(true)
    }

    fn enter(&mut self, number: usize) -> Result<(), Failure> {
        let Some((from, to)) = self.windows.get(number) else { return Ok(()) };
        let window = Window::new(self.time(from)?, self.time(to)?).map_err(Failure::internal)?;
        self.window = (number, window);
        self.writer.begin_file(window);
        let mut open = std::mem::take(&mut self.touched);
        open.retain(|track| self.rows.get(*track as usize).is_some_and(|row| row.end > window.start()));
        for track in open {
            let (writer, tally, open_flows) = (&mut self.writer, &mut self.tally, &self.open_flows);
            if let Some(row) = self.rows.get_mut(track as usize)
                && let Some(timeline) = &mut row.timeline
            {
                row.opened = number + 1;
                timeline.open(window, |edge| {
                    if let Edge::Begin { at, lane, span, cut, item: Some(held) } = edge {
                        let args = ItemExtra(&held.extra);
                        let is_open = |flow: &FlowEnd| match flow {
                            FlowEnd::From(number) => {
                                open_flows.as_ref().is_some_and(|open| open.is_open(*number))
                            }
                            FlowEnd::To(_) | FlowEnd::Through(_) => false,
                        };
                        let flows: Vec<FlowEnd> = args.flows().filter(is_open).collect();
                        let what =
                            ItemDetails { name: held.name, category: held.category, flows: &flows, args };
                        let until = span.end().min(window.end());
                        begin_part(writer, tally, (track, lane), SlicePart { at, until, span, cut, what });
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
        let writer = &mut self.writer;
        for track in &self.touched {
            if let Some(row) = self.rows.get_mut(*track as usize)
                && row.opened == number + 1
                && let Some(timeline) = &mut row.timeline
            {
                timeline.close(|edge| {
                    if let Edge::End { at, lane } = edge {
                        writer.end(*track, lane as u32, at);
                    }
                });
            }
        }
        self.repeat_earlier_calls();
        let writer = &mut self.writer;
        // A unit that has ended has no current values.
        let ended =
            self.layout.last.is_some_and(|last| last.saturating_sub(self.t0) < window.start().ns() as i64);
        for track in self.counters.iter().filter(|_| !ended) {
            let Some(row) = self.rows.get(*track as usize) else { continue };
            if let Some(value) = row.value.filter(|_| row.touched != number + 1) {
                self.tally.repeated += 1;
                writer.counter(*track, window.start(), value);
            }
        }
        let tally = std::mem::take(&mut self.tally);
        if tally == EventCounts::default() {
            return Ok(());
        }
        self.flush()?;
        self.out.done(number, &tally)
    }

    fn flush(&mut self) -> Result<(), Failure> {
        let bytes = self.writer.take(std::mem::take(&mut self.spare));
        self.spare = self.out.piece(self.window.0, bytes)?;
        Ok(())
    }

    fn time(&self, ns: i64) -> Result<Timestamp, Failure> {
        let since = ns.checked_sub(self.t0).ok_or_else(|| {
            Failure::input(format!("{ns} ns is more than 292 years after the first time of the job"))
        })?;
        Timestamp::new(since).map_err(Failure::internal)
    }
}

fn begin_part<P: SliceWriter>(
    writer: &mut P,
    tally: &mut EventCounts,
    (track, lane): (u32, usize),
    part: SlicePart<'_>,
) {
    match part.cut {
        Cut::Begin | Cut::Both => tally.continued += 1,
        // Ends of flows are counted in the file in which their slice begins.
        Cut::None | Cut::End => {
            tally.slices += 1;
            tally.flows += part.what.flows.len() as u64;
        }
    }
    writer.begin(track, lane as u32, &part);
}

#[cfg(test)]
mod tests {
    use super::super::item::{DrawnTrack, FlowEnd, TraceItem};
    use super::super::sort_items::ItemSorter;
    use super::*;
    use proptest::prelude::*;

    /// T0 of all tests.
    const T0: i64 = -2_000;

    #[derive(Clone, Debug, PartialEq)]
    enum Mark {
        Begin { track: u32, lane: u32, at: i64, until: i64, name: u32, cut: Cut, flows: usize, args: usize },
        End { track: u32, lane: u32, at: i64 },
        Instant { track: u32, at: i64, name: u32 },
        Counter { track: u32, at: i64, value: i64 },
        Sample { track: u32, at: i64 },
    }

    /// Records the drawing calls, in job time.
    #[derive(Default)]
    struct Notes(Vec<Mark>);

    fn job_time(at: Timestamp) -> i64 {
        at.ns() as i64 + T0
    }

    impl SliceWriter for Notes {
        fn begin_file(&mut self, _: Window) {
            assert!(self.0.is_empty(), "what stands in one file is taken before the next begins");
        }
        fn begin(&mut self, track: u32, lane: u32, part: &SlicePart<'_>) {
            self.0.push(Mark::Begin {
                track,
                lane,
                at: job_time(part.at),
                until: job_time(part.until),
                name: part.what.name.0,
                cut: part.cut,
                flows: part.what.flows.len(),
                args: part.what.args.args().count(),
            });
        }
        fn end(&mut self, track: u32, lane: u32, at: Timestamp) {
            self.0.push(Mark::End { track, lane, at: job_time(at) });
        }
        fn instant(&mut self, track: u32, at: Timestamp, what: &ItemDetails<'_>) {
            self.0.push(Mark::Instant { track, at: job_time(at), name: what.name.0 });
        }
        fn counter(&mut self, track: u32, at: Timestamp, value: CounterValue) {
            let CounterValue::Int(value) = value else { panic!("a whole number") };
            self.0.push(Mark::Counter { track, at: job_time(at), value });
        }
        fn sample(&mut self, track: u32, at: Timestamp, _: StackNumber) {
            self.0.push(Mark::Sample { track, at: job_time(at) });
        }
        fn bytes(&self) -> usize {
            // Makes several pieces in each file.
            if self.0.len() > 5 { PIECE_BYTES } else { self.0.len() }
        }
        fn take(&mut self, _: Vec<u8>) -> Vec<u8> {
            NOTES.with_borrow_mut(|notes| notes.append(&mut self.0));
            vec![0]
        }
        fn mended(&self) -> u64 {
            0
        }
    }

    thread_local! {
        /// Content of the pieces of this thread's file.
        static NOTES: std::cell::RefCell<Vec<Mark>> = const { std::cell::RefCell::new(Vec::new()) };
    }

    /// Content of each time slice.
    struct Files(Vec<Option<(Vec<Mark>, EventCounts)>>);

    impl SlicePieces for Files {
        fn piece(&mut self, window: usize, bytes: Vec<u8>) -> Result<Vec<u8>, Failure> {
            assert!(self.0[window].is_none());
            Ok(bytes)
        }
        fn done(&mut self, window: usize, tally: &EventCounts) -> Result<(), Failure> {
            assert!(self.0[window].is_none());
            self.0[window] = Some((NOTES.take(), *tally));
            Ok(())
        }
    }

    fn track(kind: TrackKind) -> DrawnTrack {
        DrawnTrack { process: 0, parent: None, name: String::new(), kind, order: 0, description: None }
    }

    /// A thread, a queue and a counter.
    fn layout(items: &[Drawn]) -> UnitLayout {
        let counter = TrackKind::Counter { unit: String::new() };
        UnitLayout {
            tracks: vec![
                track(TrackKind::Thread { tid: 7 }),
                track(TrackKind::Slices(Overlaps::Separate)),
                track(counter),
            ],
            first: items.iter().map(|item| item.start).min(),
            last: items.iter().map(|item| item.end).max(),
            ..UnitLayout::default()
        }
    }

    #[derive(Clone, Copy, Debug, PartialEq)]
    struct Drawn {
        start: i64,
        end: i64,
        track: u32,
        kind: ItemKind,
        name: u32,
    }

    /// A flow begins at each item with an odd name, and ends at that with the next name.
    fn flow_of(name: u32) -> FlowEnd {
        let number = |name: u32| FIRST_UNIT_FLOW + u64::from(name);
        if name % 2 == 1 { FlowEnd::From(number(name)) } else { FlowEnd::To(number(name - 1)) }
    }

    /// Returns the beginning of the slice at which the flow from a slice ends, if the flow runs forwards.
    fn end_of_flow(items: &[Drawn], from: &Drawn) -> Option<i64> {
        let end = items.iter().find(|item| item.name == from.name + 1 && from.name % 2 == 1)?;
        (end.kind == ItemKind::Slice && end.start > from.start).then_some(end.start)
    }

    fn run(items: &[Drawn], windows: &TimeSlices) -> Vec<Option<(Vec<Mark>, EventCounts)>> {
        let folder = tempfile::tempdir().unwrap();
        let mut sorter = ItemSorter::new(folder.path(), 1 << 20, 5);
        for drawn in items {
            let Drawn { start, end, track, kind, name } = *drawn;
            let flows = [flow_of(name)];
            let (name, category) = (TextId(name), TextId(0));
            sorter
                .push(&TraceItem { start, end, track, kind, name, category, flows: &flows, args: &[] })
                .unwrap();
        }
        let layout = layout(items);
        let files = Files(vec![None; windows.len()]);
        let mut canvas = FileCanvas::new(&layout, windows, T0, Notes::default(), files).unwrap();
        sorter.sorted(&mut |item| canvas.draw(item)).unwrap();
        canvas.finish().unwrap().0.0
    }

    fn items() -> impl Strategy<Value = Vec<Drawn>> {
        let slice = (0u32..2, -1_000i64..1_000, prop_oneof![Just(0i64), 0i64..50, 0i64..2_000])
            .prop_map(|(track, start, length)| (track, start, start + length, ItemKind::Slice));
        let value = (-1_000i64..1_000, any::<i64>())
            .prop_map(|(at, value)| (2, at, at, ItemKind::Counter(CounterValue::Int(value))));
        let moment = (-1_000i64..1_000, any::<bool>()).prop_map(|(at, sample)| {
            (0, at, at, if sample { ItemKind::Sample(StackNumber(0)) } else { ItemKind::Instant })
        });
        prop::collection::vec(prop_oneof![4 => slice, 1 => value, 1 => moment], 0..60).prop_map(|items| {
            let items = items.into_iter().enumerate();
            let item = |(i, (track, start, end, kind)): (usize, (u32, i64, i64, ItemKind))| {
                // Both ends of a flow never begin at once.
                let shift = (i % 2) as i64;
                let (start, end) = (2 * start + shift, 2 * end + shift);
                Drawn { start, end, track, kind, name: i as u32 + 1 }
            };
            items.map(item).collect()
        })
    }

    fn windows() -> impl Strategy<Value = TimeSlices> {
        (-2_000i64..1_000, 1i64..6_000, prop::collection::btree_set(-2_000i64..4_000, 0..12))
            .prop_map(|(from, length, cuts)| TimeSlices::one(from, from + length).cut_at(cuts.into_iter()))
    }

    proptest! {
        #[test]
        fn each_file_has_the_parts_of_its_time(items in items(), windows in windows()) {
            let files = run(&items, &windows);
            for ((from, to), file) in windows.iter().zip(&files) {
                let (marks, tally) = file.clone().unwrap_or_default();
                let inside = |at: i64| from <= at && at < to;
                // A slice that continues here has its flow unless that ended before.
                let flows = |item: &Drawn| {
                    let ended = end_of_flow(&items, item).is_some_and(|at| windows.first() <= at && at < from);
                    usize::from(item.start >= from || item.name % 2 == 1 && !ended)
                };
                let slices = || items.iter().filter(|item| item.kind == ItemKind::Slice);
                let mut wanted: Vec<(u32, i64, i64, usize)> = slices()
                    .filter(|item| inside(item.start) || item.start < from && item.end > from)
                    .map(|item| (item.name, item.start.max(from), item.end.min(to), flows(item)))
                    .collect();
                let continued = slices().filter(|item| item.start < from && item.end > from).count();
                let all_slices = wanted.len();
                // A call that ended before is repeated if its flow ends here.
                let earlier = slices()
                    .filter(|item| item.start < from && item.end <= from)
                    .filter(|item| end_of_flow(&items, item).is_some_and(inside));
                let earlier: Vec<_> = earlier.map(|item| (item.name, from, from, 1)).collect();
                wanted.extend(&earlier);
                wanted.sort_unstable();
                let mut seen: Vec<(u32, i64, i64, usize)> = marks
                    .iter()
                    .filter_map(|mark| match mark {
                        Mark::Begin { name, at, until, flows, .. } => Some((*name, *at, *until, *flows)),
                        _ => None,
                    })
                    .collect();
                seen.sort_unstable();
                prop_assert_eq!(&seen, &wanted);
                let is_earlier = |mark: &&Mark| matches!(mark, Mark::Begin { lane: EARLIER_CALLS_LANE, .. });
                prop_assert_eq!(marks.iter().filter(is_earlier).count(), earlier.len());
                let counts = [all_slices - continued, continued, earlier.len()].map(|count| count as u64);
                prop_assert_eq!([tally.slices, tally.continued, tally.earlier_calls], counts);

                // Ends match the beginnings, on the same lanes.
                let mut open: std::collections::HashMap<(u32, u32), Vec<i64>> = Default::default();
                for mark in &marks {
                    match mark {
                        Mark::Begin { track, lane, until, .. } => open.entry((*track, *lane)).or_default().push(*until),
                        Mark::End { track, lane, at } => {
                            prop_assert_eq!(open.get_mut(&(*track, *lane)).and_then(Vec::pop), Some(*at));
                        }
                        _ => {}
                    }
                }
                prop_assert!(open.values().all(Vec::is_empty));

                let moments = items.iter().filter(|item| inside(item.start));
                let instants = moments.clone().filter(|item| item.kind == ItemKind::Instant);
                let samples = moments.filter(|item| matches!(item.kind, ItemKind::Sample(_)));
                prop_assert_eq!((tally.instants, tally.samples), (instants.count() as u64, samples.count() as u64));
                let noted = |wanted: fn(&Mark) -> bool| marks.iter().filter(|mark| wanted(mark)).count() as u64;
                prop_assert_eq!(noted(|mark| matches!(mark, Mark::Instant { .. })), tally.instants);
                prop_assert_eq!(noted(|mark| matches!(mark, Mark::Sample { .. })), tally.samples);
            }
        }

        #[test]
        fn a_counter_has_its_value_in_each_file(items in items(), windows in windows()) {
            let mut values: Vec<(i64, i64)> = items
                .iter()
                .filter_map(|item| match item.kind {
                    ItemKind::Counter(CounterValue::Int(value)) => Some((item.start, value)),
                    _ => None,
                })
                .collect();
            values.sort_by_key(|(at, _)| *at);
            let last = items.iter().map(|item| item.end).max().unwrap_or(i64::MIN);
            for ((from, to), file) in windows.iter().zip(run(&items, &windows)) {
                let (marks, tally) = file.unwrap_or_default();
                let seen: Vec<(i64, i64)> = marks
                    .iter()
                    .filter_map(|mark| match mark {
                        Mark::Counter { at, value, .. } => Some((*at, *value)),
                        _ => None,
                    })
                    .collect();
                let own: Vec<(i64, i64)> =
                    values.iter().copied().filter(|(at, _)| (from..to).contains(at)).collect();
                let before = values.iter().rev().find(|(at, _)| *at < from);
                let repeated = before.filter(|_| from <= last && own.first().is_none_or(|(at, _)| *at > from));
                let wanted: Vec<(i64, i64)> =
                    repeated.map(|(_, value)| (from, *value)).into_iter().chain(own.iter().copied()).collect();
                prop_assert_eq!(seen, wanted);
                let counts = (own.len() as u64, u64::from(repeated.is_some()));
                prop_assert_eq!((tally.counters, tally.repeated), counts);
            }
        }
    }
}
