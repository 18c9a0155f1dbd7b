//! Counters while a job runs, ten times a second: of the node, its CPU, memory, network, disk and amdgpu, and of each
//! recorded thread, its time on a CPU and its waiting for one.
//!
//! ```text
//! claim: one sampler per node and run -> find: which files there are -> metrics: files to values
//!   -> changed_values -> outbox: batches to the writing thread, which makes rows of them
//! thread_times: the threads of this collector -> the same rows
//! ```
//!
//! The collector that first binds the abstract Unix socket `rpd-system-UID-HASH` (hash of the run id) samples the node. The
//! others try again every 5 s, so that one of them continues when it ends. Abstract sockets belong to a network
//! namespace: containers with networks of their own are sampled once each.
//!
//! A rate or share is the growth of a sum since the previous tick, so the first tick has none, nor has a tick at which
//! a sum decreased. Shares, and rates of a file with one sum, are rounded to hundredths, those of interfaces and disks
//! to whole numbers. A file that failed three times in a row is no longer read. Files of the node and those of threads
//! stay open while they need at most an eighth of the descriptors each; the node is not sampled where that is none.
//! Ticks are at random distances around a tenth of a second, and missed ones are not repeated. Devices that appear
//! later are not seen.
//! Beyond 600 waiting ticks, ticks are dropped and counted (`ring_full`).
//!
//! docs/REFERENCE.md lists the counters.

mod changed_values;
mod file;
mod find;
mod gpu;
mod metrics;
mod outbox;
mod parse;
mod sampling_pace;
#[cfg(test)]
mod tests;
mod thread_times;

pub(crate) use gpu::amd_devices;
pub(crate) use thread_times::{waits_are_counted, why_not_followed};

use crate::drain::RecordedThreads;
use crate::host::claim::NodeClaim;
use crate::host::machine;
use crate::launcher::SourceDefaults;
use crate::shard_output::SideOutput;
use metrics::NodeMetrics;
use outbox::MetricsOutbox;
use rustix::process::{Resource, getrlimit};
use sampling_pace::SamplingPace;
use std::io;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};
use thread_times::ThreadTimes;

/// Maximum time for [`SystemSampler::stop`], whatever a file or the file system does.
const TIME_TO_STOP: Duration = Duration::from_millis(100);

/// Interval between two batches of times of threads, each of which wakes the writing thread.
const SEND_EVERY: Duration = Duration::from_secs(1);
/// Time between two looks for threads, where there is nothing to sample.
const IDLE_PERIOD: Duration = Duration::from_secs(1);

/// Configuration of a sampler.
#[derive(Clone, Debug)]
pub struct SystemConfig {
    /// Its number among the processes of the shard.
    pub source: u32,
    /// Folder of the run. Each node has one sampler per run; equal run ids in two folders are two runs.
    pub run: PathBuf,
    /// Rank, node and clocks of the collector.
    pub defaults: SourceDefaults,
    /// Folder that contains `proc` and `sys`: `/`.
    pub root: PathBuf,
    /// Interval between two attempts to become the sampler of the node.
    pub retry: Duration,
    /// The threads whose times are sampled.
    pub threads: RecordedThreads,
}

impl SystemConfig {
    /// Default for [`SystemConfig::retry`].
    pub const RETRY: Duration = Duration::from_secs(5);
}

/// The sampling thread. It ends when this is dropped.
pub struct SystemSampler {
    stop: SyncSender<()>,
    ended: Receiver<()>,
}

impl SystemSampler {
    /// Starts the thread. It samples once no other collector of the run does so on this node.
    pub fn start(config: SystemConfig, output: SideOutput) -> io::Result<SystemSampler> {
        let (stop, stopped) = sync_channel(1);
        let (end, ended) = sync_channel(1);
        std::thread::Builder::new().name("rpd-system".to_owned()).spawn(move || {
            run(&config, output, &stopped);
            let _ = end.send(());
        })?;
        Ok(SystemSampler { stop, ended })
    }

    /// Ends the thread and waits at most 100 ms for its last rows: a file may hang in its driver, and the
    /// writing thread in its file system.
    pub fn stop(self) {
        drop(self.stop);
        let _ = self.ended.recv_timeout(TIME_TO_STOP);
    }
}

fn run(config: &SystemConfig, output: SideOutput, stopped: &Receiver<()>) {
    let (root, max_files) = (config.root.clone(), max_open_files());
    let (threads, cpu) = (config.threads.clone(), find::cpu_model(&root));
    let mut times = ThreadTimes::new(threads, root, cpu, max_files, output.clone());
    let mut node = NodeSampler::new(config, output);
    let mut pace = SamplingPace::new(Instant::now());
    let mut sent = Instant::now();
    loop {
        let start = Instant::now();
        node.tick(start, pace.period());
        times.tick(machine::boottime());
        if sent.elapsed() >= SEND_EVERY {
            sent = Instant::now();
            times.send();
        }
        pace.took(start.elapsed());
        let is_idle = times.is_empty() && !node.is_sampling();
        let next =
            if is_idle { Instant::now() + config.retry.min(IDLE_PERIOD) } else { pace.next(Instant::now()) };
        if !sleep_until(next, stopped) {
            break;
        }
    }
    times.end();
    node.end();
}

/// Samples the node, once no other collector of the run does so.
struct NodeSampler<'a> {
    config: &'a SystemConfig,
    began: Instant,
    /// When it tries next to become the sampler of the node.
    next_claim: Instant,
    output: SideOutput,
    sampling: Option<NodeSampling>,
}

struct NodeSampling {
    _claim: NodeClaim,
    metrics: NodeMetrics,
    outbox: MetricsOutbox,
    values: Vec<Option<f64>>,
}

impl NodeSampler<'_> {
    fn new(config: &SystemConfig, output: SideOutput) -> NodeSampler<'_> {
        let began = Instant::now();
        NodeSampler { config, began, next_claim: began, output, sampling: None }
    }

    fn is_sampling(&self) -> bool {
        self.sampling.is_some()
    }

    /// Samples the node, if this is its sampler. `start` is when the tick began.
    fn tick(&mut self, start: Instant, period: Duration) {
        if self.sampling.is_none() && start >= self.next_claim {
            self.next_claim = start + self.config.retry;
            self.sampling = self.claim();
        }
        if let Some(NodeSampling { metrics, outbox, values, .. }) = &mut self.sampling {
            let time = machine::boottime();
            metrics.sample(time, start + period, values);
            outbox.tick(time, period, values);
        }
    }

    fn claim(&self) -> Option<NodeSampling> {
        // Even files that are closed at once would take descriptors that the recording needs.
        if max_open_files() == 0 {
            return None;
        }
        let claim = NodeClaim::take("system", &self.config.run.to_string_lossy()).ok()?;
        let metrics = NodeMetrics::find(&self.config.root, max_open_files());
        let outbox = MetricsOutbox::new(self.config, &metrics, self.began, self.output.clone());
        Some(NodeSampling { _claim: claim, metrics, outbox, values: Vec::new() })
    }

    fn end(self) {
        if let Some(sampling) = self.sampling {
            sampling.outbox.end();
        }
    }
}

/// Returns an eighth of the descriptor limit. The others are for the traced threads.
fn max_open_files() -> usize {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    // The first descriptors are for the shard, the socket and the processes.
    usize::try_from(limit.saturating_sub(32) / 8).unwrap_or(usize::MAX)
}

/// Returns `false` when the sampler must stop.
fn sleep_until(time: Instant, stopped: &Receiver<()>) -> bool {
    let pause = time.saturating_duration_since(Instant::now());
    stopped.recv_timeout(pause) == Err(RecvTimeoutError::Timeout)
}
