//! Files that are not merged, for the summary and for `--json`.

use crate::input::listing::{UnusedFile, UnusedFiles, UnusedKind};
use rpd_console::wording::{counted, grouped};
use serde::Serialize;
use std::path::Path;

/// Maximum number of names, or of name extensions, in a line.
const MAX_SHOWN_NAMES: usize = 3;

/// The files below the inputs that are not merged.
#[derive(Debug, Default, Serialize)]
pub struct NotUsed {
    /// Files by kind and path, at most 10,000.
    files_not_used: Vec<UnusedFile>,
    /// Number of further files.
    files_not_used_further: u64,
    /// Summary line about files without a warning: results of previous merges, and unrelated files.
    #[serde(skip)]
    pub(crate) line: Option<String>,
}

impl NotUsed {
    /// Builds the report from all files that are not merged.
    pub fn new(unused: UnusedFiles) -> NotUsed {
        let parts: Vec<String> =
            [companions(&unused), results(&unused), unrelated(&unused)].into_iter().flatten().collect();
        NotUsed {
            files_not_used: unused.files.clone(),
            files_not_used_further: unused.not_named(),
            line: (!parts.is_empty()).then(|| parts.join("; ")),
        }
    }
}

/// Joins the first few texts, with `...` if there are more.
fn first_few<'a>(all: impl Iterator<Item = String> + 'a, count: u64) -> String {
    let mut shown: Vec<String> = all.take(MAX_SHOWN_NAMES).collect();
    if count > shown.len() as u64 {
        shown.push("...".to_owned());
    }
    shown.join(", ")
}

/// Returns the names of the first files of a kind.
fn names(unused: &UnusedFiles, kind: UnusedKind) -> String {
    let files = unused.files.iter().filter(|file| file.kind == kind);
    let names = files.filter_map(|file| Some(Path::new(&file.path).file_name()?.display().to_string()));
    first_few(names, unused.count(kind))
}

fn companions(unused: &UnusedFiles) -> Option<String> {
    let count = unused.count(UnusedKind::Companion);
    let names = names(unused, UnusedKind::Companion);
    let files = counted(count, "file");
    (count > 0)
        .then(|| format!("{files} of a profiler, which hold less than the inputs beside them ({names})"))
}

fn results(unused: &UnusedFiles) -> Option<String> {
    let count = unused.count(UnusedKind::Result);
    let names = names(unused, UnusedKind::Result);
    (count > 0).then(|| format!("{} of a previous rpd-merge ({names})", counted(count, "result")))
}

fn unrelated(unused: &UnusedFiles) -> Option<String> {
    let count = unused.count(UnusedKind::Unrelated);
    let mut extensions: Vec<_> = unused.extensions.iter().collect();
    extensions.sort_by(|a, b| b.1.cmp(a.1).then(a.0.cmp(b.0)));
    let kinds = extensions.len() as u64;
    let extensions =
        extensions.into_iter().map(|(extension, count)| format!("{} {extension}", grouped(*count)));
    (count > 0).then(|| {
        let extensions = first_few(extensions, kinds);
        format!("{} that no profiler wrote ({extensions})", counted(count, "file"))
    })
}
