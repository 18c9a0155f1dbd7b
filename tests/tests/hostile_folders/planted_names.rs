//! Traps under the names that a merge creates, locks and replaces.

use super::two_users::{BOB, TRAPS, Trap, TwoUsers, as_user, give, set_mode};
use std::fs;
use std::path::Path;

/// Names in a run folder that a merge into it opens.
const OF_DATABASES: [&str; 6] = [
    "trace.db",
    "trace.db.lock",
    "trace.db.partial",
    "trace.db.partial.rpd",
    "trace.db.translated",
    "trace.rpd",
];
/// Those that a merge of traces opens.
const OF_TRACES: [&str; 4] = ["index.json", "trace.lock", "trace.partial", "trace-00001-of-00002.pftrace.gz"];
/// Those that a merge at the end of a job opens.
const OF_EPILOGS: [&str; 5] = ["merge.lease.0", "merge.status", "merge.wanted", "trace.db.lock", "trace.db"];

/// Merges a run of Eve as root, with each trap under each name.
fn attack(names: &[&str], options: &[&str]) {
    let Some(users) = TwoUsers::new("planted names") else { return };
    let before = users.snapshot();
    for name in names {
        for trap in TRAPS {
            let run = users.run_of_eve();
            users.plant(trap, &run.join(name));
            let outcome = users.program("rpd-merge").args(options).arg(&run).run();
            assert!(outcome.code().is_some_and(|code| code <= 5), "{name} as {trap:?}: {outcome}");
            assert_eq!(users.snapshot(), before, "{name} as {trap:?}: {outcome}");
            if outcome.code() != Some(0) {
                assert!(outcome.stderr.contains(name), "{name} as {trap:?} is not named: {outcome}");
            }
            assert_output_is_new(&run.join("trace.db"), trap);
            fs::remove_dir_all(&run).unwrap();
        }
    }
}

/// What has the name of an output is no second name of a file of root.
fn assert_output_is_new(output: &Path, trap: Trap) {
    if let Ok(found) = fs::symlink_metadata(output)
        && trap != Trap::HardLink
    {
        assert!(!found.is_file() || found.len() > 4096);
    }
}

#[test]
fn a_database_is_written_into_its_folder_alone() {
    attack(&OF_DATABASES, &["--force"]);
}

#[test]
fn a_merge_behind_a_planted_link_is_not_overwritten() {
    let Some(users) = TwoUsers::new("links to merges") else { return };
    let private = users.private().join("results.db");
    let _ = users.program("rpd-merge").arg("-o").arg(&private).arg(users.private_run()).run().success();
    let before = users.snapshot();
    for options in
        [&["--force"][..], &["--force", "--verify"], &["--epilog"], &["--force", "--format", "rpd"]]
    {
        let run = users.run_of_eve();
        for name in ["trace.db", "trace.rpd"] {
            std::os::unix::fs::symlink(&private, run.join(name)).unwrap();
            std::os::unix::fs::lchown(run.join(name), Some(super::two_users::EVE), None).unwrap();
        }
        let outcome = users.program("rpd-merge").args(options).arg(&run).run();
        assert_eq!(users.snapshot(), before, "{options:?}: {outcome}");
        assert_eq!(outcome.code(), Some(5), "{options:?}: {outcome}");
        fs::remove_dir_all(&run).unwrap();
    }
}

#[test]
fn a_legacy_database_is_written_into_its_folder_alone() {
    attack(
        &["trace.rpd", "trace.rpd.lock", "trace.rpd.partial", "trace.rpd.partial.rpd"],
        &["--force", "--format", "rpd"],
    );
}

#[test]
fn traces_are_written_into_their_folder_alone() {
    attack(&OF_TRACES, &["--force", "--split-by-time", "2"]);
}

#[test]
fn an_epilog_writes_into_its_folder_alone() {
    attack(&OF_EPILOGS, &["--epilog", "--lease", "5"]);
}

#[test]
fn a_lock_that_is_a_fifo_is_called_no_regular_file() {
    let Some(users) = TwoUsers::new("locks that are FIFOs") else { return };
    let run = users.run_of_eve();
    fs::create_dir(users.path("bob")).unwrap();
    give(&users.path("bob"), BOB);
    let lock = users.path("bob/x.db.lock");
    super::two_users::make_fifo(&lock);
    // Bob may not open it.
    set_mode(&lock, 0o600);
    let merge = users.program("rpd-merge").arg("-o").arg(users.path("bob/x.db")).arg(&run);
    for outcome in [as_user(merge.clone(), BOB).run(), merge.run()] {
        assert_eq!(outcome.code(), Some(5), "{outcome}");
        assert!(
            outcome.stderr.contains("x.db.lock") && outcome.stderr.contains("it is not a regular file"),
            "{outcome}"
        );
    }
}

#[test]
fn a_journal_that_may_not_be_read_is_an_error_with_its_reason() {
    let Some(users) = TwoUsers::new("journals of other users") else { return };
    let run = users.run_of_eve();
    fs::create_dir(users.path("bob")).unwrap();
    give(&users.path("bob"), BOB);
    let wal = users.path("bob/x.db-wal");
    fs::write(&wal, [0x37, 0x7f, 0x06, 0x82]).unwrap();
    set_mode(&wal, 0o600);
    let merge = users.program("rpd-merge").arg("-o").arg(users.path("bob/x.db")).arg(&run);
    let outcome = as_user(merge, BOB).run();
    assert_eq!(outcome.code(), Some(5), "{outcome}");
    for words in ["x.db-wal", "cannot be read (Permission denied", "or choose another name with -o"] {
        assert!(outcome.stderr.contains(words), "{words}: {outcome}");
    }
    assert!(!outcome.stderr.contains("no journal"), "{outcome}");
    assert!(wal.exists() && !users.path("bob/x.db").exists());
}
