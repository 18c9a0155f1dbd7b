//! Jobs with known clocks: what a collector would observe of them, and the truth.
//!
//! * [`ClockScenario`] says what is wrong with clocks, network and ranks;
//! * [`Job`] is one such job, from a seed.
//!
//! True time is ns since the start of the run. Nobody in the job knows it.

mod collectives;
mod job;
mod merged;
mod network;
mod node;
mod recorded;
mod scenario;

pub use job::{Job, TrueMoment};
pub use merged::judge_merged;
pub use node::NodeClock;
pub use recorded::{JudgedClock, RecordedRun, judge};
pub use scenario::{ClockScenario, CollectiveRate, NoiseLevel, ProbeRate};
