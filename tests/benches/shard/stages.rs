//! Where the time and the bytes of a shard go.

use super::formats::{BLOCK, LEVEL};
use super::streams::Event;
use super::{cpu_seconds, median};
use rpd_shard::codec::{decode_columns, encode_columns};
use rpd_shard::model::{Cells, RowsBuilder, Schema};
use std::hint::black_box;

/// Prints ns per event of each stage, and bytes per event of each column by itself.
pub(crate) fn print<E: Event>(events: &[E], rounds: usize) {
    let Some(table) = Schema::builtin().get(E::TABLE) else { return };
    let block = &events[..events.len().min(BLOCK)];
    let per_event = 1e9 / block.len() as f64;
    let mut times = [const { Vec::new() }; 5];
    let mut zstd = zstd::bulk::Compressor::new(LEVEL).unwrap_or_else(|error| panic!("{error}"));
    let mut columns = Vec::new();
    for _ in 0..rounds {
        let mut began = cpu_seconds();
        let mut lap = |i: usize| {
            let now = cpu_seconds();
            times[i].push((now - began) * per_event);
            began = cpu_seconds();
        };
        let mut builder = RowsBuilder::new(table);
        block.iter().for_each(|event| builder.push(event.row().as_ref()));
        let rows = black_box(builder.finish(1));
        lap(0);
        let mut raw = Vec::with_capacity(block.len() * 16);
        encode_columns(table, &rows.columns, rows.len, &mut raw);
        lap(1);
        let stored = zstd.compress(&raw).unwrap_or_default();
        lap(2);
        let again = zstd::bulk::decompress(&stored, raw.len()).unwrap_or_default();
        lap(3);
        let decoded = black_box(decode_columns(table, &again, rows.len));
        lap(4);
        let decoded = decoded.unwrap_or_else(|error| panic!("{error}"));
        // Where a value is NULL, the number that stands for it means nothing.
        let same = |(a, b): (&Cells, &Cells)| (0..rows.len).all(|i| a.get(i) == b.get(i));
        assert!(decoded.iter().zip(&rows.columns).all(same));
        columns = rows.columns;
    }
    let names = ["rows to columns", "columns to bytes", "zstd", "unzstd", "bytes to columns"];
    let times: Vec<String> =
        names.iter().zip(&mut times).map(|(name, times)| format!("{name} {:.1}", median(times))).collect();
    println!("ns/event: {}", times.join(", "));
    let alone = |(i, column): (usize, &rpd_shard::model::Column)| {
        // A column that is stored as a difference needs the one that it is near to.
        let mut kept = vec![Cells::Absent; columns.len()];
        kept[i] = columns[i].clone();
        let mut raw = Vec::new();
        let near = column.near.map(usize::from);
        near.into_iter().for_each(|near| kept[near] = columns[near].clone());
        encode_columns(table, &kept, block.len(), &mut raw);
        let with = raw.len();
        let mut base = Vec::new();
        kept[i] = Cells::Absent;
        encode_columns(table, &kept, block.len(), &mut base);
        let size = |raw: &[u8]| zstd::bulk::compress(raw, LEVEL).map_or(0, |stored| stored.len());
        let stored = size(&raw).saturating_sub(if near.is_some() { size(&base) } else { 0 });
        let each = |bytes: usize| bytes as f64 / block.len() as f64;
        format!("{} {:.2} ({:.2})", column.name, each(stored), each(with - base.len()))
    };
    let columns: Vec<String> = table.columns.iter().enumerate().map(alone).collect();
    println!("bytes/event after (before) zstd: {}", columns.join(", "));
}
