//! The programs that are measured, and how they run.

use crate::ALONE;
use crate::runs::ProgramRun;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use rpd_tests::harness::{Job, binary, free_port, mpirun, python, repository};
use std::error::Error;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Names of the programs.
pub(crate) const PROGRAMS: [&str; 2] = ["stencil", "training"];
/// Ranks of a run.
const RANKS: usize = 2;
/// Source of the stencil.
const STENCIL: &str = "tests/workloads/halo.c";
/// The training.
const TRAINING: &str = "tests/workloads/ddp.py";
/// Longest run.
const LIMIT: Duration = Duration::from_secs(300);

/// A program that prints its result and, in the last line, the CPU time of all of its processes, s, the mean of that of a step of a
/// rank, s, the share of the steps that count in the mean, and the best time of the loop by which whole cores are found, s.
pub(crate) struct MeasuredProgram {
    pub(crate) name: &'static str,
    command: Vec<PathBuf>,
}

/// Compiles the stencil.
pub(crate) fn compile_stencil(folder: &Path) -> Result<PathBuf, Box<dyn Error>> {
    let program = folder.join("halo");
    let source = repository().join(STENCIL);
    let outcome = Job::new("mpicc").arg("-O2").arg("-o").arg(&program).arg(source).run();
    if outcome.code() == Some(0) { Ok(program) } else { Err(outcome.to_string().into()) }
}

/// Returns a Python that has torch.
pub(crate) fn python_with_torch() -> Option<PathBuf> {
    let has_torch =
        |python: &PathBuf| Job::new(python).args(["-c", "import torch.distributed"]).run().code() == Some(0);
    [python(), PathBuf::from("/usr/bin/python3")].into_iter().find(has_torch)
}

impl MeasuredProgram {
    pub(crate) fn stencil(program: PathBuf, steps: u32) -> MeasuredProgram {
        MeasuredProgram { name: PROGRAMS[0], command: vec![program, steps.to_string().into()] }
    }

    pub(crate) fn training(python: PathBuf, steps: u32) -> MeasuredProgram {
        let script = repository().join(TRAINING);
        MeasuredProgram { name: PROGRAMS[1], command: vec![python, script, steps.to_string().into()] }
    }

    /// Runs it alone or under a preset of a build.
    pub(crate) fn run(
        &self,
        way: &str,
        round: usize,
        build: &str,
        folder: &Path,
    ) -> Result<ProgramRun, Box<dyn Error>> {
        let mut job = mpirun(RANKS).limit(LIMIT).env("MASTER_ADDR", "127.0.0.1");
        job = job.env("MASTER_PORT", free_port().to_string()).env("PYTHONWARNINGS", "ignore");
        let output = folder.join("out");
        if way != ALONE {
            job = job.arg(binary("rpd-collect")).args(["--config", way, "-o"]).arg(&output).arg("--");
        }
        let before = children_cpu_s();
        let outcome = job.args(&self.command).run();
        let all_s = children_cpu_s() - before;
        if output.exists() {
            std::fs::remove_dir_all(&output)?;
        }
        if outcome.code() != Some(0) {
            return Err(outcome.to_string().into());
        }
        let (result, numbers) = outcome.stdout.trim_end().rsplit_once('\n').unwrap_or_default();
        let numbers: Vec<f64> = numbers.split(' ').filter_map(|number| number.parse().ok()).collect();
        let &[cpu_s, step_s, counted, control_s] = numbers.as_slice() else {
            return Err(format!("{} printed {:?}", self.name, outcome.stdout).into());
        };
        let (program, way, result) = (self.name.to_owned(), way.to_owned(), result.to_owned());
        let other_cpu_s = all_s - cpu_s;
        let build = build.to_owned();
        Ok(ProgramRun { program, way, round, build, result, cpu_s, step_s, counted, control_s, other_cpu_s })
    }
}

/// Returns a checksum of the library, the collector and the programs, by which runs of other ones are known.
pub(crate) fn build() -> Result<String, Box<dyn Error>> {
    let mut hasher = DefaultHasher::new();
    let built = ["librpd_intercept.so", "rpd-collect"].map(|name| binary("rpd-collect").with_file_name(name));
    for file in built.into_iter().chain([STENCIL, TRAINING].map(|source| repository().join(source))) {
        std::fs::read(file)?.hash(&mut hasher);
    }
    Ok(format!("{:016x}", hasher.finish()))
}

/// CPU time of all processes that have ended below this one, s.
fn children_cpu_s() -> f64 {
    let seconds = |usage: nix::sys::resource::Usage| {
        (usage.user_time() + usage.system_time()).num_microseconds() as f64 * 1e-6
    };
    getrusage(UsageWho::RUSAGE_CHILDREN).map_or(0.0, seconds)
}
