//! Reads an input once, before ids are assigned. Counts rows, keys, strings and stack ids, and finds damage. Decodes
//! every block, so that the counts are exact.

pub(super) mod block_facts;
pub(super) mod collectives;
pub(crate) mod command_endings;
pub(crate) mod crashed;
pub(crate) mod database;
pub(super) mod foreign_blocks;
pub(crate) mod input_survey;
pub(super) mod placeholders;
pub(crate) mod profiler_losses;
pub(super) mod resident_size;
pub(super) mod row_texts;

use self::{command_endings::CommandEndings, crashed::ProcessCrash, database::survey_database};
use crate::input::expand::{self, BuiltinString};
use crate::input::host_clocks::HostClocks;
use crate::input::listing::translate::TRANSLATED;
use crate::input::opened::{InputTables, OpenInput};
use crate::input::plan::PlannedInput;
use crate::input::schema::JobSchema;
use crate::input::source::{ExpandedKeys, InputSource, KeySpace, SourcePiece, SourceTracks, StackSpace};
use crate::input::survey::block_facts::{BlockFacts, SourceFacts, facts};
use crate::input::survey::collectives::complete_collectives;
use crate::input::survey::foreign_blocks::ForeignBlocks;
use crate::input::survey::input_survey::{InputSurvey, hashes_of_words, shorten};
use crate::input::survey::placeholders::{leads_nowhere, may_be_call_of, missing_rows, reserve_placeholders};
use crate::input::survey::profiler_losses::{ProfilerLosses, damaged_profiler_losses};
use crate::input::vanished::vanished_input;
use crate::strings::hash;
use rayon::prelude::*;
use rpd_collectives::{CallSample, ProcessCollectives};
use rpd_console::Failure;
use rpd_foreign::Format;
use rpd_rocpd::read::Database;
use rpd_shard::Shard;
use rpd_shard::file::{BlockError, BlockKind, BlockRef, Damage, ShardStrings};
use rpd_shard::identity::unnamed_node;
use rpd_shard::model::{TableId, rocpd};
use rpd_shard::record::{COMMAND_SOURCE, Clock, ClockDomain, Loss, LossCause, Node, Process};
use std::collections::{BTreeMap, BTreeSet};
use std::io;

/// Maximum number of warnings per shard; it counts the others.
const MAX_WARNINGS: usize = 20;
/// Blocks that are decoded at the same time, before their facts are combined.
const BLOCKS_AT_ONCE: usize = 256;

/// Surveys a planned input. An input that vanished, shrank or was replaced since the plan is a vanished input; a
/// shard may have grown.
pub(crate) fn survey(
    planned: &PlannedInput,
    job: &JobSchema,
    host_clocks: &HostClocks,
    sample: &CallSample,
) -> Result<InputSurvey, Failure> {
    let path = &planned.path;
    let another = |what: &str| vanished_input(path, &io::Error::other(what.to_owned()));
    if planned.format == Format::RocPd {
        let database = Database::open(path).map_err(|error| vanished_input(path, &error))?;
        let guid = |space: &usize| database.spaces().get(*space).map(|space| &space.guid);
        if database.bytes() != planned.bytes
            || !planned.spaces.iter().map(guid).eq(planned.guids.iter().map(Some))
        {
            return Err(another("it is another database than it was"));
        }
        return Ok(survey_database(database, &planned.spaces, job, host_clocks, sample));
    }
    let mut shard = Shard::open(path).map_err(|error| vanished_input(path, &error))?;
    if shard.bytes() < planned.bytes {
        return Err(another("it is shorter than it was"));
    }
    if let Some(command) = shard.command.clone().filter(|_| planned.shows_command) {
        shard.processes.entry(COMMAND_SOURCE).or_insert(*command);
    }
    Ok(survey_shard(shard, planned.running_until.is_some(), job, host_clocks, sample))
}

/// Surveys a shard, with its blocks in parallel. If its collector is still running, a missing end is not a loss.
fn survey_shard(
    shard: Shard,
    is_running: bool,
    job: &JobSchema,
    host_clocks: &HostClocks,
    sample: &CallSample,
) -> InputSurvey {
    let tables: InputTables = job.adopt(shard.schema());
    let is_merged = |table| is_merged(table, &tables);
    let (strings, string_errors) = shard.strings();
    let mut warnings: Vec<String> = string_errors.iter().map(BlockError::to_string).collect();
    let mut losses: Vec<Loss> = shard.ledger.iter().flat_map(|l| l.losses.clone()).collect();
    let mut readable: BTreeMap<(u32, TableId), u64> = BTreeMap::new();
    readable.insert((0, rocpd::STRING), strings.iter().count() as u64);
    let mut words = BTreeSet::new();
    let mut sources = Vec::new();
    let mut deaths = Vec::new();
    let mut foreign = ForeignBlocks::default();
    let mut texts: BTreeMap<TableId, u64> = BTreeMap::new();
    texts.insert(rocpd::STRING, strings.iter().map(|(_, text)| text.len() as u64).sum());
    for (number, blocks) in blocks_by_source(&shard, is_merged, &mut losses) {
        let (mut gathered, facts) = gather(&shard, &tables, &blocks, &strings, sample, &mut warnings);
        for fact in &facts {
            let BlockKind::Rows(table) = fact.block.header.kind else { continue };
            *readable.entry((number, table)).or_default() += u64::from(fact.block.header.rows);
            words.extend(BuiltinString::of_table(table));
            for (table, bytes) in &fact.texts {
                let known = texts.entry(*table).or_default();
                *known = known.saturating_add(*bytes);
            }
        }
        let calls = std::mem::take(&mut gathered.collectives);
        let native: Vec<BlockRef> =
            facts.iter().filter(|fact| fact.is_native()).map(|fact| fact.block).collect();
        let mut source = source(&shard, number, &tables, job, &gathered, facts);
        source.collectives = calls;
        host_clocks.settle_rank(&shard.identity.run_id, &mut source.process);
        if host_clocks.find_node(&mut source.process) {
            source.nodes = vec![(1, source.process.node.clone())];
        }
        if gathered.lost_strings || source.spaces.values().any(|s| s.placeholder.is_some()) {
            words.insert(BuiltinString::Lost);
        }
        if shard.processes.contains_key(&number) {
            foreign.check_pid(&shard, number, &mut source.process, !native.is_empty());
        } else {
            foreign.without_record(&shard, number);
        }
        foreign.check_threads((&shard, &tables), number, &native, source.spaces.get(&rocpd::INFO_THREAD));
        deaths.extend(ProcessCrash::of(&source.process, &gathered.open, &strings));
        sources.push(source);
    }
    // A translated file determines its own order, because the nodes of a `.rpd` file are numbered.
    if shard.identity.run_id_from != TRANSLATED {
        sources.sort_by_cached_key(InputSource::order);
    }
    let commands = CommandEndings::of(shard.command.as_deref());
    let profiler_losses = ProfilerLosses::of(&shard.profiler_losses);
    complete_collectives(&shard, &strings, host_clocks, sample, &mut sources);
    losses.extend(damaged_profiler_losses(&shard));
    let missing = missing_rows(&shard, is_merged, &readable);
    let is_cut = is_running || missing.iter().any(|loss| loss.cause == LossCause::Truncated);
    losses.extend(missing.into_iter().filter(|loss| !is_running || loss.cause != LossCause::Truncated));
    for source in &mut sources {
        (source.collectives.is_cut, source.collectives.is_running) = (is_cut, is_running);
        source.collectives.lacks_calls =
            losses.iter().any(|loss| may_be_call_of(loss, source.process.source));
    }
    foreign.check_counts(&shard, &readable);
    warnings.extend(foreign.warnings);
    losses.extend(foreign.losses);
    let is_to_come = |damage: &&Damage| is_running && damage.offset + damage.bytes >= shard.bytes();
    warnings.extend(shard.damage().iter().filter(|damage| !is_to_come(damage)).map(|damage| {
        let path = shard.path().display();
        format!("{path}: {} bytes at offset {} are damaged", damage.bytes, damage.offset)
    }));
    shorten(&mut warnings, MAX_WARNINGS, shard.path());
    let own = strings.iter().map(|(id, text)| ((id - 1) as u32, hash(text)));
    let hashes = vec![own.chain(hashes_of_words(&words)).collect()];
    let job_id = |table: TableId| tables.get(&table).map_or(table, |t| t.id);
    let mut rows_read = BTreeMap::new();
    for ((_, table), rows) in &readable {
        *rows_read.entry(job_id(*table)).or_default() += rows;
    }
    losses.iter_mut().for_each(|loss| loss.table = loss.table.map(job_id));
    shard.release();
    let set_strings = Vec::new();
    let input = OpenInput::Shard(shard);
    InputSurvey {
        input,
        hashes,
        set_strings,
        sources,
        losses,
        rows_read,
        warnings,
        deaths,
        commands,
        profiler_losses,
        texts,
    }
}

/// Returns the row blocks per process, in file order. Blocks of tables without an output table are counted as losses.
fn blocks_by_source(
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
fn is_merged(table: TableId, tables: &InputTables) -> bool {
    expand::is_native(table)
        || tables.contains_key(&table)
            && !matches!(table, rocpd::STRING | rocpd::INFO_NODE | rocpd::INFO_PROCESS)
}

/// Decodes the blocks of one process and combines their facts.
fn gather(
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
            let first = fact.runs.first().map_or(header.first_key, |run| run.0);
            if header.first_key < *next || first < *next_key {
                warnings.push(format!(
                    "{}: block at offset {} repeats keys from {first} on: left out",
                    shard.path().display(),
                    fact.block.offset,
                ));
                continue;
            }
            *next = header.next_key();
            *next_key = fact.runs.last().map_or(*next_key, |run| run.1);
            gathered.add(source_facts, sample);
            good.push(fact);
        }
    }
    (gathered, good)
}

/// Assigns the key spaces of one process.
fn source(
    shard: &Shard,
    number: u32,
    tables: &InputTables,
    job: &JobSchema,
    gathered: &SourceFacts,
    facts: Vec<BlockFacts>,
) -> InputSource {
    let mut spaces: BTreeMap<TableId, KeySpace> = BTreeMap::from([(rocpd::INFO_PROCESS, KeySpace::one(1))]);
    let (native, mut stored): (Vec<_>, Vec<_>) = facts.into_iter().partition(|f| f.is_native());
    for fact in &stored {
        let header = fact.block.header;
        let BlockKind::Rows(table) = header.kind else { continue };
        let Some(table) = tables.get(&table) else { continue };
        let space = spaces.entry(table.id).or_default();
        fact.runs.iter().for_each(|(first, next)| space.add_keys(*first, *next));
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
    InputSource { process, nodes, spaces, stacks, pieces, tracks, string_table: 0, tables, collectives }
}

/// Returns a placeholder for a process without a process record. Other processes of its shard ran on the same node.
fn unknown_process(shard: &Shard, number: u32) -> Process {
    let sibling = shard.processes.values().next();
    let recorded = shard.clocks.first().map(|set| set.domain.clone());
    let nowhere = ClockDomain { boot_id: String::new(), time_namespace: 0 };
    let domain = sibling.map(|p| p.domain.clone()).or(recorded).unwrap_or(nowhere);
    let boot_id = domain.boot_id.clone();
    Process {
        source: number,
        rank: shard.identity.rank,
        size: shard.identity.size,
        local_rank: None,
        rank_from: None,
        worker: false,
        restart: 0,
        node: sibling.map_or(Node { boot_id, ..Node::default() }, |p| p.node.clone()),
        domain,
        clock: Clock::Boottime,
        pid: 0,
        ppid: 0,
        start_ticks: 0,
        first_seen: 0,
        last_seen: None,
        command: "(lost)".to_owned(),
        environment: Vec::new(),
        exit: None,
    }
}
