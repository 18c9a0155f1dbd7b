//! Detects forks, so that a child does not write into its parent's rings.
//!
//! One page of private memory contains the number of the process among its ancestors, and counts for this
//! process alone. The kernel wipes the page in every child (`MADV_WIPEONFORK`), whatever system call created
//! the child. So zero means "forked since", which one load per event detects. A vfork child shares the memory
//! of its parent and so this page. It may only exec or call `_exit`, so it has no events of its own.

use super::scratch::map_private;
use std::ptr;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize};

/// Data of this process, but not of its children: all zero in a child that was just forked.
pub(crate) struct ProcessPage {
    generation: AtomicU64,
    /// Number of rings, see [`crate::runtime::budget`].
    pub(crate) rings: AtomicUsize,
    /// Bytes that the rings have taken and not given back themselves.
    pub(crate) ring_bytes: AtomicUsize,
    /// Bytes of these that the collector has given back, as far as a thread has seen.
    pub(crate) returned: AtomicUsize,
    /// Bytes that rings may use before the free memory of the cgroup is read again.
    pub(crate) known_room: AtomicUsize,
    /// Number of events of threads without a ring.
    pub(crate) unrecorded: AtomicU64,
    /// There are, or were, such threads.
    pub(crate) untraced: AtomicBool,
    /// Process id, if the process has events, see [`expect_exit_report`].
    pub(crate) reports: AtomicU32,
}

static PAGE: AtomicPtr<ProcessPage> = AtomicPtr::new(ptr::null_mut());
/// Number of forks between the first traced image and this one. Not wiped.
static FORKS: AtomicU64 = AtomicU64::new(0);

/// Maps the page. Called by the constructor, with one thread. `after_fork` runs in the child of fork(3), in
/// the thread that forked, before fork returns; it touches only atomics and what a signal handler may.
pub(crate) fn prepare(after_fork: extern "C" fn()) {
    let Some(page) = map_private(size_of::<ProcessPage>()) else { return };
    // Before Linux 4.14 the library detects only fork(3), and no other way to fork.
    // SAFETY: the range is the mapping made above: both calls round up to whole pages.
    let wiped = unsafe { libc::madvise(page, size_of::<ProcessPage>(), libc::MADV_WIPEONFORK) } == 0;
    // SAFETY: the handler touches only atomics and what a signal handler may; the library is never
    // unloaded.
    let registered = unsafe { libc::pthread_atfork(None, None, Some(after_fork)) } == 0;
    if !wiped && !registered {
        return;
    }
    let page = page.cast::<ProcessPage>();
    // SAFETY: mapped above, of this size, aligned to a page, never unmapped; zeros are a valid `ProcessPage`.
    unsafe { (*page).generation.store(1, Relaxed) };
    PAGE.store(page, Release);
}

/// Clears the data of the parent, in the child of fork(3).
pub(crate) fn reset() {
    if let Some(page) = page() {
        page.generation.store(0, Relaxed);
        page.rings.store(0, Relaxed);
        page.ring_bytes.store(0, Relaxed);
        page.returned.store(0, Relaxed);
        page.known_room.store(0, Relaxed);
        page.unrecorded.store(0, Relaxed);
        page.untraced.store(false, Relaxed);
        page.reports.store(0, Relaxed);
    }
}

/// Returns the data of this process; `None` without tracing.
#[inline(always)]
pub(crate) fn page() -> Option<&'static ProcessPage> {
    // SAFETY: null, or a page that `prepare` mapped and nobody unmaps, and of which only atomics are
    // used.
    unsafe { PAGE.load(Acquire).as_ref() }
}

/// Returns the generation of this process; 0 in a child without an event so far, and without tracing.
#[inline(always)]
pub(crate) fn current() -> u64 {
    page().map_or(0, |page| page.generation.load(Relaxed))
}

/// Returns the generation. Assigns one in a new child. `None` without tracing.
pub(crate) fn ensure() -> Option<u64> {
    let page = page()?;
    let now = page.generation.load(Relaxed);
    if now != 0 {
        return Some(now);
    }
    // Threads of a new child may get here together: one of them counts the fork.
    let next = FORKS.load(Relaxed) + 2;
    match page.generation.compare_exchange(0, next, AcqRel, Acquire) {
        Ok(_) => {
            FORKS.fetch_add(1, Relaxed);
            Some(next)
        }
        Err(other) => Some(other),
    }
}

/// Whether a generation is that of a forked child that has not called exec since.
pub(crate) fn is_forked(generation: u64) -> bool {
    generation > 1
}

/// Notes that the process has events, so that its exit status must be reported.
pub(crate) fn expect_exit_report() {
    if let Some(page) = page() {
        page.reports.store(std::process::id(), Relaxed);
    }
}
