//! Samples of the Python stacks of recorded threads (`--trace python`).
//!
//! ```text
//! recorded threads of drain -> sampled_process: finds the interpreter, and reads the stack of each thread
//!   interpreter: ELF symbols of a mapped file -> layout: offsets of its version
//!   stacks: thread state -> frames; code_objects: frame -> function and line (line_table)
//! -> stack_text: JSON -> rows of the writing thread
//! ```
//!
//! A thread of the collector reads the structures of CPython in the memory of the program, 99 times a second, without
//! stopping it and without code in it. The program changes them meanwhile: each pointer may be stale. So every read is
//! bounded, a code object must have the type of code objects, and a stack that makes no sense is dropped and counted.
//! While a thread has not run since its last sample, its stack is the same and is not read again.
//!
//! It needs the right to read the memory of the program: the same user, a dumpable process, and no restriction by Yama.
//! Only recorded threads are sampled: those with ranges, marks or calls of their own. Docs: docs/COLLECTING.md.

mod code_objects;
mod interpreter;
mod layout;
mod line_table;
mod memory;
mod refusal;
mod sampled_process;
mod sampling_rate;
mod stack_text;
mod stacks;

pub(crate) use layout::SUPPORTED_VERSIONS;
pub(crate) use refusal::yama_level;

use crate::drain::{RecordedThread, RecordedThreads};
use crate::host::machine;
use crate::log::warn;
use crate::shard_output::{OutputBatch, OutputItem, PythonSample, SideOutput};
use refusal::PythonRefusal;
use rustix::time::{ClockId, clock_gettime};
use sampled_process::SampledProcess;
use sampling_rate::SamplingRate;
use std::collections::BTreeMap;
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

/// Maximum time for [`PythonSampler::stop`].
const TIME_TO_STOP: Duration = Duration::from_millis(100);
/// Interval between two batches, each of which wakes the writing thread.
const SEND_EVERY: Duration = Duration::from_secs(1);
/// Time between two looks, while no stack is read.
const IDLE_PERIOD: Duration = Duration::from_millis(100);
/// Maximum number of threads that are sampled at a time.
const MAX_THREADS: usize = 256;
/// Maximum number of samples that wait for the writing thread. Further ones are counted as lost.
const MAX_PENDING_SAMPLES: usize = 1 << 14;
/// Maximum number of bytes of their stacks.
const MAX_PENDING_BYTES: usize = 16 << 20;
/// Share of dropped samples from which on the log says so.
const MIN_REPORTED: f64 = 0.05;

/// The sampling thread. It ends when this is dropped.
pub(crate) struct PythonSampler {
    stop: SyncSender<()>,
    ended: Receiver<()>,
}

impl PythonSampler {
    /// Starts the thread. `ranks` is the number of ranks of this node, which share the CPU time for samples.
    pub(crate) fn start(
        threads: RecordedThreads,
        ranks: u32,
        output: SideOutput,
    ) -> io::Result<PythonSampler> {
        let (stop, stopped) = sync_channel(1);
        let (end, ended) = sync_channel(1);
        std::thread::Builder::new().name("rpd-python".to_owned()).spawn(move || {
            run(threads, ranks, output, &stopped);
            let _ = end.send(());
        })?;
        Ok(PythonSampler { stop, ended })
    }

    /// Ends the thread and waits at most 100 ms for its last rows.
    pub(crate) fn stop(self) {
        drop(self.stop);
        let _ = self.ended.recv_timeout(TIME_TO_STOP);
    }
}

fn run(threads: RecordedThreads, ranks: u32, output: SideOutput, stopped: &Receiver<()>) {
    let mut samples = PythonSamples::new(threads, output);
    let mut rate = SamplingRate::new(ranks, Instant::now());
    let mut next = Instant::now();
    let mut sampled = cpu_time();
    loop {
        let (now, woke) = (Instant::now(), cpu_time());
        // To wait takes CPU time as well.
        let around = woke.saturating_sub(sampled);
        samples.follow_list(now);
        samples.look(now);
        let looked = cpu_time();
        rate.owe(looked.saturating_sub(woke));
        let has_read = samples.sample(now, rate.period());
        sampled = cpu_time();
        let period = if has_read {
            rate.took(around + sampled.saturating_sub(looked), samples.threads(), now);
            rate.period()
        } else {
            rate.rest(now);
            IDLE_PERIOD
        };
        samples.send_if_due(now);
        // Missed ticks are not repeated.
        next = (next + period).max(Instant::now());
        let pause = next.saturating_duration_since(Instant::now());
        if stopped.recv_timeout(pause) != Err(RecvTimeoutError::Timeout) {
            break;
        }
    }
    samples.end();
}

/// Returns whether no CPU runs without the timer of the kernel. On one that does, the time of a thread that runs is brought
/// up to date once a second only.
fn has_ticks() -> bool {
    let without = std::fs::read_to_string("/sys/devices/system/cpu/nohz_full").unwrap_or_default();
    matches!(without.trim(), "" | "(null)")
}

/// CPU time of this thread.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}

/// Samples the processes with recorded threads.
struct PythonSamples {
    list: RecordedThreads,
    seen: u64,
    processes: BTreeMap<u32, SampledProcess>,
    refusals: Vec<PythonRefusal>,
    output: SideOutput,
    pending: Vec<OutputItem>,
    pending_bytes: usize,
    /// Samples of each process that found no room.
    lost: BTreeMap<u32, u64>,
    sent: Instant,
    /// Period of the last sample of each process, which it was recorded with.
    periods: BTreeMap<u32, Duration>,
    /// The kernel counts the time of each thread that runs many times a second.
    has_ticks: bool,
    /// Samples of processes that have ended, and those that were dropped.
    ended: (u64, u64),
    /// There was a recorded thread.
    has_had_threads: bool,
}

impl PythonSamples {
    fn new(list: RecordedThreads, output: SideOutput) -> PythonSamples {
        PythonSamples {
            list,
            seen: 0,
            processes: BTreeMap::new(),
            refusals: Vec::new(),
            output,
            pending: Vec::new(),
            pending_bytes: 0,
            lost: BTreeMap::new(),
            sent: Instant::now(),
            periods: BTreeMap::new(),
            has_ticks: has_ticks(),
            ended: (0, 0),
            has_had_threads: false,
        }
    }

    /// Takes over the changes of the list of recorded threads.
    fn follow_list(&mut self, now: Instant) {
        let Some(mut listed) = self.list.changed_since(&mut self.seen) else { return };
        listed.sort_by_key(|thread| thread.number);
        listed.truncate(MAX_THREADS);
        self.has_had_threads |= !listed.is_empty();
        let mut by_process: BTreeMap<u32, Vec<RecordedThread>> = BTreeMap::new();
        listed.into_iter().for_each(|thread| by_process.entry(thread.source).or_default().push(thread));
        let ended = &mut self.ended;
        self.processes.retain(|source, process| {
            let stays = by_process.contains_key(source);
            if !stays {
                (ended.0, ended.1) = (ended.0 + process.samples, ended.1 + process.changed);
            }
            stays
        });
        for (source, threads) in by_process {
            let Some(pid) = threads.first().map(|thread| thread.pid) else { continue };
            let process =
                self.processes.entry(source).or_insert_with(|| SampledProcess::new(source, pid, now));
            process.set_threads(threads, self.has_ticks);
        }
        if self.list.has_far_process() {
            self.refuse(None, PythonRefusal::OtherNamespace);
        }
    }

    /// Returns the number of threads that are sampled.
    fn threads(&self) -> usize {
        self.processes.values().filter(|process| process.is_read()).map(SampledProcess::threads).sum()
    }

    /// Looks for interpreters.
    fn look(&mut self, now: Instant) {
        let looked = self.processes.values_mut().map(|process| (process.pid(), process.look(now)));
        let refused: Vec<_> = looked.filter_map(|(pid, refused)| Some((pid, refused?))).collect();
        refused.into_iter().for_each(|(pid, refused)| self.refuse(Some(pid), refused));
    }

    /// Prints a reason once.
    fn refuse(&mut self, pid: Option<i32>, refused: PythonRefusal) {
        if self.refusals.contains(&refused) {
            return;
        }
        let of = pid.map_or("a process".to_owned(), |pid| format!("process {pid}"));
        warn(format_args!("warning: no Python stacks of {of}: {refused}"));
        self.refusals.push(refused);
    }

    /// Samples all threads. Returns whether there was a stack to read. `period` is the time between samples.
    fn sample(&mut self, now: Instant, period: Duration) -> bool {
        let mut found = Vec::new();
        let mut has_read = false;
        for process in self.processes.values_mut().filter(|process| process.is_read()) {
            has_read = true;
            let time = machine::boottime();
            process.sample(now, &mut found);
            let source = process.source;
            for sample in found.drain(..) {
                self.pending_bytes += sample.stack.len();
                if self.pending.len() >= MAX_PENDING_SAMPLES || self.pending_bytes > MAX_PENDING_BYTES {
                    *self.lost.entry(source).or_default() += 1;
                    continue;
                }
                let changed = self.periods.insert(source, period) != Some(period);
                let period = changed.then_some(period);
                let row = PythonSample { source, thread: sample.thread, time, period, stack: sample.stack };
                self.pending.push(OutputItem::PythonSample(Box::new(row)));
            }
        }
        has_read
    }

    fn send_if_due(&mut self, now: Instant) {
        if now.duration_since(self.sent) < SEND_EVERY || self.pending.is_empty() {
            return;
        }
        self.sent = now;
        match self.output.try_send(OutputBatch::of(std::mem::take(&mut self.pending))) {
            Ok(()) => {
                self.pending_bytes = 0;
                // They go with the next batch: one that is not sent must not grow.
                self.add_losses();
            }
            Err(batch) => self.pending = batch.items,
        }
    }

    /// Adds the lost samples to the batch, as entries of the ledger.
    fn add_losses(&mut self) {
        let lost = std::mem::take(&mut self.lost).into_iter();
        let entries = lost.flat_map(|(source, samples)| PythonSample::losses(source, samples));
        self.pending.extend(entries.map(OutputItem::Loss));
    }

    /// Sends the rest, and says what was dropped. Waits for room.
    fn end(mut self) {
        self.add_losses();
        if !self.pending.is_empty() {
            // Fails only if the writing thread has ended, which is reported elsewhere.
            let _ = self.output.send(OutputBatch::of(self.pending));
        }
        let (mut samples, mut changed) = self.ended;
        for process in self.processes.values() {
            (samples, changed) = (samples + process.samples, changed + process.changed);
        }
        if samples == 0 && self.refusals.is_empty() {
            let why = match self.has_had_threads {
                true => "no recorded thread ran Python of an interpreter that could be found",
                false => {
                    "those of threads with ranges, marks or calls are, and there was none, or none for long enough"
                }
            };
            warn(format_args!("note: no Python stacks are recorded: {why}"));
        }
        if changed as f64 > samples as f64 * MIN_REPORTED {
            warn(format_args!(
                "warning: {changed} of {samples} samples of Python stacks are not recorded: the program changed its stack \
                 during the read"
            ));
        }
    }
}
