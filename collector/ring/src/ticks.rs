//! The time stamp counter of the processor. `CLOCK_BOOTTIME`, which the kernel computes from it, takes twice as long to read.
//!
//! The library may write ticks instead of times ([`crate::header::ThreadFacts::has_ticks`]), and the collector converts them.
//! Only on x86-64: the counter of aarch64 has not been measured.
#![allow(unsafe_code)]

/// Whether this process can read the counter: there is one, and `prctl(PR_SET_TSC)` does not forbid it.
#[cfg(target_arch = "x86_64")]
pub fn can_be_read() -> bool {
    let mut mode: libc::c_int = 0;
    // SAFETY: PR_GET_TSC writes one int to the address.
    unsafe { libc::prctl(libc::PR_GET_TSC, &raw mut mode) == 0 && mode == libc::PR_TSC_ENABLE }
}

/// Reads the counter. Not ordered with the instructions around it, which makes it wrong by 70 ns between cores at most.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub fn now() -> i64 {
    // SAFETY: reads a register; every x86-64 processor has the instruction.
    unsafe { core::arch::x86_64::_rdtsc() as i64 }
}

/// Reads the counter after all instructions before it.
#[cfg(target_arch = "x86_64")]
pub fn now_in_order() -> i64 {
    let mut processor = 0;
    // SAFETY: reads registers, and writes to a place that is valid. Processors whose counter runs at a constant rate have the
    // instruction.
    unsafe { core::arch::x86_64::__rdtscp(&raw mut processor) as i64 }
}

/// No counter is read on this processor.
#[cfg(not(target_arch = "x86_64"))]
pub fn can_be_read() -> bool {
    false
}

/// Is 0: no counter is read on this processor.
#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
pub fn now() -> i64 {
    0
}

/// Is 0: no counter is read on this processor.
#[cfg(not(target_arch = "x86_64"))]
pub fn now_in_order() -> i64 {
    0
}
