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
    /// The nodes measure their clocks against each other
    #[arg(long)]
    probes: bool,
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
        probes: arguments.probes,
        ..SyntheticRun::default()
    }
    .plan();
    let began = Instant::now();
    let folder = match arguments.rocpd {
        true => {
            write_rocpd(&run, &arguments.out)?;
            arguments.out
        }
        false => write_shards(&run, &arguments.out)?,
    };
    eprintln!("{} processes, {:.1} s", run.processes().count(), began.elapsed().as_secs_f64());
    println!("{}", folder.display());
    Ok(())
}
