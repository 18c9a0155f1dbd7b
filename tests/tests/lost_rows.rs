//! What a lost block takes with it is told, counted, and never replaced by something else.

use rpd_shard::file::{BlockKind, BlockRef};
use rpd_shard::model::{Kind, Schema, Table, TableId, Value, rocpd};
use rpd_shard::record::{ProfilerLoss, ProfilerLossReason};
use rpd_shard::{Shard, ShardWriter};
use rpd_tests::crafted::{blocks, damage, last_block, write_rows};
use rpd_tests::harness::{Database, Job, RunFolder, assert_refused, binary, losses, replaced, rpd_merge};
use rpd_tests::synthetic::SyntheticRun;
use std::collections::BTreeMap;
use std::fs;

/// Two ranks on two nodes, so that the second one's times are shifted.
fn config() -> SyntheticRun {
    SyntheticRun { ranks_per_node: 1, max_anchor_error: 50_000, ..SyntheticRun::default() }
}

fn damage_last(run: &RunFolder, rank: u32, kind: BlockKind, source: u32) -> BlockRef {
    let mut bytes = fs::read(run.shard(rank)).unwrap();
    let block = last_block(&bytes, kind, source);
    damage(&mut bytes, &block);
    fs::write(run.shard(rank), bytes).unwrap();
    block
}

/// A shard with the record of a profiler that lost rows.
fn profiler_shard(run: &RunFolder) -> Vec<u8> {
    let identity = Shard::open(&run.shard(0)).unwrap().identity;
    let mut shard = ShardWriter::new(Vec::new(), &identity).unwrap();
    let loss =
        ProfilerLoss { profiler: "rocprofv3".to_owned(), rank: Some(0), reason: ProfilerLossReason::Killed };
    shard.profiler_loss(&loss).unwrap();
    shard.finish().unwrap()
}

#[test]
fn the_loss_of_a_profiler_is_in_the_ledger_though_its_record_is_damaged() {
    let run = RunFolder::new(&config());
    let path = run.shard(0).with_extension("profilers.rpdshard");
    let mut bytes = profiler_shard(&run);
    for (is_damaged, cause) in [(false, "profiler_failed"), (true, "damaged_block")] {
        if is_damaged {
            let block = last_block(&bytes, BlockKind::ProfilerLoss, 0);
            damage(&mut bytes, &block);
        }
        fs::write(&path, &bytes).unwrap();
        let ledger = losses(&run.merged());
        assert_eq!(ledger, [(None, cause.to_owned(), -1)]);
    }
}

/// The columns of one kind, in all tables of RocPD that blocks can hold.
fn columns_of(wanted: impl Fn(&Kind) -> bool) -> Vec<(&'static Table, String)> {
    let tables = Schema::builtin().rocpd_tables();
    let columns = tables.flat_map(|table| table.columns.iter().map(move |column| (&**table, column)));
    columns.filter(|(_, column)| wanted(&column.kind)).map(|(t, c)| (t, c.name.clone())).collect()
}

/// How many stored rows of a shard refer to these keys, per table and column.
fn referrers(bytes: &[u8], target: TableId, keys: std::ops::Range<i64>) -> BTreeMap<(String, String), i64> {
    let shard = Shard::from_memory("s", bytes).unwrap();
    let mut found = BTreeMap::new();
    for (table, column) in columns_of(|kind| *kind == Kind::Ref(target)) {
        for block in shard.blocks().iter().filter(|b| b.header.kind == BlockKind::Rows(table.id)) {
            let rows = shard.rows(block).unwrap();
            let ids = (0..rows.len).filter_map(|i| rows.column(&column).int(i));
            let lost = ids.filter(|id| keys.contains(id)).count() as i64;
            if lost > 0 {
                *found.entry((table.name.clone(), column.clone())).or_default() += lost;
            }
        }
    }
    found
}

/// Rows that own an event, as SQL: (owner, event_id).
const OWNERS: &str = "SELECT 'region' AS owner, event_id FROM rocpd_region
     UNION ALL SELECT 'sample', event_id FROM rocpd_sample
     UNION ALL SELECT 'dispatch', event_id FROM rocpd_kernel_dispatch
     UNION ALL SELECT 'copy', event_id FROM rocpd_memory_copy
     UNION ALL SELECT 'allocate', event_id FROM rocpd_memory_allocate";

fn assert_events_are_their_owners(database: &Database) {
    let shared = format!(
        "SELECT event_id, count(*) FROM ({OWNERS}) WHERE event_id NOTNULL GROUP BY 1 HAVING count(*) > 1"
    );
    assert_eq!(database.rows(&shared), Vec::<Vec<String>>::new(), "events with two owners");
    let native = format!(
        "SELECT o.owner, s.string, count(*) FROM ({OWNERS}) o
           JOIN rocpd_event e ON e.id = o.event_id JOIN rocpd_string s ON s.id = e.category_id
          WHERE s.string IN ('MARKER_CORE_RANGE_API', 'MARKER_CORE_API', 'MPI_API', 'RCCL_API')
            AND o.owner NOT IN ('region', 'sample') GROUP BY 1, 2"
    );
    assert_eq!(database.rows(&native), Vec::<Vec<String>>::new(), "marker and MPI events of other rows");
}

#[test]
fn a_lost_tail_of_events_gives_their_rows_no_other_event() {
    let run = RunFolder::new(&config());
    let good = fs::read(run.shard(0)).unwrap();
    assert_events_are_their_owners(&run.merged());
    let block = damage_last(&run, 0, BlockKind::Rows(rocpd::EVENT), 1);
    let wanted = referrers(&good, rocpd::EVENT, block.header.first_key..block.header.next_key());
    let dispatches = ("rocpd_kernel_dispatch".to_owned(), "event_id".to_owned());
    assert!(wanted[&dispatches] > 10, "{wanted:?}");
    let database = run.merged();
    database.assert_sound();
    assert_events_are_their_owners(&database);
    assert_eq!(replaced(&database), wanted);
    let without = database.number("SELECT count(*) FROM rocpd_kernel_dispatch WHERE event_id IS NULL");
    assert_eq!(without, wanted[&dispatches]);
    let lost = (Some("rocpd_event".to_owned()), "damaged_block".to_owned(), i64::from(block.header.rows));
    assert_eq!(losses(&database), [lost]);
}

#[test]
fn a_lost_tail_of_tracks_gives_their_samples_no_other_track() {
    let run = RunFolder::new(&config());
    let good = fs::read(run.shard(0)).unwrap();
    let block = damage_last(&run, 0, BlockKind::Rows(rocpd::TRACK), 1);
    let wanted = referrers(&good, rocpd::TRACK, block.header.first_key..block.header.next_key());
    let samples = wanted[&("rocpd_sample".to_owned(), "track_id".to_owned())];
    let database = run.merged();
    database.assert_sound();
    assert_eq!(replaced(&database), wanted);
    let on_placeholder = database.number(
        "SELECT count(*) FROM rocpd_sample p JOIN rocpd_track t ON t.id = p.track_id
           JOIN rocpd_string s ON s.id = t.name_id WHERE s.string = '(lost)'",
    );
    assert_eq!(on_placeholder, samples);
}

#[test]
fn a_lost_tail_of_names_is_lost_and_never_a_word_of_the_merger() {
    let run = RunFolder::new(&config());
    let whole = run.merged();
    damage_last(&run, 0, BlockKind::Rows(rocpd::STRING), 0);
    let names = |database: &Database, table: &Table, column: &str| {
        database.rows(&format!(
            "SELECT r.id, s.string FROM {} r JOIN rocpd_string s ON s.id = r.{column} ORDER BY r.id",
            table.name
        ))
    };
    let columns = columns_of(|kind| *kind == Kind::Str);
    let before: Vec<_> = columns.iter().map(|(table, column)| names(&whole, table, column)).collect();
    drop(whole);
    let database = run.merged();
    database.assert_sound();
    let mut wanted = BTreeMap::new();
    for ((table, column), before) in columns.iter().zip(before) {
        let after = names(&database, table, column);
        assert_eq!(after.len(), before.len(), "{}.{column}", table.name);
        let changed: Vec<_> = after.iter().zip(&before).filter(|(a, b)| a != b).collect();
        for (now, then) in &changed {
            assert_eq!(
                (&now[0], now[1].as_str()),
                (&then[0], "'(lost)'"),
                "{}.{column}: {then:?}",
                table.name
            );
        }
        if !changed.is_empty() {
            wanted.insert((table.name.clone(), column.clone()), changed.len() as i64);
        }
    }
    assert!(wanted.values().sum::<i64>() > 0, "the last string block was in use");
    assert_eq!(replaced(&database), wanted);
    // The text of a marker says the same as its region.
    let differing = "SELECT count(*) FROM rocpd_region r JOIN rocpd_event e ON e.id = r.event_id
        JOIN rocpd_string c ON c.id = e.category_id JOIN rocpd_string s ON s.id = r.name_id
        WHERE c.string = 'MARKER_CORE_RANGE_API' AND s.string <> json_extract(e.extdata, '$.message')";
    assert_eq!(database.number(differing), 0);
}

/// Begin and process of all regions of one rank, as far as they can be told without its process row.
fn times(database: &Database, rank: u32) -> Vec<Vec<String>> {
    database.rows(&format!(
        "SELECT r.start, r.end FROM rocpd_region r JOIN rocpd_info_process p ON p.id = r.pid
          WHERE json_extract(p.extdata, '$.rpd.rank') = {rank} ORDER BY r.id"
    ))
}

#[test]
fn a_process_whose_records_are_lost_keeps_all_nodes_aligned() {
    let config = SyntheticRun { nodes: 3, ..config() };
    let run = RunFolder::new(&config);
    let whole = run.merged();
    let before: Vec<_> = (0..3).map(|rank| times(&whole, rank)).collect();
    drop(whole);
    let mut bytes = fs::read(run.shard(0)).unwrap();
    let records: Vec<_> =
        blocks(&bytes).into_iter().filter(|block| block.header.kind == BlockKind::Process).collect();
    assert!(records.len() >= 2);
    records.iter().for_each(|record| damage(&mut bytes, record));
    fs::write(run.shard(0), bytes).unwrap();
    let outcome = rpd_merge().arg("--force").arg(&run.path).run().success();
    assert!(!outcome.stderr.contains("nothing is known of its clock"), "{outcome}");
    let database = run.database();
    database.assert_sound();
    for (rank, before) in before.iter().enumerate() {
        assert!(before.len() > 50);
        assert_eq!(&times(&database, rank as u32), before, "rank {rank}");
    }
    let lost = (Some("rocpd_info_process".to_owned()), "damaged_block".to_owned(), 1);
    assert_eq!(losses(&database), [lost]);
}

#[test]
fn a_shard_cut_between_two_blocks_is_known_to_be_unfinished() {
    let run = RunFolder::new(&config());
    let bytes = fs::read(run.shard(1)).unwrap();
    let all = blocks(&bytes);
    let first_row = all.iter().position(|b| matches!(b.header.kind, BlockKind::Rows(_))).unwrap();
    let last_row = all.iter().rposition(|b| matches!(b.header.kind, BlockKind::Rows(_))).unwrap();
    // After the records, in the middle of the rows, after the last row.
    for block in [first_row, (first_row + last_row) / 2, last_row + 1] {
        fs::write(run.shard(1), &bytes[..all[block].offset as usize]).unwrap();
        let outcome = rpd_merge().args(["--strict", "--force"]).arg(&run.path).run();
        assert_refused(&outcome, 3, &["rank-00001.rpdshard"]);
        let outcome = rpd_merge().arg("--force").arg(&run.path).run().success();
        let told = |line: &str| line.starts_with("lost") && line.contains("unknown number");
        assert!(outcome.stderr.lines().any(told), "{outcome}");
        let database = run.database();
        database.assert_sound();
        assert!(losses(&database).contains(&(None, "truncated".to_owned(), -1)), "{:?}", losses(&database));
        let ledger: serde_json::Value = serde_json::from_str(&database.metadata()["rpd.losses"][0]).unwrap();
        assert!(ledger.as_array().unwrap().iter().any(|loss| loss["rows"].is_null()), "{ledger}");
        assert_eq!(database.metadata()["rpd.unfinished_ranks"], ["[1]"]);
    }
}

#[test]
fn an_unfinished_shard_of_a_process_without_a_rank_is_no_damage() {
    let folder = tempfile::tempdir().unwrap();
    let collect = Job::new(binary("rpd-collect")).arg("-o").arg(folder.path()).args(["--run-id", "run"]);
    // Without the variables of a launcher around this test.
    let ranks = ["RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "FLUX_TASK_RANK"];
    let collect = ranks.into_iter().fold(collect, Job::without_env);
    let _ = collect.args(["--", "sleep", "0.3"]).run().success();
    let shard = folder.path().join("run/rank-00000.rpdshard");
    let bytes = fs::read(&shard).unwrap();
    let all = blocks(&bytes);
    fs::write(&shard, &bytes[..all[all.len() / 2].offset as usize]).unwrap();
    let report = Job::new(binary("rpd-report")).arg("integrity").arg(folder.path().join("run"));
    let printed = report.run().stdout;
    assert!(printed.contains("unfinished shard") && !printed.contains("damaged"), "{printed}");
}

#[test]
fn a_damaged_index_costs_nothing_and_is_no_missing_end() {
    let run = RunFolder::new(&config());
    let whole = run.merged().dump();
    let mut bytes = fs::read(run.shard(1)).unwrap();
    let index = blocks(&bytes).last().unwrap().end() as usize;
    // In the index's header, in its payload, in the trailer.
    for at in [index + 20, index + 72 + 5, bytes.len() - 10] {
        bytes[at] ^= 0x10;
        fs::write(run.shard(1), &bytes).unwrap();
        bytes[at] ^= 0x10;
        let outcome = rpd_merge().arg("--force").arg(&run.path).run().success();
        assert!(!outcome.stderr.contains("not finished"), "{outcome}");
        let database = run.database();
        assert_eq!(database.metadata()["rpd.unfinished_ranks"], ["[]"]);
        assert_eq!(rpd_tests::harness::dump_difference(&whole, &database.dump()), None);
    }
}

#[test]
fn rows_of_a_carried_table_are_in_the_output() {
    let run = RunFolder::new(&config());
    let columns = Schema::builtin().get(rocpd::EVENT).unwrap().columns[3..4].to_vec();
    let table = Table { id: TableId(0x100), name: "rocpd_extra".into(), columns };
    write_rows(&run, &config(), 1, |shard| {
        shard.table(&table)?;
        (0..10).try_for_each(|i| shard.push(1, table.id, &[Value::Int(i)]).map(drop))?;
        shard.flush()?;
        (0..7).try_for_each(|i| shard.push(1, table.id, &[Value::Int(i)]).map(drop))
    });
    let database = run.merged();
    database.assert_sound();
    assert_eq!(losses(&database), []);
    let rows = database.rows("SELECT correlation_id, count(*) FROM rocpd_extra GROUP BY 1 ORDER BY 1");
    let expected = (0..10).map(|i| [i.to_string(), if i < 7 { "2" } else { "1" }.to_owned()]);
    assert_eq!(rows, expected.collect::<Vec<_>>());
}
