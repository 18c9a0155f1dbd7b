//! Where `librpd_intercept.so` is, and how the command gets it.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
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

/// `LD_PRELOAD` with the library in front of what is there: a tool like Darshan passes calls of MPI on to
/// their PMPI forms, past whatever stands behind it. Runtimes of sanitizers have to come first.
pub fn with_library(before: Option<&OsStr>, library: &Path) -> OsString {
    let before = before.map(OsStr::as_bytes).unwrap_or_default();
    let mut front = 0;
    let mut end = 0;
    for entry in before.split_inclusive(|byte| b" :".contains(byte)) {
        end += entry.len();
        if is_sanitizer(entry) {
            front = end;
        }
    }
    let (first, rest) = before.split_at(front);
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

/// `ASAN_OPTIONS` with which a program that is linked with AddressSanitizer starts although a library is
/// preloaded in front of its runtime. What the user says about that, further behind, counts.
pub fn address_sanitizer_options(before: Option<&OsStr>) -> OsString {
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
    fn only_sanitizers_stay_in_front() {
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
