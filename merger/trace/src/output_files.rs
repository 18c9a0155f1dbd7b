//! Output location of a trace. Files are written in a working folder beside it, and get their final names when
//! all are complete.

use super::index::INDEX;
use crate::options::{TraceFormat, TraceRequest, TraceSplit};
use rpd_comm::{Comm, agree_on_result, broadcast_result};
use rpd_console::Failure;
use rpd_files::{
    create_output, create_output_folder, remove_output, remove_output_folder, rename_output,
    rename_output_to_new,
};
use rpd_output_file::{
    OutputLock, OutputShare, UnfinishedOutput, check_output_name, keep_on_interrupt, remove_on_interrupt,
};
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// Beginning of file names in a folder.
const FILE_STEM: &str = "trace";
/// File suffixes of all formats.
const FORMAT_SUFFIXES: [&str; 2] = [".pftrace.gz", ".json.gz"];
/// File in the working folder that distinguishes it from an unrelated folder.
const WORK_MARK: &str = "made-by-rpd-merge";
/// File extensions that are certainly not meant for a trace.
const DATABASE_EXTENSIONS: [&str; 5] = ["db", "rpd", "rpdshard", "sqlite", "sqlite3"];

/// Names of the files.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
enum Names {
    /// One file with this name.
    One(String),
    /// A set of files with this suffix, and an index.
    Set(String),
}

/// Output location of a trace, the same on all ranks.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct TraceTarget {
    folder: PathBuf,
    names: Names,
    force: bool,
}

/// The files of a trace while they are written.
#[derive(Debug)]
pub struct TraceFiles {
    target: TraceTarget,
    work: PathBuf,
    /// Lock, held by rank 0.
    lock: Option<OutputLock>,
    /// Whether this rank removes the working folder on failure.
    is_work_owner: bool,
    /// Whether this rank created the output folder for the files.
    has_made_folder: bool,
}

impl TraceRequest {
    /// Rejects the name of an output file that is typical for a database.
    ///
    /// # Errors
    /// With exit code [`Exit::Usage`](rpd_console::Exit::Usage).
    pub fn refuse_name_of_database(&self, output: &Path) -> Result<(), Failure> {
        let extension = output.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
        if !DATABASE_EXTENSIONS.contains(&extension) {
            return Ok(());
        }
        let suffix = self.format.file_suffix().trim_start_matches('.');
        Err(Failure::usage(format!(
            "{} is named like a database, and a trace is none; name it like {}",
            output.display(),
            output.with_extension(suffix).display()
        )))
    }
}

impl TraceTarget {
    /// Determines the output location. `output` is a file or a folder, the current one if it is empty.
    fn new(request: &TraceRequest, output: &Path, force: bool) -> Result<TraceTarget, Failure> {
        let output = if output.as_os_str().is_empty() { Path::new(".") } else { output };
        let suffix = request.format.file_suffix();
        check_output_name(output)?;
        let path_text = output.display();
        let is_folder = output.is_dir() || output.as_os_str().as_encoded_bytes().ends_with(b"/");
        if is_folder || request.split != TraceSplit::Whole {
            if fs::metadata(output).is_ok_and(|found| !found.is_dir()) {
                return Err(Failure::output(format!(
                    "{path_text} is a file, and a trace that is split has several; name a folder with -o"
                )));
            }
            // Existing traces are checked later, after the remains of a killed run are removed.
            return Ok(TraceTarget {
                folder: output.to_owned(),
                names: Names::Set(suffix.to_owned()),
                force,
            });
        }
        request.refuse_name_of_database(output)?;
        let others: &[&str] = match request.format {
            TraceFormat::ChromeJson => &[".json", ".pftrace", ".pftrace.gz"],
            TraceFormat::Perfetto | TraceFormat::PerfettoPlain => &[".json", ".json.gz"],
        };
        let Some(name) = output.file_name().and_then(|name| name.to_str()) else {
            return Err(Failure::usage(format!(
                "{path_text} is not the name of a file; choose another one with -o"
            )));
        };
        if let Some(other) = others.iter().find(|suffix| name.ends_with(*suffix)) {
            return Err(Failure::usage(format!(
                "{path_text} is named {other}, and this trace is {suffix}; change the name or --format"
            )));
        }
        match fs::symlink_metadata(output) {
            Err(_) => {}
            Ok(_) if !force => {
                return Err(Failure::output(format!(
                    "{path_text} is there already; use --force to overwrite it, or -o for another place"
                )));
            }
            Ok(found) if !found.is_file() || found.len() > 0 && !TraceFormat::is_ours(output) => {
                return Err(Failure::output(format!(
                    "{path_text} is not a trace, and --force overwrites nothing else; remove it yourself, or use -o"
                )));
            }
            Ok(_) => {}
        }
        let parent = output.parent().filter(|parent| !parent.as_os_str().is_empty());
        let folder = parent.unwrap_or(Path::new(".")).to_owned();
        Ok(TraceTarget { folder, names: Names::One(name.to_owned()), force })
    }

    /// Returns the final location of the trace: the file or the folder.
    pub(super) fn path(&self) -> PathBuf {
        match &self.names {
            Names::One(name) if self.folder == Path::new(".") => name.into(),
            Names::One(name) => self.folder.join(name),
            Names::Set(_) => self.folder.clone(),
        }
    }

    /// Returns the name of file `number` of `count`.
    pub(super) fn name(&self, number: usize, count: usize) -> String {
        match &self.names {
            Names::One(name) => name.clone(),
            Names::Set(suffix) if count == 1 => format!("{FILE_STEM}{suffix}"),
            Names::Set(suffix) => format!("{FILE_STEM}-{:05}-of-{count:05}{suffix}", number + 1),
        }
    }

    /// Returns whether the trace has an index.
    pub(super) fn has_index(&self) -> bool {
        matches!(self.names, Names::Set(_))
    }

    fn refuse_older_set(&self) -> Result<(), Failure> {
        let index = self.folder.join(INDEX);
        let path_text = self.folder.display();
        if index.exists() && !super::index::is_ours(&index) {
            return Err(Failure::output(format!(
                "{} was not written by rpd-merge; choose another folder with -o",
                index.display()
            )));
        }
        let older = self.older_files()?;
        let is_ours = |path: &&PathBuf| {
            path.ends_with(INDEX)
                || fs::symlink_metadata(path).is_ok_and(|found| found.is_file()) && TraceFormat::is_ours(path)
        };
        if let Some(other) = older.iter().find(|path| !is_ours(path)) {
            return Err(Failure::output(format!(
                "{} is called like a file of a trace, and was not written by rpd-merge; move it away, or choose another \
                 folder with -o",
                other.display()
            )));
        }
        match older.first() {
            Some(older) if !self.force => Err(Failure::output(format!(
                "{path_text} holds a trace already ({}); use --force to replace it, or -o for another place",
                older.file_name().unwrap_or_default().to_string_lossy()
            ))),
            _ => Ok(()),
        }
    }

    /// Returns the files of an existing set, its index first.
    fn older_files(&self) -> Result<Vec<PathBuf>, Failure> {
        let entries = match fs::read_dir(&self.folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(self.write_failure(&error)),
        };
        let mut found: Vec<PathBuf> = Vec::new();
        for entry in entries {
            let entry = entry.map_err(|error| self.write_failure(&error))?;
            if entry.file_name().to_str().is_some_and(is_name_of_set) {
                found.push(entry.path());
            }
        }
        found.sort();
        let index = self.folder.join(INDEX);
        if index.exists() {
            found.insert(0, index);
        }
        Ok(found)
    }

    fn write_failure(&self, error: &io::Error) -> Failure {
        let folder = self.folder.display();
        Failure::output(format!("cannot write in {folder}: {error}; choose another place with -o"))
    }

    /// Returns a path in the folder, formed from the name of the trace and a suffix.
    fn path_beside(&self, suffix: &str) -> PathBuf {
        let stem = match &self.names {
            Names::One(name) => name,
            Names::Set(_) => FILE_STEM,
        };
        self.folder.join(format!("{stem}{suffix}"))
    }
}

impl TraceFiles {
    /// Determines the output location, creates the folders and removes the remains of a killed run. `output` is a
    /// file or a folder, the current one if it is empty. All ranks must call this.
    ///
    /// # Errors
    /// If the output exists without `force`, has an unsuitable name, or cannot be created.
    pub fn begin(
        comm: &impl Comm,
        request: &TraceRequest,
        output: &Path,
        force: bool,
    ) -> Result<TraceFiles, Failure> {
        let target = broadcast_result(comm, || TraceTarget::new(request, output, force))?;
        let work = target.path_beside(".partial");
        let mut files = TraceFiles { target, work, lock: None, is_work_owner: false, has_made_folder: false };
        let prepared = if comm.rank() == 0 { files.prepare() } else { Ok(()) };
        agree_on_result(comm, prepared)?;
        // Until now, the working folder may have belonged to another run.
        if !files.is_work_owner {
            remove_on_interrupt(UnfinishedOutput::Folder(files.work.clone()));
        }
        files.is_work_owner = true;
        Ok(files)
    }

    fn prepare(&mut self) -> Result<(), Failure> {
        let target = &self.target;
        let made = create_output_folder(&target.folder, 0o700);
        match made {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let parent = target.folder.parent().unwrap_or(Path::new(".")).display();
                return Err(Failure::output(format!(
                    "cannot make {}: the folder {parent} is not there; make it first, or choose another place with -o",
                    target.folder.display()
                )));
            }
            Err(error) if error.kind() != ErrorKind::AlreadyExists => {
                return Err(target.write_failure(&error));
            }
            Err(_) => {}
            Ok(()) => {
                self.has_made_folder = true;
                remove_on_interrupt(UnfinishedOutput::EmptyFolder(target.folder.clone()));
            }
        }
        let lock =
            OutputLock::acquire(target.path_beside(".lock")).map_err(|error| target.write_failure(&error))?;
        self.lock = Some(lock.ok_or_else(|| {
            let path = target.path();
            Failure::output(format!(
                "another run is writing a trace to {}; wait for it, or choose another place with -o",
                path.display()
            ))
        })?);
        self.clear_leftovers()?;
        if target.has_index() {
            target.refuse_older_set()?;
        }
        remove_on_interrupt(UnfinishedOutput::Folder(self.work.clone()));
        let made = create_output_folder(&self.work, 0o700);
        made.map_err(|error| target.write_failure(&error))?;
        self.is_work_owner = true;
        let mark = create_output(&self.work.join(WORK_MARK), 0o600);
        mark.map(drop).map_err(|error| target.write_failure(&error))
    }

    /// Removes the remains of a killed run: its working folder, and files listed in its index that may already
    /// have their final names.
    fn clear_leftovers(&self) -> Result<(), Failure> {
        let cannot = |error: io::Error| self.target.write_failure(&error);
        match fs::symlink_metadata(&self.work) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(cannot(error)),
            Ok(_) => {}
        }
        let is_empty = || fs::read_dir(&self.work).is_ok_and(|mut entries| entries.next().is_none());
        if !self.work.join(WORK_MARK).is_file() && !is_empty() {
            return Err(Failure::output(format!(
                "{} was not left by rpd-merge; move it away, or choose another place with -o",
                self.work.display()
            )));
        }
        // An existing index belongs to a complete set, because it is removed first when a set is replaced.
        let names = match self.target.folder.join(INDEX).exists() {
            true => Vec::new(),
            false => super::index::file_names(&self.work.join(INDEX)),
        };
        for name in names.iter().filter(|name| is_name_of_set(name)) {
            match remove_output(&self.target.folder.join(name)) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(cannot(error)),
                _ => {}
            }
        }
        remove_output_folder(&self.work).map_err(cannot)
    }

    /// Returns the working folder, which only this merge uses.
    pub fn work_folder(&self) -> &Path {
        &self.work
    }

    /// Returns the output location.
    pub(super) fn target(&self) -> &TraceTarget {
        &self.target
    }

    /// Gives all files their final names. Rank 0 calls this when all files are written.
    ///
    /// An older trace is removed first, and the index is renamed last. An incomplete set thus never has an
    /// index.
    pub fn publish(&self, count: usize, share: OutputShare) -> Result<(), Failure> {
        let target = &self.target;
        let cannot = |error: &io::Error| {
            let path = target.path();
            Failure::output(format!(
                "cannot finish {}: {error}; free space or choose another place with -o",
                path.display()
            ))
        };
        if target.has_index() && target.force {
            for older in target.older_files()? {
                remove_output(&older).map_err(|error| cannot(&error))?;
            }
        }
        if self.has_made_folder {
            share.folder(&target.folder);
        }
        let mut names: Vec<String> = (0..count).map(|number| target.name(number, count)).collect();
        if target.has_index() {
            names.push(INDEX.to_owned());
        }
        for name in names {
            let (from, to) = (self.work.join(&name), target.folder.join(&name));
            share.file(&from);
            let renamed = match target.force {
                true => rename_output(&from, &to),
                false => rename_output_to_new(&from, &to),
            };
            renamed.map_err(|error| match error.kind() {
                ErrorKind::AlreadyExists => Failure::output(format!(
                    "{} has appeared in the meantime; use --force to overwrite it, or -o for another place",
                    to.display()
                )),
                _ => cannot(&error),
            })?;
        }
        Ok(())
    }
}

impl Drop for TraceFiles {
    /// Removes the working folder. Any failing rank does this, because the launcher then kills the others.
    /// Finished files are no longer in the folder.
    fn drop(&mut self) {
        if self.is_work_owner {
            let _ = remove_output_folder(&self.work);
            keep_on_interrupt(&self.work);
        }
        self.lock = None;
        if self.has_made_folder {
            // This succeeds only if the folder is empty.
            let _ = fs::remove_dir(&self.target.folder);
            keep_on_interrupt(&self.target.folder);
        }
    }
}

/// Returns whether a file name is that of a file in a set.
fn is_name_of_set(name: &str) -> bool {
    let Some(rest) = name.strip_prefix(FILE_STEM) else { return false };
    let Some(numbers) = FORMAT_SUFFIXES.iter().find_map(|suffix| rest.strip_suffix(suffix)) else {
        return false;
    };
    let is_number = |text: &str| text.len() == 5 && text.bytes().all(|byte| byte.is_ascii_digit());
    let parts = numbers.strip_prefix('-').and_then(|numbers| numbers.split_once("-of-"));
    numbers.is_empty() || parts.is_some_and(|(number, count)| is_number(number) && is_number(count))
}
