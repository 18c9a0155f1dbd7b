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

#[test]
fn shards_are_merged_into_a_temporary_file_that_is_removed() {
    let (root, run) = run_folder();
    let temporary = tempfile::tempdir().unwrap();
    let report = report_with(temporary.path(), &["summary"], Some(&run)).unwrap();
    assert_eq!(fs::read_dir(temporary.path()).unwrap().count(), 0);
    assert_eq!(fs::read_dir(&run).unwrap().count(), 2, "nothing is written into the run folder");
    let database = root.path().join("merged.db");
    merge(&[], &kept_shards()[1], &database);
    assert_eq!(report["summary"], json(&["summary"], &database)["summary"]);
    let partitioned = root.path().join("partitioned.db");
    merge(&["--layout", "partitioned"], &kept_shards()[1], &partitioned);
    let again = report_with(temporary.path(), &["summary"], Some(&partitioned)).unwrap();
    assert_eq!(report["summary"], again["summary"]);
    let missing = temporary.path().join("missing");
    let error = report_with(&missing, &["summary"], Some(&run)).unwrap_err();
    assert!(error.starts_with("Some(5)") && error.contains("set TMPDIR"), "{error}");
}

#[test]
fn folders_of_killed_reports_are_removed() {
    let (_root, run) = run_folder();
    let temporary = tempfile::tempdir().unwrap();
    let [left, held, other] =
        ["rpd-report-7-0", "rpd-report-8-0", "rpd-reports"].map(|name| temporary.path().join(name));
    for folder in [&left, &held, &other] {
        fs::create_dir(folder).unwrap();
        fs::write(folder.join("merged.db.partial"), "rows").unwrap();
    }
    for folder in [&left, &held] {
        fs::write(folder.join("merged.db.lock"), "").unwrap();
    }
    let lock = File::options().write(true).open(held.join("merged.db.lock")).unwrap();
    lock.try_lock().unwrap();
    let _ = report_with(temporary.path(), &["summary"], Some(&run)).unwrap();
    assert_eq!([&left, &held, &other].map(|folder| folder.exists()), [false, true, true]);
}

#[test]
fn the_database_of_a_run_folder_is_read_if_nothing_is_newer() {
    let (_root, run) = run_folder();
    merge(&[], std::slice::from_ref(&run), &run.join("trace.db"));
    let missing = run.join("missing");
    let report = report_with(&missing, &["ranks"], Some(&run)).unwrap();
    assert_eq!(report["ranks"], json(&["ranks"], &run.join("trace.db"))["ranks"]);
    let shard = File::open(run.join("shard-v2.rpdshard")).unwrap();
    shard.set_modified(SystemTime::now() + Duration::from_secs(10)).unwrap();
    let error = report_with(&missing, &["ranks"], Some(&run)).unwrap_err();
    assert!(error.contains("set TMPDIR"), "{error}");
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
