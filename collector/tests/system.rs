//! Counters of the node: one sampler per node and run, while the command runs.

use crate::support;
use rpd_collect::{
    OutputBatch, OutputItem, RecordedThreads, ShardOutput, ShardPlace, SourceDefaults, SystemConfig,
    SystemSampler,
};
use rpd_shard::Shard;
use rpd_shard::identity::RankIdentity;
use rpd_shard::model::rocpd::INFO_AGENT;
use rpd_shard::rank_set::RankSet;
use rpd_shard::record::{Process, ProcessExit, RunIdentity};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use support::counters::{ProcessCounters, collect, counters, rows};
use support::{Bench, TIME_LIMIT, Trace, exit_code, run};

/// The rows of a sampler.
struct Metrics {
    shard: Shard,
    process: Process,
    /// Time of each tick, ns.
    ticks: Vec<i64>,
    /// Times and values of each counter.
    values: BTreeMap<String, Vec<(i64, f64)>>,
}

/// `None` if no sampler wrote to the shard.
fn metrics(path: &Path) -> Option<Metrics> {
    let shard = Shard::open(path).unwrap();
    let is_sampler = |p: &&Process| p.command.starts_with("rpd-collect: system metrics of ");
    let process = shard.processes.values().find(is_sampler)?.clone();
    let ProcessCounters { ticks, values } = counters(&shard, process.source);
    Some(Metrics { shard, process, ticks, values })
}

/// Returns the mean of a counter until a time. A value counts until the next one, and is written when it changes.
fn mean(values: &[(i64, f64)], end: i64) -> f64 {
    let until = values.iter().skip(1).map(|(time, _)| *time).chain([end]);
    let sum: f64 = values.iter().zip(until).map(|((from, value), to)| value * (to - from) as f64).sum();
    sum / (end - values[0].0) as f64
}

#[test]
fn a_program_of_two_and_a_half_seconds_has_its_node_sampled() {
    let Some(bench) = Bench::new() else { return };
    let (mut command, shard) = collect(&bench, "spin");
    let output = run(command.args(["--", "timeout", "2.5", "sh", "-c", "while :; do :; done"]));
    assert_eq!((exit_code(&output), output.stdout.len()), (124, 0), "{output:?}");
    let metrics = metrics(&shard).unwrap();
    assert!(metrics.shard.complete());
    assert_eq!(metrics.shard.ledger.as_ref().unwrap().losses, []);
    assert!(!metrics.shard.clocks.is_empty());

    let ticks = &metrics.ticks;
    assert!((5..=30).contains(&ticks.len()), "{} ticks", ticks.len());
    assert!(ticks.windows(2).all(|w| w[0] < w[1]));
    let span = ticks.last().unwrap() - ticks[0];
    assert!((1_500_000_000..4_500_000_000).contains(&span), "{span} ns");

    let end = ticks.last().unwrap() + 1;
    let busy = mean(&metrics.values["cpu.user"], end) + mean(&metrics.values["cpu.system"], end);
    let cpus = std::thread::available_parallelism().unwrap().get() as f64;
    assert!((30.0 / cpus..100.1).contains(&busy), "a program that spins, and {busy} % of the CPUs busy");
    for name in ["cpu.user", "cpu.system", "cpu.iowait", "cpu.idle"] {
        assert!(metrics.values[name].iter().all(|(_, value)| (0.0..=100.0).contains(value)), "{name}");
        assert!(metrics.values[name].iter().all(|(time, _)| *time > ticks[0]), "{name} is a difference");
    }
    let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap();
    let total: f64 = meminfo.split_ascii_whitespace().nth(1).unwrap().parse().unwrap();
    let used = &metrics.values["memory.used"];
    assert!(used.iter().all(|(_, bytes)| (1e6..total * 1024.0).contains(bytes)), "{used:?} of {total} KiB");
    assert_eq!(used[0].0, ticks[0]);

    let process = &metrics.process;
    assert!(process.worker && process.pid > 0 && process.start_ticks > 0);
    assert_eq!(process.exit, Some(ProcessExit::Code(0)));
    assert!(process.first_seen <= ticks[0] && process.last_seen.unwrap() >= *ticks.last().unwrap());
    let mut agents = Vec::new();
    rows(&metrics.shard, process.source, INFO_AGENT, ["type", "name"], |[kind, name]| {
        agents.push((kind.text_lossy().unwrap().into_owned(), name.text_lossy().unwrap().into_owned()));
    });
    assert!(agents[0].0 == "CPU" && !agents[0].1.is_empty(), "{agents:?}");
    if let Some(cost) = metrics.values.get("sampler.cpu") {
        let percent = mean(cost, end);
        assert!(percent < 5.0, "{percent} % of a CPU for sampling");
    }
}

#[test]
fn a_program_of_less_than_a_second_is_not_sampled() {
    let Some(bench) = Bench::new() else { return };
    let program =
        bench.program("mark", r#"int main(void) { roctxMarkA("here"); usleep(300000); return 0; }"#);
    let (mut command, shard) = collect(&bench, "short");
    assert_eq!(exit_code(&run(command.arg("--").arg(&program))), 0);
    assert_eq!(Trace::read(&shard).marks.len(), 1);
    assert!(metrics(&shard).is_none());
}

/// A collector with nothing but its sampler.
struct Node {
    output: ShardOutput,
    finished: std::sync::mpsc::Receiver<Option<PathBuf>>,
    sampler: SystemSampler,
    shard: PathBuf,
}

impl Node {
    fn start(root: &Path, run_id: &str, retry: Duration) -> Node {
        Node::start_on(root, run_id, retry, Path::new("/"))
    }

    fn start_on(root: &Path, run_id: &str, retry: Duration, files: &Path) -> Node {
        let run = RunIdentity {
            run_id: run_id.to_owned(),
            run_id_from: "test".to_owned(),
            rank: None,
            size: None,
            version: String::new(),
        };
        let domain = rpd_collect::clock_domain();
        let shard = root.join(run_id).join("rank-00000.rpdshard");
        let place = ShardPlace {
            root: root.to_owned(),
            run,
            ranks: RankSet::default(),
            domain: domain.clone(),
            max_bytes: 2 << 30,
            share_group: false,
            always: false,
        };
        let (output, finished) = ShardOutput::start(place).unwrap();
        let rank = RankIdentity::default();
        let config = SystemConfig {
            source: 1,
            run: PathBuf::from(run_id),
            defaults: SourceDefaults {
                rank,
                rank_is_named: false,
                ranks: RankSet::default(),
                node: rpd_collect::node(),
                domain,
            },
            root: files.to_owned(),
            retry,
            threads: RecordedThreads::default(),
        };
        let sampler = SystemSampler::start(config, output.side()).unwrap();
        Node { output, finished, sampler, shard }
    }

    fn wait_for_shard(&self) {
        let began = Instant::now();
        while !self.shard.exists() {
            assert!(began.elapsed() < TIME_LIMIT, "no shard");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn stop(self) -> Metrics {
        let began = Instant::now();
        self.sampler.stop();
        assert!(began.elapsed() < Duration::from_millis(500), "it took {:?} to stop", began.elapsed());
        let _ = self.output.send(OutputBatch::of(vec![OutputItem::End]));
        self.finished.recv_timeout(TIME_LIMIT).unwrap();
        metrics(&self.shard).unwrap()
    }
}

#[test]
fn one_collector_of_a_run_samples_and_the_next_takes_over() {
    let folder = tempfile::tempdir().unwrap();
    let run_id = format!("one-of-two-{}", std::process::id());
    let first = Node::start(&folder.path().join("first"), &run_id, Duration::from_millis(20));
    first.wait_for_shard();
    let second = Node::start(&folder.path().join("second"), &run_id, Duration::from_millis(20));
    let other_run = format!("{run_id}-other");
    let other = Node::start(&folder.path().join("other"), &other_run, Duration::from_millis(20));
    other.wait_for_shard();
    // The other run started later and has sent rows by now: the second collector would have, too, if it
    // sampled.
    assert!(!second.shard.exists());
    let first = first.stop();
    second.wait_for_shard();
    let (second, other) = (second.stop(), other.stop());
    assert!(second.ticks[0] > *first.ticks.last().unwrap(), "one at a time");
    assert!(second.ticks[0] - first.ticks.last().unwrap() < 5_000_000_000, "soon");
    assert!(other.ticks[0] < *first.ticks.last().unwrap(), "another run is on its own");
    assert_eq!(first.process.exit, Some(ProcessExit::Code(0)));
}

#[test]
fn a_file_that_hangs_holds_nobody_up() {
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("proc")).unwrap();
    // Opening it waits for a writer, and there is none.
    let stat = folder.path().join("proc/stat");
    mknodat(CWD, &stat, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let run_id = format!("hang-{}", std::process::id());
    let node = Node::start_on(folder.path(), &run_id, Duration::from_millis(20), folder.path());
    let began = Instant::now();
    node.sampler.stop();
    assert!(began.elapsed() < Duration::from_millis(500), "it took {:?} to stop", began.elapsed());
    // The writing thread ends normally.
    let _ = node.output.send(OutputBatch::of(vec![OutputItem::End]));
    node.finished.recv_timeout(TIME_LIMIT).unwrap();
    assert!(!node.shard.exists());
}
