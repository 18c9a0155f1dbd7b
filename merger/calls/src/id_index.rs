//! Finds the row that an id belongs to.

use std::collections::HashMap;

/// No row.
const NO_ROW: u32 = u32::MAX;
/// Ids that a dense index may span for each one in it.
const MAX_SPAN_PER_ID: u64 = 8;

/// Numbers of rows by ids of events or stacks. Ids mostly have few gaps; then the index is an array.
#[derive(Debug)]
pub(crate) enum IdIndex {
    Dense { first: i64, rows: Vec<u32> },
    Sparse(HashMap<i64, u32>),
}

impl IdIndex {
    /// Creates the index of these ids; `ids` has the id of row 0, row 1, and so on. Of rows with the same id, the first
    /// is found.
    pub(crate) fn new(ids: &[i64]) -> IdIndex {
        let numbered: Vec<(i64, u32)> = ids.iter().copied().zip(0..NO_ROW).collect();
        IdIndex::of_rows(&numbered)
    }

    /// Creates the index of these ids, each with its row. Of rows with the same id, that with the lowest number is found.
    pub(crate) fn of_rows(ids: &[(i64, u32)]) -> IdIndex {
        let (first, last) = ids.iter().fold((i64::MAX, i64::MIN), |(a, b), (id, _)| (a.min(*id), b.max(*id)));
        let span = if ids.is_empty() { 0 } else { last.abs_diff(first).saturating_add(1) };
        if span > MAX_SPAN_PER_ID * ids.len() as u64 {
            let mut rows = HashMap::with_capacity(ids.len());
            for (id, row) in ids {
                let known = rows.entry(*id).or_insert(*row);
                *known = (*row).min(*known);
            }
            return IdIndex::Sparse(rows);
        }
        let mut rows = vec![NO_ROW; span as usize];
        for (id, row) in ids {
            let place = &mut rows[id.abs_diff(first) as usize];
            *place = (*place).min(*row);
        }
        IdIndex::Dense { first, rows }
    }

    /// Returns the row of an id.
    #[inline]
    pub(crate) fn row(&self, id: i64) -> Option<usize> {
        let row = match self {
            IdIndex::Dense { first, rows } => {
                let place = usize::try_from(id.checked_sub(*first)?).ok()?;
                rows.get(place).copied()
            }
            IdIndex::Sparse(rows) => rows.get(&id).copied(),
        };
        row.filter(|row| *row != NO_ROW).map(|row| row as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_found_with_any_gaps() {
        for ids in [vec![5, 6, 9, 6], vec![i64::MIN, i64::MAX, 0], vec![]] {
            let index = IdIndex::new(&ids);
            for id in &ids {
                assert_eq!(index.row(*id), ids.iter().position(|known| known == id));
            }
            assert_eq!([index.row(7), index.row(i64::MAX - 1), index.row(-1)], [None; 3]);
        }
    }
}
