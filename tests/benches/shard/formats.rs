//! The shard format and what it is compared with.

use super::streams::{Event, NAMES};
use rpd_shard::file::BlockKind;
use rpd_shard::model::{Cells, Nulls};
use rpd_shard::{Shard, ShardWriter};
use rpd_tests::synthetic::{SyntheticRun, process_record, run_identity};

/// Events of one block, as in a shard.
pub(crate) const BLOCK: usize = 65_536;
pub(crate) const LEVEL: i32 = 1;

/// A way to store events.
pub(crate) trait Format<E> {
    fn name(&self) -> &'static str;
    /// All events as bytes.
    fn encode(&self, events: &[E]) -> Vec<u8>;
    /// The sum of [`Event::sum`] over all events.
    fn decode(&self, bytes: &[u8]) -> u64;
}

/// A finished shard.
pub(crate) struct ShardFile;

impl<E: Event> Format<E> for ShardFile {
    fn name(&self) -> &'static str {
        "shard"
    }

    fn encode(&self, events: &[E]) -> Vec<u8> {
        shard_of(events).unwrap_or_else(|error| panic!("{error}"))
    }

    fn decode(&self, bytes: &[u8]) -> u64 {
        let shard = Shard::from_memory("bench", bytes).unwrap_or_else(|error| panic!("{error}"));
        let mut sum = 0u64;
        for block in shard.blocks().iter().filter(|block| block.header.kind == BlockKind::Rows(E::TABLE)) {
            let rows = shard.rows(block).unwrap_or_else(|error| panic!("{error}"));
            for cells in &rows.columns {
                if let Cells::Int { values, nulls } = cells {
                    sum = sum.wrapping_add(sum_of(values, nulls));
                }
            }
        }
        sum
    }
}

/// The sum of the values that are not NULL.
fn sum_of(values: &[i64], nulls: &Nulls) -> u64 {
    let add = |sum: u64, v: u64| sum.wrapping_add(v);
    if !nulls.any() {
        return values.iter().map(|v| *v as u64).fold(0, add);
    }
    let bitmap = nulls.bitmap().iter().copied().chain(std::iter::repeat(0));
    let eight = |(eight, bits): (&[i64], u8)| {
        // All ones where the bit is clear.
        let kept = |(i, v): (usize, &i64)| *v as u64 & (u64::from(bits >> i & 1)).wrapping_sub(1);
        eight.iter().enumerate().map(kept).fold(0, add)
    };
    values.chunks(8).zip(bitmap).map(eight).fold(0, add)
}

fn shard_of<E: Event>(events: &[E]) -> Result<Vec<u8>, rpd_shard::WriteError> {
    let run = SyntheticRun { nodes: 1, ranks_per_node: 1, ..SyntheticRun::default() }.plan();
    let mut shard = ShardWriter::new(Vec::with_capacity(events.len() * 8), &run_identity(&run, 0))?;
    shard.process(&process_record(&run, &run.ranks[0].processes[0]))?;
    for name in 0..NAMES + 8 {
        shard.string(format!("range or function number {name}").as_bytes())?;
    }
    for event in events {
        shard.push(1, E::TABLE, event.row().as_ref())?;
    }
    shard.finish()
}

/// The fields, 8 bytes each, one struct after the other.
pub(crate) struct RawStructs;

/// Blocks: number of bytes before and after compression, then the bytes.
fn compressed(blocks: impl Iterator<Item = Vec<u8>>) -> Vec<u8> {
    let mut out = Vec::new();
    for raw in blocks {
        let stored = zstd::bulk::compress(&raw, LEVEL).unwrap_or_default();
        out.extend_from_slice(&(raw.len() as u32).to_le_bytes());
        out.extend_from_slice(&(stored.len() as u32).to_le_bytes());
        out.extend_from_slice(&stored);
    }
    out
}

fn decompressed(mut bytes: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    std::iter::from_fn(move || {
        let (lengths, rest) = bytes.split_first_chunk::<8>()?;
        let length = |i: usize| lengths[i..i + 4].iter().rev().fold(0, |n, b| n << 8 | usize::from(*b));
        let (stored, rest) = rest.split_at_checked(length(4))?;
        bytes = rest;
        zstd::bulk::decompress(stored, length(0)).ok()
    })
}

impl<E: Event> Format<E> for RawStructs {
    fn name(&self) -> &'static str {
        "raw structs"
    }

    fn encode(&self, events: &[E]) -> Vec<u8> {
        compressed(events.chunks(BLOCK).map(|block| {
            let mut raw = Vec::with_capacity(size_of_val(block));
            block.iter().flat_map(E::fields).for_each(|v| raw.extend_from_slice(&v.to_le_bytes()));
            raw
        }))
    }

    fn decode(&self, bytes: &[u8]) -> u64 {
        let sum_of = |raw: Vec<u8>| {
            let fields = raw.as_chunks::<8>().0.iter().map(|field| u64::from_le_bytes(*field));
            fields.filter(|v| *v != u64::MAX).fold(0, u64::wrapping_add)
        };
        decompressed(bytes).map(sum_of).fold(0, u64::wrapping_add)
    }
}

/// One JSON object per line.
pub(crate) struct JsonLines;

impl<E: Event> Format<E> for JsonLines {
    fn name(&self) -> &'static str {
        "JSON lines"
    }

    fn encode(&self, events: &[E]) -> Vec<u8> {
        compressed(events.chunks(BLOCK).map(|block| {
            let mut raw = Vec::with_capacity(block.len() * 100);
            for event in block {
                serde_json::to_writer(&mut raw, event).unwrap_or_else(|error| panic!("{error}"));
                raw.push(b'\n');
            }
            raw
        }))
    }

    fn decode(&self, bytes: &[u8]) -> u64 {
        let line = |line: &[u8]| {
            let event: E = serde_json::from_slice(line).unwrap_or_else(|error| panic!("{error}"));
            event.sum()
        };
        let lines = |raw: Vec<u8>| {
            let lines = raw.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
            lines.map(line).fold(0, u64::wrapping_add)
        };
        decompressed(bytes).map(lines).fold(0, u64::wrapping_add)
    }
}
