//! Reads the sums of a thread from its files in `/proc`, and samples its state.

use super::super::file::BoundedFile;
use std::path::Path;

/// Bytes of a file that are read: more than one line has.
const LINE_BYTES: usize = 1024;

/// Sums of a thread since it started.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct ThreadSums {
    /// Time on a core, ns.
    pub(super) run_ns: u64,
    /// Time in which it was runnable, but not on a core, ns.
    pub(super) wait_ns: u64,
    /// How often it got a core.
    pub(super) slices: u64,
    /// Samples of its state.
    pub(super) samples: u64,
    /// Those in which it was in an uninterruptible wait.
    pub(super) disk_samples: u64,
    /// Those in which it was in another wait than for a core.
    pub(super) sleep_samples: u64,
}

/// The files of a thread.
pub(super) struct ThreadFiles {
    schedstat: BoundedFile,
    /// `None` if the state is not sampled.
    stat: Option<BoundedFile>,
    /// The sums at the last read.
    sums: ThreadSums,
}

/// The kind of wait that the state of a thread shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum SampledWait {
    /// For a disk or a file system, mostly: signals do not interrupt such a wait.
    Disk,
    /// For anything else but a core.
    Sleep,
}

impl ThreadFiles {
    /// Opens the files in the folder of a thread, and that of its state if `wants_state`. `None` if its times cannot be read.
    pub(super) fn open(folder: &Path, wants_state: bool) -> Option<ThreadFiles> {
        let schedstat = BoundedFile::page(&folder.join("schedstat"))?;
        let stat = wants_state.then(|| BoundedFile::page(&folder.join("stat"))).flatten();
        Some(ThreadFiles { schedstat, stat, sums: ThreadSums::default() })
    }

    /// Returns whether the state is sampled, too.
    pub(super) fn has_state(&self) -> bool {
        self.stat.is_some()
    }

    /// Closes the files between two reads, because descriptors are few.
    pub(super) fn close(&mut self) {
        self.schedstat.close();
        self.stat.iter_mut().for_each(BoundedFile::close);
    }

    /// Reads the sums, and adds a sample of the state. `None` if the thread has ended, or the kernel does
    /// not count.
    pub(super) fn sample(&mut self) -> Option<ThreadSums> {
        let mut buffer = [0; LINE_BYTES];
        let text = std::str::from_utf8(self.schedstat.read(&mut buffer).ok()?).ok()?;
        (self.sums.run_ns, self.sums.wait_ns, self.sums.slices) = parse_schedstat(text)?;
        let line = self.stat.as_ref().and_then(|file| file.read(&mut buffer).ok());
        self.sums.samples += u64::from(line.is_some());
        match line.and_then(SampledWait::parse) {
            Some(SampledWait::Disk) => self.sums.disk_samples += 1,
            Some(SampledWait::Sleep) => self.sums.sleep_samples += 1,
            None => {}
        }
        Some(self.sums)
    }
}

/// Reads the text of `schedstat`: the times on a core and without one, ns, and how often it got one. `None` also if the kernel
/// does not count: a thread that records has run, but all of these are 0.
fn parse_schedstat(text: &str) -> Option<(u64, u64, u64)> {
    let mut numbers = text.split_ascii_whitespace().map(|number| number.parse().ok());
    let sums = (numbers.next()??, numbers.next()??, numbers.next()??);
    (sums != (0, 0, 0)).then_some(sums)
}

/// Returns whether the kernel counts for how long threads wait for a CPU: by this thread, which has run.
pub(crate) fn waits_are_counted() -> bool {
    std::fs::read_to_string("/proc/thread-self/schedstat").is_ok_and(|text| parse_schedstat(&text).is_some())
}

impl SampledWait {
    /// Reads the state in a line of `stat`. `None` if the thread runs, waits for a core, or has ended.
    fn parse(line: &[u8]) -> Option<SampledWait> {
        // The name of the thread, which can contain anything, is in parentheses before the state.
        let name_end = line.iter().rposition(|byte| *byte == b')')?;
        match line.get(name_end + 2)? {
            // Kernels before 4.14 have no I. Lustre waits in it, as such a wait is no load of the system.
            b'D' | b'I' => Some(SampledWait::Disk),
            b'S' | b'T' | b't' | b'P' => Some(SampledWait::Sleep),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_schedstat_is_read() {
        assert_eq!(parse_schedstat("503 514 181\n"), Some((503, 514, 181)));
        assert_eq!([parse_schedstat(""), parse_schedstat("5 6"), parse_schedstat("a b c")], [None; 3]);
        assert_eq!([parse_schedstat("0 0 0\n"), parse_schedstat("9 0 0\n")], [None, Some((9, 0, 0))]);
    }

    #[test]
    fn the_state_is_found_after_any_name() {
        let state = |line: &str| SampledWait::parse(line.as_bytes());
        assert_eq!(state("7 (dd) D 1 7 7"), Some(SampledWait::Disk));
        assert_eq!(state("7 (a) S (b)) I 1 7 7"), Some(SampledWait::Disk));
        assert_eq!(state("7 (D) D) S 1 7 7"), Some(SampledWait::Sleep));
        assert_eq!([state("7 (dd) R 1"), state("7 (dd) Z 1"), state("7 (dd)"), state("")], [None; 4]);
    }

    #[test]
    fn samples_add_up_while_a_thread_can_be_read() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        write("schedstat", "10 20 3\n");
        write("stat", "7 (dd) D 1\n");
        let mut files = ThreadFiles::open(folder.path(), true).unwrap();
        let first = files.sample().unwrap();
        write("stat", "7 (dd) S 1\n");
        files.close();
        let second = files.sample().unwrap();
        write("schedstat", "");
        assert_eq!(files.sample(), None);
        let expected =
            ThreadSums { run_ns: 10, wait_ns: 20, slices: 3, samples: 1, disk_samples: 1, sleep_samples: 0 };
        assert!(
            files.has_state()
                && ThreadFiles::open(folder.path(), false).is_some_and(|files| !files.has_state())
        );
        assert_eq!((first, second), (expected, ThreadSums { samples: 2, sleep_samples: 1, ..expected }));
    }
}
