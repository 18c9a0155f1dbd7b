//! Limits the memory of the rings of this process.
//!
//! The rings count against the memory cgroup of the job. So a process takes only a share of the limit of its
//! cgroup, and grows only by a share of its free memory: otherwise the rings could make the job exceed its
//! limit. The kernel does not refuse the memory of a ring; it kills a process.
//!
//! A thread begins with one segment, and grows by more as it needs them, until all rings have the bytes that the
//! settings allow. Before Linux 5.14 a process cannot make memory without the risk of a signal, so there a ring has all
//! memory from the start. The first threads then get rings of the usual size. Beyond [`MAX_FULL_RINGS`] the size halves
//! each time the number of threads doubles: many threads rarely have the event rate of one, and thousands must fit.

use crate::runtime::scratch::ScratchMemory;
use crate::runtime::settings::TraceSettings;
use crate::runtime::{cancellation, errno, generation, process};
use rpd_ring::layout::{CGROUP_DIVISOR, MAX_RING_BYTES, MIN_RING_BYTES, USUAL_RING_BYTES, segment_bytes};
use rpd_ring::memory::{RingMemory, can_populate};
use std::ffi::CStr;
use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicUsize};

/// Number of rings of the usual size that cannot grow.
const MAX_FULL_RINGS: usize = 16;
/// Rings may use one part in this many of the free memory of the cgroup at once, since other processes need some as
/// well.
const FREE_DIVISOR: usize = 8;
/// A ring may take one part in this many of the address space.
const ADDRESS_DIVISOR: usize = 128;
/// First segments may exceed the limit by one part in this many: a thread that begins does not know yet what the
/// collector has given back.
const FIRST_DIVISOR: usize = 4;
/// Rings grow by this many bytes at most until the free memory of the cgroup is read again.
const GROW_UNREAD_BYTES: usize = 1 << 20;
/// With less free memory in the cgroup a thread has no ring, not even one for counting.
const MIN_FREE_BYTES: usize = 512 << 10;
/// With a smaller limit of the cgroup no thread has a ring.
const MIN_CGROUP_BYTES: usize = 4 << 20;
/// Not determined yet.
const UNKNOWN: usize = usize::MAX;

/// Bytes that all rings may use. The page of the process has the number in use: a forked child starts with
/// none.
static LIMIT: AtomicUsize = AtomicUsize::new(UNKNOWN);
/// The cgroup allows less than the settings, so its free memory is read for each ring.
static IS_TIGHT: AtomicBool = AtomicBool::new(false);
/// There is a cgroup with a limit, so its free memory is read while rings grow.
static HAS_CGROUP: AtomicBool = AtomicBool::new(false);

/// Bytes of a ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RingSize {
    /// Bytes of all segments; 0 if there is room only to count.
    pub(crate) capacity: usize,
    /// Bytes of those that have memory from the start, which are in the budget.
    pub(crate) backed: usize,
}

impl RingSize {
    pub(crate) const NONE: RingSize = RingSize { capacity: 0, backed: 0 };

    /// Returns a size with at most this capacity.
    pub(crate) fn at_most(self, capacity: usize) -> RingSize {
        if capacity < MIN_RING_BYTES {
            return RingSize::NONE;
        }
        RingSize { capacity, backed: self.backed.min(capacity) }
    }
}

/// Takes bytes for one more ring. `None` if there is no room even to count. The caller returns them by [`give_back`].
pub(crate) fn take(settings: &TraceSettings) -> Option<RingSize> {
    let page = generation::page()?;
    let limit = limit(settings);
    let wanted = settings.ring_bytes.min(mappable());
    let mut most = usize::MAX;
    if IS_TIGHT.load(Relaxed) {
        let cgroup = cgroup_room();
        if cgroup.limit < MIN_CGROUP_BYTES || cgroup.free < MIN_FREE_BYTES {
            return None;
        }
        most = cgroup.free / FREE_DIVISOR;
    }
    let rings = page.rings.fetch_add(1, Relaxed);
    let returned = page.returned.load(Relaxed);
    let can_grow = can_populate();
    let with_first = limit.saturating_add(limit / FIRST_DIVISOR);
    let mut taken = RingSize::NONE;
    // Threads that start together must not take the same bytes.
    let _ = page.ring_bytes.fetch_update(Relaxed, Relaxed, |used| {
        let used_now = used.saturating_sub(returned);
        taken = match can_grow {
            true => growing(wanted, limit, with_first.saturating_sub(used_now).min(most)),
            false => {
                let tight = limit / (2 * MAX_FULL_RINGS);
                // The first threads must leave some memory to the others.
                let usual = if IS_TIGHT.load(Relaxed) {
                    tight.checked_ilog2().map_or(0, |log| 1 << log)
                } else {
                    USUAL_RING_BYTES
                };
                fixed(wanted.min(usual), rings, limit.saturating_sub(used_now).min(most))
            }
        };
        Some(used + taken.backed)
    });
    Some(taken)
}

/// Makes memory for more segments of a ring, if the limits allow. `returned` is the number of bytes that the collector
/// has given back of all rings of this process.
pub(crate) fn grow(memory: &RingMemory, words: Range<usize>, returned: u64) -> bool {
    let _errno = errno::PreservedErrno::new();
    let _postponed = cancellation::PostponedCancellation::new();
    let bytes = 8 * words.len();
    let returned = usize::try_from(returned).unwrap_or(usize::MAX);
    let Some(page) = generation::page() else { return false };
    let limit = LIMIT.load(Relaxed);
    page.returned.fetch_max(returned, Relaxed);
    let fits = |used: usize| Some(used + bytes).filter(|sum| sum.saturating_sub(returned) <= limit);
    if page.ring_bytes.fetch_update(Relaxed, Relaxed, fits).is_err() {
        return false;
    }
    let is_grown = (!HAS_CGROUP.load(Relaxed) || may_use(bytes)) && memory.populate(words);
    if !is_grown {
        shrink(bytes);
    }
    is_grown
}

/// Whether the cgroup has room for more bytes.
fn may_use(bytes: usize) -> bool {
    let Some(page) = generation::page() else { return false };
    let use_known = |known: usize| known.checked_sub(bytes);
    if page.known_room.fetch_update(Relaxed, Relaxed, use_known).is_ok() {
        return true;
    }
    let cgroup = cgroup_room();
    let room =
        if cgroup.free < MIN_FREE_BYTES { 0 } else { (cgroup.free / FREE_DIVISOR).min(GROW_UNREAD_BYTES) };
    let rest = room.checked_sub(bytes);
    page.known_room.store(rest.unwrap_or(0), Relaxed);
    rest.is_some()
}

/// Returns unneeded bytes of a ring that is still in use.
pub(crate) fn shrink(bytes: usize) {
    if let Some(page) = generation::page() {
        // A child that was forked meanwhile has taken nothing.
        let less = |used: usize| Some(used.saturating_sub(bytes));
        let _ = page.ring_bytes.fetch_update(Relaxed, Relaxed, less);
    }
}

/// Returns the bytes of a ring that is not used any more.
pub(crate) fn give_back(bytes: usize) {
    shrink(bytes);
    if let Some(page) = generation::page() {
        let _ = page.rings.fetch_update(Relaxed, Relaxed, |rings| rings.checked_sub(1));
    }
}

/// Returns the maximum bytes of a ring by the limit of the address space, which applies to the collector as well: it maps
/// the rings of all threads.
fn mappable() -> usize {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: a valid place for the result.
    let is_known = unsafe { libc::getrlimit(libc::RLIMIT_AS, &raw mut limit) } == 0;
    match is_known && limit.rlim_cur != libc::RLIM_INFINITY {
        true => usize::try_from(limit.rlim_cur).map_or(UNKNOWN, |bytes| bytes / ADDRESS_DIVISOR),
        false => UNKNOWN,
    }
}

/// Returns the size of a ring that can grow: up to the limit of all.
fn growing(wanted: usize, limit: usize, free: usize) -> RingSize {
    let most = wanted.min(limit).checked_ilog2().map_or(0, |log| 1usize << log);
    let capacity = most.clamp(MIN_RING_BYTES, MAX_RING_BYTES);
    let first = segment_bytes(capacity);
    if first > free { RingSize::NONE } else { RingSize { capacity, backed: first } }
}

/// Returns the size of a ring that cannot grow.
fn fixed(wanted: usize, rings: usize, free: usize) -> RingSize {
    let halvings = (rings / MAX_FULL_RINGS).checked_ilog2().map_or(0, |log| log + 1);
    let mut bytes = (wanted >> halvings.min(usize::BITS - 1)).clamp(MIN_RING_BYTES, MAX_RING_BYTES);
    while bytes > free {
        bytes /= 2;
        if bytes < MIN_RING_BYTES {
            return RingSize::NONE;
        }
    }
    RingSize { capacity: bytes, backed: bytes }
}

fn limit(settings: &TraceSettings) -> usize {
    match LIMIT.load(Relaxed) {
        UNKNOWN => {
            let cgroup = cgroup_room().limit;
            let share = cgroup / CGROUP_DIVISOR;
            HAS_CGROUP.store(cgroup != UNKNOWN, Relaxed);
            IS_TIGHT.store(share < settings.memory, Relaxed);
            let limit = settings.memory.min(share);
            LIMIT.store(limit, Relaxed);
            limit
        }
        known => known,
    }
}

/// Memory of a cgroup, bytes.
#[derive(Clone, Copy)]
struct Room {
    /// The limit.
    limit: usize,
    /// Free memory, or memory that the kernel can reclaim.
    free: usize,
}

impl Room {
    const UNLIMITED: Room = Room { limit: UNKNOWN, free: UNKNOWN };

    fn tightest(self, other: Room) -> Room {
        Room { limit: self.limit.min(other.limit), free: self.free.min(other.free) }
    }
}

/// The files of a cgroup version.
struct Version {
    root: &'static [u8],
    limit: &'static [u8],
    usage: &'static [u8],
    /// Prefixes of the lines of `memory.stat` about reclaimable memory.
    cache: [&'static [u8]; 2],
}

static VERSION_1: Version = Version {
    root: b"/sys/fs/cgroup/memory",
    limit: b"/memory.limit_in_bytes\0",
    usage: b"/memory.usage_in_bytes\0",
    cache: [b"total_inactive_file ", b"total_active_file "],
};
static VERSION_2: Version = Version {
    root: b"/sys/fs/cgroup",
    limit: b"/memory.max\0",
    usage: b"/memory.current\0",
    cache: [b"inactive_file ", b"active_file "],
};

/// Memory for a file and for a path.
const TEXT_BYTES: usize = 4096;

/// Reads the memory of the cgroup of this process, and of those above it.
fn cgroup_room() -> Room {
    let Some(mut scratch) = ScratchMemory::new(3 * TEXT_BYTES) else { return Room::UNLIMITED };
    let Some((place, other)) = scratch.bytes().split_at_mut_checked(TEXT_BYTES) else {
        return Room::UNLIMITED;
    };
    let used = process::read(c"/proc/self/cgroup", place);
    let lines = place.get(..used).unwrap_or_default().split(|byte| *byte == b'\n');
    let groups = lines.filter_map(memory_group);
    groups.map(|(version, path)| tightest(version, path, other)).fold(Room::UNLIMITED, Room::tightest)
}

/// Reads the memory cgroup from a line of `/proc/self/cgroup`: version, and path below its mount point.
fn memory_group(line: &[u8]) -> Option<(&'static Version, &[u8])> {
    let mut parts = line.splitn(3, |byte| *byte == b':');
    let (number, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
    if controllers.split(|byte| *byte == b',').any(|name| name == b"memory") {
        return Some((&VERSION_1, path));
    }
    (number == b"0").then_some((&VERSION_2, path))
}

/// Returns the minimum over a group and those above it, up to the root. A container may not see its own path;
/// then it sees its limit at the root.
fn tightest(version: &Version, mut path: &[u8], place: &mut [u8]) -> Room {
    let mut tightest = Room::UNLIMITED;
    loop {
        path = path.strip_suffix(b"/").unwrap_or(path);
        tightest = tightest.tightest(room(version, path, place).unwrap_or(Room::UNLIMITED));
        match path.iter().rposition(|byte| *byte == b'/') {
            Some(slash) => path = path.get(..slash).unwrap_or_default(),
            None => return tightest,
        }
    }
}

/// `None` if there is no limit.
fn room(version: &Version, path: &[u8], place: &mut [u8]) -> Option<Room> {
    let (text, name) = place.split_at_mut_checked(TEXT_BYTES)?;
    let limit = number(read(version, path, version.limit, text, name)?)?;
    // Version 1 represents "no limit" by a number near the size of the address space.
    if limit >= 1 << 60 {
        return None;
    }
    let usage = read(version, path, version.usage, text, name).and_then(number).unwrap_or(0);
    let stat = read(version, path, b"/memory.stat\0", text, name).unwrap_or_default();
    let lines = stat.split(|byte| *byte == b'\n');
    let cache =
        lines.filter_map(|line| number(version.cache.iter().find_map(|name| line.strip_prefix(*name))?));
    let free = limit.saturating_sub(usage).saturating_add(cache.sum());
    Some(Room { limit, free: free.min(limit) })
}

fn number(text: &[u8]) -> Option<usize> {
    std::str::from_utf8(text).ok()?.trim().parse().ok()
}

fn read<'a>(
    version: &Version,
    path: &[u8],
    file: &[u8],
    text: &'a mut [u8],
    name: &mut [u8],
) -> Option<&'a [u8]> {
    let mut used = 0;
    for part in [version.root, path, file] {
        name.get_mut(used..used + part.len())?.copy_from_slice(part);
        used += part.len();
    }
    let bytes = process::read(CStr::from_bytes_until_nul(name).ok()?, text);
    text.get(..bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rpd_ring::layout::MIN_SEGMENT_BYTES;

    #[test]
    fn many_threads_have_small_rings_where_these_cannot_grow() {
        let full = 1 << 20;
        let bytes = |wanted, rings, free| fixed(wanted, rings, free).backed;
        let total: usize = (0..64).map(|rings| bytes(full, rings, usize::MAX)).sum();
        assert_eq!(total, 32 << 20);
        assert_eq!(fixed(full, 0, usize::MAX), RingSize { capacity: full, backed: full });
        assert_eq!(bytes(full, 100_000, usize::MAX), MIN_RING_BYTES);
        assert_eq!(bytes(full, 0, 300 << 10), 256 << 10);
        assert_eq!(bytes(full, 0, MIN_RING_BYTES), MIN_RING_BYTES);
        assert_eq!(fixed(full, 0, MIN_RING_BYTES - 1), RingSize::NONE);
    }

    #[test]
    fn a_ring_begins_with_a_segment_and_may_grow_to_the_limit() {
        let first = MIN_SEGMENT_BYTES;
        assert_eq!(growing(64 << 20, 64 << 20, usize::MAX), RingSize { capacity: 64 << 20, backed: first });
        assert_eq!(growing(64 << 20, 3 << 20, first), RingSize { capacity: 2 << 20, backed: first });
        assert_eq!(growing(1, 64 << 20, usize::MAX), RingSize { capacity: MIN_RING_BYTES, backed: first });
        assert_eq!(growing(64 << 20, 64 << 20, first - 1), RingSize::NONE);
        assert_eq!(growing(256 << 20, usize::MAX, usize::MAX).backed, 64 << 10);
        let smaller = RingSize { capacity: 1 << 20, backed: 1 << 20 }.at_most(256 << 10);
        assert_eq!(smaller, RingSize { capacity: 256 << 10, backed: 256 << 10 });
        assert_eq!(smaller.at_most(first), RingSize::NONE);
    }

    #[test]
    fn both_versions_of_cgroups_are_found() {
        assert_eq!(
            memory_group(b"0::/a/b").map(|(version, path)| (version.root, path)),
            Some((&b"/sys/fs/cgroup"[..], &b"/a/b"[..]))
        );
        let (version, path) = memory_group(b"4:cpu,memory:/x:y").unwrap();
        assert_eq!((version.root, path), (&b"/sys/fs/cgroup/memory"[..], &b"/x:y"[..]));
        assert!(memory_group(b"3:cpuset:/").is_none());
        assert!(memory_group(b"").is_none());
    }
}
