//! Reads a shard into plain rows.

use rpd_shard::Shard;
use rpd_shard::file::{BlockKind, ShardStrings};
use rpd_shard::model::{Kind, OwnedValue, Schema, TableId, rocpd};
use rpd_shard::record::{Loss, Process, RunIdentity};
use std::collections::BTreeMap;

/// The columns of a row by name.
pub(crate) type Row = BTreeMap<String, OwnedValue>;

pub(crate) struct Contents {
    pub(crate) process: Process,
    pub(crate) losses: Vec<Loss>,
    pub(crate) tables: BTreeMap<TableId, Vec<Row>>,
    strings: ShardStrings,
}

pub(crate) fn run() -> RunIdentity {
    let (run_id, run_id_from, version) = ("kineto".into(), "self".into(), "0".into());
    RunIdentity { run_id, run_id_from, rank: None, size: None, version }
}

/// A span, whatever row it became.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Span {
    pub(crate) table: TableId,
    pub(crate) name: String,
    pub(crate) category: String,
    pub(crate) start: i64,
    pub(crate) end: i64,
    pub(crate) stack: i64,
    pub(crate) external: i64,
    pub(crate) args: serde_json::Value,
}

impl Contents {
    pub(crate) fn of(bytes: &[u8]) -> Contents {
        let shard = Shard::from_memory("translated", bytes).unwrap();
        assert!(shard.complete() && shard.damage().is_empty());
        let mut tables: BTreeMap<TableId, Vec<Row>> = BTreeMap::new();
        for block in shard.blocks() {
            let BlockKind::Rows(table) = block.header.kind else { continue };
            if block.header.source == 0 {
                continue;
            }
            let rows = shard.rows(block).unwrap();
            for i in 0..rows.len {
                let names = rows.table.columns.iter().map(|column| column.name.clone());
                let cells = rows.columns.iter().map(|cells| cells.get(i).to_owned());
                tables.entry(table).or_default().push(names.zip(cells).collect());
            }
        }
        let contents = Contents {
            process: shard.processes.values().next().unwrap().clone(),
            losses: shard.ledger.as_ref().map_or(Vec::new(), |ledger| ledger.losses.clone()),
            strings: shard.strings().0,
            tables,
        };
        contents.check_references();
        contents
    }

    pub(crate) fn rows(&self, table: TableId) -> &[Row] {
        self.tables.get(&table).map_or(&[], |rows| rows)
    }

    /// Returns the string that a column refers to.
    pub(crate) fn name(&self, row: &Row, column: &str) -> String {
        String::from_utf8_lossy(self.strings.get(int(row, column)).unwrap()).into_owned()
    }

    /// Returns the row that a column refers to.
    pub(crate) fn referred(&self, row: &Row, column: &str, table: TableId) -> &Row {
        &self.rows(table)[int(row, column) as usize - 1]
    }

    /// Returns all spans, ordered by time.
    pub(crate) fn spans(&self) -> Vec<Span> {
        let mut spans = Vec::new();
        for table in [rocpd::REGION, rocpd::KERNEL_DISPATCH, rocpd::MEMORY_COPY] {
            for row in self.rows(table) {
                let event = self.referred(row, "event_id", rocpd::EVENT);
                let name = match table {
                    rocpd::REGION => self.name(row, "name_id"),
                    rocpd::MEMORY_COPY => json(row)["name"].as_str().unwrap().to_owned(),
                    _ => text(self.referred(row, "kernel_id", rocpd::INFO_KERNEL_SYMBOL), "display_name"),
                };
                spans.push(Span {
                    table,
                    name,
                    category: self.name(event, "category_id"),
                    start: int(row, "start"),
                    end: int(row, "end"),
                    // A row without a correlation must not match any row in joins.
                    stack: if event["stack_id"] == OwnedValue::Null { 0 } else { int(event, "stack_id") },
                    external: int(event, "correlation_id"),
                    args: json(event).get("args").cloned().unwrap_or_else(|| serde_json::json!({})),
                });
            }
        }
        sort(&mut spans);
        spans
    }

    /// Checks that every reference finds its row or string, and that every JSON column is an object.
    fn check_references(&self) {
        for (table, rows) in &self.tables {
            let description = Schema::builtin().get(*table).unwrap();
            for (row, column) in rows.iter().flat_map(|row| description.columns.iter().map(move |c| (row, c)))
            {
                let value = &row[&column.name];
                if *value == OwnedValue::Null {
                    let given = !column.sql.not_null || column.sql.default.is_some();
                    assert!(given, "{table}.{} is NULL", column.name);
                    continue;
                }
                match column.kind {
                    Kind::Ref(rocpd::INFO_NODE | rocpd::INFO_PROCESS) => {
                        assert_eq!(*value, OwnedValue::Int(1))
                    }
                    Kind::Ref(to) => {
                        let rows = self.rows(to).len() as i64;
                        assert!((1..=rows).contains(&int(row, &column.name)), "{table}.{}", column.name);
                    }
                    Kind::Str => drop(self.name(row, &column.name)),
                    _ => {}
                }
            }
        }
    }
}

pub(crate) fn sort(spans: &mut [Span]) {
    spans.sort_by_key(|span| (span.start, span.end, span.table, span.name.clone(), span.args.to_string()));
}

/// Returns the extdata of a row.
pub(crate) fn json(row: &Row) -> serde_json::Value {
    serde_json::from_str(&text(row, "extdata")).unwrap()
}

pub(crate) fn int(row: &Row, column: &str) -> i64 {
    match &row[column] {
        OwnedValue::Int(value) => *value,
        other => panic!("{column} is {other:?}"),
    }
}

pub(crate) fn text(row: &Row, column: &str) -> String {
    match &row[column] {
        OwnedValue::Text(value) => String::from_utf8_lossy(value).into_owned(),
        other => panic!("{column} is {other:?}"),
    }
}
