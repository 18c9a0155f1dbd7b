//! The presets, and the file that a name refers to.

use crate::file::{FileError, MAX_BYTES};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// Names of the presets with their text: the files of this folder.
pub const PRESETS: [(&str, &str); 6] = [
    ("default", include_str!("../default.toml")),
    ("pytorch-training", include_str!("../pytorch-training.toml")),
    ("inference-server", include_str!("../inference-server.toml")),
    ("hpc-mpi", include_str!("../hpc-mpi.toml")),
    ("low-overhead", include_str!("../low-overhead.toml")),
    ("full", include_str!("../full.toml")),
];

/// Returns name and text of a preset, or of a file if the name has a `/` or ends with `.toml`.
pub(crate) fn named(name: &OsStr) -> Result<(String, String), FileError> {
    let shown = name.to_string_lossy();
    if shown.contains('/') || shown.ends_with(".toml") {
        return read(Path::new(name));
    }
    let preset = PRESETS.iter().find(|(known, _)| *known == shown);
    let (name, text) = preset.ok_or_else(|| FileError::NoPreset(shown.into_owned()))?;
    Ok((format!("preset {name}"), (*text).to_owned()))
}

/// Returns name and text of a file.
pub(crate) fn read(path: &Path) -> Result<(String, String), FileError> {
    let name = path.display().to_string();
    let read = || -> io::Result<String> {
        let mut text = String::new();
        // Checked before the file is opened: opening a pipe would wait for a writer.
        if !std::fs::metadata(path)?.is_file() {
            return Err(io::Error::other("it is not a regular file"));
        }
        File::open(path)?.take(MAX_BYTES + 1).read_to_string(&mut text)?;
        match text.len() as u64 > MAX_BYTES {
            true => Err(io::Error::other("it has more than 1 MiB")),
            false => Ok(text),
        }
    };
    match read() {
        Ok(text) => Ok((name, text)),
        Err(source) => Err(FileError::Unreadable { name, source }),
    }
}
