//! Profilers that are missing, do not start the command, or stay above it: the job runs as without them.

use super::{CALLS, PROGRAM, Rocm, command, rows, runs_as_ever};
use crate::support::{Bench, below, exit_code, kill, run, until, wait};
use rpd_shard::Shard;
use rpd_shard::model::rocpd::REGION;
use rpd_shard::record::{ProcessExit, ProfilerLossReason};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

const ROCPROFV3: [&str; 1] = ["rocprofv3"];

/// Starts rpd-collect with a rocprofv3 that has this fault.
fn start(rocm: &Rocm, wrong: &str, more: &[&str], program: &[&str]) -> Child {
    let mut command = rocm.collect();
    command.env("STAND_IN", wrong).args(["--backend", "rocprofv3"]).args(more).arg("--").args(program);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Returns the process that a profiler started in addition, if it has.
fn additional_child(rocm: &Rocm) -> u32 {
    let path = rocm.bin.join("child");
    let read = || std::fs::read_to_string(&path).unwrap_or_default();
    until("a child of the profiler", || read().ends_with('\n'));
    read().trim().parse().unwrap()
}

/// A process that has died and waits for its parent counts as ended.
fn is_there(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
}

/// Returns the rank's own shard.
fn own_shard(rocm: &Rocm) -> Shard {
    Shard::open(&rocm.bench.path("out/run/rank-00003.rpdshard")).unwrap()
}

#[test]
fn a_job_that_is_cancelled_while_the_profiler_starts_does_not_run() {
    let Some(rocm) = Rocm::new(&ROCPROFV3) else { return };
    let mut command = rocm.collect();
    command.env("STAND_IN", "hangs").args(["--backend", "rocprofv3", "--", "touch", "ran"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    until("the profiler", || rocm.bin.join("calls.jsonl").exists());
    crate::support::kill(crate::support::below(child.id()).command, 15);
    let output = crate::support::wait(child);
    assert_eq!(exit_code(&output), -15, "{}", String::from_utf8_lossy(&output.stderr));
    assert!(!rocm.bench.path("ran").exists());
}

#[test]
fn a_missing_profiler_is_named_with_the_places() {
    let Some(rocm) = Rocm::new(&[]) else { return };
    for backend in ["rocprofv3", "rocprof-sys", "rpd-tracer"] {
        let mut command = rocm.collect();
        command
            .env_remove("RANK")
            .env_remove("WORLD_SIZE")
            .env("LD_LIBRARY_PATH", "")
            .args(["--backend", backend]);
        let stderr = runs_as_ever(&mut command);
        for word in [format!("backend {backend} is not installed: no "), "--backend native".into()] {
            assert!(stderr.contains(&word), "{backend}: {stderr}");
        }
        assert!(rocm.left().is_empty());
    }
}

#[test]
fn a_configuration_that_cannot_be_read_is_told_and_the_command_runs() {
    for (backend, program) in [("rocprofv3", "rocprofv3"), ("rocprof-sys", "rocprof-sys-sample")] {
        let Some(rocm) = Rocm::new(&[program]) else { return };
        for (file, why) in [("missing.cfg", "No such file"), (".", "it is not a file")] {
            let mut command = rocm.collect();
            command.env_remove("RANK").env_remove("WORLD_SIZE");
            command.args(["--backend", backend, "--backend-config", file]);
            let stderr = runs_as_ever(&mut command);
            assert!(stderr.contains(&format!("warning: --backend-config {file}: {why}")), "{stderr}");
            assert!(rocm.left().is_empty());
        }
    }
    let Some(rocm) = Rocm::new(&[]) else { return };
    let mut command = rocm.collect();
    command.env_remove("RANK").env_remove("WORLD_SIZE");
    command.args(["--backend", "native", "--backend-config", "missing.cfg"]);
    assert!(runs_as_ever(&mut command).contains("--backend-config is for rocprofv3 and rocprof-sys"));
}

#[test]
fn a_signal_to_rpd_collect_while_the_profiler_starts_ends_the_job_at_once() {
    for (wrong, signal, by) in
        [("hangs", 15, 15), ("deaf", 15, 15), ("hangs", 2, 2), ("deaf", 10, 15), ("deaf", 40, 40)]
    {
        let Some(rocm) = Rocm::new(&ROCPROFV3) else { return };
        let child = start(&rocm, wrong, &[], &["touch", "ran"]);
        let began = if wrong == "deaf" { 2 } else { 1 };
        until("the profiler", || rocm.calls().len() == began);
        let at = Instant::now();
        kill(child.id(), signal);
        let output = wait(child);
        assert_eq!(exit_code(&output), -by, "{wrong} {signal}: {}", said(&output));
        assert!(at.elapsed() < Duration::from_secs(5), "{wrong} {signal}: {:?}", at.elapsed());
        assert!(!rocm.bench.path("ran").exists() && rocm.left().is_empty(), "{:?}", rocm.left());
        // Its end is recorded.
        let process = own_shard(&rocm).processes[&1].clone();
        assert_eq!((process.rank, process.exit), (Some(3), Some(ProcessExit::Signal(by))));
        assert!(rocm.log().contains("ended the job before"), "{}", rocm.log());
        assert!(!rocm.log().contains("warning"), "{}", rocm.log());
        if wrong == "deaf" {
            assert!(!is_there(additional_child(&rocm)));
        }
    }
}

#[test]
fn a_signal_that_ends_nothing_is_no_reason_to_stop_while_the_profiler_starts() {
    let Some(rocm) = Rocm::new(&ROCPROFV3) else { return };
    let child = start(&rocm, "hangs", &["--backend-wait", "1"], &PROGRAM);
    until("the profiler", || rocm.bin.join("calls.jsonl").exists());
    kill(child.id(), 28);
    let output = wait(child);
    assert_eq!((exit_code(&output), &output.stdout[..]), (7, &b"out\n"[..]), "{}", said(&output));
}

#[test]
fn who_is_ended_while_profilers_are_asked_leaves_nothing() {
    let Some(rocm) = Rocm::new(&ROCPROFV3) else { return };
    let child = start(&rocm, "no-help", &[], &["touch", "ran"]);
    until("the question", || rocm.left().len() == 1 && !asked(&rocm).is_empty());
    let profilers = asked(&rocm);
    kill(child.id(), 15);
    let output = wait(child);
    assert_eq!(exit_code(&output), -15, "{}", said(&output));
    assert!(!rocm.bench.path("ran").exists() && rocm.left().is_empty(), "{:?}", rocm.left());
    assert!(profilers.iter().all(|pid| !is_there(*pid)));
}

/// Returns processes of the stand-ins in this bench.
fn asked(rocm: &Rocm) -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let bin = rocm.bin.display().to_string();
    pids.filter(|pid: &u32| {
        let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let words = String::from_utf8_lossy(&words).into_owned();
        words.contains(&bin) && words.contains("python3")
    })
    .collect()
}

#[test]
fn what_a_hung_profiler_has_started_is_killed_with_it() {
    let Some(rocm) = Rocm::new(&ROCPROFV3) else { return };
    let mut command = rocm.collect();
    command.env("STAND_IN", "deaf").args(["--backend", "rocprofv3", "--backend-wait", "1"]);
    // No process holds the outputs any more, or this would block.
    runs_as_ever(&mut command);
    assert!(rocm.log().contains("within 1 s"), "{}", rocm.log());
    assert!(!is_there(additional_child(&rocm)) && rocm.left().is_empty());
    assert_eq!(
        own_shard(&rocm).processes[&1].exit,
        Some(ProcessExit::Code(7)),
        "the process is known nevertheless"
    );
}

#[test]
fn a_profiler_above_the_command_does_not_change_how_it_ends() {
    for (wrong, note) in [
        (
            "crashes-behind",
            "warning: the command ended with status 7, and the profiler above it with signal 11",
        ),
        ("passes", "note: the command ended with status 7, and the profiler above it with status 1"),
        ("leaves", "note: the command ended with status 7, and the profiler above it with status 9"),
    ] {
        let Some(rocm) = Rocm::new(&ROCPROFV3) else { return };
        let stderr = runs_as_ever(rocm.collect().env("STAND_IN", wrong).args(["--backend", "rocprofv3"]));
        assert_eq!(stderr, "err\n", "{wrong}");
        assert!(rocm.log().contains(note), "{wrong}: {}", rocm.log());
        assert!(rocm.left().is_empty());
    }
    for signal in [6, 9] {
        let Some(rocm) = Rocm::new(&ROCPROFV3) else { return };
        let script = format!("kill -{signal} $$");
        let output = wait(start(&rocm, "passes", &[], &["sh", "-c", &script]));
        assert_eq!(exit_code(&output), -signal, "{}", said(&output));
    }
}

#[test]
fn a_profiler_that_leaves_is_not_the_end_of_the_command() {
    let Some(rocm) = Rocm::new(&ROCPROFV3) else { return };
    let began = Instant::now();
    let output = wait(start(&rocm, "leaves", &[], &["sh", "-c", "exec >&- 2>&-; sleep 1; exit 5"]));
    assert_eq!(exit_code(&output), 5, "{}", said(&output));
    assert!(began.elapsed() >= Duration::from_secs(1));
}

#[test]
fn a_profiler_that_hangs_behind_the_command_is_killed_and_what_the_command_left_is_not() {
    let Some(rocm) = Rocm::new(&ROCPROFV3) else { return };
    let script = "sleep 30 >&- 2>&- & echo $! > daemon; echo out; exit 7";
    let child = start(&rocm, "hangs-behind", &["--backend-wait", "1"], &["sh", "-c", script]);
    let output = wait(child);
    assert_eq!((exit_code(&output), &output.stdout[..]), (7, &b"out\n"[..]), "{}", said(&output));
    let daemon: u32 = std::fs::read_to_string(rocm.bench.path("daemon")).unwrap().trim().parse().unwrap();
    let (daemon_runs, child_runs) = (is_there(daemon), is_there(additional_child(&rocm)));
    kill(daemon, 9);
    assert!(daemon_runs && !child_runs, "{daemon_runs} {child_runs}");
    assert!(rocm.log().contains("had not ended 1 s after the command, and was killed"), "{}", rocm.log());
    // Output that the profiler wrote before is imported.
    assert_eq!(rocm.shards("rocprofv3").iter().map(|shard| rows(shard, REGION)).sum::<usize>(), CALLS);
}

/// Takes as long as a batch system gives, so it runs only with RPD_SOAK.
#[test]
fn a_cancelled_job_does_not_wait_for_a_profiler_that_hangs_until_it_is_killed() {
    let Some(rocm) = Rocm::new(&ROCPROFV3) else { return };
    if std::env::var_os("RPD_SOAK").is_none() {
        return eprintln!("SKIPPED: set RPD_SOAK to have the time");
    }
    let child = start(&rocm, "hangs-behind", &[], &["sh", "-c", "echo > here; exec sleep 100"]);
    until("the program", || rocm.bench.path("here").exists());
    let began = Instant::now();
    kill(child.id(), 15);
    let output = wait(child);
    assert_eq!(exit_code(&output), -15, "{}", said(&output));
    assert!(
        began.elapsed() < Duration::from_secs(25),
        "{:?}: Slurm sends SIGKILL after 30 s",
        began.elapsed()
    );
    assert_eq!(rocm.shards("rocprofv3").iter().map(|shard| rows(shard, REGION)).sum::<usize>(), CALLS);
}

#[test]
fn a_rank_that_dies_with_its_profiler_is_told_with_its_end() {
    let Some(rocm) = Rocm::new(&ROCPROFV3) else { return };
    let output = wait(start(&rocm, "silent", &[], &["sh", "-c", "kill -SEGV $$"]));
    assert_eq!(exit_code(&output), -11, "{}", said(&output));
    let shard = own_shard(&rocm);
    let process = shard.processes.values().find(|process| process.rank == Some(3)).expect("the rank's");
    assert_eq!((process.exit, process.worker), (Some(ProcessExit::Signal(11)), false));
}

/// Returns what the collector recorded about profilers with missing rows, of the last run.
fn lost_by_profilers(rocm: &Rocm) -> Vec<ProfilerLossReason> {
    let path = rocm.bench.path("out/run/rank-00003.profilers.rpdshard");
    let losses = Shard::open(&path).map(|shard| shard.profiler_losses).unwrap_or_default();
    let _ = std::fs::remove_dir_all(rocm.bench.path("out"));
    losses.iter().map(|loss| loss.reason).collect()
}

#[test]
fn rows_of_a_profiler_that_may_be_missing_are_recorded_whatever_else_it_left() {
    let Some(rocm) = Rocm::new(&ROCPROFV3) else { return };
    let (crash, good) = (["sh", "-c", "kill -SEGV $$"], ["true"]);
    for (wrong, program, expected) in [
        ("child-only", &crash[..], vec![ProfilerLossReason::NoFile]),
        ("child-only", &good[..], Vec::new()),
        ("crashes-behind", &good[..], vec![ProfilerLossReason::Failed]),
        ("", &crash[..], Vec::new()),
    ] {
        let _ = wait(start(&rocm, wrong, &[], program));
        assert_eq!(lost_by_profilers(&rocm), expected, "{wrong} {program:?}");
    }
    // The record is not subject to the limit of the rank's shard.
    let _ = wait(start(&rocm, "fails", &["--max-size", "1K"], &good));
    assert_eq!(lost_by_profilers(&rocm), [ProfilerLossReason::NotStarted]);
}

#[test]
fn a_program_that_takes_signals_by_sigwait_gets_them_as_they_are() {
    let Some(rocm) = Rocm::new(&ROCPROFV3) else { return };
    let program = "import signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])\n\
                   open('here', 'w').close()\nprint('checkpoint', int(signal.sigwait([signal.SIGUSR1])))";
    let child = start(&rocm, "", &[], &["python3", "-c", program]);
    until("the program", || rocm.bench.path("here").exists());
    kill(child.id(), 10);
    let output = wait(child);
    assert_eq!((exit_code(&output), &output.stdout[..]), (0, &b"checkpoint 10\n"[..]), "{}", said(&output));
}

#[test]
fn a_signal_reaches_the_command_below_a_profiler_once() {
    let Some(rocm) = Rocm::new(&ROCPROFV3) else { return };
    // The stand-in passes on only SIGTERM.
    let program = "import signal, time\ncount = []\nsignal.signal(signal.SIGUSR1, lambda n, f: count.append(n))\n\
                   signal.signal(signal.SIGTERM, lambda n, f: exit(len(count)))\nopen('here', 'w').close()\n\
                   while True: time.sleep(0.01)";
    let child = start(&rocm, "", &[], &["python3", "-c", program]);
    until("the program", || rocm.bench.path("here").exists());
    let own = command(&rocm);
    for _ in 0..2 {
        kill(child.id(), 10);
        // The kernel merges two pending signals with the same number.
        std::thread::sleep(Duration::from_millis(100));
    }
    kill(child.id(), 15);
    let output = wait(child);
    assert_eq!(exit_code(&output), 2, "{}", said(&output));
    assert!(!is_there(own));
}

#[test]
fn the_command_below_a_profiler_has_the_environment_that_it_was_given() {
    let Some(rocm) = Rocm::new(&ROCPROFV3) else { return };
    let library = rocm.bench.library_of("preloaded.so", "int preloaded;");
    let environment = |command: &mut Command| {
        let output = run(command.env("LD_PRELOAD", &library).args(["--", "env"]));
        assert_eq!(exit_code(&output), 0, "{}", said(&output));
        let mut lines: Vec<String> =
            String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect();
        // The changes of a shell do not matter.
        lines.retain(|line| line.starts_with("RPD_") || line.starts_with("LD_"));
        lines.sort();
        lines
    };
    let bare = environment(rocm.collect().args(["--backend", "none"]));
    assert_eq!(environment(rocm.collect().args(["--backend", "rocprofv3"])), bare);
}

#[test]
fn a_killed_rpd_collect_leaves_the_profiler_to_its_collector() {
    let Some(rocm) = Rocm::new(&ROCPROFV3) else { return };
    let child = start(&rocm, "hangs", &[], &["touch", "ran"]);
    until("the profiler", || rocm.bin.join("calls.jsonl").exists());
    let below = below(child.id());
    // The executable of the killed process starts it.
    let name = format!("/proc/{}/comm", below.collector);
    until("the collector", || std::fs::read_to_string(&name).is_ok_and(|name| name == "rpd-collector\n"));
    kill(child.id(), 9);
    assert_eq!(exit_code(&wait_for_it(child)), -9);
    assert_eq!(rocm.left().len(), 1);
    kill(below.command, 9);
    until("its end", || !is_there(below.collector));
    assert!(rocm.left().is_empty(), "{:?}", rocm.left());
    assert!(rocm.log().contains("rpd-collect was killed"), "{}", rocm.log());
}

#[test]
fn how_a_command_below_a_profiler_ended_is_known_although_rpd_collect_was_killed() {
    let Some(rocm) = Rocm::new(&ROCPROFV3) else { return };
    let script = "echo > here; while [ -e here ]; do sleep 0.02; done; exit 6";
    let child = start(&rocm, "", &[], &["sh", "-c", script]);
    until("the program", || rocm.bench.path("here").exists());
    let collector = below(child.id()).collector;
    let name = format!("/proc/{collector}/comm");
    until("the collector", || std::fs::read_to_string(&name).is_ok_and(|name| name == "rpd-collector\n"));
    kill(child.id(), 9);
    assert_eq!(exit_code(&wait_for_it(child)), -9);
    std::fs::remove_file(rocm.bench.path("here")).unwrap();
    until("its end", || !is_there(collector));
    let log = rocm.log();
    assert!(log.contains("rpd-collect was killed, ") && !log.contains("not known"), "{log}");
    assert!(rocm.left().is_empty());
    // The profiler had written when the command ended, and the collector waited for that.
    assert_eq!(rocm.shards("rocprofv3").iter().map(|shard| rows(shard, REGION)).sum::<usize>(), CALLS);
    assert_eq!(rocm.shards("rocprofv3")[0].processes[&1].exit, Some(ProcessExit::Code(6)));
}

#[test]
fn files_of_a_profiler_that_nobody_fetched_are_named_and_stay() {
    let Some(rocm) = Rocm::new(&ROCPROFV3) else { return };
    let script = "echo > here; while [ -e here ]; do sleep 0.02; done";
    let child = start(&rocm, "", &[], &["sh", "-c", script]);
    until("the program", || rocm.bench.path("here").exists());
    kill(below(child.id()).collector, 9);
    std::fs::remove_file(rocm.bench.path("here")).unwrap();
    let output = wait(child);
    assert_eq!(exit_code(&output), 0);
    let [left] = &rocm.left()[..] else { panic!("{:?}", rocm.left()) };
    let left = left.to_str().unwrap();
    assert!(said(&output).contains("stay on this node") && said(&output).contains(left), "{}", said(&output));
    assert!(!rocm.scratch.join(left).join("owner").exists(), "nobody clears it up");
}

/// Other processes still hold the outputs.
fn wait_for_it(mut child: Child) -> Output {
    drop((child.stdout.take(), child.stderr.take()));
    wait(child)
}

#[test]
fn what_a_killed_job_leaves_on_the_node_is_cleared_up_by_the_next_one() {
    let Some(rocm) = Rocm::new(&ROCPROFV3) else { return };
    let child = start(&rocm, "hangs", &[], &["true"]);
    until("the profiler", || rocm.bin.join("calls.jsonl").exists());
    let below = below(child.id());
    for pid in [below.collector, child.id()] {
        kill(pid, 9);
    }
    wait_for_it(child);
    // Its profiler could still start the command.
    runs_as_ever(rocm.collect().args(["--backend", "rocprofv3"]));
    assert_eq!(rocm.left().len(), 1);
    kill(below.command, 9);
    until("its end", || !is_there(below.command));
    runs_as_ever(rocm.collect().args(["--backend", "rocprofv3"]));
    assert!(rocm.left().is_empty(), "{:?}", rocm.left());
    assert!(rocm.log().contains("of runs that were killed: 1 removed"), "{}", rocm.log());
}

#[test]
fn without_the_profiler_identity_and_clocks_are_kept_and_the_log_says_what_to_do() {
    let Some(bench) = Bench::new() else { return };
    let mut command = bench.collect();
    command
        .env("PATH", "/usr/bin:/bin")
        .env("ROCM_PATH", bench.path("nowhere"))
        .args(["--backend", "rocprofv3"]);
    let stderr = runs_as_ever(&mut command);
    let lines: Vec<&str> = stderr.lines().filter(|line| *line != "err").collect();
    let [line] = lines[..] else { panic!("one line: {stderr}") };
    assert!(line.contains("backend rocprofv3 is not installed"), "{line}");
    let log = bench.log();
    assert!(log.contains("backend rocprofv3 is not installed") && log.contains("--backend native"), "{log}");
    let shard = Shard::open(&bench.shard_path()).unwrap();
    let process = &shard.processes[&1];
    assert_eq!((process.exit, shard.clocks.len() >= 2), (Some(ProcessExit::Code(7)), true));
    assert!(process.command.contains("echo out"));
}
