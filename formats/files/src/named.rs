//! Opens folders that a user named. Every link in the path is checked before it is followed.

use crate::error::FileRefused;
use crate::owner::{effective_uid, is_trusted};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, fstat, openat, readlinkat, statat};
use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};

/// Flags to hold a folder. Its entries can be reached even if the user may not list it.
pub(crate) const FOLDER: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
/// Maximum number of links in a path, as in the kernel.
pub(crate) const MAX_LINKS: usize = 40;
/// Links of other users that are followed in a path that a user named.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NamedLinks {
    /// Links above the last component. The folders of a project may be links of its administrator.
    AboveLast,
    /// All links.
    All,
}

/// Opens a folder by the path that a user named. Links of this user and of root are followed. Links of other users
/// are followed as `links` states, but never by root.
pub(crate) fn open_named_folder(path: &Path, links: NamedLinks) -> io::Result<OwnedFd> {
    open_named_folder_from(CWD, path, links)
}

/// Opens a folder in the same way, by a path relative to `start`.
pub(crate) fn open_named_folder_from(
    start: BorrowedFd<'_>,
    path: &Path,
    links: NamedLinks,
) -> io::Result<OwnedFd> {
    let mut left: VecDeque<OsString> = parts(path);
    let mut at: Option<OwnedFd> = None;
    let mut followed = 0;
    while let Some(part) = left.pop_front() {
        let from = at.as_ref().map_or(start, AsFd::as_fd);
        let Some((target, owner)) = link_target(from, &part)? else {
            at = Some(openat(from, &part, FOLDER | OFlags::NOFOLLOW, Mode::empty())?);
            continue;
        };
        let is_followed =
            is_trusted(owner) || effective_uid() != 0 && (links == NamedLinks::All || !left.is_empty());
        followed += 1;
        if !is_followed {
            return Err(FileRefused::Link { owner }.into());
        }
        if followed > MAX_LINKS {
            return Err(rustix::io::Errno::LOOP.into());
        }
        for part in parts(Path::new(&target)).into_iter().rev() {
            left.push_front(part);
        }
    }
    match at {
        Some(folder) => Ok(folder),
        None => Ok(openat(start, ".", FOLDER, Mode::empty())?),
    }
}

/// Returns the components of a path, including a leading `/`.
fn parts(path: &Path) -> VecDeque<OsString> {
    let part = |part: Component<'_>| part.as_os_str().to_owned();
    path.components().map(part).collect()
}

/// Returns target and owner of a link, or `None` if the entry is not a link.
fn link_target(folder: BorrowedFd<'_>, name: &OsStr) -> io::Result<Option<(OsString, u32)>> {
    let is_link = |mode| FileType::from_raw_mode(mode) == FileType::Symlink;
    if !is_link(statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)?.st_mode) {
        return Ok(None);
    }
    // The descriptor pins the link. Target and owner therefore belong to the same link.
    let link = openat(folder, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
    let found = fstat(&link)?;
    if !is_link(found.st_mode) {
        return Err(FileRefused::Exchanged.into());
    }
    let target = readlinkat(&link, "", Vec::new())?;
    Ok(Some((OsStr::from_bytes(target.to_bytes()).to_owned(), found.st_uid)))
}
