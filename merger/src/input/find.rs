//! From what was typed to a list of shards.

use crate::failure::Failure;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Ending of a shard's file name.
pub const SHARD_ENDING: &str = "rpdshard";
/// Where runs are collected unless something else is said.
const DEFAULT_ROOT: &str = "rpd-out";

/// The shards to merge and where the output goes by default.
#[derive(Debug, PartialEq, Eq)]
pub struct Found {
    /// Shards, with whether each was named on the command line itself.
    pub shards: Vec<(PathBuf, bool)>,
    /// Folder for the output unless `-o` says otherwise.
    pub home: PathBuf,
}

/// Lists the shards of these inputs; without any, those of the newest run below the output root.
pub fn find(inputs: &[PathBuf]) -> Result<Found, Failure> {
    let newest;
    let inputs = if inputs.is_empty() {
        newest = [newest_run(&output_root())?];
        &newest[..]
    } else {
        inputs
    };
    let mut found = Found { shards: Vec::new(), home: PathBuf::new() };
    for input in inputs {
        let kind = fs::metadata(input)
            .map_err(|e| Failure::Input(format!("cannot read {}: {e}; check the path", input.display())))?;
        if !kind.is_dir() {
            found.shards.push((input.clone(), true));
            continue;
        }
        let mut shards = shards_in(input)?;
        if shards.is_empty() {
            // The output root instead of a run is a common slip; with one run in it, it is clear.
            found.home = one_run_in(input)?;
            shards = shards_in(&found.home)?;
        }
        found.shards.extend(shards.into_iter().map(|s| (s, false)));
    }
    if found.home.as_os_str().is_empty() {
        found.home = match &inputs[0] {
            dir if dir.is_dir() => dir.clone(),
            file => file.parent().map(Path::to_path_buf).unwrap_or_default(),
        };
    }
    remove_repeated(&mut found.shards);
    Ok(found)
}

/// `$RPD_OUTPUT` or `./rpd-out`.
fn output_root() -> PathBuf {
    std::env::var_os("RPD_OUTPUT")
        .filter(|v| !v.is_empty())
        .map_or_else(|| DEFAULT_ROOT.into(), PathBuf::from)
}

/// The run below `root` whose shards were written last.
fn newest_run(root: &Path) -> Result<PathBuf, Failure> {
    let missing = |e: io::Error| {
        Failure::Input(format!(
            "no input named and no runs in {}: {e}; name a run directory, or set RPD_OUTPUT",
            root.display()
        ))
    };
    let mut newest: Option<(SystemTime, PathBuf)> = None;
    for run in fs::read_dir(root).map_err(missing)? {
        let run = run.map_err(missing)?.path();
        if !run.is_dir() {
            continue;
        }
        // Another user's run below a shared root is none of ours.
        let written = shards_in(&run)
            .unwrap_or_default()
            .iter()
            .filter_map(|s| fs::metadata(s).ok()?.modified().ok())
            .max();
        if let Some(written) = written
            && newest.as_ref().is_none_or(|(time, path)| (*time, path) < (written, &run))
        {
            newest = Some((written, run));
        }
    }
    match newest {
        Some((_, run)) => Ok(run),
        None => Err(Failure::Input(format!(
            "no input named and no run with shards in {}; name a run directory, or set RPD_OUTPUT",
            root.display()
        ))),
    }
}

fn shards_in(dir: &Path) -> Result<Vec<PathBuf>, Failure> {
    let unreadable =
        |e: io::Error| Failure::Input(format!("cannot list {}: {e}; check its permissions", dir.display()));
    let mut shards = Vec::new();
    for entry in fs::read_dir(dir).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        if path.extension().is_some_and(|e| e == SHARD_ENDING) {
            shards.push(path);
        }
    }
    shards.sort();
    Ok(shards)
}

/// The run in an output root that holds just one; else says what is there.
fn one_run_in(dir: &Path) -> Result<PathBuf, Failure> {
    let mut runs: Vec<PathBuf> = fs::read_dir(dir)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.is_dir() && shards_in(path).is_ok_and(|s| !s.is_empty()))
        .collect();
    runs.sort();
    let dir = dir.display();
    match runs.as_slice() {
        [run] => Ok(run.clone()),
        [] => Err(Failure::Input(format!(
            "no *.{SHARD_ENDING} in {dir}: was the program run under rpd-collect, and did it call roctx, MPI or RCCL?"
        ))),
        runs => {
            let names: Vec<_> = runs.iter().filter_map(|r| Some(r.file_name()?.to_string_lossy())).collect();
            Err(Failure::Input(format!("{dir} holds several runs; name one of them: {}", names.join(", "))))
        }
    }
}

/// One file named twice, or by two paths, is merged once.
fn remove_repeated(shards: &mut Vec<(PathBuf, bool)>) {
    let mut seen = std::collections::HashSet::new();
    shards.retain(|(path, _)| seen.insert(fs::canonicalize(path).unwrap_or_else(|_| path.clone())));
}
