//! Opens a run for reading: from its merged database, or from inputs that are not merged.

use crate::budget::HeldMemory;
use crate::input::listing::{DEFAULT_OUTPUT, ListedFile, UnusedFiles, find_all, has_no_input, translate};
use crate::options::{LateChoice, MergeArgs};
use crate::temporary_merge::merged_database;
use crate::unwritten_merge::UnwrittenMerge;
use rpd_calls::AnalysisMemory;
use rpd_comm::{Comm, agree_on_result, all_gather_values, broadcast_result};
use rpd_console::{Failure, Progress};
use rpd_files::{create_output, entry_stat, remove_output};
use rpd_run::RunDatabase;
use serde::{Deserialize, Serialize};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// A run that is open for reading.
#[derive(Debug)]
pub struct RunInputs {
    /// The run.
    pub run: RunDatabase,
    /// Whether it is read from inputs that are not merged. Its rows have the ids that a merge would give them.
    pub is_unmerged: bool,
    /// The first damage of inputs that are not merged.
    pub damage: Option<String>,
    /// Memory for the analysis of calls.
    pub analysis_memory: AnalysisMemory,
}

impl RunInputs {
    /// Opens the merged database of the inputs: the only input, or the database in a run folder if nothing in the folder
    /// is newer. Otherwise surveys the inputs as a merge does. Files of foreign formats are translated to shards below
    /// `folder()` first, which rank 0 calls. `ranks` are the selected ranks. Every merge rank calls this, and reads some
    /// of the units.
    ///
    /// # Errors
    /// If the inputs cannot be listed or read, or a translation cannot be written. All ranks have agreed on the failure.
    pub fn open(
        comm: &impl Comm,
        args: &MergeArgs,
        ranks: Option<&[RangeInclusive<u32>]>,
        folder: impl FnOnce() -> Result<PathBuf, Failure>,
    ) -> Result<RunInputs, Failure> {
        let found = broadcast_result(comm, || FoundInputs::find(args, folder))?;
        let (files, place) = match found {
            FoundInputs::Merged(path) => {
                let mut run = agree_on_result(comm, RunDatabase::open(&path, ranks))?;
                run.share_units(comm.rank(), comm.size());
                let held = HeldMemory { owned_strings: u64::from(comm.size() > 1), ..HeldMemory::default() };
                let analysis_memory = args.memory.for_analysis(held);
                return Ok(RunInputs { run, is_unmerged: false, damage: None, analysis_memory });
            }
            FoundInputs::Unmerged { files, unused, place } => ((files, unused), place),
        };
        let has_foreign = files.0.iter().any(translate::is_foreign);
        let args = &MergeArgs { late: LateChoice::Never, dry_run: true, ..args.clone() };
        let mut progress = Progress::new(comm.rank() == 0 && !args.quiet);
        let is_for_all = !has_foreign || is_shared_folder(comm, &place)?;
        let (mut readers, mut reason) = match is_for_all {
            true => (comm.size(), None),
            false => (1, Some("other ranks do not see the translated files; set TMPDIR to a shared folder")),
        };
        let (run, damage, analysis_memory) = loop {
            if let Some(reason) = reason.filter(|_| comm.rank() == 0 && !args.quiet) {
                eprintln!("note: rank 0 reads all inputs: {reason}");
            }
            let unwritten = UnwrittenMerge::of(comm, args, &files, &place, readers, &mut progress)?;
            let (damage, memory) = (unwritten.damage(), unwritten.analysis_memory());
            let run = agree_on_result(comm, RunDatabase::from_source(Box::new(unwritten), ranks))?;
            // Rows that no process claims are one unit, wherever they are.
            let has_unclaimed = run.units.iter().any(|unit| unit.is_unclaimed);
            let has_unclaimed = all_gather_values(comm, &has_unclaimed)?.contains(&true);
            if readers == 1 || !has_unclaimed {
                break (run, damage, memory);
            }
            (readers, reason) = (1, Some("no process claims some of the rows"));
        };
        progress.finish();
        Ok(RunInputs { run, is_unmerged: true, damage, analysis_memory })
    }
}

impl RunInputs {
    /// Returns the first and the last time of all rows, ns in job time. Every merge rank calls this.
    ///
    /// # Errors
    /// [`Failure::input`], if rows cannot be read. All ranks have agreed on it.
    pub fn extent(&self, comm: &impl Comm) -> Result<Option<(i64, i64)>, Failure> {
        let (part, parts) = if self.is_unmerged { (0, 1) } else { (comm.rank(), comm.size()) };
        let own = agree_on_result(comm, self.run.extent(part, parts))?;
        let all = all_gather_values(comm, &own)?;
        let first = all.iter().flatten().map(|(first, _)| *first).min();
        Ok(first.zip(all.iter().flatten().map(|(_, last)| *last).max()))
    }
}

/// Returns whether all merge ranks see the files in the folder of `place`, which may be local to the node of rank 0.
fn is_shared_folder(comm: &impl Comm, place: &Path) -> Result<bool, Failure> {
    if comm.size() == 1 {
        return Ok(true);
    }
    let probe = broadcast_result(comm, || {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let probe = place.with_file_name(format!("probe-{}-{}", std::process::id(), now.as_nanos()));
        create_output(&probe, 0o600).map_err(|error| Failure::write(&probe, &error))?;
        Ok(probe)
    })?;
    let is_seen = all_gather_values(comm, &entry_stat(&probe).is_ok())?;
    if comm.rank() == 0 {
        // The folder is removed with all that is in it.
        let _ = remove_output(&probe);
    }
    Ok(is_seen.into_iter().all(|is_seen| is_seen))
}

/// The inputs that are read, as rank 0 finds them.
#[derive(Serialize, Deserialize)]
enum FoundInputs {
    /// A merged database.
    Merged(PathBuf),
    /// Listed files, and the place beside which translated files are written.
    Unmerged { files: Vec<ListedFile>, unused: UnusedFiles, place: PathBuf },
}

impl FoundInputs {
    fn find(
        args: &MergeArgs,
        folder: impl FnOnce() -> Result<PathBuf, Failure>,
    ) -> Result<FoundInputs, Failure> {
        if let Some(path) = merge_without_inputs(&args.inputs) {
            return Ok(FoundInputs::Merged(path));
        }
        let (found, unused) = find_all(&args.inputs)?;
        let beside = found.output_folder.join(DEFAULT_OUTPUT);
        let only = merged_database(args, &found.files);
        if let Some(path) = only.or_else(|| is_up_to_date(&beside, &found.files).then(|| beside.clone())) {
            return Ok(FoundInputs::Merged(path));
        }
        let place = match found.files.iter().any(translate::is_foreign) {
            true => folder()?.join(DEFAULT_OUTPUT),
            false => beside,
        };
        Ok(FoundInputs::Unmerged { files: found.files, unused, place })
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
