//! Leases: a file that names the process which merges a run, and the time until which it may do so. File systems of
//! clusters may lack locks, but they create a new file only once.

use super::status::now;
use rpd_files::{EntryKind, EntryStat, HeldFolder, effective_uid};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::sleep;
use std::time::{Duration, SystemTime};

/// Maximum bytes of a lease file.
const MAX_LEASE_BYTES: u64 = 64 << 10;
/// Maximum number of consecutive leases that killed merges may have left.
const MAX_LEASES: u32 = 1000;
/// Maximum length of a lease. A lease that a wrong clock wrote expires after this time, too.
const MAX_LEASE_TIME: Duration = Duration::from_secs(604_800);
/// Time for which a lease file without a holder is respected. On a file system without hard links, its writer may be
/// between creating and writing the file. Clocks of nodes and file servers differ by less.
const MAX_UNWRITTEN_AGE: Duration = Duration::from_secs(10);
/// Maximum number of attempts while other processes take leases at the same time.
const MAX_TRIES: u32 = 1000;

/// A lease held by this process.
#[derive(Clone, Debug)]
pub(super) struct MergeLease {
    folder: Arc<HeldFolder>,
    stem: String,
    number: u32,
    /// This process.
    pub(super) holder: LeaseHolder,
}

/// Content of a lease file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct LeaseHolder {
    host: String,
    pid: u32,
    /// End of the lease, seconds since 1970.
    pub(super) until: u64,
}

impl fmt::Display for LeaseHolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {} on {}", self.pid, self.host)
    }
}

impl MergeLease {
    /// Releases the lease, so that other processes can merge.
    pub(super) fn give_back(self) {
        let own = name(&self.stem, self.number);
        // A process that exceeded its lease may find the lease of another process, which has another number or
        // another holder.
        if read(&self.folder, &own).as_ref() == Some(&self.holder) {
            // Leases of killed merges have expired. This lease is removed last, because the largest number counts.
            (0..self.number).for_each(|over| drop(self.folder.remove(name(&self.stem, over))));
            let _ = self.folder.remove(own);
        }
    }
}

/// Takes the lease named `stem`, or returns its holder. A number follows the stem, and the file with the largest
/// number counts. An expired lease is followed by the next number, which only one process can create.
pub(super) fn take(
    folder: &Arc<HeldFolder>,
    stem: &str,
    length: Duration,
) -> io::Result<Result<MergeLease, LeaseHolder>> {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    for _ in 0..MAX_TRIES {
        let (last, number) = numbers(folder, stem)?;
        if let Some(holder) = last.and_then(|last| holder(folder, &name(stem, last), &host)) {
            return Ok(Err(holder));
        }
        if number > MAX_LEASES {
            return Err(io::Error::other(format!(
                "{MAX_LEASES} merges were killed here; remove {}.*",
                folder.path().join(stem).display()
            )));
        }
        let holder =
            LeaseHolder { host: host.clone(), pid: std::process::id(), until: now() + length.as_secs() };
        match put_new(folder, &name(stem, number), serde_json::to_string(&holder)?.as_bytes()) {
            Ok(()) => {
                return Ok(Ok(MergeLease {
                    folder: Arc::clone(folder),
                    stem: stem.to_owned(),
                    number,
                    holder,
                }));
            }
            // Another process was faster, and the file system may show its lease late.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => sleep(Duration::from_millis(1)),
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::other(format!("others take {} again and again", folder.path().join(stem).display())))
}

/// Creates a file that does not exist. With hard links, it appears with its complete content. An empty lease, left by
/// a killed process or a full disk, would block other merges.
fn put_new(folder: &HeldFolder, name: &str, bytes: &[u8]) -> io::Result<()> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let draft = format!(".{name}.{}.{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    // Removes the draft of a killed process with the same pid.
    let _ = folder.remove(&draft);
    folder.create(&draft, 0o600)?.write_all(bytes).inspect_err(|_| drop(folder.remove(&draft)))?;
    let linked = folder.link(&draft, name);
    let _ = folder.remove(&draft);
    match linked {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => {
            let mut file = folder.create(name, 0o600)?;
            file.write_all(bytes).inspect_err(|_| drop(folder.remove(name)))
        }
        other => other,
    }
}

fn name(stem: &str, number: u32) -> String {
    format!("{stem}.{number}")
}

/// Returns the number of this user's last lease, and the next number that no entry has.
fn numbers(folder: &HeldFolder, stem: &str) -> io::Result<(Option<u32>, u32)> {
    let (mut own, mut taken) = (None, BTreeSet::new());
    for name in folder.names(usize::MAX)? {
        let rest = name.as_encoded_bytes().strip_prefix(stem.as_bytes());
        let number = rest.and_then(|rest| rest.strip_prefix(b"."));
        let number: Option<u32> = number.and_then(|number| std::str::from_utf8(number).ok()?.parse().ok());
        let Some(number) = number else { continue };
        taken.insert(number);
        if folder.stat(&name).is_ok_and(|found| is_of_this_user(&found)) {
            own = own.max(Some(number));
        }
    }
    let first = own.map_or(0, |own: u32| own.saturating_add(1));
    let next = (first..=MAX_LEASES).find(|number| !taken.contains(number)).unwrap_or(MAX_LEASES + 1);
    Ok((own, next))
}

/// Returns the holder of a lease; `None` if it expired, or if its holder was on this node and does not exist anymore.
fn holder(folder: &HeldFolder, name: &str, host: &str) -> Option<LeaseHolder> {
    // Anything but a file was never a lease.
    let found = folder.stat(name).ok().filter(is_of_this_user)?;
    match read(folder, name) {
        Some(holder) => {
            let is_gone = holder.host == host && !Path::new("/proc").join(holder.pid.to_string()).exists();
            let is_young = distance_to_now(&found) < MAX_LEASE_TIME;
            Some(holder).filter(|holder| !is_gone && holder.until > now() && is_young)
        }
        None => {
            // A hard link to another file was never a lease.
            let may_be_unwritten = found.links == 1;
            let other =
                LeaseHolder { host: format!("another node ({name} is not written yet)"), pid: 0, until: 0 };
            (may_be_unwritten && distance_to_now(&found) < MAX_UNWRITTEN_AGE).then_some(other)
        }
    }
}

/// Returns whether this user may have created the lease. Another user must not be able to block merges.
fn is_of_this_user(found: &EntryStat) -> bool {
    found.kind == EntryKind::File && found.owner == effective_uid()
}

/// Returns the difference between now and the time at which a file was written. A time in the future is as wrong as
/// an old one.
fn distance_to_now(found: &EntryStat) -> Duration {
    let now = SystemTime::now();
    now.duration_since(found.modified).unwrap_or_else(|error| error.duration())
}

fn read(folder: &HeldFolder, name: &str) -> Option<LeaseHolder> {
    let mut text = String::new();
    folder.open_file(name).ok()?.take(MAX_LEASE_BYTES).read_to_string(&mut text).ok()?;
    serde_json::from_str(&text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    const HOUR: Duration = Duration::from_secs(3600);

    fn take(folder: &tempfile::TempDir, length: Duration) -> Result<MergeLease, LeaseHolder> {
        let opened = Arc::new(HeldFolder::open(folder.path()).unwrap());
        super::take(&opened, "merge.lease", length).unwrap()
    }

    #[test]
    fn one_has_it_until_it_gives_it_back() {
        let folder = tempfile::tempdir().unwrap();
        let first = take(&folder, HOUR).unwrap();
        let other = take(&folder, HOUR).unwrap_err();
        assert_eq!((other.pid, &other), (std::process::id(), &first.holder));
        first.give_back();
        assert!(fs::read_dir(folder.path()).unwrap().next().is_none());
        take(&folder, HOUR).unwrap();
    }

    #[test]
    fn one_that_is_over_is_followed_by_the_next() {
        let folder = tempfile::tempdir().unwrap();
        let killed = take(&folder, Duration::ZERO).unwrap();
        let next = take(&folder, HOUR).unwrap();
        assert_eq!(next.number, 1);
        // The slow process releases its lease; the lease of the other process remains.
        killed.give_back();
        assert!(take(&folder, HOUR).is_err());
        next.give_back();
        assert!(fs::read_dir(folder.path()).unwrap().next().is_none());
    }

    #[test]
    fn an_unwritten_lease_counts_for_seconds_whatever_its_time_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("merge.lease.7");
        fs::write(&path, "{\"host\": ").unwrap();
        assert!(take(&folder, HOUR).is_err());
        let file = fs::File::options().write(true).open(&path).unwrap();
        for modified in [SystemTime::now() - 2 * MAX_UNWRITTEN_AGE, SystemTime::now() + HOUR] {
            file.set_modified(modified).unwrap();
            let lease = take(&folder, HOUR).unwrap();
            assert_eq!(lease.number, 8);
            lease.folder.remove("merge.lease.8").unwrap();
        }
    }

    #[test]
    fn what_is_no_file_is_no_lease() {
        let folder = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("nowhere", folder.path().join("merge.lease.0")).unwrap();
        fs::create_dir(folder.path().join("merge.lease.1")).unwrap();
        assert_eq!(take(&folder, HOUR).unwrap().number, 2);
        fs::create_dir(folder.path().join("merge.lease.4294967295")).unwrap();
        assert!(take(&folder, HOUR).is_err(), "the lease of this process counts");
        assert!(!folder.path().join("nowhere").exists());
    }

    #[test]
    fn of_many_at_once_one_gets_it() {
        let folder = tempfile::tempdir().unwrap();
        take(&folder, Duration::ZERO).unwrap();
        let taken = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..16).map(|_| scope.spawn(|| take(&folder, HOUR).is_ok())).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).filter(|taken| *taken).count()
        });
        assert_eq!(taken, 1);
    }
}
