//! Collectives of all ranks are matched, and tell which rank is late.

use rpd_comm::threads;
use rpd_merge::merge;
use rpd_merge::{CommandLine, MergeArgs};
use rpd_shard::ShardWriter;
use rpd_shard::model::{Value, native, rocpd};
use rpd_tests::fixtures;
use rpd_tests::harness::rpd_merge;
use rpd_tests::synthetic::{RUN_START, Run, SyntheticRun, process_record, run_identity};
use std::fs::{self, File};
use std::path::{Path, PathBuf};

/// One call of every rank, in the plainest form.
#[derive(Clone, Copy)]
struct Planned {
    function: &'static str,
    bytes: Option<i64>,
    enter: i64,
    exit: i64,
}

/// Writes shards with nothing but collectives on MPI_COMM_WORLD: `call(rank, n)` is the n-th one of a rank.
fn shards(run: &Run, folder: &Path, calls: i64, call: &dyn Fn(u32, i64) -> Option<Planned>) -> Vec<PathBuf> {
    fs::create_dir_all(folder).unwrap();
    let write = |rank: &rpd_tests::synthetic::ModelRank| {
        let path = folder.join(format!("rank-{:05}.rpdshard", rank.rank));
        let process = &rank.processes[0];
        let clock = &run.nodes[rank.node].clock;
        let mut shard =
            ShardWriter::new(File::create(&path).unwrap(), &run_identity(run, rank.rank)).unwrap();
        shard.process(&process_record(run, process)).unwrap();
        run.clock_sets(rank).iter().for_each(|set| shard.clock(set).unwrap());
        let thread = [
            Value::Int(1),
            Value::Int(1),
            Value::Int(1),
            Value::Int(7),
            Value::Null,
            Value::Null,
            Value::Null,
            Value::Null,
        ];
        shard.push(1, rocpd::INFO_THREAD, &thread).unwrap();
        let world = Value::Int(shard.string(b"MPI_COMM_WORLD").unwrap());
        for n in 1..=calls {
            let Some(Planned { function, bytes, enter, exit }) = call(rank.rank, n) else { continue };
            let name = Value::Int(shard.string(function.as_bytes()).unwrap());
            let [enter, exit] = [enter, exit].map(|at| Value::Int(clock.local(RUN_START + at)));
            let (none, stack) = (Value::Null, Value::Int(n));
            let root = none;
            let row = [
                Value::Int(1),
                enter,
                exit,
                name,
                stack,
                Value::Int(0),
                world,
                none,
                root,
                none,
                bytes.into(),
                stack,
            ];
            shard.push(1, native::MPI_CALL, &row).unwrap();
        }
        shard.finish().unwrap();
        path
    };
    run.ranks.iter().map(write).collect()
}

const STEP: i64 = 10_000_000;

/// An allreduce every 10 ms, to which rank 5 comes 3 ms late four times out of five, and rank 1 1 ms late else.
fn planted(rank: u32, n: i64) -> Option<Planned> {
    let lateness = |rank: u32| match (rank, n % 5) {
        (5, 1..) => 3_000_000,
        (1, 0) => 1_000_000,
        (rank, _) => i64::from(rank) * 100,
    };
    let last = (0..8).map(lateness).max().unwrap();
    let (enter, exit) =
        (n * STEP + lateness(rank), n * STEP + last + 5_000 + (n * 7 + i64::from(rank) * 13) % 500);
    Some(Planned { function: "MPI_Allreduce", bytes: Some(1_024), enter, exit })
}

fn told(inputs: &[PathBuf], out: &Path) -> (serde_json::Value, String) {
    let outcome = rpd_merge().args(["--force", "--json", "-o"]).arg(out).args(inputs).run().success();
    (serde_json::from_str(&outcome.stdout).unwrap(), outcome.stderr)
}

#[test]
fn late_ranks_are_those_that_were_planted_on_one_node_as_on_two() {
    for nodes in [1, 2] {
        let config = SyntheticRun {
            nodes,
            ranks_per_node: 8 / nodes,
            max_drift_ppb: 15_000,
            ..SyntheticRun::default()
        };
        let run = config.plan();
        let folder = tempfile::tempdir().unwrap();
        let inputs = shards(&run, &folder.path().join("in"), 200, &planted);
        let (report, stderr) = told(&inputs, &folder.path().join("out.db"));
        assert_eq!(report["collectives"]["matched"], 200, "{stderr}");
        let late = report["late_ranks"].as_array().unwrap();
        let (first, second) = (&late[0], &late[1]);
        assert_eq!((&first["rank"], &second["rank"]), (&5.into(), &1.into()), "{stderr}");
        assert_eq!(first["host"], if nodes == 1 { "gpu000" } else { "gpu001" });
        // The first collective of all ranks belongs to start-up.
        // Of 159 that are equal, 152 make 95 %.
        assert_eq!((&first["last"], &first["collectives"]), (&152.into(), &200.into()));
        // 159 times 7 ranks wait for not quite 3 ms.
        let near = |value: &serde_json::Value, wanted: i64, within: i64| {
            let value = value.as_i64().unwrap();
            assert!((value - wanted).abs() <= within, "{value} is not {wanted}: {stderr}");
        };
        near(&first["waited_ns"], 159 * 7 * 3_000_000, 159 * 7 * 30_000);
        near(&first["behind_ns"], 3_000_000, 40_000);
        near(&second["waited_ns"], 40 * 7 * 1_000_000, 40 * 7 * 30_000);
        if nodes == 1 {
            assert_eq!(first["clock_bar_ns"], 0);
            assert_eq!(late.len(), 2, "{stderr}");
        }
        let line = format!(
            "waiting    rank 5 on {} entered last: others waited 3.3 s for it, 92 % of all waiting; before 152 of 200 collectives it spent 3.0 ms (median; ",
            first["host"].as_str().unwrap()
        );
        assert!(stderr.contains(&line), "{stderr}");
        let lateness = &report["lateness"];
        assert_eq!((&lateness["verdict"], &lateness["rank"]), (&"rank".into(), &5.into()));
        let share = lateness["waited_share_of_run"].as_f64().unwrap();
        assert!((0.2..0.25).contains(&share), "3.6 s of 8 ranks in 2 s: {share}");
        assert_eq!(lateness["start_up"]["last_rank"], 5);
    }
}

#[test]
fn what_does_not_match_is_told_with_ranks_and_call_and_not_used() {
    let run = SyntheticRun { ranks_per_node: 2, ..SyntheticRun::default() }.plan();
    let folder = tempfile::tempdir().unwrap();
    let call = |rank: u32, n: i64| {
        let usual = planted(rank, n)?;
        match (rank, n) {
            (3, 12) => Some(Planned { function: "MPI_Allgather", bytes: Some(4_096), ..usual }),
            (2, 20..) => None,
            _ => Some(usual),
        }
    };
    let inputs = shards(&run, &folder.path().join("in"), 25, &call);
    let (report, stderr) = told(&inputs, &folder.path().join("out.db"));
    let counts = &report["collectives"];
    assert_eq!(
        (&counts["matched"], &counts["mismatched"], &counts["incomplete"]),
        (&18.into(), &1.into(), &6.into())
    );
    for line in [
        "collective 12 on MPI_COMM_WORLD: rank 3 calls MPI_Allgather of 4096 B, rank 0 calls MPI_Allreduce of 1024 B",
        "collective 20 on MPI_COMM_WORLD, MPI_Allreduce of 1024 B: not recorded for rank 2",
        "18 of 25 collectives; 6 not recorded of all ranks; 1 not the same in all ranks",
    ] {
        assert!(stderr.contains(line), "{line}: {stderr}");
    }
}

#[test]
fn without_collectives_nobody_is_late() {
    let run = SyntheticRun::default().plan();
    let folder = tempfile::tempdir().unwrap();
    let send = |rank: u32, n: i64| Some(Planned { function: "MPI_Send", ..planted(rank, n)? });
    let inputs = shards(&run, &folder.path().join("in"), 5, &send);
    let (report, stderr) = told(&inputs, &folder.path().join("out.db"));
    assert_eq!(report["late_ranks"].as_array().unwrap().len(), 0);
    assert!(
        stderr.contains("waiting    cannot tell which rank entered last: no collectives were recorded\n"),
        "{stderr}"
    );
}

#[test]
fn the_number_of_merge_ranks_changes_nothing() {
    let config = SyntheticRun {
        nodes: 3,
        ranks_per_node: 2,
        events_per_rank: 1_500,
        max_drift_ppb: 15_000,
        ..SyntheticRun::default()
    };
    let run = config.plan();
    let folder = tempfile::tempdir().unwrap();
    let inputs = rpd_tests::synthetic::write_shards(&run, folder.path()).unwrap();
    let mut outcomes = (1..4).map(|ranks| {
        let output = folder.path().join(format!("{ranks}.db"));
        let merge_args = MergeArgs {
            inputs: vec![inputs.clone()],
            output: Some(output.clone()),
            quiet: true,
            ..MergeArgs::default()
        };
        let cli = CommandLine { command: None, merge: merge_args };
        let reports = threads::run(ranks, |comm| merge(comm, &cli.merge).unwrap());
        let told: Vec<String> = reports
            .iter()
            .map(|r| {
                serde_json::to_string(&(
                    &r.clocks,
                    &r.collectives,
                    &r.late_ranks,
                    &r.lateness,
                    &r.collective_faults,
                ))
                .unwrap()
            })
            .collect();
        assert!(told.iter().all(|t| *t == told[0]), "{told:?}");
        (fs::read(output).unwrap(), told[0].clone())
    });
    let first = outcomes.next().unwrap();
    assert!(first.1.contains("\"collectives\"") && !first.1.contains("\"matched\":0"), "{}", first.1);
    for other in outcomes {
        assert_eq!(other.1, first.1);
        assert!(other.0 == first.0, "the databases differ");
    }
}

#[test]
fn regions_of_processes_that_called_different_things_are_not_compared() {
    let folder = tempfile::tempdir().unwrap();
    let inputs = fixtures::rocpd_databases(&folder.path().join("in"));
    if inputs.is_empty() {
        return;
    }
    let (report, stderr) = told(&inputs, &folder.path().join("out.db"));
    assert_eq!(report["collectives"]["matched"], 0, "{stderr}");
    assert!(report["collectives"]["different"].as_u64().unwrap() > 100, "{stderr}");
    assert!(
        stderr.contains("'s collective 1 is nccl") || stderr.contains("'s collective 2 is nccl"),
        "{stderr}"
    );
    assert!(stderr.contains("nothing is known of its clock; times unchanged"), "{stderr}");
    assert!(
        stderr.contains(
            "waiting    cannot tell which rank entered last: no collectives of different ranks match\n"
        ),
        "{stderr}"
    );
}
