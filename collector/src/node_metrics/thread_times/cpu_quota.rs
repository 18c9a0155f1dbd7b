//! CPU quotas of cgroups: how long the kernel stopped the processes of a group because their quota was used up.

use super::super::file::{BoundedFile, text_of};
use std::path::{Path, PathBuf};

/// Maximum number of cgroups above a process.
const MAX_GROUPS: usize = 16;
/// Bytes of a file that are read.
const FILE_BYTES: usize = 4096;

/// The cgroups with a quota that a process is in.
pub(super) struct CpuQuota {
    /// `cpu.stat` of each.
    groups: Vec<BoundedFile>,
    unit: ThrottledUnit,
}

/// How `cpu.stat` has the time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ThrottledUnit {
    /// `throttled_time`, ns: version 1.
    Nanoseconds,
    /// `throttled_usec`: version 2.
    Microseconds,
}

impl CpuQuota {
    /// Finds the quotas that hold for a process now. `None` if there is none, or none that is visible here. `root` is the
    /// folder that contains `proc` and `sys`.
    pub(super) fn of(root: &Path, pid: i32) -> Option<CpuQuota> {
        let memberships = text_of(&root.join(format!("proc/{pid}/cgroup")))?;
        let mounts = root.join("sys/fs/cgroup");
        memberships.lines().find_map(|line| {
            let mut parts = line.splitn(3, ':').skip(1);
            let (controllers, path) = (parts.next()?, parts.next()?);
            let path = Path::new(path.trim_start_matches('/'));
            let (mount, unit): (PathBuf, _) = match controllers {
                "" => (mounts.clone(), ThrottledUnit::Microseconds),
                _ if controllers.split(',').any(|name| name == "cpu") => {
                    // Where both are mounted as one, there is a link.
                    (mounts.join("cpu"), ThrottledUnit::Nanoseconds)
                }
                _ => return None,
            };
            let folders = path.ancestors().take(MAX_GROUPS).map(|path| mount.join(path));
            let limited = folders.filter(|folder| unit.is_limited(folder));
            let groups: Vec<BoundedFile> =
                limited.filter_map(|folder| BoundedFile::page(&folder.join("cpu.stat"))).collect();
            (!groups.is_empty()).then_some(CpuQuota { groups, unit })
        })
    }

    /// Closes the files between two reads, because descriptors are few.
    pub(super) fn close(&mut self) {
        self.groups.iter_mut().for_each(BoundedFile::close);
    }

    /// Returns how long these groups were stopped since they were made, ns: the sum over their CPUs. `None` if no file can be
    /// read.
    pub(super) fn throttled_ns(&self) -> Option<u64> {
        let mut buffer = [0; FILE_BYTES];
        let of_group = |file: &BoundedFile| {
            let text = std::str::from_utf8(file.read(&mut buffer).ok()?).ok()?.to_owned();
            self.unit.read(&text)
        };
        self.groups.iter().filter_map(of_group).reduce(u64::saturating_add)
    }
}

impl ThrottledUnit {
    fn is_limited(self, folder: &Path) -> bool {
        let text = |file: &str| text_of(&folder.join(file)).unwrap_or_default();
        match self {
            ThrottledUnit::Microseconds => {
                text("cpu.max").split_whitespace().next().is_some_and(|quota| quota != "max")
            }
            ThrottledUnit::Nanoseconds => {
                text("cpu.cfs_quota_us").parse::<i64>().is_ok_and(|quota| quota > 0)
            }
        }
    }

    /// Reads the text of `cpu.stat`.
    fn read(self, text: &str) -> Option<u64> {
        let (name, factor) = match self {
            ThrottledUnit::Nanoseconds => ("throttled_time ", 1),
            ThrottledUnit::Microseconds => ("throttled_usec ", 1000),
        };
        let time: u64 = text.lines().find_map(|line| line.strip_prefix(name))?.trim().parse().ok()?;
        Some(time.saturating_mul(factor))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotas_of_a_process_and_of_the_groups_above_it_count() {
        let folder = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        let throttled = |pid| CpuQuota::of(folder.path(), pid).and_then(|quota| quota.throttled_ns());
        write("proc/1/cgroup", "5:memory:/a\n0::/job/step/task\n");
        assert_eq!(throttled(1), None);
        write("sys/fs/cgroup/job/step/task/cpu.max", "max 100000\n");
        write("sys/fs/cgroup/job/step/task/cpu.stat", "throttled_usec 7\n");
        assert_eq!(throttled(1), None, "no quota, whatever the file says");
        write("sys/fs/cgroup/job/step/cpu.max", "50000 100000\n");
        write("sys/fs/cgroup/job/step/cpu.stat", "usage_usec 5\nnr_throttled 3\nthrottled_usec 20\n");
        write("sys/fs/cgroup/job/cpu.max", "90000 100000\n");
        write("sys/fs/cgroup/job/cpu.stat", "throttled_usec 1\n");
        assert_eq!(throttled(1), Some(21_000));
        write("proc/2/cgroup", "4:cpu,cpuacct:/slurm/job\n0::/\n");
        write("sys/fs/cgroup/cpu/slurm/job/cpu.cfs_quota_us", "-1\n");
        write("sys/fs/cgroup/cpu/slurm/cpu.cfs_quota_us", "50000\n");
        write("sys/fs/cgroup/cpu/slurm/cpu.stat", "nr_periods 1\nthrottled_time 1234\n");
        assert_eq!(throttled(2), Some(1234));
        assert_eq!(throttled(3), None);
    }
}
