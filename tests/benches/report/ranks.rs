//! How fast `mpirun -n 2 rpd-report` is beside the threads of one process, without the start of mpirun.

use rpd_tests::harness::{Job, binary, mpirun};
use rpd_tests::measure::{RatioInterval, machine, median};
use rpd_tests::synthetic::{BulkRun, write_bulk_shards};
use std::error::Error;
use std::path::Path;
use std::time::{Duration, Instant};

/// How many times as many events the run has as that of the other turns. A report on it must take much longer than the
/// start of mpirun, whose time is subtracted.
const LONGER: usize = 4;
/// Longest turn.
const LIMIT: Duration = Duration::from_secs(300);

/// Prints the times of a report on all cores as threads and on two ranks, and the ratio of their speeds.
///
/// # Errors
/// If the run cannot be written or reported.
pub(crate) fn print(folder: &Path, rounds: usize, events: usize) -> Result<(), Box<dyn Error>> {
    let folder = tempfile::Builder::new().prefix("ranks-").tempdir_in(folder)?;
    let of_events =
        |events| BulkRun { ranks: 8, ranks_per_node: 8, events_per_rank: events, ..BulkRun::default() };
    let long = write_bulk_shards(&folder.path().join("long"), &of_events(events * LONGER))?;
    let short = write_bulk_shards(&folder.path().join("short"), &of_events(100))?;
    let summary = |job: Job| job.limit(LIMIT).args(["--quiet", "--format", "csv", "summary"]);
    let report = binary("rpd-report");
    let turns: [(&str, &dyn Fn() -> Job); 4] = [
        ("rpd-report summary, from shards", &|| summary(Job::new(&report)).args(&long)),
        ("mpirun -n 2 rpd-report summary", &|| summary(mpirun(2).arg(&report)).args(&long)),
        ("the first of 100 events a rank", &|| summary(Job::new(&report)).args(&short)),
        ("the second of these", &|| summary(mpirun(2).arg(&report)).args(&short)),
    ];
    println!("\n{rounds} rounds, {} events of each of 8 ranks. {}", events * LONGER, machine(folder.path()));
    let mut seconds: [Vec<f64>; 4] = Default::default();
    // The first round warms the page cache.
    for round in 0..=rounds {
        for turn in 0..turns.len() {
            let at = (round + turn) % turns.len();
            let began = Instant::now();
            let outcome = turns[at].1().run();
            let taken = began.elapsed().as_secs_f64();
            if outcome.code() != Some(0) {
                return Err(outcome.to_string().into());
            }
            if round > 0 {
                seconds[at].push(taken);
            }
        }
    }
    println!("\n| | seconds, median |\n|---|--:|");
    for ((name, _), seconds) in turns.iter().zip(&seconds) {
        println!("| {name} | {:.3} |", median(seconds.iter().copied()));
    }
    let ratios = (0..rounds).map(|round| {
        let [threads, ranks, short, start] = [0, 1, 2, 3].map(|turn| seconds[turn][round]);
        // The time of one process on a small run is not part of the start of mpirun.
        threads / (ranks - (start - short))
    });
    println!(
        "\nspeed on two ranks, without the start of mpirun, to that on all cores as threads: {}",
        RatioInterval::of(ratios)
    );
    Ok(())
}
