//! What the kernel says of a process that may be anybody's.

/// What `/proc/PID/stat` says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ProcessStat {
    /// Parent's process id.
    pub(crate) ppid: i32,
    /// When it began, clock ticks since boot.
    pub(crate) start_ticks: u64,
}

/// Reads `/proc/PID/stat`; none if the process is gone.
pub(crate) fn process_stat(pid: i32) -> Option<ProcessStat> {
    if pid <= 0 {
        return None;
    }
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The command in parentheses may hold anything, so count from its end.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(1);
    let ppid = fields.next()?.parse().ok()?;
    let start_ticks = fields.nth(17)?.parse().ok()?;
    Some(ProcessStat { ppid, start_ticks })
}
