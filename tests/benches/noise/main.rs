//! What the collector takes from a program that waits for others, and from one that does nothing.
//!
//! ```text
//! ci/bench noise [--rounds N] [--results FILE] [--seconds S]
//! ```
//!
//! * Wake-ups a second of rpd-collect (launcher and collector, all threads) beside a program with 10 events a
//!   second, and with none; with the counters of the node, which one collector of each node reads ten times a
//!   second, and without.
//! * p50 and p99 of a small `MPI_Allreduce` of 2 and 4 ranks, with rpd-collect in front and without. A round is a
//!   job of each, the first one in turns; a ratio is that within a round, and its mean over the rounds has a 95 %
//!   interval.
//!
//! A call with the same FILE goes on with the rounds in it, so that a long measurement may be made in parts: a
//! round takes about 25 s. Where ranks outnumber cores, those that wait yield, on both sides alike.

mod programs;
mod rounds;
mod wakeups;

use clap::Parser;
use programs::{MARKS, SUMS, compile};
use rounds::{Percentiles, Round, Rounds, verdict};
use rpd_tests::harness::{binary, mpi_missing, mpirun};
use rpd_tests::measure::machine;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// Wake-ups of the collector, and what it does to small collectives
#[derive(Parser)]
#[command(name = "ci/bench noise")]
struct Arguments {
    /// Rounds of this call [default: 15]
    #[arg(long)]
    rounds: Option<usize>,
    /// File with the rounds so far, to which those of this call are added
    #[arg(long)]
    results: Option<PathBuf>,
    /// Length of a job's measurement, s
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// Passed by cargo bench; without it, a short run
    #[arg(long, hide = true)]
    bench: bool,
}

/// Wake-ups a second at 10 events a second.
const MOST_WAKEUPS: f64 = 20.0;
/// Ratio of p99 with rpd-collect to p99 without.
const MOST_P99: f64 = 1.05;
const RANKS: [usize; 2] = [2, 4];

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let measured = tempfile::tempdir().map_err(|error| error.to_string()).and_then(|folder| {
        println!("{}", machine(folder.path()));
        let bench = Bench { folder: folder.path().to_owned(), arguments };
        Ok([bench.wakeups()?, bench.sums()?])
    });
    match measured {
        Ok([true, true]) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(why) => {
            println!("noise: not measured: {why}");
            ExitCode::FAILURE
        }
    }
}

struct Bench {
    folder: PathBuf,
    arguments: Arguments,
}

impl Bench {
    fn collect(&self, options: &[&str]) -> Command {
        let mut command = Command::new(binary("rpd-collect"));
        command.arg("-o").arg(self.out()).args(options).current_dir(&self.folder);
        command
    }

    fn out(&self) -> PathBuf {
        self.folder.join("out")
    }

    /// Whether the aim is met.
    fn wakeups(&self) -> Result<bool, String> {
        let program = compile(&self.folder, "cc", "marks", MARKS)?;
        let mut at_ten = 0.0;
        println!("\nwake-ups of rpd-collect a second");
        for pace in ["10", "0"] {
            let rate =
                |options: &[&str]| wakeups::rate(self.collect(options).arg("--").arg(&program).arg(pace));
            let (all, without) = (rate(&[])?, rate(&["--trace", "roctx,mpi,rccl"])?);
            println!("at {pace:>2} events a second: {all:.1}, without the counters of the node {without:.1}");
            at_ten = if pace == "10" { all } else { at_ten };
        }
        let holds = at_ten <= MOST_WAKEUPS;
        println!("aim: at most {MOST_WAKEUPS:.0} at 10 events a second: {}", verdict(holds));
        let _ = std::fs::remove_dir_all(self.out());
        Ok(holds)
    }

    /// Whether the aim is met.
    fn sums(&self) -> Result<bool, String> {
        if let Some(why) = mpi_missing() {
            println!("\nMPI_Allreduce: not measured: {why}");
            return Ok(false);
        }
        let program = compile(&self.folder, "mpicc", "sums", SUMS)?;
        let mut rounds = Rounds::open(self.arguments.results.clone())?;
        let count = self.arguments.rounds.unwrap_or(if self.arguments.bench { 15 } else { 1 });
        for number in 0..count {
            for ranks in RANKS {
                let load = load();
                let mut found = [[f64::NAN; 2]; 2];
                // The first one has no advantage over all rounds.
                for traced in [number % 2 == 1, number % 2 == 0] {
                    found[usize::from(traced)] = self.sum(&program, ranks, traced)?;
                }
                rounds.add(Round { ranks, alone: found[0], traced: found[1], load })?;
            }
        }
        let held: Vec<bool> = RANKS.iter().map(|ranks| rounds.print(*ranks, MOST_P99)).collect();
        Ok(held.into_iter().all(|holds| holds))
    }

    /// A job of its own.
    fn sum(&self, program: &Path, ranks: usize, traced: bool) -> Result<Percentiles, String> {
        let mut job = mpirun(ranks).folder(&self.folder);
        if traced {
            job = job.arg(binary("rpd-collect")).arg("-o").arg(self.out()).arg("--");
        }
        let outcome = job.arg(program).arg(self.arguments.seconds.to_string()).run();
        let _ = std::fs::remove_dir_all(self.out());
        let numbers: Vec<f64> =
            outcome.stdout.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        match (outcome.code(), numbers.as_slice()) {
            (Some(0), [p50, p99, _]) => Ok([*p50, *p99]),
            _ => Err(outcome.to_string()),
        }
    }
}

/// Load average of the last minute.
fn load() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().and_then(|word| word.parse().ok()).unwrap_or(f64::NAN)
}
