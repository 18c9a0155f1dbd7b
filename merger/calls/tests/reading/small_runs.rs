//! Calls of small databases, in which each row is known.

use crate::small_run::SmallRun;
use rpd_calls::{AnalysisMemory, CallLabel, MissingCalls, ReadOptions, RunCalls, StepKind};
use rpd_console::Exit;
use rpd_graph::{
    ANY, BegunOperation, CallGap, CallGraph, CallTimeline, CollectiveEntry, CollectiveWaits, MessageRole,
    UNKNOWN,
};

const WORLD: (&str, &str) = ("comm", "MPI_COMM_WORLD");

/// The labels of work before each call, with their durations.
fn work(calls: &RunCalls, timeline: usize) -> Vec<Vec<(String, u64)>> {
    let job = &calls.job.timelines[timeline];
    let text = |label: u32| match &calls.labels[label as usize] {
        CallLabel::Range(name) | CallLabel::Function(name) => name.clone(),
        CallLabel::Between { before, after } => {
            format!("{}..{}", before.as_deref().unwrap_or(""), after.as_deref().unwrap_or(""))
        }
        CallLabel::GpuWork(name) => format!("GPU {name}"),
        CallLabel::StreamIdle => "idle".to_owned(),
        CallLabel::Other => "other".to_owned(),
    };
    let before =
        |call| job.work_before(call).iter().map(|segment| (text(segment.label), segment.ns)).collect();
    (0..=job.calls.len()).map(before).collect()
}

/// Calls and work fill the time of each thread.
fn assert_fills(timeline: &CallTimeline) {
    let calls: u64 = timeline.calls.iter().map(|call| call.duration_ns).sum();
    let work: u64 = timeline.work.iter().map(|segment| segment.ns).sum();
    assert_eq!(calls + work, timeline.end_ns.abs_diff(timeline.start_ns));
}

#[test]
fn a_message_and_a_collective_of_two_ranks_match() {
    let mut run = SmallRun::new();
    for rank in 0..2 {
        let thread = run.rank(rank, 2);
        let peer = (1 - rank).to_string();
        let seq = |seq: &'static str| ("seq", seq);
        run.call(thread, (0, 10), "MPI_Init", &[]);
        run.range(thread, (20, 50), "work");
        let message = [WORLD, ("peer", peer.as_str()), ("tag", "3"), ("bytes", "80"), seq("1")];
        match rank {
            0 => run.call(thread, (40, 45), "MPI_Send", &message),
            _ => run.call(thread, (30, 55), "MPI_Recv", &message),
        };
        run.call(thread, (60, 70), "MPI_Bcast", &[WORLD, ("root", "1"), ("bytes", "8"), seq("1")]);
        run.call(thread, (90, 100), "MPI_Finalize", &[]);
    }
    let calls = run.read(&ReadOptions::default());
    // Each segment of work has an amount of 4 bytes beside the calls.
    let segments: usize = calls.job.timelines.iter().map(|timeline| timeline.work.len()).sum();
    let needed = calls.job.analysis_bytes() + 4 * segments as u64;
    let memory = |limit: u64| AnalysisMemory { limit, other: 1000 };
    assert!(calls.check_memory(memory(needed + 1000), 0).is_ok());
    let refused = calls.check_memory(memory(needed + 999), 0).unwrap_err();
    assert_eq!(refused.exit(), Exit::Usage, "{refused}");
    let with_memory = |limit: u64| {
        let memory = Some(memory(limit));
        RunCalls::read(&run.open(), &ReadOptions { memory, ..ReadOptions::default() })
    };
    assert_eq!(with_memory(needed + 1000).unwrap().job, calls.job);
    assert!(with_memory(0).unwrap_err().to_string().contains("; give it about --memory 1MiB, or"));
    let endless = calls.check_memory(AnalysisMemory { limit: 0, other: u64::MAX }, 0).unwrap_err();
    assert!(endless.to_string().contains("TiB"), "{endless}");
    assert_eq!(calls.unavailable, [MissingCalls::NoSteps]);
    assert_eq!(calls.communicators, ["MPI_COMM_WORLD"]);
    assert_eq!(calls.job.communicators[0].groups, [[0, 1]]);
    let sender = &calls.job.timelines[0];
    calls.job.timelines.iter().for_each(assert_fills);
    assert_eq!((sender.error_bound_ns, sender.lacks_calls, sender.node), (Some(7), false, 0));
    let end = sender.message_ends[0];
    assert_eq!((end.call, end.peer, end.tag, end.bytes, end.role), (1, 1, 3, 80, MessageRole::Send));
    let entries: Vec<_> =
        sender.entries.iter().map(|entry| (entry.call, entry.number, entry.waits)).collect();
    assert_eq!(entries[0], (0, CollectiveEntry::INIT_NUMBER, CollectiveWaits::ForAll));
    assert_eq!(entries[1], (2, 0, CollectiveWaits::ForRoot));
    let between = |before: &str, after: &str, ns| (format!("{before}..{after}"), ns);
    let expected = [
        vec![],
        vec![between("MPI_Init", "MPI_Send", 10), ("work".to_owned(), 20)],
        vec![("work".to_owned(), 5), between("MPI_Send", "MPI_Bcast", 10)],
        vec![between("MPI_Bcast", "MPI_Finalize", 20)],
        vec![],
    ];
    assert_eq!(work(&calls, 0), expected);
    assert_eq!(calls.region_ids[0], [1, 3, 4, 5]);
    let graph = CallGraph::new(&calls.job).unwrap();
    assert_eq!((graph.message_counts().matched, graph.instance_counts().matched), (1, 3));
}

#[test]
fn completions_give_wildcards_their_source() {
    let mut run = SmallRun::new();
    let thread = run.rank(0, 2);
    let receive = run.call(thread, (0, 1), "MPI_Irecv", &[WORLD, ("bytes", "80"), ("seq", "1")]);
    let unseen = run.call(thread, (2, 3), "MPI_Irecv", &[WORLD, ("bytes", "80"), ("seq", "2")]);
    let reduce = run.call(thread, (4, 5), "MPI_Iallreduce", &[WORLD, ("seq", "1")]);
    let wait = run.call(thread, (6, 9), "MPI_Waitall", &[]);
    run.sample(thread, "MPI request", (receive, wait), &[("peer", "1"), ("tag", "5"), ("bytes", "8")]);
    run.sample(thread, "MPI request", (reduce, wait), &[]);
    run.sample(thread, "MPI request", (999, wait), &[]);
    let calls = run.read(&ReadOptions::default());
    assert!(unseen > receive);
    let timeline = &calls.job.timelines[0];
    let ends: Vec<_> = timeline.message_ends.iter().map(|end| (end.peer, end.tag, end.is_blocking)).collect();
    assert_eq!(ends, [(1, 5, false), (ANY, ANY, false)]);
    let completions: Vec<_> = timeline.completions.iter().map(|done| (done.call, done.operation)).collect();
    assert_eq!(completions, [(3, BegunOperation::Message(0)), (3, BegunOperation::Collective(0))]);
    let unknown = MissingCalls::UnknownCompletions { ranks: vec![0], calls: 1 };
    let members = MissingCalls::UnknownMembers(vec!["MPI_COMM_WORLD".to_owned()]);
    assert_eq!(calls.unavailable, [members, unknown, MissingCalls::NoSteps]);
}

#[test]
fn polls_that_follow_one_another_are_one_call() {
    let mut run = SmallRun::new();
    let thread = run.rank(0, 1);
    let mut last = 0;
    // Two rounds of polls; the third poll of the first round succeeds.
    for start in [0, 1_000, 2_000, 3_000, 4_000, 50_000] {
        let poll = run.call(thread, (start, start + 100), "MPI_Test", &[]);
        last = if start == 2_000 { poll } else { last };
    }
    run.sample(thread, "MPI request", (77, last), &[]);
    run.call(thread, (70_000, 70_100), "MPI_Iprobe", &[WORLD, ("peer", "0"), ("tag", "1")]);
    run.call(thread, (70_200, 70_300), "MPI_Iprobe", &[WORLD, ("peer", "0"), ("tag", "1")]);
    run.call(thread, (70_400, 70_500), "MPI_Recv", &[WORLD, ("peer", "0"), ("tag", "1"), ("seq", "1")]);
    let calls = run.read(&ReadOptions::default());
    let timeline = &calls.job.timelines[0];
    let spans: Vec<_> = timeline.calls.iter().map(|call| (call.enter_ns, call.exit_ns())).collect();
    assert_eq!(spans, [(0, 2_100), (3_000, 4_100), (50_000, 50_100), (70_000, 70_300), (70_400, 70_500)]);
    assert_eq!(calls.region_ids[0], [3, 5, 6, 8, 9]);
    assert_fills(timeline);
    let ends: Vec<_> = timeline.message_ends.iter().map(|end| (end.call, end.role)).collect();
    assert_eq!(ends, [(3, MessageRole::Probe), (4, MessageRole::Receive)]);
}

#[test]
fn of_calls_inside_of_one_another_the_outermost_counts() {
    let mut run = SmallRun::new();
    let thread = run.rank(0, 1);
    // A profiler's region around ours, which alone has the values.
    run.call(thread, (0, 100), "MPI_Allreduce", &[]);
    run.call(thread, (10, 90), "MPI_Allreduce", &[WORLD, ("seq", "1")]);
    run.call(thread, (20, 30), "MPI_Barrier", &[]);
    // Rounding, then a real overlap.
    run.call(thread, (99, 200), "MPI_Barrier", &[WORLD, ("seq", "2")]);
    run.call(thread, (300, 6_000), "MPI_Barrier", &[WORLD, ("seq", "3")]);
    run.call(thread, (4_000, 7_000), "MPI_Barrier", &[WORLD, ("seq", "4")]);
    run.range(thread, (7_000, 7_500), "MPI_Send");
    let calls = run.read(&ReadOptions::default());
    let timeline = &calls.job.timelines[0];
    let spans: Vec<_> = timeline.calls.iter().map(|call| (call.enter_ns, call.exit_ns())).collect();
    assert_eq!(spans, [(0, 100), (100, 200), (300, 6_000), (6_000, 7_000)]);
    assert_eq!(timeline.entries.iter().map(|entry| entry.number).collect::<Vec<_>>(), [0, 1, 2, 3]);
    assert_eq!(work(&calls, 0)[4], [("MPI_Send".to_owned(), 500)]);
    assert_fills(timeline);
    let overlapping = MissingCalls::OverlappingCalls { ranks: vec![0], calls: 1 };
    assert_eq!(calls.unavailable, [overlapping, MissingCalls::NoSteps]);
}

#[test]
fn communicators_have_the_members_that_the_ranks_recorded() {
    let mut run = SmallRun::new();
    for rank in 0..4u32 {
        let thread = run.rank(rank, 4);
        let name = format!("MPI_COMM_WORLD/1@{}", rank % 2);
        let place = (rank / 2).to_string();
        let split = run.call(thread, (0, 1), "MPI_Comm_split", &[WORLD, ("seq", "1")]);
        run.call(thread, (2, 3), "MPI_Barrier", &[("comm", "MPI_COMM_SELF"), ("seq", "1")]);
        run.call(thread, (4, 5), "MPI_Barrier", &[("comm", "comm-1"), ("seq", "1")]);
        let made = [("comm", name.as_str()), ("size", "2"), ("rank", place.as_str())];
        run.sample(thread, "communicator", (split, 0), &made);
        // A size of another process's communicator that cannot be.
        let absurd = [("comm", "absurd"), ("size", "4000000000"), ("rank", "0")];
        run.sample(thread, "communicator", (split, 0), &absurd[..if rank == 0 { 3 } else { 1 }]);
    }
    let calls = run.read(&ReadOptions::default());
    let members = |name: &str| {
        let place = calls.communicators.iter().position(|known| known == name).unwrap();
        calls.job.communicators[place].groups.clone()
    };
    assert_eq!(members("MPI_COMM_WORLD/1@1"), [[1, 3]]);
    assert_eq!(members("MPI_COMM_SELF of rank 2"), [[2]]);
    assert_eq!(members("absurd"), [[0u32; 0]; 0]);
    let unknown = ["absurd", "comm-1 of rank 0", "comm-1 of rank 1", "comm-1 of rank 2", "comm-1 of rank 3"];
    let unknown = MissingCalls::UnknownMembers(unknown.map(str::to_owned).to_vec());
    assert!(calls.unavailable.contains(&unknown), "{:?}", calls.unavailable);
}

#[test]
fn dropped_calls_and_losses_make_processes_lack_calls() {
    let mut run = SmallRun::new();
    for (rank, seqs) in [(0, ["1", "2"]), (1, ["1", "3"]), (2, ["1", "2"])] {
        let thread = run.rank(rank, 3);
        run.call(thread, (0, 1), "MPI_Barrier", &[WORLD, ("seq", seqs[0])]);
        run.call(thread, (2, 3), "MPI_Barrier", &[WORLD, ("seq", seqs[1])]);
    }
    run.metadata("rpd.unfinished_ranks", "[2]");
    run.metadata("rpd.losses", r#"[{"table":"mpi_call","cause":"ring_full","rows":1}]"#);
    let calls = run.read(&ReadOptions::default());
    let lacks: Vec<bool> = calls.job.timelines.iter().map(|timeline| timeline.lacks_calls).collect();
    assert_eq!(lacks, [false, true, true]);
    let expected = [
        MissingCalls::UnfinishedRanks(vec![2]),
        MissingCalls::LostRows { table: "mpi_call".to_owned(), rows: Some(1), is_of_rings: true },
        MissingCalls::DroppedCalls { ranks: vec![1], calls: 1 },
        MissingCalls::NoSteps,
    ];
    assert_eq!(calls.unavailable, expected);
}

#[test]
fn missing_numbers_show_where_messages_are_missing() {
    let read = |losses: &str| {
        let mut run = SmallRun::new();
        let thread = run.rank(0, 2);
        for (place, seq) in [(0, "1"), (1, "2"), (2, "5"), (4, "7")] {
            let values = [WORLD, ("peer", "1"), ("tag", "1"), ("bytes", "8"), ("seq", seq)];
            run.call(thread, (10 * place, 10 * place + 5), "MPI_Send", &values);
            run.call(thread, (10 * place + 6, 10 * place + 7), "MPI_Waitall", &[]);
        }
        run.metadata("rpd.losses", losses);
        let mut calls = run.read(&ReadOptions::default());
        (calls.job.timelines[0].lacks_calls, calls.job.timelines.remove(0).gaps)
    };
    let gap = |from, to, missing| CallGap { communicator: 0, from, to, missing };
    let seen = vec![gap(3, 4, 2), gap(5, 6, 1)];
    assert_eq!(read(r#"[{"table":"mpi_call","rows":3}]"#), (true, Some(seen.clone())));
    // Calls without numbers were lost, perhaps at the end.
    let with_last = [seen, vec![gap(7, 8, UNKNOWN)]].concat();
    assert_eq!(read(r#"[{"table":"mpi_call","rows":4}]"#), (true, Some(with_last)));
}

#[test]
fn the_metadata_of_the_merge_give_error_bounds_and_members() {
    let mut run = SmallRun::new();
    let comm = ("comm", "MPI_COMM_WORLD/1@0");
    for rank in 0..2 {
        let thread = run.rank(rank, 2);
        run.call(thread, (0, 100), "MPI_Barrier", &[comm, ("seq", "1")]);
    }
    run.metadata("rpd.clock.domains", r#"[{"boot_id":"a","time_namespace":0,"ranks":[1]}]"#);
    let bounds =
        r#"[{"boot_id":"a","time_namespace":0,"from_ns":0,"to_ns":100,"error_bound_ns":[5,9,null]}]"#;
    run.metadata("rpd.clock.error_bounds", bounds);
    run.metadata(
        "rpd.communicators",
        r#"[{"name":"MPI_COMM_WORLD/1@0","size":2,"ranks":[[0,2,2,-1]]},{"size":7}]"#,
    );
    let calls = run.read(&ReadOptions::default());
    let [first, second] = &calls.job.timelines[..] else { panic!("{calls:?}") };
    assert_eq!([0, 30, 80].map(|at| first.error_bound_at(at)), [Some(7); 3]);
    assert_eq!([-9, 30, 80].map(|at| second.error_bound_at(at)), [Some(5), Some(9), None]);
    let place = calls.communicators.iter().position(|name| name == comm.1).unwrap();
    assert_eq!(calls.job.communicators[place].groups, [[1, 0]]);
    assert_eq!(CallGraph::new(&calls.job).unwrap().instance_counts().matched, 1);
}

#[test]
fn both_halves_of_a_sendrecv_are_read_if_they_are_recorded() {
    for is_recorded in [false, true] {
        let mut run = SmallRun::new();
        let thread = run.rank(0, 1);
        let all = [
            WORLD,
            ("peer", "0"),
            ("tag", "1"),
            ("bytes", "8"),
            ("seq", "1"),
            ("source", "0"),
            ("recvtag", "1"),
            ("recvbytes", "16"),
        ];
        run.call(thread, (0, 1), "MPI_Sendrecv", if is_recorded { &all } else { &all[..5] });
        let calls = run.read(&ReadOptions::default());
        let timeline = &calls.job.timelines[0];
        assert_eq!(timeline.message_ends.len(), 1 + usize::from(is_recorded));
        assert_eq!(timeline.lacks_calls, !is_recorded);
        let graph = CallGraph::new(&calls.job).unwrap();
        assert_eq!(graph.message_counts().matched, u64::from(is_recorded));
    }
}

#[test]
fn persistent_operations_take_their_messages_from_the_creation_of_the_request() {
    let mut run = SmallRun::new();
    let thread = run.rank(0, 1);
    let values = |seq: &'static str| [WORLD, ("peer", "0"), ("tag", "2"), ("bytes", "8"), ("seq", seq)];
    let send = run.call(thread, (0, 1), "MPI_Send_init", &values("1"));
    let receive = run.call(thread, (2, 3), "MPI_Recv_init", &values("2"));
    let start = run.call(thread, (4, 5), "MPI_Startall", &[]);
    let begin = run.call(thread, (6, 7), "MPI_Isend", &[WORLD, ("peer", "-1"), ("tag", "0"), ("seq", "3")]);
    let wait = run.call(thread, (8, 9), "MPI_Waitall", &[]);
    let unknown = run.call(thread, (10, 11), "MPI_Start", &[]);
    run.sample(thread, "MPI request", (begin, wait), &[]);
    for creation in [send, receive] {
        run.sample(thread, "MPI request", (start, wait), &[("init_stack_id", &creation.to_string())]);
    }
    assert!(unknown > 0);
    let calls = run.read(&ReadOptions::default());
    let timeline = &calls.job.timelines[0];
    let ends: Vec<_> = timeline.message_ends.iter().map(|end| (end.call, end.peer, end.role)).collect();
    assert_eq!(ends, [(2, 0, MessageRole::Send), (2, 0, MessageRole::Receive), (3, -1, MessageRole::Send)]);
    let completed: Vec<_> = timeline.completions.iter().map(|done| (done.call, done.operation)).collect();
    assert_eq!(completed, [2, 0, 1].map(|end| (4, BegunOperation::Message(end))));
    let persistent = MissingCalls::PersistentOperations { ranks: vec![0], calls: 1 };
    assert_eq!(calls.unavailable, [persistent, MissingCalls::NoSteps]);
    assert!(timeline.lacks_calls);
}

#[test]
fn matched_probes_take_the_messages_of_their_channels() {
    let mut run = SmallRun::new();
    let thread = run.rank(0, 1);
    let values = |seq: &'static str| [WORLD, ("peer", "0"), ("tag", "2"), ("bytes", "8"), ("seq", seq)];
    run.call(thread, (0, 1), "MPI_Send", &values("1"));
    run.call(thread, (2, 3), "MPI_Improbe", &values("2"));
    let probe = run.call(thread, (4, 5), "MPI_Improbe", &values("3"));
    // Later than a poll: only the stack id shows that the probe found a message.
    run.call(thread, (50_000, 50_001), "MPI_Barrier", &[WORLD, ("seq", "1")]);
    run.call(thread, (60_000, 60_001), "MPI_Mrecv", &[WORLD, ("probe_stack_id", &probe.to_string())]);
    run.call(thread, (70_000, 70_001), "MPI_Mrecv", &[("bytes", "8")]);
    let calls = run.read(&ReadOptions::default());
    let timeline = &calls.job.timelines[0];
    assert_eq!((timeline.calls.len(), calls.region_ids[0][1]), (5, probe));
    let ends: Vec<_> = timeline.message_ends.iter().map(|end| (end.call, end.role)).collect();
    assert_eq!(ends, [(0, MessageRole::Send), (1, MessageRole::Receive)]);
    let probes = MissingCalls::MatchedProbes { ranks: vec![0], calls: 1 };
    assert_eq!(calls.unavailable, [probes, MissingCalls::NoSteps]);
}

#[test]
fn intercommunicators_have_two_groups() {
    let mut run = SmallRun::new();
    for rank in 0..3u32 {
        let thread = run.rank(rank, 3);
        run.call(thread, (0, 1), "MPI_Barrier", &[("comm", "inter/0-1.7.1"), ("seq", "1")]);
        let (side, size, place) =
            if rank == 0 { ("0", "1", "0") } else { ("1", "2", ["0", "1"][rank as usize - 1]) };
        let made = [("comm", "inter/0-1.7.1"), ("size", size), ("rank", place), ("side", side)];
        run.sample(thread, "communicator", (0, 0), &made);
        // A communicator that is created from it without sides has one group.
        let merge =
            run.call(thread, (2, 3), "MPI_Intercomm_merge", &[("comm", "inter/0-1.7.1"), ("seq", "2")]);
        let rank = rank.to_string();
        let merged = [("comm", "inter/0-1.7.1/1@2"), ("size", "3"), ("rank", &rank)];
        run.sample(thread, "communicator", (merge, 0), &merged);
        let dup = run.call(thread, (4, 5), "MPI_Comm_dup", &[merged[0], ("seq", "1")]);
        let again = [("comm", "inter/0-1.7.1/1@2/1@3"), ("size", "3"), ("rank", &rank)];
        run.sample(thread, "communicator", (dup, 0), &again);
        run.call(thread, (6, 7), "MPI_Barrier", &[again[0], ("seq", "1")]);
    }
    let calls = run.read(&ReadOptions::default());
    let groups_of = |name: &str| {
        let number = calls.communicators.iter().position(|known| known == name).unwrap();
        calls.job.communicators[number].groups.clone()
    };
    assert_eq!(groups_of("inter/0-1.7.1"), [vec![0], vec![1, 2]]);
    assert_eq!(groups_of("inter/0-1.7.1/1@2"), [vec![0, 1, 2]]);
    assert_eq!(groups_of("inter/0-1.7.1/1@2/1@3"), [vec![0, 1, 2]]);
    assert_eq!(calls.unavailable, [MissingCalls::NoSteps]);
}

/// A run of two ranks with 12 steps of 1 ms, each with two collectives.
fn stepped(with_ranges: bool) -> SmallRun {
    let mut run = SmallRun::new();
    for rank in 0..2 {
        let thread = run.rank(rank, 2);
        run.call(thread, (0, 100), "MPI_Init", &[]);
        for step in 0..12 {
            let start = 1_000_000 * (step + 1);
            if with_ranges {
                run.range(thread, (start, start + 1_000_000), &format!("step {step}"));
                run.range(thread, (start, start + 900_000), "inner");
            }
            let seq = |n: i64| (step * 2 + n).to_string();
            let (first, second) = (seq(1), seq(2));
            run.call(
                thread,
                (start + 500_000, start + 600_000),
                "MPI_Bcast",
                &[WORLD, ("root", "0"), ("seq", &first)],
            );
            run.call(thread, (start + 610_000, start + 700_000), "MPI_Allreduce", &[WORLD, ("seq", &second)]);
        }
    }
    run
}

#[test]
fn steps_are_found_by_ranges_and_by_repetition() {
    let mut run = stepped(true);
    let calls = run.read(&ReadOptions::default());
    let steps = calls.steps.clone().unwrap();
    assert_eq!((steps.name.as_str(), steps.count, steps.kind), ("step", 12, StepKind::Marker));
    let strings = run.open().strings;
    let names = steps.range_names.iter().map(|place| String::from_utf8_lossy(strings.at(*place as usize)));
    assert_eq!(names.collect::<Vec<_>>(), (0..12).map(|step| format!("step {step}")).collect::<Vec<_>>());
    let expected: Vec<u32> = (0..=12).map(|step| 1 + step * 2).collect();
    assert_eq!(calls.job.timelines[1].first_call_of_step, expected);
    // Ranges that end between two calls: what follows them belongs to the range around them.
    let segment = |name: &str, ns| (name.to_owned(), ns);
    let between = segment("MPI_Init..MPI_Bcast", 999_900);
    assert_eq!(work(&calls, 0)[1], [between, segment("inner", 500_000)]);
    assert_eq!(work(&calls, 0)[3], [segment("inner", 700_000), segment("step 0", 100_000)]);

    let calls = stepped(true).read(&ReadOptions { step: Some("inner".to_owned()), ..ReadOptions::default() });
    let steps = calls.steps.unwrap();
    assert_eq!((steps.name.as_str(), steps.range_names.as_slice()), ("inner", &[][..]), "one name for all");
    let calls =
        stepped(true).read(&ReadOptions { step: Some("absent".to_owned()), ..ReadOptions::default() });
    assert_eq!((calls.steps, calls.unavailable), (None, vec![MissingCalls::NoSteps]));

    let calls = stepped(false).read(&ReadOptions::default());
    let steps = calls.steps.clone().unwrap();
    assert_eq!((steps.name.as_str(), steps.count, steps.kind), ("MPI_Bcast", 11, StepKind::Repetition));
    let expected: Vec<u32> = (0..=11).map(|step| 1 + step * 2).collect();
    assert_eq!(calls.job.timelines[0].first_call_of_step, expected);
}

#[test]
fn calls_do_not_depend_on_the_number_of_threads() {
    let mut run = stepped(true);
    run.finish();
    let database = run.open();
    let read = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| RunCalls::read(&database, &ReadOptions::default()).unwrap())
    };
    let alone = read(1);
    assert_eq!(alone.job.timelines.len(), 2);
    assert!((2..6).all(|threads| read(threads) == alone));
}

#[test]
fn a_window_limits_calls_and_work() {
    let window_ns = Some((3_000_000, 5_550_000));
    let calls = stepped(true).read(&ReadOptions { window_ns, ..ReadOptions::default() });
    let timeline = &calls.job.timelines[0];
    // The call from 5.5 to 5.6 ms is no work, and how long it waits in the window is not known.
    assert_eq!((timeline.start_ns, timeline.end_ns, timeline.calls.len()), (3_000_000, 5_500_000, 4));
    let cut = MissingCalls::CutCalls { ranks: vec![0, 1], calls: 2, ns: 100_000 };
    assert!(calls.unavailable.contains(&cut), "{:?}", calls.unavailable);
    assert_fills(timeline);
    // Each step takes 1 ms; those of 3 and 4 ms are whole.
    assert_eq!((calls.job.steps, &timeline.first_call_of_step[..]), (2, &[0, 2, 4][..]));
    let cut = Some((3_500_000, 4_900_000));
    let calls = stepped(true).read(&ReadOptions { window_ns: cut, ..ReadOptions::default() });
    assert_eq!((calls.job.steps, calls.unavailable.last()), (0, Some(&MissingCalls::NoSteps)));
    let window_ns = Some((5_550_000, 3_000_000));
    let calls = stepped(true).read(&ReadOptions { window_ns, ..ReadOptions::default() });
    assert_eq!(calls.job.timelines.len(), 0);
}

#[test]
fn threads_have_timelines_and_a_run_without_calls_has_none() {
    let mut run = SmallRun::new();
    let thread = run.rank(0, 1);
    let begin = run.call(thread, (0, 1), "MPI_Isend", &[WORLD, ("peer", "0"), ("tag", "0"), ("seq", "1")]);
    let other = run.thread();
    run.call(other, (0, 1), "MPI_Recv", &[WORLD, ("peer", "0"), ("tag", "0"), ("seq", "2")]);
    let wait = run.call(other, (2, 3), "MPI_Wait", &[]);
    run.sample(other, "MPI request", (begin, wait), &[]);
    let calls = run.read(&ReadOptions::default());
    assert_eq!(calls.job.timelines.len(), 2);
    assert_eq!(calls.job.timelines[1].completions[0].begun_on, 0);
    assert!(calls.unavailable.contains(&MissingCalls::SeveralThreads(vec![0])));

    let mut run = SmallRun::new();
    let thread = run.rank(0, 1);
    run.range(thread, (0, 10), "work");
    let calls = run.read(&ReadOptions::default());
    assert_eq!(calls.job.timelines.len(), 0);
    assert_eq!(calls.unavailable, [MissingCalls::NoMpiCalls, MissingCalls::NoSteps]);
}
