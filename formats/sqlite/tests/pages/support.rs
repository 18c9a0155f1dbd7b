//! Creates tables with SQLite and with this crate, and reads them with SQLite.

use proptest::prelude::*;
use rpd_shard::model::{Cells, Keys, Nulls, OwnedValue, TextCells, Value};
use rpd_sqlite::read::PageDatabase;
use rpd_sqlite::write::{Affinity, Field, LeafWriter, LogicalPage, PlacedRun, Sealer};
use rusqlite::Connection;
use rusqlite::types::{ToSql, ToSqlOutput, ValueRef};
use std::fs::File;
use std::path::Path;

/// A table for a test: declared column types, and rows.
#[derive(Clone, Debug)]
pub(crate) struct TestTable {
    pub(crate) types: Vec<&'static str>,
    pub(crate) keys: Keys,
    pub(crate) columns: Vec<Cells>,
    pub(crate) rows: usize,
}

/// A row as SQLite returns it: rowid, then type and value of each column.
pub(crate) type Seen = (i64, Vec<(String, OwnedValue)>);

pub(crate) struct Bound<'a>(pub(crate) Value<'a>);

impl ToSql for Bound<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self.0 {
            Value::Null => ValueRef::Null,
            Value::Int(v) => ValueRef::Integer(v),
            Value::Real(v) => ValueRef::Real(v),
            Value::Text(v) => ValueRef::Text(v),
            Value::Blob(v) => ValueRef::Blob(v),
        }))
    }
}

impl TestTable {
    /// Returns the declaration of the table; column 0 is the key.
    pub(crate) fn ddl(&self, name: &str) -> String {
        let columns: Vec<_> = self.types.iter().enumerate().map(|(i, t)| format!(", c{i} {t}")).collect();
        format!("CREATE TABLE {name} (id INTEGER PRIMARY KEY{})", columns.concat())
    }

    pub(crate) fn fields(&self) -> Vec<Field<'_>> {
        let columns = self.columns.iter().zip(&self.types);
        let cells = columns.map(|(cells, declared)| Field::Cells {
            cells,
            null: Value::Null,
            affinity: Affinity::of(declared),
        });
        std::iter::once(Field::Key).chain(cells).collect()
    }

    /// Inserts the rows with SQLite.
    pub(crate) fn insert(&self, db: &Connection, name: &str) {
        let places = vec![",?"; self.types.len()].concat();
        let mut insert = db.prepare(&format!("INSERT INTO {name} VALUES (?{places})")).unwrap();
        for row in 0..self.rows {
            let mut values = vec![Bound(Value::Int(self.keys.get(row)))];
            values.extend(self.columns.iter().map(|cells| Bound(cells.get(row))));
            insert.execute(rusqlite::params_from_iter(values)).unwrap();
        }
    }
}

/// Lets SQLite create a database with pages of 4096 bytes.
pub(crate) fn create(path: &Path, sql: &str) -> Connection {
    let db = Connection::open(path).unwrap();
    db.execute_batch("PRAGMA page_size = 4096; PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;")
        .unwrap();
    db.execute_batch(sql).unwrap();
    db
}

/// Returns the root page of a table.
pub(crate) fn root(db: &Connection, table: &str) -> u32 {
    db.query_row("SELECT rootpage FROM sqlite_master WHERE name = ?", [table], |row| row.get(0)).unwrap()
}

pub(crate) fn page_count(db: &Connection) -> u32 {
    db.query_row("PRAGMA page_count", [], |row| row.get(0)).unwrap()
}

/// Reads all rows of a table with SQLite.
pub(crate) fn seen(db: &Connection, table: &str, columns: usize) -> Vec<Seen> {
    let list: Vec<_> = (0..columns).map(|i| format!(", typeof(c{i}), c{i}")).collect();
    let mut select = db.prepare(&format!("SELECT id{} FROM {table} ORDER BY id", list.concat())).unwrap();
    let mut rows = select.query([]).unwrap();
    let mut all = Vec::new();
    while let Some(row) = rows.next().unwrap() {
        let cell = |i: usize| {
            let value = match row.get_ref(2 + 2 * i).unwrap() {
                ValueRef::Null => OwnedValue::Null,
                ValueRef::Integer(v) => OwnedValue::Int(v),
                ValueRef::Real(v) => OwnedValue::Real(v),
                ValueRef::Text(v) => OwnedValue::Text(v.into()),
                ValueRef::Blob(v) => OwnedValue::Blob(v.into()),
            };
            (row.get(1 + 2 * i).unwrap(), value)
        };
        all.push((row.get(0).unwrap(), (0..columns).map(cell).collect()));
    }
    all
}

pub(crate) fn integrity(db: &Connection) -> String {
    db.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap()
}

/// Fills empty tables of a closed database. Each table has several runs; all runs are placed one after another.
pub(crate) fn fill(path: &Path, pages: u32, tables: &[(u32, &[TestTable])]) {
    assert_eq!(PageDatabase::open(path).unwrap().page_count(), pages);
    let file = File::options().write(true).open(path).unwrap();
    let mut end = LogicalPage::after(pages);
    let mut placed: Vec<(u32, Vec<PlacedRun>)> = Vec::new();
    for (root, pieces) in tables {
        let mut runs = Vec::new();
        for piece in *pieces {
            let mut writer = LeafWriter::default();
            writer.append(&piece.keys, &piece.fields(), piece.rows).unwrap();
            let run = writer.finish().place(end).unwrap();
            run.write_to(&file).unwrap();
            end = run.end();
            runs.push(run);
        }
        placed.push((*root, runs));
    }
    let mut sealer = Sealer::open(path, end).unwrap();
    for (root, runs) in &placed {
        sealer.table(*root, runs.iter().flat_map(PlacedRun::leaves)).unwrap();
    }
    sealer.finish().unwrap();
}

pub(crate) fn text(values: &[Option<&[u8]>]) -> Cells {
    let mut cells = TextCells::default();
    for value in values {
        let code = value.map_or(TextCells::NULL, |text| cells.add_entry(text));
        cells.codes.push(code);
    }
    Cells::Text(cells)
}

pub(crate) fn int() -> impl Strategy<Value = i64> {
    prop_oneof![
        3 => -2i64..3,
        3 => (0u32..64, -2i64..3, any::<bool>()).prop_map(|(bits, near, minus)| {
            let edge = (1i64 << bits).wrapping_add(near);
            if minus { edge.wrapping_neg() } else { edge }
        }),
        1 => any::<i64>(),
    ]
}

pub(crate) fn real() -> impl Strategy<Value = f64> {
    prop_oneof![
        int().prop_map(|v| v as f64),
        int().prop_map(|v| v as f64 / 16.0),
        any::<f64>(),
        (-1_000_000i64..1_000_000).prop_map(|v| v as f64 / 1000.0),
        Just(-0.0),
        Just(f64::NAN),
        Just(f64::INFINITY),
        Just(f64::NEG_INFINITY),
    ]
}

/// Generates texts: JSON, names, numbers in all spellings, and lengths around every limit.
pub(crate) fn any_text() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        4 => Just(b"{}".to_vec()),
        2 => "[a-z]{0,12}".prop_map(String::into_bytes),
        2 => r"[ \t\n]{0,2}[+-]?[0-9]{0,21}(\.[0-9]{0,20})?([eE][+-]?[0-9]{0,4})?[ \r]{0,2}".prop_map(String::into_bytes),
        1 => int().prop_map(|v| v.to_string().into_bytes()),
        1 => real().prop_map(|v| v.to_string().into_bytes()),
        2 => (length(), any::<u8>()).prop_map(|(length, first)| {
            (0..length).map(|i| b'a' + (usize::from(first) + i) as u8 % 23).collect()
        }),
    ]
}

/// Generates lengths around the limits of serial types and pages, allowing for some header and key.
pub(crate) fn length() -> impl Strategy<Value = usize> {
    prop_oneof![
        4 => 50usize..66,
        2 => 110usize..130,
        2 => 4020usize..4100,
        1 => 4500usize..4560,
        1 => 8100usize..8200,
        1 => 0usize..30_000,
    ]
}

pub(crate) fn value() -> impl Strategy<Value = OwnedValue> {
    prop_oneof![
        Just(OwnedValue::Null),
        int().prop_map(OwnedValue::Int),
        real().prop_map(OwnedValue::Real),
        any_text().prop_map(|v| OwnedValue::Text(v.into())),
        any_text().prop_map(|v| OwnedValue::Blob(v.into())),
    ]
}

/// Generates a column of each kind of cells.
pub(crate) fn cells(rows: usize) -> impl Strategy<Value = Cells> {
    let nulls = prop_oneof![
        Just(Nulls::default()),
        proptest::collection::vec(any::<u8>(), 0..=rows.div_ceil(8)).prop_map(Nulls::from_bitmap),
    ];
    let ints = (proptest::collection::vec(int(), rows), nulls.clone());
    let reals = (proptest::collection::vec(real(), rows), nulls);
    let texts = proptest::collection::vec(proptest::option::weighted(0.9, any_text()), rows);
    prop_oneof![
        1 => Just(Cells::Absent),
        4 => ints.prop_map(|(values, nulls)| Cells::Int { values, nulls }),
        2 => reals.prop_map(|(values, nulls)| Cells::Real { values, nulls }),
        2 => texts.prop_map(|v| text(&v.iter().map(Option::as_deref).collect::<Vec<_>>())),
        1 => any_text().prop_map(move |v| Cells::Text(TextCells::constant(&v, rows))),
        1 => proptest::collection::vec(value(), rows).prop_map(Cells::Any),
    ]
}

/// Generates consecutive rows, in one piece or several.
pub(crate) fn table(rows: std::ops::Range<usize>) -> impl Strategy<Value = Vec<TestTable>> {
    let types = prop_oneof![
        3 => Just("INTEGER"),
        2 => Just("TEXT"),
        2 => Just("JSONB"),
        1 => Just("REAL"),
        1 => Just("BLOB"),
        1 => Just("BIGINT"),
    ];
    let columns = prop_oneof![6 => 0usize..14, 1 => 90usize..130];
    let pieces = proptest::collection::vec(rows, 1..3);
    (columns, pieces).prop_flat_map(move |(columns, pieces)| {
        let types = proptest::collection::vec(types.clone(), columns);
        let start =
            prop_oneof![Just(1i64), Just(i64::MIN), -300i64..300, (1i64 << 40)..(1 << 41), Just(1i64 << 56)];
        let contents: Vec<_> = pieces
            .iter()
            .map(|rows| {
                let steps = proptest::option::of(proptest::collection::vec(1i64..5000, *rows));
                (Just(*rows), steps, proptest::collection::vec(cells(*rows), columns))
            })
            .collect();
        (types, start, contents).prop_map(|(types, start, contents)| {
            let mut next = start;
            let pieces = contents.into_iter().map(|(rows, steps, columns)| {
                let first = next;
                let keys = match steps {
                    None => Keys::Dense(first),
                    Some(steps) => Keys::Sparse(
                        steps
                            .iter()
                            .scan(first, |key, step| {
                                *key += step;
                                Some(*key)
                            })
                            .collect(),
                    ),
                };
                next = if rows == 0 { first } else { keys.get(rows - 1) + 1 };
                TestTable { types: types.clone(), keys, columns, rows }
            });
            pieces.collect()
        })
    })
}
