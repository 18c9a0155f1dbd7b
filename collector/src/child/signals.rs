//! Signals to rpd-collect that are meant for the command.
//!
//! The command has to see every signal as often as it would without us. What matters is whom the
//! sender addressed, and the kernel only tells who sent:
//!
//! * The kernel itself (ctrl-C, a terminal that hangs up) signals the whole process group, of which
//!   the command is a member: not passed on.
//! * The command or a process below it that signals its parent or its group has seen it, or does not
//!   want it: not passed on.
//! * If the command has no handler for the signal, it does not matter how often it gets it: passed
//!   on, so that it is never lost.
//! * A launcher's daemon signals the group or the whole step: not passed on to a handler.
//! * A timer that was set before rpd-collect was started (`alarm`, then exec) is the kernel's, and
//!   runs on in this process alone: passed on.
//! * Anyone else is taken to mean this process alone, as `kill PID` does: passed on once. Known
//!   limit: `kill -- -GROUP` typed by hand reaches a handler twice.
//!
//! To the kernel, two signals of one number that a process has not taken yet are one. If the first was
//! for the group, a second one for us alone that comes before we ran again is lost with it.
//!
//! Who waits for us has to see us stopped when the command is stopped. So after SIGTSTP, SIGTTIN and
//! SIGTTOU this process stops if the command does, and SIGCONT is passed on. SIGSTOP cannot be
//! caught: sent to this process alone, it leaves the command running.
//!
//! Not passed on: what reports an error or an event of this process itself (SIGSEGV, SIGBUS, SIGFPE,
//! SIGILL, SIGSYS, SIGTRAP, SIGABRT, SIGPIPE, SIGXFSZ, SIGCHLD). The value of a real-time signal is
//! lost.

use rustix::fd::OwnedFd;
use rustix::process::{Pid, PidfdFlags, Signal, getpid, kill_process, pidfd_open, pidfd_send_signal};
use signal_hook::consts::{
    SIGALRM, SIGCHLD, SIGCONT, SIGHUP, SIGINT, SIGIO, SIGPIPE, SIGPROF, SIGQUIT, SIGTERM, SIGTSTP, SIGTTIN,
    SIGTTOU, SIGURG, SIGUSR1, SIGUSR2, SIGVTALRM, SIGWINCH, SIGXCPU, SIGXFSZ,
};
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::WithOrigin;
use signal_hook::low_level::siginfo::{Cause, Origin};
use std::io;
use std::process::{Command, Stdio};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// Signals that may mean something to the command, besides the real-time ones.
const FORWARDED: [i32; 19] = [
    SIGHUP, SIGINT, SIGQUIT, SIGUSR1, SIGUSR2, SIGTERM, SIGALRM, SIGXCPU, SIGVTALRM, SIGPROF, SIGIO,
    SIGWINCH, SIGURG, SIGCONT, SIGTSTP, SIGTTIN, SIGTTOU, SIGPWR, SIGSTKFLT,
];
const SIGPWR: i32 = Signal::POWER.as_raw();
const SIGSTKFLT: i32 = Signal::STKFLT.as_raw();
/// Real-time signals; the two below belong to the C library.
const REAL_TIME: std::ops::RangeInclusive<i32> = 34..=64;
/// Signals of timers that survive an exec.
const TIMERS: [i32; 3] = [SIGALRM, SIGVTALRM, SIGPROF];
/// Signals that a batch system sends some time before it kills a job.
const EARLY: [i32; 3] = [SIGUSR1, SIGUSR2, SIGXCPU];
/// Signals that stop a process.
const STOPS: [i32; 3] = [SIGTSTP, SIGTTIN, SIGTTOU];
/// A command that does something before it stops has this long, and then we stay awake.
const TIME_TO_STOP: Duration = Duration::from_secs(1);

/// Daemons that signal whole groups or steps: names as in `/proc/PID/comm`, which has 15 characters.
const LAUNCHERS: [&str; 10] = [
    "slurmstepd",
    "orted",
    "prted",
    "mpirun",
    "mpiexec",
    "prterun",
    "hydra_pmi_proxy",
    "hydra_bstrap_pr",
    "mpiexec.hydra",
    "palsd",
];

/// Lets no signal end or stop this process that can be caught: one may go to the whole step. What
/// reports an error of this process itself still does.
pub fn survive() -> io::Result<()> {
    for signal in FORWARDED.into_iter().chain(REAL_TIME).chain([SIGPIPE, SIGXFSZ]) {
        signal_hook::flag::register(signal, Arc::default())?;
    }
    Ok(())
}

/// Passes signals on to the command from now until the process ends.
pub struct Forwarder {
    target: Arc<OnceLock<Target>>,
}

struct Target {
    pid: i32,
    pidfd: Option<OwnedFd>,
}

impl Forwarder {
    /// Catches the signals. Handlers fall back to the default in the command when it is started, so
    /// its dispositions are what ours were; those that were ignored stay so and are not caught.
    ///
    /// With `ends_early`, what a batch system sends some time before the end becomes SIGTERM, unless the command handles
    /// it: a profiler writes when the program ends, and it cannot write after SIGKILL.
    pub fn install(ends_early: bool) -> io::Result<Forwarder> {
        let ignored = |signal: i32| is_set("SigIgn:", "/proc/self/status", signal);
        let caught = FORWARDED.into_iter().chain(REAL_TIME).filter(|signal| !ignored(*signal));
        if ignored(SIGCHLD) {
            // Where it is ignored, the kernel forgets how a child ended.
            signal_hook::flag::register(SIGCHLD, Arc::default())?;
        }
        let mut signals = SignalsInfo::<WithOrigin>::new(caught)?;
        if !ignored(SIGXFSZ) {
            // A line on stderr, in a file that is over `ulimit -f`, is not worth our end.
            signal_hook::flag::register(SIGXFSZ, Arc::default())?;
        }
        let target = Arc::new(OnceLock::new());
        let for_thread = Arc::clone(&target);
        std::thread::Builder::new().name("rpd-signals".to_owned()).spawn(move || {
            let mut stopped = false;
            for origin in signals.forever() {
                let target: &Target = for_thread.wait();
                // A group that is continued was continued as a whole.
                let continued = origin.signal == SIGCONT && std::mem::take(&mut stopped);
                if continued && !is_stopped(target.pid) {
                    continue;
                }
                forward(&origin, target, ends_early);
                if STOPS.contains(&origin.signal) && comes_to_a_stop(target.pid) {
                    stopped = true;
                    let _ = kill_process(getpid(), Signal::STOP);
                }
            }
        })?;
        Ok(Forwarder { target })
    }

    /// Names the command. Signals that came before are passed on now.
    pub fn set_target(&self, pid: i32) {
        let pidfd = Pid::from_raw(pid).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        let _ = self.target.set(Target { pid, pidfd });
    }
}

fn forward(origin: &Origin, target: &Target, ends_early: bool) {
    let status = format!("/proc/{}/status", target.pid);
    let ends = ends_early && EARLY.contains(&origin.signal) && !is_set("SigCgt:", &status, origin.signal);
    if !ends && !is_for_us_alone(origin, target.pid) {
        return;
    }
    let number = if ends { SIGTERM } else { origin.signal };
    // By pidfd, which cannot hit a later process with the same number.
    match (Signal::from_named_raw(number), &target.pidfd) {
        (Some(signal), Some(pidfd)) => {
            let _ = pidfd_send_signal(pidfd, signal);
        }
        // The real-time ones have no names. They are rare enough for a shell.
        _ => {
            let command = format!("kill -{number} {}", target.pid);
            let _ = Command::new("/bin/sh").args(["-c", &command]).stderr(Stdio::null()).status();
        }
    }
}

/// Whether a process stops now, or soon.
fn comes_to_a_stop(pid: i32) -> bool {
    let began = Instant::now();
    while !is_stopped(pid) {
        if began.elapsed() > TIME_TO_STOP {
            return false;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    true
}

/// Whether `/proc/PID/stat` says so.
fn is_stopped(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with('T'))
}

fn is_for_us_alone(origin: &Origin, command: i32) -> bool {
    if matches!(origin.cause, Cause::Kernel) {
        return TIMERS.contains(&origin.signal);
    }
    let Some(sender) = origin.process.as_ref().map(|process| process.pid) else { return true };
    if sender > 0 && is_below(sender, command) {
        return false;
    }
    if !is_set("SigCgt:", &format!("/proc/{command}/status"), origin.signal) {
        return true;
    }
    // A sender outside of our pid namespace has number 0 and no name.
    let name = std::fs::read_to_string(format!("/proc/{sender}/comm")).unwrap_or_default();
    let signals_all = LAUNCHERS.contains(&name.trim()) || name.trim() == "timeout" && leads_our_group(sender);
    !signals_all
}

/// `timeout` makes a group of its own and signals all of it, unless it is told `--foreground`.
fn leads_our_group(pid: i32) -> bool {
    rustix::process::getpgrp().as_raw_nonzero().get() == pid
}

/// Whether a process is `ancestor` or below it.
fn is_below(mut pid: i32, ancestor: i32) -> bool {
    for _ in 0..64 {
        if pid == ancestor {
            return true;
        }
        match crate::collect::process_stat(pid) {
            Some(stat) if stat.ppid > 1 => pid = stat.ppid,
            _ => return false,
        }
    }
    false
}

/// Whether a signal is in one of the sets of `/proc/PID/status`.
fn is_set(set: &str, status: &str, signal: i32) -> bool {
    let status = std::fs::read_to_string(status).unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix(set));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    mask >> (signal - 1) & 1 == 1
}
