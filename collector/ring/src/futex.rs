//! Waits for a word of shared memory, across processes: the low half of an `AtomicU64`, which comes first in
//! memory.
#![allow(unsafe_code)]

use std::ptr;
use std::sync::atomic::AtomicU64;

/// A 32-bit futex that is not private to a process: `FUTEX2_SIZE_U32` of the kernel.
const SHARED_32_BITS: u32 = 2;
/// Maximum number of words that one call can wait for: `FUTEX_WAITV_MAX` of the kernel.
pub(crate) const MAX_WORDS: usize = 128;

const _: () = assert!(cfg!(target_endian = "little"));

/// Wakes every thread that waits for the word. A signal handler may call this; `errno` is preserved.
pub(crate) fn wake(word: &AtomicU64) {
    // SAFETY: errno of this thread, valid for its life.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: the word is valid for the call, and the kernel only uses its address. errno as above.
    unsafe {
        let before = *errno;
        libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, i32::MAX);
        *errno = before;
    }
}

/// Waits until the word is woken. Returns at once if its low half is not `expected`. May return early.
pub(crate) fn wait(word: &AtomicU64, expected: u32) {
    let no_timeout = ptr::null::<libc::timespec>();
    // SAFETY: the word is valid for the call; the kernel reads its low half, atomically.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT, expected, no_timeout) };
}

/// Like [`wait`], for the first of at most [`MAX_WORDS`] words. Returns `false` if the kernel cannot wait for
/// them: see [`can_wait_for_many`], or a word is not in shared memory.
pub(crate) fn wait_for_any<'a>(words: impl Iterator<Item = (&'a AtomicU64, u32)>) -> bool {
    let words: Vec<Waited> = words
        .map(|(word, expected)| Waited {
            expected: expected.into(),
            address: word.as_ptr() as u64,
            flags: SHARED_32_BITS,
            reserved: 0,
        })
        .collect();
    let no_timeout = ptr::null::<libc::timespec>();
    // SAFETY: `words` are as many as said, and each points to a word that the caller has borrowed for the
    // call; the kernel reads their low halves, atomically.
    let done = unsafe { libc::syscall(libc::SYS_futex_waitv, words.as_ptr(), words.len(), 0, no_timeout, 0) };
    let error = std::io::Error::last_os_error().raw_os_error();
    done >= 0 || matches!(error, Some(libc::EAGAIN | libc::EINTR))
}

/// Whether the kernel can wait for several rings at once: Linux 5.16 and later.
pub fn can_wait_for_many() -> bool {
    let (no_words, no_timeout) = (ptr::null::<Waited>(), ptr::null::<libc::timespec>());
    // SAFETY: no words and no timeout: the kernel refuses the number 0, if it knows the call.
    let done = unsafe { libc::syscall(libc::SYS_futex_waitv, no_words, 0, 0, no_timeout, 0) };
    done < 0 && std::io::Error::last_os_error().raw_os_error() == Some(libc::EINVAL)
}

/// `struct futex_waitv` of the kernel.
#[repr(C)]
struct Waited {
    expected: u64,
    address: u64,
    flags: u32,
    reserved: u32,
}
