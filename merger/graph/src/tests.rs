//! What the analysis says about small jobs of which everything is known.

use crate::delay_costs::DelayCost;
use crate::diagnosis::{DiagnosisLimit, JobDiagnosis, JobVerdict};
use crate::label_times::SLOTS;
use crate::scenarios::DurationScenario;
use crate::small_job::{Act, run};
use crate::waits::NO_CALL;
use crate::*;
use proptest::collection::vec;
use proptest::prelude::*;

const WORK: u32 = 1;
const SETUP: u32 = 2;
const MS: u64 = 1_000_000;

fn diagnose(job: &JobCalls) -> (JobDiagnosis, DelayCosts, i64) {
    let graph = CallGraph::new(job).unwrap();
    let analysis = WaitAnalysis::new(&graph);
    assert_eq!(analysis.replayed_ns(), analysis.recorded_ns());
    let (costs, diagnosis) = (analysis.delay_costs(), analysis.diagnose());
    let path: u64 = analysis.critical_path().pieces.iter().map(|piece| piece.ns).sum();
    assert_eq!(path as i64, analysis.replayed_ns());
    let explained: f64 = (0..job.timelines.len()).map(|t| costs.of_timeline(t).total_ns()).sum();
    let rest = costs.waited_ns as f64 - explained - costs.unexplained_ns;
    assert!(rest.abs() < 1.0 + 1e-9 * costs.waited_ns as f64, "{rest} ns of the waiting are nowhere");
    (diagnosis, costs.clone(), analysis.recorded_ns())
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
    assert_eq!(found.verdict, JobVerdict::Serial, "{found:#?}");
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

/// Ranks around a ring with a collective in each step; one of them is slower.
fn ring(slow: usize, excess: u64, label_of: impl Fn(usize) -> u32) -> Vec<Vec<Act>> {
    let ranks = 6;
    let program = |rank: usize| {
        let of_step = |step: usize| {
            let excess = if rank == slow { excess } else { 0 };
            let (right, left) = ((rank + 1) % ranks, (rank + ranks - 1) % ranks);
            let work = Act::Work(label_of(rank), noisy(rank, step) + excess);
            let [send, receive] = [Act::Send(right as i32, 1), Act::Receive(left as i32, 1)];
            [Act::Step, work, send, receive, Act::Collective(CollectiveWaits::ForAll)]
        };
        (0..60).flat_map(of_step).collect()
    };
    (0..ranks).map(program).collect()
}

#[test]
fn labels_of_two_ranks_each_are_compared_by_the_sum_of_the_work() {
    let label_of = |rank: usize| WORK + rank as u32 % 3;
    let (found, _, length) = diagnose(&run(&ring(4, 0, label_of), 4));
    assert!(found.findings.is_empty() && found.gain_of_all.ns < length / 20, "{found:#?}");
    let (found, _, length) = diagnose(&run(&ring(4, 5 * MS, label_of), 4));
    assert_eq!(found.verdict, JobVerdict::Slow, "{found:#?}");
    let finding = &found.findings[0];
    assert_eq!((&finding.subject, finding.label), (&FindingSubject::Timelines(vec![4]), Some(WORK + 1)));
    assert!(!finding.is_at_most && !finding.is_exclusive);
    let truth = length - diagnose(&run(&ring(4, 0, label_of), 4)).2;
    assert!((finding.gain.ns - truth).abs() < length / 100, "{} {truth}", finding.gain.ns);
}

#[test]
fn ranks_that_hardly_do_some_work_are_not_compared_in_it() {
    // Each of two halves has a label of its own, and one rank of the other half does a little of that work, too.
    let mut programs = ring(9, 0, |rank| WORK + rank as u32 % 2);
    for (rank, label) in [(0, WORK + 1), (1, WORK)] {
        programs[rank].insert(1, Act::Work(label, MS));
    }
    let (found, _, length) = diagnose(&run(&programs, 4));
    assert!(found.findings.is_empty() && found.gain_of_all.ns < length / 20, "{found:#?}");
}

#[test]
fn long_calls_without_a_known_wait_forbid_a_verdict() {
    let mut job = run(&ring(4, 5 * MS, |_| WORK), 3);
    assert_eq!(diagnose(&job).0.verdict, JobVerdict::Slow);
    let entries = job.timelines.iter_mut().flat_map(|timeline| &mut timeline.entries);
    entries.for_each(|entry| entry.waits = CollectiveWaits::Unknown);
    for timeline in &mut job.timelines {
        timeline.message_ends.clear();
    }
    let found = diagnose(&job).0;
    assert_eq!((found.verdict, &found.findings[..]), (JobVerdict::CannotTell, &[][..]));
    let [DiagnosisLimit::LongCalls { share, label: 0 }] = found.limits[..] else { panic!("{found:#?}") };
    assert!((0.08..0.12).contains(&share), "{share}");
}

#[test]
fn pauses_between_polls_forbid_to_name_their_rank_alone() {
    let mut job = run(&ring(4, 5 * MS, |_| WORK), 3);
    job.timelines[1].poll_pauses_ns = 60 * 5 * MS;
    assert_eq!(diagnose(&job).0.verdict, JobVerdict::Slow);
    job.timelines[4].poll_pauses_ns = 60 * 5 * MS;
    let found = diagnose(&job).0;
    assert!(matches!(found.limits[..], [DiagnosisLimit::PollPauses { share }] if share > 0.05), "{found:#?}");
    assert_eq!((found.verdict, &found.findings[..]), (JobVerdict::CannotTell, &[][..]));
}

#[test]
fn a_straggler_that_a_slower_one_hides_is_a_finding_of_its_own() {
    let program = |excess: &[u64]| -> Vec<Vec<Act>> {
        let of_rank = |(rank, excess): (usize, &u64)| {
            let work = |step| Act::Work(WORK, noisy(rank, step) + excess);
            let acts = |step| [Act::Step, work(step), Act::Collective(CollectiveWaits::ForAll)];
            (0..40).flat_map(acts).collect()
        };
        excess.iter().enumerate().map(of_rank).collect()
    };
    let length = |excess: [u64; 4]| diagnose(&run(&program(&excess), 3)).2;
    let (found, costs, all) = diagnose(&run(&program(&[0, 10 * MS, 5 * MS, 0]), 3));
    let subjects: Vec<&[u32]> = found.findings.iter().map(|finding| finding.subject.timelines()).collect();
    assert_eq!(subjects, [[1], [2]], "{found:#?}");
    assert_eq!(costs.of_timeline(2).total_ns(), 0.0);
    let truths = [all - length([0, 0, 5 * MS, 0]), length([0, 0, 5 * MS, 0]) - length([0; 4])];
    for (finding, truth) in found.findings.iter().zip(truths) {
        assert!((finding.gain.ns - truth).abs() < all / 100, "{} {truth}", finding.gain.ns);
        assert!(finding.cost.total_ns() > 0.0);
    }
    // Where four work equally long but for noise, they are one finding.
    for excess in [3 * MS / 2, 2 * MS, 10 * MS] {
        let ranks: Vec<u64> = (0..9).map(|rank| if rank < 4 { excess } else { 0 }).collect();
        let (found, ..) = diagnose(&run(&program(&ranks), 3));
        assert_eq!(found.findings.len(), 1, "{found:#?}");
        let mut named = found.findings[0].subject.timelines().to_vec();
        named.sort_unstable();
        assert_eq!(named, [0, 1, 2, 3]);
    }
}

/// Ranks that meet in each step, with noise of their own; the second one has an excess. Returns how much it delays the run.
fn meeting(ranks: usize, seed: usize, excess: u64) -> (JobCalls, i64) {
    let steps = 0..60;
    let work = |rank: usize, step: usize| noisy(rank + seed * ranks, step);
    let program = |rank: usize| {
        let of_step = |step: usize| {
            let longer = if rank == 1 { excess } else { 0 };
            let work = Act::Work(WORK, work(rank, step) + longer);
            [Act::Step, work, Act::Collective(CollectiveWaits::ForAll)]
        };
        steps.clone().flat_map(of_step).collect()
    };
    let longest = |step: usize, longer: u64| {
        (0..ranks).map(|rank| work(rank, step) + if rank == 1 { longer } else { 0 }).max().unwrap()
    };
    let gain_ns = steps.clone().map(|step| (longest(step, excess) - longest(step, 0)) as i64).sum();
    (run(&(0..ranks).map(program).collect::<Vec<Vec<Act>>>(), 3), gain_ns)
}

#[test]
fn the_error_of_a_gain_has_what_chance_makes_longer() {
    for ranks in [2, 3, 5, 12] {
        let (mut covered, mut error_ns, mut gain_ns) = (0, 0, 0);
        for seed in 0..20 {
            let (job, expected_ns) = meeting(ranks, seed, 5 * MS);
            let (diagnosis, ..) = diagnose(&job);
            let [finding] = &diagnosis.findings[..] else { panic!("{ranks} {seed}: {diagnosis:?}") };
            assert_eq!(finding.subject.timelines(), [1]);
            covered += usize::from((finding.gain.ns - expected_ns).abs() <= finding.gain.error_bound_ns);
            error_ns += finding.gain.error_bound_ns;
            gain_ns += expected_ns;
        }
        assert!(covered >= 18, "{ranks} ranks: {covered} of 20");
        assert!(error_ns * 4 < gain_ns, "{ranks} ranks: {error_ns} of {gain_ns} ns");
    }
}

/// A round of a random program.
#[derive(Clone, Debug)]
enum Round {
    /// Each rank works, ns.
    Work(Vec<u64>),
    /// One rank sends to another.
    Message(usize, usize),
    /// Each rank sends to the one this far after it, and receives in the same call.
    Exchange(usize),
    /// All ranks enter a collective.
    Collective(CollectiveWaits),
}

fn rounds(ranks: usize) -> impl Strategy<Value = Vec<Round>> {
    let waits = prop_oneof![
        Just(CollectiveWaits::ForAll),
        Just(CollectiveWaits::ForRoot),
        Just(CollectiveWaits::RootForAll)
    ];
    let round = prop_oneof![
        4 => vec(0..MS, ranks).prop_map(Round::Work),
        4 => (0..ranks, 1..ranks).prop_map(move |(from, by)| Round::Message(from, (from + by) % ranks)),
        2 => (1..ranks).prop_map(Round::Exchange),
        2 => waits.prop_map(Round::Collective),
    ];
    vec(round, 12..120)
}

fn programs(ranks: usize, rounds: &[Round]) -> Vec<Vec<Act>> {
    let mut programs = vec![Vec::new(); ranks];
    for (number, round) in rounds.iter().enumerate() {
        if number % 4 == 0 {
            programs.iter_mut().for_each(|program| program.push(Act::Step));
        }
        match round {
            Round::Work(ns) => {
                for (rank, program) in programs.iter_mut().enumerate() {
                    program.push(Act::Work(1 + ((rank + number) % 5) as u32, ns[rank]));
                }
            }
            Round::Message(from, to) => {
                programs[*from].push(Act::Send(*to as i32, 3));
                programs[*to].push(Act::Receive(*from as i32, 3));
            }
            Round::Exchange(by) => {
                for (rank, program) in programs.iter_mut().enumerate() {
                    let (to, from) = ((rank + by) % ranks, (rank + ranks - by) % ranks);
                    program.push(Act::Exchange(to as i32, from as i32, 4));
                }
            }
            Round::Collective(waits) => {
                programs.iter_mut().for_each(|program| program.push(Act::Collective(*waits)));
            }
        }
    }
    programs
}

/// The delay costs by their definition: every wait hands on to each earlier wait of its cause.
fn plain_costs(analysis: &WaitAnalysis<'_>) -> Vec<DelayCost> {
    let waits = &analysis.waits;
    let mut received = vec![0.0; waits.len()];
    let mut costs = vec![DelayCost::default(); analysis.graph.job.timelines.len()];
    for (number, wait) in waits.iter().enumerate().rev() {
        let start = |call: u32| (call != NO_CALL).then_some(call as usize);
        let of_cause = analysis.times.between(
            wait.cause as usize,
            start(wait.cause_synchronised),
            wait.cause_call as usize,
        );
        let of_own =
            analysis.times.between(wait.timeline as usize, start(wait.synchronised), wait.call as usize);
        let delay: u64 = (0..SLOTS).map(|slot| of_cause[slot].saturating_sub(of_own[slot])).sum();
        let is_earlier = |earlier: &waits::CallWait| {
            earlier.timeline == wait.cause
                && (wait.cause_synchronised == NO_CALL
                    || earlier.call > wait.cause_synchronised
                    || wait.is_at_entry && earlier.call == wait.cause_synchronised)
                && earlier.call < wait.cause_call
        };
        let earlier: Vec<usize> = (0..number).filter(|place| is_earlier(&waits[*place])).collect();
        let total = delay as f64 + earlier.iter().map(|place| waits[*place].ns as f64).sum::<f64>();
        if total == 0.0 {
            continue;
        }
        let (direct, propagated) = ((wait.ns as f64 / total).min(1.0), received[number] / total);
        costs[wait.cause as usize].direct_ns += direct * delay as f64;
        costs[wait.cause as usize].propagated_ns += propagated * delay as f64;
        for place in earlier {
            received[place] += (direct + propagated) * waits[place].ns as f64;
        }
    }
    costs
}

/// Each rank exchanges with its neighbours in one call, so that the waiting for a slow one goes around the ring.
#[test]
fn waiting_is_passed_on_through_calls_that_send_and_receive() {
    let program = |rank: i32| {
        let work = Act::Work(1, if rank == 2 { 3_000 } else { 1_000 });
        let step = [Act::Step, work, Act::Exchange((rank + 1) % 4, (rank + 3) % 4, 0)];
        step.repeat(40)
    };
    let job = run(&(0..4).map(program).collect::<Vec<_>>(), 2);
    let graph = CallGraph::new(&job).unwrap();
    let analysis = WaitAnalysis::new(&graph);
    let costs = analysis.delay_costs();
    let of_rank = |rank: usize| costs.of_timeline(rank).total_ns();
    let all: f64 = (0..4).map(of_rank).sum();
    assert!(costs.unexplained_ns < 0.01 * costs.waited_ns as f64, "{costs:?}");
    assert!((all - costs.waited_ns as f64).abs() < 0.01 * all, "{all} of {}", costs.waited_ns);
    assert!(of_rank(2) > 0.95 * all, "{} of {all}", of_rank(2));
}

#[test]
fn a_job_without_calls_has_no_verdict() {
    let job = JobCalls::default();
    let graph = CallGraph::new(&job).unwrap();
    let analysis = WaitAnalysis::new(&graph);
    let diagnosis = analysis.diagnose();
    assert_eq!((diagnosis.verdict, &diagnosis.findings[..]), (JobVerdict::CannotTell, &[][..]));
    assert_eq!(diagnosis.limits, [DiagnosisLimit::NoCalls]);
    assert!(analysis.critical_path().by_label.is_empty());
    assert_eq!(analysis.efficiency(), None);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn the_analysis_keeps_its_laws(rounds in (2usize..7).prop_flat_map(|ranks| (Just(ranks), rounds(ranks)))) {
        let (ranks, rounds) = rounds;
        let job = run(&programs(ranks, &rounds), 6);
        let graph = CallGraph::new(&job).unwrap();
        let analysis = WaitAnalysis::new(&graph);
        // With exact clocks, the replay is the run.
        prop_assert_eq!(analysis.replayed_ns(), analysis.recorded_ns());
        prop_assert_eq!(analysis.given_up(), 0);
        let path: u64 = analysis.critical_path().pieces.iter().map(|piece| piece.ns).sum();
        prop_assert_eq!(path as i64, analysis.replayed_ns());
        let what_if = analysis.what_if();
        let all = what_if.gain(what_if.scenarios.work_in(&(0..usize::MAX))).ns;
        for rank in 0..ranks as u32 {
            prop_assert!(analysis.gain(&[rank], None).ns <= all);
        }
        let replays = what_if.scenarios;
        let scenarios: Vec<DurationScenario> = (0..4)
            .map(|block| DurationScenario::TypicalWork(replays.work_in(&(block..block + 2))))
            .chain([DurationScenario::IdealNetwork, DurationScenario::TypicalWork(replays.work_of(&[0], Some(0)))])
            .collect();
        let one_by_one = scenarios.iter().flat_map(|one| replays.replay(vec![one.clone()]));
        prop_assert_eq!(one_by_one.collect::<Vec<_>>(), replays.replay(scenarios.clone()));
        let efficiency = analysis.efficiency().unwrap();
        let product = efficiency.load_balance
            * efficiency.serialization.unwrap_or(0.0)
            * efficiency.transfer.unwrap_or(0.0);
        prop_assert!((product - efficiency.parallel).abs() < 1e-9);
        // All waits have a cause.
        let costs = delay_costs::delay_costs(&analysis.waits, &analysis.times, &analysis.replayed, |_| true);
        let found: f64 = (0..ranks).map(|rank| costs.of_timeline(rank).total_ns()).sum();
        prop_assert!((found + costs.unexplained_ns - costs.waited_ns as f64).abs() < 1.0);
        let everyone: Vec<u32> = (0..ranks as u32).collect();
        let waits = analysis.waits_for(&everyone, usize::MAX);
        let waited_ns: u64 = waits.listed.iter().map(|wait| wait.waited_ns).sum();
        prop_assert_eq!((waits.listed.len() as u64, waited_ns), (waits.count, waits.waited_ns));
        prop_assert!(waits.listed.iter().all(|wait| wait.label_ns == 0 || wait.label_ns > wait.own_label_ns));
        let of_rank = |rank: u32| analysis.waits_for(&[rank], 0).waited_ns;
        prop_assert_eq!(everyone.iter().map(|rank| of_rank(*rank)).sum::<u64>(), waits.waited_ns);
        // Each message is in one flow, and no wait is in two.
        let flows = analysis.message_flows();
        let ends = job.timelines.iter().flat_map(|timeline| &timeline.message_ends);
        let sends = ends.filter(|end| end.role.is_send()).count() as u64;
        prop_assert_eq!(flows.iter().map(|flow| flow.count).sum::<u64>(), sends);
        let late: u64 = flows.iter().map(|flow| flow.late_sender_ns + flow.late_receiver_ns).sum();
        let all_waits: u64 = analysis.waits.iter().map(|wait| wait.ns).sum();
        prop_assert!(late <= all_waits, "{} of {}", late, all_waits);
        for (rank, plain) in plain_costs(&analysis).into_iter().enumerate() {
            let linear = costs.of_timeline(rank);
            prop_assert!((plain.direct_ns - linear.direct_ns).abs() < 1.0);
            prop_assert!((plain.propagated_ns - linear.propagated_ns).abs() < 1.0);
        }
    }

    #[test]
    fn clocks_that_cannot_be_compared_change_nothing(
        rounds in (2usize..7).prop_flat_map(|ranks| (Just(ranks), rounds(ranks))),
        shift in -50_000_000i64..50_000_000,
    ) {
        let (ranks, rounds) = rounds;
        let mut job = run(&programs(ranks, &rounds), 6);
        job.timelines.iter_mut().for_each(|timeline| timeline.error_bound_ns = None);
        let mut shifted = job.clone();
        for timeline in shifted.timelines.iter_mut().filter(|timeline| timeline.node == 0) {
            timeline.start_ns += shift;
            timeline.end_ns += shift;
            timeline.calls.iter_mut().for_each(|call| call.enter_ns += shift);
        }
        let (graph, other) = (CallGraph::new(&job).unwrap(), CallGraph::new(&shifted).unwrap());
        let (here, there) = (WaitAnalysis::new(&graph), WaitAnalysis::new(&other));
        prop_assert_eq!(here.replayed_ns(), there.replayed_ns());
        prop_assert_eq!(&here.waits, &there.waits);
        prop_assert_eq!(here.delay_costs(), there.delay_costs());
        prop_assert_eq!(here.recorded_ns(), there.recorded_ns());
        prop_assert_eq!(here.diagnose(), there.diagnose());
    }
}
