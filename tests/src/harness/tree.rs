//! Ends a process with everything below it. Ranks of `mpirun` have process groups of their own, so
//! that the group of `mpirun` is not enough.

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use std::collections::BTreeMap;
use std::fs;
use std::process::Child;
use std::thread;
use std::time::{Duration, Instant};

/// How long a job may take to clean up after SIGTERM.
const PATIENCE: Duration = Duration::from_secs(2);

pub(super) fn end(child: &mut Child) {
    let Some(pid) = Pid::from_raw(child.id() as i32) else { return };
    let below = descendants(pid);
    let _ = kill_process_group(pid, Signal::TERM);
    let until = Instant::now() + PATIENCE;
    while Instant::now() < until && matches!(child.try_wait(), Ok(None)) {
        thread::sleep(Duration::from_millis(20));
    }
    for (process, start) in below {
        // The number may have gone to somebody else in the meantime; the start time has not.
        if stat(process).is_some_and(|(_, now)| now == start) {
            let _ = kill_process(process, Signal::KILL);
        }
    }
    let _ = kill_process_group(pid, Signal::KILL);
    let _ = child.wait();
}

/// All processes below one, with the times at which they started.
fn descendants(root: Pid) -> Vec<(Pid, u64)> {
    let mut children: BTreeMap<i32, Vec<(Pid, u64)>> = BTreeMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()).and_then(Pid::from_raw)
        else {
            continue;
        };
        if let Some((parent, start)) = stat(pid) {
            children.entry(parent).or_default().push((pid, start));
        }
    }
    let mut found = Vec::new();
    let mut open = vec![root];
    while let Some(parent) = open.pop() {
        let below = children.remove(&parent.as_raw_nonzero().get()).unwrap_or_default();
        open.extend(below.iter().map(|(pid, _)| *pid));
        found.extend(below);
    }
    found
}

/// Parent and start time of a process.
fn stat(pid: Pid) -> Option<(i32, u64)> {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
    // The name, in parentheses, may hold anything.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    Some((fields.get(1)?.parse().ok()?, fields.get(19)?.parse().ok()?))
}
