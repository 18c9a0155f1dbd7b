//! Rows that are lost because a whole input is not merged.

use crate::input::path_text::path_text;
use rpd_console::wording::counted;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// Why the rows of an input are not in the output.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum LostCause {
    /// The input became unreadable during the merge.
    InputVanished,
    /// Another input has the same identity but other rows, and is merged instead.
    OtherContents,
    /// The file looks like data of a profiler, but cannot be merged or was not examined.
    FileNotUsed,
}

impl LostCause {
    /// Returns the short name for reports and metadata.
    pub fn name(self) -> &'static str {
        match self {
            LostCause::InputVanished => "input_vanished",
            LostCause::OtherContents => "other_contents",
            LostCause::FileNotUsed => "file_not_used",
        }
    }
}

/// Rows of inputs that are not merged.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LostRows {
    /// Name of the table, if known.
    pub table: Option<String>,
    /// Cause of the loss.
    pub cause: LostCause,
    /// Number of rows, if known.
    pub rows: Option<u64>,
    /// The file, if all of it is lost.
    pub file: Option<LostFile>,
}

/// A file that is lost completely.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct LostFile {
    /// Path below the folder of the inputs, so that the ledger does not depend on the folder's location.
    pub name: String,
    /// Reason, worded to follow the name.
    pub reason: String,
}

/// Maximum number of files that the ledger names; it counts the others.
const MAX_NAMED: usize = 100;

/// Returns the ledger entries of files that are not used. `files` has paths, and reasons that may contain these
/// paths; `folders` are the inputs that are folders.
pub(crate) fn files_not_used(files: &[(PathBuf, String)], folders: &[PathBuf]) -> Vec<LostRows> {
    let (first, further) = files.split_at(files.len().min(MAX_NAMED));
    let paths: Vec<&Path> = first.iter().map(|(path, _)| path.as_path()).collect();
    let names = short_names(&paths, folders);
    let named = first.iter().zip(names).map(|((path, reason), name)| {
        let reason = without_folders(reason, path, folders);
        let reason = [&path_text(path), &name]
            .iter()
            .find_map(|name| reason.strip_prefix(name.as_str()))
            .unwrap_or(&reason);
        LostFile { reason: reason.trim_start_matches([':', ' ']).to_owned(), name }
    });
    let mut named: Vec<LostFile> = named.collect();
    // Ordered by name, not by path.
    named.sort();
    let more = (!further.is_empty())
        .then(|| LostFile { name: counted(further.len() as u64, "further file"), reason: String::new() });
    let lost = |file| LostRows { table: None, cause: LostCause::FileNotUsed, rows: None, file: Some(file) };
    named.into_iter().chain(more).map(lost).collect()
}

/// Returns file names that do not depend on the location of the inputs: paths below the input folders. Equal names
/// are extended by parent folders until they differ.
fn short_names(paths: &[&Path], folders: &[PathBuf]) -> Vec<String> {
    let parts: Vec<Vec<&OsStr>> = paths.iter().map(|path| path.iter().collect()).collect();
    let mut lengths: Vec<usize> = paths.iter().map(|path| below(path, folders).max(1)).collect();
    let end = |place: usize, length: usize| {
        let parts = parts.get(place).map_or(&[][..], Vec::as_slice);
        parts.get(parts.len().saturating_sub(length)..).unwrap_or_default()
    };
    loop {
        let mut uses: HashMap<&[&OsStr], usize> = HashMap::new();
        lengths
            .iter()
            .enumerate()
            .for_each(|(place, length)| *uses.entry(end(place, *length)).or_default() += 1);
        let mut is_longer = false;
        for (place, length) in lengths.iter_mut().enumerate() {
            let name = end(place, *length);
            if uses.get(name).is_some_and(|uses| *uses > 1) && end(place, *length + 1).len() > name.len() {
                (*length, is_longer) = (*length + 1, true);
            }
        }
        if !is_longer {
            break;
        }
    }
    let name = |(place, length): (usize, usize)| path_text(&end(place, length).iter().collect::<PathBuf>());
    lengths.into_iter().enumerate().map(name).collect()
}

/// Returns the number of path components below the innermost of these folders that contains the path; 0 if none does.
fn below(path: &Path, folders: &[PathBuf]) -> usize {
    let below = folders.iter().filter_map(|folder| path.strip_prefix(folder).ok());
    below.map(|rest| rest.iter().count()).min().unwrap_or(0)
}

/// Removes the folders of `path` from a reason.
fn without_folders(reason: &str, path: &Path, folders: &[PathBuf]) -> String {
    let holds = folders.iter().filter(|folder| path.starts_with(folder));
    let parents = holds.map(PathBuf::as_path).chain(path.parent());
    let mut reason = reason.to_owned();
    for folder in parents.map(|folder| format!("{}/", path_text(folder))).filter(|folder| folder.len() > 1) {
        reason = reason.replace(&folder, "");
    }
    reason
}

/// Sums up the rows, with one entry per table, cause and file.
pub(crate) fn sum(lost: impl IntoIterator<Item = LostRows>) -> Vec<LostRows> {
    let mut sums: BTreeMap<_, Option<u64>> = BTreeMap::new();
    for LostRows { table, cause, rows, file } in lost {
        let sum = sums.entry((table, cause, file)).or_insert(Some(0));
        *sum = sum.zip(rows).map(|(a, b)| a.saturating_add(b));
    }
    sums.into_iter().map(|((table, cause, file), rows)| LostRows { table, cause, rows, file }).collect()
}
