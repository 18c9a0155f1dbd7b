//! Opens a run for reading: from its merged database, or from inputs that are not merged.

use crate::allocator::keep_freed_memory;
use crate::input::listing::{DEFAULT_OUTPUT, ListedFile, find_all, has_no_input, translate};
use crate::options::{LateChoice, MergeArgs};
use crate::temporary_merge::merged_database;
use crate::unwritten_merge::UnwrittenMerge;
use rpd_comm::Solo;
use rpd_console::{Failure, Progress};
use rpd_files::entry_stat;
use rpd_run::RunDatabase;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

/// A run that is open for reading.
#[derive(Debug)]
pub struct RunInputs {
    /// The run.
    pub run: RunDatabase,
    /// Whether it is read from inputs that are not merged. Its rows have the ids that a merge would give them.
    pub is_unmerged: bool,
}

impl RunInputs {
    /// Opens the merged database of the inputs: the only input, or the database in a run folder if nothing in the folder
    /// is newer. Otherwise surveys the inputs as a merge does. Files of foreign formats are translated to shards below
    /// `folder()` first. `ranks` are the selected ranks.
    ///
    /// # Errors
    /// If the inputs cannot be listed or read, or a translation cannot be written.
    pub fn open(
        args: &MergeArgs,
        ranks: Option<&[RangeInclusive<u32>]>,
        folder: impl FnOnce() -> Result<PathBuf, Failure>,
    ) -> Result<RunInputs, Failure> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        // Serves the survey as well as the caller, which reads the rows.
        keep_freed_memory(args.memory.heap_piece(args.memory.threads(cores, 0)));
        let merged = |path: &Path| Ok(RunInputs { run: RunDatabase::open(path, ranks)?, is_unmerged: false });
        if let Some(path) = merge_without_inputs(&args.inputs) {
            return merged(&path);
        }
        let (found, unused) = find_all(&args.inputs)?;
        let beside = found.output_folder.join(DEFAULT_OUTPUT);
        let only = merged_database(args, &found.files);
        if let Some(path) = only.or_else(|| is_up_to_date(&beside, &found.files).then(|| beside.clone())) {
            return merged(&path);
        }
        let place = match found.files.iter().any(translate::is_foreign) {
            true => folder()?.join(DEFAULT_OUTPUT),
            false => beside,
        };
        let args = &MergeArgs { late: LateChoice::Never, dry_run: true, ..args.clone() };
        let mut progress = Progress::new(!args.quiet);
        let unwritten = UnwrittenMerge::of(&Solo, args, (found.files, unused), &place, &mut progress)?;
        progress.finish();
        Ok(RunInputs { run: RunDatabase::from_source(Box::new(unwritten), ranks)?, is_unmerged: true })
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
