//! What a merge reads: nothing that a link or a second name in a folder of another user leads to.

use super::two_users::{EVE, TwoUsers, private_run, small_run};
use rpd_tests::harness::Database;
use rpd_tests::synthetic::{SyntheticRun, write_rocpd, write_shards};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{lchown, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Rows of events in a merge of these inputs by root.
fn events(users: &TwoUsers, inputs: &[&Path]) -> (i64, String) {
    let output = users.path("merged.db");
    let outcome =
        users.program("rpd-merge").args(["--force", "-o"]).arg(&output).args(inputs).run().success();
    (Database::open(&output).count("rocpd_event"), outcome.stderr)
}

fn plant_link(target: &Path, link: &Path) {
    symlink(target, link).unwrap();
    lchown(link, Some(EVE), Some(EVE)).unwrap();
}

#[test]
fn files_of_root_do_not_get_into_a_merge_of_a_users_run() {
    let Some(users) = TwoUsers::new("inputs of other users") else { return };
    let run = users.run_of_eve();
    let private = users.private_run();
    let shard = fs::read_dir(&private).unwrap().flatten().next().unwrap().path();
    let (alone, _) = events(&users, &[&run]);
    plant_link(&shard, &run.join("rank-00007.rpdshard"));
    plant_link(&private, &run.join("ranks-01000"));
    fs::hard_link(&shard, run.join("rank-00008.rpdshard")).unwrap();
    let (with_traps, said) = events(&users, &[&run]);
    assert_eq!(with_traps, alone, "{said}");
    assert!(said.contains("rank-00007.rpdshard is not read: it is a symbolic link of user 60001"), "{said}");
    assert!(said.contains("rank-00008.rpdshard is not read: it is a hard link to a file of root"), "{said}");
    let by_name =
        users.program("rpd-merge").arg("-o").arg(users.path("x.db")).arg(run.join("rank-00008.rpdshard"));
    let by_name = by_name.run();
    assert!(by_name.code() == Some(4) && by_name.stderr.contains("hard link"), "{by_name}");
    // A link of root that leads to one of Eve.
    symlink(run.join("rank-00007.rpdshard"), users.private().join("own.rpdshard")).unwrap();
    let by_link = users.program("rpd-merge").arg("-o").arg(users.path("x.db"));
    let by_link = by_link.arg(users.private().join("own.rpdshard")).run();
    assert!(by_link.code() == Some(4) && by_link.stderr.contains("symbolic link of user 60001"), "{by_link}");
    // The same by name, and for the folder itself.
    for (named, why) in [
        ("rank-00007.rpdshard", "symbolic link of user 60001"),
        ("ranks-01000", "symbolic link of user 60001"),
    ] {
        let outcome = users.program("rpd-merge").arg("-o").arg(users.path("x.db")).arg(run.join(named)).run();
        assert_eq!(outcome.code(), Some(4), "{outcome}");
        assert!(outcome.stderr.contains(why) && outcome.stderr.contains(named), "{outcome}");
    }
}

#[test]
fn profiles_of_root_do_not_get_into_a_merge_of_a_users_folder() {
    let Some(users) = TwoUsers::new("profiles of other users") else { return };
    let databases = |run: SyntheticRun, folder: &Path| -> PathBuf {
        fs::create_dir_all(folder).unwrap();
        write_rocpd(&run.plan(), folder).unwrap().swap_remove(0)
    };
    let private = databases(private_run(), &users.private().join("results"));
    let results = users.path("eve/results");
    databases(small_run(), &results);
    let (alone, _) = events(&users, &[&results]);
    plant_link(&private, &results.join("planted_results.db"));
    super::two_users::give(&results, EVE);
    let (with_link, said) = events(&users, &[&results]);
    assert_eq!(with_link, alone, "{said}");
    assert!(said.contains("planted_results.db is not read: it is a symbolic link of user 60001"), "{said}");
}

#[test]
fn links_of_the_user_are_followed() {
    let Some(users) = TwoUsers::new("links of the user") else { return };
    let run = write_shards(&small_run().plan(), &users.path("eve")).unwrap();
    let (whole, _) = events(&users, &[&run]);
    let links = users.private().join("links");
    fs::create_dir(&links).unwrap();
    for shard in fs::read_dir(&run).unwrap().flatten() {
        symlink(shard.path(), links.join(shard.file_name())).unwrap();
    }
    assert_eq!(events(&users, &[&links]).0, whole);
    symlink(&links, users.private().join("latest")).unwrap();
    assert_eq!(events(&users, &[&users.private().join("latest")]).0, whole);
}

#[test]
fn planted_names_that_are_not_utf_8_are_named_and_not_read() {
    let Some(users) = TwoUsers::new("names that are not UTF-8") else { return };
    let run = users.run_of_eve();
    let private = users.private_run();
    let shard = fs::read_dir(&private).unwrap().flatten().next().unwrap().path();
    let (alone, _) = events(&users, &[&run]);
    plant_link(&shard, &run.join(OsStr::from_bytes(b"rank-\xff.rpdshard")));
    fs::hard_link(&shard, run.join(OsStr::from_bytes(b"rank-\xfe.rpdshard"))).unwrap();
    plant_link(&private, &run.join(OsStr::from_bytes(b"\xfd")));
    let (with_traps, said) = events(&users, &[&run]);
    assert_eq!(with_traps, alone, "{said}");
    for name in ["rank-\\xff.rpdshard", "rank-\\xfe.rpdshard"] {
        assert!(said.contains(name), "{said}");
    }
    // A folder of such a name is not merged.
    let folder = users.path("eve").join(OsStr::from_bytes(b"run \xff"));
    fs::rename(&run, &folder).unwrap();
    for options in [&[][..], &["--epilog"]] {
        let outcome = users.program("rpd-merge").args(options).arg(&folder).run();
        assert!(outcome.code().is_some_and(|code| code == 4), "{outcome}");
        assert!(outcome.stderr.contains("run \\xff") && outcome.stderr.contains("UTF-8"), "{outcome}");
        assert!(!folder.join("trace.db").exists(), "{outcome}");
    }
}

#[test]
fn without_an_input_an_older_run_of_the_user_comes_before_runs_of_others() {
    let Some(users) = TwoUsers::new("the newest run") else { return };
    let shared = users.path("shared");
    fs::create_dir(&shared).unwrap();
    super::two_users::set_mode(&shared, 0o1777);
    fs::rename(users.run_of_eve(), shared.join("of-eve")).unwrap();
    let of_root = write_shards(&small_run().plan(), &users.path("bin")).unwrap();
    fs::rename(of_root, shared.join("own")).unwrap();
    for shard in fs::read_dir(shared.join("of-eve")).unwrap().flatten() {
        let file = fs::File::options().write(true).open(shard.path()).unwrap();
        file.set_modified(SystemTime::now() + Duration::from_secs(3600)).unwrap();
    }
    let merge = || users.program("rpd-merge").env("RPD_OUTPUT", &shared).run();
    let outcome = merge().success();
    assert!(shared.join("own/trace.db").exists() && !shared.join("of-eve/trace.db").exists(), "{outcome}");
    // Alone, that of another user is merged, as when it is named.
    fs::remove_dir_all(shared.join("own")).unwrap();
    let outcome = merge();
    assert!(outcome.code() == Some(0) && outcome.stderr.contains("of-eve"), "{outcome}");
}
