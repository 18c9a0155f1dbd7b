//! Compares what a trace shows with what it must show.

use super::expected::{Drawing, End, Key, Span};
use super::read::{Part, Shown};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Debug;

/// Name of the track of calls that ended before a file and launched something in it.
pub(crate) const EARLIER_CALLS: &str = "calls before this file";

/// The times of a file, ns since the first time of the job: from the first to before the second.
pub(crate) type Window = (i64, i64);

/// All of a file, or of neighbours that are read together.
///
/// # Panics
/// If something differs.
pub(crate) fn assert_shows(shown: &Shown, drawing: &Drawing, windows: &[Window], what: &str) {
    assert!(shown.complaints.is_empty(), "{what}: {:?}", shown.complaints);
    let calls = LaunchingSpans::of(drawing);
    let mut parts: Vec<Part> = windows
        .iter()
        .flat_map(|window| drawing.spans.iter().filter_map(|span| clip(span, *window)))
        .chain(windows.iter().flat_map(|window| earlier_calls(drawing, &calls, *window)))
        .collect();
    parts.sort();
    assert_same(&shown.parts, &parts, &format!("{what}: slices"));
    let all = (windows[0].0, windows[windows.len() - 1].1);
    assert_same(&shown.flows, &flows(drawing, &calls, windows), &format!("{what}: flows"));
    let inside = |at: i64| all.0 <= at && at < all.1;
    let samples: Vec<_> = drawing.samples.iter().filter(|(_, at, _)| inside(*at)).cloned().collect();
    assert_same(&shown.samples, &samples, &format!("{what}: samples"));
    assert_values(shown, drawing, windows, what);
}

/// The part of a span that is in a window, if there is any.
fn clip(span: &Span, (from, to): Window) -> Option<Part> {
    let is_inside = match span.start == span.end {
        true => from <= span.start && span.start < to,
        false => span.start < to && from < span.end,
    };
    let word = match (span.start < from, span.end > to) {
        (false, false) => None,
        (true, false) => Some("begin"),
        (false, true) => Some("end"),
        (true, true) => Some("both"),
    };
    let start = span.start.max(from);
    is_inside.then(|| Part {
        key: span.key.clone(),
        start,
        duration: span.end.min(to) - start,
        name: span.name.clone(),
        category: span.category.clone(),
        cut: word.map(|word| (word.to_owned(), span.start, span.end - span.start)),
    })
}

/// The track of calls that ended before a file and launched something in it.
fn earlier_track((process, path): &Key) -> Key {
    (process.clone(), format!("{path}/{EARLIER_CALLS}"))
}

/// The span of each call: the longest one with its track, start and name.
struct LaunchingSpans<'a>(HashMap<(&'a Key, i64, &'a str), &'a Span>);

impl LaunchingSpans<'_> {
    fn of(drawing: &Drawing) -> LaunchingSpans<'_> {
        let mut spans = HashMap::new();
        for span in &drawing.spans {
            let longest = spans.entry((&span.key, span.start, &*span.name)).or_insert(span);
            *longest = if span.end > longest.end { span } else { longest };
        }
        LaunchingSpans(spans)
    }

    fn of_call(&self, (key, start, name): &End) -> &Span {
        self.0.get(&(key, *start, &**name)).expect("an arrow begins at a span")
    }
}

/// The calls that ended before a window and launched something in it, once each and without a duration.
fn earlier_calls(drawing: &Drawing, calls: &LaunchingSpans<'_>, (from, to): Window) -> Vec<Part> {
    let launched =
        drawing.arrows.iter().filter(|(call, sink)| call.1 < from && from <= sink.1 && sink.1 < to);
    let calls = launched.map(|(call, _)| calls.of_call(call)).filter(|call| call.end <= from);
    let parts: BTreeSet<Part> = calls
        .map(|call| Part {
            key: earlier_track(&call.key),
            start: from,
            duration: 0,
            name: call.name.clone(),
            category: call.category.clone(),
            cut: Some(("both".to_owned(), call.start, call.end - call.start)),
        })
        .collect();
    parts.into_iter().collect()
}

/// The points of an arrow from a call in these windows: the parts of the call up to the window with its end, the call
/// again if it ended before that window, and the end.
fn points(calls: &LaunchingSpans<'_>, (call, sink): &(End, End), windows: &[Window]) -> Vec<End> {
    let whole = calls.of_call(call);
    let mut points = Vec::new();
    for &(from, to) in windows.iter().filter(|(from, _)| *from <= sink.1) {
        let ends_here = sink.1 < to;
        if clip(whole, (from, to)).is_some() {
            points.push((call.0.clone(), call.1.max(from), call.2.clone()));
        } else if ends_here && whole.end <= from {
            points.push((earlier_track(&call.0), from, call.2.clone()));
        }
        if ends_here {
            points.push(sink.clone());
        }
    }
    points
}

/// Arrows in these windows. Those of a collective go from each call to the next, and those of a message from the call that
/// began first.
fn flows(drawing: &Drawing, calls: &LaunchingSpans<'_>, windows: &[Window]) -> Vec<(End, End)> {
    let (from, to) = (windows[0].0, windows[windows.len() - 1].1);
    let inside = |end: &End| from <= end.1 && end.1 < to;
    let joint = drawing
        .joint
        .iter()
        .chain(&drawing.messages)
        .map(|calls| calls.iter().filter(|end| inside(end)).cloned().collect());
    let launches = drawing.arrows.iter().map(|arrow| points(calls, arrow, windows));
    let both = |points: Vec<End>| -> Vec<(End, End)> {
        points.windows(2).map(|two| (two[0].clone(), two[1].clone())).collect()
    };
    let mut flows: Vec<(End, End)> = launches.chain(joint).flat_map(both).collect();
    flows.sort();
    flows
}

/// Counters have all their values, and at the start of each window the one that is valid there, unless their process
/// has ended.
fn assert_values(shown: &Shown, drawing: &Drawing, windows: &[Window], what: &str) {
    let all = (windows[0].0, windows[windows.len() - 1].1);
    let mut left = shown.values.clone();
    for (key, values) in &drawing.values {
        let inside: Vec<(i64, f64)> =
            values.iter().filter(|(at, _)| all.0 <= *at && *at < all.1).copied().collect();
        let shown = left.remove(key).unwrap_or_default();
        let repeated = without(shown, &inside, &format!("{what}: {key:?}"));
        let mut repeated: BTreeMap<i64, f64> = repeated.into_iter().collect();
        for (from, _) in windows {
            let found = repeated.remove(from);
            let before = values.iter().map(|(at, _)| *at).filter(|at| at < from).max();
            let is_set = values.iter().any(|(at, _)| at == from);
            let valid: Vec<f64> = values
                .iter()
                .filter(|(at, _)| Some(*at) == before && !is_set)
                .map(|(_, value)| *value)
                .collect();
            match found {
                Some(value) => {
                    assert!(valid.contains(&value), "{what}: {key:?} is {value} at {from}, not {valid:?}")
                }
                None => {
                    let ended = drawing.last.get(&key.0).is_some_and(|last| last < from);
                    assert!(
                        valid.is_empty() || ended,
                        "{what}: {key:?} has no value at {from}, where it is {valid:?}"
                    );
                }
            }
        }
        assert!(repeated.is_empty(), "{what}: values of {key:?} that nobody measured: {repeated:?}");
    }
    assert!(left.is_empty(), "{what}: counters that are not there: {:?}", left.keys());
}

/// What is left of the values that are shown when those that must be there are taken away.
fn without(mut shown: Vec<(i64, f64)>, wanted: &[(i64, f64)], what: &str) -> Vec<(i64, f64)> {
    for value in wanted {
        let place = shown.iter().position(|found| found == value);
        let place = place.unwrap_or_else(|| panic!("{what}: the value {value:?} is missing"));
        shown.swap_remove(place);
    }
    shown
}

/// Asserts that two sorted lists are the same, and shows where they are not.
fn assert_same<T: PartialEq + Debug>(found: &[T], wanted: &[T], what: &str) {
    if found == wanted {
        return;
    }
    let place = found.iter().zip(wanted).take_while(|(found, wanted)| found == wanted).count();
    panic!(
        "{what}: {} instead of {}; the first that differs is\n  {:?}\ninstead of\n  {:?}",
        found.len(),
        wanted.len(),
        found.get(place),
        wanted.get(place)
    );
}

/// What there is of a track.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Sums {
    /// Slices that begin in these files,
    slices: usize,
    /// and the sum of the durations of all that are there.
    duration: i64,
    /// First and last time.
    times: Option<(i64, i64)>,
}

/// What there is of each track.
pub(crate) fn sums<'a>(files: impl Iterator<Item = &'a Shown>) -> BTreeMap<super::expected::Key, Sums> {
    let mut sums: BTreeMap<_, Sums> = BTreeMap::new();
    // Files repeat calls, which one file has once.
    let is_own = |part: &&Part| !part.key.1.ends_with(EARLIER_CALLS);
    for part in files.flat_map(|shown| &shown.parts).filter(is_own) {
        assert!(part.duration >= 0, "{part:?}");
        let goes_on = part.cut.as_ref().is_some_and(|(word, ..)| word == "begin" || word == "both");
        let sum = sums.entry(part.key.clone()).or_default();
        sum.slices += usize::from(!goes_on);
        sum.duration += part.duration;
        let (start, end) = (part.start, part.start + part.duration);
        let (first, last) = sum.times.unwrap_or((start, end));
        sum.times = Some((first.min(start), last.max(end)));
    }
    sums
}

/// A drawing with one of each, and what a trace shows of it in a window that cuts its first slice.
fn small() -> (Drawing, Shown, Window) {
    let key = |track: &str| ("rank 0 (node)".to_owned(), track.to_owned());
    let span = |track: &str, start, end, name: &str| Span {
        key: key(track),
        start,
        end,
        name: name.to_owned(),
        category: Some("HIP".to_owned()),
    };
    let call = (key("main"), 20, "launch".to_owned());
    let kernel = (key("GPU 0/Stream 0"), 30, "gemm".to_owned());
    let sample = (key("main"), 25, "main;launch".to_owned());
    let value = |at| (at, at as f64);
    let drawing = Drawing {
        spans: vec![
            span("main", 0, 90, "main"),
            span("main", 20, 22, "launch"),
            span("GPU 0/Stream 0", 30, 40, "gemm"),
        ],
        values: BTreeMap::from([(key("power"), vec![value(5), value(15)])]),
        arrows: vec![(call.clone(), kernel.clone())],
        joint: vec![vec![call.clone(), kernel.clone()]],
        messages: Vec::new(),
        samples: vec![sample.clone()],
        last: BTreeMap::from([("rank 0 (node)".to_owned(), 90)]),
    };
    let part = |span: &Span, cut| Part {
        key: span.key.clone(),
        start: span.start.max(10),
        duration: span.end.min(50) - span.start.max(10),
        name: span.name.clone(),
        category: span.category.clone(),
        cut,
    };
    let mut shown = Shown {
        parts: vec![
            part(&drawing.spans[0], Some(("both".to_owned(), 0, 90))),
            part(&drawing.spans[1], None),
            part(&drawing.spans[2], None),
        ],
        values: BTreeMap::from([(key("power"), vec![(10, 5.0), value(15)])]),
        flows: vec![(call.clone(), kernel.clone()), (call, kernel)],
        samples: vec![sample],
        complaints: Vec::new(),
    };
    shown.sort();
    (drawing, shown, (10, 50))
}

#[test]
fn whatever_differs_is_found() {
    let (drawing, shown, window) = small();
    assert_shows(&shown, &drawing, &[window], "as it is");
    type Change = fn(&mut Shown);
    let changes: [(&str, Change); 16] = [
        ("a slice is missing", |shown| drop(shown.parts.pop())),
        ("a slice is there twice", |shown| shown.parts.push(shown.parts[2].clone())),
        ("a slice begins later", |shown| shown.parts[1].start += 1),
        ("a slice is longer", |shown| shown.parts[1].duration += 1),
        ("a slice has no end", |shown| shown.parts[2].duration = -1),
        ("a slice is on another track", |shown| shown.parts[1].key.1.push('2')),
        ("another name", |shown| shown.parts[1].name.push('2')),
        ("another category", |shown| shown.parts[1].category = None),
        ("it is not said that it is cut", |shown| shown.parts.iter_mut().for_each(|part| part.cut = None)),
        ("an arrow is missing", |shown| drop(shown.flows.pop())),
        ("an arrow goes elsewhere", |shown| shown.flows[0].1.1 += 1),
        ("a sample is missing", |shown| shown.samples.clear()),
        ("another call stack", |shown| shown.samples[0].2.push('2')),
        ("a value is missing", |shown| shown.values.values_mut().for_each(|values| values.truncate(1))),
        ("a value is not repeated", |shown| {
            shown.values.values_mut().for_each(|values| values.retain(|(at, _)| *at != 10))
        }),
        ("a complaint", |shown| shown.complaints.push(vec!["error".into(), 1.into()])),
    ];
    for (what, change) in changes {
        let (_, mut shown, _) = small();
        change(&mut shown);
        let found = std::panic::catch_unwind(|| assert_shows(&shown, &drawing, &[window], what));
        assert!(found.is_err(), "not found: {what}");
    }
    let (_, mut longer, _) = small();
    longer.parts[1].duration += 1;
    assert_ne!(sums(std::iter::once(&longer)), sums(std::iter::once(&shown)));
}
