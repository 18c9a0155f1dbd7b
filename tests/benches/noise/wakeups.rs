//! How often the collector of a program that does little wakes up.

use rpd_tests::measure::family;
use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The pauses of the collector have grown by then.
const SETTLE: Duration = Duration::from_secs(2);
/// For how long is counted.
const COUNTED: Duration = Duration::from_secs(10);

/// Wake-ups a second of the launcher and the collector of a command, which is killed then.
pub(crate) fn rate(command: &mut Command) -> Result<f64, String> {
    let command = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let child = command.spawn().map_err(|error| format!("{command:?}: {error}"))?;
    let counted = count(&child);
    end(child);
    counted
}

fn count(child: &Child) -> Result<f64, String> {
    std::thread::sleep(SETTLE);
    let ours: Vec<u32> = family(child.id()).into_iter().filter(|pid| is_ours(*pid)).collect();
    if ours.len() != 2 {
        return Err(format!("{} processes of rpd-collect instead of 2", ours.len()));
    }
    let sleeps = || ours.iter().map(|pid| sleeps(*pid)).sum::<u64>();
    let (began, before) = (Instant::now(), sleeps());
    std::thread::sleep(COUNTED);
    Ok((sleeps() - before) as f64 / began.elapsed().as_secs_f64())
}

/// The launcher passes the signal on to the command, and ends with it.
fn end(mut child: Child) {
    let _ = Command::new("kill").arg(child.id().to_string()).status();
    let _ = child.wait();
}

fn is_ours(pid: u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.starts_with("rpd-collect"))
}

/// Times that the threads of a process have gone to sleep.
fn sleeps(pid: u32) -> u64 {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let of_task = |status: String| {
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        line.and_then(|count| count.trim().parse::<u64>().ok())
    };
    let counts = tasks.filter_map(|task| of_task(fs::read_to_string(task.path().join("status")).ok()?));
    counts.sum()
}
