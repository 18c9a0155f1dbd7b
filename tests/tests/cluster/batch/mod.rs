//! Batch jobs as users submit them, with rpd installed below a prefix with a space in its name, and with what
//! docs/SITES.md says in `slurm.conf`.

mod ends;
mod full;
mod site;
mod steps;
mod templates;

use rpd_tests::cluster::SlurmCluster;
use rpd_tests::harness::{Database, Job, binary, python, repository};
use serde_json::Value as Json;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Not root: `nobody`.
const USER: u32 = 65_534;
/// Longest job of these, with its queue.
const PATIENCE: Duration = Duration::from_secs(150);
/// Between two looks at the state of something.
const LOOK_EVERY: Duration = Duration::from_millis(100);
const AHEAD: [i64; 4] = [0, 1500, 777_777, 30];
/// The project, as the nodes see it.
const PROJECT: &str = "/mnt/rpd";
/// As `slurm.conf` of a site has it: seconds from TERM to KILL, and until a node that does not answer is lost.
const LIMITS: &str = "KillWait=15\nSlurmdTimeout=10\n";

/// A cluster of four nodes, and what is installed on it.
struct Site {
    cluster: SlurmCluster,
    folder: TempDir,
}

/// How a job ended, as Slurm has it.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Ended {
    state: String,
    /// The status and the signal: `0:15`.
    code: String,
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
        fs::write(&more, settings + LIMITS).unwrap();
        let cluster = SlurmCluster::of_a_site(&AHEAD, what, Some(&more))?;
        let own = format!(
            "RPD_SITE_SCRATCH='{}'\nSLURM_CONF='{}'\n",
            folder.path().join("scratch").display(),
            cluster.folder.join("slurm.conf").display()
        );
        fs::write(scripts.join("rpd-site.conf"), own).unwrap();
        let site = Site { cluster, folder };
        for name in ["work", "scratch", "tmp"] {
            fs::create_dir(site.folder.path().join(name)).unwrap();
        }
        for folder in [site.work(), site.temporary()] {
            chown(folder, Some(USER), Some(USER)).unwrap();
        }
        fs::set_permissions(site.scratch(), PermissionsExt::from_mode(0o1777)).unwrap();
        Some(site)
    }

    /// The user's folder, which all nodes see.
    fn work(&self) -> PathBuf {
        self.folder.path().join("work")
    }

    /// `TMPDIR` of jobs.
    fn temporary(&self) -> PathBuf {
        self.folder.path().join("tmp")
    }

    /// Scratch; one for all nodes.
    fn scratch(&self) -> PathBuf {
        self.folder.path().join("scratch")
    }

    fn template(&self, name: &str) -> String {
        self.folder.path().join("a prefix/share/rpd/slurm").join(name).display().to_string()
    }

    /// A command of the user on the head.
    fn user(&self, words: &[&str]) -> Job {
        let id = USER.to_string();
        let (uid, gid) = (format!("--reuid={id}"), format!("--regid={id}"));
        let path =
            format!("{}:/usr/bin:/bin:/usr/sbin:/sbin", self.folder.path().join("a prefix/bin").display());
        self.cluster
            .on("head")
            .folder(&self.work())
            .env("PATH", path)
            .env("HOME", self.work())
            .env("TMPDIR", self.temporary())
            .env("OMPI_MCA_pml", "ob1")
            .env("OMPI_MCA_btl", "tcp,self")
            .env("OMPI_MCA_mpi_yield_when_idle", "1")
            .env("OMPI_MCA_btl_tcp_if_include", "10.77.0.0/24")
            .args(["setpriv", &uid, &gid, "--clear-groups", "--"])
            .args(words)
    }

    /// Submits a job, and returns its number.
    fn submit(&self, words: &[&str]) -> u32 {
        self.submit_with(&[], words)
    }

    /// The same with variables.
    fn submit_with(&self, variables: &[(&str, &str)], words: &[&str]) -> u32 {
        let job = self.user(&["sbatch", "--parsable"]).args(words);
        let job = variables.iter().fold(job, |job, (name, value)| job.env(name, value));
        let outcome = job.run().success();
        outcome.stdout.trim().parse().unwrap_or_else(|_| panic!("{outcome}"))
    }

    /// Submits a job and the one that merges it; their numbers.
    fn submit_both(&self, variables: &[(&str, &str)], words: &[&str]) -> [u32; 2] {
        let job = self.user(&[&self.template("submit-with-merge.sh")]).args(words);
        let job = variables.iter().fold(job, |job, (name, value)| job.env(name, value));
        let outcome = job.env("RPD_MERGE_SBATCH", "--time=5 --ntasks=2").run().success();
        let words: Vec<&str> = outcome.stdout.split_whitespace().collect();
        let ["job", first, "merged", "by", "job", second] = words[..] else { panic!("{outcome}") };
        [first.trim_end_matches(','), second].map(|number| number.parse().unwrap())
    }

    /// What Slurm says of a job.
    fn facts(&self, job: impl Display) -> BTreeMap<String, String> {
        let shown = self.user(&["scontrol", "--oneliner", "show", "job", &job.to_string()]).run();
        let pairs = shown.stdout.split_whitespace().filter_map(|word| word.split_once('='));
        pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
    }

    /// Waits for the end of a job.
    fn ended(&self, job: impl Display) -> Ended {
        until(&format!("job {job} has ended"), || {
            let facts = self.facts(&job);
            let [state, code] =
                ["JobState", "ExitCode"].map(|key| facts.get(key).cloned().unwrap_or_default());
            let goes_on = ["", "PENDING", "RUNNING", "COMPLETING", "CONFIGURING", "SUSPENDED"];
            (!goes_on.contains(&state.as_str())).then_some(Ended { state, code })
        })
    }

    /// Waits for a job that has to end well.
    fn completed(&self, job: impl Display) {
        let ended = self.ended(job);
        assert_eq!(ended.state, "COMPLETED", "{ended:?}\n{}", self.printed());
    }

    /// What all jobs printed.
    fn printed(&self) -> String {
        let mut files: Vec<PathBuf> =
            fs::read_dir(self.work()).unwrap().flatten().map(|entry| entry.path()).collect();
        files.retain(|path| path.extension().is_some_and(|extension| extension == "out"));
        files.sort();
        let text = |path: &PathBuf| {
            format!("--- {}\n{}", path.display(), fs::read_to_string(path).unwrap_or_default())
        };
        files.iter().map(text).collect()
    }

    /// A script of the user.
    fn script(&self, name: &str, text: &str) -> String {
        let path = self.work().join(format!("{name}.sh"));
        fs::write(&path, format!("#!/bin/bash\n{text}")).unwrap();
        path.display().to_string()
    }

    /// The run of the first step of a job.
    fn run(&self, job: u32) -> PathBuf {
        self.work().join(format!("rpd-out/{job}.0"))
    }

    /// What a program has counted by now: `PREFIX.RANK` in the user's folder.
    fn counted(&self, prefix: &str, rank: u32) -> i64 {
        let text = fs::read_to_string(self.work().join(format!("{prefix}.{rank}"))).unwrap_or_default();
        text.trim().parse().unwrap_or(0)
    }

    /// Waits until each of the ranks has counted so far.
    fn has_counted(&self, prefix: &str, ranks: u32, ticks: i64) {
        until(&format!("{prefix} has counted {ticks}"), || {
            (0..ranks).all(|rank| self.counted(prefix, rank) >= ticks).then_some(())
        });
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = fs::read_to_string(self.cluster.folder.join("log/slurmctld.log")).unwrap_or_default();
            eprintln!("{}\n{log}", self.printed());
        }
    }
}

/// Python for the workloads, as the nodes see it.
fn node_python() -> String {
    let python = python();
    if python.starts_with(repository()) {
        "/mnt/venv/bin/python3".to_owned()
    } else {
        python.display().to_string()
    }
}

/// The training loop on MPI; each rank writes what it has called.
fn train(steps: u32, counts: &Path) -> Vec<String> {
    let train = format!("{PROJECT}/tests/workloads/train.py");
    let words = [&node_python(), &train, "--steps", &steps.to_string()].map(str::to_owned);
    let counts = ["--counts".to_owned(), counts.display().to_string()];
    let small = ["--width", "8", "--batch", "16", "--delay-ms", "2"].map(str::to_owned);
    words.into_iter().chain(small).chain(counts).collect()
}

/// Ranges that are counted: tests/workloads/ticks.py.
fn ticks(options: &str) -> Vec<String> {
    let words = [node_python(), format!("{PROJECT}/tests/workloads/ticks.py")];
    words.into_iter().chain(options.split_whitespace().map(str::to_owned)).collect()
}

/// Words of a command line, some of which are made.
fn words<'a>(first: &[&'a str], then: &'a [String]) -> Vec<&'a str> {
    first.iter().copied().chain(then.iter().map(String::as_str)).collect()
}

/// Waits for something.
fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < end, "waited in vain: {what}");
        sleep(LOOK_EVERY);
    }
}

/// A status file.
fn status(path: &Path) -> Json {
    let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// That a merge of a run says how it stands, and why.
fn assert_status(run: &Path, state: &str, why: &str) {
    let status = status(&run.join("merge.status"));
    assert_eq!(status["state"], state, "{status}");
    assert!(status["why"].as_str().unwrap().contains(why), "{why} in {status}");
}

/// How many ranges of ticks.py a rank has.
fn ticks_of(database: &Path, rank: u32) -> i64 {
    let of_rank = format!(
        "SELECT count(*) FROM rocpd_region r JOIN rocpd_info_process p ON r.pid = p.id \
         WHERE json_extract(p.extdata, '$.rpd.rank') = {rank} \
         AND r.name_id IN (SELECT id FROM rocpd_string WHERE string LIKE '%tick')"
    );
    Database::open(database).number(&of_rank)
}

/// That a database has the phases of so many steps of so many ranks, and all that each of them has counted by itself,
/// in `PREFIX.RANK.json`.
fn assert_training(database: &Path, prefix: &Path, ranks: u32, steps: i64) {
    let mut counted = BTreeMap::new();
    for rank in 0..ranks {
        let path = format!("{}.{rank}.json", prefix.display());
        let counts: BTreeMap<String, i64> = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
        counts.into_iter().for_each(|(name, count)| *counted.entry(name).or_insert(0) += count);
    }
    let found = Database::open(database).counts("SELECT name FROM regions");
    assert_eq!(found, counted);
    for phase in ["data", "forward", "backward", "allreduce", "step"] {
        assert_eq!(found[phase], i64::from(ranks) * steps, "{phase}");
    }
}
