//! rpd-merge, started as a user starts it.

use rpd_tests::harness::{Job, binary, mpi_missing, mpirun, rpd_merge, rpd_merge_mpi};
use rpd_tests::measure::peak_of_merge_ranks;
use rpd_tests::synthetic::{BulkRun, write_bulk_shards};
use serde_json::Value;
use std::error::Error;
use std::fmt;
use std::fs;
use std::hash::Hasher;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::Instant;
use twox_hash::XxHash3_64;

/// Longest turn, seconds.
const LIMIT: &str = "600";
/// Runs a command, and then prints the CPU time of all that it started and waited for.
const WITH_CPU_TIME: &str = "\"$@\"; status=$?; times; exit $status";
/// Files of a split.
const FILES: &str = "32";

/// One way to a trace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Contestant {
    /// rpd-merge.
    Draw { from: From, how: How, split: bool, annotations: bool },
    /// `mpirun`, and an rpd-merge that does next to nothing.
    Start(usize),
}

/// What rpd-merge reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum From {
    Database,
    Shards,
}

/// How rpd-merge runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum How {
    /// Alone, with so many threads.
    Threads(usize),
    /// So many ranks with a thread each.
    Ranks(usize),
}

/// All of them.
pub(crate) fn contestants() -> Vec<Contestant> {
    let mut ways = vec![How::Threads(1), How::Threads(2)];
    match mpi_missing() {
        Some(why) => eprintln!("not measured under mpirun: {why}"),
        None => ways.extend([How::Ranks(1), How::Ranks(2)]),
    }
    let mut all = Vec::new();
    for annotations in [true, false] {
        for split in [false, true] {
            let from = From::Database;
            all.extend(ways.iter().map(|how| Contestant::Draw { from, how: *how, split, annotations }));
        }
    }
    let how = How::Threads(2);
    all.push(Contestant::Draw { from: From::Shards, how, split: false, annotations: true });
    all.extend(ways.iter().filter_map(|how| match how {
        How::Ranks(ranks) => Some(Contestant::Start(*ranks)),
        How::Threads(_) => None,
    }));
    all
}

/// One turn.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lap {
    /// Wall time.
    pub(crate) seconds: f64,
    /// CPU time of all processes.
    pub(crate) cpu: f64,
}

/// An output that was looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Checked {
    pub(crate) slices: u64,
    /// Before and after compression.
    pub(crate) raw_bytes: u64,
    pub(crate) bytes: u64,
    /// Of all files.
    pub(crate) digest: u64,
    /// Most memory of one merge rank, bytes.
    pub(crate) peak: u64,
}

/// What is drawn.
pub(crate) struct Inputs {
    /// The merged database.
    pub(crate) database: PathBuf,
    /// A shard of the run.
    shard: PathBuf,
    /// The run directory.
    shards: PathBuf,
    output: PathBuf,
}

impl Inputs {
    /// Writes a run below a folder, and merges it.
    pub(crate) fn write(ranks: u32, events: usize, folder: &Path) -> Result<Inputs, Box<dyn Error>> {
        let run = BulkRun { ranks, events_per_rank: events, ..BulkRun::default() };
        let written = write_bulk_shards(&folder.join("shards"), &run)?;
        let shard = written.into_iter().next().ok_or("no shards were written")?;
        let shards = shard.parent().ok_or("a shard is in no folder")?.to_owned();
        let (database, output) = (folder.join("trace.db"), folder.join("out"));
        let inputs = Inputs { database, shard, shards, output };
        let merge = rpd_merge().args(["--quiet", "-o"]).arg(&inputs.database).arg(&inputs.shards);
        finish("the merge", merge.wrapped("timeout", &[LIMIT]).start())?;
        Ok(inputs)
    }

    /// A turn that is timed. One that failed is taken again, once: now and then ranks do not come up.
    pub(crate) fn lap(&self, contestant: Contestant) -> Result<Lap, Box<dyn Error>> {
        self.timed(contestant).or_else(|error| {
            eprintln!("AGAIN after: {error}");
            self.timed(contestant)
        })
    }

    fn timed(&self, contestant: Contestant) -> Result<Lap, Box<dyn Error>> {
        self.clear()?;
        let job = self.job(contestant).wrapped("sh", &["-c", WITH_CPU_TIME, "sh"]);
        let began = Instant::now();
        let said = finish(&contestant.to_string(), job.start())?;
        let seconds = began.elapsed().as_secs_f64();
        // The last line is user and system time of the children.
        let times = said.lines().next_back().unwrap_or_default();
        let cpu = times.split_whitespace().map(minutes_and_seconds).sum::<Option<f64>>();
        Ok(Lap { seconds, cpu: cpu.filter(|_| !times.is_empty()).ok_or("sh did not tell CPU times")? })
    }

    /// A turn that is looked at; `None` where nothing is drawn.
    pub(crate) fn check(&self, contestant: Contestant) -> Result<Option<Checked>, Box<dyn Error>> {
        self.clear()?;
        let mut child = self.job(contestant).start();
        let peak = peak_of_merge_ranks(&mut child);
        let said = finish(&contestant.to_string(), child)?;
        if matches!(contestant, Contestant::Start(_)) {
            return Ok(None);
        }
        let report: Value = serde_json::from_str(&said)?;
        let number =
            |path: &str| report.pointer(path).and_then(Value::as_u64).ok_or(format!("no {path} in {said}"));
        let mut files: Vec<PathBuf> = fs::read_dir(&self.output)?
            .map(|entry| entry.map(|entry| entry.path()))
            .collect::<Result<_, _>>()?;
        files.sort();
        let mut digest = XxHash3_64::new();
        for file in files {
            digest.write(&fs::read(file)?);
        }
        Ok(Some(Checked {
            slices: number("/trace/events/slices")?,
            raw_bytes: number("/trace/raw_bytes")?,
            bytes: number("/trace/bytes")?,
            digest: digest.finish(),
            peak,
        }))
    }

    /// The whole run as one trace, which stays until the next turn.
    pub(crate) fn trace(&self, annotations: bool) -> Result<PathBuf, Box<dyn Error>> {
        self.clear()?;
        let contestant =
            Contestant::Draw { from: From::Database, how: How::Threads(2), split: false, annotations };
        finish(&contestant.to_string(), self.job(contestant).start())?;
        let entry = fs::read_dir(&self.output)?.next().ok_or("no trace was written")??;
        Ok(entry.path())
    }

    fn job(&self, contestant: Contestant) -> Job {
        let job = match contestant {
            // Under its own name it initialises MPI before it looks what there is to do.
            Contestant::Start(ranks) => {
                mpirun(ranks).arg(binary("rpd-merge-mpi")).arg("inspect").arg(&self.shard)
            }
            Contestant::Draw { from, how, split, annotations } => {
                let job = match how {
                    How::Threads(threads) => rpd_merge().args(["--threads", &threads.to_string()]),
                    How::Ranks(ranks) => rpd_merge_mpi(ranks).args(["--threads", "1"]),
                };
                let job = job.args(["--format", "perfetto", "--quiet", "--json", "-o"]).arg(&self.output);
                let job = if split { job.args(["--split-by-time", FILES]) } else { job };
                let job = if annotations { job } else { job.arg("--no-annotations") };
                job.arg(if from == From::Database { &self.database } else { &self.shards })
            }
        };
        job.wrapped("timeout", &[LIMIT])
    }

    /// Nothing is left to be written from before; and there is a folder, so that one file goes into it, too.
    fn clear(&self) -> Result<(), Box<dyn Error>> {
        if self.output.exists() {
            fs::remove_dir_all(&self.output)?;
        }
        fs::create_dir(&self.output)?;
        rustix::fs::sync();
        Ok(())
    }
}

/// Waits for a job that shall succeed; what it printed.
fn finish(what: &str, mut child: Child) -> Result<String, Box<dyn Error>> {
    let (mut said, mut complained) = (String::new(), String::new());
    if let Some(mut stdout) = child.stdout.take() {
        stdout.read_to_string(&mut said)?;
    }
    if let Some(mut stderr) = child.stderr.take() {
        stderr.read_to_string(&mut complained)?;
    }
    let status = child.wait()?;
    if status.success() { Ok(said) } else { Err(format!("{what}: {status}: {complained}").into()) }
}

/// `1m2.34s`, in seconds.
fn minutes_and_seconds(text: &str) -> Option<f64> {
    let (minutes, seconds) = text.strip_suffix('s')?.split_once('m')?;
    Some(minutes.parse::<f64>().ok()? * 60.0 + seconds.parse::<f64>().ok()?)
}

impl fmt::Display for How {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            How::Threads(1) => write!(f, "1 thread"),
            How::Threads(threads) => write!(f, "{threads} threads"),
            How::Ranks(ranks) => write!(f, "mpirun -n {ranks}"),
        }
    }
}

impl fmt::Display for Contestant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Contestant::Draw { from, how, split, annotations } => {
                let files = if *split { "32 files" } else { "1 file" };
                let from = if *from == From::Database { "" } else { ", merged first" };
                let without = if *annotations { "" } else { ", no annotations" };
                write!(f, "{files}, {how}{without}{from}")
            }
            Contestant::Start(ranks) => write!(f, "start of mpirun -n {ranks} alone"),
        }
    }
}
