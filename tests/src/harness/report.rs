use super::job::JobOutcome;
use std::fs;
use std::path::{Path, PathBuf};

/// A refusal as users should see it: the exit code, exactly one line that begins with `error:`, in
/// which all of `words` stand, and nothing that looks like a crash.
///
/// # Panics
/// If it is not so.
pub fn assert_refused(outcome: &JobOutcome, code: i32, words: &[&str]) {
    assert_eq!(outcome.code(), Some(code), "expected exit code {code} of\n{outcome}");
    assert_calm(outcome);
    let lines: Vec<&str> = outcome.stderr.lines().filter(|line| line.contains("error:")).collect();
    assert_eq!(lines.len(), 1, "expected exactly one line with \"error:\" of\n{outcome}");
    for word in words {
        assert!(lines[0].contains(word), "expected {word:?} in {:?} of\n{outcome}", lines[0]);
    }
}

/// No words of a crash.
fn assert_calm(outcome: &JobOutcome) {
    for word in ["panicked at", "RUST_BACKTRACE", "stack backtrace", "SIGSEGV", "memory allocation of"] {
        assert!(!outcome.stderr.contains(word), "unexpected {word:?} of\n{outcome}");
    }
}

/// Databases, journals, locks and partial files below a directory.
pub fn leftovers(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![folder.to_owned()];
    while let Some(folder) = open.pop() {
        for path in fs::read_dir(&folder).into_iter().flatten().flatten().map(|entry| entry.path()) {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if path.is_dir() {
                open.push(path);
            } else if [".db", ".partial", ".lock", "-journal", "-wal", "-shm"]
                .iter()
                .any(|end| name.ends_with(end))
                || name.contains(".partial")
            {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}
