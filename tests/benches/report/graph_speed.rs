//! How long rpd-graph takes for a call, and how much memory the calls take.

use rpd_graph::{
    Call, CallGraph, CallTimeline, CallsError, CollectiveEntry, Completion, JobCalls, MessageEnd,
    WaitAnalysis, WorkSegment,
};
use rpd_tests::measure::median;
use rpd_tests::truth::{RecordTreatment, Scenario, ScenarioKind, ScenarioSize};
use std::time::Instant;

const RANKS: u32 = 1_024;
const RANKS_PER_NODE: u32 = 64;

/// Names of the stages that are timed.
const STAGES: [&str; 4] = ["matching and transfers", "replay", "delay costs", "delay costs and diagnosis"];

/// Prints the time of each stage and the memory of the calls, for a stencil with a reduction every 10 steps.
///
/// # Errors
/// [`CallsError`], if the calls are refused.
pub(crate) fn print(rounds: usize, steps: u32) -> Result<(), CallsError> {
    let drawn = ScenarioSize::drawn(ScenarioKind::Stencil, 30);
    let size = ScenarioSize { ranks: RANKS, ranks_per_node: RANKS_PER_NODE, steps, subject: 77, ..drawn };
    let scenario = Scenario::sized(ScenarioKind::Stencil, size);
    let job = scenario.calls(&RecordTreatment::Complete.recording(&scenario)).job;
    let calls: usize = job.timelines.iter().map(|timeline| timeline.calls.len()).sum();
    let mut ns: [Vec<f64>; STAGES.len()] = Default::default();
    for _ in 0..rounds {
        let mut began = Instant::now();
        let mut lap = |stage: usize| {
            ns[stage].push(began.elapsed().as_nanos() as f64 / calls as f64);
            began = Instant::now();
        };
        let graph = CallGraph::new(&job)?;
        lap(0);
        let analysis = WaitAnalysis::new(&graph);
        lap(1);
        let _ = analysis.delay_costs();
        lap(2);
        let _ = analysis.diagnose();
        lap(3);
    }
    println!("\n{RANKS} ranks, {calls} calls of a stencil\n\n| | ns a call |\n|---|--:|");
    for (stage, ns) in STAGES.iter().zip(ns) {
        println!("| {stage} | {:.0} |", median(ns.into_iter()));
    }
    println!("\n| | bytes a call |\n|---|--:|");
    for (what, bytes) in bytes_of(&job) {
        println!("| {what} | {:.1} |", bytes as f64 / calls as f64);
    }
    Ok(())
}

/// Returns the bytes of each list of the calls.
fn bytes_of(job: &JobCalls) -> [(&'static str, usize); 6] {
    let sum = |bytes: &dyn Fn(&CallTimeline) -> usize| job.timelines.iter().map(bytes).sum();
    [
        ("calls", sum(&|of| size_of::<Call>() * of.calls.len())),
        ("work", sum(&|of| size_of::<WorkSegment>() * of.work.len() + 4 * of.first_work.len())),
        ("message ends", sum(&|of| size_of::<MessageEnd>() * of.message_ends.len())),
        ("collectives", sum(&|of| size_of::<CollectiveEntry>() * of.entries.len())),
        ("completions", sum(&|of| size_of::<Completion>() * of.completions.len())),
        ("steps", sum(&|of| 4 * of.first_call_of_step.len())),
    ]
}
