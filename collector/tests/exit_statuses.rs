//! Every shard names the command of its collector and how it ended, traced or not.

use crate::support;
use rpd_shard::Shard;
use rpd_shard::record::{Process, ProcessExit};
use std::os::unix::fs::MetadataExt;
use support::{Bench, below, exit_code, kill, run, until};

/// Runs a shell script under rpd-collect, with some options. Returns the command that its shard names.
fn command_of(bench: &Bench, options: &[&str], script: &str) -> Process {
    let _ = std::fs::remove_dir_all(bench.path("out"));
    run(bench.collect().args(options).args(["--", "sh", "-c", script]));
    let shard = Shard::open(&bench.shard_path()).unwrap();
    assert!(shard.complete() && shard.processes.is_empty() && shard.damage().is_empty());
    *shard.command.unwrap()
}

#[test]
fn a_command_in_which_nothing_is_recorded_leaves_its_exit_status() {
    let Some(bench) = Bench::new() else { return };
    let ends = [
        ("exit 0", ProcessExit::Code(0)),
        ("exit 3", ProcessExit::Code(3)),
        ("kill -9 $$", ProcessExit::Signal(9)),
    ];
    for (script, exit) in ends {
        let command = command_of(&bench, &[], script);
        assert_eq!(command.exit, Some(exit), "{script}");
        assert_eq!(command.command, format!("sh -c {script}"));
        assert!(command.pid > 0 && command.last_seen.is_some_and(|end| end >= command.first_seen));
        assert!(!command.node.hostname.is_empty() && !command.worker && command.rank.is_none());
    }
    let command = command_of(&bench, &[], ": --password=geheim; exit 1");
    assert!(!command.command.contains("geheim"), "{command:?}");
    assert_eq!(command_of(&bench, &["--trace", "none"], "exit 4").exit, Some(ProcessExit::Code(4)));
}

#[test]
fn a_static_program_leaves_its_exit_status() {
    let Some(bench) = Bench::new() else { return };
    let source = bench.path("seven.c");
    std::fs::write(&source, "int main(void) { return 7; }\n").unwrap();
    let program = bench.path("static");
    let built = std::process::Command::new("cc").args(["-static", "-o"]).arg(&program).arg(&source).output();
    if !built.is_ok_and(|built| built.status.success()) {
        return eprintln!("skipped: no program can be linked with -static here");
    }
    run(bench.collect().env("PMI_RANK", "0").env("PMI_SIZE", "1").arg("--").arg(&program));
    let command = bench.trace().shard.command.unwrap();
    assert_eq!((command.exit, command.rank), (Some(ProcessExit::Code(7)), Some(0)));
}

#[test]
fn a_traced_command_has_its_exit_status_in_both_places() {
    let Some(bench) = Bench::new() else { return };
    let program = bench.program("mark", r#"int main(void) { roctxMarkA("here"); return 5; }"#);
    assert_eq!(exit_code(&bench.run(&program, &[])), 5);
    let shard = bench.trace().shard;
    let (command, process) = (shard.command.unwrap(), &shard.processes[&1]);
    assert_eq!((command.exit, process.exit), (Some(ProcessExit::Code(5)), Some(ProcessExit::Code(5))));
    assert_eq!(command.pid, process.pid);
}

#[test]
fn a_collector_that_is_killed_leaves_the_start_of_the_command() {
    let Some(bench) = Bench::new() else { return };
    let mut running = bench.collect().args(["--", "sleep", "600"]).spawn().unwrap();
    let started = || Shard::open(&bench.shard_path()).is_ok_and(|shard| shard.command.is_some());
    until("the shard names the command", started);
    let below = below(running.id());
    kill(below.collector, 9);
    kill(below.command, 15);
    running.wait().unwrap();
    let shard = Shard::open(&bench.shard_path()).unwrap();
    assert!(!shard.complete());
    let command = shard.command.unwrap();
    assert_eq!((command.command.as_str(), command.exit), ("sleep 600", None));
}

#[test]
fn neither_a_command_that_does_not_start_nor_a_rank_that_is_left_out_leaves_a_shard() {
    let Some(bench) = Bench::new() else { return };
    assert_eq!(exit_code(&run(bench.collect().args(["--", "no-such-program"]))), 127);
    assert!(!bench.path("out").exists());
    run(bench.collect().env("PMI_RANK", "0").env("PMI_SIZE", "9").args(["--ranks", "1", "--", "true"]));
    assert!(!bench.shard_path().exists());
}

#[test]
fn only_what_was_to_be_recorded_is_said_to_be_missing() {
    let Some(bench) = Bench::new() else { return };
    let said = |options: &[&str], seconds: &str| {
        let _ = std::fs::remove_dir_all(bench.path("out"));
        let output = run(bench.collect().args(options).args(["--", "sleep", seconds]));
        assert_eq!(exit_code(&output), 0);
        String::from_utf8(output.stderr).unwrap()
    };
    assert_eq!(said(&["--trace", "system"], "2.5"), "", "the metrics are there");
    let early = said(&["--trace", "system"], "0");
    // On a busy machine it may have been slower than the first check.
    let is_early =
        early.ends_with("the command ended before the system metrics were read for the first time\n");
    assert!(is_early || early.is_empty(), "{early}");
    let beside = said(&[], "2.5");
    assert!(beside.contains("nothing was recorded beside system metrics: no roctx, MPI or RCCL"), "{beside}");
    assert!(beside.ends_with("to record GPU kernels, add --backend rocprofv3\n"), "{beside}");
    let none = said(&["--trace", "none"], "0");
    assert!(none.ends_with("nothing was recorded: no kind of call was to be recorded\n"), "{none}");
    let shard = std::fs::metadata(bench.shard_path()).unwrap();
    assert!(shard.size() < 4_096, "a shard with nothing but its end has {} bytes", shard.size());
}
