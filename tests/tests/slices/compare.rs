//! Compares what a trace shows with what it must show.

use super::expected::{Drawing, End, Span};
use super::read::{Part, Shown};
use std::collections::BTreeMap;
use std::fmt::Debug;

/// The times of a file, ns since the first time of the job: from the first to before the second.
pub(crate) type Window = (i64, i64);

/// All of a file, or of neighbours that are read together.
///
/// # Panics
/// If something differs.
pub(crate) fn assert_shows(shown: &Shown, drawing: &Drawing, windows: &[Window], what: &str) {
    assert!(shown.complaints.is_empty(), "{what}: {:?}", shown.complaints);
    let mut parts: Vec<Part> = windows
        .iter()
        .flat_map(|window| drawing.spans.iter().filter_map(|span| clip(span, *window)))
        .collect();
    parts.sort();
    assert_same(&shown.parts, &parts, &format!("{what}: slices"));
    let all = (windows[0].0, windows[windows.len() - 1].1);
    assert_same(&shown.flows, &flows(drawing, all), &format!("{what}: flows"));
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

/// Arrows with both ends in a window. Those of a collective go from each call to the next.
fn flows(drawing: &Drawing, (from, to): Window) -> Vec<(End, End)> {
    let inside = |end: &End| from <= end.1 && end.1 < to;
    let mut flows: Vec<(End, End)> =
        drawing.arrows.iter().filter(|(call, to)| inside(call) && inside(to)).cloned().collect();
    for calls in &drawing.joint {
        let calls: Vec<&End> = calls.iter().filter(|end| inside(end)).collect();
        flows.extend(calls.windows(2).map(|two| (two[0].clone(), two[1].clone())));
    }
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
    for part in files.flat_map(|shown| &shown.parts) {
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
