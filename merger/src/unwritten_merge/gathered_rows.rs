//! Strings, processes and ids of all merge ranks, which each of them needs.

use super::UnwrittenMerge;
use crate::output::written_strings::TakeWrittenString;
use rpd_comm::{Comm, agree_on_result, all_gather_values};
use rpd_console::Failure;
use rpd_run::RowSource;
use rpd_shard::model::{Keys, Local, Rows, RowsBuilder, Schema, TableId, Value, rocpd};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;

/// Columns of processes that readers use.
const PROCESS_COLUMNS: &[&str] = &["nid", "pid", "command", "extdata"];

/// Rows of all merge ranks.
#[derive(Debug)]
pub(super) struct GatheredRows {
    /// Strings of each merge rank, ascending by id.
    strings: Vec<RankStrings>,
    /// Rows of `rocpd_info_process` with [`PROCESS_COLUMNS`], ascending by id.
    pub(super) processes: Rows<Local>,
}

/// The strings that one merge rank writes.
#[derive(Debug, Default, Serialize, Deserialize)]
struct RankStrings {
    ids: Vec<i64>,
    texts: Vec<Vec<u8>>,
}

/// Id, node, process id, command and extdata of a process.
type ProcessFields = (i64, Option<i64>, Option<i64>, String, String);

impl GatheredRows {
    /// Gathers the rows of all ranks.
    pub(super) fn gather(comm: &impl Comm, own: &UnwrittenMerge) -> Result<GatheredRows, Failure> {
        let mut strings = RankStrings::default();
        let read = own.each_string(&mut |id, text| {
            strings.ids.push(id);
            strings.texts.push(text.to_vec());
            Ok(())
        });
        agree_on_result(comm, read)?;
        let strings = all_gather_values(comm, &strings)?;
        let fields = agree_on_result(comm, own_processes(own))?;
        let mut all: Vec<ProcessFields> = all_gather_values(comm, &fields)?.into_iter().flatten().collect();
        all.sort_unstable_by_key(|process| process.0);
        Ok(GatheredRows { strings, processes: process_rows(&all)? })
    }

    /// Passes on all strings, ascending by id.
    pub(super) fn each_string(&self, take: &mut TakeWrittenString<'_>) -> Result<(), Failure> {
        let all = self.strings.iter().flat_map(|rank| rank.ids.iter().zip(&rank.texts));
        all.into_iter().try_for_each(|(id, text)| take(*id, text))
    }
}

fn own_processes(own: &UnwrittenMerge) -> Result<Vec<ProcessFields>, Failure> {
    let table = rocpd::INFO_PROCESS;
    let pieces: Vec<usize> = (0..own.pieces(table)).collect();
    let mut fields = Vec::new();
    own.read_pieces(table, &pieces, PROCESS_COLUMNS, &mut |_, rows| {
        let [node, pid, command, extdata] =
            ["nid", "pid", "command", "extdata"].map(|column| rows.column(column));
        let text = |value: Value<'_>| value.text_lossy().unwrap_or_default().into_owned();
        for i in 0..rows.len {
            let texts = (text(command.get(i)), text(extdata.get(i)));
            fields.push((rows.keys.get(i), node.int(i), pid.int(i), texts.0, texts.1));
        }
        Ok(())
    })?;
    Ok(fields)
}

fn process_rows(processes: &[ProcessFields]) -> Result<Rows<Local>, Failure> {
    let table = Schema::builtin().get(rocpd::INFO_PROCESS);
    let table = table.ok_or_else(|| Failure::internal("processes have no table"))?;
    let mut rows = RowsBuilder::new(table);
    for (_, node, pid, command, extdata) in processes {
        let mut values = vec![Value::Null; table.columns.len()];
        let fields = [(*node).into(), (*pid).into(), command.as_str().into(), extdata.as_str().into()];
        for (column, value) in PROCESS_COLUMNS.iter().zip(fields) {
            if let Some(place) = table.position(column) {
                values[place] = value;
            }
        }
        rows.push(&values);
    }
    let mut rows = rows.finish(1);
    rows.keys = Keys::Sparse(processes.iter().map(|process| process.0).collect());
    Ok(rows)
}

/// Returns the first and the last id of each table over all ranks.
pub(super) fn all_bounds(
    comm: &impl Comm,
    own: &HashMap<TableId, (i64, i64)>,
) -> Result<HashMap<TableId, (i64, i64)>, Failure> {
    let own: Vec<(TableId, i64, i64)> =
        own.iter().map(|(table, (first, last))| (*table, *first, *last)).collect();
    let mut bounds = HashMap::new();
    for (table, first, last) in all_gather_values(comm, &own)?.into_iter().flatten() {
        let known = bounds.entry(table).or_insert((first, last));
        *known = (first.min(known.0), last.max(known.1));
    }
    Ok(bounds)
}
