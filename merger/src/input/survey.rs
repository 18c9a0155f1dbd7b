//! Reads a shard once, before anything is numbered: how many rows, which keys, strings and stack ids
//! there are, and what is damaged. Every block is decoded here, so that the numbers are true.

use super::expand::{self, Word};
use super::source::{ExpandedKeys, KeySpace, Source, StackSpace};
use crate::agree::strings::{ShardHashes, hash};
use rayon::prelude::*;
use rpd_shard::Shard;
use rpd_shard::file::{BlockError, BlockKind, BlockRef, ShardStrings};
use rpd_shard::model::{Kind, Local, Rows, Schema, TableId, Value, native, rocpd};
use rpd_shard::record::{Clock, ClockDomain, Loss, LossCause, Node, Process};
use std::collections::{BTreeMap, BTreeSet};

/// Stack ids beyond this are numbered anew instead of shifted.
const MAX_SHIFTED_STACK: i64 = 1 << 40;

/// A shard after its survey.
#[derive(Debug)]
pub struct Survey {
    /// The shard.
    pub shard: Shard,
    /// Hashes of its strings by id, then those of the words in use. The texts are read again when
    /// they are written: a job has many shards with the same strings.
    pub hashes: ShardHashes,
    /// Rows of the output's string table that are there because of this shard's own strings.
    pub string_count: u64,
    /// Its processes, in output order.
    pub sources: Vec<Source>,
    /// Rows that are missing, by the collector's word and by what was found.
    pub losses: Vec<Loss>,
    /// Rows read, per table of the shard.
    pub rows_read: BTreeMap<TableId, u64>,
    /// One line for each damaged place.
    pub warnings: Vec<String>,
}

/// What one block holds.
struct BlockFacts {
    block: BlockRef,
    expanded: Vec<(TableId, u64)>,
    /// Smallest and largest key per table referred to.
    refs: BTreeMap<TableId, (i64, i64)>,
    stacks: Option<(i64, i64)>,
    /// Whether a string id leads nowhere.
    lost_strings: bool,
    /// Threads of marks.
    mark_threads: BTreeSet<i64>,
}

/// Surveys a shard, its blocks in parallel.
pub fn survey(shard: Shard) -> Survey {
    let (strings, string_errors) = shard.strings();
    let mut by_source: BTreeMap<u32, Vec<BlockRef>> = BTreeMap::new();
    let mut unknown: BTreeMap<(u32, TableId), u64> = BTreeMap::new();
    for block in shard.blocks() {
        let BlockKind::Rows(table) = block.header.kind else { continue };
        let source = block.header.source;
        if table == rocpd::STRING && source == 0 {
            continue;
        }
        if source != 0 && (expand::is_native(table) || is_written(table)) {
            by_source.entry(source).or_default().push(*block);
        } else {
            *unknown.entry((source, table)).or_default() += u64::from(block.header.rows);
        }
    }
    for source in shard.processes.keys() {
        by_source.entry(*source).or_default();
    }

    let mut warnings: Vec<String> = string_errors.iter().map(BlockError::to_string).collect();
    let mut losses: Vec<Loss> = shard.ledger.iter().flat_map(|l| l.losses.clone()).collect();
    losses.extend(unknown.into_iter().map(|((source, table), rows)| Loss {
        source,
        table: Some(table),
        cause: LossCause::UnknownTable,
        rows: Some(rows),
    }));
    let mut rows_read = BTreeMap::new();
    let mut words = BTreeSet::new();
    let mut readable: BTreeMap<(u32, TableId), u64> = BTreeMap::new();
    readable.insert((0, rocpd::STRING), strings.iter().count() as u64);
    let mut sources = Vec::new();
    for (number, blocks) in by_source {
        let facts: Vec<_> = blocks.par_iter().map(|block| facts(&shard, block, &strings)).collect();
        let mut good = Vec::new();
        for fact in facts {
            match fact {
                Ok(fact) => good.push(fact),
                Err(error) => warnings.push(error.to_string()),
            }
        }
        refuse_repeated_keys(&mut good, &shard, &mut warnings);
        for fact in &good {
            let BlockKind::Rows(table) = fact.block.header.kind else { continue };
            *rows_read.entry(table).or_default() += u64::from(fact.block.header.rows);
            *readable.entry((number, table)).or_default() += u64::from(fact.block.header.rows);
            words.extend(Word::of_table(table));
        }
        let lost_strings = good.iter().any(|fact| fact.lost_strings);
        let source = source(&shard, number, good);
        if lost_strings || source.spaces.values().any(|s| s.placeholder.is_some()) {
            words.insert(Word::Lost);
        }
        sources.push(source);
    }
    sources.sort_by_cached_key(Source::order);
    losses.extend(missing_rows(&shard, &readable));
    for damage in shard.damage() {
        warnings.push(format!(
            "{}: {} bytes at offset {} are damaged",
            shard.path().display(),
            damage.bytes,
            damage.offset
        ));
    }
    let known = (1..strings.next_id()).map(|id| strings.get(id).map(hash));
    let used = Word::ALL.iter().map(|w| words.contains(w).then(|| hash(w.text().as_bytes())));
    let hashes = known.chain(used).collect();
    let string_count = strings.iter().count() as u64;
    Survey { shard, hashes, string_count, sources, losses, rows_read, warnings }
}

/// Tables whose stored rows reach the output. Node and process rows come from the process record.
fn is_written(table: TableId) -> bool {
    Schema::builtin().get(table).is_some()
        && !matches!(table, rocpd::STRING | rocpd::INFO_NODE | rocpd::INFO_PROCESS)
}

fn facts(shard: &Shard, block: &BlockRef, strings: &ShardStrings) -> Result<BlockFacts, BlockError> {
    let rows = shard.rows(block)?;
    let mut facts = BlockFacts {
        block: *block,
        expanded: Vec::new(),
        refs: BTreeMap::new(),
        stacks: None,
        lost_strings: false,
        mark_threads: BTreeSet::new(),
    };
    for (column, cells) in rows.table.columns.iter().zip(&rows.columns) {
        let bounds = || {
            (0..rows.len).filter_map(|i| cells.int(i)).fold(None, |bounds: Option<(i64, i64)>, v| {
                Some(bounds.map_or((v, v), |(low, high)| (low.min(v), high.max(v))))
            })
        };
        match &column.kind {
            Kind::Ref(table) => {
                if let Some((low, high)) = bounds() {
                    let known = facts.refs.entry(*table).or_insert((low, high));
                    *known = (known.0.min(low), known.1.max(high));
                }
                // A row that must refer to something and refers to nothing needs the placeholder.
                if column.sql.not_null && cells.filled(rows.len) < rows.len {
                    facts.refs.entry(*table).or_insert((0, 0)).0 = 0;
                }
            }
            Kind::Stack => {
                if let Some((low, high)) = bounds() {
                    let known = facts.stacks.get_or_insert((low, high));
                    *known = (known.0.min(low), known.1.max(high));
                }
            }
            Kind::Str => {
                facts.lost_strings |= column.sql.not_null && cells.filled(rows.len) < rows.len
                    || (0..rows.len).any(|i| match cells.get(i) {
                        Value::Null => false,
                        Value::Int(id) => strings.get(id).is_none(),
                        _ => true,
                    });
            }
            _ => {}
        }
    }
    if expand::is_native(rows.id()) {
        facts.expanded = expand::counts(&rows);
    }
    if rows.id() == native::MARK {
        facts.mark_threads = mark_threads(&rows);
    }
    Ok(facts)
}

fn mark_threads(rows: &Rows<Local>) -> BTreeSet<i64> {
    let threads = rows.column("tid");
    (0..rows.len).map(|i| threads.int(i).unwrap_or(0)).collect()
}

/// Keys of one process's table ascend through the file. A block that repeats some is not ours.
fn refuse_repeated_keys(blocks: &mut Vec<BlockFacts>, shard: &Shard, warnings: &mut Vec<String>) {
    let mut next: BTreeMap<BlockKind, i64> = BTreeMap::new();
    blocks.retain(|fact| {
        let header = &fact.block.header;
        let next = next.entry(header.kind).or_insert(1);
        let ascends = header.first_key >= *next;
        if ascends {
            *next = header.next_key();
        } else {
            warnings.push(format!(
                "{}: block at offset {} repeats keys from {} on: left out",
                shard.path().display(),
                fact.block.offset,
                header.first_key
            ));
        }
        ascends
    });
}

/// Lays out the key spaces of one process.
fn source(shard: &Shard, number: u32, facts: Vec<BlockFacts>) -> Source {
    let mut spaces: BTreeMap<TableId, KeySpace> = BTreeMap::new();
    let mut stored = Vec::new();
    let mut native = Vec::new();
    for fact in facts {
        let header = fact.block.header;
        match header.kind {
            BlockKind::Rows(table) if !expand::is_native(table) => {
                let ranges = &mut spaces.entry(table).or_default().stored;
                match ranges.last_mut() {
                    Some(last) if last.1 == header.first_key => last.1 = header.next_key(),
                    _ => ranges.push((header.first_key, header.next_key())),
                }
                stored.push(fact);
            }
            _ => native.push(fact),
        }
    }
    for id in [rocpd::EVENT, rocpd::REGION, rocpd::SAMPLE, rocpd::ARG, rocpd::TRACK] {
        spaces.entry(id).or_default();
    }
    for space in spaces.values_mut() {
        space.next = space.stored.last().map_or(1, |range| range.1);
        space.expanded = (space.next, space.next);
    }

    // Marks need a track for each thread; expanded rows are numbered behind the stored ones.
    let mut take = |table: TableId, rows: u64| {
        let space = spaces.entry(table).or_default();
        let first = space.next;
        space.next += rows as i64;
        space.expanded.1 = space.next;
        first
    };
    let threads: BTreeSet<i64> = native.iter().flat_map(|f| f.mark_threads.iter().copied()).collect();
    let first_track = take(rocpd::TRACK, threads.len() as u64);
    let tracks: BTreeMap<i64, i64> = threads.into_iter().zip(first_track..).collect();
    let mut blocks: Vec<(BlockRef, Option<ExpandedKeys>)> = Vec::new();
    stored.sort_by_key(|f| (f.block.header.kind, f.block.header.first_key));
    blocks.extend(stored.iter().map(|f| (f.block, None)));
    for fact in &native {
        let rows = |table| fact.expanded.iter().find(|(t, _)| *t == table).map_or(0, |(_, rows)| *rows);
        let keys = ExpandedKeys {
            event: take(rocpd::EVENT, rows(rocpd::EVENT)),
            region: take(rocpd::REGION, rows(rocpd::REGION)),
            sample: take(rocpd::SAMPLE, rows(rocpd::SAMPLE)),
            arg: take(rocpd::ARG, rows(rocpd::ARG)),
        };
        blocks.push((fact.block, Some(keys)));
    }
    reserve_placeholders(&mut spaces, stored.iter().chain(&native));
    let stacks = stacks(shard, stored.iter().chain(&native));
    let process = shard.processes.get(&number).cloned().unwrap_or_else(|| unknown_process(shard, number));
    Source { process, spaces, stacks, blocks, tracks }
}

/// Sets a key aside in every table that is referred to where it has no row.
fn reserve_placeholders<'a>(
    spaces: &mut BTreeMap<TableId, KeySpace>,
    facts: impl Iterator<Item = &'a BlockFacts>,
) {
    let mut needed: BTreeSet<TableId> = BTreeSet::new();
    for (table, (low, high)) in facts.flat_map(|f| &f.refs) {
        if matches!(*table, rocpd::INFO_NODE | rocpd::INFO_PROCESS) {
            continue;
        }
        let space = spaces.entry(*table).or_default();
        let whole = space.stored.len() <= 1 && space.contains(*low) && space.contains(*high);
        if !whole {
            needed.insert(*table);
        }
    }
    // A placeholder refers to placeholders itself: a kernel symbol needs a code object.
    let mut queue: Vec<TableId> = needed.iter().copied().collect();
    while let Some(table) = queue.pop() {
        for column in Schema::builtin().get(table).iter().flat_map(|t| &t.columns) {
            if let Kind::Ref(target) = column.kind
                && column.sql.not_null
                && !matches!(target, rocpd::INFO_NODE | rocpd::INFO_PROCESS)
                && needed.insert(target)
            {
                queue.push(target);
            }
        }
    }
    for table in needed {
        let space = spaces.entry(table).or_default();
        if space.next == 0 {
            *space = KeySpace { next: 1, expanded: (1, 1), ..KeySpace::default() };
        }
        space.placeholder = Some(space.next);
        space.next += 1;
    }
}

fn stacks<'a>(shard: &Shard, facts: impl Iterator<Item = &'a BlockFacts>) -> StackSpace {
    let blocks: Vec<_> = facts.filter_map(|f| f.stacks.map(|bounds| (f.block, bounds))).collect();
    let low = blocks.iter().map(|(_, b)| b.0).min().unwrap_or(0);
    let high = blocks.iter().map(|(_, b)| b.1).max().unwrap_or(0);
    if low >= 0 && high <= MAX_SHIFTED_STACK {
        return StackSpace::Offset(high);
    }
    let mut values = BTreeSet::new();
    for (block, _) in &blocks {
        let Ok(rows) = shard.rows(block) else { continue };
        for (column, cells) in rows.table.columns.iter().zip(&rows.columns) {
            if column.kind == Kind::Stack {
                values.extend((0..rows.len).filter_map(|i| cells.int(i)).filter(|v| *v != 0));
            }
        }
    }
    StackSpace::Dictionary(values.into_iter().collect())
}

/// Rows that were written, by the ledger or by the headers, and could not be read.
fn missing_rows(shard: &Shard, readable: &BTreeMap<(u32, TableId), u64>) -> Vec<Loss> {
    let mut written: BTreeMap<(u32, TableId), u64> = BTreeMap::new();
    let headers = shard.blocks().iter().map(|b| b.header);
    let cut = shard.damage().iter().filter_map(|d| d.block);
    for header in headers.chain(cut) {
        if let BlockKind::Rows(table) = header.kind
            && (table == rocpd::STRING || expand::is_native(table) || is_written(table))
        {
            let rows = written.entry((header.source, table)).or_default();
            *rows = (*rows).max(header.next_key().saturating_sub(1) as u64);
        }
    }
    if let Some(ledger) = &shard.ledger {
        for (source, table, rows) in &ledger.written {
            let known = written.entry((*source, *table)).or_default();
            *known = (*known).max(*rows);
        }
    }
    let cause = if shard.ledger.is_some() { LossCause::DamagedBlock } else { LossCause::Truncated };
    let mut losses: Vec<Loss> = written
        .into_iter()
        .filter_map(|((source, table), rows)| {
            let lost = rows.saturating_sub(readable.get(&(source, table)).copied().unwrap_or(0));
            (lost > 0).then_some(Loss { source, table: Some(table), cause, rows: Some(lost) })
        })
        .collect();
    // Without the collector's last word nobody knows what stood in damaged or missing bytes.
    if shard.ledger.is_none() && shard.damage().iter().any(|d| d.block.is_none()) {
        losses.push(Loss { source: 0, table: None, cause, rows: None });
    }
    losses
}

/// Stands for a process whose records were both lost.
fn unknown_process(shard: &Shard, number: u32) -> Process {
    Process {
        source: number,
        rank: shard.identity.rank,
        size: shard.identity.size,
        local_rank: None,
        rank_from: None,
        worker: false,
        restart: 0,
        node: Node::default(),
        domain: ClockDomain { boot_id: String::new(), time_namespace: 0 },
        clock: Clock::Boottime,
        pid: -1,
        ppid: -1,
        start_ticks: 0,
        first_seen: 0,
        last_seen: None,
        command: "(lost)".to_owned(),
        environment: Vec::new(),
        exit: None,
    }
}
