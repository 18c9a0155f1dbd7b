//! The collecting thread.

use super::listener::{Arrival, Listener};
use super::outbox::Outbox;
use super::pairing::ThreadLog;
use super::sources::{Entered, SourceDefaults, Sources};
use super::{Command, Finish};
use crate::output::{Item, Output};
use crate::{log, machine, warn};
use rpd_ring::layout::{Counted, Dropped};
use rpd_ring::message::Untraced;
use rpd_ring::{Consumer, Drained};
use rpd_shard::model::native::{COMMUNICATOR, MARK, MPI_CALL, MPI_REQUEST, RANGE, RCCL_CALL};
use rpd_shard::record::{ClockSet, Exit, Loss, LossCause};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, OwnedFd};
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

/// Longest pause between two looks into the rings. A ring of 1 MiB holds more than 10 ms of the busiest
/// program that does anything else.
const PAUSE_LONGEST: Duration = Duration::from_millis(10);
/// A shorter pause than this is none.
const PAUSE_SHORTEST: Duration = Duration::from_micros(250);
/// How full the fullest ring should be when it is looked at. Looking more often takes CPU time from the
/// program; the rest of the ring is for the times when we are not given any.
const FULLNESS: f32 = 1.0 / 8.0;
/// Pause while there is no ring: new ones and the end of the command wake us.
const PAUSE_EMPTY: Duration = Duration::from_secs(1);
/// Rows wait at most this long for their batch to fill.
const SEND_EVERY: Duration = Duration::from_millis(250);
/// Time between two readings of the clocks.
const CLOCKS_EVERY: Duration = Duration::from_secs(5);
/// Bytes of a ring that are read before it is the next one's turn.
const BUDGET: u64 = 1 << 20;
/// All that a ring held when it was looked at: what comes meanwhile is not waited for.
const WHOLE: u64 = u64::MAX;

/// The state of the collecting thread.
pub(super) struct Drain {
    listener: Listener,
    sources: Sources,
    rings: Vec<Ring>,
    out: Outbox,
    commands: Receiver<Command>,
    wake: Arc<OwnedFd>,
    /// The clocks at the start, until there is a shard to write them to.
    start_clocks: Option<ClockSet>,
    /// Reasons for threads without a ring that were told.
    told_untraced: Vec<Untraced>,
    /// Events for which a ring had no room.
    dropped: u64,
    /// Processes with such threads, until they say at their end how many events those had.
    uncounted: HashSet<i32>,
}

/// Times that rings which wait for a descriptor are asked for at the end.
const MOST_ROUNDS: usize = 1000;
/// Processes that are remembered for what they have still to say.
const MOST_UNCOUNTED: usize = 1 << 16;

/// One thread's ring.
struct Ring {
    consumer: Consumer,
    log: ThreadLog,
    /// Place of its process.
    source: usize,
    /// Key of its row in the thread table.
    thread: i64,
    /// Thread id of the system.
    tid: i32,
}

impl Drain {
    pub(super) fn new(
        listener: Listener,
        defaults: SourceDefaults,
        output: Output,
        commands: Receiver<Command>,
        wake: Arc<OwnedFd>,
    ) -> Drain {
        let start_clocks = Some(machine::clock_set(&defaults.domain));
        let (sources, out) = (Sources::new(defaults), Outbox::new(output));
        Drain {
            listener,
            sources,
            rings: Vec::new(),
            out,
            commands,
            wake,
            start_clocks,
            told_untraced: Vec::new(),
            dropped: 0,
            uncounted: HashSet::new(),
        }
    }

    /// Runs until the command has ended and everything it left is handed over.
    pub(super) fn run(mut self) {
        let mut pause = PAUSE_EMPTY;
        let mut sent = Instant::now();
        let mut clocks = Instant::now();
        let finish = loop {
            let ended = self.wait(pause);
            let (finish, warned) = self.told();
            if let Some(finish) = finish {
                break finish;
            }
            self.take_in();
            let fullness = self.drain_all(BUDGET);
            if let Some(signal) = warned {
                self.keep(signal);
                sent = Instant::now();
            }
            for at in ended {
                self.end_source(at, Exit::Unknown);
            }
            let idle = self.rings.is_empty() && !self.listener.is_exhausted();
            pause = if idle { PAUSE_EMPTY } else { next_pause(pause, fullness) };
            if clocks.elapsed() >= CLOCKS_EVERY {
                clocks = Instant::now();
                self.read_clocks();
            }
            if sent.elapsed() >= SEND_EVERY {
                sent = Instant::now();
                self.out.send();
            }
        };
        self.finish(finish);
    }

    /// What there is to do: to finish, or to keep what is there because of a signal.
    fn told(&self) -> (Option<Finish>, Option<i32>) {
        // Before the commands are read: one that comes now wakes us again.
        let _ = rustix::io::read(&*self.wake, &mut [0; 8]);
        let (mut finish, mut warned) = (None, None);
        for command in self.commands.try_iter() {
            match command {
                Command::Finish(last) => finish = Some(last),
                Command::Keep(signal) => warned = Some(signal),
            }
        }
        (finish, warned)
    }

    /// Hands over all that is there, to be kept.
    fn keep(&mut self, signal: i32) {
        self.drain_all(WHOLE);
        self.out.push(Item::Keep { signal });
        self.out.send();
    }

    /// Waits for news, at most for the pause. Returns the processes that have ended: everything that
    /// they recorded is in their rings by now, or on its way through the socket.
    fn wait(&self, pause: Duration) -> Vec<usize> {
        let processes: Vec<(usize, &OwnedFd)> = self.sources.pidfds().collect();
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
        for arrival in arrivals {
            match arrival {
                Arrival::Ring { pid, ring } => self.enter(pid, ring),
                Arrival::Untraced { pid, why } => {
                    self.tell_untraced(pid, why);
                    if pid > 0 && self.uncounted.len() < MOST_UNCOUNTED {
                        self.uncounted.insert(pid);
                    } else {
                        self.lose_uncounted(pid);
                    }
                }
                Arrival::Lost { pid, events } => {
                    self.uncounted.remove(&pid);
                    let source = self.sources.number_of(pid);
                    self.lose(source, None, LossCause::NoMemory, Some(events));
                }
                Arrival::Ended { from, pid, exit } => self.note_exit(from, pid, exit),
                Arrival::Nonsense => self.lose(0, None, LossCause::BadRecord, None),
            }
        }
    }

    /// Threads of a process had events that nobody has counted.
    fn lose_uncounted(&mut self, pid: i32) {
        let source = self.sources.number_of(pid);
        self.lose(source, None, LossCause::NoMemory, None);
    }

    /// Says once for each reason that a thread is not recorded.
    fn tell_untraced(&mut self, pid: i32, why: Untraced) {
        if self.told_untraced.contains(&why) {
            return;
        }
        self.told_untraced.push(why);
        let (reason, next) = match why {
            Untraced::NoMemory => ("there is no memory for its ring", "give the job more"),
            Untraced::FileLimit => ("`ulimit -f` allows no file as large as its ring", "raise that limit"),
        };
        warn(format_args!(
            "warning: a thread of process {pid} is not recorded: {reason}; {next}, or choose smaller rings \
             with --ring-size"
        ));
    }

    fn enter(&mut self, pid: i32, consumer: Consumer) {
        let Some(header) = consumer.header() else { return };
        if !self.sources.is_wanted(header) {
            // Nobody reads it: its thread goes on until it is full, and then leaves it alone.
            header.close();
            return;
        }
        let facts = header.facts();
        if !consumer.has_ring() {
            self.tell_untraced(pid, Untraced::NoMemory);
        }
        let Some(header) = consumer.header() else { return };
        let Entered { at, changed } = self.sources.enter(pid, header);
        // The same thread comes again after an exec, which took its old ring away from it.
        while let Some(old) = self.rings.iter().position(|ring| ring.source == at && ring.tid == facts.tid) {
            self.end_ring(old);
        }
        if let Some(start_clocks) = self.start_clocks.take() {
            self.out.push(Item::Clock(Box::new(start_clocks)));
        }
        let Some(source) = self.sources.get_mut(at) else { return };
        if changed {
            self.out.push(Item::Process(Box::new(source.process.clone())));
        }
        let thread = source.next_thread();
        self.out.push(Item::Thread {
            source: source.process.source,
            ppid: source.process.ppid,
            tid: facts.tid,
            name: String::from_utf8_lossy(facts.thread_name.text()).into(),
            start: facts.start_ns,
        });
        self.rings.push(Ring { consumer, log: ThreadLog::default(), source: at, thread, tid: facts.tid });
    }

    /// Reads every ring once. Returns how full the fullest one was.
    fn drain_all(&mut self, budget: u64) -> f32 {
        let mut fullest: f32 = 0.0;
        let mut at = 0;
        while at < self.rings.len() {
            let (drained, done) = self.drain_one(at, budget);
            fullest = fullest.max(drained.fullness);
            if done {
                self.remove_ring(at);
            } else {
                at += 1;
            }
        }
        fullest
    }

    /// Reads a ring. Returns how far it came, and whether the ring is done with: its thread has ended
    /// and it is empty, or it holds nonsense.
    fn drain_one(&mut self, at: usize, budget: u64) -> (Drained, bool) {
        let nothing = Drained { records: 0, empty: true, fullness: 0.0 };
        let Some(ring) = self.rings.get_mut(at) else { return (nothing, true) };
        let Some(source) = self.sources.get_mut(ring.source) else { return (nothing, true) };
        let thread_ended = ring.consumer.header().is_none_or(|header| header.ended());
        let (log, out, thread) = (&mut ring.log, &mut self.out, ring.thread);
        let mut misfits = 0;
        let drained = ring.consumer.drain(budget, |record| {
            misfits += u64::from(source.log.apply(log, thread, record, out).is_err());
        });
        if let (Some(1), Some(launched @ 2..)) = (source.log.take_world_size(), source.process.size)
            && !source.process.worker
        {
            log::note_singleton(launched);
        }
        let number = source.process.source;
        if misfits > 0 {
            self.lose(number, None, LossCause::BadRecord, Some(misfits));
        }
        match drained {
            Ok(drained) => (drained, thread_ended && drained.empty),
            Err(_) => {
                self.lose(number, None, LossCause::BadRecord, None);
                (nothing, true)
            }
        }
    }

    /// Reads a ring to its end and removes it. Its thread does not write any more, or is given up.
    fn end_ring(&mut self, at: usize) {
        let mut rounds = 0;
        // A thread that is given up may write for ever; one ring's worth and what came meanwhile.
        while rounds < 4 && matches!(self.drain_one(at, WHOLE), (Drained { records: 1.., .. }, false)) {
            rounds += 1;
        }
        self.remove_ring(at);
    }

    /// Removes a ring: what is open stays open, and what its thread dropped goes to the ledger.
    fn remove_ring(&mut self, at: usize) {
        if at >= self.rings.len() {
            return;
        }
        let ring = self.rings.swap_remove(at);
        let Some(source) = self.sources.get_mut(ring.source) else { return };
        source.log.end_thread(ring.log, &mut self.out);
        let number = source.process.source;
        let Some(header) = ring.consumer.header() else { return };
        for cause in Dropped::ALL {
            for what in Counted::ALL {
                let rows = header.drops(cause, what);
                if rows > 0 {
                    self.dropped += if cause == Dropped::RingFull { rows } else { 0 };
                    self.lose(number, table_of(what), cause_of(cause), Some(rows));
                }
            }
        }
    }

    fn lose(
        &mut self,
        source: u32,
        table: Option<rpd_shard::model::TableId>,
        cause: LossCause,
        rows: Option<u64>,
    ) {
        self.out.push(Item::Loss(Loss { source, table, cause, rows }));
    }

    /// A process has ended: its rings are read to their ends.
    fn end_source(&mut self, at: usize, exit: Exit) {
        while let Some(ring) = self.rings.iter().position(|ring| ring.source == at) {
            self.end_ring(ring);
        }
        self.end_log(at);
        if let Some(process) = self.sources.end(at, Some(exit)) {
            self.out.push(Item::Process(Box::new(process)));
        }
    }

    /// A process says how it, or a child of it, has ended.
    fn note_exit(&mut self, from: i32, pid: i32, exit: Exit) {
        if let Some(process) = self.sources.note_exit(from, pid, exit) {
            self.out.push(Item::Process(Box::new(process)));
        }
    }

    fn read_clocks(&mut self) {
        // Without a process there is no shard yet that they could go to.
        if self.start_clocks.is_none() {
            let set = machine::clock_set(self.sources.domain());
            self.out.push(Item::Clock(Box::new(set)));
        }
    }

    /// The command has ended. Other processes below it may live on: they are drained once more, and
    /// what is open in them stays open.
    fn finish(mut self, finish: Finish) {
        self.take_in();
        self.drain_all(BUDGET);
        self.end_living(finish);
        // What ended has given its descriptors back, for rings that still wait for one.
        let mut rounds = 0;
        while self.listener.is_exhausted() && rounds < MOST_ROUNDS {
            rounds += 1;
            self.take_in();
            self.end_living(finish);
        }
        if self.listener.is_exhausted() {
            self.lose(0, None, LossCause::NoMemory, None);
        }
        // Killed, or still there: they have not come to say it.
        for pid in std::mem::take(&mut self.uncounted) {
            self.lose_uncounted(pid);
        }
        // Its end may have been noticed before its exit status was known.
        if let Some(command) = self.sources.find(finish.pid)
            && command.process.exit != Some(finish.exit)
        {
            command.process.exit = Some(finish.exit);
            self.out.push(Item::Process(Box::new(command.process.clone())));
        }
        if let Some(start_clocks) = self.start_clocks.take() {
            self.out.push(Item::Clock(Box::new(start_clocks)));
        }
        self.read_clocks();
        if self.dropped > 0 {
            warn(format_args!(
                "warning: {} events are not recorded, only counted: their threads were faster than this \
                 process; next time, choose larger rings with --ring-size, or leave it more time of a core",
                self.dropped
            ));
        }
        self.out.push(Item::End);
        self.out.send();
    }

    /// A process records nothing more.
    fn end_log(&mut self, at: usize) {
        let Some(source) = self.sources.get_mut(at) else { return };
        source.log.end(&mut self.out);
        let (number, unmatched) = (source.process.source, source.log.take_unmatched_requests());
        // Of requests that were started in a pause nobody wants to hear; where calls were dropped, what
        // they had started is lost with them.
        if unmatched > 0 && self.dropped > 0 {
            self.lose(number, Some(MPI_REQUEST), LossCause::RingFull, Some(unmatched));
        }
    }

    fn end_living(&mut self, finish: Finish) {
        for at in self.sources.living().to_vec() {
            let is_command = self.sources.get_mut(at).is_some_and(|s| s.process.pid == finish.pid);
            if is_command {
                self.end_source(at, finish.exit);
            } else {
                self.leave_source(at);
            }
        }
    }

    /// Reads what a process has recorded so far and leaves it alone from now on.
    fn leave_source(&mut self, at: usize) {
        while let Some(ring) = self.rings.iter().position(|ring| ring.source == at) {
            self.end_ring(ring);
        }
        self.end_log(at);
        if let Some(source) = self.sources.get_mut(at) {
            let gone = super::process_stat(source.process.pid).is_none();
            if !gone {
                // Whatever it does from now on is in no shard.
                let number = source.process.source;
                self.lose(number, None, LossCause::Truncated, None);
            }
            if let Some(process) = self.sources.end(at, gone.then_some(Exit::Unknown)) {
                self.out.push(Item::Process(Box::new(process)));
            }
        }
    }
}

/// The pause after which the fullest ring will be about as full as it should be, if all goes on as it
/// did. A burst shortens it at once, a lull lets it grow.
fn next_pause(last: Duration, fullness: f32) -> Duration {
    let last = last.clamp(PAUSE_SHORTEST, PAUSE_LONGEST);
    let factor = (FULLNESS / fullness.max(f32::EPSILON)).min(2.0);
    match last.mul_f32(factor) {
        pause if pause < PAUSE_SHORTEST => Duration::ZERO,
        pause => pause.min(PAUSE_LONGEST),
    }
}

fn table_of(what: Counted) -> Option<rpd_shard::model::TableId> {
    match what {
        Counted::Range => Some(RANGE),
        Counted::Mark => Some(MARK),
        Counted::MpiCall => Some(MPI_CALL),
        Counted::RcclCall => Some(RCCL_CALL),
        Counted::MpiRequest => Some(MPI_REQUEST),
        Counted::Communicator => Some(COMMUNICATOR),
        Counted::Unknown => None,
    }
}

fn cause_of(cause: Dropped) -> LossCause {
    match cause {
        Dropped::RingFull => LossCause::RingFull,
        Dropped::Reentrant => LossCause::Reentrant,
        Dropped::TooDeep => LossCause::OverLimit,
        Dropped::NoMemory => LossCause::NoMemory,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pause_follows_the_fullest_ring() {
        let mut pause = PAUSE_EMPTY;
        for _ in 0..20 {
            pause = next_pause(pause, 0.0);
        }
        assert_eq!(pause, PAUSE_LONGEST);
        assert_eq!(next_pause(pause, 0.25), PAUSE_LONGEST / 2);
        assert_eq!(next_pause(Duration::from_millis(1), 0.9), Duration::ZERO);
        // A program that goes on at one pace: the pause settles where the ring is as full as it should be.
        let filled_per_ms = 1.0 / 40.0;
        for _ in 0..50 {
            pause = next_pause(pause, pause.as_secs_f32() * 1e3 * filled_per_ms);
        }
        assert!((4..=6).contains(&pause.as_millis()), "{pause:?}");
    }
}
