//! What the analysis of waits says about programs with a known cause of waiting, over many seeds.
//!
//! ```text
//! ci/bench truth [--seeds N] [--first-seed N] [--only TEXT] [--minutes N] [--shards] [--large] [--results FILE]
//! ```
//!
//! Each answer is a line of JSON in the results, and what is there is not asked again, so that a run which ends at its
//! limit of minutes is continued by the next. The tables are over all lines of the file. With `--shards`, `rpd-report`
//! answers from the shards of each scenario. With `--large`, three of the scenarios have 4,096 ranks and 10^7 calls.

mod results;
mod table;

use clap::Parser;
use results::{AnswerKey, AnswerLine, AnswerSource, ResultsFile};
use rpd_tests::harness::repository;
use rpd_tests::measure::exit_code;
use rpd_tests::truth::{RecordTreatment, Scenario, ScenarioKind, ScenarioSize, judge, judge_shards};
use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Answers of the analysis of waits, judged
#[derive(Parser)]
#[command(name = "ci/bench truth")]
struct Arguments {
    /// Runs of each scenario [default: 20]
    #[arg(long)]
    seeds: Option<u64>,
    /// The first seed
    #[arg(long, default_value_t = 100)]
    first_seed: u64,
    /// Only scenarios with this in their names
    #[arg(long, default_value = "")]
    only: String,
    /// Ends after so many minutes
    #[arg(long, default_value_t = 10)]
    minutes: u64,
    /// Answers of rpd-report from shards
    #[arg(long)]
    shards: bool,
    /// Also runs of 4,096 ranks and 10^7 calls
    #[arg(long)]
    large: bool,
    /// Where answers are kept [default: target/bench-truth.jsonl]
    #[arg(long, value_name = "FILE")]
    results: Option<PathBuf>,
    /// Passed by cargo bench; without it, a short run
    #[arg(long, hide = true)]
    bench: bool,
}

/// Ranks of a large run, and of each of its nodes.
const LARGE_RANKS: u32 = 4_096;
const LARGE_NODE: u32 = 64;

fn main() -> ExitCode {
    exit_code("truth", run(&Arguments::parse()))
}

fn run(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    let seeds = arguments.seeds.unwrap_or(if arguments.bench { 20 } else { 1 });
    let path = arguments.results.clone().unwrap_or_else(|| repository().join("target/bench-truth.jsonl"));
    let mut results = ResultsFile::open(&path)?;
    let end = Instant::now() + Duration::from_secs(60 * arguments.minutes);
    let source = if arguments.shards { AnswerSource::Shards } else { AnswerSource::Calls };
    let of_gpus = ScenarioKind::GPU.into_iter().filter(|_| arguments.shards);
    let kinds: Vec<ScenarioKind> =
        ScenarioKind::PLANTED.into_iter().chain(ScenarioKind::clean()).chain(of_gpus).collect();
    let treatments: &[RecordTreatment] = match source {
        AnswerSource::Calls => &RecordTreatment::ALL,
        // The clocks of shards are wrong in any case.
        AnswerSource::Shards => &[RecordTreatment::Complete, RecordTreatment::DroppedCalls],
    };
    let mut left_out = 0;
    // All scenarios have few seeds before one has many, so that a run of few minutes tells something about each.
    for seed in arguments.first_seed..arguments.first_seed + seeds {
        for kind in &kinds {
            for treatment in treatments {
                let key = AnswerKey::new(source, *kind, *treatment, seed);
                let drops_none =
                    matches!(kind, ScenarioKind::Gpu(_)) && *treatment == RecordTreatment::DroppedCalls;
                if !key.scenario.contains(&arguments.only) || results.has(&key) || drops_none {
                    continue;
                }
                if Instant::now() >= end {
                    left_out += 1;
                    continue;
                }
                results.append(ask(key, source, &Scenario::drawn(*kind, seed), *treatment)?)?;
            }
        }
    }
    if arguments.large {
        for scenario in large_scenarios() {
            let key = AnswerKey::large(&scenario);
            if !results.has(&key) && key.scenario.contains(&arguments.only) && Instant::now() < end {
                results.append(ask(key, AnswerSource::Calls, &scenario, RecordTreatment::Complete)?)?;
            }
        }
    }
    table::print(results.lines());
    if left_out > 0 {
        println!("{left_out} answers are left out, because the minutes are over");
    }
    Ok(())
}

fn ask(
    key: AnswerKey,
    source: AnswerSource,
    scenario: &Scenario,
    treatment: RecordTreatment,
) -> Result<AnswerLine, Box<dyn Error>> {
    let began = Instant::now();
    let answer = match source {
        AnswerSource::Calls => judge(scenario, treatment)?,
        AnswerSource::Shards => judge_shards(scenario, treatment)?,
    };
    Ok(AnswerLine::new(key, scenario, &answer, began.elapsed()))
}

/// Scenarios 3, 6 and 18 with 10^7 calls and without noise. A step of the stencil has 5 calls, one of the others 2.
fn large_scenarios() -> impl Iterator<Item = Scenario> {
    let sizes = [(ScenarioKind::Stencil, 490), (ScenarioKind::Pipeline, 1_220), (ScenarioKind::Grid, 1_220)];
    sizes.into_iter().map(|(kind, steps)| {
        let drawn = ScenarioSize::drawn(kind, 30);
        let (ranks, ranks_per_node) = (LARGE_RANKS, LARGE_NODE);
        let size = ScenarioSize { ranks, ranks_per_node, steps, subject: 1_234, noise: 0.0, ..drawn };
        Scenario::sized(kind, size)
    })
}
