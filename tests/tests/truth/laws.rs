//! What must hold for the calls of any program, and for damaged ones.

use proptest::prelude::*;
use rpd_graph::{BegunOperation, CallGap, CallGraph, CollectiveWaits, JobCalls, MessageRole, WaitAnalysis};
use rpd_tests::synthetic::RandomSource;
use rpd_tests::truth::{
    CallOperation, CallRecorder, CallRecording, DroppedCalls, Message, ModelCall, ModelledCalls, Network,
    Operation, PlantedExcess, Program, RandomProgramSize, RunConditions, RunDurations, RunRecorder, SendMode,
    random_program, simulate,
};
use std::collections::HashSet;

fn conditions(seed: u64) -> RunConditions {
    RunConditions { seed, noise: 0.0, excess: PlantedExcess::None, network: Network::default() }
}

/// Records the calls, the waiting of each call and the collectives.
struct LawRecorder<'a> {
    calls: CallRecorder<'a>,
    /// Waiting of the calls, by rank, ns.
    waited: Vec<Vec<u64>>,
    collectives: HashSet<(u32, u32)>,
}

impl RunRecorder for LawRecorder<'_> {
    fn worked(&mut self, rank: u32, range: Option<&'static str>, start_ns: i64, end_ns: i64) {
        self.calls.worked(rank, range, start_ns, end_ns);
    }

    fn called(&mut self, call: &ModelCall<'_>) {
        self.waited[call.rank as usize].push(call.waited_ns);
        for operation in call.operations {
            if let CallOperation::Collective(entered) = operation {
                self.collectives.insert((entered.communicator, entered.number));
            }
        }
        self.calls.called(call);
    }

    fn matched(&mut self, send: (u32, u32), receive: (u32, u32)) {
        self.calls.matched(send, receive);
    }

    fn ended(&mut self, rank: u32, at_ns: i64) {
        self.calls.ended(rank, at_ns);
    }
}

struct RecordedProgram {
    calls: ModelledCalls,
    waited: Vec<Vec<u64>>,
    collectives: usize,
    durations: RunDurations,
}

fn record(program: &Program, seed: u64) -> RecordedProgram {
    let mut recording = CallRecording { keeps_messages: true, ..CallRecording::default() };
    recording.clocks.error_bound_ns = Some(0);
    let mut recorder = LawRecorder {
        calls: CallRecorder::new(program, &recording),
        waited: vec![Vec::new(); program.ranks as usize],
        collectives: HashSet::new(),
    };
    let durations = simulate(program, &conditions(seed), &mut recorder).unwrap();
    let collectives = recorder.collectives.len();
    let calls = recorder.calls.finish(Network::default().far_latency_ns);
    RecordedProgram { calls, waited: recorder.waited, collectives, durations }
}

fn sizes(has_large: bool) -> impl Strategy<Value = RandomProgramSize> {
    (2..7u32, 1..8u32, 0..14u32).prop_map(move |(ranks, rounds, messages)| RandomProgramSize {
        ranks,
        rounds,
        messages,
        has_large,
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn messages_match_as_the_standard_says(seed in any::<u64>(), size in sizes(true)) {
        let program = random_program(seed, size);
        let RecordedProgram { calls, collectives, .. } = record(&program, seed);
        let graph = CallGraph::new(&calls.job).unwrap();
        prop_assert_eq!(graph.message_counts().matched, calls.messages.len() as u64);
        for ((sender, sent), (receiver, received)) in &calls.messages {
            let (send, receive) = ((*sender as usize, *sent as usize), (*receiver as usize, *received as usize));
            prop_assert_eq!(graph.partner(send.0, send.1), Some(receive));
            prop_assert_eq!(graph.partner(receive.0, receive.1), Some(send));
        }
        let counts = graph.instance_counts();
        prop_assert_eq!(counts.matched, collectives as u64);
        prop_assert_eq!(counts.incomplete + counts.mismatched, 0);
    }

    #[test]
    fn no_message_matches_another_where_calls_are_missing(
        seed in any::<u64>(),
        size in (sizes(true), any::<bool>()),
        dropped in proptest::collection::vec((0..7u32, 0..90u64, 1..9u64), 1..4),
    ) {
        let (size, has_large) = size;
        let program = random_program(seed, RandomProgramSize { has_large, ..size });
        let burst = |(rank, first, calls): (u32, u64, u64)| DroppedCalls {
            rank: rank % size.ranks,
            calls: first..first + calls,
        };
        let dropped = dropped.into_iter().map(burst).collect();
        let mut recording = CallRecording { keeps_messages: true, dropped, ..CallRecording::default() };
        recording.clocks.error_bound_ns = (seed % 2 == 0).then_some(0);
        let mut recorder = CallRecorder::new(&program, &recording);
        simulate(&program, &conditions(seed), &mut recorder).unwrap();
        let calls = recorder.finish(Network::default().far_latency_ns);
        let graph = CallGraph::new(&calls.job).unwrap();
        let messages: HashSet<_> = calls.messages.iter().copied().collect();
        let number = |(timeline, end): (usize, usize)| (timeline as u32, calls.end_numbers[timeline][end]);
        for (timeline, of) in calls.job.timelines.iter().enumerate() {
            let sends = of.message_ends.iter().enumerate().filter(|(_, end)| end.role.is_send());
            for (end, _) in sends {
                if let Some(partner) = graph.partner(timeline, end) {
                    prop_assert!(messages.contains(&(number((timeline, end)), number(partner))));
                }
            }
        }
    }

    #[test]
    fn each_call_waits_as_long_as_in_the_model(seed in any::<u64>(), size in sizes(false)) {
        let program = random_program(seed, size);
        let RecordedProgram { calls, waited, durations, .. } = record(&program, seed);
        let graph = CallGraph::new(&calls.job).unwrap();
        let analysis = WaitAnalysis::new(&graph);
        prop_assert_eq!(analysis.given_up(), 0);
        prop_assert_eq!(analysis.replayed_ns(), durations.length_ns);
        for (rank, waited) in waited.iter().enumerate() {
            for (call, ns) in waited.iter().enumerate() {
                prop_assert_eq!(analysis.waited_in_call(rank, call), *ns, "call {} of rank {}", call, rank);
            }
        }
    }

    #[test]
    fn damaged_calls_are_refused_or_analysed(
        seed in any::<u64>(),
        size in sizes(true),
        damages in proptest::collection::vec(any::<u64>(), 1..12),
    ) {
        let program = random_program(seed, size);
        let mut job = record(&program, seed).calls.job;
        for damage_seed in damages {
            damage(&mut job, damage_seed);
        }
        analyse(&job);
    }
}

/// Runs all of the analysis, if the calls are not refused.
fn analyse(job: &JobCalls) {
    if let Ok(graph) = CallGraph::new(job) {
        let analysis = WaitAnalysis::new(&graph);
        let _ = (analysis.diagnose(), analysis.critical_path(), analysis.efficiency());
    }
}

/// The calls of a small program.
fn small_job() -> JobCalls {
    let size = RandomProgramSize { ranks: 4, rounds: 6, messages: 6, has_large: false };
    record(&random_program(3, size), 3).calls.job
}

#[test]
fn steps_of_a_job_without_steps_are_refused_or_analysed() {
    let mut job = small_job();
    job.timelines[0].first_call_of_step.push(0);
    analyse(&job);
}

#[test]
fn work_of_centuries_is_refused_or_analysed() {
    let mut job = small_job();
    job.timelines[0].work[0].ns = u64::MAX;
    analyse(&job);
}

#[test]
fn members_that_are_no_processes_are_refused_or_analysed() {
    let mut job = small_job();
    job.communicators[0].groups[0][1] = 7;
    analyse(&job);
}

#[test]
fn a_latency_of_centuries_is_refused_or_analysed() {
    let mut job = small_job();
    job.latency_ns = Some(u64::MAX);
    job.timelines.iter_mut().for_each(|timeline| timeline.error_bound_ns = None);
    analyse(&job);
}

/// Damages a value of a job.
fn damage(job: &mut JobCalls, seed: u64) {
    let mut random = RandomSource::new(&[seed, 7]);
    let wide = [0, 1, 2, 7, u64::MAX, u64::MAX / 2, 1 << 31, 1 << 62, random.bits()];
    let value = *random.pick(&wide);
    if random.chance(10) {
        match random.index(5) {
            0 => job.processes += value as u32 % 20,
            1 => job.labels = value as u32 % 20,
            2 => job.steps = value as u32 % 1_000,
            3 => job.latency_ns = Some(value >> 8),
            _ => {
                let communicator = random.index(job.communicators.len());
                let groups = &mut job.communicators[communicator].groups;
                match random.index(3) {
                    0 => groups.push(vec![value as u32 % job.processes.max(1)]),
                    1 => drop(groups.pop()),
                    _ => groups.iter_mut().for_each(|group| group.truncate(1)),
                }
            }
        }
        return;
    }
    let place = random.index(job.timelines.len());
    let timeline = &mut job.timelines[place];
    match random.index(17) {
        0 => timeline.process = value as u32,
        1 => timeline.node = value as u32,
        2 => timeline.start_ns = value as i64,
        3 => timeline.end_ns = value as i64,
        4 => timeline.error_bound_ns = Some(value),
        5 => timeline.lacks_calls = true,
        6 => change(&mut timeline.calls, &mut random, |call| call.enter_ns = value as i64),
        7 => change(&mut timeline.calls, &mut random, |call| call.duration_ns = value >> 8),
        8 => change(&mut timeline.work, &mut random, |work| work.ns = value >> 8),
        9 => change(&mut timeline.first_work, &mut random, |first| *first = value as u32),
        10 => change(&mut timeline.message_ends, &mut random, |end| {
            (end.peer, end.bytes) = (value as i32, value as u32);
        }),
        11 => change(&mut timeline.message_ends, &mut random, |end| {
            (end.call, end.role) = (value as u32, MessageRole::Probe);
        }),
        12 => change(&mut timeline.entries, &mut random, |entry| {
            (entry.root, entry.waits) = (value as i32, CollectiveWaits::ForRoot);
        }),
        13 => change(&mut timeline.entries, &mut random, |entry| entry.number = value as u32),
        14 => change(&mut timeline.completions, &mut random, |completion| {
            completion.operation = BegunOperation::Message(value as u32);
        }),
        15 => {
            let gap = |at: u64| CallGap {
                communicator: 0,
                from: at as u32,
                to: (at + value % 3) as u32,
                missing: 1,
            };
            timeline.lacks_calls = true;
            timeline.gaps = Some((1..value % 5).map(|at| gap(4 * at)).collect());
        }
        _ if timeline.first_call_of_step.is_empty() => {}
        _ => timeline.first_call_of_step.push(value as u32),
    }
}

fn change<T>(items: &mut [T], random: &mut RandomSource, change: impl FnOnce(&mut T)) {
    let place = random.index(items.len());
    if let Some(item) = items.get_mut(place) {
        change(item);
    }
}

#[test]
fn ranks_that_wait_for_one_another_are_an_error() {
    let program = Program::of_lists(2, |rank, out| {
        let message = Message::with(1 - rank, 0, 1 << 20);
        out.push(Operation::Send(message, SendMode::Standard));
        out.push(Operation::Receive(message));
    });
    let error = simulate(&program, &conditions(1), &mut rpd_tests::truth::Unrecorded).unwrap_err();
    assert_eq!((error.rank, error.function), (0, "MPI_Send"));
}
