//! What profilers left on the node, as shards beside the rank's own.
//!
//! This runs in the collector process when the command has ended. A file that cannot be a shard is told, and its
//! folder stays: nothing is thrown away that is nowhere else. Shards mask secrets. What is copied as it is does not, so
//! no database is, and nothing that tells an environment.

use super::debug_agent::{self, DUMP, Fault};
use super::found::{Found, files_in, flat_name, is_trace};
use super::unrecorded_rows::{self, ProfilerEnding, reason_with_files, reason_without_file};
use super::{scratch, start, torch};
use crate::output::{ShardPlace, identity};
use crate::warn;
use rpd_foreign::{Format, contains_environment, format_of, translate};
use rpd_shard::Shard;
use rpd_shard::ShardWriter;
use rpd_shard::file::{KnownProcesses, Owner, WriteError};
use rpd_shard::model::{LocalNs, row_types};
use rpd_shard::record::{ClockSet, Exit, Process, ProfilerLoss, ProfilerLossReason, RunIdentity};
use rustix::process::Signal;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, File, Permissions};
use std::io::{self, BufWriter, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Lines about one file.
const MAX_TOLD: usize = 5;
/// Most bytes of a text that a hook left for the log, or of a dump that is searched.
const MAX_TEXT: u64 = 64 << 20;
/// Bytes that are written at once.
const WRITE_BYTES: usize = 1 << 20;
/// Permissions of a copy.
const COPY_MODE: u32 = 0o600;
/// Texts of one profiler that are fetched.
const MAX_TEXTS: usize = 200;

/// What is fetched when the command has ended.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Harvest {
    /// The folder on the node.
    pub scratch: OsString,
    /// Folders in it: the names of backends.
    pub backends: Vec<String>,
    /// The debug agent ran, too.
    pub debug_agent: bool,
    /// The folder stays.
    pub keep: bool,
    /// How long a profiler has to start the command, s.
    pub wait_seconds: u64,
}

/// Where it goes, and whose it is.
pub struct Target<'a> {
    /// The place of the rank's shard.
    pub place: &'a ShardPlace,
    /// That shard, where there is one: it has clocks, and the processes that were traced.
    pub shard: Option<PathBuf>,
    /// The command's own process.
    pub usual: Process,
    /// The profiler in front of the command did not start it.
    pub without_front: bool,
    /// How the profiler that stayed above the command ended.
    pub profiler: ProfilerEnding,
}

/// A file of a profiler and its format, or why it has none.
type ProfilerFile = (PathBuf, Result<Format, &'static str>);

fn target_is_without(target: &Target<'_>, backend: &str) -> bool {
    target.without_front && is_front(backend)
}

/// Whether a profiler starts the command.
fn is_front(backend: &str) -> bool {
    matches!(backend, "rocprofv3" | "rocprof-sys")
}

/// Makes shards of all that is there, and removes the folder.
pub fn bring_in(harvest: &Harvest, target: &Target<'_>) {
    let scratch_folder = Path::new(&harvest.scratch);
    let own = target.shard.as_ref().and_then(|path| Shard::open(path).ok());
    let (seen, clocks) = own.map_or_else(Default::default, |shard| {
        (shard.processes.into_values().filter(|process| !is_of_the_node(process)).collect(), shard.clocks)
    });
    let mut usual = target.usual.clone();
    if start::was_asked_again(scratch_folder) {
        warn(format_args!(
            "warning: the profiler wanted to run the command more than once, as for several passes of counters; it ran once: \
             give each pass a job of its own"
        ));
    }
    if let Some(pid) = start::pid(scratch_folder).filter(|_| !target.without_front) {
        usual.pid = pid;
    }
    let mut gathering = Gathering { target, usual, seen, clocks, lost: false, losses: BTreeSet::new() };
    for backend in &harvest.backends {
        gathering.backend(backend, &scratch_folder.join(backend));
    }
    if harvest.debug_agent {
        gathering.dump(scratch_folder);
    }
    unrecorded_rows::record(&gathering.losses, target, &gathering.owner());
    if harvest.keep || gathering.lost {
        let why = if harvest.keep { "--keep-scratch" } else { "what could not be read is still there" };
        warn(format_args!("{} stays on this node ({why})", scratch_folder.display()));
    } else {
        scratch::remove(scratch_folder);
    }
}

fn is_of_the_node(process: &Process) -> bool {
    process.source == rpd_shard::record::SYSTEM_SOURCE
}

struct Gathering<'a> {
    target: &'a Target<'a>,
    usual: Process,
    seen: Vec<Process>,
    clocks: Vec<ClockSet>,
    /// Something is in the scratch folder and nowhere else.
    lost: bool,
    /// Profilers whose rows are missing.
    losses: BTreeSet<ProfilerLoss>,
}

impl Gathering<'_> {
    /// The files of one profiler.
    fn backend(&mut self, backend: &str, folder: &Path) {
        let found = Found::in_folder(folder);
        for note in &found.notes {
            for line in text_of(note).lines().take(MAX_TOLD) {
                warn(format_args!("{backend}: {line}"));
            }
        }
        if found.more || found.texts.len() > MAX_TEXTS {
            self.lost = true;
            self.lose(backend, ProfilerLossReason::TooManyFiles);
            warn(format_args!(
                "warning: {backend}: not all of its files are fetched: they are too many, or too deep in folders"
            ));
        }
        for text in found.texts.iter().take(MAX_TEXTS) {
            self.keep_beside(&format!("{backend}."), text, folder);
        }
        // rocprof-sys writes the same events in two formats; RocPD has more of what belongs together.
        let mut files: Vec<ProfilerFile> =
            found.traces.into_iter().map(|path| (path.clone(), format_of(&path))).collect();
        let databases: BTreeSet<Option<String>> = files
            .iter()
            .filter(|(_, format)| *format == Ok(Format::RocPd))
            .map(|(path, _)| pid_in(path))
            .collect();
        files.retain(|(path, format)| {
            let again = backend == "rocprof-sys"
                && is_trace(path)
                && format.is_ok()
                && databases.contains(&pid_in(path));
            !again
        });
        let mut taken = 0;
        for (path, format) in &files {
            match format {
                Ok(format) if self.file(backend, taken + 1, path, *format) => taken += 1,
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
        // What a signal did to the command's own process is told better below.
        let is_told_below = files.is_empty() && matches!(self.target.usual.exit, Some(Exit::Signal(_)));
        let unwritten = torch::unwritten(&found.marks);
        self.lose_without_file(backend, &files, !unwritten.is_empty());
        for (number, process) in unwritten.iter().enumerate() {
            if number == MAX_TOLD {
                warn(format_args!(
                    "warning: torch wrote no file for {} more processes",
                    unwritten.len() - MAX_TOLD
                ));
                break;
            }
            if !is_told_below || process.pid != self.usual.pid {
                warn(format_args!("warning: {}", process.line()));
            }
        }
        if files.is_empty() && target_is_without(self.target, backend) {
            warn(format_args!("{backend} did not run"));
        } else if files.is_empty() && (unwritten.is_empty() || is_told_below) {
            let why = self.why_nothing(backend, folder);
            warn(format_args!("warning: {backend} wrote no file: {why}"));
        }
    }

    fn lose(&mut self, backend: &str, reason: ProfilerLossReason) {
        self.losses.insert(ProfilerLoss { profiler: backend.to_owned(), rank: self.usual.rank, reason });
    }

    /// Notes the rows that a profiler wrote to no file, or not to the end.
    fn lose_without_file(&mut self, backend: &str, files: &[ProfilerFile], some_are_unwritten: bool) {
        let profiler = if is_front(backend) { self.target.profiler } else { ProfilerEnding::Unseen };
        if target_is_without(self.target, backend) {
            self.lose(backend, ProfilerLossReason::NotStarted);
        } else if some_are_unwritten {
            self.lose(backend, ProfilerLossReason::NoFile);
        } else if files.is_empty() {
            self.lose(backend, reason_without_file(profiler, self.target.usual.exit));
        } else if let Some(reason) = reason_with_files(profiler) {
            self.lose(backend, reason);
        } else if matches!(self.target.usual.exit, Some(Exit::Signal(_))) && !self.has_own_file(files) {
            self.lose(backend, ProfilerLossReason::NoFile);
        }
    }

    /// Whether a file is of the command's own process.
    fn has_own_file(&self, files: &[ProfilerFile]) -> bool {
        let own = self.usual.pid.to_string();
        files.iter().any(|(path, _)| pid_in(path).as_ref() == Some(&own))
    }

    fn why_nothing(&self, backend: &str, folder: &Path) -> String {
        match (backend, self.target.usual.exit) {
            ("torch", exit) => torch::why_nothing(folder, exit),
            (_, Some(Exit::Code(0))) => {
                "the program used no GPU through ROCm, or ended by _exit before the profiler could write"
                    .to_owned()
            }
            (_, Some(Exit::Code(code))) => {
                format!(
                    "the program ended with status {code}; if that is the profiler's, what it printed says why"
                )
            }
            (_, Some(Exit::Signal(signal))) if is_crash(signal) => format!(
                "it writes at the end of the program, which crashed by signal {signal}: --backend native keeps what came \
                 before a crash"
            ),
            (_, Some(Exit::Signal(signal))) if signal == Signal::TERM.as_raw() => {
                "signal 15 ended the program, and it with that: what it printed may say why it did not write"
                    .to_owned()
            }
            (_, Some(Exit::Signal(signal))) => format!(
                "it writes at the end of the program, which died by signal {signal}: have the batch system send \
                 SIGUSR1 some time before (sbatch --signal=USR1@120)"
            ),
            _ => "how the program ended is not known".to_owned(),
        }
    }

    /// One file to a shard. Returns whether that worked.
    fn file(&mut self, backend: &str, number: usize, path: &Path, format: Format) -> bool {
        let label = format!("{backend}-{number}");
        let (file, name) = match self.target.place.create_beside(&label, "rpdshard") {
            Ok(created) => created,
            Err(error) => {
                self.lost = true;
                warn(format_args!("warning: {backend}: {error}"));
                return false;
            }
        };
        let created = identity(&file);
        let sink = BufWriter::with_capacity(WRITE_BYTES, file);
        let done = translate(path, format, sink, &self.owner()).and_then(|(mut sink, account)| {
            let written =
                sink.flush().map_err(|error| format!("{} cannot be written: {error}", name.display()));
            written.map(|()| account)
        });
        match done {
            Ok(account) => {
                let lines = account.warnings.len();
                for line in account.warnings.iter().take(MAX_TOLD) {
                    warn(format_args!("warning: {backend}: {line}"));
                }
                if lines > MAX_TOLD {
                    warn(format_args!("warning: {backend}: and {} more such lines", lines - MAX_TOLD));
                }
                true
            }
            Err(reason) => {
                // What is in a shard without an end is whole; one without rows is none.
                let has_rows = Shard::open(&name)
                    .is_ok_and(|shard| shard.blocks().iter().any(|block| block.header.rows > 0));
                if !has_rows && let Ok(created) = created {
                    self.target.place.folder().remove_file(&name, created);
                }
                // It is not copied as it is: databases have the whole environment.
                self.lost = true;
                warn(format_args!("warning: {backend}: {reason}"));
                false
            }
        }
    }

    /// Copies a file to the run's folder as it is, for the user alone: nothing in it is masked.
    fn copy(&self, label: &str, ending: &str, path: &Path) -> io::Result<()> {
        let mut from = File::open(path)?;
        if from.metadata()?.len() > self.target.place.max_bytes {
            return Err(io::Error::other("it is larger than --max-size"));
        }
        let (mut to, name) = self.target.place.create_beside(label, ending).map_err(io::Error::other)?;
        to.set_permissions(Permissions::from_mode(COPY_MODE))?;
        let created = identity(&to)?;
        let copied = io::copy(&mut from, &mut to).map(drop);
        copied.inspect_err(|_| {
            self.target.place.folder().remove_file(&name, created);
        })
    }

    fn owner(&self) -> Owner {
        let ShardPlace { run, max_bytes, .. } = self.target.place;
        Owner {
            // The rank's own shard is its collector's.
            run: RunIdentity { rank: None, ..run.clone() },
            processes: Some(KnownProcesses { usual: self.usual.clone(), seen: self.seen.clone() }),
            clocks: self.clocks.clone(),
            most_bytes: *max_bytes,
        }
    }

    /// The dump of the debug agent, if a kernel faulted: beside the shards, with its code objects, and as a mark at the
    /// end of the rank's time.
    fn dump(&mut self, folder: &Path) {
        let path = folder.join(DUMP);
        let text = bytes_of(&path);
        let Some(fault) = debug_agent::fault_in(&text) else {
            if !text.is_empty() {
                self.keep_as("debug-agent", "txt", &path);
            }
            return;
        };
        self.keep_as("debug-agent", "txt", &path);
        let (objects, more) = files_in(&folder.join(debug_agent::CODE_OBJECTS));
        self.lost |= more;
        for (number, object) in objects.iter().enumerate() {
            self.keep_as(&format!("code-object-{}", number + 1), "co", object);
        }
        let from = fault.code_object.as_deref().map_or(String::new(), |uri| format!(", code object {uri}"));
        let reason = fault.reason.as_deref().map_or(String::new(), |reason| format!(" ({reason})"));
        warn(format_args!(
            "warning: kernel {} faulted{from}{reason}: see rank-*.debug-agent.txt",
            fault.kernel
        ));
        if let Err(error) = self.mark(&fault) {
            warn(format_args!("warning: the fault is not in a shard: {error}"));
        }
    }

    /// A file that is no trace, under its own name behind the rank's.
    fn keep_beside(&mut self, label: &str, path: &Path, folder: &Path) {
        let (name, ending) = flat_name(path, folder);
        self.keep_as(&format!("{label}{name}"), &ending, path);
    }

    fn keep_as(&mut self, label: &str, ending: &str, path: &Path) {
        if contains_environment(path) {
            self.lost = true;
            warn(format_args!(
                "warning: {} is not copied: it may tell the environment of the program, where secrets may be",
                path.display()
            ));
            return;
        }
        if let Err(error) = self.copy(label, ending, path) {
            self.lost = true;
            warn(format_args!("warning: {} cannot be copied: {error}", path.display()));
        }
    }

    /// A mark at the end of the rank's time.
    fn mark(&self, fault: &Fault) -> Result<(), WriteError> {
        let (file, _) =
            self.target.place.create_beside("debug-agent", "rpdshard").map_err(io::Error::other)?;
        let mut shard = ShardWriter::of_owner(BufWriter::new(file), &self.owner())?;
        let process = Process { source: 1, ..self.usual.clone() };
        shard.process(&process)?;
        let row = row_types::ThreadRow {
            ppid: Some(i64::from(process.ppid).into()),
            tid: i64::from(process.pid).into(),
            name: Some(b"ROCm Debug Agent"),
            start: None,
            end: None,
            extdata: None,
        };
        let thread = shard.push_row(1, &row)?;
        let code_object = fault.code_object.as_deref().unwrap_or("unknown code object");
        let text =
            shard.string(format!("GPU fault in kernel {} of {code_object}", fault.kernel).as_bytes())?;
        let mark = row_types::MarkRow {
            tid: thread,
            timestamp: LocalNs(process.last_seen.unwrap_or(process.first_seen)),
            name_id: row_types::StringId(text),
            stack_id: Some(row_types::StackId::NONE),
            parent_stack_id: None,
        };
        shard.push_row(1, &mark)?;
        shard.finish()?.flush()?;
        Ok(())
    }
}

/// The last number in a file's name: profilers put the process there.
/// Whether a program gets a signal for what it did itself: nobody sends it one before.
fn is_crash(signal: i32) -> bool {
    [Signal::ILL, Signal::ABORT, Signal::BUS, Signal::FPE, Signal::SEGV].map(Signal::as_raw).contains(&signal)
}

fn pid_in(path: &Path) -> Option<String> {
    let stem = path.file_stem()?.to_string_lossy().into_owned();
    let last = stem.rsplit(|c: char| !c.is_ascii_digit()).find(|digits| !digits.is_empty());
    last.map(str::to_owned)
}

fn bytes_of(path: &Path) -> Vec<u8> {
    let mut bytes = Vec::new();
    let _ = File::open(path).and_then(|file| file.take(MAX_TEXT).read_to_end(&mut bytes));
    bytes
}

fn text_of(path: &Path) -> String {
    String::from_utf8_lossy(&bytes_of(path)).into_owned()
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
