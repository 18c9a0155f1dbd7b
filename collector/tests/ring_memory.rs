//! How much memory rings take: little for idle threads, more while the collector does not run, and little again later.

use crate::support;
use rpd_shard::Shard;
use rpd_shard::model::native::RANGE;
use std::os::unix::fs::MetadataExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use support::cgroup::Cgroup;
use support::{Bench, below, exit_code, kill, until};

/// Added to the number of threads: the program locks its memory, and all that it maps later.
const LOCKED: usize = 1000;

/// Threads, and pairs of each thread that it emits once `go` exists. Ends once `end` exists.
const PROGRAM: &str = r#"
#include <fcntl.h>
#include <sys/mman.h>
static long pairs;
static void *work(void *unused) {
    roctxMarkA("first");
    while (access("go", F_OK)) usleep(1000);
    for (long i = 0; i < pairs; i++) {
        roctxRangePushA("forward");
        roctxRangePop();
    }
    close(creat("emitted", 0600));
    while (access("end", F_OK)) usleep(1000);
    return unused;
}
int main(int argc, char **argv) {
    int threads = atoi(argv[1]);
    if (threads >= 1000 && mlockall(MCL_CURRENT | MCL_FUTURE)) return 7;
    threads %= 1000;
    pairs = atol(argv[2]);
    pthread_t thread[64];
    for (int i = 0; i < threads; i++) pthread_create(&thread[i], 0, work, 0);
    write(1, "ready\n", 6);
    for (int i = 0; i < threads; i++) pthread_join(thread[i], 0);
    return 7;
}
"#;

/// Bytes of memory of each ring that a process maps.
fn ring_memory(pid: u32) -> Vec<u64> {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    let rings = maps.lines().filter(|line| line.contains("memfd:rpd-ring"));
    let range = |line: &str| line.split(' ').next().map(str::to_owned);
    // Only the owner of the machine may follow these links.
    let file = |range: String| std::fs::metadata(format!("/proc/{pid}/map_files/{range}")).ok();
    rings.filter_map(range).filter_map(file).map(|file| 512 * file.blocks()).collect()
}

/// Starts the program, and returns its launcher once all threads have a ring.
fn start(bench: &Bench, options: &[&str], threads: usize, pairs: u64) -> Child {
    start_after(bench, "true", options, threads, pairs)
}

/// The same after a command of the shell, which may change the surroundings of the launcher.
fn start_after(bench: &Bench, before: &str, options: &[&str], threads: usize, pairs: u64) -> Child {
    let program = bench.program("bursts", PROGRAM);
    let collect = bench.collect();
    let mut command = Command::new("bash");
    bench.like_collect(&mut command).args(["-c", &format!("{before} && exec \"$@\""), "bash"]);
    command.arg(collect.get_program()).args(collect.get_args());
    command.args(["--trace", "roctx"]).args(options).arg("--").arg(program);
    command.args([threads.to_string(), pairs.to_string()]);
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let pid = below(child.id()).command;
    until("the rings of all threads", || ring_memory(pid).len() == threads % LOCKED || !can_see(pid));
    child
}

/// Rows of ranges in the shard and in the ledger.
fn recorded_and_lost(bench: &Bench) -> (u64, u64) {
    let shard = Shard::open(&bench.shard_path()).unwrap();
    let ledger = shard.ledger.as_ref().unwrap();
    let of_ranges = ledger.written.iter().filter(|(_, table, _)| *table == RANGE);
    let lost = ledger.losses.iter().map(|loss| loss.rows.expect("every loss is counted")).sum();
    (of_ranges.map(|(_, _, rows)| rows).sum(), lost)
}

#[test]
fn an_idle_thread_holds_32_kib_at_most() {
    let Some(bench) = Bench::new() else { return };
    for threads in [64, LOCKED + 4] {
        idle_threads(&bench, threads);
    }
}

fn idle_threads(bench: &Bench, threads: usize) {
    let child = start(bench, &[], threads, 0);
    let command = below(child.id()).command;
    if !can_see(command) {
        eprintln!("SKIPPED: only root sees the memory of a mapped file");
    }
    let memory = ring_memory(command);
    assert!(memory.iter().all(|bytes| *bytes <= 32 << 10), "{memory:?}");
    for name in ["go", "end"] {
        std::fs::write(bench.path(name), "").unwrap();
    }
    assert_eq!(exit_code(&support::wait(child)), 7);
    for name in ["go", "end"] {
        std::fs::remove_file(bench.path(name)).unwrap();
    }
    std::fs::remove_dir_all(bench.path("out")).unwrap();
}

fn can_see(pid: u32) -> bool {
    let first = std::fs::read_dir(format!("/proc/{pid}/map_files")).ok().and_then(|mut all| all.next()?.ok());
    first.is_some_and(|entry| std::fs::metadata(entry.path()).is_ok())
}

/// While the collector is stopped the rings take what they may, and count the rest. Afterwards they give it back.
#[test]
fn a_stopped_collector_loses_only_what_does_not_fit() {
    const LIMIT: u64 = 8 << 20;
    let Some(bench) = Bench::new() else { return };
    for (threads, pairs) in [(1, 3_000_000), (4, 1_000_000)] {
        let child = start(&bench, &["--ring-memory", &LIMIT.to_string()], threads, pairs);
        let found = below(child.id());
        let held = || ring_memory(found.command).iter().sum::<u64>();
        let before = held();
        kill(found.collector, 19);
        std::fs::write(bench.path("go"), "").unwrap();
        // Four million pairs take less than a second.
        std::thread::sleep(Duration::from_secs(3));
        let full = held();
        if can_see(found.command) {
            assert!((LIMIT * 9 / 10..LIMIT + before).contains(&full), "{threads} threads hold {full} B");
        }
        kill(found.collector, 18);
        let began = Instant::now();
        while can_see(found.command) && held() > before + threads as u64 * (16 << 10) {
            assert!(began.elapsed() < Duration::from_secs(20), "{} B are still held", held());
            std::thread::sleep(Duration::from_millis(100));
        }
        std::fs::write(bench.path("end"), "").unwrap();
        assert_eq!(exit_code(&support::wait(child)), 7);
        let (recorded, lost) = recorded_and_lost(&bench);
        assert_eq!(recorded + lost, threads as u64 * pairs);
        // At most ten bytes a pair, links and ends of segments included.
        let held = if can_see(found.command) { full } else { LIMIT * 9 / 10 };
        assert!(lost > 0 && recorded >= held / 10, "{recorded} recorded, {lost} lost, {held} B held");
        for name in ["go", "end"] {
            std::fs::remove_file(bench.path(name)).unwrap();
        }
        std::fs::remove_dir_all(bench.path("out")).unwrap();
    }
}

#[test]
fn in_a_memory_cgroup_of_32_mib_each_pair_is_counted_and_nothing_is_killed() {
    const PAIRS: u64 = 6_000_000;
    let Some(bench) = Bench::new() else { return };
    let Some(group) = Cgroup::new("rings") else { return };
    group.limit(32 << 10);
    for is_stopped in [false, true] {
        let child = start_after(&bench, &group.enter(), &[], 1, PAIRS);
        let found = below(child.id());
        if is_stopped {
            kill(found.collector, 19);
        }
        std::fs::write(bench.path("go"), "").unwrap();
        until("the program has emitted its pairs", || bench.path("emitted").exists());
        kill(found.collector, 18);
        std::fs::write(bench.path("end"), "").unwrap();
        let output = support::wait(child);
        assert_eq!(exit_code(&output), 7, "stopped: {is_stopped}, {output:?}");
        let (recorded, lost) = recorded_and_lost(&bench);
        eprintln!("stopped: {is_stopped}, {recorded} recorded, {lost} lost");
        assert_eq!(recorded + lost, PAIRS, "stopped: {is_stopped}");
        // There is no room for the 42 MB of all pairs.
        assert!(recorded > 0 && (lost > 0 || !is_stopped), "stopped: {is_stopped}, {lost} lost");
        for name in ["go", "emitted", "end"] {
            std::fs::remove_file(bench.path(name)).unwrap();
        }
        std::fs::remove_dir_all(bench.path("out")).unwrap();
    }
}
