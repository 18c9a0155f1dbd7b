//! Backends that can run together, those that cannot, and the tracer of rocmProfileData.

use super::{Rocm, is_in, rows, runs_as_ever};
use crate::support::{exit_code, run};
use rpd_shard::Shard;
use rpd_shard::record::ProcessExit;
use std::process::Command;

#[test]
fn interposers_of_the_same_calls_are_refused_with_the_reason() {
    let Some(rocm) = Rocm::new(&["rocprofv3"]) else { return };
    for (options, words) in [
        (&["--backend", "rocprofv3,native"][..], ["roctx", "--trace mpi,rccl,system"]),
        (&["--backend", "rocprofv3,rpd-tracer"], ["cannot run together", "rocprofv3 and rpd-tracer"]),
        (&["--backend", "rocprof"], ["CSV", "rocprofv3"]),
        (&["--backend", "none,torch"], ["cannot be combined", "none"]),
    ] {
        let output = run(rocm.collect().args(options).args(["--", "touch", "ran"]));
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(exit_code(&output), 2, "{stderr}");
        assert!(words.iter().all(|word| stderr.contains(word)), "{stderr}");
        assert!(!rocm.bench.path("ran").exists());
    }
}

#[test]
fn a_variable_that_makes_no_sense_stops_no_job() {
    let Some(rocm) = Rocm::new(&["rocprofv3"]) else { return };
    let stderr = runs_as_ever(rocm.collect().env("RANK", "0").env("RPD_BACKEND", "rocprof"));
    assert!(stderr.contains("RPD_BACKEND") && rocm.calls().is_empty(), "{stderr}");
    // If both would count the same calls, only the profiler does.
    let stderr = runs_as_ever(rocm.collect().env("RANK", "0").env("RPD_BACKEND", "rocprofv3,native"));
    assert!(
        stderr.contains("RPD_BACKEND") && stderr.contains("native leaves it to the profiler"),
        "{stderr}"
    );
    assert_eq!(rocm.calls().len(), 1, "{stderr}");
}

#[test]
fn native_leaves_nothing_to_a_profiler_that_is_not_there() {
    let traced = |tools: &[&str]| {
        let rocm = Rocm::new(tools)?;
        let collect =
            rocm.collect().env("RPD_BACKEND", "rocprofv3,native").args(["--", "env"]).output().unwrap();
        let environment = String::from_utf8_lossy(&collect.stdout).into_owned();
        let line = environment.lines().find(|line| line.starts_with("RPD_TRACE="));
        Some(line.unwrap_or_default().to_owned())
    };
    let (Some(there), Some(gone)) = (traced(&["rocprofv3"]), traced(&[])) else { return };
    assert!(there.contains("mpi") && !there.contains("roctx"), "{there}");
    assert!(gone.contains("mpi") && gone.contains("roctx"), "{gone}");
}

#[test]
fn native_records_mpi_beside_rocprofv3() {
    let Some(rocm) = Rocm::new(&["rocprofv3"]) else { return };
    runs_as_ever(rocm.collect().args(["--backend", "rocprofv3,native", "--trace", "mpi"]));
    assert_eq!(rocm.shards("rocprofv3").len(), 1, "{}", rocm.log());
    let preloaded = |backends: &str| {
        let output = run(rocm.collect().args(["--backend", backends, "--trace", "mpi", "--", "env"]));
        let environment = String::from_utf8_lossy(&output.stdout).into_owned();
        let line = environment.lines().find(|line| line.starts_with("LD_PRELOAD="));
        line.is_some_and(|line| line.contains("librpd_intercept.so"))
    };
    assert!(preloaded("rocprofv3,native"));
    assert!(!preloaded("rocprofv3"));
}

#[test]
fn none_leaves_identity_and_clocks() {
    let Some(rocm) = Rocm::new(&[]) else { return };
    runs_as_ever(rocm.collect().args(["--backend", "none"]));
    let shard = Shard::open(&rocm.bench.path("out/run/rank-00003.rpdshard")).unwrap();
    let process = &shard.processes[&1];
    assert_eq!(
        (process.rank, process.exit, shard.clocks.len() >= 2),
        (Some(3), Some(ProcessExit::Code(7)), true)
    );
    assert_eq!(shard.blocks().iter().map(|block| block.header.rows).sum::<u32>(), 0);
    assert_eq!(rocm.log(), "");
}

#[test]
fn auto_says_what_it_chose_and_why() {
    let Some(rocm) = Rocm::new(&["rocprofv3"]) else { return };
    runs_as_ever(rocm.collect().env("RPD_GPU_DEVICE", "/nowhere").args(["--backend", "auto"]));
    assert!(rocm.log().contains("backend auto: native, since "), "{}", rocm.log());
}

/// Returns rpd-collect on a node with a GPU, as rank 0 of 4.
fn on_a_gpu(rocm: &Rocm) -> Command {
    let device = rocm.bench.path("kfd");
    std::fs::write(&device, "").unwrap();
    let mut command = rocm.collect();
    command.env("RPD_GPU_DEVICE", device).env("RANK", "0");
    command
}

/// Returns what rpd-collect itself prints.
fn own_lines(stderr: &str) -> Vec<String> {
    let own = stderr.lines().filter_map(|line| line.strip_prefix("rpd-collect: "));
    own.map(str::to_owned).collect()
}

#[test]
fn auto_records_the_gpu_by_rocprofv3_and_the_rest_by_native_each_once() {
    let Some(rocm) = Rocm::new(&["rocprofv3"]) else { return };
    let device = rocm.bench.path("kfd").display().to_string();
    let stderr = runs_as_ever(&mut on_a_gpu(&rocm));
    let line = format!(
        "recording GPU work and roctx with rocprofv3 ({device} is there), MPI and RCCL calls and system metrics with native"
    );
    assert_eq!(own_lines(&stderr), std::slice::from_ref(&line));
    let log = std::fs::read_to_string(rocm.bench.path("out/run/rank-00000.log")).unwrap();
    assert!(log.contains(&line), "{log}");
    let (words, _) = rocm.calls().remove(0);
    for traced in
        ["--hip-runtime-trace", "--kernel-trace", "--memory-copy-trace", "--marker-trace", "--kfd-trace"]
    {
        assert!(words.iter().any(|word| word == traced), "{traced}: {words:?}");
    }
    assert!(
        !words.iter().any(|word| ["--rccl-trace", "--runtime-trace"].contains(&word.as_str())),
        "{words:?}"
    );
    // One of four ranks prints it.
    assert_eq!(own_lines(&runs_as_ever(on_a_gpu(&rocm).env("RANK", "3"))), [""; 0]);
    assert!(rocm.log().contains("recording GPU work and roctx with rocprofv3"), "{}", rocm.log());
    assert_eq!(traced_by_native(&mut on_a_gpu(&rocm)), "mpi,rccl");
}

/// Returns what native records in the command.
fn traced_by_native(collect: &mut Command) -> String {
    let output = run(collect.args(["--", "env"]));
    let environment = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = environment.lines().find_map(|line| line.strip_prefix("RPD_TRACE="));
    assert!(environment.contains("librpd_intercept.so"), "{environment}");
    line.unwrap_or_default().to_owned()
}

#[test]
fn native_records_everything_where_auto_cannot_use_the_profiler() {
    for (tools, wrong, why) in [
        (&[][..], "", "is there, and no rocprofv3 in PATH"),
        (
            &["rocprofv3"],
            "help-fails",
            "rocprofv3 --help fails or does not respond; check that it runs on this node",
        ),
        (
            &["rocprofv3"],
            "no-help",
            "rocprofv3 --help fails or does not respond; check that it runs on this node",
        ),
    ] {
        let Some(rocm) = Rocm::new(tools) else { return };
        let collect = || {
            let mut command = on_a_gpu(&rocm);
            command.env("ROCM_PATH", "/nowhere").env("STAND_IN", wrong).args(["--backend-wait", "1"]);
            command
        };
        let lines = own_lines(&runs_as_ever(&mut collect()));
        let [line] = &lines[..] else { panic!("{wrong}: {lines:?}") };
        let wanted = "recording roctx, MPI and RCCL calls and system metrics with native, and no GPU work: ";
        let line = if tools.is_empty() { Some(line.as_str()) } else { line.strip_prefix("warning: ") };
        let reason = line.and_then(|line| line.strip_prefix(wanted)).unwrap_or_else(|| panic!("{lines:?}"));
        assert!(reason.contains(why), "{reason}");
        assert!(rocm.calls().is_empty() && rocm.left().is_empty());
        assert_eq!(traced_by_native(&mut collect()), "roctx,mpi,rccl");
    }
}

#[test]
fn native_records_roctx_too_where_the_profiler_does_not_start_the_command() {
    let Some(rocm) = Rocm::new(&["rocprofv3"]) else { return };
    for wrong in ["fails", "hangs"] {
        let mut command = on_a_gpu(&rocm);
        command.env("STAND_IN", wrong).args(["--backend-wait", "1"]);
        assert_eq!(traced_by_native(&mut command), "roctx,mpi,rccl", "{wrong}");
    }
}

#[test]
fn what_arguments_have_the_profiler_record_native_leaves_to_it() {
    let Some(rocm) = Rocm::new(&["rocprofv3"]) else { return };
    for (argument, native) in
        [("--runtime-trace", "mpi"), ("--rccl-trace", "roctx,mpi"), ("--kernel-trace", "roctx,mpi,rccl")]
    {
        let option = format!("--backend-arg={argument}");
        assert_eq!(traced_by_native(on_a_gpu(&rocm).arg(&option)), native, "{argument}");
    }
    let mut command = on_a_gpu(&rocm);
    assert_eq!(
        traced_by_native(command.args(["--backend", "rocprofv3,native", "--trace", "mpi,rccl"])),
        "mpi,rccl"
    );
}

#[test]
fn what_native_records_is_native_and_without_it_that_is_said() {
    let Some(rocm) = Rocm::new(&["rocprofv3"]) else { return };
    let stderr = runs_as_ever(on_a_gpu(&rocm).args(["--trace", "mpi"]));
    assert_eq!(own_lines(&stderr), [""; 0]);
    assert!(rocm.calls().is_empty(), "auto does not leave out what --trace asks for");
    runs_as_ever(rocm.collect().args(["--backend", "rocprofv3", "--trace", "mpi"]));
    assert!(rocm.log().contains("add native to --backend"), "{}", rocm.log());
}

#[test]
fn the_file_of_the_rpd_tracer_becomes_a_shard() {
    let Some(rocm) = Rocm::new(&[]) else { return };
    let _ = rocm.bench.library_of("rocm/lib/librpd_tracer.so", "int rpd_stand_in;");
    // The program is a stand-in for the tracer inside it.
    let program = r#"
import os, sqlite3
rpd = sqlite3.connect(os.environ["RPDT_FILENAME"])
for statement in [
    "TABLE rocpd_metadata (id INTEGER PRIMARY KEY AUTOINCREMENT, tag TEXT NOT NULL, value TEXT NOT NULL)",
    "TABLE rocpd_string (id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, string TEXT NOT NULL)",
    "TABLE rocpd_api (id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, pid INTEGER, tid INTEGER, start INTEGER, end INTEGER,"
    " apiName_id INTEGER, args_id INTEGER)",
    "TABLE rocpd_op (id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, gpuId INTEGER, queueId INTEGER, sequenceId INTEGER,"
    " completionSignal TEXT, start INTEGER, end INTEGER, description_id INTEGER, opType_id INTEGER)",
    "TABLE rocpd_api_ops (id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, api_id INTEGER, op_id INTEGER)",
]:
    rpd.execute("CREATE " + statement.replace(" end ", ' "end" '))
rpd.execute("INSERT INTO rocpd_metadata (tag, value) VALUES ('schema_version', '2')")
rpd.execute("INSERT INTO rocpd_string VALUES (1, ''), (2, 'hipMalloc')")
for i in range(9):
    row = (os.getpid(), os.getpid(), 1000 + i, 1001 + i)
    rpd.execute("INSERT INTO rocpd_api VALUES (NULL, ?, ?, ?, ?, 2, 1)", row)
rpd.commit()
"#;
    std::fs::write(rocm.bench.path("program.py"), program).unwrap();
    let output = run(rocm.collect().args(["--backend", "rpd-tracer", "--", "python3", "program.py"]));
    assert_eq!(exit_code(&output), 0, "{}", String::from_utf8_lossy(&output.stderr));
    let shards = rocm.shards("rpd-tracer");
    let [shard] = &shards[..] else { panic!("{}", rocm.log()) };
    assert_eq!(rows(shard, rpd_shard::model::rocpd::REGION), 9);
    let process = &shard.processes[&1];
    assert_eq!((process.rank, process.worker), (Some(3), false));
    assert!(rocm.left().is_empty());
}

#[test]
fn ranks_that_are_not_recorded_run_without_a_profiler() {
    let Some(rocm) = Rocm::new(&["rocprofv3"]) else { return };
    runs_as_ever(rocm.collect().args(["--backend", "rocprofv3", "--ranks", "0-2"]));
    assert!(rocm.calls().is_empty() && rocm.left().is_empty());
    assert!(!rocm.bench.path("out/run/rank-00003.rpdshard").exists());
}

#[test]
fn the_rpd_tracer_is_preloaded_behind_roctx_with_a_file_of_its_own() {
    let Some(rocm) = Rocm::new(&[]) else { return };
    // The library of the stand-in writes nothing: the test checks how it is loaded.
    let tracer = rocm.bench.library_of("rocm/lib/librpd_tracer.so", "int rpd_stand_in;");
    let roctx = rocm.bench.library_of("rocm/lib/librocprofiler-sdk-roctx.so", "int roctx_stand_in;");
    let mut command = rocm.collect();
    command.args(["--backend", "rpd-tracer", "--backend-arg", "RPDT_AUTOSTART=0", "--", "env"]);
    let output = run(&mut command);
    let environment = String::from_utf8_lossy(&output.stdout).into_owned();
    let value = |name: &str| {
        let line = environment.lines().find_map(|line| line.strip_prefix(&format!("{name}=")));
        line.unwrap_or_default().to_owned()
    };
    assert_eq!(value("LD_PRELOAD"), format!("{}:{}", roctx.display(), tracer.display()), "{environment}");
    assert!(is_in(&value("RPDT_FILENAME"), &rocm.scratch), "{environment}");
    assert_eq!(value("RPDT_AUTOSTART"), "0");
    assert!(rocm.log().contains("rpd-tracer wrote no file"), "{}", rocm.log());
}
