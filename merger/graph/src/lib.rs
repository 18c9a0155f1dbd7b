//! Finds which rank the others wait for, through messages and collectives, and what that costs.
//!
//! [`JobCalls`] are the calls of a job in a compact form. [`CallGraph`] matches them. [`WaitAnalysis`] replays the
//! matched calls with the durations that each thread measured by its own clock, and attributes all waiting to the
//! work that caused it. Nothing here reads files or prints.

mod analysis;
mod analysis_memory;
mod anomalies;
mod awaited_enters;
mod call_durations;
mod call_graph;
mod channels;
mod critical_path;
mod delay_costs;
mod diagnosis;
mod doubtful_time;
mod eager_limit;
mod excess;
mod explained_waits;
mod finding;
mod gap_matching;
mod instances;
mod job_calls;
mod kernel_clocks;
mod kernel_times;
mod label_times;
mod matched_share;
mod message_calls;
mod message_flows;
mod messages;
mod network_gain;
mod network_samples;
mod observed_waits;
mod open_calls;
mod pair_times;
mod pair_waits;
mod replay;
mod replay_plan;
mod scenarios;
mod slow_network;
#[cfg(test)]
mod small_job;
mod step_excess;
mod suspects;
#[cfg(test)]
mod tests;
mod transfers;
mod usual_noise;
mod wait_causes;
mod waits;
mod what_if;
mod work_table;

pub use analysis::{JobEfficiency, TimelineTimes, WaitAnalysis};
pub use call_graph::{CallDependencies, CallGraph};
pub use delay_costs::DelayCosts;
pub use diagnosis::{DiagnosisLimit, JobDiagnosis, JobVerdict};
pub use excess::StepPattern;
pub use explained_waits::ExplainedWait;
pub use finding::{FindingSubject, JobFinding};
pub use job_calls::{
    ANY, BegunOperation, Call, CallGap, CallTimeline, CallsError, CollectiveEntry, CollectiveWaits,
    CommunicatorMembers, Completion, JobCalls, LocalDependency, MessageEnd, MessageRole, MessagesBefore,
    UNKNOWN, WorkSegment,
};
pub use message_flows::MessageFlow;
pub use network_gain::NetworkFinding;
pub use open_calls::OpenCall;
pub use slow_network::{NetworkSubject, SlowMessages};
pub use step_excess::ExcessWork;
pub use what_if::WhatIfGain;
