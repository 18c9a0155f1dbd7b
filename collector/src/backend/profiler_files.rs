//! Sorts the files that a profiler left in its folder by their names.

use std::fs;
use std::path::{Path, PathBuf};

/// Maximum depth of folders.
const MAX_DEPTH: usize = 6;
/// Maximum number of files.
const MAX_FILES: usize = 100_000;
/// Extensions of files for the hooks and profilers themselves.
const INTERNAL_EXTENSIONS: [&str; 5] = ["cfg", "py", "pyc", "partial", "state"];
/// Extensions of files that a profiler writes for users.
const TEXT_EXTENSIONS: [&str; 3] = ["txt", "csv", "log"];
/// Maximum length of a name that is made from a path.
const MAX_NAME_LENGTH: usize = 120;

/// The regular files below a folder. Links are not followed.
#[derive(Default)]
pub(super) struct ProfilerFiles {
    /// Log lines of a hook.
    pub(super) notes: Vec<PathBuf>,
    /// Marks, by a hook, of processes in which the profiler wrote no file.
    pub(super) marks: Vec<PathBuf>,
    /// Tables and texts for users.
    pub(super) texts: Vec<PathBuf>,
    /// Files that may be traces.
    pub(super) traces: Vec<PathBuf>,
    /// There are more files, too deep or too many.
    pub(super) more: bool,
}

impl ProfilerFiles {
    /// Sorts the files below a folder.
    pub(super) fn in_folder(folder: &Path) -> ProfilerFiles {
        let (files, more) = files_in(folder);
        let mut found = ProfilerFiles { more, ..ProfilerFiles::default() };
        for path in files.into_iter().filter(|path| !is_internal(path)) {
            if has_extension(&path, &["note"]) {
                found.notes.push(path);
            } else if has_extension(&path, &["mark"]) {
                found.marks.push(path);
            } else if has_extension(&path, &TEXT_EXTENSIONS) {
                found.texts.push(path);
            } else {
                found.traces.push(path);
            }
        }
        found
    }
}

/// Returns the files below a folder, and whether there are more.
pub(super) fn files_in(folder: &Path) -> (Vec<PathBuf>, bool) {
    let (mut files, mut more) = (Vec::new(), false);
    let mut folders = vec![(folder.to_owned(), 0)];
    while let Some((folder, depth)) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            match entry.file_type() {
                Ok(kind) if kind.is_dir() && depth < MAX_DEPTH => folders.push((entry.path(), depth + 1)),
                Ok(kind) if kind.is_file() && files.len() < MAX_FILES => files.push(entry.path()),
                Ok(kind) => more |= kind.is_dir() || kind.is_file(),
                Err(_) => more = true,
            }
        }
    }
    files.sort();
    (files, more)
}

/// Whether a file accompanies another one, belongs to a hook, or is the description that rocprof-sys writes
/// of itself, with the whole environment.
fn is_internal(path: &Path) -> bool {
    let name = path.file_name().map_or(String::new(), |name| name.to_string_lossy().into_owned());
    has_extension(path, &INTERNAL_EXTENSIONS)
        || ["metadata-", "functions-"].iter().any(|part| name.contains(part) && name.ends_with(".json"))
        || ["-wal", "-shm", "-journal", ".rpd.json"].iter().any(|suffix| name.ends_with(suffix))
        || path.components().any(|part| part.as_os_str() == "__pycache__")
}

fn has_extension(path: &Path, extensions: &[&str]) -> bool {
    path.extension().is_some_and(|found| extensions.iter().any(|extension| found == *extension))
}

/// Whether a file has the name of a Perfetto trace.
pub(super) fn is_trace(path: &Path) -> bool {
    has_extension(path, &["proto", "pftrace"])
}

/// Converts a path below a folder to a single file name and its extension: `node7/41_kernel_stats.csv` becomes
/// `node7.41_kernel_stats` and `csv`.
pub(super) fn flat_name(path: &Path, folder: &Path) -> (String, String) {
    let plain = |text: &str| -> String {
        let plain = |c: char| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '_' };
        text.chars().map(plain).collect()
    };
    let below = path.strip_prefix(folder).unwrap_or(path);
    let extension =
        below.extension().map_or("txt".to_owned(), |extension| plain(&extension.to_string_lossy()));
    let parts: Vec<String> = below
        .with_extension("")
        .components()
        .map(|part| plain(&part.as_os_str().to_string_lossy()))
        .collect();
    let name = parts.join(".");
    // The end of a path is more specific than its start.
    let cut = name.len().saturating_sub(MAX_NAME_LENGTH);
    (name.get(cut..).unwrap_or_default().to_owned(), extension.chars().take(MAX_NAME_LENGTH).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_journals_and_traces_are_distinguished() {
        let folder = tempfile::tempdir().unwrap();
        let names = [
            "node/1_results.db",
            "node/1_results.db-wal",
            "node/1_kernel_stats.csv",
            "hook.note",
            "settings.cfg",
            "python/__pycache__/x.bin",
            "torch-1.pt.trace.json",
            "torch-1.pt.trace.json.rpd.json",
            "metadata-1.json",
            "mine-metadata-1.json",
            "mine.functions-1.json",
            "torch-1.mark",
            "torch.loaded.state",
            "wall_clock-1.txt",
        ];
        for name in names {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "x").unwrap();
        }
        let found = ProfilerFiles::in_folder(folder.path());
        let names = |paths: &[PathBuf]| -> Vec<(String, String)> {
            paths.iter().map(|path| flat_name(path, folder.path())).collect()
        };
        let of = |name: &str, extension: &str| (name.to_owned(), extension.to_owned());
        assert_eq!(names(&found.notes), [of("hook", "note")]);
        assert_eq!(names(&found.marks), [of("torch-1", "mark")]);
        assert_eq!(names(&found.texts), [of("node.1_kernel_stats", "csv"), of("wall_clock-1", "txt")]);
        assert_eq!(names(&found.traces), [of("node.1_results", "db"), of("torch-1.pt.trace", "json")]);
        assert!(!found.more);
    }

    #[test]
    fn what_is_too_deep_is_reported() {
        let folder = tempfile::tempdir().unwrap();
        let deep = (0..=MAX_DEPTH).fold(folder.path().to_owned(), |path, _| path.join("d"));
        fs::create_dir_all(&deep).unwrap();
        fs::write(deep.join("trace.db"), "x").unwrap();
        let found = ProfilerFiles::in_folder(folder.path());
        assert!(found.more && found.traces.is_empty());
    }

    #[test]
    fn a_name_is_plain_and_not_too_long() {
        let (name, extension) = flat_name(Path::new("/s/a b/c\"d.tx t"), Path::new("/s"));
        assert_eq!((name.as_str(), extension.as_str()), ("a_b.c_d", "tx_t"));
        let (name, _) = flat_name(Path::new(&format!("/s/{}.db", "é".repeat(300))), Path::new("/s"));
        assert_eq!(name.len(), MAX_NAME_LENGTH);
    }
}
