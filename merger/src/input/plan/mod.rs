//! Phase 1: determines which inputs are merged, in which order, and by which merge ranks.

pub(crate) mod candidate;
pub(super) mod duplicates;
mod excluded;
pub(crate) mod lost_rows;
mod output_path;
mod planned_input;
mod previous_merge;
mod ranks;
mod running;
pub(crate) mod share;

pub(crate) use excluded::ExcludedInputs;
pub(crate) use lost_rows::{LostCause, LostRows};
pub(crate) use output_path::output_of;
pub(crate) use planned_input::PlannedInput;
pub(crate) use previous_merge::PreviousMerge;
pub(crate) use ranks::JobRanks;
pub(crate) use running::StillRunning;

use crate::input::listing::{ListedFile, OriginalNames, TranslationNotes, UnusedFiles, UnusedKind, exists};
use crate::input::plan::candidate::{InputCandidate, RefusedInput};
use crate::input::plan::duplicates::{Duplicates, keep_each_guid_once, keep_one_of_each};
use crate::input::{HostClocks, PlannedSchema, path_text};
use rayon::prelude::*;
use rpd_console::Failure;
use rpd_foreign::Format;
use rpd_rocpd::schema::NEWEST;
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::PathBuf;

/// Maximum number of foreign metadata rows that are copied to the output.
const MAX_TAGS: usize = 1_000;

/// The plan of a merge. Rank 0 makes it and sends it to all ranks.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MergePlan {
    /// Run id of all inputs; empty if no input records one.
    pub run_id: String,
    /// Inputs, in merge order.
    pub inputs: Vec<PlannedInput>,
    /// Tables of the output.
    pub schema: PlannedSchema,
    /// Path of the output.
    pub output: PathBuf,
    /// Ranks of the job.
    pub ranks: JobRanks,
    /// Ranks of processes that called no recorded function.
    pub silent_ranks: Vec<u32>,
    /// Ranks for which two collectors wrote a shard: two jobs used the same run id.
    pub repeated_ranks: Vec<u32>,
    /// Inputs that are skipped, with the reason.
    pub unreadable: Vec<(PathBuf, String)>,
    /// How many of these are not copies: they could not be read.
    pub refused: usize,
    /// All files below the inputs that are not merged.
    pub unused: UnusedFiles,
    /// Warnings about data missing from translated inputs, one line each.
    pub warnings: Vec<String>,
    /// Notes about data of translated inputs that RocPD cannot represent, one line each.
    pub notes: Vec<String>,
    /// Rows of skipped inputs.
    pub lost: Vec<LostRows>,
    /// Merge ranks that get no inputs.
    pub ranks_without_access: Vec<usize>,
    /// Loss ledgers of previous merges.
    pub previous_losses: Vec<String>,
    /// Inputs that are outputs of previous merges.
    pub previous_merges: Vec<PreviousMerge>,
    /// Metadata of the inputs that is copied to the output: tag and value.
    pub tags: Vec<(String, String)>,
    /// Names of translated files, and their original names.
    pub names: OriginalNames,
    /// Clocks of the nodes that have shards.
    pub host_clocks: HostClocks,
    /// Guid of the only input, if that is a previous merge: the output remains the same database.
    pub kept_guid: Option<String>,
}

impl MergePlan {
    /// Returns the only input, if that is a previous merge; its results are kept unchanged.
    pub fn only_previous_merge(&self) -> Option<&PreviousMerge> {
        match (&self.inputs[..], &self.previous_merges[..]) {
            ([input], [only]) if input.path == only.path => Some(only),
            _ => None,
        }
    }

    /// Returns the merge ranks that read inputs.
    pub fn readers(&self, ranks: usize) -> Vec<usize> {
        (0..ranks).filter(|rank| !self.ranks_without_access.contains(rank)).collect()
    }

    /// Returns the plan if only the first `readers` of the merge ranks read inputs.
    pub(crate) fn with_readers(mut self, readers: usize, ranks: usize) -> MergePlan {
        self.ranks_without_access.retain(|rank| *rank < readers);
        self.ranks_without_access.extend(readers..ranks);
        self
    }

    /// Returns the ranks of collectors that did not finish their shards.
    pub fn unfinished_ranks(&self) -> Vec<Option<u32>> {
        self.inputs.iter().filter(|s| !s.complete).map(|s| s.rank).collect()
    }
}

/// Examines each of the listed files and checks that they belong together. Excludes the inputs and ranks in `excluded`.
pub(crate) fn plan(
    (files, unused): (&[ListedFile], &UnusedFiles),
    output: PathBuf,
    translation_notes: &TranslationNotes,
    excluded: &ExcludedInputs,
    is_job_over: bool,
) -> Result<MergePlan, Failure> {
    let mut files = files.to_vec();
    excluded.mark(&mut files);
    let look = |listed: &ListedFile| match &listed.format {
        Ok(Format::RocPd) => InputCandidate::of_database(&listed.path),
        Ok(_) => InputCandidate::of_shard(&listed.path, is_job_over),
        Err(reason) => Err(RefusedInput::LeaveOut(reason.clone())),
    };
    let looked_at: Vec<_> = files.par_iter().map(|listed| (listed, look(listed))).collect();
    let mut candidates = Vec::new();
    let mut unreadable = Vec::new();
    for (listed, looked_at) in looked_at {
        match looked_at {
            Ok(candidate) => candidates.push(candidate),
            // A shard named by the user must be readable; a shard found in the run's folder may be incomplete.
            Err(RefusedInput::LeaveOut(reason))
                if listed.named && listed.format == Ok(Format::Shard) && listed.path.exists() =>
            {
                return Err(Failure::input(reason));
            }
            Err(RefusedInput::LeaveOut(reason)) => unreadable.push((listed.path.clone(), reason)),
            Err(RefusedInput::All(reason)) => return Err(Failure::input(reason)),
        }
    }
    if candidates.is_empty() {
        return Err(nothing_readable(files.len(), &unreadable));
    }
    let refused = unreadable.len();
    let run_id = one_run(&candidates)?;
    let seen = candidates.iter().flat_map(|s| s.ranks.iter().copied()).collect();
    let size = candidates.iter().filter_map(|s| s.size).max().unwrap_or(0);
    let ranks = JobRanks::new(seen, size, candidates.iter().map(|s| s.selection.as_ref()));
    candidates.sort_by(|a, b| {
        let key = |s: &'_ InputCandidate| (!s.complete, Reverse(s.bytes));
        a.order.cmp(&b.order).then(key(a).cmp(&key(b))).then(a.path.cmp(&b.path))
    });
    let mut duplicates = Duplicates { files: unreadable, ..Duplicates::default() };
    candidates = keep_one_of_each(candidates, &mut duplicates);
    leave_out_merged(&mut candidates, &mut duplicates.files)?;
    candidates = keep_each_guid_once(candidates, &mut duplicates);
    let mut unreadable = duplicates.files;
    let repeated_ranks = repeated_ranks(&candidates);
    // If its collector was killed immediately, a rank may have called any function.
    let is_silent = |s: &&InputCandidate| s.order.processes.is_empty() && s.complete;
    let silent = candidates.iter().filter(is_silent).filter_map(|s| s.collector);
    // Rows that a profiler recorded for a rank are in a separate shard.
    let present: BTreeSet<u32> =
        candidates.iter().filter(|s| s.collector.is_none()).flat_map(|s| s.ranks.iter().copied()).collect();
    let silent_ranks = silent.filter(|rank| !present.contains(rank)).collect();
    let is_unranked_present = candidates.iter().any(|s| s.ranks.is_empty() && !s.order.processes.is_empty());
    let shows_command = |s: &InputCandidate| {
        s.command.is_some() && s.collector.map_or(!is_unranked_present, |rank| !present.contains(&rank))
    };
    let names = OriginalNames::new(files.iter().filter_map(ListedFile::names));
    // Rows of vanished files are counted elsewhere, or unknown.
    let not_used = unreadable.iter().take(refused).filter(|(path, _)| exists(path) && !excluded.has(path));
    let not_used: Vec<_> =
        not_used.map(|(path, reason)| (names.original_path(path), names.restore_names(reason))).collect();
    for (path, reason) in &mut unreadable {
        *path = names.original_path(path);
        *reason = names.restore_names(reason);
    }
    let mut unused = unused.clone();
    let merged: HashSet<PathBuf> = candidates.iter().map(|c| names.original_path(&c.path)).collect();
    // The walk names each file of a folder, and each folder that cannot be listed.
    let named: HashSet<String> = unused.files.iter().map(|file| file.path.clone()).collect();
    for (place, (path, reason)) in unreadable.iter().enumerate() {
        let kind = if place < refused { UnusedKind::Refused } else { UnusedKind::Duplicate };
        // Some inputs are merged only in part.
        let is_named = path.is_dir() || named.contains(&path_text(path)) || merged.contains(path);
        if exists(path) && !is_named {
            unused.add(kind, path, reason);
        }
    }
    unused.files.sort();
    let lost_files = lost_rows::files_not_used(&not_used, &unused.folders);
    let unreadable = unreadable.into_iter().map(|(path, reason)| (path_text(&path).into(), reason)).collect();
    let mut warnings = translation_notes.warnings.clone();
    warnings.extend(duplicates.warnings);
    let mut previous_losses = Vec::new();
    for candidate in candidates.iter().filter(|c| !c.previous_losses.is_empty()) {
        let path = candidate.path.display();
        let losses = candidate.previous_losses.join(", ");
        warnings.push(format!("{path}: rows were lost when it was merged before: {losses}"));
        previous_losses.extend(candidate.previous_losses.iter().cloned());
    }
    let mut tags: Vec<(String, String)> = Vec::new();
    for tag in candidates.iter().flat_map(|c| &c.tags) {
        if tags.len() < MAX_TAGS && !tags.contains(tag) {
            tags.push(tag.clone());
        }
    }
    let schemas: Vec<_> = candidates.iter().flat_map(|c| c.schemas.iter().map(|(v, s)| (*v, s))).collect();
    let schema = PlannedSchema::join(&schemas);
    let newer = newer_versions(&candidates);
    let kept_guid = match &candidates[..] {
        [only] if only.is_merged && only.guids.len() == 1 => only.guids.first().cloned(),
        _ => None,
    };
    let mut host_clocks = HostClocks::default();
    candidates.iter_mut().for_each(|candidate| host_clocks.join(std::mem::take(&mut candidate.host_clocks)));
    let previous_merges = candidates.iter().filter_map(|c| c.previous_merge.clone()).collect();
    let shown: Vec<bool> = candidates.iter().map(shows_command).collect();
    let inputs =
        candidates.into_iter().zip(shown).map(|(candidate, shown)| planned(candidate, shown)).collect();
    let lost = lost_rows::sum(excluded.lost().into_iter().chain(duplicates.lost).chain(lost_files));
    let assumed = host_clocks.notes().into_iter().map(|note| names.restore_names(&note));
    let notes = translation_notes.notes.iter().cloned().chain(newer).chain(excluded.notes()).chain(assumed);
    let notes = notes.chain(unused.notes()).collect();
    Ok(MergePlan {
        run_id,
        inputs,
        schema,
        output,
        ranks,
        silent_ranks,
        repeated_ranks,
        unreadable,
        refused,
        unused,
        warnings,
        notes,
        lost,
        ranks_without_access: excluded.ranks_without_access(),
        previous_losses,
        host_clocks,
        previous_merges,
        tags,
        names,
        kept_guid,
    })
}

/// Returns a note for each version of RocPD's schema that is newer than this release, with the number of its inputs.
fn newer_versions(candidates: &[InputCandidate]) -> Vec<String> {
    let mut inputs: BTreeMap<[u32; 3], usize> = BTreeMap::new();
    for candidate in candidates {
        let versions: BTreeSet<[u32; 3]> = candidate.schemas.iter().map(|(version, _)| *version).collect();
        versions.into_iter().filter(|v| *v > NEWEST).for_each(|v| *inputs.entry(v).or_default() += 1);
    }
    let text = |version: [u32; 3]| version.map(|part| part.to_string()).join(".");
    let note = |(version, inputs): (&[u32; 3], &usize)| {
        let (version, newest) = (text(*version), text(NEWEST));
        let verb = if *inputs == 1 { "1 input has".to_owned() } else { format!("{inputs} inputs have") };
        format!(
            "{verb} RocPD schema {version}, which is newer than this release knows ({newest}): what it added is carried \
         along as it is"
        )
    };
    inputs.iter().map(note).collect()
}

/// Returns the run that the inputs belong to. Databases of profilers do not record a run.
fn one_run(candidates: &[InputCandidate]) -> Result<String, Failure> {
    let mut named = candidates.iter().filter_map(|c| Some((c, c.run_id.as_ref()?)));
    let Some((first, run_id)) = named.next() else { return Ok(String::new()) };
    match named.find(|(_, other)| *other != run_id) {
        Some((other, other_run)) => Err(Failure::input(format!(
            "{} belongs to run {other_run}, {} to run {run_id}; merge one run at a time",
            other.path.display(),
            first.path.display(),
        ))),
        None => Ok(run_id.clone()),
    }
}

/// Removes inputs with processes that are already in a previous merge among the inputs. Fails if two previous merges
/// share a process, because they cannot be separated.
fn leave_out_merged(
    candidates: &mut Vec<InputCandidate>,
    unreadable: &mut Vec<(PathBuf, String)>,
) -> Result<(), Failure> {
    let mut merged: HashMap<String, PathBuf> = HashMap::new();
    for merge in candidates.iter().filter(|c| c.is_merged) {
        for member in &merge.members {
            if let Some(other) = merged.insert(member.clone(), merge.path.clone())
                && other != merge.path
            {
                return Err(Failure::input(format!(
                    "{} and {} are merges that hold the same process; merge what they were made of instead",
                    other.display(),
                    merge.path.display()
                )));
            }
        }
    }
    candidates.retain(|candidate| {
        let holder = candidate.members.iter().find_map(|member| merged.get(member));
        match holder.filter(|holder| **holder != candidate.path && !candidate.is_merged) {
            Some(holder) => {
                let path = candidate.path.display();
                let reason =
                    format!("{path}: its processes are in {} already, a previous merge", holder.display());
                unreadable.push((candidate.path.clone(), reason));
                false
            }
            None => true,
        }
    });
    Ok(())
}

fn planned(candidate: InputCandidate, shows_command: bool) -> PlannedInput {
    let guid = |set: &usize| candidate.guids.get(*set).cloned();
    PlannedInput {
        guids: candidate.table_sets.iter().filter_map(guid).collect(),
        has_no_process: candidate.order.processes.is_empty(),
        shows_command,
        table_sets: candidate.table_sets,
        rank: candidate.ranks.first().copied(),
        path: candidate.path,
        format: candidate.format,
        bytes: candidate.bytes,
        complete: candidate.complete,
        running_until: candidate.running_until,
    }
}

fn nothing_readable(files: usize, unreadable: &[(PathBuf, String)]) -> Failure {
    let reason = unreadable.first().map_or("", |(_, why)| why);
    match files {
        1 => Failure::input(reason.to_owned()),
        files => Failure::input(format!("none of {files} inputs can be read: {reason}")),
    }
}

/// Returns the ranks for which more than one collector wrote a shard.
fn repeated_ranks(shards: &[InputCandidate]) -> Vec<u32> {
    let mut ranks: Vec<u32> = shards.iter().filter_map(|s| s.collector).collect();
    ranks.sort_unstable();
    let mut repeated: Vec<u32> = ranks.windows(2).filter(|w| w[0] == w[1]).map(|w| w[0]).collect();
    repeated.dedup();
    repeated
}
