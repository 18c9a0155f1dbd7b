//! Mapped memory as a slice of atomic words.
#![allow(unsafe_code)]

use std::ops::{Deref, Range};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// Shared memory of whole words. Unmapped when dropped.
#[derive(Debug)]
pub struct RingMemory {
    words: NonNull<AtomicU64>,
    len: usize,
    origin: Origin,
}

#[derive(Debug)]
enum Origin {
    Mapped,
    /// Freed with the last of the two sides.
    Heap {
        _owner: Arc<[AtomicU64]>,
    },
}

// SAFETY: the memory is only reached through shared references to atomics, and nothing about it depends
// on the thread.
unsafe impl Send for RingMemory {}
// SAFETY: as above; atomics may be used from several threads.
unsafe impl Sync for RingMemory {}

impl RingMemory {
    /// Maps `bytes` of a memfd as shared memory. The caller has ensured that the file is that long and sealed
    /// against shrinking: otherwise an access causes a SIGBUS.
    ///
    /// Most of the file may have no memory. Neither `mlockall` of the program, nor a core dump, nor huge pages give it some.
    pub fn map(file: BorrowedFd<'_>, bytes: usize) -> std::io::Result<RingMemory> {
        if !bytes.is_multiple_of(8) {
            return Err(std::io::ErrorKind::InvalidInput.into());
        }
        let len = bytes / 8;
        // SAFETY: a new mapping at an address that the kernel chooses; nothing existing is touched.
        let address = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                // Where a program locks all later mappings, the kernel would fill in one that it may write to.
                libc::PROT_NONE,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        match NonNull::new(address.cast::<AtomicU64>()) {
            Some(words) if address != libc::MAP_FAILED => {
                let memory = RingMemory { words, len, origin: Origin::Mapped };
                memory.open(bytes).map(|()| memory)
            }
            _ => Err(std::io::Error::last_os_error()),
        }
    }

    /// Allows access to a new mapping.
    fn open(&self, bytes: usize) -> std::io::Result<()> {
        let address = self.words.as_ptr().cast();
        // SAFETY: the range is exactly this mapping, which nothing uses yet. The calls neither move nor unmap it.
        unsafe {
            libc::munlock(address, bytes);
            libc::madvise(address, bytes, libc::MADV_DONTDUMP);
            libc::madvise(address, bytes, libc::MADV_NOHUGEPAGE);
            match libc::mprotect(address, bytes, libc::PROT_READ | libc::PROT_WRITE) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            }
        }
    }

    /// Makes private zeroed memory with two sides, for tests and for a check without a file.
    pub fn heap(bytes: usize) -> (RingMemory, RingMemory) {
        let words: Arc<[AtomicU64]> = (0..bytes / 8).map(|_| AtomicU64::new(0)).collect();
        let side = |words: Arc<[AtomicU64]>| RingMemory {
            words: NonNull::from(&*words).cast(),
            len: words.len(),
            origin: Origin::Heap { _owner: words },
        };
        (side(Arc::clone(&words)), side(words))
    }

    /// Makes memory for some of the words, which then causes no page fault. Returns `false` if there is none, or if the
    /// kernel cannot say so ([`can_populate`]).
    pub fn populate(&self, words: Range<usize>) -> bool {
        self.advise(words, libc::MADV_POPULATE_WRITE)
    }

    /// Gives the memory of some of the words back to the system. Returns whether it did; then they are zero.
    pub fn discard(&self, words: Range<usize>) -> bool {
        self.advise(words, libc::MADV_REMOVE)
    }

    fn advise(&self, words: Range<usize>, advice: i32) -> bool {
        let Some(part) = self.get(words) else { return false };
        match self.origin {
            // SAFETY: the range lies within this mapping, which only atomics access. Neither of the two kinds of advice
            // moves or unmaps it.
            Origin::Mapped => unsafe {
                libc::madvise(part.as_ptr().cast_mut().cast(), size_of_val(part), advice) == 0
            },
            Origin::Heap { .. } => true,
        }
    }

    /// Keeps the mapping out of forked children: their address space then has a hole there. If the kernel
    /// refuses, they have a mapping that they do not use.
    pub fn keep_from_children(&self) {
        if matches!(self.origin, Origin::Mapped) {
            // SAFETY: the range is exactly this mapping, to the end of its last page.
            unsafe { libc::madvise(self.words.as_ptr().cast(), self.len * 8, libc::MADV_DONTFORK) };
        }
    }
}

/// Whether the kernel can make memory for a part of a mapping and say that there is none (Linux 5.14).
pub fn can_populate() -> bool {
    // SAFETY: an empty range, for which the kernel checks the advice and does nothing.
    unsafe { libc::madvise(std::ptr::null_mut(), 0, libc::MADV_POPULATE_WRITE) == 0 }
}

impl Deref for RingMemory {
    type Target = [AtomicU64];

    #[inline(always)]
    fn deref(&self) -> &[AtomicU64] {
        // SAFETY: `words` points to `len` words, aligned to a page or made as AtomicU64, that stay there
        // for as long as `self` lives. Every bit pattern is a valid AtomicU64, so that whatever another
        // process does to them, it can only make wrong values.
        unsafe { std::slice::from_raw_parts(self.words.as_ptr(), self.len) }
    }
}

impl Drop for RingMemory {
    fn drop(&mut self) {
        if matches!(self.origin, Origin::Mapped) {
            // SAFETY: `map` made this mapping with this length, and no reference into it is left.
            unsafe { libc::munmap(self.words.as_ptr().cast(), self.len * 8) };
        }
    }
}
