//! From what was typed to a list of files.

use super::others::{closed_run, runs_of_others};
use super::path_text::{self, path_text};
use crate::output_file::made_by_merge::is_merge;
use rpd_console::Failure;
use rpd_files::{
    AnchorUse, EntryKind, FileRefused, anchor, effective_uid, entry_stat, open_input, open_input_folder,
};
use rpd_foreign::{Format, format_of};
use rpd_shard::file::is_folder_of_ranks;
use serde::{Deserialize, Serialize};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Ending of a shard's file name.
pub(crate) const SHARD_ENDING: &str = "rpdshard";
/// Endings of files that are looked into, in lower case: databases, JSON of rocprofv3 and the PyTorch profiler, Perfetto traces,
/// tables of omnistat. Other programs write files of such names, too, so that only their content tells.
const ENDINGS: [&str; 8] = [".db", ".rpd", ".json", ".json.gz", ".proto", ".pftrace", ".pftrace.gz", ".csv"];
const TRACE_ENDINGS: [&str; 3] = [".proto", ".pftrace", ".pftrace.gz"];
/// Where runs are collected unless something else is said.
const DEFAULT_ROOT: &str = "rpd-out";
/// Name of the output unless something else is said.
pub(crate) const DEFAULT_OUTPUT: &str = "trace.db";
/// The same with `--format rpd`. It is also what rocmProfileData calls a trace.
pub(crate) const DEFAULT_RPD: &str = "trace.rpd";

/// A file to merge.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct ListedFile {
    /// Where it is.
    #[serde(with = "path_text")]
    pub path: PathBuf,
    /// What it is; why it cannot be merged.
    pub format: Result<Format, String>,
    /// Whether it was named on the command line itself.
    pub named: bool,
    /// What it was translated from.
    pub origin: Option<PathBuf>,
}

impl ListedFile {
    /// Its name and that of the file that it was translated from.
    pub(super) fn names(&self) -> Option<(String, String)> {
        Some((self.path.display().to_string(), self.origin.as_ref()?.display().to_string()))
    }
}

/// The files to merge and where the output goes by default.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct InputListing {
    /// The files.
    pub files: Vec<ListedFile>,
    /// Folder for the output unless `-o` says otherwise.
    pub home: PathBuf,
    /// The inputs that are folders.
    pub(super) folders: Vec<PathBuf>,
    /// Folders of which every file was looked at.
    pub(super) searched: Vec<PathBuf>,
}

/// Lists the files of these inputs; without any, the shards of the newest run below the output root. Files of other
/// formats that cannot be merged are listed only if they were named: [`super::unused::find_all`] lists the others, too.
///
/// # Errors
/// [`Failure::input`], if an input cannot be listed, or holds nothing to merge.
pub(crate) fn find(inputs: &[PathBuf]) -> Result<InputListing, Failure> {
    search(inputs, &|_| false)
}

/// Lists the files of these inputs. A folder without any is an error, unless `says_why` finds files in the folders that were
/// searched that say themselves why they cannot be merged.
pub(super) fn search(
    inputs: &[PathBuf],
    says_why: &dyn Fn(&[PathBuf]) -> bool,
) -> Result<InputListing, Failure> {
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
    let (mut folders, mut searched) = (Vec::new(), Vec::new());
    for input in inputs {
        if !is_text(input) {
            return Err(Failure::input(not_text(input)));
        }
        let kind = fs::metadata(input)
            .map_err(|e| Failure::input(format!("cannot read {}: {e}; check the path", input.display())))?;
        if !kind.is_dir() {
            files.push((input.clone(), true));
            continue;
        }
        hold(input)?;
        folders.push(input.clone());
        let mut found = Profiles::of_folder(input)?;
        if found.files.is_empty() && found.passed_over.is_empty() && !found.has_unsearched {
            // The output root instead of a run is a common slip; with one run in it, it is clear.
            match one_run_in(input)? {
                Some(run) if !is_text(&run) => return Err(Failure::input(not_text(&run))),
                Some(run) => {
                    hold(&run)?;
                    found.add(Profiles::of_folder(&run)?);
                    home = run;
                }
                None if says_why(&found.searched) => {}
                None => return Err(nothing_in(input)),
            }
        }
        files.extend(found.files.into_iter().map(|file| (file, false)));
        passed_over.extend(found.passed_over);
        searched.extend(found.searched);
    }
    if home.as_os_str().is_empty() {
        home = match &inputs[0] {
            dir if dir.is_dir() => dir.clone(),
            file => file.parent().map(Path::to_path_buf).unwrap_or_default(),
        };
    }
    remove_repeated(&mut files);
    let listed = |(path, named): (PathBuf, bool)| {
        let format = format_of(&path).map_err(|reason| match refused(&path) {
            Some(refused) => format!("{} is not read: {refused}", path_text(&path)),
            None => format!("{} {reason}", path_text(&path)),
        });
        ListedFile { path, format, named, origin: None }
    };
    let mut files: Vec<ListedFile> = files.into_iter().map(listed).collect();
    passed_over.sort();
    let refused = |(path, reason)| ListedFile { path, format: Err(reason), named: false, origin: None };
    files.extend(passed_over.into_iter().map(refused));
    Ok(InputListing { files, home, folders, searched })
}

/// Why a file is not opened though the file system would open it.
pub(super) fn refused(path: &Path) -> Option<String> {
    let error = open_input(path).err()?;
    FileRefused::in_error(&error).map(ToString::to_string)
}

/// Holds a searched folder by its descriptor; files below it are opened relative to that.
pub(crate) fn hold(folder: &Path) -> Result<(), Failure> {
    let held = anchor(folder, AnchorUse::Inputs);
    held.map(drop).map_err(|error| {
        Failure::input(format!("cannot open the folder {}: {error}; check its permissions", folder.display()))
    })
}

/// Whether a path can be told to other ranks, and written into the output.
pub(crate) fn is_text(path: &Path) -> bool {
    path.to_str().is_some()
}

fn not_text(path: &Path) -> String {
    format!("{}: its name is no UTF-8: rename it, and merge again", path_text(path))
}

/// What collectors and profilers left in a folder.
#[derive(Default)]
struct Profiles {
    files: Vec<PathBuf>,
    /// Folders that were not looked into, though they may hold some, and why.
    passed_over: Vec<(PathBuf, String)>,
    /// Folders of which every file was looked at.
    searched: Vec<PathBuf>,
    /// Whether a folder that was not looked into holds some.
    has_unsearched: bool,
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
        Ok(entries(dir)?.into_iter().filter(|path| is_folder(path)).collect())
    };
    found.searched.push(dir.to_owned());
    let beside = !found.files.is_empty() || !all;
    for below in folders(dir)? {
        let inside = match entries(&below) {
            Ok(inside) => inside,
            // Beside shards there may be anything.
            Err(error) if all => {
                let reason = closed_run(&below).unwrap_or_else(|| error.to_string());
                found.passed_over.push((below, reason));
                continue;
            }
            Err(_) => continue,
        };
        // Runs of rpd-collect are chosen by name, or by being the only one.
        if is_of_ranks(&below) || inside.iter().any(|path| is_shard(path) || is_of_ranks(path)) {
            continue;
        }
        if beside {
            found.note_unsearched(&inside);
            continue;
        }
        found.files.extend(inside.iter().filter(|path| is_profile(path)).cloned());
        found.searched.push(below.clone());
        for deeper in folders(&below)? {
            found.note_unsearched(&entries(&deeper).unwrap_or_default());
        }
    }
    found.files.sort();
    found.pass_over_traces();
    let (merges, others): (Vec<_>, Vec<_>) = found.files.into_iter().partition(|path| is_output(path));
    Ok(Profiles { files: if others.is_empty() && all { merges } else { others }, ..found })
}

impl Profiles {
    /// The shards of a folder, and what profilers left in it.
    fn of_folder(dir: &Path) -> Result<Profiles, Failure> {
        let shards = shards_in(dir)?;
        let mut found = profiles_in(dir, shards.is_empty())?;
        let profiles = std::mem::replace(&mut found.files, shards);
        found.files.extend(profiles);
        // A name that is no text is refused by the walk over all folders.
        found.files.retain(|path| is_text(path));
        Ok(found)
    }

    fn add(&mut self, other: Profiles) {
        self.files.extend(other.files);
        self.passed_over.extend(other.passed_over);
        self.searched.extend(other.searched);
        self.has_unsearched |= other.has_unsearched;
    }

    /// Leaves traces out that lie beside databases: rocprofv3 and rocprof-sys write what they saw in both forms, and it
    /// would be there twice.
    fn pass_over_traces(&mut self) {
        // Looking into databases takes time: thousands of them are usual, and traces beside them are not.
        if !self.files.iter().any(|path| is_called_trace(path)) {
            return;
        }
        let folders: Vec<PathBuf> = (self.files.iter())
            .filter(|path| {
                path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("db")) && !is_merge(path)
            })
            .filter_map(|path| path.parent().map(Path::to_path_buf))
            .collect();
        let is_beside =
            |path: &Path| path.parent().is_some_and(|folder| folders.iter().any(|of| of == folder));
        let traces =
            self.files.extract_if(.., |path| is_called_trace(path) && is_beside(path) && !is_output(path));
        for trace in traces {
            let shown = path_text(&trace);
            let reason = format!(
                "{shown} is left out: databases lie beside it, and profilers write the same to both; name it to have \
                 it merged, too"
            );
            self.passed_over.push((trace, reason));
        }
    }

    /// Notes that a folder with these entries is not looked into. The walk over all folders counts its profiles.
    fn note_unsearched(&mut self, inside: &[PathBuf]) {
        self.has_unsearched =
            self.has_unsearched || inside.iter().any(|path| is_profile(path) && !is_output(path));
    }
}

/// Whether files of such a name are looked into. The case of its letters does not matter.
pub(super) fn is_looked_into(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    ENDINGS.iter().any(|ending| name.len() > ending.len() && name.ends_with(ending))
}

/// Whether a file is a profile that can be merged: by its content, since other programs give files the same names.
fn is_profile(path: &Path) -> bool {
    let Some(name) = path.file_name() else { return false };
    is_text(path)
        && is_looked_into(&name.to_string_lossy())
        && !is_folder(path)
        && !is_default_output(path)
        && (format_of(path).is_ok() || is_gone(path))
}

/// Whether a file that was listed does not exist any more: it is an input that cannot be read.
fn is_gone(path: &Path) -> bool {
    fs::symlink_metadata(path).is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
}

/// The same of traces, too, which a merge leaves beside its inputs.
pub(super) fn is_output(path: &Path) -> bool {
    if is_called_trace(path) { rpd_perfetto::read::is_ours(path) } else { is_merge(path) }
}

/// Whether a file has the name of a Perfetto trace. Those that are listed are some, by their content.
fn is_called_trace(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
    TRACE_ENDINGS.iter().any(|ending| name.ends_with(ending))
}

/// Whether a file has the name that a merge gives its output.
pub(super) fn is_default_output(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name == DEFAULT_OUTPUT)
}

fn entries(dir: &Path) -> Result<Vec<PathBuf>, Failure> {
    let unreadable =
        |e: io::Error| Failure::input(format!("cannot list {}: {e}; check its permissions", dir.display()));
    let names = open_input_folder(dir).and_then(|folder| folder.names(usize::MAX)).map_err(unreadable)?;
    Ok(names.into_iter().map(|name| dir.join(name)).collect())
}

/// Whether a path leads to a folder, by links of this user at most.
pub(super) fn is_folder(path: &Path) -> bool {
    entry_stat(path).is_ok_and(|found| found.kind == EntryKind::Folder)
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
        Failure::input(format!(
            "no input named and no runs in {}: {e}; name a run directory, or set RPD_OUTPUT",
            root.display()
        ))
    };
    // Runs of this user come before those of others, which may lie below a shared root.
    let mut newest: Option<(bool, SystemTime, PathBuf)> = None;
    for run in fs::read_dir(root).map_err(missing)? {
        let run = run.map_err(missing)?.path();
        if !run.is_dir() {
            continue;
        }
        let written = shards_in(&run)
            .unwrap_or_default()
            .iter()
            .filter_map(|shard| Some(entry_stat(shard).ok()?.modified))
            .max();
        if let Some(written) = written
            && let is_own = entry_stat(&run).is_ok_and(|found| found.owner == effective_uid())
            && newest.as_ref().is_none_or(|(own, time, path)| (*own, *time, path) < (is_own, written, &run))
        {
            newest = Some((is_own, written, run));
        }
    }
    newest.map(|(.., run)| run).ok_or_else(|| {
        let none = format!("no input named and no run with shards in {}", root.display());
        Failure::input(match runs_of_others(root) {
            Some(others) => format!("{none}: {others}"),
            None => format!("{none}; name a run directory, or set RPD_OUTPUT"),
        })
    })
}

pub(crate) fn shards_in(dir: &Path) -> Result<Vec<PathBuf>, Failure> {
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
    path.file_name().and_then(|name| name.to_str()).is_some_and(is_folder_of_ranks) && is_folder(path)
}

pub(crate) fn is_shard(path: &Path) -> bool {
    path.extension().is_some_and(|e| e == SHARD_ENDING)
}

/// Whether a folder has a log of a collector.
pub(crate) fn has_log(folder: &Path) -> bool {
    let is_log = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with("rank-") && name.ends_with(".log")
    };
    entries(folder).is_ok_and(|entries| entries.iter().any(is_log))
}

/// The run in an output root that holds just one; `None` where there is none. Of several it says which there are.
fn one_run_in(folder: &Path) -> Result<Option<PathBuf>, Failure> {
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
        [run] => Ok(Some(run.clone())),
        [] if has_log(folder) => {
            Err(Failure::input(format!("no *.{SHARD_ENDING} in {dir}: rank-*.log in it says why")))
        }
        [] => Ok(None),
        runs => {
            let names: Vec<_> = runs.iter().filter_map(|r| Some(r.file_name()?.to_string_lossy())).collect();
            Err(Failure::input(format!("{dir} holds several runs; name one of them: {}", names.join(", "))))
        }
    }
}

fn nothing_in(folder: &Path) -> Failure {
    let dir = folder.display();
    Failure::input(format!(
        "no *.{SHARD_ENDING} in {dir}, nor *.db, *.rpd, *.json, *.json.gz, *.proto, *.pftrace or *.csv of a profiler: was the program run under rpd-collect, and did it call roctx, MPI or RCCL?"
    ))
}

/// One file named twice, or by two paths, is merged once.
fn remove_repeated(shards: &mut Vec<(PathBuf, bool)>) {
    let mut seen = std::collections::HashSet::new();
    shards.retain(|(path, _)| seen.insert(fs::canonicalize(path).unwrap_or_else(|_| path.clone())));
}
