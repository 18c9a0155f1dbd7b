//! The rings of all threads.
//!
//! [`super::thread`] decides when they are read. A thread of [`super::wakeups`] reads them as well, when a
//! producer calls.

mod ring_ends;
mod untraced_warnings;

use self::untraced_warnings::UntracedWarnings;
use super::collector_command::CommandEnd;
use super::listener::ArrivedMessage;
use super::outbox::RowOutbox;
use super::pairing::ThreadSpans;
use super::processes::{EnteredThread, TracedProcesses};
use super::recorded_threads::RecordedThreads;
use super::tick_clock::{RecordTimes, TickClock};
use super::wakeups::{WakeupThreads, WatchedRing};
use crate::host::event_flag::EventFlag;
use crate::host::{machine, process};
use crate::launcher::SourceDefaults;
use crate::log;
use crate::shard_output::{OutputItem, ShardOutput};
use rpd_ring::message::RingObstacle;
use rpd_ring::{DrainProgress, PublishedRecords, RingConsumer};
use rpd_shard::model::{TableId, native};
use rpd_shard::record::{ClockSet, Loss, LossCause, Process, ProcessExit};
use rustix::fd::OwnedFd;
use std::collections::{BTreeSet, HashSet};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, Weak};

/// Bytes that are read from a ring before the next ring.
pub(super) const BYTES_PER_TURN: u64 = 1 << 20;
/// Reads all that a ring contains at the start of the read.
const WHOLE_RING: u64 = u64::MAX;
/// Progress with a ring that is empty or gone.
const NOTHING_READ: DrainProgress = DrainProgress { records: 0, is_empty: true, fullness: 0.0 };

/// All rings and their processes.
pub(super) struct RingDrain {
    sources: TracedProcesses,
    rings: Vec<ThreadRing>,
    threads: RecordedThreads,
    out: RowOutbox,
    /// For rings with ticks instead of times.
    ticks: TickClock,
    wakeups: WakeupThreads,
    /// Fill level of the fullest ring at the calls of producers since the last query.
    wakeup_fullness: Option<f32>,
    /// The clocks at the start, until there is a shard for them.
    start_clocks: Option<ClockSet>,
    untraced: UntracedWarnings,
    /// Number of events that did not fit into a ring.
    dropped: u64,
    /// Processes with threads without a ring, until they report the number of events of those.
    uncounted: HashSet<i32>,
    /// Number of records that were read.
    records_read: Arc<AtomicU64>,
}

/// Maximum number of processes that owe a report.
const MAX_UNCOUNTED_PROCESSES: usize = 1 << 16;

/// The ring of one thread.
struct ThreadRing {
    consumer: RingConsumer,
    /// Registration with a thread that waits for the producer's call; `None` if there is no such thread.
    watched: Option<WatchedRing>,
    log: ThreadSpans,
    /// Index of its process.
    source: usize,
    /// Key of the row of the thread.
    thread: i64,
    /// Thread id from the system.
    tid: i32,
    /// Number on the list of recorded threads; `None` if it is not on it.
    listed: Option<u64>,
    /// It had no records since its memory was looked at.
    is_idle: bool,
    times: RecordTimes,
}

impl RingDrain {
    /// `wake` is an eventfd that is written to when a producer has called.
    pub(super) fn new(
        defaults: SourceDefaults,
        threads: RecordedThreads,
        output: ShardOutput,
        wake: EventFlag,
        records_read: Arc<AtomicU64>,
    ) -> Arc<Mutex<RingDrain>> {
        let start_clocks = Some(machine::clock_set(&defaults.domain));
        let (sources, out) = (TracedProcesses::new(defaults), RowOutbox::new(output));
        Arc::new_cyclic(|drain| {
            Mutex::new(RingDrain {
                sources,
                rings: Vec::new(),
                threads,
                out,
                ticks: TickClock::start(),
                wakeups: WakeupThreads::new(wake, Weak::clone(drain)),
                wakeup_fullness: None,
                start_clocks,
                untraced: UntracedWarnings::default(),
                dropped: 0,
                uncounted: HashSet::new(),
                records_read,
            })
        })
    }

    /// Requests a call from every producer. Returns `false` if a ring is so full already that its producer
    /// has called.
    pub(super) fn fall_asleep(&mut self) -> bool {
        self.wakeup_fullness = None;
        // Asks all of them, whatever the first ones return.
        let full = self.rings.iter().filter(|ring| !ring.consumer.fall_asleep()).count();
        self.wakeups.expect_wakeups();
        full == 0
    }

    /// Ends the request for calls. Returns whether a producer has called.
    pub(super) fn wake_up(&self) -> bool {
        self.rings.iter().filter(|ring| ring.consumer.wake_up()).count() > 0
    }

    /// Reads every ring once, after the call of a producer.
    pub(super) fn answer_wakeup(&mut self) {
        let fullness = self.drain_all(BYTES_PER_TURN);
        self.wakeup_fullness = Some(self.wakeup_fullness.map_or(fullness, |before| before.max(fullness)));
    }

    /// Returns the fill level of the fullest ring at the calls since the last query; `None` without a call.
    pub(super) fn take_wakeup_fullness(&mut self) -> Option<f32> {
        self.wakeup_fullness.take()
    }

    /// Whether there is no ring.
    pub(super) fn is_empty(&self) -> bool {
        self.rings.is_empty()
    }

    /// Whether every producer can wake the collecting thread.
    pub(super) fn is_watched(&self) -> bool {
        self.rings.iter().all(|ring| ring.watched.is_some())
    }

    /// Returns the descriptors that become readable when a process ends, with the indices of the processes.
    pub(super) fn pidfds(&self) -> Vec<(usize, Arc<OwnedFd>)> {
        self.sources.pidfds().map(|(at, pidfd)| (at, Arc::clone(pidfd))).collect()
    }

    /// Sends the rows that are complete.
    pub(super) fn send(&mut self) {
        self.out.send();
        self.threads.publish();
    }

    /// Reads all rings and asks the writing thread to sync everything.
    pub(super) fn sync(&mut self, signal: i32) {
        self.drain_all(WHOLE_RING);
        self.out.push(OutputItem::Sync { signal });
        self.out.send();
    }

    /// Processes what threads have sent.
    pub(super) fn take_in(&mut self, arrivals: Vec<ArrivedMessage>) {
        for arrival in arrivals {
            match arrival {
                ArrivedMessage::Ring { pid, ring, cut } => self.enter(pid, ring, cut),
                ArrivedMessage::Untraced { pid, why } => {
                    self.untraced.warn_of_thread(pid, why);
                    if pid > 0 && self.uncounted.len() < MAX_UNCOUNTED_PROCESSES {
                        self.uncounted.insert(pid);
                    } else {
                        self.lose_uncounted(pid);
                    }
                }
                ArrivedMessage::Lost { pid, events } => {
                    self.uncounted.remove(&pid);
                    self.untraced.warn_of_events(pid, events);
                    let source = self.sources.number_of(pid);
                    self.lose(source, None, LossCause::NoMemory, Some(events));
                }
                ArrivedMessage::Ended { from, pid, exit } => self.note_exit(from, pid, exit),
                ArrivedMessage::Nonsense { pid } => {
                    self.untraced.warn_of_nonsense(pid);
                    self.lose(0, None, LossCause::BadRecord, None);
                }
            }
        }
    }

    /// Records that threads of a process had an unknown number of events.
    fn lose_uncounted(&mut self, pid: i32) {
        let source = self.sources.number_of(pid);
        self.lose(source, None, LossCause::NoMemory, None);
    }

    fn enter(&mut self, pid: i32, consumer: RingConsumer, cut: Option<RingObstacle>) {
        let Some(header) = consumer.header() else { return };
        if !self.sources.is_wanted(header) {
            // The collector does not read this ring. Its thread fills it and then stops writing.
            header.close();
            return;
        }
        let facts = header.facts();
        if !consumer.has_ring() {
            self.untraced.warn_of_thread(pid, cut.unwrap_or(RingObstacle::NoMemory));
        } else if cut == Some(RingObstacle::FileLimit) {
            self.untraced.warn_of_small_ring(pid);
        }
        let Some(header) = consumer.header() else { return };
        let EnteredThread { at, changed } = self.sources.enter(pid, header);
        // After an exec the same thread sends a new ring; the exec unmapped the old one.
        while let Some(old) = self.rings.iter().position(|ring| ring.source == at && ring.tid == facts.tid) {
            self.end_ring(old);
            // The new program counts from 0.
            self.sources.get_mut(at).into_iter().for_each(|source| source.returned = 0);
        }
        if let Some(start_clocks) = self.start_clocks.take() {
            self.out.push(OutputItem::Clock(Box::new(start_clocks)));
        }
        let time_namespace = self.sources.domain().time_namespace;
        let Some(source) = self.sources.get_mut(at) else { return };
        if changed {
            self.out.push(OutputItem::Process(Box::new(source.process.clone())));
        }
        let thread = source.next_thread();
        let name: Box<str> = String::from_utf8_lossy(facts.thread_name.text()).into();
        // In other namespaces, ids and times are not those of this process.
        let is_near = pid > 0 && facts.pid == pid && source.process.domain.time_namespace == time_namespace;
        let listed =
            is_near.then(|| self.threads.enter(source.process.source, thread, pid, facts.tid, name.clone()));
        if !is_near {
            self.threads.note_far_process();
        }
        self.out.push(OutputItem::Thread {
            source: source.process.source,
            ppid: source.process.ppid,
            tid: facts.tid,
            name,
            start: facts.start_ns,
        });
        if let Some(header) = consumer.header() {
            header.set_returned(source.returned);
        }
        let watched = self.wakeups.watch(consumer.wakeup());
        self.rings.push(ThreadRing {
            consumer,
            watched,
            log: ThreadSpans::default(),
            source: at,
            thread,
            tid: facts.tid,
            listed,
            is_idle: false,
            times: RecordTimes::new(facts.has_ticks),
        });
    }

    /// Gives the free memory of the rings back to the system that had no records since the last call.
    pub(super) fn give_back_idle_memory(&mut self) {
        let mut changed = BTreeSet::new();
        for ring in &mut self.rings {
            if !std::mem::replace(&mut ring.is_idle, true) {
                continue;
            }
            let Some(source) = self.sources.get_mut(ring.source) else { continue };
            let given_back = ring.consumer.give_back_free_memory();
            source.returned += given_back;
            if given_back > 0 {
                changed.insert(ring.source);
            }
        }
        // The other threads of these processes may use as much.
        for ring in self.rings.iter().filter(|ring| changed.contains(&ring.source)) {
            let returned = self.sources.get_mut(ring.source).map_or(0, |source| source.returned);
            ring.consumer.header().into_iter().for_each(|header| header.set_returned(returned));
        }
    }

    /// Reads every ring once. Returns the fill level of the fullest one.
    pub(super) fn drain_all(&mut self, budget: u64) -> f32 {
        if self.rings.iter().any(|ring| ring.times.has_ticks()) {
            self.ticks.refresh();
        }
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

    /// Reads a ring. Returns the progress, and whether the ring is finished: its thread has ended and it is
    /// empty, or its content is invalid.
    fn drain_one(&mut self, at: usize, budget: u64) -> (DrainProgress, bool) {
        match self.rings.get(at).map(|ring| ring.consumer.published()) {
            Some(published) => self.drain_published(at, published, budget),
            None => (NOTHING_READ, true),
        }
    }

    /// The same of what had been published at some time.
    fn drain_published(
        &mut self,
        at: usize,
        published: PublishedRecords,
        budget: u64,
    ) -> (DrainProgress, bool) {
        let Some(ring) = self.rings.get_mut(at) else { return (NOTHING_READ, true) };
        let Some(source) = self.sources.get_mut(ring.source) else { return (NOTHING_READ, true) };
        let thread_ended = ring.consumer.header().is_none_or(|header| header.ended());
        if ring.times.has_ticks() && published.is_new {
            self.ticks.refresh();
        }
        let (log, out, thread) = (&mut ring.log, &mut self.out, ring.thread);
        let (ticks, times) = (&mut self.ticks, &mut ring.times);
        let mut unmatched = 0;
        let drained = ring.consumer.drain_until(published, budget, |mut record| {
            record.time = times.boottime(record.time, ticks);
            unmatched += u64::from(source.log.apply(log, thread, record, out).is_err());
        });
        ring.is_idle &= drained.as_ref().is_ok_and(|progress| progress.records == 0);
        if let (Some(1), Some(launched @ 2..)) = (source.log.take_world_size(), source.process.size)
            && !source.process.worker
        {
            log::note_singleton(launched);
        }
        let number = source.process.source;
        if unmatched > 0 {
            self.lose(number, None, LossCause::BadRecord, Some(unmatched));
        }
        match drained {
            Ok(drained) => {
                self.records_read.fetch_add(drained.records, Relaxed);
                (drained, thread_ended && drained.is_empty)
            }
            Err(_) => {
                self.lose(number, None, LossCause::BadRecord, None);
                (NOTHING_READ, true)
            }
        }
    }

    fn lose(&mut self, source: u32, table: Option<TableId>, cause: LossCause, rows: Option<u64>) {
        self.out.push(OutputItem::Loss(Loss { source, table, cause, rows }));
    }

    /// Ends a process: reads its rings to their ends.
    pub(super) fn end_source(&mut self, at: usize, exit: ProcessExit) {
        self.end_log(at);
        let ended = self.sources.end(at, Some(exit));
        self.push_process(ended);
    }

    /// Notes how a process or its child ended, as the process reports.
    fn note_exit(&mut self, from: i32, pid: i32, exit: ProcessExit) {
        let ended = self.sources.note_exit(from, pid, exit);
        self.push_process(ended);
    }

    fn push_process(&mut self, changed: Option<Process>) {
        if let Some(process) = changed {
            self.out.push(OutputItem::Process(Box::new(process)));
        }
    }

    pub(super) fn read_clocks(&mut self) {
        self.ticks.warn_of_jump();
        // Without a process there is no shard yet for the clocks.
        if self.start_clocks.is_none() {
            let set = machine::clock_set(self.sources.domain());
            self.out.push(OutputItem::Clock(Box::new(set)));
        }
    }

    /// Records that rings were never received, because there was no descriptor or no memory for them.
    pub(super) fn lose_rings(&mut self) {
        log::warn(format_args!(
            "warning: rings of threads were not received, and the number of their events is not known: rpd-collect may open no more \
             files (`ulimit -Hn`), or has no memory to map them (`ulimit -v`); raise these limits"
        ));
        self.lose(0, None, LossCause::NoMemory, None);
    }

    /// Records how the command ended and everything that is still pending.
    pub(super) fn finish(&mut self, finish: CommandEnd) {
        // These processes were killed or still run, so they did not report.
        for pid in std::mem::take(&mut self.uncounted) {
            self.lose_uncounted(pid);
        }
        // The end of the process may have been noticed before its exit status was known.
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
            log::warn(format_args!(
                "warning: {} events are not recorded, only counted: their threads were faster than the collector; next time, raise --ring-memory and --ring-size, or leave the collector more CPU time",
                self.dropped
            ));
        }
        self.out.push(OutputItem::End);
        self.out.send();
    }

    /// Reads the rings of a process to their ends, and ends its records.
    fn end_log(&mut self, at: usize) {
        while let Some(ring) = self.rings.iter().position(|ring| ring.source == at) {
            self.end_ring(ring);
        }
        let Some(source) = self.sources.get_mut(at) else { return };
        source.log.end(&mut self.out);
        let (number, unmatched) = (source.process.source, source.log.take_unmatched_requests());
        // Requests that were started during a pause do not count. If calls were dropped, the requests that
        // they started are lost with them.
        if unmatched > 0 && self.dropped > 0 {
            self.lose(number, Some(native::MPI_REQUEST), LossCause::RingFull, Some(unmatched));
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

    /// Reads what a process has recorded so far and ignores it from now on.
    fn leave_source(&mut self, at: usize) {
        self.end_log(at);
        let Some(source) = self.sources.get_mut(at) else { return };
        let (number, is_gone) = (source.process.source, process::stat(source.process.pid).is_none());
        if !is_gone {
            // Later activity of the process is in no shard.
            self.lose(number, None, LossCause::Truncated, None);
        }
        let ended = self.sources.end(at, is_gone.then_some(ProcessExit::Unknown));
        self.push_process(ended);
    }
}
