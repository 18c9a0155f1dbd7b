//! Files of nodes of which no shard tells: their wall clocks put them on the axis of the others.

use rpd_shard::Shard;
use rpd_shard::record::ClockSet;
use rpd_tests::harness::{Database, JobOutcome, RunFolder, rpd_merge};
use rpd_tests::synthetic::SyntheticRun;
use serde_json::Value as Json;
use std::fs;
use std::path::{Path, PathBuf};

const MS: i64 = 1_000_000;

/// A trace of the PyTorch profiler with one span that begins at a time of the wall clock, ns.
fn kineto(folder: &Path, pid: i64, host: Option<&str>, at: i64) -> PathBuf {
    let host = host.map_or(String::new(), |host| format!("\"host_name\": \"{host}\", "));
    let event = format!(
        r#"{{"ph":"X","cat":"cpu_op","name":"op {pid}","pid":{pid},"tid":{pid},"ts":3000.000,"dur":2.5}}"#
    );
    let text = format!(
        r#"{{"schemaVersion": 1, {host}"baseTimeNanoseconds": {}, "traceEvents": [{event}]}}"#,
        at - 3 * MS
    );
    let path = folder.join(format!("worker{pid}.pt.trace.json"));
    fs::write(&path, text).unwrap();
    path
}

fn merge(out: &Path, inputs: &[PathBuf]) -> (JobOutcome, Json) {
    let outcome = rpd_merge().args(["--force", "--json", "-o"]).arg(out).args(inputs).run().success();
    let report = serde_json::from_str(&outcome.stdout).unwrap();
    (outcome, report)
}

fn clock<'a>(report: &'a Json, host: &str) -> &'a Json {
    let rows = report["clocks"].as_array().unwrap();
    let is_it = |row: &&Json| row["hosts"][0].as_str().is_some_and(|name| name.starts_with(host));
    rows.iter().find(is_it).unwrap_or_else(|| panic!("{host}: {rows:?}"))
}

fn start(out: &Path, pid: i64) -> i64 {
    Database::open(out).number(&format!("SELECT start FROM regions WHERE name = 'op {pid}'"))
}

#[test]
fn files_of_several_hosts_are_aligned_by_their_wall_clocks() {
    let folder = tempfile::tempdir().unwrap();
    let (out, at) = (folder.path().join("out.db"), 1_763_800_000_123_456_789);
    let files = [
        kineto(folder.path(), 1, Some("n1"), at),
        kineto(folder.path(), 2, Some("n2"), at + 7),
        kineto(folder.path(), 3, None, at + 8),
    ];
    let (outcome, report) = merge(&out, &files);
    assert_eq!((clock(&report, "n1")["method"].as_str(), &report["nodes"]), (Some("reference"), &3.into()));
    for host in ["n2", "unknown-"] {
        let row = clock(&report, host);
        assert_eq!((&row["method"], &row["offset_ns"]), (&"realtime_anchors".into(), &0.into()));
        assert_eq!((&row["bar_ns"], &row["hard_ns"]), (&(10 * MS).into(), &Json::Null), "{row}");
    }
    let told = outcome.stderr.lines().filter(|line| line.contains("wall clocks, as exact as NTP"));
    assert_eq!(told.count(), 2, "{outcome}");
    assert_eq!([1, 2, 3].map(|pid| start(&out, pid)), [at, at + 7, at + 8]);
    assert!(Database::open(&out).metadata()["rpd.clock"][0].contains("REALTIME"));
}

#[test]
fn a_time_that_no_wall_clock_showed_is_aligned_by_none() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out.db");
    let files = [kineto(folder.path(), 1, Some("n1"), 1_763_800_000_000_000_000)];
    let bogus = [kineto(folder.path(), 2, Some("n2"), 5 * MS)];
    let (_, report) = merge(&out, &[files, bogus].concat());
    let methods: Vec<&Json> = ["n1", "n2"].map(|host| &clock(&report, host)["method"]).into();
    // It is the earliest, and so the reference.
    assert_eq!((methods, start(&out, 2)), (vec![&"none".into(), &"reference".into()], 5 * MS));
}

#[test]
fn a_time_that_is_yet_to_come_is_told_and_aligned_by_none() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out.db");
    let files = [
        kineto(folder.path(), 1, Some("n1"), 1_763_800_000_000_000_000),
        kineto(folder.path(), 2, Some("n2"), 3_600_000_000_000_000_000),
    ];
    let (outcome, report) = merge(&out, &files);
    assert_eq!(clock(&report, "n2")["method"], "none", "{outcome}");
    assert!(outcome.stderr.contains("worker2.pt.trace.json: its times begin in the year 2084"), "{outcome}");
}

#[test]
fn a_file_of_another_week_is_noted() {
    let folder = tempfile::tempdir().unwrap();
    let (out, at) = (folder.path().join("out.db"), 1_763_800_000_000_000_000);
    let days = 86_400 * 1_000 * MS;
    let files: Vec<_> = [(1, 0), (2, 3 * days), (3, -9 * days)]
        .map(|(pid, off)| kineto(folder.path(), pid, Some("n1"), at + off))
        .into();
    let note = "worker3.pt.trace.json has times that are 8 days from those of the others";
    let (outcome, _) = merge(&out, &files);
    assert!(outcome.stderr.contains(note), "{outcome}");
    let (outcome, _) = merge(&out, &files[..2]);
    assert!(!outcome.stderr.contains("of the others"), "{outcome}");
}

/// Shards of two nodes, called gpu000 and gpu001, and a clock set of the first and of the second.
fn shards() -> (RunFolder, [ClockSet; 2]) {
    let run = SyntheticRun { ranks_per_node: 1, max_anchor_error: 2 * MS, ..SyntheticRun::default() };
    let folder = RunFolder::new(&run);
    let set = |rank| Shard::open(&folder.shard(rank)).unwrap().clocks[1].clone();
    let sets = [set(0), set(1)];
    (folder, sets)
}

#[test]
fn a_file_of_a_host_without_shards_is_aligned_to_them_by_the_wall_clocks() {
    let (folder, [set, _]) = shards();
    let out = folder.beside("out.db");
    let file = kineto(out.parent().unwrap(), 5, Some("login1"), set.realtime);
    let (outcome, report) = merge(&out, &[folder.path.clone(), file]);
    let row = clock(&report, "login1");
    assert_eq!((&row["method"], &row["hard_ns"]), (&"realtime_anchors".into(), &Json::Null), "{row}");
    let (bar, off) = (row["bar_ns"].as_i64().unwrap(), (start(&out, 5) - set.boottime).abs());
    assert!(bar >= 10 * MS && off < MS, "{bar} {off}");
    let line = "CLOCK_REALTIME, taken for that of the reference: no shard is of this node";
    assert!(outcome.stderr.contains(line), "{outcome}");
    // What is not wanted is not done.
    let _ = rpd_merge()
        .args(["--force", "--align", "none", "-o"])
        .arg(&out)
        .args([&folder.path, &out.with_file_name("worker5.pt.trace.json")])
        .run()
        .success();
    assert_eq!(start(&out, 5), set.realtime);
}

#[test]
fn a_host_is_known_with_and_without_its_domain_if_there_is_one_domain() {
    let (folder, [_, set]) = shards();
    let (out, beside) = (folder.beside("out.db"), folder.beside("files"));
    fs::create_dir(&beside).unwrap();
    let one = kineto(&beside, 5, Some("gpu001.cluster.example"), set.realtime);
    let (_, report) = merge(&out, &[folder.path.clone(), one.clone()]);
    assert_eq!(report["nodes"], 2);
    let converted = &clock(&report, "gpu001")["converted"][0];
    assert_eq!(
        (&converted["clock"], &converted["by_wall_clocks"]),
        (&"CLOCK_REALTIME".into(), &false.into())
    );
    // Another host is called so in another domain, and a third one only begins so.
    let others = [
        kineto(&beside, 6, Some("gpu001.elsewhere.example"), set.realtime),
        kineto(&beside, 7, Some("gpu0011"), set.realtime),
    ];
    let (_, report) = merge(&out, &[&[folder.path.clone(), one], &others[..]].concat());
    assert_eq!(report["nodes"], 5);
    for host in ["gpu001.cluster", "gpu001.elsewhere", "gpu0011"] {
        assert_eq!(clock(&report, host)["method"], "realtime_anchors");
    }
}

/// A shard of a rank, and a trace that names no host or one that all hosts have.
fn with_one_shard(size: u32, rank: u32, host: Option<&str>) -> (JobOutcome, Json, i64) {
    let run =
        SyntheticRun { nodes: 1, ranks_per_node: 1, max_anchor_error: 2 * MS, ..SyntheticRun::default() };
    let folder = RunFolder::new(&run);
    let set = Shard::open(&folder.shard(0)).unwrap().clocks[1].clone();
    let out = folder.beside("out.db");
    let file = kineto(out.parent().unwrap(), 5, host, set.realtime);
    let told = format!("\"distributedInfo\": {{\"rank\": {rank}, \"world_size\": {size}}}, \"traceEvents\"");
    let text = fs::read_to_string(&file).unwrap().replace("\"traceEvents\"", &told);
    fs::write(&file, text).unwrap();
    let (outcome, report) = merge(&out, &[folder.path.clone(), file]);
    let off = start(&out, 5) - set.boottime;
    (outcome, report, off)
}

#[test]
fn a_file_without_a_host_is_of_the_only_node_unless_the_job_goes_beyond_it() {
    // The rank that has the shard, and a job of which it is all.
    for (size, rank, host) in [(1, 0, None), (2, 0, None), (1, 0, Some("localhost"))] {
        let (outcome, report, off) = with_one_shard(size, rank, host);
        assert_eq!(report["nodes"], 1, "{outcome}");
        assert!(off.abs() < 1_000, "{off}");
        let line = "worker5.pt.trace.json names no host of its own: taken to be of gpu000, the only node that has shards";
        assert!(outcome.stderr.contains(line), "{outcome}");
    }
    for host in [None, Some("localhost.localdomain")] {
        let (outcome, report, _) = with_one_shard(2, 1, host);
        let row = clock(&report, "unknown-");
        assert_eq!((&row["method"], &report["nodes"]), (&"realtime_anchors".into(), &2.into()), "{row}");
        assert!(row["bar_ns"].as_i64().unwrap() >= 10 * MS, "{row}");
        let line =
            "worker5.pt.trace.json names no host of its own, and the job has ranks or nodes without shards";
        assert!(outcome.stderr.contains(line), "{outcome}");
    }
}

#[test]
fn two_files_that_say_localhost_are_not_of_one_clock() {
    let folder = tempfile::tempdir().unwrap();
    let (out, at) = (folder.path().join("out.db"), 1_763_800_000_000_000_000);
    let files = [1, 2].map(|pid| kineto(folder.path(), pid, Some("localhost"), at));
    let (outcome, report) = merge(&out, &files);
    assert_eq!(report["nodes"], 2, "{outcome}");
    assert!(outcome.stderr.contains("wall clocks, as exact as NTP"), "{outcome}");
}
