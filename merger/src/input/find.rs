//! From what was typed to a list of files.

use super::candidate::is_merged;
use crate::failure::Failure;
use rpd_rocpd::read::Database;
use rpd_shard::file::is_folder_of_ranks;
use rpd_translate::{Format, format_of};
use serde::{Deserialize, Serialize};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Ending of a shard's file name.
pub const SHARD_ENDING: &str = "rpdshard";
/// Endings of files that profilers write: RocPD, RPD.
const PROFILE_ENDINGS: [&str; 2] = [".db", ".rpd"];
/// Endings of files that others write, too, so that only their content tells: JSON of rocprofv3 and the PyTorch profiler, Perfetto traces,
/// tables of omnistat.
const SHARED_ENDINGS: [&str; 6] = [".json", ".json.gz", ".proto", ".pftrace", ".pftrace.gz", ".csv"];
const TRACE_ENDINGS: [&str; 3] = [".proto", ".pftrace", ".pftrace.gz"];
/// Where runs are collected unless something else is said.
const DEFAULT_ROOT: &str = "rpd-out";
/// Name of the output unless something else is said.
pub const DEFAULT_OUTPUT: &str = "trace.db";
/// The same with `--format rpd`. It is also what rocmProfileData calls a trace.
pub const DEFAULT_RPD: &str = "trace.rpd";

/// A file to merge.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Listed {
    /// Where it is.
    pub path: PathBuf,
    /// What it is; why it cannot be merged.
    pub format: Result<Format, String>,
    /// Whether it was named on the command line itself.
    pub named: bool,
    /// What it was translated from.
    pub origin: Option<PathBuf>,
}

impl Listed {
    /// Its name and that of the file that it was translated from.
    pub(super) fn names(&self) -> Option<(String, String)> {
        Some((self.path.display().to_string(), self.origin.as_ref()?.display().to_string()))
    }
}

/// The files to merge and where the output goes by default.
#[derive(Debug, PartialEq, Eq)]
pub struct Found {
    /// The files.
    pub files: Vec<Listed>,
    /// Folder for the output unless `-o` says otherwise.
    pub home: PathBuf,
}

/// Lists the files of these inputs; without any, the shards of the newest run below the output root.
pub fn find(inputs: &[PathBuf]) -> Result<Found, Failure> {
    let newest;
    let inputs = if inputs.is_empty() {
        newest = [newest_run(&output_root())?];
        &newest[..]
    } else {
        inputs
    };
    let mut home = PathBuf::new();
    let mut files: Vec<(PathBuf, bool)> = Vec::new();
    let mut passed_over: Vec<(PathBuf, String)> = Vec::new();
    for input in inputs {
        if !is_text(input) {
            return Err(Failure::Input(not_text(input)));
        }
        let kind = fs::metadata(input)
            .map_err(|e| Failure::Input(format!("cannot read {}: {e}; check the path", input.display())))?;
        if !kind.is_dir() {
            files.push((input.clone(), true));
            continue;
        }
        let mut found = shards_in(input)?;
        let profiles = profiles_in(input, found.is_empty())?;
        found.extend(profiles.files);
        passed_over.extend(profiles.passed_over);
        for path in found.extract_if(.., |path| !is_text(path)) {
            passed_over.push((as_text(&path).into(), not_text(&path)));
        }
        if found.is_empty() && passed_over.is_empty() {
            // The output root instead of a run is a common slip; with one run in it, it is clear.
            home = one_run_in(input)?;
            if !is_text(&home) {
                return Err(Failure::Input(not_text(&home)));
            }
            found = shards_in(&home)?;
        }
        files.extend(found.into_iter().map(|file| (file, false)));
    }
    if home.as_os_str().is_empty() {
        home = match &inputs[0] {
            dir if dir.is_dir() => dir.clone(),
            file => file.parent().map(Path::to_path_buf).unwrap_or_default(),
        };
    }
    remove_repeated(&mut files);
    let listed = |(path, named): (PathBuf, bool)| {
        let format = format_of(&path).map_err(|reason| format!("{} {reason}", path.display()));
        Listed { path, format, named, origin: None }
    };
    let mut files: Vec<Listed> = files.into_iter().map(listed).collect();
    passed_over.sort();
    let refused = |(path, reason)| Listed { path, format: Err(reason), named: false, origin: None };
    files.extend(passed_over.into_iter().map(refused));
    Ok(Found { files, home })
}

/// Whether a path can be told to other ranks, and written into the output.
pub(crate) fn is_text(path: &Path) -> bool {
    path.to_str().is_some()
}

/// A path that is no text, as one.
fn as_text(path: &Path) -> String {
    format!("{path:?}").trim_matches('"').to_owned()
}

fn not_text(path: &Path) -> String {
    format!("{}: its name is no UTF-8: rename it, and merge again", as_text(path))
}

/// What profilers left in a folder.
#[derive(Default)]
struct Profiles {
    files: Vec<PathBuf>,
    /// Folders that were not looked into, though they may hold some, and why.
    passed_over: Vec<(PathBuf, String)>,
}

/// What profilers left in a folder; where that is `all` there is, also what is in the folders below, since
/// rocprofv3 makes one for each host. JSON of others is passed over, and so is a merge of ours, unless there
/// is nothing else.
fn profiles_in(dir: &Path, all: bool) -> Result<Profiles, Failure> {
    let mut found = Profiles {
        files: entries(dir)?.into_iter().filter(|path| is_profile(path)).collect(),
        ..Profiles::default()
    };
    let folders = |dir: &Path| -> Result<Vec<PathBuf>, Failure> {
        Ok(entries(dir)?.into_iter().filter(|path| path.is_dir()).collect())
    };
    let beside = !found.files.is_empty() || !all;
    for below in folders(dir)? {
        let inside = match entries(&below) {
            Ok(inside) => inside,
            // Beside shards there may be anything.
            Err(error) if all => {
                found.passed_over.push((below, error.to_string()));
                continue;
            }
            Err(_) => continue,
        };
        // Runs of rpd-collect are chosen by name, or by being the only one.
        if is_of_ranks(&below) || inside.iter().any(|path| is_shard(path) || is_of_ranks(path)) {
            continue;
        }
        if beside {
            found.pass_over(&below, &inside, dir);
            continue;
        }
        found.files.extend(inside.iter().filter(|path| is_profile(path)).cloned());
        for deeper in folders(&below)? {
            let inside = entries(&deeper).unwrap_or_default();
            found.pass_over(&deeper, &inside, &below);
        }
    }
    found.files.sort();
    found.pass_over_traces();
    let (merges, others): (Vec<_>, Vec<_>) =
        found.files.into_iter().partition(|path| is_text(path) && is_output(path));
    Ok(Profiles { files: if others.is_empty() && all { merges } else { others }, ..found })
}

impl Profiles {
    /// Leaves traces out that lie beside databases: rocprofv3 and rocprof-sys write what they saw in both forms, and it
    /// would be there twice.
    fn pass_over_traces(&mut self) {
        // Looking into databases takes time: thousands of them are usual, and traces beside them are not.
        if !self.files.iter().any(|path| is_called_trace(path)) {
            return;
        }
        let folders: Vec<PathBuf> = (self.files.iter())
            .filter(|path| path.extension().is_some_and(|ending| ending == "db") && !is_merge(path))
            .filter_map(|path| path.parent().map(Path::to_path_buf))
            .collect();
        let is_beside =
            |path: &Path| path.parent().is_some_and(|folder| folders.iter().any(|of| of == folder));
        let traces =
            self.files.extract_if(.., |path| is_called_trace(path) && is_beside(path) && !is_output(path));
        for trace in traces {
            let shown = trace.display().to_string();
            let reason = format!(
                "{shown} is left out: databases lie beside it, and profilers write the same to both; name it to have \
                 it merged, too"
            );
            self.passed_over.push((PathBuf::from(shown), reason));
        }
    }

    /// Notes a folder if it holds profiles.
    fn pass_over(&mut self, folder: &Path, inside: &[PathBuf], above: &Path) {
        let profiles = inside.iter().filter(|path| is_profile(path) && !is_output(path)).count();
        if profiles > 0 {
            let (folder, above) = (folder.display(), above.display());
            let reason = format!(
                "{folder} holds {profiles} profiles and is not looked into, since others are in {above}: name it to \
                 have them merged"
            );
            self.passed_over.push((PathBuf::from(folder.to_string()), reason));
        }
    }
}

/// Whether a file has the name of a profile. JSON, CSV and traces have to be one, too, since many write some. What is
/// named like one and cannot be read is told later.
fn is_profile(path: &Path) -> bool {
    let Some(name) = path.file_name() else { return false };
    let name = name.to_string_lossy();
    let ends =
        |endings: &[&str]| endings.iter().any(|ending| name.len() > ending.len() && name.ends_with(ending));
    let is_named = ends(&PROFILE_ENDINGS) || name.ends_with("_results.json");
    (is_named || ends(&SHARED_ENDINGS))
        && !path.is_dir()
        && !is_default_output(path)
        && (is_named || format_of(path).is_ok())
}

/// Whether a file is one that a merge wrote, by its metadata.
pub(crate) fn is_merge(path: &Path) -> bool {
    match format_of(path) {
        Ok(Format::RocPd) => {
            Database::open(path).is_ok_and(|database| database.spaces().iter().any(is_merged))
        }
        Ok(Format::LegacyRpd) => rpd_legacy::is_merge(path),
        _ => false,
    }
}

/// The same of traces, too, which a merge leaves beside its inputs.
fn is_output(path: &Path) -> bool {
    if is_called_trace(path) { rpd_perfetto::read::is_ours(path) } else { is_merge(path) }
}

/// Whether a file has the name of a Perfetto trace. Those that are listed are some, by their content.
fn is_called_trace(path: &Path) -> bool {
    let name = path.file_name().map_or_else(Default::default, |name| name.to_string_lossy());
    TRACE_ENDINGS.iter().any(|ending| name.ends_with(ending))
}

/// Whether a file has the name that a merge gives its output.
fn is_default_output(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name == DEFAULT_OUTPUT)
}

fn entries(dir: &Path) -> Result<Vec<PathBuf>, Failure> {
    let unreadable =
        |e: io::Error| Failure::Input(format!("cannot list {}: {e}; check its permissions", dir.display()));
    let entries = fs::read_dir(dir).map_err(unreadable)?;
    entries.map(|entry| Ok(entry.map_err(unreadable)?.path())).collect()
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
    let (folders, mut shards): (Vec<_>, Vec<_>) =
        entries(dir)?.into_iter().partition(|path| is_of_ranks(path));
    for folder in folders {
        shards.extend(entries(&folder)?);
    }
    shards.retain(|path| is_shard(path));
    shards.sort();
    Ok(shards)
}

/// Whether something in the folder of a run is a folder of its ranks.
fn is_of_ranks(path: &Path) -> bool {
    path.file_name().and_then(|name| name.to_str()).is_some_and(is_folder_of_ranks) && path.is_dir()
}

fn is_shard(path: &Path) -> bool {
    path.extension().is_some_and(|e| e == SHARD_ENDING)
}

/// Whether a collector has said something in a folder.
fn has_log(folder: &Path) -> bool {
    let is_log = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with("rank-") && name.ends_with(".log")
    };
    entries(folder).is_ok_and(|entries| entries.iter().any(is_log))
}

/// The run in an output root that holds just one; else says what is there.
fn one_run_in(folder: &Path) -> Result<PathBuf, Failure> {
    let mut runs: Vec<PathBuf> = fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.is_dir() && shards_in(path).is_ok_and(|s| !s.is_empty()))
        .collect();
    runs.sort();
    let dir = folder.display();
    match runs.as_slice() {
        [run] => Ok(run.clone()),
        [] if has_log(folder) => {
            Err(Failure::Input(format!("no *.{SHARD_ENDING} in {dir}: rank-*.log in it says why")))
        }
        [] => Err(Failure::Input(format!(
            "no *.{SHARD_ENDING} in {dir}, nor *.db, *.rpd, *.json, *.json.gz, *.proto, *.pftrace or *.csv of a profiler: was the program run under rpd-collect, and did it call roctx, MPI or RCCL?"
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
