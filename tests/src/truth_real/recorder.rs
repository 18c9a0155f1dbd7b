//! Runs a scenario under rpd-collect on emulated nodes, and merges it.

use super::logs::RankLog;
use super::scenarios::{Culprit, PlantedCause, Proportions, SCENARIOS, Scenario};
use super::slow_disk::SlowDisk;
use super::truth::Truth;
use crate::cluster::{SlurmCluster, StepLauncher};
use crate::harness::{Job, JobOutcome, binary, mpi_missing, mpirun, python, repository, rpd_merge, skip};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

/// Seconds by which the clocks of the nodes are ahead.
const AHEAD: [i64; 3] = [0, 1_500, 200];
/// Before what else runs here: each session has its share of the machine, and within it each process.
const FIRST: &str = "echo -15 2>/dev/null >/proc/self/autogroup; exec nice -n -15 \"$@\"";
/// Name of the compiled program.
const PROGRAM: &str = "truth";
/// Time of a run beside that of its steps.
const START: Duration = Duration::from_secs(60);

/// The compiled program, and nodes for jobs of four and of six ranks.
pub struct Recorder {
    /// Where it is, and what programs read.
    folder: PathBuf,
    /// By the number of nodes.
    clusters: BTreeMap<u32, SlurmCluster>,
    /// Nodes of which one has a slow network, once they are needed, with its delay in us.
    slow: Mutex<BTreeMap<(u32, u64), SlurmCluster>>,
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
    /// By how much longer messages of a node take in one direction, ns.
    pub asymmetry_ns: i64,
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
        compile(&folder.join(PROGRAM));
        Some(Recorder { folder: folder.to_owned(), clusters, slow: Mutex::default() })
    }

    /// The same without nodes, for [`super::CAUSE_SCENARIOS`]. `None`, and a line that says why, where two ranks cannot have
    /// a core each.
    ///
    /// # Panics
    /// If the program cannot be compiled.
    pub fn of_causes(folder: &Path, what: &str) -> Option<Recorder> {
        if let Some(why) = missing_for_causes() {
            skip(what, why);
            return None;
        }
        compile(&folder.join(PROGRAM));
        let folder = folder.to_owned();
        Some(Recorder { folder, clusters: BTreeMap::new(), slow: Mutex::default() })
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
        let Culprit::Network(node) = scenario.culprit else {
            return self.record_on(self.cluster(scenario)?, scenario, proportions, seed, folder);
        };
        let delay_us = (proportions.work_ms * proportions.excess * 1e3) as u64;
        let mut slow = self.slow.lock().map_err(|error| error.to_string())?;
        if let std::collections::btree_map::Entry::Vacant(place) = slow.entry((node, delay_us)) {
            let ahead = &AHEAD[..scenario.nodes() as usize];
            let cluster = SlurmCluster::with_slow_node(ahead, "a slow network", node, delay_us as f64 / 1e3);
            let _ = place.insert(cluster.ok_or("there are no nodes")?);
        }
        // The same run without the delay says what that costs.
        let beside = folder.with_extension("fast");
        let fast = self.record_on(self.cluster(scenario)?, scenario, proportions, seed, &beside)?;
        fs::remove_dir_all(&beside).map_err(|error| format!("{}: {error}", beside.display()))?;
        let cluster = slow.get(&(node, delay_us));
        let mut recording = self.record_on(cluster, scenario, proportions, seed, folder)?;
        recording.asymmetry_ns = delay_us as i64 * 1_000;
        recording.truth.gain_ns = steps_ns(&recording.logs) - steps_ns(&fast.logs);
        recording.write_truth(folder)?;
        Ok(recording)
    }

    /// Records a run on the nodes of a cluster, or without one.
    fn record_on(
        &self,
        cluster: Option<&SlurmCluster>,
        scenario: &Scenario,
        proportions: &Proportions,
        seed: u64,
        folder: &Path,
    ) -> Result<Recording, String> {
        let disk = match scenario.cause {
            Some(PlantedCause::SlowReads) => {
                Some(SlowDisk::make(&self.folder).ok_or("no cgroup makes reads slow here")?)
            }
            _ => None,
        };
        let (root, logs) = (folder.join("run"), folder.join("logs"));
        let attempt = || -> Result<JobOutcome, String> {
            fs::create_dir_all(&logs).map_err(|error| format!("{}: {error}", logs.display()))?;
            let job = self.job(cluster, scenario, proportions, &root);
            let job = job.args(options(scenario, proportions, seed)).arg("--log").arg(&logs);
            let job = match &disk {
                Some(disk) => job.arg("--reads").arg(&disk.file).arg("--group").arg(disk.procs()),
                None => job,
            };
            Ok(job.run())
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
        let logs = RankLog::read_all(&logs, scenario.ranks, &ahead_ns(cluster, scenario)?)?;
        let truth = Truth::new(scenario, proportions, seed, &logs)?;
        let recording = Recording { run, database, logs, truth, asymmetry_ns: 0 };
        recording.write_truth(folder)?;
        Ok(recording)
    }

    /// Returns the nodes of a scenario; `None` if it needs none.
    fn cluster(&self, scenario: &Scenario) -> Result<Option<&SlurmCluster>, String> {
        if scenario.cause.is_some() {
            return Ok(None);
        }
        let cluster = self.clusters.get(&scenario.nodes());
        cluster.map(Some).ok_or_else(|| format!("no nodes for {}", scenario.name))
    }

    /// The job, to which options are to be added.
    fn job(
        &self,
        cluster: Option<&SlurmCluster>,
        scenario: &Scenario,
        proportions: &Proportions,
        root: &Path,
    ) -> Job {
        let steps = Duration::from_secs_f64(proportions.work_ms / 1e3 * f64::from(proportions.steps));
        // In a pipeline ranks also wait for its first item to arrive.
        let limit = START + 10 * steps;
        let ranks = scenario.ranks as usize;
        let job = match cluster {
            Some(cluster) => cluster.launch(StepLauncher::Mpirun, ranks),
            None => mpirun(ranks),
        };
        let job = job.limit(limit).args(["sh", "-c", FIRST, "sh"]).arg(binary("rpd-collect"));
        let job = job.arg("-o").arg(root).args(["--run-id", scenario.name]);
        let job = match scenario.cause {
            Some(PlantedCause::Garbage) => {
                let program = repository().join("tests/workloads/truth/garbage.py");
                job.args(["--trace", "all,python", "--"]).arg(python()).arg(program)
            }
            _ => job.arg("--").arg(self.folder.join(PROGRAM)),
        };
        job.arg(scenario.program)
    }
}

impl Recording {
    fn write_truth(&self, folder: &Path) -> Result<(), String> {
        let text = serde_json::to_string_pretty(&self.truth).map_err(|error| error.to_string())?;
        fs::write(folder.join("truth.json"), text).map_err(|error| error.to_string())
    }
}

/// Returns the time of the steps, ns: from the first range of a rank to its last, of the rank with the longest.
fn steps_ns(logs: &[RankLog]) -> i64 {
    let of_rank = |log: &RankLog| {
        let of_steps = || log.ranges.iter().filter(|range| range.step >= 0);
        let begin = of_steps().map(|range| range.begin_ns).min()?;
        Some(of_steps().map(|range| range.end_ns).max()? - begin)
    };
    logs.iter().filter_map(of_rank).max().unwrap_or(0)
}

/// Returns by how much the clock of each host is ahead, ns.
fn ahead_ns(cluster: Option<&SlurmCluster>, scenario: &Scenario) -> Result<BTreeMap<String, i64>, String> {
    let Some(cluster) = cluster else {
        let name = fs::read_to_string("/proc/sys/kernel/hostname").map_err(|error| error.to_string())?;
        return Ok(BTreeMap::from([(name.trim().to_owned(), 0)]));
    };
    Ok((0..scenario.nodes()).map(|node| (format!("n{node}"), cluster.truth(node as usize))).collect())
}

/// Options of the program.
fn options(scenario: &Scenario, proportions: &Proportions, seed: u64) -> Vec<String> {
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
    options.into_iter().flat_map(|(option, value)| [option.to_owned(), value]).collect()
}

/// Returns why two ranks cannot have a core each here.
fn missing_for_causes() -> Option<&'static str> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    mpi_missing().or((cores < 2).then_some("two ranks need two cores"))
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
