//! What is drawn: the contract between the rows of the database and the formats of traces.

use rpd_perfetto::{CounterValue, Overlaps};
use rpd_run::ProcessIdentity;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};
use std::ops::RangeInclusive;

/// Number of a text in the [`TextTable`] of a unit, dense. 0 is the empty text.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct TextId(pub u32);

/// Number of a call stack in the [`UnitDictionary`] of a unit, dense.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct StackNumber(pub u32);

/// Something that is drawn.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct TraceItem<'a> {
    /// When it begins, ns in the clock of the job.
    pub start: i64,
    /// When it ends, ns in the clock of the job, not before `start`. All kinds but slices end as they begin.
    pub end: i64,
    /// Place in [`UnitLayout::tracks`].
    pub track: u32,
    /// What it is.
    pub kind: ItemKind,
    /// Its name. Counters and samples have none (0).
    pub name: TextId,
    /// Its category, 0 for none.
    pub category: TextId,
    /// Arrows that begin, end or pass here.
    pub flows: &'a [FlowEnd],
    /// What else there is to say.
    pub args: &'a [ItemArg<'a>],
}

/// What an item is.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum ItemKind {
    /// Something with a duration, which may be 0.
    Slice,
    /// A moment.
    Instant,
    /// The value of a counter from this moment on.
    Counter(CounterValue),
    /// Where a thread was; its track is a [`TrackKind::Thread`].
    Sample(StackNumber),
}

/// An end of an arrow, by the number of the arrow, which is unique in the job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FlowEnd {
    /// It begins here.
    From(u64),
    /// It ends here.
    To(u64),
    /// It passes here: all items with this number belong together, in the order of their times.
    Through(u64),
}

/// An annotation.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ItemArg<'a> {
    /// Its name.
    pub name: TextId,
    /// Its value.
    pub value: ArgValue<'a>,
}

/// The value of an annotation.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum ArgValue<'a> {
    /// A whole number.
    Int(i64),
    /// A whole number that is none of `i64`.
    Uint(u64),
    /// A number.
    Double(f64),
    /// Yes or no.
    Bool(bool),
    /// A text of this item alone.
    Text(&'a str),
    /// A text that many items have.
    Known(TextId),
}

/// One row of a unit, or several lanes where its slices overlap.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DrawnTrack {
    /// Place in [`UnitLayout::processes`].
    pub process: u32,
    /// Place of another track, which stands before this one; `None` directly below the process.
    pub parent: Option<u32>,
    /// Its name.
    pub name: String,
    /// What is on it.
    pub kind: TrackKind,
    /// Its place among the children of its parent.
    pub order: i32,
    /// What else there is to say about it.
    pub description: Option<String>,
}

/// What is on a track.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TrackKind {
    /// Slices, instants and samples of a thread. Slices nest.
    Thread {
        /// Its number in the operating system: not unique in the job.
        tid: i64,
    },
    /// Nothing but other tracks.
    Group,
    /// Slices and instants of no thread.
    Slices(Overlaps),
    /// Values of a counter.
    Counter {
        /// Its unit, empty for none: `ns`, `bytes`, `MHz`.
        unit: String,
    },
}

/// The processes and tracks of a unit, as its rows need them.
#[derive(Debug, Default)]
pub struct UnitLayout {
    /// The processes, in the order of the job.
    pub processes: Vec<ProcessIdentity>,
    /// The tracks; a parent stands before its children.
    pub tracks: Vec<DrawnTrack>,
    /// First time of the unit, ns in the clock of the job; `None` where nothing has a time.
    pub first: Option<i64>,
    /// Last time of the unit.
    pub last: Option<i64>,
    /// How much there is to draw, without the exact number of counter values and samples.
    pub counts: ItemCounts,
    /// What the second pass needs to know of the first.
    pub(crate) seen: super::draw::SurveyedUnit,
}

/// Numbers of items.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ItemCounts {
    /// Slices.
    pub slices: u64,
    /// Instants.
    pub instants: u64,
    /// Values of counters.
    pub counters: u64,
    /// Samples of call stacks.
    pub samples: u64,
    /// Ends of arrows.
    pub flows: u64,
}

/// The sort of an item, before it is known in full.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ItemSort {
    /// A [`ItemKind::Slice`].
    Slice,
    /// A [`ItemKind::Instant`], or a [`ItemKind::Sample`].
    Moment,
    /// A [`ItemKind::Counter`].
    Counter,
}

/// Texts and call stacks of a unit. It grows while the items are read.
#[derive(Debug, Default)]
pub struct UnitDictionary {
    /// The texts.
    pub texts: TextTable,
    /// The call stacks, by their [`StackNumber`].
    pub stacks: Vec<CallStack>,
}

/// A call stack.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct CallStack {
    /// Outermost first.
    pub frames: Vec<StackFrame>,
}

/// A place in the code.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct StackFrame {
    /// Name of the function.
    pub function: TextId,
    /// The file that the code came from, 0 where it is not known.
    pub file: TextId,
    /// Place in that file, 0 where it is not known.
    pub offset: u64,
}

/// The distinct texts of a unit. A text is UTF-8, of any length, and may have any characters.
#[derive(Debug)]
pub struct TextTable {
    bytes: String,
    /// Where each text ends.
    ends: Vec<usize>,
    /// By hash of the text, or the next free number.
    known: HashMap<u64, TextId>,
}

impl Default for TextTable {
    fn default() -> TextTable {
        let mut texts = TextTable { bytes: String::new(), ends: Vec::new(), known: HashMap::new() };
        texts.add("");
        texts
    }
}

impl TextTable {
    /// The text with this number; empty for one that nobody gave.
    pub fn get(&self, id: TextId) -> &str {
        let place = id.0 as usize;
        let end = self.ends.get(place).copied().unwrap_or(0);
        let start = place.checked_sub(1).and_then(|before| self.ends.get(before)).copied().unwrap_or(0);
        self.bytes.get(start..end).unwrap_or("")
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there is none but the empty text.
    pub fn is_empty(&self) -> bool {
        self.ends.len() <= 1
    }

    /// Bytes of memory that they take, about.
    pub fn memory(&self) -> u64 {
        (self.bytes.len() + self.ends.len() * 64) as u64
    }

    /// The number of a text, which is a new one if the text is.
    pub fn add(&mut self, text: &str) -> TextId {
        let mut hash = twox_hash::XxHash3_64::oneshot(text.as_bytes());
        let next = TextId(self.ends.len() as u32);
        while let Some(id) = self.known.get(&hash) {
            if self.get(*id) == text {
                return *id;
            }
            hash = hash.wrapping_add(1);
        }
        self.known.insert(hash, next);
        self.bytes.push_str(text);
        self.ends.push(self.bytes.len());
        next
    }
}

/// What of the database is drawn.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TraceSelection {
    /// Ranks whose processes are drawn; all where there is none. Processes without a rank are always drawn.
    pub ranks: Option<Vec<RangeInclusive<u32>>>,
    /// What is left out.
    pub exclude: Vec<ItemExclusion>,
    /// Whether items have args.
    pub annotations: bool,
    /// Whether kernels are on tracks by queues, and not by streams.
    pub group_by_queue: bool,
}

impl Default for TraceSelection {
    fn default() -> TraceSelection {
        TraceSelection { ranks: None, exclude: Vec::new(), annotations: true, group_by_queue: false }
    }
}

/// Something that can be left out.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ItemExclusion {
    /// Calls and ranges.
    Regions,
    /// Kernel dispatches, with the counters of theirs.
    Kernels,
    /// Memory copies.
    Copies,
    /// Memory allocations, with their sums.
    Allocations,
    /// Values of counters.
    Counters,
    /// Call stacks.
    Samples,
    /// Ranges and marks that the program set: categories that begin with `MARKER_`.
    Markers,
    /// Recorded arguments of calls.
    Args,
    /// Arrows.
    Flows,
    /// Whatever has this category.
    Category(String),
}

/// What became of the rows of one table.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct TableFacts {
    /// Rows that were read.
    pub rows: u64,
    /// Rows that became items.
    pub drawn: u64,
    /// Rows that the selection left out, or that are outside of the window.
    pub left_out: u64,
    /// Rows that have no time, so that they cannot be drawn.
    pub untimed: u64,
    /// Rows that ended before they began: drawn without a duration.
    pub clamped: u64,
    /// Sum of the durations that were drawn, ns.
    pub duration: u128,
    /// Arguments of the drawn rows in `$.args` of the extdata of their events, where arguments are asked for: not drawn.
    pub event_args: u64,
}

/// Categories of arrows that are counted one by one.
const MAX_ARROW_CATEGORIES: usize = 64;
/// Longest name of such a category, characters.
const MAX_CATEGORY: usize = 64;

/// What was drawn of a unit, to be compared with the database, and what was not. Facts of several units add up.
///
/// Without a window, `rows` of a table is its `count(*)`, and `drawn + left_out + untimed = rows`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct UnitFacts {
    /// Rows of `rocpd_region`: a slice each.
    pub regions: TableFacts,
    /// Rows of `rocpd_kernel_dispatch`: a slice each.
    pub kernels: TableFacts,
    /// Rows of `rocpd_memory_copy`: a slice each.
    pub copies: TableFacts,
    /// Rows of `rocpd_memory_allocate`: a slice each.
    pub allocations: TableFacts,
    /// Rows of `rocpd_sample`: an instant or a call stack each, or nothing but the values of its counters.
    pub samples: TableFacts,
    /// Rows of `rocpd_pmc_event`: one value of a counter each, and a 0 at the end of a span. `untimed`: their event is
    /// that of no other row.
    pub values: TableFacts,
    /// Rows of `rocpd_arg`: an annotation each. `untimed`: their event is that of no other row.
    pub args: TableFacts,
    /// Items that were handed on.
    pub items: ItemCounts,
    /// Arrows from a call to a kernel or copy.
    pub arrows: u64,
    /// Kernels and copies that began before the call that they belong to: without an arrow.
    pub backward: u64,
    /// Regions that were found to be a call of a collective, and are joined with those of other ranks.
    pub collectives: u64,
    /// Rows whose event is not there: drawn without category, args and arrows.
    pub without_event: u64,
    /// Rows whose thread, agent, stream, queue or track is not there: drawn on a track for such.
    pub without_track: u64,
    /// Texts that were no UTF-8: U+FFFD stands for what was none.
    pub mended: u64,
    /// Call stacks that were cut because they are too deep, or cannot be read.
    pub cut_stacks: u64,
    /// Values of counters that are no numbers.
    pub no_numbers: u64,
    /// Arrows that an input keeps as args of their ends, by category, where arrows are asked for: not drawn.
    pub other_arrows: BTreeMap<String, u64>,
}

impl UnitFacts {
    /// Adds those of another unit.
    pub fn add(&mut self, other: &UnitFacts) {
        let tables = [
            (&mut self.regions, &other.regions),
            (&mut self.kernels, &other.kernels),
            (&mut self.copies, &other.copies),
            (&mut self.allocations, &other.allocations),
            (&mut self.samples, &other.samples),
            (&mut self.values, &other.values),
            (&mut self.args, &other.args),
        ];
        for (sum, more) in tables {
            sum.rows += more.rows;
            sum.drawn += more.drawn;
            sum.left_out += more.left_out;
            sum.untimed += more.untimed;
            sum.clamped += more.clamped;
            sum.duration += more.duration;
            sum.event_args += more.event_args;
        }
        self.items.add(&other.items);
        self.arrows += other.arrows;
        self.backward += other.backward;
        self.collectives += other.collectives;
        self.without_event += other.without_event;
        self.without_track += other.without_track;
        self.mended += other.mended;
        self.cut_stacks += other.cut_stacks;
        self.no_numbers += other.no_numbers;
        for (category, arrows) in &other.other_arrows {
            self.add_other_arrows(category, *arrows);
        }
    }

    /// Counts arrows of a category that are not drawn. Of very many categories the last ones are counted together.
    pub(super) fn add_other_arrows(&mut self, category: &str, arrows: u64) {
        let is_named =
            self.other_arrows.len() < MAX_ARROW_CATEGORIES || self.other_arrows.contains_key(category);
        let category: String = category.chars().take(MAX_CATEGORY).collect();
        let category = if is_named { category } else { "(others)".to_owned() };
        *self.other_arrows.entry(category).or_insert(0) += arrows;
    }
}

impl ItemCounts {
    /// Adds others.
    pub fn add(&mut self, other: &ItemCounts) {
        self.slices += other.slices;
        self.instants += other.instants;
        self.counters += other.counters;
        self.samples += other.samples;
        self.flows += other.flows;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_numbered_once() {
        let mut texts = TextTable::default();
        assert_eq!(texts.add(""), TextId(0));
        assert!(texts.is_empty());
        let one = texts.add("one");
        assert_eq!((one, texts.add("two"), texts.add("one")), (TextId(1), TextId(2), one));
        assert_eq!((texts.get(one), texts.get(TextId(2)), texts.get(TextId(9))), ("one", "two", ""));
        assert_eq!(texts.len(), 3);
    }
}
