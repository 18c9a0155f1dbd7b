//! `librpd_intercept.so`: preloaded into every process below `rpd-collect`.
//!
//! It stands in front of roctx and MPI, writes what it sees into the ring of the calling thread
//! ([`rpd_ring`]), and passes the call on. Rules, in order of weight:
//!
//! * The program never notices: no output, no error, no descriptor left open, `errno` as it was, no point
//!   where a thread is cancelled, no lock and no allocation in an event. Where something of ours fails, the
//!   thread goes untraced.
//! * An event never waits. The first one of a thread, and the report of an end, connect to the collector:
//!   if its queue is full they try again for 25 ms at most.
//! * At load time the address of the collector is noted down, and what would take a lock or memory later is
//!   done: a page, a thread key and an exit handler, and a search for the functions that a signal handler
//!   may call. A thread makes its ring at its first event, so `bash`, `env` and the like cost nothing more.
//! * Nothing here panics: a panic must not unwind into C, and aborting is not ours to do.
//!
//! What it does not keep, as nothing here can:
//!
//! * The first call of an MPI or RCCL function, and of a roctx function after something was loaded,
//!   searches for the real one (`dlsym`), and so may take the loader's lock and memory.
//! * On x86-64, a thread's first event after many libraries with thread-local variables were loaded may
//!   allocate: glibc then enlarges the thread's table of them.
//! * A fork in another thread while a ring is being handed over gives the child copies of the two
//!   descriptors, which end at its next exec.
//! * A signal handler that jumps out of an event (`siglongjmp`) leaves it unfinished: what the thread does
//!   after that is counted as dropped, and no more. One that jumps out of a first event leaves its
//!   descriptors open.
//! * A child that a signal handler makes in mid-event by a bare `clone`, without `fork`, dies if the handler
//!   returns in it.
//! * No header of MPI is used and no symbol of it is needed: one build serves Open MPI and MPICH.
//!
//! The path of an event: [`roctx`], or [`apis::mpi`] and [`apis::rccl`] through [`interpose::inside`], ask [`thread`] for the ring
//! of this thread; [`generation`] tells it whether a fork has happened since; [`runtime::handover`] makes a new
//! ring where there is none, as large as the [`runtime::budget`] allows. [`exits`] tells how processes ended.
//!
//! # What it takes for granted
//!
//! Linux and glibc: signal handlers, `fork`, thread cancellation and thread keys are used as they are
//! there. x86-64 or aarch64: handles of MPI are passed on in whole registers, an `int` is the front half of
//! 8 bytes, and stacks grow down. It does not build elsewhere.
//!
//! It stays loaded until the process ends (`-z nodelete`): the loader, `exit`, `fork` and every thread that
//! ends call into it.
#![allow(unsafe_code)]

#[cfg(not(all(
    target_os = "linux",
    target_env = "gnu",
    target_pointer_width = "64",
    any(target_arch = "x86_64", target_arch = "aarch64"),
)))]
compile_error!("rpd-intercept is for Linux with glibc on x86-64 and aarch64: see the crate's documentation");

mod apis;
mod interpose;
mod runtime;

use apis::{exits, roctx};
use interpose::real;
use runtime::{errno, generation, settings, thread};

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
    if settings::get().is_some() {
        generation::prepare(after_fork);
        thread::prepare();
    }
}

/// Runs in the child of fork(3), in the thread that forked, before fork returns.
extern "C" fn after_fork() {
    thread::after_fork();
    generation::reset();
}
