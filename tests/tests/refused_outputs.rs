//! What a merge never overwrites, and what it does when nobody can read its report.

use rpd_tests::databases::DatabaseJob;
use rpd_tests::fixtures;
use rpd_tests::harness::{JobOutcome, RunFolder, assert_refused, leftovers, rpd_merge};
use rpd_tests::synthetic::{SyntheticRun, write_shards};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

fn run() -> RunFolder {
    RunFolder::new(&SyntheticRun { nodes: 1, ..SyntheticRun::default() })
}

fn forced(run: &RunFolder, output: &Path) -> JobOutcome {
    rpd_merge().args(["--force", "-o"]).arg(output).arg(&run.path).run()
}

#[test]
fn force_overwrites_no_shard_no_text_and_no_device() {
    let run = run();
    let shard = fs::read(run.shard(0)).unwrap();
    assert_refused(&forced(&run, &run.shard(0)), 5, &["rank-00000.rpdshard", "-o"]);
    assert_eq!(fs::read(run.shard(0)).unwrap(), shard);

    let text = run.path.join("notes.txt");
    fs::write(&text, "mine, and longer than a header").unwrap();
    assert_refused(&forced(&run, &text), 5, &["notes.txt", "not a SQLite database"]);
    assert_eq!(fs::read(&text).unwrap(), b"mine, and longer than a header");

    let partial = run.path.join("new.db.partial");
    fs::write(&partial, "mine, and longer than a header").unwrap();
    assert_refused(&forced(&run, &run.path.join("new.db")), 5, &["new.db.partial"]);
    assert!(partial.exists());
    assert_refused(&forced(&run, Path::new("/dev/null")), 5, &["/dev/null", "not a regular file"]);
}

#[test]
fn an_output_is_reported_as_it_was_written_and_a_link_by_its_target() {
    let (run, folder) = (run(), tempfile::tempdir().unwrap());
    let reported = |output: &str| {
        let merge = rpd_merge().args(["--force", "-o", output]).arg(&run.path).folder(folder.path());
        let text = merge.run().success().stderr;
        let line = text.lines().find_map(|line| line.strip_prefix("output"));
        line.unwrap_or_else(|| panic!("{text}")).trim().to_owned()
    };
    symlink("z.db", folder.path().join("link.db")).unwrap();
    assert_eq!((reported("z.db"), reported("z.db")), ("z.db".to_owned(), "z.db".to_owned()));
    let target = fs::canonicalize(folder.path()).unwrap().join("z.db");
    assert_eq!(reported("link.db"), target.to_string_lossy());
}

/// A database that no merge made.
fn accounts(path: &Path) {
    let bank = rusqlite::Connection::open(path).unwrap();
    bank.execute_batch("CREATE TABLE accounts(id, v); INSERT INTO accounts VALUES (1, 2)").unwrap();
}

#[test]
fn force_overwrites_what_a_merge_made_and_no_other_database() {
    let job = DatabaseJob::small();
    let forced = |format: &str, output: &Path| {
        let merge = rpd_merge().args(["--force", "--format", format, "-o"]).arg(output);
        merge.arg(&job.inputs[1]).run()
    };
    let (bank, raw, rpd) = (job.beside("bank.db"), job.beside("raw.db"), job.beside("raw.rpd"));
    accounts(&bank);
    fs::copy(&job.inputs[0], &raw).unwrap();
    let legacy = job.beside("legacy");
    fs::create_dir(&legacy).unwrap();
    let legacy = fixtures::rpd_files(&legacy);
    if let Some(path) = legacy.first() {
        fs::copy(path, &rpd).unwrap();
    }
    let others = [
        (&bank, "is a SQLite database of somebody else"),
        (&raw, "is a RocPD database of a profiler"),
        (&rpd, "is a .rpd of a profiler"),
    ];
    for (path, what) in others.into_iter().filter(|(path, _)| path.exists()) {
        let before = fs::read(path).unwrap();
        for format in ["rocpd", "rpd"] {
            assert_refused(&forced(format, path), 5, &[&path.to_string_lossy(), what, "move it away"]);
            assert!(fs::read(path).unwrap() == before, "{}", path.display());
        }
    }
    // What a merge made is replaced, in any format, also by its metadata alone, and where it is damaged.
    let ours = job.beside("ours.db");
    for format in ["rocpd", "rpd", "rpd", "rocpd"] {
        let _ = forced(format, &ours).success();
        let file = rusqlite::Connection::open(&ours).unwrap();
        let id: i64 = file.query_row("PRAGMA application_id", [], |row| row.get(0)).unwrap();
        assert_eq!(id, i64::from(u32::from_be_bytes(*b"rpdm")), "{format}");
        file.execute_batch("PRAGMA application_id = 0").unwrap();
    }
    let _ = forced("rocpd", &ours).success();
    fs::OpenOptions::new().write(true).open(&ours).unwrap().set_len(5_000).unwrap();
    let _ = forced("rocpd", &ours).success();
}

#[test]
fn what_no_merge_left_stays_whatever_it_is_called() {
    let job = DatabaseJob::small();
    let bank = job.beside("bank.db");
    accounts(&bank);
    for suffix in ["partial", "partial.rpd"] {
        let output = job.beside("out.db");
        let own = job.beside(&format!("out.db.{suffix}"));
        for content in [&bank, &job.inputs[0]] {
            fs::copy(content, &own).unwrap();
            let merge = || rpd_merge().arg("-o").arg(&output);
            let outcome = merge().arg(&job.inputs[1]).run();
            assert_refused(&outcome, 5, &[&own.to_string_lossy(), "was not left by a merge"]);
            // And where it is an input itself.
            let outcome = merge().arg(&own).run();
            assert_refused(&outcome, 5, &[&own.to_string_lossy(), "one of the inputs"]);
            assert!(fs::read(&own).unwrap() == fs::read(content).unwrap());
        }
        fs::remove_file(&own).unwrap();
        symlink(&bank, &own).unwrap();
        let outcome = rpd_merge().arg("-o").arg(&output).arg(&job.inputs[1]).run();
        assert_refused(&outcome, 5, &["was not left by a merge"]);
        fs::remove_file(&own).unwrap();
        assert!(!output.exists());
    }
    let folder = job.beside("out.db.translated");
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("mine.txt"), "mine").unwrap();
    let legacy = job.beside("legacy");
    fs::create_dir(&legacy).unwrap();
    if fixtures::rpd_files(&legacy).is_empty() {
        return;
    }
    let outcome = rpd_merge().arg("-o").arg(job.beside("out.db")).arg(&legacy).run();
    assert_refused(&outcome, 5, &["out.db.translated", "was not left by a merge"]);
    assert_eq!(fs::read_to_string(folder.join("mine.txt")).unwrap(), "mine");
}

#[test]
fn a_link_stays_a_link_and_its_target_is_written() {
    let run = run();
    let (link, target) = (run.path.join("link.db"), run.path.join("target.db"));
    symlink(&target, &link).unwrap();
    assert_refused(&forced(&run, &link), 5, &["link.db"]);
    fs::write(&target, "").unwrap();
    let _ = forced(&run, &link).success();
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert!(fs::metadata(&target).unwrap().len() > 0);
    assert_eq!(leftovers(&run.path).len(), 2);
}

#[test]
fn a_fifo_among_the_shards_is_left_out_and_not_waited_for() {
    let run = run();
    let fifo = run.path.join("rank-00009.rpdshard");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let outcome = rpd_merge().arg(&run.path).run().success();
    assert!(outcome.stderr.contains("rank-00009.rpdshard"), "{outcome}");
    assert_refused(&rpd_merge().arg("--force").arg(&fifo).run(), 4, &["rank-00009.rpdshard"]);
}

#[test]
fn two_jobs_under_one_run_id_are_told_and_fatal_under_strict() {
    let run = run();
    let other = SyntheticRun { nodes: 1, seed: 99, ..SyntheticRun::default() };
    let folder = tempfile::tempdir().unwrap();
    let run_id = run.path.file_name().unwrap().to_str().unwrap();
    write_shards(&other.plan_as(run_id), folder.path()).unwrap();
    fs::copy(folder.path().join(run_id).join("rank-00001.rpdshard"), run.path.join("rank-00001.1.rpdshard"))
        .unwrap();
    let outcome = rpd_merge().arg(&run.path).run().success();
    assert!(outcome.stderr.contains("more than one collector was rank 1"), "{outcome}");
    let strict = rpd_merge().args(["--strict", "--force"]).arg(&run.path).run();
    assert_refused(&strict, 3, &["more than one collector was rank 1"]);
}

#[test]
fn a_report_that_nobody_reads_is_no_crash() {
    let run = run();
    let binary = rpd_tests::harness::binary("rpd-merge");
    let merge = |to: &str| {
        let script = format!("\"$1\" --json --force \"$2\" {to}");
        let args = ["-c", &script, "sh"];
        Command::new("bash").args(args).arg(&binary).arg(&run.path).output().unwrap()
    };
    let full = merge("> /dev/full");
    let told = String::from_utf8_lossy(&full.stderr);
    assert_eq!(full.status.code(), Some(5), "{told}");
    assert!(told.contains("error: cannot print the report") && !told.contains("panicked"), "{told}");
    let closed = merge("| true; exit ${PIPESTATUS[0]}");
    assert_eq!(closed.status.code(), Some(0), "{}", String::from_utf8_lossy(&closed.stderr));
}
