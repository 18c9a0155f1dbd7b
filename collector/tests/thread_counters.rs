//! Counters of recorded threads and of their processes.

use crate::support;
use rpd_shard::Shard;
use rpd_shard::model::rocpd::INFO_PMC;
use std::process::Command;
use support::cgroup::Cgroup;
use support::counters::{ProcessCounters, collect, counters, rows};
use support::{Bench, exit_code, run};

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
            assert_eq!(extdata.text_lossy().unwrap(), if is_of_thread { main.as_str() } else { "{}" });
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

/// Computes on one core, with a low priority, and prints each time in which it was stopped for 20 ms or more: from, to. A child
/// takes the core for 60 ms, again and again.
const INTERRUPTED: &str = r#"
    #include <sched.h>
    #include <signal.h>
    #include <stdint.h>
    #include <stdio.h>
    #include <sys/prctl.h>
    #include <time.h>
    #include <unistd.h>

    static int64_t now() {
        struct timespec time;
        clock_gettime(CLOCK_BOOTTIME, &time);
        return time.tv_sec * INT64_C(1000000000) + time.tv_nsec;
    }

    int main() {
        cpu_set_t first;
        CPU_ZERO(&first);
        CPU_SET(0, &first);
        if (sched_setaffinity(0, sizeof first, &first)) return 2;
        pid_t child = fork();
        if (child == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            for (;;) {
                usleep(237000);
                for (int64_t begin = now(); now() - begin < 60000000;) {}
            }
        }
        nice(19);
        roctxMarkA("computes");
        int64_t begin = now(), before = begin;
        while (before - begin < INT64_C(5000000000)) {
            int64_t time = now();
            if (time - before > 20000000) printf("%lld %lld\n", (long long)before, (long long)time);
            before = time;
        }
        kill(child, SIGKILL);
        return 0;
    }
"#;

#[test]
fn the_times_at_which_a_thread_alone_loses_its_core_are_recorded() {
    let Some(bench) = Bench::new() else { return };
    let doctor = run(Command::new(env!("CARGO_BIN_EXE_rpd-collect")).arg("doctor"));
    if !String::from_utf8_lossy(&doctor.stdout)
        .contains("times at which threads lose their CPUs are recorded")
    {
        eprintln!("SKIPPED: the kernel does not let a user follow threads here");
        return;
    }
    let program = bench.program("interrupted", INTERRUPTED);
    let (mut command, shard) = collect(&bench, "interrupted");
    let output = run(command.arg("--").arg(&program));
    assert_eq!(exit_code(&output), 0, "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let gaps: Vec<(i64, i64)> = text
        .lines()
        .map(|line| line.split_once(' ').unwrap())
        .map(|(from, to)| (from.parse().unwrap(), to.parse().unwrap()))
        .collect();
    let shard = Shard::open(&shard).unwrap();
    let process = shard.processes.values().find(|process| process.command.contains("interrupted")).unwrap();
    let ProcessCounters { values, .. } = counters(&shard, process.source);
    let waits = &values["thread.cpu_wait"];
    let waited = |from: i64, to: i64| -> f64 {
        let part =
            |pair: &[(i64, f64)]| (pair[1].0.min(to) - pair[0].0.max(from)).max(0) as f64 * pair[0].1 / 100.0;
        waits.windows(2).map(part).sum()
    };
    let (first, last) = (waits[0].0, waits.last().unwrap().0);
    let inside: Vec<_> = gaps.iter().filter(|(from, to)| *from > first && *to < last).collect();
    assert!(inside.len() >= 5, "{} of {gaps:?}, recorded from {first} to {last}", inside.len());
    // Sums over tenths of a second say about 60 % of each gap, and about as much beside it.
    let beside = 30_000_000;
    let (mut in_gaps, mut before_gaps, mut length) = (0.0, 0.0, 0);
    for (from, to) in &inside {
        in_gaps += waited(*from, *to);
        before_gaps += waited(*from - beside, *from);
        length += to - from;
    }
    let shares = (in_gaps / length as f64, before_gaps / (beside * inside.len() as i64) as f64);
    assert!(shares.0 > 0.9 && shares.1 < 0.3, "{shares:?}: {waits:?}, {gaps:?}");
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

/// Marks in 20 threads that live for three seconds, and then in a child.
const MANY_THREADS: &str = r#"
    #include <pthread.h>
    static void *work(void *name) {
        roctxMarkA(name);
        sleep(3);
        return 0;
    }
    int main() {
        pthread_t threads[20];
        roctxMarkA("main");
        for (int i = 0; i < 20; i++) if (pthread_create(&threads[i], 0, work, "thread")) return 2;
        sleep(1);
        pid_t child = fork();
        if (child == 0) return work("child") != 0;
        for (int i = 0; i < 20; i++) pthread_join(threads[i], 0);
        int status;
        return waitpid(child, &status, 0) != child || status;
    }
"#;

#[test]
fn the_states_of_a_main_thread_are_sampled_although_many_threads_came_first() {
    let Some(bench) = Bench::new() else { return };
    let program = bench.program("many_threads", MANY_THREADS);
    let (mut command, shard) = collect(&bench, "many");
    let output = run(command.arg("--").arg(&program));
    assert_eq!(exit_code(&output), 0, "{output:?}");
    let shard = Shard::open(&shard).unwrap();
    let mut processes: Vec<_> =
        shard.processes.values().filter(|process| process.command.contains("many_threads")).collect();
    processes.sort_by_key(|process| process.source);
    let [parent, child] = processes.as_slice() else { panic!("{processes:?}") };
    let count = |source: u32, what: &str| {
        let ProcessCounters { values, .. } = counters(&shard, source);
        values.keys().filter(|name| *name == what || name.starts_with(&format!("{what} "))).count()
    };
    assert_eq!(count(parent.source, "thread.cpu"), 21);
    assert_eq!(count(parent.source, "thread.samples"), 16, "more threads of a process would cost more");
    assert_eq!(count(child.source, "thread.samples"), 1, "a main thread");
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
