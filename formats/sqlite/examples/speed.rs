#![allow(clippy::unwrap_used, missing_docs)]
//! Measures rows per second, encoded and decoded on one core: `cargo run --release -p rpd-sqlite --example speed`.

use rpd_shard::model::{Cells, Keys, Nulls, TextCells, Value};
use rpd_sqlite::read::{PageDatabase, Wanted};
use rpd_sqlite::write::{Affinity, Field, LeafWriter, LogicalPage, PageMemory};
use std::io::Write;
use std::sync::Arc;
use std::time::Instant;

const ROWS: usize = 65_536;
const ROUNDS: usize = 40;

fn main() {
    let start = 1_000_000_000_000_000;
    let ints = |f: fn(i64) -> i64| Cells::ints((0..ROWS as i64).map(f).collect());
    let begins = Cells::ints((0..ROWS as i64).map(|i| start + i * 1_000).collect());
    let ends = Cells::ints((0..ROWS as i64).map(|i| start + i * 1_000 + 700).collect());
    let json = Cells::Text(TextCells::constant(b"{}", ROWS));
    let names: Vec<Cells> = [
        ints(|_| 1),
        ints(|_| 4),
        ints(|i| 7 + i % 4),
        begins,
        ends,
        ints(|i| 300 + i * 7919 % 500),
        ints(|i| 1_000_000 + i),
        json,
    ]
    .into_iter()
    .collect();
    let cells = |cells| Field::Cells { cells, null: Value::Null, affinity: Affinity::Integer };
    let guid = Value::Text(b"0123456789abcdef0123456789abcdef0123");
    let narrow: Vec<Field<'_>> = std::iter::once(Field::Key).chain(names.iter().map(cells)).collect();
    let mut region = narrow.clone();
    region.insert(1, Field::Same { value: guid, affinity: Affinity::Text });
    let mut long = TextCells::default();
    for i in 0..ROWS {
        let code = long.add_entry(
            format!("{{\"name\": \"a call with arguments\", \"bytes\": {i}, \"stream\": 4}}").as_bytes(),
        );
        long.codes.push(code);
    }
    let long = Cells::Text(long);
    let reals = Cells::Real { values: (0..ROWS).map(|i| i as f64 / 2.0).collect(), nulls: Nulls::default() };
    let mut nulls = Nulls::default();
    (0..ROWS).step_by(3).for_each(|row| nulls.set(row));
    let some = Cells::Int { values: (0..ROWS as i64).collect(), nulls };
    let mut json = region.clone();
    json.push(Field::Cells { cells: &long, null: Value::Null, affinity: Affinity::Numeric });
    let mut mixed = region.clone();
    mixed.push(Field::Cells { cells: &reals, null: Value::Null, affinity: Affinity::Real });
    mixed.push(Field::Cells { cells: &some, null: Value::Null, affinity: Affinity::Integer });
    measure("narrow", &narrow);
    measure("with guid", &region);
    measure("with real and nulls", &mixed);
    measure("with long json", &json);
}

fn measure(name: &str, fields: &[Field<'_>]) {
    let memory = Arc::new(PageMemory::new(64 << 20));
    let mut best = f64::MAX;
    let mut bytes = 0;
    // A header in the first page of 4096 bytes, followed by the leaves.
    let path = std::env::temp_dir().join(format!("speed-{}.db", std::process::id()));
    let mut header = vec![0; 4096];
    header[..24].copy_from_slice(b"SQLite format 3\0\x10\0\x01\x01\0\x40\x20\x20");
    let mut file = std::fs::File::create(&path).unwrap();
    file.write_all(&header).unwrap();
    for round in 0..ROUNDS {
        let first = 10_000_000 + (round * ROWS) as i64;
        let begin = Instant::now();
        let mut writer = LeafWriter::new(memory.clone());
        writer.append(&Keys::Dense(first), fields, ROWS).unwrap();
        let run = writer.finish();
        best = best.min(begin.elapsed().as_secs_f64());
        bytes = run.pages() * 4096;
        let run = run.place(LogicalPage::after(1)).unwrap();
        if round == 0 {
            run.write_to(&file).unwrap();
        }
        run.recycle(&memory);
    }
    let rate = ROWS as f64 / best / 1e6;
    println!("{name}: encoded {rate:.1} M rows/s, {} bytes a row", bytes as usize / ROWS);
    let database = PageDatabase::open(&path).unwrap();
    let pages: Vec<u32> = (2..=database.page_count()).collect();
    for (what, guid) in [("all columns", Wanted::Value { default: Value::Null }), ("no guid", Wanted::Skip)] {
        let mut wanted = vec![Wanted::Value { default: Value::Null }; fields.len()];
        wanted[0] = Wanted::Skip;
        if matches!(fields[1], Field::Same { .. }) {
            wanted[1] = guid;
        }
        let mut best = f64::MAX;
        for _ in 0..ROUNDS {
            let begin = Instant::now();
            let rows = database.rows(&pages, &wanted).unwrap();
            best = best.min(begin.elapsed().as_secs_f64());
            assert_eq!(rows.len, ROWS);
        }
        println!("{name}: decoded {:.1} M rows/s, {what}", ROWS as f64 / best / 1e6);
    }
    std::fs::remove_file(path).unwrap();
}
