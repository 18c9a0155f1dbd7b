//! Counters in shards.

use super::Bench;
use rpd_shard::Shard;
use rpd_shard::file::BlockKind;
use rpd_shard::model::rocpd::{EVENT, INFO_PMC, PMC_EVENT, SAMPLE, TRACK};
use rpd_shard::model::{TableId, Value};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;

/// Reads the columns of a table, row by row.
pub(crate) fn rows<const N: usize>(
    shard: &Shard,
    source: u32,
    table: TableId,
    columns: [&str; N],
    mut each: impl FnMut([Value<'_>; N]),
) {
    let kind = BlockKind::Rows(table);
    for block in shard.blocks().iter().filter(|b| (b.header.kind, b.header.source) == (kind, source)) {
        let rows = shard.rows(block).unwrap();
        (0..rows.len).for_each(|i| each(columns.map(|column| rows.column(column).get(i))));
    }
}

pub(crate) fn number(value: Value<'_>) -> i64 {
    match value {
        Value::Int(number) => number,
        other => panic!("no integer: {other:?}"),
    }
}

/// The counters of a process.
pub(crate) struct ProcessCounters {
    /// Time of each tick, ns.
    pub(crate) ticks: Vec<i64>,
    /// Times and values of each counter.
    pub(crate) values: BTreeMap<String, Vec<(i64, f64)>>,
}

/// Reads the counters of a process and their values.
pub(crate) fn counters(shard: &Shard, source: u32) -> ProcessCounters {
    let mut names = Vec::new();
    rows(shard, source, INFO_PMC, ["name", "agent_id"], |[name, agent]| {
        assert!(number(agent) >= 1);
        names.push(name.text_lossy().unwrap().into_owned());
    });
    let mut events = 0;
    rows(shard, source, EVENT, ["category_id"], |_| events += 1);
    let mut time_of = BTreeMap::new();
    let mut ticks = Vec::new();
    rows(shard, source, SAMPLE, ["track_id", "timestamp", "event_id"], |[track, time, event]| {
        assert_eq!(number(track), 1);
        ticks.push(number(time));
        time_of.insert(number(event), number(time));
    });
    assert_eq!((events, time_of.len()), (ticks.len(), ticks.len()), "an event for each sample");
    let mut tracks = 0;
    rows(shard, source, TRACK, ["tid"], |[thread]| {
        tracks += 1;
        assert_eq!(thread, Value::Null);
    });
    assert_eq!(tracks, 1);
    let mut values: BTreeMap<String, Vec<(i64, f64)>> = BTreeMap::new();
    rows(shard, source, PMC_EVENT, ["event_id", "pmc_id", "value"], |[event, counter, value]| {
        let Value::Real(value) = value else { panic!("no value: {value:?}") };
        let name = names[number(counter) as usize - 1].clone();
        values.entry(name).or_default().push((time_of[&number(event)], value));
    });
    ProcessCounters { ticks, values }
}

/// Returns `rpd-collect` with a run id for this test alone: parallel tests use the same node, and only one
/// collector of a run samples.
pub(crate) fn collect(bench: &Bench, test: &str) -> (Command, PathBuf) {
    let run_id = format!("{test}-{}", std::process::id());
    let usual = bench.collect();
    let mut command = Command::new(usual.get_program());
    for (name, value) in usual.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command.args(usual.get_args().map(|argument| match argument.to_str() {
        Some("run") => run_id.as_ref(),
        _ => argument,
    }));
    let shard = bench.path("out").join(&run_id).join("rank-00000.rpdshard");
    (command, shard)
}
