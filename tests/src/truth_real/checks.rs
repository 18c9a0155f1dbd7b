//! Compares a merged database with the logs of the program, without a report.

use super::logs::RankLog;
use super::recorder::Recording;
use crate::harness::Database;
use std::collections::BTreeMap;

/// Longest difference between the lengths and begins of a range in the log and in the database, ns.
const MAX_DIFFERENCE: i64 = 1_000_000;
/// Of so many ranges one may differ by more: the machine can take the core between two readings of the clock.
const RANGES_PER_EXCEPTION: usize = 50;

/// Rank and text.
type Key = (u32, String);
/// Start and length of each, ns.
type Regions = BTreeMap<Key, Vec<(i64, i64)>>;

/// Checks that the database has the MPI calls of the program, as many of each function, and its ranges with their lengths
/// and their times on one axis. Clocks that are aligned by messages which take longer in one direction are off by half of that.
///
/// # Errors
/// What differs.
///
/// # Panics
/// If the database cannot be queried.
pub fn check_database(recording: &Recording) -> Result<(), String> {
    let Recording { database, logs, asymmetry_ns, .. } = recording;
    let recorded = recorded_regions(&Database::open(database));
    let (calls, ranges): (Regions, Regions) =
        recorded.into_iter().partition(|((_, name), _)| name.starts_with("MPI_"));
    compare_counts(&calls, logs)?;
    compare_ranges(ranges, logs, MAX_DIFFERENCE + asymmetry_ns / 2)
}

fn compare_counts(recorded: &Regions, logs: &[RankLog]) -> Result<(), String> {
    let mut logged: BTreeMap<Key, usize> = BTreeMap::new();
    for (rank, call) in logs.iter().flat_map(|log| log.calls.iter().map(|call| (log.rank, &call.call))) {
        *logged.entry((rank, call.clone())).or_default() += 1;
    }
    for key in logged.keys().chain(recorded.keys()) {
        let (log, database) = (logged.get(key).copied().unwrap_or(0), recorded.get(key).map_or(0, Vec::len));
        if log != database {
            return Err(format!("{key:?}: {log} calls in the log, {database} in the database"));
        }
    }
    Ok(())
}

fn compare_ranges(recorded: Regions, logs: &[RankLog], max_difference: i64) -> Result<(), String> {
    let mut logged = Regions::new();
    for (rank, range) in logs.iter().flat_map(|log| log.ranges.iter().map(|range| (log.rank, range))) {
        let region = (range.begin_ns, range.length_ns());
        logged.entry((rank, range.range.clone())).or_default().push(region);
    }
    if recorded.keys().ne(logged.keys()) {
        return Err(format!("ranges {:?} in the log, {:?} in the database", logged.keys(), recorded.keys()));
    }
    let (mut differing, mut count) = (Vec::new(), 0);
    // Job time minus the time of the machine: the same in all ranks.
    let mut offset = None;
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
        for ((log_begin, log_length), (begin, length)) in log.into_iter().zip(database) {
            let shift = begin - log_begin;
            let errors = [length - log_length, shift - *offset.get_or_insert(shift)];
            if errors.iter().any(|error| error.abs() > max_difference) {
                differing.push((key.clone(), errors));
            }
        }
    }
    if differing.len() * RANGES_PER_EXCEPTION > count {
        return Err(format!(
            "{} of {count} ranges differ by more than {max_difference} ns in length or begin: {differing:?}",
            differing.len()
        ));
    }
    Ok(())
}

/// Start and length of the regions of each rank and name.
fn recorded_regions(database: &Database) -> Regions {
    let sql = "SELECT json_extract(p.extdata, '$.rpd.rank'), label.string, r.start, r.\"end\" - r.start
                 FROM rocpd_region r
                 JOIN rocpd_info_process p ON p.id = r.pid AND p.guid = r.guid
                 JOIN rocpd_string label ON label.id = r.name_id AND label.guid = r.guid";
    let mut statement = database.connection.prepare(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
    let rows = statement.query_map([], |row| Ok(((row.get(0)?, row.get(1)?), (row.get(2)?, row.get(3)?))));
    let mut regions = Regions::new();
    for row in rows.unwrap_or_else(|error| panic!("{sql}: {error}")) {
        let (key, region) = row.unwrap_or_else(|error| panic!("{sql}: {error}"));
        regions.entry(key).or_default().push(region);
    }
    regions
}
