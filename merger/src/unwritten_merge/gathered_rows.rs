//! Strings, processes and ids of all merge ranks, which each of them needs.

use super::UnwrittenMerge;
use crate::output::written_strings::TakeWrittenString;
use rpd_comm::{Comm, all_gather_values};
use rpd_console::Failure;
use rpd_shard::model::{Keys, Local, Rows, RowsBuilder, Schema, TableId, Value, rocpd};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;

/// Columns of processes that readers use.
const PROCESS_COLUMNS: &[&str] = &["nid", "pid", "end", "command", "extdata"];

/// The strings that one merge rank writes, ascending by id.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct RankStrings {
    ids: Vec<i64>,
    texts: Vec<Vec<u8>>,
}

impl RankStrings {
    /// Passes on all strings.
    pub(super) fn each(&self, take: &mut TakeWrittenString<'_>) -> Result<(), Failure> {
        self.ids.iter().zip(&self.texts).try_for_each(|(id, text)| take(*id, text))
    }
}

/// Id of a process, the numbers in its first [`PROCESS_COLUMNS`], command and extdata.
pub(super) type ProcessFields = (i64, [Option<i64>; 3], String, String);

impl UnwrittenMerge {
    /// Reads the strings of this rank.
    pub(super) fn own_strings(&self) -> Result<RankStrings, Failure> {
        let mut strings = RankStrings::default();
        self.each_string(&mut |id, text| {
            strings.ids.push(id);
            strings.texts.push(text.to_vec());
            Ok(())
        })?;
        Ok(strings)
    }

    /// Reads the processes of this rank.
    pub(super) fn read_processes(&self) -> Result<Vec<ProcessFields>, Failure> {
        let table = rocpd::INFO_PROCESS;
        let pieces: Vec<usize> = (0..self.pieces.of(table).len()).collect();
        let mut fields = Vec::new();
        self.make_pieces(table, &pieces, PROCESS_COLUMNS, &mut |_, rows| {
            let numbers = ["nid", "pid", "end"].map(|column| rows.column(column));
            let [command, extdata] = ["command", "extdata"].map(|column| rows.column(column));
            let text = |value: Value<'_>| value.text_lossy().unwrap_or_default().into_owned();
            for i in 0..rows.len {
                let texts = (text(command.get(i)), text(extdata.get(i)));
                fields.push((rows.keys.get(i), numbers.map(|column| column.int(i)), texts.0, texts.1));
            }
            Ok(())
        })?;
        Ok(fields)
    }
}

/// Returns the processes of all ranks, ascending by id.
pub(super) fn all_processes(
    comm: &impl Comm,
    own: &Vec<ProcessFields>,
) -> Result<Vec<ProcessFields>, Failure> {
    let mut all: Vec<ProcessFields> = all_gather_values(comm, own)?.into_iter().flatten().collect();
    all.sort_unstable_by_key(|process| process.0);
    Ok(all)
}

/// Returns rows of `rocpd_info_process` with the columns that readers use.
pub(super) fn process_rows(processes: &[ProcessFields]) -> Result<Rows<Local>, Failure> {
    let table = Schema::builtin().get(rocpd::INFO_PROCESS);
    let table = table.ok_or_else(|| Failure::internal("processes have no table"))?;
    let mut rows = RowsBuilder::new(table);
    for (_, numbers, command, extdata) in processes {
        let mut values = vec![Value::Null; table.columns.len()];
        let [node, pid, end] = numbers.map(Value::from);
        let fields = [node, pid, end, command.as_str().into(), extdata.as_str().into()];
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
