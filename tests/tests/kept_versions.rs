//! Shards of every format version stay readable, and merge with new ones.

use rpd_shard::file::BlockKind;
use rpd_shard::model::{Value, native, rocpd};
use rpd_shard::record::{Node, Process, ProcessExit, RunIdentity};
use rpd_shard::{Shard, ShardWriter};
use rpd_tests::harness::{Database, repository, rpd_merge};
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

/// Of version 2 there are two ranks of a job.
const KEPT: [&str; 3] = ["shard-v1.rpdshard", "shard-v2.rpdshard", "shard-v3.rpdshard"];

/// What the program of the kept shards did: six steps of five phases.
fn phases(times: i64) -> BTreeMap<String, i64> {
    ["allreduce", "backward", "data", "forward", "step"].map(|name| (name.to_owned(), 6 * times)).into()
}

fn regions(database: &Database) -> BTreeMap<String, i64> {
    database.counts("SELECT name FROM regions")
}

fn kept(name: &str) -> PathBuf {
    repository().join("tests/data").join(name)
}

/// Another process of the run of a kept shard, written by this release.
fn new_shard(kept_shard: &str) -> Vec<u8> {
    let old = Shard::open(&kept(kept_shard)).unwrap();
    let rank = Some(2);
    let version = env!("CARGO_PKG_VERSION").into();
    let run = RunIdentity { rank, size: Some(3), version, ..old.identity.clone() };
    let node = Node { hostname: "other".into(), boot_id: "other".into(), ..Node::default() };
    let process = Process { rank, size: Some(3), node, ..old.processes[&1].clone() };
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
    let shard = Shard::open(&kept("shard-v1.rpdshard")).unwrap();
    assert!(shard.complete() && shard.damage().is_empty());
    assert_eq!((shard.identity.run_id.as_str(), shard.processes.len()), ("kept-v1", 1));
    assert_eq!(shard.processes[&1].exit, Some(ProcessExit::Code(0)));
    assert_eq!(shard.clocks.len(), 2);

    let shard = Shard::open(&kept("shard-v2.rpdshard")).unwrap();
    assert!(shard.complete() && shard.damage().is_empty());
    assert_eq!((shard.identity.run_id.as_str(), shard.processes.len()), ("kept-v2", 1));
    let sent: Vec<u32> = shard.probes.iter().map(|burst| burst.sent).collect();
    assert_eq!((shard.clocks.len(), sent.len(), sent.iter().sum::<u32>()), (4, 3, 420));
    assert!(shard.probes.iter().all(|burst| burst.is_sound() && burst.best.len() == 8));
}

#[test]
fn a_kept_shard_of_a_database_has_the_keys_of_the_database() {
    let path = kept("shard-v3-database.rpdshard");
    let shard = Shard::open(&path).unwrap();
    assert!(shard.complete() && shard.damage().is_empty());
    let block =
        shard.blocks().iter().find(|block| block.header.kind == BlockKind::Rows(rocpd::REGION)).unwrap();
    let rows = shard.rows(block).unwrap();
    let keys: Vec<i64> = (0..rows.len).map(|row| rows.keys.get(row)).collect();
    assert_eq!(keys, (0..30).map(|i| 3 * i - 20).collect::<Vec<_>>());
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out.db");
    let _ = rpd_merge().arg("-o").arg(&out).arg(&path).run().success();
    let database = Database::open(&out);
    database.assert_sound();
    assert_eq!(regions(&database), [("hipLaunchKernel".to_owned(), 30)].into());
}

#[test]
fn probes_of_kept_shards_bring_their_clocks_together() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out.db");
    let inputs = ["shard-v2.rpdshard", "shard-v2-rank-0.rpdshard"].map(kept);
    let outcome = rpd_merge().args(["--strict", "--json", "-o"]).arg(&out).args(inputs).run().success();
    let report: serde_json::Value = serde_json::from_str(&outcome.stdout).unwrap();
    let clock = &report["clocks"][1];
    assert_eq!((&clock["method"], &clock["probes"]), (&"probes".into(), &3.into()), "{}", outcome.stderr);
    // Both were on one machine, in time namespaces of their own: the offset is known to a nanosecond.
    let off = (clock["offset_ns"].as_i64().unwrap() + 5_000_000_000_000).abs();
    assert!(off <= clock["hard_ns"].as_i64().unwrap() && off < 50_000, "{off}: {clock}");
    assert_eq!(regions(&Database::open(&out)), phases(2));
}

#[test]
fn kept_shards_are_merged_alone_and_with_a_new_one() {
    for name in KEPT {
        let folder = tempfile::tempdir().unwrap();
        fs::copy(kept(name), folder.path().join(name)).unwrap();
        // Of the second one a rank is missing.
        let strict = if name == KEPT[1] { &[] } else { &["--strict"][..] };
        let _ = rpd_merge().args(strict).arg(folder.path()).run().success();
        let alone = Database::open(&folder.path().join("trace.db"));
        alone.assert_sound();
        assert_eq!(regions(&alone), phases(1));
        assert_eq!(alone.number("SELECT count(*) FROM samples"), 2);

        fs::write(folder.path().join("new.rpdshard"), new_shard(name)).unwrap();
        let _ = rpd_merge().arg("--force").arg(folder.path()).run().success();
        let both = Database::open(&folder.path().join("trace.db"));
        both.assert_sound();
        assert_eq!(regions(&both), phases(2));
    }
}
