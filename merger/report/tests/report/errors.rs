//! Exit codes and messages.

use crate::program::{call, rpd_report};
use crate::runs::{kept_shards, merge};
use std::fs::{self, File};
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;

/// A merged database of two ranks.
fn merged() -> (TempDir, std::path::PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let database = folder.path().join("run.db");
    merge(&[], &kept_shards()[1], &database);
    (folder, database)
}

fn assert_fails(arguments: &[&str], input: &Path, exit: i32, words: &str) {
    let output = call(arguments, input);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(exit), "{arguments:?}: {errors}");
    assert!(errors.contains(words), "{arguments:?}: {errors}");
}

#[test]
fn wrong_usage_ends_with_2() {
    let (_folder, database) = merged();
    for (arguments, words) in [
        (&["--format", "xml"][..], "invalid value"),
        (&["--format", "csv"], "add a subcommand"),
        (&["summary", "--by-rank", "--by-node"], "cannot be used with"),
        (&["ranks", "--window", "5"], "is not a window"),
        (
            &["ranks", "--window", "2030-01-01T00:00:00Z..2031-01-01T00:00:00Z"],
            "begins after the end of the run",
        ),
        (&["ranks", "--ranks", "3-1"], "ends before it begins"),
        (&["ranks", "--nodes", "nowhere"], "no process of the run is selected"),
    ] {
        assert_fails(arguments, &database, 2, words);
    }
}

#[test]
fn unreadable_inputs_end_with_4() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("missing.db");
    assert_fails(&["summary"], &missing, 4, "cannot read");
    assert_fails(&[], folder.path(), 4, "error: ");
    let text = folder.path().join("text.db");
    fs::write(&text, "no database").unwrap();
    assert_fails(&["clocks"], &text, 4, "text.db");
    let (_folder, database) = merged();
    let cut = folder.path().join("cut.db");
    let bytes = fs::read(&database).unwrap();
    fs::write(&cut, &bytes[..bytes.len() / 2]).unwrap();
    let output = call(&["summary"], &cut);
    assert_eq!(output.status.code(), Some(4), "{output:?}");
    assert!(output.stdout.is_empty());
}

#[test]
fn an_incomplete_run_ends_with_3_after_its_report() {
    let folder = tempfile::tempdir().unwrap();
    let database = folder.path().join("run.db");
    merge(&[], &kept_shards()[1][1..], &database);
    let output = call(&["integrity", "--strict"], &database);
    let (text, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(3), "{errors}");
    assert!(text.contains("missing ranks") && errors.contains("missing ranks: 0"), "{text}{errors}");
    assert!(call(&["integrity"], &database).status.success());
    let (_folder, whole) = merged();
    let output = call(&["integrity", "--strict"], &whole);
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn an_output_that_cannot_be_written_ends_with_5() {
    let (_folder, database) = merged();
    let full = File::create("/dev/full").unwrap();
    let output = rpd_report().arg("ranks").arg(&database).stdout(full).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(5), "{errors}");
    assert!(errors.contains("cannot print the report"), "{errors}");
}

#[test]
fn a_full_temporary_folder_names_tmpdir() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("rank0.pt.trace.json");
    // Names that no codec makes shorter than the limit.
    let event = |number: u64| {
        let name = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        format!(
            r#"{{"ph": "X", "cat": "cpu_op", "name": "{name:x}", "pid": 7, "tid": 7, "ts": {number}, "dur": 1}}"#
        )
    };
    let events: Vec<String> = (1..20_000).map(event).collect();
    fs::write(&trace, format!(r#"{{"schemaVersion": 1, "traceEvents": [{}]}}"#, events.join(", "))).unwrap();
    let limited = ["-c", "ulimit -f 16 && exec \"$@\"", "sh", env!("CARGO_BIN_EXE_rpd-report"), "--quiet"];
    let output = Command::new("bash").args(limited).arg(trace).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(5), "{errors}");
    assert!(errors.contains("for rpd-report, set TMPDIR"), "{errors}");
}
