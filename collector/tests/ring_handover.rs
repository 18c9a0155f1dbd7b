//! Rings reach the collector also where there are few descriptors or little memory for them.

use crate::support;
use rpd_shard::Shard;
use rpd_shard::model::native::RANGE;
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use std::path::Path;
use std::process::{Command, Stdio};
use support::{Bench, below, exit_code};

const THREADS: u64 = 40;
const PAIRS: u64 = 500;
/// Starts threads that emit pairs once `go` exists, and hold their rings until all have emitted them.
const PROGRAM: &str = r#"
static pthread_barrier_t all;
static void *work(void *unused) {
    for (int i = 0; i < 500; i++) {
        roctxRangePushA("forward");
        roctxRangePop();
    }
    pthread_barrier_wait(&all);
    return unused;
}
int main(void) {
    pthread_t thread[40];
    pthread_barrier_init(&all, 0, 40);
    roctxMarkA("first");
    write(1, "ready\n", 6);
    while (access("go", F_OK)) usleep(1000);
    for (int i = 0; i < 40; i++) pthread_create(&thread[i], 0, work, 0);
    for (int i = 0; i < 40; i++) pthread_join(thread[i], 0);
    return 7;
}
"#;

/// Runs the program below the launcher, each after a command of the shell, and changes the collector once it has the first
/// ring. Returns the number of lost rows, and all messages.
fn run_threads(bench: &Bench, before: &str, after: &str, change: impl FnOnce(u32)) -> (u64, String) {
    let program = bench.program("threads", PROGRAM);
    let collect = bench.collect();
    let mut command = Command::new("bash");
    bench.like_collect(&mut command).args(["-c", &format!("{before} && exec \"$@\""), "bash"]);
    command.arg(collect.get_program()).args(collect.get_args()).args(["--trace", "roctx", "--"]);
    command.args(["bash", "-c", &format!("{after} && exec \"$@\""), "bash"]).arg(program);
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let found = below(child.id());
    let maps = format!("/proc/{}/maps", found.collector);
    let has_ring = || std::fs::read_to_string(&maps).unwrap_or_default().contains("memfd:rpd-ring");
    support::until("the first ring", || has_ring() && bench.shard_path().exists());
    change(found.collector);
    std::fs::write(bench.path("go"), "").unwrap();
    let output = support::wait(child);
    assert_eq!(exit_code(&output), 7, "{output:?}");
    let shard = Shard::open(&bench.shard_path()).unwrap();
    let ledger = shard.ledger.as_ref().unwrap_or_else(|| panic!("no ledger: {output:?}, {}", bench.log()));
    let of_ranges = ledger.written.iter().filter(|(_, table, _)| *table == RANGE);
    let counted = ledger.losses.iter().map(|loss| loss.rows);
    let lost: u64 = counted.sum::<Option<u64>>().unwrap_or_else(|| panic!("not counted: {}", bench.log()));
    assert_eq!(of_ranges.map(|(_, _, rows)| rows).sum::<u64>() + lost, THREADS * PAIRS);
    // A line that does not fit into the log is on stderr.
    (lost, bench.log() + &String::from_utf8_lossy(&output.stderr))
}

#[test]
fn threads_that_start_together_need_few_descriptors() {
    for (before, after) in [("ulimit -n 20", "true"), ("true", "ulimit -n 6")] {
        let Some(bench) = Bench::new() else { return };
        let (lost, said) = run_threads(&bench, before, after, |_| {});
        // A busy machine may take longer than a thread waits. Then the reason is the right one.
        assert!(lost == 0 || said.contains("ulimit -n"), "{lost} lost: {said}");
    }
}

#[test]
fn rings_wait_until_the_collector_has_a_descriptor() {
    let Some(bench) = Bench::new() else { return };
    let few = |collector: u32| {
        let open =
            std::fs::read_dir(Path::new("/proc").join(collector.to_string()).join("fd")).unwrap().count();
        limit(collector, Resource::Nofile, open as u64);
    };
    let (lost, said) = run_threads(&bench, "true", "true", few);
    assert_eq!(lost, 0, "{said}");
}

#[test]
fn rings_wait_until_the_collector_has_memory() {
    let Some(bench) = Bench::new() else { return };
    // A ring takes 2 MiB of the address space or more, by the limit.
    let little = |collector: u32| {
        let statm = std::fs::read_to_string(format!("/proc/{collector}/statm")).unwrap();
        let pages: u64 = statm.split(' ').next().unwrap().parse().unwrap();
        limit(collector, Resource::As, pages * rustix::param::page_size() as u64 + (24 << 20));
    };
    let (lost, said) = run_threads(&bench, "true", "true", little);
    assert_eq!((lost, said.matches("cannot map the ring of a thread").count()), (0, 1), "{said}");
}

fn limit(process: u32, what: Resource, most: u64) {
    let pid = Pid::from_raw(process as i32).unwrap();
    prlimit(Some(pid), what, Rlimit { current: Some(most), maximum: Some(most) }).unwrap();
}
