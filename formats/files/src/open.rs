//! Opens files by their paths, starting at the nearest anchor.

use crate::anchor::{AnchorUse, anchored};
use crate::error::FileRefused;
use crate::folder::{EntryStat, FileAccess, HeldFolder, READING, check_own};
use crate::named::{FOLDER, MAX_LINKS, NamedLinks, open_named_folder_from};
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
/// Below an [`crate::anchor`], links of other users are not followed anywhere. In any other path, they are not
/// followed as the last component.
///
/// # Errors
/// [`FileRefused`] inside the error states why a file is refused that the file system would open.
pub fn open_input(path: &Path) -> io::Result<File> {
    let (opened, folder) = open_regular(path, READING, AnchorUse::Inputs)?;
    let found = fstat(&opened)?;
    check_regular(&found)?;
    if folder.is_some_and(|folder| is_planted(&found, folder)) {
        return Err(FileRefused::HardLink { owner: found.st_uid }.into());
    }
    Ok(opened.into())
}

/// Opens an existing regular file for writing. It must belong to the user of this process and have no other name.
/// Below an anchor, no component of its path may be a link of another user.
pub fn open_output(path: &Path, access: FileAccess) -> io::Result<File> {
    let (opened, _) = open_regular(path, access.flags(), AnchorUse::Outputs)?;
    let found = fstat(&opened)?;
    check_regular(&found)?;
    check_own(&found)?;
    Ok(opened.into())
}

/// Opens a folder to list it. Follows the same links as [`open_input`].
pub fn open_input_folder(path: &Path) -> io::Result<HeldFolder> {
    match anchored(path, AnchorUse::Inputs)? {
        Some((folder, rest)) => open_folder_below(&folder, &rest, path),
        None => HeldFolder::open_to_read(path),
    }
}

/// Returns the metadata of a file. If [`open_input`] follows a link, the metadata of its target.
///
/// # Errors
/// A link that is not followed, or an error of the operating system.
pub fn entry_stat(path: &Path) -> io::Result<EntryStat> {
    let (opened, _) = open_path(path, OFlags::PATH | OFlags::CLOEXEC, AnchorUse::Inputs)?;
    Ok(EntryStat::of(&fstat(&opened)?))
}

/// Opens a path as [`open_path`] does. The error states if the path is not a regular file; the file system may
/// report a FIFO as a missing permission or device.
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

/// Opens a path. Also returns the owner of its anchor, or of its parent folder if there is no anchor.
fn open_path(path: &Path, flags: OFlags, used_for: AnchorUse) -> io::Result<(OwnedFd, Option<u32>)> {
    match anchored(path, used_for)? {
        Some((folder, rest)) => Ok((open_below(&folder, &rest, flags)?, Some(folder.owner()))),
        None => open_named(path, flags),
    }
}

/// Opens a path below a folder.
fn open_below(folder: &HeldFolder, rest: &Path, flags: OFlags) -> io::Result<OwnedFd> {
    match open_beneath(folder, rest, flags) {
        // openat2 rejects all links, also those of the user, which are followed below. Kernels before 5.6 and some
        // sandboxes lack the call.
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

/// Opens a folder below another one. Messages use `path` as its path.
pub(crate) fn open_folder_below(folder: &HeldFolder, rest: &Path, path: &Path) -> io::Result<HeldFolder> {
    HeldFolder::of(open_below(folder, rest, FOLDER)?, path.to_owned())
}

/// Opens a path that the user named. Links above its last component are followed.
fn open_named(path: &Path, flags: OFlags) -> io::Result<(OwnedFd, Option<u32>)> {
    let Some(name) = path.file_name() else { return Ok((openat(CWD, path, flags, Mode::empty())?, None)) };
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let folder = HeldFolder::open(parent)?;
    Ok((open_entry(folder.as_fd(), name, flags)?, Some(folder.owner())))
}

/// Opens an entry of a folder. A link is followed if the user of this process or root created it, since both are
/// trusted.
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
    // The descriptor pins the link. Target and owner therefore belong to the same link.
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
    // The target may itself be a link of another user.
    let Some(name) = target.file_name().filter(|_| links < MAX_LINKS) else {
        return Err(Errno::LOOP.into());
    };
    let parent = target.parent().unwrap_or(Path::new(""));
    let folder = open_named_folder_from(folder, parent, NamedLinks::All)?;
    open_entry_after(folder.as_fd(), name, flags, links + 1)
}

// Files are opened through the C library, whereas rustix would call the kernel directly. Libraries that a site or a
// test preloads to observe or fail the opening of files depend on this.

fn open_at(folder: BorrowedFd<'_>, name: &OsStr, flags: OFlags) -> Result<OwnedFd, Errno> {
    let flags = nix::fcntl::OFlag::from_bits_retain(flags.bits() as i32);
    nix::fcntl::openat(folder, name, flags, nix::sys::stat::Mode::empty()).map_err(of_nix)
}

/// Opens a path below a folder if it contains no link. Kernels before 5.6 lack the call.
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

/// Returns whether a file in another user's folder may be a second name of a file that this other user cannot read.
fn is_planted(found: &Stat, folder_owner: u32) -> bool {
    !is_trusted(folder_owner) && found.st_uid != folder_owner && found.st_nlink > 1
}
