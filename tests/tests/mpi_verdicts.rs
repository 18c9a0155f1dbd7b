//! Real programs of which a verdict is easily wrong, because no message or collective shows what their ranks wait for, or
//! because their ranks call different functions.

use crate::report_verdict::json;
use crate::run_calls::recorded;
use rpd_tests::harness::{mpi_missing, skip};
use serde_json::Value as Json;

/// Verdict on a program, with its reasons and findings.
fn verdict_on(pattern: &str, slow_rank: &str) -> Json {
    let folder = tempfile::tempdir().unwrap();
    let database = recorded(folder.path(), "verdicts.c", &[pattern, slow_rank]);
    let report = json(&[], &database);
    eprintln!("{pattern} {slow_rank}: {}", report["headline"]);
    report
}

#[test]
fn alone_unrecorded_waiting_makes_no_firm_verdict() {
    if let Some(why) = mpi_missing() {
        return skip("verdicts on real programs", why);
    }
    for (pattern, reason) in [
        ("fence", " longer in calls than others, most in MPI_Win_fence, "),
        ("large", " longer in calls than others, most in MPI_Wait, "),
        ("polls", "a rank pauses between polls ("),
    ] {
        let report = verdict_on(pattern, "2");
        // A name is right only if it is that of the slow rank.
        if report["verdict"] == "slow" {
            assert_eq!(report["findings"][0]["subject"]["ranks"], serde_json::json!([2]), "{report}");
            continue;
        }
        assert_eq!(report["verdict"], "cannot_tell", "{report}");
        assert!(report["reasons"].to_string().contains(reason), "{report}");
    }
}

#[test]
fn alone_ranks_with_other_calls_are_compared_by_the_sum_of_their_work() {
    if let Some(why) = mpi_missing() {
        return skip("verdicts on real programs", why);
    }
    let equal = verdict_on("line", "-1");
    assert_eq!(equal["findings"], serde_json::json!([]), "{equal}");
    let (gain, length) = (&equal["gain_of_all"]["ns"], &equal["run"]["length_ns"]);
    let share = gain.as_f64().unwrap() / length.as_f64().unwrap();
    assert!(share < 0.1, "equal work would save {share}: {equal}");
    let slow = verdict_on("line", "2");
    assert_eq!(slow["verdict"], "slow", "{slow}");
    assert_eq!(slow["findings"][0]["subject"]["ranks"], serde_json::json!([2]), "{slow}");
}
