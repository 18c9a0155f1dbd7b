//! A collector that is killed in its first moments leaves a shard that names its rank, at any such moment.

use crate::support;
use rpd_shard::Shard;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use support::{Bench, TIME_LIMIT, exit_code, run, wait};

/// `rpd-collect` as rank 3 of 4.
fn rank_3(bench: &Bench) -> Command {
    let mut command = bench.collect();
    command.env("PMI_RANK", "3").env("PMI_SIZE", "4");
    command
}

fn shard_of_rank_3(bench: &Bench) -> PathBuf {
    bench.path("out/run/rank-00003.rpdshard")
}

#[test]
fn a_shard_has_its_header_before_the_command_starts() {
    let Some(bench) = Bench::new() else { return };
    for (command, shard) in [(rank_3(&bench), shard_of_rank_3(&bench)), (bench.collect(), bench.shard_path())]
    {
        let mut command = command;
        // The command copies the shard in its current state.
        let output = run(command.args(["--", "cp"]).arg(&shard).arg(bench.path("copy")));
        assert_eq!((exit_code(&output), output.stdout.len()), (0, 0), "{output:?}");
        let early = Shard::open(&bench.path("copy")).unwrap();
        assert!(!early.complete() && early.identity.run_id == "run", "{early:?}");
        assert_eq!(early.identity.rank.unwrap_or(0), if shard == bench.shard_path() { 0 } else { 3 });
    }
    for shard in [shard_of_rank_3(&bench), bench.shard_path()] {
        assert!(Shard::open(&shard).unwrap().complete());
    }
}

/// Returns the collector below a process, as soon as there is one.
fn collector_below(pid: u32) -> u32 {
    let began = Instant::now();
    loop {
        let children =
            std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
        let is_collector = |child: &&str| {
            let line = std::fs::read(format!("/proc/{child}/cmdline")).unwrap_or_default();
            line.ends_with(b"__collect\0")
        };
        if let Some(child) = children.split_whitespace().find(is_collector) {
            return child.parse().unwrap();
        }
        assert!(began.elapsed() < TIME_LIMIT, "no collector");
    }
}

#[test]
fn a_collector_that_is_killed_at_any_moment_leaves_its_rank() {
    let Some(bench) = Bench::new() else { return };
    let source = r#"
int main(void) {
    for (int i = 0; i < 200; i++) { roctxMarkA("mark"); usleep(1000); }
    while (access("killed", F_OK)) usleep(1000);
    write(1, "done\n", 5);
    return 7;
}
"#;
    let program = bench.program("marks", source);
    for delay in [0, 1, 2, 4, 8, 16, 50, 150] {
        let mut command = rank_3(&bench);
        command.arg("--").arg(&program).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn().unwrap();
        let collector = collector_below(child.id());
        std::thread::sleep(Duration::from_millis(delay));
        let pid = rustix::process::Pid::from_raw(collector as i32).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        // The command does not end before: on a busy machine the collector may appear late.
        std::fs::write(bench.path("killed"), "").unwrap();
        let output = wait(child);
        assert_eq!(
            (exit_code(&output), output.stdout.as_slice()),
            (7, b"done\n".as_slice()),
            "{delay}: {output:?}"
        );
        let shard =
            Shard::open(&shard_of_rank_3(&bench)).unwrap_or_else(|error| panic!("{delay} ms: {error}"));
        assert_eq!((shard.identity.rank, shard.identity.size), (Some(3), Some(4)), "{delay} ms");
        assert!(!shard.complete(), "{delay} ms");
        std::fs::remove_dir_all(bench.path("out")).unwrap();
        std::fs::remove_file(bench.path("killed")).unwrap();
    }
}

#[test]
fn a_command_that_is_not_there_leaves_no_shard_of_its_rank() {
    let Some(bench) = Bench::new() else { return };
    assert_eq!(exit_code(&run(rank_3(&bench).args(["--", "no-such-command"]))), 127);
    assert!(!bench.path("out").exists());
    std::fs::create_dir(bench.path("out")).unwrap();
    assert_eq!(exit_code(&run(bench.collect().args(["--", "no-such-command"]))), 127);
    assert_eq!(std::fs::read_dir(bench.path("out")).unwrap().count(), 0, "but the user's folder stays");
}

#[test]
fn a_rank_that_is_not_recorded_has_no_shard_at_any_time() {
    let Some(bench) = Bench::new() else { return };
    let shard = shard_of_rank_3(&bench);
    let output = run(rank_3(&bench).args(["--ranks", "0-2", "--", "ls"]).arg(&shard));
    assert_eq!(exit_code(&output), 2, "{output:?}");
    assert!(!shard.exists());
}
