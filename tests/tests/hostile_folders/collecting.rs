//! `rpd-collect` below an output root that other users may write to.

use super::two_users::{BOB, EVE, TwoUsers, as_user, give, set_mode};
use rpd_tests::harness::{Job, JobOutcome, skip};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{lchown, symlink};
use std::path::Path;

fn collect(users: &TwoUsers, run: &str) -> JobOutcome {
    let root = users.path("shared");
    let job = users.program("rpd-collect").arg("-o").arg(root).args(["--run-id", run, "--ask-merge", "--"]);
    as_user(job.args(["sh", "-c", "exit 7"]), BOB).run()
}

fn entries(folder: &Path) -> usize {
    fs::read_dir(folder).unwrap().count()
}

#[test]
fn a_run_folder_of_another_user_or_a_link_is_not_written_to() {
    let Some(users) = TwoUsers::new("planted run folders") else { return };
    let shared = users.path("shared");
    fs::create_dir(&shared).unwrap();
    set_mode(&shared, 0o1777);
    fs::create_dir(users.path("bob")).unwrap();
    give(&users.path("bob"), BOB);
    // Eve has guessed the names of two runs.
    fs::create_dir(shared.join("foreign")).unwrap();
    set_mode(&shared.join("foreign"), 0o777);
    lchown(shared.join("foreign"), Some(EVE), Some(EVE)).unwrap();
    symlink(users.path("bob"), shared.join("link")).unwrap();
    lchown(shared.join("link"), Some(EVE), Some(EVE)).unwrap();
    for (run, why) in [("foreign", "user 60001"), ("link", "symbolic link")] {
        let outcome = collect(&users, run);
        assert_eq!(outcome.code(), Some(7), "{outcome}");
        assert_eq!((entries(&shared.join("foreign")), entries(&users.path("bob"))), (0, 0), "{outcome}");
        assert!(outcome.stderr.contains(why) && outcome.stderr.contains(run), "{outcome}");
    }
    let outcome = collect(&users, "own");
    assert_eq!(outcome.code(), Some(7), "{outcome}");
    assert!(shared.join("own/merge.wanted").exists(), "{outcome}");
}

#[test]
fn the_root_of_a_container_does_not_write_to_a_run_folder_of_an_unmapped_user() {
    let Some(users) = TwoUsers::new("run folders of unmapped users") else { return };
    let in_container = |job: Job| job.wrapped("unshare", &["--user", "--map-root-user", "--"]);
    if in_container(Job::new("true")).run().code() != Some(0) {
        return skip("run folders of unmapped users", "no user namespace can be made here");
    }
    let shared = users.path("shared");
    fs::create_dir(&shared).unwrap();
    set_mode(&shared, 0o1777);
    let foreign = shared.join("foreign");
    fs::create_dir(&foreign).unwrap();
    set_mode(&foreign, 0o777);
    lchown(&foreign, Some(EVE), Some(EVE)).unwrap();
    let collect = |run: &str| {
        let job =
            users.program("rpd-collect").arg("-o").arg(&shared).args(["--run-id", run, "--ask-merge", "--"]);
        in_container(job.args(["sh", "-c", "exit 7"])).run()
    };
    // Eve looks like the user that file servers take root for.
    let outcome = collect("foreign");
    assert_eq!((outcome.code(), entries(&foreign)), (Some(7), 0), "{outcome}");
    assert!(outcome.stderr.contains("it belongs to user 65534"), "{outcome}");
    let outcome = collect("own");
    assert_eq!(outcome.code(), Some(7), "{outcome}");
    assert!(shared.join("own/merge.wanted").exists(), "{outcome}");
}

#[test]
fn an_output_root_that_is_not_utf_8_is_as_safe_as_any() {
    let Some(users) = TwoUsers::new("output roots that are not UTF-8") else { return };
    let shared = users.path("shared").join(OsStr::from_bytes(b"of \xff all"));
    fs::create_dir_all(&shared).unwrap();
    set_mode(&shared, 0o1777);
    fs::create_dir(users.path("bob")).unwrap();
    give(&users.path("bob"), BOB);
    symlink(users.path("bob"), shared.join("link")).unwrap();
    lchown(shared.join("link"), Some(EVE), Some(EVE)).unwrap();
    let collect = |run: &str| {
        let job =
            users.program("rpd-collect").arg("-o").arg(&shared).args(["--run-id", run, "--ask-merge", "--"]);
        as_user(job.args(["sh", "-c", "exit 7"]), BOB).run()
    };
    let outcome = collect("link");
    assert_eq!((outcome.code(), entries(&users.path("bob"))), (Some(7), 0), "{outcome}");
    assert!(outcome.stderr.contains("symbolic link"), "{outcome}");
    let outcome = collect("own");
    assert_eq!(outcome.code(), Some(7), "{outcome}");
    assert!(shared.join("own/merge.wanted").exists(), "{outcome}");
}
