//! Whether events are lost where all cores are busy.
//!
//! ```text
//! ci/bench drops [--runs N] [--loops N,...] [--rates PAIRS,...] [--seconds S]
//! ```
//!
//! A program pushes and pops ranges beside busy loops, at a rate or, with rate 0, as fast as it can. Its own count is compared
//! with the shard: rows and loss ledger. At a rate nothing may be lost. At full speed at least 90 % are recorded of what is
//! possible: of all pairs, or of those that the rings hold and the collector can read in its CPU time until the program ends.
//! A pair costs the collector what it costs in the runs of this call at the lowest rate.
//!
//! A run takes its seconds and a little more, so that a long measurement may be made in parts: `--loops 2 --rates 1000000`.

mod program;
mod run;

use clap::Parser;
use program::compile;
use rpd_tests::measure::machine;
use run::{DropRun, RunOutcome};
use std::process::ExitCode;

/// Events that are lost where all cores are busy
#[derive(Parser)]
#[command(name = "ci/bench drops")]
struct DropsArguments {
    /// Runs of each kind [default: 20]
    #[arg(long)]
    runs: Option<usize>,
    /// Busy loops beside the program
    #[arg(long, value_delimiter = ',', default_values_t = [2, 4])]
    loops: Vec<usize>,
    /// Pairs a second; 0 for full speed
    #[arg(long, value_delimiter = ',', default_values_t = [1_000_000, 5_000_000, 0])]
    rates: Vec<u64>,
    /// Length of a run, s
    #[arg(long, default_value_t = 10.0)]
    seconds: f64,
    /// Passed by cargo bench; without it, a short run
    #[arg(long, hide = true)]
    bench: bool,
}

/// Most bytes of a pair with a short name in a ring.
const PAIR_BYTES: u64 = 10;
/// Default of --ring-memory.
const RING_BYTES: u64 = 64 << 20;
/// Share of the possible pairs that is recorded at full speed.
const MIN_RECORDED: f64 = 0.9;

fn main() -> ExitCode {
    match measure(&DropsArguments::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(why) => {
            println!("drops: not measured: {why}");
            ExitCode::FAILURE
        }
    }
}

/// Returns whether all aims are met.
fn measure(arguments: &DropsArguments) -> Result<bool, String> {
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    println!("{}", machine(folder.path()));
    let program = compile(folder.path())?;
    let runs = arguments.runs.unwrap_or(if arguments.bench { 20 } else { 1 });
    let mut rates = arguments.rates.clone();
    rates.sort_unstable_by_key(|rate| if *rate == 0 { u64::MAX } else { *rate });
    let (mut holds, mut costs) = (true, Vec::new());
    for rate in rates {
        for loops in &arguments.loops {
            let title = match rate {
                0 => format!("{loops} busy loops, full speed"),
                rate => format!("{loops} busy loops, {rate} pairs a second"),
            };
            let run = DropRun {
                folder: folder.path(),
                program: &program,
                loops: *loops,
                rate,
                seconds: arguments.seconds,
            };
            let outcomes: Vec<RunOutcome> = (0..runs).map(|_| run.outcome()).collect::<Result<_, _>>()?;
            if rate != 0 && costs.is_empty() {
                costs = outcomes.iter().map(RunOutcome::cost_ns).collect();
            }
            let cost_ns = median(&mut costs).filter(|_| rate == 0);
            let share = |outcome: &RunOutcome| recorded_share(outcome, cost_ns);
            let Some(worst) = outcomes.iter().min_by(|one, other| share(one).total_cmp(&share(other))) else {
                continue;
            };
            let least = share(worst).min(1.0);
            let aim = if rate == 0 { MIN_RECORDED } else { 1.0 };
            let is_met = outcomes.iter().all(RunOutcome::is_whole) && least >= aim;
            holds &= is_met;
            let sum = |of: fn(&RunOutcome) -> u64| outcomes.iter().map(of).sum::<u64>();
            let (emitted, lost) = (sum(|one| one.emitted), sum(|one| one.lost));
            println!(
                "{title}: {runs} runs, {emitted} pairs, {lost} lost ({:.3} %), at least {:.1} % of the possible recorded (where the \
                 collector took {:.0} ns a pair), at most {} B of rings; the collector {:.0} ns a pair: {}",
                100.0 * lost as f64 / emitted.max(1) as f64,
                100.0 * least,
                worst.cost_ns(),
                outcomes.iter().map(|one| one.ring_bytes).max().unwrap_or(0),
                sum(|one| one.collector_ns) as f64 / sum(|one| one.recorded).max(1) as f64,
                if is_met { "met" } else { "MISSED" }
            );
        }
    }
    Ok(holds)
}

/// Returns how many of the possible pairs are recorded: of all, or, where a pair costs the collector so much, of those that it
/// can read and the rings hold. These are read after the program.
fn recorded_share(outcome: &RunOutcome, cost_ns: Option<f64>) -> f64 {
    let read = cost_ns.map_or(f64::INFINITY, |cost| outcome.beside_program_ns as f64 / cost);
    let possible = (outcome.emitted as f64).min((RING_BYTES / PAIR_BYTES) as f64 + read);
    outcome.recorded as f64 / possible.max(1.0)
}

fn median(values: &mut [f64]) -> Option<f64> {
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}
