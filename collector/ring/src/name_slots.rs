//! The names that a producer has written to the current segment.
//!
//! A name has one possible slot; the last one that was written there is remembered. The texts themselves are in the segment,
//! and the slots in the header of the ring: no stack is too small for them. Each segment begins without names.

use crate::layout::MAX_NAME_BYTES;
use crate::record::MAX_KNOWN_BYTES;
use crate::record_space::RecordSpace;
use std::sync::atomic::Ordering::Relaxed;

/// Bit of a length: the name was cut.
pub(crate) const CUT_BIT: u16 = 1 << 15;
const _: () = assert!(MAX_NAME_BYTES < CUT_BIT as usize);

/// Odd, with bits in all places, so that a product has the whole name in its upper bits.
const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

/// Maximum number of bytes of a [`ShortName`].
const SHORT_BYTES: usize = 16;

/// Length and hash of a name, which select and identify its slot.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NameKey {
    /// Number of bytes that are stored, with [`CUT_BIT`].
    pub(crate) length: u16,
    hash: u64,
}

impl NameKey {
    /// The slot of the name in any segment.
    #[inline(always)]
    pub(crate) fn slot(self) -> u8 {
        (self.hash >> 56) as u8
    }

    /// Returns the content of the slot for a text that begins at this word of the segment.
    #[inline(always)]
    fn entry(self, word: u16) -> u64 {
        u64::from(word) | u64::from(self.length) << 16 | (self.hash << 8) & 0xffff_ffff_0000_0000
    }
}

/// A name in two words, which stays in registers: most names are short.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ShortName {
    pub(crate) key: NameKey,
    words: [u64; 2],
}

impl ShortName {
    /// `None` if the name is longer.
    #[inline(always)]
    pub(crate) fn new(name: &[u8]) -> Option<ShortName> {
        if name.len() > SHORT_BYTES {
            return None;
        }
        let (words, length) = (short_words(name), name.len() as u16);
        let [first, second] = words;
        let hash = mixed(mixed(u64::from(length), first), second);
        Some(ShortName { key: NameKey { length, hash }, words })
    }

    /// Whether the text begins at this word of the current segment.
    #[inline(always)]
    fn is_at(self, word: usize, space: &RecordSpace) -> bool {
        let (length, [first, second]) = (self.key.length, self.words);
        let [stored, next] = space.words(word..word + 2) else { return false };
        (length == 0 || stored.load(Relaxed) == first) && (length <= 8 || next.load(Relaxed) == second)
    }
}

/// A name as it is stored: at most [`MAX_NAME_BYTES`], and whether that is less than all of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StoredName<'a> {
    pub(crate) text: &'a [u8],
    pub(crate) key: NameKey,
}

impl<'a> StoredName<'a> {
    pub(crate) fn new(name: &'a [u8]) -> StoredName<'a> {
        if let Some(short) = ShortName::new(name) {
            return StoredName { text: name, key: short.key };
        }
        let (text, cut) = match name.get(..MAX_NAME_BYTES) {
            Some(start) if start.len() < name.len() => (start, CUT_BIT),
            _ => (name, 0),
        };
        let length = text.len() as u16 | cut;
        StoredName { text, key: NameKey { length, hash: words(text).fold(u64::from(length), mixed) } }
    }

    /// Whether the text begins at this word of the current segment.
    fn is_at(&self, word: usize, space: &RecordSpace) -> bool {
        let stored = space.words(word..word + self.text.len().div_ceil(8));
        stored.iter().map(|word| word.load(Relaxed)).eq(words(self.text))
    }
}

#[inline(always)]
fn mixed(hash: u64, word: u64) -> u64 {
    (hash.rotate_left(23) ^ word).wrapping_mul(MULTIPLIER)
}

/// Returns a text in words, the last of them with zeros at its end.
pub(crate) fn words(text: &[u8]) -> impl Iterator<Item = u64> + '_ {
    text.chunks(8).map(|chunk| short_words(chunk)[0])
}

/// Returns the words of a text of at most [`SHORT_BYTES`]. Uses as few loads as possible: a loop over the bytes costs as much
/// as the rest of a record.
#[inline(always)]
fn short_words(text: &[u8]) -> [u64; 2] {
    let bits = 8 * text.len() as u32;
    if let (Some(first), Some(last)) = (text.first_chunk::<8>(), text.last_chunk::<8>()) {
        let (first, last) = (u64::from_le_bytes(*first), u64::from_le_bytes(*last));
        return [first, last.checked_shr(128 - bits).unwrap_or(0)];
    }
    if let (Some(first), Some(last)) = (text.first_chunk::<4>(), text.last_chunk::<4>()) {
        let (first, last) = (u32::from_le_bytes(*first), u32::from_le_bytes(*last));
        return [u64::from(first) | u64::from(last) << (bits - 32), 0];
    }
    let byte = |at: usize| text.get(at).map_or(0, |byte| u64::from(*byte) << (8 * at));
    [byte(0) | byte(1) | byte(2), 0]
}

/// Whether the current segment has this name in its slot.
#[inline(always)]
pub(crate) fn has_short(name: ShortName, space: &RecordSpace) -> bool {
    noted_word(name.key, space).is_some_and(|word| name.is_at(word, space))
}

/// Whether the current segment has this name in its slot, and it may be repeated.
pub(crate) fn has(name: &StoredName<'_>, space: &RecordSpace) -> bool {
    name.text.len() <= MAX_KNOWN_BYTES
        && noted_word(name.key, space).is_some_and(|word| name.is_at(word, space))
}

/// Returns the word of the current segment where a text begins that is probably this one.
#[inline(always)]
fn noted_word(key: NameKey, space: &RecordSpace) -> Option<usize> {
    let entry = space.name_slots().get(usize::from(key.slot()))?.load(Relaxed);
    let word = entry as u16;
    // No text is in the first word of a segment.
    (word != 0 && entry == key.entry(word)).then_some(usize::from(word))
}

/// Notes that the text of a name begins at this word of the current segment.
pub(crate) fn note(name: &StoredName<'_>, word: usize, space: &RecordSpace) {
    if let Some(slot) = space.name_slots().get(usize::from(name.key.slot())) {
        slot.store(name.key.entry(word as u16), Relaxed);
    }
}
