//! The line `late` of a merge: the verdict of `rpd-report`, wherever the merge prints and stores it.

use rpd_tests::fixtures;
use rpd_tests::harness::{Job, JobOutcome, binary, mpi_missing, repository, rpd_merge, rpd_merge_mpi, skip};
use rpd_tests::truth::{CleanProgram, Scenario, ScenarioKind, ScenarioSize, write_scenario};
use serde_json::Value as Json;
use std::fs;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// The shards of a stencil in which rank 2 is slow.
pub(crate) fn slow_stencil(ranks: u32, steps: u32) -> (TempDir, PathBuf) {
    let size = ScenarioSize { ranks, subject: 2, steps, ..ScenarioSize::drawn(ScenarioKind::Stencil, 3) };
    let folder = tempfile::tempdir().unwrap();
    let run = write_scenario(&Scenario::sized(ScenarioKind::Stencil, size), &[], folder.path()).unwrap();
    (folder, run)
}

/// What a merge prints: its report, and the text of the line `late`.
pub(crate) struct PrintedMerge {
    pub(crate) report: Json,
    pub(crate) summary: String,
    pub(crate) late: Option<String>,
}

pub(crate) fn printed(outcome: JobOutcome) -> PrintedMerge {
    let outcome = outcome.success();
    let late = outcome.stderr.lines().find_map(|line| line.strip_prefix("late "));
    PrintedMerge {
        report: serde_json::from_str(&outcome.stdout).unwrap(),
        late: late.map(|text| text.trim().to_owned()),
        summary: outcome.stderr,
    }
}

pub(crate) fn merged(arguments: &[&str], input: &Path, output: &Path) -> PrintedMerge {
    let job = rpd_merge().args(["--json", "--force"]).args(arguments).arg("-o").arg(output).arg(input);
    printed(job.run())
}

fn overview(format: &str, input: &Path) -> String {
    let job = Job::new(binary("rpd-report")).args(["--format", format]).arg(input);
    job.without_env("RPD_OUTPUT").run().success().stdout
}

fn is_analysed(merge: &PrintedMerge) -> bool {
    merge.report["phases"].as_array().unwrap().iter().any(|phase| phase["phase"] == "analyse")
}

/// Compares what a merge prints with the report on its database.
fn assert_same_as_report(merge: &PrintedMerge, database: &Path) {
    let verdict = &merge.report["verdict"];
    let report: Json = serde_json::from_str(&overview("json", database)).unwrap();
    let keys = verdict.as_object().unwrap();
    assert!(keys.len() > 8 && keys.contains_key("findings"), "{verdict}");
    for (key, value) in keys {
        assert_eq!(report[key], *value, "{key}");
    }
    let headline = verdict["headline"].as_str().unwrap();
    assert_eq!(merge.late.as_deref(), Some(headline), "{}", merge.summary);
    // The screen breaks long lines.
    let screen = overview("text", database).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(screen.contains(headline), "{headline}: {screen}");
}

#[test]
fn the_line_is_the_verdict_of_the_report() {
    let clean = [0.0, 0.2].map(|noise| {
        let kind = ScenarioKind::Clean(CleanProgram::Allreduce, 2);
        Scenario::sized(kind, ScenarioSize { noise, ..ScenarioSize::drawn(kind, 1) })
    });
    let planted = ScenarioKind::PLANTED.into_iter().map(|kind| Scenario::drawn(kind, 2));
    for scenario in planted.chain(clean) {
        let folder = tempfile::tempdir().unwrap();
        let run = write_scenario(&scenario, &[], folder.path()).unwrap();
        let database = folder.path().join("run.db");
        let merge = merged(&["--verify"], &run, &database);
        eprintln!("{}: {:?}", scenario.kind.name(), merge.late);
        assert!(is_analysed(&merge), "{}", merge.summary);
        assert_same_as_report(&merge, &database);
    }
}

#[test]
fn the_slow_rank_is_in_the_line_whatever_is_written() {
    let (folder, run) = slow_stencil(5, 20);
    let database = folder.path().join("run.db");
    let merge = merged(&[], &run, &database);
    let late = merge.late.clone().unwrap();
    assert!(late.starts_with("SLOW rank 2 on ") && late.contains(" delays the others; "), "{late}");
    assert_same_as_report(&merge, &database);
    let outputs: [(&[&str], &str); 3] = [
        (&["--format", "rpd"], "run.rpd"),
        (&["--format", "perfetto"], "run.pftrace.gz"),
        (&["--split-by-time", "3"], "slices"),
    ];
    for (arguments, output) in outputs {
        let other = merged(arguments, &run, &folder.path().join(output));
        assert_eq!((other.late, &other.report["verdict"]), (merge.late.clone(), &merge.report["verdict"]));
    }
}

#[test]
fn any_number_of_merge_ranks_gives_the_same_verdict_and_the_same_bytes() {
    if let Some(why) = mpi_missing() {
        return skip("the verdict under mpirun", why);
    }
    let (folder, run) = slow_stencil(5, 20);
    let of = |name: &str, job: Job| {
        let output = folder.path().join(name);
        let merge = printed(job.args(["--json", "-o"]).arg(&output).arg(&run).run());
        (merge.late, merge.report["verdict"].clone(), fs::read(output).unwrap())
    };
    let alone = of("alone.db", rpd_merge());
    assert!(alone.0.as_ref().unwrap().starts_with("SLOW rank 2 on "), "{:?}", alone.0);
    for ranks in [1, 3] {
        let (late, verdict, bytes) = of(&format!("{ranks}.db"), rpd_merge_mpi(ranks));
        assert_eq!((late, verdict), (alone.0.clone(), alone.1.clone()), "{ranks} ranks");
        assert!(bytes == alone.2, "{ranks} ranks: the databases differ");
    }
}

#[test]
fn nothing_is_analysed_without_calls_to_mpi() {
    let folder = tempfile::tempdir().unwrap();
    let inputs = folder.path().join("in");
    if fixtures::rocpd_databases(&inputs).is_empty() {
        return;
    }
    let database = folder.path().join("run.db");
    let merge = merged(&[], &inputs, &database);
    assert!(!is_analysed(&merge), "{}", merge.summary);
    assert!(
        merge.late.as_ref().unwrap().contains("no calls to MPI or RCCL of several ranks"),
        "{}",
        merge.summary
    );
    assert_same_as_report(&merge, &database);
}

#[test]
fn a_single_process_waits_for_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let database = folder.path().join("run.db");
    let merge = merged(&[], &repository().join("tests/data/shard-v3.rpdshard"), &database);
    assert_eq!(merge.late, None, "{}", merge.summary);
    assert!(merge.report.get("verdict").is_none() && !is_analysed(&merge));
}

#[test]
fn many_calls_are_analysed_only_on_request() {
    let (folder, run) = slow_stencil(32, 800);
    let database = folder.path().join("run.db");
    let merge = merged(&["--memory", "48M"], &run, &database);
    let late = merge.late.unwrap();
    let words = [
        "CANNOT TELL which rank the others wait for: up to ",
        " calls to MPI are not analysed without --late always, ",
    ];
    assert!(words.iter().all(|words| late.contains(words)), "{late}");
    assert!(late.ends_with(&format!("; run rpd-report {}", database.display())), "{late}");
    assert_eq!(merge.report["verdict"]["verdict"], "cannot_tell");
    let bytes = fs::read(&database).unwrap();
    for arguments in [&["--memory", "48M", "--late", "always"][..], &[]] {
        let merge = merged(arguments, &run, &database);
        assert!(merge.late.as_ref().unwrap().starts_with("SLOW rank 2 on "), "{}", merge.summary);
        assert_same_as_report(&merge, &database);
        assert!(fs::read(&database).unwrap() == bytes, "{arguments:?}: the analysis changes the database");
    }
}

#[test]
fn with_never_the_merge_says_nothing_about_ranks() {
    let (folder, run) = slow_stencil(5, 20);
    let database = folder.path().join("run.db");
    let merge = merged(&["--late", "never"], &run, &database);
    assert_eq!(merge.late, None, "{}", merge.summary);
    assert!(merge.report.get("verdict").is_none() && !is_analysed(&merge));
}

#[test]
fn several_table_sets_are_left_to_the_report() {
    let (folder, run) = slow_stencil(5, 20);
    let database = folder.path().join("run.db");
    let merge = merged(&["--layout", "partitioned"], &run, &database);
    let late = merge.late.unwrap();
    assert!(late.ends_with(&format!("; run rpd-report {}", database.display())), "{late}");
    // A merge to one set analyses them, and so does the report.
    let again = merged(&[], &database, &folder.path().join("again.db"));
    assert!(again.late.as_ref().unwrap().starts_with("SLOW rank 2 on "), "{}", again.summary);
    assert!(overview("text", &database).contains("\nSLOW         rank 2 on "));
}

#[test]
fn a_merge_of_a_merge_finds_the_same() {
    let (folder, run) = slow_stencil(5, 20);
    let [first, again] = ["first.db", "again.db"].map(|name| folder.path().join(name));
    let merge = merged(&[], &run, &first);
    let found = merged(&[], &first, &again);
    assert!(is_analysed(&found), "{}", found.summary);
    assert_eq!((&found.late, &found.report["verdict"]), (&merge.late, &merge.report["verdict"]));
    assert_same_as_report(&found, &again);
}
