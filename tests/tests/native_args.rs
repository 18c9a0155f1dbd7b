//! Values of native rows that refer to other calls, or that only some calls have, become args.

use rpd_shard::model::{Value, native};
use rpd_tests::crafted::{push_thread, write_rows};
use rpd_tests::harness::{Database, RunFolder};
use rpd_tests::synthetic::SyntheticRun;

/// Rank 0 as it comes, rank 1 by hand: its stack ids are shifted.
fn merged(first_stack: i64) -> Database {
    let config = SyntheticRun { nodes: 1, events_per_rank: 60, ..SyntheticRun::default() };
    let run = RunFolder::new(&config);
    write_rows(&run, &config, 1, |shard| {
        let thread = push_thread(shard)?;
        let mut strings = [0; 5];
        let names = ["MPI_Recv_init", "MPI_Start", "MPI_Mrecv", "MPI_Sendrecv", "ncclSend"];
        for (string, name) in strings.iter_mut().zip(names) {
            *string = shard.string(name.as_bytes())?;
        }
        let [init, start, mrecv, exchange, rccl] = strings;
        let mut stack = first_stack;
        let mut span = |name: i64| {
            stack += 1;
            [thread, 5_000, 6_000, name, stack, 0].map(Value::Int)
        };
        // Shorter than the table, as a collector of an earlier version writes them.
        shard.push(1, native::MPI_CALL, &span(init))?;
        shard.push(1, native::MPI_CALL, &span(start))?;
        let none = [Value::Null; 6];
        let received = [Value::Null, Value::Null, Value::Null, Value::Int(first_stack + 1)];
        shard.push(1, native::MPI_CALL, &[&span(mrecv)[..], &none, &received].concat())?;
        let received = [2, 7, 64].map(Value::Int);
        shard.push(1, native::MPI_CALL, &[&span(exchange)[..], &none, &received].concat())?;
        let stream = [&span(rccl)[..], &none, &[Value::Null, Value::Int(-1)]].concat();
        shard.push(1, native::RCCL_CALL, &stream)?;
        for init_stack in [Value::Int(first_stack + 1), Value::Null] {
            let point = [thread, 7_000, start, first_stack + 2, 0].map(Value::Int);
            shard.push(1, native::MPI_REQUEST, &[&point[..], &none[..3], &[init_stack]].concat())?;
        }
        let point = [thread, 8_000, start, first_stack + 2, 0].map(Value::Int);
        let lists = [Value::Int(1), Value::Text(b"[0,-1]"), Value::Text(b"[3]")];
        shard.push(1, native::COMMUNICATOR, &[&point[..], &none[..4], &lists].concat()).map(drop)
    });
    let database = run.merged();
    database.assert_sound();
    database
}

fn assert_args(database: &Database) {
    let of = |arg: &str| {
        // Rank 0 has streams with other handles.
        database.rows(&format!(
            "SELECT type || ' ' || value FROM rocpd_arg WHERE name = '{arg}' AND value NOT LIKE '0x7f%' ORDER BY id"
        ))
    };
    let others = ["source", "recvtag", "recvbytes", "stream", "side", "sources", "destinations"]
        .map(|arg| of(arg).concat());
    let expected = [
        "'int 2'",
        "'int 7'",
        "'size_t 64'",
        "'hipStream_t 0xffffffffffffffff'",
        "'int 1'",
        "'int[] [0,-1]'",
        "'int[] [3]'",
    ];
    assert_eq!(others, expected.map(|arg| vec![arg.to_owned()]));
    let created = "SELECT e.stack_id FROM rocpd_event e JOIN rocpd_region r ON r.event_id = e.id
        JOIN rocpd_string s ON s.id = r.name_id JOIN rocpd_info_process p ON p.id = r.pid
        WHERE s.string = 'MPI_Recv_init' AND json_extract(p.extdata, '$.rpd.rank') = 1";
    let created = &database.rows(created).concat()[0];
    for arg in ["init_stack_id", "probe_stack_id"] {
        assert_eq!(of(arg), [[format!("'uint64_t {created}'")]], "{arg}");
    }
}

#[test]
fn references_to_calls_follow_the_stack_ids() {
    assert_args(&merged(0));
}

#[test]
fn references_to_calls_follow_stack_ids_that_are_renumbered() {
    assert_args(&merged(i64::MAX - 100));
    assert_args(&merged(-100));
}
