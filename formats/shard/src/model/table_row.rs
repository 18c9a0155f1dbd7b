//! The macro that declares typed rows and the descriptions of their tables.

use super::native;
use super::table::{Table, TableId};
use super::value::Value;

/// Key of the node row and of the process row in every source.
pub(super) const OWNER: Value<'static> = Value::Int(1);

/// A row of one table.
pub trait TableRow {
    /// The table.
    const TABLE: TableId;
    /// Type of the key of such a row.
    type Key;

    /// Returns the description of the table.
    fn table() -> Table;

    /// Passes the values of the columns, in the order of the table, to `take`. Trailing NULL values are omitted, so
    /// that the defaults apply. Native tables have no defaults, and all their values are passed.
    fn with_values<T>(&self, take: impl FnOnce(&[Value<'_>]) -> T) -> T;

    /// Returns the key with number `key`.
    fn key(key: i64) -> Self::Key;
}

/// Returns the values without those that are omitted, see [`TableRow::with_values`].
#[inline]
pub(super) fn given<'v, 'a>(table: TableId, values: &'v [Value<'a>]) -> &'v [Value<'a>] {
    if native::is_native(table) {
        return values;
    }
    let end = values.iter().rposition(|value| *value != Value::Null).map_or(0, |last| last + 1);
    values.get(..end).unwrap_or(values)
}

/// Declares the types, and with them the tables. A field is a column; its type determines the [`Kind`](super::Kind)
/// of the column, and whether it may be NULL. After `=>` follow calls of methods of [`Column`](super::Column) for
/// what the type does not say. `@nid` and `@pid` are columns that hold the key of the source's only node and process.
macro_rules! row_types {
    ($(
        $(#[$row_doc:meta])*
        $row:ident $(<$life:lifetime>)?, $key:ident ($table:expr, $name:literal) {
            $(
                $(@ $owner:ident)* $(#[$field_doc:meta])* $field:ident $(= $column:literal)?: $cell:ty
                $(=> $($method:ident($($argument:tt)*)).+)?,
            )*
        }
    )*) => {
        $(
            #[doc = concat!("Key of a [`", stringify!($row), "`].")]
            pub type $key = RowKey<{ $table.0 }>;

            $(#[$row_doc])*
            #[derive(Clone, Copy, PartialEq, Debug)]
            pub struct $row $(<$life>)? {
                $($(#[$field_doc])* pub $field: $cell,)*
            }

            impl $(<$life>)? TableRow for $row $(<$life>)? {
                const TABLE: TableId = $table;
                type Key = $key;

                fn table() -> Table {
                    let columns = vec![$(
                        $(owner_column!($owner),)*
                        <$cell>::column(column_name!($field $($column)?)) $($(.$method($($argument)*))+)?,
                    )*];
                    Table { id: $table, name: $name.to_owned(), columns }
                }

                #[inline]
                fn with_values<T>(&self, take: impl FnOnce(&[Value<'_>]) -> T) -> T {
                    take(given(Self::TABLE, &[$($(owner_cell!($owner),)* self.$field.value(),)*]))
                }

                #[inline]
                fn key(key: i64) -> $key {
                    RowKey::new(key)
                }
            }
        )*

        /// Returns the tables of all row types, in merge order.
        pub(super) fn tables() -> Vec<Table> {
            vec![$($row::table(),)*]
        }
    };
}

macro_rules! column_name {
    ($field:ident) => {
        stringify!($field)
    };
    ($field:ident $column:literal) => {
        $column
    };
}

macro_rules! owner_cell {
    ($owner:ident) => {
        OWNER
    };
}

macro_rules! owner_column {
    (nid) => {
        reference("nid", rocpd::INFO_NODE).not_null()
    };
    (pid) => {
        reference("pid", rocpd::INFO_PROCESS).not_null()
    };
    (nullable_pid) => {
        reference("pid", rocpd::INFO_PROCESS)
    };
}
pub(super) use {column_name, owner_cell, owner_column, row_types};
