//! Reads an input once, before ids are assigned. Counts rows, keys, strings and stack ids, and finds damage. Decodes
//! every block, so that the counts are exact.

use super::block_facts::{BlockFacts, SourceFacts, facts};
use super::collectives::settle_collectives;
use super::command_endings::CommandEndings;
use super::database::survey_database;
use super::death::ProcessCrash;
use super::expand::{self, BuiltinString};
use super::foreign_blocks::ForeignBlocks;
use super::gone::changed;
use super::home::HostClocks;
use super::opened::{InputTables, OpenInput, needed_rows};
use super::plan::PlannedInput;
use super::profiler_losses::{ProfilerLosses, damaged_profiler_losses};
use super::schema::JobSchema;
use super::set_strings::SetStrings;
use super::source::{ExpandedKeys, InputSource, KeySpace, SourcePiece, SourceTracks, StackSpace};
use super::translate::TRANSLATED;
use crate::strings::{StringHash, hash};
use rayon::prelude::*;
use rpd_collectives::{CallSample, ProcessCollectives};
use rpd_console::Failure;
use rpd_rocpd::read::Database;
use rpd_shard::Shard;
use rpd_shard::file::{BlockError, BlockKind, BlockRef, Damage, ShardStrings};
use rpd_shard::identity::unnamed_node;
use rpd_shard::model::{Column, Kind, TableId, native, rocpd};
use rpd_shard::record::{COMMAND_SOURCE, Clock, ClockDomain, Loss, LossCause, Node, Process};
use rpd_translate::Format;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;

/// Maximum number of warnings per shard; it counts the others.
const MAX_WARNINGS: usize = 20;
/// Blocks that are decoded at the same time, before their facts are combined.
const BLOCKS_AT_ONCE: usize = 256;

/// An input after its survey.
#[derive(Debug, Default)]
pub(crate) struct InputSurvey {
    /// The input, with its file closed.
    pub input: OpenInput,
    /// For each string table, position and hash of each string, followed by the builtin strings in use. Texts are
    /// read again when they are written, because a job has many inputs with the same strings.
    pub hashes: Vec<Vec<(u32, StringHash)>>,
    /// For each string table, the properties that a table set needs; only for the partitioned layout.
    pub set_strings: Vec<SetStrings>,
    /// Sources, in output order.
    pub sources: Vec<InputSource>,
    /// Missing rows: those that the collector recorded as lost, and those that the survey found missing.
    pub losses: Vec<Loss>,
    /// Rows read, per table of the input.
    pub rows_read: BTreeMap<TableId, u64>,
    /// One line per damaged place.
    pub warnings: Vec<String>,
    /// Processes that died by a signal, and ranks that failed.
    pub deaths: Vec<ProcessCrash>,
    /// How the command of a shard ended.
    pub commands: CommandEndings,
    /// Profilers whose rows are missing.
    pub profiler_losses: ProfilerLosses,
    /// Bytes of text in a shard's output rows, per table. Cleared after they were added to the planned size.
    pub texts: BTreeMap<TableId, u64>,
}

/// Surveys a planned input. An input that shrank or was replaced counts as vanished; a shard may have grown.
pub(crate) fn survey(
    planned: &PlannedInput,
    job: &JobSchema,
    homes: &HostClocks,
    sample: &CallSample,
) -> Result<InputSurvey, Failure> {
    let path = &planned.path;
    let another = |what: &str| changed(path, &io::Error::other(what.to_owned()));
    if planned.format == Format::RocPd {
        let database = Database::open(path).map_err(|error| changed(path, &error))?;
        let guid = |space: &usize| database.spaces().get(*space).map(|space| &space.guid);
        if database.bytes() != planned.bytes
            || !planned.spaces.iter().map(guid).eq(planned.guids.iter().map(Some))
        {
            return Err(another("it is another database than it was"));
        }
        return Ok(survey_database(database, &planned.spaces, job, homes, sample));
    }
    let mut shard = Shard::open(path).map_err(|error| changed(path, &error))?;
    if shard.bytes() < planned.bytes {
        return Err(another("it is shorter than it was"));
    }
    if let Some(command) = shard.command.clone().filter(|_| planned.shows_command) {
        shard.processes.entry(COMMAND_SOURCE).or_insert(*command);
    }
    Ok(survey_shard(shard, planned.running_until.is_some(), job, homes, sample))
}

/// Surveys a shard, with its blocks in parallel. If its collector is still running, a missing end is not a loss.
fn survey_shard(
    shard: Shard,
    is_running: bool,
    job: &JobSchema,
    homes: &HostClocks,
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
        let said = std::mem::take(&mut gathered.collectives);
        let native: Vec<BlockRef> =
            facts.iter().filter(|fact| fact.is_native()).map(|fact| fact.block).collect();
        let mut source = source(&shard, number, &tables, job, &gathered, facts);
        source.collectives = said;
        homes.settle_rank(&shard.identity.run_id, &mut source.process);
        if homes.agree_on_result(&mut source.process) {
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
    settle_collectives(&shard, &strings, homes, sample, &mut sources);
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

/// Returns the hashes of the builtin strings in use. They follow the strings of their table.
pub(super) fn hashes_of_words(
    words: &BTreeSet<BuiltinString>,
) -> impl Iterator<Item = (u32, StringHash)> + '_ {
    words.iter().map(|word| (word.index(), hash(word.text().as_bytes())))
}

/// Keeps the first warnings of an input and counts the others.
pub(super) fn shorten(warnings: &mut Vec<String>, most: usize, path: &Path) {
    if warnings.len() > most {
        let more = warnings.len() - most;
        warnings.truncate(most);
        warnings.push(format!("{}: {more} more such lines", path.display()));
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

/// Returns whether rows of a table reach the output, stored or expanded. Node and process rows are made separately.
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
            let (fact, told) = match decoded {
                Ok(both) => both,
                Err(error) => {
                    warnings.push(error.to_string());
                    continue;
                }
            };
            // Keys of one process's table ascend. A block that repeats keys belongs to another shard.
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
            gathered.add(told, sample);
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

/// Returns whether a row of a block has a mandatory reference to a row of `target` that does not exist.
fn leads_nowhere(
    shard: &Shard,
    tables: &InputTables,
    block: &BlockRef,
    target: TableId,
    spaces: &BTreeMap<TableId, KeySpace>,
) -> bool {
    let is_link = |column: &Column| column.kind == Kind::Ref(target) && column.sql.not_null;
    let space = spaces.get(&target);
    let is_there = |key| space.is_some_and(|space| space.stored(key).is_some());
    // An unreadable block was reported before.
    let Ok(rows) = needed_rows(shard, tables, block, &is_link) else { return false };
    let links = rows.table.columns.iter().zip(&rows.columns).filter(|(column, _)| is_link(column));
    let mut missing = links.flat_map(|(_, cells)| (0..rows.len).map(|i| cells.int(i)));
    missing.any(|key| !key.is_some_and(is_there))
}

/// Reserves a placeholder row in every table that lacks a referenced row.
pub(super) fn reserve_placeholders(
    spaces: &mut BTreeMap<TableId, KeySpace>,
    missing: BTreeSet<TableId>,
    job: &JobSchema,
) {
    // A node always exists, and rows of a lost process are assigned to the first existing process.
    let has_process = spaces.get(&rocpd::INFO_PROCESS).is_some_and(|space| !space.stored.is_empty());
    let has_own_row = |table: &TableId| match *table {
        rocpd::INFO_PROCESS => has_process,
        table => table == rocpd::INFO_NODE,
    };
    let mut needed: BTreeSet<TableId> = missing.into_iter().filter(|table| !has_own_row(table)).collect();
    // A placeholder can need other placeholders: a kernel symbol refers to a code object.
    let mut queue: Vec<TableId> = needed.iter().copied().collect();
    while let Some(table) = queue.pop() {
        for column in job.get(table).iter().flat_map(|t| &t.columns) {
            if let Kind::Ref(target) = column.kind
                && column.sql.not_null
                && !has_own_row(&target)
                && needed.insert(target)
            {
                queue.push(target);
            }
        }
    }
    for table in needed {
        let space = spaces.entry(table).or_default();
        space.placeholder = Some(space.next);
        space.next += 1;
    }
}

/// Returns the rows that were written according to the ledger or block headers, but could not be read.
fn missing_rows(
    shard: &Shard,
    is_merged: impl Fn(TableId) -> bool,
    readable: &BTreeMap<(u32, TableId), u64>,
) -> Vec<Loss> {
    let mut written: BTreeMap<(u32, TableId), u64> = BTreeMap::new();
    let headers = shard.blocks().iter().map(|b| b.header);
    let cut = shard.damage().iter().filter_map(|d| d.block);
    let by_headers = headers.chain(cut).filter_map(|header| match header.kind {
        BlockKind::Rows(table) => Some((header.source, table, header.next_key().saturating_sub(1) as u64)),
        _ => None,
    });
    let by_ledger = shard.ledger.iter().flat_map(|ledger| ledger.written.iter().copied());
    for (source, table, rows) in by_headers.chain(by_ledger) {
        if is_merged(table) && source != 0 || (source, table) == (0, rocpd::STRING) {
            let known = written.entry((source, table)).or_default();
            *known = (*known).max(rows);
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
    // Without the ledger at the end of a shard, further losses are unknown.
    if shard.ledger.is_none() {
        losses.push(Loss { source: 0, table: None, cause, rows: None });
    }
    losses
}

/// Returns whether a loss may include an MPI call of this process. Rows at the cut end of a shard are later than all
/// recorded calls.
fn may_be_call_of(loss: &Loss, source: u32) -> bool {
    let is_of_process = loss.source == source || loss.source == 0;
    let is_of_table =
        loss.table.map_or(loss.cause != LossCause::Truncated, |table| table == native::MPI_CALL);
    is_of_process && is_of_table && loss.rows != Some(0)
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
