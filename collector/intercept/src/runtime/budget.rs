//! Limits the memory of the rings of this process.
//!
//! The rings count against the memory cgroup of the job. So a process takes only a share of the limit of its
//! cgroup, and each ring only a share of its free memory: otherwise the rings could make the job exceed its
//! limit. The kernel does not refuse the memory of a ring; it kills a process.
//!
//! The first threads get rings of the full size. Beyond [`MAX_FULL_RINGS`] the size halves each time the
//! number of threads doubles: many threads rarely have the event rate of one, and thousands must fit.

use crate::runtime::scratch::ScratchMemory;
use crate::runtime::settings::TraceSettings;
use crate::runtime::{generation, process};
use rpd_ring::layout::{MAX_RING_BYTES, MIN_RING_BYTES};
use std::ffi::CStr;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicUsize};

/// Number of rings of the full size.
const MAX_FULL_RINGS: usize = 16;
/// The rings may use one part in this many of the cgroup's limit.
const LIMIT_DIVISOR: usize = 32;
/// A ring may use one part in this many of the free memory of the cgroup, since other processes need some as
/// well.
const FREE_DIVISOR: usize = 8;
/// With less free memory in the cgroup a thread has no ring, not even one for counting.
const MIN_FREE_BYTES: usize = 512 << 10;
/// With a smaller limit of the cgroup no thread has a ring.
const MIN_CGROUP_BYTES: usize = 4 << 20;
/// Not determined yet.
const UNKNOWN: usize = usize::MAX;

/// Bytes that all rings may use. The page of the process has the number in use: a forked child starts with
/// none.
static LIMIT: AtomicUsize = AtomicUsize::new(UNKNOWN);
/// The cgroup allows less than the settings, so its free memory is checked for each ring.
static IS_TIGHT: AtomicBool = AtomicBool::new(false);

/// Takes bytes for one more ring. Returns 0 if there is room only to count, `None` if there is
/// none. The caller returns them by [`give_back`].
pub(crate) fn take(settings: &TraceSettings) -> Option<usize> {
    let page = generation::page()?;
    let limit = limit(settings);
    let (mut wanted, mut most) = (settings.ring_bytes, usize::MAX);
    if IS_TIGHT.load(Relaxed) {
        let cgroup = cgroup_room();
        if cgroup.limit < MIN_CGROUP_BYTES || cgroup.free < MIN_FREE_BYTES {
            return None;
        }
        most = cgroup.free / FREE_DIVISOR;
        // The first threads must leave some memory to the others.
        wanted = wanted.min(limit / (2 * MAX_FULL_RINGS)).checked_ilog2().map_or(0, |log| 1 << log);
    }
    let rings = page.rings.fetch_add(1, Relaxed);
    let mut taken = 0;
    // Threads that start together must not take the same bytes.
    let _ = page.ring_bytes.fetch_update(Relaxed, Relaxed, |used| {
        taken = fitting(wanted, rings, limit.saturating_sub(used).min(most));
        Some(used + taken)
    });
    Some(taken)
}

/// Returns unneeded bytes of a ring that is still in use.
pub(crate) fn shrink(bytes: usize) {
    if let Some(page) = generation::page() {
        // A child that was forked meanwhile has taken nothing.
        let less = |used: usize| Some(used.saturating_sub(bytes));
        let _ = page.ring_bytes.fetch_update(Relaxed, Relaxed, less);
    }
}

/// Returns the bytes of a ring that was freed.
pub(crate) fn give_back(bytes: usize) {
    shrink(bytes);
    if let Some(page) = generation::page() {
        let _ = page.rings.fetch_update(Relaxed, Relaxed, |rings| rings.checked_sub(1));
    }
}

fn fitting(wanted: usize, rings: usize, free: usize) -> usize {
    let halvings = (rings / MAX_FULL_RINGS).checked_ilog2().map_or(0, |log| log + 1);
    let mut bytes = (wanted >> halvings.min(usize::BITS - 1)).clamp(MIN_RING_BYTES, MAX_RING_BYTES);
    while bytes > free {
        bytes /= 2;
        if bytes < MIN_RING_BYTES {
            return 0;
        }
    }
    bytes
}

fn limit(settings: &TraceSettings) -> usize {
    match LIMIT.load(Relaxed) {
        UNKNOWN => {
            let share = cgroup_room().limit / LIMIT_DIVISOR;
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

    #[test]
    fn many_threads_have_small_rings() {
        let full = 1 << 20;
        let mut total = 0;
        for rings in 0..64 {
            total += fitting(full, rings, usize::MAX);
        }
        assert_eq!(total, 32 << 20);
        assert_eq!(fitting(full, 0, usize::MAX), full);
        assert_eq!(fitting(full, 100_000, usize::MAX), MIN_RING_BYTES);
        assert_eq!(fitting(full, 0, 300 << 10), 256 << 10);
        assert_eq!(fitting(full, 0, MIN_RING_BYTES), MIN_RING_BYTES);
        assert_eq!(fitting(full, 0, MIN_RING_BYTES - 1), 0);
        assert_eq!(fitting(MIN_RING_BYTES, 40, usize::MAX), MIN_RING_BYTES);
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
