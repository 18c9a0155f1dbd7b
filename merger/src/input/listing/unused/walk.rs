//! The walk over all folders below the inputs.

use crate::input::listing::find::{canonical, is_folder, is_looked_into, refused};
use crate::input::listing::unused::judge::{
    LATE, NOT_READ_OTHER, RUN_FILE, has_companions, is_run_file, judge,
};
use crate::input::listing::{InputListing, ListedFile, UnusedFiles, UnusedKind, is_shard, is_text};
use crate::input::path_text;
use rpd_console::wording::counted;
use rpd_files::{EntryKind, open_input_folder};
use rpd_foreign::holds_less;
use std::collections::{HashMap, HashSet, VecDeque};
use std::fs;
use std::path::{Path, PathBuf};

/// Maximum number of files and folders that become inputs that cannot be read.
const MAX_REFUSED: usize = 10_000;
/// Maximum number of folder entries that are examined, not counting those that are merged.
pub(super) const MAX_ENTRIES: usize = 200_000;
/// Maximum number of files in folders outside of the search that are examined.
pub(super) const MAX_SNIFFED: usize = 10_000;
/// Lowercase suffixes that hardly any other program uses.
const PROFILE_SUFFIXES: [&str; 3] = [".db", ".rpd", ".rpdshard"];

const NOT_TEXT: &str = "has a name that is not UTF-8; rename it, and merge again";
const NOT_READ: &str = "lies in a folder that is not looked into, and was not read";
const NOT_SEARCHED: &str =
    "lies in a folder that is not looked into; name the file or its folder to have it merged";

/// A walk over all folders below the inputs.
#[derive(Default)]
pub(super) struct FolderWalk {
    /// Files and folders that are listed.
    listed: HashSet<PathBuf>,
    /// Canonical paths of the listed files, and their paths as listed; filled when first needed.
    merged: Option<HashMap<PathBuf, String>>,
    searched: HashSet<PathBuf>,
    /// Folders with inputs of formats beside which profilers write other files.
    with_events: HashSet<PathBuf>,
    visited: HashSet<PathBuf>,
    unused: UnusedFiles,
    refused: Vec<ListedFile>,
    /// Number of files that look like profiler data, beyond [`MAX_REFUSED`].
    further_refused: u64,
    entries: usize,
    sniffed: usize,
    /// Number of files in searched folders with names that are not those of profiler files.
    others: usize,
}

impl FolderWalk {
    pub(super) fn new(found: &InputListing) -> FolderWalk {
        FolderWalk {
            listed: found.files.iter().map(|listed| listed.path.clone()).collect(),
            with_events: (found.files.iter())
                .filter(|listed| listed.format.as_ref().is_ok_and(|format| has_companions(*format)))
                .filter_map(|listed| listed.path.parent().map(Path::to_path_buf))
                .collect(),
            searched: found.searched.iter().map(|folder| canonical(folder)).collect(),
            unused: UnusedFiles { folders: found.folders.clone(), ..UnusedFiles::default() },
            ..FolderWalk::default()
        }
    }

    /// Examines the files of a folder, and appends its subfolders to the queue.
    pub(super) fn folder(&mut self, folder: &Path, queue: &mut VecDeque<PathBuf>) {
        let place = canonical(folder);
        if self.unused.is_cut || !self.visited.insert(place.clone()) {
            return;
        }
        let (mut files, mut folders) = match self.entries_of(folder) {
            Ok(entries) => entries,
            Err(error) => {
                let reason =
                    format!("cannot be listed, and may hold profiles ({error}); check its permissions");
                self.unused.add(UnusedKind::Refused, folder, &reason);
                self.refuse(folder, &reason);
                return;
            }
        };
        files.sort();
        folders.sort();
        queue.extend(folders);
        let is_searched = self.searched.contains(&place);
        let before = self.unused.not_read;
        let not_searched: Vec<&PathBuf> = files.iter().filter(|path| self.file(path, is_searched)).collect();
        if !not_searched.is_empty() {
            let is_run = not_searched.iter().any(|path| is_shard(path));
            let why = self.why_not_searched(folder, is_run);
            let by_names = self.unused.not_read > before;
            self.refuse(folder, &not_searched_text(not_searched.len(), by_names, &why));
        }
    }

    /// Returns why a folder is not searched.
    fn why_not_searched(&self, folder: &Path, is_run: bool) -> String {
        let below = self.unused.folders.iter().filter_map(|input| folder.strip_prefix(input).ok());
        match below.map(|below| below.components().count()).min() {
            _ if is_run => "runs of rpd-collect are merged by name".to_owned(),
            Some(levels @ 2..) => {
                format!("it lies {levels} levels below the input, and the search ends at the first")
            }
            _ => "other inputs lie in the folder above it".to_owned(),
        }
    }

    /// Returns the files and folders in a folder that are not listed, up to the limit of the walk.
    fn entries_of(&mut self, folder: &Path) -> std::io::Result<(Vec<PathBuf>, Vec<PathBuf>)> {
        let (mut files, mut folders) = (Vec::new(), Vec::new());
        for (name, kind) in open_input_folder(folder)?.entries(MAX_ENTRIES)? {
            let path = folder.join(name);
            let is_link_to_folder = kind == EntryKind::Link && is_folder(&path);
            // Links to folders are followed only if the search followed them.
            if kind == EntryKind::Folder || is_link_to_folder && self.searched.contains(&canonical(&path)) {
                folders.push(path);
            } else if is_link_to_folder || self.listed.contains(&path) {
                continue;
            } else {
                files.push(path);
            }
            self.entries += 1;
            if self.entries >= MAX_ENTRIES {
                self.unused.is_cut = true;
                break;
            }
        }
        Ok((files, folders))
    }

    /// Counts a file that is not listed. Returns whether it is in a folder outside of the search and looks like
    /// profiler data.
    fn file(&mut self, path: &Path, is_searched: bool) -> bool {
        if let Some(listed) = self.listed_as(path) {
            if fs::symlink_metadata(path).is_ok_and(|found| found.is_symlink()) {
                let reason = format!("is a link to {listed}, which is an input already");
                self.unused.add(UnusedKind::Duplicate, path, &reason);
            }
            return false;
        }
        let (kind, reason) =
            if is_searched { self.judge_searched(path) } else { self.judge_unsearched(path) };
        match kind {
            UnusedKind::Refused if !is_searched => {
                self.unused.add(kind, path, if reason == LATE { NOT_SEARCHED } else { reason });
                return true;
            }
            UnusedKind::Refused if self.is_companion(path) => {
                self.unused.add(UnusedKind::Companion, path, reason)
            }
            UnusedKind::Refused if reason == LATE && !is_text(path) => self.refuse(path, NOT_TEXT),
            UnusedKind::Refused => match refused(path) {
                Some(rule) => self.refuse(path, &format!("is not read: {rule}")),
                None => self.refuse(path, reason),
            },
            kind => self.unused.add(kind, path, reason),
        }
        false
    }

    /// Returns whether a profiler wrote a file beside inputs of the same folder that contain more.
    fn is_companion(&self, path: &Path) -> bool {
        path.parent().is_some_and(|folder| self.with_events.contains(folder)) && holds_less(path)
    }

    /// Returns the listed path of the same file, if its name can be that of an input.
    fn listed_as(&mut self, path: &Path) -> Option<&String> {
        let name = path.file_name()?.to_string_lossy();
        if !is_looked_into(&name) && !is_shard(path) {
            return None;
        }
        let merged = || self.listed.iter().map(|path| (canonical(path), path_text(path))).collect();
        self.merged.get_or_insert_with(merged).get(&canonical(path))
    }

    /// Classifies a file of a searched folder by its content. Beyond a maximum number of files, reads only files with
    /// names of profiler files.
    fn judge_searched(&mut self, path: &Path) -> (UnusedKind, &'static str) {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        self.others += usize::from(!is_looked_into(&name) && !is_shard(path));
        judge(path, self.others <= MAX_SNIFFED)
    }

    /// Classifies a file of a folder outside of the search: by content up to a maximum number of files, then by name.
    fn judge_unsearched(&mut self, path: &Path) -> (UnusedKind, &'static str) {
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
        if self.sniffed < MAX_SNIFFED {
            self.sniffed += 1;
            return judge(path, true);
        }
        if is_run_file(&name, path) {
            return (UnusedKind::RunFile, RUN_FILE);
        }
        if !is_looked_into(&name) && !is_shard(path) {
            return (UnusedKind::Unrelated, NOT_READ_OTHER);
        }
        self.unused.not_read += 1;
        let is_profile = PROFILE_SUFFIXES.iter().any(|suffix| name.ends_with(suffix));
        (if is_profile { UnusedKind::Refused } else { UnusedKind::Unrelated }, NOT_READ)
    }

    /// Lists a file or folder, once, as an input that cannot be read.
    fn refuse(&mut self, path: &Path, reason: &str) {
        if self.listed.contains(path) {
            return;
        }
        if self.refused.len() >= MAX_REFUSED {
            self.further_refused += 1;
            return;
        }
        let format = Err(format!("{} {reason}", path_text(path)));
        self.refused.push(ListedFile { path: path.to_owned(), format, named: false, origin: None });
    }

    pub(super) fn finish(mut self) -> (UnusedFiles, Vec<ListedFile>) {
        if let (Some(last), 1..) = (self.refused.last_mut(), self.further_refused) {
            let more = format!("; {} further files are not named", self.further_refused);
            last.format =
                std::mem::replace(&mut last.format, Err(String::new())).map_err(|reason| reason + &more);
            *self.unused.counts.entry(UnusedKind::Refused).or_insert(0) += self.further_refused;
        }
        (self.unused, self.refused)
    }
}

/// Describes the profiles in a folder outside of the search, and what the user can do. `by_names`: not all files were
/// read.
fn not_searched_text(files: usize, by_names: bool, why: &str) -> String {
    let (files, look, them) = match files {
        1 => ("1 file".to_owned(), "that looks like a profile", "it"),
        files => (counted(files as u64, "file"), "that look like profiles", "them"),
    };
    let by_names = if by_names { " by their names" } else { "" };
    format!(
        "holds {files} {look}{by_names} and is not looked into, since {why}; name it to have {them} merged"
    )
}
