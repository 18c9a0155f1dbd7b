//! CPU time and wake-ups of a collector beside a program that does little, and the CPUs that it uses.

use crate::support;
use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use support::{Bench, below, exit_code, kill, run, until};

/// Makes marks at a rate, forever: this many per second.
const MARKS: &str = r#"
int main(int argc, char **argv) {
    int pace = atoi(argv[1]);
    roctxMarkA("first");
    puts("ready");
    fflush(stdout);
    for (;;) {
        if (pace) roctxMarkA("mark");
        usleep(pace ? 1000000 / pace : 1000000);
    }
}
"#;

/// Number of times that the threads of a process went to sleep.
fn sleeps(pid: u32) -> u64 {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten();
    let of_task = |status: String| {
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        line.unwrap().trim().parse::<u64>().unwrap()
    };
    tasks.filter_map(|task| fs::read_to_string(task.path().join("status")).ok()).map(of_task).sum()
}

fn start(command: &mut Command) -> Child {
    let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let collectors = || fs::read_to_string(format!("/proc/{0}/task/{0}/children", child.id()));
    until("two processes below", || collectors().is_ok_and(|pids| pids.split_whitespace().count() >= 2));
    child
}

fn end(mut child: Child) {
    kill(child.id(), 15);
    child.wait().unwrap();
}

/// Runs alone on the machine, see the test groups in .config/nextest.toml: writes to a busy disk are split
/// into more steps.
#[test]
fn alone_a_collector_of_ten_events_a_second_wakes_twenty_times_at_most() {
    const SECONDS: u64 = 5;
    let Some(bench) = Bench::new() else { return };
    let program = bench.program("marks", MARKS);
    for pace in ["10", "0"] {
        let child = start(bench.collect().arg("--").arg(&program).arg(pace));
        // The pauses have grown, and the counters of the node are known.
        std::thread::sleep(Duration::from_secs(2));
        let (collector, began) = (below(child.id()).collector, Instant::now());
        let sleeps = || sleeps(collector) + sleeps(child.id());
        let before = sleeps();
        std::thread::sleep(Duration::from_secs(SECONDS));
        let rate = (sleeps() - before) as f64 / began.elapsed().as_secs_f64();
        end(child);
        assert!(rate > 1.0, "{rate:.1} wake-ups a second: was that the collector?");
        assert!(rate <= 20.0, "{rate:.1} wake-ups a second at {pace} events a second");
        fs::remove_dir_all(bench.path("out")).unwrap();
    }
}

/// A burst after a pause in which the collector sleeps: at this rate nothing is dropped only if the collector
/// is woken.
#[test]
fn alone_a_burst_after_a_pause_wakes_the_collector() {
    let Some(bench) = Bench::new() else { return };
    // 60 ms of 1.6 million ranges a second, of 7 bytes each, fill a ring of 128 KiB five times, and a pause is longer than that.
    let source = r#"
#include <time.h>
static long now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000l + t.tv_nsec;
}
int main(void) {
    for (int burst = 0; burst < 5; burst++) {
        roctxMarkA("pause");
        usleep(1200000);
        long began = now();
        for (long i = 0; i < 100000; i++) {
            roctxRangePushA("burst");
            roctxRangePop();
            while (now() < began + i * 600) {}
        }
    }
    return 0;
}
"#;
    let program = bench.program("bursts", source);
    let mut dropped = Vec::new();
    while dropped.len() < 4 && dropped.last() != Some(&0) {
        let output = bench.run(&program, &["--ring-size", "128K"]);
        assert_eq!(exit_code(&output), 0, "{output:?}");
        let trace = bench.trace();
        let recorded = trace.ranges.len() + trace.marks.len();
        assert_eq!(recorded as u64 + trace.lost(), 500_005);
        dropped.push(trace.lost());
        fs::remove_dir_all(bench.path("out")).unwrap();
    }
    // Other processes may take the machine for some ms and cause drops: a quarter of a burst without a
    // wake-up would be lost.
    assert!(dropped.iter().any(|lost| *lost < 5 * 25_000), "{dropped:?} of 500,000 ranges in four runs");
}

/// Lists of CPUs of all threads of a process.
fn cpus(pid: u32) -> Vec<String> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten();
    let list = |status: String| {
        let line = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
        line.unwrap().trim().to_owned()
    };
    let mut lists: Vec<_> =
        tasks.filter_map(|task| fs::read_to_string(task.path().join("status")).ok()).map(list).collect();
    lists.sort();
    lists.dedup();
    lists
}

/// Two CPUs of this machine; `None`, with a message, if there are fewer.
fn two_cpus() -> Option<[String; 2]> {
    let list = cpus(std::process::id()).remove(0);
    let mut found = Vec::new();
    for part in list.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        found.extend(first.parse::<usize>().unwrap()..=last.parse::<usize>().unwrap());
    }
    let taskset = Command::new("taskset").arg("--version").stdout(Stdio::null()).status();
    match (found.as_slice(), taskset.is_ok_and(|status| status.success())) {
        ([first, second, ..], true) => Some([first.to_string(), second.to_string()]),
        _ => {
            eprintln!("skipped: one CPU, or no taskset");
            None
        }
    }
}

/// The collector is on the chosen CPU with all of its threads, and the command where it would be without.
#[test]
fn the_collector_runs_where_it_is_sent_and_the_command_where_it_was() {
    let (Some(bench), Some([first, second])) = (Bench::new(), two_cpus()) else { return };
    let program = bench.program("marks", MARKS);
    let whole = cpus(std::process::id());
    let bound = |mask: Option<&str>, list: Option<&str>| {
        let collect = bench.collect();
        let mut command = match mask {
            Some(mask) => {
                let mut taskset = Command::new("taskset");
                bench.like_collect(taskset.args(["-c", mask])).arg(collect.get_program());
                taskset.args(collect.get_args());
                taskset
            }
            None => collect,
        };
        if let Some(list) = list {
            command.args(["--collector-cpus", list]);
        }
        let child = start(command.arg("--").arg(&program).arg("10"));
        let processes = below(child.id());
        let threads = || fs::read_dir(format!("/proc/{}/task", processes.collector)).unwrap().count();
        until("the threads of the collector", || threads() >= 4);
        let found = (cpus(processes.command), cpus(processes.collector));
        end(child);
        found
    };
    let one = |cpu: &String| vec![cpu.clone()];
    assert_eq!(bound(None, None), (whole.clone(), whole.clone()));
    assert_eq!(bound(None, Some(&second)), (whole.clone(), one(&second)));
    assert_eq!(bound(Some(&first), None), (one(&first), one(&first)));
    // Outside of the mask of the rank, but within that of the job.
    assert_eq!(bound(Some(&first), Some(&second)), (one(&first), one(&second)));
    let (command, collector) = bound(Some(&first), Some("auto"));
    assert_eq!(command, one(&first));
    assert!(collector != one(&first) && collector.len() == 1, "{collector:?}");
    let partly = format!("{second},1023");
    assert_eq!(bound(Some(&first), Some(&partly)), (one(&first), one(&second)));
    assert!(bench.log().contains("the job may not run on CPUs 1023"), "{}", bench.log());
}

#[test]
fn a_list_of_no_cpu_starts_nothing_and_a_variable_never_stops_a_job() {
    let Some(bench) = Bench::new() else { return };
    let none = run(bench.collect().args(["--collector-cpus", "1022-1023", "--", "echo", "ran"]));
    let line = String::from_utf8(none.stderr.clone()).unwrap();
    assert_eq!((exit_code(&none), none.stdout.len(), line.lines().count()), (2, 0, 1), "{none:?}");
    assert!(
        line.contains("--collector-cpus: the job may run on none of the CPUs 1022-1023; it may run on "),
        "{line}"
    );
    assert!(!bench.path("out").exists());

    let variable = run(bench.collect().env("RPD_COLLECTOR_CPUS", "1022-1023").args([
        "--",
        "sh",
        "-c",
        "echo ran; exit 3",
    ]));
    assert_eq!((exit_code(&variable), variable.stdout.as_slice()), (3, b"ran\n".as_slice()), "{variable:?}");
    let line = String::from_utf8(variable.stderr).unwrap();
    assert!(line.contains("RPD_COLLECTOR_CPUS") && line.contains("it is ignored"), "{line}");

    fs::remove_dir_all(bench.path("out")).unwrap();
    // If no CPU is free, `auto` only writes that to the log.
    let auto = run(bench.collect().env("PMI_RANK", "0").env("PMI_SIZE", "2").args([
        "--collector-cpus",
        "auto",
        "--",
        "true",
    ]));
    assert_eq!((exit_code(&auto), auto.stderr.len()), (0, 0), "{auto:?}");
    let log = bench.log();
    assert!(
        log.contains("note: --collector-cpus auto changes nothing") && log.contains("nothing was recorded"),
        "{log}"
    );
}

#[test]
fn the_doctor_says_where_both_run() {
    let (Some(bench), Some([first, second])) = (Bench::new(), two_cpus()) else { return };
    let doctor = |list: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rpd-collect"));
        bench.like_collect(&mut command).args(["doctor", "-o"]).arg(bench.path("out"));
        let output = run(command.args(["--collector-cpus", list]));
        let text = String::from_utf8(output.stdout).unwrap();
        text.lines().find(|line| line.split_whitespace().nth(1) == Some("cpus")).unwrap().to_owned()
    };
    let line = doctor(&second);
    assert!(line.starts_with("ok ") && line.ends_with(&format!("the collector on {second}")), "{line}");
    assert!(doctor("1023").starts_with("problem "));
    assert!(doctor(&first).contains("the command runs on "));
}
