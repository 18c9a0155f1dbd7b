//! Positions of the leaf pages of each table. Rank 0 needs them to write the pages above.

use rpd_console::Failure;
use rpd_shard::model::TableId;
use std::collections::BTreeMap;

/// A table of the output, by table set and number. There is one set, or one for each source.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct LeafSlot {
    /// Number of the table set.
    pub set: u32,
    /// The table.
    pub table: TableId,
}

/// Leaf pages of one table, in the order of their rows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TableLeaves {
    /// Logical number of the first page and number of leaf pages, for each run.
    runs: Vec<(u64, u64)>,
    /// Last rowid of each leaf page.
    last_rowids: Vec<i64>,
}

impl TableLeaves {
    /// Returns logical page and last rowid of each leaf page.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, i64)> {
        let pages = self.runs.iter().flat_map(|(first, leaves)| *first..first + leaves);
        pages.zip(self.last_rowids.iter().copied())
    }

    /// Returns the highest rowid.
    pub(crate) fn last_rowid(&self) -> Option<i64> {
        self.last_rowids.last().copied()
    }
}

/// Leaf pages of all tables. Takes eight bytes for each page of 4096 bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LeafIndex {
    /// The tables that have rows.
    pub tables: BTreeMap<LeafSlot, TableLeaves>,
}

impl LeafIndex {
    /// Appends a run of leaf pages to a table.
    pub(crate) fn add(&mut self, slot: LeafSlot, first: u64, last_rowids: &[i64]) {
        let leaves = self.tables.entry(slot).or_default();
        leaves.runs.push((first, last_rowids.len() as u64));
        leaves.last_rowids.extend_from_slice(last_rowids);
    }

    /// Appends the index of the next rank.
    pub(crate) fn append(&mut self, next: LeafIndex) {
        for (slot, leaves) in next.tables {
            let own = self.tables.entry(slot).or_default();
            own.runs.extend(leaves.runs);
            own.last_rowids.extend(leaves.last_rowids);
        }
    }

    /// Serializes the index as 64-bit numbers, little-endian. Each table has its set and number, the numbers of runs
    /// and of leaf pages, the runs, and the last rowids.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut put = |number: u64| bytes.extend_from_slice(&number.to_le_bytes());
        for (slot, leaves) in &self.tables {
            let lengths = [leaves.runs.len() as u64, leaves.last_rowids.len() as u64];
            [u64::from(slot.set), u64::from(slot.table.0)].into_iter().chain(lengths).for_each(&mut put);
            leaves.runs.iter().flat_map(|(first, count)| [*first, *count]).for_each(&mut put);
            leaves.last_rowids.iter().for_each(|id| put(*id as u64));
        }
        bytes
    }

    /// Deserializes an index that `to_bytes` wrote.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Result<LeafIndex, Failure> {
        LeafIndex::parse(bytes).ok_or_else(|| Failure::damaged_message("an index of leaves is cut"))
    }

    fn parse(bytes: &[u8]) -> Option<LeafIndex> {
        let (numbers, []) = bytes.as_chunks::<8>() else { return None };
        let mut numbers = numbers.iter().map(|bytes| u64::from_le_bytes(*bytes));
        let mut index = LeafIndex::default();
        while let Some(set) = numbers.next() {
            let (set, table) = (set.try_into().ok()?, TableId(numbers.next()?.try_into().ok()?));
            let (runs, leaves) = (numbers.next()?, numbers.next()?);
            let runs = (0..runs).map(|_| Some((numbers.next()?, numbers.next()?))).collect::<Option<_>>()?;
            let last_rowids =
                (0..leaves).map(|_| Some(numbers.next()? as i64)).collect::<Option<Vec<i64>>>()?;
            index.tables.insert(LeafSlot { set, table }, TableLeaves { runs, last_rowids });
        }
        Some(index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_goes_to_another_rank_and_behind_its_own() {
        let slot = |table| LeafSlot { set: 0, table: TableId(table) };
        let mut first = LeafIndex::default();
        first.add(slot(1), 10, &[5, 9]);
        let mut second = LeafIndex::default();
        second.add(slot(1), 40, &[12]);
        second.add(slot(2), 41, &[1]);
        first.append(LeafIndex::from_bytes(&second.to_bytes()).unwrap());
        let leaves: Vec<_> =
            first.tables.iter().map(|(slot, l)| (slot.table.0, l.iter().collect())).collect();
        let expected: Vec<(u16, Vec<(u64, i64)>)> =
            vec![(1, vec![(10, 5), (11, 9), (40, 12)]), (2, vec![(41, 1)])];
        assert_eq!(leaves, expected);
        assert!(LeafIndex::from_bytes(&second.to_bytes()[1..]).is_err());
    }
}
