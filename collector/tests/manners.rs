//! The command behaves as without rpd-collect.

use crate::support;
use rpd_shard::record::{Loss, LossCause};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use support::{Bench, below, exit_code, kill, run};

#[test]
fn exit_codes_pass_through() {
    let Some(bench) = Bench::new() else { return };
    for code in [0, 1, 3, 126, 255] {
        let output = run(bench.collect().args(["--", "sh", "-c", &format!("echo out; exit {code}")]));
        assert_eq!((exit_code(&output), output.stdout.as_slice()), (code, b"out\n".as_slice()));
        assert_eq!(String::from_utf8_lossy(&output.stderr), NOTHING);
        std::fs::remove_dir_all(bench.path("out")).unwrap();
    }
}

/// Messages if a shard has no event.
const NOTHING: &str = "rpd-collect: nothing was recorded: no roctx, MPI or RCCL call was seen; \
     to record GPU kernels, add --backend rocprofv3\n";

#[test]
fn a_rank_without_events_leaves_a_shard_and_no_word() {
    let Some(bench) = Bench::new() else { return };
    let mut command = bench.collect();
    let output = run(command.env("PMI_RANK", "0").env("PMI_SIZE", "2").args(["--", "true"]));
    assert_eq!((exit_code(&output), output.stdout.len(), output.stderr.len()), (0, 0, 0), "{output:?}");
    let trace = bench.trace();
    assert!(trace.shard.complete() && trace.shard.processes.is_empty());
    assert_eq!(trace.lost(), 0);
    let log = bench.log();
    assert!(
        log.lines().count() == 1 && log.contains("note: nothing was recorded: no roctx, MPI or RCCL"),
        "{log}"
    );
}

#[test]
fn a_bad_variable_does_not_stop_the_command() {
    let Some(bench) = Bench::new() else { return };
    let program =
        bench.program("one", r#"int main(void) { if (roctxRangePushA) roctxRangePushA("x"); return 3; }"#);
    for (name, value, lines) in [
        ("RPD_OUTPUT", "", 0),
        ("RPD_RING_BYTES", "", 0),
        ("RPD_RING_BYTES", "abc", 1),
        ("RPD_RING_BYTES", "-1", 1),
        ("RPD_RUN_ID", "", 0),
        ("RPD_DISABLE", "", 0),
    ] {
        let output = run(bench.collect().env(name, value).arg("--").arg(&program));
        assert_eq!((exit_code(&output), output.stdout.len()), (3, 0), "{output:?}");
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(
            text.lines().count() == lines && (lines == 0 || text.contains(name)),
            "{name}={value}: {text}"
        );
        assert_eq!(bench.trace().ranges.len(), 1);
        std::fs::remove_dir_all(bench.path("out")).unwrap();
    }
    // Options are checked strictly, but not if there is nothing to do.
    let bad = |command: &mut Command| run(command.args(["--ring-size", "abc", "--"]).arg(&program));
    assert_eq!(exit_code(&bad(&mut bench.collect())), 2);
    let output = bad(bench.collect().env("RPD_DISABLE", "1").env("RPD_RING_BYTES", "abc"));
    assert_eq!((exit_code(&output), output.stderr.len()), (3, 0), "{output:?}");
    assert!(!bench.path("out").exists());
}

#[test]
fn a_run_id_that_is_no_folder_name_gets_one_of_its_own() {
    let Some(bench) = Bench::new() else { return };
    let program = bench.program("one", r#"int main(void) { roctxRangePushA("x"); return 0; }"#);
    for id in ["exp a", "exp/a"] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rpd-collect"));
        for (name, value) in bench.collect().get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        let output = run(command.current_dir(bench.path("")).env("RPD_RUN_ID", id).arg("--").arg(&program));
        let line = String::from_utf8(output.stderr).unwrap();
        assert!(line.lines().count() == 1 && line.contains("exp-a-"), "{line}");
    }
    assert_eq!(std::fs::read_dir(bench.path("rpd-out")).unwrap().count(), 2);
}

#[test]
fn a_command_that_cannot_run_ends_as_in_a_shell() {
    let Some(bench) = Bench::new() else { return };
    let missing = run(bench.collect().args(["--", "./no-such-command"]));
    assert_eq!(exit_code(&missing), 127);
    let line = String::from_utf8(missing.stderr).unwrap();
    assert_eq!(line, "rpd-collect: ./no-such-command: command not found\n");
    std::fs::write(bench.path("bi"), "#!/no/such/interpreter -x\n").unwrap();
    std::fs::set_permissions(bench.path("bi"), PermissionsExt::from_mode(0o755)).unwrap();
    let no_interpreter = run(bench.collect().args(["--", "./bi"]));
    assert_eq!(exit_code(&no_interpreter), 127);
    let line = String::from_utf8(no_interpreter.stderr).unwrap();
    assert!(line.lines().count() == 1 && line.contains("/no/such/interpreter is not found"), "{line}");
    std::fs::write(bench.path("data"), "text").unwrap();
    let not_executable = run(bench.collect().args(["--", "./data"]));
    assert_eq!(exit_code(&not_executable), 126);
    assert_eq!(String::from_utf8(not_executable.stderr).unwrap().lines().count(), 1);
    // A script without `#!`, which execvp passes to sh.
    std::fs::write(bench.path("script"), "exit 9\n").unwrap();
    std::fs::set_permissions(bench.path("script"), PermissionsExt::from_mode(0o755)).unwrap();
    assert_eq!(exit_code(&run(bench.collect().args(["--", "./script"]))), 9);
    for (disabled, code) in [("./no-such-command", 127), ("./data", 126), ("./script", 9)] {
        let output = run(bench.collect().env("RPD_DISABLE", "1").args(["--", disabled]));
        assert_eq!(exit_code(&output), code);
    }
}

#[test]
fn a_missing_library_or_folder_leaves_the_command_untraced() {
    let Some(bench) = Bench::new() else { return };
    let output = run(bench.collect().env("RPD_INTERCEPT", "/nowhere.so").args(["--", "sh", "-c", "exit 5"]));
    assert_eq!(exit_code(&output), 5);
    assert_eq!(String::from_utf8(output.stderr).unwrap().lines().count(), 1);

    let source = r#"int main(void) { roctxRangePushA("x"); roctxRangePop(); return 6; }"#;
    let program = bench.program("one", source);
    std::fs::write(bench.path("out"), "in the way").unwrap();
    let output = bench.run(&program, &[]);
    assert_eq!((exit_code(&output), output.stdout.len()), (6, 0));
    let line = String::from_utf8(output.stderr).unwrap();
    assert!(line.lines().count() == 1 && line.contains("-o DIR"), "{line}");
}

#[test]
fn a_shard_is_never_overwritten() {
    let Some(bench) = Bench::new() else { return };
    let program =
        bench.program("one", r#"int main(void) { roctxRangePushA("x"); roctxRangePop(); return 0; }"#);
    assert!(bench.run(&program, &[]).stderr.is_empty());
    let first = std::fs::read(bench.shard_path()).unwrap();
    let mode = std::fs::metadata(bench.shard_path()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let folder = std::fs::metadata(bench.path("out/run")).unwrap().permissions().mode();
    assert_eq!(folder & 0o777, 0o700);
    let again = bench.run(&program, &[]);
    let line = String::from_utf8(again.stderr).unwrap();
    assert!(line.lines().count() == 1 && line.contains("1 warning about this run in"), "{line}");
    assert!(bench.log().contains("already has a shard of this rank"), "{}", bench.log());
    assert_eq!(std::fs::read(bench.shard_path()).unwrap(), first);
    assert!(bench.path("out/run/rank-00000.1.rpdshard").is_file());
}

/// Prints on stdout that it is ready, counts SIGUSR1 and ends at SIGTERM.
const COUNTER: &str = r#"
static volatile int count, done;
static void handler(int signal) { if (signal == SIGUSR1) count++; else done = 1; }
int main(void) {
    struct sigaction action = {.sa_handler = handler};
    sigaction(SIGUSR1, &action, 0);
    sigaction(SIGTERM, &action, 0);
    write(1, "ready\n", 6);
    while (!done) usleep(1000);
    usleep(20000);
    dprintf(1, "%d\n", count);
    return 4;
}
"#;

#[test]
fn a_signal_to_the_collector_reaches_the_command_once() {
    let Some(bench) = Bench::new() else { return };
    let program = bench.program("counter", COUNTER);
    let mut child = bench
        .collect()
        .arg("--")
        .arg(&program)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut ready = [0; 6];
    std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut ready).unwrap();
    for _ in 0..3 {
        // A separate process, like a user's `kill`.
        Command::new("kill").args(["-USR1", &child.id().to_string()]).status().unwrap();
        std::thread::sleep(Duration::from_millis(50));
    }
    Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap();
    let output = support::wait(child);
    assert_eq!((exit_code(&output), output.stdout.as_slice()), (4, b"3\n".as_slice()));
}

/// Prints its signals and ends at SIGTERM.
const LISTENER: &str = r#"
static volatile int count[65], done;
static void handler(int signal) { if (signal == SIGTERM) done = 1; else count[signal]++; }
int main(int argc, char **argv) {
    struct sigaction action = {.sa_handler = handler};
    for (int signal = 1; signal <= 64; signal++)
        if (argc > 1 || signal == SIGTERM) sigaction(signal, &action, 0);
    write(1, "ready\n", 6);
    while (!done) usleep(1000);
    usleep(20000);
    for (int signal = 1; signal <= 64; signal++) if (count[signal]) dprintf(1, "%d:%d ", signal, count[signal]);
    return 4;
}
"#;

fn listening(bench: &Bench, arguments: &[&str]) -> Child {
    let program = bench.program("listener", LISTENER);
    let mut command = bench.collect();
    // A group of its own that is not orphaned: only such groups can be stopped from a terminal.
    command.process_group(0).arg("--").arg(&program).args(arguments);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut ready = [0; 6];
    std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut ready).unwrap();
    child
}

#[test]
fn every_signal_that_means_something_reaches_the_command_once() {
    let Some(bench) = Bench::new() else { return };
    let child = listening(&bench, &["all"]);
    // ALRM, STKFLT, CONT, URG, XCPU, VTALRM, PROF, WINCH, IO, PWR, and real-time ones.
    let signals = [14, 16, 18, 23, 24, 26, 27, 28, 29, 30, 34, 37, 64];
    for signal in signals {
        kill(child.id(), signal);
        std::thread::sleep(Duration::from_millis(50));
    }
    kill(child.id(), 15);
    let output = support::wait(child);
    let wanted: String = signals.iter().map(|signal| format!("{signal}:1 ")).collect();
    assert_eq!((exit_code(&output), String::from_utf8(output.stdout).unwrap()), (4, wanted));
}

#[test]
fn collector_and_command_stop_and_continue_together() {
    let Some(bench) = Bench::new() else { return };
    let child = listening(&bench, &[]);
    let state = |pid: u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        stat.rsplit_once(") ").unwrap().1.starts_with('T')
    };
    let program = below(child.id()).command;
    for stop in [20, 21, 22] {
        for (signal, stopped) in [(stop, true), (18, false)] {
            kill(child.id(), signal);
            let began = Instant::now();
            while (state(child.id()), state(program)) != (stopped, stopped) {
                assert!(began.elapsed() < Duration::from_secs(10), "{signal}");
                std::thread::sleep(Duration::from_millis(10));
            }
        }
    }
    kill(child.id(), 15);
    assert_eq!(exit_code(&support::wait(child)), 4);
}

#[test]
fn the_collector_dies_by_the_signal_of_the_command() {
    let Some(bench) = Bench::new() else { return };
    for signal in [10, 14, 26, 29, 30, 34, 64] {
        let output = run(bench.collect().args(["--", "sh", "-c", &format!("kill -{signal} $$")]));
        assert_eq!(exit_code(&output), -signal);
    }
}

#[test]
fn grandchildren_are_not_waited_for() {
    let Some(bench) = Bench::new() else { return };
    let source = r#"
int main(void) {
    int ready[2];
    char byte;
    if (pipe(ready)) return 1;
    if (fork() == 0) {
        roctxRangePushA("left over");
        close(0); close(1); close(2);
        write(ready[1], "x", 1);
        sleep(20);
        _exit(0);
    }
    read(ready[0], &byte, 1);
    return 0;
}
"#;
    let program = bench.program("leftover", source);
    let began = Instant::now();
    assert_eq!(exit_code(&bench.run(&program, &[])), 0);
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    let trace = bench.trace();
    assert!(trace.shard.complete());
    assert_eq!(trace.ranges_named("left over"), 1);
    assert!(trace.ranges[0]["end"].is_none());
    let losses = &trace.shard.ledger.as_ref().unwrap().losses;
    let left = trace.shard.processes.values().find(|process| process.exit.is_none()).unwrap();
    let unseen = Loss { source: left.source, table: None, cause: LossCause::Truncated, rows: None };
    assert_eq!(*losses, [unseen], "what it does later is not recorded");
}

#[test]
fn no_descriptor_is_left_in_the_program() {
    let Some(bench) = Bench::new() else { return };
    let source = r#"
static void list(void) { fflush(stdout); system("ls /proc/$PPID/fd | sort -n | tr '\\n' ' '"); }
int main(void) { list(); roctxRangePushA("x"); roctxRangePop(); printf("/"); list(); return 0; }
"#;
    let program = bench.program("descriptors", source);
    let output = bench.run(&program, &[]);
    let text = String::from_utf8(output.stdout).unwrap();
    let (before, after) = text.split_once('/').unwrap();
    assert_eq!(before, after);
    assert_eq!(bench.trace().ranges.len(), 1);
}

#[test]
fn errno_survives_the_first_event() {
    let Some(bench) = Bench::new() else { return };
    let source = r#"
#include <errno.h>
int main(void) { errno = 77; roctxRangePushA("x"); roctxRangePop(); return errno == 77 ? 0 : 1; }
"#;
    let program = bench.program("errno", source);
    assert_eq!(exit_code(&bench.run(&program, &[])), 0);
    assert_eq!(bench.trace().ranges.len(), 1);
}

#[test]
fn secrets_stay_out_of_the_shard() {
    let Some(bench) = Bench::new() else { return };
    let program =
        bench.program("one", r#"int main(void) { roctxRangePushA("x"); roctxRangePop(); return 0; }"#);
    let mut command = bench.collect();
    command.env("ROCM_SECRET_KEY", "hidden-1").env("HOME_PAGE", "hidden-2").env("ROCM_PATH", "/opt/rocm");
    command.arg("--").arg(&program).args(["--api-key", "hidden-3", "--token=hidden-4"]);
    command.arg(r#"{"password": "hidden-5"}"#).arg("Authorization: Bearer hidden-6");
    command.env("UCX_X", "http://me:hidden-7@proxy").env("UCX_AUTH", "hidden-8");
    command.env("RCCL_PIN", "hidden-9").args(["-phidden-10", "-u", "me:hidden-11 hidden-12"]);
    assert_eq!(exit_code(&run(&mut command)), 0);
    let process = bench.trace().shard.processes[&1].clone();
    assert!(!format!("{process:?}").contains("hidden"), "{process:?}");
    assert!(process.environment.contains(&("ROCM_PATH".to_owned(), "/opt/rocm".to_owned())));
}

#[test]
fn programs_without_events_do_not_notice() {
    let Some(bench) = Bench::new() else { return };
    for command in
        [["sh", "-c", "echo $((6 * 7))"], ["env", "printf", "42\n"], ["bash", "-c", "echo 42 | cat"]]
    {
        let output = run(bench.collect().arg("--").args(command));
        assert_eq!((exit_code(&output), output.stdout.as_slice()), (0, b"42\n".as_slice()), "{command:?}");
        assert_eq!(String::from_utf8_lossy(&output.stderr), NOTHING);
        std::fs::remove_dir_all(bench.path("out")).unwrap();
    }
}

/// [`Bench::collect`] with a limit of the shell.
fn limited(bench: &Bench, limit: &str) -> Command {
    let collect = bench.collect();
    let mut command = Command::new("sh");
    command.args(["-c", &format!("{limit}; exec \"$0\" \"$@\"")]).arg(collect.get_program());
    for (name, value) in collect.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command.args(collect.get_args()).current_dir(bench.path(""));
    command
}

#[test]
fn too_few_descriptors_are_said_with_the_next_step() {
    let Some(bench) = Bench::new() else { return };
    let output = run(limited(&bench, "ulimit -n 6").args(["--", "sh", "-c", "exit 5"]));
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.lines().count() == 1 && text.contains("raise the limit with `ulimit -n"), "{text}");
    assert_eq!(output.status.code(), Some(5));
    // Whichever side runs out of them.
    for limit in 5..30 {
        let output =
            run(limited(&bench, &format!("ulimit -n {limit}")).args(["--", "sh", "-c", "echo out; exit 5"]));
        assert_eq!(
            (exit_code(&output), output.stdout.as_slice()),
            (5, b"out\n".as_slice()),
            "{limit}: {output:?}"
        );
        assert_eq!(String::from_utf8(output.stderr).unwrap().lines().count(), 1, "{limit}");
        let _ = std::fs::remove_dir_all(bench.path("out"));
    }
}

#[test]
fn a_limit_on_file_sizes_kills_nobody() {
    let Some(bench) = Bench::new() else { return };
    let source = r#"
int main(void) {
    for (unsigned i = 0; i < 300000; i++) {
        char name[16];
        snprintf(name, sizeof name, "%x", i * 2654435761u);
        if (i % 64 == 0) usleep(1); /* the collector keeps up */
        roctxRangePushA(name);
        roctxRangePop();
    }
    return 8;
}
"#;
    let program = bench.program("many", source);
    // In blocks of 1 KiB (sh of Debian: 512 bytes): no ring fits, then rings fit and the shard does not.
    for (limit, ring, said) in [
        ("ulimit -f 4", "1048576", "`ulimit -f` allows no file as large as its ring"),
        ("ulimit -f 100", "32768", "what follows is not recorded"),
    ] {
        let output = run(limited(&bench, limit).args(["--ring-size", ring, "--"]).arg(&program));
        assert_eq!(exit_code(&output), 8, "{output:?}");
        assert_eq!(output.stderr.split(|byte| *byte == b'\n').count(), 2, "one line: {output:?}");
        let text = bench.log();
        assert_eq!(text.lines().filter(|line| line.contains(said)).count(), 1, "{text}");
    }
}

#[test]
fn a_real_roctx_library_is_called_and_its_values_count() {
    let Some(bench) = Bench::new() else { return };
    let real = r#"
int roctxRangePushA(const char *name) { return 1000 + (int)strlen(name); }
int roctxRangePop(void) { return 2000; }
uint64_t roctxRangeStartA(const char *name) { return 3000 + strlen(name); }
void roctxRangeStop(uint64_t id) { printf("stop %d ", (int)id); }
void roctxMarkA(const char *name) { printf("mark %s ", name); }
"#;
    let library = bench.library_of("libroctx64.so", real);
    let source = r#"
int main(void) {
    int push = roctxRangePushA("abc"), pop = roctxRangePop();
    uint64_t id = roctxRangeStartA("abcd");
    roctxRangeStop(id);
    roctxMarkA("here");
    printf("%d %d", push, pop);
    return 0;
}
"#;
    let program = bench.linked_program("linked", source, &library);
    let output = bench.run(&program, &[]);
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "stop 3004 mark here 1003 2000");
    let trace = bench.trace();
    assert_eq!((trace.ranges.len(), trace.marks.len()), (2, 1));
}
