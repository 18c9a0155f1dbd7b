//! The names that a producer has written to the current segment.

use crate::layout::MAX_NAME_BYTES;
use crate::record_space::RecordSpace;

/// Number of names that a segment remembers.
pub(crate) const SLOTS: usize = 256;
/// Bit of a length: the name was cut.
pub(crate) const CUT_BIT: u16 = 1 << 15;
const _: () = assert!(MAX_NAME_BYTES < CUT_BIT as usize);

/// Odd, with bits in all places, so that a product has the whole name in its upper bits.
const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

/// A name as it is stored: at most [`MAX_NAME_BYTES`], and whether that is less than all of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StoredName<'a> {
    pub(crate) text: &'a [u8],
    /// Number of bytes, with [`CUT_BIT`].
    pub(crate) length: u16,
    hash: u64,
}

impl<'a> StoredName<'a> {
    #[inline(always)]
    pub(crate) fn new(name: &'a [u8]) -> StoredName<'a> {
        let (text, cut) = match name.get(..MAX_NAME_BYTES) {
            Some(start) if start.len() < name.len() => (start, CUT_BIT),
            _ => (name, 0),
        };
        let length = text.len() as u16 | cut;
        let (words, last) = words(text);
        let hash = words.fold(u64::from(length), |hash, word| mixed(hash, word));
        StoredName { text, length, hash: mixed(hash, last) }
    }

    /// The slot of the name in any segment.
    #[inline(always)]
    pub(crate) fn slot(&self) -> u8 {
        (self.hash >> 56) as u8
    }

    /// What the slot has if the name's text begins at this word of the segment.
    #[inline(always)]
    fn entry(&self, word: u16) -> u64 {
        u64::from(word) | u64::from(self.length) << 16 | (self.hash << 8) & 0xffff_ffff_0000_0000
    }
}

#[inline(always)]
fn mixed(hash: u64, word: u64) -> u64 {
    (hash.rotate_left(23) ^ word).wrapping_mul(MULTIPLIER)
}

/// Returns the whole words of a text, and the rest of it as a word.
#[inline(always)]
pub(crate) fn words(text: &[u8]) -> (impl Iterator<Item = u64> + '_, u64) {
    let chunks = text.chunks_exact(8);
    let rest = chunks.remainder().len();
    let last = if rest > 0 { tail(text, rest) } else { 0 };
    (chunks.map(|chunk| chunk.try_into().map_or(0, u64::from_le_bytes)), last)
}

/// Returns the last `rest` bytes of a name, 1 to 7, as a word. Uses as few loads as possible: a loop over the
/// bytes costs as much as the rest of a record.
#[inline(always)]
fn tail(name: &[u8], rest: usize) -> u64 {
    if let Some(last) = name.last_chunk::<8>() {
        return u64::from_le_bytes(*last) >> (64 - 8 * rest);
    }
    if let (Some(first), Some(last)) = (name.first_chunk::<4>(), name.last_chunk::<4>()) {
        let (first, last) = (u32::from_le_bytes(*first), u32::from_le_bytes(*last));
        return u64::from(first) | u64::from(last) << (8 * (rest - 4));
    }
    let byte = |at: usize| name.get(at).map_or(0, |byte| u64::from(*byte) << (8 * at));
    byte(0) | byte(1) | byte(2)
}

/// Where the names of the current segment are. A name has one possible slot; the last one that was written there is
/// remembered. The texts themselves are in the segment.
#[derive(Debug)]
pub(crate) struct NameSlots {
    entries: [u64; SLOTS],
    /// The segment to which the entries belong, see [`RecordSpace::entered`].
    segment: u64,
}

impl NameSlots {
    pub(crate) fn new() -> NameSlots {
        NameSlots { entries: [0; SLOTS], segment: 0 }
    }

    /// Whether the current segment has this name in its slot.
    #[inline(always)]
    pub(crate) fn has(&self, name: &StoredName<'_>, space: &RecordSpace) -> bool {
        let Some(entry) = self.entries.get(usize::from(name.slot())) else { return false };
        let word = *entry as u16;
        // No text is in the first word of a segment.
        if word == 0 || *entry != name.entry(word) || self.segment != space.entered() {
            return false;
        }
        let (mut words, last) = words(name.text);
        let mut at = usize::from(word);
        let is_same = words.all(|word| {
            at += 1;
            space.word(at - 1) == word
        });
        is_same
            && (name.text.len().is_multiple_of(8)
                || space.word(at) & !(u64::MAX << (8 * (name.text.len() % 8))) == last)
    }

    /// Notes that the text of a name begins at this word of the current segment.
    pub(crate) fn note(&mut self, name: &StoredName<'_>, word: usize, space: &RecordSpace) {
        if self.segment != space.entered() {
            *self = NameSlots { segment: space.entered(), ..NameSlots::new() };
        }
        if let Some(entry) = self.entries.get_mut(usize::from(name.slot())) {
            *entry = name.entry(word as u16);
        }
    }
}
