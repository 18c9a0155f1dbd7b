//! What a merge works on, as rank 0 lists it for all merge ranks.

use crate::cli::MergeArgs;
use crate::input::find::{ListedFile, hold, is_text};
use crate::input::plan::output_of;
use crate::input::translate::{self, TranslatedFile, TranslatedFolder, TranslationNotes};
use crate::input::unused::{UnusedFiles, find_all};
use crate::output::size_limit::SizeLimit;
use crate::output_file::made_by_merge::unfinished_run;
use crate::report::plot::check_place;
use rpd_clocks::ClockFile;
use rpd_comm::{Comm, agree_on_result};
use rpd_console::Failure;
use rpd_shard::record::wire;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// What was listed and is the same in all ranks: the files to merge, where their merge goes, and what limits it.
#[derive(Serialize, Deserialize)]
pub(crate) struct MergeJob {
    pub(crate) files: Vec<ListedFile>,
    /// Folders that hold them: every merge rank opens what lies below from the descriptor that it holds.
    folders: Vec<PathBuf>,
    /// Files below the inputs that are not listed.
    pub(crate) unused: UnusedFiles,
    pub(crate) output: PathBuf,
    /// The run that was merged to there while it was still being written: a merge of the same run replaces that.
    pub(crate) replaces_run: Option<String>,
    /// What there is to say about the files that are translated.
    pub(crate) told: TranslationNotes,
    /// What a site says of its clocks.
    pub(crate) clock_file: Option<ClockFile>,
    /// The most that the output may take.
    pub(crate) limit: SizeLimit,
}

impl MergeJob {
    /// Lists the inputs and chooses the output.
    ///
    /// # Errors
    /// If options do not go together, or an input or the place of the output cannot be used.
    pub(crate) fn list(args: &MergeArgs) -> Result<MergeJob, Failure> {
        args.check()?;
        let (mut found, mut unused) = find_all(&args.inputs)?;
        let before: Vec<PathBuf> = found.files.iter().map(|listed| listed.path.clone()).collect();
        let output = output_of(&mut found, args)?;
        unused.note_output(&output, &before, &found.files);
        MergeJob::of((found.files, unused), output, args)
    }

    /// Of files that were found, and of others that are not merged.
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
        let limit = SizeLimit::of(args, &files);
        let replaces_run = if args.force || args.dry_run { None } else { unfinished_run(&output) };
        let folders = folders_of(args, &files);
        Ok(MergeJob {
            files,
            folders,
            unused,
            output,
            replaces_run,
            told: TranslationNotes::default(),
            clock_file,
            limit,
        })
    }

    /// Refuses to replace a merge of another run.
    pub(crate) fn check_replaced(&self, run_id: &str) -> Result<(), Failure> {
        match &self.replaces_run {
            Some(run) if run != run_id => Err(Failure::output(format!(
                "{} is there already, of run {run}: use --force to overwrite it, or -o for another place",
                self.output.display()
            ))),
            _ => Ok(()),
        }
    }

    /// Holds the folders of the inputs. A merge rank that cannot open one finds out when it reads an input.
    pub(crate) fn hold_folders(&self) {
        self.folders.iter().for_each(|folder| drop(hold(folder)));
    }
}

/// The folders that are named, or else those of the files.
fn folders_of(args: &MergeArgs, files: &[ListedFile]) -> Vec<PathBuf> {
    if !args.inputs.is_empty() {
        return args.inputs.iter().filter(|input| input.is_dir()).cloned().collect();
    }
    let folders: BTreeSet<PathBuf> = files
        .iter()
        .filter_map(|listed| listed.path.parent())
        .filter(|f| is_text(f))
        .map(Path::to_path_buf)
        .collect();
    folders.into_iter().collect()
}

/// Translates the files that are neither shards nor RocPD, and puts the shards in their place; returns the
/// folder that holds them.
pub(crate) fn translate_foreign(
    comm: &impl Comm,
    listing: &mut MergeJob,
) -> Result<Option<TranslatedFolder>, Failure> {
    if !listing.files.iter().any(translate::is_foreign) {
        return Ok(None);
    }
    let begun = TranslatedFolder::begin(&listing.output, comm.rank() == 0);
    let folder = agree_on_result(comm, begun)?;
    let own = translate::translate(&listing.files, &folder, comm.rank(), comm.size());
    let mut all: Vec<TranslatedFile> = Vec::new();
    for message in comm.all_gather(wire::encode(&own)) {
        let theirs: Vec<TranslatedFile> = wire::decode_message(&message).map_err(Failure::message)?;
        all.extend(theirs);
    }
    listing.told = translate::replace(&mut listing.files, all);
    Ok(Some(folder))
}
