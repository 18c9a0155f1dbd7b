//! Inputs that are not merged yet, and where inputs stand on the command line.

use crate::program::{json, printed, rpd_report};
use crate::runs::{kept_shards, merge};
use serde_json::Value as Json;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use tempfile::TempDir;

/// A run folder with the shards of two ranks, below an output root.
fn run_folder() -> (TempDir, PathBuf) {
    let root = tempfile::tempdir().unwrap();
    let run = root.path().join("4711");
    fs::create_dir(&run).unwrap();
    for shard in &kept_shards()[1] {
        fs::copy(shard, run.join(shard.file_name().unwrap())).unwrap();
    }
    (root, run)
}

/// The object of a report with a folder for temporary files.
fn report_with(temporary: &Path, arguments: &[&str], input: Option<&Path>) -> Result<Json, String> {
    let mut command = rpd_report();
    command.args(arguments).args(["--format", "json"]).args(input).env("TMPDIR", temporary);
    let output = command.output().unwrap();
    match output.status.code() {
        Some(0) => Ok(serde_json::from_slice(&output.stdout).unwrap()),
        code => Err(format!("{code:?} {}", String::from_utf8_lossy(&output.stderr))),
    }
}

/// A trace of PyTorch's profiler, which is translated before it is read.
fn foreign_file(folder: &Path) -> PathBuf {
    let trace = folder.join("rank0.pt.trace.json");
    let events = r#"[{"ph": "X", "cat": "cpu_op", "name": "aten::add", "pid": 7, "tid": 7, "ts": 1000.5, "dur": 3.25}]"#;
    let base =
        r#""schemaVersion": 1, "distributedInfo": {"rank": 0}, "baseTimeNanoseconds": 1759000000000000000"#;
    fs::write(&trace, format!("{{{base}, \"traceEvents\": {events}}}")).unwrap();
    trace
}

#[test]
fn shards_are_read_without_writing_anything() {
    let (root, run) = run_folder();
    let temporary = tempfile::tempdir().unwrap();
    let missing = temporary.path().join("missing");
    let report = report_with(&missing, &["summary"], Some(&run)).unwrap();
    assert_eq!(fs::read_dir(temporary.path()).unwrap().count(), 0);
    assert_eq!(fs::read_dir(&run).unwrap().count(), 2, "nothing is written into the run folder");
    let database = root.path().join("merged.db");
    merge(&[], &kept_shards()[1], &database);
    assert_eq!(report["summary"], json(&["summary"], &database)["summary"]);
    let partitioned = root.path().join("partitioned.db");
    merge(&["--layout", "partitioned"], &kept_shards()[1], &partitioned);
    let again = report_with(temporary.path(), &["summary"], Some(&partitioned)).unwrap();
    assert_eq!(report["summary"], again["summary"]);
}

#[test]
fn foreign_files_are_translated_below_tmpdir() {
    let folder = tempfile::tempdir().unwrap();
    let trace = foreign_file(folder.path());
    let temporary = tempfile::tempdir().unwrap();
    let report = report_with(temporary.path(), &["summary"], Some(&trace)).unwrap();
    assert_eq!(
        (&report["summary"][0]["name"], &report["summary"][0]["total_ns"]),
        (&"aten::add".into(), &3250.into())
    );
    assert_eq!(fs::read_dir(temporary.path()).unwrap().count(), 0);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is written beside the input");
    let error = report_with(&temporary.path().join("missing"), &["summary"], Some(&trace)).unwrap_err();
    assert!(error.starts_with("Some(5)") && error.contains("set TMPDIR"), "{error}");
}

#[test]
fn folders_of_killed_reports_are_removed() {
    let folder = tempfile::tempdir().unwrap();
    let trace = foreign_file(folder.path());
    let temporary = tempfile::tempdir().unwrap();
    let [left, held, other] =
        ["rpd-report-7-0", "rpd-report-8-0", "rpd-reports"].map(|name| temporary.path().join(name));
    for folder in [&left, &held, &other] {
        fs::create_dir(folder).unwrap();
        fs::write(folder.join("trace.db.translated"), "rows").unwrap();
    }
    for folder in [&left, &held] {
        fs::write(folder.join("report.lock"), "").unwrap();
    }
    let lock = File::options().write(true).open(held.join("report.lock")).unwrap();
    lock.try_lock().unwrap();
    let hours_ago = SystemTime::now() - Duration::from_secs(2 * 3600);
    for folder in [&left, &held, &other] {
        File::open(folder).unwrap().set_modified(hours_ago).unwrap();
    }
    let _ = report_with(temporary.path(), &["summary"], Some(&trace)).unwrap();
    assert_eq!([&left, &held, &other].map(|folder| folder.exists()), [false, true, true]);
}

#[test]
fn the_database_of_a_run_folder_is_read_if_nothing_is_newer() {
    let (_root, run) = run_folder();
    // A database of one of the two shards shows whether it is read.
    merge(&[], &kept_shards()[1][..1], &run.join("trace.db"));
    let missing = run.join("missing");
    let ranks = |report: &Json| report["ranks"].as_array().unwrap().len();
    assert_eq!(ranks(&report_with(&missing, &["ranks"], Some(&run)).unwrap()), 1);
    let shard = File::open(run.join("shard-v2.rpdshard")).unwrap();
    shard.set_modified(SystemTime::now() + Duration::from_secs(10)).unwrap();
    assert_eq!(ranks(&report_with(&missing, &["ranks"], Some(&run)).unwrap()), 2);
}

#[test]
fn the_newest_run_is_the_input_and_the_subcommand_stands_anywhere() {
    let (root, run) = run_folder();
    let newest = rpd_report().arg("ranks").env("RPD_OUTPUT", root.path()).output().unwrap();
    assert!(newest.status.success(), "{newest:?}");
    let after = printed(&["ranks"], &run);
    assert_eq!(String::from_utf8_lossy(&newest.stdout), after);
    let before = rpd_report().arg(&run).args(["ranks", "--quiet"]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&before.stdout), after);
    assert!(before.stderr.is_empty(), "{before:?}");
    let options = rpd_report().args(["--top", "1", "--quiet", "ranks"]).arg(&run).output().unwrap();
    assert!(String::from_utf8_lossy(&options.stdout).contains("1 more row"), "{options:?}");
    let overview = printed(&[], &run);
    assert!(overview.starts_with("run kept-v2: 2 ranks"), "{overview}");
}
