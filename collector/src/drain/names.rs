//! Maps texts to numbers without keeping the texts, which the writing thread has.

use crate::shard_output::{NameId, OutputItem};
use rpd_ring::record::{NameSlot, RecordedLibrary};
use rpd_ring::{mpi, rccl};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasherDefault, Hasher};
use twox_hash::XxHash3_128;

/// Numbers of the known texts by their 128-bit hash. A collision would need more texts than any job has.
#[derive(Default)]
pub(super) struct NameTable {
    numbers: HashMap<u128, NameId, BuildHasherDefault<AlreadyHashed>>,
    functions: HashMap<(RecordedLibrary, u32), NameId>,
}

impl NameTable {
    /// Returns the number of a text. Sends a new text first.
    pub(super) fn id(&mut self, text: &[u8], out: &mut Vec<OutputItem>) -> NameId {
        let next = NameId(u32::try_from(self.numbers.len()).unwrap_or(u32::MAX));
        match self.numbers.entry(XxHash3_128::oneshot(text)) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(new) => {
                out.push(OutputItem::Name(text.into()));
                *new.insert(next)
            }
        }
    }

    /// Returns the number of the name of a function; `None` if no function has that number.
    pub(super) fn function(
        &mut self,
        library: RecordedLibrary,
        number: u32,
        out: &mut Vec<OutputItem>,
    ) -> Option<NameId> {
        if let Some(known) = self.functions.get(&(library, number)) {
            return Some(*known);
        }
        let name = match library {
            RecordedLibrary::Mpi => mpi::name(number)?,
            RecordedLibrary::Rccl => rccl::name(number)?,
        };
        let id = self.id(name.as_bytes(), out);
        self.functions.insert((library, number), id);
        Some(id)
    }
}

/// Numbers of the names in the slots of a ring; empty before the first one.
#[derive(Default)]
pub(super) struct SlotNames(Vec<Option<NameId>>);

impl SlotNames {
    /// Returns the number of a record's name. It is looked up once for each time that the name is written to the ring.
    #[inline]
    pub(super) fn id(&mut self, slot: Option<NameSlot>, look_up: impl FnOnce() -> NameId) -> NameId {
        let Some(NameSlot { number, .. }) = slot else { return look_up() };
        if self.0.is_empty() {
            self.0.resize(1 << u8::BITS, None);
        }
        match self.0.get_mut(usize::from(number)) {
            Some(known) => *known.get_or_insert_with(look_up),
            None => look_up(),
        }
    }

    /// Notes that a slot has another name.
    pub(super) fn forget(&mut self, number: u8) {
        if let Some(known) = self.0.get_mut(usize::from(number)) {
            *known = None;
        }
    }
}

/// Uses a part of the key, which is a hash already.
#[derive(Default)]
struct AlreadyHashed(u64);

impl Hasher for AlreadyHashed {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }
    fn write_u128(&mut self, value: u128) {
        self.0 = value as u64;
    }
}
