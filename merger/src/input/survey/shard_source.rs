//! Survey of one process of a shard: decodes its blocks and assigns its keys.

use super::block_facts::{BlockFacts, SourceFacts, facts};
use super::placeholders::{leads_nowhere, reserve_placeholders};
use crate::input::{
    ExpandedKeys, InputSource, InputTables, JobSchema, KeySpace, SourcePiece, SourceTracks, StackSpace,
    expand,
};
use rayon::prelude::*;
use rpd_collectives::{CallSample, ProcessCollectives};
use rpd_shard::Shard;
use rpd_shard::file::{BlockKind, BlockRef, ShardStrings};
use rpd_shard::identity::unnamed_node;
use rpd_shard::model::{TableId, rocpd};
use rpd_shard::record::{Clock, ClockDomain, Loss, LossCause, Node, Process};
use std::collections::{BTreeMap, BTreeSet};

/// Blocks that are decoded at the same time, before their facts are combined.
const BLOCKS_AT_ONCE: usize = 256;

/// Returns the row blocks per process, in file order. Blocks of tables without an output table are counted as losses.
pub(super) fn blocks_by_source(
    shard: &Shard,
    is_merged: impl Fn(TableId) -> bool,
    losses: &mut Vec<Loss>,
) -> BTreeMap<u32, Vec<BlockRef>> {
    let mut by_source: BTreeMap<u32, Vec<BlockRef>> =
        shard.processes.keys().map(|source| (*source, Vec::new())).collect();
    let mut unknown: BTreeMap<(u32, TableId), u64> = BTreeMap::new();
    for block in shard.blocks() {
        let BlockKind::Rows(table) = block.header.kind else { continue };
        let source = block.header.source;
        if source != 0 && is_merged(table) {
            by_source.entry(source).or_default().push(*block);
        } else if (source, table) != (0, rocpd::STRING) {
            *unknown.entry((source, table)).or_default() += u64::from(block.header.rows);
        }
    }
    losses.extend(unknown.into_iter().map(|((source, table), rows)| Loss {
        source,
        table: Some(table),
        cause: LossCause::UnknownTable,
        rows: Some(rows),
    }));
    by_source
}

/// Returns whether rows of a table reach the output, as they are or expanded. Node and process rows are made from the
/// process record instead.
pub(super) fn is_merged(table: TableId, tables: &InputTables) -> bool {
    expand::is_native(table)
        || tables.contains_key(&table)
            && !matches!(table, rocpd::STRING | rocpd::INFO_NODE | rocpd::INFO_PROCESS)
}

/// Decodes the blocks of one process and combines their facts.
pub(super) fn decode_blocks(
    shard: &Shard,
    tables: &InputTables,
    blocks: &[BlockRef],
    strings: &ShardStrings,
    sample: &CallSample,
    warnings: &mut Vec<String>,
) -> (SourceFacts, Vec<BlockFacts>) {
    let mut threads: Vec<(i64, i64)> = Vec::new();
    for block in blocks.iter().filter(|b| b.header.kind == BlockKind::Rows(rocpd::INFO_THREAD)) {
        let (first, next) = (block.header.first_key, block.header.next_key());
        if threads.last().is_none_or(|last| last.1 <= first) {
            threads.push((first, next));
        }
    }
    let mut gathered = SourceFacts::default();
    let mut good = Vec::new();
    let mut next: BTreeMap<BlockKind, (i64, i64)> = BTreeMap::new();
    for some in blocks.chunks(BLOCKS_AT_ONCE) {
        let decoded: Vec<_> =
            some.par_iter().map(|block| facts(shard, tables, block, strings, &threads, sample)).collect();
        for decoded in decoded {
            let (fact, source_facts) = match decoded {
                Ok(both) => both,
                Err(error) => {
                    warnings.push(error.to_string());
                    continue;
                }
            };
            // Keys of one process's table ascend through the file. A block that repeats keys belongs to another
            // shard.
            let header = &fact.block.header;
            let (next, next_key) = next.entry(header.kind).or_insert((1, i64::MIN));
            let first = fact.key_ranges.first().map_or(header.first_key, |range| range.0);
            if header.first_key < *next || first < *next_key {
                warnings.push(format!(
                    "{}: block at offset {} repeats keys from {first} on: left out",
                    shard.path().display(),
                    fact.block.offset,
                ));
                continue;
            }
            *next = header.next_key();
            *next_key = fact.key_ranges.last().map_or(*next_key, |range| range.1);
            gathered.add(source_facts, sample);
            good.push(fact);
        }
    }
    (gathered, good)
}

/// Assigns the key spaces of one process.
pub(super) fn assign_keys(
    shard: &Shard,
    number: u32,
    tables: &InputTables,
    job: &JobSchema,
    gathered: &SourceFacts,
    facts: Vec<BlockFacts>,
) -> InputSource {
    let mut spaces: BTreeMap<TableId, KeySpace> = BTreeMap::new();
    spaces.entry(rocpd::INFO_PROCESS).or_default().add_keys(1, 2);
    let (native, mut stored): (Vec<_>, Vec<_>) = facts.into_iter().partition(|f| f.is_native());
    for fact in &stored {
        let header = fact.block.header;
        let BlockKind::Rows(table) = header.kind else { continue };
        let Some(table) = tables.get(&table) else { continue };
        let space = spaces.entry(table.id).or_default();
        fact.key_ranges.iter().for_each(|(first, next)| space.add_keys(*first, *next));
    }
    for space in spaces.values_mut() {
        space.expanded = (space.next, space.next);
    }

    // Expanded rows are numbered after the stored ones. Samples need a track for each thread.
    let mut take = |table: TableId, rows: u64| {
        let space = spaces.entry(table).or_default();
        let first = space.next;
        space.next += rows as i64;
        space.expanded.1 = space.next;
        first
    };
    let first_track = take(rocpd::TRACK, gathered.tracks.len() as u64);
    let tracks: SourceTracks = gathered.tracks.iter().copied().zip(first_track..).collect();
    let mut pieces = vec![SourcePiece::Process];
    stored.sort_by_key(|f| (f.block.header.kind, f.block.header.first_key));
    pieces.extend(stored.iter().map(|f| SourcePiece::Block(f.block, None)));
    for fact in &native {
        let rows = |table| fact.expanded.iter().find(|(t, _)| *t == table).map_or(0, |(_, rows)| *rows);
        let keys = ExpandedKeys {
            event: take(rocpd::EVENT, rows(rocpd::EVENT)),
            region: take(rocpd::REGION, rows(rocpd::REGION)),
            sample: take(rocpd::SAMPLE, rows(rocpd::SAMPLE)),
            arg: take(rocpd::ARG, rows(rocpd::ARG)),
        };
        pieces.push(SourcePiece::Block(fact.block, Some(Box::new(keys))));
    }
    let holes = |table: &TableId, low: i64, high: i64| match spaces.get(table) {
        Some(space) => space.stored.len() > 1 || space.stored(low).is_none() || space.stored(high).is_none(),
        None => true,
    };
    let missing = gathered.refs.iter().filter(|(table, (low, high))| holes(table, *low, *high));
    let mut missing: BTreeSet<TableId> = missing.map(|(table, _)| *table).collect();
    // Keys that are handles have gaps even if nothing is lost.
    if stored.iter().any(|fact| fact.block.header.handles) {
        missing.retain(|target| {
            let leads_nowhere =
                |fact: &BlockFacts| leads_nowhere(shard, tables, &fact.block, *target, &spaces);
            stored.par_iter().any(leads_nowhere)
        });
    }
    reserve_placeholders(&mut spaces, missing, job);
    let blocks = stored.iter().chain(&native);
    let stacks =
        StackSpace::of(gathered.stacks, &job.stacks, blocks.filter_map(|fact| shard.rows(&fact.block).ok()));
    let mut process = shard.processes.get(&number).cloned().unwrap_or_else(|| unknown_process(shard, number));
    if process.node == Node::default() {
        let processes: Vec<_> = shard.processes.values().map(|p| (p.pid, p.first_seen)).collect();
        process.node = unnamed_node(0, &processes);
        process.domain.boot_id.clone_from(&process.node.boot_id);
    }
    pieces.push(SourcePiece::Tail);
    let nodes = vec![(1, process.node.clone())];
    let (spaces, pieces, tables) = (spaces.into(), pieces.into(), tables.clone());
    let collectives = ProcessCollectives::default();
    InputSource {
        process,
        nodes,
        spaces,
        stacks,
        pieces,
        tracks,
        string_table: 0,
        tables,
        collectives,
        memberships: gathered.memberships.clone(),
    }
}

/// Returns a placeholder for a process without a process record. Other processes of its shard ran on the same node.
fn unknown_process(shard: &Shard, number: u32) -> Process {
    let sibling = shard.processes.values().next();
    let recorded = shard.clocks.first().map(|set| set.domain.clone());
    let nowhere = ClockDomain { boot_id: String::new(), time_namespace: 0 };
    let domain = sibling.map(|p| p.domain.clone()).or(recorded).unwrap_or(nowhere);
    let node = match sibling {
        Some(sibling) => sibling.node.clone(),
        None => Node { boot_id: domain.boot_id.clone(), ..Node::default() },
    };
    Process {
        source: number,
        rank: shard.identity.rank,
        size: shard.identity.size,
        domain,
        command: "(lost)".to_owned(),
        ..Process::of_file(node, Clock::Boottime)
    }
}
