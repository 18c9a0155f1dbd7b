//! Protects the program's `errno`.

/// Restores `errno` when dropped.
pub(crate) struct PreservedErrno(i32);

impl PreservedErrno {
    /// Saves `errno`.
    #[inline]
    pub(crate) fn new() -> PreservedErrno {
        // SAFETY: the address is that of this thread's errno, valid for the life of the thread.
        PreservedErrno(unsafe { *libc::__errno_location() })
    }
}

impl Drop for PreservedErrno {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: as in `new`.
        unsafe { *libc::__errno_location() = self.0 };
    }
}
