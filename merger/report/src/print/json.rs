//! The report as one JSON object.

use crate::report::{Cell, Report, ReportTable, Unavailable};
use rpd_console::Failure;
use rpd_verdict::cut_texts;
use serde_json::{Map, Value as Json, json};

/// Version of the object. Within a version, keys are only added.
const SCHEMA: &str = "rpd.report/1";

/// Returns the object, with a line break at its end.
pub(super) fn json_object(report: &Report) -> Result<String, Failure> {
    let head = &report.run;
    let (start, length) =
        (head.span.map(|span| span.0), head.span.map(|(first, last)| last.saturating_sub(first)));
    let mut object = Map::new();
    let mut insert = |key: &str, value: Json| drop(object.insert(key.to_owned(), value));
    insert("schema", json!(SCHEMA));
    insert("subject", json!(report.subject));
    let run = json!({
        "id": head.id, "ranks": head.ranks, "nodes": head.nodes, "processes": head.processes,
        "start_ns": start, "length_ns": length,
    });
    insert("run", run);
    for (key, value) in report.screen.iter().flat_map(|screen| &screen.json) {
        insert(key, value.clone());
    }
    report.tables.iter().for_each(|table| insert(table.key, rows(table)));
    insert("omitted", json!(report.tables.iter().map(|table| table.omitted).sum::<u64>()));
    insert("notes", json!(report.notes));
    let unavailable = report.unavailable.iter();
    let entry = |missing: &Unavailable| {
        let Unavailable { subject, reason, how_to_record } = missing;
        json!({"subject": subject, "reason": reason, "how_to_record": how_to_record})
    };
    let unavailable = unavailable.map(entry);
    insert("unavailable", unavailable.collect());
    object.values_mut().for_each(cut_texts);
    let text = serde_json::to_string_pretty(&object);
    text.map(|text| text + "\n").map_err(|error| Failure::internal(format!("the report is no JSON: {error}")))
}

fn rows(table: &ReportTable) -> Json {
    let object = |row: &Vec<Cell>| {
        let cells = table.columns.iter().zip(row);
        Json::Object(cells.map(|(column, cell)| (column.key.to_owned(), cell.json())).collect())
    };
    table.rows.iter().map(object).collect()
}
