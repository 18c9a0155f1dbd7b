use super::binaries::binary;
use super::database::Database;
use super::job::Job;
use super::mpi::mpirun;
use crate::synthetic::{SyntheticRun, write_shards};
use rpd_shard::file::folder_of_ranks;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::TempDir;

/// Variables by which a program knows an MPI launcher. A test may itself run under one.
const LAUNCHER: [&str; 8] = [
    "OMPI_COMM_WORLD_SIZE",
    "OMPI_COMM_WORLD_RANK",
    "PMI_SIZE",
    "PMI_RANK",
    "PMIX_RANK",
    "SLURM_STEP_NUM_TASKS",
    "SLURM_PROCID",
    "RPD_OUTPUT",
];

/// `rpd-merge` alone, to which arguments are to be added.
pub fn rpd_merge() -> Job {
    let job = Job::new(binary("rpd-merge")).limit(Duration::from_secs(60));
    LAUNCHER.iter().fold(job, |job, name| job.without_env(name))
}

/// `rpd-merge` on so many MPI ranks, to which arguments are to be added.
pub fn rpd_merge_mpi(ranks: usize) -> Job {
    binary("rpd-merge-mpi");
    LAUNCHER.iter().fold(mpirun(ranks).arg(binary("rpd-merge")), |job, name| job.without_env(name))
}

/// A synthetic run on disk, which is removed with this value.
#[derive(Debug)]
pub struct RunFolder {
    folder: TempDir,
    ranks: u32,
    /// The run directory.
    pub path: PathBuf,
}

impl RunFolder {
    /// Writes the shards of a run.
    ///
    /// # Panics
    /// If they cannot be written.
    pub fn new(run: &SyntheticRun) -> RunFolder {
        let folder = tempfile::tempdir().unwrap_or_else(|error| panic!("temporary folder: {error}"));
        let path = write_shards(&run.plan(), folder.path()).unwrap_or_else(|error| panic!("shards: {error}"));
        RunFolder { folder, ranks: run.nodes * run.ranks_per_node, path }
    }

    /// The shard of a rank.
    pub fn shard(&self, rank: u32) -> PathBuf {
        let below = folder_of_ranks(Some(rank), Some(self.ranks)).unwrap_or_default();
        self.path.join(below).join(format!("rank-{rank:05}.rpdshard"))
    }

    /// A file beside the run directory.
    pub fn beside(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Merges the run alone, successfully, and opens the default output.
    pub fn merged(&self) -> Database {
        let _ = rpd_merge().arg("--force").arg(&self.path).run().success();
        self.database()
    }

    /// The default output.
    pub fn database(&self) -> Database {
        Database::open(&self.path.join("trace.db"))
    }
}

/// The rows that a database's own ledger counts as lost, per table; an entry without a number counts
/// as -1.
pub fn losses(database: &Database) -> Vec<(Option<String>, String, i64)> {
    let metadata = database.metadata();
    let [ledger] = metadata.get("rpd.losses").map_or(&[][..], |rows| rows) else {
        panic!("expected one row of metadata tag rpd.losses, not {:?}", metadata.get("rpd.losses"));
    };
    let ledger: serde_json::Value =
        serde_json::from_str(ledger).unwrap_or_else(|error| panic!("rpd.losses: {error}: {ledger}"));
    let entry = |entry: &serde_json::Value| {
        let table = entry["table"].as_str().map(str::to_owned);
        (table, entry["cause"].as_str().unwrap_or("").to_owned(), entry["rows"].as_i64().unwrap_or(-1))
    };
    ledger.as_array().into_iter().flatten().map(entry).collect()
}

/// What [`losses`] of a merge are if all of a database is lost to it for one cause, sorted: its rows in all tables but
/// those `without`.
pub fn losses_of_all(path: &Path, cause: &str, without: &[&str]) -> Vec<(Option<String>, String, i64)> {
    let database = Database::open(path);
    let suffix = database.metadata()["uuid"][0].clone();
    let names = database.names("table");
    let tables = names.iter().filter_map(|name| name.strip_suffix(suffix.as_str()));
    let count = |table: &str| {
        let rows = database.count(&format!("\"{table}{suffix}\""));
        (Some(table.to_owned()), cause.to_owned(), rows)
    };
    let counted = tables.filter(|table| !without.contains(table)).map(count);
    let mut counted: Vec<_> = counted.filter(|(_, _, rows)| *rows > 0).collect();
    counted.sort();
    counted
}

/// How many values a database says could not be kept, per table and column.
///
/// # Panics
/// If it does not say so in one row of metadata.
pub fn replaced(database: &Database) -> BTreeMap<(String, String), i64> {
    let metadata = database.metadata();
    let [told] = metadata.get("rpd.replaced").map_or(&[][..], |rows| rows) else {
        panic!("expected one row of metadata tag rpd.replaced, not {:?}", metadata.get("rpd.replaced"));
    };
    let told: Vec<(String, String, i64)> =
        serde_json::from_str(told).unwrap_or_else(|error| panic!("rpd.replaced: {error}: {told}"));
    told.into_iter().map(|(table, column, values)| ((table, column), values)).collect()
}

/// Removes a file if it is there.
///
/// # Panics
/// If it cannot be removed.
pub fn remove(path: &Path) {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => panic!("{}: {error}", path.display()),
        _ => {}
    }
}
