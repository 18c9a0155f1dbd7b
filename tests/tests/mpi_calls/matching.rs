//! What is needed to match messages exactly: partners that only a status, another call or the communicator
//! tells.

use super::arrows::check_arrows;
use super::{Family, Mpich, OpenMpi, RANKS, RankTrace, Row, Run, Trace, number, runs, text};
use rpd_tests::harness::{Database, binary, rpd_merge, skip};
use serde_json::{Value as Json, json};
use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

/// The facts of one kind that a rank wrote.
pub(super) fn facts(run: &Run, rank: usize, kind: &str) -> Vec<[i64; 4]> {
    let text = fs::read_to_string(run.path(&format!("counts.{rank}"))).unwrap();
    let mut facts = Vec::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        if words[0] == kind {
            let numbers: Vec<i64> = words[1..].iter().map(|word| word.parse().unwrap()).collect();
            facts.push(numbers.try_into().unwrap());
        }
    }
    facts
}

/// The calls of a function in the order in which they began.
fn calls<'a>(recorded: &'a RankTrace, name: &str) -> Vec<&'a Row> {
    let mut calls: Vec<_> = recorded.calls.iter().filter(|call| text(call, "name_id") == name).collect();
    calls.sort_by_key(|call| number(call, "start"));
    calls
}

/// The completed requests of a call.
fn requests_of<'a>(recorded: &'a RankTrace, call: &Row) -> Vec<&'a Row> {
    let stack = text(call, "stack_id");
    recorded.requests.iter().filter(|request| text(request, "stack_id") == stack).collect()
}

fn collected(family: Family) -> (Run, Trace) {
    let run = Run::new();
    let program = run.compile(&family.compiler("cc"), &["-O1"], "mpi_matching.c");
    let launcher = family.mpirun().limit(Duration::from_secs(60));
    let trace = run.collect(launcher, &[&program]);
    (run, trace)
}

/// Receives from any source have the source and tag that the program found in their messages.
fn check_wildcards(run: &Run, trace: &Trace) {
    for (rank, recorded) in trace.ranks.iter().enumerate() {
        let received = facts(run, rank, "received");
        assert_eq!(received.len(), if rank == 0 { 15 } else { 0 });
        let blocking = calls(recorded, "MPI_Recv");
        let blocking: Vec<_> =
            blocking.iter().map(|call| [number(call, "peer"), number(call, "tag")]).collect();
        let expected: Vec<_> = received.iter().map(|[source, tag, ..]| [Some(*source), Some(*tag)]).collect();
        assert_eq!(blocking, expected, "rank {rank}");

        let mut requested = facts(run, rank, "requested").into_iter();
        for call in calls(recorded, "MPI_Irecv") {
            let [request] = requests_of(recorded, call)[..] else { panic!("rank {rank}: {call:?}") };
            let found = [number(request, "peer"), number(request, "tag"), number(request, "bytes")];
            match (number(call, "peer"), number(call, "tag")) {
                (_, Some(300)) => assert_eq!(found, [None; 3], "rank {rank}: too many statuses"),
                (None, Some(_)) => {
                    let [source, tag, ..] = requested.next().unwrap();
                    assert_eq!(found, [source, tag, 8].map(Some), "rank {rank}: {request:?}");
                }
                // Its status is of interest while a receive from any source is pending.
                (peer, tag) => {
                    assert!(found == [peer, tag, Some(8)] || found == [None; 3], "rank {rank}: {request:?}")
                }
            }
        }
        assert_eq!(requested.next(), None, "rank {rank}");
        let sends = recorded.requests.iter().filter(|request| text(request, "name_id") == "MPI_Isend");
        assert_eq!(sends.filter(|request| number(request, "peer").is_some()).count(), 0, "rank {rank}");
    }
}

/// Calls that send and receive have both halves.
fn check_exchanges(run: &Run, trace: &Trace) {
    for (rank, recorded) in trace.ranks.iter().enumerate() {
        let mut found = calls(recorded, "MPI_Sendrecv");
        found.extend(calls(recorded, "MPI_Sendrecv_replace"));
        found.sort_by_key(|call| number(call, "start"));
        let columns = ["peer", "source", "recvtag", "recvbytes"];
        let found: Vec<_> = found.iter().map(|call| columns.map(|column| number(call, column))).collect();
        let expected: Vec<_> = facts(run, rank, "exchanged").iter().map(|fact| fact.map(Some)).collect();
        assert_eq!((found.len(), found), (11, expected), "rank {rank}");
        let others = recorded.calls.iter().filter(|call| !text(call, "name_id").starts_with("MPI_Sendrecv"));
        assert_eq!(others.filter(|call| number(call, "recvbytes").is_some()).count(), 0, "rank {rank}");
    }
}

/// Every completed start of a persistent request refers to the call that created it.
fn check_persistent(run: &Run, trace: &Trace) {
    for (rank, recorded) in trace.ranks.iter().enumerate() {
        let mut starts: BTreeMap<i64, i64> = BTreeMap::new();
        for request in &recorded.requests {
            let Some(stack) = number(request, "init_stack_id") else {
                assert!(!text(request, "name_id").starts_with("MPI_Start"), "rank {rank}: {request:?}");
                continue;
            };
            let is_creation = |call: &&Row| number(call, "stack_id") == Some(stack);
            let creation = recorded.calls.iter().find(is_creation).unwrap();
            let (name, tag) = (text(creation, "name_id"), number(creation, "tag").unwrap());
            assert!(name.ends_with("_init") && text(creation, "comm_id") == "MPI_COMM_WORLD", "{creation:?}");
            *starts.entry(tag).or_default() += 1;
            // From any source.
            let is_any = name == "MPI_Recv_init" && tag == 701;
            let left = (rank + RANKS - 1) % RANKS;
            assert_eq!(
                number(request, "peer").filter(|_| is_any),
                is_any.then_some(left as i64),
                "{request:?}"
            );
        }
        let expected: Vec<_> = facts(run, rank, "prepared").iter().map(|fact| (fact[0], fact[1])).collect();
        assert_eq!((starts.len(), Vec::from_iter(starts)), (2, expected), "rank {rank}");
    }
}

/// Receives of messages of matched probes have the communicator, source and tag of these.
fn check_probes(run: &Run, trace: &Trace) {
    for (rank, recorded) in trace.ranks.iter().enumerate() {
        let mut found = calls(recorded, "MPI_Mrecv");
        found.extend(calls(recorded, "MPI_Imrecv"));
        found.sort_by_key(|call| number(call, "start"));
        let values: Vec<_> = found.iter().map(|call| [number(call, "peer"), number(call, "tag")]).collect();
        let expected: Vec<_> =
            facts(run, rank, "probed").iter().map(|fact| [Some(fact[0]), Some(fact[1])]).collect();
        assert_eq!((values.len(), values), (4, expected), "rank {rank}");
        for call in found {
            let is_probe = |probe: &&Row| number(probe, "stack_id") == number(call, "probe_stack_id");
            let probe = recorded.calls.iter().find(is_probe).unwrap_or_else(|| panic!("{call:?}"));
            assert!(["MPI_Mprobe", "MPI_Improbe"].contains(&text(probe, "name_id")), "{probe:?}");
            for column in ["comm_id", "peer", "tag"] {
                assert_eq!(text(probe, column), text(call, column), "rank {rank}: {call:?}");
            }
        }
    }
}

/// Intercommunicators have a side, and communicators with a topology the neighbours.
fn check_communicators(run: &Run, trace: &Trace) {
    for (rank, recorded) in trace.ranks.iter().enumerate() {
        let mut rows: Vec<_> = recorded.communicators.iter().collect();
        rows.sort_by_key(|row| number(row, "timestamp"));
        let sides: Vec<_> = rows
            .iter()
            .filter(|row| row["side"].is_some())
            .map(|row| ["side", "size"].map(|column| number(row, column)))
            .collect();
        let expected: Vec<_> =
            facts(run, rank, "side").iter().map(|fact| [Some(fact[0]), Some(fact[1])]).collect();
        assert_eq!((sides.len(), sides), (2, expected), "rank {rank}");
        let near: Vec<_> = rows
            .iter()
            .filter(|row| row["sources"].is_some() || row["destinations"].is_some())
            .map(|row| ["sources", "destinations"].map(|column| text(row, column).to_owned()))
            .collect();
        let expected: Vec<_> = facts(run, rank, "near")
            .iter()
            .map(|[a, b, c, d]| [format!("[{a},{b}]"), format!("[{c},{d}]")])
            .collect();
        assert_eq!((near.len(), near), (4, expected), "rank {rank}");
    }
}

/// Number of args of this name in a merged database with the stack id of a call of a function as value.
fn linked(database: &Database, arg: &str, function: &str) -> i64 {
    database.number(&format!(
        "SELECT count(*) FROM rocpd_arg AS a JOIN rocpd_event AS e ON e.stack_id = CAST(a.value AS INTEGER) \
         JOIN rocpd_region AS r ON r.event_id = e.id JOIN rocpd_string AS s ON s.id = r.name_id \
         WHERE a.name = '{arg}' AND s.string LIKE '{function}'"
    ))
}

/// The merged database has all of this as args.
fn check_database(run: &Run) {
    let output = run.path("run.db");
    let merged = rpd_merge().arg("-o").arg(&output).arg(run.path("runs/run")).run().success();
    let database = Database::open(&output);
    let ranks = RANKS as i64;
    assert_eq!(linked(&database, "init_stack_id", "MPI_%_init"), 20 * ranks, "{merged}");
    assert_eq!(linked(&database, "probe_stack_id", "MPI_%probe"), 4 * ranks, "{merged}");
    for (arg, rows) in [
        ("source", 11),
        ("recvtag", 11),
        ("recvbytes", 11),
        ("init_stack_id", 20),
        ("probe_stack_id", 4),
        ("side", 2),
        ("sources", 4),
        ("destinations", 4),
    ] {
        let found = database.number(&format!("SELECT count(*) FROM rocpd_arg WHERE name = '{arg}'"));
        assert_eq!(found, rows * ranks, "{arg}: {merged}");
    }
    check_metadata(&database);
}

/// The metadata have the process of each rank of a communicator, and the bounds of the clocks.
fn check_metadata(database: &Database) {
    let metadata = database.metadata();
    let value = |tag: &str| serde_json::from_str::<Json>(&metadata[tag][0]).unwrap();
    let communicators = value("rpd.communicators");
    let world = communicators.as_array().unwrap().iter().find(|one| one["name"] == "MPI_COMM_WORLD").unwrap();
    assert_eq!((&world["size"], world.get("side")), (&json!(RANKS), None));
    let [run] = &world["ranks"].as_array().unwrap()[..] else { panic!("{world}") };
    let [first, count, process, stride] = [0, 1, 2, 3].map(|place| run[place].as_i64().unwrap());
    assert_eq!((first, count), (0, RANKS as i64));
    for rank in 0..count {
        let query = format!(
            "SELECT json_extract(extdata, '$.rpd.rank') FROM rocpd_info_process WHERE id = {}",
            process + rank * stride
        );
        assert_eq!(database.number(&query), rank, "{world}");
    }
    // Both sides of an intercommunicator, one of them with one process.
    let inter = |side: u8| {
        let is_side =
            |one: &&Json| one["name"].as_str().unwrap().starts_with("inter/") && one["side"] == json!(side);
        communicators.as_array().unwrap().iter().find(is_side).unwrap()
    };
    assert_eq!((&inter(0)["size"], &inter(1)["size"]), (&json!(3), &json!(1)));
    assert_eq!(inter(1)["ranks"], json!([[0, 1, process + stride, 0]]));
    assert_eq!(inter(0)["ranks"], json!([[0, 2, process, 2 * stride], [2, 1, process + 3 * stride, 0]]));
    // All ranks read one clock.
    let bounds = value("rpd.clock.error_bounds");
    let [clock] = &bounds.as_array().unwrap()[..] else { panic!("{bounds}") };
    assert_eq!((&clock["error_bound_ns"], &clock["certain_bound_ns"]), (&json!([0]), &json!([0])));
}

fn check_matching(family: Family) {
    if let Some(why) = family.missing() {
        return skip(&format!("partners of messages with {family:?}"), why);
    }
    let (run, trace) = collected(family);
    check_wildcards(&run, &trace);
    check_exchanges(&run, &trace);
    check_persistent(&run, &trace);
    check_probes(&run, &trace);
    check_communicators(&run, &trace);
    check_database(&run);
    check_arrows(&run);
}

#[test]
fn partners_of_messages_are_recorded_with_open_mpi() {
    check_matching(OpenMpi);
}

#[test]
fn partners_of_messages_are_recorded_with_mpich() {
    check_matching(Mpich);
}

/// What the program prints is the same with and without the collector.
fn check_errors(family: Family) {
    if let Some(why) = family.missing() {
        return skip(&format!("errors of receives with {family:?}"), why);
    }
    let run = Run::new();
    let program = run.compile(&family.compiler("cc"), &["-O1"], "mpi_errors.c");
    let launcher = || family.mpirun().limit(Duration::from_secs(60));
    let alone = launcher().arg(&program).run().success();
    let recorded = launcher().arg(binary("rpd-collect")).arg("-o").arg(run.path("runs"));
    let recorded = recorded.args(["--run-id", "run", "--"]).arg(&program).run().success();
    assert_eq!(alone.stdout.lines().count(), 40, "{alone}");
    assert_eq!(alone.stdout, recorded.stdout);
    // Messages that fit had their sender recorded, so statuses of ours were used.
    let trace = Trace::read(&run.path("runs/run"));
    let with_peer = |rows: &[Row]| rows.iter().filter(|row| number(row, "peer") == Some(1)).count();
    assert!(with_peer(&trace.ranks[0].requests) >= 24 && with_peer(&trace.ranks[0].calls) > 0);
}

#[test]
fn errors_of_receives_are_the_same_with_open_mpi() {
    check_errors(OpenMpi);
}

#[test]
fn errors_of_receives_are_the_same_with_mpich() {
    check_errors(Mpich);
}

/// Interface 1 is `mpif.h`, 2 `use mpi`, 3 `use mpi_f08`.
fn check_fortran(family: Family, interface: u32) {
    let what = format!("ignored statuses of Fortran, interface {interface}, with {family:?}");
    if let Some(why) = family.missing() {
        return skip(&what, why);
    }
    let compiler = family.compiler("f90");
    if !runs(&compiler, "--version") {
        return skip(&what, "there is no Fortran compiler for it: install gfortran");
    }
    let run = Run::new();
    let interface = format!("-DINTERFACE={interface}");
    let options = ["-w", "-fallow-argument-mismatch", &interface];
    let program = run.compile(&compiler, &options, "mpi_ignored.F90");
    let trace = run.collect(family.mpirun().limit(Duration::from_secs(60)), &[&program]);
    for (rank, recorded) in trace.ranks.iter().enumerate() {
        let left = ((rank + trace.ranks.len() - 1) % trace.ranks.len()) as i64;
        let received = calls(recorded, "MPI_Recv")[0];
        let found = [number(received, "peer"), number(received, "tag")];
        assert_eq!(found, [Some(left), Some(1)], "{what}, rank {rank}");
        for (call, tag) in calls(recorded, "MPI_Irecv").into_iter().zip(2..) {
            let [request] = requests_of(recorded, call)[..] else { panic!("{what}: {call:?}") };
            let found = [number(request, "peer"), number(request, "tag"), number(request, "bytes")];
            assert_eq!(found, [left, tag, 8].map(Some), "{what}, rank {rank}");
        }
        let exchange = calls(recorded, "MPI_Sendrecv")[0];
        let columns = ["tag", "bytes", "source", "recvtag", "recvbytes"];
        let found = columns.map(|column| number(exchange, column));
        assert_eq!(found, [4, 24, left, 4, 32].map(Some), "{what}, rank {rank}");
    }
}

#[test]
fn ignored_statuses_of_fortran_are_recorded_with_open_mpi() {
    (1..=3).for_each(|interface| check_fortran(OpenMpi, interface));
}

#[test]
fn ignored_statuses_of_fortran_are_recorded_with_mpich() {
    (1..=3).for_each(|interface| check_fortran(Mpich, interface));
}
