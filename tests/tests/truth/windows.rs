//! Messages in a window of the run match as in the whole run.

use rpd_calls::{ReadOptions, RunCalls};
use rpd_graph::CallGraph;
use rpd_run::RunDatabase;
use rpd_tests::harness::rpd_merge;
use rpd_tests::truth::{Scenario, ScenarioKind, ScenarioSize, write_scenario};
use std::collections::BTreeMap;

/// An end of a message: its process, when it entered the call, ns in job time, and its number among those of the call.
type EndPlace = (u32, i64, usize);

/// Returns the receive of each send that matches one.
fn matched(calls: &RunCalls) -> BTreeMap<EndPlace, EndPlace> {
    let graph = CallGraph::new(&calls.job).unwrap();
    let place = |timeline: usize, end: usize| {
        let found = &calls.job.timelines[timeline];
        let call = found.message_ends[end].call;
        let before = found.message_ends[..end].iter().rev().take_while(|other| other.call == call).count();
        (found.process, found.calls[call as usize].enter_ns, before)
    };
    let mut pairs = BTreeMap::new();
    for (timeline, found) in calls.job.timelines.iter().enumerate() {
        for number in (0..found.message_ends.len()).filter(|end| found.message_ends[*end].role.is_send()) {
            if let Some((other, partner)) = graph.partner(timeline, number) {
                let _ = pairs.insert(place(timeline, number), place(other, partner));
            }
        }
    }
    pairs
}

#[test]
fn messages_in_a_window_match_as_in_the_whole_run() {
    use ScenarioKind::{Chain, LateReceiver, Master, OnDemand, Pipeline, SendReceive, Stencil};
    for kind in [Chain, LateReceiver, Master, OnDemand, Pipeline, SendReceive, Stencil] {
        let size = ScenarioSize { ranks: 5, subject: 2, steps: 20, ..ScenarioSize::drawn(kind, 5) };
        let folder = tempfile::tempdir().unwrap();
        let run = write_scenario(&Scenario::sized(kind, size), &[], folder.path()).unwrap();
        let _ = rpd_merge().arg("--quiet").arg(&run).run().success();
        let database = RunDatabase::open(&run.join("trace.db"), None).unwrap();
        let whole = RunCalls::read(&database, &ReadOptions::default()).unwrap();
        let all = matched(&whole);
        let start = whole.job.timelines.iter().map(|timeline| timeline.start_ns).min().unwrap();
        let end = whole.job.timelines.iter().map(|timeline| timeline.end_ns).max().unwrap();
        for (from, to) in [(0.0, 0.4), (0.21, 0.77), (0.3, 0.5), (0.6, 1.1)] {
            let at = |share: f64| start + ((end - start) as f64 * share) as i64;
            let window = (at(from), at(to));
            let options = ReadOptions { window_ns: Some(window), ..ReadOptions::default() };
            let part = RunCalls::read(&database, &options).unwrap();
            let found = matched(&part);
            let times: BTreeMap<(u32, i64), i64> = whole
                .job
                .timelines
                .iter()
                .flat_map(|timeline| {
                    timeline.calls.iter().map(|call| ((timeline.process, call.enter_ns), call.exit_ns()))
                })
                .collect();
            let is_inside = |place: &EndPlace| {
                place.1 >= window.0 && times.get(&(place.0, place.1)).is_some_and(|exit| *exit <= window.1)
            };
            let expected: BTreeMap<EndPlace, EndPlace> = all
                .iter()
                .filter(|(send, receive)| is_inside(send) && is_inside(receive))
                .map(|(send, receive)| (*send, *receive))
                .collect();
            assert!(expected.len() > 5, "{kind:?} {window:?}: {} messages", expected.len());
            assert_eq!(found, expected, "{kind:?} {from}..{to}");
            let counts = CallGraph::new(&part.job).unwrap().message_counts();
            assert_eq!((counts.unmatched_sends, counts.unmatched_receives), (0, 0), "{kind:?} {from}..{to}");
        }
    }
}
