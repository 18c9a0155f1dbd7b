//! Files that this process creates. They are created, renamed and removed relative to their folder.

use crate::anchor::{AnchorUse, anchor, anchored};
use crate::error::FileRefused;
use crate::folder::{FileAccess, HeldFolder};
use crate::open::{open_folder_below, open_output};
use rustix::fs::{AtFlags, Mode, fchmod, linkat, renameat};
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// Returns the folder of an output, and the name of the output in it.
///
/// The folder is held open from the first call on, see [`anchor`].
pub fn output_place(path: &Path) -> io::Result<(Arc<HeldFolder>, OsString)> {
    let name = path.file_name().ok_or(FileRefused::NotAName)?.to_owned();
    let parent = path.parent().unwrap_or(Path::new(""));
    let folder = match anchored(parent, AnchorUse::Outputs)? {
        Some((above, rest)) => Arc::new(open_folder_below(&above, &rest, parent)?),
        None => anchor(parent, AnchorUse::Outputs)?,
    };
    Ok((folder, name))
}

/// Creates a file for reading and writing. An existing entry with this name is an error.
pub fn create_output(path: &Path, mode: u32) -> io::Result<File> {
    let (folder, name) = output_place(path)?;
    folder.create(name, mode)
}

/// Creates a file of this user for writing, or opens it if it exists. Another process may create it at the same time.
pub fn open_or_create_output(path: &Path, mode: u32) -> io::Result<File> {
    match create_output(path, mode) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => open_output(path, FileAccess::Write),
        created => created,
    }
}

/// Removes a file; removes a link itself, not its target.
pub fn remove_output(path: &Path) -> io::Result<()> {
    let (folder, name) = output_place(path)?;
    folder.remove(name)
}

/// Creates a folder. An existing entry with this name is an error.
pub fn create_output_folder(path: &Path, mode: u32) -> io::Result<()> {
    // `.` and `..` always exist, and are not names of entries.
    if path.file_name().is_none() {
        return Err(io::ErrorKind::AlreadyExists.into());
    }
    let (folder, name) = output_place(path)?;
    folder.create_folder(name, mode)
}

/// Removes a folder with its content, without following links.
pub fn remove_output_folder(path: &Path) -> io::Result<()> {
    let (folder, name) = output_place(path)?;
    folder.remove_tree(name)
}

/// Renames a file. Replaces an existing file with the new name.
pub fn rename_output(from: &Path, to: &Path) -> io::Result<()> {
    let ((from, from_name), (to, to_name)) = (output_place(from)?, output_place(to)?);
    Ok(renameat(&*from, from_name, &*to, to_name)?)
}

/// Renames a file. An existing entry with the new name is an error of kind `AlreadyExists`.
pub fn rename_output_to_new(from: &Path, to: &Path) -> io::Result<()> {
    let ((old, old_name), (new, new_name)) = (output_place(from)?, output_place(to)?);
    match linkat(&*old, &old_name, &*new, &new_name, AtFlags::empty()) {
        Ok(()) => old.remove(old_name),
        Err(rustix::io::Errno::EXIST) => Err(io::ErrorKind::AlreadyExists.into()),
        // The file system does not support hard links.
        Err(_) if new.stat(&new_name).is_ok() => Err(io::ErrorKind::AlreadyExists.into()),
        Err(_) => Ok(renameat(&*old, old_name, &*new, new_name)?),
    }
}

/// Sets the permissions of a file of this user, regardless of the umask.
pub fn set_output_mode(path: &Path, mode: u32) -> io::Result<()> {
    Ok(fchmod(open_output(path, FileAccess::Write)?, Mode::from_raw_mode(mode))?)
}
