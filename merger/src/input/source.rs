//! A source: one process of a shard, with key and stack id spaces of its own.

use rpd_shard::file::BlockRef;
use rpd_shard::model::TableId;
use rpd_shard::record::Process;
use std::collections::BTreeMap;

/// The keys that rows of one table have in one source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeySpace {
    /// Stored rows: `first..next`, ascending. More than one range where blocks were lost.
    pub stored: Vec<(i64, i64)>,
    /// First key of the rows that native rows expand to; `stored_end` where there are none.
    pub expanded: (i64, i64),
    /// The row that stands for lost ones, where something refers to them.
    pub placeholder: Option<i64>,
    /// Behind the last key in use.
    pub next: i64,
}

impl KeySpace {
    /// Whether there is a row with this key.
    #[inline]
    pub fn contains(&self, key: i64) -> bool {
        match self.stored.as_slice() {
            [(first, next)] if (*first..*next).contains(&key) => true,
            ranges => {
                let i = ranges.partition_point(|(_, next)| *next <= key);
                ranges.get(i).is_some_and(|(first, _)| *first <= key)
                    || (self.expanded.0..self.expanded.1).contains(&key)
            }
        }
    }

    /// Number of rows that reach the output.
    pub fn rows(&self) -> u64 {
        let stored: i64 = self.stored.iter().map(|(first, next)| next - first).sum();
        (stored + self.expanded.1 - self.expanded.0) as u64 + u64::from(self.placeholder.is_some())
    }
}

/// Keys of the first rows that a native block expands to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExpandedKeys {
    /// `rocpd_event`.
    pub event: i64,
    /// `rocpd_region`.
    pub region: i64,
    /// `rocpd_sample`.
    pub sample: i64,
    /// `rocpd_arg`.
    pub arg: i64,
}

/// The stack ids of one source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StackSpace {
    /// Small values: shifted. The largest one.
    Offset(i64),
    /// Negative or huge values: numbered from 1. All of them, ascending.
    Dictionary(Vec<i64>),
}

impl StackSpace {
    /// How many ids the output sets aside for this source.
    pub fn len(&self) -> i64 {
        match self {
            StackSpace::Offset(max) => *max,
            StackSpace::Dictionary(values) => values.len() as i64,
        }
    }

    /// Whether there is no stack id at all.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// What a survey found of one process.
#[derive(Clone, Debug)]
pub struct Source {
    /// The process.
    pub process: Process,
    /// Its keys, per RocPD table.
    pub spaces: BTreeMap<TableId, KeySpace>,
    /// Its stack ids.
    pub stacks: StackSpace,
    /// Its blocks in the order of writing: stored tables first, then native ones with their keys.
    pub blocks: Vec<(BlockRef, Option<ExpandedKeys>)>,
    /// Track of each thread's marks, by thread key.
    pub tracks: BTreeMap<i64, i64>,
}

impl Source {
    /// Order in the output: rank, workers behind it, start.
    pub fn order(&self) -> impl Ord + use<> {
        let p = &self.process;
        (p.rank.unwrap_or(u32::MAX), p.restart, p.worker, p.first_seen, p.pid, p.source)
    }
}
