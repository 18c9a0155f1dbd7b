//! Memory cgroups with a limit, as that of a job.

use std::path::{Path, PathBuf};

/// A memory cgroup with a limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemoryCgroup {
    /// Limit in bytes.
    pub limit: u64,
    /// Bytes in use.
    pub used: u64,
}

impl MemoryCgroup {
    /// Returns the memory cgroup with the least free memory: the one of this process or one above it, in version
    /// 1 or 2.
    pub fn tightest() -> Option<MemoryCgroup> {
        let memberships = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        tightest_of(&memberships, Path::new("/sys/fs/cgroup"))
    }
}

fn tightest_of(memberships: &str, root: &Path) -> Option<MemoryCgroup> {
    let mut found: Vec<MemoryCgroup> = Vec::new();
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
        // In a container the path may be the path on the host, of which only the root is visible.
        let mut folder = Some(Path::new(path.trim_start_matches('/')));
        while let Some(path) = folder {
            let number =
                |file| std::fs::read_to_string(root.join(path).join(file)).ok()?.trim().parse::<u64>().ok();
            if let (Some(limit), Some(used)) = (number(limit), number(used)) {
                found.push(MemoryCgroup { limit, used });
            }
            folder = path.parent();
        }
    }
    // Version 1 represents "no limit" by a number near the size of the address space.
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
        let find = |memberships| tightest_of(memberships, folder.path());
        assert_eq!(find("0::/job/step\n"), Some(MemoryCgroup { limit: 1000, used: 400 }));
        assert_eq!(find("0::/elsewhere\n"), None);
        write("memory/memory.limit_in_bytes", "700\n");
        write("memory/memory.usage_in_bytes", "600\n");
        let both = "5:cpu,memory:/of/the/host\n1:name=systemd:/x\n0::/job/step\nnonsense";
        assert_eq!(find(both), Some(MemoryCgroup { limit: 700, used: 600 }));
        write("memory/memory.limit_in_bytes", "9223372036854771712\n");
        assert_eq!(find("5:memory:/"), None);
    }
}
