//! Counters of the node: one sampler per node and run, while the command runs.

use crate::support;
use rpd_collect::{
    OutputBatch, OutputItem, RecordedThreads, ShardOutput, ShardPlace, SourceDefaults, SystemConfig,
    SystemSampler,
};
use rpd_shard::Shard;
use rpd_shard::file::BlockKind;
use rpd_shard::identity::RankIdentity;
use rpd_shard::model::rocpd::{EVENT, INFO_AGENT, INFO_PMC, PMC_EVENT, SAMPLE, TRACK};
use rpd_shard::model::{TableId, Value};
use rpd_shard::rank_set::RankSet;
use rpd_shard::record::{Process, ProcessExit, RunIdentity};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use support::cgroup::Cgroup;
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

/// Reads the columns of a table, row by row.
fn rows<const N: usize>(
    shard: &Shard,
    source: u32,
    table: TableId,
    columns: [&str; N],
    mut each: impl FnMut([Value<'_>; N]),
) {
    let kind = BlockKind::Rows(table);
    for block in shard.blocks().iter().filter(|b| (b.header.kind, b.header.source) == (kind, source)) {
        let rows = shard.rows(block).unwrap();
        (0..rows.len).for_each(|i| each(columns.map(|column| rows.column(column).get(i))));
    }
}

fn number(value: Value<'_>) -> i64 {
    match value {
        Value::Int(number) => number,
        other => panic!("no integer: {other:?}"),
    }
}

/// `None` if no sampler wrote to the shard.
fn metrics(path: &Path) -> Option<Metrics> {
    let shard = Shard::open(path).unwrap();
    let is_sampler = |p: &&Process| p.command.starts_with("rpd-collect: system metrics of ");
    let process = shard.processes.values().find(is_sampler)?.clone();
    let ProcessCounters { ticks, values } = counters(&shard, process.source);
    Some(Metrics { shard, process, ticks, values })
}

/// The counters of a process.
struct ProcessCounters {
    /// Time of each tick, ns.
    ticks: Vec<i64>,
    /// Times and values of each counter.
    values: BTreeMap<String, Vec<(i64, f64)>>,
}

fn counters(shard: &Shard, source: u32) -> ProcessCounters {
    let mut names = Vec::new();
    rows(shard, source, INFO_PMC, ["name", "agent_id"], |[name, agent]| {
        assert!(number(agent) >= 1);
        names.push(name.text_lossy().unwrap().into_owned());
    });
    let mut events = 0;
    rows(shard, source, EVENT, ["category_id"], |_| events += 1);
    let mut time_of = BTreeMap::new();
    let mut ticks = Vec::new();
    rows(shard, source, SAMPLE, ["track_id", "timestamp", "event_id"], |[track, time, event]| {
        assert_eq!(number(track), 1);
        ticks.push(number(time));
        time_of.insert(number(event), number(time));
    });
    assert_eq!((events, time_of.len()), (ticks.len(), ticks.len()), "an event for each sample");
    let mut tracks = 0;
    rows(shard, source, TRACK, ["tid"], |[thread]| {
        tracks += 1;
        assert_eq!(thread, Value::Null);
    });
    assert_eq!(tracks, 1);
    let mut values: BTreeMap<String, Vec<(i64, f64)>> = BTreeMap::new();
    rows(shard, source, PMC_EVENT, ["event_id", "pmc_id", "value"], |[event, counter, value]| {
        let Value::Real(value) = value else { panic!("no value: {value:?}") };
        let name = names[number(counter) as usize - 1].clone();
        values.entry(name).or_default().push((time_of[&number(event)], value));
    });
    ProcessCounters { ticks, values }
}

/// Returns `rpd-collect` with a run id for this test alone: parallel tests use the same node, and only one
/// collector of a run samples.
fn collect(bench: &Bench, test: &str) -> (Command, PathBuf) {
    let run_id = format!("{test}-{}", std::process::id());
    let usual = bench.collect();
    let mut command = Command::new(usual.get_program());
    for (name, value) in usual.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command.args(usual.get_args().map(|argument| match argument.to_str() {
        Some("run") => run_id.as_ref(),
        _ => argument,
    }));
    let shard = bench.path("out").join(&run_id).join("rank-00000.rpdshard");
    (command, shard)
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

/// Computes for some seconds on one core, which it shares with a child if it has an argument, and prints what the kernel
/// counts for it: the time, its time on the core, and its time without it, ns.
const ON_ONE_CORE: &str = r#"
    #include <sched.h>
    #include <time.h>
    static void print(FILE *out) {
        struct timespec now;
        unsigned long long run, delay;
        FILE *file = fopen("/proc/thread-self/schedstat", "r");
        if (!file || fscanf(file, "%llu %llu", &run, &delay) != 2) exit(3);
        fclose(file);
        clock_gettime(CLOCK_BOOTTIME, &now);
        fprintf(out, "%lld %llu %llu\n", now.tv_sec * 1000000000LL + now.tv_nsec, run, delay);
    }
    int main(int argc, char **argv) {
        cpu_set_t first;
        CPU_ZERO(&first);
        CPU_SET(0, &first);
        if (sched_setaffinity(0, sizeof first, &first)) return 2;
        pid_t child = argc > 1 ? fork() : 0;
        if (argc > 1 && child == 0) for (;;) {}
        roctxMarkA("computes");
        struct timespec began, now;
        clock_gettime(CLOCK_MONOTONIC, &began);
        do {
            for (volatile int i = 0; i < 3000000; i++) {}
            print(stdout);
            clock_gettime(CLOCK_MONOTONIC, &now);
        } while (now.tv_sec - began.tv_sec < 4);
        if (child) kill(child, SIGKILL);
        return 0;
    }
"#;

#[test]
fn the_time_that_a_quota_takes_is_recorded() {
    let Some(bench) = Bench::new() else { return };
    // Half of a CPU, in periods of 100 ms.
    let Some(group) = Cgroup::with_quota("quota", 50_000) else { return };
    let source =
        "int main() { roctxMarkA(\"m\"); time_t end = time(0) + 4; while (time(0) < end) {} return 0; }";
    let program = bench.program("busy", &format!("#include <time.h>\n{source}"));
    let mut shell = Command::new("sh");
    let inner = format!("{} && exec \"$0\" \"$@\"", group.enter());
    bench.like_collect(shell.arg("-c").arg(inner));
    let collect = bench.collect();
    shell.arg(collect.get_program()).args(collect.get_args()).arg("--").arg(&program);
    let output = run(&mut shell);
    assert_eq!(exit_code(&output), 0, "{output:?}");
    let shard = Shard::open(&bench.shard_path()).unwrap();
    let process = shard.processes.values().find(|process| process.command.contains("busy")).unwrap();
    let ProcessCounters { values, .. } = counters(&shard, process.source);
    let throttled = &values["cgroup.cpu_throttled"];
    assert!((1..=4).contains(&throttled.len()), "once a second: {throttled:?}");
    // The values are those of at most two of the four seconds.
    let recorded: f64 = throttled.iter().map(|(_, share)| share / 100.0).sum();
    let counted = group.throttled().as_secs_f64();
    assert!(recorded > counted * 0.2 && recorded < counted, "{throttled:?}, the kernel counted {counted} s");
    let waits = &values["thread.cpu_wait"];
    let waited: f64 = waits.windows(2).map(|pair| pair[0].1 * (pair[1].0 - pair[0].0) as f64).sum();
    let length = (waits.last().unwrap().0 - waits[0].0) as f64;
    assert!(waited / length > 35.0, "a quota counts as waiting: {waits:?}");
}

#[test]
fn a_thread_is_seen_to_wait_for_its_core_as_long_as_the_kernel_says() {
    let Some(bench) = Bench::new() else { return };
    let program = bench.program("on_one_core", ON_ONE_CORE);
    let waited = ["alone", "shared"].map(|how| {
        let (mut command, shard) = collect(&bench, how);
        let output = run(command.arg("--").arg(&program).args((how == "shared").then_some("shared")));
        assert_eq!(exit_code(&output), 0, "{output:?}");
        let text = String::from_utf8(output.stdout).unwrap();
        let printed: Vec<[i64; 3]> = text
            .lines()
            .map(|line| {
                let numbers: Vec<i64> = line.split(' ').map(|number| number.parse().unwrap()).collect();
                numbers.try_into().unwrap()
            })
            .collect();
        let shard = Shard::open(&shard).unwrap();
        let process =
            shard.processes.values().find(|process| process.command.contains("on_one_core")).unwrap();
        let ProcessCounters { values, .. } = counters(&shard, process.source);
        let of_thread =
            ["thread.cpu", "thread.cpu_wait", "thread.disk_wait", "thread.samples", "thread.sleep"];
        let of_process = ["process.disk_read", "process.disk_write", "process.major_faults", "process.read"];
        assert_eq!(values.keys().collect::<Vec<_>>(), [&of_process[..], &of_thread].concat());
        let main = format!(r#"{{"rpd":{{"tid":{},"cpus":"0"}}}}"#, process.pid);
        rows(&shard, process.source, INFO_PMC, ["name", "extdata"], |[name, extdata]| {
            let is_of_thread = name.text_lossy().unwrap().starts_with("thread.");
            assert_eq!(extdata.text_lossy().as_deref(), is_of_thread.then_some(main.as_str()));
        });
        let [from, to] = [values["thread.cpu"][0].0, values["thread.cpu"].last().unwrap().0];
        assert!(to - from > 1_500_000_000, "{} ns are sampled", to - from);
        // Between two lines, the program ran and waited at one rate.
        let at = |time: i64, column: usize| {
            let next = printed.partition_point(|line| line[0] < time).clamp(1, printed.len() - 1);
            let (before, after) = (printed[next - 1], printed[next]);
            let part = (time - before[0]) as f64 / (after[0] - before[0]) as f64;
            before[column] as f64 + part * (after[column] - before[column]) as f64
        };
        for (name, column) in [("thread.cpu", 1), ("thread.cpu_wait", 2)] {
            let intervals = values[name].windows(2);
            let recorded: f64 =
                intervals.map(|pair| pair[0].1 / 100.0 * (pair[1].0 - pair[0].0) as f64).sum();
            let counted = at(to, column) - at(from, column);
            let error = (recorded - counted).abs() / (to - from) as f64;
            assert!(error < 0.04, "{how}: {name}: {recorded} ns, the program saw {counted}");
        }
        (at(to, 2) - at(from, 2)) / (to - from) as f64
    });
    assert!(waited[1] > 0.3, "the child takes half of the core: {waited:?}");
}

/// Waits for a child that shares its memory, which signals do not interrupt, and then sleeps. Prints both times, ns.
const UNINTERRUPTIBLE: &str = r#"
    #include <stdint.h>
    #include <stdio.h>
    #include <time.h>
    #include <unistd.h>

    static int64_t now() {
        struct timespec time;
        clock_gettime(CLOCK_BOOTTIME, &time);
        return time.tv_sec * INT64_C(1000000000) + time.tv_nsec;
    }

    int main() {
        int64_t waited = 0, slept = 0;
        roctxMarkA("m");
        for (int i = 0; i < 12; i++) {
            int64_t begin = now();
            if (vfork() == 0) {
                usleep(310000);
                _exit(0);
            }
            int64_t middle = now();
            usleep(103000);
            waited += middle - begin;
            slept += now() - middle;
        }
        printf("%lld %lld\n", (long long)waited, (long long)slept);
        return 0;
    }
"#;

#[test]
fn uninterruptible_waits_are_distinguished_from_others() {
    let Some(bench) = Bench::new() else { return };
    let program = bench.program("uninterruptible", UNINTERRUPTIBLE);
    let (mut command, shard) = collect(&bench, "waits");
    let output = run(command.arg("--").arg(&program));
    assert_eq!(exit_code(&output), 0, "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let times: Vec<f64> = text.split_whitespace().map(|time| time.parse().unwrap()).collect();
    let expected = times[0] / (times[0] + times[1]);
    let shard = Shard::open(&shard).unwrap();
    let process =
        shard.processes.values().find(|process| process.command.contains("uninterruptible")).unwrap();
    let ProcessCounters { values, .. } = counters(&shard, process.source);
    let samples = |name: &str| -> f64 {
        let rates = values["thread.samples"].windows(2).zip(&values[name]);
        rates.map(|(pair, (_, share))| share / 100.0 * pair[0].1 * (pair[1].0 - pair[0].0) as f64 / 1e9).sum()
    };
    let (waits, sleeps) = (samples("thread.disk_wait"), samples("thread.sleep"));
    assert!(waits + sleeps > 25.0, "ten samples a second: {values:?}");
    let share = waits / (waits + sleeps);
    assert!((share - expected).abs() < 0.15, "{share} of the samples, {expected} of the time");
}

/// Reads from a device without storage, and from a file past the cache where the file system allows it. Prints the time, ns, how
/// many bytes its calls have read, and how many the kernel has fetched from storage for it, each 10 ms.
const READING: &str = r#"
    #define _GNU_SOURCE
    #include <fcntl.h>
    #include <stdio.h>
    #include <stdlib.h>
    #include <string.h>
    #include <time.h>
    #include <unistd.h>

    int main(int argc, char **argv) {
        static char zeros[100000];
        void *block;
        int zero = open("/dev/zero", O_RDONLY), file = open(argv[1], O_RDWR | O_CREAT | O_TRUNC, 0600);
        if (argc < 2 || zero < 0 || file < 0 || posix_memalign(&block, 4096, 65536)) return 2;
        if (write(file, zeros, 65536) != 65536 || fsync(file)) return 3;
        int direct = open(argv[1], O_RDONLY | O_DIRECT);
        long long all = 0, stored = 0;
        int sums = open("/proc/self/io", O_RDONLY);
        roctxMarkA("reads");
        for (int i = 0; i < 400; i++) {
            struct timespec now;
            if (read(zero, zeros, sizeof zeros) != sizeof zeros) return 4;
            all += sizeof zeros;
            if (direct >= 0 && pread(direct, block, 65536, 0) == 65536) all += 65536;
            char text[1024];
            ssize_t length = pread(sums, text, sizeof text - 1, 0);
            if (length <= 0) return 5;
            all += length;
            text[length] = 0;
            char *found = strstr(text, "\nread_bytes: ");
            if (!found || sscanf(found, "\nread_bytes: %lld", &stored) != 1) return 6;
            clock_gettime(CLOCK_BOOTTIME, &now);
            printf("%lld %lld %lld\n", now.tv_sec * 1000000000LL + now.tv_nsec, all, stored);
            usleep(10000);
        }
        return 0;
    }
"#;

#[test]
fn the_reads_of_a_process_are_those_that_it_counts() {
    let Some(bench) = Bench::new() else { return };
    let program = bench.program("reading", READING);
    let (mut command, shard) = collect(&bench, "reads");
    let output = run(command.arg("--").arg(&program).arg(bench.path("file")));
    assert_eq!(exit_code(&output), 0, "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<Vec<f64>> =
        text.lines().map(|line| line.split(' ').map(|number| number.parse().unwrap()).collect()).collect();
    let shard = Shard::open(&shard).unwrap();
    let process = shard.processes.values().find(|process| process.command.contains("reading")).unwrap();
    let ProcessCounters { values, .. } = counters(&shard, process.source);
    for (name, column) in [("process.read", 1), ("process.disk_read", 2)] {
        let rates = &values[name];
        assert!((2..=5).contains(&rates.len()), "once a second: {rates:?}");
        let bytes: f64 = rates.windows(2).map(|pair| pair[0].1 * (pair[1].0 - pair[0].0) as f64 / 1e9).sum();
        let at = |time: i64| {
            let next = lines.partition_point(|line| line[0] < time as f64).min(lines.len() - 1);
            lines[next][column]
        };
        let counted = at(rates.last().unwrap().0) - at(rates[0].0);
        let most = counted * 0.1 + 1e5;
        assert!((bytes - counted).abs() < most, "{name}: {bytes}, the program counted {counted}");
    }
    assert!(values["process.read"][0].1 > 1e6 && values["process.major_faults"].len() > 1);
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
