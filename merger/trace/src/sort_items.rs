//! Sorts the items of a unit by time in bounded memory. Items that do not fit are sorted in parts, which are
//! stored compressed and merged at the end.

use super::item::{ArgValue, FlowEnd, ItemArg, ItemKind, StackNumber, TextId, TraceItem};
use super::spool::ItemSpool;
use rpd_console::Failure;
use rpd_perfetto::CounterValue;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of items that are compressed together.
const BLOCK_BYTES: usize = 32 << 10;
/// Compression level for data that is read once.
const COMPRESSION_LEVEL: i32 = 1;

/// Receives items and passes them on sorted by time.
///
/// Items with the same start are sorted by track, so that a call precedes the kernel that it starts. Then the
/// longest comes first, which encloses the others; the remaining ones keep their order.
pub(super) struct ItemSorter<'a> {
    folder: &'a Path,
    memory: usize,
    part: SortedPart,
    spooled: Option<Spooled>,
}

/// A stored item: times, track and all other fields.
#[derive(Clone, Copy, Debug)]
pub(super) struct StoredItem<'a> {
    pub(super) start: i64,
    pub(super) end: i64,
    pub(super) track: u32,
    pub(super) kind: ItemKind,
    pub(super) name: TextId,
    pub(super) category: TextId,
    pub(super) extra: ItemExtra<'a>,
}

/// Flows and annotations of an item, packed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ItemExtra<'a>(pub(super) &'a [u8]);

type Key = (i64, u32, Reverse<i64>);

impl StoredItem<'_> {
    fn key(&self) -> Key {
        (self.start, self.track, Reverse(self.end))
    }
}

impl<'a> ItemSorter<'a> {
    /// Creates a sorter that uses up to `memory` bytes. Items that do not fit are written to files in `folder`.
    /// `expected` is the approximate number of items.
    pub(super) fn new(folder: &'a Path, memory: u64, expected: u64) -> ItemSorter<'a> {
        let memory = usize::try_from(memory).unwrap_or(usize::MAX).clamp(8 * BLOCK_BYTES, 1 << 30);
        let fit = memory / 2 / ITEM_BYTES;
        let expected = usize::try_from(expected).unwrap_or(usize::MAX).min(fit);
        let part = SortedPart {
            keys: Vec::with_capacity(expected),
            records: Vec::with_capacity(expected),
            extra: Vec::new(),
        };
        ItemSorter { folder, memory, part, spooled: None }
    }

    pub(super) fn push(&mut self, item: &TraceItem<'_>) -> Result<(), Failure> {
        self.part.push(item)?;
        // The other half is for growing vectors and for sorting.
        if self.part.bytes() > self.memory / 2 {
            self.spool_run()?;
        }
        Ok(())
    }

    /// Passes on all items in order.
    pub(super) fn sorted(
        mut self,
        each: &mut dyn FnMut(&StoredItem<'_>) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        if self.spooled.is_some() {
            self.spool_run()?;
        }
        match self.spooled {
            Some(spooled) => spooled.merge(each),
            None => {
                self.part.sort();
                self.part.items().try_for_each(|item| each(&item))
            }
        }
    }

    fn spool_run(&mut self) -> Result<(), Failure> {
        if self.part.keys.is_empty() {
            return Ok(());
        }
        self.part.sort();
        let max_parts = (self.memory / (4 * BLOCK_BYTES)).max(2);
        let spooled = match self.spooled.take() {
            None => Spooled::new(self.folder)?,
            Some(spooled) if spooled.parts.len() >= max_parts => {
                // All parts are merged into one, in a new file.
                let mut one = Spooled::new(self.folder)?;
                let mut writer = RunWriter::default();
                spooled.merge(&mut |item| writer.push(&one.spool, item))?;
                one.parts.push(writer.finish(&one.spool)?);
                one
            }
            Some(spooled) => spooled,
        };
        let spooled = self.spooled.insert(spooled);
        let mut writer = RunWriter::default();
        self.part.items().try_for_each(|item| writer.push(&spooled.spool, &item))?;
        spooled.parts.push(writer.finish(&spooled.spool)?);
        self.part.clear();
        Ok(())
    }
}

/// Items in memory.
#[derive(Default)]
struct SortedPart {
    keys: Vec<(Key, u32)>,
    records: Vec<Record>,
    extra: Vec<u8>,
}

/// Fields of an item other than its times and track.
struct Record {
    value: u64,
    extra_at: usize,
    extra_length: u32,
    name: u32,
    category: u32,
    kind: u8,
}

/// Size of an item in memory without flows and annotations, bytes.
const ITEM_BYTES: usize = size_of::<(Key, u32)>() + size_of::<Record>();

impl SortedPart {
    fn push(&mut self, item: &TraceItem<'_>) -> Result<(), Failure> {
        let extra_at = self.extra.len();
        pack(item, &mut self.extra);
        let too_large = |_| Failure::input("an event has more than 4 GiB of arguments");
        let extra_length = u32::try_from(self.extra.len() - extra_at).map_err(too_large)?;
        let (kind, value) = kind_to_bits(item.kind);
        let number = self.records.len() as u32;
        self.keys.push(((item.start, item.track, Reverse(item.end)), number));
        let (name, category) = (item.name.0, item.category.0);
        self.records.push(Record { value, extra_at, extra_length, name, category, kind });
        Ok(())
    }

    fn sort(&mut self) {
        // A stable sort, which is fast for partially sorted items.
        self.keys.sort_by_key(|(key, _)| *key);
    }

    /// Returns the item at a place in sorted order.
    fn get(&self, place: usize) -> Option<StoredItem<'_>> {
        let ((start, track, Reverse(end)), number) = *self.keys.get(place)?;
        let record = self.records.get(number as usize)?;
        let extra = self.extra.get(record.extra_at..record.extra_at + record.extra_length as usize)?;
        Some(StoredItem {
            start,
            end,
            track,
            kind: kind_from_bits(record.kind, record.value),
            name: TextId(record.name),
            category: TextId(record.category),
            extra: ItemExtra(extra),
        })
    }

    /// Returns the items in sorted order.
    fn items(&self) -> impl Iterator<Item = StoredItem<'_>> {
        (0..self.keys.len()).filter_map(|place| self.get(place))
    }

    fn bytes(&self) -> usize {
        // Numbers of records have 32 bits.
        if self.records.len() >= u32::MAX as usize {
            usize::MAX
        } else {
            self.keys.len() * ITEM_BYTES + self.extra.len()
        }
    }

    fn clear(&mut self) {
        self.keys.clear();
        self.records.clear();
        self.extra.clear();
    }
}

/// Sorted parts in a file.
struct Spooled {
    spool: ItemSpool,
    parts: Vec<Vec<Block>>,
}

/// Compressed items in a file.
#[derive(Clone, Copy)]
struct Block {
    place: u64,
    length: usize,
    raw: usize,
}

/// Makes the names of files unique.
static NEXT_SPOOL_NUMBER: AtomicU64 = AtomicU64::new(0);

impl Spooled {
    fn new(folder: &Path) -> Result<Spooled, Failure> {
        let number = NEXT_SPOOL_NUMBER.fetch_add(1, Ordering::Relaxed);
        let spool = ItemSpool::create(folder, &format!("items-{}-{number}", std::process::id()))?;
        Ok(Spooled { spool, parts: Vec::new() })
    }

    /// Passes on the items of all parts. Equal items of an earlier part come first.
    fn merge(&self, each: &mut dyn FnMut(&StoredItem<'_>) -> Result<(), Failure>) -> Result<(), Failure> {
        let mut cursors = Vec::with_capacity(self.parts.len());
        let mut first = BinaryHeap::with_capacity(self.parts.len());
        for (number, blocks) in self.parts.iter().enumerate() {
            let mut cursor = Cursor { blocks: blocks.iter(), bytes: Vec::new(), packed: Vec::new(), at: 0 };
            if let Some(key) = cursor.key(&self.spool)? {
                first.push(Reverse((key, number)));
            }
            cursors.push(cursor);
        }
        while let Some(Reverse((_, number))) = first.pop() {
            let Some(cursor) = cursors.get_mut(number) else { continue };
            // Items of one part that precede those of all others need no heap.
            loop {
                cursor.take(each)?;
                let Some(key) = cursor.key(&self.spool)? else { break };
                if first.peek().is_some_and(|Reverse(other)| *other < (key, number)) {
                    first.push(Reverse((key, number)));
                    break;
                }
            }
        }
        Ok(())
    }
}

/// A position in a sorted part.
struct Cursor<'a> {
    blocks: std::slice::Iter<'a, Block>,
    bytes: Vec<u8>,
    packed: Vec<u8>,
    at: usize,
}

impl Cursor<'_> {
    /// Returns the key of the next item; `None` at the end.
    fn key(&mut self, spool: &ItemSpool) -> Result<Option<Key>, Failure> {
        if self.at >= self.bytes.len() {
            let Some(block) = self.blocks.next() else { return Ok(None) };
            self.packed.resize(block.length, 0);
            spool.read(block.place, &mut self.packed)?;
            self.bytes = zstd::bulk::decompress(&self.packed, block.raw).map_err(|_| damaged())?;
            self.at = 0;
        }
        let (item, _) = read(self.bytes.get(self.at..).unwrap_or_default()).ok_or_else(damaged)?;
        Ok(Some(item.key()))
    }

    /// Passes on the next item.
    fn take(&mut self, each: &mut dyn FnMut(&StoredItem<'_>) -> Result<(), Failure>) -> Result<(), Failure> {
        let (item, length) = read(self.bytes.get(self.at..).unwrap_or_default()).ok_or_else(damaged)?;
        each(&item)?;
        self.at += length;
        Ok(())
    }
}

fn damaged() -> Failure {
    Failure::output("a temporary file is not as it was written; check the file system, or use -o")
}

/// Writes a sorted part.
#[derive(Default)]
struct RunWriter {
    bytes: Vec<u8>,
    blocks: Vec<Block>,
}

impl RunWriter {
    fn push(&mut self, spool: &ItemSpool, item: &StoredItem<'_>) -> Result<(), Failure> {
        write(item, &mut self.bytes);
        if self.bytes.len() >= BLOCK_BYTES { self.flush(spool) } else { Ok(()) }
    }

    fn flush(&mut self, spool: &ItemSpool) -> Result<(), Failure> {
        let packed = zstd::bulk::compress(&self.bytes, COMPRESSION_LEVEL)
            .map_err(|error| Failure::internal(format!("items cannot be compressed: {error}")))?;
        let place = spool.write(&packed)?;
        self.blocks.push(Block { place, length: packed.len(), raw: self.bytes.len() });
        self.bytes.clear();
        Ok(())
    }

    fn finish(mut self, spool: &ItemSpool) -> Result<Vec<Block>, Failure> {
        if !self.bytes.is_empty() {
            self.flush(spool)?;
        }
        Ok(self.blocks)
    }
}

const SLICE: u8 = 0;
const INSTANT: u8 = 1;
const COUNTER_INT: u8 = 2;
const COUNTER_DOUBLE: u8 = 3;
const SAMPLE: u8 = 4;

fn kind_to_bits(kind: ItemKind) -> (u8, u64) {
    match kind {
        ItemKind::Slice => (SLICE, 0),
        ItemKind::Instant => (INSTANT, 0),
        ItemKind::Counter(CounterValue::Int(value)) => (COUNTER_INT, value as u64),
        ItemKind::Counter(CounterValue::Double(value)) => (COUNTER_DOUBLE, value.to_bits()),
        ItemKind::Sample(StackNumber(number)) => (SAMPLE, number.into()),
    }
}

fn kind_from_bits(kind: u8, value: u64) -> ItemKind {
    match kind {
        INSTANT => ItemKind::Instant,
        COUNTER_INT => ItemKind::Counter(CounterValue::Int(value as i64)),
        COUNTER_DOUBLE => ItemKind::Counter(CounterValue::Double(f64::from_bits(value))),
        SAMPLE => ItemKind::Sample(StackNumber(value as u32)),
        _ => ItemKind::Slice,
    }
}

/// Size of an item before its flows and annotations, bytes.
const FIXED_BYTES: usize = 8 + 8 + 4 + 4 + 4 + 1 + 8 + 4;

fn write(item: &StoredItem<'_>, out: &mut Vec<u8>) {
    let (kind, value) = kind_to_bits(item.kind);
    out.extend_from_slice(&item.start.to_le_bytes());
    out.extend_from_slice(&item.end.to_le_bytes());
    out.extend_from_slice(&item.track.to_le_bytes());
    out.extend_from_slice(&item.name.0.to_le_bytes());
    out.extend_from_slice(&item.category.0.to_le_bytes());
    out.push(kind);
    out.extend_from_slice(&value.to_le_bytes());
    out.extend_from_slice(&(item.extra.0.len() as u32).to_le_bytes());
    out.extend_from_slice(item.extra.0);
}

/// Decodes the item at the start of these bytes, and returns it with its length in bytes.
fn read(bytes: &[u8]) -> Option<(StoredItem<'_>, usize)> {
    let mut rest = bytes;
    let start = i64::from_le_bytes(take(&mut rest)?);
    let end = i64::from_le_bytes(take(&mut rest)?);
    let track = u32::from_le_bytes(take(&mut rest)?);
    let name = TextId(u32::from_le_bytes(take(&mut rest)?));
    let category = TextId(u32::from_le_bytes(take(&mut rest)?));
    let [kind] = take(&mut rest)?;
    let kind = kind_from_bits(kind, u64::from_le_bytes(take(&mut rest)?));
    let length = u32::from_le_bytes(take(&mut rest)?) as usize;
    let extra = ItemExtra(rest.get(..length)?);
    Some((StoredItem { start, end, track, kind, name, category, extra }, FIXED_BYTES + length))
}

#[inline]
fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (bytes, after) = rest.split_first_chunk()?;
    *rest = after;
    Some(*bytes)
}

const FROM: u8 = 0;
const TO: u8 = 1;
const THROUGH: u8 = 2;
const INT: u8 = 3;
const UINT: u8 = 4;
const DOUBLE: u8 = 5;
const BOOL: u8 = 6;
const TEXT: u8 = 7;
const KNOWN: u8 = 8;

/// Packs flows, then annotations, each after its sort.
fn pack(item: &TraceItem<'_>, out: &mut Vec<u8>) {
    for flow in item.flows {
        let (sort, id) = match flow {
            FlowEnd::From(id) => (FROM, id),
            FlowEnd::To(id) => (TO, id),
            FlowEnd::Through(id) => (THROUGH, id),
        };
        out.push(sort);
        out.extend_from_slice(&id.to_le_bytes());
    }
    for arg in item.args {
        let (sort, bits) = match arg.value {
            ArgValue::Int(value) => (INT, value as u64),
            ArgValue::Uint(value) => (UINT, value),
            ArgValue::Double(value) => (DOUBLE, value.to_bits()),
            ArgValue::Bool(value) => (BOOL, value.into()),
            ArgValue::Text(text) => (TEXT, text.len() as u64),
            ArgValue::Known(TextId(id)) => (KNOWN, id.into()),
        };
        out.push(sort);
        out.extend_from_slice(&arg.name.0.to_le_bytes());
        out.extend_from_slice(&bits.to_le_bytes());
        if let ArgValue::Text(text) = arg.value {
            out.extend_from_slice(text.as_bytes());
        }
    }
}

impl<'a> ItemExtra<'a> {
    /// Returns the flows.
    pub(super) fn flows(self) -> impl Iterator<Item = FlowEnd> + 'a {
        let mut rest = self.0;
        std::iter::from_fn(move || {
            let [sort] = take(&mut rest)?;
            // All annotations follow the flows.
            let id = |mut rest| Some(u64::from_le_bytes(take(&mut rest)?));
            let flow = match sort {
                FROM => FlowEnd::From(id(rest)?),
                TO => FlowEnd::To(id(rest)?),
                THROUGH => FlowEnd::Through(id(rest)?),
                _ => return None,
            };
            rest = rest.get(8..)?;
            Some(flow)
        })
    }

    /// Returns the annotations.
    pub(super) fn args(self) -> impl Iterator<Item = ItemArg<'a>> + 'a {
        let mut rest = self.0;
        while let [FROM | TO | THROUGH, ..] = rest {
            rest = rest.get(9..).unwrap_or_default();
        }
        std::iter::from_fn(move || {
            let [sort] = take(&mut rest)?;
            let name = TextId(u32::from_le_bytes(take(&mut rest)?));
            let bits = u64::from_le_bytes(take(&mut rest)?);
            let value = match sort {
                INT => ArgValue::Int(bits as i64),
                UINT => ArgValue::Uint(bits),
                DOUBLE => ArgValue::Double(f64::from_bits(bits)),
                BOOL => ArgValue::Bool(bits != 0),
                KNOWN => ArgValue::Known(TextId(bits as u32)),
                _ => {
                    let (text, after) = rest.split_at_checked(usize::try_from(bits).ok()?)?;
                    rest = after;
                    // It was a valid text when it was packed.
                    ArgValue::Text(std::str::from_utf8(text).unwrap_or_default())
                }
            };
            Some(ItemArg { name, value })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// An item that owns its content.
    #[derive(Clone, Debug, PartialEq)]
    struct Owned {
        times: (i64, i64),
        track: u32,
        kind: ItemKind,
        name: u32,
        flows: Vec<FlowEnd>,
        args: Vec<(u32, OwnedValue)>,
    }

    #[derive(Clone, Debug, PartialEq)]
    enum OwnedValue {
        Plain(ArgValue<'static>),
        Text(String),
    }

    impl Owned {
        fn push_to(&self, sorter: &mut ItemSorter<'_>) {
            let value = |value: &OwnedValue| match value {
                OwnedValue::Plain(value) => *value,
                // The test leaks the text for a static lifetime.
                OwnedValue::Text(text) => ArgValue::Text(Box::leak(text.clone().into_boxed_str())),
            };
            let args: Vec<_> =
                self.args.iter().map(|(n, v)| ItemArg { name: TextId(*n), value: value(v) }).collect();
            let (start, end) = self.times;
            let (name, category) = (TextId(self.name), TextId(self.name / 2));
            let item = TraceItem {
                start,
                end,
                track: self.track,
                kind: self.kind,
                name,
                category,
                flows: &self.flows,
                args: &args,
            };
            sorter.push(&item).unwrap();
        }

        fn of(item: &StoredItem<'_>) -> Owned {
            let args = item.extra.args().map(|arg| {
                let value = match arg.value {
                    ArgValue::Text(text) => OwnedValue::Text(text.to_owned()),
                    ArgValue::Int(v) => OwnedValue::Plain(ArgValue::Int(v)),
                    ArgValue::Uint(v) => OwnedValue::Plain(ArgValue::Uint(v)),
                    ArgValue::Double(v) => OwnedValue::Plain(ArgValue::Double(v)),
                    ArgValue::Bool(v) => OwnedValue::Plain(ArgValue::Bool(v)),
                    ArgValue::Known(v) => OwnedValue::Plain(ArgValue::Known(v)),
                };
                (arg.name.0, value)
            });
            assert_eq!(item.category.0, item.name.0 / 2);
            Owned {
                times: (item.start, item.end),
                track: item.track,
                kind: item.kind,
                name: item.name.0,
                flows: item.extra.flows().collect(),
                args: args.collect(),
            }
        }
    }

    fn value() -> impl Strategy<Value = OwnedValue> {
        prop_oneof![
            any::<i64>().prop_map(|v| OwnedValue::Plain(ArgValue::Int(v))),
            any::<u64>().prop_map(|v| OwnedValue::Plain(ArgValue::Uint(v))),
            (-1e9..1e9f64).prop_map(|v| OwnedValue::Plain(ArgValue::Double(v))),
            any::<bool>().prop_map(|v| OwnedValue::Plain(ArgValue::Bool(v))),
            any::<u32>().prop_map(|v| OwnedValue::Plain(ArgValue::Known(TextId(v)))),
            ".{0,40}".prop_map(OwnedValue::Text),
        ]
    }

    fn item() -> impl Strategy<Value = Owned> {
        let kind = prop_oneof![
            4 => Just(ItemKind::Slice),
            1 => Just(ItemKind::Instant),
            1 => any::<i64>().prop_map(|v| ItemKind::Counter(CounterValue::Int(v))),
            1 => (-1e9..1e9f64).prop_map(|v| ItemKind::Counter(CounterValue::Double(v))),
            1 => any::<u32>().prop_map(|v| ItemKind::Sample(StackNumber(v))),
        ];
        let flow = (0..3, any::<u64>()).prop_map(|(sort, id)| match sort {
            0 => FlowEnd::From(id),
            1 => FlowEnd::To(id),
            _ => FlowEnd::Through(id),
        });
        let args = prop::collection::vec((any::<u32>(), value()), 0..4);
        ((-20i64..20, 0i64..20), 0u32..3, kind, any::<u32>(), prop::collection::vec(flow, 0..3), args)
            .prop_map(|((start, length), track, kind, name, flows, args)| Owned {
                times: (start, start + length),
                track,
                kind,
                name,
                flows,
                args,
            })
    }

    fn sorted(items: &[Owned], memory: u64) -> Vec<Owned> {
        let folder = tempfile::tempdir().unwrap();
        let mut sorter = ItemSorter::new(folder.path(), 0, u64::MAX);
        sorter.memory = memory as usize;
        items.iter().for_each(|item| item.push_to(&mut sorter));
        let mut out = Vec::new();
        sorter
            .sorted(&mut |item| {
                out.push(Owned::of(item));
                Ok(())
            })
            .unwrap();
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        out
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn items_come_sorted_and_whole_with_any_memory(items in prop::collection::vec(item(), 0..300), memory in 1u64..40_000) {
            let mut wanted = items.clone();
            wanted.sort_by_key(|item| (item.times.0, item.track, Reverse(item.times.1)));
            prop_assert_eq!(sorted(&items, memory), wanted.clone());
            prop_assert_eq!(sorted(&items, 1 << 30), wanted);
        }
    }
}
