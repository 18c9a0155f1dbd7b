//! Finds `librpd_intercept.so` and preloads it into the command.

use std::ffi::{OsStr, OsString};
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};
use twox_hash::XxHash3_64;

/// File name of the library.
pub(crate) const LIBRARY: &str = "librpd_intercept.so";
/// Number of names to try for a link to the library.
const MAX_LINK_NAMES: u32 = 8;

/// The library cannot be preloaded.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PreloadError {
    /// `RPD_INTERCEPT` does not name a file.
    #[error("failed to find the library {0} that RPD_INTERCEPT names; unset it or correct it")]
    Named(PathBuf),
    /// The library is in none of the usual places.
    #[error(
        "failed to find {LIBRARY} beside rpd-collect, in ../lib or ../lib64 ({0}); install it there \
         or set RPD_INTERCEPT to its path"
    )]
    NotInstalled(PathBuf),
    /// The loader splits LD_PRELOAD at spaces and colons, and no link to the library can be created.
    #[error(
        "failed to preload {path}: LD_PRELOAD takes no path with a space or a colon, and no link to it can be made \
         in {folder}: {source}; move the library"
    )]
    Unspeakable {
        /// The library.
        path: PathBuf,
        /// Folder for temporary files.
        folder: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
}

/// Returns the library that belongs to the executable of this process.
pub(crate) fn library_of_this_process() -> Result<PathBuf, PreloadError> {
    let executable = std::env::current_exe().unwrap_or_default();
    find_library(std::env::var_os("RPD_INTERCEPT").as_deref(), &executable)
}

/// Finds the library: `RPD_INTERCEPT` if it is not empty, otherwise beside the executable, in `../lib` or in
/// `../lib64`.
pub(crate) fn find_library(named: Option<&OsStr>, executable: &Path) -> Result<PathBuf, PreloadError> {
    let path = match named.filter(|named| !named.is_empty()) {
        Some(named) => {
            let path = std::path::absolute(named).unwrap_or_else(|_| named.into());
            if !path.is_file() {
                return Err(PreloadError::Named(path));
            }
            path
        }
        None => {
            let folder = executable.parent().unwrap_or(Path::new("/"));
            let places = [folder.to_owned(), folder.join("../lib"), folder.join("../lib64")];
            let found = places.iter().map(|place| place.join(LIBRARY)).find(|path| path.is_file());
            found.ok_or_else(|| PreloadError::NotInstalled(folder.to_owned()))?
        }
    };
    if !is_split(&path) {
        return Ok(path);
    }
    let own = std::path::absolute(std::env::temp_dir()).ok().filter(|folder| !is_split(folder));
    let mut failed = None;
    for folder in own.into_iter().chain(["/tmp", "/dev/shm"].map(PathBuf::from)) {
        match link_to(&path, &folder) {
            Ok(link) => return Ok(link),
            Err(source) => failed = failed.or(Some((folder, source))),
        }
    }
    let (folder, source) = failed.unwrap_or_else(|| ("/tmp".into(), io::ErrorKind::NotFound.into()));
    Err(PreloadError::Unspeakable { path, folder, source })
}

/// Whether the loader would split the path.
fn is_split(path: &Path) -> bool {
    path.as_os_str().as_bytes().iter().any(|byte| b" :".contains(byte))
}

/// Creates a link to a library in a folder for temporary files, below a folder that only this user can write
/// to. The link stays: processes of the job may outlive the collector, and all ranks and jobs on the node
/// share it.
fn link_to(library: &Path, folder: &Path) -> io::Result<PathBuf> {
    let library = library.canonicalize()?;
    let user = rustix::process::geteuid().as_raw();
    let name = format!("rpd-lib-{user}-{:016x}", XxHash3_64::oneshot(library.as_os_str().as_bytes()));
    let mut last = io::Error::from(io::ErrorKind::AlreadyExists);
    for attempt in 0..MAX_LINK_NAMES {
        let own = folder.join(if attempt == 0 { name.clone() } else { format!("{name}.{attempt}") });
        match link_in(&library, &own, user) {
            Ok(link) => return Ok(link),
            // Another user has this name.
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn link_in(library: &Path, own: &Path, user: u32) -> io::Result<PathBuf> {
    let exists = |error: &io::Error| error.kind() == io::ErrorKind::AlreadyExists;
    DirBuilder::new()
        .mode(0o700)
        .create(own)
        .or_else(|error| if exists(&error) { Ok(()) } else { Err(error) })?;
    let found = fs::symlink_metadata(own)?;
    if !found.is_dir() || found.uid() != user || found.mode() & 0o022 != 0 {
        return Err(io::Error::other(format!("{} is somebody else's", own.display())));
    }
    let link = own.join(LIBRARY);
    match symlink(library, &link) {
        Ok(()) => Ok(link),
        Err(error) if exists(&error) && fs::read_link(&link)? == library => Ok(link),
        Err(error) => Err(error),
    }
}

/// Inserts the library into `LD_PRELOAD`, before the entries that are there: a tool like Darshan calls the
/// PMPI forms of MPI functions and would bypass a library after it. Runtimes of sanitizers must stay first.
pub(crate) fn with_library(before: Option<&OsStr>, library: &Path) -> OsString {
    let before = before.map(OsStr::as_bytes).unwrap_or_default();
    let mut sanitizers_end = 0;
    let mut end = 0;
    for entry in before.split_inclusive(|byte| b" :".contains(byte)) {
        end += entry.len();
        if is_sanitizer(entry) {
            sanitizers_end = end;
        }
    }
    let (first, rest) = before.split_at(sanitizers_end);
    let mut value = first.to_owned();
    if first.last().is_some_and(|byte| !b" :".contains(byte)) {
        value.push(b':');
    }
    value.extend(library.as_os_str().as_bytes());
    if !rest.is_empty() {
        value.push(b':');
        value.extend(rest);
    }
    OsString::from_vec(value)
}

fn is_sanitizer(entry: &[u8]) -> bool {
    let name = entry.rsplit(|byte| *byte == b'/').next().unwrap_or(entry);
    ["asan", "tsan", "lsan", "msan", "ubsan"]
        .iter()
        .any(|word| name.starts_with(b"lib") && name.windows(word.len()).any(|part| part == word.as_bytes()))
}

/// Returns `ASAN_OPTIONS` with which a program that is linked with AddressSanitizer starts although a library
/// is preloaded before its runtime. A later option of the user takes precedence.
pub(crate) fn address_sanitizer_options(before: Option<&OsStr>) -> OsString {
    let mut value = OsString::from("verify_asan_link_order=0");
    if let Some(before) = before.filter(|before| !before.is_empty()) {
        value.push(":");
        value.push(before);
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_sanitizers_stay_first() {
        let with = |before: Option<&str>| with_library(before.map(OsStr::new), Path::new("/x/lib.so"));
        assert_eq!(with(None), "/x/lib.so");
        assert_eq!(with(Some("")), "/x/lib.so");
        assert_eq!(with(Some("/a.so /b.so")), "/x/lib.so:/a.so /b.so");
        assert_eq!(with(Some("/l/libasan.so.8")), "/l/libasan.so.8:/x/lib.so");
        assert_eq!(
            with(Some("/l/libclang_rt.asan-x86_64.so:/b.so")),
            "/l/libclang_rt.asan-x86_64.so:/x/lib.so:/b.so"
        );
        assert_eq!(
            with(Some("/asan/lib.so libtsan.so.2 /b.so")),
            "/asan/lib.so libtsan.so.2 /x/lib.so:/b.so"
        );
        assert_eq!(address_sanitizer_options(None), "verify_asan_link_order=0");
        assert_eq!(address_sanitizer_options(Some(OsStr::new("a=1"))), "verify_asan_link_order=0:a=1");
    }

    #[test]
    fn a_path_with_a_space_gets_a_private_link() {
        let folder = tempfile::tempdir().unwrap();
        let library = folder.path().join("a prefix").join(LIBRARY);
        std::fs::create_dir(library.parent().unwrap()).unwrap();
        std::fs::write(&library, "it").unwrap();
        let links = tempfile::tempdir().unwrap();
        let link = link_to(&library, links.path()).unwrap();
        assert!(!is_split(&link) && std::fs::read(&link).unwrap() == b"it", "{}", link.display());
        assert_eq!(link_to(&library, links.path()).unwrap(), link, "one for all");
        // A folder that others may write to is not used.
        let own = link.parent().unwrap();
        std::fs::set_permissions(own, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
        let next = link_to(&library, links.path()).unwrap();
        assert!(next != link && next.starts_with(links.path()));
        std::fs::remove_dir_all(next.parent().unwrap()).unwrap();
        symlink("/", next.parent().unwrap()).unwrap();
        assert!(!link_to(&library, links.path()).unwrap().starts_with(next.parent().unwrap()));
    }

    #[test]
    fn a_missing_library_is_reported_with_the_next_step() {
        let folder = tempfile::tempdir().unwrap();
        let executable = folder.path().join("rpd-collect");
        let error = find_library(None, &executable).unwrap_err().to_string();
        assert!(error.contains("RPD_INTERCEPT"), "{error}");
        std::fs::write(folder.path().join(LIBRARY), "").unwrap();
        assert_eq!(find_library(None, &executable).unwrap(), folder.path().join(LIBRARY));
        assert!(find_library(Some(OsStr::new("")), &executable).is_ok(), "an empty variable is none");
        assert!(find_library(Some(OsStr::new("/nowhere/lib.so")), &executable).is_err());
    }
}
