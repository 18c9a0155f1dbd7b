//! A cluster of `tests/cluster`, and jobs on it.
#![allow(clippy::unwrap_used)] // what fails here fails a test or a measurement

use crate::harness::{Job, JobOutcome, binary, mpi_missing, python, repository, rpd_merge, skip};
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// How long a cluster may take to come up, on a busy machine.
const START: Duration = Duration::from_secs(60);
/// How long it may take to go.
const END: Duration = Duration::from_secs(20);
/// Longest job.
const LIMIT: Duration = Duration::from_secs(120);

/// What starts the ranks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StepLauncher {
    /// Slurm's `srun`.
    Srun,
    /// Open MPI's `mpirun`, through `agent`.
    Mpirun,
}

/// Nodes n0, n1, ... and a head. All of it ends with this value, or with this process.
pub struct SlurmCluster {
    leader: Child,
    /// Seen by all nodes under the same name; removed at the end.
    pub folder: PathBuf,
    /// Seconds by which the clocks of the nodes are ahead.
    pub ahead: Vec<i64>,
}

fn script() -> PathBuf {
    repository().join("tests/cluster/cluster")
}

/// Why there can be no cluster here. ci/setup says by `RPD_CI_CLUSTER` that there can.
fn missing() -> Option<String> {
    if let Some(why) = mpi_missing() {
        return Some(why.to_owned());
    }
    let told = std::env::var("RPD_CI_CLUSTER").unwrap_or_default();
    if told == "0" {
        return Some("RPD_CI_CLUSTER is 0".to_owned());
    }
    let imports = || Job::new(python()).args(["-c", "import mpi4py, numpy"]).run().code() == Some(0);
    let why = match Job::new(script()).arg("missing").run().stdout.trim() {
        "" if imports() => None,
        "" => Some("Python has no mpi4py or numpy here".to_owned()),
        why => Some(why.to_owned()),
    };
    assert!(told != "1" || why.is_none(), "RPD_CI_CLUSTER is 1, but {why:?}");
    why
}

impl SlurmCluster {
    /// A node for each number of seconds by which its clock is ahead. `None`, and a line that says why, where
    /// this machine cannot have nodes.
    pub fn new(ahead: &[i64], what: &str) -> Option<SlurmCluster> {
        SlurmCluster::of_a_site(ahead, what, None)
    }

    /// The same with more lines for `slurm.conf`, in a file.
    pub fn of_a_site(ahead: &[i64], what: &str, settings: Option<&Path>) -> Option<SlurmCluster> {
        let settings = settings.map(|path| ("RPD_CLUSTER_SITE", path.display().to_string()));
        SlurmCluster::with_variables(ahead, what, settings.into_iter().collect())
    }

    /// The same with a node of which all that it sends comes so much later.
    pub fn with_slow_node(ahead: &[i64], what: &str, node: u32, delay_ms: f64) -> Option<SlurmCluster> {
        SlurmCluster::with_variables(ahead, what, vec![("RPD_CLUSTER_DELAY", format!("{node}:{delay_ms}"))])
    }

    fn with_variables(
        ahead: &[i64],
        what: &str,
        variables: Vec<(&'static str, String)>,
    ) -> Option<SlurmCluster> {
        if let Some(why) = missing() {
            skip(what, &why);
            return None;
        }
        static MADE: AtomicUsize = AtomicUsize::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("rpd-cluster-{}-{number}", std::process::id()));
        let mut command = Command::new(script());
        command.arg("up").arg(&folder).args(ahead.iter().map(i64::to_string));
        command.envs(variables);
        // A group of its own: it survives the death of the test and clears away what it made.
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0);
        let mut leader = command.spawn().unwrap();
        let words = BufReader::new(leader.stdout.take().unwrap());
        let cluster = SlurmCluster { leader, folder, ahead: ahead.to_vec() };
        let (said, hear) = mpsc::channel();
        thread::spawn(move || words.lines().map_while(Result::ok).try_for_each(|line| said.send(line)));
        let first = hear.recv_timeout(START);
        if first.as_deref() != Ok("ready") {
            let more: Vec<String> =
                hear.recv_timeout(Duration::from_secs(1)).into_iter().chain(hear.try_iter()).collect();
            panic!("the cluster did not come up: {first:?}\n{}", more.join("\n"));
        }
        Some(cluster)
    }

    /// Runs a command on a node or on the head, to which arguments are to be added.
    pub fn on(&self, node: &str) -> Job {
        Job::new(script()).args(["on", node]).arg(&self.folder).limit(LIMIT)
    }

    /// A command on so many ranks, rank r on node r modulo the number of nodes.
    pub fn launch(&self, by: StepLauncher, ranks: usize) -> Job {
        let head =
            self.on("head").env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
        let head = head.env("OMPI_MCA_pml", "ob1").env("OMPI_MCA_btl", "tcp,self");
        let head =
            head.env("OMPI_MCA_mpi_yield_when_idle", "1").env("OMPI_MCA_btl_tcp_if_include", "10.77.0.0/24");
        let count = ranks.to_string();
        match by {
            StepLauncher::Srun => {
                let nodes = self.ahead.len().min(ranks).to_string();
                head.args(["srun", "--mpi=pmix", "--distribution=cyclic", "-N", &nodes, "-n", &count])
            }
            StepLauncher::Mpirun => {
                let agent = repository().join("tests/cluster/agent");
                let head = head.args(["mpirun", "--mca", "plm", "rsh", "--mca", "plm_rsh_agent"]).arg(agent);
                let head = head.args(["--mca", "plm_rsh_no_tree_spawn", "1"]);
                let head = head.args(["--mca", "oob_tcp_if_include", "10.77.0.0/24", "--map-by", "node"]);
                head.arg("--hostfile").arg(self.folder.join("hostfile")).args(["-n", &count])
            }
        }
    }

    /// A collected job of one rank for each node. `words` come before the collector: a shell's script for what
    /// differs between ranks, which ends in `exec "$@"`.
    pub fn collect(&self, by: StepLauncher, words: &str, options: &[&str], program: &[&str]) -> Run {
        let attempt = |name: &str| {
            let root = self.folder.join(name);
            let job = self.launch(by, self.ahead.len()).args(["sh", "-c", words, "sh"]);
            let job =
                job.arg(binary("rpd-collect")).arg("-o").arg(&root).args(options).arg("--").args(program);
            (job.run(), root)
        };
        let (mut outcome, mut root) = attempt("runs");
        if outcome.failed_to_start() {
            eprintln!("RETRY, the launcher failed to start:\n{outcome}");
            (outcome, root) = attempt("runs-again");
        }
        Run { outcome, root }
    }

    /// The training loop, so small that its ranks do not get in each other's way: 60 steps in 1.2 s.
    pub fn training(&self, steps: usize) -> Vec<String> {
        let train = repository().join("tests/workloads/train.py");
        let words = [
            python().display().to_string(),
            train.display().to_string(),
            "--steps".into(),
            steps.to_string(),
        ];
        let small = ["--width", "8", "--batch", "16", "--delay-ms", "20"].map(str::to_owned);
        words.into_iter().chain(small).collect()
    }

    /// Nanoseconds by which `CLOCK_BOOTTIME` of a node is ahead of the machine's, as the kernel has it.
    pub fn truth(&self, node: usize) -> i64 {
        let offsets = self.on(&format!("n{node}")).args(["cat", "/proc/self/timens_offsets"]).run().success();
        let line = offsets.stdout.lines().find(|line| line.starts_with("boottime")).unwrap();
        let numbers: Vec<i64> = line.split_whitespace().skip(1).map(|n| n.parse().unwrap()).collect();
        assert_eq!(numbers[0], self.ahead[node]);
        numbers[0] * 1_000_000_000 + numbers[1]
    }
}

impl Drop for SlurmCluster {
    fn drop(&mut self) {
        drop(self.leader.stdin.take());
        let until = Instant::now() + END;
        while Instant::now() < until && matches!(self.leader.try_wait(), Ok(None)) {
            thread::sleep(Duration::from_millis(20));
        }
        // The head dies with it, and with the head all that is in its namespaces.
        let _ = self.leader.kill();
        let _ = self.leader.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// A job that was collected.
pub struct Run {
    /// How it ended.
    pub outcome: JobOutcome,
    root: PathBuf,
}

impl Run {
    /// The run directory.
    pub fn folder(&self) -> PathBuf {
        let folders: Vec<PathBuf> =
            fs::read_dir(&self.root).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert_eq!(folders.len(), 1, "{folders:?} of\n{}", self.outcome);
        folders[0].clone()
    }

    /// Removes it, so that the next job of the cluster may have its place.
    ///
    /// # Panics
    /// If it cannot be removed.
    pub fn remove(self) {
        fs::remove_dir_all(&self.root).unwrap();
    }

    /// Merges it into `NAME.db` beside it, and reads the report. Prints the report as users see it.
    pub fn merge(&self, name: &str, options: &[&str]) -> MergedJob {
        let database = self.root.join(format!("../{name}.db"));
        let outcome = rpd_merge()
            .args(["--json", "-o"])
            .arg(&database)
            .args(options)
            .arg(self.folder())
            .run()
            .success();
        eprintln!("{}", outcome.stderr);
        let report =
            serde_json::from_str(&outcome.stdout).unwrap_or_else(|error| panic!("{error}: {outcome}"));
        MergedJob { database, report, stderr: outcome.stderr }
    }

    /// The shard of a rank.
    pub fn shard(&self, rank: usize) -> PathBuf {
        self.folder().join(format!("rank-{rank:05}.rpdshard"))
    }
}

/// What a merge made and said.
pub struct MergedJob {
    /// Where it is.
    pub database: PathBuf,
    /// The report of `--json`.
    pub report: serde_json::Value,
    /// What users see.
    pub stderr: String,
}

impl MergedJob {
    fn clocks(&self, node: usize) -> Vec<&serde_json::Value> {
        let rows = self.report["clocks"].as_array().unwrap();
        let name = serde_json::json!([format!("n{node}")]);
        rows.iter().filter(|row| row["hosts"] == name).collect()
    }

    /// Whether the report knows a node.
    pub fn has(&self, node: usize) -> bool {
        !self.clocks(node).is_empty()
    }

    /// What the report says of the clock of a node.
    pub fn clock(&self, node: usize) -> &serde_json::Value {
        let [row] = self.clocks(node)[..] else { panic!("n{node} in {:#?}", self.report["clocks"]) };
        row
    }

    /// By what a node was aligned.
    pub fn method(&self, node: usize) -> &str {
        self.clock(node)["method"].as_str().unwrap()
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.database
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many processes have the words on their command lines.
    fn processes_of(words: &str) -> usize {
        let lines = fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path().join("cmdline"));
        lines
            .filter(|line| String::from_utf8_lossy(&fs::read(line).unwrap_or_default()).contains(words))
            .count()
    }

    #[test]
    fn two_clusters_know_nothing_of_each_other_and_leave_nothing_under_slurm() {
        let clusters =
            [SlurmCluster::new(&[0, 500], "a cluster"), SlurmCluster::new(&[300, 200], "another cluster")];
        let [Some(first), Some(second)] = clusters else { return };
        let uptimes = |cluster: &SlurmCluster| {
            let job = cluster.launch(StepLauncher::Srun, 2).args([
                "sh",
                "-c",
                "echo $(hostname) $(cat /proc/uptime)",
            ]);
            let mut lines: Vec<String> = job.run().success().stdout.lines().map(str::to_owned).collect();
            lines.sort();
            let seconds = |line: &String| line.split(' ').nth(1).unwrap().parse::<f64>().unwrap() as i64;
            assert!(lines[0].starts_with("n0 ") && lines[1].starts_with("n1 "), "{lines:?}");
            seconds(&lines[1]) - seconds(&lines[0])
        };
        assert!((499..=501).contains(&uptimes(&first)));
        let folder = first.folder.clone();
        assert!(processes_of(&folder.display().to_string()) > 4);
        drop(first);
        assert!(!folder.exists());
        assert_eq!(processes_of(&folder.display().to_string()), 0);
        assert!((-101..=-99).contains(&uptimes(&second)));
    }
}
