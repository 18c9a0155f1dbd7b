//! What the arguments of real traces of the PyTorch profiler cost: size of the files and time to draw them.

use rpd_tests::fixtures::{kineto_ddp, kineto_real};
use rpd_tests::harness::rpd_merge;
use rpd_tests::measure::{RatioInterval, median};
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// A trace that was drawn.
struct DrawnFile {
    seconds: f64,
    bytes: u64,
    raw_bytes: u64,
}

/// Draws each real trace with and without its arguments, in turns, and prints a line for each.
pub(crate) fn measure(folder: &Path, rounds: usize) -> Result<(), Box<dyn Error>> {
    let mut inputs: Vec<(String, Vec<PathBuf>)> = kineto_real(&folder.join("real"))
        .into_iter()
        .map(|file| (file.file_name().unwrap_or_default().to_string_lossy().into_owned(), vec![file]))
        .collect();
    let ranks = kineto_ddp(&folder.join("ddp"));
    if !ranks.is_empty() {
        inputs.push(("two ranks with gloo".to_owned(), ranks));
    }
    println!(
        "\nARGUMENTS: real traces of the PyTorch profiler, {rounds} rounds. The aim is at most 1.5 times compressed\n"
    );
    println!(
        "| | compressed, bytes | without | times | raw, bytes | without | times | time to time without |"
    );
    println!("|---|--:|--:|--:|--:|--:|--:|--:|");
    for (name, files) in &inputs {
        let database = folder.join("arguments.db");
        let _ = rpd_merge().args(["--force", "-o"]).arg(&database).args(files).run().success();
        let mut ratios = Vec::new();
        let mut both = Vec::new();
        for round in 0..rounds {
            let mut with_and_without = [None, None];
            // The order changes from round to round.
            for place in [round % 2, (round + 1) % 2] {
                let options: &[&str] = if place == 0 { &[] } else { &["--exclude", "args"] };
                with_and_without[place] =
                    Some(draw(&database, &folder.join("arguments.pftrace.gz"), options)?);
            }
            let [Some(with), Some(without)] = with_and_without else { continue };
            ratios.push(with.seconds / without.seconds);
            both = vec![with, without];
        }
        let [with, without] = &both[..] else { continue };
        let times = |one: u64, other: u64| one as f64 / other.max(1) as f64;
        let time = match ratios.len() {
            0..2 => format!("{:.2}", median(ratios.into_iter())),
            _ => RatioInterval::of(ratios.into_iter()).to_string(),
        };
        println!(
            "| {name} | {} | {} | {:.2} | {} | {} | {:.2} | {time} |",
            with.bytes,
            without.bytes,
            times(with.bytes, without.bytes),
            with.raw_bytes,
            without.raw_bytes,
            times(with.raw_bytes, without.raw_bytes),
        );
    }
    Ok(())
}

fn draw(database: &Path, trace: &Path, options: &[&str]) -> Result<DrawnFile, Box<dyn Error>> {
    let job = rpd_merge().args(["--json", "--force", "--format", "perfetto"]).args(options);
    let start = Instant::now();
    let outcome = job.arg("-o").arg(trace).arg(database).run().success();
    let seconds = start.elapsed().as_secs_f64();
    let report: serde_json::Value = serde_json::from_str(&outcome.stdout)?;
    let raw_bytes = report["trace"]["raw_bytes"].as_u64().unwrap_or(0);
    Ok(DrawnFile { seconds, bytes: fs::metadata(trace)?.len(), raw_bytes })
}
