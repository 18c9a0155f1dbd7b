//! Merges of databases that are interrupted, and what they neither pass on nor touch.

use rpd_tests::databases::{DatabaseJob, change};
use rpd_tests::fixtures;
use rpd_tests::harness::{Database, Job, assert_refused, binary, leftovers, rpd_merge, skip};
use rpd_tests::synthetic::SyntheticRun;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

// --- rows that are not passed on, and files that are not touched -----------------------------------------

#[test]
fn secrets_of_the_recorded_environment_do_not_reach_the_output() {
    let job = DatabaseJob::small();
    let secrets = [
        ("GITHUB_TOKEN", "ghp_sEcReT0001"),
        ("AWS_SECRET_ACCESS_KEY", "wJalrsEcReT0002"),
        ("MY_API_KEY", "sEcReT0003"),
        ("DB_PASSWORD", "sEcReT0004"),
        ("WANDB_API_KEY", "sEcReT0005"),
        ("SSH_AUTH_SOCK_SECRET", "sEcReT0006"),
    ];
    for (rank, path) in job.inputs.iter().enumerate() {
        let mut environment = serde_json::json!({"OMPI_COMM_WORLD_RANK": rank.to_string(), "HSA_XNACK": "1"});
        secrets.iter().for_each(|(name, value)| environment[name] = (*value).into());
        let text = environment.to_string().replace('\'', "''");
        change(path, &[&format!("UPDATE rocpd_info_process<uuid> SET environment = '{text}'")]);
    }
    for arguments in [&["--json"][..], &["--json", "--layout", "partitioned"]] {
        let outcome = job.merge(arguments).success();
        let bytes = fs::read(job.output()).unwrap();
        for (name, secret) in secrets {
            let found = bytes.windows(secret.len()).any(|window| window == secret.as_bytes());
            assert!(!found, "{name} is in the output of {arguments:?}");
        }
        let told = format!("{}{}", outcome.stdout, outcome.stderr);
        assert!(!told.contains("sEcReT"), "{outcome}");
        let database = Database::open(&job.output());
        let ranks =
            database.rows("SELECT json_extract(extdata, '$.rpd.rank') FROM rocpd_info_process ORDER BY 1");
        assert_eq!(ranks, [["0"], ["1"], ["2"], ["3"]]);
    }
}

/// Name, size, inode and times of everything in a folder, and of the folder.
fn listing(folder: &Path) -> Vec<(PathBuf, u64, u64, i64, i64)> {
    let entry = |path: PathBuf| {
        let found = fs::symlink_metadata(&path).unwrap();
        (path, found.size(), found.ino(), found.mtime(), found.mtime_nsec())
    };
    let mut all = vec![entry(folder.to_owned())];
    all.extend(fs::read_dir(folder).unwrap().map(|found| entry(found.unwrap().path())));
    all.sort();
    all
}

#[test]
fn nothing_is_made_or_changed_beside_an_input() {
    let job = DatabaseJob::small();
    fixtures::rpd_files(&job.place());
    fixtures::rocprofv3_json(&job.place());
    // The folder's own time tells even of a file that was made and removed again.
    let before = listing(&job.place());
    for arguments in [&[][..], &["--layout", "partitioned"], &["--verify"], &["--dry-run"]] {
        let _ = job.merge(arguments).success();
        assert_eq!(before, listing(&job.place()), "{arguments:?}");
    }
}

// --- interruptions ---------------------------------------------------------------------------------------

#[test]
fn a_disk_that_fills_up_in_the_middle_leaves_nothing() {
    let job = DatabaseJob::new(&SyntheticRun { events_per_rank: 2_000, ..SyntheticRun::default() });
    let _ = job.merge(&["--quiet"]).success();
    let whole = fs::metadata(job.output()).unwrap().len();
    fs::remove_file(job.output()).unwrap();
    let place = job.beside("disk");
    fs::create_dir(&place).unwrap();
    let output = place.join("out.db");
    for percent in [5, 50, 95] {
        let bytes = whole * percent / 100;
        // A limit on file sizes, in blocks of 512 bytes.
        let limit = format!("ulimit -f {} && exec \"$@\"", bytes / 512);
        let limited = Job::new("sh").args(["-c", &limit, "sh"]).arg(binary("rpd-merge"));
        let outcome = limited.arg("-o").arg(&output).arg(job.place()).run();
        assert_refused(&outcome, 5, &["out.db"]);
        assert_eq!(fs::read_dir(&place).unwrap().count(), 0, "{percent} %: {:?}", leftovers(&place));
        // A disk of that size.
        let script = "mount -t tmpfs -o \"size=$1\" tmpfs \"$2\" || exit 99; folder=$2; shift 2; \"$@\"; code=$?; \
                      ls -A \"$folder\"; exit $code";
        let disk =
            Job::new("unshare").args(["--mount", "sh", "-c", script, "sh", &bytes.to_string()]).arg(&place);
        let outcome = disk.arg(binary("rpd-merge")).arg("-o").arg(&output).arg(job.place()).run();
        if outcome.code() == Some(99) || outcome.stderr.contains("unshare") {
            skip("a full disk", "a tmpfs cannot be mounted here");
            continue;
        }
        assert_refused(&outcome, 5, &["out.db", "disk is full"]);
        assert_eq!(outcome.stdout, "", "{percent} %: left on the full disk: {outcome}");
    }
}

#[test]
fn after_a_sigkill_in_the_middle_a_rerun_gives_the_same_file_and_leaves_nothing() {
    let job = DatabaseJob::new(&SyntheticRun { events_per_rank: 4_000, ..SyntheticRun::default() });
    fixtures::rpd_files(&job.place());
    fixtures::rocprofv3_json(&job.place());
    let _ = job.merge(&["--quiet"]).success();
    let expected = fs::read(job.output()).unwrap();
    fs::remove_file(job.output()).unwrap();
    let temporary = job.beside("tmp");
    fs::create_dir(&temporary).unwrap();
    let merge = || {
        let merge = rpd_merge().env("TMPDIR", &temporary).args(["--quiet", "-o"]);
        merge.arg(job.output()).arg(job.place())
    };
    let partial = job.beside("out.db.partial");
    let mut killed = 0;
    for wait in [0, 1, 3, 10, 30, 60] {
        let mut child = merge().start();
        let began = Instant::now();
        while !partial.exists() && began.elapsed() < Duration::from_secs(20) {
            std::thread::sleep(Duration::from_micros(200));
        }
        std::thread::sleep(Duration::from_millis(wait));
        let _ = child.kill();
        child.wait().unwrap();
        if job.output().exists() {
            // It was faster.
            fs::remove_file(job.output()).unwrap();
            continue;
        }
        killed += 1;
        let _ = merge().run().success();
        assert!(fs::read(job.output()).unwrap() == expected, "after {wait} ms: another file");
        fs::remove_file(job.output()).unwrap();
        let mut left: Vec<PathBuf> = leftovers(job.place().parent().unwrap());
        left.retain(|path| !path.starts_with(job.place()));
        assert_eq!(left, Vec::<PathBuf>::new(), "after {wait} ms");
        assert_eq!(fs::read_dir(&temporary).unwrap().count(), 0, "after {wait} ms: left in TMPDIR");
    }
    assert!(killed > 0, "no merge was killed in the middle");
}
