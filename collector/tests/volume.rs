//! Many events: recorded + dropped = emitted for any ring, and nothing dropped with the default size and a
//! million events a second.

use crate::support;
use rpd_shard::Shard;
use rpd_shard::model::native::RANGE;
use std::process::{Child, Command};
use std::time::Duration;
use support::{Bench, exit_code, run};

/// Threads and ranges per thread from the command line; at a rate if there is one (ranges per second of all
/// threads together). Prints the number of ranges, and for how many ns.
const PROGRAM: &str = r#"
#include <time.h>
static long count, pace;
static int threads;
static long now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000l + t.tv_nsec;
}
static void *work(void *unused) {
    long start = now();
    for (long i = 0; i < count; i++) {
        if (pace && i % 100 == 0) {
            /* A hundred at a time, at the moment when they are due. */
            long due = start + i * threads * 1000000000l / pace, wait = due - now();
            struct timespec pause = {wait / 1000000000l, wait % 1000000000l};
            if (wait > 0) nanosleep(&pause, 0);
        }
        roctxRangePushA(i & 1 ? "forward" : "backward");
        roctxRangePop();
    }
    return unused;
}
int main(int argc, char **argv) {
    threads = atoi(argv[1]);
    count = atol(argv[2]);
    pace = atol(argv[3]);
    pthread_t thread[64];
    long start = now();
    for (int i = 0; i < threads; i++) pthread_create(&thread[i], 0, work, 0);
    for (int i = 0; i < threads; i++) pthread_join(thread[i], 0);
    printf("%ld %ld", threads * count, now() - start);
    return 0;
}
"#;

/// Ranges in the shard by its own count, ranges in the ledger, ranges emitted.
fn counted(bench: &Bench, command: &mut Command) -> (u64, u64, u64) {
    let output = run(command);
    assert_eq!(exit_code(&output), 0, "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let emitted = text.split(' ').next().unwrap().parse().unwrap();
    let shard = Shard::open(&bench.shard_path()).unwrap();
    let ledger = shard.ledger.as_ref().unwrap();
    let written =
        ledger.written.iter().filter(|(_, table, _)| *table == RANGE).map(|(_, _, rows)| rows).sum();
    let lost = ledger.losses.iter().map(|loss| loss.rows.expect("every loss is counted")).sum();
    std::fs::remove_dir_all(bench.path("out")).unwrap();
    (written, lost, emitted)
}

#[test]
fn of_64_threads_everything_is_recorded_or_counted() {
    let Some(bench) = Bench::new() else { return };
    let program = bench.program("volume", PROGRAM);
    let each = if std::env::var_os("RPD_SOAK").is_some() { "1000000" } else { "20000" };
    for ring in ["32768", "100000", "1048576", "16777216"] {
        let mut command = bench.collect();
        command.args(["--ring-size", ring, "--"]).arg(&program).args(["64", each, "0"]);
        let (written, lost, emitted) = counted(&bench, &mut command);
        assert_eq!(written + lost, emitted, "{written} + {lost}, rings of {ring} bytes");
        assert!(written > 0);
        eprintln!("rings of {ring}: {:.2} % dropped", 100.0 * lost as f64 / emitted as f64);
    }
}

/// Pairs a second, 0 for full speed, and seconds from the command line. Prints the number of pairs.
const PACED: &str = include_str!("../../tests/workloads/paced_pairs.c");

/// Busy loops, which are killed at the end.
struct BusyLoops(Vec<Child>);

impl Drop for BusyLoops {
    fn drop(&mut self) {
        for child in &mut self.0 {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }
}

/// `ci/bench drops` makes many longer runs.
#[test]
fn alone_beside_busy_loops_nothing_is_lost() {
    let Some(bench) = Bench::new() else { return };
    let program = bench.program("paced", PACED);
    for loops in [2, 4] {
        let busy = |_| Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
        let _busy = BusyLoops((0..loops).map(busy).collect());
        for rate in ["1000000", "5000000", "0"] {
            let lost = || {
                let mut command = bench.collect();
                command.arg("--").arg(&program).args([rate, "10"]);
                let (written, lost, emitted) = counted(&bench, &mut command);
                assert_eq!(written + lost, emitted, "{loops} busy loops, {rate} a second");
                eprintln!("{loops} busy loops, {rate} a second: {lost} of {emitted} lost");
                lost
            };
            // A machine that is shared may stop for a second, and this build of the collector is not optimised.
            let is_recorded = lost() == 0 || rate == "0" || lost() == 0;
            assert!(is_recorded, "{loops} busy loops, {rate} a second: lost twice");
        }
    }
}

/// Share of the machine that other processes use while this test does nothing, from 0 to 1.
fn used_by_others() -> f64 {
    // Clock ticks of all processors: user, nice, system, idle, iowait, irq, softirq, steal, ...
    let ticks = || -> (u64, u64) {
        let text = std::fs::read_to_string("/proc/stat").unwrap();
        let first = text.lines().next().unwrap();
        let ticks: Vec<u64> = first.split_whitespace().skip(1).map(|n| n.parse().unwrap()).collect();
        (ticks[..8].iter().sum(), ticks[3] + ticks[4])
    };
    let (all, idle) = ticks();
    std::thread::sleep(Duration::from_millis(500));
    let (all_later, idle_later) = ticks();
    1.0 - (idle_later - idle) as f64 / (all_later - all).max(1) as f64
}

/// Runs alone on the machine, see the test groups in .config/nextest.toml. This program and its collector
/// need most of two processors. If other processes use some of that, ranges are dropped, and counted.
#[test]
fn alone_a_million_ranges_a_second_are_recorded_without_a_drop() {
    let Some(bench) = Bench::new() else { return };
    let program = bench.program("volume", PROGRAM);
    let seconds = if std::env::var_os("RPD_SOAK").is_some() { 20 } else { 2 };
    for threads in [1, 4, 64] {
        let each = (1_000_000 * seconds / threads).to_string();
        let dropped = || {
            let mut command = bench.collect();
            command.arg("--").arg(&program).args([&threads.to_string(), &each, "1000000"]);
            let (written, lost, emitted) = counted(&bench, &mut command);
            assert_eq!(written + lost, emitted, "{threads} threads");
            lost
        };
        let mut tries = 0;
        while let lost @ 1.. = dropped() {
            // An idle machine also pauses for some ms now and then, to write data of an earlier build.
            let others = used_by_others();
            tries += 1;
            if tries == 4 {
                assert!(others > 0.1, "{lost} ranges of {threads} threads were dropped, and before, too");
                eprintln!("skipped: others use {:.0} % of the machine", 100.0 * others);
                return;
            }
        }
    }
}
