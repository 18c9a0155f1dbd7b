//! Which process image this is: a fork must not write into its parent's rings.
//!
//! One page of private memory carries the number of the process among its ancestors, and the kernel
//! wipes it in every child (`MADV_WIPEONFORK`), whatever system call made the child. Zero therefore
//! means "forked since"; one load per event finds out. A vfork child shares its parent's memory and
//! with it the number: it may only exec, so it has no events of its own.

use std::ptr;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use std::sync::atomic::{AtomicPtr, AtomicU64};

static PAGE: AtomicPtr<AtomicU64> = AtomicPtr::new(ptr::null_mut());
/// Forks between the first traced image and this one. Not wiped.
static FORKS: AtomicU64 = AtomicU64::new(0);

/// Makes the page. Called by the constructor, with one thread.
pub(crate) fn prepare() {
    // SAFETY: a new private mapping at an address that the kernel chooses.
    let page = unsafe {
        libc::mmap(
            ptr::null_mut(),
            4096,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    if page == libc::MAP_FAILED {
        return;
    }
    // SAFETY: exactly the page mapped above.
    let wiped = unsafe { libc::madvise(page, 4096, libc::MADV_WIPEONFORK) } == 0;
    if !wiped {
        // Before Linux 4.14: fork(3) tells us, other ways to fork do not.
        // SAFETY: the handler only stores to an atomic.
        let registered = unsafe { libc::pthread_atfork(None, None, Some(after_fork)) } == 0;
        if !registered {
            return;
        }
    }
    let page = page.cast::<AtomicU64>();
    // SAFETY: a mapped page, aligned, never unmapped.
    unsafe { (*page).store(1, Relaxed) };
    PAGE.store(page, std::sync::atomic::Ordering::Release);
}

extern "C" fn after_fork() {
    if let Some(word) = word() {
        word.store(0, Relaxed);
    }
}

#[inline(always)]
fn word() -> Option<&'static AtomicU64> {
    // SAFETY: null, or a page that `prepare` mapped and nobody unmaps.
    unsafe { PAGE.load(Acquire).as_ref() }
}

/// The generation of this process; 0 in a child that has not had an event yet, and where there is
/// no tracing.
#[inline(always)]
pub(crate) fn current() -> u64 {
    word().map_or(0, |word| word.load(Relaxed))
}

/// The generation, made if this is a new child; none where there is no tracing.
pub(crate) fn ensure() -> Option<u64> {
    let word = word()?;
    let now = word.load(Relaxed);
    if now != 0 {
        return Some(now);
    }
    // Threads of a new child may get here together: one of them counts the fork.
    let next = FORKS.load(Relaxed) + 2;
    match word.compare_exchange(0, next, AcqRel, Acquire) {
        Ok(_) => {
            FORKS.fetch_add(1, Relaxed);
            crate::budget::reset();
            crate::thread::reset_unrecorded();
            Some(next)
        }
        Err(other) => Some(other),
    }
}

/// Whether a generation is that of a forked child that has not called exec since.
pub(crate) fn is_forked(generation: u64) -> bool {
    generation > 1
}
