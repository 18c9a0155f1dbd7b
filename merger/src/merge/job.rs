//! Inputs, output and options of a merge. Rank 0 lists them and sends them to all merge ranks.

use crate::input::listing::{
    ListedFile, TranslatedFolder, TranslationNotes, UnusedFiles, find_all, hold, is_text, translate,
};
use crate::input::plan::output_of;
use crate::options::MergeArgs;
use crate::output::package_index;
use crate::output::size_limit::SizeLimit;
use crate::partial_output::made_by_merge::unfinished_run;
use crate::summary::clock_plot::check_place;
use rpd_clocks::ClockFile;
use rpd_comm::{Comm, agree_on_result, all_gather_values};
use rpd_console::Failure;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Files to merge, output and limits of a merge; the same on all ranks.
#[derive(Serialize, Deserialize)]
pub(crate) struct MergeJob {
    pub(crate) files: Vec<ListedFile>,
    /// Folders that contain the files. Each merge rank opens them once and opens files relative to these descriptors.
    folders: Vec<PathBuf>,
    /// Files below the inputs that are not merged.
    pub(crate) unused: UnusedFiles,
    pub(crate) output: PathBuf,
    /// Run id of an existing output that holds an unfinished run. A merge of that run may replace this output.
    pub(crate) replaces_run: Option<String>,
    /// Warnings and notes from translating foreign files.
    pub(crate) translation_notes: TranslationNotes,
    /// Clock relations that the site specifies with `--clock-file`.
    pub(crate) clock_file: Option<ClockFile>,
    /// Maximum size of the output.
    pub(crate) limit: SizeLimit,
}

impl MergeJob {
    /// Lists the inputs and chooses the output.
    ///
    /// # Errors
    /// If options contradict each other, or if an input or the output path cannot be used.
    pub(crate) fn list(args: &MergeArgs) -> Result<MergeJob, Failure> {
        args.check()?;
        let (mut found, mut unused) = find_all(&args.inputs)?;
        let before: Vec<PathBuf> = found.files.iter().map(|listed| listed.path.clone()).collect();
        let output = output_of(&mut found, args)?;
        unused.note_output(&output, &before, &found.files);
        MergeJob::of((found.files, unused), output, args)
    }

    /// Builds the job from listed files and from files that are not merged.
    pub(crate) fn of(
        (files, unused): (Vec<ListedFile>, UnusedFiles),
        output: PathBuf,
        args: &MergeArgs,
    ) -> Result<MergeJob, Failure> {
        let clock_file = args.clock_file.as_deref().map(ClockFile::read).transpose();
        let clock_file = clock_file.map_err(|error| Failure::usage(error.to_string()))?;
        if let Some(plot) = &args.clock_plot {
            check_place(plot, &output, args.force)?;
        }
        if args.package {
            package_index::check_place(&output, args.force)?;
        }
        let limit = SizeLimit::of(args, &files);
        let replaces_run = if args.force || args.dry_run { None } else { unfinished_run(&output) };
        let folders = folders_of(args, &files);
        Ok(MergeJob {
            files,
            folders,
            unused,
            output,
            replaces_run,
            translation_notes: TranslationNotes::default(),
            clock_file,
            limit,
        })
    }

    /// Refuses to replace the merged database of another run.
    pub(crate) fn check_replaced(&self, run_id: &str) -> Result<(), Failure> {
        match &self.replaces_run {
            Some(run) if run != run_id => Err(Failure::output(format!(
                "{} is there already, of run {run}; use --force to overwrite it, or -o for another place",
                self.output.display()
            ))),
            _ => Ok(()),
        }
    }

    /// Writes the index of a package beside the finished database, if one is requested.
    pub(crate) fn write_index(&self, args: &MergeArgs) -> Result<(), Failure> {
        if args.package {
            package_index::write(&self.output)?;
        }
        Ok(())
    }

    /// Opens the folders of the inputs and keeps them open. Failures are ignored here: reading an input reports them.
    pub(crate) fn hold_folders(&self) {
        self.folders.iter().for_each(|folder| drop(hold(folder)));
    }
}

/// Returns the folders named on the command line, or the parent folders of the files if no input is named.
fn folders_of(args: &MergeArgs, files: &[ListedFile]) -> Vec<PathBuf> {
    if !args.inputs.is_empty() {
        return args.inputs.iter().filter(|input| input.is_dir()).cloned().collect();
    }
    let folders = files.iter().filter_map(|listed| listed.path.parent()).filter(|folder| is_text(folder));
    let distinct: BTreeSet<&Path> = folders.collect();
    distinct.into_iter().map(Path::to_path_buf).collect()
}

/// Translates the foreign files on the first `readers` ranks, and replaces them in the list by the resulting shards.
/// Returns the folder that holds these shards.
pub(crate) fn translate_foreign(
    comm: &impl Comm,
    listing: &mut MergeJob,
    readers: usize,
) -> Result<Option<TranslatedFolder>, Failure> {
    if !listing.files.iter().any(translate::is_foreign) {
        return Ok(None);
    }
    let begun = TranslatedFolder::begin(&listing.output, comm.rank() == 0);
    let folder = agree_on_result(comm, begun)?;
    let files = if comm.rank() < readers { &listing.files[..] } else { &[] };
    let own = translate::translate(files, &folder, comm.rank(), readers);
    let all = all_gather_values(comm, &own)?.into_iter().flatten();
    listing.translation_notes = translate::replace(&mut listing.files, all);
    Ok(Some(folder))
}
