//! Explains how to open a written trace.

use super::file_note::ranks_of;
use super::index::{self, INDEX, StoredEntry};
use super::rank_order::{UI, page_in_order};
use super::serve::serve;
use crate::options::TraceFormat;
use rpd_console::Failure;
use rpd_console::wording::noun;
use rpd_files::open_input;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

/// Suffixes of the names of trace files.
const TRACE_SUFFIXES: [&str; 4] = [".pftrace.gz", ".pftrace", ".json.gz", ".json"];
/// Maximum number of files that are listed.
const MAX_LISTED_FILES: usize = 64;
/// Maximum number of characters of an address that is printed.
const MAX_PRINTED_ADDRESS: usize = 4_096;
/// Nanoseconds of a second.
const NS_PER_SECOND: f64 = 1e9;

/// The files of a trace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WrittenTrace {
    /// Folder of the files.
    pub folder: PathBuf,
    /// Files in order of time.
    pub files: Vec<TraceFile>,
    /// Whether the folder has an index.
    pub has_index: bool,
}

/// A file of a trace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TraceFile {
    /// Name in the folder, without a path.
    pub name: String,
    /// Begin and end, ns since the start of the job, if an index states them.
    pub times: Option<(i64, i64)>,
    /// Ranks with items in the file, such as `0-3,8`.
    pub ranks: String,
}

impl WrittenTrace {
    /// The only port from which the content security policy of ui.perfetto.dev allows fetching.
    pub const PERFETTO_PORT: u16 = 9001;

    /// Returns whether rpd-merge wrote a file beside databases and Perfetto traces as a part of a trace.
    pub fn is_part(path: &Path) -> bool {
        TraceFormat::is_ours(path) || index::is_ours(path)
    }

    /// Prints how to open the trace, or serves it on a port of this machine if one is given.
    ///
    /// # Errors
    /// If the trace cannot be served.
    pub fn open(&self, port: Option<u16>) -> Result<(), Failure> {
        let ssh = ssh_target();
        match port {
            None => eprint!("{}", self.instructions(&ssh)),
            Some(port) => serve(self, port, &ssh)?,
        }
        Ok(())
    }

    /// Returns the trace at a path: a file with the name of a trace or written as one, or a folder with an index. Returns
    /// `None` if there is none.
    pub fn at(path: &Path) -> Result<Option<WrittenTrace>, Failure> {
        if path.ends_with(INDEX) && !path.is_dir() {
            let folder = path.parent().filter(|parent| !parent.as_os_str().is_empty());
            return WrittenTrace::at(folder.unwrap_or(Path::new(".")));
        }
        if !path.is_dir() {
            let (folder, name) = (path.parent().unwrap_or(Path::new("")), path.file_name());
            let is_named_so = name.and_then(|name| name.to_str()).is_some_and(|name| is_trace(folder, name));
            let is_trace = is_named_so || TraceFormat::is_ours(path);
            return if is_trace { WrittenTrace::of(path).map(Some) } else { Ok(None) };
        }
        let index = path.join(INDEX);
        let Ok(file) = open_input(&index) else { return Ok(None) };
        let damaged = |why: String| {
            Failure::input(format!(
                "{}: {why}; write the trace again, or name one of its files",
                index.display()
            ))
        };
        let files = index::read(file).map_err(damaged)?.files;
        let mut known = Vec::with_capacity(files.len());
        for StoredEntry { name, from_ns, to_ns, ranks } in files {
            if !is_trace(path, &name) {
                return Err(damaged(format!("{name:?} is not there, or no file of a trace")));
            }
            known.push(TraceFile { name, times: Some((from_ns, to_ns)), ranks: list_only(ranks) });
        }
        if known.is_empty() {
            return Err(damaged("it lists no files".to_owned()));
        }
        Ok(Some(WrittenTrace { folder: path.to_path_buf(), files: known, has_index: true }))
    }

    /// Returns the trace that was written to a path: a file with any name, or a folder with an index.
    pub fn of(path: &Path) -> Result<WrittenTrace, Failure> {
        let missing =
            || Failure::input(format!("{} is not a trace; name one, or its folder", path.display()));
        if path.is_dir() {
            return WrittenTrace::at(path)?.ok_or_else(missing);
        }
        let name = path.file_name().and_then(|name| name.to_str()).ok_or_else(missing)?.to_owned();
        let folder = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let ranks = list_only(ranks_of(path).unwrap_or_default());
        let file = TraceFile { name, times: None, ranks };
        Ok(WrittenTrace { folder: folder.to_path_buf(), files: vec![file], has_index: false })
    }

    /// Returns the names of all files, the index last.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let index = self.has_index.then_some(INDEX);
        self.files.iter().map(|file| file.name.as_str()).chain(index)
    }

    /// Returns a table of the files. `of_file` returns the location of a file.
    pub(super) fn table(&self, of_file: impl Fn(&TraceFile) -> String) -> String {
        let mut text = String::new();
        for file in self.files.iter().take(MAX_LISTED_FILES) {
            let times = file.times.map_or(String::new(), |(from, to)| {
                format!("{:>12.6} s to {:>12.6} s  ", from as f64 / NS_PER_SECOND, to as f64 / NS_PER_SECOND)
            });
            let ranks = if file.ranks.is_empty() { String::new() } else { format!("  ranks {}", file.ranks) };
            let _ = writeln!(text, "  {times}{}{ranks}", of_file(file));
        }
        if self.files.len() > MAX_LISTED_FILES {
            let _ = writeln!(text, "  and {} more: {INDEX} lists all", self.files.len() - MAX_LISTED_FILES);
        }
        text
    }

    /// Returns the instructions for opening the trace.
    fn instructions(&self, ssh: &str) -> String {
        let folder = fs::canonicalize(&self.folder).unwrap_or_else(|_| self.folder.clone());
        let first = self.files.first().map_or("", |file| &file.name);
        let name = if self.has_index { self.folder.clone() } else { self.folder.join(first) };
        let mut text = format!("trace: {} in {}\n", counted_files(self.files.len()), folder.display());
        text += &self.table(|file| file.name.clone());
        let _ = write!(
            text,
            "open:  {UI}, \"Open trace file\"; the browser reads it, nothing is uploaded\n\
             ssh:   on this machine  rpd-merge --serve {}\n       \
             on yours         ssh -L 9001:127.0.0.1:9001 {ssh}\n       \
             then open the address that the first one prints\n       \
             or copy it:      scp {ssh}:{}/{first} .\n",
            quoted(&name),
            quoted(&folder),
        );
        if self.files.len() > 1 {
            text += "       neighbours open as one: gunzip and cat them\n";
        }
        if let Some(page) = page_in_order(self.files.iter().map(|file| &*file.ranks)) {
            text += "order: if the UI does not show the ranks in order, ";
            match page.len() <= MAX_PRINTED_ADDRESS {
                true => _ = writeln!(text, "open the file at\n       {page}"),
                false => {
                    text += "let rpd-merge --serve print an address that does, or write --tracks plain\n"
                }
            }
        }
        text
    }
}

/// Removes all characters that a list of ranks does not have.
fn list_only(mut ranks: String) -> String {
    ranks.retain(|c| c.is_ascii_digit() || matches!(c, ',' | '-' | ' '));
    ranks
}

/// Returns whether a name can be used in a URL without escapes.
pub(super) fn is_plain(name: &str) -> bool {
    has_only(name, b"._-+,=@")
}

/// Returns whether a text has only ASCII letters, digits and these characters.
fn has_only(text: &str, others: &[u8]) -> bool {
    text.bytes().all(|byte| byte.is_ascii_alphanumeric() || others.contains(&byte))
}

/// Returns whether a name is that of a trace file in a folder, without a path.
fn is_trace(folder: &Path, name: &str) -> bool {
    let has_suffix = TRACE_SUFFIXES.iter().any(|suffix| name.ends_with(suffix));
    // The file itself, not the target of a link.
    let is_there = || fs::symlink_metadata(folder.join(name)).is_ok_and(|found| found.is_file());
    is_plain(name) && has_suffix && name != INDEX && !name.starts_with('.') && is_there()
}

pub(super) fn counted_files(files: usize) -> String {
    format!("{files} {}", noun(files as u64, "file"))
}

/// Quotes a path for a shell.
fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    if !text.is_empty() && has_only(&text, b"/._-+:,=@") {
        return text;
    }
    format!("'{}'", text.replace('\'', "'\\''"))
}

/// Returns user and host of this process for `ssh`: `me@login1`.
fn ssh_target() -> String {
    let or = |text: String, otherwise: &str| match !text.is_empty() && has_only(&text, b"._-") {
        true => text,
        false => otherwise.to_owned(),
    };
    let user = ["USER", "LOGNAME"].iter().find_map(|name| std::env::var(name).ok()).unwrap_or_default();
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    format!("{}@{}", or(user, "user"), or(host, "host"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;
    use std::os::unix::fs::symlink;

    fn folder(names: &[&str], index: &serde_json::Value) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for name in names {
            fs::write(folder.path().join(name), "").unwrap();
        }
        fs::write(folder.path().join(INDEX), index.to_string()).unwrap();
        folder
    }

    #[test]
    fn a_trace_is_found_by_its_index_or_its_name() {
        let names = ["trace-00001-of-00002.pftrace.gz", "trace-00002-of-00002.pftrace.gz"];
        let entry = |name: &str| json!({"name": name, "from_ns": 0, "to_ns": 1_500_000_000, "ranks": "0-3", "more": 1});
        let folder = folder(&names, &json!({"version": 1, "files": names.map(entry)}));
        let trace = WrittenTrace::at(folder.path()).unwrap().unwrap();
        assert_eq!(trace.names().collect::<Vec<_>>(), [names[0], names[1], INDEX]);
        let instructions = trace.instructions("me@login1");
        for wanted in [
            "2 files in /",
            "0.000000 s to     1.500000 s  trace-00002-of-00002.pftrace.gz  ranks 0-3\n",
            "https://ui.perfetto.dev",
            "ssh -L 9001:127.0.0.1:9001 me@login1\n",
        ] {
            assert!(instructions.contains(wanted), "{wanted:?} is not in\n{instructions}");
        }

        let one = WrittenTrace::at(&folder.path().join(names[1])).unwrap().unwrap();
        assert_eq!(one.names().collect::<Vec<_>>(), [names[1]]);
        assert_eq!(WrittenTrace::at(&folder.path().join("trace.db")).unwrap(), None);
        assert_eq!(WrittenTrace::at(&folder.path().join("missing.pftrace")).unwrap(), None);
        assert_eq!(WrittenTrace::at(tempfile::tempdir().unwrap().path()).unwrap(), None);
    }

    #[test]
    fn an_index_names_nothing_but_traces_in_its_folder() {
        let outside = tempfile::tempdir().unwrap();
        let secret = outside.path().join("secret.json");
        fs::write(&secret, "").unwrap();
        let refused = |name: &str| {
            let folder = folder(
                &["notes.txt", "a b.json"],
                &json!({"version": 1, "files": [{"name": name, "from_ns": 0, "to_ns": 1}]}),
            );
            symlink(&secret, folder.path().join("link.json")).unwrap();
            let error = WrittenTrace::at(folder.path()).unwrap_err().to_string();
            assert!(error.contains("is not there, or no file of a trace"), "{error}");
        };
        let up = format!("../{}/secret.json", outside.path().file_name().unwrap().display());
        for name in
            [secret.to_str().unwrap(), &up, "link.json", "notes.txt", INDEX, "", "missing.json", "a b.json"]
        {
            refused(name);
        }
        for text in [
            json!({"version": 1, "files": []}),
            json!([]),
            json!({"version": 1, "files": [{"name": 5}]}),
            json!({"version": 2, "files": [{"name": "a b.json", "from_ns": 0, "to_ns": 1}]}),
        ] {
            assert_eq!(
                WrittenTrace::at(folder(&[], &text).path()).map_err(|failure| failure.exit()).err(),
                Some(rpd_console::Exit::Input),
                "{text}"
            );
        }
    }

    #[test]
    fn paths_are_quoted_for_the_shell() {
        for (path, wanted) in
            [("a/b-1.gz", "a/b-1.gz"), ("my run", "'my run'"), ("it's", "'it'\\''s'"), ("", "''")]
        {
            assert_eq!(quoted(Path::new(path)), wanted);
        }
    }
}
