//! Chrome's JSON has the same slices. Perfetto's trace processor reads it, too.

use super::expected::Drawing;
use super::{Subject, rpd_merge};
use rpd_tests::harness::{Row, RunFolder, TraceProcessor};
use rpd_tests::synthetic::SyntheticRun;
use serde_json::{Value, json};
use std::path::PathBuf;

const SLICES: &str =
    "SELECT p.name, th.name, s.ts, s.dur, s.name FROM slice s JOIN thread_track t ON s.track_id = t.id
    JOIN thread th USING (utid) JOIN process p USING (upid)";

const VALUES: &str = "SELECT count(*), sum(c.value) FROM counter c";

/// Process, thread, start, duration and name of what is drawn in a window, sorted.
fn expected(drawing: &Drawing, (from, to): (i64, i64)) -> Vec<(String, String, i64, i64, String)> {
    let mut slices: Vec<_> = drawing
        .spans
        .iter()
        .filter(|span| span.start < to && (from < span.end || from <= span.start))
        .map(|span| {
            let (process, path) = span.key.clone();
            let start = span.start.max(from);
            (process, path.replace('/', " "), start, span.end.min(to) - start, span.name.clone())
        })
        .collect();
    slices.sort();
    slices
}

fn read(rows: &[Row]) -> Vec<(String, String, i64, i64, String)> {
    let mut slices: Vec<_> = rows
        .iter()
        .map(|row| {
            let text = |place: usize| row[place].as_str().unwrap_or_default().to_owned();
            // Lanes are threads of their own.
            let thread = text(1).split(" (lane ").next().unwrap_or_default().to_owned();
            (text(0), thread, row[2].as_i64().unwrap(), row[3].as_i64().unwrap(), text(4))
        })
        .collect();
    slices.sort();
    slices
}

#[test]
fn slices_of_chrome_show_the_database() {
    let run = RunFolder::new(&SyntheticRun { workers: true, ..SyntheticRun::default() });
    let subject = Subject::of(std::slice::from_ref(&run.path));
    let slices =
        subject.sliced(rpd_merge(), "chrome", &["--format", "chrome-json", "--split-by-time", "3"], false);
    let paths: Vec<PathBuf> = slices.files.iter().map(|(path, _)| path.clone()).collect();
    for tp in TraceProcessor::all("slices in Chrome's format") {
        let answers = tp.each(&paths, [SLICES, VALUES, TraceProcessor::COMPLAINTS]);
        for ([found, values, complaints], (path, window)) in answers.iter().zip(&slices.files) {
            let what = format!("{} of {}", path.display(), tp.version());
            let (mut found, mut wanted) = (read(found), expected(&subject.drawing, *window));
            if tp.version().starts_with("v47") {
                // It drops a nanosecond where the microseconds are no round number in binary.
                for slice in found.iter_mut().chain(&mut wanted) {
                    (slice.2, slice.3) = (0, 0);
                }
                found.sort();
                wanted.sort();
            }
            assert_eq!(found.len(), wanted.len(), "{what}");
            for (found, wanted) in found.iter().zip(&wanted) {
                assert_eq!(found, wanted, "{what}");
            }
            assert!(values[0][0].as_i64() > Some(0), "{what}");
            // Each call of a collective ends one arrow and begins another one, under one number.
            let complaints: Vec<_> = complaints.iter().filter(|row| row[0] != "flow_duplicate_id").collect();
            assert!(complaints.is_empty(), "{what}: {complaints:?}");
        }
    }
}

#[test]
fn one_file_of_chrome_is_json_with_all_arrows() {
    let run = RunFolder::new(&SyntheticRun::default());
    let subject = Subject::of(std::slice::from_ref(&run.path));
    let slices = subject.sliced(rpd_merge(), "chrome", &["--format", "chrome-json"], true);
    let file: Value = serde_json::from_slice(&super::gunzip(&slices.files[0].0)).unwrap();
    let events = file["traceEvents"].as_array().unwrap();
    let count = |phase: &str| events.iter().filter(|event| event["ph"] == phase).count();
    let joint: usize = subject.drawing.joint.iter().map(Vec::len).sum();
    assert_eq!(count("s"), subject.drawing.arrows.len() + joint);
    assert_eq!(count("f"), subject.drawing.arrows.len() + joint);
    assert_eq!(count("X") + count("i"), subject.drawing.spans.len());
    assert_eq!(file["displayTimeUnit"], json!("ns"));
}
