//! How fast traces are drawn, and how large they become.
//!
//! ```text
//! ci/bench perfetto [--slices N] [--rounds N] [--dir FOLDER] [--only encoder|command|arguments]
//! ```
//!
//! Of the encoder alone, without and with a category and two annotations: slices/s of one core, bytes per slice, and
//! what gzip makes of them at several levels. The aims are its.
//!
//! Of rpd-merge, on a synthetic run of eight ranks that it has merged before, and once from the shards of the run: time,
//! slices/s, slices/s per core (by CPU time), and memory, alone with one and two threads, and under mpirun with one and two
//! ranks of a thread; with and without annotations; as one file and as 32. Bytes per slice before and after gzip; what
//! other levels of gzip would make of the same packets; which part of the CPU time is reading, gzip and the rest; and how
//! long Perfetto's own trace processor takes to load the file.
//!
//! Of real traces of the PyTorch profiler, where they are: size and time with and without their arguments.
//!
//! All take turns in every round; figures are medians over the rounds, and ratios are taken within a round. Inputs are in
//! the page cache. Memory and the comparison of the outputs, which must be equal, are in a round of their own.

mod arguments;
mod command;
mod encoder;
mod job;
mod load;
mod report;
mod stages;

use clap::{Parser, ValueEnum};
use command::{Inputs, contestants};
use rpd_tests::harness::repository;
use rpd_tests::measure::exit_code;
use rustix::time::{ClockId, clock_gettime};
use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;

/// Ranks of the job.
const RANKS: u32 = 8;

/// Traces of a synthetic job, measured
#[derive(Parser)]
#[command(name = "ci/bench perfetto")]
struct Arguments {
    /// Slices of the job, about
    #[arg(long)]
    slices: Option<usize>,
    /// Rounds
    #[arg(long)]
    rounds: Option<usize>,
    /// Where inputs and outputs are written; a folder in it, which is removed [default: target/bench-perfetto]
    #[arg(long, value_name = "FOLDER")]
    dir: Option<PathBuf>,
    /// Measure one part
    #[arg(long, value_name = "PART")]
    only: Option<Only>,
    /// Passed by cargo bench; without it, a short run
    #[arg(long, hide = true)]
    bench: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Only {
    Encoder,
    Command,
    Arguments,
}

fn main() -> ExitCode {
    exit_code("perfetto", run(&Arguments::parse()))
}

fn run(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    let default = if arguments.bench { (2_000_000, 3) } else { (6_400, 1) };
    let slices = arguments.slices.unwrap_or(default.0);
    let rounds = arguments.rounds.unwrap_or(default.1).max(1);
    let measures = |part: Only| arguments.only.is_none_or(|only| only == part);
    if measures(Only::Encoder) && !encoder::measure(slices, rounds) {
        println!("some aims are missed");
    }
    if measures(Only::Command) {
        measure_command(arguments, slices, rounds)?;
    }
    if measures(Only::Arguments) {
        arguments::measure(work_folder(arguments)?.path(), rounds)?;
    }
    Ok(())
}

/// Creates the folder of inputs and outputs, which is removed in the end.
fn work_folder(arguments: &Arguments) -> Result<tempfile::TempDir, Box<dyn Error>> {
    let place = arguments.dir.clone().unwrap_or_else(|| repository().join("target/bench-perfetto"));
    std::fs::create_dir_all(&place)?;
    Ok(tempfile::Builder::new().prefix("perfetto-").tempdir_in(&place)?)
}

fn measure_command(arguments: &Arguments, slices: usize, rounds: usize) -> Result<(), Box<dyn Error>> {
    let folder = work_folder(arguments)?;
    let inputs = Inputs::write(RANKS, slices / RANKS as usize, folder.path())?;
    let mut rows = Vec::new();
    for contestant in contestants() {
        eprintln!("check: {contestant}");
        rows.push(report::Row::new(contestant, inputs.check(contestant)?));
    }
    for round in 0..rounds {
        // Each time another one begins, so that none always follows the same one.
        let first = round % rows.len().max(1);
        let (ahead, behind) = rows.split_at_mut(first);
        for row in behind.iter_mut().chain(ahead) {
            let lap = inputs.lap(row.contestant)?;
            eprintln!("round {} of {rounds}: {}: {:.2} s", round + 1, row.contestant, lap.seconds);
            row.laps.push(lap);
        }
    }
    report::print(folder.path(), &rows);
    for annotations in [true, false] {
        let trace = inputs.trace(annotations)?;
        stages::print(&inputs.database, &trace, annotations, rounds, report::cpu_alone(&rows, annotations))?;
        load::print(&trace, rounds);
    }
    Ok(())
}

/// CPU time of this thread.
fn cpu_seconds() -> f64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}
