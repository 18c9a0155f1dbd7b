//! The events of a program are in the shard: ranges, marks, threads, forks, and what was open at its end.

use crate::support;
use rpd_shard::record::{LossCause, ProcessExit};
use support::{Bench, Trace, exit_code, number, text};

const RANGES: &str = r#"
static long count;
static void *work(void *name) {
    for (long i = 0; i < count; i++) {
        roctxRangePushA(name);
        roctxRangePushA("inner");
        roctxRangePop();
        roctxRangePop();
    }
    return 0;
}
int main(int argc, char **argv) {
    count = atol(argv[1]);
    int threads = atoi(argv[2]);
    pthread_t thread[256];
    for (int i = 0; i < threads; i++) pthread_create(&thread[i], 0, work, "outer");
    for (int i = 0; i < threads; i++) pthread_join(thread[i], 0);
    return 0;
}
"#;

#[test]
fn every_range_of_every_thread_is_recorded_once() {
    let Some(bench) = Bench::new() else { return };
    let program = bench.program("ranges", RANGES);
    let output = bench.run(&program, &["2000", "8"]);
    assert_eq!(exit_code(&output), 0);
    assert!(output.stdout.is_empty() && output.stderr.is_empty(), "{output:?}");
    let trace = bench.trace();
    assert!(trace.shard.complete());
    assert_eq!(trace.threads.len(), 8);
    assert_eq!(trace.ranges.len() as u64 + trace.lost(), 2 * 2000 * 8);
    assert_eq!((trace.ranges_named("outer"), trace.ranges_named("inner")), (16_000, 16_000));
    assert_eq!(trace.lost(), 0);
    check_nesting(&trace);
}

#[test]
fn a_small_ring_drops_whole_ranges_and_counts_them() {
    let Some(bench) = Bench::new() else { return };
    let program = bench.program("ranges", RANGES);
    let mut command = bench.collect();
    command.args(["--ring-size", "32768", "--"]).arg(&program).args(["50000", "4"]);
    assert_eq!(exit_code(&support::run(&mut command)), 0);
    let trace = bench.trace();
    assert!(trace.lost() > 0, "16 KiB cannot hold a tight loop");
    assert_eq!(trace.ranges.len() as u64 + trace.lost(), 2 * 50_000 * 4);
    assert!(trace.ranges.iter().all(|row| row["end"].is_some()));
    for row in trace.ranges.iter().filter(|row| text(row, "name_id") == "outer") {
        assert_eq!(text(row, "parent_stack_id"), "0");
    }
}

/// Stack ids are unique, and every range lies within its parent.
fn check_nesting(trace: &Trace) {
    let by_stack: std::collections::HashMap<i64, _> =
        trace.ranges.iter().map(|row| (number(row, "stack_id"), row)).collect();
    assert_eq!(by_stack.len(), trace.ranges.len());
    for row in &trace.ranges {
        assert!(number(row, "start") <= number(row, "end"));
        match number(row, "parent_stack_id") {
            0 => assert_eq!(text(row, "name_id"), "outer"),
            parent => {
                let parent = by_stack[&parent];
                assert_eq!(text(parent, "name_id"), "outer");
                assert_eq!(row["tid"], parent["tid"]);
                assert!(number(parent, "start") <= number(row, "start"));
                assert!(number(parent, "end") >= number(row, "end"));
            }
        }
    }
}

#[test]
fn return_values_are_those_of_roctx_with_and_without_a_collector() {
    let Some(bench) = Bench::new() else { return };
    let source = r#"
int main(void) {
    int a = roctxRangePushA("a"), b = roctxRangePushA("b");
    roctxMarkA("here");
    uint64_t id = roctxRangeStartA("async"), other = roctxRangeStartA("never stopped");
    int c = roctxRangePop(), d = roctxRangePop(), e = roctxRangePop();
    roctxRangeStop(id);
    printf("%d %d %d %d %d %d", a, b, c, d, e < 0, id != other);
    return 0;
}
"#;
    let program = bench.program("values", source);
    let output = bench.run(&program, &[]);
    assert_eq!(output.stdout, b"0 1 1 0 1 1");
    let trace = bench.trace();
    let open = |name: &str| {
        let row = trace.ranges.iter().find(|row| text(row, "name_id") == name).unwrap();
        row["end"].is_none()
    };
    assert_eq!((open("a"), open("b"), open("async"), open("never stopped")), (false, false, false, true));
    assert_eq!(trace.marks.len(), 1);
    let inner = trace.ranges.iter().find(|row| text(row, "name_id") == "b").unwrap();
    assert_eq!(trace.marks[0]["parent_stack_id"], inner["stack_id"]);

    let disabled = support::run(bench.collect().env("RPD_DISABLE", "1").arg("--").arg(&program));
    assert_eq!(exit_code(&disabled), -11, "without the library the weak symbols are null");
}

#[test]
fn ranges_may_be_stopped_by_another_thread() {
    let Some(bench) = Bench::new() else { return };
    let source = r#"
static uint64_t ids[1000];
static void *stop(void *unused) {
    for (int i = 0; i < 1000; i++) roctxRangeStop(ids[i]);
    return unused;
}
int main(void) {
    for (int i = 0; i < 1000; i++) ids[i] = roctxRangeStartA("async");
    pthread_t thread;
    pthread_create(&thread, 0, stop, 0);
    pthread_join(thread, 0);
    return 0;
}
"#;
    let program = bench.program("async", source);
    assert_eq!(exit_code(&bench.run(&program, &[])), 0);
    let trace = bench.trace();
    assert_eq!(trace.ranges.iter().filter(|row| row["end"].is_some()).count(), 1000);
}

#[test]
fn children_by_fork_have_rows_of_their_own() {
    let Some(bench) = Bench::new() else { return };
    let source = r#"
int main(void) {
    roctxRangePushA("around");
    for (int child = 0; child < 5; child++) {
        if (fork() == 0) {
            for (int i = 0; i < 100; i++) { roctxRangePushA("child"); roctxRangePop(); }
            roctxRangePop(); /* opened by the parent */
            _exit(child);
        }
    }
    while (wait(0) > 0) {}
    roctxRangePushA("parent");
    roctxRangePop();
    roctxRangePop();
    return 7;
}
"#;
    let program = bench.program("forks", source);
    assert_eq!(exit_code(&bench.run(&program, &[])), 7);
    let trace = bench.trace();
    assert_eq!(trace.shard.processes.len(), 6);
    let workers = trace.shard.processes.values().filter(|process| process.worker).count();
    assert_eq!(workers, 5);
    assert_eq!((trace.ranges_named("child"), trace.ranges_named("around")), (500, 1));
    assert!(trace.ranges.iter().all(|row| row["end"].is_some()));
    let parent = trace.shard.processes.values().find(|process| !process.worker).unwrap();
    assert_eq!(parent.exit, Some(ProcessExit::Code(7)));
    assert!(parent.command.ends_with("/forks"), "{}", parent.command);
}

#[test]
fn what_is_open_at_death_is_written_as_open() {
    let Some(bench) = Bench::new() else { return };
    let source = r#"
int main(int argc, char **argv) {
    roctxRangePushA("done");
    roctxRangePop();
    roctxRangePushA("outer");
    roctxRangePushA("inner");
    raise(atoi(argv[1]));
    return 0;
}
"#;
    let program = bench.program("death", source);
    for signal in [signal_numbers::KILL, signal_numbers::SEGV, signal_numbers::TERM] {
        assert_eq!(exit_code(&bench.run(&program, &[&signal.to_string()])), -signal);
        let trace = bench.trace();
        let open: Vec<_> =
            trace.ranges.iter().filter(|row| row["end"].is_none()).map(|row| text(row, "name_id")).collect();
        assert_eq!(open, ["outer", "inner"]);
        assert_eq!(trace.ranges.len(), 3);
        assert_eq!(trace.shard.processes[&1].exit, Some(ProcessExit::Signal(signal)));
        std::fs::remove_dir_all(bench.path("out")).unwrap();
    }
}

mod signal_numbers {
    pub(super) const KILL: i32 = 9;
    pub(super) const SEGV: i32 = 11;
    pub(super) const TERM: i32 = 15;
}

#[test]
fn an_exec_in_mid_range_leaves_the_range_open() {
    let Some(bench) = Bench::new() else { return };
    let source = r#"
int main(int argc, char **argv) {
    roctxRangePushA(argc == 1 ? "before" : "after");
    if (argc == 1) execl(argv[0], argv[0], "again", (char *)0);
    roctxRangePop();
    return 0;
}
"#;
    let program = bench.program("exec", source);
    assert_eq!(exit_code(&bench.run(&program, &[])), 0);
    let trace = bench.trace();
    assert_eq!(trace.shard.processes.len(), 1);
    assert!(trace.shard.processes[&1].command.ends_with("again"));
    let end =
        |name: &str| trace.ranges.iter().find(|row| text(row, "name_id") == name).unwrap()["end"].clone();
    assert!(end("before").is_none() && end("after").is_some());
}

#[test]
fn events_of_signal_handlers_are_counted_or_recorded() {
    let Some(bench) = Bench::new() else { return };
    let source = r#"
static volatile long handled;
static void handler(int unused) {
    (void)unused;
    roctxRangePushA("handler");
    roctxRangePop();
    handled++;
}
int main(void) {
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    sigaction(SIGALRM, &action, 0);
    ualarm(200, 200);
    long pushed = 0;
    while (handled < 500) { roctxRangePushA("main"); roctxRangePop(); pushed++; if (pushed % 64 == 0) usleep(1); }
    ualarm(0, 0);
    printf("%ld", pushed + handled);
    return 0;
}
"#;
    let program = bench.program("handler", source);
    let output = bench.run(&program, &[]);
    assert_eq!(exit_code(&output), 0);
    let emitted: u64 = String::from_utf8(output.stdout).unwrap().parse().unwrap();
    let trace = bench.trace();
    assert_eq!(trace.ranges.len() as u64 + trace.lost(), emitted);
}

#[test]
fn thousands_of_short_threads() {
    let Some(bench) = Bench::new() else { return };
    let source = r#"
static void *work(void *unused) { roctxRangePushA("short"); roctxRangePop(); return unused; }
int main(void) {
    for (int round = 0; round < 200; round++) {
        pthread_t thread[10];
        for (int i = 0; i < 10; i++) pthread_create(&thread[i], 0, work, 0);
        for (int i = 0; i < 10; i++) pthread_join(thread[i], 0);
    }
    return 0;
}
"#;
    let program = bench.program("threads", source);
    assert_eq!(exit_code(&bench.run(&program, &["--ring-size", "32768"])), 0);
    let trace = bench.trace();
    let untraced =
        trace.shard.ledger.as_ref().unwrap().losses.iter().any(|loss| loss.cause == LossCause::NoMemory);
    assert!(!untraced);
    assert_eq!((trace.ranges.len(), trace.threads.len()), (2000, 2000));
}
