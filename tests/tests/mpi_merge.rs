//! The merge does not depend on the number of ranks or threads, and ends as one.

use rpd_tests::harness::{
    Database, JobOutcome, RunFolder, binary, dump_difference, leftovers, mpi_missing, mpirun, rpd_merge,
    rpd_merge_mpi, skip,
};
use rpd_tests::synthetic::SyntheticRun;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A failure in one rank must end the others within this time; start-up and its retry come on top.
const SECONDS_TO_END: f64 = 10.0;

fn run() -> RunFolder {
    RunFolder::new(&SyntheticRun {
        nodes: 3,
        ranks_per_node: 2,
        events_per_rank: 700,
        workers: true,
        equal_pids: true,
        max_drift_ppb: 20_000,
        max_anchor_error: 100_000,
        ..SyntheticRun::default()
    })
}

#[test]
fn any_number_of_threads_gives_the_same_database() {
    let run = run();
    let mut dumps = Vec::new();
    for threads in ["1", "2", "7"] {
        let output = run.beside(&format!("threads-{threads}.db"));
        let _ = rpd_merge().args(["--threads", threads, "-o"]).arg(&output).arg(&run.path).run().success();
        dumps.push(Database::open(&output).dump());
    }
    assert_eq!(dump_difference(&dumps[0], &dumps[1]), None);
    assert_eq!(dump_difference(&dumps[0], &dumps[2]), None);
}

#[test]
fn any_number_of_mpi_ranks_gives_the_same_database_as_one_process() {
    if let Some(why) = mpi_missing() {
        return skip("merge under mpirun", why);
    }
    let run = run();
    let alone = run.merged();
    alone.assert_sound();
    let alone = alone.dump();
    for ranks in [1, 2, 3, 4, 7] {
        let output = run.beside(&format!("ranks-{ranks}.db"));
        let job = rpd_merge_mpi(ranks).arg("-o").arg(&output).arg(&run.path);
        let outcome = job.limit(Duration::from_secs(60)).run().success();
        assert_eq!(outcome.stderr.matches("merged").count(), 1, "one summary, from rank 0:\n{outcome}");
        let database = Database::open(&output);
        database.assert_sound();
        assert_eq!(dump_difference(&alone, &database.dump()), None, "{ranks} ranks");
    }
}

#[test]
fn damage_gives_the_same_ledger_on_any_number_of_ranks() {
    if let Some(why) = mpi_missing() {
        return skip("merge of damaged shards under mpirun", why);
    }
    let run = run();
    for rank in [1, 4] {
        let mut bytes = fs::read(run.shard(rank)).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 0x20;
        bytes.truncate(bytes.len() * 3 / 4 + 1_000 * rank as usize % 500);
        fs::write(run.shard(rank), bytes).unwrap();
    }
    fs::remove_file(run.shard(3)).unwrap();
    let alone = run.merged();
    alone.assert_sound();
    let output = run.beside("three.db");
    let _ = rpd_merge_mpi(3).arg("-o").arg(&output).arg(&run.path).run().success();
    assert_eq!(dump_difference(&alone.dump(), &Database::open(&output).dump()), None);
}

/// Ends with this code in time, tells why once, leaves nothing.
fn assert_ends(outcome: &JobOutcome, code: i32, word: &str, folder: &Path) {
    assert_eq!(outcome.code(), Some(code), "{outcome}");
    assert!(outcome.took.as_secs_f64() < SECONDS_TO_END + 5.0, "{outcome}");
    assert!(!outcome.stderr.contains("panicked"), "{outcome}");
    let errors: Vec<_> = outcome.stderr.lines().filter(|line| line.contains("error: ")).collect();
    assert_eq!(errors.len(), 1, "{outcome}");
    assert!(errors[0].contains(word), "{word} in\n{outcome}");
    assert_eq!(leftovers(folder), Vec::<PathBuf>::new());
}

#[test]
fn a_refusal_ends_all_mpi_ranks_with_its_code() {
    if let Some(why) = mpi_missing() {
        return skip("refusals under mpirun", why);
    }
    let run = run();
    let nowhere = run.beside("nowhere/trace.db");
    let outcome = rpd_merge_mpi(4).arg("-o").arg(&nowhere).arg(&run.path).run();
    assert_ends(&outcome, 5, "nowhere", &run.path);

    fs::remove_file(run.shard(2)).unwrap();
    let outcome = rpd_merge_mpi(4).arg("--strict").arg(&run.path).run();
    assert_ends(&outcome, 3, "rank 2", &run.path);

    fs::write(run.shard(2), b"RPDSHARD but not one").unwrap();
    let outcome = rpd_merge_mpi(4).arg(run.shard(1)).arg(run.shard(2)).run();
    assert_ends(&outcome, 4, "rank-00002", &run.path);

    let outcome = rpd_merge_mpi(4).arg("--no-such-option").run();
    assert_eq!(outcome.code(), Some(2), "{outcome}");
    assert!(outcome.took.as_secs_f64() < SECONDS_TO_END + 5.0, "{outcome}");
}

#[test]
fn a_rank_that_cannot_see_the_inputs_leaves_them_to_the_others() {
    if let Some(why) = mpi_missing() {
        return skip("one rank without its input", why);
    }
    let run = run();
    // Ranks other than 0 run where an empty folder lies over the run: what rank 0 planned is not there.
    let script = "if [ \"$OMPI_COMM_WORLD_RANK\" = 2 ]; then
            mount -t tmpfs tmpfs \"$1\" || { echo cannot mount >&2; exit 99; }
        fi
        shift; exec \"$@\"";
    let output = run.beside("trace.db");
    let job = mpirun(4).args(["unshare", "--mount", "sh", "-c", script, "sh"]).arg(&run.path);
    let outcome = job.arg(binary("rpd-merge")).arg("-o").arg(&output).arg(&run.path).run();
    if outcome.stderr.contains("cannot mount") || outcome.stderr.contains("unshare") {
        return skip("one rank without its input", "a tmpfs cannot be mounted here");
    }
    let outcome = outcome.success();
    assert!(outcome.took.as_secs_f64() < SECONDS_TO_END + 5.0, "{outcome}");
    assert!(outcome.stderr.contains("merge rank 2 cannot read"), "{outcome}");
    assert_eq!(dump_difference(&run.merged().dump(), &Database::open(&output).dump()), None);
}

#[test]
fn a_full_output_disk_ends_all_mpi_ranks_with_its_code() {
    if let Some(why) = mpi_missing() {
        return skip("a full disk under mpirun", why);
    }
    let run = RunFolder::new(&SyntheticRun { events_per_rank: 3_000, ..SyntheticRun::default() });
    let folder = tempfile::tempdir().unwrap();
    let script = "mount -t tmpfs -o size=1m tmpfs \"$1\" || exit 99; folder=$1; shift; \"$@\"; code=$?; \
                  ls -A \"$folder\"; exit $code";
    let inside =
        mpirun(3).arg(binary("rpd-merge")).arg("-o").arg(folder.path().join("trace.db")).arg(&run.path);
    // The same environment, with unshare around it: the ranks see the small disk as mpirun does.
    let job =
        inside.wrapped("unshare", &["--mount", "sh", "-c", script, "sh", &folder.path().to_string_lossy()]);
    let outcome = job.run();
    if outcome.code() == Some(99) || outcome.stderr.contains("unshare") {
        return skip("a full disk under mpirun", "a tmpfs cannot be mounted here");
    }
    assert_ends(&outcome, 5, "disk is full", folder.path());
    assert_eq!(outcome.stdout, "", "left on the full disk:\n{outcome}");
}

#[test]
fn a_killed_mpi_rank_ends_the_others() {
    if let Some(why) = mpi_missing() {
        return skip("one rank killed", why);
    }
    let run = run();
    let script = "if [ \"$OMPI_COMM_WORLD_RANK\" = 1 ]; then kill -9 $$; fi; exec \"$@\"";
    let output = run.beside("trace.db");
    let job = mpirun(3).args(["sh", "-c", script, "sh"]).arg(binary("rpd-merge"));
    let outcome = job.arg("-o").arg(&output).arg(&run.path).run();
    assert!(outcome.status.is_some(), "{outcome}");
    assert_ne!(outcome.code(), Some(0), "{outcome}");
    assert!(outcome.took.as_secs_f64() < SECONDS_TO_END + 5.0, "{outcome}");
    assert!(!output.exists());
}
