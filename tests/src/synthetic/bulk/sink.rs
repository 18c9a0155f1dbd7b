//! Where rows go: a database with the ids of rocprofv3, or a shard with dense keys.

use super::database::BulkDatabase;
use rpd_shard::model::{TableId, Value, native};
use rpd_shard::{ShardWriter, WriteError};
use std::fs::File;
use std::io::BufWriter;

/// Number of the only process of a shard.
const SOURCE: u32 = 1;

pub(super) enum BulkSink<'c> {
    Database(Box<BulkDatabase<'c>>),
    Shard(Box<ShardWriter<BufWriter<File>>>),
}

/// Why a row could not be written.
#[derive(Debug, thiserror::Error)]
pub(super) enum SinkError {
    #[error(transparent)]
    Database(#[from] rusqlite::Error),
    #[error(transparent)]
    Shard(#[from] WriteError),
}

impl BulkSink<'_> {
    /// Adds a row: one value for each column, NULL for the default. `id` is that of a database.
    #[inline]
    pub(super) fn push(&mut self, table: TableId, id: i64, row: &[Value<'_>]) -> Result<(), SinkError> {
        match self {
            BulkSink::Database(database) => Ok(database.push(table, id, row)?),
            BulkSink::Shard(shard) => Ok(shard.push(SOURCE, table, row).map(drop)?),
        }
    }

    /// Whether the rows of the collector itself are written, too.
    pub(super) fn is_native(&self) -> bool {
        matches!(self, BulkSink::Shard(_))
    }

    /// Adds a row that only a shard has.
    pub(super) fn push_native(&mut self, table: TableId, row: &[Value<'_>]) -> Result<(), SinkError> {
        debug_assert!(table >= native::RANGE);
        self.push(table, 0, row)
    }

    /// The id of a string: the next one of a database, where it must be new.
    pub(super) fn string(&mut self, text: &str) -> Result<i64, SinkError> {
        match self {
            BulkSink::Database(database) => Ok(database.string(text)?),
            BulkSink::Shard(shard) => Ok(shard.string(text.as_bytes())?),
        }
    }
}
