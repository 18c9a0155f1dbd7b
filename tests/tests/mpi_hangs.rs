//! Programs that hung and were stopped: which calls were open, and for which ranks they waited.

use rpd_tests::harness::{Job, binary, mpi_missing, mpirun, repository, skip};
use serde_json::{Value as Json, json};
use std::path::Path;

fn reported(folder: &Path, pattern: &str) -> Json {
    let (program, runs) = (folder.join(pattern), folder.join("runs"));
    let source = repository().join("tests/workloads/hangs.c");
    let _ = Job::new("mpicc").arg("-o").arg(&program).arg(source).run().success();
    let collect = mpirun(4).arg(binary("rpd-collect")).arg("-o").arg(&runs).args(["--run-id", pattern, "--"]);
    let _ = collect.arg(&program).arg(pattern).run();
    let job =
        Job::new(binary("rpd-report")).args(["hang", "--quiet", "--format", "json"]).arg(runs.join(pattern));
    let report: Json = serde_json::from_str(&job.run().success().stdout).unwrap();
    eprintln!("{pattern}: {report}");
    report
}

/// Rank, call and the ranks that it waits for, of each open call.
fn open_calls(report: &Json) -> Vec<(u64, String, Json)> {
    let row = |row: &Json| {
        let call = row["call"].as_str().unwrap().to_owned();
        (row["rank"].as_u64().unwrap(), call, row["waits_for"].clone())
    };
    let mut rows: Vec<_> = report["hang"].as_array().unwrap().iter().map(row).collect();
    rows.sort_by_key(|row| row.0);
    rows
}

fn expected(rows: &[(u64, &str, Json)]) -> Vec<(u64, String, Json)> {
    rows.iter().map(|(rank, call, waits_for)| (*rank, (*call).to_owned(), waits_for.clone())).collect()
}

#[test]
fn a_rank_that_misses_a_collective_is_named() {
    if let Some(why) = mpi_missing() {
        return skip("hangs of real programs", why);
    }
    let folder = tempfile::tempdir().unwrap();
    let report = reported(folder.path(), "missed");
    let in_allreduce = |rank| (rank, "MPI_Allreduce", json!([2]));
    let rows = [in_allreduce(0), in_allreduce(1), (2, "MPI_Recv", json!([0])), in_allreduce(3)];
    assert_eq!(open_calls(&report), expected(&rows));
    let notes = report["notes"].to_string();
    assert!(
        notes.contains("ranks 2 did not enter MPI_Allreduce, number 21 on MPI_COMM_WORLD, in which 3 wait"),
        "{notes}"
    );
    assert!(notes.contains("rank 2 is in MPI_Recv"), "{notes}");
    assert!(notes.contains("ranks 0,2 wait for one another"), "{notes}");
    let seconds = report["hang"][0]["open_ns"].as_f64().unwrap() / 1e9;
    assert!((1.0..10.0).contains(&seconds), "{seconds}");
}

#[test]
fn a_rank_outside_of_mpi_is_named_and_no_circle() {
    if let Some(why) = mpi_missing() {
        return skip("hangs of real programs", why);
    }
    let folder = tempfile::tempdir().unwrap();
    let report = reported(folder.path(), "outside");
    let in_barrier = |rank| (rank, "MPI_Barrier", json!([1]));
    assert_eq!(open_calls(&report), expected(&[in_barrier(0), in_barrier(2), in_barrier(3)]));
    let notes = report["notes"].to_string();
    assert!(notes.contains("ranks 1 did not enter MPI_Barrier") && !notes.contains("one another"), "{notes}");
    assert!(notes.contains("rank 1 has returned from MPI_Allreduce"), "{notes}");
}

#[test]
fn circles_of_receives_are_found() {
    if let Some(why) = mpi_missing() {
        return skip("hangs of real programs", why);
    }
    let folder = tempfile::tempdir().unwrap();
    let report = reported(folder.path(), "receives");
    let rows: Vec<_> = (0..4u64).map(|rank| (rank, "MPI_Recv", json!([rank ^ 1]))).collect();
    assert_eq!(open_calls(&report), expected(&rows));
    let notes = report["notes"].to_string();
    assert!(notes.contains("ranks 0-1 wait") && notes.contains("ranks 2-3 wait"), "{notes}");
    let report = reported(folder.path(), "waits");
    let rows: Vec<_> = (0..4u64).map(|rank| (rank, "MPI_Waitall", json!([(rank + 1) % 4]))).collect();
    assert_eq!(open_calls(&report), expected(&rows));
    assert_eq!(report["hang"][0]["operation"], "from rank 1, tag 1", "{report}");
}

#[test]
fn a_run_that_ended_has_no_open_calls() {
    if let Some(why) = mpi_missing() {
        return skip("hangs of real programs", why);
    }
    let folder = tempfile::tempdir().unwrap();
    let report = reported(folder.path(), "none");
    assert_eq!((&report["hang"], &report["notes"]), (&json!([]), &json!([])), "{report}");
}
