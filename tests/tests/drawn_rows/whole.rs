//! All rows are drawn, with all that is said of them.

use super::{Drawn, PLENTY, check, merged, read, real};
use rpd_tests::databases::{DatabaseJob, change};
use rpd_tests::fixtures::rpd_files;
use rpd_tests::harness::{Database, RunFolder};
use rpd_tests::synthetic::SyntheticRun;
use rpd_trace::{JobRows, TraceSelection};
use rusqlite::Connection;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

#[test]
fn all_rows_of_real_databases_are_drawn() {
    let folder = tempfile::tempdir().unwrap();
    let Some(path) = real(folder.path()) else { return };
    let job = check(&path);
    assert!(job.facts.launch_flows > 1000 && job.facts.items.counters > 6000);
    assert_eq!(job.layouts.len(), 4);
    let tracks: BTreeSet<&str> = job.items.iter().map(|item| item.track.as_str()).collect();
    for track in [
        "GPU 0/GPU 0 Stream 0",
        "GPU 0/GPU 0 copies",
        "GPU 0/GPU 0 SQ_WAVES_0",
        "GPU 0/GPU 0 memory allocated",
        "thread 110000",
    ] {
        assert!(tracks.contains(track), "{track}: {tracks:?}");
    }
}

#[test]
fn all_rows_of_older_files_are_drawn() {
    let folder = tempfile::tempdir().unwrap();
    for file in rpd_files(folder.path()) {
        let _ = check(&merged(folder.path(), &[file]));
        std::fs::remove_file(folder.path().join("merged.db")).unwrap();
    }
}

#[test]
fn all_rows_of_synthetic_runs_are_drawn() {
    for seed in 0..6 {
        let run =
            SyntheticRun { seed, nodes: 2, ranks_per_node: 2, workers: true, ..SyntheticRun::default() };
        let folder = RunFolder::new(&run);
        let database = folder.merged();
        let path = PathBuf::from(database.connection.path().unwrap());
        let job = check(&path);
        // A collective of all ranks is one arrow.
        let mut ranks: BTreeMap<&str, BTreeSet<i64>> = BTreeMap::new();
        for item in &job.items {
            for flow in item.flows.iter().filter(|flow| flow.starts_with("Through")) {
                ranks.entry(flow).or_default().insert(item.process);
            }
        }
        assert!(ranks.values().any(|ranks| ranks.len() == 4), "{seed}: {}", ranks.len());
    }
}

/// What rocprof-sys writes of one reading of a GPU: an event, a sample on a track for each metric, and their values.
#[test]
fn values_of_an_event_that_several_samples_share_are_drawn_once() {
    let job = DatabaseJob::small();
    let counters = || {
        let _ = job.merge(&[]).success();
        let drawn = check(&job.output());
        let surveyed: u64 = drawn.layouts.iter().map(|layout| layout.counts.counters).sum();
        (drawn.facts.items.counters, surveyed, drawn)
    };
    let (drawn, surveyed, _) = counters();
    let three = "WITH three(n) AS (VALUES (1), (2), (3))";
    let node = "(SELECT min(id) FROM \"rocpd_info_node<uuid>\")";
    let process = "(SELECT min(id) FROM \"rocpd_info_process<uuid>\")";
    let at = "(SELECT max(start) FROM \"rocpd_region<uuid>\")";
    let category = "(SELECT min(id) FROM \"rocpd_string<uuid>\")";
    change(
        &job.inputs[0],
        &[
            &format!(
                "INSERT INTO \"rocpd_event<uuid>\" (id, category_id) VALUES (900000, {category}), (900001, {category})"
            ),
            &format!(
                "INSERT INTO \"rocpd_track<uuid>\" (id, nid, pid) {three} SELECT 900000 + n, {node}, {process} FROM three"
            ),
            &format!(
                "INSERT INTO \"rocpd_info_pmc<uuid>\" (id, nid, pid, name, symbol) {three} SELECT 900000 + n, {node}, {process}, 'metric ' || n, 'm' FROM three"
            ),
            // Three samples of one moment, one of another moment, and one with an event of its own.
            &format!(
                "INSERT INTO \"rocpd_sample<uuid>\" (id, track_id, timestamp, event_id) {three} SELECT 900000 + n, 900000 + n, {at}, 900000 FROM three"
            ),
            &format!(
                "INSERT INTO \"rocpd_sample<uuid>\" (id, track_id, timestamp, event_id) VALUES (900010, 900001, {at} + 7, 900000), (900011, 900002, {at}, 900001)"
            ),
            &format!(
                "INSERT INTO \"rocpd_pmc_event<uuid>\" (id, event_id, pmc_id, value) {three} SELECT 900000 + n, 900000, 900000 + n, n / 2.0 FROM three"
            ),
            "INSERT INTO \"rocpd_pmc_event<uuid>\" (id, event_id, pmc_id, value) VALUES (900010, 900001, 900003, 9)",
        ],
    );
    let (more, more_surveyed, job) = counters();
    assert_eq!((more - drawn, more_surveyed - surveyed), (7, 7));
    let metrics: Vec<String> = job
        .of("counter")
        .filter(|item| item.track.contains("metric "))
        .map(|item| format!("{} {}", item.track.split("metric ").nth(1).unwrap(), item.value))
        .collect();
    let count = |line: &str| metrics.iter().filter(|metric| *metric == line).count();
    let twice = ["1 Double(0.5)", "2 Double(1.0)", "3 Double(1.5)"].map(count);
    assert_eq!((twice, metrics.len()), ([2, 2, 2], 7), "{metrics:?}");
}

#[test]
fn args_are_drawn_in_their_order_with_their_values() {
    let folder = tempfile::tempdir().unwrap();
    let Some(path) = real(folder.path()) else { return };
    let job = read(&path, &TraceSelection::default(), None, PLENTY);
    let database = Database::open(&path);
    let sql =
        "SELECT r.pid, r.start, group_concat(a.name || '=' || coalesce(a.value, ''), ';' ORDER BY a.position)
                 FROM rocpd_region r JOIN rocpd_arg a ON a.event_id = r.event_id GROUP BY r.id";
    let mut query = database.connection.prepare(sql).unwrap();
    let row = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?));
    let mut expected: Vec<(i64, i64, String)> =
        query.query_map([], row).unwrap().map(Result::unwrap).collect();
    let plain = |value: &str| match value.strip_prefix("Int(").or_else(|| value.strip_prefix("Double(")) {
        Some(number) => number.trim_end_matches(')').to_owned(),
        None => value.to_owned(),
    };
    let of_call = |item: &&Drawn| item.category != "KERNEL_DISPATCH" && !item.category.starts_with("MEMORY");
    let mut found: Vec<(i64, i64, String)> = Vec::new();
    for item in
        job.of("slice").filter(of_call).filter(|item| item.args.iter().any(|(name, _)| name != "call"))
    {
        let args = item.args.iter().filter(|(name, _)| name != "call");
        let args: Vec<_> = args.map(|(name, value)| format!("{name}={}", plain(value))).collect();
        found.push((item.process, item.start, args.join(";")));
    }
    expected.sort();
    found.sort();
    assert!(expected.len() > 1000);
    assert_eq!(found, expected);
}

#[test]
fn little_memory_draws_the_same() {
    let run =
        SyntheticRun { nodes: 1, ranks_per_node: 1, events_per_rank: 40_000, ..SyntheticRun::default() };
    let folder = RunFolder::new(&run);
    let database = folder.merged();
    let path = PathBuf::from(database.connection.path().unwrap());
    let plenty = check(&path);
    let little = read(&path, &TraceSelection::default(), None, 0);
    assert_eq!(little.facts, plenty.facts);
    assert!(little.sorted() == plenty.sorted());
}

#[test]
fn rows_that_no_process_claims_are_told_apart_by_their_process() {
    let folder = tempfile::tempdir().unwrap();
    let Some(path) = real(folder.path()) else { return };
    let claimed = read(&path, &TraceSelection::default(), None, PLENTY);
    let without = |sql: &str| {
        let connection = Connection::open(&path).unwrap();
        let table: String = connection
            .query_row("SELECT name FROM sqlite_master WHERE name LIKE 'rocpd_info_process_%'", [], |row| {
                row.get(0)
            })
            .unwrap();
        connection.execute(&sql.replace("PROCESS", &table), []).unwrap();
    };
    let claimed = claimed.sorted();
    // One of them, then all.
    for sql in [
        "UPDATE PROCESS SET extdata = json_remove(extdata, '$.rpd.rows') WHERE id = 2",
        "UPDATE PROCESS SET extdata = json_set(extdata, '$.rpd.rows.rocpd_region[0]', 1)",
    ] {
        without(sql);
        let job = read(&path, &TraceSelection::default(), None, PLENTY);
        assert_eq!(job.facts.without_track, 0);
        let strip = |items: Vec<Drawn>| {
            let without_numbers = |mut item: Drawn| {
                // Arrows are numbered by unit.
                item.flows.iter_mut().for_each(|flow| flow.truncate(flow.find('(').unwrap_or(0)));
                item
            };
            let mut items: Vec<Drawn> = items.into_iter().map(without_numbers).collect();
            items.sort_by(|one, other| one.partial_cmp(other).unwrap());
            items
        };
        assert!(strip(job.sorted()) == strip(claimed.clone()), "{sql}");
    }
}

#[test]
fn flow_ends_of_calls_and_collectives_have_numbers_of_their_own() {
    // The top bit tells them apart: numbers of calls never have it.
    let folder = RunFolder::new(&SyntheticRun::default());
    let database = folder.merged();
    let path = PathBuf::from(database.connection.path().unwrap());
    let rows = JobRows::open(&path, &TraceSelection::default()).unwrap();
    for unit in 0..rows.units().len() {
        let layout = rows.survey(unit, &mut |_| {}).unwrap();
        let _ = rows
            .items(unit, &layout, PLENTY, &mut |item| {
                for flow in item.flows {
                    let text = format!("{flow:?}");
                    let (sort, number) = text.trim_end_matches(')').split_once('(').unwrap();
                    let top_bit = number.parse::<u64>().unwrap() >> 63;
                    assert_eq!(top_bit, u64::from(sort == "Through"));
                }
                Ok(())
            })
            .unwrap();
    }
}
