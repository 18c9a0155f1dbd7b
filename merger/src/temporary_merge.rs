//! Merges inputs into a temporary database, from which a trace or a report is made.

use crate::allocator::keep_freed_memory;
use crate::input::listing::{DEFAULT_OUTPUT, ListedFile, UnusedFiles, find_all, has_no_input};
use crate::merge::{MergeJob, merge_job};
use crate::options::{LateChoice, MergeArgs};
use crate::partial_output::PartialOutput;
use crate::summary::MergeReport;
use rpd_clocks::AlignChoice;
use rpd_comm::{Comm, Solo, agree_on_result, broadcast_result};
use rpd_console::{Failure, Progress};
use rpd_files::entry_stat;
use rpd_foreign::Format;
use rpd_run::RunDatabase;
use std::path::{Path, PathBuf};

/// A merged database without a final name. It is removed with this value.
#[derive(Debug)]
pub(crate) struct TemporaryMerge {
    partial: PartialOutput,
    report: MergeReport,
}

impl TemporaryMerge {
    /// Merges listed files into a database below `folder`. Every rank calls this.
    pub(crate) fn of(
        comm: &impl Comm,
        args: &MergeArgs,
        files: (Vec<ListedFile>, UnusedFiles),
        folder: &Path,
        progress: &mut Progress,
    ) -> Result<TemporaryMerge, Failure> {
        let output = folder.join("merged.db");
        let mut job = broadcast_result(comm, || MergeJob::of(files, output.clone(), args))?;
        let mut partial = agree_on_result(comm, PartialOutput::begin(&output, comm.rank() == 0, false))?;
        partial.share();
        let report = merge_job(comm, args, &mut job, Some(&partial), progress)?;
        Ok(TemporaryMerge { partial, report })
    }

    /// Returns the path of the database.
    pub(crate) fn path(&self) -> &Path {
        self.partial.path()
    }

    /// Removes the database and returns the report of the merge.
    pub(crate) fn into_report(self) -> MergeReport {
        self.report
    }
}

/// Returns the only input, if it is a merged database and no option requires a merge.
pub(crate) fn merged_database(args: &MergeArgs, files: &[ListedFile]) -> Option<PathBuf> {
    let merges = args.strict
        || args.repair_causality
        || args.align != AlignChoice::default()
        || args.clock_file.is_some()
        || args.clock_plot.is_some()
        || args.environment.is_some();
    match files {
        [ListedFile { path, format: Ok(Format::RocPd), .. }] if !merges && RunDatabase::is_merged(path) => {
            Some(path.clone())
        }
        _ => None,
    }
}

/// A merged database of inputs, to be read.
#[derive(Debug)]
pub struct MergedInputs {
    path: PathBuf,
    /// The merge that made it, unless it was there before.
    made: Option<TemporaryMerge>,
}

impl MergedInputs {
    /// Finds the merged database of these inputs: the only input, or the database in a run folder if nothing in the
    /// folder is newer. Merges the inputs into a database below `folder()` otherwise. The caller analyses it.
    ///
    /// # Errors
    /// If the inputs cannot be listed or merged, or the database cannot be written.
    pub fn open(
        args: &MergeArgs,
        folder: impl FnOnce() -> Result<PathBuf, Failure>,
    ) -> Result<MergedInputs, Failure> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        // Serves the merge as well as the caller, which reads the database.
        keep_freed_memory(args.memory.heap_piece(args.memory.threads(cores, 0)));
        if let Some(path) = merge_without_inputs(&args.inputs) {
            return Ok(MergedInputs { path, made: None });
        }
        let (found, unused) = find_all(&args.inputs)?;
        let beside = found.output_folder.join(DEFAULT_OUTPUT);
        let only = merged_database(args, &found.files);
        if let Some(path) = only.or_else(|| is_up_to_date(&beside, &found.files).then_some(beside)) {
            return Ok(MergedInputs { path, made: None });
        }
        let mut progress = Progress::new(!args.quiet);
        let args = &MergeArgs { late: LateChoice::Never, ..args.clone() };
        let made = TemporaryMerge::of(&Solo, args, (found.files, unused), &folder()?, &mut progress)?;
        progress.finish();
        Ok(MergedInputs { path: made.path().to_owned(), made: Some(made) })
    }

    /// Returns the path of the database.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the summary of the merge, unless the database was there before.
    pub fn summary(&self) -> Option<String> {
        self.made.as_ref().map(|made| made.report.summary(false))
    }
}

/// Returns the merged database of a run folder that has no inputs any more.
fn merge_without_inputs(inputs: &[PathBuf]) -> Option<PathBuf> {
    let [folder] = inputs else { return None };
    let database = folder.join(DEFAULT_OUTPUT);
    (has_no_input(folder) && RunDatabase::is_merged(&database)).then_some(database)
}

/// Returns whether a database is a merge that is at least as new as each of several `files`, all of its folder.
fn is_up_to_date(database: &Path, files: &[ListedFile]) -> bool {
    let Some(folder) = database.parent() else { return false };
    let written = |path: &Path| entry_stat(path).ok().map(|found| found.modified);
    let Some(merged) = written(database) else { return false };
    let is_older = |file: &ListedFile| {
        !file.named && file.path.starts_with(folder) && written(&file.path).is_some_and(|time| time <= merged)
    };
    !files.is_empty() && files.iter().all(is_older) && RunDatabase::is_merged(database)
}
