//! `librpd_intercept.so`: preloaded into every process below `rpd-collect`.
//!
//! It interposes roctx, MPI and RCCL functions, records each call in the ring of the calling thread
//! ([`rpd_ring`]), and passes the call on. Rules, by priority:
//!
//! * The program never notices the library: no output, no error, no open descriptor, no change of `errno`, no
//!   cancellation point, no lock and no allocation in an event. If the library fails, the thread is not
//!   traced.
//! * An event never blocks. Only the first event of a thread and the report of an end connect to the
//!   collector. If its queue is full, they retry for at most 25 ms.
//! * The constructor stores the address of the collector, and does what would take a lock or memory later: a
//!   page, a thread key, an exit handler, and a search for the functions that a signal handler may call. A
//!   thread creates its ring at its first event, so `bash`, `env` and similar programs have no further cost.
//! * Nothing here panics: a panic must not unwind into C, and the library must not abort the program.
//!
//! Known limits, which no such library can avoid:
//!
//! * The first call of an MPI or RCCL function, and of a roctx function after an object was loaded, searches
//!   the real function (`dlsym`). That may take the loader's lock and allocate.
//! * A fork in another thread while a ring is sent gives the child copies of the two descriptors, until its
//!   next exec.
//! * A signal handler that jumps out of an event (`siglongjmp`) leaves it unfinished. Later events of the
//!   thread are only counted as dropped. A jump out of a first event leaves its descriptors open.
//! * If a signal handler interrupts an event and makes a child by a bare `clone`, without `fork`, the child
//!   dies when the handler returns in it.
//!
//! The library uses no header and no symbol of MPI: one build serves Open MPI and MPICH.
//!
//! The path of an event: `roctx`, or `apis::mpi` and `apis::rccl` through `interpose::inside`, ask `thread`
//! for the ring of this thread. `generation` detects a fork since the last event. `runtime::handover` makes
//! a new ring, within the `runtime::budget`. `exits` reports how processes ended.
//!
//! # Assumptions
//!
//! Linux and glibc: signal handlers, `fork`, thread cancellation and thread keys are used as they work there.
//! x86-64 or aarch64: handles of MPI are passed on in whole registers, an `int` is the first half of 8 bytes,
//! and stacks grow down. It does not build elsewhere.
//!
//! The library stays loaded until the process ends (`-z nodelete`): the loader, `exit`, `fork` and every
//! thread that ends call into it.
#![allow(unsafe_code)]

#[cfg(not(all(
    target_os = "linux",
    target_env = "gnu",
    target_pointer_width = "64",
    any(target_arch = "x86_64", target_arch = "aarch64"),
)))]
compile_error!("rpd-intercept is for Linux with glibc on x86-64 and aarch64; see the crate's documentation");

mod apis;
mod interpose;
mod runtime;

use apis::{exits, roctx};
use interpose::real;
use runtime::{errno, generation, process, settings, thread};

/// Runs when the library is loaded, before `main`, with one thread.
#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn() = constructor;

extern "C" fn constructor() {
    let _errno = errno::PreservedErrno::new();
    settings::read();
    exits::prepare();
    roctx::prepare();
    real::prepare();
    if let Some(settings) = settings::get() {
        generation::prepare(after_fork);
        thread::prepare();
        settings.tracer.into_iter().for_each(process::permit_tracer);
    }
}

/// Runs in the child of fork(3), in the thread that forked, before fork returns.
extern "C" fn after_fork() {
    thread::after_fork();
    generation::reset();
    let _errno = errno::PreservedErrno::new();
    settings::get().and_then(|settings| settings.tracer).into_iter().for_each(process::permit_tracer);
}
