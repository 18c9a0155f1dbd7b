//! Whether events are lost where all cores are busy.
//!
//! ```text
//! ci/bench drops [--runs N] [--loops N,...] [--rates PAIRS,...] [--seconds S]
//! ```
//!
//! A program pushes and pops ranges beside busy loops, at a rate or, with rate 0, as fast as it can. Its own count is compared
//! with the shard: rows and loss ledger. At a rate nothing may be lost. At full speed at least 90 % are recorded of what is
//! possible: of all pairs, or of those that the rings hold and the collector can read in its CPU time until the program ends.
//! A pair costs the collector what it costs at the lowest rate in the same round and the ones beside it: runs of all rates take
//! turns, as other virtual machines slow memory down for minutes.
//!
//! On a virtual machine, another one may use the other hardware thread of a core. Then the same work takes longer, but no clock
//! of this machine shows it. The busy loops count their steps: a run in which one of them made less than 95 % of the steps that
//! the best run made in the same CPU time is repeated, up to twice. All runs count for what is lost, those on whole cores for
//! the share of the possible.
//!
//! A run takes its seconds and a little more, so that a long measurement may be made in parts: `--loops 2 --rates 1000000`.

mod busy_loops;
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
    #[arg(long, value_delimiter = ',', default_values_t = [2, 4], value_parser = clap::value_parser!(u64).range(1..))]
    loops: Vec<u64>,
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

/// Least bytes of a pair with a short name in a ring.
const PAIR_BYTES: u64 = 7;
/// Default of --ring-memory.
const RING_BYTES: u64 = 64 << 20;
/// Share of the possible pairs that is recorded at full speed.
const MIN_RECORDED: f64 = 0.9;
/// Times that a run is made until it has whole cores.
const MAX_TRIES: usize = 3;

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
    let mut holds = true;
    for loops in &arguments.loops {
        let mut best_speed = 0.0;
        let mut outcomes: Vec<Vec<RoundOutcome>> = rates.iter().map(|_| Vec::new()).collect();
        for round in 0..runs {
            for (rate, outcomes) in rates.iter().zip(&mut outcomes) {
                let run = DropRun {
                    folder: folder.path(),
                    program: &program,
                    loops: *loops,
                    rate: *rate,
                    seconds: arguments.seconds,
                };
                repeat_until_whole(&run, round, &mut best_speed, outcomes)?;
            }
            eprintln!("{loops} busy loops: round {} of {runs}", round + 1);
        }
        let costs = rates.first().filter(|rate| **rate != 0).map(|_| {
            let whole = |one: &&RoundOutcome| one.outcome.has_whole_cores(best_speed);
            outcomes[0].iter().filter(whole).map(|one| (one.round, one.outcome.cost_ns())).collect()
        });
        let costs: Vec<(usize, f64)> = costs.unwrap_or_default();
        for (rate, outcomes) in rates.iter().zip(&outcomes) {
            holds &= judge(*loops, *rate, runs, outcomes, best_speed, &costs);
        }
    }
    Ok(holds)
}

/// A run of a round.
struct RoundOutcome {
    round: usize,
    outcome: RunOutcome,
}

/// Runs until all cores were whole, or a few times. Each of these runs is an outcome. `best_speed` is that of the busy loops.
fn repeat_until_whole(
    run: &DropRun<'_>,
    round: usize,
    best_speed: &mut f64,
    outcomes: &mut Vec<RoundOutcome>,
) -> Result<(), String> {
    for _ in 0..MAX_TRIES {
        let outcome = run.outcome()?;
        *best_speed = best_speed.max(outcome.loop_speed);
        outcomes.push(RoundOutcome { round, outcome });
        if outcome.has_whole_cores(*best_speed) {
            break;
        }
    }
    Ok(())
}

/// Prints what the runs of one kind lost and recorded. Returns whether the aim is met. `costs` are those of pairs, ns, with their
/// rounds.
fn judge(
    loops: u64,
    rate: u64,
    wanted: usize,
    outcomes: &[RoundOutcome],
    best_speed: f64,
    costs: &[(usize, f64)],
) -> bool {
    let title = match rate {
        0 => format!("{loops} busy loops, full speed"),
        rate => format!("{loops} busy loops, {rate} pairs a second"),
    };
    let cost_of = |one: &RoundOutcome| {
        let near = costs.iter().filter(|(round, _)| round.abs_diff(one.round) <= 1).map(|(_, cost)| *cost);
        median(near.collect())
    };
    let share = |one: &RoundOutcome| recorded_share(&one.outcome, cost_of(one).filter(|_| rate == 0));
    let counts = |one: &&RoundOutcome| {
        one.outcome.has_whole_cores(best_speed) && (costs.is_empty() || cost_of(one).is_some())
    };
    let whole: Vec<&RoundOutcome> = outcomes.iter().filter(counts).collect();
    let Some(worst) = whole.iter().min_by(|one, other| share(one).total_cmp(&share(other))) else {
        println!("{title}: NOT MEASURED: none of {} runs had whole cores", outcomes.len());
        return false;
    };
    let sum = |of: fn(&RunOutcome) -> u64| outcomes.iter().map(|one| of(&one.outcome)).sum::<u64>();
    let (emitted, lost) = (sum(|one| one.emitted), sum(|one| one.lost));
    let least = share(worst).min(1.0);
    let is_enough = if rate == 0 { least >= MIN_RECORDED } else { lost == 0 };
    let verdict = match is_enough && outcomes.iter().all(|one| one.outcome.is_whole()) {
        true if whole.len() < wanted => "NOT MEASURED often enough",
        true => "met",
        false => "MISSED",
    };
    println!(
        "{title}: {} runs, {emitted} pairs, {lost} lost ({:.3} %); {} runs on whole cores (slowest loop of all at {:.0} % of the \
         best), at least {:.1} % of the possible recorded (where the collector took {:.0} ns a pair); at most {} B of rings; the \
         collector {:.0} ns a pair: {verdict}",
        outcomes.len(),
        100.0 * lost as f64 / emitted.max(1) as f64,
        whole.len(),
        100.0 * outcomes.iter().map(|one| one.outcome.loop_speed / best_speed).fold(1.0, f64::min),
        100.0 * least,
        worst.outcome.cost_ns(),
        outcomes.iter().map(|one| one.outcome.ring_bytes).max().unwrap_or(0),
        sum(|one| one.collector_ns) as f64 / sum(|one| one.recorded).max(1) as f64,
    );
    verdict == "met"
}

/// Returns how many of the possible pairs are recorded: of all, or, where a pair costs the collector so much, of those that it
/// can read and the rings hold. These are read after the program.
fn recorded_share(outcome: &RunOutcome, cost_ns: Option<f64>) -> f64 {
    let read = cost_ns.map_or(f64::INFINITY, |cost| outcome.beside_program_ns as f64 / cost);
    let possible = (outcome.emitted as f64).min((RING_BYTES / PAIR_BYTES) as f64 + read);
    outcome.recorded as f64 / possible.max(1.0)
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}
