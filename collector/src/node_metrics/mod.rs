//! The node's own counters while a job runs: CPU, memory, network, disk and amdgpu, ten times a second.
//!
//! ```text
//! claim: one sampler per node and run -> find: which files there are -> metrics: files to values
//!   -> changed_values -> outbox: batches to the writing thread, which makes rows of them
//! ```
//!
//! The collector that first binds the abstract Unix socket `rpd-system-UID-HASH` (hash of the run id) samples. The
//! others try again every 5 s, so that one of them continues when it ends. Abstract sockets belong to a network
//! namespace: containers with networks of their own are sampled once each.
//!
//! A rate or share is the growth of a sum since the previous tick, so the first tick has none, nor has a tick at which
//! a sum decreased. Shares and InfiniBand rates are rounded to hundredths, other rates to whole bytes a second. A file
//! that failed three times in a row is no longer read. Files stay open while they need at most a quarter of the
//! descriptors. Missed ticks are not repeated. Devices that appear later are not seen. Beyond 600 waiting ticks, ticks
//! are dropped and counted (`ring_full`).
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

/// Maximum time for [`SystemSampler::stop`], whatever a file or the file system does.
const TIME_TO_STOP: Duration = Duration::from_millis(100);

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
    let began = Instant::now();
    let _claim = loop {
        match NodeClaim::take("system", &config.run.to_string_lossy()) {
            Ok(claim) => break claim,
            Err(_) if sleep_until(Instant::now() + config.retry, stopped) => {}
            Err(_) => return,
        }
    };
    let mut metrics = NodeMetrics::find(&config.root, most_open_files());
    let mut outbox = MetricsOutbox::new(config, &metrics, began, output);
    let mut pace = SamplingPace::new(Instant::now());
    let mut values = Vec::new();
    loop {
        let start = Instant::now();
        let time = machine::boottime();
        metrics.sample(time, start + pace.period(), &mut values);
        outbox.tick(time, pace.period(), &values);
        pace.took(start.elapsed());
        if !sleep_until(pace.next(Instant::now()), stopped) {
            break;
        }
    }
    outbox.end();
}

/// Returns a quarter of the descriptor limit. The others are for the traced threads.
fn most_open_files() -> usize {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    // The first descriptors are for the shard, the socket and the processes.
    usize::try_from(limit.saturating_sub(32) / 4).unwrap_or(usize::MAX)
}

/// Returns `false` when the sampler must stop.
fn sleep_until(time: Instant, stopped: &Receiver<()>) -> bool {
    let pause = time.saturating_duration_since(Instant::now());
    stopped.recv_timeout(pause) == Err(RecvTimeoutError::Timeout)
}
