//! What the generator of synthetic runs promises to the other tests.

use rpd_shard::Shard;
use rpd_shard::file::BlockKind;
use rpd_shard::model::{native, rocpd};
use rpd_tests::content::{ContentTables, content, differences};
use rpd_tests::harness::Database;
use rpd_tests::synthetic::{ModelCell, NativeCall, SyntheticRun, write_rocpd, write_shards};
use std::collections::{BTreeMap, BTreeSet};

fn run() -> SyntheticRun {
    SyntheticRun { events_per_rank: 400, workers: true, ..SyntheticRun::default() }
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let (a, b) = (run().plan(), run().plan());
    let other = SyntheticRun { seed: 2, ..run() }.plan();
    let first = |run: &rpd_tests::synthetic::Run| run.rows(&run.ranks[1].processes[0]);
    assert_eq!(first(&a), first(&b));
    assert_ne!(first(&a), first(&other));
}

#[test]
fn every_table_has_rows_and_ranks_repeat_stack_ids_and_names() {
    let run = run().plan();
    let mut stacks: Vec<BTreeSet<i64>> = Vec::new();
    let mut names: Vec<BTreeSet<String>> = Vec::new();
    for process in run.processes() {
        let rows = run.rows(process);
        for table in rpd_shard::model::Schema::builtin().tables() {
            let implied = [rocpd::STRING, rocpd::INFO_NODE, rocpd::INFO_PROCESS].contains(&table.id);
            if table.id.0 < 64 && !implied {
                assert!(!rows.of(table.id).is_empty(), "{} of rank {}", table.name, process.rank);
                assert!(
                    rows.of(table.id).iter().all(|row| row.len() == table.columns.len()),
                    "{}",
                    table.name
                );
            }
        }
        let of_events = |cell: &ModelCell| if let ModelCell::Stack(v) = cell { Some(*v) } else { None };
        stacks.push(rows.of(rocpd::EVENT).iter().filter_map(|row| of_events(&row[1])).collect());
        let of_symbols =
            |cell: &ModelCell| if let ModelCell::Text(v) = cell { Some(v.to_string()) } else { None };
        names.push(rows.of(rocpd::INFO_KERNEL_SYMBOL).iter().filter_map(|row| of_symbols(&row[4])).collect());
    }
    assert!(stacks[0].intersection(&stacks[1]).count() > 20);
    assert!(stacks[0].contains(&0));
    let shared = names[0].intersection(&names[1]).count();
    assert!(shared > names[0].len() / 2 && shared < names[0].len());
}

#[test]
fn collectives_match_between_ranks() {
    let run = run().plan();
    let mut by_seq: BTreeMap<i64, Vec<_>> = BTreeMap::new();
    for process in run.processes() {
        for event in run.rows(process).native {
            if let NativeCall::Mpi { function, comm, seq: Some(seq), .. } = event.call {
                by_seq.entry(seq).or_default().push((function, comm, event.start, event.end));
            }
        }
    }
    assert_eq!(by_seq.len(), 8);
    for calls in by_seq.values() {
        assert_eq!(calls.len(), 4);
        assert!(calls.iter().all(|call| (call.0, call.1) == (calls[0].0, calls[0].1)));
        let last_in = calls.iter().map(|call| call.2).max();
        assert!(calls.iter().all(|call| Some(call.3) > last_in), "a rank left before another one entered");
    }
}

#[test]
fn ranges_of_a_thread_are_nested() {
    let run = run().plan();
    let rows = run.rows(&run.ranks[0].processes[0]);
    let ranges: Vec<_> =
        rows.native.iter().filter(|event| matches!(event.call, NativeCall::Range(_))).collect();
    assert!(ranges.len() > 50 && ranges.iter().any(|range| range.parent != 0));
    for a in &ranges {
        for b in ranges.iter().filter(|b| b.thread == a.thread) {
            let apart = a.end <= b.start || b.end <= a.start;
            let nested = (a.start <= b.start && b.end <= a.end) || (b.start <= a.start && a.end <= b.end);
            assert!(apart || nested, "{a:?} {b:?}");
        }
        let parent = ranges.iter().find(|b| b.stack == a.parent);
        assert!(parent.is_none_or(|b| b.thread == a.thread && b.start <= a.start && a.end <= b.end));
    }
}

#[test]
fn shards_hold_all_rows() {
    let folder = tempfile::tempdir().unwrap();
    let run = SyntheticRun { missing_rank: Some(2), ..run() }.plan();
    let dir = write_shards(&run, folder.path()).unwrap();
    assert!(!dir.join("rank-00002.rpdshard").exists());
    for rank in run.present() {
        let shard = Shard::open(&dir.join(format!("rank-{:05}.rpdshard", rank.rank))).unwrap();
        assert!(shard.complete() && shard.damage().is_empty());
        assert_eq!(shard.clocks, run.clock_sets(rank));
        let mut counts = BTreeMap::new();
        for block in shard.blocks() {
            if let BlockKind::Rows(table) = block.header.kind {
                *counts.entry((block.header.source, table)).or_insert(0) += shard.rows(block).unwrap().len;
            }
        }
        for process in &rank.processes {
            let rows = run.rows(process);
            for (table, rows) in &rows.tables {
                assert_eq!(counts[&(process.source, *table)], rows.len(), "{table}");
            }
            let mut native = [
                native::RANGE,
                native::MARK,
                native::MPI_CALL,
                native::RCCL_CALL,
                native::MPI_REQUEST,
                native::COMMUNICATOR,
            ]
            .map(|table| counts.get(&(process.source, table)).copied().unwrap_or(0));
            assert_eq!(native.iter().sum::<usize>(), rows.native.len());
            native.sort_unstable();
            assert!(process.worker() || native[0] > 0, "{native:?}");
        }
    }
}

#[test]
fn a_database_of_one_process_is_sound_and_holds_the_model() {
    let folder = tempfile::tempdir().unwrap();
    let run = SyntheticRun { nodes: 1, ranks_per_node: 1, ..run() }.plan();
    let files = write_rocpd(&run, folder.path()).unwrap();
    assert_eq!(files.len(), 1);
    let database = Database::open(&files[0]);
    database.assert_sound();
    let mut expected = content(&ContentTables::of_model(&run));
    let found = content(&ContentTables::of_database(&database.connection).unwrap());
    // A shard has communicators and marks among its strings, a database only in arguments and JSON.
    let words =
        ["MPI_COMM_WORLD", "data parallel", "\"epoch ", "nccl-", "ncclFloat", "comm-1", "of a library"];
    let of_shards = |text: &String| words.iter().any(|word| text.contains(word));
    expected.entry("rocpd_string".into()).or_default().retain(|text| !of_shards(text));
    assert_eq!(differences(&expected, &found), "");
    let events = database.count("rocpd_region") + database.count("rocpd_sample");
    let distinct = database
        .number("SELECT count(*) FROM (SELECT id FROM rocpd_region UNION SELECT id FROM rocpd_sample)");
    assert_eq!(events, distinct, "regions and samples share one id space");
    assert!(database.number("SELECT max(id) FROM rocpd_region") > events, "ids of regions are sparse");
}

#[test]
fn content_tells_runs_apart_whatever_differs() {
    let base = ContentTables::of_model(&run().plan());
    let same = content(&base);
    // Each change alone must be seen: a stack id, an id in JSON, a reference, a time.
    for (table, column) in [
        ("rocpd_event", "stack_id"),
        ("rocpd_event", "parent_stack_id"),
        ("rocpd_arg", "extdata"),
        ("rocpd_arg", "event_id"),
        ("rocpd_info_kernel_symbol", "extdata"),
        ("rocpd_kernel_dispatch", "queue_id"),
        ("rocpd_region", "start"),
        ("rocpd_sample", "track_id"),
        ("rocpd_pmc_event", "pmc_id"),
    ] {
        let mut changed = base.clone();
        let rows = changed.tables.get_mut(table).unwrap();
        let values: Vec<_> = rows.values().map(|row| row[column].clone()).collect();
        let first =
            values.iter().position(|v| *v != values[0] || *v == rusqlite::types::Value::Null).unwrap();
        let last = values.iter().rposition(|v| *v != values[first]).unwrap();
        let ids: Vec<i64> = rows.keys().copied().collect();
        rows.get_mut(&ids[first]).unwrap().insert(column.into(), values[last].clone());
        assert_ne!(differences(&same, &content(&changed)), "", "{table}.{column}");
    }
}
