//! The rings of all threads, and what is read from them.
//!
//! [`super::thread`] says when. A thread of [`super::wakeups`] also reads, when a producer calls.

use super::CommandEnd;
use super::listener::ArrivedMessage;
use super::outbox::RowOutbox;
use super::pairing::ThreadLog;
use super::processes::{EnteredThread, TracedProcesses};
use super::wakeups::{WakeupThreads, WatchedRing};
use crate::host::machine;
use crate::host::process_stat::process_stat;
use crate::launcher::SourceDefaults;
use crate::log;
use crate::log::warn;
use crate::shard_output::{OutputItem, ShardOutput};
use rpd_ring::layout::{DropCause, DroppedKind};
use rpd_ring::message::UntracedReason;
use rpd_ring::{DrainProgress, RingConsumer};
use rpd_shard::model::native::{COMMUNICATOR, MARK, MPI_CALL, MPI_REQUEST, RANGE, RCCL_CALL};
use rpd_shard::record::{ClockSet, Exit, Loss, LossCause};
use rustix::fd::OwnedFd;
use std::collections::HashSet;
use std::sync::{Arc, Mutex, Weak};

/// Bytes of a ring that are read before it is the next one's turn.
pub(super) const BYTES_PER_TURN: u64 = 1 << 20;
/// All that a ring held when it was looked at: what comes meanwhile is not waited for.
const WHOLE_RING: u64 = u64::MAX;

/// All rings and their processes.
pub(super) struct RingDrain {
    sources: TracedProcesses,
    rings: Vec<ThreadRing>,
    out: RowOutbox,
    wakeups: WakeupThreads,
    /// How full the fullest ring was for which a producer has called, since that was asked for.
    called_fullness: Option<f32>,
    /// The clocks at the start, until there is a shard to write them to.
    start_clocks: Option<ClockSet>,
    /// Reasons for threads without a ring that were told.
    told_untraced: Vec<UntracedReason>,
    /// Events for which a ring had no room.
    dropped: u64,
    /// Processes with such threads, until they say at their end how many events those had.
    uncounted: HashSet<i32>,
}

/// Processes that are remembered for what they have still to say.
const MAX_UNCOUNTED_PROCESSES: usize = 1 << 16;

/// One thread's ring.
struct ThreadRing {
    consumer: RingConsumer,
    /// A thread waits for its producer's call; none if there is no thread for it.
    watched: Option<WatchedRing>,
    log: ThreadLog,
    /// Place of its process.
    source: usize,
    /// Key of its row in the thread table.
    thread: i64,
    /// Thread id of the system.
    tid: i32,
}

impl RingDrain {
    /// `wake` is written to when a producer has called.
    pub(super) fn new(
        defaults: SourceDefaults,
        output: ShardOutput,
        wake: Arc<OwnedFd>,
    ) -> Arc<Mutex<RingDrain>> {
        let start_clocks = Some(machine::clock_set(&defaults.domain));
        let (sources, out) = (TracedProcesses::new(defaults), RowOutbox::new(output));
        Arc::new_cyclic(|drain| {
            Mutex::new(RingDrain {
                sources,
                rings: Vec::new(),
                out,
                wakeups: WakeupThreads::new(wake, Weak::clone(drain)),
                called_fullness: None,
                start_clocks,
                told_untraced: Vec::new(),
                dropped: 0,
                uncounted: HashSet::new(),
            })
        })
    }

    /// Has every producer call from now on. False if one has no need to, as there is much in its ring.
    pub(super) fn fall_asleep(&mut self) -> bool {
        self.called_fullness = None;
        // All of them, whatever the first ones say.
        let full = self.rings.iter().filter(|ring| !ring.consumer.fall_asleep()).count();
        self.wakeups.expect_calls();
        full == 0
    }

    /// Has no producer call any more. Whether one has.
    pub(super) fn wake_up(&self) -> bool {
        self.rings.iter().filter(|ring| ring.consumer.wake_up()).count() > 0
    }

    /// Reads every ring once, at the call of a producer.
    pub(super) fn answer_call(&mut self) {
        let fullness = self.drain_all(BYTES_PER_TURN);
        self.called_fullness = Some(self.called_fullness.map_or(fullness, |before| before.max(fullness)));
    }

    /// How full the fullest ring was at the calls since this was asked; none without a call.
    pub(super) fn take_called_fullness(&mut self) -> Option<f32> {
        self.called_fullness.take()
    }

    /// Whether there is no ring.
    pub(super) fn is_empty(&self) -> bool {
        self.rings.is_empty()
    }

    /// Whether every producer can wake us.
    pub(super) fn is_watched(&self) -> bool {
        self.rings.iter().all(|ring| ring.watched.is_some())
    }

    /// What is readable when a process has ended, with the place of the process.
    pub(super) fn pidfds(&self) -> Vec<(usize, Arc<OwnedFd>)> {
        self.sources.pidfds().map(|(at, pidfd)| (at, Arc::clone(pidfd))).collect()
    }

    /// Hands over the rows that are complete.
    pub(super) fn send(&mut self) {
        self.out.send();
    }

    /// Hands over all that is there, to be kept.
    pub(super) fn keep(&mut self, signal: i32) {
        self.drain_all(WHOLE_RING);
        self.out.push(OutputItem::Keep { signal });
        self.out.send();
    }

    /// Takes in what threads have sent.
    pub(super) fn take_in(&mut self, arrivals: Vec<ArrivedMessage>) {
        for arrival in arrivals {
            match arrival {
                ArrivedMessage::Ring { pid, ring } => self.enter(pid, ring),
                ArrivedMessage::Untraced { pid, why } => {
                    self.tell_untraced(pid, why);
                    if pid > 0 && self.uncounted.len() < MAX_UNCOUNTED_PROCESSES {
                        self.uncounted.insert(pid);
                    } else {
                        self.lose_uncounted(pid);
                    }
                }
                ArrivedMessage::Lost { pid, events } => {
                    self.uncounted.remove(&pid);
                    let source = self.sources.number_of(pid);
                    self.lose(source, None, LossCause::NoMemory, Some(events));
                }
                ArrivedMessage::Ended { from, pid, exit } => self.note_exit(from, pid, exit),
                ArrivedMessage::Nonsense => self.lose(0, None, LossCause::BadRecord, None),
            }
        }
    }

    /// Threads of a process had events that nobody has counted.
    fn lose_uncounted(&mut self, pid: i32) {
        let source = self.sources.number_of(pid);
        self.lose(source, None, LossCause::NoMemory, None);
    }

    /// Says once for each reason that a thread is not recorded.
    fn tell_untraced(&mut self, pid: i32, why: UntracedReason) {
        if self.told_untraced.contains(&why) {
            return;
        }
        self.told_untraced.push(why);
        let (reason, next) = match why {
            UntracedReason::NoMemory => ("there is no memory for its ring", "give the job more"),
            UntracedReason::FileLimit => {
                ("`ulimit -f` allows no file as large as its ring", "raise that limit")
            }
        };
        warn(format_args!(
            "warning: a thread of process {pid} is not recorded: {reason}; {next}, or choose smaller rings \
             with --ring-size"
        ));
    }

    fn enter(&mut self, pid: i32, consumer: RingConsumer) {
        let Some(header) = consumer.header() else { return };
        if !self.sources.is_wanted(header) {
            // Nobody reads it: its thread goes on until it is full, and then leaves it alone.
            header.close();
            return;
        }
        let facts = header.facts();
        if !consumer.has_ring() {
            self.tell_untraced(pid, UntracedReason::NoMemory);
        }
        let Some(header) = consumer.header() else { return };
        let EnteredThread { at, changed } = self.sources.enter(pid, header);
        // The same thread comes again after an exec, which took its old ring away from it.
        while let Some(old) = self.rings.iter().position(|ring| ring.source == at && ring.tid == facts.tid) {
            self.end_ring(old);
        }
        if let Some(start_clocks) = self.start_clocks.take() {
            self.out.push(OutputItem::Clock(Box::new(start_clocks)));
        }
        let Some(source) = self.sources.get_mut(at) else { return };
        if changed {
            self.out.push(OutputItem::Process(Box::new(source.process.clone())));
        }
        let thread = source.next_thread();
        self.out.push(OutputItem::Thread {
            source: source.process.source,
            ppid: source.process.ppid,
            tid: facts.tid,
            name: String::from_utf8_lossy(facts.thread_name.text()).into(),
            start: facts.start_ns,
        });
        let watched = self.wakeups.watch(consumer.wakeup());
        self.rings.push(ThreadRing {
            consumer,
            watched,
            log: ThreadLog::default(),
            source: at,
            thread,
            tid: facts.tid,
        });
    }

    /// Reads every ring once. Returns how full the fullest one was.
    pub(super) fn drain_all(&mut self, budget: u64) -> f32 {
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
    fn drain_one(&mut self, at: usize, budget: u64) -> (DrainProgress, bool) {
        let nothing = DrainProgress { records: 0, empty: true, fullness: 0.0 };
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
        while rounds < 4
            && matches!(self.drain_one(at, WHOLE_RING), (DrainProgress { records: 1.., .. }, false))
        {
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
        for cause in DropCause::ALL {
            for what in DroppedKind::ALL {
                let rows = header.drops(cause, what);
                if rows > 0 {
                    self.dropped += if cause == DropCause::RingFull { rows } else { 0 };
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
        self.out.push(OutputItem::Loss(Loss { source, table, cause, rows }));
    }

    /// A process has ended: its rings are read to their ends.
    pub(super) fn end_source(&mut self, at: usize, exit: Exit) {
        while let Some(ring) = self.rings.iter().position(|ring| ring.source == at) {
            self.end_ring(ring);
        }
        self.end_log(at);
        if let Some(process) = self.sources.end(at, Some(exit)) {
            self.out.push(OutputItem::Process(Box::new(process)));
        }
    }

    /// A process says how it, or a child of it, has ended.
    fn note_exit(&mut self, from: i32, pid: i32, exit: Exit) {
        if let Some(process) = self.sources.note_exit(from, pid, exit) {
            self.out.push(OutputItem::Process(Box::new(process)));
        }
    }

    pub(super) fn read_clocks(&mut self) {
        // Without a process there is no shard yet that they could go to.
        if self.start_clocks.is_none() {
            let set = machine::clock_set(self.sources.domain());
            self.out.push(OutputItem::Clock(Box::new(set)));
        }
    }

    /// Rings were never taken in, as there was no descriptor for them.
    pub(super) fn lose_rings(&mut self) {
        self.lose(0, None, LossCause::NoMemory, None);
    }

    /// Says how the command has ended, and all that was still to be said.
    pub(super) fn finish(&mut self, finish: CommandEnd) {
        // Killed, or still there: they have not come to say it.
        for pid in std::mem::take(&mut self.uncounted) {
            self.lose_uncounted(pid);
        }
        // Its end may have been noticed before its exit status was known.
        if let Some(command) = self.sources.find(finish.pid)
            && command.process.exit != Some(finish.exit)
        {
            command.process.exit = Some(finish.exit);
            self.out.push(OutputItem::Process(Box::new(command.process.clone())));
        }
        if let Some(start_clocks) = self.start_clocks.take() {
            self.out.push(OutputItem::Clock(Box::new(start_clocks)));
        }
        self.read_clocks();
        if self.dropped > 0 {
            warn(format_args!(
                "warning: {} events are not recorded, only counted: their threads were faster than this \
                 process; next time, choose larger rings with --ring-size, or leave it more time of a core",
                self.dropped
            ));
        }
        self.out.push(OutputItem::End);
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

    pub(super) fn end_living(&mut self, finish: CommandEnd) {
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
            let gone = process_stat(source.process.pid).is_none();
            if !gone {
                // Whatever it does from now on is in no shard.
                let number = source.process.source;
                self.lose(number, None, LossCause::Truncated, None);
            }
            if let Some(process) = self.sources.end(at, gone.then_some(Exit::Unknown)) {
                self.out.push(OutputItem::Process(Box::new(process)));
            }
        }
    }
}

fn table_of(what: DroppedKind) -> Option<rpd_shard::model::TableId> {
    match what {
        DroppedKind::Range => Some(RANGE),
        DroppedKind::Mark => Some(MARK),
        DroppedKind::MpiCall => Some(MPI_CALL),
        DroppedKind::RcclCall => Some(RCCL_CALL),
        DroppedKind::MpiRequest => Some(MPI_REQUEST),
        DroppedKind::Communicator => Some(COMMUNICATOR),
        DroppedKind::Unknown => None,
    }
}

fn cause_of(cause: DropCause) -> LossCause {
    match cause {
        DropCause::RingFull => LossCause::RingFull,
        DropCause::Reentrant => LossCause::Reentrant,
        DropCause::TooDeep => LossCause::OverLimit,
        DropCause::NoMemory => LossCause::NoMemory,
    }
}
