//! Shards that are made by hand: given rows, given bytes, given damage.

use crate::harness::RunFolder;
use crate::synthetic::{SyntheticRun, process_record, run_identity};
use rpd_shard::file::{BlockHeader, BlockKind, BlockRef};
use rpd_shard::model::{TableId, Value, rocpd};
use rpd_shard::{Shard, ShardWriter, WriteError};
use std::fs;
use twox_hash::XxHash3_64;

/// One block: its header and what is stored, with the true checksums.
#[derive(Clone, Debug)]
pub struct CraftedBlock {
    /// The header.
    pub header: BlockHeader,
    /// The compressed payload.
    pub stored: Vec<u8>,
}

impl CraftedBlock {
    /// A block of rows of process 1 (the shard itself for strings) with this payload.
    ///
    /// # Panics
    /// If it cannot be compressed.
    pub fn rows(table: TableId, first_key: i64, rows: u32, raw: &[u8]) -> CraftedBlock {
        let stored = zstd::bulk::compress(raw, 1).unwrap_or_else(|error| panic!("zstd: {error}"));
        let header = BlockHeader {
            kind: BlockKind::Rows(table),
            source: u32::from(table != rocpd::STRING),
            first_key,
            handles: false,
            rows,
            raw_bytes: raw.len() as u32,
            stored_bytes: stored.len() as u32,
            min_time: 1,
            max_time: 2,
            checksum: XxHash3_64::oneshot(&stored),
        };
        CraftedBlock { header, stored }
    }
}

/// Adds an unsigned LEB128 number.
pub fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// A column of consecutive numbers: the first, then differences of 1.
pub fn consecutive(first: i64, rows: usize) -> Vec<u8> {
    let mut out = vec![0x03];
    varint(&mut out, ((first << 1) ^ (first >> 63)) as u64);
    out.resize(out.len() + rows - 1, 2);
    out
}

/// Writes the shard of a rank anew: its records, the rows that `rows` pushes, its ledger.
///
/// # Panics
/// If it cannot be written.
pub fn write_rows(
    run: &RunFolder,
    config: &SyntheticRun,
    rank: u32,
    rows: impl FnOnce(&mut ShardWriter<Vec<u8>>) -> Result<(), WriteError>,
) {
    let path = run.shard(rank);
    let written = shard_of(config, rank, rows);
    fs::write(&path, written).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
}

/// The bytes of a finished shard of a rank with the rows that `rows` pushes.
///
/// # Panics
/// If it cannot be written.
pub fn shard_of(
    config: &SyntheticRun,
    rank: u32,
    rows: impl FnOnce(&mut ShardWriter<Vec<u8>>) -> Result<(), WriteError>,
) -> Vec<u8> {
    let plan = config.plan();
    let planned = &plan.ranks[rank as usize];
    let write = || {
        let mut shard = ShardWriter::new(Vec::new(), &run_identity(&plan, rank))?;
        for process in &planned.processes {
            shard.process(&process_record(&plan, process))?;
        }
        plan.clock_sets(planned).iter().try_for_each(|set| shard.clock(set))?;
        rows(&mut shard)?;
        shard.finish()
    };
    write().unwrap_or_else(|error| panic!("shard of rank {rank}: {error}"))
}

/// A thread of process 1; returns its key.
pub fn push_thread(shard: &mut ShardWriter<Vec<u8>>) -> Result<i64, WriteError> {
    shard.push(1, rocpd::INFO_THREAD, &[Value::Int(1), Value::Int(1), Value::Int(1), Value::Int(7)])
}

/// Writes the shard of a rank anew as one of a killed collector: records, then these blocks.
///
/// # Panics
/// If it cannot be written.
pub fn write_blocks(run: &RunFolder, config: &SyntheticRun, rank: u32, blocks: &[CraftedBlock]) {
    let mut bytes = before_rows(&shard_of(config, rank, |_| Ok(())));
    for block in blocks {
        bytes.extend_from_slice(&block.header.to_bytes());
        bytes.extend_from_slice(&block.stored);
    }
    let path = run.shard(rank);
    fs::write(&path, bytes).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
}

/// The beginning of a shard: up to its rows, or its ledger.
pub fn before_rows(bytes: &[u8]) -> Vec<u8> {
    let is_record = |kind| matches!(kind, BlockKind::Identity | BlockKind::Process | BlockKind::Clock);
    let end = blocks(bytes).iter().take_while(|block| is_record(block.header.kind)).map(BlockRef::end).last();
    bytes[..end.unwrap_or(0) as usize].to_vec()
}

/// The blocks of a shard.
///
/// # Panics
/// If it is none.
pub fn blocks(bytes: &[u8]) -> Vec<BlockRef> {
    let shard = Shard::from_memory("crafted", bytes).unwrap_or_else(|error| panic!("{error}"));
    shard.blocks().to_vec()
}

/// The last block of a kind of one process.
///
/// # Panics
/// If there is none.
pub fn last_block(bytes: &[u8], kind: BlockKind, source: u32) -> BlockRef {
    let all = blocks(bytes);
    let found = all.iter().rfind(|block| block.header.kind == kind && block.header.source == source);
    *found.unwrap_or_else(|| panic!("no block of {kind:?} of process {source}"))
}

/// Changes one byte of what a block stores.
pub fn damage(bytes: &mut [u8], block: &BlockRef) {
    bytes[block.end() as usize - 1] ^= 0x10;
}
