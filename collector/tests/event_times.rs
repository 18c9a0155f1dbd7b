//! Times of events against the clock that the program read around them.

use crate::support;
use std::process::Command;
use support::{Bench, exit_code, number, run};

/// Makes marks, and prints `CLOCK_BOOTTIME` before and after each. Marks follow one another at once, after a while, and once
/// after more than the longest pause of the collector.
const BRACKETS: &str = r#"
#define _GNU_SOURCE
#include <time.h>
static long long now(void) {
    struct timespec t;
    clock_gettime(CLOCK_BOOTTIME, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}
int main(void) {
    enum { MARKS = 3000 };
    static long long before[MARKS], after[MARKS];
    roctxMarkA("first");
    for (int i = 0; i < MARKS; i++) {
        before[i] = now();
        roctxMarkA("mark");
        after[i] = now();
        if (i == MARKS / 2) usleep(1200000);
        else if (i % 3 == 0) usleep(i % 1000);
    }
    for (int i = 0; i < MARKS; i++) printf("%lld %lld\n", before[i], after[i]);
    return 0;
}
"#;

/// Returns by how much each mark is outside of the two times that the program has read around it, ns.
fn distances(bench: &Bench, command: &mut Command) -> Vec<i64> {
    let output = run(command);
    assert_eq!(exit_code(&output), 0, "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let trace = bench.trace();
    assert_eq!(trace.lost(), 0);
    let mut times: Vec<i64> = trace.marks.iter().map(|row| number(row, "timestamp")).collect();
    times.sort_unstable();
    assert_eq!(times.len(), text.lines().count() + 1);
    let outside = |(line, time): (&str, &i64)| {
        let (before, after) = line.split_once(' ').unwrap();
        let [before, after] = [before, after].map(|number| number.parse::<i64>().unwrap());
        (before - time).max(time - after).max(0)
    };
    let all = text.lines().zip(&times[1..]).map(outside).collect();
    std::fs::remove_dir_all(bench.path("out")).unwrap();
    all
}

#[test]
fn times_are_those_of_the_clock_whatever_was_read() {
    let Some(bench) = Bench::new() else { return };
    let program = bench.program("brackets", BRACKETS);
    for clock in ["ticks", "boottime"] {
        let mut command = bench.collect();
        let mut distances = distances(&bench, command.args(["--clock", clock, "--"]).arg(&program));
        distances.sort_unstable();
        let most = distances[distances.len() * 999 / 1000];
        let allowed = if clock == "ticks" { 100 } else { 0 };
        assert!(most <= allowed, "{clock}: {most} ns");
        // The kernel may stop a collector that reads two clocks.
        assert!(distances[distances.len() - 1] <= 100 * allowed, "{clock}: {distances:?}");
        eprintln!("{clock}: at most {most} ns outside in 99.9 %");
    }
}

/// The collector would convert ticks to a time of its own.
#[test]
fn a_program_in_another_time_namespace_has_its_own_times() {
    let Some(bench) = Bench::new() else { return };
    let program = bench.program("brackets", BRACKETS);
    let namespace = ["unshare", "--time", "--boottime", "100000", "--fork"];
    let is_allowed = Command::new(namespace[0]).args(&namespace[1..]).arg("true").output();
    if !is_allowed.is_ok_and(|output| output.status.success()) {
        return eprintln!("SKIPPED: no time namespace can be made here");
    }
    let mut command = bench.collect();
    let distances = distances(&bench, command.arg("--").args(namespace).arg(&program));
    assert_eq!(distances.iter().max(), Some(&0));
}
