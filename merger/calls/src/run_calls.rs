//! The calls of a run, with what the analysis does not need of them.

use crate::gpu_metrics::ProcessGpus;
use crate::labels::CallLabel;
use crate::missing_calls::MissingCalls;
use crate::python_samples::PythonSamples;
use crate::steps::StepSource;
use crate::thread_cpus::ThreadCpus;
use crate::work_amounts::WorkAmounts;
use rpd_graph::JobCalls;

/// A process that calls MPI.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CallProcess {
    /// Rank in the job.
    pub rank: Option<u32>,
    /// Host name.
    pub host: String,
    /// Label of its GPU, if it has only one.
    pub gpu: Option<String>,
    /// Whether its program is an interpreter of Python.
    pub is_python: bool,
    /// How it failed, in words; `None` if it did not, or that is not known.
    pub failure: Option<String>,
    /// When it ended, ns in job time; `None` if it is not known.
    pub ended_ns: Option<i64>,
    /// Index in [`RunDatabase::processes`](rpd_run::RunDatabase::processes).
    pub run_process: usize,
}

/// The communication calls of a run.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct RunCalls {
    /// The calls. [`JobCalls::check`] accepts them.
    pub job: JobCalls,
    /// Label of each number in `job`.
    pub labels: Vec<CallLabel>,
    /// The processes of `job`.
    pub processes: Vec<CallProcess>,
    /// Name of each communicator in `job`.
    pub communicators: Vec<String>,
    /// How the steps in `job` were found.
    pub steps: Option<StepSource>,
    /// Key of the row in `rocpd_region` of each call, by timeline. Of polls that became one call, the last. Empty unless
    /// [`ReadOptions`](crate::ReadOptions) ask for them.
    pub region_ids: Vec<Vec<i64>>,
    /// Amounts of the segments of work, by timeline.
    pub amounts: Vec<WorkAmounts>,
    /// Recorded facts on the CPUs of each thread, by timeline.
    pub cpus: Vec<ThreadCpus>,
    /// The GPUs of each process.
    pub gpus: Vec<ProcessGpus>,
    /// Sampled call stacks of Python.
    pub python: PythonSamples,
    /// What is missing or cannot be used, in the order of [`MissingCalls`].
    pub unavailable: Vec<MissingCalls>,
}
