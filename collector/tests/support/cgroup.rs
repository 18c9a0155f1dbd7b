//! A memory cgroup below that of the test.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Removed when dropped, with the processes in it.
pub(crate) struct Cgroup {
    folder: PathBuf,
    limit: &'static str,
}

impl Cgroup {
    /// `None`, with a message, if it cannot be created.
    pub(crate) fn new(name: &str) -> Option<Cgroup> {
        let own = std::fs::read_to_string("/proc/self/cgroup").unwrap();
        let made = own.lines().filter_map(|line| {
            let mut parts = line.splitn(3, ':');
            let (number, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
            let path = path.trim_start_matches('/');
            let (root, limit) = if controllers.split(',').any(|word| word == "memory") {
                ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")
            } else if number == "0" {
                ("/sys/fs/cgroup", "memory.max")
            } else {
                return None;
            };
            if !Path::new(root).join("cgroup.procs").exists() {
                return None;
            }
            let folder = Path::new(root).join(path).join(format!("rpd-test-{}-{name}", std::process::id()));
            std::fs::create_dir(&folder).ok()?;
            let group = Cgroup { folder, limit };
            // With version 2 the controller may be missing, or missing for groups below.
            group.folder.join(limit).exists().then_some(group)
        });
        let group = made.collect::<Vec<_>>().pop();
        if group.is_none() {
            eprintln!("skipped: no memory cgroup can be made here");
        }
        group
    }

    /// Sets the limit.
    pub(crate) fn limit(&self, kib: u32) {
        std::fs::write(self.folder.join(self.limit), (u64::from(kib) << 10).to_string()).unwrap();
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
