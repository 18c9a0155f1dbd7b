//! A source: one space of keys and stack ids. A shard has one source per process, a database one per guid. In a
//! merged database, one source can contain many processes.

use crate::input::BuiltinString;
use crate::input::memberships::Memberships;
use rpd_collectives::ProcessCollectives;
use rpd_shard::file::BlockRef;
use rpd_shard::model::{Kind, Local, Rows, Table, TableId, rocpd};
use rpd_shard::record::{Node, Process};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Larger stack ids are renumbered instead of shifted.
const MAX_SHIFTED_STACK: i64 = 1 << 40;
/// Maximum number of distinct stack ids per source that can be renumbered.
pub(crate) const MAX_STACK_VALUES: usize = 8 << 20;

/// Origin of rows, which determines the rows that their references mean. A stored row must not refer to an expanded
/// row that has the key of a lost row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RowOrigin {
    /// Rows as the shard stores them.
    Stored,
    /// Rows expanded from native ones. Their keys are numbers already, and they refer to expanded events and tracks.
    Expanded,
    /// Placeholder rows. Their keys are numbers already.
    Placeholder,
}

/// Consecutive keys, and the number of the first one among the source's rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeyRange {
    /// First key.
    pub first: i64,
    /// Key after the last one.
    pub next: i64,
    /// Number of the first row.
    pub number: i64,
}

/// Keys of one table in one source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeySpace {
    /// Stored rows, ascending. There are several ranges if blocks were lost or if keys are handles.
    pub stored: Vec<KeyRange>,
    /// Numbers of rows expanded from native ones, after the stored rows: `first..next`.
    pub expanded: (i64, i64),
    /// Number of the placeholder row, if references to lost rows need one.
    pub placeholder: Option<i64>,
    /// Number after the last one in use.
    pub next: i64,
}

impl Default for KeySpace {
    fn default() -> KeySpace {
        KeySpace { stored: Vec::new(), expanded: (1, 1), placeholder: None, next: 1 }
    }
}

impl KeySpace {
    /// Adds stored rows with the keys `first..next`, which must follow all previous keys. Numbers have no gaps.
    pub(crate) fn add_keys(&mut self, first: i64, next: i64) {
        match self.stored.last_mut() {
            Some(last) if last.next == first => last.next = next,
            _ => self.stored.push(KeyRange { first, next, number: self.next }),
        }
        self.next += next - first;
    }

    /// Returns the number of the stored row with this key among the source's rows of the table; `None` if there is no
    /// such row.
    #[inline]
    pub(crate) fn stored(&self, key: i64) -> Option<i64> {
        self.stored_range(key).map(|range| range.number + (key - range.first))
    }

    #[inline]
    fn stored_range(&self, key: i64) -> Option<&KeyRange> {
        let range = match self.stored.as_slice() {
            [range] => range,
            ranges => ranges.get(ranges.partition_point(|range| range.next <= key))?,
        };
        (range.first <= key && key < range.next).then_some(range)
    }

    /// Returns the key range that contains the row to which a row of this origin refers by `key`.
    pub(crate) fn range(&self, key: i64, table: TableId, origin: RowOrigin) -> Option<KeyRange> {
        match (origin, table) {
            (RowOrigin::Expanded, rocpd::EVENT | rocpd::TRACK) => {
                let (first, next) = self.expanded;
                (first..next).contains(&key).then_some(KeyRange { first, next, number: first })
            }
            _ => self.stored_range(key).copied(),
        }
    }

    /// Returns the number of rows in the output.
    pub(crate) fn rows(&self) -> u64 {
        let stored: i64 = self.stored.iter().map(|range| range.next - range.first).sum();
        (stored + self.expanded.1 - self.expanded.0) as u64 + u64::from(self.placeholder.is_some())
    }
}

/// Key spaces of a source, by table. Stored as compactly as possible, because a job can have thousands of sources.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct KeySpaces(Box<[(TableId, KeySpace)]>);

impl From<BTreeMap<TableId, KeySpace>> for KeySpaces {
    fn from(spaces: BTreeMap<TableId, KeySpace>) -> KeySpaces {
        let shrunk = spaces.into_iter().map(|(table, mut space)| {
            space.stored.shrink_to_fit();
            (table, space)
        });
        KeySpaces(shrunk.collect())
    }
}

impl KeySpaces {
    /// Returns the key space of a table.
    #[inline]
    pub(crate) fn get(&self, table: &TableId) -> Option<&KeySpace> {
        let at = self.0.binary_search_by_key(table, |(table, _)| *table).ok()?;
        Some(&self.0[at].1)
    }

    /// Iterates over tables and their key spaces.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (TableId, &KeySpace)> {
        self.0.iter().map(|(table, space)| (*table, space))
    }

    /// Iterates over the key spaces.
    pub(crate) fn values(&self) -> impl Iterator<Item = &KeySpace> {
        self.0.iter().map(|(_, space)| space)
    }
}

/// Keys of the first rows that a native block expands to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ExpandedKeys {
    /// First key in `rocpd_event`.
    pub event: i64,
    /// First key in `rocpd_region`.
    pub region: i64,
    /// First key in `rocpd_sample`.
    pub sample: i64,
    /// First key in `rocpd_arg`.
    pub arg: i64,
}

impl ExpandedKeys {
    /// Advances the key of a table by a number of rows.
    pub(crate) fn advance(&mut self, table: TableId, rows: i64) {
        match table {
            rocpd::EVENT => self.event += rows,
            rocpd::REGION => self.region += rows,
            rocpd::SAMPLE => self.sample += rows,
            _ => self.arg += rows,
        }
    }
}

/// Limit for stack ids of one source that are renumbered.
#[derive(Debug)]
pub struct StackIdLimit {
    most: usize,
    /// Held while one source is renumbered, so that the ids of only one source are in memory.
    turn: Mutex<()>,
    /// Sufficient limit for a source that exceeded this one; 0 if none did.
    wanted: AtomicUsize,
}

impl StackIdLimit {
    /// Creates a limit, capped at [`MAX_STACK_VALUES`].
    pub fn new(most: usize) -> StackIdLimit {
        StackIdLimit { most: most.min(MAX_STACK_VALUES), turn: Mutex::default(), wanted: AtomicUsize::new(0) }
    }

    /// Returns a limit that would have been sufficient, if a source exceeded this one.
    pub fn wanted(&self) -> Option<usize> {
        Some(self.wanted.load(Ordering::Relaxed)).filter(|wanted| *wanted > 0)
    }
}

/// Limit for the length of a row that is read into memory.
#[derive(Debug)]
pub struct RowLengthLimit {
    most: u64,
    /// Length of the longest row beyond the limit, bytes; 0 if there is none.
    longest: AtomicU64,
}

impl RowLengthLimit {
    /// Creates a limit in bytes.
    pub fn new(most: u64) -> RowLengthLimit {
        RowLengthLimit { most, longest: AtomicU64::new(0) }
    }

    /// Returns whether a row of this many bytes is within the limit; records the length if it is not.
    pub(super) fn admits(&self, bytes: u64) -> bool {
        if bytes > self.most {
            self.longest.fetch_max(bytes, Ordering::Relaxed);
        }
        bytes <= self.most
    }

    /// Returns the length of the longest row beyond the limit, bytes.
    pub fn longest(&self) -> Option<u64> {
        Some(self.longest.load(Ordering::Relaxed)).filter(|bytes| *bytes > 0)
    }
}

/// The stack ids of one source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StackSpace {
    /// Small values, which are shifted; contains the largest one.
    Offset(i64),
    /// Negative or huge values, which are renumbered from 1. Contains all of them, ascending; see
    /// [`rpd_shard::model::Value::stack_id`].
    Dictionary(Vec<i64>),
}

impl StackSpace {
    /// Returns the space for ids within these bounds. Reads all `rows` with stack ids only if the ids must be
    /// renumbered. Beyond [`MAX_STACK_VALUES`], ids are dropped and count as lost when they are looked up.
    /// If `limit` is lower and exceeded, records the sufficient limit and returns an empty space.
    pub(super) fn of(
        bounds: Option<(i64, i64)>,
        limit: &StackIdLimit,
        rows: impl Iterator<Item = Rows<Local>>,
    ) -> StackSpace {
        match bounds {
            None => return StackSpace::Offset(0),
            Some((low, high)) if low >= 0 && high <= MAX_SHIFTED_STACK => return StackSpace::Offset(high),
            Some(_) => {}
        }
        // Such ids are rare, and the memory suffices for the ids of one source.
        let _turn = limit.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let mut values: Vec<i64> = Vec::new();
        let (mut found, mut is_full) = (0, false);
        for rows in rows {
            for (column, cells) in rows.table.columns.iter().zip(&rows.columns) {
                if column.kind == Kind::Stack {
                    let ids = (0..rows.len).filter_map(|i| cells.get(i).stack_id()).filter(|v| *v != 0);
                    if is_full {
                        found += ids.count();
                        continue;
                    }
                    let before = values.len();
                    values.extend(ids);
                    found += values.len() - before;
                }
            }
            if values.len() > 2 * limit.most {
                is_full = limit.most < MAX_STACK_VALUES && keep_distinct(&mut values, limit.most);
            }
        }
        if limit.most < MAX_STACK_VALUES && (is_full || keep_distinct(&mut values, limit.most)) {
            limit.wanted.fetch_max(found.min(MAX_STACK_VALUES), Ordering::Relaxed);
            return StackSpace::Offset(0);
        }
        keep_distinct(&mut values, MAX_STACK_VALUES);
        values.shrink_to_fit();
        StackSpace::Dictionary(values)
    }

    /// Returns the number of ids that the output reserves for this source.
    pub(crate) fn len(&self) -> i64 {
        match self {
            StackSpace::Offset(max) => *max,
            StackSpace::Dictionary(values) => values.len() as i64,
        }
    }
}

/// Keeps at most `most` distinct values; returns whether there were more.
fn keep_distinct(values: &mut Vec<i64>, most: usize) -> bool {
    values.sort_unstable();
    values.dedup();
    let is_more = values.len() > most;
    values.truncate(most);
    is_more
}

/// Returns the bounds that enclose both ranges.
pub(super) fn join(a: Option<(i64, i64)>, b: Option<(i64, i64)>) -> Option<(i64, i64)> {
    match (a, b) {
        (Some(a), Some(b)) => Some((a.0.min(b.0), a.1.max(b.1))),
        (a, b) => a.or(b),
    }
}

/// Rows of a source that are read at once.
#[derive(Clone, Debug)]
pub(crate) enum SourcePiece {
    /// The process itself, made from its process record.
    Process,
    /// A block of a shard. For native rows, with the keys of the first rows that they expand to.
    Block(BlockRef, Option<Box<ExpandedKeys>>),
    /// Rows of a database.
    Rows {
        /// Position of the table set in the file.
        table_set: usize,
        /// Position of the table in the table set.
        table: usize,
        /// Range of rows in the table.
        piece: rpd_rocpd::read::Piece,
        /// Number of its first row among the source's rows of the table.
        first: i64,
    },
    /// Tracks of expanded samples, and placeholder rows.
    Tail,
}

/// Survey of one source.
#[derive(Clone, Debug)]
pub(crate) struct InputSource {
    /// The process. If the source has several, the one that determines its position in the merge order.
    pub process: Process,
    /// Nodes by key.
    pub nodes: Vec<(i64, Node)>,
    /// Keys, per table of the output.
    pub spaces: KeySpaces,
    /// Stack ids.
    pub stacks: StackSpace,
    /// Rows in the order of writing. In every table their ids ascend.
    pub pieces: Box<[SourcePiece]>,
    /// Tracks of the samples.
    pub tracks: SourceTracks,
    /// Position of the string table in the input.
    pub string_table: usize,
    /// Tables of the input as tables of the job, by their number in the input.
    pub tables: Arc<BTreeMap<TableId, Arc<Table>>>,
    /// Collectives; moved out when collectives are matched.
    pub collectives: ProcessCollectives,
    /// Communicators of the process.
    pub memberships: Memberships,
}

/// Key of the track for each thread and name. The thread is [`NO_THREAD`] if it is unknown.
pub(crate) type SourceTracks = BTreeMap<(i64, BuiltinString), i64>;

/// Stands for threads that are not in the shard or beyond the maximum number: their samples share a track.
pub(crate) const NO_THREAD: i64 = 0;

impl InputSource {
    /// Returns the key of the first process.
    pub(crate) fn first_process(&self) -> i64 {
        let processes = self.spaces.get(&rocpd::INFO_PROCESS);
        processes.and_then(|space| space.stored.first()).map_or(0, |range| range.first)
    }

    /// Returns the order in the output: by rank, workers after their rank, then by start.
    pub(crate) fn order(&self) -> impl Ord + use<> {
        let p = &self.process;
        (p.rank.unwrap_or(u32::MAX), p.restart, p.worker, p.first_seen, p.pid, p.source)
    }
}
