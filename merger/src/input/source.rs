//! A source: one process of a shard, with key and stack id spaces of its own.

use super::expand::Word;
use rpd_shard::file::BlockRef;
use rpd_shard::model::{TableId, Value, rocpd};
use rpd_shard::record::Process;
use std::collections::BTreeMap;

/// Where rows come from, and so which rows their references mean. A stored row must not find an
/// expanded one under the key of a row that was lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Origin {
    /// Rows as the shard holds them.
    Stored,
    /// Rows that native ones expanded to: their events and tracks are expanded ones too.
    Expanded,
}

/// The keys that rows of one table have in one source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeySpace {
    /// Stored rows: `first..next`, ascending. More than one range where blocks were lost.
    pub stored: Vec<(i64, i64)>,
    /// Rows that native rows expand to, numbered behind the stored ones: `first..next`.
    pub expanded: (i64, i64),
    /// The row that stands for lost ones, where something refers to them.
    pub placeholder: Option<i64>,
    /// Behind the last number in use.
    pub next: i64,
}

impl Default for KeySpace {
    fn default() -> KeySpace {
        KeySpace { stored: Vec::new(), expanded: (1, 1), placeholder: None, next: 1 }
    }
}

impl KeySpace {
    /// The number of the stored row with this key among the source's rows of the table; `None` where
    /// there is no such row. Dense keys are their own numbers.
    #[inline]
    pub fn stored(&self, key: i64) -> Option<i64> {
        let found = match self.stored.as_slice() {
            [(first, next)] => (*first..*next).contains(&key),
            ranges => {
                let i = ranges.partition_point(|(_, next)| *next <= key);
                ranges.get(i).is_some_and(|(first, _)| *first <= key)
            }
        };
        found.then_some(key)
    }

    /// The number of the row that a row of this origin means by `key`.
    #[inline]
    pub fn number(&self, key: i64, table: TableId, origin: Origin) -> Option<i64> {
        match (origin, table) {
            (Origin::Expanded, rocpd::EVENT | rocpd::TRACK) => {
                (self.expanded.0..self.expanded.1).contains(&key).then_some(key)
            }
            _ => self.stored(key),
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
    /// Negative or huge values: numbered from 1. All of them, ascending; see [`stack_key`].
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

/// A stack id as an integer. RocPD stores unsigned values above `i64::MAX` as REAL; equal ones stay
/// equal. `None` for NULL and for what is no number.
pub fn stack_key(value: Value<'_>) -> Option<i64> {
    match value {
        Value::Int(v) => Some(v),
        Value::Real(v) if v >= 0.0 => Some(v as u64 as i64),
        _ => None,
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
    /// Tracks of its samples.
    pub tracks: Tracks,
}

/// Key of the track of each thread and name. The thread is [`NO_THREAD`] where it is not known.
pub type Tracks = BTreeMap<(i64, Word), i64>;

/// Stands for threads that are not in the shard, or that are too many: their samples share a track.
pub const NO_THREAD: i64 = 0;

impl Source {
    /// Order in the output: rank, workers behind it, start.
    pub fn order(&self) -> impl Ord + use<> {
        let p = &self.process;
        (p.rank.unwrap_or(u32::MAX), p.restart, p.worker, p.first_seen, p.pid, p.source)
    }
}
