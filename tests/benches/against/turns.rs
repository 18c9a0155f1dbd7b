//! One merge of one build, timed.

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use rpd_tests::harness::Job;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Longest merge.
const LIMIT: Duration = Duration::from_secs(600);

/// The programs of one commit.
pub(crate) struct Build {
    pub(crate) program: PathBuf,
    threads: String,
}

/// What one merge took, seconds.
#[derive(Clone, Copy)]
pub(crate) struct Lap {
    pub(crate) wall: f64,
    pub(crate) cpu: f64,
}

impl Build {
    pub(crate) fn new(program: PathBuf, threads: usize) -> Build {
        Build { program, threads: threads.to_string() }
    }

    /// Merges an input, after what earlier merges wrote is on the disk.
    pub(crate) fn merge(&self, input: &[PathBuf], output: &Path) -> Result<Lap, String> {
        rustix::fs::sync();
        let job = Job::new(&self.program).limit(LIMIT);
        let job = job.args(["--quiet", "--force", "--threads", &self.threads, "-o"]).arg(output).args(input);
        let (before, began) = (cpu_seconds(), Instant::now());
        let outcome = job.run();
        let lap = Lap { wall: began.elapsed().as_secs_f64(), cpu: cpu_seconds() - before };
        if outcome.code() == Some(0) { Ok(lap) } else { Err(outcome.to_string()) }
    }
}

/// CPU time of all children that have ended, 0 if the system does not say.
fn cpu_seconds() -> f64 {
    let seconds = |usage: nix::sys::resource::Usage| {
        (usage.user_time() + usage.system_time()).num_microseconds() as f64 * 1e-6
    };
    getrusage(UsageWho::RUSAGE_CHILDREN).map_or(0.0, seconds)
}
