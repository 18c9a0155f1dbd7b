//! `errno` belongs to the program.

/// Puts `errno` back when dropped.
pub(crate) struct Preserved(i32);

impl Preserved {
    /// Remembers `errno`.
    #[inline]
    pub(crate) fn new() -> Preserved {
        // SAFETY: the address is that of this thread's errno, valid for the life of the thread.
        Preserved(unsafe { *libc::__errno_location() })
    }
}

impl Drop for Preserved {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: as in `new`.
        unsafe { *libc::__errno_location() = self.0 };
    }
}
