//! Merges inputs into a temporary database, from which a trace is made.

use crate::input::listing::{ListedFile, UnusedFiles};
use crate::merge::{MergeJob, merge_job};
use crate::options::MergeArgs;
use crate::partial_output::PartialOutput;
use crate::summary::MergeReport;
use rpd_clocks::AlignChoice;
use rpd_comm::{Comm, agree_on_result, broadcast_result};
use rpd_console::{Failure, Progress};
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
