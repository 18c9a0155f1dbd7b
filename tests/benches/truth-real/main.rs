//! How often rpd-report names the right rank in real runs, and how far off its gains are.
//!
//! ```text
//! ci/bench truth-real [--runs N] [--minutes N] [--only NAME] [--folder DIR] [--keep DIR]
//! ```
//!
//! Each run of a scenario has another seed. Its truth and the judgement on the report are a line of
//! DIR/results.jsonl; a second call goes on with what is missing. Without rpd-report the truth alone is
//! recorded, and such runs are made again once there is one. It fails if runs are missing or differ, or if a report names a wrong
//! rank or cause. Other programs on the machine may truly take the CPU of a rank, which a report then names.

mod results;
mod table;

use clap::Parser;
use results::{Results, RunResult};
use rpd_tests::harness::{built, repository};
use rpd_tests::measure::machine;
use rpd_tests::truth_real::{
    Answer, CAUSE_SCENARIOS, Proportions, Recorder, SCENARIOS, Scenario, check_database, judge,
    report_findings,
};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Reports on runs with a known slow rank
#[derive(Parser)]
#[command(name = "ci/bench truth-real")]
struct Arguments {
    /// Runs of each scenario
    #[arg(long, default_value_t = 5)]
    runs: u64,
    /// Begin no run after this time; a later call goes on
    #[arg(long, default_value_t = 18)]
    minutes: u64,
    /// This scenario alone
    #[arg(long, value_name = "NAME")]
    only: Option<String>,
    /// Work of a step, ms
    #[arg(long, default_value_t = 50.0)]
    work_ms: f64,
    /// Excess, as a share of the work
    #[arg(long, default_value_t = 0.2)]
    excess: f64,
    /// Standard deviation of the work, as a share of it
    #[arg(long, default_value_t = 0.02)]
    noise: f64,
    /// Steps of a run
    #[arg(long, default_value_t = 40)]
    steps: u32,
    /// Where results are kept; those of other lengths, excesses or noise need another folder
    #[arg(long, value_name = "DIR", default_value = "target/truth-real")]
    folder: PathBuf,
    /// Keep the first run of each scenario: DIR/NAME has shards, logs, trace.db and truth.json
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
    /// Passed by cargo bench
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let folder = repository().join(&arguments.folder);
    fs::create_dir_all(&folder).expect("the folder of the results");
    println!("{}", machine(&folder));
    let mut results = Results::open(&folder.join("results.jsonl"));
    let is_complete = record(&arguments, &folder, &mut results);
    table::print(&results);
    let is_wrong = |run: &RunResult| {
        let answer = run.judgement.as_ref().map(|judged| judged.answer);
        matches!(answer, Some(Answer::WrongName | Answer::WrongCause)) || run.difference.is_some()
    };
    if is_complete && !results.runs.iter().any(is_wrong) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Makes the runs that are missing. False if time was too short, or a run failed.
fn record(arguments: &Arguments, folder: &Path, results: &mut Results) -> bool {
    let began = Instant::now();
    let is_selected = |scenario: &&Scenario| arguments.only.as_ref().is_none_or(|only| only == scenario.name);
    let recorder = match SCENARIOS.iter().any(|scenario| is_selected(&scenario)) {
        true => Recorder::new(folder),
        false => Recorder::of_causes(folder, "programs with a known cause"),
    };
    let Some(recorder) = recorder else { return false };
    let mut is_complete = true;
    for seed in 1..=arguments.runs {
        for scenario in SCENARIOS.iter().chain(&CAUSE_SCENARIOS).filter(is_selected) {
            if results.has(scenario.name, seed, built("rpd-report").is_some()) {
                continue;
            }
            if began.elapsed() > Duration::from_secs(60 * arguments.minutes) {
                println!("runs are missing; call it again for the rest");
                return false;
            }
            match run(arguments, &recorder, scenario, seed, folder) {
                Ok(result) => {
                    println!("{}", table::line(&result));
                    results.add(result);
                }
                Err(error) => {
                    println!("{} {seed}: FAILED: {error}", scenario.name);
                    is_complete = false;
                }
            }
        }
    }
    is_complete
}

fn run(
    arguments: &Arguments,
    recorder: &Recorder,
    scenario: &Scenario,
    seed: u64,
    folder: &Path,
) -> Result<RunResult, String> {
    let kept =
        arguments.keep.as_ref().filter(|_| seed == 1).map(|keep| repository().join(keep).join(scenario.name));
    let place = kept.clone().unwrap_or_else(|| folder.join("run"));
    if place.exists() {
        fs::remove_dir_all(&place).map_err(|error| format!("{}: {error}", place.display()))?;
    }
    let Arguments { work_ms, excess, steps, noise, .. } = *arguments;
    let usual = Proportions { work_ms, excess, steps, noise };
    let proportions = scenario.proportions().unwrap_or(usual);
    let recording = recorder.record(scenario, &proportions, seed, &place)?;
    let difference = check_database(&recording).err();
    let report = report_findings(&recording.database).transpose()?;
    let judgement = report.map(|report| judge(&report, &recording.truth));
    if kept.is_none() {
        fs::remove_dir_all(&place).map_err(|error| format!("{}: {error}", place.display()))?;
    }
    Ok(RunResult { truth: recording.truth, judgement, difference })
}
