//! Protects the program's use of `pthread_cancel`.

use std::ffi::c_int;

unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, old: *mut c_int) -> c_int;
}

/// `PTHREAD_CANCEL_DISABLE` of glibc.
const DISABLE: c_int = 1;

/// Postpones a cancellation of the calling thread until this is dropped. `connect`, `open`, `read` and others
/// that the library calls are cancellation points; the roctx functions, which call the library, are not. The
/// library's frames could not be unwound either.
pub(crate) struct PostponedCancellation(c_int);

impl PostponedCancellation {
    pub(crate) fn new() -> PostponedCancellation {
        let mut old = 0;
        // SAFETY: a state that exists, and a valid place for the old one. It only sets a flag of the
        // thread, so a signal handler may call it.
        unsafe { pthread_setcancelstate(DISABLE, &raw mut old) };
        PostponedCancellation(old)
    }
}

impl Drop for PostponedCancellation {
    fn drop(&mut self) {
        // SAFETY: a state that `new` got. What has come meanwhile acts at the program's next
        // cancellation point: a thread that is cancelled asynchronously may call nothing of ours.
        unsafe { pthread_setcancelstate(self.0, std::ptr::null_mut()) };
    }
}
