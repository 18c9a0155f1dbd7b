//! Runs a scenario under rpd-collect on emulated nodes, and merges it.

use super::logs::RankLog;
use super::scenarios::{Proportions, SCENARIOS, Scenario};
use super::truth::Truth;
use crate::cluster::{SlurmCluster, StepLauncher};
use crate::harness::{Job, JobOutcome, binary, repository, rpd_merge};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Seconds by which the clocks of the nodes are ahead.
const AHEAD: [i64; 3] = [0, 1_500, 200];
/// Before what else runs here: each session has its share of the machine, and within it each process.
const FIRST: &str = "echo -15 2>/dev/null >/proc/self/autogroup; exec nice -n -15 \"$@\"";
/// Time of a run beside that of its steps.
const START: Duration = Duration::from_secs(60);

/// The compiled program, and nodes for jobs of four and of six ranks.
pub struct Recorder {
    program: PathBuf,
    /// By the number of nodes.
    clusters: BTreeMap<u32, SlurmCluster>,
}

/// A recorded run.
#[derive(Debug)]
pub struct Recording {
    /// Folder with the shards.
    pub run: PathBuf,
    /// The merged database.
    pub database: PathBuf,
    /// Logs of the ranks.
    pub logs: Vec<RankLog>,
    /// The answer.
    pub truth: Truth,
}

impl Recorder {
    /// Compiles the program into `folder`. `None`, and a line that says why, where this machine cannot have nodes.
    ///
    /// # Panics
    /// If it cannot be compiled.
    pub fn new(folder: &Path) -> Option<Recorder> {
        let sizes = SCENARIOS.iter().map(Scenario::nodes);
        let mut clusters = BTreeMap::new();
        for nodes in sizes {
            if let std::collections::btree_map::Entry::Vacant(place) = clusters.entry(nodes) {
                let what = "programs with a known slow rank";
                let _ = place.insert(SlurmCluster::new(&AHEAD[..nodes as usize], what)?);
            }
        }
        let program = folder.join("truth");
        compile(&program);
        Some(Recorder { program, clusters })
    }

    /// Records a run into `folder`, which must not exist: `run/NAME` with the shards, `logs`, `trace.db`, `truth.json`.
    ///
    /// # Errors
    /// If the job or its merge fails, or its logs do not fit together.
    pub fn record(
        &self,
        scenario: &Scenario,
        proportions: &Proportions,
        seed: u64,
        folder: &Path,
    ) -> Result<Recording, String> {
        let cluster = &self.clusters[&scenario.nodes()];
        let (root, logs) = (folder.join("run"), folder.join("logs"));
        let attempt = || -> Result<JobOutcome, String> {
            fs::create_dir_all(&logs).map_err(|error| format!("{}: {error}", logs.display()))?;
            Ok(self.job(scenario, proportions, seed, &root, &logs).run())
        };
        let mut outcome = attempt()?;
        if outcome.failed_to_start() {
            eprintln!("RETRY, the launcher failed to start:\n{outcome}");
            fs::remove_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
            outcome = attempt()?;
        }
        if outcome.code() != Some(0) {
            return Err(outcome.to_string());
        }
        let (run, database) = (root.join(scenario.name), folder.join("trace.db"));
        let merged = rpd_merge().args(["--quiet", "--strict", "-o"]).arg(&database).arg(&run).run();
        if merged.code() != Some(0) {
            return Err(merged.to_string());
        }
        let ahead =
            (0..scenario.nodes()).map(|node| (format!("n{node}"), cluster.truth(node as usize))).collect();
        let logs = RankLog::read_all(&logs, scenario.ranks, &ahead)?;
        let truth = Truth::new(scenario, proportions, seed, &logs)?;
        let text = serde_json::to_string_pretty(&truth).map_err(|error| error.to_string())?;
        fs::write(folder.join("truth.json"), text).map_err(|error| error.to_string())?;
        Ok(Recording { run, database, logs, truth })
    }

    fn job(
        &self,
        scenario: &Scenario,
        proportions: &Proportions,
        seed: u64,
        root: &Path,
        logs: &Path,
    ) -> Job {
        let cluster = &self.clusters[&scenario.nodes()];
        let steps = Duration::from_secs_f64(proportions.work_ms / 1e3 * f64::from(proportions.steps));
        // In a pipeline ranks also wait for its first item to arrive.
        let limit = START + 10 * steps;
        let job = cluster.launch(StepLauncher::Mpirun, scenario.ranks as usize).limit(limit);
        let job = job.args(["sh", "-c", FIRST, "sh"]).arg(binary("rpd-collect"));
        let job = job.arg("-o").arg(root).args(["--run-id", scenario.name, "--"]);
        let job = job.arg(&self.program).arg(scenario.program).arg("--log").arg(logs);
        let inner_ms = scenario.inner * proportions.work_ms;
        let options = [
            ("--plan", scenario.plan.to_owned()),
            ("--guilty", scenario.guilty.to_string()),
            ("--nodes", scenario.nodes().to_string()),
            ("--steps", proportions.steps.to_string()),
            ("--work-ms", proportions.work_ms.to_string()),
            ("--excess", proportions.excess.to_string()),
            ("--inner-ms", inner_ms.to_string()),
            ("--noise", proportions.noise.to_string()),
            ("--seed", seed.to_string()),
        ];
        options.into_iter().fold(job, |job, (option, value)| job.arg(option).arg(value))
    }
}

/// Compiles `tests/workloads/truth`.
fn compile(program: &Path) {
    let folder = repository().join("tests/workloads/truth");
    let entries = fs::read_dir(&folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut sources: Vec<PathBuf> =
        entries.filter(|path| path.extension().is_some_and(|e| e == "c")).collect();
    sources.sort();
    let compiler =
        Job::new("mpicc").args(["-O1", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-rdynamic", "-o"]);
    let _ = compiler.arg(program).args(sources).arg("-lm").run().success();
}
