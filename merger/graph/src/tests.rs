//! What the analysis says about small jobs of which everything is known.

use crate::small_job::{Act, run};
use crate::*;

const WORK: u32 = 1;
const SETUP: u32 = 2;
const MS: u64 = 1_000_000;

fn diagnose(job: &JobCalls) -> (JobDiagnosis, DelayCosts, i64) {
    let graph = CallGraph::new(job).unwrap();
    let analysis = WaitAnalysis::new(&graph);
    assert_eq!(analysis.replayed_ns(), analysis.recorded_ns());
    let costs = analysis.delay_costs();
    let path: u64 = analysis.critical_path().pieces.iter().map(|piece| piece.ns).sum();
    assert_eq!(path as i64, analysis.replayed_ns());
    let explained: f64 = (0..job.timelines.len()).map(|t| costs.of_timeline(t).total_ns()).sum();
    let rest = costs.waited_ns as f64 - explained - costs.unexplained_ns;
    assert!(rest.abs() < 1.0 + 1e-9 * costs.waited_ns as f64, "{rest} ns of the waiting are nowhere");
    (analysis.diagnose(&costs), costs, analysis.recorded_ns())
}

/// Noise of 2 % of 50 ms, the same for the same place.
fn noisy(rank: usize, step: usize) -> u64 {
    let mut state = (rank * 1_000 + step + 1) as u64;
    for _ in 0..4 {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
    }
    49 * MS + state % (2 * MS)
}

fn chain(excess: u64) -> Vec<Vec<Act>> {
    (0..4)
        .map(|rank: usize| {
            let of_step = |step: usize| {
                let mut acts = vec![Act::Step, Act::Work(WORK, noisy(rank, step))];
                match rank {
                    1 => acts.extend([Act::Work(SETUP, excess), Act::Send(2, 7)]),
                    2 => acts.extend([Act::Receive(1, 7), Act::Send(3, 7)]),
                    3 => acts.push(Act::Receive(2, 7)),
                    _ => {}
                }
                acts.push(Act::Collective(CollectiveWaits::ForAll));
                acts
            };
            (0..40).flat_map(of_step).collect()
        })
        .collect()
}

#[test]
fn the_first_of_a_chain_is_named_and_none_of_its_victims() {
    let excess = 5 * MS;
    let (found, costs, length) = diagnose(&run(&chain(excess), 3));
    assert_eq!(found.verdict, JobVerdict::Slow, "{found:#?}");
    let finding = &found.findings[0];
    assert_eq!(finding.subject, FindingSubject::Timelines(vec![1]));
    assert_eq!((finding.label, finding.pattern), (Some(SETUP), StepPattern::Steady));
    let truth = length - diagnose(&run(&chain(0), 3)).2;
    assert!((finding.gain.ns - truth).abs() < length / 100, "{} {truth}", finding.gain.ns);
    assert!(costs.of_timeline(1).total_ns() > 10.0 * costs.of_timeline(2).total_ns());
}

#[test]
fn nobody_is_named_where_all_work_alike() {
    let (found, ..) = diagnose(&run(&chain(0), 3));
    assert!(found.findings.is_empty(), "{found:#?}");
    assert!(matches!(found.verdict, JobVerdict::NoSingleCause | JobVerdict::Balanced));
}

#[test]
fn the_rank_that_delays_a_ring_is_named() {
    let ranks = 6;
    let program = |excess: u64| -> Vec<Vec<Act>> {
        (0..ranks)
            .map(|rank| {
                let of_step = |step: usize| {
                    let slow = if rank == 4 { excess } else { 0 };
                    let right = (rank as i32 + 1) % ranks as i32;
                    let left = (rank as i32 + ranks as i32 - 1) % ranks as i32;
                    let mut acts = vec![Act::Step, Act::Work(WORK, noisy(rank, step) + slow)];
                    acts.extend([Act::Send(right, 1), Act::Receive(left, 1)]);
                    if step % 10 == 9 {
                        acts.push(Act::Collective(CollectiveWaits::ForAll));
                    }
                    acts
                };
                (0..60).flat_map(of_step).collect()
            })
            .collect()
    };
    let (found, _, length) = diagnose(&run(&program(5 * MS), 3));
    assert_eq!(found.verdict, JobVerdict::Slow, "{found:#?}");
    assert_eq!(found.findings[0].subject, FindingSubject::Timelines(vec![4]));
    let truth = length - diagnose(&run(&program(0), 3)).2;
    assert!((found.findings[0].gain.ns - truth).abs() < length / 100);
}
