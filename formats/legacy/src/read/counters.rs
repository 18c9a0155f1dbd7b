//! Converts `rocpd_monitor` and `rocpd_counter`: values over time, and values of operations.

use super::devices::{CounterName, RpdProcessor};
use super::ids::IdMap;
use super::output::RpdOutput;
use super::value::{int, real, text};
use super::{EMPTY_JSON, PLAIN_EVENT, RpdReadError, UNKNOWN};
use rpd_shard::model::row_types::{EventKey, EventRow, PmcEventRow, PmcKey, SampleRow, TrackKey, TrackRow};
use rpd_shard::model::{LocalNs, rocpd};
use rpd_translator::cut_text;
use rusqlite::types::ValueRef;
use serde_json::json;
use std::collections::HashMap;

/// Category of monitor values; the second constant is their track. Both are those of rpd-collect.
const CATEGORY: &[u8] = b"SYSTEM_METRICS";
const TRACK: &[u8] = b"system";
/// Maximum length in bytes of a counter name, and of a value that is not a number.
const MAX_NAME: usize = 4096;
/// Units of the values that rocm-smi monitors.
const UNITS: [(&str, &str); 3] = [("sclk", "MHz"), ("mclk", "MHz"), ("fclk", "MHz")];

/// Writes the values of the monitor: per row an event, a sample and a value. A row states how long its value was
/// valid, and usually the next row begins at that end.
pub(super) fn monitors(output: &mut RpdOutput<'_>) -> Result<(), RpdReadError> {
    let (input, census) = (output.input, output.census);
    if input.table("rocpd_monitor").is_none() {
        return Ok(());
    }
    let failed = |source| input.error("rocpd_monitor", source);
    let mut select = input.select("rocpd_monitor", "m");
    for column in ["id", "deviceType", "deviceId", "monitorType", "start", "end", "value"] {
        select.column("rocpd_monitor", "m", column);
    }
    let mut query = input.conn.prepare(&select.sql("")).map_err(failed)?;
    let mut rows = query.query([]).map_err(failed)?;
    let mut tracks: HashMap<u32, TrackKey> = HashMap::new();
    while let Some(row) = rows.next().map_err(failed)? {
        let value = |i| row.get_ref(i).unwrap_or(ValueRef::Null);
        output.count_read("rocpd_monitor", 1);
        let source = census.by_place(int(value(0)), int(value(2)));
        let Some(start) = int(value(4)) else {
            output.miss("rocpd_monitor", "start");
            output.lose(source, "rocpd_monitor", Some(rocpd::SAMPLE), 1);
            continue;
        };
        let held = int(value(5)).and_then(|end| end.checked_sub(start));
        if held.is_none() {
            output.miss("rocpd_monitor", "end");
        }
        let device_type = text(value(1)).unwrap_or(UNKNOWN.into());
        let device = census.gpu(int(value(2)));
        let is_gpu = device_type.eq_ignore_ascii_case(b"gpu");
        let agent = if is_gpu { RpdProcessor::MonitoredGpu(device) } else { RpdProcessor::Monitored(device) };
        let symbol = text(value(3)).unwrap_or(UNKNOWN.into());
        let symbol = cut_text(&symbol, MAX_NAME);
        let name = [cut_text(&device_type, MAX_NAME), b".", symbol].concat().into();
        let units = UNITS.iter().find(|(known, _)| symbol.eq_ignore_ascii_case(known.as_bytes()));
        let units = units.map_or("", |(_, units)| *units);
        let counter = output.counter(source, CounterName { agent, name }, (symbol, units, "monitor"))?;

        let track = match tracks.get(&source) {
            Some(track) => *track,
            None => {
                let name_id = Some(output.string(TRACK)?);
                let row = TrackRow { tid: None, name_id, extdata: Some(EMPTY_JSON) };
                let track = output.row(source, &row)?;
                tracks.insert(source, track);
                track
            }
        };
        let category = output.string(CATEGORY)?;
        let event = EventRow { category_id: Some(category), ..PLAIN_EVENT };
        let event = Some(output.row(source, &event)?);
        let held = held.map(|ns| json!({ "rpd": { "duration_ns": ns } }).to_string());
        let sample = SampleRow {
            track_id: track,
            timestamp: LocalNs(start),
            event_id: event,
            extdata: Some(held.as_deref().map_or(EMPTY_JSON, str::as_bytes)),
        };
        output.row(source, &sample)?;
        number(source, ("rocpd_monitor", value(6)), event, counter, output)?;
    }
    Ok(())
}

/// Writes the counter values of operations.
pub(super) fn values(operations: &IdMap, output: &mut RpdOutput<'_>) -> Result<(), RpdReadError> {
    let (input, census) = (output.input, output.census);
    if input.table("rocpd_counter").is_none() {
        return Ok(());
    }
    let failed = |source| input.error("rocpd_counter", source);
    let mut select = input.select("rocpd_counter", "c");
    for column in ["id", "value", "op_id"] {
        select.column("rocpd_counter", "c", column);
    }
    select.text(("rocpd_counter", "c", "name_id"), "rocpd_string", "n");
    let op = input.table("rocpd_counter").and_then(|info| info.column("op_id"));
    if op.is_some() {
        select.join("rocpd_op", "o", "id", "c.op_id");
        select.column("rocpd_op", "o", "gpuId");
    } else {
        select.expression("NULL");
    }
    let mut query = input.conn.prepare(&select.sql("")).map_err(failed)?;
    let mut rows = query.query([]).map_err(failed)?;
    while let Some(row) = rows.next().map_err(failed)? {
        let value = |i| row.get_ref(i).unwrap_or(ValueRef::Null);
        output.count_read("rocpd_counter", 1);
        let operation = int(value(2)).and_then(|id| operations.get(id));
        if operation.is_none() {
            output.miss("rocpd_counter", "op_id");
        }
        let (source, event) = match operation {
            Some((source, event)) => (source, Some(EventKey::new(event))),
            None => (census.by_place(int(value(0)), int(value(4))), None),
        };
        let name = text(value(3));
        if name.is_none() {
            output.miss("rocpd_counter", "name_id");
        }
        let name = name.unwrap_or(UNKNOWN.into());
        let name = cut_text(&name, MAX_NAME);
        let counter = CounterName { agent: RpdProcessor::Gpu(census.gpu(int(value(4)))), name: name.into() };
        let counter = output.counter(source, counter, (name, "", ""))?;
        number(source, ("rocpd_counter", value(1)), event, counter, output)?;
    }
    Ok(())
}

/// Writes the value of a counter. A value that is not a number is stored as text in its extdata.
fn number(
    source: u32,
    (table, value): (&str, ValueRef<'_>),
    event: Option<EventKey>,
    counter: PmcKey,
    output: &mut RpdOutput<'_>,
) -> Result<(), RpdReadError> {
    let (number, extdata) = match real(value) {
        Some(number) => (Some(number), None),
        None => {
            output.miss(table, "value");
            let shown =
                text(value).map(|shown| String::from_utf8_lossy(cut_text(&shown, MAX_NAME)).into_owned());
            (None, Some(json!({ "rpd": { "value": shown } }).to_string()))
        }
    };
    let extdata = Some(extdata.as_deref().map_or(EMPTY_JSON, str::as_bytes));
    output.row(source, &PmcEventRow { event_id: event, pmc_id: counter, value: number, extdata })?;
    Ok(())
}
