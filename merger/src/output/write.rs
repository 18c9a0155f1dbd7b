//! Phase 4: the rows of this rank's sources, read again, renumbered, written.

use super::provenance;
use crate::agree::nodes::Nodes;
use crate::agree::strings::StringIds;
use crate::clock::Clocks;
use crate::failure::Failure;
use crate::input::expand::{self, Context, Word};
use crate::input::source::Origin;
use crate::input::survey::Survey;
use crate::number::{Bases, Replaced, SourceMap, placeholders};
use crate::report::progress::Progress;
use rayon::prelude::*;
use rpd_rocpd::{Guid, Writer};
use rpd_shard::file::{BlockError, ShardStrings};
use rpd_shard::model::{Cells, Keys, Merged, Rows, RowsBuilder, Schema, TableId, Value, rocpd};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Rows of strings that are written at once.
const STRING_BATCH: usize = 16_384;

/// What all ranks agreed on.
#[derive(Debug)]
pub struct Job<'a> {
    /// Of the output.
    pub guid: Guid,
    /// All clocks.
    pub clocks: &'a Clocks,
    /// All nodes.
    pub nodes: &'a Nodes,
}

/// What this rank writes.
#[derive(Debug)]
pub struct Share<'a> {
    /// Its shards.
    pub surveys: &'a [Survey],
    /// Per shard and source.
    pub bases: &'a [Vec<Bases>],
    /// Its strings.
    pub strings: &'a StringIds,
}

/// What was written.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Written {
    /// Rows per table.
    pub rows: BTreeMap<TableId, u64>,
    /// Of those, rows that stand for lost ones.
    pub placeholders: BTreeMap<TableId, u64>,
    /// Values that could not be kept.
    pub replaced: Replaced,
}

impl Written {
    /// Adds to a table's rows.
    pub fn count(&mut self, table: TableId, rows: u64) {
        *self.rows.entry(table).or_default() += rows;
    }

    /// Adds what another rank wrote.
    pub fn add(&mut self, other: Written) {
        other.rows.into_iter().for_each(|(table, rows)| self.count(table, rows));
        for (table, rows) in other.placeholders {
            *self.placeholders.entry(table).or_default() += rows;
        }
        self.add_replaced(other.replaced);
    }

    fn add_replaced(&mut self, replaced: Replaced) {
        for (place, rows) in replaced {
            *self.replaced.entry(place).or_default() += rows;
        }
    }
}

/// Writes this rank's strings and the rows of its sources.
pub fn write_share(
    writer: &mut Writer,
    job: &Job<'_>,
    share: &Share<'_>,
    written: &mut Written,
    progress: &Progress,
) -> Result<(), Failure> {
    let mut strings_to_write = share.strings.written.iter().peekable();
    for (number, survey) in share.surveys.iter().enumerate() {
        let (texts, _) = survey.shard.strings();
        let ids = std::iter::from_fn(|| strings_to_write.next_if(|(_, shard, _)| *shard == number));
        write_strings(writer, &texts, ids.map(|(id, _, index)| (*id, *index)), written)?;
        // A shard's strings come first, the words behind them.
        let map = &share.strings.maps[number];
        let (own, words) = map.split_at(map.len() - Word::ALL.len());
        for (source, bases) in survey.sources.iter().zip(&share.bases[number]) {
            let map = SourceMap {
                source,
                bases,
                node: job.nodes.id(&source.process.node).unwrap_or(1),
                strings: own,
                words,
                fit: job.clocks.process_fit(&source.process),
            };
            write_source(writer, survey, &texts, &map, written)?;
        }
        survey.shard.release();
        progress.add(survey.shard.bytes());
    }
    Ok(())
}

/// Strings of this shard that are nowhere before it; index counts the shard's strings, then the words.
fn write_strings(
    writer: &mut Writer,
    texts: &ShardStrings,
    ids: impl Iterator<Item = (i64, usize)>,
    written: &mut Written,
) -> Result<(), Failure> {
    let Some(table) = Schema::builtin().get(rocpd::STRING) else { return Ok(()) };
    let own = texts.next_id() as usize - 1;
    let mut ids = ids.peekable();
    while ids.peek().is_some() {
        let mut rows = RowsBuilder::new(table);
        let mut keys = Vec::with_capacity(STRING_BATCH);
        for (id, index) in ids.by_ref().take(STRING_BATCH) {
            let text = match index.checked_sub(own) {
                Some(word) => Word::ALL[word].text().as_bytes(),
                None => texts.get(index as i64 + 1).unwrap_or_default(),
            };
            keys.push(id);
            rows.push(&[Value::Text(text)]);
        }
        let rows = rows.finish(1);
        let columns: Vec<Cells> = rows.columns.clone();
        written.count(rocpd::STRING, writer.append(&rows.into_merged(Keys::Sparse(keys), columns))?);
    }
    Ok(())
}

fn write_source(
    writer: &mut Writer,
    survey: &Survey,
    texts: &ShardStrings,
    map: &SourceMap<'_>,
    written: &mut Written,
) -> Result<(), Failure> {
    let source = map.source;
    if let Some(process) = provenance::process_row(&survey.shard, map) {
        written.count(rocpd::INFO_PROCESS, writer.append(&process)?);
    }
    let context = Context {
        strings: texts,
        tracks: &source.tracks,
        last_seen: source.process.last_seen.unwrap_or(source.process.first_seen),
    };
    let mut replaced = Replaced::new();
    for rows in placeholders(source) {
        // It stands for rows: what it refers to is not counted as lost once more.
        let rows = map.renumber(rows, Origin::Stored, &mut Replaced::new());
        *written.placeholders.entry(rows.id()).or_default() += 1;
        append(writer, &rows, written)?;
    }
    if let Some(tracks) = expand::tracks(&source.tracks) {
        append(writer, &map.renumber(tracks, Origin::Expanded, &mut replaced), written)?;
    }
    written.add_replaced(replaced);
    // As many blocks at once as there are threads: memory stays bounded, order stays that of the file.
    for blocks in source.blocks.chunks(rayon::current_num_threads() * 2) {
        let batches: Vec<_> = blocks
            .par_iter()
            .map(|(block, keys)| {
                let rows = survey.shard.rows(block)?;
                let mut replaced = Replaced::new();
                let (origin, rows) = match keys {
                    Some(keys) => (Origin::Expanded, expand::expand(&rows, keys, &context, &mut replaced)),
                    None => (Origin::Stored, vec![rows]),
                };
                let renumber = |rows| map.renumber(rows, origin, &mut replaced);
                let merged: Vec<_> = rows.into_iter().map(renumber).collect();
                Ok((merged, replaced))
            })
            .collect::<Result<_, BlockError>>()
            .map_err(|error| {
                Failure::Input(format!("{error}; the file changed while it was merged: merge again"))
            })?;
        for (merged, replaced) in batches {
            merged.iter().try_for_each(|rows| append(writer, rows, written))?;
            written.add_replaced(replaced);
        }
    }
    Ok(())
}

fn append(writer: &mut Writer, rows: &Rows<Merged>, written: &mut Written) -> Result<(), Failure> {
    written.count(rows.id(), writer.append(rows)?);
    Ok(())
}
