//! Merges of runs that are still being written: what they say, and what replaces them.

use rpd_tests::harness::{
    Database, Job, JobOutcome, RunFolder, binary, mpi_missing, rpd_merge, rpd_merge_mpi, skip,
};
use rpd_tests::synthetic::SyntheticRun;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

/// A rank under rpd-collect that runs until there is a file `done`.
struct RunningRank {
    folder: tempfile::TempDir,
    child: Option<Child>,
}

impl RunningRank {
    fn start() -> RunningRank {
        let folder = tempfile::tempdir().unwrap();
        let script = "echo > here; while [ ! -e done ]; do sleep 0.05; done";
        let job = Job::new(binary("rpd-collect"))
            .args(["--run-id", "run", "-o"])
            .arg(folder.path().join("runs"))
            .args(["--", "sh", "-c", script])
            .env("RANK", "0")
            .env("WORLD_SIZE", "1")
            .folder(folder.path());
        let rank = RunningRank { child: Some(job.start()), folder };
        until("the command", || rank.path("here").exists());
        // The first reading of the clocks is written within a second.
        until("a shard with clocks", || {
            let shard = rpd_shard::Shard::open(&rank.path("runs/run/rank-00000.rpdshard"));
            shard.is_ok_and(|shard| !shard.clocks.is_empty() && shard.command.is_some())
        });
        rank
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Process id of the collector.
    fn collector(&self) -> String {
        let pid = self.child.as_ref().unwrap().id();
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
        let name = |pid: &str| fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        let found = children.split_whitespace().find(|pid| name(pid) == "rpd-collector\n");
        found.unwrap_or_else(|| panic!("no collector in {children}")).to_owned()
    }

    fn end(&mut self) {
        fs::write(self.path("done"), "").unwrap();
        if let Some(child) = self.child.take() {
            let ended = child.wait_with_output().unwrap();
            assert!(ended.status.success(), "{ended:?}");
        }
    }

    fn merge(&self, options: &[&str]) -> JobOutcome {
        rpd_merge().args(options).arg("-o").arg(self.path("trace.db")).arg(self.path("runs/run")).run()
    }
}

impl Drop for RunningRank {
    fn drop(&mut self) {
        let _ = fs::write(self.path("done"), "");
        self.child.take().map(|mut child| child.wait());
    }
}

fn until(what: &str, mut is_there: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_there() {
        assert!(began.elapsed() < Duration::from_secs(30), "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn tag(database: &Path, tag: &str) -> Option<String> {
    Database::open(database).metadata().remove(tag).map(|mut values| values.remove(0))
}

#[test]
fn a_run_that_is_still_written_is_merged_as_such_and_a_later_merge_replaces_it() {
    let mut rank = RunningRank::start();
    let output = rank.path("trace.db");
    let early = rank.merge(&[]).success();
    assert!(early.stderr.contains("warning: rank 0 still running, complete up to 20"), "{early}");
    assert!(early.stderr.contains("and that merge replaces this database"), "{early}");
    let mut rpd = rpd_merge().args(["--format", "rpd", "-o"]).arg(rank.path("trace.rpd"));
    rpd = rpd.arg(rank.path("runs/run"));
    let rpd = rpd.run().success();
    assert!(rpd.stderr.contains("merge again with --force") && !rpd.stderr.contains("replaces"), "{rpd}");
    for wrong in ["unknown number", "was not finished", "killed"] {
        assert!(!early.stderr.contains(wrong), "{wrong}: {early}");
    }
    let running: serde_json::Value =
        serde_json::from_str(&tag(&output, "rpd.still_running").unwrap()).unwrap();
    let up_to = running["complete_up_to_ns"].as_i64().unwrap();
    let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos() as i64;
    assert!(
        running["ranks"] == serde_json::json!([0]) && (0..30_000_000_000).contains(&(now - up_to)),
        "{running}"
    );
    let strict = rank.merge(&["--strict", "--force"]);
    assert!(strict.code() == Some(3) && strict.stderr.contains("rank 0 still running"), "{strict}");
    // Once more while it runs, and when it has ended.
    let _ = rank.merge(&[]).success();
    rank.end();
    let whole = rank.merge(&["--strict"]).success();
    assert!(!whole.stderr.contains("still running") && !whole.stderr.contains("warning"), "{whole}");
    assert_eq!(tag(&output, "rpd.still_running"), None);
    let again = rank.merge(&[]);
    assert!(again.code() == Some(5) && again.stderr.contains("is there already; use --force"), "{again}");
}

#[test]
fn a_merge_with_epilog_reports_ranks_that_are_still_running() {
    let mut rank = RunningRank::start();
    let early = rpd_merge().arg("--epilog").arg(rank.path("runs/run")).run().success();
    assert!(early.stderr.contains("warning: rank 0 still running, complete up to 20"), "{early}");
    assert!(!early.stderr.contains("not finished") && !early.stderr.contains("killed"), "{early}");
    let path = rank.path("runs/run/merge.status");
    let status = || fs::read_to_string(&path).unwrap();
    let first = status();
    assert!(first.contains("partial") && first.contains("rank 0 still running"), "{first}");
    rank.end();
    let whole = rpd_merge().arg("--epilog").arg(rank.path("runs/run")).run().success();
    assert!(!whole.stderr.contains("still running") && status().contains("\"done\""), "{whole}");
}

#[test]
fn a_merge_of_another_run_replaces_nothing() {
    let rank = RunningRank::start();
    let _ = rank.merge(&[]).success();
    let before = fs::read(rank.path("trace.db")).unwrap();
    let other = RunFolder::new(&SyntheticRun { events_per_rank: 20, ..SyntheticRun::default() });
    let mut merges = vec![rpd_merge()];
    match mpi_missing() {
        None => merges.push(rpd_merge_mpi(2)),
        Some(why) => skip("a refused replacement under mpirun", why),
    }
    for merge in merges {
        let refused = merge.arg("-o").arg(rank.path("trace.db")).arg(&other.path).run();
        assert!(
            refused.code() == Some(5) && refused.stderr.contains("is there already, of run run"),
            "{refused}"
        );
        assert_eq!(fs::read(rank.path("trace.db")).unwrap(), before);
    }
    let left = fs::read_dir(rank.folder.path()).unwrap().map(|entry| entry.unwrap().file_name());
    assert!(left.into_iter().all(|name| !name.to_string_lossy().contains("partial")));
}

#[test]
fn a_shard_whose_collector_was_killed_is_not_running() {
    let rank = RunningRank::start();
    let collector = rank.collector();
    Command::new("kill").args(["-9", &collector]).status().unwrap();
    until("its end", || {
        let stat = fs::read_to_string(format!("/proc/{collector}/stat")).unwrap_or_default();
        !stat.contains(") ") || stat.contains(") Z")
    });
    let killed = rank.merge(&[]).success();
    assert!(killed.stderr.contains("its collector still records or was killed"), "{killed}");
    assert!(killed.stderr.contains("an unknown number of rows"), "{killed}");
    assert_eq!(tag(&rank.path("trace.db"), "rpd.still_running"), None);
    assert_eq!(rank.merge(&[]).code(), Some(5), "it is as whole as it will ever be");
}
