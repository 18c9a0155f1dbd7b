//! Memory for rings, and what limits it.

use super::Finding;
use crate::command_line::{Options, Size};
use rpd_ring::layout::{HEADER_BYTES, IDENTITY_LIMIT, RING_DEFAULT, ring_bytes};
use rustix::fs::{FallocateFlags, MemfdFlags, fallocate, ftruncate, memfd_create};
use rustix::process::{Resource, getrlimit};
use std::path::{Path, PathBuf};

/// Most bytes of all rings of one process unless told otherwise.
const RING_MEMORY: Size = Size(rpd_ring::layout::MEMORY_DEFAULT as u64);
const SMALLER: &str = "give the job more memory, or choose smaller rings with --ring-size and --ring-memory";

/// Whether a ring can be had, and how much the job's limits leave for rings.
pub(super) fn check(options: &Options) -> Vec<Finding> {
    let ring = options.ring_size.map_or(RING_DEFAULT, |size| ring_bytes(size.as_usize()));
    let bytes = (HEADER_BYTES + IDENTITY_LIMIT + ring) as u64;
    let mut findings = vec![match reserve(bytes) {
        Ok(()) => Finding::Ok(format!("a ring of {} can be had", Size(ring as u64))),
        Err(error) => {
            Finding::problem(format!("no memory for a ring of {}: {error}", Size(ring as u64)), SMALLER)
        }
    }];
    if let Some(limit) = getrlimit(Resource::Fsize).current.filter(|limit| *limit < bytes) {
        let what = format!("`ulimit -f` allows no file of {}, only of {limit} bytes", Size(bytes));
        findings.push(Finding::problem(what, "raise it, or choose smaller rings with --ring-size"));
    }
    let wanted = options.ring_memory.unwrap_or(RING_MEMORY);
    let memberships = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    if let Some(cgroup) = tightest(&memberships, Path::new("/sys/fs/cgroup")) {
        let left = cgroup.limit.saturating_sub(cgroup.used);
        let text = format!(
            "{} of the job's {} are left; rings take up to {wanted} of it for each process",
            Size(left),
            Size(cgroup.limit)
        );
        findings.push(if left < wanted.0 { Finding::problem(text, SMALLER) } else { Finding::Ok(text) });
    }
    findings
}

/// Reserves memory as a ring does, and gives it back.
fn reserve(bytes: u64) -> std::io::Result<()> {
    // Beyond `ulimit -f` the system would send a signal instead of an error.
    if getrlimit(Resource::Fsize).current.is_some_and(|limit| limit < bytes) {
        return Err(std::io::ErrorKind::FileTooLarge.into());
    }
    let file = memfd_create(c"rpd-doctor", MemfdFlags::CLOEXEC)?;
    ftruncate(&file, bytes)?;
    fallocate(&file, FallocateFlags::empty(), 0, bytes)?;
    Ok(())
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Cgroup {
    limit: u64,
    used: u64,
}

/// The memory cgroup with the least left, of this process's and those above, in version 1 or 2.
fn tightest(memberships: &str, root: &Path) -> Option<Cgroup> {
    let mut found: Vec<Cgroup> = Vec::new();
    for line in memberships.lines() {
        let mut parts = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(path)) = (parts.next(), parts.next(), parts.next()) else {
            continue;
        };
        let (root, limit, used): (PathBuf, _, _) = match controllers {
            "" => (root.to_owned(), "memory.max", "memory.current"),
            _ if controllers.split(',').any(|name| name == "memory") => {
                (root.join("memory"), "memory.limit_in_bytes", "memory.usage_in_bytes")
            }
            _ => continue,
        };
        // In a container the path may be that of the host, of which only the root is visible.
        let mut folder = Some(Path::new(path.trim_start_matches('/')));
        while let Some(path) = folder {
            let number =
                |file| std::fs::read_to_string(root.join(path).join(file)).ok()?.trim().parse::<u64>().ok();
            if let (Some(limit), Some(used)) = (number(limit), number(used)) {
                found.push(Cgroup { limit, used });
            }
            folder = path.parent();
        }
    }
    // Version 1 says "none" with a number near that of all addresses.
    found.retain(|cgroup| cgroup.limit < 1 << 60);
    found.into_iter().min_by_key(|cgroup| cgroup.limit.saturating_sub(cgroup.used))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tightest_cgroup_counts() {
        let folder = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("job/step/memory.max", "max\n");
        write("job/step/memory.current", "50\n");
        write("job/memory.max", "1000\n");
        write("job/memory.current", "400\n");
        let find = |memberships| tightest(memberships, folder.path());
        assert_eq!(find("0::/job/step\n"), Some(Cgroup { limit: 1000, used: 400 }));
        assert_eq!(find("0::/elsewhere\n"), None);
        write("memory/memory.limit_in_bytes", "700\n");
        write("memory/memory.usage_in_bytes", "600\n");
        let both = "5:cpu,memory:/of/the/host\n1:name=systemd:/x\n0::/job/step\nnonsense";
        assert_eq!(find(both), Some(Cgroup { limit: 700, used: 600 }));
        write("memory/memory.limit_in_bytes", "9223372036854771712\n");
        assert_eq!(find("5:memory:/"), None);
    }
}
