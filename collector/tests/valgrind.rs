//! The library under valgrind: no invalid access, nothing uninitialised, whatever the program does.

use crate::support;
use std::path::Path;
use std::process::Command;
use support::{Bench, exit_code, run};

const PROGRAM: &str = r#"
int roctxProfilerPause(uint64_t) WEAK;
int roctxProfilerResume(uint64_t) WEAK;
int roctxNameOsThread(const char *) WEAK;
static uint64_t shared;
static void *work(void *name) {
    roctxNameOsThread(name);
    char longest[6000];
    memset(longest, 'x', sizeof longest - 1);
    longest[sizeof longest - 1] = 0;
    for (int i = 0; i < 300; i++) {
        roctxRangePushA(longest + i * 20);
        roctxMarkA(longest + 5000 + i);
        roctxRangePop();
    }
    for (int i = 0; i < 70000; i++) roctxRangePushA("deep");
    for (int i = 0; i < 70001; i++) roctxRangePop();
    roctxRangeStop(shared);
    return 0;
}
static void handler(int unused) { (void)unused; roctxRangePushA("handler"); roctxRangePop(); }
int main(int argc, char **argv) {
    signal(SIGALRM, handler);
    ualarm(5000, 5000);
    shared = roctxRangeStartA("async");
    roctxRangePushA(0);
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) pthread_create(&threads[i], 0, work, "worker");
    for (int i = 0; i < 4; i++) pthread_join(threads[i], 0);
    roctxProfilerPause(0);
    roctxRangePushA("paused");
    roctxProfilerResume(0);
    roctxRangePop();
    for (int i = 0; i < 3; i++) {
        if (fork() == 0) { roctxRangePushA("child"); roctxRangePop(); if (i) exit(i); abort(); }
        wait(0);
    }
    ualarm(0, 0);
    if (argc == 1) execl(argv[0], argv[0], "again", (char *)0);
    return 0;
}
"#;

fn valgrind() -> bool {
    let found =
        Command::new("valgrind").arg("--version").output().is_ok_and(|output| output.status.success());
    if !found {
        eprintln!("skipped: no valgrind here");
    }
    found
}

/// Error lines of valgrind. The program itself has none.
const ERRORS: [&str; 4] = ["Invalid ", "ninitialised", "Mismatched ", "overlap"];

/// Error lines in all logs.
fn errors(folder: &Path) -> Vec<String> {
    let mut errors = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
        if ERRORS.iter().any(|error| text.contains(error)) {
            errors.push(text);
        }
    }
    errors
}

#[test]
fn threads_forks_signals_and_exec_are_clean() {
    let Some(bench) = Bench::new() else { return };
    if !valgrind() {
        return;
    }
    let program = bench.program("everything", PROGRAM);
    let logs = bench.path("logs");
    std::fs::create_dir(&logs).unwrap();
    for ring in ["1048576", "32768"] {
        let mut command = bench.collect();
        command.args([
            "--ring-size",
            ring,
            "--",
            "valgrind",
            "-q",
            "--trace-children=yes",
            "--error-exitcode=99",
        ]);
        command.arg(format!("--log-file={}/%p.log", logs.display())).arg(&program);
        assert_eq!(exit_code(&run(&mut command)), 0, "{:?}", errors(&logs));
        assert_eq!(errors(&logs), Vec::<String>::new());
        assert!(bench.trace().ranges_named("child") >= 6, "it was traced");
        std::fs::remove_dir_all(bench.path("out")).unwrap();
    }
}
