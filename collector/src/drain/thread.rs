//! The collecting thread: waits for events, receives new rings, reads all of them, and ends.

use super::collector_command::{CollectorCommand, CommandEnd};
use super::listener::RingListener;
use super::pause::{
    MAX_PAUSE, MAX_PAUSE_WITHOUT_WAKEUP, PAUSE_WITHOUT_RINGS, RingLook, longest_pause, next_pause,
};
use super::rings::{BYTES_PER_TURN, RingDrain};
use crate::host::event_flag::EventFlag;
use crate::host::poll::timespec;
use rpd_shard::record::ProcessExit;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::AsFd;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Maximum time that rows wait for their batch to fill: a little less than the longest pause, so that each
/// round after such a pause sends them.
const SEND_EVERY: Duration = Duration::from_millis(300);
const _: () = assert!(SEND_EVERY.as_millis() < MAX_PAUSE.as_millis());
/// Time between two readings of the clocks.
const CLOCKS_EVERY: Duration = Duration::from_secs(5);
/// Maximum number of attempts at the end to receive rings that wait for a descriptor or memory, and the pause before each.
const MAX_ROUNDS: usize = 1000;
const ROUND: Duration = Duration::from_millis(1);

/// The state of the collecting thread.
pub(super) struct CollectingThread {
    pub(super) listener: RingListener,
    pub(super) commands: Receiver<CollectorCommand>,
    /// An eventfd: a command was sent, or a producer has called.
    pub(super) wake: EventFlag,
    /// Not locked during a wait.
    pub(super) drain: Arc<Mutex<RingDrain>>,
}

/// Result of a wait.
struct SleepOutcome {
    /// Indices of the processes that have ended. Everything that they recorded is in their rings, or in the
    /// socket.
    ended: Vec<usize>,
    /// A producer has called.
    is_called: bool,
}

impl CollectingThread {
    /// Runs until the command has ended and everything it recorded was sent.
    pub(super) fn run(mut self) {
        let mut pause = PAUSE_WITHOUT_RINGS;
        let (mut sent, mut clocks) = (Instant::now(), Instant::now());
        let finish = loop {
            let SleepOutcome { ended, is_called } = self.sleep(pause);
            let (finish, warned) = self.take_commands();
            if let Some(finish) = finish {
                break finish;
            }
            self.take_in();
            let mut drain = lock(&self.drain);
            let fullness = drain.drain_all(BYTES_PER_TURN).max(drain.take_wakeup_fullness().unwrap_or(0.0));
            if let Some(signal) = warned {
                drain.sync(signal);
                sent = Instant::now();
            }
            for at in ended {
                drain.end_source(at, ProcessExit::Unknown);
            }
            let is_exhausted = self.listener.is_exhausted();
            let longest = longest_pause(drain.is_watched() && !is_exhausted, is_called);
            pause = match drain.is_empty() && !is_exhausted {
                true => PAUSE_WITHOUT_RINGS,
                false => next_pause(RingLook { pause, is_called, fullness, longest }),
            };
            if clocks.elapsed() >= CLOCKS_EVERY {
                clocks = Instant::now();
                drain.read_clocks();
                drain.give_back_idle_memory();
            }
            if sent.elapsed() >= SEND_EVERY {
                sent = Instant::now();
                drain.send();
            }
        };
        self.finish(finish);
    }

    /// Returns the next command: to finish, or to write everything because of a signal.
    fn take_commands(&self) -> (Option<CommandEnd>, Option<i32>) {
        // Cleared before the commands are read, so that a later command wakes the thread again.
        self.wake.clear();
        let (mut finish, mut warned) = (None, None);
        for command in self.commands.try_iter() {
            match command {
                CollectorCommand::Finish(last) => finish = Some(last),
                CollectorCommand::Sync(signal) => warned = Some(signal),
            }
        }
        (finish, warned)
    }

    /// Waits for events, at most for the pause. In a long pause producers may call as well.
    fn sleep(&self, pause: Duration) -> SleepOutcome {
        if pause <= MAX_PAUSE_WITHOUT_WAKEUP {
            return SleepOutcome { ended: self.wait(pause), is_called: false };
        }
        let can_sleep = lock(&self.drain).fall_asleep();
        let ended = self.wait(if can_sleep { pause } else { Duration::ZERO });
        let is_called = lock(&self.drain).wake_up() || !can_sleep;
        SleepOutcome { ended, is_called }
    }

    /// Waits for descriptors, at most for the pause. Returns the processes that have ended.
    fn wait(&self, pause: Duration) -> Vec<usize> {
        let processes = lock(&self.drain).pidfds();
        let pidfds = processes.iter().map(|(_, pidfd)| pidfd.as_fd());
        let others = std::iter::once(self.wake.descriptor()).chain(self.listener.descriptors());
        let mut all: Vec<PollFd<'_>> =
            pidfds.chain(others).map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        let ready = poll(&mut all, Some(&timespec(pause))).unwrap_or(0);
        if ready == 0 {
            return Vec::new();
        }
        let ended = all.iter().zip(&processes).filter(|(fd, _)| !fd.revents().is_empty());
        ended.map(|(_, (at, _))| *at).collect()
    }

    /// Receives new rings.
    fn take_in(&mut self) {
        let mut arrivals = Vec::new();
        self.listener.receive(|arrival| arrivals.push(arrival));
        lock(&self.drain).take_in(arrivals);
    }

    /// Finishes after the command has ended. Reads other processes below it once more. What is open in those
    /// stays open.
    fn finish(mut self, finish: CommandEnd) {
        self.take_in();
        lock(&self.drain).drain_all(BYTES_PER_TURN);
        lock(&self.drain).end_living(finish);
        // Ended processes have freed descriptors and memory for rings that still wait for them: soon, as a thread that waited for
        // calls of a producer still has its ring.
        let mut rounds = 0;
        while self.listener.is_exhausted() && rounds < MAX_ROUNDS {
            rounds += 1;
            std::thread::sleep(ROUND);
            self.take_in();
            lock(&self.drain).end_living(finish);
        }
        let mut drain = lock(&self.drain);
        if self.listener.is_exhausted() {
            drain.lose_rings();
        }
        drain.finish(finish);
    }
}

/// A thread that panicked leaves the rings readable.
pub(super) fn lock(drain: &Mutex<RingDrain>) -> MutexGuard<'_, RingDrain> {
    drain.lock().unwrap_or_else(PoisonError::into_inner)
}
