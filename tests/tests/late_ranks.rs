//! Which rank the others wait for: real programs of four ranks, each late for a reason of its own (`workloads/late.c`).

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

    /// Records a pattern and returns what the merge reports of it, and its summary.
    fn run(&self, pattern: &str, seed: u64) -> (Value, String) {
        let (id, out) = (format!("{pattern}-{seed}"), self.folder.path().join("runs"));
        let job = mpirun(4).arg(binary("rpd-collect")).arg("-o").arg(&out).args(["--run-id", &id, "--"]);
        let _ = job.arg(&self.program).args([pattern, &seed.to_string()]).run().success();
        merged(&out.join(id))
    }
}

fn merged(run: &Path) -> (Value, String) {
    let outcome = rpd_merge().arg("--json").arg(run).run().success();
    (serde_json::from_str(&outcome.stdout).unwrap(), outcome.stderr)
}

/// Seeds: one, or with RPD_SOAK=1 twenty.
fn seeds() -> std::ops::Range<u64> {
    0..if std::env::var_os("RPD_SOAK").is_some() { 20 } else { 1 }
}

/// Runs a pattern with each seed, and checks the named rank, `None` if none is named.
fn each(pattern: &str, is_right: impl Fn(Option<u64>, &str) -> bool) {
    let Some(bench) = Bench::new() else { return };
    let mut wrong = Vec::new();
    for seed in seeds() {
        let (report, summary) = bench.run(pattern, seed);
        let lateness = &report["lateness"];
        let verdict = lateness["verdict"].as_str().unwrap();
        let line = summary.lines().find(|line| line.starts_with("late ")).unwrap().to_owned();
        if !is_right(lateness["rank"].as_u64(), verdict) {
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
