//! An output folder that cannot be written: one warning for the job, or no job with `--require`.

use crate::support;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Instant;
use support::{Bench, exit_code, run};

/// `rpd-collect` as a rank of four, with a file where the output folder should be.
fn rank(bench: &Bench, rank: u32, options: &[&str]) -> Output {
    std::fs::write(bench.path("out"), "in the way").unwrap();
    let mut command = bench.collect();
    command.env("PMI_RANK", rank.to_string()).env("PMI_SIZE", "4").args(options);
    run(command.args(["--", "sh", "-c", "echo ran; exit 5"]))
}

fn stderr(output: &Output) -> &str {
    std::str::from_utf8(&output.stderr).unwrap()
}

#[test]
fn one_rank_prints_it_for_all_and_the_command_runs() {
    let Some(bench) = Bench::new() else { return };
    let first = rank(&bench, 0, &[]);
    assert_eq!((exit_code(&first), first.stdout.as_slice()), (5, b"ran\n".as_slice()));
    let line = format!(
        "rpd-collect: warning: failed to create the folder {}/run: Not a directory (os error 20); choose another folder with -o DIR or RPD_OUTPUT; nothing of this run is recorded\n",
        bench.path("out").display()
    );
    assert_eq!(stderr(&first), line);
    let second = rank(&bench, 1, &[]);
    assert_eq!((exit_code(&second), stderr(&second)), (5, ""));
    // The first recorded rank prints the warning; the others need no folder.
    let chosen = rank(&bench, 2, &["--ranks", "2-3"]);
    assert_eq!((exit_code(&chosen), stderr(&chosen)), (5, line.as_str()));
    assert!(!stderr(&rank(&bench, 0, &["--ranks", "2-3"])).contains("warning"));
}

#[test]
fn required_recording_starts_no_command_without_a_place() {
    let Some(bench) = Bench::new() else { return };
    let first = rank(&bench, 0, &["--require"]);
    assert_eq!((exit_code(&first), first.stdout.len()), (125, 0));
    assert!(stderr(&first).starts_with("rpd-collect: error: failed to create the folder "), "{first:?}");
    assert!(stderr(&first).ends_with("; the command is not started, as --require demands\n"), "{first:?}");
    // Other ranks give the first one the time to end the job. They print if the job continues.
    let began = Instant::now();
    let second = rank(&bench, 1, &["--require"]);
    assert_eq!((exit_code(&second), second.stdout.len(), stderr(&second)), (125, 0, stderr(&first)));
    assert!(began.elapsed().as_secs() >= 5, "{:?}", began.elapsed());
    std::fs::remove_file(bench.path("out")).unwrap();
    let mut command = bench.collect();
    assert_eq!(exit_code(&run(command.args(["--require", "--", "sh", "-c", "exit 5"]))), 5);
}

#[test]
fn four_ranks_of_mpirun_print_one_line() {
    let Some(bench) = Bench::new() else { return };
    let version = Command::new("mpirun").arg("--version").output();
    if !version.is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: no mpirun");
        return;
    }
    std::fs::write(bench.path("out"), "in the way").unwrap();
    for (options, line, ran) in
        [(&[][..], "nothing of this run is recorded", 4), (&["--require"][..], "not started", 0)]
    {
        let mut command = Command::new("mpirun");
        let collect = bench.collect();
        bench.like_collect(&mut command).args(["-n", "4"]);
        for name in ["OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"] {
            command.env(name, "1");
        }
        command.env("PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe");
        command.env("OMPI_MCA_rmaps_base_oversubscribe", "1");
        command.arg(collect.get_program()).args(collect.get_args()).args(options);
        let output = run(command.args(["--", "echo", "ran"]));
        let text = format!("{}{}", stderr(&output), String::from_utf8_lossy(&output.stdout));
        let ours = text.lines().filter(|text| text.contains("rpd-collect: ")).count();
        assert_eq!((ours, text.matches(line).count()), (1, 1), "{text}");
        assert_eq!(text.lines().filter(|text| text.trim() == "ran").count(), ran, "{text}");
    }
}

/// Obstacles: their name in the warning, and how to create them.
type MakeTrap = (&'static str, fn(&Path));

#[test]
fn a_merge_that_cannot_be_asked_for_is_one_warning() {
    let Some(bench) = Bench::new() else { return };
    let wanted = bench.path("out/run/merge.wanted");
    let make: [MakeTrap; 3] = [
        ("a symbolic link", |path| std::os::unix::fs::symlink("elsewhere", path).unwrap()),
        ("a FIFO, a socket or a device", |path| {
            assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
        }),
        ("a file of user 60001", |path| {
            std::fs::write(path, "").unwrap();
            // Without root it remains a file of this user, which requests a merge.
            let _ = std::os::unix::fs::chown(path, Some(60_001), None);
        }),
    ];
    for (what, make) in make {
        std::fs::create_dir_all(bench.path("out/run")).unwrap();
        make(&wanted);
        let is_own =
            std::fs::symlink_metadata(&wanted).is_ok_and(|found| found.is_file() && found.uid() != 60_001);
        let mut command = bench.collect();
        command.env("PMI_RANK", "0").env("PMI_SIZE", "1").args(["--ask-merge", "--", "sh", "-c", "exit 6"]);
        let output = run(&mut command);
        let stderr = String::from_utf8(output.stderr.clone()).unwrap();
        assert_eq!(exit_code(&output), 6, "{stderr}");
        let log = bench.log();
        let line = format!(
            "warning: failed to create {}: {what} has that name; remove it; the site is not asked for a merge\n",
            wanted.display()
        );
        let expected = usize::from(!is_own);
        assert_eq!(log.matches(&line).count(), expected, "{what}: {log}");
        assert_eq!(stderr.matches("1 warning about this run").count(), expected, "{stderr}");
        std::fs::remove_dir_all(bench.path("out")).unwrap();
    }
    assert!(!bench.path("out/run/elsewhere").exists());
}
