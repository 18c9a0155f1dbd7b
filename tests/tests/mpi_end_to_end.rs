//! A real job: a training loop on four ranks, collected, merged, counted.

use rpd_tests::harness::{
    Database, Job, binary, dump_difference, mpi_missing, mpirun, python, repository, rpd_merge,
    rpd_merge_mpi, skip,
};
use rpd_tests::measure::family;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const RANKS: usize = 4;

/// Python, if it has what the workload needs.
pub(crate) fn python_with_mpi() -> Result<PathBuf, &'static str> {
    if let Some(why) = mpi_missing() {
        return Err(why);
    }
    let python = python();
    let import = Job::new(&python).args(["-c", "import mpi4py, numpy"]).run();
    if import.code() == Some(0) { Ok(python) } else { Err("Python has no mpi4py or numpy here") }
}

/// What all ranks of the workload counted themselves, summed over the ranks.
fn counted(prefix: &Path, extension: &str) -> BTreeMap<String, i64> {
    let mut sum = BTreeMap::new();
    for rank in 0..RANKS {
        let path = format!("{}.{rank}.{extension}", prefix.display());
        let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
        let counts = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{path}: {error}"));
        let counts: BTreeMap<String, i64> = counts;
        counts.into_iter().for_each(|(name, calls)| *sum.entry(name).or_insert(0) += calls);
    }
    sum
}

/// A short training that is recorded; returns its run folder, which is below `folder`.
pub(crate) fn collected_training(python: &Path, folder: &Path) -> PathBuf {
    let runs = folder.join("runs");
    let job = mpirun(RANKS).arg(binary("rpd-collect")).arg("-o").arg(&runs).arg("--").arg(python);
    let job =
        job.arg(repository().join("tests/workloads/train.py")).args(["--steps", "12", "--delay-ms", "5"]);
    let _ = job.limit(Duration::from_secs(90)).run().success();
    only_folder(&runs)
}

/// The only directory in a directory.
fn only_folder(folder: &Path) -> PathBuf {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let folders: Vec<_> = entries.map(|entry| entry.path()).collect();
    assert_eq!(folders.len(), 1, "{folders:?}");
    folders[0].clone()
}

#[test]
fn a_collected_and_merged_mpi_training_has_every_phase_and_every_mpi_call() {
    let python = match python_with_mpi() {
        Ok(python) => python,
        Err(why) => return skip("the training under rpd-collect", why),
    };
    let folder = tempfile::tempdir().unwrap();
    let (runs, counts) = (folder.path().join("runs"), folder.path().join("counts"));
    let job = mpirun(RANKS).arg(binary("rpd-collect")).arg("-o").arg(&runs).arg("--").arg(python);
    let job =
        job.arg(repository().join("tests/workloads/train.py")).args(["--steps", "12", "--delay-ms", "5"]);
    let training = job.arg("--counts").arg(&counts).limit(Duration::from_secs(90)).run().success();
    assert!(training.stdout.starts_with("ranks: 4, steps: 12, final loss: "), "{training}");
    assert_eq!(training.stdout.lines().count(), 1, "the collector printed on stdout:\n{training}");

    let run = only_folder(&runs);
    let shards = fs::read_dir(&run).unwrap().filter(|entry| {
        let path = entry.as_ref().unwrap().path();
        path.extension().is_some_and(|extension| extension == "rpdshard")
    });
    assert_eq!(shards.count(), RANKS);

    let alone = folder.path().join("alone.db");
    let outcome = rpd_merge().args(["--strict", "-o"]).arg(&alone).arg(&run).run().success();
    assert!(!outcome.stderr.contains("warning"), "{outcome}");
    let _ = rpd_merge_mpi(3).args(["--strict"]).arg(&run).run().success();
    let (alone, together) = (Database::open(&alone), Database::open(&run.join("trace.db")));
    for database in [&alone, &together] {
        database.assert_sound();
        assert_eq!(database.counts("SELECT name FROM regions"), counted(&counts, "json"));
        let marks = "SELECT json_extract(extdata, '$.message') FROM samples WHERE name = 'roctxMark'";
        assert_eq!(database.counts(marks), counted(&counts, "marks.json"));
    }
    assert_eq!(dump_difference(&alone.dump(), &together.dump()), None);
    check_calls(&alone);
}

/// What the calls say besides their number.
fn check_calls(database: &Database) {
    // Phases of one rank do not overlap, and every allreduce call is inside the phase of that name.
    let inside = database.number(
        "SELECT count(*) FROM regions call JOIN regions phase
             ON phase.pid = call.pid AND phase.tid = call.tid AND phase.stack_id = call.parent_stack_id
          WHERE call.name = 'MPI_Allreduce' AND phase.name = 'allreduce'
            AND phase.start <= call.start AND call.\"end\" <= phase.\"end\"",
    );
    let calls = database.number("SELECT count(*) FROM regions WHERE name = 'MPI_Allreduce'");
    assert_eq!((inside, calls), (calls, RANKS as i64 * 12 * 2));
    // All ranks call the same collective with the same number: one group of four per number.
    let groups = database.rows(
        "SELECT DISTINCT count(*), count(DISTINCT r.name), count(DISTINCT r.pid)
           FROM rocpd_arg a JOIN regions r ON r.event_id = a.event_id
          WHERE a.name = 'seq' AND r.name IN ('MPI_Allreduce', 'MPI_Bcast', 'MPI_Reduce', 'MPI_Barrier')
          GROUP BY a.value",
    );
    assert_eq!(groups, [["4", "1", "4"]], "collectives do not match by their number");
    // On one node nobody leaves an allreduce before everybody has entered it.
    let early = database.number(
        "WITH c AS (SELECT a.value AS seq, r.start AS start, r.\"end\" AS finish
                      FROM rocpd_arg a JOIN regions r ON r.event_id = a.event_id
                     WHERE a.name = 'seq' AND r.name = 'MPI_Allreduce')
         SELECT count(*) FROM c x JOIN c y ON x.seq = y.seq WHERE x.finish < y.start",
    );
    assert_eq!(early, 0, "an allreduce was left before another rank entered it");
    // One row per rank, with its number.
    let ranks = database.rows(
        "SELECT json_extract(extdata, '$.rpd.rank') FROM rocpd_info_process WHERE id IN
                                 (SELECT pid FROM rocpd_region) ORDER BY 1",
    );
    assert_eq!(ranks, [["0"], ["1"], ["2"], ["3"]]);
    assert_eq!(database.metadata()["rpd.losses"], ["[]"]);
}

#[test]
fn the_exit_status_of_the_program_is_passed_through_mpirun() {
    if let Some(why) = mpi_missing() {
        return skip("exit status under mpirun", why);
    }
    let folder = tempfile::tempdir().unwrap();
    let job = mpirun(2).arg(binary("rpd-collect")).arg("-o").arg(folder.path());
    let outcome = job.args(["--", "sh", "-c", "exit $((OMPI_COMM_WORLD_RANK * 42))"]).run();
    assert_eq!(outcome.code(), Some(42), "{outcome}");
}

/// Returns the processes of this name among some.
fn named(name: &str, pids: &[u32]) -> Vec<u32> {
    let has_name = |pid: &&u32| {
        let status = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        status.contains(&format!("({name})")) && !status.contains(") Z ")
    };
    pids.iter().filter(has_name).copied().collect()
}

/// Open MPI ends the ranks of a killed mpirun. The collectors complete their shards and end.
#[test]
fn collectors_end_within_five_seconds_of_the_ranks_of_a_killed_mpirun() {
    let what = "collectors after a killed mpirun";
    if let Some(why) = mpi_missing() {
        return skip(what, why);
    }
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("halo");
    let source = repository().join("tests/workloads/halo.c");
    let _ = Job::new("mpicc").arg("-O2").arg("-o").arg(&program).arg(source).run().success();
    let runs = folder.path().join("runs");
    let job = mpirun(2).arg(binary("rpd-collect")).arg("-o").arg(&runs).arg("--").arg(&program);
    let mut mpirun = job.arg("20000").start();
    let until = |what: &str, limit: Duration, is_so: &dyn Fn() -> bool| {
        let began = Instant::now();
        while !is_so() {
            assert!(began.elapsed() < limit, "waited in vain: {what}");
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    let all = || family(mpirun.id());
    let has_begun = || named("halo", &all()).len() == 2 && named("rpd-collector", &all()).len() == 2;
    until("two ranks", Duration::from_secs(60), &has_begun);
    std::thread::sleep(Duration::from_secs(1));
    let (ranks, collectors) = (named("halo", &all()), named("rpd-collector", &all()));
    mpirun.kill().unwrap();
    let _ = mpirun.wait().unwrap();
    until("the ranks have ended", Duration::from_secs(90), &|| named("halo", &ranks).is_empty());
    until("the collectors have ended", Duration::from_secs(5), &|| {
        named("rpd-collector", &collectors).is_empty()
    });
    let database = folder.path().join("trace.db");
    let _ = rpd_merge().arg("-o").arg(&database).arg(only_folder(&runs)).run().success();
    let steps = Database::open(&database).rows("SELECT count(*) FROM regions WHERE name = 'update'");
    assert!(steps[0][0].parse::<u32>().is_ok_and(|steps| steps > 2), "{steps:?}");
}
