//! The pieces of the inputs by the tables of which they have rows, in the order of ids.

use crate::input::survey::InputSurvey;
use crate::input::{InputSource, OpenInput, PieceRef, SAMPLES, SourcePiece};
use crate::number::SourceBases;
use rpd_shard::file::BlockKind;
use rpd_shard::model::{TableId, rocpd};
use std::collections::HashMap;

/// Rows of one table in a piece of an input.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct TablePiece {
    /// Id of the first row.
    pub(super) first_id: i64,
    /// Number of rows; of args, that of the rows to which they belong.
    pub(super) rows: u64,
    pub(super) place: PieceRef,
    /// Whether native rows are expanded to it.
    pub(super) is_native: bool,
}

/// The pieces of all inputs of this rank.
#[derive(Debug, Default)]
pub(super) struct RowPieces {
    tables: HashMap<TableId, Vec<TablePiece>>,
    /// First and last id of each table.
    bounds: HashMap<TableId, (i64, i64)>,
}

impl RowPieces {
    /// Lists the pieces of these inputs, whose sources have these bases.
    pub(super) fn new(surveys: &[InputSurvey], bases: &[Vec<SourceBases>]) -> RowPieces {
        let mut pieces = RowPieces::default();
        for (input, (survey, bases)) in surveys.iter().zip(bases).enumerate() {
            for (source, (found, bases)) in survey.sources.iter().zip(bases).enumerate() {
                pieces.add_source((input, source), &survey.input, found, bases);
            }
        }
        // Ids of processes do not follow the order of inputs.
        pieces.tables.values_mut().for_each(|pieces| pieces.sort_by_key(|piece| piece.first_id));
        pieces
    }

    /// Returns the pieces with rows of a table, ascending.
    pub(super) fn of(&self, table: TableId) -> &[TablePiece] {
        self.tables.get(&table).map_or(&[], Vec::as_slice)
    }

    /// Returns the first and the last id of each table of which there are rows.
    pub(super) fn bounds(&self) -> &HashMap<TableId, (i64, i64)> {
        &self.bounds
    }

    fn add_source(
        &mut self,
        (input, source): (usize, usize),
        opened: &OpenInput,
        found: &InputSource,
        bases: &SourceBases,
    ) {
        for (table, space) in found.spaces.iter().filter(|(_, space)| space.next > 1) {
            let mut add = |id: i64| {
                let known = self.bounds.entry(table).or_insert((id, id));
                *known = (id.min(known.0), id.max(known.1));
            };
            match table {
                rocpd::INFO_PROCESS => (1..space.next).for_each(|number| add(bases.id(table, number))),
                table => [1, space.next - 1].into_iter().for_each(|number| add(bases.id(table, number))),
            }
        }
        // Stored rows are numbered without gaps, in the order of pieces. Their keys may be handles.
        let mut stored: HashMap<TableId, i64> = HashMap::new();
        for (piece, content) in found.pieces.iter().enumerate() {
            let place = PieceRef { input, source, piece };
            let is_native = matches!(content, SourcePiece::Block(_, Some(_)));
            each_table(content, opened, found, &mut stored, &mut |table, number, rows| {
                let first_id = bases.id(table, number);
                self.tables.entry(table).or_default().push(TablePiece { first_id, rows, place, is_native });
            });
        }
    }
}

/// Calls `take` for each table of which a piece has rows, with the number of the first row among those of the source, and
/// the number of rows. `stored_before` are the stored rows of the pieces before, by table.
fn each_table(
    piece: &SourcePiece,
    opened: &OpenInput,
    source: &InputSource,
    stored_before: &mut HashMap<TableId, i64>,
    take: &mut dyn FnMut(TableId, i64, u64),
) {
    match piece {
        SourcePiece::Process => take(rocpd::INFO_PROCESS, 1, 1),
        SourcePiece::Block(block, keys) => {
            let (BlockKind::Rows(stored), rows) = (block.header.kind, u64::from(block.header.rows)) else {
                return;
            };
            if let Some(keys) = keys {
                take(rocpd::EVENT, keys.event, rows);
                match SAMPLES.contains(&stored) {
                    true => take(rocpd::SAMPLE, keys.sample, rows),
                    false => take(rocpd::REGION, keys.region, rows),
                }
                take(rocpd::ARG, keys.arg, rows);
            } else if let Some(table) = source.tables.get(&stored).map(|table| table.id) {
                let before = stored_before.entry(table).or_default();
                take(table, *before + 1, rows);
                *before += rows as i64;
            }
        }
        SourcePiece::Rows { table_set, table, piece, first } => {
            let OpenInput::Database(open) = opened else { return };
            let set = open.database.table_sets().get(*table_set);
            let stored = set.and_then(|set| set.tables.get(*table)).map(|stored| stored.table.id);
            if let Some(table) = stored.and_then(|stored| source.tables.get(&stored)) {
                take(table.id, *first, piece.rows);
            }
        }
        SourcePiece::Tail => {
            for (table, space) in source.spaces.iter() {
                let tracks = (table == rocpd::TRACK).then_some(space.expanded);
                let first_track = tracks.filter(|(first, next)| first < next).map(|(first, _)| first);
                if let Some(number) = first_track.or(space.placeholder) {
                    take(table, number, 1);
                }
            }
        }
    }
}
