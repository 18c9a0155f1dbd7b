//! Most memory of a process, from `/proc`.

use std::collections::BTreeMap;
use std::fs;
use std::process::Child;
use std::time::Duration;

/// Looks at a job every 5 ms until it ends. The most resident bytes of any one merge process below it.
pub fn peak_of_merge_ranks(child: &mut Child) -> u64 {
    peaks_of_merge_ranks(child).into_iter().max().unwrap_or(0)
}

/// The most resident bytes of each merge process below a job, in the order of their ids: the kernel keeps that number, so
/// that only what came within the last 5 ms of a process is missed.
pub fn peaks_of_merge_ranks(child: &mut Child) -> Vec<u64> {
    let mut peaks = BTreeMap::new();
    while matches!(child.try_wait(), Ok(None)) {
        for pid in family(child.id()) {
            if let Some(bytes) = peak_of(pid, "rpd-merge") {
                peaks.insert(pid, bytes);
            }
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    peaks.into_values().collect()
}

/// Looks at a process every 5 ms until it ends. Its most resident bytes.
pub fn peak_of_process(child: &mut Child) -> u64 {
    let mut peak = 0;
    while matches!(child.try_wait(), Ok(None)) {
        peak = peak_of(child.id(), "").unwrap_or(peak);
        std::thread::sleep(Duration::from_millis(5));
    }
    peak
}

/// The most resident bytes of a process with this in its name.
fn peak_of(pid: u32, name: &str) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    if !status.lines().next()?.contains(name) {
        return None;
    }
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().strip_suffix(" kB")?.parse::<u64>().ok()? << 10)
}

/// A process and everything below it.
pub fn family(root: u32) -> Vec<u32> {
    let mut all = vec![root];
    let mut at = 0;
    while let Some(pid) = all.get(at) {
        let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        let children: Vec<u32> = tasks
            .filter_map(|task| fs::read_to_string(task.path().join("children")).ok())
            .flat_map(|text| text.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>())
            .collect();
        all.extend(children);
        at += 1;
    }
    all
}
