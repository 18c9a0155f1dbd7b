//! A cgroup in which reads of a disk are slow.

use crate::harness::Job;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Bytes of a read, as in `tests/workloads/truth/causes.c`. The kernel lets those of a tenth of a second pass at once, so a
/// read is longer than that.
const READ_BYTES: u64 = 4 << 20;
/// Reads per second in the group.
const READS_PER_SECOND: u64 = 5;
/// Bytes of the file that is read.
const FILE_BYTES: u64 = 8 * READ_BYTES;

/// The group, and a file to read. Removed when dropped, if no process is left in it.
#[derive(Debug)]
pub struct SlowDisk {
    group: PathBuf,
    /// A file of which reads are slow, if they do not come from memory (`O_DIRECT`).
    pub file: PathBuf,
}

impl SlowDisk {
    /// Makes the file in a folder. `None` where a cgroup cannot make its reads slow.
    pub fn make(folder: &Path) -> Option<SlowDisk> {
        static MADE: AtomicUsize = AtomicUsize::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let name = format!("rpd-test-{}-reads-{number}", std::process::id());
        let file = folder.join("read-slowly");
        // Not zeros, which a file system may leave out.
        let bytes: Vec<u8> = (0..FILE_BYTES).map(|at| ((at * at) >> 9) as u8 | 1).collect();
        fs::write(&file, bytes).ok()?;
        fs::File::open(&file).ok()?.sync_all().ok()?;
        let disk = disk_of(&file)?;
        let rate = READ_BYTES * READS_PER_SECOND;
        for (root, limit, value) in [
            ("/sys/fs/cgroup/blkio", "blkio.throttle.read_bps_device", format!("{disk} {rate}")),
            ("/sys/fs/cgroup", "io.max", format!("{disk} rbps={rate}")),
        ] {
            let group = Path::new(root).join(&name);
            if fs::create_dir(&group).is_err() {
                continue;
            }
            let made = SlowDisk { group, file: file.clone() };
            if fs::write(made.group.join(limit), value).is_ok() && made.is_slow() {
                return Some(made);
            }
        }
        None
    }

    /// Returns the file by which a process that writes 0 to it enters the group.
    pub fn procs(&self) -> PathBuf {
        self.group.join("cgroup.procs")
    }

    /// Returns whether a read takes at least half as long as it should.
    fn is_slow(&self) -> bool {
        let began = Instant::now();
        let script = "echo 0 >\"$0\" && exec dd if=\"$1\" of=/dev/null bs=4M count=2 iflag=direct";
        let read = Job::new("sh").args(["-c", script]).arg(self.procs()).arg(&self.file).run();
        read.code() == Some(0) && began.elapsed() >= Duration::from_millis(1000 / READS_PER_SECOND)
    }
}

impl Drop for SlowDisk {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.group);
        let _ = fs::remove_file(&self.file);
    }
}

/// Returns the number of the whole disk of a file, `254:0`: groups limit no partitions.
fn disk_of(file: &Path) -> Option<String> {
    let device = fs::metadata(file).ok()?.dev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let folder = Path::new("/sys/dev/block").join(format!("{major}:{minor}"));
    let whole = if folder.join("partition").exists() { folder.join("../dev") } else { folder.join("dev") };
    Some(fs::read_to_string(whole).ok()?.trim().to_owned())
}
