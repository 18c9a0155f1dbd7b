//! A folder that is held open by its descriptor.

use crate::error::FileRefused;
use crate::named::{FOLDER, NamedLinks, open_named_folder};
use crate::owner::{is_own, is_trusted};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{
    AtFlags, Dir, FileType, Mode, OFlags, Stat, fstat, linkat, mkdirat, openat, renameat, statat, unlinkat,
};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Flags to list a folder or to change its permissions.
const LISTED: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
/// Flags to open a file for reading. Opening a FIFO does not wait for a writer.
pub(crate) const READING: OFlags =
    OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);

/// Maximum depth of a tree that is removed. Trees of this program have at most two levels.
const MAX_DEPTH: usize = 8;

/// A folder that is held open by its descriptor. Its entries are accessed relative to it, without following links.
///
/// Names are those of entries: one component, neither `.` nor `..`. Any other name is an error.
#[derive(Debug)]
pub struct HeldFolder {
    descriptor: OwnedFd,
    path: PathBuf,
    owner: u32,
    mode: u32,
}

/// Purpose for which a file of this user is opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FileAccess {
    /// Writing.
    Write,
    /// Writing without the page cache (`O_DIRECT`).
    WriteDirect,
    /// Reading and writing.
    ReadWrite,
    /// Appending.
    Append,
}

impl FileAccess {
    pub(crate) fn flags(self) -> OFlags {
        let access = match self {
            FileAccess::Write => OFlags::WRONLY,
            FileAccess::WriteDirect => OFlags::WRONLY | OFlags::DIRECT,
            FileAccess::ReadWrite => OFlags::RDWR,
            FileAccess::Append => OFlags::WRONLY | OFlags::APPEND,
        };
        access | OFlags::NONBLOCK | OFlags::CLOEXEC
    }
}

/// Kind of an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EntryKind {
    /// A regular file.
    File,
    /// A folder.
    Folder,
    /// A symbolic link.
    Link,
    /// A FIFO, a socket or a device.
    Other,
}

/// Metadata of an entry, without following links.
#[derive(Clone, Copy, Debug)]
pub struct EntryStat {
    /// Kind of the entry.
    pub kind: EntryKind,
    /// User id of the owner.
    pub owner: u32,
    /// Size, bytes.
    pub length: u64,
    /// Time of the last change of the content, by the clock of the file system.
    pub modified: SystemTime,
    /// Number of hard links.
    pub links: u64,
    /// Device and inode.
    pub identity: (u64, u64),
}

impl HeldFolder {
    /// Opens a folder by the path that the user named. Follows links in `path`; root follows only those of root.
    pub fn open(path: &Path) -> io::Result<HeldFolder> {
        HeldFolder::of(open_named_folder(path, NamedLinks::All)?, path.to_owned())
    }

    /// Opens a folder to read its entries. The last component of `path` must not be a link of another user.
    pub fn open_to_read(path: &Path) -> io::Result<HeldFolder> {
        HeldFolder::of(open_named_folder(path, NamedLinks::AboveLast)?, path.to_owned())
    }

    pub(crate) fn of(descriptor: OwnedFd, path: PathBuf) -> io::Result<HeldFolder> {
        let found = fstat(&descriptor)?;
        Ok(HeldFolder { descriptor, path, owner: found.st_uid, mode: found.st_mode })
    }

    /// Returns the path by which the folder was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the user id of the owner at the time of opening.
    pub fn owner(&self) -> u32 {
        self.owner
    }

    /// Returns whether the folder belongs to the user of this process.
    pub fn is_own(&self) -> bool {
        is_own(self.owner)
    }

    /// Opens a folder inside the folder.
    pub fn open_folder(&self, name: impl AsRef<OsStr>) -> io::Result<HeldFolder> {
        let name = entry_name(name.as_ref())?;
        let opened = openat(&self.descriptor, name, FOLDER | OFlags::NOFOLLOW, Mode::empty());
        HeldFolder::of(opened.map_err(|error| self.link_or(name, error))?, self.path.join(name))
    }

    /// Creates a folder inside the folder unless it exists, and opens it. Also returns whether it is new.
    pub fn make_folder(&self, name: impl AsRef<OsStr>, mode: u32) -> io::Result<(HeldFolder, bool)> {
        let entry = entry_name(name.as_ref())?;
        let is_new = match mkdirat(&self.descriptor, entry, Mode::from_raw_mode(mode)) {
            Ok(()) => true,
            Err(Errno::EXIST) => false,
            Err(error) => return Err(error.into()),
        };
        Ok((self.open_folder(entry)?, is_new))
    }

    /// Creates a folder inside the folder. An existing entry with this name is an error.
    pub fn create_folder(&self, name: impl AsRef<OsStr>, mode: u32) -> io::Result<()> {
        Ok(mkdirat(&self.descriptor, entry_name(name.as_ref())?, Mode::from_raw_mode(mode))?)
    }

    /// Opens a regular file in the folder for reading.
    pub fn open_file(&self, name: impl AsRef<OsStr>) -> io::Result<File> {
        self.open_with(name.as_ref(), READING).map(|(file, _)| file)
    }

    /// Opens a regular file in the folder for appending, and creates it if it is missing. The file must belong to
    /// the user of this process and have no other name.
    pub fn append(&self, name: impl AsRef<OsStr>, mode: u32) -> io::Result<File> {
        let name = name.as_ref();
        match self.create(name, mode) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            created => created.map(drop)?,
        }
        self.open_own(name, FileAccess::Append)
    }

    /// Opens a regular file in the folder. The file must belong to the user of this process and have no other name.
    pub fn open_own(&self, name: impl AsRef<OsStr>, access: FileAccess) -> io::Result<File> {
        let (file, found) = self.open_with(name.as_ref(), access.flags())?;
        check_own(&found)?;
        Ok(file)
    }

    fn open_with(&self, name: &OsStr, flags: OFlags) -> io::Result<(File, Stat)> {
        let name = entry_name(name)?;
        let opened = openat(&self.descriptor, name, flags | OFlags::NOFOLLOW, Mode::empty());
        let file = opened.map_err(|error| self.no_file_or(name, error))?;
        let found = fstat(&file)?;
        if !FileType::from_raw_mode(found.st_mode).is_file() {
            return Err(FileRefused::NotRegular.into());
        }
        Ok((file.into(), found))
    }

    /// Creates a file in the folder for reading and writing. An existing entry with this name is an error, even if
    /// it is a dangling link.
    pub fn create(&self, name: impl AsRef<OsStr>, mode: u32) -> io::Result<File> {
        let name = entry_name(name.as_ref())?;
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(openat(&self.descriptor, name, flags, Mode::from_raw_mode(mode))?.into())
    }

    /// Renames an entry within the folder. Replaces an existing entry with the new name.
    pub fn rename(&self, from: impl AsRef<OsStr>, to: impl AsRef<OsStr>) -> io::Result<()> {
        let (from, to) = (entry_name(from.as_ref())?, entry_name(to.as_ref())?);
        Ok(renameat(&self.descriptor, from, &self.descriptor, to)?)
    }

    /// Creates a second name for an entry within the folder. An existing entry with that name is an error.
    pub fn link(&self, from: impl AsRef<OsStr>, to: impl AsRef<OsStr>) -> io::Result<()> {
        let (from, to) = (entry_name(from.as_ref())?, entry_name(to.as_ref())?);
        Ok(linkat(&self.descriptor, from, &self.descriptor, to, AtFlags::empty())?)
    }

    /// Removes an entry that is not a folder; removes a link itself, not its target.
    pub fn remove(&self, name: impl AsRef<OsStr>) -> io::Result<()> {
        Ok(unlinkat(&self.descriptor, entry_name(name.as_ref())?, AtFlags::empty())?)
    }

    /// Removes an entry that is not a folder if it has this device and inode. Returns whether it did.
    ///
    /// No system call compares and removes in one step. A user with write access to the folder can replace the
    /// entry in between; then another entry of this folder is removed. Entries outside the folder are never
    /// removed. In a folder of this user ([`HeldFolder::is_own`]), only users to whom this user grants write access
    /// can do that.
    pub fn remove_if(&self, name: impl AsRef<OsStr>, identity: (u64, u64)) -> io::Result<bool> {
        let is_same = self.stat(name.as_ref())?.identity == identity;
        if is_same {
            self.remove(name)?;
        }
        Ok(is_same)
    }

    /// Removes an empty folder inside the folder.
    pub fn remove_folder(&self, name: impl AsRef<OsStr>) -> io::Result<()> {
        Ok(unlinkat(&self.descriptor, entry_name(name.as_ref())?, AtFlags::REMOVEDIR)?)
    }

    /// Removes a folder inside the folder with its content, without following links.
    pub fn remove_tree(&self, name: impl AsRef<OsStr>) -> io::Result<()> {
        self.remove_tree_of_depth(name.as_ref(), MAX_DEPTH)
    }

    fn remove_tree_of_depth(&self, name: &OsStr, depth: usize) -> io::Result<()> {
        let below = self.open_folder(name)?;
        for entry in below.names(usize::MAX)? {
            match below.stat(&entry)?.kind {
                EntryKind::Folder if depth == 0 => return Err(io::ErrorKind::DirectoryNotEmpty.into()),
                EntryKind::Folder => below.remove_tree_of_depth(&entry, depth - 1)?,
                _ => below.remove(&entry)?,
            }
        }
        self.remove_folder(name)
    }

    /// Returns the metadata of an entry, without following a link.
    pub fn stat(&self, name: impl AsRef<OsStr>) -> io::Result<EntryStat> {
        let found = statat(&self.descriptor, entry_name(name.as_ref())?, AtFlags::SYMLINK_NOFOLLOW)?;
        Ok(EntryStat::of(&found))
    }

    /// Returns the metadata of the folder itself.
    pub fn own_stat(&self) -> io::Result<EntryStat> {
        Ok(EntryStat::of(&fstat(&self.descriptor)?))
    }

    /// Returns the names of at most `max` entries in no particular order.
    pub fn names(&self, max: usize) -> io::Result<Vec<OsString>> {
        Ok(self.entries(max)?.into_iter().map(|(name, _)| name).collect())
    }

    /// Returns names and kinds of at most `max` entries in no particular order.
    pub fn entries(&self, max: usize) -> io::Result<Vec<(OsString, EntryKind)>> {
        let mut found = Vec::new();
        for entry in Dir::new(self.listed()?)? {
            let entry = entry?;
            let name = OsString::from_vec(entry.file_name().to_bytes().to_vec());
            if name == "." || name == ".." {
                continue;
            }
            if found.len() >= max {
                break;
            }
            // Some file systems do not list the kind.
            let kind = match entry.file_type() {
                FileType::Unknown => self.stat(&name)?.kind,
                kind => EntryKind::of(kind),
            };
            found.push((name, kind));
        }
        Ok(found)
    }

    /// Sets the permissions of the folder, regardless of the umask.
    pub fn set_mode(&self, mode: u32) -> io::Result<()> {
        Ok(rustix::fs::fchmod(self.listed()?, Mode::from_raw_mode(mode))?)
    }

    fn listed(&self) -> io::Result<OwnedFd> {
        Ok(openat(&self.descriptor, ".", LISTED, Mode::empty())?)
    }

    /// Returns the permissions of the folder at the time of opening.
    pub fn mode(&self) -> u32 {
        self.mode & 0o7777
    }

    /// Returns [`FileRefused::NotRegular`] if the entry is not a regular file, otherwise the given error. The file
    /// system may report a FIFO as a missing permission or device.
    fn no_file_or(&self, name: &OsStr, error: Errno) -> io::Error {
        match self.stat(name).map(|found| found.kind) {
            Ok(EntryKind::Folder | EntryKind::Other) => FileRefused::NotRegular.into(),
            _ => self.link_or(name, error),
        }
    }

    /// Returns [`FileRefused::AnyLink`] if the entry is a link, otherwise the given error. The file system reports
    /// a link as a loop or as not a folder.
    fn link_or(&self, name: &OsStr, error: Errno) -> io::Error {
        let is_link = || self.stat(name).is_ok_and(|found| found.kind == EntryKind::Link);
        match error {
            Errno::LOOP | Errno::NOTDIR if is_link() => FileRefused::AnyLink.into(),
            error => error.into(),
        }
    }
}

impl AsFd for HeldFolder {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

impl EntryKind {
    fn of(kind: FileType) -> EntryKind {
        match kind {
            FileType::RegularFile => EntryKind::File,
            FileType::Directory => EntryKind::Folder,
            FileType::Symlink => EntryKind::Link,
            _ => EntryKind::Other,
        }
    }
}

impl EntryStat {
    // The types of the fields depend on the processor.
    #[allow(clippy::unnecessary_cast)]
    pub(crate) fn of(found: &Stat) -> EntryStat {
        EntryStat {
            kind: EntryKind::of(FileType::from_raw_mode(found.st_mode)),
            owner: found.st_uid,
            length: u64::try_from(found.st_size).unwrap_or(0),
            modified: modified(found),
            links: found.st_nlink as u64,
            identity: (found.st_dev as u64, found.st_ino as u64),
        }
    }
}

/// Returns the time of the last change of a file's content. Times before 1970 become 1970.
fn modified(found: &Stat) -> SystemTime {
    let seconds = u64::try_from(found.st_mtime).unwrap_or(0);
    let nanoseconds = u32::try_from(found.st_mtime_nsec).unwrap_or(0).min(999_999_999);
    UNIX_EPOCH + Duration::new(seconds.min(i64::MAX as u64 / 2), nanoseconds)
}

/// Returns whether only root and the user of this process can replace this user's entries in such a folder.
pub(crate) fn is_safe(owner: u32, mode: u32) -> bool {
    let is_shared = mode & 0o022 != 0 && mode & 0o1000 == 0;
    is_trusted(owner) && !is_shared
}

/// Fails unless a file opened for writing belongs to this user and has no other name.
pub(crate) fn check_own(found: &Stat) -> io::Result<()> {
    if !is_own(found.st_uid) {
        return Err(FileRefused::OtherOwner { owner: found.st_uid }.into());
    }
    if found.st_nlink > 1 {
        return Err(FileRefused::HardLink { owner: found.st_uid }.into());
    }
    Ok(())
}

/// Returns the name if it is a valid name of an entry.
fn entry_name(name: &OsStr) -> io::Result<&OsStr> {
    let bytes = name.as_bytes();
    match bytes {
        b"" | b"." | b".." => Err(FileRefused::NotAName.into()),
        bytes if bytes.contains(&b'/') => Err(FileRefused::NotAName.into()),
        _ => Ok(name),
    }
}
