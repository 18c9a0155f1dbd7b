//! `rpd-report` of inputs that are not merged, and on many ranks: the same bytes as from the merged database.

use crate::report_tables::SUBCOMMANDS;
use crate::report_verdict::slow_stencil;
use rpd_tests::fixtures;
use rpd_tests::harness::{Job, RunFolder, binary, mpi_missing, mpirun, repository, rpd_merge, skip};
use rpd_tests::synthetic::{SyntheticRun, write_rocpd};
use rpd_tests::truth::{Scenario, ScenarioKind, ScenarioSize, write_scenario};
use std::fs;
use std::path::{Path, PathBuf};

/// Subcommands that any run has.
const OF_ANY_RUN: [&[&str]; 15] = [
    &[],
    &["--explain"],
    &["summary"],
    &["summary", "--by-rank"],
    &["summary", "--window", "0.01..0.05"],
    &["ranks"],
    &["collectives"],
    &["gpu"],
    &["anomalies"],
    &["hang"],
    &["blame"],
    &["steps"],
    &["messages"],
    &["clocks"],
    &["integrity"],
];
/// The note of `--explain` that depends on the form of a run.
const UNMERGED: &str =
    ",\n    \"the run is not merged: rpd-merge of the same inputs writes rows with these keys\"";

/// The object of a subcommand, without what depends on the form of the run.
fn object(job: Job, arguments: &[&str], inputs: &[PathBuf]) -> String {
    let job = job.args(arguments).args(["--format", "json", "--quiet"]).args(inputs);
    job.run().success().stdout.replace(UNMERGED, "")
}

fn report() -> Job {
    Job::new(binary("rpd-report"))
}

fn report_mpi(ranks: usize) -> Job {
    let _ = binary("rpd-report-mpi");
    mpirun(ranks).arg(binary("rpd-report"))
}

/// Inputs of many kinds and origins, of one run.
fn mixed(folder: &Path) -> (RunFolder, Vec<PathBuf>) {
    let run = RunFolder::new(&SyntheticRun { workers: true, ..SyntheticRun::default() });
    let databases = SyntheticRun { seed: 5, events_per_rank: 60, ..SyntheticRun::default() };
    let mut inputs = write_rocpd(&databases.plan(), &folder.join("in")).unwrap();
    inputs.push(run.path.clone());
    inputs.extend(fixtures::rpd_files(&folder.join("in")));
    inputs.extend(fixtures::rocprofv3_json(&folder.join("in")));
    (run, inputs)
}

fn merged(folder: &Path, inputs: &[PathBuf]) -> PathBuf {
    merged_as(folder, "merged", inputs)
}

fn merged_as(folder: &Path, layout: &str, inputs: &[PathBuf]) -> PathBuf {
    let database = folder.join(format!("{layout}.db"));
    let merge = rpd_merge().args(["--quiet", "--layout", layout, "-o"]).arg(&database);
    let _ = merge.args(inputs).run().success();
    database
}

/// A run whose analysis needs more than 16 MiB, on one rank and on two. Tables need little memory for any number of rows.
#[test]
fn calls_beyond_the_memory_are_refused_with_and_without_mpi() {
    if let Some(why) = mpi_missing() {
        return skip("reports under mpirun", why);
    }
    let drawn = ScenarioSize::drawn(ScenarioKind::Stencil, 3);
    let size = ScenarioSize { ranks: 8, subject: 2, steps: 5_000, ..drawn };
    let folder = tempfile::tempdir().unwrap();
    let run = write_scenario(&Scenario::sized(ScenarioKind::Stencil, size), &[], folder.path()).unwrap();
    let database = merged(folder.path(), std::slice::from_ref(&run));
    let refused = |job: Job, arguments: &[&str]| {
        let outcome = job.args(["--memory", "32M"]).args(arguments).arg(&database).run();
        assert_eq!(outcome.code(), Some(2), "{outcome}");
        let expected = "error: --memory 32 MiB is too little to analyse the calls to MPI and the GPU work of this run; \
            give it about --memory ";
        assert_eq!(outcome.stderr.matches(expected).count(), 1, "{outcome}");
        outcome.stderr
    };
    let _ = refused(report(), &[]);
    std::fs::remove_file(database.with_extension("calls")).unwrap();
    let reason = refused(report(), &["blame"]);
    let named = reason.split("give it about --memory ").nth(1).unwrap().split(',').next().unwrap();
    let _ = refused(report_mpi(2), &[]);
    // Each of two ranks has memory for its own calls.
    let all = report_mpi(2).args(["--threads", "1", "--memory", "60M"]).arg(&database).run();
    assert_eq!((all.code(), all.stderr.matches("error: ").count()), (Some(2), 1), "{all}");
    for (arguments, memory) in [(&["summary"][..], "32M"), (&[], named), (&["--window", "0..0.01"], "32M")] {
        let _ = report().args(arguments).args(["--memory", memory]).arg(&database).run().success();
    }
}

#[test]
fn inputs_of_all_kinds_need_no_merge() {
    let folder = tempfile::tempdir().unwrap();
    let (_run, inputs) = mixed(folder.path());
    let database = merged(folder.path(), &inputs);
    let partitioned = vec![merged_as(folder.path(), "partitioned", &inputs)];
    let before = fs::read_dir(folder.path()).unwrap().count();
    for (number, arguments) in OF_ANY_RUN.into_iter().enumerate() {
        let expected = object(report(), arguments, std::slice::from_ref(&database));
        // Each form has 1 to 4 threads in turn.
        for (form, more, inputs) in
            [("inputs", 0, &inputs), ("inputs", 2, &inputs), ("partitioned", 1, &partitioned)]
        {
            let threads = ((number + more) % 4 + 1).to_string();
            let found = object(report().args(["--threads", &threads]), arguments, inputs);
            assert!(
                found == expected,
                "{arguments:?} of {form} with {threads} threads:\n{found}\n{expected}"
            );
        }
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), before, "a report leaves no files");
}

/// Rows of a translated database refer to each other by the keys of that database.
#[test]
fn kept_shards_need_no_merge() {
    for names in [&["shard-v3-database"][..], &["shard-v3"], &["shard-v2-rank-0", "shard-v2"]] {
        let folder = tempfile::tempdir().unwrap();
        let data = repository().join("tests/data");
        let inputs: Vec<PathBuf> = names.iter().map(|name| data.join(format!("{name}.rpdshard"))).collect();
        let database = merged(folder.path(), &inputs);
        // The runs are shorter than the window.
        for arguments in OF_ANY_RUN.into_iter().filter(|arguments| !arguments.contains(&"--window")) {
            let expected = object(report(), arguments, std::slice::from_ref(&database));
            let found = object(report(), arguments, &inputs);
            assert!(found == expected, "{arguments:?} of {names:?}:\n{found}\n{expected}");
        }
    }
}

#[test]
fn damaged_shards_give_the_report_of_their_merge() {
    let folder = tempfile::tempdir().unwrap();
    let run = RunFolder::new(&SyntheticRun { events_per_rank: 400, ..SyntheticRun::default() });
    let bytes = fs::read(run.shard(1)).unwrap();
    fs::write(run.shard(1), &bytes[..bytes.len() * 2 / 3]).unwrap();
    let mut bytes = fs::read(run.shard(2)).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x40;
    fs::write(run.shard(2), &bytes).unwrap();
    fs::remove_file(run.shard(3)).unwrap();
    let inputs = [run.path.clone()];
    let database = merged(folder.path(), &inputs);
    for arguments in OF_ANY_RUN.into_iter().filter(|arguments| *arguments != ["integrity"]) {
        let expected = object(report(), arguments, std::slice::from_ref(&database));
        let found = object(report(), arguments, &inputs);
        assert!(found == expected, "{arguments:?}:\n{found}\n{expected}");
    }
    let found = object(report(), &["integrity"], &inputs);
    assert!(found.contains("lost rows") && found.contains("missing ranks"), "{found}");
}

#[test]
fn a_report_is_the_same_on_any_mpi_ranks() {
    if let Some(why) = mpi_missing() {
        return skip("reports under mpirun", why);
    }
    let folder = tempfile::tempdir().unwrap();
    let (_run, inputs) = mixed(folder.path());
    let database = merged(folder.path(), &inputs);
    let partitioned = merged_as(folder.path(), "partitioned", &inputs);
    for (number, (ranks, arguments)) in (2..=4).cycle().zip(OF_ANY_RUN).enumerate() {
        let expected = object(report(), arguments, std::slice::from_ref(&database));
        // The two databases take turns.
        let stored = if number % 2 == 0 { &database } else { &partitioned };
        for (form, inputs) in [("inputs", &inputs), ("database", &vec![stored.clone()])] {
            let found = object(report_mpi(ranks), arguments, inputs);
            assert!(found == expected, "{arguments:?} of {form} on {ranks} ranks:\n{found}\n{expected}");
        }
    }
}

#[test]
fn a_verdict_is_the_same_on_any_mpi_ranks() {
    if let Some(why) = mpi_missing() {
        return skip("reports under mpirun", why);
    }
    let (_, _folder, database) = slow_stencil();
    let shards = database.parent().unwrap().to_owned();
    let only = [database.clone()];
    let hidden = shards.join("hidden");
    for (ranks, arguments) in (2..=4).cycle().zip(SUBCOMMANDS) {
        let expected = object(report(), arguments, &only);
        assert!(object(report_mpi(ranks), arguments, &only) == expected, "{arguments:?} of the database");
        fs::rename(&database, &hidden).unwrap();
        let found = object(report_mpi(ranks), arguments, std::slice::from_ref(&shards));
        fs::rename(&hidden, &database).unwrap();
        assert!(found == expected, "{arguments:?} of shards on {ranks} ranks:\n{found}\n{expected}");
    }
}

#[test]
fn a_failure_under_mpirun_is_printed_once_and_ends_all_ranks() {
    if let Some(why) = mpi_missing() {
        return skip("reports under mpirun", why);
    }
    let (_, folder, database) = slow_stencil();
    for (arguments, exit, message) in [
        (&["blame", "--rank", "77"][..], 2, "rank 77"),
        (&["--ranks", "77"], 2, "no process of the run is selected"),
        (&["--format", "csv"], 2, "add a subcommand"),
        (&["--memory", "1"], 2, "--memory"),
    ] {
        let outcome = report_mpi(3).args(arguments).arg(&database).run();
        assert_eq!(outcome.code(), Some(exit), "{outcome}");
        assert_eq!(outcome.stderr.matches(message).count(), 1, "{outcome}");
    }
    let nothing = folder.path().join("nothing");
    let outcome = report_mpi(2).arg(&nothing).run();
    assert_eq!((outcome.code(), outcome.stderr.matches("error: ").count()), (Some(4), 1), "{outcome}");
}
