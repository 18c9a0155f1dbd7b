//! The clocks of nodes against each other, measured while the job runs.
//!
//! ```text
//! look-out (a thread): claim -> folder: who is there -> candidates by tree
//!                                                          |
//! agent (a thread): sockets <-> packet <-> burst (asking), answers (answering) -> shard
//! ```
//!
//! One agent per clock domain and run. Its peers are found in the run folder; with each other they talk
//! over UDP, so that no MPI is needed and none is disturbed. A lone node has neither thread nor socket.

mod agent;
mod answers;
mod bucket;
mod burst;
mod folder;
mod interfaces;
mod kernel_times;
mod look_out;
mod packet;
mod rate;
mod signal;
mod sockets;
#[cfg(test)]
mod tests;
mod tree;

pub use interfaces::{AddressError, ProbeInterface, ProbeInterfaceError, addresses};
pub use kernel_times::NodeClock;
pub use rate::{ProbeRate, ProbeRateError};
pub use sockets::{ProbePorts, ProbePortsError};

use crate::output::SideOutput;
use agent::Signals;
use look_out::LookOut;
use rpd_shard::record::ClockDomain;
use serde::{Deserialize, Serialize};
use signal::Signal;
use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Answers a second of one agent, unless told otherwise.
pub const DEFAULT_RATE: u32 = 10_000;
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
pub struct Pace {
    /// Between two bursts, and between two looks into the folder.
    pub period: Duration,
    /// Before the second look into the folder; later ones come more and more slowly, up to the period.
    pub first_look: Duration,
    /// Between two signs of life in the folder.
    pub beat: Duration,
    /// After which an agent without a sign of life is dead.
    pub expiry: Duration,
    /// Between two looks whether the agent of the domain is gone.
    pub retry: Duration,
}

impl Default for Pace {
    fn default() -> Pace {
        let seconds = Duration::from_secs;
        Pace {
            period: seconds(5),
            first_look: Duration::from_millis(100),
            beat: seconds(10),
            expiry: seconds(30),
            retry: seconds(5),
        }
    }
}

/// What an agent needs to know.
#[derive(Clone, Debug)]
pub struct ProbeConfig {
    /// Output root, absolute.
    pub root: PathBuf,
    /// The run: one agent per run and clock domain.
    pub run_id: String,
    /// Rank of the collector.
    pub rank: u32,
    /// Whose clocks it reads.
    pub domain: ClockDomain,
    /// The group may read the files; the secret never.
    pub share_group: bool,
    /// What the user chose.
    pub choice: ProbeChoice,
    /// How often things happen.
    pub pace: Pace,
    /// The clocks of the node: [`NodeClock::REAL`], or those of a test.
    pub clock: NodeClock,
}

impl ProbeConfig {
    /// With the usual pace and clock.
    pub fn new(
        root: PathBuf,
        run_id: String,
        rank: u32,
        domain: ClockDomain,
        share_group: bool,
        choice: ProbeChoice,
    ) -> ProbeConfig {
        let (pace, clock) = (Pace::default(), NodeClock::REAL);
        ProbeConfig { root, run_id, rank, domain, share_group, choice, pace, clock }
    }
}

/// The agent of this collector, or the wish to become one. Ends when it is dropped.
pub struct ProbeAgent {
    signals: Signals,
    /// When the command ended.
    stopped: Option<Instant>,
}

impl ProbeAgent {
    /// Starts the look-out, which starts the agent once no other collector of the run has the clocks of
    /// this node.
    pub fn start(config: ProbeConfig, output: SideOutput) -> io::Result<ProbeAgent> {
        let signals = Signals {
            wake: Signal::new()?,
            stop: Signal::new()?,
            lost: Signal::new()?,
            measured: Signal::new()?,
            ended: Signal::new()?,
        };
        let look_out = LookOut::new(config, signals.clone(), output);
        std::thread::Builder::new().name("rpd-clocks".to_owned()).spawn(move || look_out.run())?;
        Ok(ProbeAgent { signals, stopped: None })
    }

    /// The command has ended: the last burst begins.
    pub fn stop(&mut self) {
        self.stopped.get_or_insert_with(Instant::now);
        self.signals.stop.set();
        self.signals.wake.set();
    }

    /// Waits until the last burst is handed over, at most 200 ms from the end of the command.
    pub fn wait_until_measured(&mut self) {
        self.stop();
        let began = self.stopped.unwrap_or_else(Instant::now);
        self.signals.measured.wait(began + TIME_TO_MEASURE);
    }

    /// Waits until those that ask this node have done so for the last time, at most 300 ms from the end of
    /// the command.
    pub fn leave(mut self) {
        self.stop();
        let began = self.stopped.unwrap_or_else(Instant::now);
        self.signals.ended.wait(began + TIME_TO_LEAVE);
    }
}

impl Drop for ProbeAgent {
    fn drop(&mut self) {
        self.signals.stop.set();
        self.signals.wake.set();
    }
}
