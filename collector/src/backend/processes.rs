//! Kills the processes of a profiler. They inherited a variable that the command never has.
//!
//! A process group of its own would take the terminal away from the command, and process trees break when
//! parents die.

use crate::child::PROFILER;
use crate::host::bounded_read::read_at_most;
use crate::host::process;
use rustix::fd::OwnedFd;
use rustix::process::{Pid, Signal, kill_process, pidfd_send_signal};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Maximum number of scans for new processes. Each scan stops what it finds, so two scans usually suffice.
const MAX_SCANS: usize = 20;
/// Maximum number of bytes of an environment.
const MAX_ENVIRONMENT_BYTES: u64 = 16 << 20;
/// Kills the profiler that was started as `top` and not waited for yet, and the processes that it started,
/// except those of the command. `all_below` states that there is no command.
pub(crate) fn kill(folder: &Path, top: Option<i32>, all_below: bool) {
    let mut stopped: BTreeMap<i32, Option<OwnedFd>> = BTreeMap::new();
    let own = std::process::id() as i32;
    for _ in 0..MAX_SCANS {
        let before = stopped.len();
        for pid in own_processes().filter(|pid| *pid != own) {
            if stopped.contains_key(&pid) {
                continue;
            }
            // A pidfd cannot refer to a later process with this number.
            let pidfd = process::open_pidfd(pid);
            let is_of_top = top.is_some_and(|top| pid == top || all_below && process::is_below(pid, top));
            if is_of_top || inherited(pid, folder) {
                send(pid, pidfd.as_ref(), Signal::STOP);
                stopped.insert(pid, pidfd);
            }
        }
        if stopped.len() == before {
            break;
        }
    }
    for (pid, pidfd) in &stopped {
        send(*pid, pidfd.as_ref(), Signal::KILL);
    }
}

fn send(pid: i32, pidfd: Option<&OwnedFd>, signal: Signal) {
    let _ = match (pidfd, Pid::from_raw(pid)) {
        (Some(pidfd), _) => pidfd_send_signal(pidfd, signal),
        (None, Some(pid)) => kill_process(pid, signal),
        (None, None) => Ok(()),
    };
}

/// Whether a process of this user has the path of a folder in its arguments or variables.
pub(super) fn know(folder: &Path) -> bool {
    let own = std::process::id() as i32;
    own_processes().filter(|pid| *pid != own).any(|pid| {
        ["cmdline", "environ"].iter().any(|file| contains(&read(pid, file), folder.as_os_str().as_bytes()))
    })
}

/// Returns the processes of this user.
fn own_processes() -> impl Iterator<Item = i32> {
    let user = rustix::process::geteuid().as_raw();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(move |entry| {
        let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
        entry.metadata().is_ok_and(|found| found.uid() == user).then_some(pid)
    })
}

fn inherited(pid: i32, folder: &Path) -> bool {
    let mut entry = format!("{PROFILER}=").into_bytes();
    entry.extend(folder.as_os_str().as_bytes());
    read(pid, "environ").split(|byte| *byte == 0).any(|variable| variable == entry)
}

fn read(pid: i32, file: &str) -> Vec<u8> {
    // A file that cannot be read completely belongs to another user.
    read_at_most(format!("/proc/{pid}/{file}"), MAX_ENVIRONMENT_BYTES)
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len().max(1)).any(|window| window == part)
}
