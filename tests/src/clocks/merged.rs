//! Judges the clocks of a database that any build of rpd-merge made of a recorded run.

use super::recorded::{JudgedClock, RecordedRun};
use rpd_clocks::AlignMethod;
use rpd_shard::Shard;
use rpd_shard::file::BlockKind;
use rpd_shard::model::{Value, native};
use rpd_shard::record::ClockDomain;
use rusqlite::Connection;
use serde_json::Value as JsonCell;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Compares the starts of MPI calls in a database with those in the shards that it was merged of, and the difference with
/// the truth. The bound of every time of a clock is the one that the merge states for the clock.
///
/// # Panics
/// If the database is not a merge of these shards.
pub fn judge_merged(run: &RecordedRun, folder: &Path, database: &Path) -> Vec<JudgedClock> {
    let database = Connection::open(database).expect("a merged database");
    let clocks: JsonCell =
        serde_json::from_str(&tag(&database, "rpd.clock.domains")).expect("clocks in JSON");
    let clocks: Vec<JsonCell> = clocks.as_array().cloned().unwrap_or_default();
    let mut judged = Vec::new();
    for (domain, (rank, starts)) in calls(folder) {
        let is_of_domain = |clock: &&JsonCell| {
            clock["boot_id"] == domain.boot_id.as_str() && clock["time_namespace"] == domain.time_namespace
        };
        let clock = clocks.iter().find(is_of_domain).expect("each clock of the shards");
        let method: AlignMethod = serde_json::from_value(clock["method"].clone()).expect("a method");
        let Some(truth) = run.truth_of(&domain).filter(|_| method != AlignMethod::Reference) else {
            continue;
        };
        let merged = merged_starts(&database, rank);
        assert_eq!(merged.len(), starts.len(), "rank {rank}");
        let errors: Vec<i64> =
            starts.iter().zip(&merged).map(|(local, job)| (local + truth - job).abs()).collect();
        let bound = clock["bar_ns"].as_i64().unwrap_or(i64::MAX);
        let certain = clock["hard_ns"].as_i64().unwrap_or(i64::MAX);
        judged.push(JudgedClock {
            method,
            broken: errors.iter().filter(|error| **error > certain).count(),
            bounds: vec![bound; errors.len()],
            errors,
            jumps: clock["steps"].as_u64().unwrap_or(0) as usize,
        });
    }
    judged
}

/// The starts of the MPI calls of each rank, ns of its clock, ascending.
fn calls(folder: &Path) -> BTreeMap<ClockDomain, (u32, Vec<i64>)> {
    let mut calls = BTreeMap::new();
    for path in fs::read_dir(folder).expect("the folder of a run").flatten().map(|entry| entry.path()) {
        let Ok(shard) = Shard::open(&path) else { continue };
        let of_calls = |kind| kind == BlockKind::Rows(native::MPI_CALL);
        for block in shard.blocks().iter().filter(|block| of_calls(block.header.kind)) {
            let process = &shard.processes[&block.header.source];
            let rank = process.rank.expect("a rank");
            let rows = shard.rows(block).expect("readable rows");
            let column = rows.column("start");
            let starts = (0..rows.len).map(|row| match column.get(row) {
                Value::Int(start) => start,
                other => panic!("{other:?} is no time"),
            });
            calls.entry(process.domain.clone()).or_insert_with(|| (rank, Vec::new())).1.extend(starts);
        }
    }
    calls.values_mut().for_each(|(_, starts)| starts.sort_unstable());
    calls
}

/// The same in the database, ns of job time.
fn merged_starts(database: &Connection, rank: u32) -> Vec<i64> {
    let sql = "SELECT r.start FROM rocpd_region r JOIN rocpd_string s ON s.id = r.name_id
               JOIN rocpd_info_process p ON p.id = r.pid
               WHERE s.string LIKE 'MPI\\_%' ESCAPE '\\' AND json_extract(p.extdata, '$.rpd.rank') = ?1 ORDER BY 1";
    let mut statement = database.prepare(sql).expect("the query");
    let starts = statement.query_map([rank], |row| row.get(0)).expect("the regions");
    starts.map(|start| start.expect("a time")).collect()
}

fn tag(database: &Connection, tag: &str) -> String {
    database
        .query_row("SELECT value FROM rocpd_metadata WHERE tag = ?1", [tag], |row| row.get(0))
        .expect("the metadata of a merge")
}
