//! The schema: page 1 is the root of `sqlite_master (type, name, tbl_name, rootpage, sql)`.

use super::database::PageDatabase;
use super::error::{PageError, PageProblem};
use super::rows::Wanted;
use rpd_shard::model::Value;

/// Maximum number of leaf pages of a schema.
const MAX_LEAVES: usize = 1 << 16;
/// Maximum number of bytes of long SQL texts.
const MAX_TEXT_BYTES: u64 = 256 << 20;

/// A table, index, view or trigger.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SchemaRow {
    /// `table`, `index`, `view` or `trigger`.
    pub kind: String,
    /// Name of the object.
    pub name: String,
    /// Name of the table that the object belongs to.
    pub table: String,
    /// Root page; 0 for views, triggers and virtual tables.
    pub root: u32,
    /// The statement that created the object; `None` for automatic indexes.
    pub sql: Option<String>,
}

impl PageDatabase {
    /// Returns all rows of the schema, in stored order.
    pub fn schema(&self) -> Result<Vec<SchemaRow>, PageError> {
        let leaves = self.leaves(1);
        if let Some(error) = leaves.damage.into_iter().next() {
            return Err(error);
        }
        if leaves.pages.len() > MAX_LEAVES {
            return Err(self.error(1, PageProblem::TooLong));
        }
        let rows =
            self.rows_bounded(&leaves.pages, &[Wanted::Value { default: Value::Null }; 5], MAX_TEXT_BYTES)?;
        let text = |column: usize, row| {
            let value = rows.columns.get(column).map_or(Value::Null, |cells| cells.get(row));
            value.text_lossy().map(|text| text.into_owned())
        };
        let row = |row| SchemaRow {
            kind: text(0, row).unwrap_or_default(),
            name: text(1, row).unwrap_or_default(),
            table: text(2, row).unwrap_or_default(),
            root: rows.columns.get(3).and_then(|c| c.int(row)).and_then(|n| n.try_into().ok()).unwrap_or(0),
            sql: text(4, row),
        };
        Ok((0..rows.len).map(row).collect())
    }
}
