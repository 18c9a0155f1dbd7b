//! Programs that count their own MPI calls, and what their shards say of them: in C, with large counts,
//! in Fortran and in Python, with Open MPI and with MPICH.
// clippy takes only functions marked as tests for tests.
#![allow(missing_docs, clippy::unwrap_used)]

use rpd_shard::Shard;
use rpd_shard::file::BlockKind;
use rpd_shard::model::native::{COMMUNICATOR, MPI_CALL, MPI_REQUEST};
use rpd_shard::model::{Kind, TableId, Value};
use rpd_tests::harness::{Job, binary, mpi_missing, mpirun, python, repository, skip};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
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

/// A folder with a run in it, and what its ranks have counted.
struct Run {
    folder: tempfile::TempDir,
}

impl Run {
    fn new() -> Run {
        Run { folder: tempfile::tempdir().unwrap() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn compile(&self, compiler: &str, options: &[&str], source: &str) -> PathBuf {
        let program = self.path("program");
        let job = Job::new(compiler).args(options).arg("-o").arg(&program).arg(workload(source));
        // Fortran's compiler leaves files of modules where it runs.
        let _ = job.folder(self.folder.path()).run().success();
        program
    }

    /// Runs a program under the collector in every rank, and passes it the prefix of its counts.
    fn collect(&self, launcher: Job, program: &[&Path]) -> Trace {
        let trace = self.collect_with(launcher, &[], program);
        for rank in &trace.ranks {
            assert_eq!(rank.lost, 0, "rows were lost");
        }
        trace
    }

    fn collect_with(&self, launcher: Job, options: &[&str], program: &[&Path]) -> Trace {
        let job = launcher.arg(binary("rpd-collect")).arg("-o").arg(self.path("runs"));
        let job =
            job.args(["--run-id", "run"]).args(options).arg("--").args(program).arg(self.path("counts"));
        let outcome = job.run().success();
        assert_eq!(outcome.stdout, "", "{outcome}");
        // The collector may say that a ring was full.
        assert!(outcome.stderr.is_empty() || !options.is_empty(), "{outcome}");
        Trace::read(&self.path("runs/run"))
    }

    /// What a rank counted: of `call` or `done` lines, by function, number and bytes.
    fn counted(&self, rank: usize, what: &str) -> BTreeMap<String, (i64, i64)> {
        let path = self.path(&format!("counts.{rank}"));
        let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let mut counts = BTreeMap::new();
        for line in text.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            let [sort, name, number, bytes] = words[..] else { panic!("{line}") };
            if sort == what {
                counts.insert(name.to_owned(), (number.parse().unwrap(), bytes.parse().unwrap()));
            }
        }
        counts
    }
}

/// A row by column, with names resolved.
type Row = BTreeMap<String, Option<String>>;

fn text<'a>(row: &'a Row, column: &str) -> &'a str {
    row[column].as_deref().unwrap_or("NULL")
}

fn number(row: &Row, column: &str) -> Option<i64> {
    row[column].as_ref().map(|value| value.parse().unwrap())
}

/// What the shard of a rank has.
struct RankTrace {
    calls: Vec<Row>,
    requests: Vec<Row>,
    communicators: Vec<Row>,
    /// Rows that its ledger tells of.
    lost: u64,
}

struct Trace {
    ranks: Vec<RankTrace>,
}

impl Trace {
    fn read(folder: &Path) -> Trace {
        let ranks = (0..RANKS).map(|rank| {
            let shard = Shard::open(&folder.join(format!("rank-{rank:05}.rpdshard"))).unwrap();
            let ledger = shard.ledger.as_ref().expect("a finished shard has a ledger");
            RankTrace {
                calls: rows(&shard, MPI_CALL),
                requests: rows(&shard, MPI_REQUEST),
                communicators: rows(&shard, COMMUNICATOR),
                lost: ledger.losses.iter().filter_map(|loss| loss.rows).sum(),
            }
        });
        Trace { ranks: ranks.collect() }
    }
}

fn rows(shard: &Shard, wanted: TableId) -> Vec<Row> {
    let (strings, damaged) = shard.strings();
    assert!(damaged.is_empty());
    let mut rows = Vec::new();
    for block in shard.blocks().iter().filter(|block| block.header.kind == BlockKind::Rows(wanted)) {
        let block_rows = shard.rows(block).unwrap();
        let description = shard.schema().get(wanted).unwrap();
        for i in 0..block_rows.len {
            let value = |name: &str, kind: &Kind| match (block_rows.column(name).get(i), kind) {
                (Value::Null, _) => None,
                (Value::Int(id), Kind::Str) => {
                    Some(String::from_utf8_lossy(strings.get(id).unwrap()).into_owned())
                }
                (Value::Int(value), _) => Some(value.to_string()),
                (value, _) => value.text_lossy().map(std::borrow::Cow::into_owned),
            };
            rows.push(
                description
                    .columns
                    .iter()
                    .map(|column| (column.name.clone(), value(&column.name, &column.kind)))
                    .collect(),
            );
        }
    }
    rows
}

/// Rows by function: their number, and their bytes where they have any.
fn summed(rows: &[Row]) -> BTreeMap<String, (i64, i64)> {
    let mut sums = BTreeMap::new();
    for row in rows {
        let sum: &mut (i64, i64) = sums.entry(text(row, "name_id").to_owned()).or_default();
        sum.0 += 1;
        sum.1 += number(row, "bytes").unwrap_or(0);
    }
    sums
}

/// Lines that only one side has.
fn assert_same(rank: usize, counted: &BTreeMap<String, (i64, i64)>, recorded: &BTreeMap<String, (i64, i64)>) {
    let names: BTreeSet<_> = counted.keys().chain(recorded.keys()).collect();
    let differences: Vec<_> = names
        .into_iter()
        .filter(|name| counted.get(*name) != recorded.get(*name))
        .map(|name| format!("{name}: counted {:?}, recorded {:?}", counted.get(name), recorded.get(name)))
        .collect();
    assert!(differences.is_empty(), "rank {rank}, calls and bytes:\n{}", differences.join("\n"));
}

/// Every call and every request is on record, as the program counted them.
fn assert_counts(run: &Run, trace: &Trace) {
    for (rank, recorded) in trace.ranks.iter().enumerate() {
        assert_same(rank, &run.counted(rank, "call"), &summed(&recorded.calls));
        assert_same(rank, &run.counted(rank, "done"), &summed(&recorded.requests));
    }
}

/// Every request belongs to the call that started it, and to one that completed it.
fn assert_requests(trace: &Trace) {
    for recorded in &trace.ranks {
        let calls: BTreeMap<_, _> =
            recorded.calls.iter().map(|call| (text(call, "stack_id"), call)).collect();
        for request in &recorded.requests {
            let start = calls[text(request, "stack_id")];
            assert_eq!(text(start, "name_id"), text(request, "name_id"));
            let end = calls[text(request, "parent_stack_id")];
            let name = text(end, "name_id");
            assert!(name.starts_with("MPI_Wait") || name.starts_with("MPI_Test"), "{request:?}");
            assert!(number(start, "start") < number(end, "end"), "{request:?}");
        }
    }
}

/// All ranks of a communicator give it one name, and agree on what its collectives are.
fn assert_communicators(trace: &Trace) {
    let mut collectives: BTreeMap<(String, i64), BTreeMap<usize, String>> = BTreeMap::new();
    let mut sizes: BTreeMap<String, i64> = [("MPI_COMM_WORLD".to_owned(), RANKS as i64)].into();
    let mut members: BTreeMap<String, BTreeSet<usize>> = BTreeMap::new();
    for (rank, recorded) in trace.ranks.iter().enumerate() {
        for made in &recorded.communicators {
            let name = text(made, "comm_id").to_owned();
            members.entry(name.clone()).or_default().insert(rank);
            if let Some(size) = number(made, "size") {
                // Of two groups each rank knows its own.
                let known = sizes.entry(name.clone()).or_insert(size);
                assert!(*known == size || name.starts_with("inter/"), "{made:?} has {known} ranks elsewhere");
            }
        }
        let mut seen = BTreeSet::new();
        for call in &recorded.calls {
            let name = text(call, "name_id");
            if !is_collective(name) {
                continue;
            }
            let (comm, seq) = (text(call, "comm_id").to_owned(), number(call, "seq").unwrap());
            assert!(!comm.starts_with("comm-"), "the making of {comm} was not seen: {call:?}");
            assert!(seen.insert((comm.clone(), seq)), "two calls with one number: {call:?}");
            if comm != "MPI_COMM_SELF" {
                collectives.entry((comm, seq)).or_default().insert(rank, name.to_owned());
            }
        }
    }
    for (comm, members) in &members {
        let all = if comm.starts_with("inter/") { RANKS } else { sizes[comm] as usize };
        assert_eq!(members.len(), all, "ranks that know {comm}: {members:?}");
    }
    for ((comm, seq), calls) in &collectives {
        let names: BTreeSet<_> = calls.values().collect();
        assert_eq!(names.len(), 1, "number {seq} on {comm}: {calls:?}");
        let all = if comm.starts_with("inter/") { RANKS } else { sizes[comm] as usize };
        assert_eq!(calls.len(), all, "number {seq} on {comm}: {calls:?}");
    }
}

fn is_collective(name: &str) -> bool {
    const OTHERS: [&str; 36] = [
        "MPI_Init",
        "MPI_Init_thread",
        "MPI_Finalize",
        "MPI_Send",
        "MPI_Ssend",
        "MPI_Bsend",
        "MPI_Rsend",
        "MPI_Recv",
        "MPI_Isend",
        "MPI_Issend",
        "MPI_Ibsend",
        "MPI_Irsend",
        "MPI_Irecv",
        "MPI_Sendrecv",
        "MPI_Sendrecv_replace",
        "MPI_Probe",
        "MPI_Iprobe",
        "MPI_Mprobe",
        "MPI_Improbe",
        "MPI_Mrecv",
        "MPI_Imrecv",
        "MPI_Send_init",
        "MPI_Ssend_init",
        "MPI_Bsend_init",
        "MPI_Rsend_init",
        "MPI_Recv_init",
        "MPI_Start",
        "MPI_Startall",
        "MPI_Request_free",
        "MPI_Cancel",
        "MPI_Comm_create_group",
        "MPI_Intercomm_create",
        "MPI_Comm_set_name",
        "MPI_Comm_get_parent",
        "MPI_Get_count",
        "MPI_Abort",
    ];
    !OTHERS.contains(&name) && !name.starts_with("MPI_Wait") && !name.starts_with("MPI_Test")
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
    let trace = run.collect_with(OpenMpi.mpirun(), &["--ring-size", "16384"], &program);
    for (rank, recorded) in trace.ranks.iter().enumerate() {
        let counted: i64 = run.counted(rank, "call").values().map(|(calls, _)| calls).sum();
        assert!(recorded.lost > 0, "16 KiB cannot hold a tight loop");
        assert_eq!(recorded.calls.len() as u64 + recorded.lost, counted as u64);
        assert_thirds(recorded);
    }
}
