//! The clocks of nodes against each other, measured while the job runs.
//!
//! ```text
//! rendezvous thread: claim -> folder: the root's file -> orders, reports
//!                                                            |
//! agent thread: sockets <-> join, registry (place in the tree)
//!                       <-> packet <-> burst (requests), replies -> shard
//! ```
//!
//! One agent per clock domain and run. A file in the run folder names the root, which gives each agent its place in a
//! tree. The agents exchange UDP packets, so that no MPI is needed and none is disturbed. A lone node has neither
//! thread nor socket.

mod agent;
mod burst;
mod card;
mod folder;
mod interfaces;
mod join;
mod kernel_times;
mod packet;
mod rate_limit;
mod registry;
mod rendezvous;
mod replies;
mod reply_rate;
mod sockets;
#[cfg(test)]
mod tests;
mod tree;

pub(crate) use interfaces::{ProbeInterface, addresses};
pub(crate) use kernel_times::NodeClock;
pub(crate) use reply_rate::ProbeRate;
pub(crate) use sockets::ProbePorts;

use crate::host::event_flag::EventFlag;
use crate::shard_output::SideOutput;
use agent::AgentSignals;
use rendezvous::RendezvousThread;
use rpd_shard::record::ClockDomain;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Default number of replies per second of one agent.
pub(crate) const DEFAULT_RATE: u32 = 10_000;
/// Maximum time to wait for the last burst.
const TIME_TO_MEASURE: Duration = Duration::from_millis(200);
/// Maximum time for the end of the agent.
const TIME_TO_LEAVE: Duration = Duration::from_millis(300);

/// Settings of the user.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ProbeChoice {
    /// The interface; `None` for all.
    pub interface: Option<ProbeInterface>,
    /// The ports; `None` for any that the system assigns.
    pub ports: Option<ProbePorts>,
    /// Replies per second.
    pub rate: u32,
}

impl Default for ProbeChoice {
    fn default() -> ProbeChoice {
        ProbeChoice { interface: None, ports: None, rate: DEFAULT_RATE }
    }
}

/// Intervals of an agent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProbePace {
    /// Between two bursts.
    pub period: Duration,
    /// From the start of the command to the first read of the file.
    pub first_look: Duration,
    /// Time without a reply after which a root counts as silent.
    pub next_deadline: Duration,
    /// Age at which drafts of killed agents may be removed.
    pub expiry: Duration,
    /// Between two attempts to become the agent of the clock domain.
    pub retry: Duration,
}

impl Default for ProbePace {
    fn default() -> ProbePace {
        let seconds = Duration::from_secs;
        ProbePace {
            period: seconds(5),
            first_look: Duration::from_millis(100),
            next_deadline: Duration::from_millis(1_500),
            expiry: seconds(30),
            retry: seconds(5),
        }
    }
}

/// Configuration of an agent.
#[derive(Clone, Debug)]
pub(crate) struct ProbeConfig {
    /// Output root, absolute.
    pub root: PathBuf,
    /// Run id: there is one agent per run and clock domain.
    pub run_id: String,
    /// Rank of the collector.
    pub rank: u32,
    /// The clock domain that it reads.
    pub domain: ClockDomain,
    /// The group may list the folder. The file with the secret stays private to the user.
    pub share_group: bool,
    /// Settings of the user.
    pub choice: ProbeChoice,
    /// Intervals.
    pub pace: ProbePace,
    /// The clocks of the node: [`NodeClock::REAL`], or those of a test.
    pub clock: NodeClock,
    #[cfg(test)]
    counts: std::sync::Arc<folder::counts::FileCounts>,
}

impl ProbeConfig {
    /// Uses the default intervals and the real clocks.
    pub(crate) fn new(
        root: PathBuf,
        run_id: String,
        rank: u32,
        domain: ClockDomain,
        share_group: bool,
        choice: ProbeChoice,
    ) -> ProbeConfig {
        let (pace, clock) = (ProbePace::default(), NodeClock::REAL);
        ProbeConfig {
            root,
            run_id,
            rank,
            domain,
            share_group,
            choice,
            pace,
            clock,
            #[cfg(test)]
            counts: Default::default(),
        }
    }
}

/// The agent of this collector, or its attempt to become one. Ends when it is dropped.
pub(crate) struct ProbeAgent {
    signals: AgentSignals,
    /// Time at which the command ended.
    stopped: Option<Instant>,
}

impl ProbeAgent {
    /// Starts the rendezvous thread. That starts the agent thread once no other collector of the run measures
    /// the clocks of this node.
    pub(crate) fn start(config: ProbeConfig, output: SideOutput) -> io::Result<ProbeAgent> {
        let signals = AgentSignals {
            wake: EventFlag::new()?,
            stop: EventFlag::new()?,
            news: EventFlag::new()?,
            measured: EventFlag::new()?,
            ended: EventFlag::new()?,
            #[cfg(test)]
            killed: EventFlag::new()?,
        };
        let thread = RendezvousThread::new(config, signals.clone(), output);
        std::thread::Builder::new().name("rpd-clocks".to_owned()).spawn(move || thread.run())?;
        Ok(ProbeAgent { signals, stopped: None })
    }

    /// Starts the last burst, because the command has ended.
    pub(crate) fn stop(&mut self) {
        self.stopped.get_or_insert_with(Instant::now);
        self.signals.stop.set();
        self.signals.wake.set();
    }

    /// Waits until the last burst is recorded, at most 200 ms from the end of the command.
    pub(crate) fn wait_until_measured(&mut self) {
        self.stop();
        let began = self.stopped.unwrap_or_else(Instant::now);
        self.signals.measured.wait(began + TIME_TO_MEASURE);
    }

    /// Waits until the children have sent their last requests, at most 300 ms from the end of the command.
    pub(crate) fn leave(mut self) {
        self.stop();
        let began = self.stopped.unwrap_or_else(Instant::now);
        self.signals.ended.wait(began + TIME_TO_LEAVE);
    }

    /// Ends the agent without a message and without a file operation, as if its process was killed.
    #[cfg(test)]
    fn kill(self) {
        self.signals.killed.set();
        drop(self);
    }
}

impl Drop for ProbeAgent {
    fn drop(&mut self) {
        self.signals.stop.set();
        self.signals.wake.set();
    }
}
