//! The output as rank 0 creates it: a database with empty tables, after which all ranks write pages.

use super::index::LeafSlot;
use super::sets::TableSets;
use crate::input::JobSchema;
use crate::output::write_failure;
use rpd_comm::{Comm, all_gather_counts};
use rpd_console::Failure;
use rpd_rocpd::Writer;
use rpd_rocpd::schema::table_name;
use rpd_sqlite::write::LogicalPage;
use std::collections::BTreeMap;
use std::path::Path;

/// Pages of the empty database.
#[derive(Debug)]
pub(crate) struct BaseFile {
    /// Root page of each table, on rank 0.
    pub roots: BTreeMap<LeafSlot, u32>,
    /// First page after the empty tables.
    pub next_page: LogicalPage,
}

impl BaseFile {
    /// Creates the file on rank 0. All ranks learn its number of pages.
    pub(crate) fn create(
        comm: &impl Comm,
        path: &Path,
        sets: &TableSets,
        schema: &JobSchema,
    ) -> Result<BaseFile, Failure> {
        let mut roots = BTreeMap::new();
        let mut pages = 0;
        if comm.rank() == 0 {
            let writer =
                Writer::create_of(path, &sets.all, schema.version, &schema.schema).map_err(write_failure)?;
            writer.mark_as_merge().map_err(write_failure)?;
            let (found, count) = writer.roots().map_err(write_failure)?;
            for (set, names) in (0u32..).zip(&sets.all) {
                let slot = |table| {
                    let root = found.get(&table_name(&schema.name(table), names))?;
                    Some((LeafSlot { set, table }, *root))
                };
                roots.extend(schema.numbered.iter().filter_map(|table| slot(*table)));
            }
            pages = count;
            writer.commit().map_err(write_failure)?;
        }
        let shared = all_gather_counts(comm, &[u64::from(pages)])?;
        let pages = u32::try_from(shared[0][0]).map_err(Failure::damaged_message)?;
        Ok(BaseFile { roots, next_page: LogicalPage::after(pages) })
    }
}
