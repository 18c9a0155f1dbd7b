//! Reads a shard into plain rows, with string ids resolved.

use rpd_shard::Shard;
use rpd_shard::file::{BlockKind, Owner};
use rpd_shard::model::{Kind, OwnedValue, TableId, rocpd};
use rpd_shard::record::{Loss, Process, RunIdentity};
use serde_json::{Value as Json, json};
use std::collections::BTreeMap;

pub(crate) struct Contents {
    pub(crate) processes: Vec<Process>,
    pub(crate) losses: Vec<Loss>,
    pub(crate) clock_sets: usize,
    tables: BTreeMap<(u32, TableId), Vec<Json>>,
}

pub(crate) fn owner() -> Owner {
    Owner::unknown(RunIdentity {
        run_id: "trace".into(),
        run_id_from: "self".into(),
        rank: None,
        size: None,
        version: "0".into(),
    })
}

impl Contents {
    pub(crate) fn of(bytes: &[u8]) -> Contents {
        let shard = Shard::from_memory("translated", bytes).unwrap();
        assert!(shard.complete() && shard.damage().is_empty());
        let strings = shard.strings().0;
        let mut tables: BTreeMap<(u32, TableId), Vec<Json>> = BTreeMap::new();
        for block in shard.blocks() {
            let BlockKind::Rows(table) = block.header.kind else { continue };
            if block.header.source == 0 {
                continue;
            }
            let rows = shard.rows(block).unwrap();
            let all = tables.entry((block.header.source, table)).or_default();
            for i in 0..rows.len {
                assert_eq!(rows.keys.get(i), all.len() as i64 + 1);
                let cells = rows.table.columns.iter().zip(&rows.columns).map(|(column, cells)| {
                    let value = match (column.kind.clone(), cells.get(i).to_owned()) {
                        (_, OwnedValue::Null) => Json::Null,
                        (Kind::Str, OwnedValue::Int(id)) => {
                            String::from_utf8_lossy(strings.get(id).unwrap()).into_owned().into()
                        }
                        (_, OwnedValue::Int(value)) => value.into(),
                        (_, OwnedValue::Real(value)) => value.into(),
                        (_, OwnedValue::Text(text)) => String::from_utf8_lossy(&text).into_owned().into(),
                        (_, OwnedValue::Blob(_)) => panic!("a blob"),
                    };
                    (column.name.clone(), value)
                });
                all.push(Json::Object(cells.collect()));
            }
        }
        Contents {
            processes: shard.processes.values().cloned().collect(),
            losses: shard.ledger.as_ref().map_or(Vec::new(), |ledger| ledger.losses.clone()),
            clock_sets: shard.clocks.len(),
            tables,
        }
    }

    pub(crate) fn rows(&self, source: u32, table: TableId) -> &[Json] {
        self.tables.get(&(source, table)).map_or(&[], |rows| rows)
    }

    fn referred(&self, source: u32, row: &Json, column: &str, table: TableId) -> &Json {
        let key = row[column].as_i64().unwrap_or_else(|| panic!("{column} of {row}"));
        &self.rows(source, table)[key as usize - 1]
    }

    fn args(&self, source: u32, event: &Json) -> Vec<Json> {
        let of = |arg: &&Json| arg["event_id"] == *event;
        let args = self.rows(source, rocpd::ARG).iter().filter(of);
        args.map(|arg| json!([arg["position"], arg["type"], arg["name"], arg["value"]])).collect()
    }

    /// Returns slices: track, name, category, start, end and args, sorted.
    pub(crate) fn slices(&self, source: u32) -> Vec<Json> {
        let rows = self.rows(source, rocpd::REGION).iter().map(|row| {
            let event = self.referred(source, row, "event_id", rocpd::EVENT);
            let thread = self.referred(source, row, "tid", rocpd::INFO_THREAD);
            let args = self.args(source, &row["event_id"]);
            json!([thread["name"], row["name_id"], event["category_id"], row["start"], row["end"], args])
        });
        sorted(rows)
    }

    /// Returns samples without counters: track, message or call stack, category, time and args, sorted.
    pub(crate) fn moments(&self, source: u32) -> Vec<Json> {
        let counted: Vec<&Json> =
            self.rows(source, rocpd::PMC_EVENT).iter().map(|row| &row["event_id"]).collect();
        let rows = self.rows(source, rocpd::SAMPLE).iter().filter(|row| !counted.contains(&&row["event_id"]));
        sorted(rows.map(|row| {
            let event = self.referred(source, row, "event_id", rocpd::EVENT);
            let track = self.referred(source, row, "track_id", rocpd::TRACK);
            let thread = self.referred(source, track, "tid", rocpd::INFO_THREAD);
            let message: Json = serde_json::from_str(event["extdata"].as_str().unwrap()).unwrap();
            let stack: Json = serde_json::from_str(event["call_stack"].as_str().unwrap()).unwrap();
            let shown = if message["message"].is_null() { stack } else { message["message"].clone() };
            let args = self.args(source, &row["event_id"]);
            json!([thread["tid"], shown, event["category_id"], row["timestamp"], args])
        }))
    }

    /// Returns counter values: name, unit, time, value, sorted.
    pub(crate) fn values(&self, source: u32) -> Vec<Json> {
        let rows = self.rows(source, rocpd::PMC_EVENT).iter().map(|row| {
            let counter = self.referred(source, row, "pmc_id", rocpd::INFO_PMC);
            let of = |sample: &&Json| sample["event_id"] == row["event_id"];
            let sample = self.rows(source, rocpd::SAMPLE).iter().find(of).unwrap();
            json!([counter["name"], counter["units"], sample["timestamp"], row["value"]])
        });
        sorted(rows)
    }

    /// Returns the call stack of the slice with this name.
    pub(crate) fn stack_of(&self, source: u32, name: &str) -> Json {
        let row = self.rows(source, rocpd::REGION).iter().find(|row| row["name_id"] == name).unwrap();
        let event = self.referred(source, row, "event_id", rocpd::EVENT);
        serde_json::from_str(event["call_stack"].as_str().unwrap()).unwrap()
    }

    /// Returns the number of lost rows in the ledger.
    pub(crate) fn lost(&self) -> u64 {
        self.losses.iter().filter_map(|loss| loss.rows).sum()
    }
}

fn sorted(rows: impl Iterator<Item = Json>) -> Vec<Json> {
    let mut rows: Vec<Json> = rows.collect();
    rows.sort_by_key(Json::to_string);
    rows
}
