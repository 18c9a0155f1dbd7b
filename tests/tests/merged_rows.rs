//! A merge holds the rows that went in: all of them, once, with every reference intact.

use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed, TestRunner};
use rpd_shard::model::rocpd;
use rpd_tests::content::{ContentTables, content, differences};
use rpd_tests::harness::{Database, RunFolder, losses, rpd_merge};
use rpd_tests::synthetic::{ModelCell, NativeCall, NativeRows, Run, SyntheticRun};
use std::collections::BTreeMap;

/// Small runs with every adversity now and then.
fn runs() -> impl Strategy<Value = SyntheticRun> {
    let shape = (0u64..1 << 40, 1u32..4, 1u32..4, 0usize..130, 1usize..4, 1usize..30);
    let clocks = (prop_oneof![Just(0i64), 1..60_000i64], prop_oneof![Just(0i64), 1..2_000_000i64]);
    let adversity = (any::<bool>(), proptest::option::of(0u32..9), any::<bool>(), any::<bool>());
    (shape, clocks, adversity).prop_map(|(shape, clocks, adversity)| {
        let (seed, nodes, ranks_per_node, events_per_rank, threads, kernels) = shape;
        let (workers, missing, equal_pids, equal_machine_ids) = adversity;
        SyntheticRun {
            seed,
            nodes,
            ranks_per_node,
            events_per_rank,
            threads,
            kernels,
            max_drift_ppb: clocks.0,
            max_anchor_error: clocks.1,
            workers,
            // At least one rank stays.
            missing_rank: missing.filter(|rank| *rank < nodes * ranks_per_node && nodes * ranks_per_node > 1),
            probes: false,
            collectives: true,
            equal_pids,
            equal_machine_ids,
        }
    })
}

#[test]
fn a_merge_holds_the_rows_of_the_model_whatever_the_run() {
    let soak = std::env::var("RPD_SOAK").is_ok_and(|value| value == "1");
    let config = Config {
        cases: if soak { 1_000 } else { 40 },
        rng_seed: if soak { RngSeed::Random } else { RngSeed::Fixed(20) },
        failure_persistence: None,
        max_shrink_iters: 60,
        ..Config::default()
    };
    let merged_equals_model = |config: SyntheticRun| {
        let folder = RunFolder::new(&config);
        let run = config.plan();
        let database = folder.merged();
        database.assert_sound();
        let found = content(&ContentTables::of_database(&database.connection).expect("tables"));
        prop_assert_eq!(differences(&content(&ContentTables::of_model(&run)), &found), "");
        prop_assert_eq!(losses(&database), vec![]);
        check_processes(&run, &database);
        Ok(())
    };
    let outcome = TestRunner::new(config).run(&runs(), merged_equals_model);
    if let Err(error) = outcome {
        panic!("{error}");
    }
}

/// `info_process` has the identity of processes; "rpd" in it what RocPD has no column for.
fn check_processes(run: &Run, database: &Database) {
    let sql = "SELECT n.hostname, p.pid, p.ppid, json_extract(p.extdata, '$.rpd.rank'),
                      json_extract(p.extdata, '$.rpd.local_rank'), json_extract(p.extdata, '$.rpd.worker'),
                      json_extract(p.environment, '$.OMPI_COMM_WORLD_RANK')
                 FROM rocpd_info_process p JOIN rocpd_info_node n ON n.id = p.nid ORDER BY p.id";
    // Ranks first, in their order.
    let mut expected: Vec<_> = run.processes().collect();
    expected.sort_by_key(|process| process.worker());
    let expected = expected.into_iter().map(|process| {
        vec![
            format!("'{}'", run.nodes[process.node].node.hostname),
            process.pid.to_string(),
            process.ppid.to_string(),
            process.rank.to_string(),
            process.local_rank.to_string(),
            i32::from(process.worker()).to_string(),
            format!("'{}'", process.rank),
        ]
    });
    assert_eq!(database.rows(sql), expected.collect::<Vec<_>>());
}

#[test]
fn nodes_that_differ_in_their_anchors_only_agree_on_time_to_the_nanosecond() {
    let config = SyntheticRun { nodes: 3, ranks_per_node: 1, ..SyntheticRun::default() };
    let folder = RunFolder::new(&config);
    let database = folder.merged();
    let run = config.plan();
    // With exact anchors job time is the reference node's BOOTTIME of the true time.
    for process in run.processes() {
        let rows = run.rows(process);
        let with_event = rows.of(rocpd::REGION).iter().filter(|row| row[6] != ModelCell::Null);
        let times = with_event.filter_map(|row| if let ModelCell::Time(t) = row[3] { Some(t) } else { None });
        let mut wanted: Vec<_> = times.map(|t| vec![run.nodes[0].clock.local(t).to_string()]).collect();
        wanted.sort();
        let of_process = format!("pid = {} AND category = 'HIP_RUNTIME_API_EXT'", process.pid);
        let found = database.rows(&format!("SELECT start FROM regions WHERE {of_process} ORDER BY start"));
        assert!(wanted.len() > 50);
        assert_eq!(found, wanted, "rank {}", process.rank);
    }
}

#[test]
fn kernels_joined_to_regions_by_stack_id_are_exactly_the_planted_pairs() {
    // By the wall clocks: the model knows their shift to the nanosecond.
    let config =
        SyntheticRun { events_per_rank: 1_500, workers: true, collectives: false, ..SyntheticRun::default() };
    let run = config.plan();
    let database = RunFolder::new(&config).merged();
    let mut planted: BTreeMap<Vec<String>, i64> = BTreeMap::new();
    for process in run.processes() {
        let rows = run.rows(process);
        let shift = run.shift(process.node);
        let time = |cell: &ModelCell| match cell {
            ModelCell::Time(t) => (run.nodes[process.node].clock.local(*t) + shift).to_string(),
            other => panic!("{other:?}"),
        };
        for (region, dispatch) in &rows.launches {
            let (region, dispatch) =
                (&rows.of(rocpd::REGION)[*region], &rows.of(rocpd::KERNEL_DISPATCH)[*dispatch]);
            let pair = vec![process.pid.to_string(), time(&region[3]), time(&dispatch[8])];
            *planted.entry(pair).or_default() += 1;
        }
    }
    let found = database.rows(
        "SELECT r.pid, r.start, k.start FROM kernels k JOIN regions r ON r.guid = k.guid AND r.stack_id = k.stack_id
          WHERE k.pid = r.pid OR k.pid <> r.pid",
    );
    let mut joined: BTreeMap<Vec<String>, i64> = BTreeMap::new();
    found.into_iter().for_each(|pair| *joined.entry(pair).or_default() += 1);
    assert!(planted.len() > 1_000);
    assert_eq!(joined, planted);
}

#[test]
fn completions_join_the_call_that_started_them_and_the_call_that_saw_them_complete() {
    // By the wall clocks: the model knows their shift to the nanosecond.
    let config = SyntheticRun { events_per_rank: 300, collectives: false, ..SyntheticRun::default() };
    let run = config.plan();
    let database = RunFolder::new(&config).merged();
    let mut planted: BTreeMap<Vec<String>, i64> = BTreeMap::new();
    for process in run.processes() {
        let shift = run.shift(process.node);
        let time = |at| (run.nodes[process.node].clock.local(at) + shift).to_string();
        let native = run.rows(process).native;
        for done in native.iter().filter(|event| matches!(event.call, NativeCall::Request { .. })) {
            let with = |stack| native.iter().find(|other| other.stack == stack && other.end > other.start);
            let (begun, seen) = (with(done.stack).expect("start"), with(done.parent).expect("wait"));
            let name = |event: &NativeRows| format!("'{}'", event.name());
            let times = [time(begun.start), time(seen.start), time(done.start)];
            *planted.entry([&[name(begun), name(seen)][..], &times].concat()).or_default() += 1;
        }
    }
    let found = database.rows(
        "SELECT r.name, w.name, r.start, w.start, s.timestamp FROM samples s
           JOIN regions r ON r.guid = s.guid AND r.stack_id = s.stack_id
           JOIN regions w ON w.guid = s.guid AND w.stack_id = s.parent_stack_id
          WHERE s.name = 'MPI request' AND s.category = 'MPI_API'",
    );
    let mut joined: BTreeMap<Vec<String>, i64> = BTreeMap::new();
    found.into_iter().for_each(|row| *joined.entry(row).or_default() += 1);
    assert!(planted.len() >= 4 * 5 * 2, "{}", planted.len());
    assert_eq!(joined, planted);
}

#[test]
fn communicators_are_of_the_library_that_made_them() {
    let config = SyntheticRun { nodes: 1, ranks_per_node: 3, ..SyntheticRun::default() };
    let database = RunFolder::new(&config).merged();
    let found = database.counts(
        "SELECT json_extract(s.extdata, '$.message') || ' ' || a.type || ' ' || a.value
           FROM samples s JOIN rocpd_arg a ON a.event_id = s.event_id AND a.guid = s.guid
          WHERE s.category = 'COMMUNICATOR' AND a.name = 'comm'",
    );
    let wanted = [
        "MPI_Comm_set_name MPI_Comm MPI_COMM_WORLD/1@0",
        "MPI_Comm_set_name MPI_Comm comm-1",
        "MPI_Comm_split MPI_Comm MPI_COMM_WORLD/1@0",
        "ncclCommInitRank ncclComm_t nccl-00000000000000ff",
    ];
    assert_eq!(found, wanted.map(|text| (text.to_owned(), 3)).into());
}

#[test]
fn views_show_as_many_rows_as_the_model_has() {
    let config =
        SyntheticRun { events_per_rank: 600, workers: true, equal_pids: true, ..SyntheticRun::default() };
    let database = RunFolder::new(&config).merged();
    database.assert_sound();
    let model = ContentTables::of_model(&config.plan());
    let with_event = |table: &str| {
        let rows = model.of(table).values();
        rows.filter(|row| row["event_id"] != rusqlite::types::Value::Null).count() as i64
    };
    for (view, rows) in [
        ("regions", with_event("rocpd_region")),
        ("samples", with_event("rocpd_sample")),
        ("kernels", model.rows("rocpd_kernel_dispatch") as i64),
        ("threads", model.rows("rocpd_info_thread") as i64),
        ("processes", model.rows("rocpd_info_process") as i64),
        ("memory_allocations", model.rows("rocpd_memory_allocate") as i64),
        ("kernel_symbols", model.rows("rocpd_info_kernel_symbol") as i64),
        ("counters_collection", model.rows("rocpd_pmc_event") as i64),
    ] {
        assert_eq!(database.count(view), rows, "{view}");
    }
    // The id in the argument's JSON names the stream of its own process.
    let streams = database.number(
        "SELECT count(*) FROM rocpd_arg a JOIN rocpd_region r ON r.event_id = a.event_id
           JOIN rocpd_info_stream s ON s.id = json_extract(a.extdata, '$.stream_id') WHERE s.pid = r.pid",
    );
    let wanted =
        database.number("SELECT count(*) FROM rocpd_arg WHERE json_extract(extdata, '$.stream_id') NOTNULL");
    assert!(wanted > 100 && streams == wanted, "{streams} of {wanted}");
}

#[test]
fn a_dry_run_writes_nothing_and_reports_the_run() {
    let folder = RunFolder::new(&SyntheticRun::default());
    let outcome = rpd_merge().args(["--dry-run", "--json"]).arg(&folder.path).run().success();
    let report: serde_json::Value = serde_json::from_str(&outcome.stdout).expect("JSON on stdout");
    assert_eq!(report["shards"], 4);
    assert!(!folder.path.join("trace.db").exists());
}

#[test]
fn inspect_shows_identity_tables_and_ledger() {
    let folder = RunFolder::new(&SyntheticRun { workers: true, ..SyntheticRun::default() });
    let outcome = rpd_merge().arg("inspect").arg(folder.shard(1)).run().success();
    for word in ["synthetic-1.0", "gpu000", "rocpd_kernel_dispatch", "mpi_call", "worker"] {
        assert!(outcome.stdout.contains(word), "{word} in\n{outcome}");
    }
}

/// What `rpd-merge inspect` prints of a path.
fn inspected(path: &std::path::Path) -> String {
    rpd_merge().arg("inspect").arg(path).run().success().stdout
}

/// What is not there, or empty, is named as that with the next step.
fn assert_inspect_refused(folder: &std::path::Path) {
    let run = folder.join("run");
    std::fs::create_dir(&run).unwrap();
    std::fs::write(run.join("rank-00003.rpdshard"), "").unwrap();
    std::fs::write(folder.join("empty.db"), "").unwrap();
    let of_shard = format!(
        "rank-00003.log beside it may contain the reason, and rpd-merge {} merges the other",
        run.display()
    );
    for (name, words) in [
        ("nothing", ["cannot be inspected (No such file or directory", "check the path"]),
        ("run/rank-00003.rpdshard", ["is an empty shard: its collector was killed", &of_shard]),
        ("empty.db", ["is empty: its writer was killed", "inspect another file"]),
    ] {
        let refused = rpd_merge().arg("inspect").arg(folder.join(name)).run();
        assert!(
            refused.code() == Some(4) && words.iter().all(|word| refused.stderr.contains(word)),
            "{refused}"
        );
    }
    std::fs::remove_dir_all(&run).unwrap();
    std::fs::create_dir(folder.join("log")).unwrap();
    std::fs::write(folder.join("log/rank-00000.log"), "text").unwrap();
    assert!(inspected(&folder.join("log")).contains("next       rank-*.log in it says why"));
}

#[test]
fn inspect_of_a_folder_or_a_database_says_what_it_is_and_what_to_do() {
    let folder = RunFolder::new(&SyntheticRun::default());
    let path = folder.path.display();
    let before = inspected(&folder.path);
    let lines: Vec<&str> = before.lines().collect();
    assert!(lines[0].starts_with(&format!("folder     {path}: a folder of run ")), "{before}");
    assert!(lines[0].ends_with(": 4 shards, rank 0-3 of 4"), "{before}");
    assert_eq!(lines.iter().filter(|line| line.starts_with("shard ")).count(), 4, "{before}");
    assert!(lines[1].ends_with(" bytes, finished"), "{before}");
    assert_eq!(lines.last(), Some(&format!("next       rpd-merge {path}").as_str()));
    drop(folder.merged());
    assert!(
        inspected(&folder.path)
            .contains(&format!("next       it is merged: rpd-merge inspect {path}/trace.db"))
    );
    let database = inspected(&folder.path.join("trace.db"));
    for words in [
        "bytes): a merged database of run ",
        "processes  4 processes, rank 0-3\n",
        "next       sqlite3 ",
        "next       rpd-merge --split-by-time 4 ",
    ] {
        assert!(database.contains(words), "{words} in\n{database}");
    }
    assert!(!database.contains("lost "), "{database}");

    let empty = tempfile::tempdir().unwrap();
    assert!(
        inspected(empty.path())
            .contains("holds no run of rpd-collect and no file that rpd-merge reads\nnext       record")
    );
    assert_inspect_refused(empty.path());
    let other = empty.path().join("notes.txt");
    std::fs::write(&other, "text").unwrap();
    let refused = rpd_merge().arg("inspect").arg(&other).run();
    assert!(refused.code() == Some(4) && refused.stderr.contains("is not a shard, a RocPD"), "{refused}");
    let root = empty.path().join("root");
    std::fs::create_dir_all(root.join("one")).unwrap();
    std::fs::copy(folder.shard(0), root.join("one/rank-00000.rpdshard")).unwrap();
    let root = inspected(&root);
    assert!(
        root.contains(": an output folder with 1 run\n") && root.contains("run        one: 1 shard\n"),
        "{root}"
    );
}

#[test]
fn inspect_quotes_paths_in_the_commands_of_its_next_line() {
    let folder = RunFolder::new(&SyntheticRun::default());
    let place = tempfile::tempdir().unwrap();
    let run = place.path().join("run of it's $HOME");
    std::fs::create_dir(&run).unwrap();
    std::fs::copy(folder.shard(0), run.join("rank-00000.rpdshard")).unwrap();
    let next = |path: &std::path::Path| {
        let lines = inspected(path);
        lines
            .lines()
            .filter_map(|line| line.strip_prefix("next       "))
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let words = |commands: &[String]| {
        let shell = |command: &String| {
            let script = format!("set -- {command}; printf '%s\\n' \"$@\"");
            let output = std::process::Command::new("sh").args(["-c", &script]).output().unwrap();
            String::from_utf8(output.stdout).unwrap()
        };
        commands.iter().map(shell).collect::<Vec<_>>()
    };
    let path = run.display();
    assert_eq!(words(&next(&run)), [format!("rpd-merge\n{path}\n")]);
    let _ = rpd_merge().arg(&run).run().success();
    for command in words(&next(&run.join("trace.db"))) {
        assert!(command.lines().any(|word| word == format!("{path}/trace.db")), "{command}");
    }
}

#[test]
fn a_join_by_guid_and_stack_id_is_indexed_by_both() {
    let run = RunFolder::new(&SyntheticRun::default());
    let database = run.merged();
    for launched in ["kernels", "memory_copies"] {
        let plan = database.rows(&format!(
            "EXPLAIN QUERY PLAN SELECT count(*) FROM {launched} K \
             JOIN regions R ON R.guid = K.guid AND R.stack_id = K.stack_id"
        ));
        let plan: Vec<String> = plan.into_iter().flatten().collect();
        assert!(plan.iter().any(|step| step.contains("guid=? AND stack_id=?")), "{launched}: {plan:#?}");
    }
}
