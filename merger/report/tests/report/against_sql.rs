//! Every row of a table equals the row that SQL finds in the same database.

use crate::program::json;
use crate::runs::MergedRuns;
use crate::sql::{SqlRow, SqlRun};
use rusqlite::types::Value;
use serde_json::{Value as Json, json};
use std::path::Path;

/// Collectives in the recordings.
const COLLECTIVES: [&str; 15] = [
    "MPI_Barrier",
    "MPI_Bcast",
    "MPI_Allreduce",
    "MPI_Allgather",
    "MPI_Reduce",
    "MPI_Gather",
    "MPI_Iallreduce",
    "ncclAllReduce",
    "ncclAllGather",
    "ncclReduceScatter",
    "ncclBroadcast",
    "gloo:all_reduce",
    "gloo:broadcast",
    "gloo:all_gather",
    "gloo:barrier",
];

fn as_json(value: &Value) -> Json {
    match value {
        Value::Null => Json::Null,
        Value::Integer(number) => json!(number),
        Value::Real(number) => json!(number),
        Value::Text(text) => json!(text),
        Value::Blob(bytes) => json!(bytes),
    }
}

/// Returns a value of a row; `whose` is the rank, or the process if that has none.
fn value<'r>(row: &'r Json, column: &str) -> &'r Json {
    match column {
        "whose" if row["rank"].is_null() => &row["process"],
        "whose" => &row["rank"],
        column => &row[column],
    }
}

/// Picks the columns of each row, in the order of their texts.
fn reported(report: &Json, table: &str, columns: &[&str]) -> Vec<String> {
    let rows = report[table].as_array().unwrap();
    let picked = |row: &Json| {
        columns.iter().map(|column| value(row, column).to_string()).collect::<Vec<_>>().join(" ")
    };
    let mut rows: Vec<String> = rows.iter().map(picked).collect();
    rows.sort();
    rows
}

fn expected(rows: &[SqlRow], columns: std::ops::Range<usize>) -> Vec<String> {
    let picked = |row: &SqlRow| {
        row[columns.clone()].iter().map(|value| as_json(value).to_string()).collect::<Vec<_>>()
    };
    let mut rows: Vec<String> = rows.iter().map(|row| picked(row).join(" ")).collect();
    rows.sort();
    rows
}

/// Compares rows, and shows those that only one side has.
fn assert_same(reported: &[String], expected: &[String], name: &str) {
    let only = |of: &[String], other: &[String]| {
        of.iter().filter(|row| !other.contains(row)).cloned().collect::<Vec<_>>()
    };
    let none: [String; 0] = [];
    assert_eq!(only(reported, expected), none, "{name}: not by SQL");
    assert_eq!(only(expected, reported), none, "{name}: by SQL only");
    assert_eq!(reported.len(), expected.len(), "{name}");
}

const SUMMARY_COLUMNS: [&str; 9] =
    ["domain", "name", "calls", "total_ns", "min_ns", "p50_ns", "p95_ns", "p99_ns", "max_ns"];

fn assert_summary(name: &str, database: &Path, arguments: &[&str], by: &str, condition: &str) {
    let report = json(&[&["summary"], arguments].concat(), database);
    let rows = SqlRun::open(database).summary(by, condition);
    assert!(!rows.is_empty(), "{name}");
    let whose: &[&str] = match by {
        "process.whose" => &["whose"],
        "host" => &["host"],
        _ => &[],
    };
    let columns = [whose, &SUMMARY_COLUMNS].concat();
    let first = if whose.is_empty() { 1 } else { 0 };
    assert_same(&reported(&report, "summary", &columns), &expected(&rows, first..10), name);
    for line in report["summary"].as_array().unwrap() {
        assert_moments(name, line, &rows, whose.first().copied());
    }
}

/// Compares mean, deviation and share with those of the same row by SQL.
fn assert_moments(name: &str, line: &Json, rows: &[SqlRow], whose: Option<&str>) {
    let is_group = |row: &&SqlRow| whose.is_none_or(|whose| as_json(&row[0]) == *value(line, whose));
    let is_domain = |row: &&SqlRow| is_group(row) && as_json(&row[1]) == line["domain"];
    let row = rows.iter().find(|row| is_domain(row) && as_json(&row[2]) == line["name"]).unwrap();
    let number = |place: usize| as_json(&row[place]).as_f64().unwrap();
    let (count, total) = (number(3), number(4));
    let mean = total / count;
    assert!(
        (line["mean_ns"].as_f64().unwrap() - mean).abs() <= 0.5 + mean.abs() * 1e-12,
        "{name}: mean of {line}"
    );
    let deviation = (number(10) / count - mean * mean).max(0.0).sqrt();
    let reported = line["sd_ns"].as_f64().unwrap();
    // Squares in floating point lose half of their digits.
    assert!((reported - deviation).abs() <= 1.0 + mean.abs() * 1e-6, "{name}: sd {deviation} of {line}");
    let domain: f64 = rows.iter().filter(is_domain).map(|row| as_json(&row[4]).as_f64().unwrap()).sum();
    match line["share"].as_f64() {
        Some(share) => assert!((share - total / domain).abs() < 1e-9, "{name}: share {line}"),
        None => assert!(domain == 0.0, "{name}: no share {line}"),
    }
}

#[test]
fn names_have_the_times_that_sql_finds() {
    for (name, database) in &MergedRuns::all().databases {
        assert_summary(name, database, &[], "NULL", "true");
        assert_summary(name, database, &["--by-rank"], "process.whose", "true");
        assert_summary(name, database, &["--by-node"], "host", "true");
    }
}

#[test]
fn a_selection_has_the_rows_that_sql_finds() {
    let runs = MergedRuns::all();
    let kept = runs.databases.iter().find(|(name, _)| name == "kept-1").unwrap();
    assert_summary("ranks", &kept.1, &["--ranks", "1"], "NULL", "rank = 1");
    let host = SqlRun::open(&kept.1).rows("SELECT hostname FROM rocpd_info_node LIMIT 1");
    let host = as_json(&host[0][0]);
    let host = host.as_str().unwrap();
    assert_summary("nodes", &kept.1, &["--nodes", host], "NULL", &format!("host = '{host}'"));
    let times = "(SELECT min(t) FROM (SELECT min(s) AS t FROM timed UNION ALL SELECT min(timestamp) FROM rocpd_sample))";
    let window = format!("s >= {times} + 1414800000 AND s < {times} + 1417000000");
    assert_summary("window", &kept.1, &["--window", "1.4148..1.417"], "NULL", &window);
    let within = "EXISTS (SELECT 1 FROM timed step WHERE step.pid = timed.pid AND step.name LIKE 'step%'
                  AND step.s <= timed.s AND timed.s < step.e)";
    let steps = SqlRun::open(&kept.1).summary("NULL", within);
    let report = json(&["summary", "--step", "step"], &kept.1);
    assert_eq!(reported(&report, "summary", &SUMMARY_COLUMNS), expected(&steps, 1..10));
}

#[test]
fn ranks_have_the_times_that_sql_finds() {
    let columns = ["rank", "length_ns", "mpi_ns", "rccl_ns", "gpu_busy_ns", "copy_ns"];
    for (name, database) in &MergedRuns::all().databases {
        let report = json(&["ranks"], database);
        let rows = SqlRun::open(database).ranks();
        assert!(!rows.is_empty(), "{name}");
        assert_same(&reported(&report, "ranks", &columns), &expected(&rows, 0..6), name);
        for line in report["ranks"].as_array().unwrap() {
            let length = line["length_ns"].as_f64().unwrap();
            for (share, ns) in [("mpi_share", "mpi_ns"), ("gpu_busy_share", "gpu_busy_ns")] {
                let wanted = (length > 0.0).then(|| line[ns].as_f64().unwrap() / length);
                // Reading a number from JSON may change its last digit.
                let is_right = match (line[share].as_f64(), wanted) {
                    (Some(reported), Some(wanted)) => (reported - wanted).abs() < 1e-12,
                    (reported, wanted) => reported == wanted,
                };
                assert!(is_right, "{name}: {share} {wanted:?}: {line}");
            }
        }
    }
}

#[test]
fn collectives_have_the_times_that_sql_finds() {
    let columns = [
        "communicator",
        "function",
        "bytes",
        "ranks",
        "calls",
        "total_ns",
        "p50_ns",
        "p95_ns",
        "matched",
        "skew_p50_ns",
        "skew_p95_ns",
    ];
    let mut matched = 0;
    for (name, database) in &MergedRuns::all().databases {
        let report = json(&["collectives"], database);
        let rows = SqlRun::open(database).collectives(&COLLECTIVES);
        assert_same(&reported(&report, "collectives", &columns), &expected(&rows, 0..11), name);
        let lines = report["collectives"].as_array().unwrap();
        matched += lines.iter().filter_map(|line| line["matched"].as_u64()).sum::<u64>();
    }
    if std::env::var_os("RPD_SHARED").is_some() {
        assert!(matched > 1_000, "{matched}");
    }
}
