//! Files below the inputs that are not merged, each with its reason. Every file that a search of these folders finds
//! is either merged or counted here.
//!
//! [`find_all`] walks the folders again after `find` has listed the files to merge. Files that a profiler wrote, or may
//! have written, become listed inputs that cannot be read. The merge warns about each and counts it as lost. All other
//! files are only counted, and named in `--json`.

mod judge;
mod walk;

use crate::input::listing::find::{canonical, search};
use crate::input::listing::{InputListing, ListedFile};
use crate::input::path_text;
use judge::judge;
use rpd_console::Failure;
use rpd_console::wording::counted;
use rpd_files::{EntryKind, open_input_folder};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashSet, VecDeque};
use std::path::{Path, PathBuf};
use walk::{FolderWalk, MAX_ENTRIES, MAX_SNIFFED};

/// Maximum number of files that are named; further ones are counted.
const MAX_NAMED: usize = 10_000;
/// Maximum number of different name extensions of unrelated files that are counted separately.
const MAX_EXTENSIONS: usize = 1_000;
/// Maximum length of a name extension, bytes.
const MAX_EXTENSION_BYTES: usize = 12;
const OUTPUT_FOLDER: &str = "is where the output of this merge goes";

/// Why a file is not merged.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UnusedKind {
    /// A profiler wrote it, or may have written it, but it cannot be merged or was not examined. Also a folder that
    /// cannot be listed.
    Refused,
    /// Its rows are merged from another input.
    Duplicate,
    /// A profiler wrote it beside data that is merged. It contains less than that data: sums, descriptions, tables.
    Companion,
    /// `rpd-merge` wrote it.
    Result,
    /// It belongs to a run of `rpd-collect` and contains no events: logs, locks, addresses of agents.
    RunFile,
    /// No profiler wrote it, judged by its name or content.
    Unrelated,
}

/// A file that is not merged.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct UnusedFile {
    /// Category of the reason.
    pub kind: UnusedKind,
    /// Path, as [`path_text`] writes it.
    pub path: String,
    /// Reason, worded to follow the path.
    pub reason: String,
}

/// All files that are not merged.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct UnusedFiles {
    /// The first files, at most 10,000, by kind and path.
    pub files: Vec<UnusedFile>,
    /// Number of files of each kind, including those that are not named.
    counts: BTreeMap<UnusedKind, u64>,
    /// Number of unrelated files, by the extension of their names.
    pub extensions: BTreeMap<String, u64>,
    /// Number of files that have names of profiler files but were not read; they count as unrelated.
    not_read: u64,
    /// Inputs that are folders.
    pub folders: Vec<PathBuf>,
    /// Whether the walk ended before it examined all entries.
    is_cut: bool,
}

impl UnusedFiles {
    /// Returns the number of further files that are not merged and not named.
    pub fn not_named(&self) -> u64 {
        self.counts.values().sum::<u64>().saturating_sub(self.files.len() as u64)
    }

    /// Returns the number of files of a kind.
    pub fn count(&self, kind: UnusedKind) -> u64 {
        self.counts.get(&kind).copied().unwrap_or(0)
    }

    /// Returns a line for each limit that was reached. Contents of the files beyond it are unknown.
    pub fn notes(&self) -> impl Iterator<Item = String> + '_ {
        let cut = self.is_cut.then(|| {
            format!(
                "more than {MAX_ENTRIES} files lie below the inputs and are not merged: the others were not looked at; name \
                 the folders that hold profiles"
            )
        });
        let not_read = (self.not_read > 0).then(|| {
            format!(
                "{} in folders that are not looked into may be profiles by their names, and were not read, since the first \
                 {MAX_SNIFFED} were; name the folders that hold profiles",
                counted(self.not_read, "file")
            )
        });
        cut.into_iter().chain(not_read)
    }

    /// Adds a file that is not merged.
    pub(crate) fn add(&mut self, kind: UnusedKind, path: &Path, reason: &str) {
        *self.counts.entry(kind).or_insert(0) += 1;
        if kind == UnusedKind::Unrelated {
            self.count_extension(path);
        }
        if self.files.len() < MAX_NAMED {
            let path = path_text(path);
            let reason =
                reason.strip_prefix(&path).unwrap_or(reason).trim_start_matches([':', ' ']).to_owned();
            self.files.push(UnusedFile { kind, path, reason });
        }
    }

    /// Records the output path. An existing output there will be replaced, and so will files that were listed
    /// `before` and are not in `left`.
    pub(crate) fn note_output(&mut self, output: &Path, before: &[PathBuf], left: &[ListedFile]) {
        let place = canonical(output);
        let is_replaced = |file: &&mut UnusedFile| {
            file.kind == UnusedKind::Result && canonical(Path::new(&file.path)) == place
        };
        if let Some(file) = self.files.iter_mut().find(is_replaced) {
            (file.kind, file.reason) = (UnusedKind::RunFile, OUTPUT_FOLDER.to_owned());
            *self.counts.entry(UnusedKind::RunFile).or_insert(0) += 1;
            let results = self.counts.entry(UnusedKind::Result).or_insert(1);
            *results = results.saturating_sub(1);
        }
        let left: HashSet<&Path> = left.iter().map(|listed| listed.path.as_path()).collect();
        before.iter().filter(|path| !left.contains(path.as_path())).for_each(|path| {
            self.add(UnusedKind::RunFile, path, OUTPUT_FOLDER);
        });
    }

    fn count_extension(&mut self, path: &Path) {
        let extension = path.extension().map(|extension| extension.to_string_lossy().into_owned());
        let extension = extension
            .filter(|extension| extension.len() <= MAX_EXTENSION_BYTES)
            .map(|extension| format!("*.{extension}"));
        let mut extension = extension.unwrap_or_else(|| "others".to_owned());
        if self.extensions.len() >= MAX_EXTENSIONS && !self.extensions.contains_key(&extension) {
            extension = "others".to_owned();
        }
        *self.extensions.entry(extension).or_insert(0) += 1;
    }
}

/// Lists the files to merge as `find` does, and all other files below the inputs. Files that look like profiler data
/// but cannot be merged are listed with their reasons, even if there is nothing to merge.
///
/// # Errors
/// [`Failure::input`], if an input cannot be listed or contains no file that looks like profiler data.
pub(crate) fn find_all(inputs: &[PathBuf]) -> Result<(InputListing, UnusedFiles), Failure> {
    let mut found = search(inputs, &has_refused)?;
    let mut walk = FolderWalk::new(&found);
    let mut queue: VecDeque<PathBuf> = found.folders.iter().cloned().collect();
    while let Some(folder) = queue.pop_front() {
        walk.folder(&folder, &mut queue);
    }
    let (unused, refused) = walk.finish();
    found.files.extend(refused);
    Ok((found, unused))
}

/// Returns whether one of these searched folders contains a file that will be listed with the reason why it cannot be
/// merged.
fn has_refused(searched: &[PathBuf]) -> bool {
    let mut looked_at = 0;
    let mut is_refused = |path: &Path| {
        looked_at += 1;
        judge(path, looked_at <= MAX_SNIFFED).0 == UnusedKind::Refused
    };
    searched.iter().any(|folder| {
        let entries =
            open_input_folder(folder).and_then(|opened| opened.entries(MAX_ENTRIES)).unwrap_or_default();
        let mut files = entries.into_iter().filter(|(_, kind)| *kind != EntryKind::Folder);
        files.any(|(name, _)| is_refused(&folder.join(name)))
    })
}
