//! Much at once: runs of any size in the proportions of rocprofv3, made as fast as they are written.
//!
//! Of 50 events 20 are calls of HIP, 20 dispatches, 4 copies, 2 allocations, 3 markers and 1 a call
//! without length. The other synthetic runs have more of everything that may happen; these have the mass.
//! The databases and the shards of one run hold the same events, but for what a collector records in
//! rows of its own: ranges instead of markers, MPI calls instead of calls without length.

mod author;
mod database;
mod describe;
mod events;
mod sink;

use super::run::{ModelRank, Run, SyntheticRun};
use super::shards::{process_record, run_identity};
use author::Author;
use database::BulkDatabase;
use rpd_shard::ShardWriter;
use sink::BulkSink;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

/// What a bulk run shall be like. The same values give the same files.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BulkRun {
    /// Where everything random comes from.
    pub seed: u64,
    /// Number of ranks, each one process.
    pub ranks: u32,
    /// Ranks on each node.
    pub ranks_per_node: u32,
    /// Rows of `rocpd_event` of each rank.
    pub events_per_rank: usize,
    /// Threads of each rank.
    pub threads: usize,
    /// Different kernels, their names of 200 to 2000 characters; a tenth of them differs between ranks.
    pub kernels: usize,
    /// Names of operations, the same in every rank, nearly all unused, as rocprofv3 writes them.
    pub operations: usize,
    /// Names of markers over all ranks; each rank has its share of them to itself.
    pub distinct_strings: usize,
    /// Length of the large texts, 0 for none: a variable of the environment, and one in 100 call stacks
    /// and arguments, each of this length to twice as much.
    pub payload_bytes: usize,
}

impl Default for BulkRun {
    fn default() -> BulkRun {
        BulkRun {
            seed: 1,
            ranks: 16,
            ranks_per_node: 8,
            events_per_rank: 250_000,
            threads: 4,
            kernels: 120,
            operations: 2_500,
            distinct_strings: 160,
            payload_bytes: 0,
        }
    }
}

impl BulkRun {
    /// As many inputs, each with next to nothing in it.
    pub fn tiny(inputs: u32) -> BulkRun {
        let (kernels, operations) = (12, 60);
        BulkRun { ranks: inputs, events_per_rank: 200, kernels, operations, ..BulkRun::default() }
    }

    /// The nodes, clocks, ranks and processes.
    pub fn plan(&self) -> Run {
        let ranks_per_node = self.ranks_per_node.clamp(1, self.ranks.max(1));
        let run = SyntheticRun {
            seed: self.seed,
            nodes: self.ranks.div_ceil(ranks_per_node),
            ranks_per_node,
            events_per_rank: self.events_per_rank,
            threads: self.threads,
            kernels: self.kernels,
            ..SyntheticRun::default()
        };
        let mut run = run.plan_as(&format!("bulk-{}.0", self.seed));
        run.ranks.truncate(self.ranks as usize);
        run
    }

    /// Marker names of a rank: how many, the first one's number.
    fn share(&self, rank: u32) -> (usize, usize) {
        let (ranks, rank) = (self.ranks.max(1) as usize, rank as usize);
        let first = self.distinct_strings * rank / ranks;
        (self.distinct_strings * (rank + 1) / ranks - first, first)
    }
}

/// Writes `<dir>/<host>_<pid>_results.db` for every rank, as rocprofv3 does at the end of a process.
/// Returns the files by rank, and prints how fast it was.
pub fn write_bulk_rocpd(dir: &Path, bulk: &BulkRun) -> io::Result<Vec<PathBuf>> {
    fs::create_dir_all(dir)?;
    in_parallel("databases", bulk, |run, rank| {
        let process = rank.processes.first().ok_or(io::ErrorKind::NotFound)?;
        let node = &run.nodes[rank.node];
        let path = dir.join(format!("{}_{}_results.db", node.node.hostname, process.pid));
        let database = rusqlite::Connection::open(&path).map_err(io::Error::other)?;
        let sink = BulkSink::Database(Box::new(
            BulkDatabase::new(&database, run, process).map_err(io::Error::other)?,
        ));
        let mut author = Author::new(bulk, run, process, sink);
        author.write().map_err(io::Error::other)?;
        let (sink, rows) = author.done();
        if let BulkSink::Database(written) = sink {
            written.finish().map_err(io::Error::other)?;
        }
        Ok((path, rows))
    })
}

/// Writes `<dir>/<run id>/rank-%05d.rpdshard` for every rank. Returns the files by rank, and prints how
/// fast it was.
pub fn write_bulk_shards(dir: &Path, bulk: &BulkRun) -> io::Result<Vec<PathBuf>> {
    let dir = dir.join(&bulk.plan().run_id);
    fs::create_dir_all(&dir)?;
    in_parallel("shards", bulk, |run, rank| {
        let process = rank.processes.first().ok_or(io::ErrorKind::NotFound)?;
        let path = dir.join(format!("rank-{:05}.rpdshard", rank.rank));
        let file = BufWriter::with_capacity(1 << 20, File::create(&path)?);
        let mut shard = ShardWriter::new(file, &run_identity(run, rank.rank)).map_err(io::Error::other)?;
        shard.process(&process_record(run, process)).map_err(io::Error::other)?;
        for set in run.clock_sets(rank) {
            shard.clock(&set).map_err(io::Error::other)?;
        }
        let mut author = Author::new(bulk, run, process, BulkSink::Shard(Box::new(shard)));
        author.write().map_err(io::Error::other)?;
        let (sink, rows) = author.done();
        if let BulkSink::Shard(shard) = sink {
            shard.finish().map_err(io::Error::other)?.flush()?;
        }
        Ok((path, rows))
    })
}

/// Has every rank written by one of as many threads as there are processors. `write` returns the file and
/// its rows.
fn in_parallel(
    what: &str,
    bulk: &BulkRun,
    write: impl Fn(&Run, &ModelRank) -> io::Result<(PathBuf, u64)> + Sync,
) -> io::Result<Vec<PathBuf>> {
    let run = bulk.plan();
    let cores = std::thread::available_parallelism().map_or(1, usize::from).min(run.ranks.len().max(1));
    let (next, rows) = (AtomicUsize::new(0), AtomicU64::new(0));
    let written = Mutex::new(Vec::new());
    let began = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| {
                while let Some(rank) = run.ranks.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let result = write(&run, rank).map(|(path, count)| {
                        rows.fetch_add(count, Ordering::Relaxed);
                        path
                    });
                    let failed = result.is_err();
                    written.lock().unwrap_or_else(|e| e.into_inner()).push((rank.rank, result));
                    if failed {
                        next.store(run.ranks.len(), Ordering::Relaxed);
                    }
                }
            });
        }
    });
    let seconds = began.elapsed().as_secs_f64();
    let mut written = written.into_inner().unwrap_or_else(|e| e.into_inner());
    written.sort_by_key(|(rank, _)| *rank);
    let files = written.into_iter().map(|(_, result)| result).collect::<io::Result<Vec<_>>>()?;
    let rows = rows.into_inner();
    let rate = rows as f64 / seconds / cores as f64 / 1e3;
    eprintln!("{} {what}, {rows} rows in {seconds:.1} s: {rate:.0} k rows/s per core", files.len());
    Ok(files)
}
