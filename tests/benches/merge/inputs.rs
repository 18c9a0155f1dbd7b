//! The job that is merged: the same one as shards and as databases.

use rpd_tests::synthetic::{BulkRun, write_bulk_rocpd, write_bulk_shards};
use std::io;
use std::path::{Path, PathBuf};

/// What is merged.
pub(crate) struct Inputs {
    pub(crate) ranks: u32,
    pub(crate) events: usize,
    /// The run directory.
    pub(crate) shards: PathBuf,
    pub(crate) shard_bytes: u64,
    pub(crate) database_bytes: u64,
    pub(crate) databases: Vec<PathBuf>,
}

impl Inputs {
    /// Writes both below a folder.
    pub(crate) fn write(ranks: u32, events: usize, folder: &Path) -> io::Result<Inputs> {
        let run = BulkRun { ranks, events_per_rank: events, ..BulkRun::default() };
        let shards = write_bulk_shards(&folder.join("shards"), &run)?;
        let mut databases = write_bulk_rocpd(&folder.join("databases"), &run)?;
        databases.sort();
        let bytes = |paths: &[PathBuf]| -> io::Result<u64> {
            paths.iter().map(|path| Ok(path.metadata()?.len())).sum()
        };
        let place = shards.first().and_then(|path| path.parent()).ok_or(io::ErrorKind::NotFound)?;
        Ok(Inputs {
            ranks,
            events,
            shards: place.to_owned(),
            shard_bytes: bytes(&shards)?,
            database_bytes: bytes(&databases)?,
            databases,
        })
    }
}
