//! Reads one table set for the survey. The files `database*.rs` implement the parts.

use crate::input::{InputTables, RowLengthLimit};
use rpd_rocpd::read::{Database, StoredTableSet};

/// A table set that is surveyed, and its tables as the job has them.
pub(super) struct TableSetReader<'a> {
    pub(super) database: &'a Database,
    pub(super) table_set: usize,
    pub(super) found: &'a StoredTableSet,
    pub(super) tables: &'a InputTables,
    pub(super) row_limit: &'a RowLengthLimit,
}
