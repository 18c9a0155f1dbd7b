//! What was typed. What it means is decided in the phases.

use crate::budget::Budget;
use clap::{Args, Parser, Subcommand};
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  rpd-merge                              merge the newest run below ./rpd-out
  mpirun -n 8 rpd-merge rpd-out/4711.0   merge one run with eight ranks
  rpd-merge -o job.db rank-*.rpdshard    merge chosen shards
  rpd-merge --strict --json rpd-out/4711.0
                                         fail if anything is missing; report for machines
  rpd-merge inspect rank-00003.rpdshard  what is in a shard

Then:
  sqlite3 trace.db 'select * from top limit 10'

Exit codes: 0 merged; 1 internal fault; 2 wrong usage; 3 incomplete input under --strict;
4 unreadable or incompatible input; 5 the output cannot be written.";

/// Merges the shards of a job into one RocPD database
///
/// Aligns the clocks of the nodes, deduplicates strings, renumbers ids. Under mpirun or srun all ranks
/// work on one merge. Rows that are missing are reported, never passed over.
#[derive(Parser, Debug, Clone)]
#[command(name = "rpd-merge", version, after_help = EXAMPLES, args_conflicts_with_subcommands = true)]
pub struct Cli {
    /// Something else than a merge
    #[command(subcommand)]
    pub command: Option<Inspect>,
    /// A merge
    #[command(flatten)]
    pub merge: MergeArgs,
}

/// Subcommands.
#[derive(Subcommand, Debug, Clone)]
pub enum Inspect {
    /// Shows a shard's header, processes, blocks, clocks and loss ledger
    Inspect {
        /// The shard
        file: PathBuf,
        /// List every block
        #[arg(long)]
        blocks: bool,
    },
}

/// Arguments of a merge.
#[derive(Args, Debug, Clone, Default)]
pub struct MergeArgs {
    /// Run directories or shards [default: the newest run below $RPD_OUTPUT or ./rpd-out]
    #[arg(value_name = "INPUT")]
    pub inputs: Vec<PathBuf>,
    /// The database to write [default: RUN_DIRECTORY/trace.db]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Overwrite the output if it is there
    #[arg(long)]
    pub force: bool,
    /// Stop with exit code 3 if a rank, a block or a row is missing
    #[arg(long)]
    pub strict: bool,
    /// Read and check everything, write nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Print the report as JSON on standard output
    #[arg(long)]
    pub json: bool,
    /// No progress and no summary, only warnings and errors
    #[arg(short, long)]
    pub quiet: bool,
    /// Memory of each merge rank: 512M, 2GiB. Fewer threads and smaller buffers where it is short
    #[arg(long, value_name = "SIZE", default_value = "1GiB")]
    pub memory: Budget,
    /// Threads of each merge rank [default: the cores that this process may use]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub threads: Option<u16>,
}
