//! Warnings about programs into which our library cannot be preloaded: once for all ranks, with the reason
//! and the next step.

use crate::support;
use std::path::{Path, PathBuf};
use std::process::Command;
use support::{Bench, exit_code, run};

/// Returns what rpd-collect prints and logs about a program, as a rank of a job.
fn said(bench: &Bench, program: &Path, rank: &str) -> (String, String) {
    let mut command = bench.collect();
    command.env("PMI_RANK", rank).env("PMI_SIZE", "2").arg("--").arg(program);
    let output = run(&mut command);
    assert_eq!((exit_code(&output), output.stdout.len()), (7, 0), "{output:?}");
    let log =
        std::fs::read_to_string(bench.path(&format!("out/run/rank-0000{rank}.log"))).unwrap_or_default();
    let _ = std::fs::remove_dir_all(bench.path("out"));
    (String::from_utf8(output.stderr).unwrap(), log)
}

/// A static program that ends with 7, if it can be linked.
fn static_program(bench: &Bench, name: &str, option: &str) -> Option<PathBuf> {
    let (source, program) = (bench.path("seven.c"), bench.path(name));
    std::fs::write(&source, "int main(void) { return 7; }\n").unwrap();
    let built = Command::new("cc").args([option, "-o"]).arg(&program).arg(&source).output().unwrap();
    if !built.status.success() {
        eprintln!("skipped: no program can be linked with {option} here");
    }
    built.status.success().then_some(program)
}

#[test]
fn a_static_program_is_named_by_rank_0_and_in_the_log_of_each_rank() {
    let Some(bench) = Bench::new() else { return };
    for option in ["-static", "-static-pie"] {
        let Some(program) = static_program(&bench, "static", option) else { continue };
        let line = format!(
            "warning: {} is a static program, so no library can be preloaded into it, and its calls are not recorded; \
             link it dynamically, without -static\n",
            program.display()
        );
        let (stderr, log) = said(&bench, &program, "0");
        assert_eq!(stderr, format!("rpd-collect: {line}"), "{option}");
        assert!(log.contains(&line), "{log}");
        let (stderr, log) = said(&bench, &program, "1");
        assert!(stderr.is_empty() && log.contains(&line), "{stderr}{log}");
        // For a script the interpreter counts.
        let script = bench.path("script");
        std::fs::write(&script, format!("#!{}\n", program.display())).unwrap();
        std::fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        assert_eq!(said(&bench, &script, "0").0, format!("rpd-collect: {line}"), "{option}");
    }
}

#[test]
fn a_lone_program_that_cannot_be_seen_is_named_in_one_line() {
    let Some(bench) = Bench::new() else { return };
    let Some(program) = static_program(&bench, "static", "-static") else { return };
    let stderr = String::from_utf8(run(bench.collect().arg("--").arg(&program)).stderr).unwrap();
    assert!(stderr.contains("is a static program") && stderr.lines().count() == 1, "{stderr}");
}

#[test]
fn of_a_program_that_crashes_at_once_nothing_is_said_of_gpu_kernels() {
    let Some(bench) = Bench::new() else { return };
    let program = bench.program("crashes", "int main(void) { raise(SIGSEGV); return 0; }");
    let output = run(bench.collect().args(["--trace", "roctx,mpi", "--"]).arg(&program));
    let stderr = String::from_utf8(output.stderr.clone()).unwrap();
    let line = "rpd-collect: nothing was recorded: no roctx or MPI call was seen before signal 11 ended the command\n";
    assert_eq!((exit_code(&output), stderr.as_str()), (-11, line));
}

#[test]
fn a_program_with_other_rights_is_named_and_others_are_not() {
    let Some(bench) = Bench::new() else { return };
    let program = bench.program("rights", "int main(void) { return 7; }");
    assert_eq!(said(&bench, &program, "0").0, "");
    for (mode, is_of_another) in [(0o4755, false), (0o2755, false), (0o4755, true), (0o2755, true)] {
        if is_of_another && std::os::unix::fs::chown(&program, Some(60001), Some(60001)).is_err() {
            return eprintln!("SKIPPED: programs of other users, only root can make them");
        }
        std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
        if !is_of_another {
            assert_eq!(said(&bench, &program, "0").0, "", "the loader disregards rights that the user has");
            continue;
        }
        let wanted = format!(
            "rpd-collect: warning: {} is setuid or setgid: the loader ignores LD_PRELOAD for it, so its calls are not recorded; run a copy without these rights, as `cp` makes it\n",
            program.display()
        );
        assert_eq!(said(&bench, &program, "0").0, wanted);
    }
}

#[test]
fn require_starts_no_program_that_cannot_be_seen() {
    let Some(bench) = Bench::new() else { return };
    let Some(program) = static_program(&bench, "static", "-static") else { return };
    let marked = bench.program("marked", r#"int main(void) { fclose(fopen("ran", "w")); return 7; }"#);
    let set_mode = || std::fs::set_permissions(&marked, std::os::unix::fs::PermissionsExt::from_mode(0o4755));
    set_mode().unwrap();
    // The owner has these rights anyway, so the loader preloads the library.
    assert_eq!(exit_code(&run(bench.collect().args(["--require", "--"]).arg(&marked))), 7);
    std::fs::remove_file(bench.path("ran")).unwrap();
    std::fs::remove_dir_all(bench.path("out")).unwrap();
    let mut cases = vec![(&program, "is a static program", "link it dynamically, without -static")];
    if std::os::unix::fs::chown(&marked, Some(60_001), None).is_ok() {
        set_mode().unwrap();
        cases.push((&marked, "is setuid or setgid", "run a copy without these rights, as `cp` makes it"));
    }
    for (program, why, next) in cases {
        let output = run(bench.collect().args(["--require", "--"]).arg(program));
        let stderr = String::from_utf8(output.stderr.clone()).unwrap();
        assert_eq!((exit_code(&output), stderr.lines().count()), (125, 1), "{stderr}");
        assert!(stderr.starts_with("rpd-collect: error: ") && stderr.contains(why), "{stderr}");
        let end = format!("; {next}; the command is not started, as --require demands\n");
        assert!(stderr.ends_with(&end), "{stderr}");
        assert!(!bench.path("ran").exists() && !bench.path("out").exists());
    }
    // System metrics need no library, and a rank that is not selected is unrecorded on purpose.
    for options in [["--trace", "system"], ["--ranks", "1"]] {
        let mut command = bench.collect();
        command.env("PMI_RANK", "0").env("PMI_SIZE", "2").arg("--require").args(options);
        assert_eq!(exit_code(&run(command.arg("--").arg(&program))), 7, "{options:?}");
    }
}

/// A program that runs long enough to be inspected.
const WAITS: &str = "int main(void) { sleep(2); return 7; }";

/// Makes a folder with a copy of the library, and rpd-collect that uses it.
fn with_library(bench: &Bench) -> (PathBuf, Command) {
    let folder = bench.path("lib");
    std::fs::create_dir_all(&folder).unwrap();
    let library = folder.join("librpd_intercept.so");
    let mut command = bench.collect();
    let built = command.get_envs().find(|(name, _)| *name == "RPD_INTERCEPT").unwrap().1.unwrap().to_owned();
    std::fs::copy(built, &library).unwrap();
    command.env("RPD_INTERCEPT", library);
    (folder, command)
}

#[test]
fn a_library_that_a_container_does_not_show_is_named_with_the_folder_to_bind() {
    let Some(bench) = Bench::new() else { return };
    let can = Command::new("unshare").args(["-m", "true"]).status();
    if !can.is_ok_and(|status| status.success()) {
        return eprintln!("SKIPPED: no mount namespace can be made here");
    }
    let program = bench.program("waits", WAITS);
    let (folder, mut command) = with_library(&bench);
    let hide = "mount -t tmpfs none \"$0\" && exec \"$1\"";
    command.args(["--trace", "mpi", "--", "unshare", "-m", "sh", "-c", hide]).arg(&folder).arg(&program);
    let output = run(&mut command);
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(exit_code(&output), 7, "{stderr}");
    assert!(stderr.contains("cannot be preloaded"), "the loader's own words:\n{stderr}");
    let line = stderr.lines().find_map(|line| line.strip_prefix("rpd-collect: ")).unwrap();
    let begin = format!(
        "warning: {} runs in a container in which {}/librpd_intercept.so is not visible, so its calls are not recorded; ",
        program.display(),
        folder.display()
    );
    assert!(line.starts_with(&begin), "{stderr}");
    assert!(line.contains(&format!("apptainer --bind {}", folder.display())), "{stderr}");
    assert!(
        line.contains(&format!("podman --volume {0}:{0}:ro --network host", folder.display())),
        "{stderr}"
    );
}

#[test]
fn a_library_that_the_loader_refuses_is_named() {
    let Some(bench) = Bench::new() else { return };
    let program = bench.program("waits", WAITS);
    let (folder, mut command) = with_library(&bench);
    std::fs::write(folder.join("librpd_intercept.so"), "no library").unwrap();
    command.env("PMI_RANK", "0").env("PMI_SIZE", "2");
    let output = run(command.arg("--").arg(&program));
    let log = bench.log();
    let line = format!("warning: the loader of {} does not preload {}/", program.display(), folder.display());
    assert!(exit_code(&output) == 7 && log.contains(&line), "{log}");
    assert!(!log.contains("nothing was recorded"), "{log}");
    // For the rank that prints messages for all, stderr names the log.
    assert!(String::from_utf8_lossy(&output.stderr).contains("1 warning about this run in"), "{output:?}");
}

#[test]
fn a_program_that_becomes_another_user_is_named() {
    let Some(bench) = Bench::new() else { return };
    if !rustix::process::geteuid().is_root() {
        return eprintln!("SKIPPED: only root can become another user");
    }
    let become_other =
        "int main(void) { if (setuid(65534)) return 2; roctxMarkA(\"m\"); sleep(2); return 7; }";
    let program = bench.program("other_user", become_other);
    let output = run(bench.collect().arg("--").arg(&program));
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    let line = format!(
        "warning: {} runs as user 65534, and rpd-collect as user 0, so its calls are not recorded; start rpd-collect as that user",
        program.display()
    );
    assert!(exit_code(&output) == 7 && stderr.contains(&line), "{stderr}");
    assert!(!stderr.contains("nothing was recorded"), "{stderr}");
}

#[test]
fn a_container_of_which_nothing_was_recorded_is_named_with_what_to_pass() {
    let Some(bench) = Bench::new() else { return };
    let bin = bench.path("bin");
    std::fs::create_dir_all(&bin).unwrap();
    std::fs::write(bin.join("podman"), "#!/bin/sh\nexit 7\n").unwrap();
    std::fs::set_permissions(bin.join("podman"), std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .unwrap();
    let (folder, mut command) = with_library(&bench);
    let output = run(command.arg("--").arg(bin.join("podman")).args(["run", "image", "./simulation"]));
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(exit_code(&output), 7, "{stderr}");
    let wanted = format!(
        "no roctx, MPI or RCCL call was seen (podman starts a container); for the library to be in it, add --volume {0}:{0}:ro",
        folder.display()
    );
    assert!(stderr.contains(&wanted), "{stderr}");
    assert!(stderr.contains("--network host --env LD_PRELOAD --env RPD_SOCKET --env RPD_TRACE"), "{stderr}");
}

#[test]
fn a_program_that_has_the_library_and_calls_nothing_is_not_suspected() {
    let Some(bench) = Bench::new() else { return };
    let program = bench.program("waits", WAITS);
    let stderr =
        String::from_utf8(run(bench.collect().args(["--trace", "mpi", "--"]).arg(&program)).stderr).unwrap();
    assert_eq!(
        stderr,
        "rpd-collect: nothing was recorded: no MPI call was seen; to record GPU kernels, add --backend rocprofv3\n"
    );
}
