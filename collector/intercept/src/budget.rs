//! How much memory the rings of this process may take.
//!
//! The rings count against the memory cgroup of the job, so a process takes no more than a share of
//! what its cgroup may have: a job that runs into its limit because of us would die of us.
//!
//! The first threads get rings of the full size. Beyond [`FULL_RINGS`] the size halves each time that
//! the number of threads doubles: many threads seldom have the rate of one, and thousands must fit.

use crate::scratch::Scratch;
use crate::settings::Settings;
use crate::{generation, process};
use rpd_ring::layout::{RING_MAX, RING_MIN};
use std::ffi::CStr;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

/// Rings of the full size.
const FULL_RINGS: usize = 16;
/// The rings may have one part in this many of the cgroup's memory.
const SHARE: usize = 16;
/// Not looked for yet.
const UNKNOWN: usize = usize::MAX;

/// Bytes that all rings may have. How many there are is counted in the process's own page: a forked
/// child starts with nothing.
static LIMIT: AtomicUsize = AtomicUsize::new(UNKNOWN);

/// Bytes for the ring of one thread more; 0 where there is no room for one.
pub(crate) fn ring_bytes(settings: &Settings) -> usize {
    let Some(page) = generation::page() else { return 0 };
    let free = limit(settings).saturating_sub(page.ring_bytes.load(Relaxed));
    fitting(settings.ring_bytes, page.rings.load(Relaxed), free)
}

fn fitting(wanted: usize, rings: usize, free: usize) -> usize {
    let halvings = (rings / FULL_RINGS).checked_ilog2().map_or(0, |log| log + 1);
    let mut bytes = (wanted >> halvings.min(usize::BITS - 1)).clamp(RING_MIN, RING_MAX);
    while bytes > free {
        bytes /= 2;
        if bytes < RING_MIN {
            return 0;
        }
    }
    bytes
}

/// A ring was made.
pub(crate) fn take(bytes: usize) {
    if let Some(page) = generation::page() {
        page.rings.fetch_add(1, Relaxed);
        page.ring_bytes.fetch_add(bytes, Relaxed);
    }
}

/// A ring's thread has ended.
pub(crate) fn give_back(bytes: usize) {
    if let Some(page) = generation::page() {
        page.rings.fetch_sub(1, Relaxed);
        page.ring_bytes.fetch_sub(bytes, Relaxed);
    }
}

fn limit(settings: &Settings) -> usize {
    match LIMIT.load(Relaxed) {
        UNKNOWN => {
            let limit = settings.memory.min(cgroup_limit() / SHARE);
            LIMIT.store(limit, Relaxed);
            limit
        }
        known => known,
    }
}

/// Room for `/proc/self/cgroup`, and for a path.
const TEXT_BYTES: usize = 8192;

/// Bytes of memory that the cgroup of this process, and those above it, may have.
fn cgroup_limit() -> usize {
    let Some(mut scratch) = Scratch::new(2 * TEXT_BYTES) else { return UNKNOWN };
    let Some((place, name)) = scratch.bytes().split_at_mut_checked(TEXT_BYTES) else { return UNKNOWN };
    let used = process::read(c"/proc/self/cgroup", place);
    let lines = place.get(..used).unwrap_or_default().split(|byte| *byte == b'\n');
    let groups = lines.filter_map(memory_group);
    groups.map(|(root, path, file)| lowest(root, path, file, name)).min().unwrap_or(UNKNOWN)
}

/// Where the limits of a line of `/proc/self/cgroup` are: mount point, path below it, file.
fn memory_group(line: &[u8]) -> Option<(&'static [u8], &[u8], &'static [u8])> {
    let mut parts = line.splitn(3, |byte| *byte == b':');
    let (number, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
    if controllers.split(|byte| *byte == b',').any(|name| name == b"memory") {
        return Some((b"/sys/fs/cgroup/memory", path, b"/memory.limit_in_bytes\0"));
    }
    (number == b"0").then_some((b"/sys/fs/cgroup", path, b"/memory.max\0"))
}

/// The lowest limit from a group up to the root. A container may not see its own path, but then it
/// sees its limit at the root.
fn lowest(root: &[u8], mut path: &[u8], file: &[u8], name: &mut [u8]) -> usize {
    let mut lowest = UNKNOWN;
    loop {
        path = path.strip_suffix(b"/").unwrap_or(path);
        lowest = lowest.min(read_limit(root, path, file, name).unwrap_or(UNKNOWN));
        match path.iter().rposition(|byte| *byte == b'/') {
            Some(slash) => path = path.get(..slash).unwrap_or_default(),
            None => return lowest,
        }
    }
}

fn read_limit(root: &[u8], path: &[u8], file: &[u8], name: &mut [u8]) -> Option<usize> {
    let mut used = 0;
    for part in [root, path, file] {
        name.get_mut(used..used + part.len())?.copy_from_slice(part);
        used += part.len();
    }
    let mut text = [0u8; 32];
    let bytes = process::read(CStr::from_bytes_until_nul(name).ok()?, &mut text);
    std::str::from_utf8(text.get(..bytes)?).ok()?.trim().parse().ok()
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
        assert_eq!(fitting(full, 100_000, usize::MAX), RING_MIN);
        assert_eq!(fitting(full, 0, 300 << 10), 256 << 10);
        assert_eq!(fitting(full, 0, RING_MIN), RING_MIN);
        assert_eq!(fitting(full, 0, RING_MIN - 1), 0);
        assert_eq!(fitting(RING_MIN, 40, usize::MAX), RING_MIN);
    }

    #[test]
    fn both_versions_of_cgroups_are_found() {
        assert_eq!(
            memory_group(b"0::/a/b").map(|(root, path, _)| (root, path)),
            Some((&b"/sys/fs/cgroup"[..], &b"/a/b"[..]))
        );
        let (root, path, _) = memory_group(b"4:cpu,memory:/x:y").unwrap();
        assert_eq!((root, path), (&b"/sys/fs/cgroup/memory"[..], &b"/x:y"[..]));
        assert!(memory_group(b"3:cpuset:/").is_none());
        assert!(memory_group(b"").is_none());
    }
}
