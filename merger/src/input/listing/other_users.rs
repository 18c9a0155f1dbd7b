//! Runs in an output folder that only other users can read.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Maximum number of runs that are named.
const MAX_NAMED: usize = 3;
/// Maximum number of entries of the folder that are examined.
const MAX_LOOKED_AT: usize = 10_000;

/// Returns the owner of a run's folder that this user cannot read, and advice how to merge it; `None` for any other
/// folder.
pub(super) fn closed_run(folder: &Path) -> Option<String> {
    is_closed(folder).then(|| advice(&owned(folder), folder))
}

/// Returns the same for all such runs in an output folder; `None` if there are none.
pub(super) fn runs_of_others(root: &Path) -> Option<String> {
    let entries = fs::read_dir(root).ok()?.flatten().take(MAX_LOOKED_AT).map(|entry| entry.path());
    let mut runs: Vec<PathBuf> = entries.filter(|path| is_closed(path)).collect();
    runs.sort();
    let named: Vec<String> = runs.iter().take(MAX_NAMED).map(|run| owned(run)).collect();
    let more = runs.len().checked_sub(MAX_NAMED).filter(|more| *more > 0);
    let more = more.map_or(String::new(), |more| format!(" and {more} more"));
    Some(advice(&(named.join(", ") + &more), runs.first()?))
}

fn advice(named: &str, run: &Path) -> String {
    format!(
        "{named} cannot be read by you; have its owner merge it, or share it (rpd-collect --share group), and then: \
         rpd-merge {} -o FILE",
        run.display()
    )
}

fn is_closed(path: &Path) -> bool {
    fs::read_dir(path).is_err_and(|error| error.kind() == ErrorKind::PermissionDenied)
}

fn owned(run: &Path) -> String {
    let owner =
        fs::symlink_metadata(run).map_or("another user".to_owned(), |run| format!("uid {}", run.uid()));
    format!("{} of {owner}", run.display())
}
