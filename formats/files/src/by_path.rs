//! Safe use of libraries that open files by path, such as SQLite.

use crate::anchor::AnchorUse;
use crate::error::FileRefused;
use crate::folder::{FileAccess, is_safe};
use crate::open::{open_input, open_output};
use rustix::fs::{Stat, fstat, readlink, stat};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// Folder of the open descriptors of this process.
const DESCRIPTORS: &str = "/proc/self/fd";

/// Lets a library open a file by path, and verifies that it opened the file that [`open_input`] opens; for an
/// output, [`open_output`].
///
/// A library resolves the path itself. If another user may rename a component of the path, the descriptors of this
/// process are compared before and after: the library must have opened the same inode. It must open the file before
/// `open` returns, and must not modify it before that. An error of `open` is returned inside `Ok`.
///
/// # Errors
/// Those of [`open_input`] or [`open_output`], and [`FileRefused::Exchanged`].
pub fn open_by_path<T, E>(
    path: &Path,
    used_for: AnchorUse,
    open: impl FnOnce(&Path) -> Result<T, E>,
) -> io::Result<Result<T, E>> {
    let file = match used_for {
        AnchorUse::Inputs => open_input(path)?,
        AnchorUse::Outputs => open_output(path, FileAccess::ReadWrite)?,
    };
    if is_path_safe(path) {
        return Ok(open(path));
    }
    if !Path::new(DESCRIPTORS).exists() {
        return Err(io::Error::other(
            "other users may rename folders on the way to it, and without /proc that cannot be noticed; mount /proc, or \
             choose another place",
        ));
    }
    // Otherwise two threads that open the same file at once could each count the other's descriptor.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let own = fstat(&file)?;
    let real = real_path(&file)?;
    let before = descriptors_of(&file)?;
    let opened = open(&real);
    let is_another = match &opened {
        Ok(_) => descriptors_of(&file)?.is_subset(&before),
        Err(_) => stat(&real).is_ok_and(|found| !is_same_file(&found, &own)),
    };
    if is_another { Err(FileRefused::Exchanged.into()) } else { Ok(opened) }
}

/// Returns whether only this user and root can rename the file or a folder above it.
fn is_path_safe(path: &Path) -> bool {
    let Ok(real) = path.canonicalize() else { return false };
    let is_direct = real == std::path::absolute(path).unwrap_or_default();
    is_direct && real.parent().is_some_and(are_safe)
}

/// Returns whether only this user and root can replace the folder, or entries that this user creates in it.
pub fn is_safe_folder(path: &Path) -> bool {
    path.canonicalize().is_ok_and(|real| are_safe(&real))
}

/// Checks a path without links: the folder and all folders above it.
fn are_safe(real: &Path) -> bool {
    real.ancestors().all(|folder| stat(folder).is_ok_and(|found| is_safe(found.st_uid, found.st_mode)))
}

/// Returns the path of an open file without links.
fn real_path(file: &File) -> io::Result<PathBuf> {
    let link = readlink(format!("{DESCRIPTORS}/{}", file.as_raw_fd()), Vec::new())?;
    Ok(PathBuf::from(OsString::from_vec(link.into_bytes())))
}

fn is_same_file(one: &Stat, other: &Stat) -> bool {
    (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino)
}

/// Returns the descriptors of this process that are open on the same file.
fn descriptors_of(file: &File) -> io::Result<BTreeSet<PathBuf>> {
    let own = fstat(file)?;
    let is_same = |path: &PathBuf| stat(path).is_ok_and(|found| is_same_file(&found, &own));
    let entries = std::fs::read_dir(DESCRIPTORS)?;
    Ok(entries.filter_map(|entry| Some(entry.ok()?.path())).filter(is_same).collect())
}
