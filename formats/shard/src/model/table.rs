//! Descriptions of tables: their columns, and the kind of each column, which determines how a merge treats it.

use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// Number of a table on disk. Part of the shard format: numbers are never reused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct TableId(pub u16);

/// First number of carried tables. They are not built in: a shard that uses one contains its description.
pub const FIRST_CARRIED_TABLE: TableId = TableId(0x100);

/// Prefix of the names of tables that only a `.rpd` has. They must not be called `rocpd_*`: AMD's strict validators
/// reject such tables if AMD's schema lacks them.
pub const RPD_TABLE_PREFIX: &str = "rpd_ext_";
/// Former prefix, in databases and shards that are still read.
const FORMER_RPD_TABLE_PREFIX: &str = "rocpd_ext_";

/// Returns the current name of a table that an earlier release named differently.
pub fn current_table_name(name: &str) -> Cow<'_, str> {
    match name.strip_prefix(FORMER_RPD_TABLE_PREFIX) {
        Some(own) => format!("{RPD_TABLE_PREFIX}{own}").into(),
        None => name.into(),
    }
}

/// A path in JSON text at which the id of a row of another table is stored.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct JsonRef {
    /// Object keys from the top, outermost first: `["pc", "code_object_id"]`.
    pub path: Vec<String>,
    /// Table that the id at this path belongs to.
    pub table: TableId,
}

/// Meaning of a column's values, which determines how a merge treats them.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Kind {
    /// The key of a row of another table of the same source.
    Ref(TableId),
    /// An id in the string table of the input.
    Str,
    /// `stack_id` or `parent_stack_id`: an id space of its own per source. A merge keeps 0 and NULL.
    Stack,
    /// Nanoseconds in the clock domain of the source's process.
    Time,
    /// A number that is copied.
    Int,
    /// A floating point number that is copied.
    Real,
    /// Text that is copied.
    Text,
    /// JSON text. A merge renumbers the ids at the listed paths and copies the rest.
    Json(Vec<JsonRef>),
    /// Any value of SQLite, copied with its dynamic type.
    Any,
}

/// SQL declaration of a column. Native tables never reach SQL and keep the default.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Declared {
    /// Type name as AMD's schema spells it.
    pub type_name: String,
    /// `NOT NULL`.
    pub not_null: bool,
    /// `DEFAULT`, as a text value or a number in text form.
    pub default: Option<String>,
    /// `CHECK (column IN (...))`.
    pub one_of: Vec<String>,
    /// `UNIQUE`.
    pub unique: bool,
}

/// One column of a table.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Column {
    /// Name, as in SQL.
    pub name: String,
    /// Kind, which determines how a merge treats its values.
    pub kind: Kind,
    /// Declaration in SQL.
    pub sql: Declared,
    /// Position of an earlier column with similar values in the same row, so that differences are small.
    pub near: Option<u8>,
}

/// Description of one table. RocPD's key (`id`) and `guid` are implied and not listed as columns.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Table {
    /// Number on disk.
    pub id: TableId,
    /// Name; that of a RocPD table has no uuid suffix: `rocpd_region`.
    pub name: String,
    /// Columns in the order of the declaration.
    pub columns: Vec<Column>,
}

impl Table {
    /// Returns the position of a column.
    pub fn position(&self, column: &str) -> Option<usize> {
        self.columns.iter().position(|c| c.name == column)
    }

    /// Returns the positions of the first `Time` column and of `end`; without `end`, the first one twice. A block's
    /// time bounds come from these columns.
    pub fn span(&self) -> Option<(usize, usize)> {
        let first = self.columns.iter().position(|c| c.kind == Kind::Time)?;
        Some((first, self.position("end").unwrap_or(first)))
    }
}
