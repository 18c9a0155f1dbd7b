//! Merges at the end of a job: once, in time, and with a status that tells the truth.

use rpd_tests::harness::{Job, RunFolder, mpi_missing, rpd_merge, rpd_merge_mpi, skip};
use rpd_tests::synthetic::SyntheticRun;
use serde_json::Value as Json;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Child;
use std::thread::sleep;
use std::time::{Duration, Instant};

fn run() -> RunFolder {
    RunFolder::new(&SyntheticRun { kernels: 50, ..SyntheticRun::default() })
}

fn status(home: &Path) -> Json {
    serde_json::from_str(&fs::read_to_string(home.join("merge.status")).unwrap()).unwrap()
}

fn leases(home: &Path) -> usize {
    let names = fs::read_dir(home).unwrap().map(|entry| entry.unwrap().file_name());
    names.filter(|name| name.to_string_lossy().contains(".lease")).count()
}

#[test]
fn a_run_is_merged_once_and_again_when_more_has_come() {
    let run = run();
    let home = &run.path;
    let late = run.shard(1);
    let aside = run.beside("aside");
    fs::rename(&late, &aside).unwrap();
    fs::write(home.join("merge.wanted"), "").unwrap();
    let merge = || rpd_merge().arg("--epilog").arg(home).run().success();
    let _ = merge();
    let first = status(home);
    assert_eq!(first["state"], "partial", "{first}");
    assert!(first["why"].as_str().unwrap().contains("rank 1"), "{first}");
    assert!(!home.join("merge.wanted").exists());
    assert!(merge().stderr.contains("nothing to merge"));
    fs::rename(&aside, &late).unwrap();
    let _ = merge();
    let second = status(home);
    assert_eq!((&second["state"], leases(home)), (&"done".into(), 0), "{second}");
    assert_eq!(second["output"].as_str().map(Path::new), Some(&*home.join("trace.db")));
    assert!(second["begun"].as_u64() <= second["ended"].as_u64());
    // Traces have a status of their own, and are made although the database is.
    let _ = rpd_merge().args(["--epilog", "--split-by-time", "2"]).arg(home).run().success();
    assert!(home.join("trace.status").exists());
    assert_eq!(status(home), second);
    let _ = rpd_merge().args(["--epilog", "--split-by-time", "3"]).arg(home).run().success();
    let traces = fs::read_dir(home).unwrap().flatten().map(|entry| entry.file_name());
    assert_eq!(traces.filter(|name| name.to_string_lossy().contains(".pftrace")).count(), 3);
    // So has another place.
    let outcome = rpd_merge().args(["--epilog", "-o"]).arg(run.beside("other.db")).arg(home).run().success();
    assert!(run.beside("other.db").exists(), "{outcome}");
}

#[test]
fn of_many_at_once_one_merges() {
    let run = run();
    let home = &run.path;
    let children: Vec<_> = (0..6).map(|_| rpd_merge().arg("--epilog").arg(home).start()).collect();
    let said: Vec<String> = children
        .into_iter()
        .map(|child| {
            let outcome = child.wait_with_output().unwrap();
            assert!(outcome.status.success());
            String::from_utf8_lossy(&outcome.stderr).into_owned()
        })
        .collect();
    let idle = said.iter().filter(|text| text.contains("nothing to")).count();
    assert_eq!((idle, status(home)["state"].as_str()), (5, Some("done")), "{said:#?}");
}

#[test]
fn who_has_the_lease_keeps_others_away_until_it_is_over_and_failures_are_told() {
    let run = run();
    let home = &run.path;
    fs::remove_file(run.shard(1)).unwrap();
    // A dead holder of the lease.
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    let lease = |until: u64| format!("{{\"host\":\"n7\",\"pid\":4711,\"until\":{until}}}");
    fs::write(home.join("merge.lease.0"), lease(now + 3600)).unwrap();
    let outcome = rpd_merge().args(["--epilog", "--lease", "1"]).arg(home).run();
    assert_eq!(outcome.code(), Some(3), "{outcome}");
    assert!(outcome.stderr.contains("process 4711 on n7 still merges"), "{outcome}");
    assert!(!home.join("trace.db").exists() && !home.join("merge.status").exists());
    fs::write(home.join("merge.lease.0"), lease(now - 1)).unwrap();
    let _ = rpd_merge().arg("--epilog").arg(home).run().success();
    assert_eq!(status(home)["state"], "partial");
    // Nothing to write to, and no words for it: told by the exit code and in the status.
    let folder = run.beside("a-folder");
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("x"), "").unwrap();
    let outcome = rpd_merge().args(["--epilog", "-o"]).arg(&folder).arg(home).run();
    assert!(outcome.code() != Some(0), "{outcome}");
    let told = status(home);
    assert_eq!(told["state"], "failed", "{told}");
    assert!(outcome.stderr.contains(told["why"].as_str().unwrap()), "{outcome} {told}");
}

/// A merge that takes a second, stopped when it has just begun.
fn stopped(home: &Path, options: &[&str]) -> Child {
    let child = rpd_merge().args(["--epilog", "--threads", "1"]).args(options).arg(home).start();
    let until = Instant::now() + Duration::from_secs(20);
    while !home.join("merge.status").exists() && Instant::now() < until {
        sleep(Duration::from_millis(1));
    }
    send(&child, "-STOP");
    child
}

fn send(child: &Child, signal: &str) {
    let _ = Job::new("kill").args([signal, &child.id().to_string()]).run().success();
}

#[test]
fn a_merge_that_is_ended_or_late_says_so_and_leaves_no_lease() {
    let run = RunFolder::new(&SyntheticRun { kernels: 60_000, ..SyntheticRun::default() });
    let home = &run.path;
    let mut child = stopped(home, &[]);
    send(&child, "-TERM");
    send(&child, "-CONT");
    let ended = child.wait().unwrap();
    let told = status(home);
    assert_eq!((told["state"].as_str(), leases(home)), (Some("failed"), 0), "{ended:?} {told}");
    assert!(told["why"].as_str().unwrap().contains("SIGTERM"), "{told}");
    assert_eq!(ended.signal(), Some(15));

    fs::remove_file(home.join("merge.status")).unwrap();
    let mut child = stopped(home, &["--lease", "1"]);
    sleep(Duration::from_millis(1100));
    send(&child, "-CONT");
    assert_eq!(child.wait().unwrap().code(), Some(3));
    assert!(status(home)["why"].as_str().unwrap().contains("--lease"), "{}", status(home));

    // One that is killed cannot say so; its lease ends with it, for others on this node.
    fs::remove_file(home.join("merge.status")).unwrap();
    let mut child = stopped(home, &[]);
    send(&child, "-KILL");
    child.wait().unwrap();
    assert_eq!((status(home)["state"].as_str(), leases(home)), (Some("merging"), 2));
    let _ = rpd_merge().arg("--epilog").arg(home).run().success();
    assert_eq!(status(home)["state"], "done");
}

#[test]
fn a_run_without_anything_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let outcome = rpd_merge().arg("--epilog").arg(folder.path()).run();
    assert_eq!(outcome.code(), Some(4), "{outcome}");
    assert_eq!(status(folder.path())["state"], "failed");
}

#[test]
fn a_variable_that_names_no_file_stops_no_merge() {
    let run = run();
    let outcome = rpd_merge().arg("--epilog").arg(&run.path).env("RPD_CONFIG", "typo").run().success();
    assert!(outcome.stderr.contains("RPD_CONFIG: there is no preset"), "{outcome}");
    assert_eq!(status(&run.path)["state"], "done");
}

#[test]
fn what_is_shared_the_group_reads_and_nobody_else() {
    let run = run();
    let home = &run.path;
    let mode = |name: &str| fs::metadata(home.join(name)).unwrap().permissions().mode() & 0o777;
    let merge = |options: &[&str]| rpd_merge().arg("--epilog").args(options).arg(home);
    let _ = merge(&[]).run().success();
    assert_eq!(["trace.db", "merge.status"].map(mode), [0o600; 2]);
    let _ = merge(&[]).env("RPD_SHARE", "group").run().success();
    assert_eq!(["trace.db", "merge.status"].map(mode), [0o640; 2]);
    let traces = home.join("traces");
    let split = ["--split-by-time", "2", "--share", "group", "-o", traces.to_str().unwrap()];
    let _ = merge(&split).run().success();
    assert_eq!(["traces", "trace.status"].map(mode), [0o750, 0o640]);
    let traces: Vec<_> = fs::read_dir(traces).unwrap().map(|entry| entry.unwrap()).collect();
    assert!(traces.len() > 2, "an index, too");
    for trace in traces {
        let is_lock = trace.file_name().to_string_lossy().ends_with(".lock");
        let wanted = if is_lock { 0o600 } else { 0o640 };
        assert_eq!(trace.metadata().unwrap().permissions().mode() & 0o777, wanted, "{trace:?}");
    }
}

#[test]
fn ranks_of_mpi_merge_once_together() {
    if let Some(why) = mpi_missing() {
        return skip("merges at the end of a job under MPI", why);
    }
    let run = run();
    let home = &run.path;
    let merge = || rpd_merge_mpi(3).arg("--epilog").arg(home).run().success();
    let _ = merge();
    assert_eq!((status(home)["state"].as_str(), leases(home)), (Some("done"), 0));
    let again = merge();
    assert_eq!(again.stderr.matches("nothing to merge").count(), 1, "{again}");
}

#[test]
fn shards_that_come_late_are_waited_for_and_no_longer_than_that() {
    let run = run();
    let home = &run.path;
    let late = run.shard(1);
    let aside = run.beside("aside");
    fs::rename(&late, &aside).unwrap();
    let outcome = rpd_merge().args(["--wait", "3"]).arg(home).run().success();
    assert!(outcome.stderr.contains("waited for 3 s, and"), "{outcome}");
    // A merge of a named shard does not wait for the others.
    let one = rpd_merge().args(["--wait", "50", "-o"]).arg(run.beside("one.db")).arg(run.shard(0));
    let outcome = one.run().success();
    assert!(!outcome.stderr.contains("waited"), "{outcome}");
    let waits = rpd_merge().args(["--wait", "50", "--strict", "--force"]).arg(home).start();
    sleep(Duration::from_millis(700));
    fs::rename(&aside, &late).unwrap();
    let outcome = waits.wait_with_output().unwrap();
    assert!(outcome.status.success(), "{}", String::from_utf8_lossy(&outcome.stderr));
}

#[test]
fn the_wait_of_a_merge_that_has_a_time_is_a_part_of_it() {
    let run = run();
    let home = &run.path;
    fs::remove_file(run.shard(1)).unwrap();
    let begun = Instant::now();
    let merge = || rpd_merge().args(["--epilog", "--wait", "600", "--lease", "6"]).arg(home).run().success();
    let outcome = merge();
    assert!(outcome.stderr.contains("waited for 3 s, and"), "{outcome}");
    assert!(begun.elapsed() < Duration::from_secs(60));
    let told = status(home);
    assert!(told["until"].as_f64().unwrap() - told["begun"].as_f64().unwrap() < 4.0, "{told}");
    // Another budget is no other merge, nor is another way to the same output.
    let again = |options: &[&str]| rpd_merge().args(["--epilog"]).args(options).arg(home).run().success();
    for options in [
        &["--memory", "300M", "--threads", "1"][..],
        &["-o", &format!("{}/../trace.db", home.join("clocks").display())],
    ] {
        fs::create_dir_all(home.join("clocks")).unwrap();
        let outcome = again(options);
        assert!(outcome.stderr.contains("nothing to merge"), "{outcome}");
    }
}

#[test]
fn nobody_waits_for_what_is_long_over_or_merged() {
    let run = run();
    let home = &run.path;
    fs::remove_file(run.shard(1)).unwrap();
    for rank in [0, 2, 3] {
        let long_ago = std::time::SystemTime::now() - Duration::from_secs(3600);
        fs::File::options().append(true).open(run.shard(rank)).unwrap().set_modified(long_ago).unwrap();
    }
    let merge = || rpd_merge().args(["--epilog", "--wait", "600"]).arg(home).run().success();
    let outcome = merge();
    assert!(outcome.stderr.contains("nothing was written for"), "{outcome}");
    assert!(outcome.stderr.contains("1 ranks have no shard"), "{outcome}");
    let outcome = merge();
    assert!(outcome.stderr.contains("nothing to merge"), "{outcome}");
    assert!(!outcome.stderr.contains("nothing was written"), "{outcome}");
    // The shards are gone: what was made of them is still as good.
    let told = status(home);
    for rank in [0, 2, 3] {
        fs::remove_file(run.shard(rank)).unwrap();
    }
    assert_eq!(rpd_merge().arg("--epilog").arg(home).run().code(), Some(4));
    assert_eq!(status(home), told);
    // Traces that are drawn of it have what it has.
    let database = home.join("trace.db");
    let _ = rpd_merge().args(["--epilog", "--split-by-time", "2"]).arg(&database).run().success();
    let drawn: Json = serde_json::from_str(&fs::read_to_string(home.join("trace.status")).unwrap()).unwrap();
    assert!(drawn["why"].as_str().unwrap().contains("trace.db is in it"), "{drawn}");
}
