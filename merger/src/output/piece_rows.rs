//! Which rows of a piece are made.

use rpd_run::DRAWN_TABLES;
use rpd_shard::model::{Column, Kind, TableId, rocpd};

/// Which rows of a piece are made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PieceRows {
    /// Rows of `rocpd_info_process`.
    Processes,
    /// All other rows.
    Others,
    /// Rows of one table. Columns that are not named may be absent.
    OfTable(TableId, &'static [&'static str]),
}

impl PieceRows {
    /// Returns whether rows of a table are made.
    pub(super) fn has(self, table: TableId) -> bool {
        match self {
            PieceRows::Processes => table == rocpd::INFO_PROCESS,
            PieceRows::Others => table != rocpd::INFO_PROCESS,
            PieceRows::OfTable(only, _) => table == only,
        }
    }

    /// Returns the columns that are made; `None` for all.
    pub(super) fn columns(self) -> Option<&'static [&'static str]> {
        match self {
            // Small tables, some of whose rows get values from other columns.
            PieceRows::OfTable(table, _) if !DRAWN_TABLES.contains(&table) && table != rocpd::EVENT => None,
            PieceRows::OfTable(_, wanted) => Some(wanted),
            PieceRows::Processes | PieceRows::Others => None,
        }
    }

    /// Returns whether a column of stored rows is read. The times of a span replace each other where one is missing.
    pub(super) fn needs(self, column: &Column) -> bool {
        column.kind == Kind::Time || self.columns().is_none_or(|wanted| wanted.contains(&&*column.name))
    }
}
