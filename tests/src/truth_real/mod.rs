//! The truth suite of rpd-report on real runs: programs in which given ranks are slow, and which log by how much.
//!
//! [`SCENARIOS`] lists what is run. [`Recorder`] runs a scenario of `tests/workloads/truth` under rpd-collect on emulated
//! nodes and merges it. The logs of the ranks give the [`Truth`]; nothing in it comes from rpd. [`check_database`] compares
//! the merged database with the logs, and [`judge`] a report with the truth.

mod checks;
mod judgement;
mod logs;
mod recorder;
mod replay;
mod report;
mod scenarios;
mod slow_disk;
mod truth;

pub use checks::check_database;
pub use judgement::{Answer, Judgement, judge};
pub use logs::{LoggedCall, LoggedRange, RankLog};
pub use recorder::{Recorder, Recording};
pub use replay::{Replay, ReplayedJob};
pub use report::{Finding, Gain, LongerWorkCause, ReportFindings, SlowNetwork, report_findings};
pub use scenarios::{CAUSE_SCENARIOS, Culprit, PlantedCause, Proportions, SCENARIOS, Scenario};
pub use slow_disk::SlowDisk;
pub use truth::{NodeName, Truth};
