//! What a running job takes: CPU time and memory of its processes, from `/proc`.

use rpd_tests::measure::family;
use std::fs;
use std::process::Child;
use std::time::{Duration, Instant};

/// What the processes of a job took.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Taken {
    /// CPU seconds of the collector, by the last look.
    pub(crate) collector_cpu: f64,
    /// Seconds between the first and the last look.
    pub(crate) watched: f64,
    /// Most memory of all processes together, bytes: each page once (proportional set size).
    pub(crate) memory: u64,
}

/// Looks at a job every 20 ms until it ends. Its first process is rpd-collect, or the program itself.
pub(crate) fn watch(mut child: Child) -> Taken {
    let mut taken = Taken::default();
    let mut first: Option<(Instant, f64)> = None;
    while matches!(child.try_wait(), Ok(None)) {
        let family = family(child.id());
        taken.memory = taken.memory.max(family.iter().map(|pid| proportional_bytes(*pid)).sum());
        let collectors = family.iter().filter(|pid| is_collector(**pid));
        let cpu: f64 = collectors.map(|pid| cpu_seconds(*pid)).sum();
        if cpu > 0.0 {
            // The first tenth of a second is start-up.
            let (since, before) = *first.get_or_insert((Instant::now(), cpu));
            taken.collector_cpu = cpu - before;
            taken.watched = since.elapsed().as_secs_f64();
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    taken
}

fn is_collector(pid: u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.starts_with("rpd-collect"))
}

/// User and system time of a process with all its threads.
fn cpu_seconds(pid: u32) -> f64 {
    let schedstat = |task: &std::path::Path| {
        let text = fs::read_to_string(task.join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse::<u64>().ok()
    };
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    tasks.filter_map(|task| schedstat(&task.path())).sum::<u64>() as f64 / 1e9
}

fn proportional_bytes(pid: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("Pss:"));
    line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok()).unwrap_or(0) * 1024
}
