//! State of a packet sequence: interned data, and defaults for fields that packets omit.

use super::stacks::{StackFrame, StackTables};
use super::texts::InternedTexts;
use super::wire::{Fields, MalformedField};
use rpd_translator::cut_text;
use std::collections::HashMap;
use std::rc::Rc;

/// Maximum number of bytes of interned data of all sequences together.
const MAX_INTERNED: usize = 256 << 20;
/// Estimated bytes of a table entry in addition to its text.
const ENTRY: usize = 64;
/// Maximum number of bytes that are kept of one text.
const MAX_TEXT: usize = 1 << 20;
/// Flags of a packet.
const STATE_CLEARED: u64 = 1;
const NEEDS_STATE: u64 = 2;

/// Memory budget for interned data, and entries that exceeded it.
#[derive(Debug, Default)]
pub(super) struct InternBudget {
    used: usize,
    /// Number of entries that were dropped.
    pub(super) left_out: u64,
}

impl InternBudget {
    fn take(&mut self, bytes: usize) -> bool {
        let fits = self.used + bytes <= MAX_INTERNED;
        self.used += if fits { bytes } else { 0 };
        self.left_out += u64::from(!fits);
        fits
    }
}

/// Default values of fields that packets of a sequence omit.
#[derive(Debug, Default)]
pub(super) struct PacketDefaults {
    pub(super) clock: Option<u32>,
    pub(super) track: Option<u64>,
    pub(super) counters: Vec<u64>,
    pub(super) double_counters: Vec<u64>,
}

/// A sequence of packets.
#[derive(Debug, Default)]
pub(super) struct PacketSequence {
    /// Whether all data that packets refer to is known. False before the first packet and after a gap.
    valid: bool,
    pub(super) defaults: PacketDefaults,
    pub(super) categories: InternedTexts,
    pub(super) names: InternedTexts,
    pub(super) keys: InternedTexts,
    pub(super) values: InternedTexts,
    pub(super) stacks: StackTables,
    /// Sums of counters that have differences as values, by track.
    pub(super) sums: HashMap<u64, f64>,
    bytes: usize,
}

impl PacketSequence {
    /// Examines the flags of a packet, and whether earlier packets were dropped. Returns whether the packet can be
    /// decoded.
    pub(super) fn begin(
        &mut self,
        flags: u64,
        cleared: bool,
        dropped: bool,
        intern_budget: &mut InternBudget,
    ) -> bool {
        if flags & STATE_CLEARED != 0 || cleared {
            intern_budget.used -= self.bytes;
            *self = PacketSequence { valid: true, ..PacketSequence::default() };
        } else if dropped {
            self.valid = false;
        }
        self.valid || flags & NEEDS_STATE == 0
    }

    /// Reads a packet's defaults.
    pub(super) fn defaults(&mut self, defaults: Fields<'_>) -> Result<(), MalformedField> {
        for field in defaults {
            match field? {
                (58, clock) => self.defaults.clock = Some(clock.uint32()?),
                (11, of_events) => {
                    for field in of_events.message()? {
                        match field? {
                            (11, track) => self.defaults.track = Some(track.uint()?),
                            (31, tracks) => tracks.uints(&mut self.defaults.counters)?,
                            (45, tracks) => tracks.uints(&mut self.defaults.double_counters)?,
                            _ => {}
                        }
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Reads interned data; reports the numbers of unsupported tables.
    pub(super) fn intern(
        &mut self,
        data: Fields<'_>,
        intern_budget: &mut InternBudget,
        mut unread: impl FnMut(u32),
    ) -> Result<(), MalformedField> {
        for field in data {
            let (table, entry) = field?;
            if !matches!(table, 1..=3 | 5..=7 | 16..=19 | 29) {
                unread(table);
                continue;
            }
            let bytes = entry.bytes()?.len() + ENTRY;
            // Build ids are the only interned data that a call stack does not need.
            if table == 16 || !intern_budget.take(bytes) {
                continue;
            }
            self.bytes += bytes;
            let entry = entry.message()?;
            match table {
                6 => self.stacks.add_frame(entry)?,
                7 => self.stacks.add_stack(entry)?,
                19 => self.stacks.add_mapping(entry)?,
                _ => {
                    let (iid, text) = text(entry)?;
                    let texts = match table {
                        1 => &mut self.categories,
                        2 => &mut self.names,
                        3 => &mut self.keys,
                        5 => &mut self.stacks.functions,
                        17 => &mut self.stacks.paths,
                        18 => &mut self.stacks.sources,
                        _ => &mut self.values,
                    };
                    texts.insert(iid, text);
                }
            }
        }
        Ok(())
    }

    /// Returns the frames of an interned call stack, outermost first.
    pub(super) fn frames(&self, stack: u64) -> Option<Vec<StackFrame<'_>>> {
        self.stacks.frames(stack)
    }
}

/// Reads an entry of a table of texts.
fn text(entry: Fields<'_>) -> Result<(u64, Rc<[u8]>), MalformedField> {
    let (mut iid, mut text) = (0, &[][..]);
    for field in entry {
        match field? {
            (1, id) => iid = id.uint()?,
            (2, bytes) => text = bytes.bytes()?,
            _ => {}
        }
    }
    Ok((iid, text.into()))
}

/// Returns at most the first [`MAX_TEXT`] bytes of a text.
pub(super) fn cut(text: &[u8]) -> &[u8] {
    cut_text(text, MAX_TEXT)
}
