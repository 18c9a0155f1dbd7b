//! Origin of the rows: process rows with rank and clock.
//!
//! Nothing here may depend on the date, on paths, or on the number of merge ranks: the same inputs yield the same
//! database. The only exception is the name of a counter pass, which comes from the file name.

use crate::input::listing::pass_of;
use crate::input::{JobSchema, RowOrigin, shard_source_id};
use crate::number::{ReplacedValues, SourceMap};
use crate::output::row_context::RowContext;
use rpd_rocpd::Guid;
use rpd_rocpd::read::{StoredTableSet, redact_extdata, redacted_command, redacted_environment};
use rpd_run::UnitNames;
use rpd_shard::Shard;
use rpd_shard::model::{
    Cells, Keys, Kind, Merged, OwnedValue, Rows, RowsBuilder, Schema, Value, current_table_name, rocpd,
};
use rpd_shard::record::{Clock, ProcessExit};
use serde_json::{Map, Value as Json, json};
use signal_hook::low_level::signal_name;
use std::path::Path;

/// Returns the row of `rocpd_info_process`. `extdata.rpd` has the values for which RocPD has no column.
///
/// Masks secrets here, because foreign files contain them as recorded.
pub(crate) fn process_row(shard: &Shard, map: &SourceMap<'_>, job: &RowContext<'_>) -> Option<Rows<Merged>> {
    let process = &map.source.process;
    let environment: Map<String, Json> =
        process.environment.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
    let exit = process.exit.map(|exit| match exit {
        ProcessExit::Code(code) => json!({ "code": code }),
        ProcessExit::Signal(signal) => json!({ "signal": signal, "name": signal_name(signal) }),
        ProcessExit::Unknown => json!("unknown"),
    });
    let extdata = json!({ "rpd": {
        "rank": process.rank,
        "size": process.size,
        "local_rank": process.local_rank,
        "rank_from": process.rank_from,
        "worker": process.worker,
        "restart": process.restart,
        "host": process.node.hostname,
        "guid": Guid::from_bits(shard_source_id(shard, process)).to_string(),
        "exit": exit,
        "clock": clock_note(process.clock, map, job),
        "rows": row_ranges(map, job.schema),
    }});
    let environment = redacted_environment(&Json::Object(environment).to_string(), job.keep);
    // 0 is the value that a foreign file does not record.
    let started = Value::from(Some(process.first_seen).filter(|start| *start != 0));
    let mut rows = RowsBuilder::new(Schema::builtin().get(rocpd::INFO_PROCESS)?);
    rows.push(&[
        Value::Int(1),
        Value::Int(process.ppid.into()),
        Value::Int(process.pid.into()),
        started,
        process.last_seen.into(),
        started,
        process.last_seen.into(),
        redacted_command(&process.command).as_str().into(),
        environment.as_str().into(),
        extdata.to_string().as_str().into(),
    ]);
    Some(map.renumber(rows.finish(1), RowOrigin::Stored, &mut ReplacedValues::new()))
}

/// Describes how the times of a process became job times.
fn clock_note(stamped: Clock, map: &SourceMap<'_>, job: &RowContext<'_>) -> Json {
    let fit = map.fit.fit;
    json!({
        "stamped": stamped.name(),
        "method": fit.method.name(),
        "offset_ns": fit.offset,
        "drift_ppm": fit.drift_ppm,
        "bar_ns": job.clocks.median_error_bound(&map.source.process.domain),
    })
}

/// Returns the first id and the number of ids of this process in each table, so that readers find its rows without an
/// index.
fn row_ranges(map: &SourceMap<'_>, schema: &JobSchema) -> Json {
    let spaces = map.source.spaces.iter().filter(|(_, space)| space.next > 1);
    let ranges = spaces.map(|(table, space)| {
        (schema.name(table).into_owned(), json!([map.bases.id(table, 1), space.next - 1]))
    });
    Json::Object(ranges.collect())
}

/// Stores the input's ids of runtime objects in `extdata`. Other tools show these handles, but the renumbered row
/// does not contain them. `keys` are the input's.
pub(crate) fn note_handles(rows: &mut Rows<Merged>, keys: &Keys) {
    if !matches!(rows.id(), rocpd::INFO_QUEUE | rocpd::INFO_STREAM | rocpd::INFO_AGENT) {
        return;
    }
    let merged = rows.keys.clone();
    edit_extdata(rows, |i, extdata| {
        if keys.get(i) != merged.get(i) {
            let noted = extdata.entry("rpd").or_insert_with(|| json!({}));
            if let Some(noted) = noted.as_object_mut()
                && noted.keys().all(|key| key == UnitNames::RECORDED)
            {
                noted.insert("id".to_owned(), json!(keys.get(i)));
            }
        }
    });
}

/// Completes rows of `rocpd_info_process` from a database. Adds rank, host and clock as for shards, masks secrets,
/// and adds the counter pass if there are several. `keys` are the input's. Values that a previous merge stored for a
/// process are kept.
pub(crate) fn complete_processes(
    rows: &mut Rows<Merged>,
    keys: &Keys,
    (path, set): (&Path, &StoredTableSet),
    map: &SourceMap<'_>,
    job: &RowContext<'_>,
) {
    edit_texts(rows, "environment", |_, text| redacted_environment(text, job.keep));
    edit_texts(rows, "command", |_, text| redacted_command(text));
    // Text that is not JSON is treated as plain text.
    edit_texts(rows, "extdata", |_, text| match serde_json::from_str::<Json>(text) {
        Ok(Json::Object(_)) => text.to_owned(),
        _ => redacted_command(text),
    });
    edit_extdata(rows, |i, extdata| {
        redact_extdata(extdata, job.keep);
        if let Some(Json::Object(noted)) = extdata.get_mut("rpd") {
            if let Some(Json::Object(ranges)) = noted.get_mut("rows") {
                move_ranges(ranges, map, job.schema);
            }
            return;
        }
        let facts = set.processes.iter().find(|p| p.key == keys.get(i)).cloned().unwrap_or_default();
        let host = set.nodes.iter().find(|(key, _)| *key == facts.nid).map(|(_, node)| &node.hostname);
        let alone = set.processes.len() == 1;
        let mut noted = json!({
            "rank": facts.rank,
            "size": facts.size,
            "local_rank": facts.local_rank,
            "rank_from": facts.rank_from,
            "host": host,
            "guid": set.guid,
            "clock": clock_note(Clock::Boottime, map, job),
            "rows": alone.then(|| row_ranges(map, job.schema)),
        });
        if let Some(pass) = pass_of(path) {
            noted["pass"] = pass.into();
        }
        extdata.insert("rpd".to_owned(), noted);
    });
}

/// Replaces the first ids of the merged input by those of this output.
fn move_ranges(ranges: &mut Map<String, Json>, map: &SourceMap<'_>, schema: &JobSchema) {
    let named = std::mem::take(ranges).into_iter();
    ranges.extend(named.map(|(table, range)| (current_table_name(&table).into_owned(), range)));
    for (table, range) in ranges {
        let Some(table) = schema.schema.by_name(table) else { continue };
        let first = range.get_mut(0).filter(|first| first.is_i64());
        let number =
            first.as_ref().and_then(|first| map.source.spaces.get(&table.id)?.stored(first.as_i64()?));
        if let (Some(first), Some(number)) = (first, number) {
            *first = json!(map.bases.id(table.id, number));
        }
    }
}

fn edit_extdata(rows: &mut Rows<Merged>, edit: impl Fn(usize, &mut Map<String, Json>)) {
    edit_texts(rows, "extdata", |i, text| {
        let Ok(Json::Object(mut extdata)) = serde_json::from_str::<Json>(text) else {
            return text.to_owned();
        };
        let before = extdata.clone();
        edit(i, &mut extdata);
        if extdata == before { text.to_owned() } else { Json::Object(extdata).to_string() }
    });
}

/// Edits the texts of a column; a missing value counts as `{}` in a JSON column.
fn edit_texts(rows: &mut Rows<Merged>, column: &str, edit: impl Fn(usize, &str) -> String) {
    let Some(place) = rows.table.position(column) else { return };
    let is_json = matches!(rows.table.columns[place].kind, Kind::Json(_));
    let cells = &rows.columns[place];
    let text = |i| match cells.get(i) {
        // A BLOB in a text column becomes text only if it changes.
        Value::Text(text) | Value::Blob(text) => {
            let text = String::from_utf8_lossy(text);
            match edit(i, &text) {
                same if same == text => cells.get(i).to_owned(),
                edited => OwnedValue::Text(edited.into_bytes().into()),
            }
        }
        Value::Null if is_json => OwnedValue::Text(edit(i, "{}").into_bytes().into()),
        other => other.to_owned(),
    };
    rows.columns[place] = Cells::Any((0..rows.len).map(text).collect());
}
