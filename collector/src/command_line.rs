//! The command line.

use clap::Parser;
use std::ffi::OsString;
use std::path::PathBuf;

const EXAMPLES: &str = "\
EXAMPLES:
  A program of its own, into ./rpd-out/<time>/rank-00000.rpdshard:
      rpd-collect -- ./simulation input.nml

  One collector per rank:
      mpirun -n 4 rpd-collect -- python3 train.py
      srun -n 16 rpd-collect -o /scratch/traces -- ./simulation

  One collector per node, eight ranks below it:
      srun --ntasks-per-node=1 rpd-collect -- torchrun --nproc-per-node=8 train.py

  Then put the shards of all ranks together:
      rpd-merge

ENVIRONMENT:
  RPD_OUTPUT     output root, like -o
  RPD_RUN_ID     run id, like --run-id
  RPD_DISABLE    1: run the command without tracing it
  RPD_INTERCEPT  path of librpd_intercept.so, if it is not beside rpd-collect or in ../lib

EXIT STATUS:
  That of the command. 126 if it cannot be executed, 127 if it is not found, 2 for a mistake in the
  options. If the command dies by a signal, so does rpd-collect.";

/// Runs a command and records its roctx ranges and MPI calls.
#[derive(Parser, Debug, Clone)]
#[command(name = "rpd-collect", version, about, after_help = EXAMPLES)]
pub struct Options {
    /// Output root; the shard goes to DIR/<run id>/rank-<rank>.rpdshard
    #[arg(short = 'o', long = "output", value_name = "DIR", env = "RPD_OUTPUT", default_value = "rpd-out")]
    pub output: PathBuf,

    /// Name of the run, the same in all ranks [default: the launcher's job id, or the time]
    #[arg(long, value_name = "ID", env = "RPD_RUN_ID")]
    pub run_id: Option<String>,

    /// Variable that holds the rank, for launchers that are not known
    #[arg(long, value_name = "NAME")]
    pub rank_env: Option<String>,

    /// Bytes of the ring buffer of each thread
    #[arg(long, value_name = "BYTES", env = "RPD_RING_BYTES")]
    pub ring_size: Option<usize>,

    /// The command to run, and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}
