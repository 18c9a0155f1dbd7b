//! Folders that a user names: every link on the way is examined before it is followed.

use crate::error::FileRefused;
use crate::folder::FOLDER;
use crate::owner::{effective_uid, is_trusted};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, fstat, openat, readlinkat, statat};
use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};

/// Maximum number of links on the way, as in the kernel.
pub(crate) const MAX_LINKS: usize = 40;
/// Which links of other users are followed in a path that a user named.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NamedLinks {
    /// Those above the last component, as the folders of a project may be links of its administrator.
    AboveLast,
    /// All.
    All,
}

/// Opens a folder by the path that a user named. Links of this user and of root are followed; those of other users as
/// `links` states, and by root never.
pub(crate) fn open_named_folder(path: &Path, links: NamedLinks) -> io::Result<OwnedFd> {
    open_named_folder_from(CWD, path, links)
}

/// The same by a path that begins in another folder than the current one.
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

/// The components of a path, `/` among them.
fn parts(path: &Path) -> VecDeque<OsString> {
    let part = |part: Component<'_>| part.as_os_str().to_owned();
    path.components().map(part).collect()
}

/// Target and owner of a link; `None` if the entry is not a link.
fn link_target(folder: BorrowedFd<'_>, name: &OsStr) -> io::Result<Option<(OsString, u32)>> {
    let is_link = |mode| FileType::from_raw_mode(mode) == FileType::Symlink;
    if !is_link(statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)?.st_mode) {
        return Ok(None);
    }
    // The descriptor pins the link, so the target is read from the link whose owner was checked.
    let link = openat(folder, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
    let found = fstat(&link)?;
    if !is_link(found.st_mode) {
        return Err(FileRefused::Exchanged.into());
    }
    let target = readlinkat(&link, "", Vec::new())?;
    Ok(Some((OsStr::from_bytes(target.to_bytes()).to_owned(), found.st_uid)))
}
