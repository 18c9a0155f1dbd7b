//! The collecting thread: waits for news, takes in new rings, reads all of them, and ends.

use super::listener::RingListener;
use super::pause::{PAUSE_EMPTY, PAUSE_UNWOKEN, RingLook, longest_pause, next_pause};
use super::rings::{BYTES_PER_TURN, RingDrain};
use super::{CollectorCommand, CommandEnd};
use rpd_shard::record::Exit;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, OwnedFd};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Rows wait so long for their batch to fill: a little less than the longest pause, so that each round after one sends them.
const SEND_EVERY: Duration = Duration::from_millis(450);
/// Time between two readings of the clocks.
const CLOCKS_EVERY: Duration = Duration::from_secs(5);
/// Times that rings which wait for a descriptor are asked for at the end.
const MAX_ROUNDS: usize = 1000;

/// The state of the collecting thread.
pub(super) struct CollectingThread {
    pub(super) listener: RingListener,
    pub(super) commands: Receiver<CollectorCommand>,
    /// An eventfd: there is a command, or a producer has called.
    pub(super) wake: Arc<OwnedFd>,
    /// Nobody holds it while waiting.
    pub(super) drain: Arc<Mutex<RingDrain>>,
}

/// What a wait has ended with.
struct News {
    /// Places of the processes that have ended: everything that they recorded is in their rings by now, or
    /// on its way through the socket.
    ended: Vec<usize>,
    /// A producer has called.
    is_called: bool,
}

impl CollectingThread {
    /// Runs until the command has ended and everything it left is handed over.
    pub(super) fn run(mut self) {
        let mut pause = PAUSE_EMPTY;
        let (mut sent, mut clocks) = (Instant::now(), Instant::now());
        let finish = loop {
            let News { ended, is_called } = self.sleep(pause);
            let (finish, warned) = self.told();
            if let Some(finish) = finish {
                break finish;
            }
            self.take_in();
            let mut drain = lock(&self.drain);
            let fullness = drain.drain_all(BYTES_PER_TURN).max(drain.take_called_fullness().unwrap_or(0.0));
            if let Some(signal) = warned {
                drain.keep(signal);
                sent = Instant::now();
            }
            for at in ended {
                drain.end_source(at, Exit::Unknown);
            }
            let is_exhausted = self.listener.is_exhausted();
            let longest = longest_pause(drain.is_watched() && !is_exhausted, is_called);
            pause = match drain.is_empty() && !is_exhausted {
                true => PAUSE_EMPTY,
                false => next_pause(RingLook { pause, is_called, fullness, longest }),
            };
            if clocks.elapsed() >= CLOCKS_EVERY {
                clocks = Instant::now();
                drain.read_clocks();
            }
            if sent.elapsed() >= SEND_EVERY {
                sent = Instant::now();
                drain.send();
            }
        };
        self.finish(finish);
    }

    /// What there is to do: to finish, or to keep what is there because of a signal.
    fn told(&self) -> (Option<CommandEnd>, Option<i32>) {
        // Before the commands are read: one that comes now wakes us again.
        let _ = rustix::io::read(&*self.wake, &mut [0; 8]);
        let (mut finish, mut warned) = (None, None);
        for command in self.commands.try_iter() {
            match command {
                CollectorCommand::Finish(last) => finish = Some(last),
                CollectorCommand::Keep(signal) => warned = Some(signal),
            }
        }
        (finish, warned)
    }

    /// Waits for news, at most for the pause; in a long one also for calls of producers.
    fn sleep(&self, pause: Duration) -> News {
        if pause <= PAUSE_UNWOKEN {
            return News { ended: self.wait(pause), is_called: false };
        }
        let can_sleep = lock(&self.drain).fall_asleep();
        let ended = self.wait(if can_sleep { pause } else { Duration::ZERO });
        let is_called = lock(&self.drain).wake_up() || !can_sleep;
        News { ended, is_called }
    }

    /// Waits for descriptors, at most for the pause. Returns the processes that have ended.
    fn wait(&self, pause: Duration) -> Vec<usize> {
        let processes = lock(&self.drain).pidfds();
        let pidfds = processes.iter().map(|(_, pidfd)| pidfd.as_fd());
        let others = std::iter::once(self.wake.as_fd()).chain(self.listener.descriptors());
        let mut all: Vec<PollFd<'_>> =
            pidfds.chain(others).map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        let timeout = Timespec { tv_sec: pause.as_secs() as i64, tv_nsec: i64::from(pause.subsec_nanos()) };
        let ready = poll(&mut all, Some(&timeout)).unwrap_or(0);
        if ready == 0 {
            return Vec::new();
        }
        let ended = all.iter().zip(&processes).filter(|(fd, _)| !fd.revents().is_empty());
        ended.map(|(_, (at, _))| *at).collect()
    }

    /// Takes in new rings.
    fn take_in(&mut self) {
        let mut arrivals = Vec::new();
        self.listener.receive(|arrival| arrivals.push(arrival));
        lock(&self.drain).take_in(arrivals);
    }

    /// The command has ended. Other processes below it may live on: they are drained once more, and
    /// what is open in them stays open.
    fn finish(mut self, finish: CommandEnd) {
        self.take_in();
        lock(&self.drain).drain_all(BYTES_PER_TURN);
        lock(&self.drain).end_living(finish);
        // What ended has given its descriptors back, for rings that still wait for one.
        let mut rounds = 0;
        while self.listener.is_exhausted() && rounds < MAX_ROUNDS {
            rounds += 1;
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

/// A thread that panicked has left the rings readable.
pub(super) fn lock(drain: &Mutex<RingDrain>) -> MutexGuard<'_, RingDrain> {
    drain.lock().unwrap_or_else(PoisonError::into_inner)
}
