//! Passes signals that rpd-collect receives on to the command.
//!
//! The command must receive every signal as often as without rpd-collect. That depends on the target of the
//! sender, but the kernel reports only the sender:
//!
//! * The kernel itself (ctrl-C, a terminal that hangs up) signals the whole process group, which includes the
//!   command: not passed on.
//! * A sender that is the command or a process below it, and signals its parent or its group, has received
//!   the signal or does not want it: not passed on.
//! * If the command neither handles nor blocks the signal, the number of signals does not matter: passed on,
//!   so that it is never lost.
//! * A launcher's daemon signals the group or the whole step: not passed on to a handler.
//! * A timer that was set before rpd-collect was started (`alarm`, then exec) belongs to the kernel and runs
//!   on in this process alone: passed on.
//! * Any other sender is assumed to signal this process alone, as `kill PID` does: passed on once. Known
//!   limit: `kill -- -GROUP` typed by hand reaches a handler twice.
//!
//! The kernel merges two pending signals with the same number. If the first one was for the group, a second
//! one for this process alone is lost with it if this process did not run in between.
//!
//! The parent must see this process stopped when the command is stopped. So after SIGTSTP, SIGTTIN and
//! SIGTTOU this process stops if the command does, and it passes SIGCONT on. SIGSTOP cannot be caught: sent
//! to this process alone, it leaves the command running.
//!
//! While a profiler is about to start the command, it receives the signals, and a signal that would end a
//! program without a handler ends the job: [`cancelled`] reports it. Signals that were sent to the profiler
//! are sent again to a command that starts nevertheless. It cannot have a handler so early, so a second
//! signal is harmless.
//!
//! Never passed on: signals that report an error or an event of this process itself (SIGSEGV, SIGBUS, SIGFPE,
//! SIGILL, SIGSYS, SIGTRAP, SIGABRT, SIGPIPE, SIGXFSZ, SIGCHLD). The value of a real-time signal is lost.

use crate::host::process;
use rustix::fd::OwnedFd;
use rustix::process::{Signal, getpid, kill_process, pidfd_send_signal};
use signal_hook::consts::{
    SIGALRM, SIGCHLD, SIGCONT, SIGHUP, SIGINT, SIGIO, SIGPIPE, SIGPROF, SIGQUIT, SIGTERM, SIGTSTP, SIGTTIN,
    SIGTTOU, SIGURG, SIGUSR1, SIGUSR2, SIGVTALRM, SIGWINCH, SIGXCPU, SIGXFSZ,
};
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::WithOrigin;
use signal_hook::low_level::siginfo::{Cause, Origin};
use std::io;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Signals that may concern the command, besides the real-time ones.
const FORWARDED: [i32; 19] = [
    SIGHUP, SIGINT, SIGQUIT, SIGUSR1, SIGUSR2, SIGTERM, SIGALRM, SIGXCPU, SIGVTALRM, SIGPROF, SIGIO,
    SIGWINCH, SIGURG, SIGCONT, SIGTSTP, SIGTTIN, SIGTTOU, SIGPWR, SIGSTKFLT,
];
const SIGPWR: i32 = Signal::POWER.as_raw();
const SIGSTKFLT: i32 = Signal::STKFLT.as_raw();
/// Real-time signals. The C library uses the two below them.
const REAL_TIME: std::ops::RangeInclusive<i32> = 34..=64;
/// Signals of timers that survive an exec.
const TIMERS: [i32; 3] = [SIGALRM, SIGVTALRM, SIGPROF];
/// Signals that a batch system sends some time before it kills a job.
const EARLY: [i32; 3] = [SIGUSR1, SIGUSR2, SIGXCPU];
/// Signals that end jobs.
const ENDS: [i32; 4] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM];
/// Signals that stop a process.
const STOPS: [i32; 3] = [SIGTSTP, SIGTTIN, SIGTTOU];
/// Signals that do not end a program by default.
const HARMLESS: [i32; 6] = [SIGWINCH, SIGURG, SIGCONT, SIGTSTP, SIGTTIN, SIGTTOU];
/// Time that a command has to stop. After that this process keeps running.
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

/// Ignores every signal that would end or stop this process and can be caught, because it may be sent to the
/// whole step. Signals that report an error of this process itself keep their action.
pub(crate) fn survive() -> io::Result<()> {
    for signal in FORWARDED.into_iter().chain(REAL_TIME).chain([SIGPIPE, SIGXFSZ]) {
        signal_hook::flag::register(signal, Arc::default())?;
    }
    Ok(())
}

/// A signal that ended the job before its command ran; 0 for none.
static CANCELLED: AtomicI32 = AtomicI32::new(0);

/// Returns the signal that ends the job although its command does not run yet. The command could not have a
/// handler so early. Callers that prepare something poll this.
pub(crate) fn cancelled() -> Option<i32> {
    Some(CANCELLED.load(Relaxed)).filter(|signal| *signal != 0)
}

/// A signal that ends jobs has arrived.
static JOB_IS_ENDING: AtomicBool = AtomicBool::new(false);

/// Whether a signal that ends jobs has arrived. Processes that still run are killed soon.
pub(crate) fn job_is_ending() -> bool {
    JOB_IS_ENDING.load(Relaxed)
}

/// Passes signals on to the command until this process ends.
pub(crate) struct SignalForwarder {
    aim: Arc<Aim>,
}

/// The process to which signals are passed on.
struct Aim {
    state: Mutex<State>,
    changed: Condvar,
}

/// Receives the number of a signal.
pub(crate) type OnWarning = Box<dyn Fn(i32) + Send>;

#[derive(Default)]
struct State {
    target: Option<Target>,
    /// No process is started for a while.
    alone: bool,
    /// Convert early signals of a batch system to SIGTERM, unless the command handles them.
    ends_early: bool,
    /// Signals that were passed on to a profiler that has not started the command.
    sent: Vec<i32>,
    /// Called for signals that announce the end of the job.
    warned: Option<OnWarning>,
    /// Pass this signal on only to a handler.
    warn_signal: Option<i32>,
    /// The command has ended: pass nothing on to the profiler above it.
    spared: bool,
}

struct Target {
    pid: i32,
    pidfd: Option<OwnedFd>,
    /// The process that was started: the command, or a profiler above it.
    top: i32,
    /// Not a profiler that is about to start the command.
    is_command: bool,
}

impl SignalForwarder {
    /// Catches the signals. An exec resets handlers, so the command starts with the dispositions that this
    /// process had. Signals that were ignored stay ignored and are not caught. Signals are held until there
    /// is a target, and [`cancelled`] reports them. With `alone`, that may take time, and a signal that stops
    /// processes stops this one.
    pub(crate) fn install(alone: bool) -> io::Result<SignalForwarder> {
        let ignored = |signal: i32| is_set("SigIgn:", "/proc/self/status", signal);
        let caught = FORWARDED.into_iter().chain(REAL_TIME).filter(|signal| !ignored(*signal));
        if ignored(SIGCHLD) {
            // While SIGCHLD is ignored the kernel discards the exit status of a child.
            signal_hook::flag::register(SIGCHLD, Arc::default())?;
        }
        let mut signals = SignalsInfo::<WithOrigin>::new(caught)?;
        if !ignored(SIGXFSZ) {
            // Writing to a stderr that exceeds `ulimit -f` must not end this process.
            signal_hook::flag::register(SIGXFSZ, Arc::default())?;
        }
        let state = State { alone, ..State::default() };
        let aim = Arc::new(Aim { state: Mutex::new(state), changed: Condvar::new() });
        let for_thread = Arc::clone(&aim);
        std::thread::Builder::new().name("rpd-signals".to_owned()).spawn(move || {
            let mut stopped = false;
            for origin in signals.forever() {
                if for_thread.state().alone && stop_alone(origin.signal) {
                    continue;
                }
                JOB_IS_ENDING.fetch_or(ENDS.contains(&origin.signal), Relaxed);
                for_thread.note(&origin);
                let pid = for_thread.pid();
                // A group that is continued was continued as a whole.
                let continued = origin.signal == SIGCONT && std::mem::take(&mut stopped);
                if continued && !is_stopped(pid) {
                    continue;
                }
                for_thread.forward(&origin);
                if STOPS.contains(&origin.signal) && comes_to_a_stop(pid) {
                    stopped = true;
                    let _ = kill_process(getpid(), Signal::STOP);
                }
            }
        })?;
        Ok(SignalForwarder { aim })
    }

    /// Announces that the command is about to be started. With `ends_early`, early signals of a batch system
    /// become SIGTERM, unless the command handles them: a profiler writes when the program ends, which it
    /// cannot after SIGKILL.
    pub(crate) fn get_ready(&self, ends_early: bool) {
        let mut state = self.aim.state();
        (state.alone, state.ends_early) = (false, ends_early);
    }

    /// Calls `warned` from now on for each signal that announces the end of the job. `warn_signal` is a
    /// signal that does not end the command: it is passed on if the command handles it.
    pub(crate) fn warn(&self, warn_signal: Option<i32>, warned: OnWarning) {
        let mut state = self.aim.state();
        (state.warn_signal, state.warned) = (warn_signal, Some(warned));
    }

    /// Names a profiler that is about to start the command. Passes on the signals that arrived before.
    pub(crate) fn aim_at_profiler(&self, pid: i32) {
        self.aim.set(Target::new(pid, pid, false));
    }

    /// Announces that the command has ended while a profiler above it may still write. From now on signals
    /// only announce the end of the job.
    pub(crate) fn spare(&self) {
        self.aim.state().spared = true;
    }

    /// Names the command. Passes on the signals that arrived before. `top` is the process that was started:
    /// the command, or a profiler above it.
    pub(crate) fn aim_at_command(&self, pid: i32, top: i32) {
        self.aim.set(Target::new(pid, top, true));
    }
}

impl Target {
    fn new(pid: i32, top: i32, is_command: bool) -> Target {
        Target { pid, pidfd: process::open_pidfd(pid), top, is_command }
    }

    fn send(&self, number: i32) {
        // A pidfd cannot refer to a later process with the same number.
        match (Signal::from_named_raw(number), &self.pidfd) {
            (Some(signal), Some(pidfd)) => {
                let _ = pidfd_send_signal(pidfd, signal);
            }
            // rustix has no names for real-time signals. They are rare enough for a shell.
            _ => {
                let command = format!("kill -{number} {}", self.pid);
                let _ = Command::new("/bin/sh").args(["-c", &command]).stderr(Stdio::null()).status();
            }
        }
    }
}

impl Aim {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until there is a process to pass signals on to.
    fn pid(&self) -> i32 {
        let mut state = self.state();
        loop {
            if let Some(target) = &state.target {
                return target.pid;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn set(&self, target: Target) {
        let mut state = self.state();
        // The profiler may have consumed a signal that was for the job.
        if target.is_command {
            std::mem::take(&mut state.sent).into_iter().for_each(|signal| target.send(signal));
        }
        state.target = Some(target);
        self.changed.notify_all();
    }

    /// Notes a signal that ends the job before its command runs.
    fn note(&self, origin: &Origin) {
        let state = self.state();
        let target = state.target.as_ref();
        if HARMLESS.contains(&origin.signal) || target.is_some_and(|target| target.is_command) {
            return;
        }
        let sender = origin.process.as_ref().map_or(0, |process| process.pid);
        if target.is_some_and(|target| sender > 0 && process::is_below(sender, target.top)) {
            return;
        }
        let ends = state.ends_early && EARLY.contains(&origin.signal);
        let signal = if ends { SIGTERM } else { origin.signal };
        let _ = CANCELLED.compare_exchange(0, signal, Relaxed, Relaxed);
    }

    fn forward(&self, origin: &Origin) {
        let mut state = self.state();
        if let Some(warned) = state.warned.as_ref().filter(|_| comes_before_an_end(origin.signal)) {
            warned(origin.signal);
        }
        let Some(target) = state.target.as_ref().filter(|_| !state.spared) else { return };
        let is_warning = state.warn_signal == Some(origin.signal);
        if is_warning && !state.ends_early && !takes(target.pid, origin.signal) {
            return;
        }
        let ends = state.ends_early && EARLY.contains(&origin.signal) && !takes(target.pid, origin.signal);
        if !ends && !is_for_us_alone(origin, target) {
            return;
        }
        let number = if ends { SIGTERM } else { origin.signal };
        target.send(number);
        if !target.is_command && !HARMLESS.contains(&number) && !state.sent.contains(&number) {
            state.sent.push(number);
        }
    }
}

fn comes_before_an_end(signal: i32) -> bool {
    EARLY.contains(&signal) || ENDS.contains(&signal)
}

/// Stops this process if the signal means that. Returns whether stopping was all that the signal means.
fn stop_alone(signal: i32) -> bool {
    if STOPS.contains(&signal) {
        let _ = kill_process(getpid(), Signal::STOP);
    }
    STOPS.contains(&signal) || signal == SIGCONT
}

/// Whether a process is stopped, or stops soon.
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

/// Whether `/proc/PID/stat` shows the process as stopped.
fn is_stopped(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with('T'))
}

fn is_for_us_alone(origin: &Origin, target: &Target) -> bool {
    let command = target.pid;
    if matches!(origin.cause, Cause::Kernel) {
        return TIMERS.contains(&origin.signal);
    }
    let Some(sender) = origin.process.as_ref().map(|process| process.pid) else { return true };
    if sender > 0 && process::is_below(sender, target.top) {
        return false;
    }
    if !takes(command, origin.signal) {
        return true;
    }
    // A sender outside of this pid namespace has number 0 and no name.
    let name = std::fs::read_to_string(format!("/proc/{sender}/comm")).unwrap_or_default();
    let signals_all = LAUNCHERS.contains(&name.trim()) || name.trim() == "timeout" && leads_our_group(sender);
    !signals_all
}

/// Whether a process handles a signal, or receives it through a descriptor or `sigwait`, for which it blocks
/// the signal.
fn takes(pid: i32, signal: i32) -> bool {
    let status = format!("/proc/{pid}/status");
    ["SigCgt:", "SigBlk:"].iter().any(|set| is_set(set, &status, signal)) || waits_for_signals(pid)
}

/// Whether a thread of a process is in `sigwait`. The kernel removes the awaited signals from the blocked
/// ones meanwhile.
fn waits_for_signals(pid: i32) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let place = |thread: std::fs::DirEntry| std::fs::read_to_string(thread.path().join("wchan"));
    threads.filter_map(|thread| place(thread).ok()).any(|place| place.contains("sigtimedwait"))
}

/// `timeout` creates a group of its own and signals all of it, unless it runs with `--foreground`.
fn leads_our_group(pid: i32) -> bool {
    rustix::process::getpgrp().as_raw_nonzero().get() == pid
}

/// Whether a set of `/proc/PID/status` contains a signal.
fn is_set(set: &str, status: &str, signal: i32) -> bool {
    let status = std::fs::read_to_string(status).unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix(set));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    mask >> (signal - 1) & 1 == 1
}
