//! Programs that count their own MPI calls, and what their shards say of them: in C, with large counts,
//! in Fortran and in Python, with Open MPI and with MPICH.
// clippy takes only functions marked as tests for tests.

mod arrows;
mod matching;
mod memory;
mod recorded;

use recorded::*;
use rpd_tests::harness::{Database, Job, binary, mpi_missing, mpirun, python, repository, rpd_merge, skip};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

const RANKS: usize = 4;

/// An MPI library: how to compile for it and how to start ranks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Family {
    OpenMpi,
    Mpich,
}
use Family::{Mpich, OpenMpi};

impl Family {
    /// Why tests with it cannot run here.
    fn missing(self) -> Option<&'static str> {
        match self {
            OpenMpi => mpi_missing(),
            Mpich if std::env::var("RPD_CI_MPICH").is_ok_and(|value| value == "0") => {
                Some("RPD_CI_MPICH is 0")
            }
            Mpich if !runs("mpirun.mpich", "--version") => Some("mpirun.mpich is not here"),
            Mpich => None,
        }
    }

    fn mpirun(self) -> Job {
        match self {
            OpenMpi => mpirun(RANKS),
            Mpich => Job::new("mpirun.mpich").args(["-n", &RANKS.to_string()]),
        }
    }

    fn compiler(self, language: &str) -> String {
        match self {
            OpenMpi => format!("mpi{language}"),
            Mpich => format!("mpi{language}.mpich"),
        }
    }
}

fn runs(program: &str, option: &str) -> bool {
    std::process::Command::new(program).arg(option).output().is_ok_and(|output| output.status.success())
}

fn workload(name: &str) -> PathBuf {
    repository().join("tests/workloads").join(name)
}

/// What a test with the C program checks.
fn check_c(family: Family, options: &[&str]) {
    if let Some(why) = family.missing() {
        return skip(&format!("MPI calls with {family:?}"), why);
    }
    let run = Run::new();
    let program = run.compile(&family.compiler("cc"), options, "mpi_calls.c");
    let trace = run.collect(family.mpirun(), &[&program]);
    assert_counts(&run, &trace);
    assert_requests(&trace);
    assert_communicators(&trace);
    check_details(&trace);
}

/// Values that the C program's calls must have.
fn check_details(trace: &Trace) {
    for (rank, recorded) in trace.ranks.iter().enumerate() {
        let left = ((rank + RANKS - 1) % RANKS) as i64;
        let with_tag = |name: &str, tag: i64| {
            let found: Vec<_> = recorded
                .calls
                .iter()
                .filter(|call| text(call, "name_id") == name && number(call, "tag") == Some(tag))
                .collect();
            assert!(!found.is_empty(), "rank {rank}: no {name} with tag {tag}");
            found
        };
        // From any source and with any tag, told by the status.
        if rank % 2 == 0 {
            assert_eq!(number(with_tag("MPI_Recv", 4)[0], "peer"), Some(rank as i64 ^ 1));
        }
        assert_eq!(number(with_tag("MPI_Probe", 11)[0], "peer"), Some(left));
        assert_eq!(number(with_tag("MPI_Mprobe", 12)[0], "peer"), Some(left));
        let exchange = with_tag("MPI_Sendrecv", 6)[0];
        let received = ["source", "recvtag", "recvbytes"].map(|column| number(exchange, column));
        assert_eq!(received, [left, 6, 24].map(Some), "rank {rank}");
        // To nobody.
        assert_eq!(number(with_tag("MPI_Send", 0)[0], "peer"), Some(-1));
        // What came is told where a status was asked for, and never of what was sent.
        for request in &recorded.requests {
            let (name, peer) = (text(request, "name_id"), number(request, "peer"));
            match name {
                "MPI_Irecv" | "MPI_Imrecv" | "MPI_Startall" => assert!(
                    peer == Some(left) || number(request, "bytes").is_none(),
                    "rank {rank}: {request:?}"
                ),
                _ => assert_eq!(peer, None, "rank {rank}: {request:?}"),
            }
        }
        let labels: BTreeSet<_> = recorded
            .communicators
            .iter()
            .filter(|row| row["label_id"].is_some())
            .map(|row| (text(row, "label_id"), text(row, "comm_id")))
            .collect();
        let half = if rank % 2 == 0 { "even" } else { "odd" };
        let named: Vec<_> = labels.iter().map(|(label, _)| *label).collect();
        assert_eq!(named, [half, "ring"], "rank {rank}");
    }
}

#[test]
fn every_mpi_call_of_c_is_recorded_with_open_mpi() {
    check_c(OpenMpi, &[]);
}

#[test]
fn every_mpi_call_of_c_is_recorded_with_mpich() {
    check_c(Mpich, &[]);
}

#[test]
fn ranks_that_mpi_runs_one_by_one_are_named_and_not_compared() {
    for family in [OpenMpi, Mpich] {
        if let Some(why) = family.missing() {
            return skip("a program of another MPI than the launcher's", why);
        }
    }
    let run = Run::new();
    let program = run.compile("mpicc.mpich", &["-O1", "-lm"], "late.c");
    let collect = OpenMpi.mpirun().arg(binary("rpd-collect")).arg("-o").arg(run.path("runs"));
    let collected = collect.args(["--run-id", "run", "--"]).arg(program).arg("balanced").run().success();
    let alone = "MPI_COMM_WORLD of size 1";
    assert_eq!(collected.stderr.matches(alone).count(), 1, "one rank prints it: {collected}");
    assert!(collected.stderr.contains("started 4 processes"), "{collected}");
    let output = run.path("run.db");
    let merged = rpd_merge().arg("-o").arg(&output).arg(run.path("runs/run")).run().success();
    assert!(merged.stderr.contains("each of ranks 0-3") && merged.stderr.contains(alone), "{merged}");
    let verdict = "cannot tell which rank entered last: MPI ran each rank as a job of its own";
    assert!(merged.stderr.contains(verdict) && !merged.stderr.contains("matched"), "{merged}");
    // The calls are recorded all the same.
    let database = Database::open(&output);
    assert!(database.number("SELECT count(*) FROM regions WHERE name = 'MPI_Allreduce'") > 0, "{merged}");
}

#[test]
fn ranks_of_one_mpi_job_are_no_singletons() {
    if let Some(why) = OpenMpi.missing() {
        return skip("a program of the launcher's MPI", why);
    }
    let run = Run::new();
    let program = run.compile("mpicc", &["-O1", "-lm"], "late.c");
    let collect = OpenMpi.mpirun().arg(binary("rpd-collect")).arg("-o").arg(run.path("runs"));
    let collected = collect.args(["--run-id", "run", "--"]).arg(program).arg("balanced").run().success();
    assert!(!collected.stderr.contains("MPI_COMM_WORLD"), "{collected}");
    let output = run.path("run.db");
    let merged = rpd_merge().arg("-o").arg(&output).arg(run.path("runs/run")).run().success();
    assert!(!merged.stderr.contains("job of its own") && merged.stderr.contains("matched"), "{merged}");
}

#[test]
fn large_counts_work_with_an_mpi_that_has_none() {
    check_c(OpenMpi, &["-DLARGE", "-Wl,-z,dynamic-undefined-weak"]);
}

#[test]
fn every_mpi_call_with_large_counts_is_recorded_with_mpich() {
    check_c(Mpich, &["-DLARGE"]);
}

/// What a test with the Fortran program checks. Interface 1 is `mpif.h`, 2 `use mpi`, 3 `use mpi_f08`.
fn check_fortran(family: Family, interface: u32) {
    let what = format!("MPI calls of Fortran, interface {interface}, with {family:?}");
    if let Some(why) = family.missing() {
        return skip(&what, why);
    }
    if !runs(&family.compiler("f90"), "--version") {
        return skip(&what, "there is no Fortran compiler for it: install gfortran");
    }
    let run = Run::new();
    let interface_option = format!("-DINTERFACE={interface}");
    let mut options = vec!["-w", "-fallow-argument-mismatch", &interface_option];
    if family == Mpich && interface == 3 {
        options.push("-DNO_INDICES");
    }
    if family == OpenMpi {
        options.push("-DNO_WINDOWS");
    }
    let program = run.compile(&family.compiler("f90"), &options, "mpi_calls.F90");
    eprintln!("{what}");
    let trace = run.collect(family.mpirun(), &[&program]);
    assert_counts(&run, &trace);
    assert_requests(&trace);
    assert_communicators(&trace);
    for (rank, recorded) in trace.ranks.iter().enumerate() {
        let labels: Vec<_> = recorded
            .communicators
            .iter()
            .filter(|row| row["label_id"].is_some())
            .map(|row| (text(row, "label_id"), text(row, "comm_id")))
            .collect();
        // The last rank of each half is its first: the split has reversed them.
        let expected = [("even", "MPI_COMM_WORLD/1@0/1@2"), ("odd", "MPI_COMM_WORLD/1@0/1@3")];
        assert_eq!(labels, [expected[rank % 2], ("ring", "MPI_COMM_WORLD/2@0")], "rank {rank}");
        let left = ((rank + RANKS - 1) % RANKS) as i64;
        let from_any = recorded.calls.iter().find(|call| text(call, "name_id") == "MPI_Recv").unwrap();
        assert_eq!(number(from_any, "peer"), Some(left), "rank {rank}");
        for request in recorded.requests.iter().filter(|row| text(row, "name_id") == "MPI_Irecv") {
            let (peer, bytes) = (number(request, "peer"), number(request, "bytes"));
            assert_eq!(peer.is_some(), bytes.is_some(), "rank {rank}: {request:?}");
            assert!(peer.is_none_or(|peer| peer == left), "rank {rank}: {request:?}");
        }
    }
}

#[test]
fn every_mpi_call_of_fortran_is_recorded_with_open_mpi() {
    (1..=3).for_each(|interface| check_fortran(OpenMpi, interface));
}

#[test]
fn every_mpi_call_of_fortran_is_recorded_with_mpich() {
    (1..=3).for_each(|interface| check_fortran(Mpich, interface));
}

/// What a test with the Python program checks.
fn check_python(family: Family) {
    let what = format!("MPI calls of Python with {family:?}");
    if let Some(why) = family.missing() {
        return skip(&what, why);
    }
    let run = Run::new();
    let mut launcher = family.mpirun();
    let mut import =
        Job::new(python()).args(["-c", "import mpi4py.MPI, numpy; print(mpi4py.MPI.get_vendor()[0])"]);
    if family == Mpich {
        // The wheel looks for MPICH by the name that its makers give it.
        let Some(library) = mpich_library() else { return skip(&what, "libmpich.so.12 is not found") };
        std::os::unix::fs::symlink(library, run.path("libmpi.so.12")).unwrap();
        let folder = run.folder.path();
        launcher = launcher.env("LD_LIBRARY_PATH", folder).env("MPI4PY_MPIABI", "mpich");
        import = import.env("LD_LIBRARY_PATH", folder).env("MPI4PY_MPIABI", "mpich");
    }
    let vendor = import.run();
    let expected = if family == Mpich { "MPICH" } else { "Open MPI" };
    if vendor.stdout.trim() != expected {
        return skip(&what, "Python has no mpi4py or numpy for it");
    }
    let trace = run.collect(launcher, &[&python(), &workload("mpi_calls.py")]);
    assert_counts(&run, &trace);
    assert_requests(&trace);
    assert_communicators(&trace);
}

/// The library that programs for MPICH are linked with.
fn mpich_library() -> Option<String> {
    let output = std::process::Command::new("/sbin/ldconfig").arg("-p").output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let line = text.lines().find(|line| line.trim_start().starts_with("libmpich.so.12 "))?;
    Some(line.split(" => ").nth(1)?.to_owned())
}

#[test]
fn every_mpi_call_of_python_is_recorded_with_open_mpi() {
    check_python(OpenMpi);
}

#[test]
fn every_mpi_call_of_python_is_recorded_with_mpich() {
    check_python(Mpich);
}

/// Every third collective of the program is another one: the numbers have to say the same.
fn assert_thirds(recorded: &RankTrace) {
    for call in &recorded.calls {
        let seq = number(call, "seq");
        match text(call, "name_id") {
            "MPI_Bcast" => assert_eq!(seq.map(|seq| seq % 3), Some(0), "{call:?}"),
            "MPI_Allreduce" => assert_ne!(seq.map(|seq| seq % 3), Some(0), "{call:?}"),
            _ => {}
        }
    }
}

fn check_threads(family: Family) {
    if let Some(why) = family.missing() {
        return skip(&format!("threads that call MPI, with {family:?}"), why);
    }
    let run = Run::new();
    let program = run.compile(&family.compiler("cc"), &["-pthread"], "mpi_threads.c");
    let trace = run.collect(family.mpirun(), &[&program, Path::new("4"), Path::new("90")]);
    assert_counts(&run, &trace);
    assert_communicators(&trace);
    trace.ranks.iter().for_each(assert_thirds);
}

#[test]
fn threads_may_call_mpi_at_the_same_time_with_open_mpi() {
    check_threads(OpenMpi);
}

#[test]
fn threads_may_call_mpi_at_the_same_time_with_mpich() {
    check_threads(Mpich);
}

#[test]
fn mpi_calls_are_numbered_though_the_ring_is_full() {
    if let Some(why) = OpenMpi.missing() {
        return skip("numbers of MPI calls that were not recorded", why);
    }
    let run = Run::new();
    let program = run.compile(&OpenMpi.compiler("cc"), &["-pthread"], "mpi_threads.c");
    let program = [&program, Path::new("0"), Path::new("200000")];
    let trace = run.collect_with(OpenMpi.mpirun(), &["--ring-size", "32768"], &program);
    for (rank, recorded) in trace.ranks.iter().enumerate() {
        let counted: i64 = run.counted(rank, "call").values().map(|(calls, _)| calls).sum();
        assert!(recorded.lost > 0, "16 KiB cannot hold a tight loop");
        assert_eq!(recorded.calls.len() as u64 + recorded.lost, counted as u64);
        assert_thirds(recorded);
    }
}
