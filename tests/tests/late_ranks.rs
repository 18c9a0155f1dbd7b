//! Which rank enters collectives last: real programs of four ranks, each late for a reason of its own (`workloads/late.c`).

use rpd_tests::harness::{Job, binary, mpi_missing, mpirun, repository, rpd_merge, skip};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// The compiled program, and a folder for its runs.
struct Bench {
    folder: tempfile::TempDir,
    program: PathBuf,
}

impl Bench {
    fn new() -> Option<Bench> {
        if let Some(why) = mpi_missing() {
            skip("which rank is late", why);
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("late");
        let source = repository().join("tests/workloads/late.c");
        let _ = Job::new("mpicc").args(["-O1", "-Wall", "-o"]).arg(&program).arg(source).run().success();
        Some(Bench { folder, program })
    }

    /// Records a pattern with so many ranks and returns what the merge reports of it, and its summary.
    fn run(&self, ranks: usize, pattern: &str, seed: u64) -> (Value, String) {
        let (id, out) = (format!("{pattern}-{seed}"), self.folder.path().join("runs"));
        let job = mpirun(ranks).arg(binary("rpd-collect")).arg("-o").arg(&out).args(["--run-id", &id, "--"]);
        let outcome = job.arg(&self.program).args([pattern, &seed.to_string()]).run();
        // One rank ends the others.
        if pattern != "never" {
            let _ = outcome.success();
        }
        merged(&out.join(id))
    }
}

/// Merges a run. The line `late` is the verdict of rpd-report on it.
fn merged(run: &Path) -> (Value, String) {
    let outcome = rpd_merge().arg("--json").arg(run).run().success();
    if let Some(late) = outcome.stderr.lines().find_map(|line| line.strip_prefix("late ")) {
        let report = Job::new(binary("rpd-report")).args(["--format", "json"]).arg(run).run().success();
        let report: Value = serde_json::from_str(&report.stdout).unwrap();
        assert_eq!(Some(late.trim()), report["headline"].as_str(), "{report}");
        eprintln!("{late}");
    }
    (serde_json::from_str(&outcome.stdout).unwrap(), outcome.stderr)
}

/// Seeds: one, or with RPD_SOAK=1 twenty.
fn seeds() -> std::ops::Range<u64> {
    0..if std::env::var_os("RPD_SOAK").is_some() { 20 } else { 1 }
}

/// Runs a pattern with each seed, and checks the named rank, `None` if none is named.
fn each(pattern: &str, is_right: impl Fn(Option<u64>, &str) -> bool) {
    each_line(pattern, |named, verdict, _| is_right(named, verdict));
}

/// The same with the line `waiting`.
fn each_line(pattern: &str, is_right: impl Fn(Option<u64>, &str, &str) -> bool) {
    each_line_of(4, pattern, is_right);
}

/// The same with so many ranks.
fn each_line_of(ranks: usize, pattern: &str, is_right: impl Fn(Option<u64>, &str, &str) -> bool) {
    let Some(bench) = Bench::new() else { return };
    let mut wrong = Vec::new();
    for seed in seeds() {
        let (report, summary) = bench.run(ranks, pattern, seed);
        let lateness = &report["lateness"];
        let verdict = lateness["verdict"].as_str().unwrap();
        let line = summary.lines().find(|line| line.starts_with("waiting ")).unwrap().to_owned();
        if !is_right(lateness["rank"].as_u64(), verdict, &line) {
            wrong.push(format!("seed {seed}: {line}\n{lateness}\n{}", report["late_ranks"]));
        }
        eprintln!("{pattern} {seed}: {line}");
    }
    assert!(wrong.is_empty(), "{} of {} are wrong: {wrong:#?}", wrong.len(), seeds().end);
}

#[test]
fn in_a_chain_the_rank_that_sleeps_is_named_and_no_victim_alone_under_mpi() {
    each("chain", |named, verdict| named == Some(1) || named.is_none() && verdict != "nobody");
}

#[test]
fn in_a_stencil_the_victims_of_a_slow_rank_are_not_named_alone_under_mpi() {
    each("stencil", |named, verdict| named.is_none_or(|rank| rank == 2) && verdict != "node");
}

#[test]
fn in_a_pipeline_of_equal_stages_no_rank_is_named_alone_under_mpi() {
    each("pipeline", |_, verdict| verdict == "held_up_by_messages");
}

#[test]
fn in_a_ring_no_rank_is_named_alone_under_mpi() {
    each("ring", |_, verdict| verdict == "held_up_by_messages" || verdict == "nobody");
}

#[test]
fn a_rank_that_sleeps_before_each_collective_is_named_alone_under_mpi() {
    each("sleeper", |named, _| named == Some(2));
}

#[test]
fn the_others_wait_for_the_rank_that_sleeps_alone_under_mpi() {
    let Some(bench) = Bench::new() else { return };
    let (report, summary) = bench.run(4, "sleeper", 1);
    assert_eq!(report["verdict"]["findings"][0]["subject"]["ranks"], serde_json::json!([2]), "{summary}");
    assert!(summary.contains("\nlate       SLOW rank 2 on "), "{summary}");
}

#[test]
fn a_rank_that_sleeps_once_amid_stencil_messages_is_named_alone_under_mpi() {
    each("stencil-sleep", |named, _| named == Some(2));
}

#[test]
fn in_a_balanced_run_no_rank_is_named_alone_under_mpi() {
    each("balanced", |named, verdict| named.is_none() && matches!(verdict, "nobody" | "no_single_rank"));
}

#[test]
fn where_ranks_take_turns_no_rank_is_named_alone_under_mpi() {
    each("turns", |named, verdict| named.is_none() && verdict == "no_single_rank");
}

#[test]
fn two_ranks_that_are_equally_slow_are_late_together_alone_under_mpi() {
    each_line("two", |named, _, line| {
        named.is_none() && line.contains("no single rank: ranks 1 and 2 were late together")
    });
}

#[test]
fn three_slow_ranks_without_messages_are_late_together_alone_under_mpi() {
    each_line("three", |named, _, line| {
        named.is_none() && line.contains("no single rank: ranks 1-3 were late together")
    });
}

#[test]
fn of_two_ranks_that_are_late_in_turn_none_is_named_alone_under_mpi() {
    each("alternate", |named, verdict| named.is_none() && verdict == "no_single_rank");
}

#[test]
fn a_rank_that_polls_for_the_message_of_a_slow_one_is_not_named_alone_under_mpi() {
    each("poll", |named, verdict| named == Some(1) || verdict == "calls_missing");
}

#[test]
fn waiting_in_calls_that_are_not_compared_is_not_denied_alone_under_mpi() {
    each_line("broadcast", |named, _, line| {
        named.is_none()
            && line.contains("cannot tell which rank entered last: ranks spent")
            && line.contains("MPI_Bcast")
    });
}

#[test]
fn a_collective_that_one_rank_never_enters_is_named_alone_under_mpi() {
    each_line("never", |named, verdict, line| {
        let what = "rank 1 never entered MPI_Allreduce (collective 22 on MPI_COMM_WORLD), in which the others waited up to ";
        named == Some(1) && verdict == "never_entered" && line.contains(what)
    });
}

#[test]
fn a_rank_that_is_late_before_ranks_ever_met_is_named_where_that_is_no_start_up_alone_under_mpi() {
    each("start-up", |named, _| named == Some(3));
}

#[test]
fn only_the_collectives_that_carry_the_waiting_are_counted_alone_under_mpi() {
    // Other collectives add some percent where the machine is busy.
    each_line("once", |named, _, line| {
        let counted =
            (1..=4).any(|count| line.contains(&format!("before {count} of 41 collectives it spent 4")));
        let counted = counted || line.contains("before 1 of 41 collectives it spent 5");
        named == Some(2) && counted
    });
}

#[test]
fn where_messages_arrive_in_other_threads_nothing_can_be_told_alone_under_mpi() {
    each_line("threads", |named, _, line| {
        named.is_none()
            && line.contains("cannot tell which rank entered last: ranks call MPI in several threads")
    });
}

#[test]
fn waiting_at_fences_of_windows_is_not_denied_alone_under_mpi() {
    each_line("window", |named, _, line| {
        named.is_none()
            && line.contains("cannot tell which rank entered last: ranks spent")
            && line.contains("MPI_Win_fence")
    });
}

#[test]
fn waiting_at_the_end_is_not_denied_alone_under_mpi() {
    each_line("finalize", |named, _, line| {
        named.is_none()
            && line.contains("cannot tell which rank entered last: ranks spent")
            && line.contains("MPI_Finalize")
    });
}

#[test]
fn in_a_grid_the_rank_that_is_late_in_its_row_is_named_alone_under_mpi() {
    for ranks in [4, 9] {
        each_line_of(ranks, "grid", |named, _, _| named == Some(1));
    }
}

#[test]
fn a_rank_that_polls_while_it_works_is_not_held_up_by_messages_alone_under_mpi() {
    each_line("poll-at-work", |named, _, line| {
        named == Some(0) || line.contains("cannot tell which rank entered last: ranks polled for messages")
    });
}

#[test]
fn ranks_that_start_one_after_another_wait_in_init_alone_under_mpi() {
    let Some(bench) = Bench::new() else { return };
    let (report, summary) = bench.run(4, "stagger", 0);
    // 0.9, 0.6 and 0.3 s.
    let waited = report["lateness"]["start_up"]["init_waited_ns"].as_i64().unwrap();
    assert!((1_500_000_000..2_500_000_000).contains(&waited), "{report}");
    assert!(summary.contains(" s in MPI_Init"), "{summary}");
}

#[test]
fn of_a_single_rank_nothing_is_said_alone_under_mpi() {
    let Some(bench) = Bench::new() else { return };
    let (report, summary) = bench.run(1, "balanced", 0);
    assert!(report.get("lateness").is_none(), "{report}");
    assert!(
        !summary.lines().any(|line| line.starts_with("waiting ") || line.starts_with("late ")),
        "{summary}"
    );
}
