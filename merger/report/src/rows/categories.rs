//! The categories of a unit's events.

use super::names::{CategoryCode, RowNames};
use rayon::prelude::*;
use rpd_console::Failure;
use rpd_run::{RowUnit, RunTables};
use rpd_shard::model::{Keys, rocpd};

/// Maximum number of categories that are compared one by one.
const MAX_NEAR: usize = 16;

/// Categories by event id, 2 bytes for each event. Those that are joined with regions are not here.
#[derive(Debug)]
pub(super) struct EventCategories {
    /// Consecutive events, ascending.
    parts: Vec<EventPart>,
}

#[derive(Debug)]
struct EventPart {
    keys: Keys,
    codes: Vec<CategoryCode>,
    first: i64,
    last: i64,
}

impl EventCategories {
    /// Reads the events of a unit that are not joined with regions.
    pub(super) fn read(
        tables: &RunTables,
        unit: &RowUnit,
        names: &RowNames<'_>,
    ) -> Result<EventCategories, Failure> {
        let pieces = tables.unjoined_pieces(rocpd::EVENT, unit.ids(rocpd::EVENT))?;
        EventCategories::read_pieces(tables, unit, names, pieces)
    }

    /// Gives the categories of all events of a unit a code.
    pub(super) fn note_all(tables: &RunTables, unit: &RowUnit, names: &RowNames<'_>) -> Result<(), Failure> {
        let pieces = tables.pieces_with(rocpd::EVENT, unit.ids(rocpd::EVENT))?;
        EventCategories::read_pieces(tables, unit, names, pieces).map(drop)
    }

    fn read_pieces(
        tables: &RunTables,
        unit: &RowUnit,
        names: &RowNames<'_>,
        pieces: Vec<usize>,
    ) -> Result<EventCategories, Failure> {
        let ids = unit.ids(rocpd::EVENT);
        let read_piece = |piece: usize| {
            let mut parts = Vec::new();
            // Threads share the codes, so that each looks up those of its own piece here.
            let mut known: Vec<(i64, CategoryCode)> = Vec::with_capacity(MAX_NEAR + 1);
            tables.read_pieces(rocpd::EVENT, &[piece], ids, &["category_id"], &mut |_, rows, places| {
                let categories = rows.column("category_id");
                let mut code = |i: usize| {
                    let Some(id) = categories.int(i) else { return CategoryCode::default() };
                    let found = known.iter().find(|(known, _)| *known == id).map(|(_, code)| *code);
                    found.unwrap_or_else(|| {
                        let code = names.category_code(id);
                        known.insert(known.len() % MAX_NEAR, (id, code));
                        known.truncate(MAX_NEAR);
                        code
                    })
                };
                let codes: Vec<CategoryCode> = places.clone().map(&mut code).collect();
                let (first, last) = (rows.keys.get(places.start), rows.keys.get(places.end - 1));
                let keys = match &rows.keys {
                    Keys::Dense(_) => Keys::Dense(first),
                    Keys::Sparse(_) => Keys::Sparse(places.map(|i| rows.keys.get(i)).collect()),
                };
                parts.push(EventPart { keys, codes, first, last });
                Ok(())
            })?;
            Ok(parts)
        };
        let read: Vec<Vec<EventPart>> =
            pieces.into_par_iter().map(read_piece).collect::<Result<_, Failure>>()?;
        let parts: Vec<EventPart> = read.into_iter().flatten().collect();
        if parts.windows(2).any(|two| matches!(two, [one, other] if one.last >= other.first)) {
            return Err(tables.descending_ids(rocpd::EVENT));
        }
        Ok(EventCategories { parts })
    }

    /// Returns the category of an event. `near` is the part of the last one.
    #[inline]
    pub(super) fn of(&self, event: Option<i64>, near: &mut usize) -> CategoryCode {
        self.find(event, near).unwrap_or_default()
    }

    #[inline]
    fn find(&self, event: Option<i64>, near: &mut usize) -> Option<CategoryCode> {
        let id = event?;
        let mut part = self.parts.get(*near)?;
        if !(part.first..=part.last).contains(&id) {
            let place = self.parts.partition_point(|part| part.last < id);
            part = self.parts.get(place).filter(|part| part.first <= id)?;
            *near = place;
        }
        let place = match &part.keys {
            Keys::Dense(first) => usize::try_from(id - first).ok()?,
            Keys::Sparse(keys) => keys.binary_search(&id).ok()?,
        };
        part.codes.get(place).copied()
    }
}
