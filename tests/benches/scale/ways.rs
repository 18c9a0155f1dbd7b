//! What is made of the job, and by whom.

use crate::inputs::Inputs;
use rpd_tests::harness::{remove, rpd_merge, rpd_merge_mpi};
use rpd_tests::measure::peaks_of_merge_ranks;
use serde::Deserialize;
use std::error::Error;
use std::fmt;
use std::fs::{self, File};
use std::io::Read;
use std::path::Path;
use std::time::Instant;

/// Longest of them, seconds.
const LIMIT: &str = "1800";

/// One of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Way {
    /// Everything but the writing.
    DryRun,
    /// A database, two threads.
    Database,
    /// The same on two ranks with a thread each.
    DatabaseOnRanks,
    /// Eight slices for Perfetto, two threads.
    Slices,
}

/// What was seen of it.
#[derive(Debug)]
pub(crate) struct Measured {
    pub(crate) seconds: f64,
    /// Most resident bytes of each merge process.
    pub(crate) peaks: Vec<u64>,
    /// Bytes written.
    pub(crate) bytes: u64,
    /// Lines on a terminal.
    pub(crate) lines: usize,
    pub(crate) told: Told,
}

/// What the report of rpd-merge says.
#[derive(Deserialize, Debug)]
pub(crate) struct Told {
    pub(crate) ranks: u64,
    pub(crate) nodes: u64,
    pub(crate) shards: u64,
    pub(crate) phases: Vec<Phase>,
    rows_read: Vec<Rows>,
    rows: Vec<Rows>,
    losses: Vec<serde_json::Value>,
    pub(crate) clocks: Vec<Clock>,
}

#[derive(Deserialize, Debug)]
pub(crate) struct Phase {
    pub(crate) phase: String,
    pub(crate) seconds: f64,
}

#[derive(Deserialize, Debug)]
struct Rows {
    rows: u64,
}

#[derive(Deserialize, Debug)]
pub(crate) struct Clock {
    pub(crate) method: String,
}

impl Told {
    pub(crate) fn rows_read(&self) -> u64 {
        self.rows_read.iter().map(|table| table.rows).sum()
    }

    pub(crate) fn rows(&self) -> u64 {
        self.rows.iter().map(|table| table.rows).sum()
    }

    pub(crate) fn is_whole(&self) -> bool {
        self.losses.is_empty()
    }
}

impl Way {
    pub(crate) fn all(mpi: bool) -> Vec<Way> {
        let mut all = vec![Way::DryRun, Way::Database, Way::DatabaseOnRanks, Way::Slices];
        all.retain(|way| mpi || *way != Way::DatabaseOnRanks);
        all
    }

    /// Merge processes, and threads of each.
    pub(crate) fn ranks(self) -> usize {
        if self == Way::DatabaseOnRanks { 2 } else { 1 }
    }

    pub(crate) fn measure(self, inputs: &Inputs, folder: &Path) -> Result<Measured, Box<dyn Error>> {
        let output = folder.join(if self == Way::Slices { "slices" } else { "out.db" });
        let [json, said] = ["report.json", "said.txt"].map(|name| folder.join(name));
        let job = match self.ranks() {
            1 => rpd_merge().args(["--threads", "2"]),
            ranks => rpd_merge_mpi(ranks).args(["--threads", "1"]),
        };
        let job = match self {
            Way::DryRun => job.arg("--dry-run"),
            Way::Slices => job.args(["--split-by-time", "8"]),
            _ => job,
        };
        // The report is longer than a pipe.
        let to_files = "exec \"$@\" >\"$RPD_BENCH_JSON\" 2>\"$RPD_BENCH_SAID\"";
        let job = job.args(["--json", "-o"]).arg(&output).arg(&inputs.shards);
        let job = job.env("RPD_BENCH_JSON", &json).env("RPD_BENCH_SAID", &said);
        let job = job.wrapped("timeout", &[LIMIT]).wrapped("sh", &["-c", to_files, "sh"]);
        rustix::fs::sync();
        let began = Instant::now();
        let mut child = job.start();
        let peaks = peaks_of_merge_ranks(&mut child);
        let status = child.wait()?;
        let seconds = began.elapsed().as_secs_f64();
        let lines = fs::read_to_string(&said)?;
        if !status.success() {
            return Err(format!("{self}: {status}: {lines}").into());
        }
        let told: Told = serde_json::from_reader(File::open(&json)?.take(1 << 30))?;
        let bytes = size_of(&output);
        match output.is_dir() {
            true => fs::remove_dir_all(&output)?,
            false => remove(&output),
        }
        Ok(Measured { seconds, peaks, bytes, lines: lines.lines().count(), told })
    }
}

/// Bytes of a file, or of the files of a folder.
fn size_of(path: &Path) -> u64 {
    let below = fs::read_dir(path).into_iter().flatten().flatten().map(|entry| size_of(&entry.path()));
    match path.is_dir() {
        true => below.sum(),
        false => path.metadata().map_or(0, |metadata| metadata.len()),
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Way::DryRun => "--dry-run, 2 threads",
            Way::Database => "database, 2 threads",
            Way::DatabaseOnRanks => "database, mpirun -n 2",
            Way::Slices => "--split-by-time 8, 2 threads",
        })
    }
}
