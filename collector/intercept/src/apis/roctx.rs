//! roctx as `libroctx64` and `librocprofiler-sdk-roctx` export it. Calls a real library after ours as well,
//! and returns its result to the program.
//!
//! The ABI is `C-unwind`: a thread that is cancelled in the real library unwinds through these.

use crate::interpose::real::RealFunction;
use crate::runtime::{errno, process, settings, thread};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

macro_rules! real_functions {
    ($($function:ident = $name:literal;)*) => {
        $(static $function: RealFunction = RealFunction::new($name, None);)*

        /// Looks for a real library now, because a signal handler that calls one of these first should not search. It
        /// still searches if a library was loaded in between.
        pub(crate) fn prepare() {
            $($function.search();)*
        }
    };
}

real_functions! {
    PUSH = c"roctxRangePushA";
    POP = c"roctxRangePop";
    START = c"roctxRangeStartA";
    STOP = c"roctxRangeStop";
    MARK = c"roctxMarkA";
    PAUSE = c"roctxProfilerPause";
    RESUME = c"roctxProfilerResume";
    GET_THREAD_ID = c"roctxGetThreadId";
    NAME_OS_THREAD = c"roctxNameOsThread";
    NAME_HSA_AGENT = c"roctxNameHsaAgent";
    NAME_HIP_DEVICE = c"roctxNameHipDevice";
    NAME_HIP_STREAM = c"roctxNameHipStream";
}

/// Returns the text that the program passed. Null counts as an empty text.
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
pub(crate) unsafe extern "C-unwind" fn roctxRangePushA(message: *const c_char) -> c_int {
    // SAFETY: `message` is what the caller promises.
    let level = thread::push(unsafe { text(message) });
    match PUSH.address() {
        None => level,
        // SAFETY: the function of this name has this type in every roctx.
        Some(real) => unsafe {
            std::mem::transmute::<usize, unsafe extern "C-unwind" fn(*const c_char) -> c_int>(real)(message)
        },
    }
}

/// Closes the innermost range of the calling thread. Returns its level, or a negative number.
#[unsafe(no_mangle)]
pub(crate) extern "C-unwind" fn roctxRangePop() -> c_int {
    let real = POP.address().map(|real| {
        // SAFETY: the function of this name has this type in every roctx.
        unsafe { std::mem::transmute::<usize, unsafe extern "C-unwind" fn() -> c_int>(real)() }
    });
    let level = thread::pop();
    real.unwrap_or(level)
}

/// Opens a range of the process. Returns its id.
///
/// # Safety
/// `message` is null or a string that ends with a zero byte.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn roctxRangeStartA(message: *const c_char) -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let id = match START.address() {
        None => NEXT.fetch_add(1, Relaxed),
        // SAFETY: the function of this name has this type in every roctx.
        Some(real) => unsafe {
            std::mem::transmute::<usize, unsafe extern "C-unwind" fn(*const c_char) -> u64>(real)(message)
        },
    };
    // SAFETY: `message` is what the caller promises.
    thread::range_start(id, unsafe { text(message) });
    id
}

/// Closes a range of the process, from any thread.
#[unsafe(no_mangle)]
pub(crate) extern "C-unwind" fn roctxRangeStop(id: u64) {
    thread::range_stop(id);
    if let Some(real) = STOP.address() {
        // SAFETY: the function of this name has this type in every roctx.
        unsafe { std::mem::transmute::<usize, unsafe extern "C-unwind" fn(u64)>(real)(id) }
    }
}

/// Marks a point in time in the calling thread.
///
/// # Safety
/// `message` is null or a string that ends with a zero byte.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn roctxMarkA(message: *const c_char) {
    // SAFETY: `message` is what the caller promises.
    thread::mark(unsafe { text(message) });
    if let Some(real) = MARK.address() {
        // SAFETY: the function of this name has this type in every roctx.
        unsafe { std::mem::transmute::<usize, unsafe extern "C-unwind" fn(*const c_char)>(real)(message) }
    }
}

/// Pauses recording: of the process for thread 0, of the calling thread for its own id. Open ranges are
/// closed as usual. Returns 0.
#[unsafe(no_mangle)]
pub(crate) extern "C-unwind" fn roctxProfilerPause(thread: u64) -> c_int {
    thread::mark(b"roctxProfilerPause");
    pause(thread, true);
    of_thread(&PAUSE, thread)
}

/// Resumes recording, see [`roctxProfilerPause`].
#[unsafe(no_mangle)]
pub(crate) extern "C-unwind" fn roctxProfilerResume(thread: u64) -> c_int {
    pause(thread, false);
    thread::mark(b"roctxProfilerResume");
    of_thread(&RESUME, thread)
}

fn pause(thread: u64, paused: bool) {
    if thread == 0 {
        settings::pause(paused);
    } else if thread == process::thread_id() as u64 {
        thread::pause(paused);
    }
}

/// Passes on a function that takes a thread id.
fn of_thread(real: &RealFunction, thread: u64) -> c_int {
    // SAFETY: the functions that are passed in have this type in every roctx.
    real.address().map_or(0, |real| unsafe {
        std::mem::transmute::<usize, unsafe extern "C-unwind" fn(u64) -> c_int>(real)(thread)
    })
}

/// Returns the id of the calling thread for [`roctxProfilerPause`] in `place`. Returns 0.
///
/// # Safety
/// `place` is null or has room for a thread id.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn roctxGetThreadId(place: *mut u64) -> c_int {
    // SAFETY: the function of this name has this type in every roctx; `place` is what the caller
    // promises.
    unsafe {
        if let Some(real) = GET_THREAD_ID.address() {
            return std::mem::transmute::<usize, unsafe extern "C-unwind" fn(*mut u64) -> c_int>(real)(place);
        }
        if !place.is_null() {
            place.write(process::thread_id() as u64);
        }
    }
    0
}

/// Names the calling thread. Returns 0.
///
/// # Safety
/// `name` is null or a string that ends with a zero byte.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn roctxNameOsThread(name: *const c_char) -> c_int {
    // SAFETY: `name` is what the caller promises.
    thread::name_thread(unsafe { text(name) });
    // SAFETY: the function of this name has this type in every roctx.
    NAME_OS_THREAD.address().map_or(0, |real| unsafe {
        std::mem::transmute::<usize, unsafe extern "C-unwind" fn(*const c_char) -> c_int>(real)(name)
    })
}

/// Records the name of a device or stream as a mark, and passes it on.
macro_rules! names_of {
    ($($name:ident $real:ident($argument:ty);)*) => {$(
        #[doc = concat!("Records as a mark, and passes on, `", stringify!($name), "`. Returns 0.")]
        ///
        /// # Safety
        /// `name` is null or a string that ends with a zero byte.
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C-unwind" fn $name(name: *const c_char, what: $argument) -> c_int {
            // SAFETY: `name` is what the caller promises.
            name_of(stringify!($name), unsafe { text(name) });
            // SAFETY: the function of this name has this type in every roctx.
            $real.address().map_or(0, |real| unsafe {
                std::mem::transmute::<usize, unsafe extern "C-unwind" fn(*const c_char, $argument) -> c_int>(real)(
                    name, what,
                )
            })
        }
    )*};
}

names_of! {
    roctxNameHsaAgent NAME_HSA_AGENT(*const c_void);
    roctxNameHipDevice NAME_HIP_DEVICE(c_int);
    roctxNameHipStream NAME_HIP_STREAM(*const c_void);
}

fn name_of(function: &str, name: &[u8]) {
    let _errno = errno::PreservedErrno::new();
    let mut message = [0u8; 256];
    let parts = [function.as_bytes(), b": ", name];
    let bytes = parts.into_iter().flatten().zip(message.iter_mut()).map(|(from, to)| *to = *from).count();
    thread::mark(message.get(..bytes).unwrap_or_default());
}
