//! Checks the memory for rings and its limits.

use super::finding::CheckFinding;
use crate::command_line::{CollectOptions, Size, is_enough_for_a_ring};
use crate::session::MIN_CGROUP_BYTES;
use rpd_memory_limit::MemoryCgroup;
use rpd_ring::layout::{
    CGROUP_DIVISOR, DEFAULT_RING_BYTES, HEADER_BYTES, MAX_IDENTITY_BYTES, MIN_RING_BYTES, MIN_SEGMENT_BYTES,
    USUAL_RING_BYTES, ring_bytes,
};
use rustix::fs::{FallocateFlags, MemfdFlags, fallocate, ftruncate, memfd_create};
use rustix::process::{Resource, getrlimit};
use std::io::ErrorKind;

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
    if !is_enough_for_a_ring(wanted.0) {
        let what = format!(
            "--ring-memory {wanted} is less than the {} of a thread's first ring",
            Size(MIN_SEGMENT_BYTES as u64)
        );
        return vec![CheckFinding::problem(what, "nothing would be recorded; give more")];
    }
    let ring = ring.min(wanted.as_usize());
    let least = (HEADER_BYTES + MAX_IDENTITY_BYTES + MIN_RING_BYTES) as u64;
    let (first, most) = (Size(MIN_SEGMENT_BYTES as u64), Size(ring as u64));
    let mut findings = Vec::new();
    match reserve(least) {
        Ok(()) => findings.push(CheckFinding::Ok(format!(
            "a thread's ring begins with {first}, which can be reserved, and grows to {most}"
        ))),
        // The check of `ulimit -f` below says so.
        Err(error) if error.kind() == ErrorKind::FileTooLarge => {}
        Err(error) => {
            findings.push(CheckFinding::problem(format!("no memory for a ring: {error}"), SMALLER));
        }
    }
    if threads < FEW_THREADS {
        findings.push(CheckFinding::Note(format!(
            "--ring-memory {wanted} is enough for the rings of about {} threads; events of more are only counted",
            threads.max(1)
        )));
    }
    let whole = (HEADER_BYTES + MAX_IDENTITY_BYTES + ring) as u64;
    let usual = (HEADER_BYTES + MAX_IDENTITY_BYTES + USUAL_RING_BYTES) as u64;
    if let Some(limit) = getrlimit(Resource::Fsize).current.filter(|limit| *limit < whole.min(usual)) {
        let effect = match limit < least {
            true => "which is less than a ring needs, so that no events are recorded".to_owned(),
            false => format!("so that a ring cannot grow to {most}"),
        };
        let what = format!("`ulimit -f` allows files of {limit} bytes, {effect}");
        findings.push(CheckFinding::problem(what, "raise it, or choose smaller rings with --ring-size"));
    }
    findings.extend(MemoryCgroup::tightest().map(|cgroup| of_cgroup(cgroup, wanted)));
    findings
}

/// Checks the limit of the job's memory.
fn of_cgroup(cgroup: MemoryCgroup, wanted: Size) -> CheckFinding {
    let (limit, left) = (Size(cgroup.limit), cgroup.limit.saturating_sub(cgroup.used));
    if cgroup.limit < MIN_CGROUP_BYTES {
        let what = format!(
            "the memory limit of the job (cgroup) is {limit}, recording needs {}: the command would run untraced",
            Size(MIN_CGROUP_BYTES)
        );
        return CheckFinding::problem(what, "raise the memory limit of the job");
    }
    let share = wanted.0.min(cgroup.limit / CGROUP_DIVISOR as u64);
    let text = format!(
        "{} of the job's {limit} are left; rings take up to {} of it for each process",
        Size(left),
        Size(share)
    );
    match left < share {
        true => CheckFinding::problem(text, SMALLER),
        false => CheckFinding::Ok(text),
    }
}

/// Reserves memory as a ring does at first, and frees it.
fn reserve(bytes: u64) -> std::io::Result<()> {
    // Beyond `ulimit -f` the system would send a signal instead of returning an error.
    if getrlimit(Resource::Fsize).current.is_some_and(|limit| limit < bytes) {
        return Err(ErrorKind::FileTooLarge.into());
    }
    let file = memfd_create(c"rpd-doctor", MemfdFlags::CLOEXEC)?;
    ftruncate(&file, bytes)?;
    fallocate(&file, FallocateFlags::empty(), 0, bytes)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rings_take_their_share_of_the_memory_of_the_job() {
        let of = |limit: u64, used: u64| of_cgroup(MemoryCgroup { limit, used }, Size(64 << 20));
        assert!(matches!(of(20 << 20, 0), CheckFinding::Problem { what, .. } if what.contains("untraced")));
        assert!(
            matches!(of(64 << 20, 1 << 20), CheckFinding::Ok(text) if text.contains("up to 2 MiB of it"))
        );
        assert!(matches!(of(64 << 20, 63 << 20), CheckFinding::Problem { .. }), "1M is left");
        assert!(matches!(of(64 << 30, 0), CheckFinding::Ok(text) if text.contains("up to 64 MiB of it")));
    }
}
