//! How much more CPU time real programs take under each preset of rpd-collect.
//!
//! ```text
//! ci/bench presets [--rounds N] [--only TEXT] [--minutes N] [--results FILE]
//! ```
//!
//! A stencil in C with MPI, and a training loop of torch with DistributedDataParallel over gloo and loaders of data, two ranks
//! each. In each round a program runs alone and under each preset, in an order that turns from round to round. The ratio is
//! that of the CPU time, user and system, of a step of a rank to that in the run alone. A program measures it itself, in the steps in
//! which each rank had a core for itself: a loop before and after the step takes as long as it does at best. While another hardware
//! thread uses a core, perhaps in another virtual machine, the same work takes up to twice as much CPU time. Start, end and
//! loaders of data are in the median of the ratios of all CPU time, which is beside it, as is what the collectors take. The programs
//! must print the same results.
//!
//! Each run is a line of FILE; a second call continues with what is missing of this build. It fails if the aim is missed or was
//! not measured.

mod programs;
mod runs;

use clap::Parser;
use programs::{MeasuredProgram, PROGRAMS, compile_stencil, python_with_torch};
use rpd_tests::harness::mpi_missing;
use rpd_tests::harness::repository;
use rpd_tests::measure::{RatioInterval, exit_code, machine, median};
use runs::{ProgramRun, RunResults};
use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// CPU time of real programs under each preset
#[derive(Parser)]
#[command(name = "ci/bench presets")]
struct PresetArguments {
    /// Rounds of each program [default: 20]
    #[arg(long)]
    rounds: Option<usize>,
    /// Programs and presets with this in their names
    #[arg(long, default_value = "")]
    only: String,
    /// Ends after so many minutes
    #[arg(long, default_value_t = 18.0)]
    minutes: f64,
    /// Where runs are kept [default: target/bench-presets.jsonl]
    #[arg(long)]
    results: Option<PathBuf>,
    /// Passed by cargo bench; without it, a short run
    #[arg(long, hide = true)]
    bench: bool,
}

/// Name of a run without rpd-collect.
const ALONE: &str = "alone";
/// How each program runs.
const WAYS: [&str; 7] =
    [ALONE, "default", "low-overhead", "hpc-mpi", "pytorch-training", "inference-server", "full"];
/// Maximum upper end of the 95 % interval of the ratio.
const MAX_RATIO: f64 = 1.01;
/// Share of the steps that must count in a run.
const MIN_COUNTED: f64 = 0.1;
/// Largest difference of the best time of the loop by which whole cores are found from that of a fast run, as a share. In a run
/// with a longer one, no step had a whole core; in one with a shorter one, the cores were faster than in others.
const MAX_DIFFERENCE: f64 = 0.05;
/// Share of the runs that are faster than a fast run: the fastest of all may be one of a kind.
const FAST_QUANTILE: f64 = 0.1;
/// A run in which too few steps count is repeated until it has been made so many times.
const MAX_TRIES: usize = 3;
/// Pairs by which a ratio is judged.
const MIN_PAIRS: usize = 20;

fn main() -> ExitCode {
    exit_code("presets", measure(&PresetArguments::parse()))
}

fn measure(arguments: &PresetArguments) -> Result<(), Box<dyn Error>> {
    if let Some(why) = mpi_missing() {
        return Err(why.into());
    }
    let folder = tempfile::tempdir()?;
    println!("{}", machine(folder.path()));
    let rounds = arguments.rounds.unwrap_or(if arguments.bench { 20 } else { 1 });
    let max_tries = if arguments.bench { MAX_TRIES } else { 1 };
    let steps = |count: u32| if arguments.bench { count } else { count / 20 };
    let mut programs = vec![MeasuredProgram::stencil(compile_stencil(folder.path())?, steps(600))];
    match python_with_torch() {
        Some(python) => programs.push(MeasuredProgram::training(python, steps(100))),
        None => println!("training: not measured: no Python here has torch"),
    }
    let path = arguments.results.clone();
    let path = path.unwrap_or_else(|| repository().join("target/bench-presets.jsonl"));
    let build = programs::build()?;
    let mut results = if arguments.bench { RunResults::open(&path, &build) } else { RunResults::default() };
    let until = Instant::now() + Duration::from_secs_f64(arguments.minutes * 60.0);
    for round in 0..rounds {
        for program in &programs {
            for place in 0..WAYS.len() {
                let way = WAYS[(place + round) % WAYS.len()];
                // A run alone is needed beside any other.
                let is_selected = |way: &str| format!("{} {way}", program.name).contains(&arguments.only);
                let is_wanted = match way {
                    ALONE => WAYS.into_iter().any(is_selected),
                    way => is_selected(way),
                };
                if !is_wanted || results.has(program.name, way, round) {
                    continue;
                }
                if Instant::now() > until {
                    println!("not all rounds are measured; call it again to continue");
                    return print(&results);
                }
                let (mut run, mut tries) = (program.run(way, round, &build, folder.path())?, 1);
                while run.counted < MIN_COUNTED && tries < max_tries {
                    (run, tries) = (program.run(way, round, &build, folder.path())?, tries + 1);
                }
                results.add(run)?;
            }
        }
    }
    print(&results)
}

/// Prints the ratios of each program and preset. An error if the programs printed different results.
fn print(results: &RunResults) -> Result<(), Box<dyn Error>> {
    println!(
        "\nprogram   preset            pairs  CPU time of a step to that alone  upper end  all, median  collectors"
    );
    let mut is_missed = false;
    for program in results.programs() {
        let of = |way: &str| -> Vec<&ProgramRun> { results.of(&program, way) };
        let alone = of(ALONE);
        if let Some(other) = results.of_program(&program).find(|run| run.result != alone[0].result) {
            return Err(format!("{program} has other results under {}: {}", other.way, other.result).into());
        }
        let fast_s = fast_control_s(results.of_program(&program).map(|run| run.control_s).collect());
        let counts = |run: &ProgramRun| {
            run.counted >= MIN_COUNTED && (run.control_s / fast_s - 1.0).abs() < MAX_DIFFERENCE
        };
        for way in &WAYS[1..] {
            let pairs: Vec<(&ProgramRun, &ProgramRun)> = of(way)
                .into_iter()
                .filter_map(|run| Some((run, *alone.iter().find(|alone| alone.round == run.round)?)))
                .collect();
            if pairs.is_empty() {
                continue;
            }
            let counted = || pairs.iter().filter(|(run, alone)| counts(run) && counts(alone));
            let ratio = RatioInterval::of(counted().map(|(run, alone)| run.step_s / alone.step_s));
            let of_all = median(pairs.iter().map(|(run, alone)| run.cpu_s / alone.cpu_s));
            let beside = pairs.iter().map(|(run, alone)| (run.other_cpu_s - alone.other_cpu_s) / alone.cpu_s);
            let beside = beside.sum::<f64>() / pairs.len() as f64;
            let upper = ratio.mean + ratio.half_width;
            let verdict = match (counted().count() < MIN_PAIRS, upper < MAX_RATIO) {
                (true, _) => "  too few pairs",
                (false, true) => "",
                (false, false) => "  MISSED",
            };
            is_missed |= !verdict.is_empty();
            println!(
                "{program:<9} {way:<17} {:>5}  {:<31}  {:>+7.2} %  {:>+9.2} %  {:>+8.2} %{verdict}",
                counted().count(),
                ratio.to_string(),
                100.0 * (upper - 1.0),
                100.0 * (of_all - 1.0),
                100.0 * beside
            );
        }
    }
    let programs = results.programs();
    let is_complete = PROGRAMS.iter().all(|name| programs.iter().any(|program| program == name));
    let verdict = match (is_missed, is_complete) {
        (true, _) => "MISSED",
        (false, true) => "holds",
        (false, false) => "holds for the program that was measured; the other was not",
    };
    println!("aim: the upper end of each is below +1 % in {MIN_PAIRS} pairs or more: {verdict}");
    if verdict == "holds" { Ok(()) } else { Err("the aim is missed or was not measured".into()) }
}

/// Returns the best time of the loop by which whole cores are found in a fast run, s.
fn fast_control_s(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    let place = (times.len() as f64 * FAST_QUANTILE) as usize;
    times.get(place).copied().unwrap_or(f64::NAN)
}
