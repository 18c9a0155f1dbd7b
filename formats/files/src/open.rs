//! Opens files by their paths, from the anchor that they lie below.

use crate::anchor::{AnchorUse, anchored};
use crate::error::FileRefused;
use crate::folder::{EntryStat, FOLDER, FileAccess, HeldFolder, READING, check_own};
use crate::named::{MAX_LINKS, NamedLinks, open_named_folder_from};
use crate::owner::is_trusted;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Stat, fstat, openat, readlinkat, statat};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Opens a regular file for reading.
///
/// Below an [`crate::anchor`], links of other users are not followed wherever they are; in any other path, the last
/// component is not followed if it is such a link.
///
/// # Errors
/// [`FileRefused`] inside of the error states why a file is refused though the file system would open it.
pub fn open_input(path: &Path) -> io::Result<File> {
    let (opened, folder) = open_regular(path, READING, AnchorUse::Inputs)?;
    let found = fstat(&opened)?;
    check_regular(&found)?;
    if folder.is_some_and(|folder| is_planted(&found, folder)) {
        return Err(FileRefused::HardLink { owner: found.st_uid }.into());
    }
    Ok(opened.into())
}

/// Opens a regular file of the user of this process for writing. The file exists, no component of its path below an
/// anchor is a link of another user, and it has one name.
pub fn open_output(path: &Path, access: FileAccess) -> io::Result<File> {
    let (opened, _) = open_regular(path, access.flags(), AnchorUse::Outputs)?;
    let found = fstat(&opened)?;
    check_regular(&found)?;
    check_own(&found)?;
    Ok(opened.into())
}

/// Opens a folder to list it, following the links that [`open_input`] follows.
pub fn open_input_folder(path: &Path) -> io::Result<HeldFolder> {
    match anchored(path, AnchorUse::Inputs)? {
        Some((folder, rest)) => open_folder_below(&folder, &rest, path),
        None => HeldFolder::open_to_read(path),
    }
}

/// What the file system states of a file: of what a link leads to, if [`open_input`] follows it.
///
/// # Errors
/// A link that is not followed, or an error of the operating system.
pub fn entry_stat(path: &Path) -> io::Result<EntryStat> {
    let (opened, _) = open_path(path, OFlags::PATH | OFlags::CLOEXEC, AnchorUse::Inputs)?;
    Ok(EntryStat::of(&fstat(&opened)?))
}

/// Opens a path as [`open_path`] does. An error states whether it is not a regular file: the file system may
/// forbid to open a FIFO, or call it no device.
fn open_regular(path: &Path, flags: OFlags, used_for: AnchorUse) -> io::Result<(OwnedFd, Option<u32>)> {
    open_path(path, flags, used_for).map_err(|error| {
        if error.kind() == io::ErrorKind::NotFound || FileRefused::in_error(&error).is_some() {
            return error;
        }
        let found = open_path(path, OFlags::PATH | OFlags::CLOEXEC, used_for);
        let found = found.and_then(|(opened, _)| check_regular(&fstat(&opened)?));
        found.err().filter(|found| FileRefused::in_error(found).is_some()).unwrap_or(error)
    })
}

/// Opens a path, and returns the owner of the anchor that it lies below.
fn open_path(path: &Path, flags: OFlags, used_for: AnchorUse) -> io::Result<(OwnedFd, Option<u32>)> {
    match anchored(path, used_for)? {
        Some((folder, rest)) => Ok((open_below(&folder, &rest, flags)?, Some(folder.owner()))),
        None => open_named(path, flags),
    }
}

/// Opens what lies below a folder.
fn open_below(folder: &HeldFolder, rest: &Path, flags: OFlags) -> io::Result<OwnedFd> {
    match open_beneath(folder, rest, flags) {
        // A link of the user is followed; kernels before 5.6, and some sandboxes, do not know the call.
        Err(Errno::LOOP | Errno::XDEV | Errno::NOSYS | Errno::PERM | Errno::AGAIN) => {}
        opened => return Ok(opened?),
    }
    let mut parts: Vec<&OsStr> = rest.iter().collect();
    let Some(last) = parts.pop() else { return Err(FileRefused::NotAName.into()) };
    let mut above: Option<OwnedFd> = None;
    for part in parts {
        let from = above.as_ref().map_or(folder.as_fd(), AsFd::as_fd);
        above = Some(open_entry(from, part, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC)?);
    }
    open_entry(above.as_ref().map_or(folder.as_fd(), AsFd::as_fd), last, flags)
}

/// Opens a folder that lies below another one. `path` is what messages call it.
pub(crate) fn open_folder_below(folder: &HeldFolder, rest: &Path, path: &Path) -> io::Result<HeldFolder> {
    HeldFolder::of(open_below(folder, rest, FOLDER)?, path.to_owned())
}

/// Opens a path that the user named: links above its last component are followed.
fn open_named(path: &Path, flags: OFlags) -> io::Result<(OwnedFd, Option<u32>)> {
    let Some(name) = path.file_name() else { return Ok((openat(CWD, path, flags, Mode::empty())?, None)) };
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let folder = HeldFolder::open(parent)?;
    Ok((open_entry(folder.as_fd(), name, flags)?, Some(folder.owner())))
}

/// Opens an entry of a folder. A link is followed if the user of this process or root made it: it is their word.
fn open_entry(folder: BorrowedFd<'_>, name: &OsStr, flags: OFlags) -> io::Result<OwnedFd> {
    open_entry_after(folder, name, flags, 0)
}

fn open_entry_after(
    folder: BorrowedFd<'_>,
    name: &OsStr,
    flags: OFlags,
    links: usize,
) -> io::Result<OwnedFd> {
    let found = statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)?;
    if FileType::from_raw_mode(found.st_mode) != FileType::Symlink {
        return open_at(folder, name, flags | OFlags::NOFOLLOW).map_err(|error| match error {
            Errno::LOOP => FileRefused::Exchanged.into(),
            error => error.into(),
        });
    }
    // The descriptor pins the link, so the target is read from the link whose owner was checked.
    let link = openat(folder, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
    let found = fstat(&link)?;
    if FileType::from_raw_mode(found.st_mode) != FileType::Symlink {
        return Err(FileRefused::Exchanged.into());
    }
    if !is_trusted(found.st_uid) {
        return Err(FileRefused::Link { owner: found.st_uid }.into());
    }
    let target = readlinkat(&link, "", Vec::new())?;
    let target = Path::new(OsStr::from_bytes(target.to_bytes()));
    // The target can be a link of another user.
    let Some(name) = target.file_name().filter(|_| links < MAX_LINKS) else {
        return Err(Errno::LOOP.into());
    };
    let parent = target.parent().unwrap_or(Path::new(""));
    let folder = open_named_folder_from(folder, parent, NamedLinks::All)?;
    open_entry_after(folder.as_fd(), name, flags, links + 1)
}

// Files are opened by the C library, where rustix would call the kernel itself: libraries that watch or fail the
// opening of files, preloaded by a site or by a test, see it.

fn open_at(folder: BorrowedFd<'_>, name: &OsStr, flags: OFlags) -> Result<OwnedFd, Errno> {
    let flags = nix::fcntl::OFlag::from_bits_retain(flags.bits() as i32);
    nix::fcntl::openat(folder, name, flags, nix::sys::stat::Mode::empty()).map_err(of_nix)
}

/// Opens what lies below a folder and is reached through no link; kernels before 5.6 do not know the call.
fn open_beneath(folder: &HeldFolder, rest: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
    use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat2};
    let resolve =
        ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_SYMLINKS | ResolveFlag::RESOLVE_NO_MAGICLINKS;
    let how = OpenHow::new().flags(OFlag::from_bits_retain(flags.bits() as i32)).resolve(resolve);
    openat2(folder, rest, how).map_err(of_nix)
}

fn of_nix(error: nix::errno::Errno) -> Errno {
    Errno::from_raw_os_error(error as i32)
}

fn check_regular(found: &Stat) -> io::Result<()> {
    match FileType::from_raw_mode(found.st_mode) {
        FileType::RegularFile => Ok(()),
        _ => Err(FileRefused::NotRegular.into()),
    }
}

/// Whether a file in a folder of another user may be a second name of a file which that user cannot read.
fn is_planted(found: &Stat, folder_owner: u32) -> bool {
    !is_trusted(folder_owner) && found.st_uid != folder_owner && found.st_nlink > 1
}
