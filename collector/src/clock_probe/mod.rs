//! The clocks of nodes against each other, measured while the job runs.
//!
//! ```text
//! look-out (a thread): claim -> folder: the root -> order, news
//!                                                     |
//! agent (a thread): sockets <-> join, registry (place in the tree)
//!                           <-> packet <-> burst (asking), answers (answering) -> shard
//! ```
//!
//! One agent per clock domain and run. A file in the run folder names the root, which gives each agent its place in a
//! tree. The agents exchange UDP packets, so that no MPI is needed and none is disturbed. A lone node has neither
//! thread nor socket.

mod agent;
mod answer_rate;
mod answers;
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
mod signal;
mod sockets;
#[cfg(test)]
mod tests;
mod tree;

pub(crate) use answer_rate::ProbeRate;
pub(crate) use interfaces::{ProbeInterface, addresses};
pub(crate) use kernel_times::NodeClock;
pub(crate) use sockets::ProbePorts;

use crate::shard_output::SideOutput;
use agent::AgentSignals;
use rendezvous::RendezvousThread;
use rpd_shard::record::ClockDomain;
use serde::{Deserialize, Serialize};
use signal::EventFlag;
use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Answers a second of one agent, unless told otherwise.
pub(crate) const DEFAULT_RATE: u32 = 10_000;
/// The last burst is waited for no longer.
const TIME_TO_MEASURE: Duration = Duration::from_millis(200);
/// The whole end takes no longer.
const TIME_TO_LEAVE: Duration = Duration::from_millis(300);

/// What a user may choose.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ProbeChoice {
    /// Which interface.
    pub interface: Option<ProbeInterface>,
    /// Which ports; any that the system gives if there are none.
    pub ports: Option<ProbePorts>,
    /// Answers a second.
    pub rate: u32,
}

impl Default for ProbeChoice {
    fn default() -> ProbeChoice {
        ProbeChoice { interface: None, ports: None, rate: DEFAULT_RATE }
    }
}

/// How often things happen.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProbePace {
    /// Between two bursts.
    pub period: Duration,
    /// From the start of the command to the first look into the folder.
    pub first_look: Duration,
    /// A root is silent if it has not answered for so long.
    pub patience: Duration,
    /// After which drafts of agents that were killed may be removed.
    pub expiry: Duration,
    /// Between two looks whether the agent of the domain is gone.
    pub retry: Duration,
}

impl Default for ProbePace {
    fn default() -> ProbePace {
        let seconds = Duration::from_secs;
        ProbePace {
            period: seconds(5),
            first_look: Duration::from_millis(100),
            patience: Duration::from_millis(1_500),
            expiry: seconds(30),
            retry: seconds(5),
        }
    }
}

/// What an agent needs to know.
#[derive(Clone, Debug)]
pub(crate) struct ProbeConfig {
    /// Output root, absolute.
    pub root: PathBuf,
    /// The run: one agent per run and clock domain.
    pub run_id: String,
    /// Rank of the collector.
    pub rank: u32,
    /// Whose clocks it reads.
    pub domain: ClockDomain,
    /// The group may list the folder; the file with the secret is the user's alone.
    pub share_group: bool,
    /// What the user chose.
    pub choice: ProbeChoice,
    /// How often things happen.
    pub pace: ProbePace,
    /// The clocks of the node: [`NodeClock::REAL`], or those of a test.
    pub clock: NodeClock,
    #[cfg(test)]
    counts: std::sync::Arc<folder::counts::FileCounts>,
}

impl ProbeConfig {
    /// With the usual pace and clock.
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

/// The agent of this collector, or the wish to become one. Ends when it is dropped.
pub(crate) struct ProbeAgent {
    signals: AgentSignals,
    /// When the command ended.
    stopped: Option<Instant>,
}

impl ProbeAgent {
    /// Starts the look-out, which starts the agent once no other collector of the run has the clocks of
    /// this node.
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
        let look_out = RendezvousThread::new(config, signals.clone(), output);
        std::thread::Builder::new().name("rpd-clocks".to_owned()).spawn(move || look_out.run())?;
        Ok(ProbeAgent { signals, stopped: None })
    }

    /// The command has ended: the last burst begins.
    pub(crate) fn stop(&mut self) {
        self.stopped.get_or_insert_with(Instant::now);
        self.signals.stop.set();
        self.signals.wake.set();
    }

    /// Waits until the last burst is handed over, at most 200 ms from the end of the command.
    pub(crate) fn wait_until_measured(&mut self) {
        self.stop();
        let began = self.stopped.unwrap_or_else(Instant::now);
        self.signals.measured.wait(began + TIME_TO_MEASURE);
    }

    /// Waits until those that ask this node have done so for the last time, at most 300 ms from the end of
    /// the command.
    pub(crate) fn leave(mut self) {
        self.stop();
        let began = self.stopped.unwrap_or_else(Instant::now);
        self.signals.ended.wait(began + TIME_TO_LEAVE);
    }

    /// Ends it without a word and without a file operation, as if its process was killed.
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
