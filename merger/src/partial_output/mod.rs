//! The output under its temporary name, and the files that a merge created and may therefore replace.

mod journals;
pub(crate) mod made_by_merge;

use made_by_merge::may_be_left;
use rpd_calls::CallFile;
use rpd_console::Failure;
use rpd_files::{FileAccess, open_output, remove_output, rename_output, rename_output_to_new};
use rpd_output_file::{OutputLock, OutputShare, UnfinishedOutput, keep_on_interrupt, remove_on_interrupt};
use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Suffix of the partial file's name.
const PARTIAL: &str = ".partial";
/// Suffix of the name of the converted file.
const CONVERTED: &str = ".partial.rpd";
/// Suffix of the name of the file of calls.
const CALLS: &str = ".partial.calls";

/// `NAME.partial` beside the output. It is renamed when complete, and removed when the merge fails.
#[derive(Debug)]
pub(crate) struct PartialOutput {
    path: PathBuf,
    output: PathBuf,
    /// Lock that rank 0 holds during the merge.
    lock: Option<OutputLock>,
    /// Whether an existing output may be replaced.
    force: bool,
    /// Whether this rank removes the file on failure.
    armed: bool,
}

impl PartialOutput {
    /// Determines the temporary name. On rank 0 (`owner`), also locks the output and removes what a killed merge
    /// left. `force`: an existing output may be replaced. The other ranks call [`PartialOutput::share`] after rank 0
    /// succeeded.
    pub(crate) fn begin(output: &Path, owner: bool, force: bool) -> Result<PartialOutput, Failure> {
        let path = beside(output, PARTIAL);
        let cannot = |error: io::Error| {
            if error.kind() == ErrorKind::NotFound {
                let folder = path.parent().unwrap_or(Path::new(".")).display();
                return Failure::output(format!(
                    "cannot write {}: the folder {folder} is not there; make it first, or choose another place with -o",
                    path.display()
                ));
            }
            let path = path.display();
            Failure::output(format!("cannot write {path}: {error}; choose another place with -o"))
        };
        let mut lock = None;
        if owner {
            let taken = OutputLock::acquire(beside(output, ".lock")).map_err(cannot)?.ok_or_else(|| {
                let output = output.display();
                Failure::output(format!(
                    "another merge is writing {output}; wait for it, or choose another place with -o"
                ))
            })?;
            journals::check(output)?;
            for left in temporary_names(output) {
                journals::clear(&left)?;
                // A file of that name that was not left by a merge belongs to the user.
                if fs::symlink_metadata(&left).is_ok() && !may_be_left(&left, taken.was_left()) {
                    let left = left.display();
                    return Err(Failure::output(format!(
                        "{left} was not left by a merge; move it away, or use -o"
                    )));
                }
                match remove_output(&left) {
                    Err(error) if error.kind() != ErrorKind::NotFound => return Err(cannot(error)),
                    _ => {}
                }
            }
            lock = Some(taken);
        }
        let partial = PartialOutput { path, output: output.to_owned(), lock, force, armed: owner };
        if owner {
            partial.remove_on_interrupt();
        }
        Ok(partial)
    }

    /// From now on this rank, too, removes the file on failure. Before, the file may belong to the user or to another
    /// merge.
    pub(crate) fn share(&mut self) {
        if !self.armed {
            self.remove_on_interrupt();
        }
        self.armed = true;
    }

    fn remove_on_interrupt(&self) {
        for path in temporary_names(&self.output) {
            remove_on_interrupt(UnfinishedOutput::File(path));
        }
    }

    fn keep_on_interrupt(&self) {
        temporary_names(&self.output).iter().for_each(|path| keep_on_interrupt(path));
    }

    /// Returns the path to write to.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Removes what was written, because the merge restarts. A rank with interrupted writing may still write to
    /// the removed file.
    pub(crate) fn forget(&self) -> Result<(), Failure> {
        match remove_output(&self.path) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(Failure::write(&self.path, &error)),
            _ => Ok(()),
        }
    }

    /// Returns the path to which the calls of the database are written.
    pub(crate) fn calls_path(&self) -> PathBuf {
        beside(&self.output, CALLS)
    }

    /// Checks that no other file has the place of the file of calls. Returns the reason.
    pub(crate) fn check_calls_place(&self) -> Result<(), String> {
        let place = CallFile::place(&self.output);
        match fs::symlink_metadata(&place).is_err() || CallFile::is_one(&place) {
            true => Ok(()),
            false => Err(format!("{} exists and is not a file of calls; move it away", place.display())),
        }
    }

    /// Returns the path to which the database is converted.
    pub(crate) fn converted_path(&self) -> PathBuf {
        beside(&self.output, CONVERTED)
    }

    /// Renames the finished file to its final name, and removes journals that an older file of that name left. A
    /// program that opened the older file meanwhile leaves new journals, so they are searched again afterwards.
    ///
    /// Returns device and inode of the file.
    pub(crate) fn publish(&mut self, share: OutputShare) -> Result<(u64, u64), Failure> {
        journals::clear(&self.output)?;
        let old_calls = CallFile::place(&self.output);
        if CallFile::belongs_to(&old_calls, &self.output) {
            let _ = remove_output(&old_calls);
        }
        let identity = self.rename(share)?;
        journals::clear_published(&self.output)?;
        self.publish_calls(share);
        self.release();
        Ok(identity)
    }

    fn rename(&self, share: OutputShare) -> Result<(u64, u64), Failure> {
        share.file(&self.path);
        let publish = || {
            let file = open_output(&self.path, FileAccess::Write)?;
            file.sync_all()?;
            match self.force {
                true => rename_output(&self.path, &self.output)?,
                false => rename_output_to_new(&self.path, &self.output)?,
            }
            let found = file.metadata()?;
            Ok((found.dev(), found.ino()))
        };
        publish().map_err(|error: io::Error| {
            let output = self.output.display();
            Failure::output(match error.kind() {
                ErrorKind::AlreadyExists => format!(
                    "{output} has appeared in the meantime; use --force to overwrite it, or -o for another place"
                ),
                _ => format!("cannot finish {output}: {error}; free space or choose another place with -o"),
            })
        })
    }

    /// Renames the file of calls after its database. Its failure is no failure of the merge: rpd-report does without it.
    fn publish_calls(&self, share: OutputShare) {
        let made = self.calls_path();
        if fs::symlink_metadata(&made).is_ok() && self.check_calls_place().is_ok() {
            share.file(&made);
            let _ = rename_output(&made, &CallFile::place(&self.output));
        }
    }

    /// Ends the responsibility of this rank for the file, because the merge succeeded.
    pub(crate) fn release(&mut self) {
        self.armed = false;
        self.keep_on_interrupt();
        self.lock = None;
    }
}

/// Returns the paths that a merge to this output writes before it renames the result. They are never kept.
pub(crate) fn temporary_names(output: &Path) -> [PathBuf; 3] {
    [PARTIAL, CONVERTED, CALLS].map(|suffix| beside(output, suffix))
}

fn beside(output: &Path, suffix: &str) -> PathBuf {
    let mut name = output.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

impl Drop for PartialOutput {
    /// Any failing rank removes the file, because the launcher kills the other ranks afterwards.
    fn drop(&mut self) {
        if self.armed {
            for path in temporary_names(&self.output) {
                let _ = remove_output(&path);
            }
            self.keep_on_interrupt();
        }
    }
}
