//! A source: one space of keys and stack ids. A shard has one for each process, a database one for
//! each guid; a merged database has many processes in one.

use super::expand::BuiltinString;
use rpd_collectives::ProcessCollectives;
use rpd_shard::file::BlockRef;
use rpd_shard::model::{Kind, Local, Rows, Table, TableId, rocpd};
use rpd_shard::record::{Node, Process};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Stack ids beyond this are numbered anew instead of shifted.
const MAX_SHIFTED_STACK: i64 = 1 << 40;
/// Distinct stack ids of one source that are kept when they have to be numbered anew.
pub(crate) const MAX_STACK_VALUES: usize = 8 << 20;

/// Where rows come from, and so which rows their references mean. A stored row must not find an
/// expanded one under the key of a row that was lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RowOrigin {
    /// Rows as the shard holds them.
    Stored,
    /// Rows that native ones expanded to: their keys are numbers already, and their events and tracks
    /// are expanded ones too.
    Expanded,
    /// Rows that stand for lost ones: their keys are numbers already.
    Placeholder,
}

/// Consecutive keys, and the number that the first of them has among the source's rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeyRun {
    /// The first key.
    pub first: i64,
    /// Behind the last key.
    pub next: i64,
    /// Number of the first row.
    pub number: i64,
}

/// The keys that rows of one table have in one source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeySpace {
    /// Stored rows, ascending. More than one run where blocks were lost, or where keys are handles.
    pub stored: Vec<KeyRun>,
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
    /// The space of a table with one row.
    pub(crate) fn one(key: i64) -> KeySpace {
        let mut space = KeySpace::default();
        space.add_keys(key, key + 1);
        space.expanded = (space.next, space.next);
        space
    }

    /// Adds stored rows with the keys `first..next`, which stand behind all others. They are numbered
    /// without holes.
    pub(crate) fn add_keys(&mut self, first: i64, next: i64) {
        match self.stored.last_mut() {
            Some(last) if last.next == first => last.next = next,
            _ => self.stored.push(KeyRun { first, next, number: self.next }),
        }
        self.next += next - first;
    }

    /// The number of the stored row with this key among the source's rows of the table; `None` where
    /// there is no such row.
    #[inline]
    pub(crate) fn stored(&self, key: i64) -> Option<i64> {
        self.stored_run(key).map(|run| run.number + (key - run.first))
    }

    #[inline]
    fn stored_run(&self, key: i64) -> Option<&KeyRun> {
        let run = match self.stored.as_slice() {
            [run] => run,
            runs => runs.get(runs.partition_point(|run| run.next <= key))?,
        };
        (run.first <= key && key < run.next).then_some(run)
    }

    /// The rows among which is the one that a row of this origin means by `key`.
    pub(crate) fn run(&self, key: i64, table: TableId, origin: RowOrigin) -> Option<KeyRun> {
        match (origin, table) {
            (RowOrigin::Expanded, rocpd::EVENT | rocpd::TRACK) => {
                let (first, next) = self.expanded;
                (first..next).contains(&key).then_some(KeyRun { first, next, number: first })
            }
            _ => self.stored_run(key).copied(),
        }
    }

    /// Number of rows that reach the output.
    pub(crate) fn rows(&self) -> u64 {
        let stored: i64 = self.stored.iter().map(|run| run.next - run.first).sum();
        (stored + self.expanded.1 - self.expanded.0) as u64 + u64::from(self.placeholder.is_some())
    }
}

/// The key spaces of a source, by table: as small as they can be, there are thousands of sources.
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
    /// The space of a table.
    #[inline]
    pub(crate) fn get(&self, table: &TableId) -> Option<&KeySpace> {
        let at = self.0.binary_search_by_key(table, |(table, _)| *table).ok()?;
        Some(&self.0[at].1)
    }

    /// All of them, by table.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (TableId, &KeySpace)> {
        self.0.iter().map(|(table, space)| (*table, space))
    }

    /// All of them.
    pub(crate) fn values(&self) -> impl Iterator<Item = &KeySpace> {
        self.0.iter().map(|(_, space)| space)
    }
}

/// Keys of the first rows that a native block expands to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ExpandedKeys {
    /// `rocpd_event`.
    pub event: i64,
    /// `rocpd_region`.
    pub region: i64,
    /// `rocpd_sample`.
    pub sample: i64,
    /// `rocpd_arg`.
    pub arg: i64,
}

impl ExpandedKeys {
    /// Goes past so many rows of a table.
    pub(crate) fn advance(&mut self, table: TableId, rows: i64) {
        match table {
            rocpd::EVENT => self.event += rows,
            rocpd::REGION => self.region += rows,
            rocpd::SAMPLE => self.sample += rows,
            _ => self.arg += rows,
        }
    }
}

/// How many stack ids of one source may be numbered anew.
#[derive(Debug)]
pub struct StackRoom {
    most: usize,
    /// One source at a time.
    turn: Mutex<()>,
    /// What would have been enough for a source that had more; 0 where none had.
    wanted: AtomicUsize,
}

impl Default for StackRoom {
    fn default() -> StackRoom {
        StackRoom::new(MAX_STACK_VALUES)
    }
}

impl StackRoom {
    /// For so many, [`MAX_STACK_VALUES`] at most.
    pub fn new(most: usize) -> StackRoom {
        StackRoom { most: most.min(MAX_STACK_VALUES), turn: Mutex::default(), wanted: AtomicUsize::new(0) }
    }

    /// How many would have been enough, where a source had more.
    pub fn wanted(&self) -> Option<usize> {
        Some(self.wanted.load(Ordering::Relaxed)).filter(|wanted| *wanted > 0)
    }
}

/// How long a row may be that is read whole.
#[derive(Debug)]
pub struct RowRoom {
    most: u64,
    /// The longest that was longer; 0 where none was.
    longest: AtomicU64,
}

impl Default for RowRoom {
    fn default() -> RowRoom {
        RowRoom::new(u64::MAX)
    }
}

impl RowRoom {
    /// For rows of so many bytes.
    pub fn new(most: u64) -> RowRoom {
        RowRoom { most, longest: AtomicU64::new(0) }
    }

    /// Whether there is room for so many bytes; it is noted where there is not.
    pub(super) fn has(&self, bytes: u64) -> bool {
        if bytes > self.most {
            self.longest.fetch_max(bytes, Ordering::Relaxed);
        }
        bytes <= self.most
    }

    /// The longest row that there was no room for.
    pub fn longest(&self) -> Option<u64> {
        Some(self.longest.load(Ordering::Relaxed)).filter(|bytes| *bytes > 0)
    }
}

/// The stack ids of one source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StackSpace {
    /// Small values: shifted. The largest one.
    Offset(i64),
    /// Negative or huge values: numbered from 1. All of them, ascending; see [`rpd_shard::model::Value::stack_id`].
    Dictionary(Vec<i64>),
}

impl StackSpace {
    /// Of ids within these bounds. All `rows` with ids are read only where the ids have to be numbered anew;
    /// past [`MAX_STACK_VALUES`] some are left out, and count as lost when they are looked up. Where there is
    /// less room than that, it is said how much there should be, and the space is empty.
    pub(super) fn of(
        bounds: Option<(i64, i64)>,
        room: &StackRoom,
        rows: impl Iterator<Item = Rows<Local>>,
    ) -> StackSpace {
        match bounds {
            None => return StackSpace::Offset(0),
            Some((low, high)) if low >= 0 && high <= MAX_SHIFTED_STACK => return StackSpace::Offset(high),
            Some(_) => {}
        }
        // Such ids are rare, and there is room for those of one source.
        let _turn = room.turn.lock().unwrap_or_else(PoisonError::into_inner);
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
            if values.len() > 2 * room.most {
                is_full = room.most < MAX_STACK_VALUES && keep_distinct(&mut values, room.most);
            }
        }
        if room.most < MAX_STACK_VALUES && (is_full || keep_distinct(&mut values, room.most)) {
            room.wanted.fetch_max(found.min(MAX_STACK_VALUES), Ordering::Relaxed);
            return StackSpace::Offset(0);
        }
        keep_distinct(&mut values, MAX_STACK_VALUES);
        values.shrink_to_fit();
        StackSpace::Dictionary(values)
    }

    /// How many ids the output sets aside for this source.
    pub(crate) fn len(&self) -> i64 {
        match self {
            StackSpace::Offset(max) => *max,
            StackSpace::Dictionary(values) => values.len() as i64,
        }
    }
}

/// Keeps so many different values; returns whether there were more.
fn keep_distinct(values: &mut Vec<i64>, most: usize) -> bool {
    values.sort_unstable();
    values.dedup();
    let is_more = values.len() > most;
    values.truncate(most);
    is_more
}

/// The bounds of what two parts hold.
pub(super) fn join(a: Option<(i64, i64)>, b: Option<(i64, i64)>) -> Option<(i64, i64)> {
    match (a, b) {
        (Some(a), Some(b)) => Some((a.0.min(b.0), a.1.max(b.1))),
        (a, b) => a.or(b),
    }
}

/// Rows of a source that are read at once.
#[derive(Clone, Debug)]
pub(crate) enum SourcePiece {
    /// The process itself, made from its record.
    Process,
    /// A block of a shard; of native rows with the keys of the first rows that they expand to.
    Block(BlockRef, Option<Box<ExpandedKeys>>),
    /// Rows of a database: its space, the table of that space, and the place.
    Rows {
        /// Position of the space in the file.
        space: usize,
        /// Position of the table in the space.
        table: usize,
        /// Which rows.
        piece: rpd_rocpd::read::Piece,
    },
    /// Tracks of expanded samples, and rows that stand for lost ones.
    Tail,
}

/// What a survey found of one source.
#[derive(Clone, Debug)]
pub(crate) struct InputSource {
    /// The process; of several in one space the one that gives the source its place.
    pub process: Process,
    /// Its nodes, by their keys.
    pub nodes: Vec<(i64, Node)>,
    /// Its keys, per table of the output.
    pub spaces: KeySpaces,
    /// Its stack ids.
    pub stacks: StackSpace,
    /// Its rows in the order of writing. In every table their ids ascend.
    pub pieces: Box<[SourcePiece]>,
    /// Tracks of its samples.
    pub tracks: SourceTracks,
    /// Position of its string table in the input.
    pub string_table: usize,
    /// Its tables in the job's terms, by their number in the input.
    pub tables: Arc<BTreeMap<TableId, Arc<Table>>>,
    /// Its collectives, until they are compared.
    pub collectives: ProcessCollectives,
}

/// Key of the track of each thread and name. The thread is [`NO_THREAD`] where it is not known.
pub(crate) type SourceTracks = BTreeMap<(i64, BuiltinString), i64>;

/// Stands for threads that are not in the shard, or that are too many: their samples share a track.
pub(crate) const NO_THREAD: i64 = 0;

impl InputSource {
    /// Key of its first process.
    pub(crate) fn first_process(&self) -> i64 {
        let processes = self.spaces.get(&rocpd::INFO_PROCESS);
        processes.and_then(|space| space.stored.first()).map_or(0, |run| run.first)
    }

    /// Order in the output: rank, workers behind it, start.
    pub(crate) fn order(&self) -> impl Ord + use<> {
        let p = &self.process;
        (p.rank.unwrap_or(u32::MAX), p.restart, p.worker, p.first_seen, p.pid, p.source)
    }
}
