//! A job of very many ranks that did little each: what a merge costs for each rank, node and file.
//!
//! ```text
//! ci/bench scale [--ranks N] [--ranks-per-node N] [--events N] [--databases N] [--dir FOLDER]
//! ```
//!
//! Each rank leaves a shard of several tables, in the folders that rpd-collect makes; the nodes have measured their clocks against
//! each other, and all ranks call collectives. rpd-merge makes a database of it with two threads, the same on two MPI ranks, and
//! slices for Perfetto. Seconds are wall time, those of each phase as `--json` tells them; memory is the most that was resident.
//!
//! In the same run all shards are read once and no more, and SQLite alone puts databases of some of the ranks into one, without
//! clocks, references or checks. Inputs are in the page cache. Each is measured once: at this size runs differ by a few percent.

mod inputs;
mod report;
mod ways;

use clap::Parser;
use inputs::Inputs;
use rpd_tests::harness::{mpi_missing, repository};
use rpd_tests::measure::exit_code;
use rpd_tests::synthetic::SyntheticRun;
use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;
use ways::Way;

/// Merge of a job of very many ranks, measured
#[derive(Parser)]
#[command(name = "ci/bench scale")]
struct Arguments {
    /// Ranks of the job
    #[arg(long)]
    ranks: Option<u32>,
    /// Ranks on each node
    #[arg(long, default_value_t = 8)]
    ranks_per_node: u32,
    /// Calls, ranges and marks of each rank; dispatches, copies and what they are about come on top
    #[arg(long, default_value_t = 100)]
    events: usize,
    /// Ranks of databases that SQLite alone puts into one
    #[arg(long)]
    databases: Option<u32>,
    /// Where inputs and outputs are written; a folder in it, which is removed [default: target/bench-scale]
    #[arg(long, value_name = "FOLDER")]
    dir: Option<PathBuf>,
    /// Passed by cargo bench; without it, a short run
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() -> ExitCode {
    exit_code("scale", run(&Arguments::parse()))
}

fn run(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    let default = if arguments.bench { (10_000, 1_000) } else { (1_008, 16) };
    let ranks_per_node = arguments.ranks_per_node.max(1);
    let nodes = arguments.ranks.unwrap_or(default.0).div_ceil(ranks_per_node);
    let place = arguments.dir.clone().unwrap_or_else(|| repository().join("target/bench-scale"));
    std::fs::create_dir_all(&place)?;
    let folder = tempfile::Builder::new().prefix("scale-").tempdir_in(&place)?;
    let run = SyntheticRun {
        nodes,
        ranks_per_node,
        events_per_rank: arguments.events,
        max_drift_ppb: 20_000,
        max_anchor_error: 1_000_000,
        probes: true,
        ..SyntheticRun::default()
    };
    eprintln!("{} ranks on {nodes} nodes are written", nodes * ranks_per_node);
    let inputs = Inputs::write(&run, arguments.databases.unwrap_or(default.1), folder.path())?;
    report::print_inputs(&run, &inputs, folder.path());

    let mut measured = Vec::new();
    let ways = Way::all(mpi_missing().is_none());
    if let Some(why) = mpi_missing() {
        println!("not measured under mpirun: {why}");
    }
    for way in ways {
        eprintln!("{way}");
        measured.push((way, way.measure(&inputs, folder.path())?));
    }
    eprintln!("SQLite alone");
    let baseline = inputs.baseline(&folder.path().join("plain.db"))?;
    report::print(&run, &measured, &baseline);
    Ok(())
}
