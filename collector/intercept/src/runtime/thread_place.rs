//! A place for the state of each thread, which costs two instructions to find.
//!
//! A `thread_local!` of a shared library costs a call of `__tls_get_addr` for each access, as the library could be loaded
//! later. This one is loaded with the program. So the place is in the block of thread-local memory that each thread has from
//! its start, at the same distance from its thread pointer (the model initial-exec). The loader ensures that: the linker
//! marks the library with `DF_STATIC_TLS`.

use std::arch::{asm, global_asm};

/// Bytes of the place.
pub(crate) const PLACE_BYTES: usize = 256;
/// Alignment of the place, a cache line.
pub(crate) const PLACE_ALIGN: usize = 64;

global_asm!(
    ".pushsection .tbss.rpd_thread_place, \"awT\", @nobits",
    ".globl rpd_thread_place",
    ".hidden rpd_thread_place",
    ".type rpd_thread_place, @object",
    ".balign {align}",
    "rpd_thread_place:",
    ".zero {bytes}",
    ".size rpd_thread_place, {bytes}",
    ".popsection",
    align = const PLACE_ALIGN,
    bytes = const PLACE_BYTES,
);

/// Returns the place of the calling thread: [`PLACE_BYTES`], aligned to [`PLACE_ALIGN`] and zero at first. It exists until the
/// thread has ended.
///
/// It must be asked for again after a call of MPI: libraries with threads of their own (Argobots, Qthreads) may return from a
/// call in another thread of the system.
#[inline(always)]
pub(crate) fn thread_place() -> *const u8 {
    let place: *const u8;
    // SAFETY: reads the thread pointer and a constant of the loader. Neither `pure` nor `nomem`, so that no result is used
    // twice.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        asm!(
            "mov {place}, qword ptr [rip + rpd_thread_place@GOTTPOFF]",
            "add {place}, qword ptr fs:[0]",
            place = out(reg) place,
            options(nostack, readonly),
        );
    }
    // SAFETY: as above.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        asm!(
            "adrp {distance}, :gottprel:rpd_thread_place",
            "ldr {distance}, [{distance}, #:gottprel_lo12:rpd_thread_place]",
            "mrs {place}, tpidr_el0",
            "add {place}, {place}, {distance}",
            place = out(reg) place,
            distance = out(reg) _,
            options(nostack, readonly),
        );
    }
    place
}
