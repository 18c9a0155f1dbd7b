//! A merge that is not written: its rows are made from the inputs whenever they are read.

mod row_pieces;
mod string_cache;

use crate::input::PieceRef;
use crate::input::listing::{ListedFile, UnusedFiles};
use crate::merge::{AgreedMerge, MergeJob, agree_on_job, row_maker};
use crate::options::MergeArgs;
use crate::output::loaded_strings::LoadedStrings;
use crate::output::piece_rows::PieceRows;
use crate::output::rows::WrittenRows;
use crate::output::written_strings::each_written_string;
use crate::summary::metadata;
use row_pieces::RowPieces;
use rpd_comm::{Comm, broadcast_result};
use rpd_console::{Failure, Progress};
use rpd_rocpd::read::Database;
use rpd_run::{EventArgs, RowSource, TakePieceArgs, TakePieceRows};
use rpd_shard::model::{Keys, RowsBuilder, Schema, TableId, Value, rocpd};
use std::collections::HashMap;
use std::fmt;
use std::path::Path;
use string_cache::StringCache;

/// Number of string rows that are made at once.
const STRINGS_AT_ONCE: usize = 16_384;
/// Tag of the values that a merge replaces. They are known after all rows were made.
const REPLACED_TAG: &str = "rpd.replaced";

/// The rows that a merge of the inputs would write.
pub(crate) struct UnwrittenMerge {
    args: MergeArgs,
    merge: AgreedMerge,
    tags: HashMap<String, String>,
    pieces: RowPieces,
    strings: StringCache,
}

impl fmt::Debug for UnwrittenMerge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UnwrittenMerge").field("run", &self.merge.plan.run_id).finish_non_exhaustive()
    }
}

impl UnwrittenMerge {
    /// Surveys listed files and agrees on ids and times. `output` names a file in the folder for translated inputs, which
    /// is not written.
    pub(crate) fn of(
        comm: &impl Comm,
        args: &MergeArgs,
        files: (Vec<ListedFile>, UnusedFiles),
        output: &Path,
        progress: &mut Progress,
    ) -> Result<UnwrittenMerge, Failure> {
        let mut job = broadcast_result(comm, || MergeJob::of(files, output.to_owned(), args))?;
        let merge = agree_on_job(comm, args, &mut job, progress)?;
        let AgreedMerge { plan, agreed, report, .. } = &merge;
        let tags = metadata(plan, report, &agreed.clocks, &agreed.findings, agreed.communicators.as_ref());
        let tags = tags.into_iter().filter(|(tag, _)| tag != REPLACED_TAG).collect();
        let pieces = RowPieces::new(&merge.inputs.surveys, &agreed.numbering.bases);
        let strings = StringCache::new(rayon::current_num_threads());
        Ok(UnwrittenMerge { args: args.clone(), merge, tags, pieces, strings })
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
        let surveys = &self.merge.inputs.surveys;
        each_written_string(surveys, &self.merge.agreed.strings, &mut |id, text| {
            keys.push(id);
            rows.push(&[Value::Text(text)]);
            if keys.len() == STRINGS_AT_ONCE { pass(&mut keys, &mut rows) } else { Ok(()) }
        })?;
        pass(&mut keys, &mut rows)
    }
}

impl UnwrittenMerge {
    /// Calls `make` for each of these pieces of a table, with its index in `pieces` and the strings of its input.
    fn each_piece(
        &self,
        table: TableId,
        pieces: &[usize],
        make: &mut dyn FnMut(usize, PieceRef, &LoadedStrings) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let AgreedMerge { inputs, agreed, .. } = &self.merge;
        let all = self.pieces.of(table);
        for (number, piece) in pieces.iter().enumerate() {
            let Some(place) = all.get(*piece).map(|found| found.place) else { continue };
            let opened = &inputs.surveys[place.input].input;
            let loaded = self.strings.get(place.input, opened, &agreed.strings)?;
            make(number, place, &loaded)?;
            let next = pieces.get(number + 1).and_then(|next| all.get(*next));
            if next.is_none_or(|next| next.place.input != place.input) {
                opened.release();
            }
        }
        Ok(())
    }
}

impl RowSource for UnwrittenMerge {
    fn failure(&self, problem: &str) -> Failure {
        Failure::input(format!("the inputs of run {}: {problem}", self.merge.plan.run_id))
    }

    fn tag(&self, name: &str) -> Option<&str> {
        self.tags.get(name).map(String::as_str)
    }

    fn database(&self) -> Option<&Database> {
        None
    }

    fn divide_pieces(&mut self, _units: usize) {}

    fn pieces(&self, table: TableId) -> usize {
        match table {
            rocpd::STRING | rocpd::INFO_NODE => 1,
            table => self.pieces.of(table).len(),
        }
    }

    fn row_count(&self, table: TableId, piece: usize) -> u64 {
        match table {
            rocpd::STRING => self.merge.agreed.strings.distinct,
            rocpd::INFO_NODE => self.merge.agreed.findings.nodes.nodes().len() as u64,
            table => self.pieces.of(table).get(piece).map_or(0, |piece| piece.rows),
        }
    }

    fn first_id(&self, table: TableId, piece: usize) -> Result<i64, Failure> {
        Ok(match table {
            rocpd::STRING | rocpd::INFO_NODE => 1,
            table => self.pieces.of(table).get(piece).map_or(i64::MAX, |piece| piece.first_id),
        })
    }

    fn last_id(&self, table: TableId) -> Result<Option<i64>, Failure> {
        Ok(match table {
            rocpd::STRING | rocpd::INFO_NODE => i64::try_from(self.row_count(table, 0)).ok(),
            table => self.pieces.last_id(table),
        })
    }

    fn read_pieces(
        &self,
        table: TableId,
        pieces: &[usize],
        wanted: &'static [&'static str],
        take: &mut TakePieceRows<'_>,
    ) -> Result<(), Failure> {
        let AgreedMerge { inputs, agreed, .. } = &self.merge;
        match table {
            rocpd::STRING if !pieces.is_empty() => return self.read_strings(take),
            rocpd::INFO_NODE if !pieces.is_empty() => {
                let nodes = agreed.findings.nodes.rows();
                return nodes.map_or(Ok(()), |rows| take(0, &rows.into_stored()));
            }
            _ => {}
        }
        let maker = row_maker(&self.args, inputs, agreed);
        // Nothing is written, so that these counts are not needed.
        let mut uncounted = WrittenRows::default();
        let what = PieceRows::OfTable(table, wanted);
        self.each_piece(table, pieces, &mut |number, place, loaded| {
            maker.make(place, what, loaded, &mut uncounted, &mut |rows| {
                take(number, &rows.clone().into_stored())
            })
        })
    }

    fn read_args(&self, pieces: &[usize], take: &mut TakePieceArgs<'_>) -> Result<(), Failure> {
        let AgreedMerge { inputs, agreed, .. } = &self.merge;
        let maker = row_maker(&self.args, inputs, agreed);
        let mut uncounted = WrittenRows::default();
        let what = PieceRows::OfTable(rocpd::ARG, &EventArgs::COLUMNS);
        self.each_piece(rocpd::ARG, pieces, &mut |number, place, loaded| {
            if maker.make_arg_columns(place, loaded, &mut |args| take(number, args))? {
                return Ok(());
            }
            maker.make(place, what, loaded, &mut uncounted, &mut |rows| {
                let rows = rows.clone().into_stored();
                take(number, EventArgs::Rows(&rows, 0..rows.len))
            })
        })
    }
}
