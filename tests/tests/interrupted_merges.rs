//! A merge that a user or the batch system ends says so, leaves nothing, and has the exit code of the signal.

use rpd_tests::harness::{Job, RunFolder, binary, leftovers, mpi_missing, rpd_merge, rpd_merge_mpi, skip};
use rpd_tests::synthetic::SyntheticRun;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Output};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// A run that takes a second to merge.
fn run() -> RunFolder {
    RunFolder::new(&SyntheticRun { kernels: 60_000, ..SyntheticRun::default() })
}

/// Waits for a file, then sends a signal to the process.
fn signal_at(child: &Child, file: &Path, signal: &str) {
    let until = Instant::now() + Duration::from_secs(30);
    while !file.exists() {
        assert!(Instant::now() < until, "{} has not appeared", file.display());
        sleep(Duration::from_micros(200));
    }
    let _ = Job::new("kill").args([signal, &child.id().to_string()]).run().success();
}

fn ended(child: Child) -> (Output, String) {
    let output = child.wait_with_output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    (output, stderr)
}

fn assert_interrupted(child: Child, code: i32, name: &str, folder: &Path) {
    let (output, stderr) = ended(child);
    assert_eq!(output.status.code(), Some(code), "{stderr}");
    let lines: Vec<&str> = stderr.lines().filter(|line| line.contains("error:")).collect();
    let text = format!("error: the merge was ended by {name}: nothing of it is kept; merge again");
    assert_eq!(lines, [text.as_str()], "{stderr}");
    assert_eq!(leftovers(folder), Vec::<std::path::PathBuf>::new(), "{stderr}");
}

#[test]
fn a_merge_that_is_interrupted_says_so_and_leaves_nothing() {
    let run = run();
    let folder = run.path.parent().unwrap();
    let output = run.beside("out.db");
    for (signal, name, code) in [("-INT", "SIGINT", 130), ("-TERM", "SIGTERM", 143), ("-HUP", "SIGHUP", 129)]
    {
        let child = rpd_merge().args(["--threads", "1", "-o"]).arg(&output).arg(&run.path).start();
        signal_at(&child, &run.beside("out.db.partial"), signal);
        assert_interrupted(child, code, name, folder);
    }
    // Under nohup it goes on.
    let script = "trap '' HUP; exec \"$@\"";
    let job = Job::new("sh").args(["-c", script, "sh"]).arg(binary("rpd-merge"));
    let child = job.args(["--threads", "1", "-o"]).arg(&output).arg(&run.path).start();
    signal_at(&child, &run.beside("out.db.partial"), "-HUP");
    let (outcome, stderr) = ended(child);
    assert!(outcome.status.success() && output.exists(), "{stderr}");
}

#[test]
fn folders_of_work_and_of_translated_files_go_with_an_interrupted_merge() {
    let run = run();
    let folder = run.path.parent().unwrap();
    let traces = run.beside("traces");
    let child = rpd_merge().args(["--split-by-time", "4", "-o"]).arg(&traces).arg(&run.path).start();
    signal_at(&child, &traces.join("trace.partial/merged.db.partial"), "-INT");
    assert_interrupted(child, 130, "SIGINT", folder);
    assert!(!traces.exists());

    let run = RunFolder::new(&SyntheticRun { events_per_rank: 3_000, ..SyntheticRun::default() });
    let folder = run.path.parent().unwrap();
    let rpd = run.beside("all.rpd");
    let _ = rpd_merge().args(["--format", "rpd", "-o"]).arg(&rpd).arg(&run.path).run().success();
    let translated = run.beside("out.db.translated");
    let child = rpd_merge().arg("-o").arg(run.beside("out.db")).arg(&rpd).start();
    signal_at(&child, &translated, "-INT");
    assert_interrupted(child, 130, "SIGINT", folder);
    assert!(!translated.exists());
}

#[test]
fn ranks_of_mpi_that_are_interrupted_leave_nothing_and_do_not_hang() {
    if let Some(why) = mpi_missing() {
        return skip("an interrupted merge under MPI", why);
    }
    let run = run();
    let output = run.beside("out.db");
    let child = rpd_merge_mpi(2).args(["--threads", "1", "-o"]).arg(&output).arg(&run.path).start();
    signal_at(&child, &run.beside("out.db.partial"), "-INT");
    let began = Instant::now();
    let (outcome, stderr) = ended(child);
    assert!(!outcome.status.success() && began.elapsed() < Duration::from_secs(20), "{stderr}");
    assert_eq!(stderr.matches("error: the merge was ended by").count(), 1, "{stderr}");
    assert_eq!(leftovers(run.path.parent().unwrap()), Vec::<std::path::PathBuf>::new(), "{stderr}");
}

#[test]
fn an_epilog_that_is_ended_leaves_nothing_but_its_status() {
    let run = run();
    let child = rpd_merge().args(["--epilog", "--threads", "1"]).arg(&run.path).start();
    signal_at(&child, &run.path.join("trace.db.partial"), "-TERM");
    let (_, stderr) = ended(child);
    let status = fs::read_to_string(run.path.join("merge.status")).unwrap();
    assert!(status.contains("SIGTERM"), "{status} {stderr}");
    assert_eq!(leftovers(&run.path), Vec::<std::path::PathBuf>::new(), "{stderr}");
}

/// Whether `strace` can hold up a program here.
fn can_hold_up() -> bool {
    let job = Command::new("strace")
        .args(["-qq", "-o", "/dev/null", "-e", "inject=openat:delay_exit=1", "true"])
        .output();
    job.is_ok_and(|output| output.status.success())
}

#[test]
fn a_lock_that_was_just_created_goes_with_an_interrupted_merge() {
    if !can_hold_up() {
        return skip(
            "a merge that is interrupted while it creates its lock",
            "strace is missing, or may not trace",
        );
    }
    let run = RunFolder::new(&SyntheticRun::default());
    let (output, lock) = (run.beside("out.db"), run.beside("out.db.lock"));
    for attempt in 0..3 {
        // Each file that is opened or created takes a while to be there for the program.
        let held =
            ["-f", "-qq", "-o", "/dev/null", "-e", "trace=openat", "-e", "inject=openat:delay_exit=15000"];
        let job =
            Job::new("strace").args(held).arg(binary("rpd-merge")).arg("-o").arg(&output).arg(&run.path);
        let child = job.start();
        let until = Instant::now() + Duration::from_secs(30);
        while !lock.exists() {
            assert!(Instant::now() < until, "no lock has appeared");
            sleep(Duration::from_micros(200));
        }
        let children = format!("/proc/{0}/task/{0}/children", child.id());
        let merge = fs::read_to_string(children).unwrap();
        let _ = Job::new("kill").args(["-TERM", merge.trim()]).run().success();
        let (outcome, stderr) = ended(child);
        assert!(!outcome.status.success(), "{stderr}");
        assert_eq!(
            leftovers(run.path.parent().unwrap()),
            Vec::<std::path::PathBuf>::new(),
            "{attempt}: {stderr}"
        );
    }
}

#[test]
fn the_lock_of_a_merge_that_was_killed_stops_no_other() {
    let run = run();
    let output = run.beside("out.db");
    let child = rpd_merge().args(["--threads", "1", "-o"]).arg(&output).arg(&run.path).start();
    signal_at(&child, &run.beside("out.db.partial"), "-KILL");
    let (outcome, _) = ended(child);
    assert!(!outcome.status.success() && run.beside("out.db.lock").exists());
    let _ = rpd_merge().arg("-o").arg(&output).arg(&run.path).run().success();
    assert_eq!(leftovers(run.path.parent().unwrap()), [output]);
}
