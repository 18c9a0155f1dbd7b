//! What being traced costs a program, and what the collector takes beside it.
//!
//! ```text
//! ci/bench overhead [ROUNDS]
//! ```
//!
//! Every figure is taken with and without rpd-collect in turns, and is a median over the rounds. The
//! machine's other work is in both. Costs of single events are not measured in a run that did not get its CPU.

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

/// How a program runs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ProgramRun {
    Alone,
    /// Under rpd-collect with this `--clock`.
    Traced(&'static str),
}

/// Alone, and with both clocks.
const WITH_CLOCKS: [ProgramRun; 3] =
    [ProgramRun::Alone, ProgramRun::Traced("ticks"), ProgramRun::Traced("boottime")];
const WITH_DEFAULTS: [ProgramRun; 2] = [ProgramRun::Alone, ProgramRun::Traced("ticks")];
/// Maximum share of the time in which a program may wait for a CPU, percent.
const MAX_WAITED: f64 = 10.0;

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
    fn command(&self, program: &Path, run: ProgramRun) -> Command {
        match run {
            ProgramRun::Alone => Command::new(program),
            ProgramRun::Traced(clock) => {
                let mut command = self.collect();
                command.args(["--clock", clock, "--"]).arg(program);
                command
            }
        }
    }

    /// Runs a program that prints numbers, in each way in turns; medians of each number.
    fn in_turns<const RUNS: usize, const N: usize>(
        &self,
        runs: [ProgramRun; RUNS],
        measure: impl Fn(ProgramRun) -> Result<[f64; N], String>,
    ) -> Result<[[f64; N]; RUNS], String> {
        let mut all = [const { Vec::new() }; RUNS];
        for _ in 0..self.rounds {
            for (numbers, run) in all.iter_mut().zip(runs) {
                numbers.push(measure(run)?);
            }
            let _ = std::fs::remove_dir_all(self.folder.join("out"));
        }
        Ok(all
            .map(|rounds| std::array::from_fn(|i| median(rounds.iter().map(|numbers| numbers[i]).collect()))))
    }

    /// Measures what a program prints, ns, which prints last how long it had no CPU.
    fn costs<const N: usize>(&self, program: &Path) -> Result<[[f64; N]; 3], String> {
        self.in_turns(WITH_CLOCKS, |run| {
            let (costs, waited) = costs_and_wait(&mut self.command(program, run))?;
            if waited > MAX_WAITED {
                return Err(format!(
                    "the program waited for a CPU for {waited:.0} % of its time; stop other work"
                ));
            }
            Ok(costs)
        })
    }

    fn pairs(&self) -> Outcome {
        let program = compile(&self.folder, "cc", "pairs", PAIRS)?;
        let [alone, ticks, boottime] = self.costs::<3>(&program)?;
        println!(
            "\nroctx push + pop: {:.1} ns a pair with ticks, {:.1} with --clock boottime (without a library {:.1}); two \
             reads of the counter {:.1} ns, of CLOCK_BOOTTIME {:.1}",
            ticks[0], boottime[0], alone[0], alone[2], alone[1]
        );
        aim("at most 32 ns a pair with ticks", ticks[0] <= 32.0);
        aim("stretch: at most 28 ns a pair with ticks", ticks[0] <= 28.0);
        aim("at most 58 ns a pair with --clock boottime", boottime[0] <= 58.0);
        Ok(())
    }

    fn mpi_calls(&self) -> Outcome {
        if let Some(why) = mpi_missing() {
            return Err(why.to_owned());
        }
        let program = compile(&self.folder, "mpicc", "calls", MPI_CALLS)?;
        let [alone, ticks, boottime] = self.costs::<2>(&program)?;
        for (name, i) in [("MPI_Send to no rank", 0), ("MPI_Iprobe", 1)] {
            let [more, more_boottime] = [ticks[i] - alone[i], boottime[i] - alone[i]];
            println!(
                "\n{name}: alone {:.1} ns, +{more:.1} a call with ticks, +{more_boottime:.1} with --clock boottime",
                alone[i]
            );
            aim("at most +60 ns a call with ticks", more <= 60.0);
            aim("stretch: at most +50 ns a call with ticks", more <= 50.0);
            aim("at most +75 ns a call with --clock boottime", more_boottime <= 75.0);
        }
        Ok(())
    }

    fn start_up(&self) -> Outcome {
        let run =
            |run| seconds(self.command(Path::new("true"), run).stderr(Stdio::null())).map(|s| [s * 1e3]);
        let [alone, traced] = self.in_turns(WITH_DEFAULTS, run)?;
        println!("\nstart and end of a program: {:.1} ms, alone {:.1} ms", traced[0], alone[0]);
        Ok(())
    }

    fn training(&self) -> Outcome {
        if let Some(why) = mpi_missing() {
            return Err(why.to_owned());
        }
        let ranks = 2;
        let script = repository().join("tests/workloads/train.py");
        let run = |run: ProgramRun| {
            let mut job = mpirun(ranks);
            if run != ProgramRun::Alone {
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
        let [alone, traced] = self.in_turns(WITH_DEFAULTS, run)?;
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
                for run in WITH_DEFAULTS {
                    let traced = run != ProgramRun::Alone;
                    let mut command = self.command(&program, run);
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

/// Returns the numbers that a program prints, the last of them apart.
fn costs_and_wait<const N: usize>(command: &mut Command) -> Result<([f64; N], f64), String> {
    let output = command.stderr(Stdio::inherit()).output().map_err(|error| error.to_string())?;
    let text = String::from_utf8_lossy(&output.stdout);
    let numbers: Vec<f64> = text.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    let parts = numbers.split_last().and_then(|(last, rest)| Some((rest.try_into().ok()?, *last)));
    parts.ok_or_else(|| format!("{command:?} printed {text:?}"))
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
