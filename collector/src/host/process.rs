//! State of any process, from `/proc/PID/stat`.

/// Fields of `/proc/PID/stat`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ProcessStat {
    /// Process id of the parent.
    pub(crate) ppid: i32,
    /// Start of the process, clock ticks since boot.
    pub(crate) start_ticks: u64,
}

/// Reads `/proc/PID/stat`. `None` if the process has ended.
pub(crate) fn process_stat(pid: i32) -> Option<ProcessStat> {
    if pid <= 0 {
        return None;
    }
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The command in parentheses may contain any character, so the fields are counted from its end.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(1);
    let ppid = fields.next()?.parse().ok()?;
    let start_ticks = fields.nth(17)?.parse().ok()?;
    Some(ProcessStat { ppid, start_ticks })
}
