//! roctx as `libroctx64` and `librocprofiler-sdk-roctx` export it. A real library behind ours is
//! called too, and what it returns is what the program gets.

use crate::real::{Fallback, RealFunction};
use crate::thread;
use std::ffi::{CStr, c_char, c_int};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// Text that the program passes; null is taken for an empty one.
unsafe fn text<'a>(message: *const c_char) -> &'a [u8] {
    if message.is_null() {
        return b"";
    }
    // SAFETY: roctx takes a string that ends with a zero byte and stays as it is during the call.
    unsafe { CStr::from_ptr(message).to_bytes() }
}

/// Opens a range in the calling thread. Returns its level, from 0.
///
/// # Safety
/// `message` is null or a string that ends with a zero byte.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn roctxRangePushA(message: *const c_char) -> c_int {
    static REAL: RealFunction = RealFunction::new(c"roctxRangePushA", Fallback::Nowhere);
    // SAFETY: `message` is what the caller promises.
    let level = thread::push(unsafe { text(message) });
    match REAL.address() {
        None => level,
        // SAFETY: the function of this name has this type in every roctx.
        Some(real) => unsafe {
            std::mem::transmute::<usize, unsafe extern "C" fn(*const c_char) -> c_int>(real)(message)
        },
    }
}

/// Closes the innermost range of the calling thread. Returns its level, or a negative number.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn roctxRangePop() -> c_int {
    static REAL: RealFunction = RealFunction::new(c"roctxRangePop", Fallback::Nowhere);
    let real = REAL.address().map(|real| {
        // SAFETY: the function of this name has this type in every roctx.
        unsafe { std::mem::transmute::<usize, unsafe extern "C" fn() -> c_int>(real)() }
    });
    let level = thread::pop();
    real.unwrap_or(level)
}

/// Opens a range of the process. Returns its id.
///
/// # Safety
/// `message` is null or a string that ends with a zero byte.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn roctxRangeStartA(message: *const c_char) -> u64 {
    static REAL: RealFunction = RealFunction::new(c"roctxRangeStartA", Fallback::Nowhere);
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let id = match REAL.address() {
        None => NEXT.fetch_add(1, Relaxed),
        // SAFETY: the function of this name has this type in every roctx.
        Some(real) => unsafe {
            std::mem::transmute::<usize, unsafe extern "C" fn(*const c_char) -> u64>(real)(message)
        },
    };
    // SAFETY: `message` is what the caller promises.
    thread::range_start(id, unsafe { text(message) });
    id
}

/// Closes a range of the process, from any thread.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn roctxRangeStop(id: u64) {
    static REAL: RealFunction = RealFunction::new(c"roctxRangeStop", Fallback::Nowhere);
    thread::range_stop(id);
    if let Some(real) = REAL.address() {
        // SAFETY: the function of this name has this type in every roctx.
        unsafe { std::mem::transmute::<usize, unsafe extern "C" fn(u64)>(real)(id) }
    }
}

/// Marks a moment in the calling thread.
///
/// # Safety
/// `message` is null or a string that ends with a zero byte.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn roctxMarkA(message: *const c_char) {
    static REAL: RealFunction = RealFunction::new(c"roctxMarkA", Fallback::Nowhere);
    // SAFETY: `message` is what the caller promises.
    thread::mark(unsafe { text(message) });
    if let Some(real) = REAL.address() {
        // SAFETY: the function of this name has this type in every roctx.
        unsafe { std::mem::transmute::<usize, unsafe extern "C" fn(*const c_char)>(real)(message) }
    }
}
