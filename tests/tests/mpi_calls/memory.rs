//! The same programs under valgrind: nothing of ours touches memory that it must not.

use super::{Family, Mpich, OpenMpi, Run, runs};
use rpd_tests::harness::{binary, skip};
use std::fs;
use std::time::Duration;

/// Where a line of a stack trace is in our code.
const OURS: [&str; 2] = ["/intercept/src/", "/ring/src/"];
/// MPICH leaves the statuses of sends as they were. They are looked at, and what they say is dropped
/// when it turns out that the request was a send.
const KNOWN: &str = "Abi::message";

/// Errors with our function as the innermost call.
fn errors(logs: &std::path::Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(logs).unwrap() {
        let text = fs::read_to_string(entry.unwrap().path()).unwrap();
        for line in text.lines().filter(|line| line.contains("   at 0x")) {
            if OURS.iter().any(|place| line.contains(place)) && !line.contains(KNOWN) {
                found.push(format!("{line}\nin:\n{text}"));
            }
        }
    }
    found
}

fn check(family: Family) {
    if let Some(why) = family.missing() {
        return skip(&format!("MPI calls under valgrind with {family:?}"), why);
    }
    if !runs("valgrind", "--version") {
        return skip("MPI calls under valgrind", "valgrind is not here");
    }
    let run = Run::new();
    let program = run.compile(&family.compiler("cc"), &["-g"], "mpi_calls.c");
    let logs = run.path("logs");
    fs::create_dir(&logs).unwrap();
    let job = family.mpirun().arg(binary("rpd-collect")).arg("-o").arg(run.path("runs")).arg("--");
    let job = job.args(["valgrind", "-q", "--fullpath-after="]);
    let job = job.arg(format!("--log-file={}/%p.log", logs.display()));
    let outcome = job.arg(program).arg(run.path("counts")).limit(Duration::from_secs(150)).run();
    assert_eq!(outcome.code(), Some(0), "{outcome}");
    assert_eq!(errors(&logs), Vec::<String>::new());
    assert!(!run.counted(0, "call").is_empty(), "the program did something");
}

#[test]
fn mpi_calls_are_clean_under_valgrind_with_mpich() {
    check(Mpich);
}

#[test]
fn mpi_calls_are_clean_under_valgrind_with_open_mpi() {
    check(OpenMpi);
}
