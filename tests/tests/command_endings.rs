//! How the commands of a run ended is in the merged database and, once for all, in the summary, traced or not.

use rpd_shard::ShardWriter;
use rpd_shard::record::{COMMAND_SOURCE, Process, ProcessExit};
use rpd_tests::harness::{
    Database, Job, JobOutcome, RunFolder, binary, mpi_missing, mpirun, python, rpd_merge, skip,
};
use rpd_tests::synthetic::{SyntheticRun, process_record, run_identity};
use std::fs;
use std::path::{Path, PathBuf};

/// A script of the shell under rpd-collect, as a rank of four or without a rank.
fn collect(folder: &Path, rank: Option<u32>, script: &str) -> JobOutcome {
    let job = Job::new(binary("rpd-collect"))
        .arg("-o")
        .arg(folder)
        .args(["--run-id", "run", "--", "sh", "-c", script]);
    match rank {
        Some(rank) => job.env("PMI_RANK", rank.to_string()).env("PMI_SIZE", "4").run(),
        None => job.run(),
    }
}

fn merged(run: &Path) -> (String, Database) {
    let outcome = rpd_merge().arg("--force").arg(run).run().success();
    let database = Database::open(&run.join("trace.db"));
    database.assert_sound();
    (outcome.stderr, database)
}

/// The lines of a summary that have this label.
fn lines(summary: &str, label: &str) -> Vec<String> {
    let with_label = |line: &str| line.strip_prefix(&format!("{label:<10} ")).map(str::to_owned);
    summary.lines().filter_map(with_label).collect()
}

fn json(run: &Path) -> serde_json::Value {
    let outcome = rpd_merge().args(["--dry-run", "--json"]).arg(run).run().success();
    serde_json::from_str(&outcome.stdout).unwrap()
}

const EXITS: &str = "SELECT json_extract(extdata, '$.rpd.rank'), json_extract(extdata, '$.rpd.exit.code'),
    json_extract(extdata, '$.rpd.exit.name') FROM rocpd_info_process ORDER BY id";

#[test]
fn endings_of_all_ranks_are_one_line_where_one_did_not_end_well() {
    let folder = tempfile::tempdir().unwrap();
    for (rank, script) in [(0, "exit 0"), (1, "exit 0"), (2, "exit 3"), (3, "kill -9 $$")] {
        let _ = collect(folder.path(), Some(rank), script);
    }
    let run = folder.path().join("run");
    let (summary, database) = merged(&run);
    let line = "ranks 0-1 exit code 0; rank 2 exit code 3; rank 3 signal 9 (SIGKILL)";
    assert_eq!(lines(&summary, "ended"), [line], "{summary}");
    assert_eq!(lines(&summary, "died"), Vec::<String>::new(), "once is enough: {summary}");
    assert!(summary.contains("4 ranks, 4 processes on 1 node"), "{summary}");
    let exits = [["0", "0", "NULL"], ["1", "0", "NULL"], ["2", "3", "NULL"], ["3", "NULL", "'SIGKILL'"]];
    assert_eq!(database.rows(EXITS), exits);
    let command = "SELECT command, start > 0 AND \"end\" >= start FROM rocpd_info_process WHERE id = 3";
    assert_eq!(database.rows(command), [["'sh -c exit 3'", "1"]]);
    assert_eq!(database.metadata()["rpd.missing_ranks"], ["[]"]);
    let ended = serde_json::json!([
        { "code": 0, "signal": null, "signal_name": null, "commands": 2, "ranks": [0, 1] },
        { "code": 3, "signal": null, "signal_name": null, "commands": 1, "ranks": [2] },
        { "code": null, "signal": 9, "signal_name": "SIGKILL", "commands": 1, "ranks": [3] },
    ]);
    let report = json(&run);
    assert_eq!((&report["commands_ended"], report["died"].as_u64()), (&ended, Some(2)));
    assert_eq!(database.metadata()["rpd.commands_ended"], [ended.to_string()]);

    // A merge of the merge and its shards has each rank once.
    let again =
        rpd_merge().arg("-o").arg(folder.path().join("again.db")).arg(run.join("trace.db")).arg(&run).run();
    let again = again.success();
    assert_eq!(Database::open(&folder.path().join("again.db")).rows(EXITS), exits, "{again}");
}

#[test]
fn commands_that_ended_well_make_no_line() {
    let folder = tempfile::tempdir().unwrap();
    for rank in 0..4 {
        let _ = collect(folder.path(), Some(rank), "exit 0").success();
    }
    let run = folder.path().join("run");
    let (summary, database) = merged(&run);
    assert!(lines(&summary, "ended").is_empty() && lines(&summary, "died").is_empty(), "{summary}");
    assert_eq!(database.count("processes"), 4);
    assert_eq!(json(&run)["commands_ended"][0]["ranks"], serde_json::json!([0, 1, 2, 3]));
}

#[test]
fn a_command_without_a_rank_has_its_ending_too() {
    let folder = tempfile::tempdir().unwrap();
    let outcome = collect(folder.path(), None, "exit 3");
    assert_eq!(outcome.code(), Some(3));
    let (summary, database) = merged(&folder.path().join("run"));
    assert_eq!(lines(&summary, "ended"), ["the command exit code 3"], "{summary}");
    assert_eq!(database.rows(EXITS), [["NULL", "3", "NULL"]]);
}

#[test]
fn a_shell_around_a_traced_program_is_no_process_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let program = "import ctypes; ctypes.CDLL(None).roctxMarkA(b'here')";
    let script = format!("'{}' -c \"{program}\"; exit 4", python().display());
    let outcome = collect(folder.path(), Some(0), &script);
    assert_eq!(outcome.code(), Some(4), "{outcome}");
    let (summary, database) = merged(&folder.path().join("run"));
    assert_eq!(lines(&summary, "ended"), ["rank 0 exit code 4"], "{summary}");
    assert_eq!(database.count("processes"), 1);
    assert_eq!(database.count("samples"), 1);
}

#[test]
fn ranks_of_mpirun_have_their_endings() {
    if let Some(why) = mpi_missing() {
        return skip("endings under mpirun", why);
    }
    let folder = tempfile::tempdir().unwrap();
    let script = "[ $OMPI_COMM_WORLD_RANK != 3 ] || { sleep 1; kill -9 $$; }";
    let job = mpirun(4).arg(binary("rpd-collect")).arg("-o").arg(folder.path()).args(["--run-id", "run"]);
    let outcome = job.args(["--", "sh", "-c", script]).run();
    assert_ne!(outcome.code(), Some(0), "{outcome}");
    let (summary, database) = merged(&folder.path().join("run"));
    assert_eq!(lines(&summary, "ended"), ["ranks 0-2 exit code 0; rank 3 signal 9 (SIGKILL)"], "{summary}");
    // One of the collectors may be a process, too, which has read the metrics of the node.
    let commands = "SELECT count(*) FROM rocpd_info_process WHERE command LIKE 'sh -c %'";
    assert_eq!(database.number(commands), 4);
}

/// A shard with a process, its command, and an ending of both; returns its path.
fn write_shard(
    run: &RunFolder,
    config: &SyntheticRun,
    rank: u32,
    traced: bool,
    exit: Option<ProcessExit>,
) -> PathBuf {
    let plan = config.plan();
    let mut shard = ShardWriter::new(Vec::new(), &run_identity(&plan, rank)).unwrap();
    let process = Process { exit, ..process_record(&plan, &plan.ranks[rank as usize].processes[0]) };
    plan.clock_sets(&plan.ranks[rank as usize]).iter().for_each(|set| shard.clock(set).unwrap());
    shard.command(&Process { source: COMMAND_SOURCE, ..process.clone() }).unwrap();
    if traced {
        shard.process(&process).unwrap();
    }
    let bytes = if exit.is_some() { shard.finish().unwrap() } else { shard.unwritten().1.to_vec() };
    fs::write(run.shard(rank), bytes).unwrap();
    run.shard(rank)
}

#[test]
fn a_job_that_was_stopped_is_one_line_and_a_collector_that_was_killed_names_its_command() {
    let config = SyntheticRun { nodes: 1, ranks_per_node: 14, events_per_rank: 0, ..SyntheticRun::default() };
    let run = RunFolder::new(&config);
    for rank in 0..13 {
        let exit = [ProcessExit::Code(0), ProcessExit::Signal(15), ProcessExit::Signal(6)];
        write_shard(
            &run,
            &config,
            rank,
            true,
            Some(exit[if rank == 0 { 0 } else { 1 + usize::from(rank == 12) }]),
        );
    }
    let killed = write_shard(&run, &config, 13, false, None);
    let (summary, database) = merged(&run.path);
    let line = "rank 0 exit code 0; ranks 1-11 signal 15 (SIGTERM); rank 12 signal 6 (SIGABRT)";
    assert_eq!(lines(&summary, "ended"), [line], "{summary}");
    assert_eq!(lines(&summary, "died"), Vec::<String>::new(), "{summary}");
    let warning = format!(
        "warning: rank 13: its collector still records or was killed before it recorded a call: {} has the start of the command alone; \
         the log beside it may contain the reason",
        killed.display()
    );
    assert!(summary.lines().any(|text| text == warning), "{summary}");
    let last = "SELECT json_extract(extdata, '$.rpd.rank'), json_extract(extdata, '$.rpd.exit') FROM rocpd_info_process
        ORDER BY id DESC LIMIT 1";
    assert_eq!(database.rows(last), [["13", "NULL"]]);
    let inspected = rpd_merge().arg("inspect").arg(run.shard(12)).run().success();
    let command = inspected.stdout.lines().find(|line| line.starts_with("command    pid "));
    assert!(command.is_some_and(|line| line.ends_with("(died by signal 6 (SIGABRT))")), "{inspected}");
}
