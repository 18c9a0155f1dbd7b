//! `--epilog` as root and as users: it becomes the user of the job, and merges no run of another one.

use super::two_users::{BOB, EVE, TwoUsers, as_user, make_fifo, set_mode};
use std::fs;
use std::os::unix::fs::{MetadataExt, lchown, symlink};
use std::path::Path;
use std::time::{Duration, Instant};

fn owner(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().uid()
}

#[test]
fn root_becomes_the_owner_of_the_run() {
    let Some(users) = TwoUsers::new("an epilog of root") else { return };
    let run = users.run_of_eve();
    let before = users.snapshot();
    // Process ids can be guessed.
    let pid = std::process::id();
    for name in
        (pid..pid + 3000).flat_map(|pid| [format!("merge.status.{pid}"), format!(".merge.status.{pid}")])
    {
        symlink(users.secret(), run.join(&name)).unwrap();
        lchown(run.join(name), Some(EVE), Some(EVE)).unwrap();
    }
    let _ = users.program("rpd-merge").arg("--epilog").arg(&run).run().success();
    assert_eq!(users.snapshot(), before);
    assert_eq!([owner(&run.join("trace.db")), owner(&run.join("merge.status"))], [EVE, EVE]);
}

#[test]
fn the_user_of_the_job_counts_and_has_to_own_the_run() {
    let Some(users) = TwoUsers::new("an epilog of root") else { return };
    let run = users.run_of_eve();
    let merge =
        |uid: &str| users.program("rpd-merge").env("SLURM_JOB_UID", uid).arg("--epilog").arg(&run).run();
    let names = || fs::read_dir(&run).unwrap().count();
    let before = names();
    for (uid, code, why) in [
        ("60002", 4, "belongs to user 60001"),
        ("0", 4, "belongs to user 60001"),
        ("00", 2, "is not a user id"),
    ] {
        let outcome = merge(uid);
        assert_eq!(outcome.code(), Some(code), "{outcome}");
        assert!(outcome.stderr.contains(why), "{outcome}");
        assert_eq!(names(), before);
    }
    let _ = merge("60001").success();
    assert_eq!(owner(&run.join("trace.db")), EVE);
}

#[test]
fn a_user_merges_no_run_of_another_one_unseen() {
    let Some(users) = TwoUsers::new("an epilog of a user") else { return };
    let run = users.run_of_eve();
    let open =
        |path: &Path| fs::read_dir(path).unwrap().flatten().for_each(|entry| set_mode(&entry.path(), 0o666));
    set_mode(&run, 0o777);
    open(&run);
    let before = fs::read_dir(&run).unwrap().count();
    let merge = |options: &[&str]| as_user(users.program("rpd-merge").args(options).arg(&run), BOB).run();
    let outcome = merge(&["--epilog", "--wait", "2"]);
    assert_eq!(outcome.code(), Some(4), "{outcome}");
    assert!(
        outcome.stderr.contains("belongs to user 60001") && outcome.stderr.contains("-o FILE"),
        "{outcome}"
    );
    assert_eq!(fs::read_dir(&run).unwrap().count(), before);
    // Support staff merges it into a place of its own.
    fs::create_dir(users.path("bob")).unwrap();
    super::two_users::give(&users.path("bob"), BOB);
    let output = users.path("bob/eve.db");
    let _ = merge(&["-o", output.to_str().unwrap()]).success();
    assert_eq!(owner(&output), BOB);
}

#[test]
fn leases_and_statuses_of_other_users_do_not_count() {
    let Some(users) = TwoUsers::new("leases of other users") else { return };
    let run = users.run_of_eve();
    let plant = |name: &str, text: &str| {
        fs::write(run.join(name), text).unwrap();
        lchown(run.join(name), Some(BOB), Some(BOB)).unwrap();
    };
    let merge = || users.program("rpd-merge").args(["--epilog", "--lease", "5"]).arg(&run).run();
    plant("merge.lease.0", r#"{"host":"n7","pid":1,"until":99999999999}"#);
    plant("merge.lease.4294967295", "");
    let _ = merge().success();
    // What another user says of a merge is no reason to leave it.
    let told = fs::read_to_string(run.join("merge.status")).unwrap();
    fs::write(run.join("trace.db"), "").unwrap();
    plant("merge.status", &told);
    let outcome = merge();
    assert!(!outcome.stderr.contains("nothing to merge"), "{outcome}");
    assert!(fs::metadata(run.join("trace.db")).unwrap().len() > 4096, "{outcome}");
}

#[test]
fn nobody_waits_for_what_is_no_shard() {
    let Some(users) = TwoUsers::new("shards that are none") else { return };
    let run = users.run_of_eve();
    let fifo = run.join("rank-00009.rpdshard");
    make_fifo(&fifo);
    lchown(&fifo, Some(EVE), Some(EVE)).unwrap();
    make_fifo(&run.join("rank-00000.log"));
    let began = Instant::now();
    let outcome = users.program("rpd-merge").args(["--epilog", "--wait", "1"]).arg(&run).run();
    assert!(began.elapsed() < Duration::from_secs(20), "{outcome}");
    assert!(outcome.stderr.contains("rank-00009.rpdshard"), "{outcome}");
    // An empty lease of a killed merge, with a time to come, stops nobody.
    fs::remove_file(fifo).unwrap();
    fs::remove_file(run.join("trace.db")).unwrap();
    fs::write(run.join("merge.lease.0"), "").unwrap();
    lchown(run.join("merge.lease.0"), Some(EVE), Some(EVE)).unwrap();
    let lease = fs::File::options().write(true).open(run.join("merge.lease.0")).unwrap();
    lease.set_modified(std::time::SystemTime::now() + Duration::from_secs(36_000)).unwrap();
    let _ = users.program("rpd-merge").args(["--epilog", "--lease", "5"]).arg(&run).run().success();
    assert!(run.join("trace.db").exists());
}
