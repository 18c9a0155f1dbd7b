//! Items that are drawn: the interface between the rows of the database and the trace formats.

use rpd_perfetto::{CounterValue, Overlaps};
use rpd_run::{DRAWN_TABLES, ProcessIdentity};
use rpd_shard::model::TableId;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
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
    /// Begin, ns in job time.
    pub start: i64,
    /// End, ns in job time, not before `start`. It equals `start` for all kinds but slices.
    pub end: i64,
    /// Index in [`UnitLayout::tracks`].
    pub track: u32,
    /// Kind of the item.
    pub kind: ItemKind,
    /// Name. Counters and samples have none (0).
    pub name: TextId,
    /// Category; 0 for none.
    pub category: TextId,
    /// Flows that begin, end or continue at the item.
    pub flows: &'a [FlowEnd],
    /// Annotations.
    pub args: &'a [ItemArg<'a>],
}

/// Kind of an item.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum ItemKind {
    /// Slice with a duration, which may be 0.
    Slice,
    /// Instant.
    Instant,
    /// Value of a counter from this time on.
    Counter(CounterValue),
    /// Call stack of a thread. The track is a [`TrackKind::Thread`].
    Sample(StackNumber),
}

/// The first number of flows in a unit. Smaller ones are those of messages between units.
pub(crate) const FIRST_UNIT_FLOW: u64 = 1 << UNIT_FLOW_SHIFT;
/// Numbers of flows in a unit start at (its index in the job + 1), shifted by this many bits. Consecutive numbers
/// differ little; with hashes, a compressed file would be half as large again.
pub(crate) const UNIT_FLOW_SHIFT: u32 = 40;

/// Bit that is set in the numbers of flows through collectives.
pub(crate) const COLLECTIVE_BIT: u64 = 1 << 63;

/// One end of a flow, with the number of the flow, which is unique in the job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FlowEnd {
    /// The flow begins here.
    From(u64),
    /// The flow ends here.
    To(u64),
    /// The flow continues here: it connects all items with this number in the order of their times.
    Through(u64),
}

/// An annotation.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ItemArg<'a> {
    /// Name.
    pub name: TextId,
    /// Value.
    pub value: ArgValue<'a>,
}

/// The value of an annotation.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum ArgValue<'a> {
    /// Signed integer.
    Int(i64),
    /// Integer that may exceed `i64`.
    Uint(u64),
    /// Floating point number.
    Double(f64),
    /// Boolean.
    Bool(bool),
    /// Text of this item alone.
    Text(&'a str),
    /// Text that many items share.
    Known(TextId),
}

/// A track of a unit. It is drawn as several lanes where its slices overlap.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DrawnTrack {
    /// Index in [`UnitLayout::processes`].
    pub process: u32,
    /// Index of the parent track, which precedes this one; `None` directly below the process.
    pub parent: Option<u32>,
    /// Name.
    pub name: String,
    /// Kind of its content.
    pub kind: TrackKind,
    /// Position among the children of its parent.
    pub order: i32,
    /// Further description.
    pub description: Option<String>,
}

/// Lane below a track for the calls of earlier files that launched something in the current file.
pub(crate) const EARLIER_CALLS_LANE: u32 = u32::MAX;
/// Name of this lane.
pub(crate) const EARLIER_CALLS: &str = "calls before this file";

/// Returns the name of a thread that has none.
pub(crate) fn unnamed_thread(tid: i64) -> String {
    format!("thread {tid}")
}

impl DrawnTrack {
    /// Returns the name of a lane of the track.
    pub(crate) fn lane_name(&self, lane: u32) -> &str {
        if lane == EARLIER_CALLS_LANE { EARLIER_CALLS } else { &self.name }
    }

    /// Returns whether it is a thread that has no name but this number.
    pub(crate) fn has_number_as_name(&self, shown: i64) -> bool {
        matches!(self.kind, TrackKind::Thread { tid } if tid == shown && self.name == unnamed_thread(tid))
    }
}

/// Kind of a track's content.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TrackKind {
    /// Slices, instants and samples of a thread. Slices nest.
    Thread {
        /// Thread id in the operating system. It is not unique in the job.
        tid: i64,
    },
    /// Only other tracks.
    Group,
    /// Slices and instants that belong to no thread.
    Slices(Overlaps),
    /// Values of a counter.
    Counter {
        /// Unit, for example `ns`, `bytes` or `MHz`; empty if there is none.
        unit: String,
    },
}

/// The processes and tracks that the rows of a unit need.
#[derive(Debug, Default)]
pub struct UnitLayout {
    /// Processes in the order of the job.
    pub processes: Vec<ProcessIdentity>,
    /// Tracks; a parent precedes its children.
    pub tracks: Vec<DrawnTrack>,
    /// First time of the unit, ns in job time; `None` if no row has a time.
    pub first: Option<i64>,
    /// Last time of the unit.
    pub last: Option<i64>,
    /// Number of items to draw. The numbers of counter values and samples are approximate.
    pub counts: EventCounts,
    /// Results of the survey that the second pass needs.
    pub(crate) seen: super::draw::SurveyedUnit,
}

/// Numbers of events in a file, or of items of a unit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct EventCounts {
    /// Slices that begin.
    pub slices: u64,
    /// Slices that continue from another file.
    pub continued: u64,
    /// Calls of earlier files that the file repeats, because they launched something in it.
    pub earlier_calls: u64,
    /// Instants.
    pub instants: u64,
    /// Counter values.
    pub counters: u64,
    /// Counter values that are repeated from before the file.
    pub repeated: u64,
    /// Samples of call stacks.
    pub samples: u64,
    /// Ends of flows at items that begin in the file.
    pub flows: u64,
}

impl EventCounts {
    /// Adds other counts.
    pub fn add(&mut self, other: &EventCounts) {
        self.slices += other.slices;
        self.continued += other.continued;
        self.earlier_calls += other.earlier_calls;
        self.instants += other.instants;
        self.counters += other.counters;
        self.repeated += other.repeated;
        self.samples += other.samples;
        self.flows += other.flows;
    }

    /// Returns the number of items, each counted in one file.
    pub(crate) fn items(&self) -> u64 {
        self.slices + self.instants + self.counters + self.samples
    }
}

/// Texts and call stacks of a unit. It grows while items are read.
#[derive(Debug, Default)]
pub struct UnitDictionary {
    /// The texts.
    pub texts: TextTable,
    /// The call stacks, by [`StackNumber`].
    pub stacks: Vec<CallStack>,
}

/// A call stack.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct CallStack {
    /// Frames, outermost first.
    pub frames: Vec<StackFrame>,
}

/// A location in the code.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct StackFrame {
    /// Name of the function.
    pub function: TextId,
    /// File that contains the code; 0 if it is not known.
    pub file: TextId,
    /// Offset in that file; 0 if it is not known.
    pub offset: u64,
}

/// The distinct texts of a unit. A text is UTF-8 of any length and may contain any character.
#[derive(Debug)]
pub struct TextTable {
    bytes: String,
    /// End of each text in `bytes`.
    ends: Vec<usize>,
    /// Text by its hash, or by the next free hash after a collision.
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
    /// Returns the text with this number; empty if there is none.
    pub fn get(&self, id: TextId) -> &str {
        let place = id.0 as usize;
        let end = self.ends.get(place).copied().unwrap_or(0);
        let start = place.checked_sub(1).and_then(|before| self.ends.get(before)).copied().unwrap_or(0);
        self.bytes.get(start..end).unwrap_or("")
    }

    /// Returns the number of texts.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Returns whether there is no text but the empty one.
    pub fn is_empty(&self) -> bool {
        self.ends.len() <= 1
    }

    /// Returns the approximate memory of the texts, in bytes.
    pub fn memory(&self) -> u64 {
        (self.bytes.len() + self.ends.len() * 64) as u64
    }

    /// Returns the number of a text and adds the text if it is new.
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

/// The part of the database that is drawn.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TraceSelection {
    /// Ranks of processes that are drawn; `None` for all. Processes without a rank are always drawn.
    pub ranks: Option<Vec<RangeInclusive<u32>>>,
    /// Items that are excluded.
    pub exclude: Vec<ItemExclusion>,
    /// Whether items have args.
    pub annotations: bool,
    /// Whether kernels are drawn on tracks by queue instead of by stream.
    pub group_by_queue: bool,
}

impl Default for TraceSelection {
    fn default() -> TraceSelection {
        TraceSelection { ranks: None, exclude: Vec::new(), annotations: true, group_by_queue: false }
    }
}

impl TraceSelection {
    /// Returns whether items of a kind are drawn.
    pub(crate) fn includes(&self, kind: ItemExclusion) -> bool {
        !self.exclude.contains(&kind)
    }

    /// Returns warnings about excluded categories that no row has. `matched` has a bit for each of the first 64 exclusions.
    pub(crate) fn unmatched_categories(&self, matched: u64) -> impl Iterator<Item = String> {
        let excluded = (0..u64::BITS).zip(&self.exclude);
        excluded.filter_map(move |(place, what)| match what {
            ItemExclusion::Category(name) if matched >> place & 1 == 0 => Some(format!(
                "--exclude category={name} leaves out nothing: no row that would be drawn has it"
            )),
            _ => None,
        })
    }

    /// Returns the words of the excluded kinds, as `--exclude` takes them.
    pub(crate) fn left_out(&self) -> Vec<String> {
        let mut words: Vec<String> = self.exclude.iter().map(ItemExclusion::word).collect();
        words.extend((!self.annotations).then(|| "annotations".to_owned()));
        words
    }
}

/// A kind of item that can be excluded.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ItemExclusion {
    /// Calls and ranges.
    Regions,
    /// Kernel dispatches and their counters.
    Kernels,
    /// Memory copies.
    Copies,
    /// Memory allocations and their sums.
    Allocations,
    /// Counter values.
    Counters,
    /// Call stacks.
    Samples,
    /// Ranges and marks that the program set: categories that begin with `MARKER_`.
    Markers,
    /// Recorded arguments of calls.
    Args,
    /// Flows.
    Flows,
    /// All items with this category.
    Category(String),
}

impl ItemExclusion {
    fn word(&self) -> String {
        let word = match self {
            ItemExclusion::Regions => "regions",
            ItemExclusion::Kernels => "kernels",
            ItemExclusion::Copies => "copies",
            ItemExclusion::Allocations => "allocations",
            ItemExclusion::Counters => "counters",
            ItemExclusion::Samples => "samples",
            ItemExclusion::Markers => "markers",
            ItemExclusion::Args => "args",
            ItemExclusion::Flows => "flows",
            ItemExclusion::Category(name) => return format!("category={name}"),
        };
        word.to_owned()
    }
}

/// How the rows of one table were drawn.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct TableFacts {
    /// Rows that were read.
    pub rows: u64,
    /// Rows that became items.
    pub drawn: u64,
    /// Rows that the selection excluded, or that are outside of the window.
    pub left_out: u64,
    /// Rows that have no time and cannot be drawn.
    pub untimed: u64,
    /// Rows that ended before they began. They are drawn without a duration.
    pub clamped: u64,
    /// Sum of the drawn durations, ns.
    pub duration: u128,
}

/// Counts of what was drawn of a unit and what was not, for comparison with the database. The facts of several
/// units can be added.
///
/// Without a window, `rows` of a table is its `count(*)`, and `drawn + left_out + untimed = rows`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct UnitFacts {
    /// Rows of each table of [`DRAWN_TABLES`], in this order. Rows of `rocpd_sample` become an instant or a call
    /// stack each, or only the values of its counters; those of `rocpd_pmc_event` a counter value each, and a 0
    /// at the end of a span; those of `rocpd_arg` an annotation each; all others a slice each. `untimed` rows of
    /// the last two have an event that no other row has.
    pub(crate) tables: [TableFacts; DRAWN_TABLES.len()],
    /// Items that were passed on.
    pub items: EventCounts,
    /// Exclusions by category that apply to a row, as bits by their places in the selection; those beyond 64 are not kept.
    pub(crate) matched_exclusions: u64,
    /// Args that are ends of flows, if flows are not requested. They are also rows of `rocpd_arg`.
    pub flow_ends_left_out: u64,
    /// Args in the extdata of events, if args are not requested.
    pub extdata_args_left_out: u64,
    /// Flows from a call to a kernel or copy.
    pub launch_flows: u64,
    /// Kernels and copies that began before their call. They have no flow.
    pub backward: u64,
    /// Regions that were recognised as calls of a collective and connected with those of other ranks.
    pub collectives: u64,
    /// Rows with a missing event. They are drawn without category, args and flows.
    pub without_event: u64,
    /// Rows with a missing thread, agent, stream, queue or track. They are drawn on a separate track.
    pub without_track: u64,
    /// Texts that were not UTF-8. U+FFFD replaces the invalid bytes.
    pub mended: u64,
    /// Call stacks that were truncated because they are too deep or cannot be read.
    pub cut_stacks: u64,
    /// Counter values that are not numbers.
    pub no_numbers: u64,
    /// Texts that the format of the trace could not write unchanged.
    pub replaced: u64,
    /// Flows that end in a file that has no slice at which they begin.
    pub without_source: u64,
}

/// Returns the index of a table in [`DRAWN_TABLES`]; that of `rocpd_arg` for other tables.
pub(crate) fn table_place(table: TableId) -> usize {
    DRAWN_TABLES.iter().position(|drawn| *drawn == table).unwrap_or(DRAWN_TABLES.len() - 1)
}

impl UnitFacts {
    /// Returns the facts of a table.
    pub fn table(&self, table: TableId) -> &TableFacts {
        &self.tables[table_place(table)]
    }

    pub(crate) fn table_mut(&mut self, table: TableId) -> &mut TableFacts {
        &mut self.tables[table_place(table)]
    }

    /// Adds the facts of another unit.
    pub fn add(&mut self, other: &UnitFacts) {
        for (sum, more) in self.tables.iter_mut().zip(&other.tables) {
            sum.rows += more.rows;
            sum.drawn += more.drawn;
            sum.left_out += more.left_out;
            sum.untimed += more.untimed;
            sum.clamped += more.clamped;
            sum.duration += more.duration;
        }
        self.items.add(&other.items);
        self.matched_exclusions |= other.matched_exclusions;
        self.flow_ends_left_out += other.flow_ends_left_out;
        self.extdata_args_left_out += other.extdata_args_left_out;
        self.launch_flows += other.launch_flows;
        self.backward += other.backward;
        self.collectives += other.collectives;
        self.without_event += other.without_event;
        self.without_track += other.without_track;
        self.mended += other.mended;
        self.cut_stacks += other.cut_stacks;
        self.without_source += other.without_source;
        self.no_numbers += other.no_numbers;
        self.replaced += other.replaced;
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
