//! Shards of every format version stay readable, and merge with new ones.
#![allow(missing_docs, clippy::unwrap_used)]

use rpd_shard::model::{Value, native, rocpd};
use rpd_shard::record::{Exit, Node, Process, RunIdentity};
use rpd_shard::{Shard, ShardWriter};
use rpd_tests::harness::{Database, repository, rpd_merge};
use std::collections::BTreeMap;
use std::fs;

const KEPT: [&str; 1] = ["shard-v1.rpdshard"];

/// What the program of the kept shards did: six steps of five phases.
fn phases(times: i64) -> BTreeMap<String, i64> {
    ["allreduce", "backward", "data", "forward", "step"].map(|name| (name.to_owned(), 6 * times)).into()
}

fn regions(database: &Database) -> BTreeMap<String, i64> {
    database.counts("SELECT name FROM regions")
}

/// Another process of the same run, written by this release.
fn new_shard() -> Vec<u8> {
    let run = RunIdentity {
        run_id: "kept-v1".into(),
        run_id_from: "--run-id".into(),
        rank: Some(1),
        size: Some(2),
        version: env!("CARGO_PKG_VERSION").into(),
    };
    let old = Shard::open(&repository().join("tests/data").join(KEPT[0])).unwrap();
    let node = Node { hostname: "other".into(), boot_id: "other".into(), ..Node::default() };
    let process = Process { rank: Some(1), size: Some(2), node, ..old.processes[&1].clone() };
    let mut shard = ShardWriter::new(Vec::new(), &run).unwrap();
    shard.process(&process).unwrap();
    let tid = shard.push(1, rocpd::INFO_THREAD, &[1.into(), 1.into(), 1.into(), 7.into()]).unwrap();
    for name in ["allreduce", "backward", "data", "forward", "step"].iter().cycle().take(30) {
        let name = shard.string(name.as_bytes()).unwrap();
        let row = [tid.into(), 5.into(), 6.into(), name.into(), 0.into(), Value::Null];
        shard.push(1, native::RANGE, &row).unwrap();
    }
    shard.finish().unwrap()
}

#[test]
fn a_kept_shard_is_read_as_it_was_written() {
    let shard = Shard::open(&repository().join("tests/data/shard-v1.rpdshard")).unwrap();
    assert!(shard.complete() && shard.damage().is_empty());
    assert_eq!((shard.identity.run_id.as_str(), shard.processes.len()), ("kept-v1", 1));
    assert_eq!(shard.processes[&1].exit, Some(Exit::Code(0)));
    assert_eq!(shard.clocks.len(), 2);
}

#[test]
fn kept_shards_are_merged_alone_and_with_a_new_one() {
    for kept in KEPT {
        let folder = tempfile::tempdir().unwrap();
        fs::copy(repository().join("tests/data").join(kept), folder.path().join(kept)).unwrap();
        let _ = rpd_merge().arg("--strict").arg(folder.path()).run().success();
        let alone = Database::open(&folder.path().join("trace.db"));
        alone.assert_sound();
        assert_eq!(regions(&alone), phases(1));
        assert_eq!(alone.number("SELECT count(*) FROM samples"), 2);

        fs::write(folder.path().join("new.rpdshard"), new_shard()).unwrap();
        let _ = rpd_merge().arg("--force").arg(folder.path()).run().success();
        let both = Database::open(&folder.path().join("trace.db"));
        both.assert_sound();
        assert_eq!(regions(&both), phases(2));
    }
}
