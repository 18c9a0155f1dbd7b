//! How long a merge takes, beside what SQLite alone and `cat` need for the same bytes.
//!
//! ```text
//! ci/bench merge [--ranks N] [--events N] [--rounds N] [--dir FOLDER]
//! ```
//!
//! All contestants take turns in every round; each figure is a median over the rounds, with the least
//! and the most. Before each turn what the one before left is on the disk. Inputs are in the page cache.
//! Ratios are taken within a round.
//!
//! rpd-merge syncs its output, SQLite is told not to, and `cat` does not: so the sync is measured apart
//! for all of them. That of rpd-merge is timed inside of it, by a preloaded `fsync`; after the others
//! the bench syncs. Peak memory, checks and the comparison of outputs are in a round of their own, which
//! is not timed.

mod checks;
mod contest;
mod inputs;
mod report;
mod sync;

use clap::Parser;
use contest::{Contest, contestants};
use inputs::Inputs;
use rpd_tests::harness::repository;
use rpd_tests::measure::exit_code;
use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;

/// Merge of a synthetic job, measured
#[derive(Parser)]
#[command(name = "ci/bench merge")]
struct Arguments {
    /// Ranks of the job
    #[arg(long)]
    ranks: Option<u32>,
    /// Events of each rank
    #[arg(long)]
    events: Option<usize>,
    /// Rounds
    #[arg(long)]
    rounds: Option<usize>,
    /// Where inputs and outputs are written; a folder in it, which is removed [default: target/bench-merge]
    #[arg(long, value_name = "FOLDER")]
    dir: Option<PathBuf>,
    /// Passed by cargo bench; without it, a short run
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() -> ExitCode {
    exit_code("merge", run(&Arguments::parse()))
}

fn run(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    let default = if arguments.bench { (16, 250_000, 7) } else { (2, 500, 1) };
    let ranks = arguments.ranks.unwrap_or(default.0);
    let events = arguments.events.unwrap_or(default.1);
    let rounds = arguments.rounds.unwrap_or(default.2);
    let place = arguments.dir.clone().unwrap_or_else(|| repository().join("target/bench-merge"));
    std::fs::create_dir_all(&place)?;
    let folder = tempfile::Builder::new().prefix("merge-").tempdir_in(&place)?;

    eprintln!("{ranks} ranks of {events} events are written");
    let inputs = Inputs::write(ranks, events, folder.path())?;
    let contest = Contest::new(&inputs, folder.path())?;
    let mut rows = Vec::new();
    let mut failed = false;
    for contestant in contestants() {
        eprintln!("checks: {contestant}");
        match contest.check(contestant) {
            Ok(checked) => rows.push(report::Row::new(contestant, checked)),
            Err(why) => {
                println!("not measured: {why}");
                failed = true;
            }
        }
    }
    for round in 0..rounds {
        // Each time another one begins, so that none always follows the same one.
        let first = round % rows.len().max(1);
        let (ahead, behind) = rows.split_at_mut(first);
        for row in behind.iter_mut().chain(ahead) {
            let lap = contest.lap(row.contestant)?;
            eprintln!("round {} of {rounds}: {}: {:.2} s", round + 1, row.contestant, lap.seconds);
            row.laps.push(lap);
        }
    }
    report::print(&inputs, folder.path(), &rows);
    if failed { Err("not everything was measured, see above".into()) } else { Ok(()) }
}
