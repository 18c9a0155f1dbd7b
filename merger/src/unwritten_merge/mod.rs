//! A merge that is not written: its rows are made from the inputs whenever they are read.

mod gathered_rows;
mod made_rows;
mod row_pieces;
mod string_cache;

use crate::input::listing::{ListedFile, UnusedFiles};
use crate::merge::{AgreedMerge, MergeJob, agree_on_job};
use crate::options::MergeArgs;
use crate::output::written_strings::{TakeWrittenString, each_written_string};
use crate::summary::metadata;
use gathered_rows::{RankStrings, all_bounds, all_processes, process_rows};
use made_rows::without_restart;
use row_pieces::RowPieces;
use rpd_comm::{Comm, agree_on_result, all_gather_values, broadcast_result};
use rpd_console::{Failure, Progress};
use rpd_shard::model::{Keys, Local, Rows, RowsBuilder, Schema, TableId, Value, rocpd};
use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::path::Path;
use string_cache::StringCache;

/// Callback that receives the rows of several pieces: the index of the piece in the request, and rows of it.
type TakePieceRows<'a> = dyn FnMut(usize, &Rows<Local>) -> Result<(), Failure> + 'a;

/// Number of string rows that are made at once.
const STRINGS_AT_ONCE: usize = 16_384;
/// Tag of the values that a merge replaces. They are known after all rows were made.
const REPLACED_TAG: &str = "rpd.replaced";

/// The rows that a merge of the inputs would write. Each merge rank has those of its own inputs, and all strings, nodes
/// and processes.
pub(crate) struct UnwrittenMerge {
    args: MergeArgs,
    merge: AgreedMerge,
    tags: HashMap<String, String>,
    pieces: RowPieces,
    /// First and last id of each table in the whole run.
    bounds: HashMap<TableId, (i64, i64)>,
    /// Processes of all merge ranks, ascending by id, with the columns that readers use.
    processes: Rows<Local>,
    /// Ids of those that this rank has.
    own_processes: BTreeSet<i64>,
    /// Strings of all merge ranks, if there are several.
    strings: Option<Vec<RankStrings>>,
    /// Strings of the inputs that are being read.
    loaded: StringCache,
}

impl fmt::Debug for UnwrittenMerge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UnwrittenMerge").field("run", &self.merge.plan.run_id).finish_non_exhaustive()
    }
}

impl UnwrittenMerge {
    /// Surveys listed files on the first `readers` merge ranks, and agrees on ids and times. `output` names a file in the
    /// folder for translated inputs, which is not written.
    pub(crate) fn of(
        comm: &impl Comm,
        args: &MergeArgs,
        files: &(Vec<ListedFile>, UnusedFiles),
        output: &Path,
        readers: usize,
        progress: &mut Progress,
    ) -> Result<UnwrittenMerge, Failure> {
        let mut job = broadcast_result(comm, || MergeJob::of(files.clone(), output.to_owned(), args))?;
        let merge = agree_on_job(comm, args, &mut job, readers, progress)?;
        let AgreedMerge { plan, inputs, agreed, report, .. } = &merge;
        let tags = metadata(plan, report, &agreed.clocks, &agreed.findings, agreed.communicators.as_ref());
        let tags = tags.into_iter().filter(|(tag, _)| tag != REPLACED_TAG).collect();
        let pieces = RowPieces::new(&inputs.surveys, &agreed.numbering.bases);
        let bounds = all_bounds(comm, pieces.bounds())?;
        let mut made = UnwrittenMerge {
            args: args.clone(),
            merge,
            tags,
            pieces,
            bounds,
            processes: process_rows(&[])?,
            own_processes: BTreeSet::new(),
            strings: None,
            loaded: StringCache::new(rayon::current_num_threads()),
        };
        let own = agree_on_result(comm, made.read_processes())?;
        made.own_processes = own.iter().map(|process| process.0).collect();
        made.processes = process_rows(&all_processes(comm, &own)?)?;
        if comm.size() > 1 {
            let own = agree_on_result(comm, made.own_strings())?;
            made.strings = Some(all_gather_values(comm, &own)?);
        }
        Ok(made)
    }

    /// Returns the first damage of the inputs.
    pub(crate) fn damage(&self) -> Option<String> {
        let warnings = &self.merge.agreed.findings.warnings;
        let (first, others) = warnings.split_first()?;
        match others.len() as u64 {
            0 => Some(first.clone()),
            more => Some(format!("{first}; and {}", rpd_console::wording::counted(more, "further warning"))),
        }
    }

    /// Returns the memory for the analysis of calls.
    pub(crate) fn analysis_memory(&self) -> rpd_calls::AnalysisMemory {
        self.args.memory.for_analysis(self.merge.inputs.memory)
    }

    fn read_strings(&self, take: &mut TakePieceRows<'_>) -> Result<(), Failure> {
        let Some(table) = Schema::builtin().get(rocpd::STRING) else { return Ok(()) };
        let mut rows = RowsBuilder::new(table);
        let mut keys = Vec::new();
        let mut pass = |keys: &mut Vec<i64>, rows: &mut RowsBuilder| {
            let mut made = std::mem::replace(rows, RowsBuilder::new(table)).finish(1);
            made.keys = Keys::Sparse(std::mem::take(keys));
            take(0, &made)
        };
        self.each_string(&mut |id, text| {
            keys.push(id);
            rows.push(&[Value::Text(text)]);
            if keys.len() == STRINGS_AT_ONCE { pass(&mut keys, &mut rows) } else { Ok(()) }
        })?;
        pass(&mut keys, &mut rows)
    }

    fn each_string(&self, take: &mut TakeWrittenString<'_>) -> Result<(), Failure> {
        let AgreedMerge { inputs, agreed, .. } = &self.merge;
        match &self.strings {
            Some(strings) => strings.iter().try_for_each(|of_rank| of_rank.each(take)),
            None => each_written_string(&inputs.surveys, &agreed.strings, take).map_err(without_restart),
        }
    }
}
