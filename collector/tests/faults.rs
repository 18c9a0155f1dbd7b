//! One program with many features, alone and under rpd-collect, with every fault that a machine or a user can
//! cause. Its output, its exit status and the calls of its signal handlers are the same. Every event is in
//! the shard or in its ledger, if the collector lived to write one.

use crate::support;
use rpd_shard::Shard;
use rpd_shard::model::TableId;
use rpd_shard::model::native::{MARK, RANGE, RCCL_CALL};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use support::cgroup::Cgroup;
use support::{Bench, Trace, below, exit_code, kill, run, until};

/// A stand-in for RCCL.
const STAND_IN: &str = r#"
int ncclGetVersion(int *version) { *version = 22000; return 0; }
int ncclAllReduce(const void *s, void *r, size_t n, int type, int op, void *comm, void *stream) {
    return n == 8 ? 0 : 4;
}
"#;

/// Arguments: KiB of memory to use, file for the numbers of its events, `stay` to wait for SIGTERM.
///
/// Has threads, forks and an exec, and handlers of its own. Counts its events in shared memory, and the calls
/// of its handlers. Prints the latter with a checksum of its work, a line on stderr, and ends with 17.
const PROGRAM: &str = include_str!("programs/faults.c");

/// KiB that it uses if the amount does not matter.
const SMALL: u32 = 256;

/// The program, and its behaviour alone.
struct Reference {
    bench: Bench,
    program: PathBuf,
}

/// Behaviour that rpd-collect must not change.
#[derive(PartialEq, Eq, Debug)]
struct Seen {
    exit_code: i32,
    stdout: String,
    stderr: String,
}

impl Seen {
    fn of(output: &Output) -> Seen {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let stderr = text(&output.stderr);
        let own = stderr.split_inclusive('\n').filter(|line| !line.starts_with("rpd-collect:"));
        Seen { exit_code: exit_code(output), stdout: text(&output.stdout), stderr: own.collect() }
    }
}

/// Returns what rpd-collect printed.
fn said(output: &Output) -> String {
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    stderr.split_inclusive('\n').filter(|line| line.starts_with("rpd-collect:")).collect()
}

#[derive(PartialEq, Eq, Clone, Copy, Debug, Default)]
struct Counts {
    ranges: u64,
    marks: u64,
    rccl: u64,
}

impl Counts {
    fn all(self) -> u64 {
        self.ranges + self.marks + self.rccl
    }
}

impl Reference {
    fn new() -> Option<Reference> {
        let bench = Bench::new()?;
        let library = bench.library_of("librccl.so.1", STAND_IN);
        let program = bench.linked_program("reference", PROGRAM, &library);
        Some(Reference { bench, program })
    }

    fn counts_path(&self) -> PathBuf {
        self.bench.path("counts")
    }

    /// Returns the program after a command, which also gets its arguments.
    fn behind<'a>(&self, command: &'a mut Command, kib: u32, more: &[&str]) -> &'a mut Command {
        let _ = std::fs::remove_file(self.counts_path());
        command.arg(&self.program).arg(kib.to_string()).arg(self.counts_path()).args(more)
    }

    fn alone(&self, kib: u32) -> Seen {
        let mut command = Command::new("env");
        Seen::of(&run(self.behind(self.bench.like_collect(&mut command), kib, &[])))
    }

    /// Returns the number of its events in the last run.
    fn emitted(&self) -> Counts {
        let bytes = std::fs::read(self.counts_path()).unwrap();
        let word = |i: usize| u64::from_le_bytes(bytes[i * 8..i * 8 + 8].try_into().unwrap());
        Counts { ranges: word(0), marks: word(1), rccl: word(2) }
    }

    /// Returns `rpd-collect` after a command of the shell, which has it as `"$@"`.
    fn in_shell(&self, shell: &str, options: &[&str]) -> Command {
        let collect = self.bench.collect();
        let mut command = Command::new("bash");
        command.args(["-c", shell, "bash"]).arg(collect.get_program()).args(collect.get_args());
        self.bench.like_collect(&mut command);
        command.args(options).arg("--");
        command
    }

    fn forget_run(&self) {
        let _ = std::fs::remove_dir_all(self.bench.path("out"));
    }

    /// Runs under rpd-collect in a shell, and compares. Removes the previous run.
    fn same_in(&self, shell: &str, options: &[&str], what: &str) -> Output {
        self.forget_run();
        let alone = self.alone(SMALL);
        assert_eq!((alone.exit_code, alone.stderr.as_str()), (17, "reference: done\n"));
        let output = run(self.behind(&mut self.in_shell(shell, options), SMALL, &[]));
        assert_eq!(Seen::of(&output), alone, "{what}: {output:?}");
        output
    }

    fn is_complete(&self) -> bool {
        Shard::open(&self.bench.shard_path()).is_ok_and(|shard| shard.complete())
    }

    /// A complete shard contains or counts all events.
    fn account(&self, what: &str) -> Trace {
        let trace = self.bench.trace();
        self.account_in(&trace, what);
        trace
    }

    fn account_in(&self, trace: &Trace, what: &str) {
        assert!(trace.shard.complete(), "{what}");
        let (recorded, lost, losses) = (recorded(trace), lost_events(trace), losses(trace));
        assert_eq!(recorded.all() + lost, self.emitted().all(), "{what}: {recorded:?} {losses}");
    }
}

/// Events in the ledger. Those that no ring has counted belong to no table; threads and strings are not
/// events.
fn lost_events(trace: &Trace) -> u64 {
    let of_events =
        |table: &Option<TableId>| table.is_none_or(|table| [RANGE, MARK, RCCL_CALL].contains(&table));
    let losses = &trace.shard.ledger.as_ref().unwrap().losses;
    losses.iter().filter(|loss| of_events(&loss.table)).map(|loss| loss.rows.expect("a number")).sum()
}

fn recorded(trace: &Trace) -> Counts {
    Counts {
        ranges: trace.ranges.len() as u64,
        marks: trace.marks.len() as u64,
        rccl: trace.rccl_calls.len() as u64,
    }
}

fn losses(trace: &Trace) -> String {
    format!("{:?}", trace.shard.ledger.as_ref().map(|ledger| &ledger.losses))
}

#[test]
fn nothing_changes_whatever_is_traced() {
    let Some(reference) = Reference::new() else { return };
    let output = reference.same_in("exec \"$@\"", &[], "no fault");
    assert_eq!(said(&output), "");
    let trace = reference.account("no fault");
    assert_eq!((recorded(&trace), trace.lost()), (reference.emitted(), 0));
    for (words, roctx, rccl) in [
        ("roctx", true, false),
        ("rccl", false, true),
        ("mpi", false, false),
        ("roctx,rccl", true, true),
        ("mpi,rccl,system", false, true),
        ("system", false, false),
    ] {
        reference.same_in("exec \"$@\"", &["--trace", words], words);
        let emitted = reference.emitted();
        let expected = Counts {
            ranges: if roctx { emitted.ranges } else { 0 },
            marks: if roctx { emitted.marks } else { 0 },
            rccl: if rccl { emitted.rccl } else { 0 },
        };
        if expected.all() > 0 {
            assert_eq!(recorded(&reference.bench.trace()), expected, "{words}");
        }
    }
    let output = reference.same_in("RPD_DISABLE=1 exec \"$@\"", &[], "disabled");
    assert_eq!(said(&output), "");
    assert!(!reference.bench.path("out").exists());
}

#[test]
fn limits_of_the_shell() {
    let Some(reference) = Reference::new() else { return };
    for limit in ["-n 16", "-n 24", "-l 0", "-v 2000000", "-v 400000", "-v 120000", "-c 0", "-s 512", "-i 8"]
    {
        let output = reference.same_in(&format!("ulimit {limit}; exec \"$@\""), &[], limit);
        eprintln!("ulimit {limit}: {}", said(&output).trim_end());
        if reference.bench.shard_path().exists() {
            let trace = reference.account(limit);
            eprintln!("    {:?} lost {}", recorded(&trace), trace.lost());
        }
    }
}

/// A process limit that is too small for rpd-collect may suffice for the program.
#[test]
fn a_limit_on_processes() {
    let Some(reference) = Reference::new() else { return };
    // Belongs to a user without other processes; root has no limit.
    let id = 50_000 + std::process::id() % 10_000;
    let give = format!(
        "chmod 777 . && chmod 755 {} && setpriv --reuid {id} --clear-groups --inh-caps=-all true",
        reference.program.display()
    );
    let can = Command::new("sh").args(["-c", &give]).current_dir(reference.bench.path("")).output().unwrap();
    if !can.status.success() {
        eprintln!("skipped: no other user: {}", String::from_utf8_lossy(&can.stderr));
        return;
    }
    let alone = reference.alone(SMALL);
    let as_user = |limit: u32, before: &str| {
        format!(
            "exec setpriv --reuid {id} --regid {id} --clear-groups bash -c 'ulimit -u {limit}; {before} exec \"$@\"' bash \"$@\""
        )
    };
    // Besides the program rpd-collect needs one process with its threads, and two of its own.
    let reachable = Command::new("bash")
        .args(["-c", &as_user(100, "test -x \"$1\";"), "bash"])
        .arg(env!("CARGO_BIN_EXE_rpd-collect"))
        .arg("--version")
        .output()
        .unwrap();
    if !reachable.status.success() {
        eprintln!("skipped: another user cannot reach the build");
        return;
    }
    for limit in [7, 8, 9, 10, 12, 14, 100] {
        reference.forget_run();
        let _ = std::fs::remove_file(reference.counts_path());
        let mut command = Command::new("bash");
        command.args(["-c", &as_user(limit, ""), "bash"]);
        let able = Seen::of(&run(reference.behind(reference.bench.like_collect(&mut command), SMALL, &[])));
        let output = run(reference.behind(&mut reference.in_shell(&as_user(limit, ""), &[]), SMALL, &[]));
        eprintln!(
            "ulimit -u {limit}: alone {}, {} {}",
            able == alone,
            exit_code(&output),
            said(&output).trim_end()
        );
        if able == alone && limit >= 14 {
            assert_eq!(Seen::of(&output), alone, "{limit}: {output:?}");
        }
    }
}

/// Returns the smallest limit with which the program alone succeeds, KiB.
fn smallest(reference: &Reference, group: &Cgroup, kib: u32) -> u32 {
    let expected = reference.alone(kib);
    assert_eq!(expected.exit_code, 17);
    let survives = |limit: u32| {
        group.limit(limit);
        (0..3).all(|_| {
            let mut command = Command::new("bash");
            command.args(["-c", &format!("{}; exec \"$@\"", group.enter()), "bash"]);
            Seen::of(&run(reference.behind(reference.bench.like_collect(&mut command), kib, &[]))) == expected
        })
    };
    let (mut dies, mut lives) = (kib, 8 * kib);
    assert!(survives(lives), "{lives} KiB are enough");
    while lives - dies > 128 {
        let middle = (lives + dies) / 2;
        if survives(middle) { lives = middle } else { dies = middle }
    }
    lives
}

#[test]
fn a_memory_cgroup_of_a_few_megabytes() {
    let Some(reference) = Reference::new() else { return };
    let Some(group) = Cgroup::new("job") else { return };
    // The second one needs so much that rpd-collect itself fits as well.
    for kib in [4 << 10, 28 << 10] {
        let (expected, smallest) = (reference.alone(kib), smallest(&reference, &group, kib));
        for tenths in [12, 20, 40] {
            let limit = smallest * tenths / 10;
            group.limit(limit);
            let enter = format!("{}; exec \"$@\"", group.enter());
            for around in ["program", "job"] {
                reference.forget_run();
                let output = if around == "job" {
                    run(reference.behind(&mut reference.in_shell(&enter, &[]), kib, &[]))
                } else {
                    let mut command = reference.bench.collect();
                    command.args(["--", "bash", "-c", &enter, "bash"]);
                    run(reference.behind(&mut command, kib, &[]))
                };
                let what =
                    format!("{kib} KiB, {limit} KiB around the {around}: {}", said(&output).trim_end());
                assert_eq!(Seen::of(&output), expected, "{what}: {output:?}");
                if around == "job" && limit < 32 << 10 {
                    assert!(what.contains("the command runs untraced"), "{what}");
                } else if around == "program" || tenths > 12 || reference.is_complete() {
                    let trace = reference.account(&what);
                    eprintln!("{what} {:?} lost {}", recorded(&trace), trace.lost());
                }
            }
        }
    }
}

/// Returns a command of the shell in a mount namespace of its own, where the first part must succeed. `None`,
/// with a message, if that is impossible.
fn with_mounts(reference: &Reference, before: &str) -> Option<String> {
    let can = Command::new("unshare")
        .args(["-m", "bash", "-c", before])
        .current_dir(reference.bench.path(""))
        .output();
    if !can.as_ref().is_ok_and(|tried| tried.status.success()) {
        eprintln!("skipped: {before}: {can:?}");
        return None;
    }
    // Files there disappear with the namespace.
    Some(format!(
        "unshare -m bash -c '{before} && {{ \"$@\"; code=$?; cp -r out kept; exit $code; }}' bash \"$@\""
    ))
}

#[test]
fn file_systems_without_room() {
    let Some(reference) = Reference::new() else { return };
    let folders = [
        reference.bench.path("."),
        Path::new(env!("CARGO_BIN_EXE_rpd-collect")).parent().unwrap().to_owned(),
    ];
    let folders = folders.map(|folder| folder.canonicalize().unwrap().display().to_string());
    // Both may be below /tmp, and are mounted into it again.
    let full = format!(
        "mount --bind {0} /mnt && mount --bind {1} /srv && mount -t tmpfs -o size=256k none /tmp \
         && mkdir -p {0} {1} && mount --move /mnt {0} && mount --move /srv {1} \
         && cd {0} && ! cat /dev/zero >/tmp/full 2>/dev/null",
        folders[0], folders[1]
    );
    for (what, before, complete) in [
        ("a small /dev/shm", "mount -t tmpfs -o size=1M none /dev/shm", true),
        (
            "a full /dev/shm",
            "mount -t tmpfs -o size=64k none /dev/shm && ! cat /dev/zero >/dev/shm/full 2>/dev/null",
            true,
        ),
        ("a full /tmp", full.as_str(), true),
        ("a read-only folder", "mkdir -p out && mount -t tmpfs -o ro none out", false),
        ("a full disk", "mkdir -p out && mount -t tmpfs -o size=24k none out", true),
    ] {
        reference.forget_run();
        let _ = std::fs::remove_dir_all(reference.bench.path("kept"));
        let Some(shell) = with_mounts(&reference, before) else { continue };
        let output = reference.same_in(&shell, &[], what);
        let kept = reference.bench.path("kept/run/rank-00000.rpdshard");
        assert_eq!(kept.exists(), complete, "{what}: {output:?}");
        if complete {
            reference.account_in(&Trace::read(&kept), what);
        } else {
            assert!(said(&output).contains("-o DIR"), "{output:?}");
        }
    }
}

/// Starts its arguments in a process group, and signals that group for the letters on its stdin. It has the
/// name of a launcher's daemon, which signals every process of the group.
const DAEMON: &str = r#"
int main(int argc, char **argv) {
    int status;
    pid_t child = fork();
    if (child == 0) {
        setpgid(0, 0);
        if (!freopen("/dev/null", "r", stdin)) _exit(90);
        execv(argv[1], argv + 1);
        _exit(91);
    }
    for (char letter; read(0, &letter, 1) == 1;) kill(-child, letter == 'u' ? SIGUSR1 : SIGTERM);
    waitpid(child, &status, 0);
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}
"#;

/// Signals to the command, to its parent (if there is one) and to the group while events are recorded, after
/// another event. `more` comes before the end.
fn signalled(mut command: Command, traced: bool, fault: impl FnOnce(u32), more: impl FnOnce(u32)) -> Output {
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut daemon: Child = command.spawn().unwrap();
    let mut stdout = BufReader::new(daemon.stdout.take().unwrap());
    let mut stdin = daemon.stdin.take().unwrap();
    let mut text = String::new();
    stdout.read_line(&mut text).unwrap();
    assert_eq!(text, "ready\n");
    let children = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", daemon.id())).unwrap();
    let child: u32 = children.trim().parse().unwrap();
    let program = if traced { below(child).command } else { child };
    fault(child);
    for round in 0..9 {
        match round % 3 {
            0 => kill(program, 10),
            1 => {
                // The kernel merges two pending signals, and that of the group is not passed on.
                until("what the group got has arrived", || !has_pending(child));
                kill(child, 10);
            }
            _ => stdin.write_all(b"u").unwrap(),
        }
        // Its handler reports the call, so that the next signal does not coincide.
        let mut letter = [0];
        stdout.read_exact(&mut letter).unwrap();
        text.push(letter[0].into());
    }
    more(child);
    stdin.write_all(b"t").unwrap();
    drop(stdin);
    stdout.read_to_string(&mut text).unwrap();
    let mut output = support::wait(daemon);
    output.stdout = text.into_bytes();
    output
}

/// Whether a process has a pending signal.
fn has_pending(pid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let set = status.lines().find_map(|line| line.strip_prefix("ShdPnd:")).unwrap();
    set.trim().bytes().any(|digit| digit != b'0')
}

/// Name of the fault, what starts it, what ends it, and whether the shard is complete nevertheless.
type Trouble<'a> = (&'static str, &'a dyn Fn(u32), &'a dyn Fn(u32), bool);

#[test]
fn signals_from_outside_while_the_collector_has_its_own_troubles() {
    let Some(reference) = Reference::new() else { return };
    let daemon = reference.bench.program("orted", DAEMON);
    let mut alone = Command::new(&daemon);
    reference.behind(reference.bench.like_collect(&mut alone), SMALL, &["stay"]);
    let alone = Seen::of(&signalled(alone, false, |_| {}, |_| {}));
    assert_eq!((alone.exit_code, alone.stdout.contains("handlers 19 1 4\n")), (17, true), "{alone:?}");

    let nothing = |_: u32| {};
    let stop = |pid: u32| kill(below(pid).collector, 19);
    let go_on = |pid: u32| kill(below(pid).collector, 18);
    let kills = |pid: u32| kill(below(pid).collector, 9);
    let out = reference.bench.path("out");
    let delete = |_: u32| {
        until("the shard is there", || reference.bench.shard_path().exists());
        // The collector may create a file there in between.
        until("it is deleted", || std::fs::remove_dir_all(&out).is_ok());
    };
    let troubles: [Trouble<'_>; 4] = [
        ("none", &nothing, &nothing, true),
        ("stopped for a while", &stop, &go_on, true),
        ("killed", &kills, &nothing, false),
        ("without a folder", &delete, &nothing, false),
    ];
    for (what, fault, more, complete) in troubles {
        reference.forget_run();
        let collect = reference.bench.collect();
        let mut command = Command::new(&daemon);
        command.arg(collect.get_program()).args(collect.get_args()).arg("--");
        reference.behind(reference.bench.like_collect(&mut command), SMALL, &["stay"]);
        let output = signalled(command, true, fault, more);
        assert_eq!(Seen::of(&output), alone, "{what}: {output:?}");
        if complete {
            reference.account(what);
        }
    }
}
