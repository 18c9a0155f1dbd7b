//! The program that is recorded, in C.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Rate, 0 for full speed, and seconds from the command line. Prints the number of pairs.
const PAIRS: &str = include_str!("../../workloads/paced_pairs.c");

/// Compiles the program into a folder.
pub(crate) fn compile(folder: &Path) -> Result<PathBuf, String> {
    let (path, file) = (folder.join("pairs"), folder.join("pairs.c"));
    std::fs::write(&file, PAIRS).map_err(|error| error.to_string())?;
    let built = Command::new("cc").args(["-O2", "-o"]).arg(&path).arg(&file).output();
    let built = built.map_err(|error| format!("cc: {error}"))?;
    match built.status.success() {
        true => Ok(path),
        false => Err(format!("cc: {}", String::from_utf8_lossy(&built.stderr))),
    }
}
