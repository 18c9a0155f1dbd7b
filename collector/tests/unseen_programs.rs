//! Programs that our library cannot be in are named, once for all ranks, with the reason and the next step.

use crate::support;
use std::path::{Path, PathBuf};
use std::process::Command;
use support::{Bench, ending, run};

/// What rpd-collect prints and logs about a program, as a rank of a job.
fn said(bench: &Bench, program: &Path, rank: &str) -> (String, String) {
    let mut command = bench.collect();
    command.env("PMI_RANK", rank).env("PMI_SIZE", "2").arg("--").arg(program);
    let output = run(&mut command);
    assert_eq!((ending(&output), output.stdout.len()), (7, 0), "{output:?}");
    let log =
        std::fs::read_to_string(bench.path(&format!("out/run/rank-0000{rank}.log"))).unwrap_or_default();
    let _ = std::fs::remove_dir_all(bench.path("out"));
    (String::from_utf8(output.stderr).unwrap(), log)
}

/// A static program that ends with 7, where it can be linked.
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
            "warning: {} is a static program, so no library can be preloaded into it, and what it calls is not recorded; \
             link it dynamically, without -static\n",
            program.display()
        );
        let (stderr, log) = said(&bench, &program, "0");
        assert_eq!(stderr, format!("rpd-collect: {line}"), "{option}");
        assert!(log.contains(&line), "{log}");
        let (stderr, log) = said(&bench, &program, "1");
        assert!(stderr.is_empty() && log.contains(&line), "{stderr}{log}");
        // A script is its interpreter.
        let script = bench.path("script");
        std::fs::write(&script, format!("#!{}\n", program.display())).unwrap();
        std::fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        assert_eq!(said(&bench, &script, "0").0, format!("rpd-collect: {line}"), "{option}");
    }
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
            "rpd-collect: warning: {} is setuid or setgid: the loader preloads no library of ours, \
             and what it calls is not recorded; run a copy without these rights, as `cp` makes it\n",
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
    // Its owner has these rights anyway, so that the loader preloads the library.
    assert_eq!(ending(&run(bench.collect().args(["--require", "--"]).arg(&marked))), 7);
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
        assert_eq!((ending(&output), stderr.lines().count()), (125, 1), "{stderr}");
        assert!(stderr.starts_with("rpd-collect: error: ") && stderr.contains(why), "{stderr}");
        let end = format!("; {next}; the command is not started, as --require demands\n");
        assert!(stderr.ends_with(&end), "{stderr}");
        assert!(!bench.path("ran").exists() && !bench.path("out").exists());
    }
    // System metrics need no library, and a rank that is left out runs unrecorded on purpose.
    for options in [["--trace", "system"], ["--ranks", "1"]] {
        let mut command = bench.collect();
        command.env("PMI_RANK", "0").env("PMI_SIZE", "2").arg("--require").args(options);
        assert_eq!(ending(&run(command.arg("--").arg(&program))), 7, "{options:?}");
    }
}
