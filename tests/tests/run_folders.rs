//! What is merged does not depend on how many shards there are, what they are called, or what else
//! lies about; two merges do not hurt each other.

use rpd_shard::ShardWriter;
use rpd_shard::record::{Process, RunIdentity};
use rpd_tests::crafted::shard_of;
use rpd_tests::harness::{
    Database, Job, JobOutcome, RunFolder, assert_refused, binary, dump_difference, leftovers, mpi_missing,
    mpirun, replaced, rpd_merge, skip,
};
use rpd_tests::synthetic::{SyntheticRun, process_record, run_identity, write_shards};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::thread;

/// More shards than a process may have open files.
const SHARDS: u32 = 1_100;
const FEW_FILES: &str = "ulimit -n 64 && exec \"$@\"";

fn many_shards() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let config = SyntheticRun { nodes: 1, ranks_per_node: SHARDS, ..SyntheticRun::default() };
    for rank in 0..SHARDS {
        let path = folder.path().join(format!("rank-{rank:05}.rpdshard"));
        fs::write(path, shard_of(&config, rank, |_| Ok(()))).unwrap();
    }
    let output = folder.path().join("trace.db");
    (folder, output)
}

fn assert_all_merged(outcome: &JobOutcome, output: &Path) {
    assert_eq!(outcome.code(), Some(0), "{outcome}");
    assert!(!outcome.stderr.contains("warning:"), "{outcome}");
    let database = Database::open(output);
    assert_eq!(database.count("rocpd_info_process"), i64::from(SHARDS));
    assert_eq!(database.metadata()["rpd.missing_ranks"], ["[]"]);
    assert_eq!(database.metadata()["rpd.unreadable_shards"], ["0"]);
}

#[test]
fn more_shards_than_open_files_are_merged_completely_alone_and_under_mpi() {
    let (folder, output) = many_shards();
    let outcome = rpd_merge().arg(folder.path()).wrapped("sh", &["-c", FEW_FILES, "sh"]).run();
    assert_all_merged(&outcome, &output);
    if let Some(why) = mpi_missing() {
        return skip("many shards under mpirun", why);
    }
    let alone = Database::open(&output).dump();
    let job = mpirun(2).args(["sh", "-c", FEW_FILES, "sh"]).arg(binary("rpd-merge")).arg("--force");
    assert_all_merged(&job.without_env("RPD_OUTPUT").arg(folder.path()).run(), &output);
    assert_eq!(dump_difference(&alone, &Database::open(&output).dump()), None);
}

#[test]
fn names_of_shards_change_nothing() {
    let run = RunFolder::new(&SyntheticRun { workers: true, ..SyntheticRun::default() });
    let before = run.merged();
    let (dump, guid) = (before.dump(), before.metadata()["guid"].clone());
    drop(before);
    for (rank, name) in ["z", "rank-00000", "a b", "\u{e9}"].iter().enumerate() {
        let away = run.beside(name);
        fs::rename(run.shard(rank as u32), &away).unwrap();
    }
    for name in ["z", "rank-00000", "a b", "\u{e9}"] {
        fs::rename(run.beside(name), run.path.join(format!("{name}.rpdshard"))).unwrap();
    }
    let after = run.merged();
    assert_eq!(after.metadata()["guid"], guid);
    assert_eq!(dump_difference(&dump, &after.dump()), None);
}

#[test]
fn names_of_shards_without_a_rank_change_nothing() {
    let plan = SyntheticRun::default().plan();
    let folder = tempfile::tempdir().unwrap();
    let mut dumps = Vec::new();
    for names in [["a", "b", "c"], ["c", "a", "b"], ["b", "c", "a"]] {
        let run = folder.path().join(names.concat());
        fs::create_dir(&run).unwrap();
        for (name, rank) in names.iter().zip(&plan.ranks) {
            let identity = RunIdentity { rank: None, size: None, ..run_identity(&plan, 0) };
            let process = process_record(&plan, &rank.processes[0]);
            let process = Process { rank: None, size: None, local_rank: None, ..process };
            let mut shard = ShardWriter::new(Vec::new(), &identity).unwrap();
            shard.process(&process).unwrap();
            plan.clock_sets(rank).iter().for_each(|set| shard.clock(set).unwrap());
            shard.string(process.command.as_bytes()).unwrap();
            fs::write(run.join(format!("{name}.rpdshard")), shard.finish().unwrap()).unwrap();
        }
        let _ = rpd_merge().arg(&run).run().success();
        dumps.push(Database::open(&run.join("trace.db")).dump());
    }
    assert!(dumps[0].contains("--rank 2"));
    assert_eq!(dump_difference(&dumps[0], &dumps[1]), None);
    assert_eq!(dump_difference(&dumps[0], &dumps[2]), None);
}

#[test]
fn a_copied_shard_is_left_out_and_told() {
    let run = RunFolder::new(&SyntheticRun::default());
    let whole = run.merged();
    let counts = |database: &Database| -> Vec<i64> {
        database.names("view").iter().filter(|v| v.starts_with("rocpd_")).map(|v| database.count(v)).collect()
    };
    let (before, replaced_before) = (counts(&whole), replaced(&whole));
    drop(whole);
    fs::copy(run.shard(1), run.path.join("copy-of-1.rpdshard")).unwrap();
    let outcome = rpd_merge().args(["--strict", "--force"]).arg(&run.path).run();
    assert_refused(&outcome, 3, &["copy-of-1.rpdshard", "rank-00001.rpdshard"]);
    let outcome = rpd_merge().arg("--force").arg(&run.path).run().success();
    let warnings: Vec<_> = outcome.stderr.lines().filter(|line| line.starts_with("warning:")).collect();
    let told = |name: &str| warnings.iter().filter(|line| line.contains(name)).count();
    assert_eq!(
        (warnings.len(), told("copy-of-1.rpdshard"), told("rank-00001.rpdshard")),
        (1, 1, 1),
        "{outcome}"
    );
    let database = run.database();
    database.assert_sound();
    // The warning counts in the metadata, nothing else does.
    let mut after = counts(&database);
    assert_eq!(after.len(), before.len());
    after.iter_mut().zip(&before).for_each(|(after, before)| *after -= before);
    assert!(after.iter().all(|more| *more == 0), "{after:?}");
    assert_eq!(replaced(&database), replaced_before);
}

/// Runs `count` merges of the run at once, each ready to overwrite what another one has finished.
fn at_once(run: &RunFolder, count: usize) -> Vec<JobOutcome> {
    let merge = || rpd_merge().arg("--force").arg(&run.path).run();
    thread::scope(|scope| {
        let all: Vec<_> = (0..count).map(|_| scope.spawn(merge)).collect();
        all.into_iter().map(|merge| merge.join().unwrap()).collect()
    })
}

#[test]
fn merges_of_one_run_at_once_do_not_hurt_each_other() {
    let run = RunFolder::new(&SyntheticRun { events_per_rank: 2_000, ..SyntheticRun::default() });
    let alone = run.merged().dump();
    for _ in 0..3 {
        fs::remove_file(run.path.join("trace.db")).unwrap();
        let outcomes = at_once(&run, 4);
        let (merged, refused): (Vec<_>, Vec<_>) = outcomes.iter().partition(|o| o.code() == Some(0));
        assert!(!merged.is_empty(), "{outcomes:?}");
        refused
            .into_iter()
            .for_each(|loser| assert_refused(loser, 5, &["another merge is writing", "trace.db"]));
        let database = run.database();
        database.assert_sound();
        assert_eq!(dump_difference(&alone, &database.dump()), None);
        assert_eq!(leftovers(&run.path), [run.path.join("trace.db")]);
    }
}

#[test]
fn srun_without_mpi_is_refused_in_one_line() {
    let run = RunFolder::new(&SyntheticRun::default());
    let job = rpd_merge().env("SLURM_STEP_NUM_TASKS", "4").env("SLURM_PROCID", "1").arg(&run.path);
    let outcome = job.run();
    assert_refused(&outcome, 2, &["srun", "4 tasks", "--mpi"]);
    assert_eq!(outcome.stderr.lines().count(), 1, "{outcome}");
    assert_eq!(leftovers(&run.path), Vec::<PathBuf>::new());
    // One task needs nobody, and a batch script is no task.
    let one = rpd_merge().env("SLURM_STEP_NUM_TASKS", "1").env("SLURM_PROCID", "0").arg(&run.path);
    let _ = one.run().success();
}

#[test]
fn a_foreign_run_that_cannot_be_read_does_not_hide_the_newest_own_one() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("rpd-out");
    let own = write_shards(&SyntheticRun::default().plan(), &root).unwrap();
    let foreign = write_shards(&SyntheticRun { seed: 2, ..SyntheticRun::default() }.plan(), &root).unwrap();
    let mode = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    let mut job = rpd_merge();
    if rustix::process::geteuid().is_root() {
        // Root may read everything: somebody else, with a copy of the program where all can run it.
        let program = folder.path().join("rpd-merge");
        fs::copy(binary("rpd-merge"), &program).unwrap();
        [folder.path(), &root, &program].iter().for_each(|path| mode(path, 0o755));
        mode(&own, 0o777);
        let user = ["--reuid=65534", "--regid=65534", "--clear-groups"];
        let possible = Job::new(&program).arg("--version").wrapped("setpriv", &user).run();
        if possible.code() != Some(0) {
            return skip("an unreadable foreign run", "setpriv cannot make another user here");
        }
        job = Job::new(&program).without_env("RPD_OUTPUT").wrapped("setpriv", &user);
    }
    mode(&foreign, 0o000);
    let outcome = job.folder(folder.path()).run();
    mode(&foreign, 0o755);
    assert_eq!(outcome.code(), Some(0), "{outcome}");
    assert_eq!(leftovers(&root), [own.join("trace.db")]);
}

#[test]
fn an_output_that_appears_during_the_merge_is_kept() {
    let run = RunFolder::new(&SyntheticRun { events_per_rank: 20_000, ..SyntheticRun::default() });
    let output = run.beside("appears.db");
    let outcome = thread::scope(|scope| {
        let merge = scope.spawn(|| rpd_merge().arg("-o").arg(&output).arg(&run.path).run());
        // The lock says that the merge has looked for the output already.
        let lock = run.beside("appears.db.lock");
        while !lock.exists() && !merge.is_finished() {
            thread::yield_now();
        }
        fs::write(&output, "precious").unwrap();
        merge.join().unwrap()
    });
    assert_refused(&outcome, 5, &["appears.db", "--force"]);
    assert_eq!(fs::read_to_string(&output).unwrap(), "precious");
}

#[test]
fn of_a_shard_and_its_cut_copy_the_whole_one_is_merged() {
    let run = RunFolder::new(&SyntheticRun::default());
    let whole = run.merged().count("rocpd_event");
    let bytes = fs::read(run.shard(1)).unwrap();
    let blocks = rpd_tests::crafted::blocks(&bytes);
    let cut = blocks[blocks.len() / 2].offset as usize;
    fs::write(run.path.join("a-backup.rpdshard"), &bytes[..cut]).unwrap();
    fs::remove_file(run.path.join("trace.db")).unwrap();
    assert_eq!(run.merged().count("rocpd_event"), whole);
}

#[test]
fn a_folder_with_runs_of_another_user_alone_says_whose_they_are_and_how_to_merge_them() {
    let run = RunFolder::new(&SyntheticRun::default());
    let root = tempfile::tempdir().unwrap();
    let theirs = root.path().join("theirs");
    fs::create_dir(&theirs).unwrap();
    fs::copy(run.shard(0), theirs.join("rank-00000.rpdshard")).unwrap();
    for (path, mode) in [(root.path(), 0o755), (&theirs, 0o700)] {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }
    // Another user may not execute what lies in this user's folders.
    let program = root.path().join("rpd-merge");
    fs::copy(binary("rpd-merge"), &program).unwrap();
    let as_other = ["--reuid", "60001", "--regid", "60001", "--clear-groups"];
    let other = |job: Job| job.folder(root.path()).wrapped("setpriv", &as_other);
    if !is_root() || other(Job::new(&program).arg("--version")).run().code() != Some(0) {
        return skip("runs of another user", "no other user can be taken on");
    }
    let whose = format!(
        "{0} of uid 0 cannot be read by you; have its owner merge it, or share it (rpd-collect --share group), and then: \
         rpd-merge {0} -o FILE",
        theirs.display()
    );
    let place = tempfile::tempdir().unwrap();
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let named = other(Job::new(&program).arg(root.path()).arg("-o").arg(place.path().join("trace.db"))).run();
    assert_eq!(
        (named.code(), named.stderr.as_str()),
        (Some(4), format!("error: {whose}\n").as_str()),
        "{named}"
    );
    let unnamed = other(Job::new(&program).env("RPD_OUTPUT", root.path())).run();
    assert!(unnamed.stderr.contains("no input named and no run with shards in "), "{unnamed}");
    assert!(unnamed.stderr.contains(&whose), "{unnamed}");
}

fn is_root() -> bool {
    Job::new("id").arg("-u").run().stdout.trim() == "0"
}
