//! Finds the row that an event belongs to.

use std::collections::HashMap;

/// No row.
const NO_ROW: u32 = u32::MAX;
/// Ids that a dense index may have for each event in it.
const MAX_IDS_PER_EVENT: u64 = 8;

/// Numbers of rows by the ids of their events. Ids mostly have few gaps; then the index is an array.
#[derive(Debug)]
pub(crate) enum EventIndex {
    Dense { first: i64, rows: Vec<u32> },
    Sparse(HashMap<i64, u32>),
}

impl EventIndex {
    /// Creates the index of these events; `events` has the id of row 0, row 1, and so on. Of rows with the same
    /// event, the first is found.
    pub(crate) fn new(events: &[i64]) -> EventIndex {
        let (first, last) = events.iter().fold((i64::MAX, i64::MIN), |(a, b), id| (a.min(*id), b.max(*id)));
        let ids = if events.is_empty() { 0 } else { last.abs_diff(first).saturating_add(1) };
        let numbered = (0u32..NO_ROW).zip(events);
        if ids > MAX_IDS_PER_EVENT * events.len() as u64 {
            let mut rows = HashMap::with_capacity(events.len());
            numbered.for_each(|(row, event)| {
                rows.entry(*event).or_insert(row);
            });
            return EventIndex::Sparse(rows);
        }
        let mut rows = vec![NO_ROW; ids as usize];
        for (row, event) in numbered {
            let place = &mut rows[event.abs_diff(first) as usize];
            *place = (*place).min(row);
        }
        EventIndex::Dense { first, rows }
    }

    /// Returns the row of an event.
    #[inline]
    pub(crate) fn row(&self, event: i64) -> Option<usize> {
        let row = match self {
            EventIndex::Dense { first, rows } => {
                let place = usize::try_from(event.checked_sub(*first)?).ok()?;
                rows.get(place).copied()
            }
            EventIndex::Sparse(rows) => rows.get(&event).copied(),
        };
        row.filter(|row| *row != NO_ROW).map(|row| row as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_found_with_any_gaps() {
        for events in [vec![5, 6, 9, 6], vec![i64::MIN, i64::MAX, 0], vec![]] {
            let index = EventIndex::new(&events);
            for event in &events {
                assert_eq!(index.row(*event), events.iter().position(|known| known == event));
            }
            assert_eq!([index.row(7), index.row(i64::MAX - 1), index.row(-1)], [None; 3]);
        }
    }
}
