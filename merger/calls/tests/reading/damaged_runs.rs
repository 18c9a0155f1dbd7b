//! Databases that a merge never writes: errors or calls, but no panic.

use crate::small_run::SmallRun;
use rpd_calls::{ReadOptions, RunCalls};
use rpd_run::RunDatabase;
use std::fs;

/// A run with calls, messages, requests and communicators.
pub(crate) fn run() -> SmallRun {
    let mut run = SmallRun::new();
    for rank in 0..2 {
        let thread = run.rank(rank, 2);
        let peer = (1 - rank).to_string();
        run.call(thread, (0, 10), "MPI_Init", &[]);
        for step in 0..40 {
            let start = 100 + step * 100;
            run.range(thread, (start, start + 95), "step");
            let seq = (step + 1).to_string();
            let values = [
                ("comm", "MPI_COMM_WORLD"),
                ("peer", peer.as_str()),
                ("tag", "1"),
                ("bytes", "8"),
                ("seq", &seq),
            ];
            let begin = run.call(thread, (start, start + 5), "MPI_Isend", &values);
            run.call(thread, (start + 10, start + 15), "MPI_Recv", &values);
            let wait = run.call(thread, (start + 20, start + 25), "MPI_Wait", &[]);
            run.sample(thread, "MPI request", (begin, wait), &[]);
            run.call(thread, (start + 30, start + 40), "MPI_Allreduce", &[values[0], values[4]]);
        }
        let made = [("comm", "MPI_COMM_WORLD"), ("size", "2"), ("rank", if rank == 0 { "0" } else { "1" })];
        run.sample(thread, "communicator", (1, 0), &made);
    }
    run
}

#[test]
fn odd_rows_are_no_panic_and_leave_calls_that_can_be_analysed() {
    let odd = [
        "UPDATE rocpd_region% SET start = end + 5 WHERE id & 3 = 0",
        "UPDATE rocpd_region% SET start = -9223372036854775808, end = 9223372036854775807",
        "UPDATE rocpd_region% SET start = 4611686018427387903, end = -4611686018427387903 WHERE id & 1",
        "UPDATE rocpd_region% SET start = 50",
        "UPDATE rocpd_region% SET end = 5000",
        "UPDATE rocpd_region% SET event_id = 7",
        "UPDATE rocpd_region% SET event_id = NULL",
        "UPDATE rocpd_region% SET event_id = 9223372036854775807 - id",
        "UPDATE rocpd_region% SET tid = id",
        "UPDATE rocpd_region% SET name_id = id * 1000",
        "UPDATE rocpd_event% SET stack_id = 1, parent_stack_id = 1",
        "UPDATE rocpd_event% SET stack_id = -id, parent_stack_id = 9223372036854775807",
        "UPDATE rocpd_event% SET category_id = 77777",
        "UPDATE rocpd_arg% SET value = '99999999999999999999'",
        "UPDATE rocpd_arg% SET value = '2147483647'",
        "UPDATE rocpd_arg% SET value = '-2147483648'",
        "UPDATE rocpd_arg% SET value = x'00ff'",
        "UPDATE rocpd_arg% SET value = NULL",
        "UPDATE rocpd_arg% SET value = 3",
        "UPDATE rocpd_arg% SET name = 'seq'",
        "UPDATE rocpd_arg% SET name = 'size', value = '4294967295'",
        "UPDATE rocpd_arg% SET event_id = 9223372036854775807 - event_id",
        "UPDATE rocpd_track% SET name_id = NULL, pid = 99",
        "UPDATE rocpd_sample% SET event_id = (SELECT max(id) FROM rocpd_event%) - id",
        "UPDATE rocpd_info_process% SET extdata = '[1'",
        "UPDATE rocpd_info_process% SET extdata = '{\"rpd\":{\"rank\":0,\"size\":4294967295}}'",
        "DELETE FROM rocpd_event%",
        "DELETE FROM rocpd_arg%",
        "DELETE FROM rocpd_string%",
        "DELETE FROM rocpd_info_process%",
        "INSERT INTO rocpd_metadata% (tag, value) VALUES ('rpd.losses', '{'), ('rpd.missing_ranks', '{\"a\":1}')",
        "INSERT INTO rocpd_metadata% (tag, value) VALUES ('rpd.losses', '[3, {\"table\":[]}]')",
    ];
    for sql in odd {
        let mut run = run();
        run.finish();
        run.sql(sql);
        // `read` checks the calls.
        let calls = RunCalls::read(&run.open(), &ReadOptions::default());
        let calls = calls.unwrap_or_else(|failure| panic!("{sql}: {failure}"));
        assert_eq!(calls.job.check(), Ok(()), "{sql}");
        for timeline in &calls.job.timelines {
            let in_calls: u64 = timeline.calls.iter().map(|call| call.duration_ns).sum();
            let working: u64 = timeline.work.iter().map(|segment| segment.ns).sum();
            assert_eq!(in_calls + working, timeline.end_ns.abs_diff(timeline.start_ns), "{sql}");
        }
    }
}

#[test]
fn flipped_and_missing_bytes_are_typed_errors_or_other_rows() {
    let mut run = run();
    run.finish();
    let whole = fs::read(run.path()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("damaged.db");
    let read = |bytes: &[u8]| {
        fs::write(&path, bytes).unwrap();
        let read =
            RunDatabase::open(&path, None).and_then(|run| RunCalls::read(&run, &ReadOptions::default()));
        read.map(|calls| calls.job.check().unwrap())
    };
    assert!(read(&whole).is_ok());
    let mut failures = 0;
    for number in 0..400usize {
        let mut damaged = whole.clone();
        // Spread over the file; 7919 is prime.
        let place = number * 7919 % damaged.len();
        damaged[place] ^= 1 << (number % 8);
        failures += u32::from(read(&damaged).is_err());
        failures += u32::from(number % 10 == 0 && read(&whole[..whole.len() - place]).is_err());
    }
    assert!(failures > 20, "{failures}");
}
