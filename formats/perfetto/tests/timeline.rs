//! Compares order, lanes and cuts of spans with slow and simple algorithms.
#![allow(missing_docs, clippy::unwrap_used)]

use proptest::prelude::*;
use rpd_perfetto::{Cut, Edge, MisplacedSpan, Overlaps, Span, Timeline, Timestamp, Window};

fn time(ns: u64) -> Timestamp {
    Timestamp::new(ns as i64).unwrap()
}

fn span(start: u64, end: u64) -> Span {
    Span::new(time(start), time(end)).unwrap()
}

/// Generates sorted spans in a small range, so that many begin and end together.
fn spans() -> impl Strategy<Value = Vec<Span>> {
    let length = prop_oneof![Just(0u64), 0..5u64, 0..100u64];
    prop::collection::vec((0u64..60, length), 0..40).prop_map(|pairs| {
        let mut spans: Vec<Span> =
            pairs.into_iter().map(|(start, length)| span(start, start + length)).collect();
        spans.sort_by_key(|span| span.order());
        spans
    })
}

/// Generates consecutive windows from 0 to a time after the last end.
fn windows() -> impl Strategy<Value = Vec<Window>> {
    prop::collection::btree_set(1u64..165, 0..6).prop_map(|cuts| {
        let borders: Vec<u64> = [0].into_iter().chain(cuts).chain([200]).collect();
        borders.windows(2).map(|pair| Window::new(time(pair[0]), time(pair[1])).unwrap()).collect()
    })
}

fn overlaps() -> impl Strategy<Value = Overlaps> {
    prop_oneof![Just(Overlaps::Nest), Just(Overlaps::Separate)]
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Seen {
    Begin { at: u64, lane: usize, number: usize, cut: Cut },
    End { at: u64, lane: usize },
}

fn seen(edge: Edge<'_, usize>) -> Seen {
    match edge {
        Edge::Begin { at, lane, cut, item, .. } => Seen::Begin { at: at.ns(), lane, number: *item, cut },
        Edge::End { at, lane } => Seen::End { at: at.ns(), lane },
    }
}

/// Returns the edges of each window.
fn run(spans: &[Span], windows: &[Window], overlaps: Overlaps) -> Vec<Vec<Seen>> {
    let mut timeline = Timeline::new(overlaps, windows[0]);
    let mut all = Vec::new();
    for (part, window) in windows.iter().enumerate() {
        let mut edges = Vec::new();
        let mut emit = |edge: Edge<'_, usize>| edges.push(seen(edge));
        if part > 0 {
            timeline.open(*window, &mut emit);
        }
        for (number, span) in spans.iter().enumerate().filter(|(_, span)| window.contains(span.start())) {
            assert!(timeline.push(*span, number, &mut emit).unwrap());
        }
        timeline.close(&mut emit);
        all.push(edges);
    }
    all
}

/// Returns the first lane on which each span does not conflict with earlier spans, by examining all of them.
fn lanes(spans: &[Span], overlaps: Overlaps) -> Vec<usize> {
    let mut taken: Vec<Vec<Span>> = Vec::new();
    let mut lanes = Vec::new();
    for span in spans {
        let agree = |other: &Span| {
            other.end() <= span.start() || overlaps == Overlaps::Nest && other.end() >= span.end()
        };
        let lane = taken.iter().position(|lane| lane.iter().all(agree)).unwrap_or(taken.len());
        if lane == taken.len() {
            taken.push(Vec::new());
        }
        taken[lane].push(*span);
        lanes.push(lane);
    }
    lanes
}

proptest! {
    #[test]
    fn a_window_has_the_parts_of_its_spans_on_their_lanes(spans in spans(), windows in windows(), overlaps in overlaps()) {
        let lanes = lanes(&spans, overlaps);
        for (window, edges) in windows.iter().zip(run(&spans, &windows, overlaps)) {
            let (from, to) = (window.start().ns(), window.end().ns());
            let mut begun = vec![false; spans.len()];
            let mut stacks: Vec<Vec<usize>> = vec![Vec::new(); spans.len()];
            for edge in edges {
                match edge {
                    Seen::Begin { at, lane, number, cut } => {
                        let (start, end) = (spans[number].start().ns(), spans[number].end().ns());
                        prop_assert!(!begun[number]);
                        begun[number] = true;
                        prop_assert_eq!(lane, lanes[number]);
                        prop_assert_eq!(at, start.max(from));
                        let word = match (start < from, end > to) {
                            (false, false) => None,
                            (true, false) => Some("begin"),
                            (false, true) => Some("end"),
                            (true, true) => Some("both"),
                        };
                        prop_assert_eq!(cut.word(), word);
                        stacks[lane].push(number);
                        prop_assert!(overlaps == Overlaps::Nest || stacks[lane].len() == 1);
                    }
                    Seen::End { at, lane } => {
                        // The span that a reader ends must be the intended one.
                        let number = stacks[lane].pop().unwrap();
                        prop_assert_eq!(at, spans[number].end().ns().min(to));
                    }
                }
            }
            prop_assert!(stacks.iter().all(Vec::is_empty));
            for (span, begun) in spans.iter().zip(begun) {
                let (start, end) = (span.start().ns(), span.end().ns());
                let inside = if start == end { from <= start && start < to } else { start < to && end > from };
                prop_assert_eq!(begun, inside);
                prop_assert_eq!(window.clip(*span).is_some(), inside);
            }
        }
    }

    #[test]
    fn ends_come_before_beginnings_of_the_same_time(spans in spans(), windows in windows(), overlaps in overlaps()) {
        for edges in run(&spans, &windows, overlaps) {
            let mut last = 0;
            // Whether a span began at this time, and the beginnings of open spans on each lane.
            let mut begun = false;
            let mut open: Vec<Vec<u64>> = vec![Vec::new(); spans.len()];
            for edge in edges {
                let (Seen::Begin { at, .. } | Seen::End { at, .. }) = edge;
                prop_assert!(last <= at);
                if last < at {
                    begun = false;
                }
                last = at;
                match edge {
                    Seen::Begin { lane, .. } => {
                        begun = true;
                        open[lane].push(at);
                    }
                    Seen::End { lane, .. } => {
                        let start = open[lane].pop().unwrap();
                        prop_assert!(!begun || start == at);
                    }
                }
            }
        }
    }

    #[test]
    fn parts_of_a_span_add_up(start in 0u64..200, length in 0u64..200, windows in windows()) {
        let span = span(start, (start + length).min(199).max(start));
        let parts: Vec<_> = windows.iter().filter_map(|window| window.clip(span)).collect();
        let sum: u64 = parts.iter().map(|part| part.part.duration()).sum();
        prop_assert_eq!(sum, span.duration());
        prop_assert!(span.duration() > 0 || parts.len() == usize::from(start < 200));
        prop_assert_eq!(parts.iter().filter(|part| matches!(part.cut, Cut::None | Cut::End)).count(), usize::from(start < 200));
    }

    #[test]
    fn a_first_window_in_the_middle_of_a_run_cuts_what_began_before(spans in spans(), from in 0u64..60, overlaps in overlaps()) {
        let window = Window::new(time(from), time(200)).unwrap();
        let mut timeline = Timeline::new(overlaps, window);
        let mut begun = Vec::new();
        let mut ends = 0;
        let mut emit = |edge: Edge<'_, usize>| match seen(edge) {
            Seen::Begin { number, .. } => begun.push(number),
            Seen::End { .. } => ends += 1,
        };
        let mut touching = Vec::new();
        for (number, span) in spans.iter().enumerate() {
            if timeline.push(*span, number, &mut emit).unwrap() {
                touching.push(number);
            }
        }
        timeline.close(&mut emit);
        prop_assert_eq!(ends, touching.len());
        let naive: Vec<usize> = (0..spans.len()).filter(|&number| window.clip(spans[number]).is_some()).collect();
        prop_assert_eq!(&begun, &naive);
        prop_assert_eq!(touching, naive);
    }
}

#[test]
fn a_span_over_many_windows_is_in_each() {
    let windows: Vec<Window> =
        (0..5).map(|i| Window::new(time(10 * i), time(10 * i + 10)).unwrap()).collect();
    let spans = [span(5, 45), span(12, 12), span(20, 30)];
    let begin = |at, number, cut| Seen::Begin { at, lane: 0, number, cut };
    let end = |at| Seen::End { at, lane: 0 };
    assert_eq!(
        run(&spans, &windows, Overlaps::Nest),
        [
            vec![begin(5, 0, Cut::End), end(10)],
            vec![begin(10, 0, Cut::Both), begin(12, 1, Cut::None), end(12), end(20)],
            vec![begin(20, 0, Cut::Both), begin(20, 2, Cut::None), end(30), end(30)],
            vec![begin(30, 0, Cut::Both), end(40)],
            vec![begin(40, 0, Cut::Begin), end(45)],
        ]
    );
}

#[test]
fn what_ends_between_two_windows_is_forgotten() {
    let mut timeline = Timeline::new(Overlaps::Separate, Window::new(time(0), time(10)).unwrap());
    let mut edges = Vec::new();
    timeline.push(span(5, 15), 0, |edge| edges.push(seen(edge))).unwrap();
    timeline.push(span(5, 25), 1, |edge| edges.push(seen(edge))).unwrap();
    timeline.close(|edge| edges.push(seen(edge)));
    edges.clear();
    timeline.open(Window::new(time(20), time(30)).unwrap(), |edge| edges.push(seen(edge)));
    timeline.push(span(22, 23), 2, |edge| edges.push(seen(edge))).unwrap();
    timeline.close(|edge| edges.push(seen(edge)));
    assert_eq!(
        edges,
        [
            Seen::Begin { at: 20, lane: 1, number: 1, cut: Cut::Begin },
            Seen::Begin { at: 22, lane: 0, number: 2, cut: Cut::None },
            Seen::End { at: 23, lane: 0 },
            Seen::End { at: 25, lane: 1 },
        ]
    );
}

#[test]
fn a_hundred_thousand_spans_at_once_take_no_time() {
    const SPANS: usize = 100_000;
    let mut timeline = Timeline::new(Overlaps::Nest, Window::ALL);
    let mut edges = 0;
    // Each span ends after the previous one, so that no lane is free for the next.
    for number in 0..SPANS as u64 {
        timeline.push(span(number, 1_000_000 + number), (), |_| edges += 1).unwrap();
    }
    assert_eq!(timeline.lanes(), SPANS);
    timeline.push(span(2_000_000, 2_000_001), (), |_| edges += 1).unwrap();
    timeline.close(|_| edges += 1);
    assert_eq!((timeline.lanes(), edges), (SPANS, 2 * SPANS + 2));
}

#[test]
fn times_that_cannot_be_are_refused() {
    assert_eq!(Timestamp::new(-1).unwrap_err().ns, -1);
    assert!(Timestamp::new(i64::MIN).is_err());
    assert_eq!(Timestamp::new(i64::MAX).unwrap(), Timestamp::MAX);
    assert!(Span::new(time(2), time(1)).is_err());
    assert!(Window::new(time(2), time(2)).is_err());
    let widest = Span::new(time(0), Timestamp::MAX).unwrap();
    assert_eq!(widest.duration(), i64::MAX as u64);
    for overlaps in [Overlaps::Nest, Overlaps::Separate] {
        let mut timeline = Timeline::new(overlaps, Window::ALL);
        assert!(timeline.push(widest, (), |_| ()).unwrap());
        assert!(timeline.push(span(7, 7), (), |_| ()).unwrap());
        let unsorted = timeline.push(span(6, 9), (), |_| ()).unwrap_err();
        assert_eq!(unsorted, MisplacedSpan::Unsorted { start: time(6), last: time(7) });
        let last = Span::new(Timestamp::MAX, Timestamp::MAX).unwrap();
        assert!(matches!(timeline.push(last, (), |_| ()).unwrap_err(), MisplacedSpan::AfterWindow { .. }));
    }
}
