//! Imports the files of one profiler, or explains why there are none.

use super::fetch_file::MAX_LINES_PER_FILE;
use super::profiler_harvest::{MAX_TEXT_BYTES, ProfilerHarvest, ProfilerOutcome};
use super::unrecorded_rows::{reason_with_files, reason_without_file};
use crate::backend::BackendKind;
use crate::backend::profiler_files::{ProfilerFiles, is_trace};
use crate::backend::profilers::torch;
use crate::host::bounded_read::read_at_most;
use crate::log::warn;
use rpd_foreign::{Format, format_of};
use rpd_shard::record::{ProcessExit, ProfilerLossReason};
use rustix::process::Signal;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Maximum number of text files of one profiler that are copied.
const MAX_TEXTS: usize = 200;

/// A file of a profiler, and its format or why it has none.
type ProfilerFile = (PathBuf, Result<Format, &'static str>);

impl ProfilerHarvest<'_> {
    /// Whether this profiler should have started the command, and did not.
    fn was_not_started(&self, kind: BackendKind) -> bool {
        self.target.wrapper_did_not_start && kind.starts_command()
    }

    /// Imports the files of one profiler.
    pub(super) fn import_backend(&mut self, kind: BackendKind, folder: &Path) {
        let backend = kind.name();
        let found = ProfilerFiles::in_folder(folder);
        for note in &found.notes {
            for line in text_of(note).lines().take(MAX_LINES_PER_FILE) {
                warn(format_args!("{backend}: {line}"));
            }
        }
        if found.more || found.texts.len() > MAX_TEXTS {
            self.lost = true;
            self.lose(backend, ProfilerLossReason::TooManyFiles);
            warn(format_args!(
                "warning: {backend}: not all of its files are imported: there are too many, or folders are nested too deeply"
            ));
        }
        for text in found.texts.iter().take(MAX_TEXTS) {
            self.keep_beside(&format!("{backend}."), text, folder);
        }
        // rocprof-sys writes the same events in two formats. RocPD keeps more of the links between them.
        let mut files: Vec<ProfilerFile> =
            found.traces.into_iter().map(|path| (path.clone(), format_of(&path))).collect();
        let databases: BTreeSet<Option<String>> = files
            .iter()
            .filter(|(_, format)| *format == Ok(Format::RocPd))
            .map(|(path, _)| pid_in(path))
            .collect();
        files.retain(|(path, format)| {
            let again = kind == BackendKind::RocprofSys
                && is_trace(path)
                && format.is_ok()
                && databases.contains(&pid_in(path));
            !again
        });
        let mut taken = 0;
        for (path, format) in &files {
            match format {
                Ok(format) if self.import_file(backend, taken + 1, path, *format) => taken += 1,
                Ok(_) => self.lose(backend, ProfilerLossReason::Unreadable),
                Err(reason) => {
                    self.lose(backend, ProfilerLossReason::Unreadable);
                    warn(format_args!("warning: {backend}: {} {reason}", path.display()));
                    if fs::metadata(path).is_ok_and(|found| found.len() > 0) {
                        self.keep_beside(&format!("{backend}."), path, folder);
                    }
                }
            }
        }
        // A later line explains better what a signal did to the command's own process.
        let is_explained_later =
            files.is_empty() && matches!(self.target.rank_process.exit, Some(ProcessExit::Signal(_)));
        let unwritten = torch::unwritten(&found.marks);
        self.lose_without_file(kind, &files, !unwritten.is_empty());
        for (number, process) in unwritten.iter().enumerate() {
            if number == MAX_LINES_PER_FILE {
                warn(format_args!(
                    "warning: torch wrote no file for {} more processes",
                    unwritten.len() - MAX_LINES_PER_FILE
                ));
                break;
            }
            if !is_explained_later || process.pid != self.rank_process.pid {
                warn(format_args!("warning: {}", process.line()));
            }
        }
        if files.is_empty() && self.was_not_started(kind) {
            warn(format_args!("{backend} did not run"));
        } else if files.is_empty() && (unwritten.is_empty() || is_explained_later) {
            let why = self.why_nothing(kind, folder);
            warn(format_args!("warning: {backend} wrote no file: {why}"));
        }
    }

    /// Records that a profiler wrote some rows to no file, or no complete file.
    fn lose_without_file(&mut self, kind: BackendKind, files: &[ProfilerFile], some_are_unwritten: bool) {
        let backend = kind.name();
        let profiler = if kind.starts_command() { self.target.profiler } else { ProfilerOutcome::Unseen };
        if self.was_not_started(kind) {
            self.lose(backend, ProfilerLossReason::NotStarted);
        } else if some_are_unwritten {
            self.lose(backend, ProfilerLossReason::NoFile);
        } else if files.is_empty() {
            self.lose(backend, reason_without_file(profiler, self.target.rank_process.exit));
        } else if let Some(reason) = reason_with_files(profiler) {
            self.lose(backend, reason);
        } else if matches!(self.target.rank_process.exit, Some(ProcessExit::Signal(_)))
            && !self.has_own_file(files)
        {
            self.lose(backend, ProfilerLossReason::NoFile);
        }
    }

    /// Whether a file belongs to the command's own process.
    fn has_own_file(&self, files: &[ProfilerFile]) -> bool {
        let own = self.rank_process.pid.to_string();
        files.iter().any(|(path, _)| pid_in(path).as_ref() == Some(&own))
    }

    fn why_nothing(&self, kind: BackendKind, folder: &Path) -> String {
        match (kind, self.target.rank_process.exit) {
            (BackendKind::Torch, exit) => torch::why_nothing(folder, exit),
            (_, Some(ProcessExit::Code(0))) => {
                "the program used no GPU through ROCm, or ended by _exit before the profiler could write"
                    .to_owned()
            }
            (_, Some(ProcessExit::Code(code))) => {
                format!(
                    "the program ended with status {code}; if that is the status of the profiler, its output explains why"
                )
            }
            (_, Some(ProcessExit::Signal(signal))) if is_crash(signal) => format!(
                "it writes at the end of the program, which crashed by signal {signal}; --backend native keeps what came \
                 before a crash"
            ),
            (_, Some(ProcessExit::Signal(signal))) if signal == Signal::TERM.as_raw() => {
                "signal 15 ended the program and the profiler; its output may explain why it wrote nothing"
                    .to_owned()
            }
            (_, Some(ProcessExit::Signal(signal))) => format!(
                "it writes at the end of the program, which died by signal {signal}; have the batch system send \
                 SIGUSR1 some time before (sbatch --signal=USR1@120)"
            ),
            _ => "how the program ended is not known".to_owned(),
        }
    }
}

/// Whether a process gets this signal because of its own fault: no batch system sends it.
fn is_crash(signal: i32) -> bool {
    [Signal::ILL, Signal::ABORT, Signal::BUS, Signal::FPE, Signal::SEGV].map(Signal::as_raw).contains(&signal)
}

/// Returns the last number in a file's name, which is the process id for all profilers.
fn pid_in(path: &Path) -> Option<String> {
    let stem = path.file_stem()?.to_string_lossy().into_owned();
    let last = stem.rsplit(|c: char| !c.is_ascii_digit()).find(|digits| !digits.is_empty());
    last.map(str::to_owned)
}

fn text_of(path: &Path) -> String {
    String::from_utf8_lossy(&read_at_most(path, MAX_TEXT_BYTES)).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_process_is_in_the_name() {
        let pid = |name: &str| pid_in(Path::new(name));
        assert_eq!(pid("perfetto-trace-4711.proto").as_deref(), Some("4711"));
        assert_eq!(pid("/d7/rocpd-4711.db").as_deref(), Some("4711"));
        assert_eq!(pid("trace.db"), None);
    }
}
