//! Where the rows come from: process rows with rank and clock, and the metadata of the job.
//!
//! Nothing here may depend on the date, on paths, or on the number of merge ranks: the same inputs
//! give the same database.

use crate::agree::nodes::Nodes;
use crate::clock::Clocks;
use crate::input::death::signal_name;
use crate::input::plan::Plan;
use crate::input::source::Origin;
use crate::merge::input_id;
use crate::number::{Replaced, SourceMap};
use crate::report::Report;
use rpd_rocpd::Guid;
use rpd_shard::Shard;
use rpd_shard::model::{Merged, Rows, RowsBuilder, Schema, Value, rocpd};
use rpd_shard::record::Exit;
use serde_json::{Map, Value as Json, json};

/// The row of `rocpd_info_process`; `extdata.rpd` says what RocPD has no column for.
pub fn process_row(shard: &Shard, map: &SourceMap<'_>) -> Option<Rows<Merged>> {
    let process = &map.source.process;
    let environment: Map<String, Json> =
        process.environment.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
    let exit = process.exit.map(|exit| match exit {
        Exit::Code(code) => json!({ "code": code }),
        Exit::Signal(signal) => json!({ "signal": signal, "name": signal_name(signal) }),
        Exit::Unknown => json!("unknown"),
    });
    let extdata = json!({ "rpd": {
        "rank": process.rank,
        "size": process.size,
        "local_rank": process.local_rank,
        "rank_from": process.rank_from,
        "worker": process.worker,
        "restart": process.restart,
        "host": process.node.hostname,
        "guid": Guid::from_bits(input_id(shard, map.source)).to_string(),
        "exit": exit,
        "clock": { "stamped": process.clock.name(), "method": map.fit.method.name(), "offset_ns": map.fit.offset },
        "rows": row_ranges(map),
    }});
    let mut rows = RowsBuilder::new(Schema::builtin().get(rocpd::INFO_PROCESS)?);
    rows.push(&[
        Value::Int(1),
        Value::Int(process.ppid.into()),
        Value::Int(process.pid.into()),
        Value::Int(process.first_seen),
        process.last_seen.into(),
        Value::Int(process.first_seen),
        process.last_seen.into(),
        process.command.as_str().into(),
        Json::Object(environment).to_string().as_str().into(),
        extdata.to_string().as_str().into(),
    ]);
    Some(map.renumber(rows.finish(1), Origin::Stored, &mut Replaced::new()))
}

/// First id and number of ids of this process in each table: readers find its rows without an index.
fn row_ranges(map: &SourceMap<'_>) -> Json {
    let spaces = map.source.spaces.iter().filter(|(_, space)| space.next > 1);
    let ranges = spaces.map(|(table, space)| {
        let base = map.bases.keys.get(table).copied().unwrap_or(0);
        (table.to_string(), json!([base + 1, space.next - 1]))
    });
    Json::Object(ranges.collect())
}

/// Metadata rows, tag and value.
pub fn metadata(plan: &Plan, report: &Report, clocks: &Clocks, nodes: &Nodes) -> Vec<(&'static str, String)> {
    let reference = nodes.nodes().iter().find(|n| n.boot_id == clocks.reference.boot_id);
    vec![
        ("rpd.version", env!("CARGO_PKG_VERSION").to_owned()),
        ("rpd.run_id", plan.run_id.clone()),
        ("rpd.processes", report.processes.to_string()),
        ("rpd.missing_ranks", json!(plan.ranks.missing).to_string()),
        ("rpd.left_out_ranks", json!(plan.ranks.left_out).to_string()),
        ("rpd.unfinished_ranks", json!(plan.unfinished_ranks()).to_string()),
        ("rpd.unreadable_shards", plan.unreadable.len().to_string()),
        ("rpd.clock", "CLOCK_BOOTTIME of the reference node".to_owned()),
        ("rpd.clock.reference", reference.map_or(String::new(), |n| n.hostname.clone())),
        ("rpd.clock.realtime_minus_boottime_ns", json!(clocks.realtime_anchor()).to_string()),
        ("rpd.clock.domains", json!(report.clocks).to_string()),
        ("rpd.losses", json!(report.losses).to_string()),
        ("rpd.replaced", json!(report.replaced).to_string()),
    ]
}
