//! How long this build takes beside another one, on the same inputs and in the same rounds.
//!
//! ```text
//! ci/bench against FOLDER [INPUT]... [--rounds N] [--dir FOLDER]
//! ```
//!
//! FOLDER has the programs of the other build, such as `target/release` of a worktree at an older commit. Without an INPUT
//! the bench writes a job as shards and as databases, and a trace of the PyTorch profiler, plain and compressed. The
//! builds take turns and swap places every round; one turn of each warms the page cache. Ratios are taken within a
//! round. Outputs are compared byte for byte.

#[path = "../merge/inputs.rs"]
mod inputs;
#[path = "../kineto/synthetic.rs"]
mod synthetic;
mod turns;

use clap::Parser;
use flate2::Compression;
use flate2::write::GzEncoder;
use inputs::Inputs;
use rpd_tests::harness::{binary, repository};
use rpd_tests::measure::{RatioInterval, exit_code, machine, median};
use std::error::Error;
use std::fs::File;
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use turns::{Build, Lap};

/// This build beside another one
#[derive(Parser)]
#[command(name = "ci/bench against")]
struct Arguments {
    /// Programs of the other build; this build itself without it, which shows the noise
    #[arg(value_name = "FOLDER")]
    other: Option<PathBuf>,
    /// What is merged, each by itself
    #[arg(value_name = "INPUT")]
    inputs: Vec<PathBuf>,
    /// Rounds
    #[arg(long)]
    rounds: Option<usize>,
    /// Threads of a merge
    #[arg(long, default_value_t = 1)]
    threads: usize,
    /// Where inputs and outputs are written; in a folder in it, which is removed [default: target/bench-against]
    #[arg(long, value_name = "FOLDER")]
    dir: Option<PathBuf>,
    /// Passed by cargo bench; without it, a short run
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() -> ExitCode {
    exit_code("against", run(&Arguments::parse()))
}

fn run(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    let rounds = arguments.rounds.unwrap_or(if arguments.bench { 15 } else { 2 }).max(2);
    let place = arguments.dir.clone().unwrap_or_else(|| repository().join("target/bench-against"));
    std::fs::create_dir_all(&place)?;
    let folder = tempfile::Builder::new().prefix("against-").tempdir_in(&place)?;
    let inputs = match arguments.inputs.as_slice() {
        [] => write_inputs(folder.path(), arguments.bench)?,
        given => given.iter().map(|input| (input.display().to_string(), vec![input.clone()])).collect(),
    };
    let this = binary("rpd-merge");
    let other = arguments.other.as_ref().map_or(this.clone(), |other| other.join("rpd-merge"));
    let builds = [other, this].map(|program| Build::new(program, arguments.threads));

    println!("{rounds} rounds, {} threads. {}", arguments.threads, machine(folder.path()));
    println!(
        "\nRatio of this build to {}: mean and 95 % interval of the rounds' ratios.\n",
        builds[0].program.display()
    );
    println!("| input | wall | CPU | other: wall, CPU, s | this: wall, CPU, s | outputs |");
    println!("|---|--:|--:|--:|--:|---|");
    for (name, input) in &inputs {
        compare(name, input, &builds, rounds, folder.path())?;
    }
    Ok(())
}

fn compare(
    name: &str,
    input: &[PathBuf],
    builds: &[Build; 2],
    rounds: usize,
    folder: &Path,
) -> Result<(), Box<dyn Error>> {
    let outputs = [folder.join("other.db"), folder.join("this.db")];
    let turn = |at: usize| builds[at].merge(input, &outputs[at]);
    turn(0)?;
    turn(1)?;
    let same = std::fs::read(&outputs[0])? == std::fs::read(&outputs[1])?;
    let mut laps: [Vec<Lap>; 2] = Default::default();
    for round in 0..rounds {
        for at in if round % 2 == 0 { [0, 1] } else { [1, 0] } {
            laps[at].push(turn(at)?);
        }
        eprintln!("{name}: round {} of {rounds}", round + 1);
    }
    let ratio = |of: fn(&Lap) -> f64| {
        RatioInterval::of(laps[1].iter().zip(&laps[0]).map(|(this, other)| of(this) / of(other)))
    };
    let seconds = |laps: &[Lap]| {
        let of = |of: fn(&Lap) -> f64| median(laps.iter().map(of));
        format!("{:.3}, {:.3}", of(|lap| lap.wall), of(|lap| lap.cpu))
    };
    println!(
        "| {name} | {} | {} | {} | {} | {} |",
        ratio(|lap| lap.wall),
        ratio(|lap| lap.cpu),
        seconds(&laps[0]),
        seconds(&laps[1]),
        if same { "same bytes" } else { "DIFFERENT" }
    );
    Ok(())
}

/// A job as shards and as databases, and a trace of the PyTorch profiler, plain and compressed.
fn write_inputs(folder: &Path, is_long: bool) -> io::Result<Vec<(String, Vec<PathBuf>)>> {
    let (ranks, events, trace_bytes) = if is_long { (8, 250_000, 256 << 20) } else { (2, 500, 1 << 20) };
    let job = Inputs::write(ranks, events, folder)?;
    let [plain, packed] = ["trace.json", "packed.json.gz"].map(|name| folder.join(name));
    let written = synthetic::write(BufWriter::new(File::create(&plain)?), trace_bytes)?;
    let mut encoder = GzEncoder::new(File::create(&packed)?, Compression::fast());
    io::copy(&mut File::open(&plain)?, &mut encoder)?;
    encoder.finish()?.sync_all()?;
    let mib = |bytes: u64| bytes >> 20;
    let of_job = format!("{} ranks of {} events", job.ranks, job.events);
    let of_trace = format!("{} MiB, {} events, {} spans", mib(written.bytes), written.events, written.spans);
    Ok(vec![
        (format!("shards, {of_job}, {} MiB", mib(job.shard_bytes)), vec![job.shards]),
        (format!("databases, {of_job}, {} MiB", mib(job.database_bytes)), job.databases),
        (format!("Kineto, {of_trace}"), vec![plain]),
        ("Kineto, the same with gzip".to_owned(), vec![packed]),
    ])
}
