//! What being traced costs a program, and what the collector takes beside it.
//!
//! ```text
//! ci/bench overhead [ROUNDS]
//! ```
//!
//! Every figure is taken with and without rpd-collect in turns, and is a median over the rounds. The
//! machine's other work is in both.

mod programs;
mod watch;

use programs::{MPI_CALLS, PACED, PAIRS, compile};
use rpd_tests::harness::{binary, mpi_missing, mpirun, python, repository};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

type Outcome = Result<(), String>;

fn main() -> ExitCode {
    let numbers: Vec<usize> = std::env::args().filter_map(|arg| arg.parse().ok()).collect();
    let benched = std::env::args().any(|arg| arg == "--bench");
    let rounds = numbers.first().copied().unwrap_or(if benched { 9 } else { 1 });
    let folder = match tempfile::tempdir() {
        Ok(folder) => folder,
        Err(error) => {
            eprintln!("overhead: no folder for the programs: {error}");
            return ExitCode::FAILURE;
        }
    };
    let bench = Bench { folder: folder.path().to_owned(), rounds };
    println!("medians of {rounds} rounds, with and without rpd-collect in turns");
    let parts: [(&str, &dyn Fn() -> Outcome); 5] = [
        ("roctx", &|| bench.pairs()),
        ("MPI", &|| bench.mpi_calls()),
        ("start", &|| bench.start_up()),
        ("training", &|| bench.training()),
        ("collector", &|| bench.collector()),
    ];
    let mut failed = false;
    for (name, part) in parts {
        if let Err(why) = part() {
            println!("{name}: not measured: {why}");
            failed = true;
        }
    }
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

struct Bench {
    folder: PathBuf,
    rounds: usize,
}

impl Bench {
    fn collect(&self) -> Command {
        let mut command = Command::new(binary("rpd-collect"));
        command.arg("-o").arg(self.folder.join("out")).current_dir(&self.folder);
        command
    }

    /// The program alone, or under rpd-collect.
    fn command(&self, program: &Path, traced: bool) -> Command {
        if !traced {
            return Command::new(program);
        }
        let mut command = self.collect();
        command.arg("--").arg(program);
        command
    }

    /// Runs a program that prints numbers, alone and traced in turns; medians of each number.
    fn in_turns<const N: usize>(
        &self,
        run: impl Fn(bool) -> Result<[f64; N], String>,
    ) -> Result<[[f64; N]; 2], String> {
        let mut all = [const { Vec::new() }; 2];
        for _ in 0..self.rounds {
            all[0].push(run(false)?);
            all[1].push(run(true)?);
            let _ = std::fs::remove_dir_all(self.folder.join("out"));
        }
        Ok(all
            .map(|rounds| std::array::from_fn(|i| median(rounds.iter().map(|numbers| numbers[i]).collect()))))
    }

    fn pairs(&self) -> Outcome {
        let program = compile(&self.folder, "cc", "pairs", PAIRS)?;
        let [alone, traced] = self.in_turns(|traced| numbers::<2>(&mut self.command(&program, traced)))?;
        println!(
            "\nroctx push + pop: {:.1} ns a pair (without a library {:.1}); two clock reads {:.1} ns",
            traced[0], alone[0], traced[1]
        );
        aim("at most 80 ns a pair", traced[0] <= 80.0);
        aim("stretch: at most 50 ns a pair", traced[0] <= 50.0);
        Ok(())
    }

    fn mpi_calls(&self) -> Outcome {
        if let Some(why) = mpi_missing() {
            return Err(why.to_owned());
        }
        let program = compile(&self.folder, "mpicc", "calls", MPI_CALLS)?;
        let [alone, traced] = self.in_turns(|traced| numbers::<2>(&mut self.command(&program, traced)))?;
        for (name, i) in [("MPI_Send to nobody", 0), ("MPI_Iprobe", 1)] {
            let more = traced[i] - alone[i];
            println!("\n{name}: {:.1} ns, alone {:.1}: +{more:.1} ns a call", traced[i], alone[i]);
            aim("at most +100 ns a call", more <= 100.0);
        }
        Ok(())
    }

    fn start_up(&self) -> Outcome {
        let run = |traced| {
            seconds(self.command(Path::new("true"), traced).stderr(Stdio::null())).map(|s| [s * 1e3])
        };
        let [alone, traced] = self.in_turns(run)?;
        println!("\nstart and end of a program: {:.1} ms, alone {:.1} ms", traced[0], alone[0]);
        Ok(())
    }

    fn training(&self) -> Outcome {
        if let Some(why) = mpi_missing() {
            return Err(why.to_owned());
        }
        let ranks = 2;
        let script = repository().join("tests/workloads/train.py");
        let run = |traced: bool| {
            let mut job = mpirun(ranks);
            if traced {
                job = job.arg(binary("rpd-collect")).arg("-o").arg(self.folder.join("out")).arg("--");
            }
            let job = job.arg(python()).arg(&script).args(["--steps", "300", "--straggler", "-1"]);
            let began = Instant::now();
            let outcome = job.run();
            match outcome.code() {
                Some(0) => Ok([began.elapsed().as_secs_f64()]),
                _ => Err(outcome.to_string()),
            }
        };
        let [alone, traced] = self.in_turns(run)?;
        let slower = 100.0 * (traced[0] / alone[0] - 1.0);
        println!("\ntraining, {ranks} ranks: {:.3} s, alone {:.3} s: {slower:+.2} %", traced[0], alone[0]);
        aim("less than 1 % slower", slower < 1.0);
        Ok(())
    }

    fn collector(&self) -> Outcome {
        let program = compile(&self.folder, "cc", "paced", PACED)?;
        let seconds = if self.rounds > 1 { "5" } else { "1" };
        for (threads, pace, what) in
            [("1", "1000000", "ranges"), ("1", "500000", "pushes and pops"), ("64", "1000000", "ranges")]
        {
            let mut shares = Vec::new();
            let mut more = Vec::new();
            for _ in 0..self.rounds.min(5) {
                let mut memory = [0; 2];
                for traced in [false, true] {
                    let mut command = self.command(&program, traced);
                    let child =
                        command.args([threads, pace, seconds]).spawn().map_err(|error| error.to_string())?;
                    let taken = watch::watch(child);
                    memory[usize::from(traced)] = taken.memory;
                    if traced {
                        shares.push(100.0 * taken.collector_cpu / taken.watched);
                    }
                }
                more.push((memory[1].saturating_sub(memory[0])) as f64 / (1 << 20) as f64);
                let _ = std::fs::remove_dir_all(self.folder.join("out"));
            }
            let (share, more) = (median(shares), median(more));
            println!(
                "\ncollector, {threads} threads, a million {what} a second: {share:.1} % of a core, {more:.1} MiB more memory in all"
            );
            aim("less than 10 % of a core", share < 10.0);
            aim("less than 64 MiB on both sides", more < 64.0);
        }
        Ok(())
    }
}

fn aim(what: &str, holds: bool) {
    println!("aim: {what}: {}", if holds { "holds" } else { "MISSED" });
}

/// The numbers that a program prints.
fn numbers<const N: usize>(command: &mut Command) -> Result<[f64; N], String> {
    let output = command.stderr(Stdio::inherit()).output().map_err(|error| error.to_string())?;
    let text = String::from_utf8_lossy(&output.stdout);
    let numbers: Vec<f64> = text.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    numbers.try_into().map_err(|_| format!("{command:?} printed {text:?}"))
}

fn seconds(command: &mut Command) -> Result<f64, String> {
    let began = Instant::now();
    let status = command.status().map_err(|error| error.to_string())?;
    if status.success() { Ok(began.elapsed().as_secs_f64()) } else { Err(format!("{command:?}: {status}")) }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
