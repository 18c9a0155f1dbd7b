//! What the shards of a run say, and what holds for every one of them.

use super::{RANKS, workload};
use rpd_shard::Shard;
use rpd_shard::file::BlockKind;
use rpd_shard::model::native::{COMMUNICATOR, MPI_CALL, MPI_REQUEST};
use rpd_shard::model::{Kind, TableId, Value};
use rpd_tests::harness::{Job, binary};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// A folder with a run in it, and what its ranks have counted.
pub(crate) struct Run {
    pub(crate) folder: tempfile::TempDir,
}

impl Run {
    pub(crate) fn new() -> Run {
        Run { folder: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn compile(&self, compiler: &str, options: &[&str], source: &str) -> PathBuf {
        let program = self.path("program");
        let job = Job::new(compiler).args(options).arg("-o").arg(&program).arg(workload(source));
        // Fortran's compiler leaves files of modules where it runs.
        let _ = job.folder(self.folder.path()).run().success();
        program
    }

    /// Runs a program under the collector in every rank, and passes it the prefix of its counts.
    pub(crate) fn collect(&self, launcher: Job, program: &[&Path]) -> Trace {
        let trace = self.collect_with(launcher, &[], program);
        for rank in &trace.ranks {
            assert_eq!(rank.lost, 0, "rows were lost");
        }
        trace
    }

    pub(crate) fn collect_with(&self, launcher: Job, options: &[&str], program: &[&Path]) -> Trace {
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
    pub(crate) fn counted(&self, rank: usize, what: &str) -> BTreeMap<String, (i64, i64)> {
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
pub(crate) type Row = BTreeMap<String, Option<String>>;

pub(crate) fn text<'a>(row: &'a Row, column: &str) -> &'a str {
    row[column].as_deref().unwrap_or("NULL")
}

pub(crate) fn number(row: &Row, column: &str) -> Option<i64> {
    row[column].as_ref().map(|value| value.parse().unwrap())
}

/// What the shard of a rank has.
pub(crate) struct RankTrace {
    pub(crate) calls: Vec<Row>,
    pub(crate) requests: Vec<Row>,
    pub(crate) communicators: Vec<Row>,
    /// Rows that its ledger tells of.
    pub(crate) lost: u64,
}

pub(crate) struct Trace {
    pub(crate) ranks: Vec<RankTrace>,
}

impl Trace {
    pub(crate) fn read(folder: &Path) -> Trace {
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

pub(crate) fn rows(shard: &Shard, wanted: TableId) -> Vec<Row> {
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
pub(crate) fn summed(rows: &[Row]) -> BTreeMap<String, (i64, i64)> {
    let mut sums = BTreeMap::new();
    for row in rows {
        let sum: &mut (i64, i64) = sums.entry(text(row, "name_id").to_owned()).or_default();
        sum.0 += 1;
        sum.1 += number(row, "bytes").unwrap_or(0);
    }
    sums
}

/// Lines that only one side has.
pub(crate) fn assert_same(
    rank: usize,
    counted: &BTreeMap<String, (i64, i64)>,
    recorded: &BTreeMap<String, (i64, i64)>,
) {
    let names: BTreeSet<_> = counted.keys().chain(recorded.keys()).collect();
    let differences: Vec<_> = names
        .into_iter()
        .filter(|name| counted.get(*name) != recorded.get(*name))
        .map(|name| format!("{name}: counted {:?}, recorded {:?}", counted.get(name), recorded.get(name)))
        .collect();
    assert!(differences.is_empty(), "rank {rank}, calls and bytes:\n{}", differences.join("\n"));
}

/// Every call and every request is on record, as the program counted them.
pub(crate) fn assert_counts(run: &Run, trace: &Trace) {
    for (rank, recorded) in trace.ranks.iter().enumerate() {
        assert_same(rank, &run.counted(rank, "call"), &summed(&recorded.calls));
        assert_same(rank, &run.counted(rank, "done"), &summed(&recorded.requests));
    }
}

/// Every request belongs to the call that started it, and to one that completed it.
pub(crate) fn assert_requests(trace: &Trace) {
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
pub(crate) fn assert_communicators(trace: &Trace) {
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

pub(crate) fn is_collective(name: &str) -> bool {
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
    let prefixes = ["MPI_Wait", "MPI_Test", "MPI_Win_", "MPI_File_", "MPI_Request_"];
    !OTHERS.contains(&name) && !prefixes.iter().any(|prefix| name.starts_with(prefix))
}
