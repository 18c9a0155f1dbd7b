//! Batch jobs as users submit them, with rpd installed below a prefix with a space in its name, and with what
//! docs/SITES.md says in `slurm.conf`.

use super::rig::Cluster;
use rpd_tests::harness::{Database, Job, Outcome, binary, python, repository, rpd_merge};
use serde_json::Value as Json;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Not root: `nobody`.
const USER: u32 = 65_534;
/// Longest job of these, with its queue.
const PATIENCE: Duration = Duration::from_secs(120);
const AHEAD: [i64; 4] = [0, 1500, 777_777, 30];

/// A cluster of four nodes, and what is installed on it.
struct Site {
    cluster: Cluster,
    folder: TempDir,
}

impl Site {
    fn new(what: &str) -> Option<Site> {
        let folder = tempfile::Builder::new().prefix("rpd-site-").tempdir().unwrap();
        fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
        let prefix = folder.path().join("a prefix");
        let built = binary("rpd-collect");
        let install = Job::new(repository().join("ci/install")).arg("--built").arg(built.parent().unwrap());
        let _ = install.arg(&prefix).run().success();
        // slurm.conf takes no spaces.
        let site = folder.path().join("site");
        symlink(&prefix, &site).unwrap();
        let scripts = site.join("share/rpd/slurm/site");
        let settings: String = [
            ("EpilogSlurmctld", "epilogslurmctld.sh"),
            ("Epilog", "epilog.sh"),
            ("TaskProlog", "task-prolog.sh"),
            ("TaskEpilog", "task-epilog.sh"),
        ]
        .map(|(key, script)| format!("{key}={}\n", scripts.join(script).display()))
        .concat();
        let more = folder.path().join("slurm.more");
        fs::write(&more, settings).unwrap();
        let cluster = Cluster::of_a_site(&AHEAD, what, Some(&more))?;
        let site = Site { cluster, folder };
        fs::create_dir(site.work()).unwrap();
        chown(site.work(), Some(USER), Some(USER)).unwrap();
        Some(site)
    }

    /// The user's folder, which all nodes see.
    fn work(&self) -> PathBuf {
        self.folder.path().join("work")
    }

    fn prefix(&self) -> PathBuf {
        self.folder.path().join("a prefix")
    }

    /// A command of the user on the head.
    fn user(&self, words: &[&str]) -> Job {
        let id = USER.to_string();
        let (uid, gid) = (format!("--reuid={id}"), format!("--regid={id}"));
        let path = format!("{}:/usr/bin:/bin:/usr/sbin:/sbin", self.prefix().join("bin").display());
        self.cluster
            .on("head")
            .folder(&self.work())
            .env("PATH", path)
            .env("HOME", self.work())
            .env("OMPI_MCA_pml", "ob1")
            .env("OMPI_MCA_btl", "tcp,self")
            .env("OMPI_MCA_mpi_yield_when_idle", "1")
            .env("OMPI_MCA_btl_tcp_if_include", "10.77.0.0/24")
            .args(["setpriv", &uid, &gid, "--clear-groups", "--"])
            .args(words)
    }

    /// Submits a job, and returns its number.
    fn submit(&self, words: &[&str]) -> u32 {
        let outcome = self.user(&["sbatch", "--parsable"]).args(words).run().success();
        outcome.stdout.trim().parse().unwrap_or_else(|_| panic!("{outcome}"))
    }

    /// What Slurm says of a job.
    fn facts(&self, job: u32) -> BTreeMap<String, String> {
        let shown = self.user(&["scontrol", "--oneliner", "show", "job", &job.to_string()]).run();
        let pairs = shown.stdout.split_whitespace().filter_map(|word| word.split_once('='));
        pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
    }

    /// Waits for the end of a job, and says how it ended: its state and its exit code, as Slurm writes them.
    fn ended(&self, job: u32) -> (String, String) {
        let until = Instant::now() + PATIENCE;
        loop {
            let facts = self.facts(job);
            let state = facts.get("JobState").cloned().unwrap_or_default();
            if !matches!(state.as_str(), "" | "PENDING" | "RUNNING" | "COMPLETING" | "CONFIGURING") {
                return (state, facts.get("ExitCode").cloned().unwrap_or_default());
            }
            assert!(Instant::now() < until, "{facts:?}");
            sleep(Duration::from_millis(200));
        }
    }

    /// What a job printed.
    fn printed(&self, name: &str) -> String {
        fs::read_to_string(self.work().join(name)).unwrap_or_default()
    }

    /// A script of the user.
    fn script(&self, name: &str, text: &str) -> String {
        let path = self.work().join(name);
        fs::write(&path, text).unwrap();
        path.display().to_string()
    }

    /// The training loop on the ranks of a step.
    fn train(&self, steps: u32) -> String {
        let train = repository().join("tests/workloads/train.py");
        format!(
            "{} {} --steps {steps} --width 8 --batch 16 --delay-ms 2",
            python().display(),
            train.display()
        )
    }

    /// The only run of a job.
    fn run(&self, job: u32) -> PathBuf {
        self.work().join(format!("rpd-out/{job}.0"))
    }
}

fn status(run: &Path) -> Json {
    serde_json::from_str(&fs::read_to_string(run.join("merge.status")).unwrap()).unwrap()
}

/// How often each name was called by all ranks.
fn calls(database: &Path) -> BTreeMap<String, i64> {
    Database::open(database).counts("SELECT name FROM regions")
}

/// The phases and calls of the training loop, in all ranks.
fn wanted(ranks: i64, steps: i64) -> BTreeMap<String, i64> {
    let phases = ["data", "forward", "backward", "allreduce", "step"].map(|name| (name, ranks * steps));
    phases.into_iter().map(|(name, count)| (name.to_owned(), count)).collect()
}

fn assert_phases(database: &Path, ranks: i64, steps: i64) {
    let found = calls(database);
    for (name, count) in wanted(ranks, steps) {
        assert_eq!(found.get(&name), Some(&count), "{name} of {found:?}");
    }
}

#[test]
fn a_job_of_16_ranks_is_collected_and_merged_by_its_own_script() {
    let Some(site) = Site::new("batch jobs") else { return };
    let script = site.script(
        "both.sh",
        &format!(
            "#!/bin/bash\n#SBATCH -N 4 -n 16 --output=both.out\n\
             srun --mpi=pmix -n 16 rpd-collect -- {}\n\
             srun --mpi=pmix -n 4 rpd-merge --wait 10\n\
             srun --mpi=pmix -n 4 rpd-merge --split-by-time 8 -o slices/\n",
            site.train(10)
        ),
    );
    let job = site.submit(&[&script]);
    let printed = |outcome: (String, String)| format!("{outcome:?}\n{}", site.printed("both.out"));
    let ended = site.ended(job);
    assert_eq!(ended.0, "COMPLETED", "{}", printed(ended.clone()));
    assert_phases(&site.run(job).join("trace.db"), 16, 10);
    let slices = fs::read_dir(site.work().join("slices")).unwrap().flatten();
    let slices = slices.filter(|entry| entry.file_name().to_string_lossy().contains(".pftrace")).count();
    assert_eq!(slices, 8);
    // For the user alone.
    let shard = fs::metadata(site.run(job).join("rank-00003.rpdshard")).unwrap();
    assert_eq!(shard.permissions().mode() & 0o777, 0o600);
}
