//! Maps ids of the file to keys of the shard.

/// Maximum number of ranges, which limits the memory to 128 MiB.
const MAX_RANGES: usize = 4 << 20;

/// Process and key of each id. Ids ascend and keys are dense, so the map stores ranges of them. A file has few ranges:
/// one for each session and gap.
#[derive(Debug, Default)]
pub(super) struct IdMap {
    ranges: Vec<IdRange>,
}

#[derive(Debug)]
struct IdRange {
    first: i64,
    rows: i64,
    source: u32,
    key: i64,
}

impl IdMap {
    /// Records that the row `id` became the row `key` of a process. Ignores ids out of order, and ids beyond the
    /// maximum number of ranges.
    pub(super) fn add(&mut self, id: i64, source: u32, key: i64) {
        if let Some(range) = self.ranges.last_mut() {
            let next = range.first.checked_add(range.rows);
            if next == Some(id) && range.source == source && range.key + range.rows == key {
                range.rows += 1;
                return;
            }
            if next.is_none_or(|next| id < next) {
                return;
            }
        }
        if self.ranges.len() < MAX_RANGES {
            self.ranges.push(IdRange { first: id, rows: 1, source, key });
        }
    }

    /// Returns the process and key of a row.
    pub(super) fn get(&self, id: i64) -> Option<(u32, i64)> {
        let range =
            self.ranges.get(self.ranges.partition_point(|range| range.first <= id).checked_sub(1)?)?;
        let offset = id.checked_sub(range.first).filter(|offset| *offset < range.rows)?;
        Some((range.source, range.key + offset))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn every_row_is_found_under_its_id_and_no_other(
            rows in proptest::collection::btree_map(-20i64..60, 1u32..3, 0..40),
        ) {
            let (mut map, mut keys, mut wanted) = (IdMap::default(), BTreeMap::new(), BTreeMap::new());
            for (id, source) in rows {
                let key = keys.entry(source).and_modify(|key| *key += 1).or_insert(1);
                map.add(id, source, *key);
                wanted.insert(id, (source, *key));
            }
            for id in -22..62 {
                prop_assert_eq!(map.get(id), wanted.get(&id).copied());
            }
        }
    }

    #[test]
    fn the_ends_of_the_range_are_no_overflow() {
        let mut map = IdMap::default();
        [i64::MIN, -1, i64::MAX].into_iter().zip(1..).for_each(|(id, key)| map.add(id, 1, key));
        assert_eq!((map.get(i64::MIN), map.get(i64::MAX), map.get(0)), (Some((1, 1)), Some((1, 3)), None));
        map.add(3, 1, 9);
        assert_eq!(map.get(3), None);
    }
}
