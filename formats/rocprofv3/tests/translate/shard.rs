//! Reads a shard into plain rows.

use rpd_shard::Shard;
use rpd_shard::file::{BlockKind, ShardStrings};
use rpd_shard::model::{OwnedValue, Schema, TableId};
use rpd_shard::record::{Loss, Process, RunIdentity};
use std::collections::BTreeMap;

/// The columns of a row by name, including `id`.
pub(crate) type Row = BTreeMap<String, OwnedValue>;

pub(crate) struct Contents {
    pub(crate) processes: Vec<Process>,
    pub(crate) losses: Vec<Loss>,
    pub(crate) tables: BTreeMap<(u32, TableId), Vec<Row>>,
    strings: ShardStrings,
}

pub(crate) fn run() -> RunIdentity {
    RunIdentity {
        run_id: "json".into(),
        run_id_from: "self".into(),
        rank: None,
        size: None,
        version: "0".into(),
    }
}

impl Contents {
    pub(crate) fn of(bytes: &[u8]) -> Contents {
        let shard = Shard::from_memory("translated", bytes).unwrap();
        assert!(shard.complete() && shard.damage().is_empty());
        let mut tables: BTreeMap<(u32, TableId), Vec<Row>> = BTreeMap::new();
        for block in shard.blocks() {
            let BlockKind::Rows(table) = block.header.kind else { continue };
            if block.header.source == 0 {
                continue;
            }
            let rows = shard.rows(block).unwrap();
            let all = tables.entry((block.header.source, table)).or_default();
            for i in 0..rows.len {
                let names = rows.table.columns.iter().map(|c| c.name.clone());
                let cells = rows.columns.iter().map(|cells| cells.get(i).to_owned());
                let mut row: Row = names.zip(cells).collect();
                row.insert("id".into(), OwnedValue::Int(rows.keys.get(i)));
                all.push(row);
            }
        }
        Contents {
            processes: shard.processes.values().cloned().collect(),
            losses: shard.ledger.as_ref().map_or(Vec::new(), |ledger| ledger.losses.clone()),
            strings: shard.strings().0,
            tables,
        }
    }

    pub(crate) fn rows(&self, source: u32, table: TableId) -> &[Row] {
        self.tables.get(&(source, table)).map_or(&[], |rows| rows)
    }

    pub(crate) fn string(&self, id: i64) -> String {
        String::from_utf8(self.strings.get(id).unwrap().to_vec()).unwrap()
    }

    /// Returns the string that a column refers to.
    pub(crate) fn name(&self, row: &Row, column: &str) -> String {
        self.string(int(row, column))
    }

    /// Returns the row that a column refers to.
    pub(crate) fn referred(&self, source: u32, row: &Row, column: &str, table: TableId) -> &Row {
        &self.rows(source, table)[int(row, column) as usize - 1]
    }

    /// Checks that keys are dense, and that every reference finds its row or string.
    pub(crate) fn check_references(&self) {
        use rpd_shard::model::{Kind, rocpd};
        for ((source, table), rows) in &self.tables {
            let description = Schema::builtin().get(*table).unwrap();
            for (i, row) in rows.iter().enumerate() {
                assert_eq!(int(row, "id"), i as i64 + 1, "{table}");
                for column in &description.columns {
                    let value = &row[&column.name];
                    if *value == OwnedValue::Null {
                        let given = !column.sql.not_null || column.sql.default.is_some();
                        assert!(given, "{table}.{} is NULL", column.name);
                        continue;
                    }
                    match column.kind {
                        Kind::Ref(rocpd::INFO_NODE | rocpd::INFO_PROCESS) => {
                            assert_eq!(*value, OwnedValue::Int(1));
                        }
                        Kind::Ref(to) => {
                            let key = int(row, &column.name);
                            let rows = self.rows(*source, to).len() as i64;
                            assert!((1..=rows).contains(&key), "{table}.{} = {key}", column.name);
                        }
                        Kind::Str => drop(self.name(row, &column.name)),
                        Kind::Json(_) => {
                            let value = serde_json::from_str::<serde_json::Value>(&text(row, &column.name));
                            assert!(value.unwrap().is_object());
                        }
                        _ => {}
                    }
                }
            }
        }
    }
}

pub(crate) fn int(row: &Row, column: &str) -> i64 {
    match &row[column] {
        OwnedValue::Int(value) => *value,
        other => panic!("{column} is {other:?}"),
    }
}

pub(crate) fn text(row: &Row, column: &str) -> String {
    match &row[column] {
        OwnedValue::Text(value) => String::from_utf8(value.to_vec()).unwrap(),
        other => panic!("{column} is {other:?}"),
    }
}
