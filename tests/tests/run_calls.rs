//! The calls that rpd-calls reads from recorded jobs, against SQL over the same databases.

use rpd_calls::{CallFile, CallLabel, MissingCalls, ReadOptions, RunCalls};
use rpd_graph::{CallGraph, CallTimeline};
use rpd_run::RunDatabase;
use rpd_tests::harness::{Database, Job, binary, mpi_missing, mpirun, repository, rpd_merge, skip};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

const RANKS: usize = 4;

/// Records a C program of the workloads on four ranks and merges it.
pub(crate) fn recorded(folder: &Path, source: &str, arguments: &[&str]) -> PathBuf {
    let (program, runs, database) = (folder.join("program"), folder.join("runs"), folder.join("run.db"));
    let source = repository().join("tests/workloads").join(source);
    let _ = Job::new("mpicc").args(["-pthread", "-o"]).arg(&program).arg(source).run().success();
    let job = mpirun(RANKS).arg(binary("rpd-collect")).arg("-o").arg(&runs).args(["--run-id", "run", "--"]);
    let _ = job.arg(&program).args(arguments).run().success();
    let _ = rpd_merge().arg("-o").arg(&database).arg(runs.join("run")).run().success();
    database
}

/// Reads the calls from their rows. They must be the same in a file of calls.
fn read(database: &Path) -> RunCalls {
    let run = RunDatabase::open(database, None).unwrap();
    let calls = RunCalls::read(&run, &ReadOptions::default()).unwrap();
    let place = database.with_extension("calls");
    CallFile::write(&place, &run, 2).unwrap();
    let file = CallFile::open(&place, &run).unwrap().unwrap();
    assert_eq!(RunCalls::from_file(&run, &file).unwrap(), calls);
    std::fs::remove_file(place).unwrap();
    calls
}

fn sum(calls: &RunCalls, count: impl Fn(&CallTimeline) -> usize) -> i64 {
    calls.job.timelines.iter().map(count).sum::<usize>() as i64
}

/// Number of calls by function.
fn by_function(calls: &RunCalls) -> BTreeMap<String, i64> {
    let mut counts = BTreeMap::new();
    for call in calls.job.timelines.iter().flat_map(|timeline| &timeline.calls) {
        let CallLabel::Function(name) = &calls.labels[call.label as usize] else { panic!("{call:?}") };
        *counts.entry(name.clone()).or_insert(0) += 1;
    }
    counts
}

/// Calls and work fill the time of each thread.
fn assert_fills(calls: &RunCalls) {
    for timeline in &calls.job.timelines {
        let inside: u64 = timeline.calls.iter().map(|call| call.duration_ns).sum();
        let outside: u64 = timeline.work.iter().map(|segment| segment.ns).sum();
        assert_eq!(inside + outside, timeline.end_ns.abs_diff(timeline.start_ns));
    }
}

/// Counts rows of calls to MPI; `condition` is about the region `r` and its event `e`.
fn count_calls(database: &Database, condition: &str) -> i64 {
    database.number(&format!(
        "SELECT count(*) FROM rocpd_region r JOIN rocpd_event e ON e.id = r.event_id
            JOIN rocpd_string c ON c.id = e.category_id JOIN rocpd_string n ON n.id = r.name_id
          WHERE c.string = 'MPI_API' AND {condition}"
    ))
}

/// Condition that an event has an arg.
fn has(arg: &str) -> String {
    format!("EXISTS (SELECT 1 FROM rocpd_arg a WHERE a.event_id = e.id AND a.name = '{arg}')")
}

#[test]
fn the_calls_of_every_function_are_those_that_sql_counts() {
    if let Some(why) = mpi_missing() {
        return skip("calls of every function", why);
    }
    let folder = tempfile::tempdir().unwrap();
    let counts = folder.path().join("counts");
    let path = recorded(folder.path(), "mpi_calls.c", &[counts.to_str().unwrap()]);
    let (calls, database) = (read(&path), Database::open(&path));
    assert_fills(&calls);
    assert_eq!(calls.job.timelines.len(), RANKS);

    // Repeated polls are one call; all others are one each.
    let is_poll = |name: &str| name.starts_with("MPI_Test") || name.contains("probe");
    let mut of_sql = database.counts(
        "SELECT n.string FROM rocpd_region r JOIN rocpd_event e ON e.id = r.event_id
            JOIN rocpd_string c ON c.id = e.category_id JOIN rocpd_string n ON n.id = r.name_id
          WHERE c.string = 'MPI_API'",
    );
    let mut of_calls = by_function(&calls);
    let polls = |counts: &BTreeMap<String, i64>| counts.keys().filter(|name| is_poll(name)).count();
    assert!(polls(&of_calls) > 0 && polls(&of_calls) <= polls(&of_sql));
    of_sql.retain(|name, _| !is_poll(name));
    of_calls.retain(|name, _| !is_poll(name));
    assert_eq!(of_calls, of_sql);

    // The collectives are all numbered, the others have a peer or none.
    let collective = "(n.string NOT IN ('MPI_Comm_create_group', 'MPI_Intercomm_create', 'MPI_Comm_set_name')
        AND n.string NOT LIKE 'MPI_Win%' AND n.string NOT LIKE 'MPI_File%'
        AND n.string NOT LIKE '%ecv%' AND n.string NOT LIKE '%probe%')";
    // A receive with any tag has none.
    let condition = format!("{} AND NOT {} AND {collective}", has("seq"), has("tag"));
    let entries = format!("(({condition}) OR n.string LIKE 'MPI_Init%' OR n.string = 'MPI_Finalize')");
    let entries = count_calls(&database, &entries);
    assert_eq!(sum(&calls, |timeline| timeline.entries.len()), entries);
    let names = "('MPI_Send', 'MPI_Ssend', 'MPI_Bsend', 'MPI_Rsend', 'MPI_Isend', 'MPI_Issend', 'MPI_Ibsend',
        'MPI_Irsend', 'MPI_Recv', 'MPI_Irecv', 'MPI_Probe', 'MPI_Mprobe')";
    let sendrecv = "n.string LIKE 'MPI_Sendrecv%'";
    let halves = count_calls(&database, sendrecv)
        + count_calls(&database, &format!("{sendrecv} AND {}", has("recvbytes")));
    // Each completion of a persistent operation names the call that created its request, if that is recorded.
    let persistent = database.number("SELECT count(*) FROM rocpd_arg WHERE name = 'init_stack_id'");
    let ends = count_calls(&database, &format!("n.string IN {names}")) + halves + persistent;
    let other_probes = sum(&calls, |timeline| {
        let label = |call: u32| &calls.labels[timeline.calls[call as usize].label as usize];
        let is_other = |name: &str| name == "MPI_Iprobe" || name == "MPI_Improbe";
        let of_probes = timeline
            .message_ends
            .iter()
            .filter(|end| matches!(label(end.call), CallLabel::Function(name) if is_other(name)));
        of_probes.count()
    });
    assert_eq!(sum(&calls, |timeline| timeline.message_ends.len()), ends + other_probes);

    let requests = database.number(
        "SELECT count(*) FROM rocpd_sample s JOIN rocpd_track t ON t.id = s.track_id
            JOIN rocpd_string n ON n.id = t.name_id WHERE n.string = 'MPI request'",
    );
    let unknown = calls.unavailable.iter().map(|missing| match missing {
        MissingCalls::UnknownCompletions { calls, .. } => *calls as i64,
        MissingCalls::DroppedCalls { .. } | MissingCalls::OverlappingCalls { .. } => panic!("{missing:?}"),
        _ => 0,
    });
    let unknown: i64 = unknown.sum();
    assert_eq!(sum(&calls, |timeline| timeline.completions.len()) + unknown, requests);
    CallGraph::new(&calls.job).unwrap();
}

#[test]
fn messages_and_collectives_of_a_recorded_job_match() {
    if let Some(why) = mpi_missing() {
        return skip("messages of a recorded job", why);
    }
    let folder = tempfile::tempdir().unwrap();
    let path = recorded(folder.path(), "late.c", &["pipeline", "1"]);
    let calls = read(&path);
    assert_fills(&calls);
    let graph = CallGraph::new(&calls.job).unwrap();
    let (messages, instances) = (graph.message_counts(), graph.instance_counts());
    assert!(messages.matched > 0 && instances.matched > 0, "{messages:?} {instances:?}");
    assert_eq!(messages.matched * 2, sum(&calls, |timeline| timeline.message_ends.len()) as u64);
    assert_eq!((instances.incomplete, instances.mismatched), (0, 0));
}
