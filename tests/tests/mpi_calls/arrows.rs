//! Arrows of a trace from sends to receives: those that the program found in its messages and rpd-report matches.

use super::matching::facts;
use super::{Job, Run, binary, rpd_merge};
use rpd_tests::harness::TraceProcessor;
use serde_json::Value as Json;
use std::collections::BTreeMap;
use std::fs;

/// Rank and function at both ends of each arrow of a message, in the order of the receives.
const ARROWS: &str =
    "SELECT pf.name, f.name, pt.name, t.name FROM flow JOIN slice f ON f.id = slice_out JOIN slice t ON t.id = slice_in
    JOIN thread_track tf ON tf.id = f.track_id JOIN thread hf ON hf.utid = tf.utid JOIN process pf ON pf.upid = hf.upid
    JOIN thread_track tt ON tt.id = t.track_id JOIN thread ht ON ht.utid = tt.utid JOIN process pt ON pt.upid = ht.upid
    WHERE f.name LIKE 'MPI_%send%' OR f.name LIKE 'MPI_Start%' ORDER BY t.ts, t.id";

/// The rank in the name of a process: `rank 3 (node0)`.
fn rank(process: &Json) -> i64 {
    process.as_str().unwrap().split(' ').nth(1).unwrap().parse().unwrap()
}

/// Numbers of messages that rpd-report matches, by sender and receiver.
fn matched_messages(run: &Run) -> BTreeMap<(i64, i64), i64> {
    let report = Job::new(binary("rpd-report"));
    let report = report.args(["messages", "--top", "1000", "--format", "json"]).arg(run.path("run.db"));
    let report: Json = serde_json::from_str(&report.run().success().stdout).unwrap();
    let mut matched = BTreeMap::new();
    for row in report["messages"].as_array().unwrap() {
        let (Some(from), Some(to)) = (row["from"].as_i64(), row["to"].as_i64()) else { continue };
        *matched.entry((from, to)).or_default() +=
            row["count"].as_i64().unwrap() - row["unmatched_ends"].as_i64().unwrap();
    }
    matched.retain(|_, count| *count > 0);
    matched
}

/// Draws the merged database of `mpi_matching`.
pub(super) fn check_arrows(run: &Run) {
    let trace = run.path("trace");
    fs::create_dir(&trace).unwrap();
    let drawing = rpd_merge().args(["--format", "perfetto", "-o"]).arg(&trace).arg(run.path("run.db"));
    let _ = drawing.run().success();
    for processor in TraceProcessor::all("arrows of messages") {
        let arrows = processor.query(&trace.join("trace.pftrace.gz"), ARROWS);
        let of_blocking = arrows.iter().filter(|row| rank(&row[2]) == 0 && row[3] == "MPI_Recv");
        let found: Vec<i64> = of_blocking.map(|row| rank(&row[0])).collect();
        let wanted: Vec<i64> = facts(run, 0, "received").iter().map(|[source, ..]| *source).collect();
        assert_eq!((found.len(), found), (15, wanted), "{}", processor.version());
        let mut drawn: BTreeMap<(i64, i64), i64> = BTreeMap::new();
        for row in &arrows {
            *drawn.entry((rank(&row[0]), rank(&row[2]))).or_default() += 1;
        }
        assert_eq!(drawn, matched_messages(run), "{}", processor.version());
    }
}
