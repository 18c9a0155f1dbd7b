//! Phase 4: reads the rows of this rank's sources again, expands and renumbers them.

use super::block_rows::{TakeMadeRows, TakeMergedRows, take_block, take_joined_block};
use super::loaded_strings::LoadedStrings;
use super::piece_rows::PieceRows;
use super::provenance;
use super::rank_names;
use super::row_context::RowContext;
use super::written_rows::WrittenRows;
use crate::input::survey::InputSurvey;
use crate::input::{OpenInput, PieceRef, RowOrigin, SourcePiece, StringMap, expand, vanished_input};
use crate::number::{ReplacedValues, SourceBases, SourceMap, placeholders};
use crate::strings::StringIds;
use rpd_console::Failure;
use rpd_rocpd::read::Wanted;
use rpd_shard::model::{Merged, Rows, TableId, rocpd};
use std::collections::BTreeMap;

/// Makes merged rows of the pieces of this rank's inputs. Threads share it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RowMaker<'a> {
    pub(crate) job: RowContext<'a>,
    pub(crate) surveys: &'a [InputSurvey],
    /// Id bases, per input and source.
    pub(crate) bases: &'a [Vec<SourceBases>],
    pub(crate) strings: &'a StringIds,
}

impl RowMaker<'_> {
    /// Passes rows of a piece to `take`, table by table; ids other than those of processes ascend. `loaded` are the strings
    /// of its input.
    pub(crate) fn make(
        &self,
        part: PieceRef,
        what: PieceRows,
        loaded: &LoadedStrings,
        written: &mut WrittenRows,
        take: &mut TakeMergedRows<'_>,
    ) -> Result<(), Failure> {
        let survey = &self.surveys[part.input];
        let source = &survey.sources[part.source];
        let piece = &source.pieces[part.piece];
        let no_strings = StringMap::default();
        let map = self.source_map(part, loaded.maps.get(source.string_table).unwrap_or(&no_strings));
        let mut replaced = ReplacedValues::new();
        let mut stand_ins = BTreeMap::new();
        let mut count = |mut rows: Rows<Merged>| {
            if self.job.names_ranks {
                rank_names::add_ranks(&mut rows, &survey.input, &map);
            }
            written.count_rows(&rows);
            take(rows)
        };
        match (piece, &survey.input) {
            (SourcePiece::Process, OpenInput::Shard(shard)) => {
                if let Some(process) = provenance::process_row(shard, &map, &self.job) {
                    count(process)?;
                }
            }
            (SourcePiece::Block(block, keys), OpenInput::Shard(shard)) => {
                let strings = &loaded.texts;
                take_block(shard, (block, keys.as_deref()), what, &map, strings, &mut replaced, &mut count)?;
            }
            (SourcePiece::Rows { table_set, table, piece, .. }, OpenInput::Database(open)) => {
                let wanted = what.columns().map_or(Wanted::All, Wanted::Named);
                let rows = open.database.rows(*table_set, *table, piece, wanted);
                let mut rows = rows.map_err(|error| vanished_input(open.database.path(), &error))?;
                if let Some(adopted) = source.tables.get(&rows.id()) {
                    rows.table = adopted.clone();
                }
                let keys = rows.keys.clone();
                let mut merged = map.renumber_columns(rows, RowOrigin::Stored, what.columns(), &mut replaced);
                provenance::note_handles(&mut merged, &keys);
                if let Some(found) = open.table_set_of(source)
                    && merged.id() == rocpd::INFO_PROCESS
                {
                    let origin = (open.database.path(), found);
                    provenance::complete_processes(&mut merged, &keys, origin, &map, &self.job);
                }
                count(merged)?;
            }
            (SourcePiece::Tail, _) => {
                if let Some(tracks) = expand::tracks(&source.tracks).filter(|rows| what.has(rows.id())) {
                    count(map.renumber(tracks, RowOrigin::Expanded, &mut replaced))?;
                }
                let all = placeholders(source, self.job.schema).into_iter();
                for rows in all.filter(|rows| what.has(rows.id())) {
                    // References of a placeholder to other placeholders are not counted as lost again.
                    let rows = map.renumber(rows, RowOrigin::Placeholder, &mut ReplacedValues::new());
                    *stand_ins.entry(rows.id()).or_default() += 1;
                    count(rows)?;
                }
            }
            (SourcePiece::Process | SourcePiece::Block(..) | SourcePiece::Rows { .. }, _) => {
                return Err(Failure::internal("a piece of another kind of input"));
            }
        }
        written.add(WrittenRows { replaced, placeholders: stand_ins, ..WrittenRows::default() });
        Ok(())
    }

    /// Passes the regions or samples of a piece to `take`, with their events if it has native rows. Returns whether it
    /// has; otherwise nothing is passed.
    pub(crate) fn make_joined(
        &self,
        part: PieceRef,
        (table, wanted, whole_events): (TableId, &'static [&'static str], bool),
        loaded: &LoadedStrings,
        take: &mut TakeMadeRows<'_>,
    ) -> Result<bool, Failure> {
        let survey = &self.surveys[part.input];
        let source = &survey.sources[part.source];
        let (SourcePiece::Block(block, Some(keys)), OpenInput::Shard(shard)) =
            (&source.pieces[part.piece], &survey.input)
        else {
            return Ok(false);
        };
        let no_strings = StringMap::default();
        let map = self.source_map(part, loaded.maps.get(source.string_table).unwrap_or(&no_strings));
        take_joined_block(shard, (block, keys), (table, wanted, whole_events), &map, &loaded.texts, take)?;
        Ok(true)
    }

    fn source_map<'s>(&'s self, part: PieceRef, strings: &'s StringMap) -> SourceMap<'s> {
        let source = &self.surveys[part.input].sources[part.source];
        SourceMap {
            source,
            bases: &self.bases[part.input][part.source],
            nodes: source.nodes.iter().map(|(key, n)| (*key, self.job.nodes.id(n).unwrap_or(1))).collect(),
            strings,
            fit: self.job.clocks.process_fit(&source.process),
        }
    }
}
