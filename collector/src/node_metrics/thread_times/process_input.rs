//! What a process reads and writes, and how often it has to wait for a page of its memory.
//!
//! The kernel adds what a child has read and written to the sums of its parent once the parent has waited for the child.

use super::super::file::BoundedFile;
use super::super::metrics::{growth_per_second, hundredths};
use std::path::Path;

/// Bytes of a file that are read: more than each has.
const FILE_BYTES: usize = 2048;
/// Time between two reads, ns.
const PERIOD_NS: i64 = 1_000_000_000;

/// Name, description and units of each counter, in the order of [`ProcessSums`].
pub(super) const COUNTERS: [(&str, &str, &str); 4] = [
    ("process.disk_read", "Bytes that the process fetched from storage", "B/s"),
    ("process.disk_write", "Bytes that the process gave to be written to storage", "B/s"),
    ("process.read", "Bytes that its calls of read returned, from caches and pipes as well", "B/s"),
    ("process.major_faults", "Page faults of the process that waited for storage", "1/s"),
];

/// Sums of a process since it started.
type ProcessSums = [u64; COUNTERS.len()];

/// The files of a process in `/proc`, which are opened for each read.
pub(super) struct ProcessInput {
    stat: BoundedFile,
    io: BoundedFile,
    /// When the process started, clock ticks after boot: another one may get its id.
    started: u64,
    /// Time of the last read, ns of `CLOCK_BOOTTIME`, and the sums then.
    last: (i64, ProcessSums),
    /// Time of the last attempt to read.
    tried: i64,
}

impl ProcessInput {
    /// Reads the sums of a process. `None` if they cannot be read. `root` is the folder that contains `proc`.
    pub(super) fn of(root: &Path, pid: i32, time: i64) -> Option<ProcessInput> {
        let folder = root.join(format!("proc/{pid}"));
        let mut files = [BoundedFile::page(&folder.join("stat"))?, BoundedFile::page(&folder.join("io"))?];
        files.iter_mut().for_each(BoundedFile::close);
        let [stat, io] = files;
        let (started, sums) = read(&stat, &io)?;
        Some(ProcessInput { stat, io, started, last: (time, sums), tried: time })
    }

    /// Reads the sums, if it is time. Returns the start of the interval that ends now, and by how much each sum grew in it a
    /// second.
    pub(super) fn add(&mut self, time: i64) -> Option<(i64, [f64; COUNTERS.len()])> {
        if time.saturating_sub(self.tried) < PERIOD_NS {
            return None;
        }
        self.tried = time;
        let (start, before) = self.last;
        let (_, sums) = read(&self.stat, &self.io).filter(|(started, _)| *started == self.started)?;
        self.last = (time, sums);
        let rate =
            |at: usize| growth_per_second(before[at], sums[at], time.saturating_sub(start)).unwrap_or(0.0);
        Some((start, std::array::from_fn(|at| hundredths(rate(at)))))
    }

    /// Returns the end of the last interval, ns of `CLOCK_BOOTTIME`.
    pub(super) fn end(&self) -> i64 {
        self.last.0
    }
}

/// Returns when the process started, and its sums.
fn read(stat: &BoundedFile, io: &BoundedFile) -> Option<(u64, ProcessSums)> {
    let mut buffer = [0; FILE_BYTES];
    let (started, major_faults) = parse_stat(stat.read(&mut buffer).ok()?)?;
    let text = std::str::from_utf8(io.read(&mut buffer).ok()?).ok()?;
    let bytes = |name: &str| -> Option<u64> {
        text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": ")?.trim().parse().ok())
    };
    Some((started, [bytes("read_bytes")?, bytes("write_bytes")?, bytes("rchar")?, major_faults]))
}

/// Reads a line of `stat`: when the process started, clock ticks after boot, and its major faults.
fn parse_stat(line: &[u8]) -> Option<(u64, u64)> {
    // The name, which can contain anything, is in parentheses before field 3.
    let name_end = line.iter().rposition(|byte| *byte == b')')?;
    let fields = std::str::from_utf8(line.get(name_end + 1..)?).ok()?;
    let field = |number: usize| fields.split_ascii_whitespace().nth(number - 3)?.parse().ok();
    Some((field(22)?, field(12)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000_000;

    #[test]
    fn sums_become_rates_once_a_second_as_long_as_it_is_the_same_process() {
        let folder = tempfile::tempdir().unwrap();
        let process = folder.path().join("proc/7");
        std::fs::create_dir_all(&process).unwrap();
        let write = |faults: u64, started: u64, bytes: u64| {
            let stat =
                format!("7 (a) b) S 1 7 7 0 -1 4194560 100 0 {faults} 0 1 2 0 0 20 0 1 0 {started} 9 9\n");
            std::fs::write(process.join("stat"), stat).unwrap();
            let io = format!(
                "rchar: {}\nwchar: 1\nsyscr: 2\nsyscw: 3\nread_bytes: {bytes}\nwrite_bytes: 4096\n\
                 cancelled_write_bytes: 0\n",
                3 * bytes
            );
            std::fs::write(process.join("io"), io).unwrap();
        };
        write(5, 1234, 1000);
        let mut input = ProcessInput::of(folder.path(), 7, 10 * SECOND).unwrap();
        write(7, 1234, 5000);
        assert_eq!(input.add(11 * SECOND - 1), None);
        assert_eq!(input.add(12 * SECOND), Some((10 * SECOND, [2000.0, 0.0, 6000.0, 1.0])));
        write(9, 1235, 9000);
        assert_eq!(input.add(14 * SECOND), None, "another process");
        write(0, 1234, 0);
        assert_eq!((input.add(14 * SECOND), input.end()), (None, 12 * SECOND), "not yet tried again");
        assert_eq!(input.add(16 * SECOND), Some((12 * SECOND, [0.0; 4])), "sums do not shrink");
        assert!(ProcessInput::of(folder.path(), 8, 0).is_none());
    }

    #[test]
    fn a_cut_line_is_none() {
        assert_eq!(parse_stat(b"7 (a) S 1 7 7 0 -1 4194560 100 0 5 0 1 2 0 0 20 0 1 0"), None);
        assert_eq!(parse_stat(b"7 (a"), None);
    }
}
