//! What profilers left on the node, as shards beside the rank's own.
//!
//! This runs in the collector process when the command has ended. A file that cannot be a shard is told, and its
//! folder stays: nothing is thrown away that is nowhere else.

use super::debug_agent::{self, DUMP, Fault};
use super::{scratch, start};
use crate::output::ShardPlace;
use crate::warn;
use rpd_shard::Shard;
use rpd_shard::ShardWriter;
use rpd_shard::file::{KnownProcesses, Owner, WriteError};
use rpd_shard::model::{Value, native, rocpd};
use rpd_shard::record::{ClockSet, Exit, Process, RunIdentity};
use rpd_translate::{Format, format_of, translate};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

/// Folders in folders that are looked into.
const MAX_DEPTH: usize = 6;
/// Files that are looked at.
const MAX_FILES: usize = 100_000;
/// Lines about one file.
const MAX_TOLD: usize = 5;
/// Most bytes of a text that a hook left for the log, or of a dump that is searched.
const MAX_TEXT: u64 = 64 << 20;
/// Bytes that are written at once.
const WRITE_BYTES: usize = 1 << 20;
/// Endings of files that a profiler writes for people, and that hold no events that are nowhere else.
const FOR_PEOPLE: [&str; 8] = ["txt", "csv", "cfg", "py", "pyc", "note", "partial", "log"];

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
}

fn target_is_without(target: &Target<'_>, backend: &str) -> bool {
    target.without_front && matches!(backend, "rocprofv3" | "rocprof-sys")
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
    let mut gathering = Gathering { target, usual, seen, clocks, lost: false };
    for backend in &harvest.backends {
        gathering.backend(backend, &scratch_folder.join(backend));
    }
    if harvest.debug_agent {
        gathering.dump(scratch_folder);
    }
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
}

impl Gathering<'_> {
    /// The files of one profiler.
    fn backend(&mut self, backend: &str, folder: &Path) {
        let files = files_in(folder);
        for note in files.iter().filter(|path| has_ending(path, "note")) {
            for line in text_of(note).lines().take(MAX_TOLD) {
                warn(format_args!("{backend}: {line}"));
            }
        }
        // rocprof-sys writes the same events in two formats; RocPD has more of what belongs together.
        let mut files: Vec<(PathBuf, Result<Format, &'static str>)> = files
            .into_iter()
            .filter(|path| !is_for_people(path))
            .map(|path| (path.clone(), format_of(&path)))
            .collect();
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
                Ok(format) => taken += usize::from(self.file(backend, taken + 1, path, *format)),
                Err(reason) => {
                    self.lost = true;
                    warn(format_args!("warning: {backend}: {} {reason}", path.display()));
                }
            }
        }
        if files.is_empty() && target_is_without(self.target, backend) {
            warn(format_args!("{backend} did not run"));
        } else if files.is_empty() {
            warn(format_args!("warning: {backend} wrote no file: {}", self.why_nothing(backend)));
        }
    }

    fn why_nothing(&self, backend: &str) -> String {
        match (backend, self.target.usual.exit) {
            ("torch", Some(Exit::Code(0))) => {
                "the program did not import torch or computed nothing with it, ended by os._exit, was started by \
                 torch.multiprocessing.spawn, or runs its own profiler"
                    .to_owned()
            }
            ("torch", Some(Exit::Signal(signal))) => format!(
                "it writes at the end of the program, which died by signal {signal}; --backend-arg duration=60 has it \
                 write after a minute"
            ),
            (_, Some(Exit::Code(0))) => {
                "the program used no GPU through ROCm, or ended by _exit before the profiler could write"
                    .to_owned()
            }
            (_, Some(Exit::Code(code))) => {
                format!(
                    "the program ended with status {code}; if that is the profiler's, what it printed says why"
                )
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
                if !has_rows {
                    let _ = fs::remove_file(&name);
                }
                if format == Format::RocPd && !has_rows && self.copy(&label, path) {
                    warn(format_args!("{backend}: {reason}"));
                    return true;
                }
                self.lost = true;
                warn(format_args!("warning: {backend}: {reason}"));
                false
            }
        }
    }

    /// A database that is no shard, for a merge as it is. Returns whether that worked.
    fn copy(&self, label: &str, path: &Path) -> bool {
        let Ok((mut file, name)) = self.target.place.create_beside(label, "db") else { return false };
        let copied = File::open(path).and_then(|mut from| io::copy(&mut from, &mut file));
        if let Err(error) = &copied {
            let _ = fs::remove_file(&name);
            warn(format_args!("warning: {} cannot be copied: {error}", path.display()));
        }
        copied.is_ok()
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
                self.keep_beside("debug-agent", "txt", &path);
            }
            return;
        };
        self.keep_beside("debug-agent", "txt", &path);
        for (number, object) in files_in(&folder.join(debug_agent::CODE_OBJECTS)).iter().enumerate() {
            self.keep_beside(&format!("code-object-{}", number + 1), "co", object);
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

    fn keep_beside(&mut self, label: &str, ending: &str, path: &Path) {
        let copied = self.target.place.create_beside(label, ending).map_err(io::Error::other).and_then(
            |(mut to, _)| {
                let mut from = File::open(path)?;
                io::copy(&mut from, &mut to)
            },
        );
        if let Err(error) = copied {
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
        let pid = i64::from(process.pid);
        let thread =
            [1.into(), i64::from(process.ppid).into(), 1.into(), pid.into(), "ROCm Debug Agent".into()];
        let thread = shard.push(1, rocpd::INFO_THREAD, &thread)?;
        let code_object = fault.code_object.as_deref().unwrap_or("unknown code object");
        let text =
            shard.string(format!("GPU fault in kernel {} of {code_object}", fault.kernel).as_bytes())?;
        let at = process.last_seen.unwrap_or(process.first_seen);
        shard.push(1, native::MARK, &[thread.into(), at.into(), text.into(), 0.into(), Value::Null])?;
        shard.finish()?.flush()?;
        Ok(())
    }
}

/// The regular files below a folder, by name. Links are not followed.
fn files_in(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut folders = vec![(folder.to_owned(), 0)];
    while let Some((folder, depth)) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            match entry.file_type() {
                Ok(kind) if kind.is_dir() && depth < MAX_DEPTH => folders.push((entry.path(), depth + 1)),
                Ok(kind) if kind.is_file() && files.len() < MAX_FILES => files.push(entry.path()),
                _ => {}
            }
        }
    }
    files.sort();
    files
}

fn has_ending(path: &Path, ending: &str) -> bool {
    path.extension().is_some_and(|found| found == ending)
}

/// What is no trace: texts, settings, and what belongs to a file beside it.
fn is_for_people(path: &Path) -> bool {
    let name = path.file_name().map_or(String::new(), |name| name.to_string_lossy().into_owned());
    FOR_PEOPLE.iter().any(|ending| has_ending(path, ending))
        // What rocprof-sys says of itself.
        || ["metadata-", "functions-"].iter().any(|begin| name.starts_with(begin) && has_ending(path, "json"))
        || ["-wal", "-shm", "-journal", ".rpd.json"].iter().any(|ending| name.ends_with(ending))
        || path.components().any(|part| part.as_os_str() == "__pycache__")
}

fn is_trace(path: &Path) -> bool {
    ["proto", "pftrace"].iter().any(|ending| has_ending(path, ending))
}

/// The last number in a file's name: profilers put the process there.
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

    #[test]
    fn texts_and_journals_are_no_traces() {
        for text in
            ["wall_clock-1.txt", "a.db-wal", "python/__pycache__/x.bin", "torch-1.pt.trace.json.rpd.json"]
        {
            assert!(is_for_people(Path::new(text)), "{text}");
        }
        assert!(!is_for_people(Path::new("torch-1.pt.trace.json")));
    }
}
