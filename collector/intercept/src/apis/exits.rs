//! Reports how processes end where the collector cannot observe it: only a parent learns by which signal its
//! child died, and the parent of a worker is the program, not the collector.
//!
//! `wait` and its relatives are passed on, and a child that died by a signal is reported. A process that has
//! recorded something reports its own exit status, through `on_exit(3)` and `_exit`. Each report is one
//! packet; all other calls cost a comparison. Signal handlers may call all of them.

use crate::interpose::real::RealFunction;
use crate::runtime::{errno, generation, handover, settings, unrecorded};
use rpd_ring::message::LibraryMessage;
use std::ffi::{c_int, c_uint, c_void};
use std::mem::{transmute, zeroed};
use std::sync::atomic::Ordering::Relaxed;

static WAIT: RealFunction = RealFunction::new(c"wait", None);
static WAITPID: RealFunction = RealFunction::new(c"waitpid", None);
static WAIT3: RealFunction = RealFunction::new(c"wait3", None);
static WAIT4: RealFunction = RealFunction::new(c"wait4", None);
static WAITID: RealFunction = RealFunction::new(c"waitid", None);
static EXIT_NOW: RealFunction = RealFunction::new(c"_exit", None);

unsafe extern "C" {
    /// `on_exit(3)` of glibc.
    fn on_exit(function: unsafe extern "C" fn(c_int, *mut c_void), argument: *mut c_void) -> c_int;
}

/// Finds the functions now, because a signal handler that calls them must not search. Registers the report of
/// the exit status if there is a collector: later this would take a lock and memory. Handlers that are
/// registered first run last, after those of the program.
pub(crate) fn prepare() {
    for function in [&WAIT, &WAITPID, &WAIT3, &WAIT4, &WAITID, &EXIT_NOW] {
        function.search();
    }
    if settings::get().is_some() {
        // SAFETY: a handler of the right type, in a library that is never unloaded.
        unsafe { on_exit(exiting, std::ptr::null_mut()) };
    }
}

unsafe extern "C" fn exiting(status: c_int, _: *mut c_void) {
    report_exit(status);
}

/// Reports the exit status of this process, unless it had no event since its fork. A vfork child has the
/// memory of its parent, but its own id.
fn report_exit(status: c_int) {
    let (Some(page), Some(settings)) = (generation::page(), settings::get()) else { return };
    let reports = page.reports.load(Relaxed);
    if reports == 0 || reports != std::process::id() {
        return;
    }
    let _errno = errno::PreservedErrno::new();
    if let Some(events) = unrecorded::last_unrecorded() {
        handover::send_message(settings, LibraryMessage::Lost { events });
    }
    handover::send_message(
        settings,
        LibraryMessage::Ended { pid: reports as i32, status: (status & 0xff) << 8 },
    );
}

/// Reports a child that died by a signal.
fn report_child(pid: libc::pid_t, status: c_int) {
    if pid > 0
        && libc::WIFSIGNALED(status)
        && let Some(settings) = settings::get()
    {
        let _errno = errno::PreservedErrno::new();
        handover::send_message(settings, LibraryMessage::Ended { pid, status });
    }
}

/// Calls a function that waits for a child, and inspects the status of the child that ended. Provides a place
/// for the status if the program passed none.
unsafe fn wait_for(place: *mut c_int, real: impl FnOnce(*mut c_int) -> libc::pid_t) -> libc::pid_t {
    let mut own = 0;
    let place = if place.is_null() { &raw mut own } else { place };
    let pid = real(place);
    if pid > 0 {
        // SAFETY: the program's place, which the call has just filled as it has returned a child, or
        // ours.
        report_child(pid, unsafe { place.read() });
    }
    pid
}

/// Return value for a function that the C library lacks.
fn missing() -> c_int {
    // SAFETY: errno of this thread.
    unsafe { *libc::__errno_location() = libc::ENOSYS };
    -1
}

// The ABI is `C-unwind`: a thread that is cancelled during the wait unwinds through these.

macro_rules! wait_functions {
    ($($name:ident $real:ident($($before:ident: $before_type:ty)?; $($after:ident: $after_type:ty),*);)*) => {$(
        #[doc = concat!("Passes on `", stringify!($name), "(2)`.")]
        ///
        /// # Safety
        /// As the manual page says.
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C-unwind" fn $name(
            $($before: $before_type,)? status: *mut c_int $(, $after: $after_type)*
        ) -> libc::pid_t {
            type Real =
                unsafe extern "C-unwind" fn($($before_type,)? *mut c_int $(, $after_type)*) -> libc::pid_t;
            let Some(real) = $real.address() else { return missing() };
            // SAFETY: the C library's function of this name and type, with the program's arguments, but for a
            // place of ours instead of none.
            unsafe {
                wait_for(status, |status| {
                    transmute::<usize, Real>(real)($($before,)? status $(, $after)*)
                })
            }
        }
    )*};
}

wait_functions! {
    wait WAIT(;);
    waitpid WAITPID(pid: libc::pid_t; options: c_int);
    wait3 WAIT3(; options: c_int, usage: *mut c_void);
    wait4 WAIT4(pid: libc::pid_t; options: c_int, usage: *mut c_void);
}

/// Passes on `waitid(2)`.
///
/// # Safety
/// As `waitid(2)` says.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn waitid(
    kind: c_uint,
    id: libc::id_t,
    place: *mut libc::siginfo_t,
    options: c_int,
) -> c_int {
    type Real = unsafe extern "C-unwind" fn(c_uint, libc::id_t, *mut libc::siginfo_t, c_int) -> c_int;
    let Some(real) = WAITID.address() else { return missing() };
    // SAFETY: as in `wait`. siginfo_t is plain data, for which all zeros are valid. A call that succeeds
    // fills the place, with a signal of 0 if there was no child to report, and `si_pid` and `si_status`
    // are there for what is reported as SIGCHLD.
    unsafe {
        let mut own: libc::siginfo_t = zeroed();
        let info = if place.is_null() { &raw mut own } else { place };
        let result = transmute::<usize, Real>(real)(kind, id, info, options);
        if result == 0 && options & libc::WNOWAIT == 0 {
            let code = (*info).si_code;
            if (*info).si_signo == libc::SIGCHLD && matches!(code, libc::CLD_KILLED | libc::CLD_DUMPED) {
                report_child((*info).si_pid(), (*info).si_status() & 0x7f);
            }
        }
        result
    }
}

/// Reports the exit status and passes on `_exit(2)`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn _exit(status: c_int) -> ! {
    leave(status)
}

/// Reports the exit status and passes on `_Exit(3)`, which is `_exit`.
#[unsafe(no_mangle)]
#[allow(non_snake_case)]
pub(crate) extern "C" fn _Exit(status: c_int) -> ! {
    leave(status)
}

fn leave(status: c_int) -> ! {
    report_exit(status);
    // SAFETY: the C library's function of this type; without it the system call, which does not return
    // and of which a vfork child may make any number.
    unsafe {
        if let Some(real) = EXIT_NOW.address() {
            transmute::<usize, unsafe extern "C" fn(c_int) -> !>(real)(status)
        }
        loop {
            libc::syscall(libc::SYS_exit_group, status);
        }
    }
}
