//! One time for all nodes: what the merge makes of clocks, and says of them, against the truth.

mod again;
mod clock_file;
mod gaps;
mod hostile;
mod laws;
mod plain;
mod probes;
mod regions;
mod repair;
mod words;

use rpd_shard::model::{Schema, TableId, rocpd};
use rpd_tests::harness::{Database, Job, JobOutcome, rpd_merge};
use rpd_tests::synthetic::{ModelCell, ModelRank, ObservedClocks, Run, SyntheticRun, write_shard_that_saw};
use serde_json::Value;
use std::fs::{self, File};
use std::io::BufWriter;
use std::path::{Path, PathBuf};

/// Nodes that measure their clocks against each other and meet every 20 ms, for six seconds.
fn probed(nodes: u32, ranks_per_node: u32) -> SyntheticRun {
    SyntheticRun {
        nodes,
        ranks_per_node,
        events_per_rank: 15_000,
        max_drift_ppb: 20_000,
        max_anchor_error: 3_000_000,
        probes: true,
        ..SyntheticRun::default()
    }
}

/// The same for two seconds.
fn short(nodes: u32, ranks_per_node: u32) -> SyntheticRun {
    SyntheticRun { events_per_rank: 5_000, ..probed(nodes, ranks_per_node) }
}

/// Writes the shards of a run with collectors that saw this of the clocks; those of which nothing is given are missing.
fn shards(run: &Run, folder: &Path, seen: &dyn Fn(&ModelRank) -> Option<ObservedClocks>) -> Vec<PathBuf> {
    fs::create_dir_all(folder).unwrap();
    let write = |rank: &ModelRank| {
        let path = folder.join(format!("rank-{:05}.rpdshard", rank.rank));
        let file = BufWriter::new(File::create(&path).unwrap());
        write_shard_that_saw(run, rank, &seen(rank)?, file).unwrap().into_inner().unwrap();
        Some(path)
    };
    run.ranks.iter().filter_map(write).collect()
}

/// All that collectors can see.
fn everything(run: &Run) -> impl Fn(&ModelRank) -> Option<ObservedClocks> {
    move |rank| Some(ObservedClocks::of(run, rank))
}

fn merging(out: &Path, arguments: &[&str]) -> Job {
    rpd_merge().args(["--force", "--json", "-o"]).arg(out).args(arguments)
}

/// A successful merge, and its report.
struct Merged {
    report: Value,
    stderr: String,
    database: Database,
}

fn opened(outcome: &JobOutcome, out: &Path) -> Merged {
    let report = serde_json::from_str(&outcome.stdout).unwrap();
    let database = Database::open(out);
    Merged { report, stderr: outcome.stderr.clone(), database }
}

fn merge(out: &Path, arguments: &[&str], inputs: &[PathBuf]) -> Merged {
    opened(&merging(out, arguments).args(inputs).run().success(), out)
}

impl Merged {
    /// What is said of the clocks of a host.
    fn clock(&self, host: &str) -> &Value {
        let rows = self.report["clocks"].as_array().unwrap();
        let row = rows.iter().find(|row| row["hosts"][0] == host);
        row.unwrap_or_else(|| panic!("{host} is in {}", self.report["clocks"]))
    }

    /// The line of the summary's table about the clock of a host.
    fn line(&self, host: &str) -> &str {
        let begin = format!("clock      {host} ");
        let line = self.stderr.lines().find(|line| line.starts_with(&begin));
        line.unwrap_or_else(|| panic!("{host}: {}", self.stderr))
    }

    fn method(&self, host: &str) -> &str {
        self.clock(host)["method"].as_str().unwrap()
    }

    fn number(&self, host: &str, what: &str) -> i64 {
        self.clock(host)[what].as_i64().unwrap_or_else(|| panic!("{what} of {}", self.clock(host)))
    }

    /// The JSON of a tag of the metadata.
    fn tag(&self, tag: &str) -> Value {
        let metadata = self.database.metadata();
        let [value] = metadata.get(tag).map_or(&[][..], Vec::as_slice) else { panic!("{tag}: {metadata:?}") };
        serde_json::from_str(value).unwrap()
    }
}

/// How far the dispatches of a rank begin from when they truly did on the clock of node `reference`, ns: of each one.
fn errors(run: &Run, rank: &ModelRank, reference: usize, database: &Database) -> Vec<i64> {
    errors_of(rocpd::KERNEL_DISPATCH, run, rank, reference, database)
}

/// The same of the rows of another table.
fn errors_of(table: TableId, run: &Run, rank: &ModelRank, reference: usize, database: &Database) -> Vec<i64> {
    let process = &rank.processes[0];
    let rows = run.rows(process);
    let mut truth: Vec<i64> = rows.of(table).iter().filter_map(|row| began(row)).collect();
    truth.sort_unstable();
    let sql = format!(
        "SELECT d.start FROM {} d JOIN rocpd_info_process p ON p.id = d.pid WHERE p.pid = {} ORDER BY 1",
        Schema::builtin().get(table).unwrap().name,
        process.pid
    );
    let merged: Vec<i64> = database.rows(&sql).iter().map(|row| row[0].parse().unwrap()).collect();
    assert_eq!((merged.len(), merged.is_empty()), (truth.len(), false));
    let reference = &run.nodes[reference].clock;
    merged.iter().zip(truth).map(|(merged, truth)| merged - reference.local(truth)).collect()
}

/// The true time at which a row begins.
fn began(row: &[ModelCell]) -> Option<i64> {
    row.iter().find_map(|cell| if let ModelCell::Time(at) = cell { Some(*at) } else { None })
}

fn worst(errors: &[i64]) -> i64 {
    errors.iter().map(|error| error.abs()).max().unwrap()
}
