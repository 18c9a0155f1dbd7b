//! What Perfetto's trace processor reads in a trace.

use super::expected::{End, Key};
use rpd_tests::harness::{Row, TraceProcessor};
use serde::de::DeserializeOwned;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::PathBuf;

/// Number, parent, name and process of each track.
const TRACKS: &str =
    "WITH named AS (SELECT tt.id, th.upid, coalesce(th.name, 'thread ' || th.tid) AS name, th.name IS NOT NULL AS is_named
                      FROM thread_track tt JOIN thread th ON th.utid = tt.utid)
    SELECT t.id, t.parent_id,
      CASE WHEN t.name = 'calls before this file' THEN iif(t.parent_id IS NULL, n.name || '/', '') || t.name
           WHEN n.is_named THEN n.name ELSE coalesce(nullif(t.name, ''), n.name) END, p.name
    FROM track t LEFT JOIN named n ON n.id = t.id
    LEFT JOIN process_track pt ON pt.id = t.id LEFT JOIN process_counter_track ct ON ct.id = t.id
    LEFT JOIN process p ON p.upid = coalesce(n.upid, pt.upid, ct.upid)";

const SLICES: &str = "SELECT track_id, ts, dur, name, category, extract_arg(arg_set_id, 'debug.clipped'),
      extract_arg(arg_set_id, 'debug.orig_ts'), extract_arg(arg_set_id, 'debug.orig_dur') FROM slice
      WHERE category IS NOT 'rpd_file'";

const COUNTERS: &str = "SELECT track_id, ts, value FROM counter";

const FLOWS: &str = "SELECT o.track_id, o.ts, o.name, i.track_id, i.ts, i.name
    FROM flow JOIN slice o ON flow.slice_out = o.id JOIN slice i ON flow.slice_in = i.id";

const SAMPLES: &str =
    "SELECT p.name, coalesce(th.name, 'thread ' || th.tid), s.ts, s.callsite_id FROM perf_sample s JOIN thread th USING (utid)
    JOIN process p USING (upid)";

/// Call stacks: each frame with the one that called it.
const FRAMES: &str = "SELECT c.id, c.parent_id, f.name FROM stack_profile_callsite c JOIN stack_profile_frame f ON f.id = c.frame_id";

/// A slice as it is read.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Part {
    pub(crate) key: Key,
    pub(crate) start: i64,
    /// -1 where it has no end.
    pub(crate) duration: i64,
    pub(crate) name: String,
    pub(crate) category: Option<String>,
    /// What is cut, and when the whole began and how long it was.
    pub(crate) cut: Option<(String, i64, i64)>,
}

/// What a trace shows.
#[derive(Debug, Default)]
pub(crate) struct Shown {
    pub(crate) parts: Vec<Part>,
    pub(crate) values: BTreeMap<Key, Vec<(i64, f64)>>,
    pub(crate) flows: Vec<(End, End)>,
    pub(crate) samples: Vec<(Key, i64, String)>,
    /// What the trace processor takes to be wrong.
    pub(crate) complaints: Vec<Row>,
}

pub(crate) fn typed<T: DeserializeOwned>(rows: Vec<Row>) -> Vec<T> {
    rows.into_iter().map(|row| serde_json::from_value(row.into()).unwrap()).collect()
}

/// Reads traces, each alone.
pub(crate) fn read(tp: &TraceProcessor, traces: &[PathBuf]) -> Vec<Shown> {
    let queries = [TRACKS, SLICES, COUNTERS, FLOWS, SAMPLES, FRAMES, TraceProcessor::COMPLAINTS];
    tp.each(traces, queries).into_iter().map(shown).collect()
}

fn shown([tracks, slices, counters, flows, samples, frames, complaints]: [Vec<Row>; 7]) -> Shown {
    let tracks = Tracks(
        typed(tracks).into_iter().map(|(id, parent, name, process)| (id, (parent, name, process))).collect(),
    );
    let mut shown = Shown { complaints, ..Shown::default() };
    type Cut = (Option<String>, Option<i64>, Option<i64>);
    for row in slices {
        let (first, rest) = row.split_at(5);
        let (track, start, duration, name, category): (i64, i64, i64, Option<String>, Option<String>) =
            serde_json::from_value(first.to_vec().into()).unwrap();
        let (word, start_of_all, all): Cut = serde_json::from_value(rest.to_vec().into()).unwrap();
        let cut = word.map(|word| (word, start_of_all.unwrap(), all.unwrap()));
        let name = name.unwrap_or_default();
        shown.parts.push(Part { key: tracks.key(track), start, duration, name, category, cut });
    }
    let mut of_key: BTreeMap<Key, BTreeSet<i64>> = BTreeMap::new();
    for (track, at, value) in typed::<(i64, i64, f64)>(counters) {
        let key = tracks.key(track);
        if key == ("no process".to_owned(), "cpu-clock".to_owned()) {
            // The trace processor counts samples itself.
            continue;
        }
        of_key.entry(key.clone()).or_default().insert(track);
        shown.values.entry(key).or_default().push((at, value));
    }
    assert!(of_key.values().all(|tracks| tracks.len() == 1), "counters of one name: {of_key:?}");
    type Flow = (i64, i64, Option<String>, i64, i64, Option<String>);
    for (from, left, call, to, arrived, what) in typed::<Flow>(flows) {
        let from = (tracks.key(from), left, call.unwrap_or_default());
        shown.flows.push((from, (tracks.key(to), arrived, what.unwrap_or_default())));
    }
    let frames: HashMap<i64, (Option<i64>, String)> = typed::<(i64, _, _)>(frames)
        .into_iter()
        .map(|(id, called_by, name)| (id, (called_by, name)))
        .collect();
    for (process, thread, at, stack) in typed::<(String, String, i64, i64)>(samples) {
        let mut functions: Vec<&str> = Vec::new();
        let mut next = Some(stack);
        while let Some((called_by, name)) = next.and_then(|frame| frames.get(&frame)) {
            functions.push(name);
            next = *called_by;
        }
        functions.reverse();
        shown.samples.push(((process, thread), at, functions.join(";")));
    }
    shown.sort();
    shown
}

impl Shown {
    pub(crate) fn sort(&mut self) {
        self.parts.sort();
        self.flows.sort();
        self.samples.sort();
        self.values.values_mut().for_each(|values| values.sort_by(|a, b| a.partial_cmp(b).unwrap()));
    }
}

type Known = (Option<i64>, Option<String>, Option<String>);

/// Parent, name and process of each track.
struct Tracks(HashMap<i64, Known>);

impl Tracks {
    /// Process and path of a track. Lanes have the name of what they are lanes of.
    fn key(&self, track: i64) -> Key {
        let (mut names, mut process, mut next): (Vec<&str>, Option<&str>, _) =
            (Vec::new(), None, Some(track));
        while let Some((parent, name, own)) = next.and_then(|track| self.0.get(&track)) {
            process = process.or(own.as_deref());
            names.extend(name.as_deref().filter(|name| names.last() != Some(name)));
            next = *parent;
        }
        let process = process.unwrap_or("no process").to_owned();
        if names.last() == Some(&process.as_str()) {
            names.pop();
        }
        names.reverse();
        (process, names.join("/"))
    }
}
