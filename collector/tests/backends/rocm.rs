//! rocprofv3 and rocprof-sys.

use super::{CALLS, Rocm, is_in, rows, runs_as_ever};
use crate::support::{exit_code, run, until};
use rpd_shard::Shard;
use rpd_shard::file::BlockKind;
use rpd_shard::model::rocpd::REGION;
use rpd_shard::record::{Clock, LossCause};
use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;

const ROCPROFV3: [&str; 1] = ["rocprofv3"];
const SYSTEMS: [&str; 2] = ["rocprof-sys-sample", "rocprof-sys-avail"];

#[test]
fn rocprofv3_is_called_as_documented_and_its_database_becomes_the_ranks_shard() {
    let Some(rocm) = Rocm::new(&ROCPROFV3) else { return };
    let stderr = runs_as_ever(rocm.collect().args(["--backend", "rocprofv3"]));
    assert_eq!(stderr, "err\n", "nothing is said where all is well");
    let (words, _) = rocm.calls().remove(0);
    let [trace, f, format, d, folder] = &words[..] else { panic!("{words:?}") };
    assert_eq!([trace, f, format, d], ["--runtime-trace", "-f", "rocpd", "-d"]);
    assert!(is_in(folder, &rocm.scratch));
    let shards = rocm.shards("rocprofv3");
    let [shard] = &shards[..] else { panic!("{}", rocm.log()) };
    assert_eq!((rows(shard, REGION), shard.complete(), shard.damage().len()), (CALLS, true, 0));
    let process = &shard.processes[&1];
    assert_eq!(
        (process.rank, process.size, process.worker, process.clock),
        (Some(3), Some(4), false, Clock::Boottime)
    );
    // The node is this one, whatever the file contains.
    assert!(process.domain.boot_id.len() == 36 && !shard.clocks.is_empty(), "{process:?}");
    assert!(shard.clocks.iter().all(|set| set.domain == process.domain));
    assert!(process.command.contains("echo out"), "{}", process.command);
    assert!(rocm.left().is_empty(), "{:?}", rocm.left());
    assert!(rocm.log().contains("rocprofv3 1.0.0, output as rocpd"), "{}", rocm.log());
}

/// Returns the files beside the shards of rank 3 with names that start with this.
fn beside(rocm: &Rocm, begin: &str) -> Vec<String> {
    let entries = std::fs::read_dir(rocm.bench.path("out/run")).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned());
    let mut names: Vec<String> = names.filter(|name| name.starts_with(begin)).collect();
    names.sort();
    names
}

#[test]
fn tables_and_texts_of_a_profiler_come_to_the_shards() {
    let Some(rocm) = Rocm::new(&ROCPROFV3) else { return };
    let mut command = rocm.collect();
    runs_as_ever(command.env("STAND_IN", "tables").args(["--backend", "rocprofv3", "--share", "group"]));
    let names = beside(&rocm, "rank-00003.rocprofv3.");
    let [table, unknown] = &names[..] else { panic!("{names:?}") };
    assert!(table.ends_with("_kernel_stats.csv") && unknown.ends_with("_results.otf2"), "{names:?}");
    let text = std::fs::read_to_string(rocm.bench.path("out/run").join(table)).unwrap();
    assert!(text.starts_with("\"Name\",\"Calls\""), "{text}");
    for name in &names {
        let found = std::fs::metadata(rocm.bench.path("out/run").join(name)).unwrap();
        assert_eq!(found.permissions().mode() & 0o777, 0o600, "{name}");
    }
    assert_eq!(rocm.shards("rocprofv3").len(), 1);
    assert!(rocm.left().is_empty(), "{:?}", rocm.left());
}

/// Returns the files of the run that contain a secret of the stand-in.
fn with_the_secret(rocm: &Rocm) -> Vec<String> {
    let folder = rocm.bench.path("out/run");
    let has_it = |name: &String| {
        let bytes = std::fs::read(folder.join(name)).unwrap();
        bytes.windows(7).any(|found| found == b"hunter2")
    };
    beside(rocm, "").into_iter().filter(has_it).collect()
}

#[test]
fn a_database_of_a_tree_of_processes_becomes_one_shard_with_ranks_and_without_secrets() {
    let Some(rocm) = Rocm::new(&ROCPROFV3) else { return };
    runs_as_ever(rocm.collect().env("STAND_IN", "tree").args(["--backend", "rocprofv3"]));
    let shards = rocm.shards("rocprofv3");
    let [shard] = &shards[..] else { panic!("{}", rocm.log()) };
    let own = Shard::open(&rocm.bench.path("out/run/rank-00003.rpdshard")).unwrap();
    let own = &own.processes[&1];
    let told = shard.processes.values().map(|process| {
        assert_eq!((&process.domain, process.clock, process.size), (&own.domain, Clock::Boottime, Some(4)));
        (process.pid - own.pid, process.rank, process.worker)
    });
    assert_eq!(
        told.collect::<Vec<_>>(),
        [(0, Some(3), false), (1, Some(3), true), (2, Some(3), true)],
        "{}",
        rocm.log()
    );
    let mut calls = BTreeMap::new();
    for block in shard.blocks().iter().filter(|block| block.header.kind == BlockKind::Rows(REGION)) {
        *calls.entry(block.header.source).or_default() += shard.rows(block).unwrap().len;
    }
    assert_eq!(calls, BTreeMap::from([(1, CALLS), (2, CALLS), (3, CALLS)]));
    assert!(shard.processes[&2].command.starts_with("app --token="), "{:?}", shard.processes[&2]);
    assert!(shard.processes.values().all(|process| !process.command.contains("hunter2")));
    assert_eq!(with_the_secret(&rocm), [""; 0]);
    assert!(rocm.left().is_empty(), "{:?}", rocm.left());
}

#[test]
fn a_database_that_is_no_shard_stays_on_the_node_and_is_named() {
    let Some(rocm) = Rocm::new(&ROCPROFV3) else { return };
    runs_as_ever(rocm.collect().env("STAND_IN", "nodes").args(["--backend", "rocprofv3"]));
    assert_eq!((rocm.shards("rocprofv3").len(), rocm.left().len()), (0, 1), "{}", rocm.log());
    let folder = rocm.scratch.join(rocm.left().remove(0));
    for words in
        ["_results.db has processes of several nodes", "can be merged", &folder.display().to_string()]
    {
        assert!(rocm.log().contains(words), "{words}: {}", rocm.log());
    }
    assert_eq!(beside(&rocm, "rank-00003.rocprofv3"), [""; 0]);
    assert_eq!(with_the_secret(&rocm), [""; 0]);
}

#[test]
fn what_tells_the_environment_is_not_copied_whatever_its_name_is() {
    let Some(rocm) = Rocm::new(&ROCPROFV3) else { return };
    runs_as_ever(rocm.collect().env("STAND_IN", "about").args(["--backend", "rocprofv3"]));
    assert_eq!(with_the_secret(&rocm), [""; 0]);
    for name in ["mine.json", "other.json", "torn.db"] {
        assert!(rocm.log().contains(&format!("{name} is not copied")), "{}", rocm.log());
    }
    assert_eq!((rocm.shards("rocprofv3").len(), rocm.left().len()), (1, 1), "{}", rocm.log());
}

#[test]
fn rocm_6_writes_json_and_options_of_the_user_come_in_the_place_of_ours() {
    let Some(rocm) = Rocm::new(&ROCPROFV3) else { return };
    let mut command = rocm.collect();
    command.env("STAND_IN_AGE", "old").args([
        "--backend",
        "rocprofv3",
        "--backend-arg=--hip-trace",
        "--keep-scratch",
    ]);
    runs_as_ever(&mut command);
    let (words, _) = rocm.calls().remove(0);
    assert_eq!(words[..4], ["--hip-trace", "-f", "json", "-d"]);
    let shards = rocm.shards("rocprofv3");
    assert_eq!(shards.iter().map(|shard| rows(shard, REGION)).collect::<Vec<_>>(), [CALLS], "{}", rocm.log());
    assert_eq!(shards[0].processes[&1].rank, Some(3));
    assert_eq!(rocm.left().len(), 1);
    assert!(rocm.log().contains("stays on this node (--keep-scratch)"), "{}", rocm.log());
}

#[test]
fn processes_of_one_rank_have_files_of_their_own() {
    let Some(rocm) = Rocm::new(&ROCPROFV3) else { return };
    runs_as_ever(rocm.collect().env("STAND_IN", "forks").args(["--backend", "rocprofv3"]));
    let shards = rocm.shards("rocprofv3");
    assert_eq!(shards.len(), 4, "{}", rocm.log());
    let mut pids: Vec<i32> = shards.iter().map(|shard| shard.processes[&1].pid).collect();
    pids.dedup();
    assert_eq!(pids.len(), 4);
    let own = shards.iter().filter(|shard| !shard.processes[&1].worker).count();
    assert_eq!(own, 1, "the others are below the rank");
}

#[test]
fn a_profiler_that_does_not_start_the_program_costs_nothing_but_its_trace() {
    let Some(rocm) = Rocm::new(&ROCPROFV3) else { return };
    for (wrong, wait, why) in
        [("fails", "60", "ended before it started the command"), ("hangs", "1", "within 1 s")]
    {
        let mut command = rocm.collect();
        command.env("STAND_IN", wrong).args(["--backend", "rocprofv3", "--backend-wait", wait]);
        let stderr = runs_as_ever(&mut command);
        // Rank 0 prints it, this one is rank 3.
        assert!(!stderr.contains(why) && rocm.log().contains("--backend native"), "{wrong}: {stderr}");
        // Its log contains nothing wrong.
        assert!(rocm.log().contains(why) && rocm.log().contains("rocprofv3 did not run"), "{}", rocm.log());
        assert!(!rocm.log().contains("wrote no file") && rocm.left().is_empty(), "{}", rocm.log());
    }
}

#[test]
fn what_is_not_written_or_cut_is_told_and_what_is_whole_is_kept() {
    let Some(rocm) = Rocm::new(&ROCPROFV3) else { return };
    runs_as_ever(rocm.collect().env("STAND_IN", "silent").args(["--backend", "rocprofv3"]));
    assert!(
        rocm.log().contains("warning: rocprofv3 wrote no file: the program ended with status 7"),
        "{}",
        rocm.log()
    );
    runs_as_ever(rocm.collect().env("STAND_IN", "cut").args(["--backend", "rocprofv3"]));
    assert!(rocm.log().contains("the file is cut"), "{}", rocm.log());
    let shards = rocm.shards("rocprofv3");
    let [shard] = &shards[..] else { panic!("{}", rocm.log()) };
    assert!(rows(shard, REGION) > CALLS);
    let ledger = shard.ledger.as_ref().unwrap();
    assert!(ledger.losses.iter().any(|loss| loss.cause == LossCause::Truncated), "{ledger:?}");
}

#[test]
fn an_early_signal_lets_the_profiler_write() {
    let Some(rocm) = Rocm::new(&ROCPROFV3) else { return };
    let mut command = rocm.collect();
    command.args([
        "--backend",
        "rocprofv3",
        "--",
        "python3",
        "-c",
        "import time; open('here', 'w').close(); time.sleep(60)",
    ]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    until("the program", || rocm.bench.path("here").exists());
    crate::support::kill(child.id(), 10);
    let output = crate::support::wait(child);
    assert_eq!(exit_code(&output), -15, "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(rocm.shards("rocprofv3").iter().map(|shard| rows(shard, REGION)).sum::<usize>(), CALLS);
}

/// `module` of a site is such a function.
#[test]
fn functions_that_bash_has_exported_reach_the_program() {
    let Some(rocm) = Rocm::new(&ROCPROFV3) else { return };
    let read = "import os; print(os.environ.get('BASH_FUNC_module%%'))";
    let mut command = rocm.collect();
    command.args(["--backend", "rocprofv3", "--", "python3", "-c", read]);
    let output = run(command.env("BASH_FUNC_module%%", "() {  :\n}"));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "() {  :\n}\n");
}

#[test]
fn a_shell_can_trap_what_a_batch_system_sends() {
    let Some(rocm) = Rocm::new(&ROCPROFV3) else { return };
    let script = "trap 'echo trapped; exit 5' USR1; echo ready > here; while :; do sleep 0.05; done";
    let mut command = rocm.collect();
    command.args(["--backend", "rocprofv3", "--", "sh", "-c", script]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    until("the program", || rocm.bench.path("here").exists());
    // As a batch system does: signals every process of the step.
    let pid = super::command(&rocm);
    crate::support::kill(pid, 10);
    let output = crate::support::wait(child);
    assert_eq!((exit_code(&output), &output.stdout[..]), (5, &b"trapped\n"[..]));
}

#[test]
fn rocprof_sys_is_set_up_by_variables_and_named_in_the_words_of_its_release() {
    let Some(rocm) = Rocm::new(&SYSTEMS) else { return };
    let config = rocm.bench.path("my.cfg");
    std::fs::write(&config, "ROCPROFSYS_PROFILE = OFF\n").unwrap();
    for (age, words, rocpd) in
        [("new", "rocm amd-smi", Some("ON")), ("old", "roctracer rocprofiler roctx rocm-smi", None)]
    {
        let mut command = rocm.collect();
        command.env("STAND_IN_AGE", age).args(["--backend", "rocprof-sys", "--backend-config"]).arg(&config);
        command.args(["--backend-arg=-I", "--backend-arg=rocm", "--backend-arg=amd-smi"]);
        runs_as_ever(&mut command);
        let (called, variables) = rocm.calls().pop().unwrap();
        let expected: Vec<&str> =
            ["-c", config.to_str().unwrap(), "-I"].into_iter().chain(words.split(' ')).collect();
        assert_eq!(called, expected);
        assert!(is_in(variables["ROCPROFSYS_OUTPUT_PATH"].as_str().unwrap(), &rocm.scratch));
        for (name, value) in [("TIME_OUTPUT", "OFF"), ("USE_PID", "ON"), ("PERFETTO_BACKEND", "inprocess")] {
            assert_eq!(variables[format!("ROCPROFSYS_{name}")], value, "{name}");
        }
        assert_eq!(
            variables["ROCPROFSYS_USE_ROCPD"].as_str(),
            rocpd,
            "a setting that the release does not have"
        );
    }
    // A Perfetto trace of the old release. Of the new one the database, without a second copy of it.
    let shards = rocm.shards("rocprof-sys");
    assert_eq!(
        shards.iter().map(|shard| rows(shard, REGION)).collect::<Vec<_>>(),
        [CALLS, CALLS],
        "{}",
        rocm.log()
    );
    assert!(shards.iter().all(|shard| shard.processes[&1].rank == Some(3) && !shard.processes[&1].worker));
}
