//! Ids of processes: those of ranks first, in the order of ranks.

use rpd_comm::threads;
use rpd_merge::MergeArgs;
use rpd_merge::merge;
use rpd_shard::model::{Kind, Schema, rocpd};
use rpd_tests::harness::{Database, rpd_merge};
use rpd_tests::synthetic::{SyntheticRun, write_rocpd, write_shards};
use rusqlite::Connection;
use std::fs;
use std::path::Path;

/// Id of each process with its rank, and whether it is a worker.
const PROCESSES: &str = "SELECT id, json_extract(extdata, '$.rpd.rank'),
        coalesce(json_extract(extdata, '$.rpd.worker'), 0) FROM rocpd_info_process ORDER BY id";

fn processes(path: &Path) -> Vec<Vec<String>> {
    let database = Database::open(path);
    database.assert_sound();
    database.rows(PROCESSES)
}

fn merged(inputs: &[&Path], arguments: &[&str], output: &Path) {
    let _ = rpd_merge().args(["--force", "-o"]).arg(output).args(arguments).args(inputs).run().success();
}

fn with_workers() -> SyntheticRun {
    SyntheticRun { events_per_rank: 80, workers: true, ..SyntheticRun::default() }
}

const FOUR_RANKS: [[&str; 3]; 6] =
    [["1", "0", "0"], ["2", "1", "0"], ["3", "2", "0"], ["4", "3", "0"], ["5", "1", "1"], ["6", "3", "1"]];

#[test]
fn the_id_of_a_rank_is_one_more_than_the_rank_and_workers_come_behind() {
    let folder = tempfile::tempdir().unwrap();
    let [once, again] = ["once.db", "again.db"].map(|name| folder.path().join(name));
    let run = write_shards(&with_workers().plan(), folder.path()).unwrap();
    for layout in ["merged", "partitioned"] {
        merged(&[&run], &["--strict", "--verify", "--layout", layout], &once);
        assert_eq!(Database::open(&once).rows(PROCESSES), FOUR_RANKS, "{layout}");
        // Every row still belongs to the process that it was recorded in.
        let strangers = "SELECT count(*) FROM rocpd_info_thread t JOIN rocpd_info_process p ON p.id = t.pid
             WHERE t.id NOT BETWEEN json_extract(p.extdata, '$.rpd.rows.rocpd_info_thread[0]')
               AND json_extract(p.extdata, '$.rpd.rows.rocpd_info_thread[0]')
                 + json_extract(p.extdata, '$.rpd.rows.rocpd_info_thread[1]') - 1";
        assert_eq!(Database::open(&once).number(strangers), 0, "{layout}");
        let own = "SELECT count(*) FROM rocpd_info_process
             WHERE json_extract(extdata, '$.rpd.rows.rocpd_info_process[0]') <> id";
        assert_eq!(Database::open(&once).number(own), 0, "{layout}");
        merged(&[&once], &["--strict", "--verify"], &again);
        assert_eq!(processes(&again), FOUR_RANKS, "{layout}, merged again");
    }
}

#[test]
fn a_rank_that_is_missing_leaves_no_hole() {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("out.db");
    let run = SyntheticRun { missing_rank: Some(1), ..with_workers() };
    let run = write_shards(&run.plan(), folder.path()).unwrap();
    merged(&[&run], &[], &output);
    assert_eq!(processes(&output), [["1", "0", "0"], ["2", "2", "0"], ["3", "3", "0"], ["4", "3", "1"]]);
}

#[test]
fn a_merge_with_another_order_is_put_in_this_one() {
    let folder = tempfile::tempdir().unwrap();
    let [former, again] = ["former.db", "again.db"].map(|name| folder.path().join(name));
    let run = write_shards(&with_workers().plan(), folder.path()).unwrap();
    merged(&[&run], &[], &former);
    let names =
        "SELECT s.string, p.pid, count(*) FROM rocpd_region r JOIN rocpd_info_process p ON p.id = r.pid
          JOIN rocpd_string s ON s.id = r.name_id GROUP BY 1, 2 ORDER BY 1, 2";
    let expected = Database::open(&former).rows(names);
    // As earlier releases numbered them: each worker after its rank.
    let uuid = Database::open(&former).metadata()["uuid"][0].clone();
    let order = |id: &str| format!("CASE {id} WHEN 3 THEN 4 WHEN 4 THEN 5 WHEN 5 THEN 3 ELSE {id} END");
    let conn = Connection::open(&former).unwrap();
    conn.execute_batch("PRAGMA foreign_keys = OFF").unwrap();
    for (table, column) in Schema::builtin().rocpd_tables().flat_map(|table| {
        let of_process = table.columns.iter().filter(|column| column.kind == Kind::Ref(rocpd::INFO_PROCESS));
        of_process.map(move |column| (&table.name, &column.name))
    }) {
        let sql = format!("UPDATE \"{table}{uuid}\" SET {column} = {}", order(column));
        conn.execute_batch(&sql).unwrap();
    }
    let sql = format!(
        "UPDATE \"rocpd_info_process{uuid}\" SET id = -id;
         UPDATE \"rocpd_info_process{uuid}\" SET id = {}",
        order("-id")
    );
    conn.execute_batch(&sql).unwrap();
    conn.close().unwrap();
    merged(&[&former], &["--strict", "--verify"], &again);
    assert_eq!(processes(&again), FOUR_RANKS);
    assert_eq!(Database::open(&again).rows(names), expected);
}

#[test]
fn ids_and_bytes_depend_neither_on_merge_ranks_nor_on_the_kind_of_input() {
    let folder = tempfile::tempdir().unwrap();
    let plan = with_workers().plan();
    let shards = write_shards(&plan, &folder.path().join("shards")).unwrap();
    let databases = folder.path().join("databases");
    let _ = write_rocpd(&plan, &databases).unwrap();
    for (kind, input) in [("shards", &shards), ("databases", &databases)] {
        let mut first: Option<Vec<u8>> = None;
        for ranks in [1, 2, 3, 5] {
            let output = folder.path().join(format!("{kind}-{ranks}.db"));
            let arguments = MergeArgs {
                inputs: vec![input.clone()],
                output: Some(output.clone()),
                quiet: true,
                ..MergeArgs::default()
            };
            threads::run(ranks, |comm| merge(comm, &arguments).unwrap());
            let bytes = fs::read(&output).unwrap();
            assert!(*first.get_or_insert_with(|| bytes.clone()) == bytes, "{kind}, {ranks} merge ranks");
            let ranks_of: Vec<String> = processes(&output).into_iter().map(|row| row[1].clone()).collect();
            assert_eq!(ranks_of[..4], ["0", "1", "2", "3"], "{kind}");
        }
    }
}
