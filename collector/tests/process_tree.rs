//! Every process of a job, however it is started, and how each of them ended.

use crate::support;
use rpd_shard::record::ProcessExit;
use support::{Bench, Trace, exit_code, run, text};

fn exits(trace: &Trace) -> Vec<Option<ProcessExit>> {
    trace.shard.processes.values().map(|process| process.exit).collect()
}

#[test]
fn children_by_vfork_and_posix_spawn_are_processes_of_their_own() {
    let Some(bench) = Bench::new() else { return };
    let source = r#"
#include <spawn.h>
extern char **environ;
int main(int argc, char **argv) {
    roctxRangePushA(argc == 1 ? "parent" : argv[1]);
    if (argc == 1) {
        int status = 0;
        if (vfork() == 0) { execl(argv[0], argv[0], "vfork", (char *)0); _exit(99); }
        wait(&status);
        if (vfork() == 0) { execl("/no/such/file", "x", (char *)0); _exit(98); }
        wait(&status);
        pid_t child;
        char *arguments[] = {argv[0], "spawn", 0};
        posix_spawn(&child, argv[0], 0, 0, arguments, environ);
        waitpid(child, &status, 0);
        roctxRangePushA("after"); roctxRangePop();
    }
    roctxRangePop();
    return argc == 1 ? 0 : 3;
}
"#;
    let program = bench.program("children", source);
    assert_eq!(exit_code(&bench.run(&program, &[])), 0);
    let trace = bench.trace();
    let mut names: Vec<_> = trace.ranges.iter().map(|row| text(row, "name_id")).collect();
    names.sort_unstable();
    assert_eq!(names, ["after", "parent", "spawn", "vfork"]);
    assert!(trace.ranges.iter().all(|row| row["end"].is_some()));
    assert_eq!(
        exits(&trace),
        [Some(ProcessExit::Code(0)), Some(ProcessExit::Code(3)), Some(ProcessExit::Code(3))]
    );
}

#[test]
fn a_worker_that_dies_is_noted_with_its_signal_or_status() {
    let Some(bench) = Bench::new() else { return };
    let source = r#"
static void child(int how) {
    roctxRangePushA("work");
    switch (how) {
    case 0: raise(SIGKILL); break;
    case 1: *(volatile int *)0 = 1; break;
    case 2: abort();
    case 3: _exit(41);
    case 4: exit(42);
    default: raise(SIGTERM);
    }
}
int main(void) {
    roctxMarkA("parent");
    for (int how = 0; how < 6; how++) {
        pid_t pid = fork();
        if (pid == 0) { child(how); _exit(1); }
        int status = 0;
        siginfo_t info;
        switch (how % 3) {
        case 0: waitpid(pid, how ? &status : 0, 0); break;
        case 1: wait(&status); break;
        default: waitid(P_PID, pid, &info, WEXITED);
        }
    }
    return 0;
}
"#;
    let program = bench.program("deaths", source);
    let output = bench.run(&program, &[]);
    assert_eq!(exit_code(&output), 0);
    let trace = bench.trace();
    assert_eq!(trace.ranges.iter().filter(|row| row["end"].is_none()).count(), 6);
    let expected = [
        ProcessExit::Code(0),
        ProcessExit::Signal(9),
        ProcessExit::Signal(11),
        ProcessExit::Signal(6),
        ProcessExit::Code(41),
        ProcessExit::Code(42),
        ProcessExit::Signal(15),
    ];
    assert_eq!(exits(&trace), expected.map(Some));
}

#[test]
fn an_exit_in_a_signal_handler_keeps_what_came_before() {
    let Some(bench) = Bench::new() else { return };
    let source = r#"
static volatile long done;
static void handler(int unused) {
    (void)unused;
    char text[32];
    int bytes = snprintf(text, sizeof text, "%ld", done);
    write(1, text, bytes);
    exit(5);
}
int main(void) {
    signal(SIGALRM, handler);
    roctxRangePushA("around");
    ualarm(20000, 0);
    for (;;) { roctxRangePushA("work"); roctxRangePop(); done++; if (done % 100 == 0) usleep(100); }
}
"#;
    let program = bench.program("handler", source);
    let output = bench.run(&program, &[]);
    assert_eq!(exit_code(&output), 5);
    let done: i64 = String::from_utf8(output.stdout).unwrap().parse().unwrap();
    let trace = bench.trace();
    let closed = trace.ranges.iter().filter(|row| row["end"].is_some()).count() as i64;
    // The handler may run between a pop and the program's own count of it.
    assert!((done..=done + 1).contains(&(closed + trace.lost() as i64)), "{closed} of {done}");
    let open: Vec<_> =
        trace.ranges.iter().filter(|row| row["end"].is_none()).map(|row| text(row, "name_id")).collect();
    assert!(open == ["around"] || open == ["around", "work"], "{open:?}");
    assert_eq!(trace.shard.processes[&1].exit, Some(ProcessExit::Code(5)));
}

#[test]
fn a_fork_in_another_thread_and_in_mid_range_confuses_nobody() {
    let Some(bench) = Bench::new() else { return };
    let source = r#"
static void *forker(void *unused) {
    for (int i = 0; i < 20; i++) {
        roctxRangePushA("fork");
        if (fork() == 0) {
            roctxRangePop();
            for (int n = 0; n < 50; n++) { roctxRangePushA("child"); roctxRangePop(); }
            _exit(0);
        }
        roctxRangePop();
        wait(0);
    }
    return unused;
}
int main(void) {
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) pthread_create(&threads[i], 0, forker, 0);
    for (int i = 0; i < 2000; i++) { roctxRangePushA("main"); roctxRangePop(); }
    for (int i = 0; i < 4; i++) pthread_join(threads[i], 0);
    return 0;
}
"#;
    let program = bench.program("forks", source);
    assert_eq!(exit_code(&bench.run(&program, &[])), 0);
    let trace = bench.trace();
    assert_eq!(trace.lost(), 0);
    let counts = ["main", "fork", "child"].map(|name| trace.ranges_named(name));
    assert_eq!(counts, [2000, 80, 4000]);
    assert_eq!(trace.shard.processes.len(), 81);
}

/// Ten thousand threads in a run, at most a hundred at a time.
#[test]
fn ten_thousand_threads_over_a_run() {
    let Some(bench) = Bench::new() else { return };
    let source = r#"
static void *work(void *unused) { roctxRangePushA("short"); roctxRangePop(); return unused; }
int main(void) {
    for (int round = 0; round < 100; round++) {
        pthread_t thread[100];
        // On a machine without free threads the test would report that the collector lost some.
        for (int i = 0; i < 100; i++) if (pthread_create(&thread[i], 0, work, 0)) return 3;
        for (int i = 0; i < 100; i++) if (pthread_join(thread[i], 0)) return 4;
    }
    return 0;
}
"#;
    let program = bench.program("threads", source);
    let output = bench.run(&program, &[]);
    assert_eq!((exit_code(&output), output.stdout.len(), output.stderr.len()), (0, 0, 0), "{output:?}");
    let trace = bench.trace();
    assert_eq!(trace.ledger(), []);
    assert_eq!((trace.ranges.len(), trace.threads.len()), (10_000, 10_000));
}

/// More threads at a time than there is memory for rings: dropped records are counted.
#[test]
fn threads_beyond_the_memory_for_rings_are_counted() {
    let Some(bench) = Bench::new() else { return };
    let source = r#"
static pthread_barrier_t all;
static void *work(void *unused) {
    for (int i = 0; i < 100; i++) { roctxRangePushA("r"); roctxRangePop(); }
    roctxMarkA("m");
    pthread_barrier_wait(&all);
    return unused;
}
int main(void) {
    pthread_t thread[64];
    pthread_barrier_init(&all, 0, 64);
    for (int i = 0; i < 64; i++) pthread_create(&thread[i], 0, work, 0);
    for (int i = 0; i < 64; i++) pthread_join(thread[i], 0);
    return 0;
}
"#;
    let program = bench.program("many", source);
    let output = run(bench.collect().env("RPD_RING_MEMORY", "131072").arg("--").arg(&program));
    assert_eq!(exit_code(&output), 0);
    let trace = bench.trace();
    let recorded = (trace.ranges.len() + trace.marks.len()) as u64;
    assert_eq!(recorded + trace.lost(), 64 * 101);
    assert!(recorded >= 101 && trace.lost() > 0, "{recorded} recorded");
}
