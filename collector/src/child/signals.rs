//! Signals to rpd-collect that are meant for the command.
//!
//! The command has to see every signal as often as it would without us. What matters is whom the
//! sender addressed, and the kernel only tells who sent:
//!
//! * The kernel itself (ctrl-C, a terminal that hangs up) signals the whole process group, of which
//!   the command is a member: not passed on.
//! * The command or a process below it that signals its parent or its group has seen it, or does not
//!   want it: not passed on.
//! * If the command has no handler for the signal and does not block it, it does not matter how often it gets it: passed
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
//! While a profiler that is to start the command starts, signals are its own, and one that would end a program without a
//! handler ends the job: [`cancelled`] tells who starts the command. What the profiler was sent and the command began nevertheless,
//! the command is sent once more: it has no handler so early, so this only makes sure.
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
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
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
/// Signals that end jobs.
const ENDS: [i32; 4] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM];
/// Signals that stop a process.
const STOPS: [i32; 3] = [SIGTSTP, SIGTTIN, SIGTTOU];
/// Signals that end no program that has no handler for them.
const HARMLESS: [i32; 6] = [SIGWINCH, SIGURG, SIGCONT, SIGTSTP, SIGTTIN, SIGTTOU];
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
pub(crate) fn survive() -> io::Result<()> {
    for signal in FORWARDED.into_iter().chain(REAL_TIME).chain([SIGPIPE, SIGXFSZ]) {
        signal_hook::flag::register(signal, Arc::default())?;
    }
    Ok(())
}

/// A signal that ended the job before its command ran; 0 if there was none.
static CANCELLED: AtomicI32 = AtomicI32::new(0);

/// The signal by which the job ends although its command does not run yet. A command would have no handler for it so
/// early. Who prepares something looks from time to time.
pub(crate) fn cancelled() -> Option<i32> {
    Some(CANCELLED.load(Relaxed)).filter(|signal| *signal != 0)
}

/// Whether a signal came that ends jobs.
static ENDING: AtomicBool = AtomicBool::new(false);

/// Whether a signal came that ends jobs: what is still there is killed soon.
pub(crate) fn is_ending() -> bool {
    ENDING.load(Relaxed)
}

/// Passes signals on to the command from now until the process ends.
pub(crate) struct SignalForwarder {
    aim: Arc<Aim>,
}

/// Whom signals are passed on to.
struct Aim {
    state: Mutex<State>,
    changed: Condvar,
}

/// Hears the number of a signal.
pub(crate) type OnWarning = Box<dyn Fn(i32) + Send>;

#[derive(Default)]
struct State {
    target: Option<Target>,
    /// Nobody is started for a while.
    alone: bool,
    /// What a batch system sends some time before the end becomes SIGTERM, unless the command handles it.
    ends_early: bool,
    /// Passed on to a profiler that has not started the command.
    sent: Vec<i32>,
    /// Told of signals that come some time before the end.
    warned: Option<OnWarning>,
    /// Passed on to nobody but a handler.
    warn_signal: Option<i32>,
    /// The command has ended: nothing is passed on to who stays above it.
    spared: bool,
}

struct Target {
    pid: i32,
    pidfd: Option<OwnedFd>,
    /// The process that was started: the command, or a profiler above it.
    top: i32,
    /// It is not a profiler that is to start the command.
    is_command: bool,
}

impl SignalForwarder {
    /// Catches the signals. Handlers fall back to the default in the command when it is started, so
    /// its dispositions are what ours were; those that were ignored stay so and are not caught.
    /// They are held until there is somebody to pass them on to, and [`cancelled`] tells of them. With `alone`, that may
    /// take a time, and what stops a process stops this one.
    pub(crate) fn install(alone: bool) -> io::Result<SignalForwarder> {
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
        let state = State { alone, ..State::default() };
        let aim = Arc::new(Aim { state: Mutex::new(state), changed: Condvar::new() });
        let for_thread = Arc::clone(&aim);
        std::thread::Builder::new().name("rpd-signals".to_owned()).spawn(move || {
            let mut stopped = false;
            for origin in signals.forever() {
                if for_thread.is_alone() && stop_alone(origin.signal) {
                    continue;
                }
                ENDING.fetch_or(ENDS.contains(&origin.signal), Relaxed);
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

    /// The command is about to be started. With `ends_early`, what a batch system sends some time before the end becomes
    /// SIGTERM, unless the command handles it: a profiler writes when the program ends, and it cannot write after SIGKILL.
    pub(crate) fn get_ready(&self, ends_early: bool) {
        let mut state = self.aim.state();
        (state.alone, state.ends_early) = (false, ends_early);
    }

    /// Has somebody told of each signal that comes before an end, from now on. `warn_signal` is one that ends nobody: it is
    /// passed on if the command handles it.
    pub(crate) fn warn(&self, warn_signal: Option<i32>, warned: OnWarning) {
        let mut state = self.aim.state();
        (state.warn_signal, state.warned) = (warn_signal, Some(warned));
    }

    /// Names a profiler that is to start the command. Signals that came before are passed on now.
    pub(crate) fn aim_at_profiler(&self, pid: i32) {
        self.aim.set(Target::new(pid, pid, false));
    }

    /// The command has ended, and a profiler above it may still write: signals only tell that the end is near.
    pub(crate) fn spare(&self) {
        self.aim.state().spared = true;
    }

    /// Names the command. Signals that came before are passed on now. `top` is the process that was started: the command
    /// itself, or a profiler that stays above it.
    pub(crate) fn aim_at_command(&self, pid: i32, top: i32) {
        self.aim.set(Target::new(pid, top, true));
    }
}

impl Target {
    fn new(pid: i32, top: i32, is_command: bool) -> Target {
        let pidfd = Pid::from_raw(pid).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        Target { pid, pidfd, top, is_command }
    }

    fn send(&self, number: i32) {
        // By pidfd, which cannot hit a later process with the same number.
        match (Signal::from_named_raw(number), &self.pidfd) {
            (Some(signal), Some(pidfd)) => {
                let _ = pidfd_send_signal(pidfd, signal);
            }
            // The real-time ones have no names. They are rare enough for a shell.
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

    fn is_alone(&self) -> bool {
        self.state().alone
    }

    /// Waits until there is somebody to pass signals on to.
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
        // A profiler may have kept for itself what was for the job.
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
        if target.is_some_and(|target| sender > 0 && is_below(sender, target.top)) {
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

/// Stops this process by a signal that means this. Returns whether that is all that the
/// signal means.
fn stop_alone(signal: i32) -> bool {
    if STOPS.contains(&signal) {
        let _ = kill_process(getpid(), Signal::STOP);
    }
    STOPS.contains(&signal) || signal == SIGCONT
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

fn is_for_us_alone(origin: &Origin, target: &Target) -> bool {
    let command = target.pid;
    if matches!(origin.cause, Cause::Kernel) {
        return TIMERS.contains(&origin.signal);
    }
    let Some(sender) = origin.process.as_ref().map(|process| process.pid) else { return true };
    if sender > 0 && is_below(sender, target.top) {
        return false;
    }
    if !takes(command, origin.signal) {
        return true;
    }
    // A sender outside of our pid namespace has number 0 and no name.
    let name = std::fs::read_to_string(format!("/proc/{sender}/comm")).unwrap_or_default();
    let signals_all = LAUNCHERS.contains(&name.trim()) || name.trim() == "timeout" && leads_our_group(sender);
    !signals_all
}

/// Whether a process has a handler for a signal, or takes it by a descriptor or `sigwait`, for which it blocks it first.
fn takes(pid: i32, signal: i32) -> bool {
    let status = format!("/proc/{pid}/status");
    ["SigCgt:", "SigBlk:"].iter().any(|set| is_set(set, &status, signal)) || waits_for_signals(pid)
}

/// Whether a thread of a process is in `sigwait`. What it waits for is not among what is blocked meanwhile.
fn waits_for_signals(pid: i32) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let place = |thread: std::fs::DirEntry| std::fs::read_to_string(thread.path().join("wchan"));
    threads.filter_map(|thread| place(thread).ok()).any(|place| place.contains("sigtimedwait"))
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
        match crate::host::process_stat::process_stat(pid) {
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
