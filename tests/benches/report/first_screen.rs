//! How long the first screen of a large run takes, and how much memory.

use rpd_tests::harness::{binary, rpd_merge};
use rpd_tests::measure::{median, peak_of_process};
use rpd_tests::truth::{Scenario, ScenarioKind, ScenarioSize, write_scenario};
use std::error::Error;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Ranks of a node.
const RANKS_PER_NODE: u32 = 64;
/// Maximum time of the merge.
const LIMIT: Duration = Duration::from_secs(900);

/// Prints the time and the memory of `rpd-report` over the database of a stencil with five calls a step.
///
/// # Errors
/// If the run cannot be written, merged or reported, or another rank than the slow one is named.
pub(crate) fn print(folder: &Path, rounds: usize, (ranks, steps): (u32, u32)) -> Result<(), Box<dyn Error>> {
    let drawn = ScenarioSize::drawn(ScenarioKind::Stencil, 30);
    let size = ScenarioSize { ranks, ranks_per_node: RANKS_PER_NODE, steps, subject: ranks / 3, ..drawn };
    let scenario = Scenario::sized(ScenarioKind::Stencil, size);
    let shards = write_scenario(&scenario, &[], &folder.join("runs"))?;
    let database = folder.join("screen.db");
    let _ = rpd_merge().limit(LIMIT).arg("--quiet").arg("-o").arg(&database).arg(&shards).run().success();
    let named = format!("rank {}", size.subject);
    println!("\n{ranks} ranks, {steps} steps, a database of {} MiB\n", database.metadata()?.len() >> 20);
    println!("| first screen | seconds, median of {rounds} | MiB |\n|---|--:|--:|");
    let (seconds, peak) = time_screens(&database, rounds, &named)?;
    let calls = database.with_extension("calls");
    println!(
        "| with a file of calls of {} MiB | {seconds:.2} | {} |",
        calls.metadata()?.len() >> 20,
        peak >> 20
    );
    std::fs::remove_file(calls)?;
    let (seconds, peak) = time_screens(&database, rounds, &named)?;
    println!("| without it | {seconds:.2} | {} |", peak >> 20);
    let (seconds, peak) = time_screens(&shards, rounds, &named)?;
    println!("| from shards | {seconds:.2} | {} |", peak >> 20);
    Ok(())
}

/// Returns the median of the seconds of several first screens, and the largest peak of their memory in bytes.
fn time_screens(database: &Path, rounds: usize, named: &str) -> Result<(f64, u64), Box<dyn Error>> {
    let (mut seconds, mut peak) = (Vec::new(), 0);
    for _ in 0..rounds {
        let began = Instant::now();
        let mut command = Command::new(binary("rpd-report"));
        let mut child = command.arg(database).stdout(Stdio::piped()).spawn()?;
        peak = peak_of_process(&mut child).max(peak);
        let output = child.wait_with_output()?;
        seconds.push(began.elapsed().as_secs_f64());
        let text = String::from_utf8_lossy(&output.stdout);
        if !output.status.success() || !text.contains(named) {
            return Err(format!("the report does not name {named}: {text}").into());
        }
    }
    Ok((median(seconds.into_iter()), peak))
}
