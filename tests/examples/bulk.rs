//! Writes a bulk run: RocPD databases, or shards with `--shards`.

use clap::Parser;
use rpd_tests::synthetic::{BulkRun, write_bulk_rocpd, write_bulk_shards};
use std::path::PathBuf;

/// Write many events fast: one RocPD database per rank in OUT, or shards in OUT/<run id>.
#[derive(Parser)]
struct Arguments {
    /// Number of ranks
    #[arg(long, default_value_t = 16)]
    ranks: u32,
    /// Ranks on one node
    #[arg(long, default_value_t = 8)]
    ranks_per_node: u32,
    /// Events per rank
    #[arg(long, default_value_t = 250_000)]
    events: usize,
    /// Threads of each rank
    #[arg(long, default_value_t = 4)]
    threads: usize,
    /// Different kernels
    #[arg(long, default_value_t = 120)]
    kernels: usize,
    /// Names of operations in each database
    #[arg(long, default_value_t = 2_500)]
    operations: usize,
    /// Names of markers over all ranks
    #[arg(long, default_value_t = 160)]
    distinct_strings: usize,
    /// Length of the large texts; 0 for none
    #[arg(long, default_value_t = 0)]
    payload_bytes: usize,
    /// Seed
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Shards instead of databases
    #[arg(long)]
    shards: bool,
    /// Directory
    #[arg(long)]
    out: PathBuf,
}

fn main() -> std::io::Result<()> {
    let arguments = Arguments::parse();
    let run = BulkRun {
        seed: arguments.seed,
        ranks: arguments.ranks,
        ranks_per_node: arguments.ranks_per_node,
        events_per_rank: arguments.events,
        threads: arguments.threads,
        kernels: arguments.kernels,
        operations: arguments.operations,
        distinct_strings: arguments.distinct_strings,
        payload_bytes: arguments.payload_bytes,
    };
    let write = if arguments.shards { write_bulk_shards } else { write_bulk_rocpd };
    let written = write(&arguments.out, &run)?;
    let bytes: u64 = written.iter().filter_map(|path| path.metadata().ok()).map(|m| m.len()).sum();
    eprintln!("{bytes} bytes");
    if let Some(folder) = written.first().and_then(|path| path.parent()) {
        println!("{}", folder.display());
    }
    Ok(())
}
