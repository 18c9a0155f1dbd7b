//! The job as shards, and some of its ranks as databases.

use rpd_tests::plain;
use rpd_tests::synthetic::{SyntheticRun, write_rocpd, write_shards};
use std::error::Error;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// What is merged.
pub(crate) struct Inputs {
    /// The folder of the run.
    pub(crate) shards: PathBuf,
    /// How many files are in it,
    pub(crate) files: u64,
    /// and how large they are together.
    pub(crate) bytes: u64,
    /// Of the first ranks.
    databases: Vec<PathBuf>,
}

/// What there is to compare with.
pub(crate) struct Baseline {
    /// Seconds to open, read and close each shard, one after the other.
    pub(crate) reading: f64,
    /// Databases that SQLite has put into one,
    pub(crate) databases: usize,
    /// and its seconds.
    pub(crate) sqlite: f64,
}

impl Inputs {
    /// Writes both below a folder.
    pub(crate) fn write(run: &SyntheticRun, databases: u32, folder: &Path) -> io::Result<Inputs> {
        let shards = write_shards(&run.plan(), &folder.join("shards"))?;
        let (mut files, mut bytes) = (0, 0);
        each_file(&shards, &mut |path| {
            files += 1;
            bytes += path.metadata()?.len();
            Ok(())
        })?;
        let nodes = databases.div_ceil(run.ranks_per_node).min(run.nodes);
        let some = SyntheticRun { nodes, ..run.clone() };
        let mut databases = write_rocpd(&some.plan(), &folder.join("databases"))?;
        databases.sort();
        rustix::fs::sync();
        Ok(Inputs { shards, files, bytes, databases })
    }

    /// Measures what there is to compare with.
    pub(crate) fn baseline(&self, output: &Path) -> Result<Baseline, Box<dyn Error>> {
        let began = Instant::now();
        each_file(&self.shards, &mut |path| fs::read(path).map(drop))?;
        let reading = began.elapsed().as_secs_f64();
        let began = Instant::now();
        plain::shifted(&self.databases, output)?;
        Ok(Baseline { reading, databases: self.databases.len(), sqlite: began.elapsed().as_secs_f64() })
    }
}

fn each_file(folder: &Path, what: &mut impl FnMut(&Path) -> io::Result<()>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() { each_file(&path, what)? } else { what(&path)? }
    }
    Ok(())
}
