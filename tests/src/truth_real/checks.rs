//! Compares a merged database with the logs of the program, without a report.

use super::logs::RankLog;
use crate::harness::Database;
use std::collections::BTreeMap;
use std::path::Path;

/// Longest difference between the lengths of a range in the log and in the database, ns.
const MAX_DIFFERENCE: i64 = 1_000_000;
/// Of so many ranges one may differ by more: the machine can take the core between two readings of the clock.
const RANGES_PER_EXCEPTION: usize = 50;

/// Rank and text.
type Key = (u32, String);

/// Checks that the database has the MPI calls of the program, as many of each function, and its ranges with their lengths.
///
/// # Errors
/// What differs.
///
/// # Panics
/// If the database cannot be queried.
pub fn check_database(path: &Path, logs: &[RankLog]) -> Result<(), String> {
    let mut recorded = recorded_regions(&Database::open(path));
    let mut logged: BTreeMap<Key, Vec<(i64, i64)>> = BTreeMap::new();
    let mut calls: BTreeMap<Key, usize> = BTreeMap::new();
    for log in logs {
        for call in &log.calls {
            *calls.entry((log.rank, call.call.clone())).or_default() += 1;
        }
        for range in &log.ranges {
            let lengths = logged.entry((log.rank, range.range.clone())).or_default();
            lengths.push((range.begin_ns, range.length_ns()));
        }
    }
    let counted = |(key, regions): (&Key, &Vec<(i64, i64)>)| (key.clone(), regions.len());
    let is_call = |(_, name): &Key| name.starts_with("MPI_");
    let recorded_calls: BTreeMap<Key, usize> =
        recorded.iter().filter(|(key, _)| is_call(key)).map(counted).collect();
    if recorded_calls != calls {
        let differing =
            calls.keys().chain(recorded_calls.keys()).find(|key| calls.get(key) != recorded_calls.get(key));
        return Err(format!(
            "{differing:?}: {:?} calls in the log, {:?} in the database",
            differing.and_then(|key| calls.get(key)),
            differing.and_then(|key| recorded_calls.get(key))
        ));
    }
    recorded.retain(|key, _| !is_call(key));
    if recorded.keys().ne(logged.keys()) {
        return Err(format!("ranges {:?} in the log, {:?} in the database", logged.keys(), recorded.keys()));
    }
    let (mut differing, mut count) = (Vec::new(), 0);
    for ((key, mut log), mut database) in logged.into_iter().zip(recorded.into_values()) {
        if log.len() != database.len() {
            return Err(format!(
                "{key:?}: {} ranges in the log, {} in the database",
                log.len(),
                database.len()
            ));
        }
        log.sort_unstable();
        database.sort_unstable();
        count += log.len();
        let pairs = log.iter().zip(&database).map(|((_, log), (_, database))| (*log, *database));
        differing.extend(pairs.filter(|(log, database)| (log - database).abs() > MAX_DIFFERENCE));
    }
    if differing.len() * RANGES_PER_EXCEPTION > count {
        return Err(format!("{} of {count} ranges differ by more than 1 ms: {differing:?}", differing.len()));
    }
    Ok(())
}

/// Start and length of the regions of each rank and name.
fn recorded_regions(database: &Database) -> BTreeMap<Key, Vec<(i64, i64)>> {
    let sql = "SELECT json_extract(p.extdata, '$.rpd.rank'), label.string, r.start, r.\"end\" - r.start
                 FROM rocpd_region r
                 JOIN rocpd_info_process p ON p.id = r.pid AND p.guid = r.guid
                 JOIN rocpd_string label ON label.id = r.name_id AND label.guid = r.guid";
    let mut statement = database.connection.prepare(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
    let rows = statement.query_map([], |row| Ok(((row.get(0)?, row.get(1)?), (row.get(2)?, row.get(3)?))));
    let mut regions: BTreeMap<Key, Vec<(i64, i64)>> = BTreeMap::new();
    for row in rows.unwrap_or_else(|error| panic!("{sql}: {error}")) {
        let (key, region) = row.unwrap_or_else(|error| panic!("{sql}: {error}"));
        regions.entry(key).or_default().push(region);
    }
    regions
}
