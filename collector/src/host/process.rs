//! Other processes of this node, from `/proc/PID`.

use rustix::fd::OwnedFd;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::fs;
use std::iter::successors;

/// Maximum number of ancestors of a process that are looked at.
const MAX_ANCESTORS: usize = 64;
/// Maximum number of threads for which children are listed.
const MAX_THREADS: usize = 1024;

/// Fields of `/proc/PID/stat`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct ProcessStat {
    /// Process id of the parent.
    pub(crate) ppid: i32,
    /// Start of the process, clock ticks since boot.
    pub(crate) start_ticks: u64,
}

/// Reads `/proc/PID/stat`. `None` if the process has ended.
pub(crate) fn stat(pid: i32) -> Option<ProcessStat> {
    if pid > 0 { read_stat(&pid.to_string()) } else { None }
}

/// Returns whether a process has ended, also if its parent has not yet read its status.
pub(crate) fn has_ended(pid: i32) -> bool {
    let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else { return true };
    stat.rsplit_once(')').is_none_or(|(_, fields)| fields.trim_start().starts_with(['Z', 'X']))
}

/// Reads `/proc/self/stat`. Zeros if that fails.
pub(crate) fn own_stat() -> ProcessStat {
    read_stat("self").unwrap_or_default()
}

fn read_stat(process: &str) -> Option<ProcessStat> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The command in parentheses may contain any character, so the fields are counted from its end.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(1);
    let ppid = fields.next()?.parse().ok()?;
    let start_ticks = fields.nth(17)?.parse().ok()?;
    Some(ProcessStat { ppid, start_ticks })
}

/// Returns the ancestors of a process, its parent first, up to process 1, which is left out.
pub(crate) fn ancestors(pid: i32) -> impl Iterator<Item = i32> {
    let parent = |pid: &i32| Some(stat(*pid)?.ppid).filter(|parent| *parent > 1);
    successors(parent(&pid), parent).take(MAX_ANCESTORS)
}

/// Whether a process is `ancestor` or below it.
pub(crate) fn is_below(pid: i32, ancestor: i32) -> bool {
    pid == ancestor || ancestors(pid).any(|above| above == ancestor)
}

/// Returns the children of a process.
pub(crate) fn children(pid: i32) -> Vec<i32> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten().take(MAX_THREADS);
    let lists = threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    let children =
        lists.map(|list| list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>());
    children.flatten().collect()
}

/// Opens a descriptor of a process, which cannot come to mean a later process with this number.
pub(crate) fn open_pidfd(pid: i32) -> Option<OwnedFd> {
    Pid::from_raw(pid).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok())
}
