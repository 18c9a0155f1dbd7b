//! Real files of other tools. They are not ours to pass on, so that they are not in the repository:
//! they come from the folder that `RPD_SHARED` names, or `../shared` beside it.

use crate::harness::{repository, skip};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Four RocPD databases of two nodes with two processes each, in the order of their names; none, with a
/// note, where they are not.
pub fn rocpd_databases(into: &Path) -> Vec<PathBuf> {
    unpacked("rocpd", into)
}

/// Two legacy `.rpd` files of schema 2: a small matrix multiplication, and a run of PyTorch; or none.
pub fn rpd_files(into: &Path) -> Vec<PathBuf> {
    unpacked("rpd", into)
}

/// The JSON of one process by rocprofv3 of ROCm 6, with dispatches only; or none.
pub fn rocprofv3_json(into: &Path) -> Option<PathBuf> {
    unpacked("rocprofv3", into).pop()
}

/// Traces of the PyTorch profiler: both ranks of a job with gloo on one node; or none.
pub fn kineto_ddp(into: &Path) -> Vec<PathBuf> {
    unpacked("kineto/ddp2", into)
}

/// Traces of the PyTorch profiler from public repositories, each of a job of its own; or none.
pub fn kineto_real(into: &Path) -> Vec<PathBuf> {
    unpacked("kineto/real", into)
}

/// Runs of real collectors on emulated nodes, each with its name and its folder; or none.
///
/// # Panics
/// If they are here and cannot be unpacked.
pub fn clock_runs(into: &Path) -> Vec<(String, PathBuf)> {
    for archive in unpacked("clocks", into) {
        let status = Command::new("tar").arg("-xJf").arg(&archive).arg("-C").arg(into).status();
        assert!(status.is_ok_and(|status| status.success()), "{} cannot be unpacked", archive.display());
    }
    let folders = |of: &Path| -> Vec<PathBuf> {
        let entries = fs::read_dir(of).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).filter(|path| path.is_dir()).collect()
    };
    let name = |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let all = folders(into)
        .into_iter()
        .flat_map(|named| folders(&named).into_iter().map(move |run| (name(&named), run)));
    let mut all: Vec<(String, PathBuf)> = all.collect();
    all.sort();
    all
}

/// The folder of all real files; `None`, with a note, where it is not there.
pub fn all_files() -> Option<PathBuf> {
    let data = shared().join("data");
    if !data.is_dir() {
        skip("real files", &format!("no {} (set RPD_SHARED)", data.display()));
    }
    data.is_dir().then_some(data)
}

fn shared() -> PathBuf {
    std::env::var_os("RPD_SHARED").map_or(repository().join("../shared"), PathBuf::from)
}

/// Unpacks the files of a kind into a folder.
///
/// # Panics
/// If there are some, and one cannot be unpacked.
fn unpacked(kind: &str, into: &Path) -> Vec<PathBuf> {
    let from = shared().join("data").join(kind);
    let Ok(entries) = fs::read_dir(&from) else {
        skip("real files", &format!("no {} (set RPD_SHARED)", from.display()));
        return Vec::new();
    };
    let mut found: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    found.sort();
    assert!(!found.is_empty(), "nothing in {}", from.display());
    let cannot = |path: &Path, error: std::io::Error| -> File { panic!("{}: {error}", path.display()) };
    fs::create_dir_all(into).unwrap_or_else(|error| drop(cannot(into, error)));
    let unpack = |found: PathBuf| {
        let packed = found.extension().is_some_and(|extension| extension == "gz");
        let name = if packed { found.file_stem() } else { found.file_name() };
        let path = into.join(name.unwrap_or_default());
        let file = File::create(&path).unwrap_or_else(|error| cannot(&path, error));
        let mut command = if packed { Command::new("gzip") } else { Command::new("cat") };
        if packed {
            command.arg("-dc");
        }
        let status = command.arg(&found).stdin(Stdio::null()).stdout(file).status();
        assert!(status.is_ok_and(|status| status.success()), "{} cannot be unpacked", found.display());
        path
    };
    found.into_iter().map(unpack).collect()
}
