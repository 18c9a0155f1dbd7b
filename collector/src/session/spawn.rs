//! Starts the collector process: this executable again, beside the command.

use crate::host::poll::wait_readable;
use crate::host::process::open_pidfd;
use rustix::fd::OwnedFd;
use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// First argument of the collector process.
pub(crate) const COLLECT: &str = "__collect";
/// `FD_CLOEXEC` as `/proc/self/fdinfo` shows it, octal.
const CLOSED_BY_EXEC: u32 = 0o2_000_000;
/// Shells that can close descriptors, and the highest descriptor that they can name.
const SHELLS: [(&str, &[&str], u32); 2] = [("/bin/bash", &["-p", "-c"], u32::MAX), ("/bin/sh", &["-c"], 9)];

/// Descriptors beyond stdin, stdout and stderr that are for the command. If the collector held them as well,
/// their far ends would wait for it after the command has ended.
#[derive(Debug)]
pub(super) struct InheritedDescriptors(Vec<u32>);

impl InheritedDescriptors {
    /// Returns those of this process now. Must be called before it opens any of its own.
    pub(super) fn of_this_process() -> InheritedDescriptors {
        let open = fs::read_dir("/proc/self/fd").into_iter().flatten();
        let numbers = open.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        InheritedDescriptors(numbers.filter(|number| *number > 2 && is_inherited(*number)).collect())
    }
}

fn is_inherited(number: u32) -> bool {
    let info = fs::read_to_string(format!("/proc/self/fdinfo/{number}")).unwrap_or_default();
    let flags = info.lines().find_map(|line| line.strip_prefix("flags:"));
    flags.and_then(|flags| u32::from_str_radix(flags.trim(), 8).ok()).is_some_and(|f| f & CLOSED_BY_EXEC == 0)
}

/// Starts the collector process with its end of the control channel and the listening socket, in a process
/// group of its own, so that signals to the job's group do not reach it.
pub(super) fn start(
    inherited: &InheritedDescriptors,
    control: OwnedFd,
    socket: OwnedFd,
) -> io::Result<Child> {
    let mut command = executable(&inherited.0);
    command.stdin(Stdio::from(control)).stdout(Stdio::from(socket)).stderr(Stdio::null());
    command.process_group(0).spawn()
}

/// Waits for a process that is about to end.
pub(super) fn wait(process: &mut Child, until: Instant) -> Option<ExitStatus> {
    let pidfd = open_pidfd(process.id() as i32);
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let ended = process.try_wait().ok()?;
        if ended.is_some() || left.is_zero() {
            return ended;
        }
        match &pidfd {
            Some(pidfd) => drop(wait_readable(pidfd, Some(left))),
            None => std::thread::sleep(Duration::from_millis(1)),
        }
    }
}

fn executable(inherited: &[u32]) -> Command {
    let shell = SHELLS.iter().find(|(shell, ..)| !inherited.is_empty() && Path::new(shell).exists());
    let Some((shell, options, highest)) = shell else {
        // The executable may have been renamed or removed.
        let mut command = Command::new("/proc/self/exe");
        command.arg0("rpd-collect").arg(COLLECT);
        return command;
    };
    // Safe code cannot close a descriptor that it did not open.
    let closed: String =
        inherited.iter().filter(|number| *number <= highest).map(|number| format!(" {number}>&-")).collect();
    let mut command = Command::new(shell);
    command.args(*options).arg(shell_script(&closed));
    command.arg(format!("/proc/{}/exe", std::process::id())).arg(COLLECT);
    command.arg(std::env::current_exe().unwrap_or_else(|_| "rpd-collect".into()));
    command
}

/// Executes `$0 $1`. Executes `$2 $1` instead if the parent process was killed in the meantime, since the
/// link `$0` in /proc is gone then.
fn shell_script(closed: &str) -> String {
    format!("exec{closed}; if [ -x \"$0\" ]; then exec \"$0\" \"$1\"; fi; exec \"$2\" \"$1\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_collector_starts_after_its_parent_was_killed() {
        for (shell, options, _) in SHELLS.iter().filter(|(shell, ..)| Path::new(shell).exists()) {
            for link in ["/proc/self/no-link", "/bin/echo"] {
                let mut command = Command::new(shell);
                command.args(*options).arg(shell_script(" 5>&-")).args([link, COLLECT, "/bin/echo"]);
                let output = command.output().unwrap();
                assert_eq!(output.stdout, format!("{COLLECT}\n").as_bytes(), "{shell} {link}: {output:?}");
            }
        }
    }
}
