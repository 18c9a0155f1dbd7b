//! Clock probes between ranks with clocks of their own, on this machine.

mod files;

use crate::support;
use rpd_shard::Shard;
use rpd_shard::record::{ClockDomain, ProbeBurst};
use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use support::{Bench, TIME_LIMIT, below, exit_code, kill, until, wait};

/// Words before a command that shift its clocks by this many seconds.
fn shifted(seconds: i64) -> Vec<String> {
    let shift = [format!("--monotonic={seconds}"), format!("--boottime={seconds}")];
    let own = ["unshare".to_owned(), "--time".to_owned()];
    let own = if rustix::process::geteuid().is_root() {
        own.to_vec()
    } else {
        [&own[..], &["-Ur".into()]].concat()
    };
    [own, shift.to_vec()].concat()
}

/// Whether this machine supports time namespaces. Prints a message if it does not.
fn has_time_namespaces() -> bool {
    let words = shifted(5);
    let status = Command::new(&words[0]).args(&words[1..]).arg("true").stderr(Stdio::null()).status();
    let can = status.is_ok_and(|status| status.success());
    if !can {
        eprintln!("skipped: no time namespace can be made here");
    }
    can
}

/// The ranks of a job.
struct Job {
    bench: Bench,
    size: u32,
}

impl Job {
    /// `None` without a compiler.
    fn of(size: u32) -> Option<Job> {
        Some(Job { bench: Bench::new()?, size })
    }

    /// Returns a rank, after words such as [`shifted`], with more options.
    fn rank(&self, rank: u32, before: &[String], options: &[&str], command: &[&str]) -> Child {
        let collect = self.bench.collect();
        let mut words: Vec<PathBuf> = before.iter().map(PathBuf::from).collect();
        words.push(collect.get_program().into());
        let mut rank_of_job = Command::new(&words[0]);
        self.bench.like_collect(&mut rank_of_job);
        rank_of_job.args(&words[1..]).args(collect.get_args()).args(options).arg("--").args(command);
        rank_of_job.env("RANK", rank.to_string()).env("WORLD_SIZE", self.size.to_string());
        rank_of_job.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        rank_of_job.spawn().unwrap()
    }

    fn clocks(&self) -> PathBuf {
        self.bench.path("out/run/clocks")
    }

    /// Waits for the rendezvous file of the agents.
    fn wait_for_root(&self) {
        until("a root", || self.clocks().join("root").exists());
    }

    fn shard(&self, rank: u32) -> Shard {
        Shard::open(&self.bench.path(&format!("out/run/rank-{rank:05}.rpdshard"))).unwrap()
    }

    fn log(&self, rank: u32) -> String {
        fs::read_to_string(self.bench.path(&format!("out/run/rank-{rank:05}.log"))).unwrap_or_default()
    }
}

const LO: [&str; 2] = ["--probe-interface", "127.0.0.1"];

fn assert_quiet(output: &Output) {
    assert_eq!((exit_code(output), output.stdout.len(), output.stderr.len()), (0, 0, 0), "{output:?}");
}

/// Returns the clock domain of a collector.
fn domain(shard: &Shard) -> ClockDomain {
    shard.clocks[0].domain.clone()
}

/// Every probe is as accurate as its round trip allows.
fn assert_true(burst: &ProbeBurst, truth: i64) {
    for probe in &burst.best {
        let (off, half) = ((probe.offset() - truth).abs(), probe.round_trip().unwrap() / 2 + 1);
        assert!(off <= half, "{off} ns off, {half} ns allowed: {burst:?}");
    }
}

/// One job of three nodes with clocks of their own, and what must hold on any machine. Returns what a busy
/// machine may prevent; `None` if everything held.
fn measure_three_shifted_clocks(job: &Job) -> Option<String> {
    let ahead = [0, 3_000, 12 * 86_400].map(|seconds: i64| seconds * 1_000_000_000);
    let began = Instant::now();
    let ranks: Vec<Child> = (0..3)
        .map(|rank| job.rank(rank, &shifted(ahead[rank as usize] / 1_000_000_000), &LO, &["sleep", "2"]))
        .collect();
    job.wait_for_root();
    ranks.into_iter().for_each(|rank| assert_quiet(&wait(rank)));
    let took = began.elapsed();
    assert!(!job.clocks().exists(), "nothing is left of it");
    assert!((0..3).all(|rank| !job.log(rank).contains("probes")));
    let shards: Vec<Shard> = (0..3).map(|rank| job.shard(rank)).collect();
    let domains: Vec<ClockDomain> = shards.iter().map(domain).collect();
    assert_eq!(domains.iter().collect::<BTreeSet<_>>().len(), 3);
    for (own, shard) in shards.iter().enumerate() {
        let clocks: Vec<i64> = shard.clocks.iter().map(|set| set.monotonic_raw).collect();
        for burst in &shard.probes {
            let other = domains.iter().position(|domain| burst.to == *domain).unwrap();
            assert_eq!(burst.from, domains[own]);
            assert_true(burst, ahead[other] - ahead[own]);
            // Only those with stamps of both kernels, if there are three.
            let fewest = if burst.kernel_times { 3 } else { 8 };
            assert!(burst.best.len() >= fewest.min(burst.answered as usize), "{burst:?}");
            let t1 = burst.best[0].t1;
            assert!((clocks[0]..=clocks[clocks.len() - 1]).contains(&t1), "outside of the clock sets");
        }
    }

    let sent = |shard: &Shard| -> Vec<u32> { shard.probes.iter().map(|burst| burst.sent).collect() };
    let sent: Vec<Vec<u32>> = shards.iter().map(sent).collect();
    // 200 at the start and at the end; the root probes nobody.
    let is_measured = |sent: &&Vec<u32>| sent.len() >= 2 && sent[0] >= 200 && sent[sent.len() - 1] >= 200;
    let parts = (sent.iter().filter(is_measured).count() < 2).then(|| format!("{sent:?}"));
    let bursts = || shards.iter().flat_map(|shard| &shard.probes);
    let by_programs = bursts().filter(|burst| !burst.kernel_times).count();
    assert!(2 * by_programs < bursts().count(), "{by_programs} bursts without times of the kernels");
    let slow = (took > Duration::from_secs(4)).then(|| format!("{took:?}"));
    slow.into_iter().chain(parts).reduce(|all, one| all + "; " + &one)
}

#[test]
fn ranks_with_shifted_clocks_measure_how_far_they_are_apart() {
    if !has_time_namespaces() {
        return;
    }
    let mut busy = Vec::new();
    while busy.len() < 4 {
        let Some(job) = Job::of(3) else { return };
        match measure_three_shifted_clocks(&job) {
            Some(what) => busy.push(what),
            None => return,
        }
    }
    panic!("requests were not sent or got no reply, time after time: {busy:?}");
}

#[test]
fn an_agent_that_is_killed_is_replaced_and_all_nodes_measure_each_other_again() {
    if !has_time_namespaces() {
        return;
    }
    let Some(job) = Job::of(4) else { return };
    // Ranks 0 and 3 are on one node.
    let first = job.rank(0, &shifted(0)[..0], &LO, &["sleep", "21"]);
    job.wait_for_root();
    let root = || fs::read_to_string(job.clocks().join("root")).unwrap_or_default();
    let others: Vec<Child> = [(1, shifted(100)), (2, shifted(200)), (3, Vec::new())]
        .into_iter()
        .map(|(rank, before)| job.rank(rank, &before, &LO, &["sleep", "20"]))
        .collect();
    std::thread::sleep(Duration::from_millis(1_500));
    let (before, killed) = (root(), monotonic_raw());
    kill(below(first.id()).collector, 9);
    let began = Instant::now();
    until("another root", || !root().is_empty() && root() != before);
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    others.into_iter().for_each(|rank| assert_quiet(&wait(rank)));
    let output = wait(first);
    assert_eq!((exit_code(&output), output.stdout.len()), (0, 0), "{output:?}");
    let shards = [3, 1, 2].map(|rank| job.shard(rank));
    let domains = shards.each_ref().map(domain);
    let ahead = [0, 100, 200].map(|seconds: i64| seconds * 1_000_000_000);
    let (mut before, mut after, mut in_time) = (BTreeSet::new(), BTreeSet::new(), false);
    for (own, shard) in shards.iter().enumerate() {
        for burst in &shard.probes {
            let other = domains.iter().position(|domain| burst.to == *domain).unwrap();
            assert_true(burst, ahead[other] - ahead[own]);
            let time = burst.best[0].t1 - ahead[own] - killed;
            let pairs = if time < 0 { &mut before } else { &mut after };
            pairs.insert((own.min(other), own.max(other)));
            // Rank 3 must first notice that the agent of its node has ended.
            in_time |= own > 0 && (0..10_000_000_000).contains(&time);
        }
    }
    assert!(before.len() >= 2 && after.len() >= 2, "{before:?}, {after:?}");
    assert!(in_time, "ranks 1 and 2 have another parent within 10 s");
    assert!(!job.clocks().exists(), "nothing is left of it");
}

/// Threads and UDP sockets of a collector.
fn threads_and_sockets(collector: u32) -> (Vec<String>, usize) {
    let tasks = fs::read_dir(format!("/proc/{collector}/task")).unwrap();
    let names = tasks.filter_map(|task| fs::read_to_string(task.unwrap().path().join("comm")).ok());
    let udp: String = ["udp", "udp6"]
        .map(|table| fs::read_to_string(format!("/proc/{collector}/net/{table}")).unwrap_or_default())
        .concat();
    let inodes: BTreeSet<&str> = udp.lines().filter_map(|line| line.split_whitespace().nth(9)).collect();
    let open = fs::read_dir(format!("/proc/{collector}/fd")).unwrap();
    let open = open.filter_map(|fd| Some(fs::read_link(fd.ok()?.path()).ok()?.display().to_string()));
    let sockets = open.filter(|link| {
        let inode = link.strip_prefix("socket:[").and_then(|link| link.strip_suffix(']'));
        inode.is_some_and(|inode| inodes.contains(inode))
    });
    (names.map(|name| name.trim().to_owned()).collect(), sockets.count())
}

#[test]
fn a_lone_node_and_one_with_probes_off_have_no_socket_no_thread_and_no_file() {
    let Some(bench) = Bench::new() else { return };
    /// Both threads, their socket, and the rendezvous folder.
    const ALL: (usize, usize, bool) = (2, 1, true);
    let look_for = |next_deadline: Duration, variables: &[(&str, &str)], options: &[&str]| {
        let mut command = bench.collect();
        // The agent ends when it is told to: on a busy machine a thread may be late.
        command.args(options).args(["--", "cat"]).envs(variables.iter().copied());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn().unwrap();
        let collector = below(child.id()).collector;
        let (mut found, begin) = ((0, 0, false), Instant::now());
        let mut writes = false;
        while !writes || found != ALL && begin.elapsed() < next_deadline {
            std::thread::sleep(Duration::from_millis(20));
            assert!(begin.elapsed() < TIME_LIMIT, "nobody writes");
            let (threads, sockets) = threads_and_sockets(collector);
            writes = threads.iter().any(|name| name == "rpd-writer");
            let probing = threads.iter().filter(|name| ["rpd-clocks", "rpd-probes"].contains(&name.as_str()));
            found = (probing.count(), sockets, bench.path("out/run/clocks").exists());
        }
        assert_eq!(exit_code(&wait(child)), 0);
        let _ = fs::remove_dir_all(bench.path("out"));
        found
    };
    let (rank, two) = (("RANK", "0"), ("WORLD_SIZE", "2"));
    assert_eq!(look_for(TIME_LIMIT, &[rank, two], &LO), ALL, "otherwise this test would see nothing");
    let look = |variables: &[(&str, &str)], options: &[&str]| {
        look_for(Duration::from_millis(300), variables, options)
    };
    let nothing = (0, 0, false);
    assert_eq!(look(&[rank, two], &["--probes", "off"]), nothing);
    assert_eq!(look(&[rank, two, ("RPD_PROBES", "off")], &LO), nothing);
    assert_eq!(look(&[], &LO), nothing, "no launcher");
    assert_eq!(look(&[rank, ("WORLD_SIZE", "1")], &LO), nothing);
    assert_eq!(look(&[rank, two, ("LOCAL_WORLD_SIZE", "2")], &LO), nothing, "both are on this node");
    assert_eq!(look(&[rank, two], &["--ranks", "1"]), nothing, "of this node nothing is recorded");
}

#[test]
fn the_log_says_what_prevents_probes_and_nothing_else_happens() {
    /// Seconds that the command takes, in turn: on a busy machine the thread of the probes may start late.
    const LENGTHS: [&str; 3] = ["0.4", "2", "10"];
    let reason_within = |length: &str, before: &[&str], options: &[&str], prepare: &dyn Fn(&Job)| {
        let job = Job::of(2)?;
        prepare(&job);
        let before: Vec<String> = before.iter().map(|word| (*word).to_owned()).collect();
        let output = wait(job.rank(0, &before, options, &["sleep", length]));
        assert_eq!((exit_code(&output), output.stdout.len()), (0, 0), "{output:?}");
        let lines = job.log(0) + &String::from_utf8_lossy(&output.stderr);
        let found: Vec<&str> = lines.lines().filter(|line| line.contains("no clock probes: ")).collect();
        assert!(found.len() <= 1 && found.iter().all(|line| !line.contains("warning")), "{lines}");
        found.first().map(|line| (*line).to_owned())
    };
    let reason = |before: &[&str], options: &[&str], prepare: &dyn Fn(&Job)| {
        LENGTHS.iter().find_map(|length| reason_within(length, before, options, prepare))
    };
    if Bench::new().is_none() {
        return;
    }
    let nothing = |_: &Job| {};
    let text = reason(&[], &["--probe-interface", "nosuch0"], &nothing).unwrap();
    // Loopback is not a route to other nodes.
    assert!(
        text.contains("no address of nosuch0 is up on this node") && !text.contains("127.0.0.1"),
        "{text}"
    );
    let taken = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let range = format!("{port}-{port}");
    let text = reason(&[], &[LO[0], LO[1], "--probe-ports", &range], &nothing).unwrap();
    let words = format!("no port of {range} is free on 127.0.0.1; give --probe-ports a range");
    assert!(text.contains(&words), "{text}");
    let file_in_place = |job: &Job| {
        fs::create_dir_all(job.bench.path("out/run")).unwrap();
        fs::write(job.clocks(), "").unwrap();
    };
    assert!(reason(&[], &LO, &file_in_place).unwrap().contains("Not a directory"));
    let others_read_it = |job: &Job| {
        fs::create_dir_all(job.clocks()).unwrap();
        fs::write(job.clocks().join("root"), [0; 32]).unwrap();
        Command::new("chmod").arg("644").arg(job.clocks().join("root")).status().unwrap();
    };
    let text = reason(&[], &LO, &others_read_it).unwrap();
    assert!(text.contains("/clocks/root is not used (others may read or write it"), "{text}");

    let alone = Command::new("unshare").args(["-Urnm", "true"]).stderr(Stdio::null()).status();
    if !alone.is_ok_and(|status| status.success()) {
        eprintln!("skipped: no namespace can be made here");
        return;
    }
    let text = reason(&["unshare", "-Urn"], &[], &nothing).unwrap();
    assert!(text.ends_with("no network interface is up"), "{text}");
    // Space for the run folder and the one below it, but not for a file.
    let full = "mkdir out && mount -t tmpfs -o nr_inodes=3 none out && exec \"$@\"";
    let text = reason(&["unshare", "-Urm", "sh", "-c", full, "sh"], &LO, &nothing).unwrap();
    assert!(text.contains("No space left"), "{text}");
    let read_only = "mkdir out && mount -t tmpfs -o ro none out && exec \"$@\"";
    let text = reason(&["unshare", "-Urm", "sh", "-c", read_only, "sh"], &LO, &nothing).unwrap();
    assert!(text.contains("Read-only"), "{text}");
}

#[test]
fn a_group_that_may_read_the_files_may_not_read_the_secret() {
    use std::os::unix::fs::MetadataExt;
    let Some(job) = Job::of(2) else { return };
    let rank = job.rank(0, &[], &[&LO[..], &["--share", "group"]].concat(), &["sleep", "0.6"]);
    job.wait_for_root();
    let mode = |path: &PathBuf| fs::metadata(path).unwrap().mode() & 0o777;
    assert_eq!((mode(&job.clocks()), mode(&job.clocks().join("root"))), (0o750, 0o600));
    assert_quiet_but_for_a_note(&wait(rank));
}

fn assert_quiet_but_for_a_note(output: &Output) {
    assert_eq!((exit_code(output), output.stdout.len()), (0, 0), "{output:?}");
}

/// Prints how far its clocks are from those of the kernel, in the order RAW, MONOTONIC, BOOTTIME: at the
/// start and half a second later.
const COMPARE_CLOCKS: &str = r#"
#include <sys/syscall.h>
#include <time.h>
static long long ns(struct timespec t) { return t.tv_sec * 1000000000ll + t.tv_nsec; }
int main(void) {
    int clocks[] = {CLOCK_MONOTONIC_RAW, CLOCK_MONOTONIC, CLOCK_BOOTTIME};
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 3; i++) {
            /* Not if something else ran in between. */
            struct timespec ours, before, after;
            for (int tries = 0; tries < 1000; tries++) {
                syscall(SYS_clock_gettime, clocks[i], &before);
                clock_gettime(clocks[i], &ours);
                syscall(SYS_clock_gettime, clocks[i], &after);
                if (ns(after) - ns(before) < 20000) break;
            }
            printf("%lld %lld\n", ns(before), ns(ours));
        }
        roctxMarkA("here");
        usleep(500000);
    }
    return 0;
}
"#;

/// The clocks of one rank are 1 % too fast. Its collector and its program share the start of the wrong clock,
/// as the command `faketime` sets it: starts that are 10 ms apart would differ by 100 us permanently.
#[test]
fn a_drifting_clock_is_seen_alike_by_program_collector_and_probes() {
    let is_there = Command::new("faketime").arg("--version").stdout(Stdio::null()).status();
    if !is_there.is_ok_and(|status| status.success()) {
        eprintln!("skipped: no faketime");
        return;
    }
    if !has_time_namespaces() {
        return;
    }
    let Some(job) = Job::of(2) else { return };
    let compare = job.bench.program("compare", COMPARE_CLOCKS);
    let faketime = ["faketime", "-f", "+0 x1.01"].map(str::to_owned);
    let reference = job.rank(0, &shifted(0), &LO, &["sleep", "4"]);
    job.wait_for_root();
    let script = format!("sleep 0.2; {} && sleep 2", compare.display());
    let drifting = job.rank(1, &[&shifted(50)[..], &faketime].concat(), &LO, &["sh", "-c", &script]);
    let output = wait(drifting);
    assert_eq!(exit_code(&output), 0, "{output:?}");
    let _ = wait(reference);

    // The kernel's receive times belong to another clock: the collector reports once that it does not use
    // them.
    let lines = |rank| job.log(rank).lines().filter(|line| line.contains("not from the kernel")).count();
    assert_eq!((lines(1), lines(0)), (1, 0), "{}", job.log(1));
    assert!(job.shard(1).probes.iter().all(|burst| !burst.kernel_times));

    // Each clock of the program is faster than the kernel's by the same factor.
    let text = String::from_utf8(output.stdout).unwrap();
    let pairs: Vec<(i64, i64)> = text
        .lines()
        .filter_map(|line| line.split_once(' '))
        .map(|(kernel, ours)| (kernel.parse().unwrap(), ours.parse().unwrap()))
        .collect();
    assert_eq!(pairs.len(), 6, "{text}");
    for clock in 0..3 {
        let ((before, ours), (later, ours_later)) = (pairs[clock], pairs[clock + 3]);
        let factor = (ours_later - ours) as f64 / (later - before) as f64;
        assert!((factor - 1.01).abs() < 0.001, "clock {clock}: {factor}");
    }
    // The collector reads the same clocks: its clock sets relate BOOTTIME to RAW as the program sees them,
    let shard = job.shard(1);
    let of_program = pairs[0].1 - pairs[2].1;
    for set in &shard.clocks {
        let of_collector = set.monotonic_raw - set.boottime;
        assert!((of_program - of_collector).abs() < 1_000_000, "{of_program} and {of_collector}");
    }
    // the records of the program have these times,
    let marks = support::Trace::read(shard.path()).marks;
    let marks: Vec<i64> = marks.iter().map(|mark| support::number(mark, "timestamp")).collect();
    assert!(marks.len() == 2 && pairs[2].1 <= marks[0] && marks[0] < pairs[5].1, "{marks:?}, {pairs:?}");
    assert!(pairs[5].1 <= marks[1] && marks[1] < shard.clocks.last().unwrap().boottime);
    // and the other node, with a clock that shows 50 s less than the kernel here, sees the collector's clock
    // where the program's is.
    let (kernel, ours) = pairs[0];
    let expected = |t1: i64| ((t1 - ours) as f64 / 1.01) as i64 + kernel - 50_000_000_000 - t1;
    for burst in &shard.probes {
        let best = &burst.best[0];
        let off = best.offset() - expected(best.t1);
        let allowed = best.round_trip().unwrap() / 2 + 30_000;
        assert!(off.abs() < allowed, "{off} ns off, {allowed} allowed: {burst:?}");
    }
    let (begin, end) = (&shard.probes[0].best[0], &shard.probes.last().unwrap().best[0]);
    let passed = (end.t1 - begin.t1) as f64;
    assert!(passed > 1e9, "{:?}", shard.probes);
    let factor = 1.0 / (1.0 + (end.offset() - begin.offset()) as f64 / passed);
    let bar = (begin.round_trip().unwrap() + end.round_trip().unwrap()) as f64 / passed;
    assert!((factor - 1.01).abs() < bar, "{factor}, {bar} allowed");
}

/// `CLOCK_MONOTONIC_RAW`, ns.
fn monotonic_raw() -> i64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::MonotonicRaw);
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}
