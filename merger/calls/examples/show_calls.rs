//! Prints what the calls of a merged database are, and what the analysis of waits finds in them.
//!
//! `cargo run -p rpd-calls --example show_calls -- DATABASE [STEP]`

use rpd_calls::{ReadOptions, RunCalls};
use rpd_graph::{CallGraph, WaitAnalysis};
use rpd_run::RunDatabase;
use std::error::Error;
use std::path::Path;
use std::time::Instant;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let database = arguments.next().ok_or("no database")?;
    let options = ReadOptions { step: arguments.next(), ..ReadOptions::default() };
    let start = Instant::now();
    let run = RunDatabase::open(Path::new(&database), None)?;
    let opened = start.elapsed();
    let calls = RunCalls::read(&run, &options)?;
    println!("opened in {opened:?}, read in {:?}", start.elapsed() - opened);
    let job = &calls.job;
    let sum = |count: fn(&rpd_graph::CallTimeline) -> usize| job.timelines.iter().map(count).sum::<usize>();
    println!(
        "{} processes, {} timelines, {} calls, {} message ends, {} entries, {} completions, {} labels",
        job.processes,
        job.timelines.len(),
        sum(|timeline| timeline.calls.len()),
        sum(|timeline| timeline.message_ends.len()),
        sum(|timeline| timeline.entries.len()),
        sum(|timeline| timeline.completions.len()),
        job.labels,
    );
    println!("steps {:?}\nunavailable {:?}", calls.steps, calls.unavailable);
    let start = Instant::now();
    let graph = CallGraph::new(job)?;
    println!("{:?} {:?}", graph.message_counts(), graph.instance_counts());
    let analysis = WaitAnalysis::new(&graph);
    println!(
        "analysed in {:?}: recorded {} ms, replayed {} ms",
        start.elapsed(),
        analysis.recorded_ns() / 1_000_000,
        analysis.replayed_ns() / 1_000_000
    );
    let diagnosis = analysis.diagnose(&analysis.delay_costs());
    println!("{:?} {:?}", diagnosis.verdict, diagnosis.limits);
    for finding in &diagnosis.findings {
        println!("{finding:?}\n  {:?}", finding.label.and_then(|label| calls.labels.get(label as usize)));
    }
    Ok(())
}
