//! Arrows of a trace between sends and receives: those that the program found in its messages and rpd-report matches.

use super::matching::facts;
use super::{Job, Run, binary, rpd_merge};
use rpd_tests::harness::TraceProcessor;
use serde_json::Value as Json;
use std::collections::BTreeMap;
use std::fs;

/// Rank, function and start at both ends of each arrow of a message: at the end that began first, and at the other one.
const ARROWS: &str = "SELECT pf.name, f.name, f.ts, pt.name, t.name, t.ts
    FROM flow JOIN slice f ON f.id = slice_out JOIN slice t ON t.id = slice_in
    JOIN thread_track tf ON tf.id = f.track_id JOIN thread hf ON hf.utid = tf.utid JOIN process pf ON pf.upid = hf.upid
    JOIN thread_track tt ON tt.id = t.track_id JOIN thread ht ON ht.utid = tt.utid JOIN process pt ON pt.upid = ht.upid
    WHERE f.name LIKE 'MPI_%send%' OR f.name LIKE 'MPI_Start%' OR t.name LIKE 'MPI_%send%' OR t.name LIKE 'MPI_Start%'";

/// The rank in the name of a process: `rank 3 (node0)`.
fn rank(process: &Json) -> i64 {
    process.as_str().unwrap().split(' ').nth(1).unwrap().parse().unwrap()
}

/// Numbers of messages that rpd-report matches, by the two ranks.
fn matched_messages(run: &Run) -> BTreeMap<(i64, i64), i64> {
    let report = Job::new(binary("rpd-report"));
    let report = report.args(["messages", "--top", "1000", "--format", "json"]).arg(run.path("run.db"));
    let report: Json = serde_json::from_str(&report.run().success().stdout).unwrap();
    let mut matched = BTreeMap::new();
    for row in report["messages"].as_array().unwrap() {
        let (Some(from), Some(to)) = (row["from"].as_i64(), row["to"].as_i64()) else { continue };
        let [count, unmatched] = ["count", "unmatched_ends"].map(|column| row[column].as_i64().unwrap());
        *matched.entry(pair(from, to)).or_default() += count - unmatched;
    }
    matched
}

/// Two ranks: a call that sends and receives does not show which one it did.
fn pair(one: i64, other: i64) -> (i64, i64) {
    (one.min(other), one.max(other))
}

/// Draws the merged database of `mpi_matching`.
pub(super) fn check_arrows(run: &Run) {
    let trace = run.path("trace");
    fs::create_dir(&trace).unwrap();
    let drawing = rpd_merge().args(["--format", "perfetto", "-o"]).arg(&trace).arg(run.path("run.db"));
    let _ = drawing.run().success();
    for processor in TraceProcessor::all("arrows of messages") {
        let arrows = processor.query(&trace.join("trace.pftrace.gz"), ARROWS);
        // By the start of the receive, the rank that sent.
        let mut senders: BTreeMap<i64, i64> = BTreeMap::new();
        let mut drawn: BTreeMap<(i64, i64), i64> = BTreeMap::new();
        for row in &arrows {
            let (first, second) = row.split_at(3);
            assert!(first[2].as_i64() <= second[2].as_i64(), "{row:?}");
            for [end, other] in [[first, second], [second, first]] {
                if end[1] == "MPI_Recv" && rank(&end[0]) == 0 {
                    senders.insert(end[2].as_i64().unwrap(), rank(&other[0]));
                }
            }
            *drawn.entry(pair(rank(&first[0]), rank(&second[0]))).or_default() += 1;
        }
        let received: Vec<i64> = facts(run, 0, "received").iter().map(|[source, ..]| *source).collect();
        assert_eq!(senders.into_values().collect::<Vec<_>>(), received, "{}", processor.version());
        let mut matched = matched_messages(run);
        matched.retain(|(one, other), count| one != other && *count > 0);
        drawn.retain(|(one, other), _| one != other);
        assert_eq!(drawn, matched, "{}", processor.version());
    }
}
