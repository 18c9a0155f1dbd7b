//! Pieces of the tables of a database: reads them in parallel, and finds keys, references and damage.

use super::block_facts::stack_bounds;
use super::input_survey::InputSurvey;
use super::table_set_reader::TableSetReader;
use crate::input::source::join;
use crate::input::{KeySpace, SourcePiece};
use rayon::prelude::*;
use rpd_rocpd::read::{Piece, ReadError, Wanted};
use rpd_shard::model::{Kind, Local, Rows, Table, TableId, Value, rocpd};
use rpd_shard::record::Node;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Pieces that are read at the same time, before their facts are combined.
const PIECES_AT_ONCE: usize = 64;

/// Facts of one piece.
#[derive(Default)]
pub(super) struct PieceFacts {
    /// Runs of consecutive keys.
    pub(super) key_ranges: Vec<(i64, i64)>,
    pub(super) rows: u64,
    /// Tables that lack a row to which a mandatory reference points.
    pub(super) missing: BTreeSet<TableId>,
    pub(super) lost_strings: bool,
    /// Smallest and largest stack id.
    pub(super) stacks: Option<(i64, i64)>,
}

impl TableSetReader<'_> {
    /// Returns the readable pieces of a table with their facts. Records the rows that cannot be read as losses.
    pub(super) fn table_pieces(
        &self,
        place: usize,
        table: &Arc<Table>,
        known: &ReferenceKeys<'_>,
        survey: &mut InputSurvey,
    ) -> Vec<(Piece, PieceFacts)> {
        let read = |piece: &Piece| {
            let rows = self.database.rows(self.table_set, place, piece, Wanted::Links)?;
            self.ends_before_the_last_id(&table.name, &rows)?;
            Ok(known.facts(table, &rows))
        };
        let mut good = Vec::new();
        for some in self.found.tables[place].pieces.chunks(PIECES_AT_ONCE) {
            let results = some.par_iter().map(|piece| self.in_parts(place, piece.clone(), &read));
            let results: Vec<Vec<_>> = results.collect();
            for (piece, result) in results.into_iter().flatten() {
                match result {
                    Ok(facts) if facts.rows == 0 => {}
                    Ok(facts) => good.push((piece, facts)),
                    // Reads page by page, so that a damaged page costs only its own rows.
                    Err(error) if piece.is_divisible() => {
                        // The parts report this error with the number of rows that it costs.
                        let is_reported = !matches!(error, ReadError::LastId { .. });
                        if is_reported {
                            survey.warn(&error);
                        }
                        for part in piece.split() {
                            match read(&part) {
                                Ok(facts) if facts.rows == 0 => {}
                                Ok(facts) => good.push((part, facts)),
                                Err(error) => survey.lose_to(table.id, &error, !is_reported),
                            }
                        }
                    }
                    Err(error) => survey.lose_to(table.id, &error, true),
                }
            }
        }
        good
    }

    /// Fails if the last row has the largest possible id: half-open key ranges need an id after it.
    pub(super) fn ends_before_the_last_id(&self, table: &str, rows: &Rows<Local>) -> Result<(), ReadError> {
        if rows.len == 0 || rows.keys.get(rows.len - 1) != i64::MAX {
            return Ok(());
        }
        let (path, table) = (self.database.path().to_owned(), table.to_owned());
        Err(ReadError::LastId { path, table, rows: rows.len as u64 })
    }

    /// Returns the facts of a piece, or of its parts if its rows are too long to be read at once.
    fn in_parts(
        &self,
        place: usize,
        piece: Piece,
        read: &(impl Fn(&Piece) -> Result<PieceFacts, ReadError> + Sync),
    ) -> Vec<(Piece, Result<PieceFacts, ReadError>)> {
        // The merge rejects rows that exceed the memory for a row, so such a row is not read here. A row longer than
        // the file is damaged.
        if piece.bytes <= self.database.bytes() && !self.row_limit.admits(piece.bytes) {
            return Vec::new();
        }
        let result = read(&piece);
        if matches!(result, Err(ReadError::TooLarge { .. }))
            && let Ok(parts) = self.database.smaller(self.table_set, place, &piece)
            && parts.first() != Some(&piece)
        {
            return parts.into_iter().flat_map(|part| self.in_parts(place, part, read)).collect();
        }
        vec![(piece, result)]
    }

    /// Reads the rows of all tables with stack ids again.
    pub(super) fn rows_with_stacks(&self, pieces: &[SourcePiece]) -> impl Iterator<Item = Rows<Local>> {
        pieces.iter().filter_map(|piece| {
            let SourcePiece::Rows { table_set, table, piece, .. } = piece else { return None };
            let has_stacks = self.found.tables[*table].table.columns.iter().any(|c| c.kind == Kind::Stack);
            has_stacks.then(|| self.database.rows(*table_set, *table, piece, Wanted::Links).ok())?
        })
    }
}

/// Keys to which references can point. Tables are surveyed after those that they refer to.
pub(super) struct ReferenceKeys<'a> {
    pub(super) strings: &'a KeySpace,
    pub(super) nodes: &'a [(i64, Node)],
    pub(super) spaces: &'a BTreeMap<TableId, KeySpace>,
}

impl ReferenceKeys<'_> {
    fn facts(&self, table: &Table, rows: &Rows<Local>) -> PieceFacts {
        let mut facts = PieceFacts {
            key_ranges: rows.keys.ranges(rows.len),
            rows: rows.len as u64,
            ..PieceFacts::default()
        };
        for (column, cells) in table.columns.iter().zip(&rows.columns) {
            match column.kind {
                Kind::Ref(target) if column.sql.not_null => {
                    let space = self.spaces.get(&target);
                    let is_there = |key| match target {
                        rocpd::INFO_NODE => self.nodes.iter().any(|(node, _)| *node == key),
                        _ => space.is_some_and(|s| s.stored(key).is_some()),
                    };
                    // Adjacent rows mostly refer to the same row.
                    let mut last = None;
                    let is_missing = (0..rows.len).any(|i| {
                        let key = cells.int(i);
                        let again = last == Some(key) && key.is_some();
                        last = Some(key);
                        !again && !key.is_some_and(is_there)
                    });
                    if is_missing {
                        facts.missing.insert(target);
                    }
                }
                Kind::Stack => facts.stacks = join(facts.stacks, stack_bounds(cells, rows.len)),
                Kind::Str => {
                    facts.lost_strings |= (0..rows.len).any(|i| match cells.get(i) {
                        Value::Null => column.sql.not_null,
                        Value::Int(id) => self.strings.stored(id).is_none(),
                        _ => true,
                    });
                }
                _ => {}
            }
        }
        facts
    }
}
