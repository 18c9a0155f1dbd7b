//! Databases with something that a merge has no place for, or that this release does not know: it is told once, in words
//! that fit, and the ledger has its rows.

use rpd_tests::databases::{DatabaseJob, change, warnings_about};
use rpd_tests::harness::{Database, losses, rpd_merge};
use std::fs;

fn entry(table: Option<&str>, cause: &str, rows: i64) -> (Option<String>, String, i64) {
    (table.map(str::to_owned), cause.to_owned(), rows)
}

#[test]
fn tables_of_no_uuid_are_told_and_in_the_ledger() {
    let job = DatabaseJob::small();
    let odd = "rocpd_extra_00000000_0000_0000_0000_000000000000";
    for name in ["rocpd_nosuffix", odd, "rocpd_empty"] {
        change(&job.inputs[1], &[&format!("CREATE TABLE {name} (id INTEGER PRIMARY KEY, v)")]);
    }
    for name in ["rocpd_nosuffix", odd] {
        change(&job.inputs[1], &[&format!("INSERT INTO {name} (v) VALUES (7), (8)")]);
    }
    let outcome = job.merge(&[]).success();
    let warnings = warnings_about(&outcome, &job.inputs[1]);
    assert_eq!(warnings.len(), 2, "{outcome}");
    for name in ["rocpd_nosuffix", odd] {
        let told = format!("table {name} is left out: its name ends with no uuid of the file (2 rows)");
        assert!(warnings.iter().any(|warning| warning.ends_with(&told)), "{told}: {outcome}");
    }
    assert_eq!(losses(&job.database()), [entry(None, "unknown_table", 4)]);
    assert_eq!(job.merge(&["--strict"]).code(), Some(3));
}

#[test]
fn a_known_table_that_cannot_be_read_is_in_the_ledger_once_by_its_name() {
    let job = DatabaseJob::small();
    let rows = Database::open(&job.inputs[0]).count("rocpd_arg");
    assert!(rows > 0);
    change(
        &job.inputs[0],
        &[
            "CREATE TABLE copy AS SELECT * FROM rocpd_arg<uuid>",
            "DROP TABLE rocpd_arg<uuid>",
            "CREATE TABLE rocpd_arg<uuid> AS SELECT * FROM copy",
            "DROP TABLE copy",
        ],
    );
    let outcome = job.merge(&[]).success();
    let warnings = warnings_about(&outcome, &job.inputs[0]);
    assert_eq!(warnings.len(), 1, "{outcome}");
    assert!(warnings[0].contains("table rocpd_arg is left out"), "{outcome}");
    assert_eq!(losses(&job.database()), [entry(Some("rocpd_arg"), "damaged_block", rows)]);
}

#[test]
fn columns_that_no_version_has_are_not_filled_where_rows_are_there_once() {
    let job = DatabaseJob::small();
    let tables = ["rocpd_string", "rocpd_info_node", "rocpd_metadata"];
    for table in tables {
        change(
            &job.inputs[0],
            &[
                &format!("ALTER TABLE {table}<uuid> ADD COLUMN xtra TEXT DEFAULT 'dflt'"),
                &format!("UPDATE {table}<uuid> SET xtra = 'mine'"),
            ],
        );
    }
    let outcome = job.merge(&["--verify"]).success();
    let warnings = warnings_about(&outcome, &job.inputs[0]);
    assert_eq!(warnings.len(), 3, "{outcome}");
    for table in tables {
        let told = format!("the column xtra of {table} is left out");
        assert!(warnings.iter().any(|warning| warning.contains(&told)), "{told}: {outcome}");
        let columns = format!("SELECT count(*) FROM pragma_table_info('{table}') WHERE name = 'xtra'");
        assert_eq!(job.database().number(&columns), 0, "{table}");
    }
    let merged = job.database();
    for rows in ["rocpd_region", "regions", "rocpd_kernel_dispatch", "kernels"] {
        let all: i64 = job.inputs.iter().map(|input| Database::open(input).count(rows)).sum();
        assert_eq!(merged.count(rows), all, "{rows}");
    }
    assert_eq!(job.merge(&["--strict"]).code(), Some(3));
}

#[test]
fn a_version_that_came_later_is_told_once_and_its_rules_are_not_claimed() {
    let job = DatabaseJob::small();
    for (input, version, minor, patch) in [(0, "3.0.7", 0, 7), (1, "3.1.0", 1, 0), (2, "3.1.0", 1, 0)] {
        change(
            &job.inputs[input],
            &[
                &format!("UPDATE rocpd_metadata<uuid> SET value = '{version}' WHERE tag = 'schema_version'"),
                &format!(
                    "UPDATE rocpd_metadata<uuid> SET value = '{minor}' WHERE tag = 'schema_version_minor'"
                ),
                &format!(
                    "UPDATE rocpd_metadata<uuid> SET value = '{patch}' WHERE tag = 'schema_version_patch'"
                ),
            ],
        );
    }
    let outcome = job.merge(&["--strict", "--verify"]).success();
    for told in ["1 input has RocPD schema 3.0.7,", "2 inputs have RocPD schema 3.1.0,"] {
        assert_eq!(outcome.stderr.matches(told).count(), 1, "{told}: {outcome}");
    }
    assert!(!outcome.stderr.contains("AMD's rules: ok"), "{outcome}");
    assert!(
        outcome.stderr.contains("foreign_key_check: ok, schema 3.1.0, of which AMD's rules are not known"),
        "{outcome}"
    );
}

#[test]
fn nodes_of_cloned_images_are_different_nodes_with_clocks_of_their_own() {
    // Once with one machine id for all nodes, once with none.
    for machine in ["cloned", ""] {
        let job = DatabaseJob::small();
        for input in &job.inputs {
            let node = format!("UPDATE rocpd_info_node<uuid> SET hash = 0, machine_id = '{machine}'");
            change(input, &[&node]);
        }
        let outcome = job.merge(&["--json"]).success();
        let report: serde_json::Value = serde_json::from_str(&outcome.stdout).unwrap();
        assert_eq!(report["clocks"].as_array().unwrap().len(), 2, "{outcome}");
        let nodes = "SELECT hash, machine_id, hostname FROM rocpd_info_node ORDER BY id";
        let hosts =
            "SELECT n.hostname, p.pid FROM rocpd_info_process p JOIN rocpd_info_node n ON n.id = p.nid";
        let mut expected: Vec<_> =
            job.inputs.iter().flat_map(|input| Database::open(input).rows(hosts)).collect();
        expected.sort();
        let once = job.database();
        let mut found = once.rows(hosts);
        found.sort();
        assert_eq!(found, expected, "{machine:?}");
        assert_eq!(once.count("rocpd_info_node"), 2);
        // A merge of it has the same nodes.
        for layout in ["merged", "partitioned"] {
            let again = job.beside(&format!("{layout}.db"));
            let _ =
                rpd_merge().args(["--layout", layout, "-o"]).arg(&again).arg(job.output()).run().success();
            let third = job.beside(&format!("{layout}-again.db"));
            let _ = rpd_merge().arg("-o").arg(&third).arg(&again).run().success();
            assert_eq!(Database::open(&third).rows(nodes), once.rows(nodes), "{layout} {machine:?}");
        }
    }
}

#[test]
fn databases_whose_nodes_have_neither_id_nor_name_have_a_node_each() {
    let job = DatabaseJob::small();
    for input in &job.inputs {
        let node = "UPDATE rocpd_info_node<uuid> SET hash = 0, machine_id = '', hostname = ''";
        change(input, &[node]);
    }
    let _ = job.merge(&[]).success();
    let nodes = "SELECT hash, machine_id, hostname FROM rocpd_info_node ORDER BY id";
    let once = job.database();
    assert_eq!(once.number("SELECT count(DISTINCT hostname) FROM rocpd_info_node"), 4);
    let again = job.beside("again.db");
    let _ = rpd_merge().arg("-o").arg(&again).arg(job.output()).run().success();
    assert_eq!(Database::open(&again).rows(nodes), once.rows(nodes));
}

#[test]
fn the_largest_of_all_ids_is_told_as_such_and_the_rows_are_counted() {
    for table in ["rocpd_event", "rocpd_string"] {
        let job = DatabaseJob::small();
        let last = format!(
            "UPDATE {table}<uuid> SET id = 9223372036854775807 WHERE id = (SELECT max(id) FROM {table}<uuid>)"
        );
        change(&job.inputs[0], &[&last]);
        let outcome = job.merge(&[]).success();
        let warnings = warnings_about(&outcome, &job.inputs[0]);
        assert_eq!(warnings.len(), 1, "{outcome}");
        assert!(warnings[0].contains("no id is left after it"), "{outcome}");
        let database = job.database();
        let lost = losses(&database);
        let [(lost_table, _, rows)] = &lost[..] else { panic!("{lost:?}") };
        assert_eq!(lost_table.as_deref(), Some(table));
        if table == "rocpd_event" {
            let all: i64 = job.inputs.iter().map(|input| Database::open(input).count(table)).sum();
            // One row stands for those that others refer to.
            assert_eq!(database.count(table) - 1 + rows, all);
        }
        assert!((1..500).contains(rows), "{rows}");
    }
}

#[test]
fn a_cut_database_is_told_in_one_line_with_its_missing_pages() {
    let job = DatabaseJob::small();
    let cut = &job.inputs[2];
    let bytes = fs::read(cut).unwrap();
    let pages = bytes.len() / 4096;
    for (length, missing) in
        [(bytes.len() - 1, 1), (4096 * (pages - 2), 2), (4096 * (pages - pages / 4), pages / 4)]
    {
        fs::write(cut, &bytes[..length]).unwrap();
        let outcome = job.merge(&[]).success();
        let warnings = warnings_about(&outcome, cut);
        let told = format!("ends at byte {length}, its last {missing} page");
        assert_eq!(warnings.iter().filter(|line| line.contains(&told)).count(), 1, "{told}: {outcome}");
        assert_eq!(warnings.len(), 1, "{outcome}");
        assert!(!losses(&job.database()).is_empty());
    }
}
