//! Checks the memory for rings and its limits.

use super::finding::CheckFinding;
use crate::command_line::{CollectOptions, Size};
use rpd_memory_limit::MemoryCgroup;
use rpd_ring::layout::{
    DEFAULT_RING_BYTES, HEADER_BYTES, MAX_IDENTITY_BYTES, MIN_RING_BYTES, MIN_SEGMENT_BYTES,
    USUAL_RING_BYTES, ring_bytes,
};
use rustix::fs::{FallocateFlags, MemfdFlags, fallocate, ftruncate, memfd_create};
use rustix::process::{Resource, getrlimit};

/// Default limit for all rings of one process.
const RING_MEMORY: Size = Size(rpd_ring::layout::DEFAULT_MEMORY_BYTES as u64);
const SMALLER: &str = "give the job more memory, or choose smaller rings with --ring-size and --ring-memory";

/// Rings for fewer threads than these are worth a note.
const FEW_THREADS: u64 = 64;

/// Checks whether a ring can be created, and how much memory the limits of the job leave for rings.
pub(super) fn check(options: &CollectOptions) -> Vec<CheckFinding> {
    let wanted = options.ring_memory.unwrap_or(RING_MEMORY);
    let ring = options.ring_size.map_or(DEFAULT_RING_BYTES, |size| ring_bytes(size.as_usize()));
    let threads = wanted.0 / MIN_SEGMENT_BYTES as u64;
    // The first rings of threads may take a quarter more.
    if wanted.0 + wanted.0 / 4 < MIN_SEGMENT_BYTES as u64 {
        let what = format!(
            "--ring-memory {wanted} is less than the {} of a thread's first ring",
            Size(MIN_SEGMENT_BYTES as u64)
        );
        return vec![CheckFinding::problem(what, "nothing would be recorded; give more")];
    }
    let ring = ring.min(wanted.as_usize());
    let least = (HEADER_BYTES + MAX_IDENTITY_BYTES + MIN_RING_BYTES) as u64;
    let (first, most) = (Size(MIN_SEGMENT_BYTES as u64), Size(ring as u64));
    let mut findings = vec![match reserve(least) {
        Ok(()) => CheckFinding::Ok(format!(
            "a thread's ring begins with {first}, which can be reserved, and grows to {most}"
        )),
        Err(error) => CheckFinding::problem(format!("no memory for a ring: {error}"), SMALLER),
    }];
    if threads < FEW_THREADS {
        findings.push(CheckFinding::Note(format!(
            "--ring-memory {wanted} is enough for the rings of about {} threads; events of more are only counted",
            threads.max(1)
        )));
    }
    let whole = (HEADER_BYTES + MAX_IDENTITY_BYTES + ring) as u64;
    let usual = (HEADER_BYTES + MAX_IDENTITY_BYTES + USUAL_RING_BYTES) as u64;
    if let Some(limit) = getrlimit(Resource::Fsize).current.filter(|limit| *limit < whole.min(usual)) {
        let what = format!("`ulimit -f` allows files of {limit} bytes, so that a ring cannot grow to {most}");
        findings.push(CheckFinding::problem(what, "raise it, or choose smaller rings with --ring-size"));
    }
    if let Some(cgroup) = MemoryCgroup::tightest() {
        let left = cgroup.limit.saturating_sub(cgroup.used);
        let text = format!(
            "{} of the job's {} are left; rings take up to {wanted} of it for each process",
            Size(left),
            Size(cgroup.limit)
        );
        findings.push(if left < wanted.0 {
            CheckFinding::problem(text, SMALLER)
        } else {
            CheckFinding::Ok(text)
        });
    }
    findings
}

/// Reserves memory as a ring does at first, and frees it.
fn reserve(bytes: u64) -> std::io::Result<()> {
    // Beyond `ulimit -f` the system would send a signal instead of returning an error.
    if getrlimit(Resource::Fsize).current.is_some_and(|limit| limit < bytes) {
        return Err(std::io::ErrorKind::FileTooLarge.into());
    }
    let file = memfd_create(c"rpd-doctor", MemfdFlags::CLOEXEC)?;
    ftruncate(&file, bytes)?;
    fallocate(&file, FallocateFlags::empty(), 0, bytes)?;
    Ok(())
}
