//! How fast a trace of the PyTorch profiler becomes a shard, and how much memory that takes.
//!
//! ```text
//! ci/bench kineto [--megabytes N] [--rounds N] [--dir FOLDER]
//! ```
//!
//! A file is made up, with the mix of events of a training run, and read by one thread into a shard that goes nowhere. The
//! baseline reads the beginning of such a file into a tree of serde_json, in the same round. Speeds are of CPU time of the
//! one thread; figures are medians over the rounds. Memory is the peak of the process before the baseline ran.

mod synthetic;

use clap::Parser;
use flate2::Compression;
use flate2::write::GzEncoder;
use rpd_shard::file::Owner;
use rpd_shard::record::RunIdentity;
use rpd_tests::harness::repository;
use rpd_tests::measure::exit_code;
use rustix::time::{ClockId, clock_gettime};
use std::error::Error;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The aims: MB/s of one core, and MB of memory.
const AIM_SPEED: f64 = 100.0;
const AIM_MEMORY: f64 = 512.0;
/// The tree is made of a file of so many MB at most.
const MOST_TREE: u64 = 64;

/// The reader of traces of the PyTorch profiler, measured
#[derive(Parser)]
#[command(name = "ci/bench kineto")]
struct Arguments {
    /// Size of the file, MB
    #[arg(long)]
    megabytes: Option<u64>,
    /// Rounds
    #[arg(long)]
    rounds: Option<usize>,
    /// Where the file is written; in a folder in it, which is removed [default: target/bench-kineto]
    #[arg(long, value_name = "FOLDER")]
    dir: Option<PathBuf>,
    /// Passed by cargo bench; without it, a short run
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() -> ExitCode {
    exit_code("kineto", run(&Arguments::parse()))
}

fn run(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    let default = if arguments.bench { (1024, 3) } else { (4, 1) };
    let megabytes = arguments.megabytes.unwrap_or(default.0).max(1);
    let rounds = arguments.rounds.unwrap_or(default.1).max(1);
    let place = arguments.dir.clone().unwrap_or_else(|| repository().join("target/bench-kineto"));
    std::fs::create_dir_all(&place)?;
    let folder = tempfile::Builder::new().prefix("kineto-").tempdir_in(&place)?;
    let [whole, packed, small] =
        ["trace.json", "trace.json.gz", "small.json"].map(|name| folder.path().join(name));
    let written =
        synthetic::write(BufWriter::with_capacity(1 << 20, File::create(&whole)?), megabytes << 20)?;
    let small_bytes =
        synthetic::write(BufWriter::new(File::create(&small)?), megabytes.min(MOST_TREE) << 20)?.bytes;
    let mut encoder = GzEncoder::new(File::create(&packed)?, Compression::fast());
    io::copy(&mut File::open(&small)?, &mut encoder)?;
    encoder.finish()?.sync_all()?;
    println!(
        "{:.0} MB, {} events, {} of them spans; one thread, median of {rounds} rounds",
        mb(written.bytes),
        written.events,
        written.spans
    );

    let mut speeds = [const { Vec::new() }; 3];
    let (mut memory, mut shard) = (0.0f64, 0);
    for round in 0..rounds {
        let began = cpu_seconds();
        shard = read(&whole, written.events)?;
        speeds[0].push(mb(written.bytes) / (cpu_seconds() - began));
        if round == 0 {
            memory = peak_memory()?;
        }
        let began = cpu_seconds();
        read(&packed, 0)?;
        speeds[1].push(mb(small_bytes) / (cpu_seconds() - began));
        let began = cpu_seconds();
        let tree: serde_json::Value =
            serde_json::from_reader(BufReader::with_capacity(1 << 20, File::open(&small)?))?;
        speeds[2].push(mb(small_bytes) / (cpu_seconds() - began));
        assert!(tree["traceEvents"].is_array(), "the file is no trace");
    }
    let [plain, gzip, tree] = speeds.map(|mut speeds| {
        speeds.sort_by(f64::total_cmp);
        speeds[speeds.len() / 2]
    });
    println!("plain JSON to a shard      {plain:>8.0} MB/s");
    println!("gzip to a shard            {gzip:>8.0} MB/s of JSON ({:.0} MB of it)", mb(small_bytes));
    println!(
        "serde_json, into a tree    {tree:>8.0} MB/s ({:.0} MB): {:.1} times as slow",
        mb(small_bytes),
        plain / tree
    );
    println!("peak memory                {memory:>8.0} MB");
    println!(
        "shard                      {:>8.0} MB: {:.1} times as small",
        mb(shard),
        mb(written.bytes) / mb(shard)
    );
    let aims = [
        (format!("over {AIM_SPEED} MB/s of plain JSON"), plain > AIM_SPEED),
        (format!("at most {AIM_MEMORY} MB"), memory <= AIM_MEMORY),
    ];
    for (aim, holds) in &aims {
        println!("aim: {aim}: {}", if *holds { "holds" } else { "MISSED" });
    }
    Ok(())
}

/// Reads a file, checks that nothing is missing, and returns the bytes of the shard.
fn read(path: &Path, events: u64) -> Result<u64, Box<dyn Error>> {
    let (run_id, run_id_from, version) = ("bench".to_owned(), "self".to_owned(), "0".to_owned());
    let owner = Owner::unknown(RunIdentity { run_id, run_id_from, rank: None, size: None, version });
    let mut sink = Counting(0);
    let translated = rpd_kineto::translate(path, &mut sink, &owner)?;
    if translated.total_lost() > 0
        || !translated.warnings.is_empty()
        || events > 0 && translated.elements != events
    {
        return Err(format!(
            "{} of {events} events were read: {:?}",
            translated.elements, translated.warnings
        )
        .into());
    }
    Ok(sink.0)
}

/// Counts what is written.
struct Counting(u64);

impl Write for Counting {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn mb(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}

/// CPU time of this thread.
fn cpu_seconds() -> f64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}

/// The most memory that this process had, MB.
fn peak_memory() -> Result<f64, Box<dyn Error>> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).ok_or("no VmHWM")?;
    let kilobytes: f64 = line.trim().trim_end_matches("kB").trim().parse()?;
    Ok(kilobytes * 1024.0 / 1e6)
}
