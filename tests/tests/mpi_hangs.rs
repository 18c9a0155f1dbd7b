//! Programs that hung and were stopped: which calls were open, and for which ranks they waited.

use rpd_tests::harness::{Job, binary, mpi_missing, mpirun, repository, skip};
use rpd_tests::synthetic::RandomSource;
use serde_json::{Value as Json, json};
use std::path::Path;

/// A run of `tests/workloads/hangs.c`.
#[derive(Clone, Copy, Debug)]
struct HangingRun {
    ranks: u64,
    subject: u64,
    steps: u64,
}

/// Returns a run and, in the long tests, 19 others with as many ranks or a multiple of them.
fn hangs(first: HangingRun, multiple: u64) -> Vec<HangingRun> {
    let is_long = std::env::var("RPD_SOAK").is_ok_and(|value| value == "1");
    let drawn = (1..if is_long { 20 } else { 1 }).map(|seed| {
        let mut random = RandomSource::new(&[seed, 26]);
        let ranks = multiple * random.between(3u64.div_ceil(multiple) as i64, (6 / multiple) as i64) as u64;
        HangingRun { ranks, subject: random.index(ranks as usize) as u64, steps: 1 + random.index(30) as u64 }
    });
    [first].into_iter().chain(drawn).collect()
}

/// Returns the report on open calls, with the verdict of the first screen under the key `screen`.
fn reported(folder: &Path, pattern: &str, hang: HangingRun) -> Json {
    // Several runs may be drawn alike.
    let runs = tempfile::tempdir_in(folder).unwrap();
    let (program, runs) = (folder.join(pattern), runs.path());
    let source = repository().join("tests/workloads/hangs.c");
    let _ = Job::new("mpicc").arg("-o").arg(&program).arg(source).run().success();
    let name = format!("{pattern}-{}-{}-{}", hang.ranks, hang.subject, hang.steps);
    let collect = mpirun(hang.ranks as usize).arg(binary("rpd-collect")).arg("-o").arg(runs);
    let collect = collect.args(["--run-id", &name, "--"]).arg(&program);
    let _ = collect.args([pattern, &hang.subject.to_string(), &hang.steps.to_string()]).run();
    let job =
        Job::new(binary("rpd-report")).args(["hang", "--quiet", "--format", "json"]).arg(runs.join(&name));
    let mut report: Json = serde_json::from_str(&job.run().success().stdout).unwrap();
    let job = Job::new(binary("rpd-report")).args(["--quiet", "--format", "json"]).arg(runs.join(&name));
    report["screen"] = serde_json::from_str(&job.run().success().stdout).unwrap();
    eprintln!("{pattern} {hang:?}: {report}");
    let screen =
        Job::new(binary("rpd-report")).args(["--quiet"]).arg(runs.join(&name)).run().success().stdout;
    let is_open = report["hang"] != json!([]);
    assert_eq!(screen.contains("calls that did not return: rpd-report hang "), is_open, "{screen}");
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

/// Asserts that the first screen says that the run hung, why, and by which ranks.
fn assert_hang(report: &Json, cause: &str, ranks: &[u64]) {
    let screen = &report["screen"];
    let finding = &screen["findings"][0];
    let expected = (json!("hang"), json!(cause), json!(ranks));
    let found = (screen["verdict"].clone(), finding["cause"].clone(), finding["subject"]["ranks"].clone());
    assert_eq!(found, expected, "{}", screen["headline"]);
    assert_ended(report, finding);
}

/// Asserts that nothing is derived from the time in open calls.
fn assert_ended(report: &Json, finding: &Json) {
    assert!(finding["stalled_ns"].as_i64().unwrap() > 1_000_000_000, "{finding}");
    assert_eq!(report["screen"]["efficiency"], Json::Null, "the time in open calls is no communication");
}

/// Calls of all ranks but the subject, which wait for it.
fn others_wait(hang: HangingRun, call: &str) -> Vec<(u64, String, Json)> {
    let others = (0..hang.ranks).filter(|rank| *rank != hang.subject);
    others.map(|rank| (rank, call.to_owned(), json!([hang.subject]))).collect()
}

fn assert_notes(report: &Json, expected: &[String]) {
    let notes = report["notes"].to_string();
    for note in expected {
        assert!(notes.contains(note), "no {note:?} in {notes}");
    }
}

#[test]
fn a_rank_that_misses_a_collective_is_named() {
    if let Some(why) = mpi_missing() {
        return skip("hangs of real programs", why);
    }
    let folder = tempfile::tempdir().unwrap();
    for hang in hangs(HangingRun { ranks: 4, subject: 2, steps: 20 }, 1) {
        let report = reported(folder.path(), "missed", hang);
        let (subject, next) = (hang.subject, (hang.subject + 1) % hang.ranks);
        let mut rows = others_wait(hang, "MPI_Allreduce");
        rows.push((subject, "MPI_Recv".to_owned(), json!([next])));
        rows.sort_by_key(|row| row.0);
        assert_eq!(open_calls(&report), rows);
        let number = hang.steps + 1;
        let inside = hang.ranks - 1;
        assert_notes(
            &report,
            &[
                format!(
                    "rank {subject} did not enter MPI_Allreduce, collective {number} on MPI_COMM_WORLD, in which"
                ),
                format!("{inside} ranks wait; rank {subject} is in MPI_Recv"),
                " wait for one another".to_owned(),
            ],
        );
        let mut circle = [subject, next];
        circle.sort_unstable();
        assert_hang(&report, "deadlock", &circle);
        let seconds = report["hang"][0]["open_ns"].as_f64().unwrap() / 1e9;
        assert!((1.0..10.0).contains(&seconds), "{seconds}");
    }
}

#[test]
fn a_rank_outside_of_mpi_is_named_and_no_circle() {
    if let Some(why) = mpi_missing() {
        return skip("hangs of real programs", why);
    }
    let folder = tempfile::tempdir().unwrap();
    for hang in hangs(HangingRun { ranks: 4, subject: 1, steps: 20 }, 1) {
        let report = reported(folder.path(), "outside", hang);
        assert_eq!(open_calls(&report), others_wait(hang, "MPI_Barrier"));
        let subject = hang.subject;
        let absent = format!("rank {subject} did not enter MPI_Barrier");
        assert_notes(&report, &[absent, format!("rank {subject} returned from MPI_Allreduce")]);
        assert!(!report["notes"].to_string().contains("one another"), "{report}");
        assert_hang(&report, "missing", &[subject]);
    }
}

#[test]
fn a_rank_that_polls_without_end_is_named() {
    if let Some(why) = mpi_missing() {
        return skip("hangs of real programs", why);
    }
    let folder = tempfile::tempdir().unwrap();
    for hang in hangs(HangingRun { ranks: 4, subject: 1, steps: 20 }, 1) {
        let report = reported(folder.path(), "polls", hang);
        assert_notes(
            &report,
            &[
                format!("rank {} did not enter MPI_Barrier", hang.subject),
                "no rank did more than poll".to_owned(),
            ],
        );
        assert_hang(&report, "missing", &[hang.subject]);
    }
}

#[test]
fn a_rank_that_died_is_named_and_no_hang() {
    if let Some(why) = mpi_missing() {
        return skip("hangs of real programs", why);
    }
    let folder = tempfile::tempdir().unwrap();
    for hang in hangs(HangingRun { ranks: 4, subject: 1, steps: 20 }, 1) {
        let report = reported(folder.path(), "died", hang);
        let finding = &report["screen"]["findings"][0];
        let found = (&report["screen"]["verdict"], &finding["cause"], &finding["subject"]["ranks"]);
        assert_eq!(found, (&json!("crash"), &json!("died"), &json!([hang.subject])), "{report}");
        let headline = report["screen"]["headline"].as_str().unwrap();
        let died = format!("CRASH rank {} died by signal 9 (SIGKILL); ", hang.subject);
        assert!(headline.starts_with(&died), "{headline}");
        assert_ended(&report, finding);
    }
}

#[test]
fn circles_of_receives_are_found() {
    if let Some(why) = mpi_missing() {
        return skip("hangs of real programs", why);
    }
    let folder = tempfile::tempdir().unwrap();
    for hang in hangs(HangingRun { ranks: 4, subject: 0, steps: 20 }, 2) {
        let report = reported(folder.path(), "receives", hang);
        let rows: Vec<_> =
            (0..hang.ranks).map(|rank| (rank, "MPI_Recv".to_owned(), json!([rank ^ 1]))).collect();
        assert_eq!(open_calls(&report), rows);
        let pairs = (0..hang.ranks).step_by(2);
        let notes: Vec<String> =
            pairs.map(|rank| format!("ranks {rank}-{} wait for one another", rank + 1)).collect();
        assert_notes(&report, &notes);
        let all: Vec<u64> = (0..hang.ranks).collect();
        assert_hang(&report, "deadlock", &all);
        let report = reported(folder.path(), "waits", hang);
        let next = |rank| (rank + 1) % hang.ranks;
        let rows: Vec<_> =
            (0..hang.ranks).map(|rank| (rank, "MPI_Waitall".to_owned(), json!([next(rank)]))).collect();
        assert_eq!(open_calls(&report), rows);
        assert_eq!(report["hang"][0]["operation"], "message from rank 1, tag 1", "{report}");
        assert_hang(&report, "deadlock", &all);
    }
}

#[test]
fn different_roots_of_a_collective_are_named() {
    if let Some(why) = mpi_missing() {
        return skip("hangs of real programs", why);
    }
    let folder = tempfile::tempdir().unwrap();
    for hang in hangs(HangingRun { ranks: 4, subject: 3, steps: 20 }, 1) {
        let report = reported(folder.path(), "roots", hang);
        let (subject, root) = (hang.subject, (hang.subject + 1) % hang.ranks);
        let number = hang.steps + 1;
        assert_notes(
            &report,
            &[
                format!("collective {number} on MPI_COMM_WORLD: "),
                format!("rank {subject} entered MPI_Reduce with root {subject}"),
                format!(" entered MPI_Reduce with root {root}"),
            ],
        );
        let open = open_calls(&report);
        let of_subject = open.iter().find(|row| row.0 == subject).expect("the subject waits");
        assert_eq!(of_subject.1, "MPI_Reduce");
        let finding = &report["screen"]["findings"][0];
        assert_eq!((&finding["kind"], &finding["cause"]), (&json!("hang"), &json!("disagreement")));
        assert!(finding["subject"]["ranks"].as_array().unwrap().contains(&json!(subject)), "{finding}");
    }
}

#[test]
fn a_run_that_ended_has_no_open_calls() {
    if let Some(why) = mpi_missing() {
        return skip("hangs of real programs", why);
    }
    let folder = tempfile::tempdir().unwrap();
    let report = reported(folder.path(), "none", HangingRun { ranks: 4, subject: 0, steps: 20 });
    let all_ended = json!(["all recorded calls had returned when the recording ended"]);
    assert_eq!((&report["hang"], &report["notes"]), (&json!([]), &all_ended), "{report}");
    assert_ne!(report["screen"]["verdict"], "hang", "{report}");
}
