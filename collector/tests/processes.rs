//! The collector is a process beside the command: a fault of one does not affect the other.

use crate::support;
use rpd_shard::Shard;
use rpd_shard::record::ProcessExit;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use support::{Below, Bench, Trace, below, exit_code, kill, run, until};

/// Beats 100 times a second, prints a line after 300, ends after 360 or when its argument exists.
const BEATS: &str = r#"
int main(int argc, char **argv) {
    for (int i = 0; i < 360; i++) {
        roctxRangePushA("beat");
        usleep(10000);
        roctxRangePop();
        if (i == 300) write(1, "ready\n", 6);
    }
    while (argc > 1 && access(argv[1], F_OK)) usleep(1000);
    write(1, "done\n", 5);
    return 7;
}
"#;

/// Starts a program and waits until it is ready.
fn ready(command: &mut Command) -> (Child, BufReader<std::process::ChildStdout>) {
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    stdout.read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    (child, stdout)
}

fn rest(mut stdout: impl Read) -> String {
    let mut text = String::new();
    stdout.read_to_string(&mut text).unwrap();
    text
}

fn is_complete(bench: &Bench) -> bool {
    rpd_shard::Shard::open(&bench.shard_path()).is_ok_and(|shard| shard.complete())
}

fn beats(trace: &Trace) -> usize {
    trace.ranges_named("beat")
}

#[test]
fn a_collector_that_is_killed_leaves_job_and_shard_alone() {
    let Some(bench) = Bench::new() else { return };
    let program = bench.program("beats", BEATS);
    let (child, stdout) = ready(bench.collect().arg("--").arg(&program));
    kill(below(child.id()).collector, 9);
    assert_eq!(rest(stdout), "done\n");
    let output = support::wait(child);
    assert_eq!(exit_code(&output), 7);
    let line = String::from_utf8(output.stderr).unwrap();
    assert!(line.lines().count() == 1 && line.contains("the collector was killed"), "{line}");
    let trace = bench.trace();
    assert!(!trace.shard.complete());
    // 300 beats take at least three seconds. Those of the last two seconds may be missing, see docs/COLLECTING.md.
    assert!((90..=302).contains(&beats(&trace)), "{}", beats(&trace));
}

#[test]
fn a_collector_that_is_stopped_holds_the_job_up_for_five_seconds_at_most() {
    let Some(bench) = Bench::new() else { return };
    let program = bench.program("beats", BEATS);
    let (child, stdout) = ready(bench.collect().arg("--").arg(&program).arg(bench.path("go")));
    let collector = below(child.id()).collector;
    kill(collector, 19);
    std::fs::write(bench.path("go"), "").unwrap();
    let mut lines = stdout.lines();
    assert_eq!(lines.next().unwrap().unwrap(), "done");
    let ended = Instant::now();
    let output = support::wait(child);
    assert_eq!(exit_code(&output), 7);
    assert!(ended.elapsed() < Duration::from_millis(6500), "{:?}", ended.elapsed());
    let line = String::from_utf8(output.stderr).unwrap();
    assert!(line.lines().count() == 1 && line.contains("read nothing for 5 s"), "{line}");
    // If the kernel does not do that itself for children of a dead parent.
    kill(collector, 18);
    until("the shard is complete", || is_complete(&bench));
    let trace = bench.trace();
    assert_eq!((beats(&trace), trace.lost()), (360, 0));
    assert_eq!(trace.shard.processes[&1].exit, Some(ProcessExit::Code(7)));
}

#[test]
fn without_its_parent_the_collector_stays_until_the_command_ends() {
    let Some(bench) = Bench::new() else { return };
    let program = bench.program("beats", BEATS);
    let (mut child, stdout) = ready(bench.collect().arg("--").arg(&program).arg(bench.path("go")));
    let Below { collector, .. } = below(child.id());
    child.kill().unwrap();
    child.wait().unwrap();
    std::thread::sleep(Duration::from_millis(50));
    assert!(!is_complete(&bench), "the command is not at its end");
    std::fs::write(bench.path("go"), "").unwrap();
    assert_eq!(rest(stdout), "done\n");
    until("the shard is complete", || is_complete(&bench));
    let trace = bench.trace();
    assert_eq!((beats(&trace), trace.lost()), (360, 0));
    assert_eq!(trace.shard.processes[&1].exit, Some(ProcessExit::Unknown));
    until("the collector has ended", || is_gone(collector));
    assert!(bench.log().contains("warning: rpd-collect was killed, "), "{}", bench.log());
}

/// Longest time that a collector stays after `rpd-collect` and the program.
const TIME_TO_END: Duration = Duration::from_secs(5);

#[test]
fn the_collector_ends_within_five_seconds_of_the_launcher_and_the_program() {
    /// Sends signals: to the group of the job, to `rpd-collect`, and to the program.
    type JobEnding = fn(group: &str, launcher: u32, command: u32);
    let Some(bench) = Bench::new() else { return };
    let program = bench.program("beats", BEATS);
    let ends: [(&str, JobEnding); 5] = [
        ("Ctrl-C", |group, _, _| send("-INT", group)),
        ("scancel, or proctrack/pgid before KillWait", |group, _, _| send("-TERM", group)),
        ("proctrack/pgid", |group, _, _| send("-KILL", group)),
        ("both killed", |_, launcher, command| {
            kill(launcher, 9);
            kill(command, 9);
        }),
        ("the launcher killed first", |_, launcher, command| {
            kill(launcher, 9);
            std::thread::sleep(Duration::from_millis(300));
            kill(command, 9);
        }),
    ];
    for (what, end) in ends {
        let _ = std::fs::remove_dir_all(bench.path("out"));
        let mut collect = bench.collect();
        std::os::unix::process::CommandExt::process_group(&mut collect, 0);
        let (mut child, stdout) = ready(collect.arg("--").arg(&program).arg(bench.path("never")));
        let Below { collector, command } = below(child.id());
        end(&format!("-{}", child.id()), child.id(), command);
        child.wait().unwrap();
        until("the program has ended", || is_gone(command));
        let ended = Instant::now();
        until("the collector has ended", || is_gone(collector));
        assert!(ended.elapsed() < TIME_TO_END, "{what}: {:?}", ended.elapsed());
        drop(stdout);
    }
}

fn send(signal: &str, group: &str) {
    let sent = Command::new("kill").args([signal, "--", group]).status();
    assert!(sent.is_ok_and(|status| status.success()), "kill {signal} {group}");
}

/// Whether a process has ended, or waits for its parent to read its status.
fn is_gone(pid: u32) -> bool {
    !std::path::Path::new(&format!("/proc/{pid}")).exists() || is_in_state(pid, &['Z', 'X'])
}

fn is_in_state(pid: u32, states: &[char]) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with(states))
}

/// Counts SIGUSR1 and SIGTERM, and ends a moment after the latter.
const COUNTER: &str = r#"
static volatile int user, end;
static void handler(int signal) { if (signal == SIGUSR1) user++; else end++; }
int main(void) {
    struct sigaction action = {.sa_handler = handler};
    sigaction(SIGUSR1, &action, 0);
    sigaction(SIGTERM, &action, 0);
    roctxMarkA("begin");
    write(1, "ready\n", 6);
    while (!end) usleep(1000);
    usleep(200000);
    roctxMarkA("end");
    dprintf(1, "%d %d\n", user, end);
    return 4;
}
"#;

/// Has the name of Open MPI's daemon, and signals the group of its command as that does.
const DAEMON: &str = r#"
int main(int argc, char **argv) {
    int from[2], status;
    char text[64];
    if (pipe(from)) return 90;
    pid_t child = fork();
    if (child == 0) {
        setpgid(0, 0);
        dup2(from[1], 1);
        close(from[0]);
        close(from[1]);
        execv(argv[1], argv + 1);
        _exit(91);
    }
    close(from[1]);
    if (read(from[0], text, 6) != 6) return 92;
    kill(-child, SIGUSR1);
    usleep(50000);
    kill(-child, SIGTERM);
    for (ssize_t got; (got = read(from[0], text, sizeof text)) > 0;) write(1, text, got);
    waitpid(child, &status, 0);
    return WEXITSTATUS(status);
}
"#;

#[test]
fn a_signal_to_the_whole_group_is_handled_once() {
    let Some(bench) = Bench::new() else { return };
    let (counter, daemon) = (bench.program("counter", COUNTER), bench.program("orted", DAEMON));
    let collect = bench.collect();
    let mut command = Command::new(daemon);
    command.arg(collect.get_program()).args(collect.get_args()).arg("--").arg(counter);
    let output = run(bench.like_collect(&mut command));
    assert_eq!(
        (exit_code(&output), String::from_utf8_lossy(&output.stdout).as_ref()),
        (4, "1 1\n"),
        "{output:?}"
    );
    assert!(output.stderr.is_empty(), "{output:?}");
    let trace = bench.trace();
    assert!(trace.shard.complete());
    assert_eq!(trace.marks.len(), 2);
}

#[test]
fn a_time_limit_is_handled_once() {
    let Some(bench) = Bench::new() else { return };
    let counter = bench.program("counter", COUNTER);
    let collect = bench.collect();
    let mut command = Command::new("timeout");
    command
        .args(["-s", "TERM", "1"])
        .arg(collect.get_program())
        .args(collect.get_args())
        .arg("--")
        .arg(counter);
    let output = run(bench.like_collect(&mut command));
    // 124: the status of `timeout` for a command that it has ended.
    assert_eq!((exit_code(&output), String::from_utf8_lossy(&output.stdout).as_ref()), (124, "ready\n0 1\n"));
    let trace = bench.trace();
    assert!(trace.shard.complete());
    assert_eq!(trace.marks.len(), 2);
    assert_eq!(trace.shard.processes[&1].exit, Some(ProcessExit::Code(4)));
}

#[test]
fn a_signal_to_the_whole_step_does_not_end_the_collector() {
    let Some(bench) = Bench::new() else { return };
    let counter = bench.program("counter", COUNTER);
    let (child, stdout) = ready(bench.collect().arg("--").arg(&counter));
    let Below { collector, command } = below(child.id());
    // When its first rows exist, the collector has long been ready for signals.
    let has_rows = |shard: Shard| !shard.processes.is_empty();
    until("the shard has rows", || Shard::open(&bench.shard_path()).is_ok_and(has_rows));
    for signal in [1, 2, 3, 10, 12, 13, 14, 15, 16, 20, 21, 22, 24, 25, 26, 27, 29, 30, 34, 64] {
        kill(collector, signal);
    }
    kill(command, 15);
    assert_eq!(rest(stdout), "0 1\n");
    assert_eq!(exit_code(&support::wait(child)), 4);
    assert!(bench.trace().shard.complete());
    assert_eq!(bench.trace().marks.len(), 2);
}

#[test]
fn nothing_of_the_job_is_held_by_the_collector() {
    let Some(bench) = Bench::new() else { return };
    let program = bench.program("beats", BEATS);
    let collect = bench.collect();
    // Descriptors 3 and 12 are stdout as well.
    let mut shell = Command::new("bash");
    shell
        .args(["-c", "exec 3>&1 12>&1; exec \"$0\" \"$@\""])
        .arg(collect.get_program())
        .args(collect.get_args());
    shell.arg("--").arg(&program).arg(bench.path("go"));
    let (mut child, stdout) = ready(bench.like_collect(&mut shell));
    let Below { collector, command } = below(child.id());
    let open = |pid: u32| {
        let all = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
        all.map(|entry| std::fs::read_link(entry.unwrap().path()).unwrap()).collect::<Vec<_>>()
    };
    let link = |pid: u32, name: &str| std::fs::read_link(format!("/proc/{pid}/{name}")).unwrap();
    let pipe = link(command, "fd/1");
    assert_eq!(
        open(command).iter().filter(|file| **file == pipe).count(),
        3,
        "the command has what was meant for it"
    );
    assert!(!open(collector).contains(&pipe) && !open(collector).contains(&link(command, "fd/2")));
    assert_eq!(link(collector, "cwd").to_str(), Some("/"));
    let score = |pid: u32| std::fs::read_to_string(format!("/proc/{pid}/oom_score_adj")).unwrap();
    assert_eq!(score(collector), "1000\n");
    assert_eq!(score(command), score(std::process::id()));

    // So a reader sees the end of the command, and not that of a hanging collector.
    child.kill().unwrap();
    child.wait().unwrap();
    // Not before: the kernel wakes stopped processes when their parent ends.
    kill(collector, 19);
    until("the collector is stopped", || is_in_state(collector, &['T']));
    std::fs::write(bench.path("go"), "").unwrap();
    let began = Instant::now();
    assert_eq!(rest(stdout), "done\n");
    assert_eq!(rest(child.stderr.take().unwrap()), "");
    assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
    assert!(!is_gone(collector));
    kill(collector, 18);
    until("the collector has ended", || is_gone(collector));
}

#[test]
fn the_command_starts_as_it_would_without_us() {
    let Some(bench) = Bench::new() else { return };
    // Group, session, terminal and its group, nice value; open descriptors; its children.
    let source = r#"
int main(void) {
    fflush(stdout);
    system("awk '{print $5, $6, $7, $8, $19}' /proc/$PPID/stat; ls /proc/$PPID/fd | sort -n | tr '\\n' ' ';"
           "cat /proc/$PPID/oom_score_adj; grep -E 'Sig(Blk|Ign|Cgt)' /proc/$PPID/status; pwd; umask;"
           "test \"$(cat /proc/$PPID/task/$PPID/children | wc -w)\" = 1 && echo no other child");
    return 0;
}
"#;
    let program = bench.program("facts", source);
    let alone = run(Command::new(&program).current_dir(bench.path("")));
    let traced = bench.run(&program, &[]);
    let (alone, traced) =
        (String::from_utf8(alone.stdout).unwrap(), String::from_utf8(traced.stdout).unwrap());
    assert!(alone.contains("no other child"), "{alone}");
    assert_eq!(alone, traced);
}

#[test]
fn closed_streams_are_no_reason_to_fail() {
    let Some(bench) = Bench::new() else { return };
    let program =
        bench.program("one", r#"int main(void) { roctxRangePushA("x"); roctxRangePop(); return 5; }"#);
    for closed in ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"] {
        let collect = bench.collect();
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("exec \"$0\" \"$@\" {closed}")]).arg(collect.get_program());
        let output = run(bench.like_collect(&mut shell).args(collect.get_args()).arg("--").arg(&program));
        assert_eq!((exit_code(&output), output.stderr.len()), (5, 0), "{closed}: {output:?}");
        assert_eq!(bench.trace().ranges.len(), 1);
        assert!(bench.trace().shard.complete());
        std::fs::remove_dir_all(bench.path("out")).unwrap();
    }
}

#[test]
fn warnings_are_in_the_log_of_their_rank() {
    let Some(bench) = Bench::new() else { return };
    let program =
        bench.program("one", r#"int main(void) { roctxRangePushA("x"); roctxRangePop(); return 0; }"#);
    let with_rank = |rank: &str| {
        let mut command = bench.collect();
        command
            .env("PMI_RANK", rank)
            .env("PMI_SIZE", "2")
            .env("RPD_MAX_SIZE", "many")
            .arg("--")
            .arg(&program);
        String::from_utf8(run(&mut command).stderr).unwrap()
    };
    let first = with_rank("0");
    assert!(first.lines().count() == 1 && first.contains("RPD_MAX_SIZE: invalid size \"many\""), "{first}");
    let log = bench.log();
    assert!(log.lines().count() == 1 && log.contains("Z warning: RPD_MAX_SIZE"), "{log}");
    assert_eq!(with_rank("1"), "", "one rank speaks for all");
    let path = bench.path("out/run/rank-00001.log");
    let log = std::fs::read_to_string(&path).unwrap();
    assert!(log.lines().count() == 1 && log.contains("Z warning: RPD_MAX_SIZE"), "{log}");
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(with_rank("1"), "");
    let log = std::fs::read_to_string(&path).unwrap();
    assert!(log.lines().count() == 3 && log.contains("already has a shard"), "{log}");
}

#[test]
fn a_rank_that_is_left_out_says_so() {
    let Some(bench) = Bench::new() else { return };
    let mut command = bench.collect();
    let output = run(command.env("PMI_RANK", "0").args(["--ranks", "1-3,7", "--", "true"]));
    assert_eq!((exit_code(&output), output.stderr.len()), (0, 0), "{output:?}");
    let why = "note: nothing was recorded: rank 0 is not among the ranks to record, 1-3,7";
    assert!(bench.log().contains(why), "{}", bench.log());
}

#[test]
fn what_is_not_traced_is_not_loaded() {
    let Some(bench) = Bench::new() else { return };
    let show = |options: &[&str]| {
        let output =
            run(bench.collect().args(options).args(["--", "sh", "-c", "echo $RPD_TRACE $LD_PRELOAD"]));
        String::from_utf8(output.stdout).unwrap()
    };
    let all = show(&[]);
    assert!(all.starts_with("roctx,mpi,rccl ") && all.contains("librpd_intercept.so"), "{all}");
    let one = show(&["--trace", "mpi,system"]);
    assert!(one.starts_with("mpi ") && one.contains("librpd_intercept.so"), "{one}");
    assert_eq!(show(&["--trace", "none"]), "\n");
    let output = run(bench.collect().args(["--trace", "rocx", "--", "true"]));
    assert_eq!(exit_code(&output), 2);
    assert!(String::from_utf8(output.stderr).unwrap().contains("did you mean roctx?"));
}

#[test]
fn the_argument_of_the_collector_process_is_for_nobody_else() {
    let Some(bench) = Bench::new() else { return };
    let output =
        run(Command::new(env!("CARGO_BIN_EXE_rpd-collect")).arg("__collect").current_dir(bench.path("")));
    assert_eq!(exit_code(&output), 2, "{output:?}");
    let output = run(bench.collect().args(["--", "__collect"]));
    assert_eq!(exit_code(&output), 127, "a command of that name is looked for");
}
