//! Survey of a shard.

use super::collectives::complete_collectives;
use super::command_exits::CommandExits;
use super::crashed::ProcessCrash;
use super::foreign_blocks::ForeignBlocks;
use super::input_survey::{InputSurvey, shorten, string_hashes};
use super::placeholders::{may_be_call_of, missing_rows};
use super::profiler_losses::{ProfilerLosses, damaged_profiler_losses};
use super::shard_source::{assign_keys, blocks_by_source, decode_blocks, is_merged};
use crate::input::listing::TRANSLATED;
use crate::input::{BuiltinString, HostClocks, InputSource, InputTables, JobSchema, OpenInput};
use rpd_collectives::CallSample;
use rpd_shard::Shard;
use rpd_shard::file::{BlockKind, Damage};
use rpd_shard::model::{TableId, rocpd};
use rpd_shard::record::{Loss, LossCause};
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of warnings per shard; it counts the others.
const MAX_WARNINGS: usize = 20;

/// Surveys a shard, with its blocks in parallel. If its collector is still running, a missing end is not a loss.
pub(super) fn survey_shard(
    shard: Shard,
    is_running: bool,
    job: &JobSchema,
    host_clocks: &HostClocks,
    sample: &CallSample,
) -> InputSurvey {
    let tables: InputTables = job.adopt(shard.schema());
    let is_merged = |table| is_merged(table, &tables);
    let (strings, string_errors) = shard.strings();
    let mut warnings: Vec<String> = string_errors.iter().map(ToString::to_string).collect();
    let mut losses: Vec<Loss> = shard.ledger.iter().flat_map(|l| l.losses.clone()).collect();
    let mut readable: BTreeMap<(u32, TableId), u64> = BTreeMap::new();
    readable.insert((0, rocpd::STRING), strings.iter().count() as u64);
    let mut builtins = BTreeSet::new();
    let mut sources = Vec::new();
    let mut deaths = Vec::new();
    let mut foreign = ForeignBlocks::default();
    let mut texts: BTreeMap<TableId, u64> = BTreeMap::new();
    texts.insert(rocpd::STRING, strings.iter().map(|(_, text)| text.len() as u64).sum());
    for (number, blocks) in blocks_by_source(&shard, is_merged, &mut losses) {
        let (mut gathered, facts) = decode_blocks(&shard, &tables, &blocks, &strings, sample, &mut warnings);
        for fact in &facts {
            let BlockKind::Rows(table) = fact.block.header.kind else { continue };
            *readable.entry((number, table)).or_default() += u64::from(fact.block.header.rows);
            builtins.extend(BuiltinString::of_table(table));
            for (table, bytes) in &fact.texts {
                let known = texts.entry(*table).or_default();
                *known = known.saturating_add(*bytes);
            }
        }
        let calls = std::mem::take(&mut gathered.collectives);
        let native: Vec<_> = facts.iter().filter(|fact| fact.is_native()).map(|fact| fact.block).collect();
        let mut source = assign_keys(&shard, number, &tables, job, &gathered, facts);
        source.collectives = calls;
        host_clocks.settle_rank(&shard.identity.run_id, &mut source.process);
        if host_clocks.find_node(&mut source.process) {
            source.nodes = vec![(1, source.process.node.clone())];
        }
        if gathered.lost_strings || source.spaces.values().any(|s| s.placeholder.is_some()) {
            builtins.insert(BuiltinString::Lost);
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
    let job_id = |table: TableId| tables.get(&table).map_or(table, |t| t.id);
    let mut rows_read = BTreeMap::new();
    for ((_, table), rows) in &readable {
        *rows_read.entry(job_id(*table)).or_default() += rows;
    }
    losses.iter_mut().for_each(|loss| loss.table = loss.table.map(job_id));
    shard.release();
    InputSurvey {
        hashes: vec![string_hashes(&strings, &builtins)],
        commands: CommandExits::of(shard.command.as_deref()),
        profiler_losses: ProfilerLosses::of(&shard.profiler_losses),
        input: OpenInput::Shard(shard),
        sources,
        losses,
        rows_read,
        names_mpi: strings.iter().any(|(_, text)| InputSurvey::is_mpi_function(text)),
        warnings,
        deaths,
        texts,
        ..InputSurvey::default()
    }
}
