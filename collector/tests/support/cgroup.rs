//! A cgroup below that of the test.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Removed when dropped, with the processes in it.
pub(crate) struct Cgroup {
    folder: PathBuf,
    limit: &'static str,
}

impl Cgroup {
    /// A memory cgroup. `None`, with a message, if it cannot be created.
    pub(crate) fn new(name: &str) -> Option<Cgroup> {
        Cgroup::with_controller(name, "memory", ["memory.limit_in_bytes", "memory.max"])
    }

    /// A cgroup whose processes may run for this many us in each 100 ms, all together.
    pub(crate) fn with_quota(name: &str, quota_us: u32) -> Option<Cgroup> {
        let group = Cgroup::with_controller(name, "cpu", ["cpu.cfs_quota_us", "cpu.max"])?;
        let period = if group.limit == "cpu.max" { " 100000" } else { "" };
        std::fs::write(group.folder.join(group.limit), format!("{quota_us}{period}")).unwrap();
        Some(group)
    }

    /// `limits` are the files with the limit in versions 1 and 2.
    fn with_controller(name: &str, controller: &str, limits: [&'static str; 2]) -> Option<Cgroup> {
        let own = std::fs::read_to_string("/proc/self/cgroup").unwrap();
        let made = own.lines().filter_map(|line| {
            let mut parts = line.splitn(3, ':');
            let (number, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
            let path = path.trim_start_matches('/');
            let (root, limit) = if controllers.split(',').any(|word| word == controller) {
                (Path::new("/sys/fs/cgroup").join(controller), limits[0])
            } else if number == "0" {
                (PathBuf::from("/sys/fs/cgroup"), limits[1])
            } else {
                return None;
            };
            if !root.join("cgroup.procs").exists() {
                return None;
            }
            let folder = root.join(path).join(format!("rpd-test-{}-{name}", std::process::id()));
            std::fs::create_dir(&folder).ok()?;
            let group = Cgroup { folder, limit };
            // With version 2 the controller may be missing, or missing for groups below.
            group.folder.join(limit).exists().then_some(group)
        });
        let group = made.collect::<Vec<_>>().pop();
        if group.is_none() {
            eprintln!("skipped: no {controller} cgroup can be made here");
        }
        group
    }

    /// Sets the limit.
    pub(crate) fn limit(&self, kib: u32) {
        std::fs::write(self.folder.join(self.limit), (u64::from(kib) << 10).to_string()).unwrap();
    }

    /// How long the kernel stopped the processes of the group because of the quota, the sum over CPUs.
    pub(crate) fn throttled(&self) -> Duration {
        let stat = std::fs::read_to_string(self.folder.join("cpu.stat")).unwrap();
        let number = |name: &str| -> Option<u64> {
            stat.lines().find_map(|line| line.strip_prefix(name)).map(|time| time.trim().parse().unwrap())
        };
        let of_version_2 = || number("throttled_usec ").map(Duration::from_micros);
        number("throttled_time ").map(Duration::from_nanos).or_else(of_version_2).unwrap()
    }

    /// Words of a shell that enter the group.
    pub(crate) fn enter(&self) -> String {
        format!("echo 0 > {}/cgroup.procs", self.folder.display())
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        let began = Instant::now();
        while std::fs::remove_dir(&self.folder).is_err() && began.elapsed() < Duration::from_secs(10) {
            let left = std::fs::read_to_string(self.folder.join("cgroup.procs")).unwrap_or_default();
            for pid in left.lines() {
                super::kill(pid.parse().unwrap(), 9);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}
