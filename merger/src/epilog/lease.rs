//! Who merges a run: a file that says until when. File systems of clusters may have no locks; they make a new file once.

use super::now;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

/// Most bytes of one.
const MAX_BYTES: u64 = 64 << 10;
/// Merges that may have been killed with a lease.
const MOST: u32 = 1000;
/// Longest lease: that of a clock which is wrong ends, too.
const LONGEST: Duration = Duration::from_secs(604_800);
/// Times that one is looked for which another process makes at the same moment.
const TRIES: u32 = 1000;

/// A lease that this process has.
#[derive(Clone, Debug)]
pub(super) struct Lease {
    stem: PathBuf,
    number: u32,
    path: PathBuf,
    holder: Holder,
}

/// What stands in the file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Holder {
    host: String,
    pid: u32,
    /// Seconds since 1970.
    until: u64,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {} on {}", self.pid, self.host)
    }
}

impl Lease {
    /// Seconds since 1970.
    pub(super) fn until(&self) -> u64 {
        self.holder.until
    }

    /// Lets others merge.
    pub(super) fn give_back(self) {
        // Who took longer than it had may find another's: that has another number, or another holder.
        if read(&self.path).as_ref() == Some(&self.holder) {
            // Those of merges that were killed are over, and ours goes last, since the greatest number counts.
            (0..self.number).for_each(|over| drop(fs::remove_file(path(&self.stem, over))));
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Takes the lease that is named `stem`, or says who has it. A number follows the stem: the file with the greatest one
/// counts; one that has expired is followed by the next number, which one process alone can make.
pub(super) fn take(stem: &Path, length: Duration) -> io::Result<Result<Lease, Holder>> {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    for _ in 0..TRIES {
        let last = last_number(stem)?;
        if let Some(number) = last
            && let Some(holder) = holder(&path(stem, number), length, &host)
        {
            return Ok(Err(holder));
        }
        let number = last.map_or(0, |number| number.saturating_add(1));
        if number > MOST {
            return Err(io::Error::other(format!(
                "{MOST} merges were killed here: remove {}.*",
                stem.display()
            )));
        }
        let holder = Holder { host: host.clone(), pid: std::process::id(), until: now() + length.as_secs() };
        let path = path(stem, number);
        match OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path) {
            Ok(mut file) => {
                let written = file.write_all(serde_json::to_string(&holder)?.as_bytes());
                // An empty one, where there is no room, would keep others away.
                written.inspect_err(|_| drop(fs::remove_file(&path)))?;
                return Ok(Ok(Lease { stem: stem.to_owned(), number, path, holder }));
            }
            // Somebody was faster, and a file system may show it late.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => sleep(Duration::from_millis(1)),
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::other(format!("others take {} again and again", stem.display())))
}

fn path(stem: &Path, number: u32) -> PathBuf {
    let mut name = stem.as_os_str().to_owned();
    name.push(format!(".{number}"));
    name.into()
}

fn last_number(stem: &Path) -> io::Result<Option<u32>> {
    let folder = stem.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let own = stem.file_name().unwrap_or_default().as_encoded_bytes();
    let mut last = None;
    for entry in fs::read_dir(folder)? {
        let name = entry?.file_name();
        let number = name.as_encoded_bytes().strip_prefix(own).and_then(|rest| rest.strip_prefix(b"."));
        let number = number.and_then(|number| std::str::from_utf8(number).ok()?.parse().ok());
        last = last.max(number);
    }
    Ok(last)
}

/// Who has a lease; `None` if it is over, or its holder was on this node and is gone.
fn holder(path: &Path, length: Duration, host: &str) -> Option<Holder> {
    let written = fs::metadata(path).and_then(|found| found.modified()).ok()?;
    let age = written.elapsed().unwrap_or_default();
    match read(path) {
        Some(holder) => {
            let is_gone = holder.host == host && !Path::new("/proc").join(holder.pid.to_string()).exists();
            Some(holder).filter(|holder| !is_gone && holder.until > now() && age < LONGEST)
        }
        // It is just being written, or its holder was killed before: a new file is somebody's.
        None => {
            let other = Holder { host: "another node".to_owned(), pid: 0, until: 0 };
            (age < length).then_some(other)
        }
    }
}

fn read(path: &Path) -> Option<Holder> {
    let mut text = String::new();
    // A pipe would wait for a writer.
    fs::metadata(path).ok().filter(fs::Metadata::is_file)?;
    File::open(path).ok()?.take(MAX_BYTES).read_to_string(&mut text).ok()?;
    serde_json::from_str(&text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    #[test]
    fn one_has_it_until_it_gives_it_back() {
        let folder = tempfile::tempdir().unwrap();
        let first = take(&folder.path().join("merge.lease"), HOUR).unwrap().unwrap();
        let other = take(&folder.path().join("merge.lease"), HOUR).unwrap().unwrap_err();
        assert_eq!((other.pid, &other), (std::process::id(), &first.holder));
        first.give_back();
        assert!(fs::read_dir(folder.path()).unwrap().next().is_none());
        take(&folder.path().join("merge.lease"), HOUR).unwrap().unwrap();
    }

    #[test]
    fn one_that_is_over_is_followed_by_the_next() {
        let folder = tempfile::tempdir().unwrap();
        let killed = take(&folder.path().join("merge.lease"), Duration::ZERO).unwrap().unwrap();
        let next = take(&folder.path().join("merge.lease"), HOUR).unwrap().unwrap();
        assert!(next.path.ends_with("merge.lease.1"));
        // The slow one comes back: the other's stays.
        killed.give_back();
        assert!(take(&folder.path().join("merge.lease"), HOUR).unwrap().is_err());
        next.give_back();
        assert!(fs::read_dir(folder.path()).unwrap().next().is_none());
        // A torn file is somebody's for a time.
        fs::write(folder.path().join("merge.lease.7"), "{\"host\": ").unwrap();
        assert!(take(&folder.path().join("merge.lease"), HOUR).unwrap().is_err());
        assert!(
            take(&folder.path().join("merge.lease"), Duration::ZERO)
                .unwrap()
                .unwrap()
                .path
                .ends_with("merge.lease.8")
        );
    }

    #[test]
    fn of_many_at_once_one_gets_it() {
        let folder = tempfile::tempdir().unwrap();
        take(&folder.path().join("merge.lease"), Duration::ZERO).unwrap().unwrap();
        let taken = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..16)
                .map(|_| scope.spawn(|| take(&folder.path().join("merge.lease"), HOUR).unwrap().is_ok()))
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).filter(|taken| *taken).count()
        });
        assert_eq!(taken, 1);
    }
}
