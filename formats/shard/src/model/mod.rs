//! The data model: RocPD's tables as columns, described once, as data.
//!
//! [`Schema::builtin`] lists every table with its columns and the [`Kind`] of each column. The shard codec, the SQL
//! of `formats/rocpd`, the renumbering of the merger and the tests all use this description.

mod builder;
pub mod columns;
pub mod native;
pub mod rocpd;
mod row_cells;
pub mod row_types;
mod rows;
mod schema;
mod table;
mod table_row;
mod time;
mod value;

pub use builder::RowsBuilder;
pub use rows::{Cells, IntColumn, Keys, Local, Merged, Nulls, Rows, TextCells};
pub use schema::{Schema, is_wider};
pub use table::{
    Column, Declared, FIRST_CARRIED_TABLE, JsonRef, Kind, RPD_TABLE_PREFIX, Table, TableId,
    current_table_name,
};
pub use time::{JobNs, LocalNs};
pub use value::{OwnedValue, Value};
