//! CPU time of the recorded threads: how long each ran, and how long it had no core although it could have run. The kernel
//! counts both for each thread (`/proc/PID/task/TID/schedstat`, with `CONFIG_SCHED_INFO`). In the rest of the time a thread
//! is blocked; for what, is sampled from its state (`/proc/PID/task/TID/stat`): an uninterruptible wait, as for a disk, or
//! any other. The kernel counts the former exactly only with `kernel.task_delayacct`, and then not those of NFS and Lustre
//! for a server. Where the user may have them, switch records say when a thread had no core ([`preemptions`]).
//!
//! Once a second, it reads what quotas took from the process of these threads ([`cpu_quota`]), and how much that reads and
//! writes ([`process_input`]).
//!
//! The rows belong to the process of the thread. A value counts from its time to that of the next one, see
//! [`shares::ThreadShares`].

mod cpu_quota;
mod preemptions;
mod process_input;
mod shares;
mod switch_records;
mod thread_sums;

use crate::drain::{RecordedThread, RecordedThreads};
use crate::host::cpus::cpus_of_thread;
use crate::host::{descriptors, machine};
use crate::log::warn;
use crate::shard_output::{
    CountedThread, MetricAgent, MetricCounter, MetricsDescription, MetricsTick, OutputBatch, OutputItem,
    SideOutput,
};
use cpu_quota::CpuQuota;
use preemptions::{FollowedThread, add_tick};
use process_input::ProcessInput;
use shares::{IntervalShares, ThreadShares};
use std::collections::{BTreeMap, HashSet};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
pub(crate) use switch_records::why_not_followed;
use thread_sums::ThreadFiles;
pub(crate) use thread_sums::waits_are_counted;

/// The values of a thread that lives shorter are dropped: such threads are many, and short commands need no counters.
const MIN_AGE: Duration = Duration::from_secs(1);
/// Maximum number of threads that are sampled at a time.
const MAX_THREADS: usize = 256;
/// Maximum number of counters of a process: two or five for each thread that it ever had.
const MAX_COUNTERS: i64 = 1 << 12;
/// Number of threads up to which the state of a further one is sampled: such a read takes twice as long as that of the times or
/// more.
const MAX_STATES: usize = 16;
/// The same for a further main thread: below a collector, torchrun starts a process for each GPU, and their first threads may be
/// more than [`MAX_STATES`] before the last process starts.
const MAX_STATES_WITH_MAIN: usize = 64;
/// Number of open files of a thread of which the state is sampled. Others have one.
const THREAD_FILES: usize = 3;
/// Maximum number of items that wait for the writing thread. Beyond that, intervals become longer.
const MAX_PENDING_ITEMS: usize = 4096;
/// Name of the counter of quotas.
const QUOTA_COUNTER: &str = "cgroup.cpu_throttled";
/// Time between two reads of the quotas, ns.
const QUOTA_PERIOD_NS: i64 = 1_000_000_000;

/// Keys of counters and their values, by the start of the interval and the process.
type CompletedValues = BTreeMap<(i64, u32), Vec<(i64, f64)>>;

/// Samples the threads on a list.
pub(super) struct ThreadTimes {
    list: RecordedThreads,
    seen: u64,
    threads: Vec<SampledThread>,
    processes: BTreeMap<u32, SampledProcess>,
    /// Folder that contains `proc`.
    root: PathBuf,
    /// Name of the CPU.
    cpu: String,
    max_open_files: usize,
    output: SideOutput,
    items: Vec<OutputItem>,
    /// In this tick, no file could be opened.
    lacks_descriptors: bool,
    /// That was printed.
    has_warned: bool,
}

struct SampledThread {
    thread: RecordedThread,
    since: Instant,
    state: ThreadState,
}

enum ThreadState {
    /// It is new, or too many others are sampled.
    Waiting,
    Sampled {
        files: ThreadFiles,
        shares: Box<ThreadShares>,
        /// Only if its state is sampled.
        followed: Option<Box<FollowedThread>>,
        rows: ThreadRows,
    },
    /// Its times cannot be read.
    Failed,
}

/// Where the values of a thread go.
enum ThreadRows {
    /// To this list, until the thread has lived for [`MIN_AGE`].
    Held(Vec<IntervalShares>),
    /// To the counters with these keys: of its run time, its waiting, and, if its state is sampled, of two kinds of waits
    /// and the samples.
    Counter(Range<i64>),
}

/// The counters of a process.
#[derive(Default)]
struct SampledProcess {
    /// Number of counters.
    counters: i64,
    /// The quotas of its cgroups, with the key of their counter.
    quota: Option<(i64, SampledQuota)>,
    /// Its reads and writes, with the key of the first of these counters.
    input: Option<(i64, ProcessInput)>,
    /// How many threads have had each name.
    names: BTreeMap<Box<str>, u32>,
}

/// The quotas of the cgroups of a process.
struct SampledQuota {
    quota: CpuQuota,
    /// Time of the last read, and the sum then, ns.
    last: (i64, u64),
}

impl ThreadTimes {
    pub(super) fn new(
        list: RecordedThreads,
        root: PathBuf,
        cpu: String,
        max_open_files: usize,
        output: SideOutput,
    ) -> ThreadTimes {
        ThreadTimes {
            list,
            seen: 0,
            threads: Vec::new(),
            processes: BTreeMap::new(),
            root,
            cpu,
            max_open_files,
            output,
            items: Vec::new(),
            lacks_descriptors: false,
            has_warned: false,
        }
    }

    /// Returns whether there is no thread to sample.
    pub(super) fn is_empty(&self) -> bool {
        self.threads.is_empty()
    }

    /// Samples all threads. `time` is now, ns of `CLOCK_BOOTTIME`.
    pub(super) fn tick(&mut self, time: i64) {
        self.follow_list();
        if self.items.len() >= MAX_PENDING_ITEMS {
            self.send();
        }
        let has_room = self.items.len() < MAX_PENDING_ITEMS;
        let mut sampled = self.threads.iter().filter(|thread| thread.state.is_sampled()).count();
        let mut completed = CompletedValues::new();
        self.lacks_descriptors = false;
        for at in 0..self.threads.len() {
            let is_waiting = matches!(self.threads[at].state, ThreadState::Waiting);
            if is_waiting && sampled < MAX_THREADS && !self.lacks_descriptors {
                self.threads[at].state = self.begin(at, time, sampled);
                sampled += usize::from(self.threads[at].state.is_sampled());
                continue;
            }
            if has_room && self.threads[at].is_held_too_long() {
                self.describe(at, &mut completed);
            }
            let found = &mut self.threads[at];
            let ThreadState::Sampled { files, shares, followed, rows } = &mut found.state else {
                continue;
            };
            if !has_room {
                continue;
            }
            // A thread that has ended leaves the list soon, which ends its last interval.
            let read_at = machine::boottime();
            let Some(sums) = files.sample() else { continue };
            let read = (read_at, machine::boottime());
            let intervals = add_tick(shares, (time, sums), read, followed.as_deref_mut());
            match rows {
                ThreadRows::Held(held) => held.extend(intervals),
                ThreadRows::Counter(counters) => {
                    add_values(&mut completed, intervals, found.thread.source, counters)
                }
            }
        }
        let processes = self.processes.iter_mut().filter(|_| has_room);
        processes.for_each(|(source, process)| process.sample(time, *source, &mut completed));
        self.push(completed);
    }

    /// Takes over the changes of the list.
    fn follow_list(&mut self) {
        let Some(listed) = self.list.changed_since(&mut self.seen) else { return };
        let numbers: HashSet<u64> = listed.iter().map(|thread| thread.number).collect();
        let sources: HashSet<u32> = listed.iter().map(|thread| thread.source).collect();
        let known = std::mem::take(&mut self.threads).into_iter();
        let (stay, gone): (Vec<_>, Vec<_>) = known.partition(|known| numbers.contains(&known.thread.number));
        self.threads = stay;
        self.end_threads(&gone);
        let mut completed = CompletedValues::new();
        for (source, process) in &mut self.processes {
            if !sources.contains(source) {
                process.end(*source, &mut completed);
            }
        }
        self.push(completed);
        let last = self.threads.iter().map(|known| known.thread.number).max().unwrap_or(0);
        let new = listed.into_iter().filter(|thread| thread.number > last);
        let since = Instant::now();
        self.threads.extend(new.map(|thread| SampledThread { thread, since, state: ThreadState::Waiting }));
        self.threads.sort_by_key(|known| known.thread.number);
    }

    fn end_threads(&mut self, ended: &[SampledThread]) {
        let mut completed = CompletedValues::new();
        for SampledThread { thread, state, .. } in ended {
            if let ThreadState::Sampled { shares, rows: ThreadRows::Counter(counters), .. } = state {
                let intervals = shares.end().into_iter().flatten();
                add_values(&mut completed, intervals, thread.source, counters);
            }
        }
        self.push(completed);
    }

    /// Begins to sample a thread.
    fn begin(&mut self, at: usize, time: i64, sampled: usize) -> ThreadState {
        let RecordedThread { pid, tid, .. } = self.threads[at].thread;
        let folder = self.root.join(format!("proc/{pid}/task/{tid}"));
        let has_state = |known: &&SampledThread| match &known.state {
            ThreadState::Sampled { files, .. } => files.has_state(),
            ThreadState::Waiting | ThreadState::Failed => false,
        };
        let states = self.threads.iter().filter(has_state).count();
        let wants_state = states < if tid == pid { MAX_STATES_WITH_MAIN } else { MAX_STATES };
        let Some(mut files) = ThreadFiles::open(&folder, wants_state) else { return self.without_files() };
        let Some(sums) = files.sample() else { return self.without_files() };
        let states = states + usize::from(files.has_state());
        let others = (sampled + 1).saturating_sub(states);
        let has_descriptors = states * THREAD_FILES + others <= self.max_open_files;
        if !has_descriptors {
            files.close();
        }
        let is_followed = has_descriptors && files.has_state();
        let followed = is_followed.then(|| Box::new(FollowedThread::new(tid)));
        let (shares, rows) = (Box::new(ThreadShares::new(time, sums)), ThreadRows::Held(Vec::new()));
        ThreadState::Sampled { files, shares, followed, rows }
    }

    /// Returns the state of a thread whose files cannot be opened: later there may be a descriptor for them.
    fn without_files(&mut self) -> ThreadState {
        self.lacks_descriptors = descriptors::are_exhausted();
        if !self.lacks_descriptors {
            return ThreadState::Failed;
        }
        if !std::mem::replace(&mut self.has_warned, true) {
            warn(format_args!(
                "warning: CPU times of some threads are not recorded: rpd-collect may open no more files; raise the hard limit (`ulimit -Hn`)"
            ));
        }
        ThreadState::Waiting
    }

    /// Describes the counters of a thread, and adds its values so far to those that are `completed`.
    fn describe(&mut self, at: usize, completed: &mut CompletedValues) {
        let RecordedThread { source, pid, tid, name, .. } = self.threads[at].thread.clone();
        let ThreadState::Sampled { files, .. } = &self.threads[at].state else { return };
        let count = if files.has_state() { 5 } else { 2 };
        let process = self.processes.entry(source).or_default();
        if process.counters + count > MAX_COUNTERS {
            self.threads[at].state = ThreadState::Failed;
            return;
        }
        let keys = process.counters + 1..process.counters + 1 + count;
        process.counters += count;
        // The same name in each rank, so that ranks can be compared.
        let suffix = match tid == pid {
            true => String::new(),
            false => {
                let known = process.names.entry(name.clone()).or_default();
                *known += 1;
                if *known > 1 { format!(" {name} {known}") } else { format!(" {name}") }
            }
        };
        let cpus = cpus_of_thread(pid, tid);
        let counter = |what: &str, description| MetricCounter {
            name: format!("{what}{suffix}"),
            description,
            units: "%",
            component: "cpu",
            agent: 0,
            instance: 0,
            thread: Some(CountedThread { tid, cpus: cpus.clone() }),
        };
        let is_first = keys.start == 1;
        let agent = || MetricAgent {
            is_gpu: false,
            name: self.cpu.clone(),
            product: String::new(),
            pci: String::new(),
        };
        let mut counters = vec![
            counter("thread.cpu", "Share of time in which the thread ran"),
            counter("thread.cpu_wait", "Share of time in which the thread waited for a CPU"),
            counter(
                "thread.disk_wait",
                "Share of the samples that found the thread in an uninterruptible wait, as for a disk",
            ),
            counter(
                "thread.sleep",
                "Share of the samples that found the thread in another wait, but for a CPU",
            ),
            MetricCounter { units: "1/s", ..counter("thread.samples", "Samples of the state of the thread") },
        ];
        counters.truncate(count as usize);
        if is_first && let Some(quota) = SampledQuota::of(&self.root, pid, self.max_open_files) {
            let description = "CPU time that quotas of its cgroups took from the processes in them";
            let named = counter("", description);
            counters.push(MetricCounter { name: QUOTA_COUNTER.to_owned(), thread: None, ..named });
            process.counters += 1;
            process.quota = Some((process.counters, quota));
        }
        if is_first && let Some(input) = ProcessInput::of(&self.root, pid, machine::boottime()) {
            let named = |(name, description, units): &(&str, &'static str, &'static str)| MetricCounter {
                name: (*name).to_owned(),
                description,
                units,
                component: "process",
                thread: None,
                ..counter("", "")
            };
            counters.extend(process_input::COUNTERS.iter().map(named));
            process.input = Some((process.counters + 1, input));
            process.counters += process_input::COUNTERS.len() as i64;
        }
        self.items.push(OutputItem::MetricsDescription(Box::new(MetricsDescription {
            source,
            agents: if is_first { vec![agent()] } else { Vec::new() },
            counters,
        })));
        let ThreadState::Sampled { rows, .. } = &mut self.threads[at].state else { return };
        if let ThreadRows::Held(held) = std::mem::replace(rows, ThreadRows::Counter(keys.clone())) {
            add_values(completed, held, source, &keys);
        }
    }

    /// Adds a tick for each process and start of an interval, in the order of time.
    fn push(&mut self, completed: CompletedValues) {
        let tick = |((time, source), values)| {
            OutputItem::MetricsTick(Box::new(MetricsTick { source, time, period: None, values }))
        };
        self.items.extend(completed.into_iter().map(tick));
    }

    /// Sends what there is, if there is room.
    pub(super) fn send(&mut self) {
        if self.items.is_empty() {
            return;
        }
        if let Err(batch) = self.output.try_send(OutputBatch::of(std::mem::take(&mut self.items))) {
            self.items = batch.items;
        }
    }

    /// Ends all threads, and sends the rest. Waits for room.
    pub(super) fn end(mut self) {
        let threads = std::mem::take(&mut self.threads);
        self.end_threads(&threads);
        let mut completed = CompletedValues::new();
        self.processes.iter_mut().for_each(|(source, process)| process.end(*source, &mut completed));
        self.push(completed);
        // Fails only if the writing thread has ended, which the outbox of the node reports.
        let _ = self.output.send(OutputBatch::of(self.items));
    }
}

impl SampledProcess {
    /// Reads what is due.
    fn sample(&mut self, time: i64, source: u32, completed: &mut CompletedValues) {
        if let Some((counter, quota)) = &mut self.quota
            && let Some((start, share)) = quota.add(time)
        {
            completed.entry((start, source)).or_default().push((*counter, share));
        }
        if let Some((first, input)) = &mut self.input
            && let Some((start, rates)) = input.add(time)
        {
            completed.entry((start, source)).or_default().extend((*first..).zip(rates));
        }
    }

    /// Ends the last intervals by values from which on nothing is known.
    fn end(&mut self, source: u32, completed: &mut CompletedValues) {
        if let Some((counter, quota)) = self.quota.take() {
            completed.entry((quota.last.0, source)).or_default().push((counter, 0.0));
        }
        if let Some((first, input)) = self.input.take() {
            let none = [0.0; process_input::COUNTERS.len()];
            completed.entry((input.end(), source)).or_default().extend((first..).zip(none));
        }
    }
}

impl SampledQuota {
    fn of(root: &Path, pid: i32, max_open_files: usize) -> Option<SampledQuota> {
        let mut quota = CpuQuota::of(root, pid)?;
        if max_open_files == 0 {
            quota.close();
        }
        let last = (machine::boottime(), quota.throttled_ns()?);
        Some(SampledQuota { quota, last })
    }

    /// Reads the sum, if it is time. Returns the start of the interval that ends now, and its share, % of a CPU.
    fn add(&mut self, time: i64) -> Option<(i64, f64)> {
        let (start, before) = self.last;
        let length = time.saturating_sub(start);
        if length < QUOTA_PERIOD_NS {
            return None;
        }
        let now = self.quota.throttled_ns()?;
        self.last = (time, now);
        let share = now.saturating_sub(before) as f64 / length as f64;
        Some((start, (share * 1e4).round() / 100.0))
    }
}

impl SampledThread {
    /// Returns whether its values are held although it has lived for [`MIN_AGE`].
    fn is_held_too_long(&self) -> bool {
        matches!(&self.state, ThreadState::Sampled { rows: ThreadRows::Held(_), .. })
            && self.since.elapsed() >= MIN_AGE
    }
}

impl ThreadState {
    fn is_sampled(&self) -> bool {
        matches!(self, ThreadState::Sampled { .. })
    }
}

/// Adds the values of completed intervals, by time and process.
fn add_values(
    completed: &mut CompletedValues,
    intervals: impl IntoIterator<Item = IntervalShares>,
    source: u32,
    counters: &Range<i64>,
) {
    for IntervalShares { start, run, wait, disk_wait, sleep, samples } in intervals {
        let values = completed.entry((start, source)).or_default();
        values.extend(counters.clone().zip([run, wait, disk_wait, sleep, samples]));
    }
}
