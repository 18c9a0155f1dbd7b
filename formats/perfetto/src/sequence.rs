use crate::iids::{Iids, StringId};
use crate::text::{MendedText, text};
use crate::wire::{self, Small, message, packet, uint};
use std::num::NonZeroU32;

/// Interning id of an event name, valid for the sequence and file that assigned it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventName(pub(crate) u32);

/// Interning id of an event category, valid for the sequence and file that assigned it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Category(pub(crate) u32);

/// Interning id of an annotation name, valid for the sequence and file that assigned it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnnotationName(pub(crate) u32);

/// Interning id of a text value of annotations, valid for the sequence and file that assigned it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnnotationText(pub(crate) u32);

/// Writes the packets of one process in one file.
///
/// Texts are interned: the first use writes the text, and later uses write a small number. Numbers restart in every
/// file, so that each file can be read alone. [`Sequence::restart`] removes them and keeps the memory. The same
/// number means another text in the next file.
///
/// Packets may be in any time order. On one track, readers process packets of the same time in the order in which
/// they were written: see [`Timeline`](crate::Timeline).
#[derive(Debug)]
pub struct Sequence {
    pub(crate) out: Vec<u8>,
    /// The first bytes of each packet: flags and sequence number, lowest byte first, and the number of these bytes.
    prefix: (u64, usize),
    id: NonZeroU32,
    pub(crate) mended: MendedText,
    pub(crate) interned: Interned,
}

#[derive(Debug, Default)]
pub(crate) struct Interned {
    event_names: Iids,
    categories: Iids,
    annotation_names: Iids,
    annotation_texts: Iids,
    pub(crate) stacks: Iids,
    pub(crate) mappings: Iids,
    pub(crate) frames: u32,
}

impl Sequence {
    /// Starts the packets of a process. The number must be unique in a file, and a process must have the same
    /// number in all files of a run. Small numbers take fewer bytes.
    pub fn new(id: NonZeroU32) -> Sequence {
        let mut sequence = Sequence {
            out: Vec::new(),
            prefix: (0, 0),
            id,
            mended: MendedText::default(),
            interned: Interned::default(),
        };
        sequence.restart(id);
        sequence
    }

    /// Starts the packets of another process or another file. No text is interned, and the only packet is the first
    /// one, which declares this.
    pub fn restart(&mut self, id: NonZeroU32) {
        self.id = id;
        self.out.clear();
        let Interned {
            event_names,
            categories,
            annotation_names,
            annotation_texts,
            stacks,
            mappings,
            frames,
        } = &mut self.interned;
        for iids in [event_names, categories, annotation_names, annotation_texts, stacks, mappings] {
            iids.clear();
        }
        *frames = 0;
        self.prefix = prefix(id);
        self.mended = MendedText::default();
        message(&mut self.out, 1, |out| {
            uint(out, packet::SEQUENCE_FLAGS, packet::STATE_CLEARED | packet::NEEDS_STATE);
            uint(out, packet::SEQUENCE_ID, id.get().into());
            message(out, packet::DEFAULTS, |out| uint(out, 58, wire::CLOCK_BOOTTIME));
        });
    }

    /// Returns the packets since the start, or since the last [`Sequence::take`].
    pub fn packets(&self) -> &[u8] {
        &self.out
    }

    /// Takes the present packets and continues in `empty` to reuse its memory. Interned texts remain valid: the
    /// pieces belong into one file, in this order.
    pub fn take(&mut self, mut empty: Vec<u8>) -> Vec<u8> {
        empty.clear();
        std::mem::replace(&mut self.out, empty)
    }

    /// Returns how many texts of this file were not written unchanged.
    pub fn mended(&self) -> MendedText {
        self.mended
    }

    /// Returns the id of an event name; calls `text` at the first use.
    #[inline]
    pub fn event_name<T: AsRef<str>>(&mut self, id: StringId, text: impl FnOnce() -> T) -> EventName {
        EventName(self.text_id(|interned| &mut interned.event_names, 2, id, text))
    }

    /// Returns the id of an event category; calls `text` at the first use.
    #[inline]
    pub fn category<T: AsRef<str>>(&mut self, id: StringId, text: impl FnOnce() -> T) -> Category {
        Category(self.text_id(|interned| &mut interned.categories, 1, id, text))
    }

    /// Returns the id of an annotation name; calls `text` at the first use. The text must not be empty.
    #[inline]
    pub fn annotation_name<T: AsRef<str>>(
        &mut self,
        id: StringId,
        text: impl FnOnce() -> T,
    ) -> AnnotationName {
        AnnotationName(self.text_id(|interned| &mut interned.annotation_names, 3, id, text))
    }

    /// Returns the id of a text that is used repeatedly as an annotation value; calls `text` at the first use.
    #[inline]
    pub fn annotation_text<T: AsRef<str>>(
        &mut self,
        id: StringId,
        text: impl FnOnce() -> T,
    ) -> AnnotationText {
        AnnotationText(self.text_id(|interned| &mut interned.annotation_texts, 29, id, text))
    }

    /// Returns the id of a text in a table of interned texts; calls `text` at the first use.
    #[inline(always)]
    fn text_id<T: AsRef<str>>(
        &mut self,
        iids: impl Fn(&mut Interned) -> &mut Iids,
        table: u32,
        id: StringId,
        text: impl FnOnce() -> T,
    ) -> u32 {
        let iids = iids(&mut self.interned);
        match iids.get(id.0) {
            0 => {
                let iid = iids.add(id.0);
                self.intern(table, iid, text().as_ref());
                iid
            }
            iid => iid,
        }
    }

    /// Writes an entry of a table of interned texts.
    #[cold]
    #[inline(never)]
    pub(crate) fn intern(&mut self, table: u32, iid: u32, value: &str) {
        self.interned_data(table, |out, mended| {
            uint(out, 1, iid.into());
            text(out, 2, value, mended);
        });
    }

    /// Writes an entry of a table of interned data.
    pub(crate) fn interned_data(&mut self, table: u32, entry: impl FnOnce(&mut Vec<u8>, &mut MendedText)) {
        self.packet(|out, mended| {
            message(out, packet::INTERNED_DATA, |out| message(out, table, |out| entry(out, mended)));
        });
    }

    /// Writes a packet with any content.
    pub(crate) fn packet(&mut self, content: impl FnOnce(&mut Vec<u8>, &mut MendedText)) {
        let (word, len) = self.prefix;
        let mended = &mut self.mended;
        message(&mut self.out, 1, |out| {
            out.extend_from_slice(&word.to_le_bytes()[..len]);
            content(out, mended);
        });
    }

    /// Returns the start of a packet that still needs its length, in the byte at offset 1.
    #[inline(always)]
    pub(crate) fn small_packet(&self) -> Small {
        let mut small = Small::new();
        small.byte(packet::TAG);
        small.byte(0);
        small.word(self.prefix.0, self.prefix.1);
        small
    }
}

fn prefix(id: NonZeroU32) -> (u64, usize) {
    let mut bytes = Vec::with_capacity(8);
    uint(&mut bytes, packet::SEQUENCE_FLAGS, packet::NEEDS_STATE);
    uint(&mut bytes, packet::SEQUENCE_ID, id.get().into());
    let mut word = [0; 8];
    // Two tags, one byte of flags and at most five bytes of the sequence number.
    word[..bytes.len()].copy_from_slice(&bytes);
    (u64::from_le_bytes(word), bytes.len())
}
