//! Formats of the output.

use crate::program::{json, printed, rpd_report};
use crate::runs::{MergedRuns, kept_shards, merge};
use crate::schema::violations;
use std::process::Stdio;

/// Keys of the overview that hold no rows of a table.
const NO_TABLES: [&str; 4] = ["unavailable", "notes", "findings", "reasons"];

const SUBCOMMANDS: [&[&str]; 17] = [
    &[],
    &["summary"],
    &["summary", "--by-rank"],
    &["summary", "--by-node"],
    &["ranks"],
    &["collectives"],
    &["gpu"],
    &["anomalies"],
    &["hang"],
    &["blame"],
    &["steps"],
    &["messages"],
    &["whatif"],
    &["path"],
    &["efficiency"],
    &["clocks"],
    &["integrity"],
];

#[test]
fn every_object_has_the_schema_and_a_reason_for_each_unknown_value() {
    for (name, database) in &MergedRuns::all().databases {
        for arguments in SUBCOMMANDS {
            let object = json(arguments, database);
            assert_eq!(violations(&object), [] as [String; 0], "{name} {arguments:?}");
            let reasons = object["unavailable"].as_array().unwrap();
            let has_reason = |subject: &str| reasons.iter().any(|reason| reason["subject"] == subject);
            let tables = object.as_object().unwrap().iter().filter(|(_, value)| value.is_array());
            for (table, rows) in tables.filter(|(key, _)| !NO_TABLES.contains(&key.as_str())) {
                let cells = rows.as_array().unwrap().iter().flat_map(|row| row.as_object().unwrap());
                for (column, _) in cells.filter(|(_, value)| value.is_null()) {
                    assert!(
                        has_reason(&format!("{table}.{column}")),
                        "{name}: {table}.{column}: {reasons:?}"
                    );
                }
            }
        }
    }
}

#[test]
fn any_number_of_threads_prints_the_same() {
    for (name, database) in &MergedRuns::all().databases {
        for arguments in SUBCOMMANDS {
            let of = |threads: &str| {
                let mut command = rpd_report();
                let command = command.args(arguments).args(["--format", "json"]).arg(database);
                command.env("RAYON_NUM_THREADS", threads).output().unwrap().stdout
            };
            let one = of("1");
            assert!(!one.is_empty());
            for threads in ["2", "7"] {
                assert!(of(threads) == one, "{name} {arguments:?} with {threads} threads");
            }
        }
    }
}

#[test]
fn csv_and_markdown_have_the_rows_of_the_object() {
    let folder = tempfile::tempdir().unwrap();
    let database = folder.path().join("run.db");
    merge(&[], &kept_shards()[1], &database);
    for arguments in &SUBCOMMANDS[1..] {
        let object = json(arguments, &database);
        let rows = object[arguments[0]].as_array().unwrap();
        let text = printed(&[arguments, &["--format", "csv"][..]].concat(), &database);
        let mut reader = csv::Reader::from_reader(text.as_bytes());
        let header = reader.headers().unwrap().clone();
        let lines: Vec<csv::StringRecord> = reader.records().map(Result::unwrap).collect();
        assert_eq!(lines.len(), rows.len(), "{arguments:?}");
        for (line, row) in lines.iter().zip(rows) {
            assert_eq!(header.len(), row.as_object().unwrap().len());
            for (column, field) in header.iter().zip(line) {
                match &row[column] {
                    value if value.is_i64() || value.is_u64() => {
                        assert_eq!(field, value.to_string(), "{column}")
                    }
                    value if value.is_number() => {
                        // Reading a number from JSON may change its last digit.
                        let difference = field.parse::<f64>().unwrap() - value.as_f64().unwrap();
                        assert!(difference.abs() < 1e-12, "{column}: {field} {value}");
                    }
                    serde_json::Value::String(text) => assert_eq!(field, text),
                    serde_json::Value::Null => assert_eq!(field, ""),
                    _ => {}
                }
            }
        }
        let text = printed(&[arguments, &["--format", "md", "--top", "0"][..]].concat(), &database);
        let shown = text.lines().filter(|line| line.starts_with('|')).count();
        assert_eq!(shown, if rows.is_empty() { 0 } else { rows.len() + 2 }, "{arguments:?}: {text}");
    }
    let text = printed(&["summary", "--top", "3"], &database);
    assert!(text.contains("more rows: --top 0 shows all"), "{text}");
    assert!(!text.contains('\x1b'), "colours without a terminal: {text}");
}

#[test]
fn a_reader_that_closes_the_pipe_is_no_failure() {
    let folder = tempfile::tempdir().unwrap();
    let database = folder.path().join("run.db");
    merge(&[], &kept_shards()[0], &database);
    let mut command = rpd_report();
    let command = command.arg("summary").arg(&database).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
}
