//! The data model: RocPD's tables as columns, described once, as data.
//!
//! [`Schema::builtin`] lists every table with its columns and the [`Kind`] of each; the shard codec,
//! the SQL of `formats/rocpd`, the renumbering of the merger and the tests are driven by it.

mod builder;
pub mod native;
pub mod rocpd;
mod row_cells;
mod row_types;
mod rows;
mod table;
mod time;
mod value;

pub use builder::RowsBuilder;
pub use row_cells::{RowKey, StackId, StringId, WholeNumber};
pub use row_types::{
    AgentKey, AgentRow, ArgKey, ArgRow, CodeObjectKey, CodeObjectRow, EventKey, EventRow, KernelDispatchKey,
    KernelDispatchRow, KernelSymbolKey, KernelSymbolRow, MarkKey, MarkRow, MemoryAllocateKey,
    MemoryAllocateRow, MemoryCopyKey, MemoryCopyRow, PmcEventKey, PmcEventRow, PmcKey, PmcRow, QueueKey,
    QueueRow, RegionKey, RegionRow, SampleKey, SampleRow, StreamKey, StreamRow, TableRow, ThreadKey,
    ThreadRow, TrackKey, TrackRow,
};
pub use rows::{Cells, Keys, Local, Merged, Nulls, Rows, TextCells};
pub use table::{
    Column, Declared, FIRST_CARRIED_TABLE, JsonRef, Kind, RPD_TABLE_PREFIX, Schema, Table, TableId,
    current_table_name, is_wider,
};
pub use time::{JobNs, LocalNs};
pub use value::{OwnedValue, Value};
