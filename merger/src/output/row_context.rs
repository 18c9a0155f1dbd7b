//! What rows depend on beside their inputs.

use crate::agree::job_clocks::JobClocks;
use crate::agree::nodes::JobNodes;
use crate::input::JobSchema;
use rpd_rocpd::read::Keep;

/// Results that all ranks agreed on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RowContext<'a> {
    /// Tables of the output.
    pub schema: &'a JobSchema,
    /// Clocks of the job.
    pub clocks: &'a JobClocks,
    /// Nodes of the job.
    pub nodes: &'a JobNodes,
    /// Selection of recorded environment variables that are kept.
    pub keep: Keep<'a>,
    /// Whether names of threads, queues and streams begin with their rank: several ranks are merged.
    pub names_ranks: bool,
}
