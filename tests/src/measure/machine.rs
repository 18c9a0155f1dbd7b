//! What figures were measured on.

use std::fs;
use std::path::Path;

/// The machine in a line; `folder` is where files are written.
pub fn machine(folder: &Path) -> String {
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let after = |text: &str, key: &str| {
        let line = text.lines().find(|line| line.starts_with(key)).unwrap_or_default();
        line.split_once(':').map_or("?".to_owned(), |(_, value)| value.trim().to_owned())
    };
    let processor = after(&read("/proc/cpuinfo"), "model name");
    let memory = after(&read("/proc/meminfo"), "MemTotal");
    let memory =
        memory.split(' ').next().and_then(|kib| kib.parse::<f64>().ok()).unwrap_or(0.0) / (1 << 20) as f64;
    let uname = rustix::system::uname();
    let kernel = format!("{} {}", uname.sysname().to_string_lossy(), uname.release().to_string_lossy());
    let sqlite = rusqlite::version();
    format!(
        "{cores} cores ({processor}), {memory:.0} GiB, {kernel}, {}, SQLite {sqlite}.",
        file_system(folder).unwrap_or("?".into())
    )
}

/// The type of the file system of a folder: that of the mount point that is the longest prefix.
fn file_system(folder: &Path) -> Option<String> {
    let folder = folder.canonicalize().ok()?;
    let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
    let mounts = mounts.lines().filter_map(|line| {
        let mut words = line.split(' ');
        let (point, kind) = (words.nth(1)?, words.next()?);
        folder.starts_with(point).then(|| (point.len(), kind.to_owned()))
    });
    mounts.max_by_key(|(length, _)| *length).map(|(_, kind)| kind)
}
