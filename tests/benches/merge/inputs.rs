//! The job that is merged: the same one as shards and as databases.

use rpd_tests::synthetic::{SyntheticRun, write_rocpd, write_shards};
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
        let ranks_per_node = ranks.min(8);
        let run = SyntheticRun {
            nodes: ranks.div_ceil(ranks_per_node),
            ranks_per_node,
            events_per_rank: events,
            ..SyntheticRun::default()
        };
        let run = run.plan();
        let shards = write_shards(&run, &folder.join("shards"))?;
        let mut databases = write_rocpd(&run, &folder.join("databases"))?;
        databases.sort();
        let bytes = |paths: &mut dyn Iterator<Item = PathBuf>| -> io::Result<u64> {
            paths.map(|path| Ok(path.metadata()?.len())).sum()
        };
        let shard_files = std::fs::read_dir(&shards)?.collect::<io::Result<Vec<_>>>()?;
        Ok(Inputs {
            ranks: run.ranks.len() as u32,
            events,
            shard_bytes: bytes(&mut shard_files.iter().map(|entry| entry.path()))?,
            database_bytes: bytes(&mut databases.iter().cloned())?,
            shards,
            databases,
        })
    }
}
