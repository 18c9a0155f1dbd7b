//! The file of calls beside a merged database: the same reports with and without it, in less time.

use crate::late_line::{PrintedMerge, merged, printed, slow_stencil};
use rpd_tests::harness::{Job, JobOutcome, binary, mpi_missing, rpd_merge, rpd_merge_mpi, skip};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// Ranks and steps of a run with enough calls for a file of their own.
const RANKS: u32 = 32;
const STEPS: u32 = 800;
/// All that rpd-report prints about waiting, and a part of the run.
const REPORTS: [&[&str]; 16] = [
    &[],
    &["--explain"],
    &["summary"],
    &["ranks"],
    &["collectives"],
    &["blame"],
    &["blame", "--rank", "2", "--explain"],
    &["steps"],
    &["steps", "--rank", "2"],
    &["messages"],
    &["path"],
    &["efficiency"],
    &["whatif", "--rank", "2"],
    &["--step", "step"],
    &["--window", "0..1"],
    &["--ranks", "0-3"],
];

/// A run of many calls, its database and the place of their file.
struct MergedCalls {
    folder: TempDir,
    run: PathBuf,
    database: PathBuf,
    calls: PathBuf,
    merge: PrintedMerge,
}

fn many_calls() -> MergedCalls {
    let (folder, run) = slow_stencil(RANKS, STEPS);
    let [database, calls] = ["trace.db", "trace.calls"].map(|name| run.join(name));
    let merge = merged(&[], &run, &database);
    MergedCalls { folder, run, database, calls, merge }
}

fn report(arguments: &[&str], input: &Path) -> JobOutcome {
    let job = Job::new(binary("rpd-report")).args(arguments).args(["--format", "json"]).arg(input);
    job.without_env("RPD_OUTPUT").run().success()
}

#[test]
fn reports_are_the_same_with_and_without_it() {
    let made = many_calls();
    let MergedCalls { database, calls, merge, .. } = &made;
    assert_eq!(merge.report["call_file"], calls.display().to_string());
    assert!(merge.summary.contains(&format!("{}, for rpd-report", calls.display())), "{}", merge.summary);
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode();
    assert_eq!(mode(calls), mode(database));
    assert!(fs::metadata(calls).unwrap().len() < fs::metadata(database).unwrap().len() / 20);
    let with: Vec<JobOutcome> = REPORTS.iter().map(|arguments| report(arguments, database)).collect();
    for threads in ["1", "3"] {
        let job = Job::new(binary("rpd-report")).args(["--format", "json"]).arg(database);
        let again = job.env("RAYON_NUM_THREADS", threads).without_env("RPD_OUTPUT").run().success();
        assert_eq!(again.stdout, with[0].stdout, "{threads} threads");
    }
    let of_folder = report(&[], database.parent().unwrap());
    fs::remove_file(calls).unwrap();
    assert_eq!(of_folder.stdout, report(&[], database.parent().unwrap()).stdout);
    for (arguments, with) in REPORTS.iter().zip(with) {
        let without = report(arguments, database);
        assert_eq!((without.stdout, &without.stderr), (with.stdout, &with.stderr), "{arguments:?}");
    }
}

#[test]
fn a_damaged_foreign_or_old_file_only_takes_longer() {
    let made = many_calls();
    let MergedCalls { database, calls, .. } = &made;
    let expected = report(&[], database);
    let whole = fs::read(calls).unwrap();
    let middle = whole.len() / 2;
    let damaged = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = whole.clone();
        change(&mut bytes);
        bytes
    };
    let forms = [
        (damaged(&|bytes| bytes[middle] ^= 1), "damaged at byte "),
        (damaged(&|bytes| bytes.truncate(middle)), "damaged at byte "),
        (damaged(&|bytes| bytes[8] += 1), "not a file of calls of this version"),
        (damaged(&|bytes| bytes[12] ^= 1), "does not have the calls of the database"),
        (b"notes of a user".to_vec(), "not a file of calls of this version"),
        (Vec::new(), "not a file of calls of this version"),
    ];
    for (bytes, reason) in forms {
        fs::write(calls, bytes).unwrap();
        let found = report(&[], database);
        assert_eq!(found.stdout, expected.stdout, "{reason}");
        let begin = format!("note: {} is not used, which only takes longer: ", calls.display());
        assert!(found.stderr.starts_with(&begin) && found.stderr.contains(reason), "{}", found.stderr);
        assert_eq!(report(&["--quiet"], database).stderr, "");
    }
    fs::remove_file(calls).unwrap();
    symlink("/dev/zero", calls).unwrap();
    let found = report(&[], database);
    assert_eq!(found.stdout, expected.stdout);
    assert!(found.stderr.contains(" is not used, "), "{}", found.stderr);
}

#[test]
fn it_goes_with_its_database() {
    let made = many_calls();
    let MergedCalls { run, database, calls, merge, .. } = &made;
    let (first, bytes) = (fs::read(calls).unwrap(), fs::read(database).unwrap());
    let again = merged(&[], run, database);
    assert!(fs::read(calls).unwrap() == first && fs::read(database).unwrap() == bytes);
    assert_eq!(again.report["not_used"], merge.report["not_used"]);
    // Without memory for the analysis there is still a file.
    let little = merged(&["--memory", "48M"], run, database);
    assert!(little.late.unwrap().contains(" are not analysed without --late always"));
    assert!(fs::read(calls).unwrap() == first);
    let never = merged(&["--late", "never"], run, database);
    assert!(never.report.get("call_file").is_none() && !calls.exists(), "{}", never.summary);
    // A file that the merge did not write stays.
    fs::write(calls, "notes of a user").unwrap();
    let kept = merged(&[], run, database);
    assert_eq!(fs::read(calls).unwrap(), b"notes of a user");
    assert!(kept.report.get("call_file").is_none(), "{}", kept.summary);
    assert!(kept.summary.contains("is not a file of calls; move it away"), "{}", kept.summary);
    let left: Vec<_> = fs::read_dir(run).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(!left.iter().any(|name| name.to_string_lossy().contains("partial")), "{left:?}");
}

#[test]
fn what_a_killed_merge_left_is_removed() {
    let made = many_calls();
    let MergedCalls { run, database, calls, .. } = &made;
    let left = run.join("trace.db.partial.calls");
    fs::rename(calls, &left).unwrap();
    let _ = merged(&[], run, database);
    assert!(calls.exists() && !left.exists());
    fs::write(&left, "notes of a user").unwrap();
    let outcome = rpd_merge().args(["--force", "-o"]).arg(database).arg(run).run();
    assert_eq!(outcome.status.unwrap().code(), Some(5), "{}", outcome.stderr);
    assert!(
        outcome.stderr.contains("was not left by a merge; move it away, or use -o"),
        "{}",
        outcome.stderr
    );
}

#[test]
fn other_outputs_do_not_touch_it() {
    let made = many_calls();
    let MergedCalls { run, database, calls, .. } = &made;
    let whole = fs::read(calls).unwrap();
    let sibling = run.join("trace.rpd");
    let _ = merged(&["--format", "rpd"], run, &sibling);
    let _ = merged(&["--late", "never"], database, &run.join("trace.sqlite"));
    assert!(fs::read(calls).unwrap() == whole);
    let [one, other] = ["job.12", "job.13"].map(|name| run.join(name));
    for output in [&one, &other] {
        let merge = merged(&[], database, output);
        assert_eq!(merge.report["call_file"], format!("{}.calls", output.display()));
    }
    assert_eq!(report(&[], &one).stderr, "");
}

#[test]
fn few_calls_have_no_file() {
    let (folder, run) = slow_stencil(5, 20);
    let database = folder.path().join("run.db");
    let merge = merged(&[], &run, &database);
    assert!(merge.report.get("call_file").is_none() && !database.with_extension("calls").exists());
}

#[test]
fn any_number_of_merge_ranks_writes_the_same_file() {
    if let Some(why) = mpi_missing() {
        return skip("the file of calls under mpirun", why);
    }
    let made = many_calls();
    let MergedCalls { folder, run, calls, .. } = &made;
    for ranks in [1, 3] {
        let output = folder.path().join(format!("{ranks}.db"));
        let merge = printed(rpd_merge_mpi(ranks).args(["--json", "-o"]).arg(&output).arg(run).run());
        assert!(merge.report.get("call_file").is_some(), "{}", merge.summary);
        assert!(
            fs::read(output.with_extension("calls")).unwrap() == fs::read(calls).unwrap(),
            "{ranks} ranks"
        );
    }
}
