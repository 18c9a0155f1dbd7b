//! `rpd-collect doctor` finds problems, does not run the command, and leaves no files.

use crate::support;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output};
use support::{Bench, exit_code, run};

/// Returns `rpd-collect doctor` in the folder of the bench, without the variables of this machine's
/// launchers.
fn doctor(bench: &Bench) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rpd-collect"));
    bench.like_collect(&mut command).args(["doctor", "-o"]).arg(bench.path("out"));
    command
}

fn lines(output: &Output) -> Vec<String> {
    String::from_utf8(output.stdout.clone()).unwrap().lines().map(str::to_owned).collect()
}

/// Asserts that there is one problem about a subject, and that its line has the reason and the next step.
fn assert_problem(output: &Output, about: &str, words: &str) {
    assert_eq!((exit_code(output), output.stderr.len()), (1, 0), "{output:?}");
    let lines = lines(output);
    let problems: Vec<&String> = lines.iter().filter(|line| line.starts_with("problem")).collect();
    let [line] = problems.as_slice() else { panic!("{lines:#?}") };
    assert_eq!(line.split_whitespace().nth(1), Some(about), "{line}");
    assert!(line.contains(words) && line.contains("; "), "{line}");
    assert_eq!(lines.last().unwrap(), "1 problem, see above");
}

#[test]
fn nothing_is_in_the_way_and_nothing_is_left() {
    let Some(bench) = Bench::new() else { return };
    let program = bench.program("writes", r#"int main(void) { puts("it ran"); return 9; }"#);
    let mut command = doctor(&bench);
    command.env("PMI_RANK", "3").env("PMI_SIZE", "4").args(["--run-id", "mine", "--ranks", "0-3"]);
    let output = run(command.args(["--trace", "mpi", "--"]).arg(&program).arg("--token=hidden"));
    let text = lines(&output).join("\n");
    assert_eq!((exit_code(&output), output.stderr.len()), (0, 0), "{output:?}");
    for wanted in [
        "writes takes it",
        "rank 3 of 4 (from PMI_RANK), run id mine (from --run-id)",
        "RPD_TRACE=mpi LD_PRELOAD=",
        "out/mine/rank-00003.rpdshard",
        "mpi; ranks: 0-3",
        "--token=***",
    ] {
        assert!(text.contains(wanted), "{wanted} in\n{text}");
    }
    for about in ["library", "socket", "memory", "cpus", "waits", "output", "launcher", "mpi", "rocm"] {
        assert!(
            lines(&output).iter().any(|line| line.split_whitespace().nth(1) == Some(about)),
            "{about}:\n{text}"
        );
    }
    assert!(!text.contains("it ran") && !text.contains("hidden"), "{text}");
    assert!(!bench.path("out").exists());
}

#[test]
fn the_library_is_loaded_for_a_try() {
    let Some(bench) = Bench::new() else { return };
    let missing = run(doctor(&bench).env("RPD_INTERCEPT", "/nowhere.so"));
    assert_problem(&missing, "library", "RPD_INTERCEPT names");
    std::fs::write(bench.path("broken.so"), "no library").unwrap();
    let broken = run(doctor(&bench).env("RPD_INTERCEPT", bench.path("broken.so")));
    assert_problem(&broken, "library", "cannot be preloaded");
}

#[test]
fn a_command_that_cannot_be_traced_is_named() {
    let Some(bench) = Bench::new() else { return };
    assert_problem(
        &run(doctor(&bench).args(["--", "no-such-command"])),
        "library",
        "no-such-command is not found",
    );
    let source = bench.path("static.c");
    std::fs::write(&source, "int main(void) { return 0; }\n").unwrap();
    let built =
        Command::new("cc").args(["-static", "-o"]).arg(bench.path("static")).arg(&source).output().unwrap();
    if built.status.success() {
        assert_problem(
            &run(doctor(&bench).arg("--").arg(bench.path("static"))),
            "library",
            "is a static program, so no library can be preloaded into it, and its calls are not recorded; link it \
             dynamically, without -static",
        );
    }
    let program = bench.program("with-rights", "int main(void) { return 0; }");
    if std::os::unix::fs::chown(&program, Some(60001), Some(60001)).is_err() {
        return eprintln!("SKIPPED: a program of another user, only root can make it");
    }
    std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o4755)).unwrap();
    assert_problem(
        &run(doctor(&bench).arg("--").arg(&program)),
        "library",
        "is setuid or setgid: the loader ignores LD_PRELOAD for it, so its calls are not recorded; run a copy without these rights, as `cp` makes it",
    );
}

#[test]
fn limits_and_folders_that_are_in_the_way_are_named() {
    let Some(bench) = Bench::new() else { return };
    let plain = doctor(&bench);
    let mut limited = Command::new("sh");
    limited.args(["-c", "ulimit -f 200; exec \"$0\" \"$@\""]).arg(plain.get_program()).args(plain.get_args());
    let output = run(bench.like_collect(&mut limited));
    let text = lines(&output).join("\n");
    assert!(exit_code(&output) == 1 && text.contains("so that a ring cannot grow to 64 MiB"), "{text}");

    std::fs::write(bench.path("file"), "").unwrap();
    let output = run(doctor(&bench).arg("-o").arg(bench.path("file/below")));
    assert_eq!(exit_code(&output), 2, "an option cannot be given twice");
    let mut command = Command::new(env!("CARGO_BIN_EXE_rpd-collect"));
    let output = run(bench.like_collect(&mut command).args(["doctor", "-o"]).arg(bench.path("file/below")));
    assert_problem(&output, "output", "cannot be written");
    assert!(bench.path("file").is_file());
}

#[test]
fn variables_are_examined() {
    let Some(bench) = Bench::new() else { return };
    assert_problem(&run(doctor(&bench).env("RPD_TRACE", "rocx")), "options", "did you mean roctx?");
    assert_problem(&run(doctor(&bench).env("RANK", "1").env("WORLD_SIZE", "2")), "launcher", "no job id");
    let disabled = run(doctor(&bench).env("RPD_DISABLE", "1"));
    assert_eq!(exit_code(&disabled), 0);
    assert!(lines(&disabled).join("\n").contains("RPD_DISABLE is set"), "{disabled:?}");
}

#[test]
fn a_program_of_that_name_is_still_a_program() {
    let Some(bench) = Bench::new() else { return };
    bench.program("doctor", r#"int main(void) { puts("healed"); return 5; }"#);
    let mut command = bench.collect();
    let path = format!("{}:{}", bench.path("").display(), std::env::var("PATH").unwrap());
    let output = run(command.env("PATH", path).args(["--", "doctor"]));
    assert_eq!((exit_code(&output), output.stdout.as_slice()), (5, b"healed\n".as_slice()));
}

#[test]
fn a_mistake_is_a_mistake() {
    let Some(bench) = Bench::new() else { return };
    let output = run(doctor(&bench).args(["--ranks", "many"]));
    assert_eq!((exit_code(&output), output.stdout.len()), (2, 0), "{output:?}");
}

/// Runs the doctor with a file of `#!/bin/sh` as `rocprofv3`, and options.
fn with_rocprofv3(bench: &Bench, options: &[&str]) -> Output {
    let bin = bench.path("bin");
    std::fs::create_dir_all(&bin).unwrap();
    let tool = bin.join("rocprofv3");
    std::fs::write(
        &tool,
        "#!/bin/sh\necho 'rocprofv3 version: 1.0.0'; echo '--output-format {rocpd,json}'\n",
    )
    .unwrap();
    std::fs::set_permissions(&tool, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    std::fs::create_dir_all(bench.path("scratch")).unwrap();
    let mut command = doctor(bench);
    let path = std::env::join_paths(
        [bin].into_iter().chain(std::env::split_paths(&std::env::var_os("PATH").unwrap())),
    );
    command.env("PATH", path.unwrap()).env("TMPDIR", bench.path("scratch"));
    run(command.args(options).args(["--", "true"]))
}

#[test]
fn an_installed_profiler_precedes_the_command() {
    let Some(bench) = Bench::new() else { return };
    let output = with_rocprofv3(&bench, &["--backend", "rocprofv3"]);
    let text = lines(&output).join("\n");
    assert_eq!((exit_code(&output), output.stderr.len()), (0, 0), "{output:?}");
    for wanted in ["/rocprofv3 ", "what rocprofv3 records; ranks: all", "  backend   rocprofv3"] {
        assert!(text.contains(wanted), "{wanted} in\n{text}");
    }
    assert!(!text.contains("LD_PRELOAD="), "{text}");
    assert_eq!(std::fs::read_dir(bench.path("scratch")).unwrap().count(), 0, "scratch is left");
}

#[test]
fn a_profiler_that_is_missing_is_a_problem() {
    let Some(bench) = Bench::new() else { return };
    let output =
        run(doctor(&bench).args(["--backend", "native,rocprof-sys", "--trace", "system", "--", "true"]));
    assert_problem(&output, "backend", "rocprof-sys is not installed");
    assert!(lines(&output).iter().any(|line| line.trim() == "backend   native"), "{output:?}");
}

#[test]
fn profilers_that_exclude_each_other_are_a_problem() {
    let Some(bench) = Bench::new() else { return };
    let output = with_rocprofv3(&bench, &["--backend", "native,rocprofv3"]);
    assert_problem(&output, "backend", "rocprofv3 and native both intercept roctx");
    assert_eq!(std::fs::read_dir(bench.path("scratch")).unwrap().count(), 0, "scratch is left");
}

#[test]
fn the_mpi_of_mpi4py_is_found_without_running_the_program() {
    let Some(bench) = Bench::new() else { return };
    let has_module = Command::new("python3").args(["-c", "from mpi4py import MPI"]).output();
    if !has_module.is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: no python3 with mpi4py");
        return;
    }
    let script = bench.path("train.py");
    std::fs::write(&script, "#!/usr/bin/env python3\nopen('ran', 'w')\n").unwrap();
    std::fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    for command in [&["python3", "train.py"][..], &["./train.py"]] {
        let output = run(doctor(&bench).arg("--").args(command));
        let all = lines(&output);
        let line = all.iter().find(|line| line.split_whitespace().nth(1) == Some("mpi")).unwrap();
        assert!(
            line.starts_with("ok ") && line.contains("mpi4py of python") && line.contains("/libmpi"),
            "{line}"
        );
        assert!(!bench.path("ran").exists());
    }
}

#[test]
fn the_version_of_a_python_whose_stacks_are_wanted_is_checked() {
    let Some(bench) = Bench::new() else { return };
    let python = "#!/bin/sh\ncase \"$*\" in *version*) echo version:3.VERSION;; esac\n";
    for (version, expected) in [
        ("12", "ok       python    stacks of recorded threads of Python 3.12 are sampled"),
        ("14", "problem  python    stacks of Python 3.14 cannot be read"),
        ("13t", "problem  python    stacks of Python 3.13t cannot"),
    ] {
        let path = bench.path("python3");
        std::fs::write(&path, python.replace("VERSION", version)).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        let output = run(doctor(&bench).args(["--trace", "python", "--"]).arg(&path).arg("train.py"));
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.lines().any(|line| line.starts_with(expected)), "{text}");
    }
}

#[test]
fn commands_and_sizes_that_record_nothing_are_problems() {
    let Some(bench) = Bench::new() else { return };
    let plain = bench.path("plain");
    std::fs::write(&plain, "echo\n").unwrap();
    let is_printed = |arguments: &[&str], start: &str, words: &str| {
        let output = run(doctor(&bench).args(arguments));
        let all = lines(&output);
        let found = all.iter().any(|line| line.starts_with(start) && line.contains(words));
        assert!(found, "{arguments:?}: {all:#?}");
    };
    let plain = plain.to_str().unwrap();
    is_printed(&["--", plain], "problem  library", "cannot be executed");
    is_printed(&["--ring-memory", "1", "--", "true"], "problem  memory", "is less than the 16 KiB");
    is_printed(&["--ring-memory", "64K", "--", "true"], "note     memory", "about 4 threads");
    if !support::yama_restricts() {
        is_printed(
            &["--trace", "python", "--", "true"],
            "note     python",
            "is not named like an interpreter of Python",
        );
    }
}
