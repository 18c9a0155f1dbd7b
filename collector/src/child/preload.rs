//! Where `librpd_intercept.so` is, and how the command gets it.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

/// File name of the library.
pub const LIBRARY: &str = "librpd_intercept.so";

/// The library is not where it should be.
#[derive(Debug, thiserror::Error)]
pub enum PreloadError {
    /// `RPD_INTERCEPT` names something that is no file.
    #[error("failed to find the library {0} that RPD_INTERCEPT names: unset it or correct it")]
    Named(PathBuf),
    /// Nowhere beside the executable.
    #[error(
        "failed to find {LIBRARY} beside rpd-collect, in ../lib or ../lib64 ({0}): install it there \
         or set RPD_INTERCEPT to its path"
    )]
    NotInstalled(PathBuf),
    /// The loader splits LD_PRELOAD at spaces and colons.
    #[error("failed to preload {0}: LD_PRELOAD takes no path with a space or a colon; move the library")]
    Unspeakable(PathBuf),
}

/// The library's path: `RPD_INTERCEPT` if it is set to something, or beside the executable, or in `../lib`, `../lib64`.
pub fn find_library(named: Option<&OsStr>, executable: &Path) -> Result<PathBuf, PreloadError> {
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
    if path.to_string_lossy().contains([' ', ':']) {
        return Err(PreloadError::Unspeakable(path));
    }
    Ok(path)
}

/// `LD_PRELOAD` with the library behind what is there: AddressSanitizer refuses to start unless it
/// comes first, and allocators and Darshan do not mind who follows.
pub fn with_library(before: Option<&OsStr>, library: &Path) -> OsString {
    let mut value = before.map(OsStr::to_owned).unwrap_or_default();
    if !value.is_empty() {
        value.push(":");
    }
    value.push(library);
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_preloaded_stays_in_front() {
        let with = |before: Option<&str>| with_library(before.map(OsStr::new), Path::new("/x/lib.so"));
        assert_eq!(with(None), "/x/lib.so");
        assert_eq!(with(Some("")), "/x/lib.so");
        assert_eq!(with(Some("/a.so /b.so")), "/a.so /b.so:/x/lib.so");
    }

    #[test]
    fn a_missing_library_is_said_with_the_next_step() {
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
