//! RocPD databases of several nodes, as rocprofv3 leaves them: their clocks go by the kernels of RCCL.

use super::*;
use rpd_tests::synthetic::{RUN_START, Random, write_rocpd};
use rusqlite::{Connection, params};

/// Three nodes without any call of MPI that all make together.
fn of_rccl() -> Run {
    SyntheticRun { collectives: false, probes: false, ..probed(3, 1) }.plan()
}

/// Opens a database of one guid, and gives the end of its table names.
fn open(path: &Path) -> (Connection, String) {
    let database = Connection::open(path).unwrap();
    let sql = "SELECT substr(name, length('rocpd_region') + 1) FROM sqlite_master WHERE type = 'table' AND name LIKE 'rocpd_region%'";
    let suffix = database.query_row(sql, [], |row| row.get(0)).unwrap();
    (database, suffix)
}

/// Adds a copy of a row with some columns changed; returns its id.
fn copy(database: &Connection, table: &str, id: i64, changed: &[(&str, i64)]) -> i64 {
    let sql = format!("SELECT name FROM pragma_table_info('{table}')");
    let names: Vec<String> = database
        .prepare(&sql)
        .unwrap()
        .query_map([], |row| row.get(0))
        .unwrap()
        .map(Result::unwrap)
        .collect();
    let next: i64 =
        database.query_row(&format!("SELECT max(id) + 1 FROM \"{table}\""), [], |row| row.get(0)).unwrap();
    let value = |name: &String| match changed.iter().find(|(column, _)| column == name) {
        Some((_, value)) => value.to_string(),
        None if name == "id" => next.to_string(),
        None => format!("\"{name}\""),
    };
    let values: Vec<String> = names.iter().map(value).collect();
    let values = values.join(", ");
    database
        .execute(&format!("INSERT INTO \"{table}\" SELECT {values} FROM \"{table}\" WHERE id = {id}"), [])
        .unwrap();
    next
}

/// Gives each RCCL call of a process its kernel, which ends in all ranks at once, and its communicator a handle
/// of its own. Some calls launch another kernel, too.
fn launch_kernels(run: &Run, rank: &Rank, path: &Path) {
    let (database, suffix) = open(path);
    let (node, mut random) = (&run.nodes[rank.node].clock, Random::new(&[21, u64::from(rank.rank)]));
    let table = |name: &str| format!("rocpd_{name}{suffix}");
    let sql = format!(
        "SELECT e.stack_id FROM \"{}\" r JOIN \"{}\" s ON s.id = r.name_id JOIN \"{}\" e ON e.id = r.event_id
          WHERE s.string IN ('ncclAllReduce', 'ncclBroadcast') ORDER BY r.start",
        table("region"),
        table("string"),
        table("event")
    );
    let mut calls = database.prepare(&sql).unwrap();
    let stacks: Vec<i64> = calls.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
    assert!(stacks.len() > 100);
    let dispatches = table("kernel_dispatch");
    let first = |column: &str| -> i64 {
        database
            .query_row(&format!("SELECT {column} FROM \"{dispatches}\" ORDER BY id LIMIT 1"), [], |row| {
                row.get(0)
            })
            .unwrap()
    };
    let (dispatch, event, kernel) = (first("id"), first("event_id"), first("kernel_id"));
    let symbols = table("info_kernel_symbol");
    let rccl = copy(&database, &symbols, kernel, &[]);
    let name = format!("UPDATE \"{symbols}\" SET kernel_name = ?, display_name = ? WHERE id = ?");
    database
        .execute(&name, params!["ncclDevKernel_Generic_1(...)", "ncclDevKernel_Generic_1", rccl])
        .unwrap();
    database.execute_batch("BEGIN").unwrap();
    for (n, stack) in (1..).zip(stacks) {
        let end = RUN_START + n * 29_000_000 + random.between(0, 3_000);
        let begin = end - 12_000 - random.between(0, 2_000_000);
        let launch = |kernel: i64, from: i64, to: i64| {
            let event = copy(&database, &table("event"), event, &[("stack_id", stack)]);
            let times = [("start", node.local(from)), ("end", node.local(to))];
            let changed = [&[("event_id", event), ("kernel_id", kernel)][..], &times].concat();
            copy(&database, &dispatches, dispatch, &changed);
        };
        launch(if n % 2 == 0 { rccl } else { kernel }, begin, end);
        if n % 4 == 0 {
            launch(kernel, begin - 70_000, begin - 20_000);
        }
    }
    let handle = format!("0x7f{:04x}00", 0x1234 + rank.rank);
    let sql = format!("UPDATE \"{}\" SET value = ? WHERE name = 'comm' AND value LIKE 'nccl%'", table("arg"));
    assert!(database.execute(&sql, [handle]).unwrap() > 100);
    database.execute_batch("COMMIT").unwrap();
}

#[test]
fn kernels_of_rccl_align_databases_and_calls_alone_do_not() {
    let run = of_rccl();
    let folder = tempfile::tempdir().unwrap();
    let inputs = write_rocpd(&run, &folder.path().join("in")).unwrap();
    let out = folder.path().join("out.db");
    let bare = merge(&out, &[], &inputs);
    assert_eq!(bare.method("gpu001"), "none");
    let line = "gpu001 (rank 1), gpu002 (rank 2): nothing is known of their clocks; times unchanged, and not comparable with others: record with rpd-collect, or give --clock-file FILE";
    assert!(bare.stderr.contains(line), "{}", bare.stderr);
    let note = "the collectives that match do not say when ranks waited (calls of RCCL return early: rocprofv3 records their kernels): which rank is late cannot be told";
    assert!(bare.stderr.contains(note), "{}", bare.stderr);
    for rank in &run.ranks {
        assert_eq!(worst(&errors(&run, rank, rank.node, &bare.database)), 0, "times stay");
    }

    run.ranks.iter().zip(&inputs).for_each(|(rank, path)| launch_kernels(&run, rank, path));
    let merged = merge(&out, &[], &inputs);
    merged.database.assert_sound();
    for rank in &run.ranks[1..] {
        let host = &run.nodes[rank.node].node.hostname;
        assert_eq!(merged.method(host), "collectives", "{}", merged.stderr);
        assert!(merged.number(host, "collectives") > 20, "{}", merged.clock(host));
        let errors = errors_of(rocpd::MEMORY_COPY, &run, rank, 0, &merged.database);
        let (bar, hard) = (merged.number(host, "bar_ns"), merged.number(host, "hard_ns"));
        let inside = errors.iter().filter(|error| error.abs() <= bar).count();
        assert!(inside * 10 >= errors.len() * 9, "{inside} of {}: {}", errors.len(), merged.clock(host));
        assert!(bar < 60_000 && worst(&errors) <= hard, "{} {}", worst(&errors), merged.clock(host));
    }
    assert!(!merged.report["late_ranks"].as_array().unwrap().is_empty(), "{}", merged.stderr);
}

#[test]
fn one_call_that_differs_is_told_and_nothing_is_aligned_by_the_others() {
    let run = of_rccl();
    let folder = tempfile::tempdir().unwrap();
    let inputs = write_rocpd(&run, &folder.path().join("in")).unwrap();
    run.ranks.iter().zip(&inputs).for_each(|(rank, path)| launch_kernels(&run, rank, path));
    let (database, suffix) = open(&inputs[2]);
    // Its twelfth collective is another one.
    let sql = format!(
        "UPDATE \"rocpd_region{suffix}\" SET name_id = (SELECT id FROM \"rocpd_string{suffix}\" WHERE string = 'ncclBroadcast')
          WHERE id = (SELECT r.id FROM \"rocpd_region{suffix}\" r JOIN \"rocpd_string{suffix}\" s ON s.id = r.name_id
                       WHERE s.string = 'ncclAllReduce' ORDER BY r.start LIMIT 1 OFFSET 6)"
    );
    assert_eq!(database.execute(&sql, []).unwrap(), 1);
    drop(database);
    let merged = merge(&folder.path().join("out.db"), &[], &inputs);
    for host in ["gpu001", "gpu002"] {
        assert_eq!(merged.method(host), "none");
    }
    assert!(merged.stderr.contains("'s collective 13 is nccl"), "{}", merged.stderr);
    assert_eq!(merged.report["collectives"]["matched"], 0);

    // What the site has measured does instead.
    let file = folder.path().join("clocks");
    let line = |node: usize| {
        let [own, first] = [node, 0].map(|node: usize| run.nodes[node].clock.local(RUN_START));
        let drift = (run.nodes[node].clock.drift_ppb - run.nodes[0].clock.drift_ppb) as f64 / 1e3;
        format!("gpu{node:03} offset={} at={own} drift_ppm={drift} error=900\n", first - own)
    };
    fs::write(&file, format!("reference gpu000\n{}{}", line(1), line(2))).unwrap();
    let arguments = ["--clock-file", file.to_str().unwrap()];
    let by_file = merge(&folder.path().join("out.db"), &arguments, &inputs);
    for rank in &run.ranks[1..] {
        let errors = errors_of(rocpd::MEMORY_COPY, &run, rank, 0, &by_file.database);
        assert!(worst(&errors) < 900, "{}: {}", worst(&errors), by_file.stderr);
    }
    assert!(by_file.line("gpu001").ends_with("  900 ns  the clock file"), "{}", by_file.stderr);
}
