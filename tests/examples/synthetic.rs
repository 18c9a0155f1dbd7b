//! Writes a synthetic run as shards, or as RocPD databases.

use clap::Parser;
use rpd_tests::synthetic::{SyntheticRun, write_rocpd, write_shards};
use std::path::PathBuf;
use std::time::Instant;

/// Write a synthetic run: shards in OUT/<run id>, or one RocPD database per process in OUT.
#[derive(Parser)]
struct Arguments {
    /// Number of ranks; a multiple of --ranks-per-node
    #[arg(long, default_value_t = 4)]
    ranks: u32,
    /// Ranks on one node
    #[arg(long, default_value_t = 4)]
    ranks_per_node: u32,
    /// HIP calls, ranges, marks, calls of MPI and RCCL per rank
    #[arg(long, default_value_t = 10_000)]
    events: usize,
    /// Threads of each rank
    #[arg(long, default_value_t = 4)]
    threads: usize,
    /// Different kernels
    #[arg(long, default_value_t = 120)]
    kernels: usize,
    /// Largest clock drift of a node, ppm
    #[arg(long, default_value_t = 0)]
    drift_ppm: i64,
    /// Largest error of a node's wall clock, us
    #[arg(long, default_value_t = 0)]
    anchor_error_us: i64,
    /// Seed
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Every second rank has a worker process
    #[arg(long)]
    workers: bool,
    /// RocPD databases as rocprofv3 writes them
    #[arg(long)]
    rocpd: bool,
    /// Directory
    #[arg(long)]
    out: PathBuf,
}

fn main() -> std::io::Result<()> {
    let arguments = Arguments::parse();
    let ranks_per_node = arguments.ranks_per_node.min(arguments.ranks).max(1);
    let run = SyntheticRun {
        seed: arguments.seed,
        nodes: arguments.ranks.div_ceil(ranks_per_node),
        ranks_per_node,
        events_per_rank: arguments.events,
        threads: arguments.threads,
        kernels: arguments.kernels,
        max_drift_ppb: arguments.drift_ppm * 1_000,
        max_anchor_error: arguments.anchor_error_us * 1_000,
        workers: arguments.workers,
        ..SyntheticRun::default()
    }
    .plan();
    let began = Instant::now();
    let written = if arguments.rocpd {
        write_rocpd(&run, &arguments.out)?
    } else {
        let dir = write_shards(&run, &arguments.out)?;
        let files = std::fs::read_dir(&dir)?.map(|entry| Ok(entry?.path()));
        files.collect::<std::io::Result<_>>()?
    };
    let bytes: u64 = written.iter().filter_map(|path| path.metadata().ok()).map(|m| m.len()).sum();
    eprintln!("{} files, {bytes} bytes, {:.1} s", written.len(), began.elapsed().as_secs_f64());
    if let Some(folder) = written.first().and_then(|path| path.parent()) {
        println!("{}", folder.display());
    }
    Ok(())
}
