//! How far off the times of a merge are, over many jobs with known clocks, beside simpler methods.
//!
//! ```text
//! ci/bench clocks [--seeds N] [--first-seed N] [--nodes N] [--seconds A,B] [--noise A,B] [--only TEXT]
//!                 [--results FILE]
//! ```
//!
//! Every figure is over all seeds, nodes and moments of a scenario and length. The estimator sees what a
//! collector would, nothing else. docs/CLOCKS.md explains the table.

mod methods;
mod tally;
mod verdict;

use clap::Parser;
use methods::{FUSION, METHODS, SOURCES};
use rayon::prelude::*;
use rpd_clocks::AlignMethod;
use rpd_tests::clocks::{ClockScenario, Job, NoiseLevel};
use std::path::PathBuf;
use std::process::ExitCode;
use tally::Tally;

/// Errors and error bars of clock alignment, measured
#[derive(Parser)]
#[command(name = "ci/bench clocks")]
struct Arguments {
    /// Jobs of each scenario and length [default: 200]
    #[arg(long)]
    seeds: Option<u64>,
    /// The first seed
    #[arg(long, default_value_t = 1)]
    first_seed: u64,
    /// Nodes of each job
    #[arg(long, default_value_t = 24)]
    nodes: usize,
    /// Lengths of the runs, s
    #[arg(long, value_delimiter = ',', default_value = "30,600,3600")]
    seconds: Vec<i64>,
    /// What networks and schedulers add: quiet, busy, moderated
    #[arg(long, value_delimiter = ',', default_value = "quiet,busy,moderated", value_parser = noise)]
    noise: Vec<NoiseLevel>,
    /// Rows are kept in this file, and those in it are not measured again
    #[arg(long, value_name = "FILE")]
    results: Option<PathBuf>,
    /// Only scenarios with this in their names
    #[arg(long, default_value = "")]
    only: String,
    /// Passed by cargo bench; without it, a short run
    #[arg(long, hide = true)]
    bench: bool,
}

/// Moments of each node that are looked at.
const MOMENTS: usize = 50;

fn noise(name: &str) -> Result<NoiseLevel, String> {
    let named = NoiseLevel::ALL.into_iter().find(|noise| noise.name() == name);
    named.ok_or_else(|| {
        format!("no noise has this name: {}", NoiseLevel::ALL.map(NoiseLevel::name).join(", "))
    })
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let seeds = arguments.seeds.unwrap_or(if arguments.bench { 200 } else { 2 });
    let began = std::time::Instant::now();
    println!("{seeds} jobs of {} nodes each; errors and bars in us", arguments.nodes);
    let mut verdict =
        verdict::Verdict::open(arguments.results.clone(), (seeds, arguments.first_seed, arguments.nodes));
    for scenario in ClockScenario::ALL.iter().filter(|s| s.name.contains(&arguments.only)) {
        for (&seconds, &noise) in arguments
            .seconds
            .iter()
            .flat_map(|seconds| arguments.noise.iter().map(move |noise| (seconds, noise)))
        {
            let place = verdict::Place { scenario, noise, seconds };
            if verdict.has(&place) {
                continue;
            }
            let tallies = (arguments.first_seed..arguments.first_seed + seeds)
                .into_par_iter()
                .map(|seed| measure(&place, arguments.nodes, seed))
                .reduce(Vec::new, merge);
            verdict.take(&place, tallies);
        }
    }
    let met = verdict.print();
    println!("took {:.0} s", began.elapsed().as_secs_f64());
    if met { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// One job, by every method.
fn measure(place: &verdict::Place<'_>, nodes: usize, seed: u64) -> Vec<Tally> {
    let job = Job::with_noise(place.scenario, place.noise, nodes, place.seconds, seed);
    let moments = job.moments(MOMENTS, seed);
    let fits: Vec<_> = METHODS.iter().map(|method| (method.align)(&job.observations)).collect();
    let mut tallies: Vec<Tally> = fits.iter().map(|fits| Tally::new(fits, &moments, |_| true)).collect();
    // Fusion reaches more nodes than its sources do; beside a source, only those of the source count.
    for source in SOURCES {
        let reached = |domain: usize| fits[source][domain].method != AlignMethod::None;
        tallies.push(Tally::new(&fits[FUSION], &moments, reached));
    }
    tallies
}

fn merge(a: Vec<Tally>, b: Vec<Tally>) -> Vec<Tally> {
    if a.is_empty() {
        return b;
    }
    if b.is_empty() {
        return a;
    }
    a.into_iter().zip(b).map(|(a, b)| a.with(b)).collect()
}
