//! Lists the files to merge from the paths on the command line.

use crate::input::listing::other_users::{closed_run, runs_of_others};
use crate::input::listing::package;
use crate::input::path_text;
use crate::job_user::output_root;
use crate::partial_output::made_by_merge::is_merge;
use rpd_console::Failure;
use rpd_files::{
    AnchorUse, EntryKind, FileRefused, anchor, effective_uid, entry_stat, open_input, open_input_folder,
};
use rpd_foreign::{Format, format_of};
use rpd_shard::file::is_folder_of_ranks;
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, HashSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Extension of a shard's file name.
pub(crate) const SHARD_EXTENSION: &str = "rpdshard";
/// Lowercase name suffixes of files that are examined: databases, JSON of rocprofv3 and of the PyTorch profiler,
/// Perfetto traces, tables of omnistat. Other programs use these suffixes, too, so only the content decides.
const READ_SUFFIXES: [&str; 8] =
    [".db", ".rpd", ".json", ".json.gz", ".proto", ".pftrace", ".pftrace.gz", ".csv"];
const TRACE_SUFFIXES: [&str; 3] = [".proto", ".pftrace", ".pftrace.gz"];
/// Default name of the output.
pub(crate) const DEFAULT_OUTPUT: &str = "trace.db";
/// Default name of the output with `--format rpd`. rocmProfileData uses the same name for its traces.
pub(crate) const DEFAULT_RPD: &str = "trace.rpd";

/// A file to merge.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct ListedFile {
    /// Path of the file.
    #[serde(with = "path_text")]
    pub path: PathBuf,
    /// Format of the file, or the reason why it cannot be merged.
    pub format: Result<Format, String>,
    /// Whether the command line names this file itself.
    pub named: bool,
    /// File that this one was translated from.
    pub origin: Option<PathBuf>,
}

impl ListedFile {
    /// Returns the name of the file and the name of the file that it was translated from.
    pub(crate) fn names(&self) -> Option<(String, String)> {
        Some((self.path.display().to_string(), self.origin.as_ref()?.display().to_string()))
    }
}

/// The files to merge and the default output folder.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct InputListing {
    /// Files to merge.
    pub files: Vec<ListedFile>,
    /// Folder for the output without `-o`.
    pub output_folder: PathBuf,
    /// Inputs that are folders.
    pub(super) folders: Vec<PathBuf>,
    /// Folders of which every file was examined.
    pub(super) searched: Vec<PathBuf>,
}

/// Lists the files of these inputs; without inputs, the shards of the newest run below the output root. Foreign files
/// that cannot be merged are listed only if named: [`crate::input::listing::find_all`] lists the others, too.
///
/// # Errors
/// [`Failure::input`], if an input cannot be listed or contains nothing to merge.
pub(crate) fn find(inputs: &[PathBuf]) -> Result<InputListing, Failure> {
    search(inputs, &|_| false)
}

/// Lists the files of these inputs. A folder without any is an error, unless `has_refused` finds files in the searched
/// folders that can be reported with the reason why they cannot be merged.
pub(super) fn search(
    inputs: &[PathBuf],
    has_refused: &dyn Fn(&[PathBuf]) -> bool,
) -> Result<InputListing, Failure> {
    let newest;
    let inputs = if inputs.is_empty() {
        newest = [newest_run(&output_root())?];
        &newest[..]
    } else {
        inputs
    };
    let mut output_folder = PathBuf::new();
    let mut files: Vec<(PathBuf, bool)> = Vec::new();
    let mut passed_over: Vec<(PathBuf, String)> = Vec::new();
    let (mut folders, mut searched) = (Vec::new(), Vec::new());
    // Where an index of a package lists a file.
    let mut listed_at: HashMap<PathBuf, String> = HashMap::new();
    for input in inputs {
        if !is_text(input) {
            return Err(Failure::input(not_text(input)));
        }
        let kind = fs::metadata(input)
            .map_err(|e| Failure::input(format!("cannot read {}: {e}; check the path", input.display())))?;
        if let Some(index) = package::index_of(input, kind.is_dir()) {
            for (file, place) in package::listed_files(&index)? {
                listed_at.entry(file.clone()).or_insert(place);
                files.push((file, true));
            }
            continue;
        }
        if !kind.is_dir() {
            files.push((input.clone(), true));
            continue;
        }
        hold(input)?;
        folders.push(input.clone());
        let mut found = Profiles::of_folder(input)?;
        if found.files.is_empty() && found.passed_over.is_empty() && !found.has_unsearched {
            // Naming the output root instead of a run is a common mistake; if it contains exactly one run, the intent
            // is clear.
            match one_run_in(input)? {
                Some(run) if !is_text(&run) => return Err(Failure::input(not_text(&run))),
                Some(run) => {
                    hold(&run)?;
                    found.add(Profiles::of_folder(&run)?);
                    output_folder = run;
                }
                None if has_refused(&found.searched) => {}
                None => return Err(nothing_in(input)),
            }
        }
        files.extend(found.files.into_iter().map(|file| (file, false)));
        passed_over.extend(found.passed_over);
        searched.extend(found.searched);
    }
    if output_folder.as_os_str().is_empty() {
        output_folder = match &inputs[0] {
            dir if dir.is_dir() => dir.clone(),
            file => file.parent().map(Path::to_path_buf).unwrap_or_default(),
        };
    }
    // A file that is named twice or by two paths is merged once.
    let mut seen = HashSet::new();
    files.retain(|(path, _)| seen.insert(canonical(path)));
    let listed = |(path, named): (PathBuf, bool)| {
        let format = format_of(&path).map_err(|reason| match refused(&path) {
            Some(refused) => format!("{} is not read: {refused}", path_text(&path)),
            None => match listed_at.get(&path) {
                Some(place) => format!("{} {reason} ({place} lists it)", path_text(&path)),
                None => format!("{} {reason}", path_text(&path)),
            },
        });
        ListedFile { path, format, named, origin: None }
    };
    let mut files: Vec<ListedFile> = files.into_iter().map(listed).collect();
    passed_over.sort();
    let refused = |(path, reason)| ListedFile { path, format: Err(reason), named: false, origin: None };
    files.extend(passed_over.into_iter().map(refused));
    Ok(InputListing { files, output_folder, folders, searched })
}

/// Returns why the merge refuses to open a file that the file system would open.
pub(super) fn refused(path: &Path) -> Option<String> {
    let error = open_input(path).err()?;
    FileRefused::in_error(&error).map(ToString::to_string)
}

/// Opens a searched folder and keeps its descriptor; files below it are opened relative to that descriptor.
pub(crate) fn hold(folder: &Path) -> Result<(), Failure> {
    let held = anchor(folder, AnchorUse::Inputs);
    held.map(drop).map_err(|error| {
        Failure::input(format!("cannot open the folder {}: {error}; check its permissions", folder.display()))
    })
}

/// Returns whether a path is UTF-8, so that it can be sent to other ranks and written into the output.
pub(crate) fn is_text(path: &Path) -> bool {
    path.to_str().is_some()
}

fn not_text(path: &Path) -> String {
    format!("{}: its name is not UTF-8; rename it, and merge again", path_text(path))
}

/// Files of collectors and profilers in a folder.
#[derive(Default)]
struct Profiles {
    files: Vec<PathBuf>,
    /// Folders that could not be listed although they may contain profiles, with the reason.
    passed_over: Vec<(PathBuf, String)>,
    /// Folders of which every file was examined.
    searched: Vec<PathBuf>,
    /// Whether a folder that was not searched contains profiles.
    has_unsearched: bool,
}

/// Lists the profiler files in a folder. If `all`, the folder contains no shards; then folders below it are searched,
/// too, because rocprofv3 creates one per host. Foreign JSON files are skipped. Merged databases are skipped unless
/// there is nothing else.
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
            // Beside shards there may be unrelated folders.
            Err(error) if all => {
                let reason = closed_run(&below).unwrap_or_else(|| error.to_string());
                found.passed_over.push((below, reason));
                continue;
            }
            Err(_) => continue,
        };
        // A run of rpd-collect is selected by name, or because it is the only one.
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
    /// Lists the shards and profiler files of a folder.
    fn of_folder(dir: &Path) -> Result<Profiles, Failure> {
        let shards = shards_in(dir)?;
        let mut found = profiles_in(dir, shards.is_empty())?;
        let profiles = std::mem::replace(&mut found.files, shards);
        found.files.extend(profiles);
        // The walk over all folders reports names that are not UTF-8.
        found.files.retain(|path| is_text(path));
        Ok(found)
    }

    fn add(&mut self, other: Profiles) {
        self.files.extend(other.files);
        self.passed_over.extend(other.passed_over);
        self.searched.extend(other.searched);
        self.has_unsearched |= other.has_unsearched;
    }

    /// Skips traces beside databases: rocprofv3 and rocprof-sys write the same rows in both formats, and a merge of
    /// both would duplicate them.
    fn pass_over_traces(&mut self) {
        // Opening databases takes time. Thousands of them are usual, traces beside them are not.
        if !self.files.iter().any(|path| is_called_trace(path)) {
            return;
        }
        let folders: Vec<PathBuf> = (self.files.iter())
            .filter(|path| {
                path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("db"))
                    && !is_merge(path)
            })
            .filter_map(|path| path.parent().map(Path::to_path_buf))
            .collect();
        let is_beside =
            |path: &Path| path.parent().is_some_and(|folder| folders.iter().any(|of| of == folder));
        let traces =
            self.files.extract_if(.., |path| is_called_trace(path) && is_beside(path) && !is_output(path));
        for trace in traces {
            let trace_text = path_text(&trace);
            let reason = format!(
                "{trace_text} is left out: databases lie beside it, and profilers write the same to both; name it to have \
                 it merged, too"
            );
            self.passed_over.push((trace, reason));
        }
    }

    /// Notes that a folder with these entries is not searched. The walk over all folders counts its profiles.
    fn note_unsearched(&mut self, inside: &[PathBuf]) {
        self.has_unsearched =
            self.has_unsearched || inside.iter().any(|path| is_profile(path) && !is_output(path));
    }
}

/// Returns whether files with this name are examined. Letter case does not matter.
pub(super) fn is_looked_into(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    READ_SUFFIXES.iter().any(|suffix| name.len() > suffix.len() && name.ends_with(suffix))
}

/// Returns whether a file is a profile that can be merged. Its content decides, because other programs use the same
/// names.
fn is_profile(path: &Path) -> bool {
    let Some(name) = path.file_name() else { return false };
    is_text(path)
        && is_looked_into(&name.to_string_lossy())
        && !is_folder(path)
        && !is_default_output(path)
        // A file that does not exist anymore is an input that cannot be read.
        && (format_of(path).is_ok() || !exists(path))
}

/// Returns whether a file still exists, even as a dangling link. A file that cannot be examined counts as existing.
pub(crate) fn exists(path: &Path) -> bool {
    !fs::symlink_metadata(path).is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
}

/// Returns whether a file is a merged database or a trace of a merge; a merge leaves both beside its inputs.
pub(super) fn is_output(path: &Path) -> bool {
    if is_called_trace(path) { rpd_perfetto::read::is_ours(path) } else { is_merge(path) }
}

/// Returns whether a file has the name of a Perfetto trace. The content of listed files was checked already.
fn is_called_trace(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
    TRACE_SUFFIXES.iter().any(|suffix| name.ends_with(suffix))
}

/// Returns whether a file has the default name of a merge output.
pub(super) fn is_default_output(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name == DEFAULT_OUTPUT)
}

fn entries(dir: &Path) -> Result<Vec<PathBuf>, Failure> {
    let unreadable =
        |e: io::Error| Failure::input(format!("cannot list {}: {e}; check its permissions", dir.display()));
    let names = open_input_folder(dir).and_then(|folder| folder.names(usize::MAX)).map_err(unreadable)?;
    Ok(names.into_iter().map(|name| dir.join(name)).collect())
}

/// Returns whether a path leads to a folder. Follows only links of this user.
pub(super) fn is_folder(path: &Path) -> bool {
    entry_stat(path).is_ok_and(|found| found.kind == EntryKind::Folder)
}

/// Returns the run below `root` with the shards that were written last.
fn newest_run(root: &Path) -> Result<PathBuf, Failure> {
    let missing = |e: io::Error| {
        Failure::input(format!(
            "no input named and no runs in {}: {e}; name a run folder, or set RPD_OUTPUT",
            root.display()
        ))
    };
    // Runs of this user precede runs of other users, which a shared root can contain.
    let mut newest: Option<(bool, SystemTime, PathBuf)> = None;
    for run in fs::read_dir(root).map_err(missing)? {
        let run = run.map_err(missing)?.path();
        if !run.is_dir() {
            continue;
        }
        let shards = shards_in(&run).unwrap_or_default();
        if let Some(written) = shards.iter().filter_map(|shard| Some(entry_stat(shard).ok()?.modified)).max()
        {
            let is_own = entry_stat(&run).is_ok_and(|found| found.owner == effective_uid());
            newest = newest.max(Some((is_own, written, run)));
        }
    }
    newest.map(|(.., run)| run).ok_or_else(|| {
        let none = format!("no input named and no run with shards in {}", root.display());
        Failure::input(match runs_of_others(root) {
            Some(others) => format!("{none}: {others}"),
            None => format!("{none}; name a run folder, or set RPD_OUTPUT"),
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

/// Returns whether an entry of a run's folder is a folder of its ranks.
fn is_of_ranks(path: &Path) -> bool {
    path.file_name().and_then(|name| name.to_str()).is_some_and(is_folder_of_ranks) && is_folder(path)
}

pub(crate) fn is_shard(path: &Path) -> bool {
    path.extension().is_some_and(|e| e == SHARD_EXTENSION)
}

/// Returns whether a folder contains the log of a collector.
pub(crate) fn has_log(folder: &Path) -> bool {
    let is_log = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with("rank-") && name.ends_with(".log")
    };
    entries(folder).is_ok_and(|entries| entries.iter().any(is_log))
}

/// Returns the run in an output root that contains exactly one; `None` if there is none. For several runs, the error
/// lists them.
fn one_run_in(folder: &Path) -> Result<Option<PathBuf>, Failure> {
    let paths = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let is_run = |path: &PathBuf| path.is_dir() && shards_in(path).is_ok_and(|shards| !shards.is_empty());
    let mut runs: Vec<PathBuf> = paths.filter(is_run).collect();
    runs.sort();
    let dir = folder.display();
    match runs.as_slice() {
        [run] => Ok(Some(run.clone())),
        [] if has_log(folder) => {
            Err(Failure::input(format!("no *.{SHARD_EXTENSION} in {dir}: rank-*.log in it says why")))
        }
        [] => Ok(None),
        runs => {
            let names: Vec<_> = runs.iter().filter_map(|r| Some(r.file_name()?.to_string_lossy())).collect();
            Err(Failure::input(format!("{dir} holds several runs; name one of them: {}", names.join(", "))))
        }
    }
}

/// Returns whether no file of a folder could be an input. Its default output is none.
pub(crate) fn has_no_input(folder: &Path) -> bool {
    let is_input = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        !is_default_output(path) && (is_shard(path) || is_of_ranks(path) || is_looked_into(&name))
    };
    entries(folder).is_ok_and(|entries| !entries.iter().any(is_input))
}

fn nothing_in(folder: &Path) -> Failure {
    let dir = folder.display();
    if is_output(&folder.join(DEFAULT_OUTPUT)) {
        let database = folder.join(DEFAULT_OUTPUT);
        let why = format!("{dir} has nothing to merge but {DEFAULT_OUTPUT}, the output of a merge");
        return Failure::input(format!("{why}; name {} to merge it again", database.display()));
    }
    Failure::input(format!(
        "no *.{SHARD_EXTENSION} in {dir}, nor *.db, *.rpd, *.json, *.json.gz, *.proto, *.pftrace, *.pftrace.gz or *.csv of a profiler: was the program run under rpd-collect, and did it call roctx, MPI or RCCL?"
    ))
}

/// Returns a path without links, or the path itself if it cannot be resolved.
pub(super) fn canonical(path: &Path) -> PathBuf {
    fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
}
