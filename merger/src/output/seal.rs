//! Phase 5: writes the pages above the leaf pages, and the tables that SQLite writes.

use super::index::{LeafIndex, LeafSlot};
use super::sets::{SharedTableRows, TableSets};
use super::string_rows::StringRows;
use super::written_rows::WrittenRows;
use super::written_strings::each_written_string;
use crate::agree::nodes::JobNodes;
use crate::input::JobSchema;
use crate::input::survey::{InputSurvey, with_lost_rows};
use crate::output::write_failure;
use crate::strings::StringIds;
use rpd_comm::{Comm, agree_on_result};
use rpd_console::Failure;
use rpd_rocpd::Writer;
use rpd_rocpd::read::StoredTableSet;
use rpd_shard::model::{TableId, rocpd};
use rpd_sqlite::write::{LogicalPage, Sealer, reset_change_counter};
use std::collections::BTreeMap;
use std::path::Path;

/// Gathers the leaf index of all ranks on rank 0; the other ranks get an empty one.
pub(crate) fn gather_leaves(comm: &impl Comm, own: &LeafIndex) -> Result<LeafIndex, Failure> {
    let mut outgoing = vec![Vec::new(); comm.size()];
    outgoing[0] = own.to_bytes();
    let mut all = LeafIndex::default();
    for message in comm.all_to_all(outgoing) {
        all.append(LeafIndex::from_bytes(&message)?);
    }
    Ok(all)
}

/// Writes the pages above the leaf pages and updates the header. `roots` are the root pages of the tables, `first` is
/// the page from which the index counts, `pages` is the number of pages after it.
pub(crate) fn seal_pages(
    path: &Path,
    index: &LeafIndex,
    roots: &BTreeMap<LeafSlot, u32>,
    first: LogicalPage,
    pages: u64,
) -> Result<(), Failure> {
    let cannot =
        |error: &dyn std::fmt::Display| Failure::output(format!("cannot finish the output: {error}"));
    let mut sealer = Sealer::open(path, first.plus(pages)).map_err(|e| cannot(&e))?;
    for (slot, leaves) in &index.tables {
        let root =
            *roots.get(slot).ok_or_else(|| Failure::internal(format!("{} has no root", slot.table)))?;
        let leaves = leaves.iter().map(|(page, last)| (first.plus(page), last));
        sealer.table(root, leaves).map_err(|e| cannot(&e))?;
    }
    sealer.finish().map_err(|e| cannot(&e))
}

/// Opens the output with SQLite.
pub(crate) type OpenWriter<'a> = dyn Fn() -> Result<Writer, Failure> + 'a;

/// Runs a step on one rank after the other, on ranks that have work. If it fails on a rank, all ranks fail.
pub(super) fn in_rank_order(
    comm: &impl Comm,
    has_work: bool,
    mut step: impl FnMut() -> Result<(), Failure>,
) -> Result<(), Failure> {
    (0..comm.size()).try_for_each(|turn| {
        let is_own = turn == comm.rank() && has_work;
        agree_on_result(comm, if is_own { step() } else { Ok(()) })
    })
}

/// Adds the strings of one rank after the other. Ids ascend, so that SQLite appends to the table.
pub(crate) fn write_strings(
    comm: &impl Comm,
    open: &OpenWriter<'_>,
    schema: &JobSchema,
    surveys: &[InputSurvey],
    strings: &StringIds,
) -> Result<u64, Failure> {
    let mut written = 0;
    in_rank_order(comm, strings.writes_any(), || {
        let mut writer = open()?;
        written = add_strings(&mut writer, schema, surveys, strings)
            .map_err(|failure| with_lost_rows(failure, surveys, schema))?;
        writer.commit().map_err(write_failure)
    })?;
    Ok(written)
}

/// Adds the strings that no previous input has, input by input.
fn add_strings(
    writer: &mut Writer,
    schema: &JobSchema,
    surveys: &[InputSurvey],
    strings: &StringIds,
) -> Result<u64, Failure> {
    let Some(table) = schema.get(rocpd::STRING) else { return Ok(0) };
    let mut rows = StringRows::new(writer, 0, table);
    each_written_string(surveys, strings, &mut |id, text| rows.add(id, text))?;
    rows.finish()
}

/// Writes the last rows: nodes, unless the table sets contain them already, metadata, and the highest ids. Metadata
/// of the job is in the first table set.
pub(crate) fn finish(
    path: &Path,
    sets: &TableSets,
    schema: &JobSchema,
    nodes: &JobNodes,
    index: &LeafIndex,
    metadata: &[(String, String)],
) -> Result<(), Failure> {
    let mut writer = Writer::open(path, &sets.all).map_err(write_failure)?;
    if !sets.is_partitioned()
        && let Some(rows) = nodes.rows()
    {
        writer.append(&rows).map_err(write_failure)?;
    }
    for (slot, leaves) in &index.tables {
        if let (Some(last), Some(table)) = (leaves.last_rowid(), schema.get(slot.table)) {
            writer.sequence(slot.set as usize, &table.name, last).map_err(write_failure)?;
        }
    }
    for (tag, value) in metadata {
        writer.metadata(tag, value).map_err(write_failure)?;
    }
    for set in 1..sets.all.len() {
        writer
            .metadata_of(set, StoredTableSet::FURTHER_SET, "its words are in the first set of this file")
            .map_err(write_failure)?;
    }
    commit(writer, path)
}

fn commit(writer: Writer, path: &Path) -> Result<(), Failure> {
    writer.commit().map_err(write_failure)?;
    // A single rank commits its strings once, several ranks do so more often. The counter must not depend on that.
    reset_change_counter(path).map_err(|e| Failure::output(format!("cannot finish the output: {e}")))
}

/// Adds the counts of all ranks for tables that SQLite writes.
pub(crate) fn count_shared_rows(
    written: &mut WrittenRows,
    SharedTableRows { strings, nodes }: SharedTableRows,
) {
    let counts: [(TableId, u64); 2] = [(rocpd::STRING, strings), (rocpd::INFO_NODE, nodes)];
    counts.into_iter().filter(|(_, rows)| *rows > 0).for_each(|(table, rows)| written.count(table, rows));
}
