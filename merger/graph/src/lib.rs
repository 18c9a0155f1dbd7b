//! Finds which rank the others wait for, through messages and collectives, and what that costs.
//!
//! [`JobCalls`] are the calls of a job in a compact form. [`CallGraph`] matches them. [`WaitAnalysis`] replays the
//! matched calls with the durations that each thread measured by its own clock, and attributes all waiting to the
//! work that caused it. Nothing here reads files or prints.

mod call_graph;
mod delay_costs;
mod eager_limit;
mod instances;
mod job_calls;
mod label_times;
mod messages;
mod replay;
mod transfers;
mod waits;

pub use call_graph::CallGraph;
pub use job_calls::{
    ANY, BegunOperation, Call, CallTimeline, CallsError, CollectiveEntry, CollectiveWaits,
    CommunicatorMembers, Completion, FINALIZE_NUMBER, INIT_NUMBER, JobCalls, MessageEnd, MessageRole,
    UNKNOWN, WorkSegment,
};
