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
use gathered_rows::{GatheredRows, all_bounds};
use row_pieces::RowPieces;
use rpd_comm::{Comm, broadcast_result};
use rpd_console::{Failure, Progress};
use rpd_shard::model::{Keys, Local, Rows, RowsBuilder, Schema, TableId, Value, rocpd};
use std::collections::HashMap;
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
    /// Rows of all merge ranks, if there are several.
    gathered: Option<GatheredRows>,
    strings: StringCache,
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
        let strings = StringCache::new(rayon::current_num_threads());
        let bounds = pieces.bounds().clone();
        let args = args.clone();
        let mut made = UnwrittenMerge { args, merge, tags, pieces, bounds, gathered: None, strings };
        if comm.size() > 1 {
            made.bounds = all_bounds(comm, &made.bounds)?;
            made.gathered = Some(GatheredRows::gather(comm, &made)?);
        }
        Ok(made)
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
        match &self.gathered {
            Some(gathered) => gathered.each_string(take),
            None => each_written_string(&self.merge.inputs.surveys, &self.merge.agreed.strings, take),
        }
    }
}
