//! RocPD databases of several nodes, as rocprofv3 leaves them: their clocks go by the kernels of RCCL.

use super::*;
use rpd_tests::synthetic::{RUN_START, RandomSource, write_rocpd};
use rusqlite::{Connection, params};

/// Three nodes without any call of MPI that all make together.
fn of_rccl() -> Run {
    of_nodes(3, 1, 1)
}

fn of_nodes(nodes: u32, ranks: u32, seed: u64) -> Run {
    SyntheticRun { collectives: false, probes: false, seed, ..probed(nodes, ranks) }.plan()
}

/// Which ranks are in one communicator.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Groups {
    /// All of them.
    DataParallel,
    /// Those of one node; but for some calls, of all.
    TensorAndDataParallel,
    /// Those of one node, and each node begins when the one before it has ended.
    Pipeline,
    /// Those of one node, and nodes have nothing to do with each other.
    Apart,
}

impl Groups {
    /// Whether the n-th call is one of all ranks.
    fn is_of_all(self, n: i64) -> bool {
        self == Groups::DataParallel || self == Groups::TensorAndDataParallel && n / 8 % 2 == 1
    }

    /// When the kernel of the n-th call of a rank begins and ends, true times.
    fn kernel(self, run: &Run, rank: &ModelRank, n: i64) -> (i64, i64) {
        let random =
            |rank: u32, what| RandomSource::new(&[21, run.config.seed, n as u64, u64::from(rank), what]);
        let base = |node: usize| match self {
            _ if self.is_of_all(n) => 0,
            Groups::Pipeline => 9_000_000 * node as i64 + random(node as u32, 1).between(0, 100_000),
            _ => random(node as u32, 1).between(0, 3_000_000),
        };
        let enter = |rank: &ModelRank| {
            RUN_START + n * 29_000_000 + base(rank.node) + random(rank.rank, 2).between(0, 2_000_000)
        };
        let others = run.ranks.iter().filter(|other| self.is_of_all(n) || other.node == rank.node);
        let end = others.map(enter).max().unwrap() + 12_000;
        (enter(rank), end + random(rank.rank, 3).between(0, 3_000))
    }
}

/// Opens a database of one guid, and gives the end of its table names.
fn open(path: &Path) -> (Connection, String) {
    let database = Connection::open(path).unwrap();
    let sql = "SELECT substr(name, length('rocpd_region') + 1) FROM sqlite_master WHERE type = 'table' AND name LIKE 'rocpd_region%'";
    let suffix = database.query_row(sql, [], |row| row.get(0)).unwrap();
    (database, suffix)
}

/// Adds a copy of a row with some columns changed; returns its id.
fn copy(database: &Connection, table: &str, id: i64, changed: &[(&str, i64)]) -> i64 {
    let sql = format!("SELECT name FROM pragma_table_info('{table}')");
    let names: Vec<String> = database
        .prepare(&sql)
        .unwrap()
        .query_map([], |row| row.get(0))
        .unwrap()
        .map(Result::unwrap)
        .collect();
    let next: i64 =
        database.query_row(&format!("SELECT max(id) + 1 FROM \"{table}\""), [], |row| row.get(0)).unwrap();
    let value = |name: &String| match changed.iter().find(|(column, _)| column == name) {
        Some((_, value)) => value.to_string(),
        None if name == "id" => next.to_string(),
        None => format!("\"{name}\""),
    };
    let values: Vec<String> = names.iter().map(value).collect();
    let values = values.join(", ");
    database
        .execute(&format!("INSERT INTO \"{table}\" SELECT {values} FROM \"{table}\" WHERE id = {id}"), [])
        .unwrap();
    next
}

/// Gives each RCCL call of a process its kernel, and its communicators handles of their own. Some calls launch
/// another kernel, too.
fn launch_kernels(job: Groups, run: &Run, rank: &ModelRank, path: &Path) {
    let (database, suffix) = open(path);
    let node = &run.nodes[rank.node].clock;
    let table = |name: &str| format!("rocpd_{name}{suffix}");
    let sql = format!(
        "SELECT e.stack_id, e.id FROM \"{}\" r JOIN \"{}\" s ON s.id = r.name_id JOIN \"{}\" e ON e.id = r.event_id
          WHERE s.string IN ('ncclAllReduce', 'ncclBroadcast') ORDER BY r.start",
        table("region"),
        table("string"),
        table("event")
    );
    let mut calls = database.prepare(&sql).unwrap();
    let stacks: Vec<(i64, i64)> =
        calls.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap().map(Result::unwrap).collect();
    assert!(stacks.len() > 100);
    let dispatches = table("kernel_dispatch");
    let first = |column: &str| -> i64 {
        database
            .query_row(&format!("SELECT {column} FROM \"{dispatches}\" ORDER BY id LIMIT 1"), [], |row| {
                row.get(0)
            })
            .unwrap()
    };
    let (dispatch, event, kernel) = (first("id"), first("event_id"), first("kernel_id"));
    let symbols = table("info_kernel_symbol");
    let rccl = copy(&database, &symbols, kernel, &[]);
    let name = format!("UPDATE \"{symbols}\" SET kernel_name = ?, display_name = ? WHERE id = ?");
    database
        .execute(&name, params!["ncclDevKernel_Generic_1(...)", "ncclDevKernel_Generic_1", rccl])
        .unwrap();
    database.execute_batch("BEGIN").unwrap();
    let handle = |of_all: bool| format!("0x7f{:04x}{:02x}", 0x1234 + rank.rank, u8::from(of_all));
    let comm = format!("UPDATE \"{}\" SET value = ? WHERE name = 'comm' AND event_id = ?", table("arg"));
    for (n, (stack, call)) in (1..).zip(stacks) {
        let (begin, end) = job.kernel(run, rank, n);
        assert_eq!(database.execute(&comm, params![handle(job.is_of_all(n)), call]).unwrap(), 1);
        let launch = |kernel: i64, from: i64, to: i64| {
            let event = copy(&database, &table("event"), event, &[("stack_id", stack)]);
            let times = [("start", node.local(from)), ("end", node.local(to))];
            let changed = [&[("event_id", event), ("kernel_id", kernel)][..], &times].concat();
            copy(&database, &dispatches, dispatch, &changed);
        };
        launch(if n % 2 == 0 { rccl } else { kernel }, begin, end);
        if n % 4 == 0 {
            launch(kernel, begin - 70_000, begin - 20_000);
        }
    }
    database.execute_batch("COMMIT").unwrap();
}

#[test]
fn kernels_of_rccl_align_databases_and_calls_alone_do_not() {
    let run = of_rccl();
    let folder = tempfile::tempdir().unwrap();
    let inputs = write_rocpd(&run, &folder.path().join("in")).unwrap();
    let out = folder.path().join("out.db");
    let bare = merge(&out, &[], &inputs);
    assert_eq!(bare.method("gpu001"), "none");
    let line = "gpu001 (rank 1), gpu002 (rank 2): nothing is known of their clocks; times unchanged, and not comparable with others; record with rpd-collect, or give --clock-file FILE";
    assert!(bare.stderr.contains(line), "{}", bare.stderr);
    let note = "waiting    cannot tell which rank entered last: the collectives that match do not say when ranks waited (calls of RCCL return early: rocprofv3 records their kernels)";
    assert!(bare.stderr.contains(note), "{}", bare.stderr);
    for rank in &run.ranks {
        assert_eq!(worst(&errors(&run, rank, rank.node, &bare.database)), 0, "times stay");
    }

    run.ranks
        .iter()
        .zip(&inputs)
        .for_each(|(rank, path)| launch_kernels(Groups::DataParallel, &run, rank, path));
    let merged = merge(&out, &[], &inputs);
    merged.database.assert_sound();
    for rank in &run.ranks[1..] {
        let host = &run.nodes[rank.node].node.hostname;
        assert_eq!(merged.method(host), "collectives", "{}", merged.stderr);
        assert!(merged.number(host, "collectives") > 20, "{}", merged.clock(host));
        merged.assert_within_bar(&run, rank);
        assert!(merged.number(host, "bar_ns") < 60_000, "{}", merged.clock(host));
        assert!(merged.clock(host)["hard_ns"].is_null(), "order and times make nothing certain");
    }
    assert!(!merged.stderr.contains("certain"), "{}", merged.stderr);
    assert_eq!(merged.report["collectives_not_used"], serde_json::json!([]));
    assert!(merged.report["lateness"]["waited_ns"].as_i64().unwrap() > 0, "{}", merged.stderr);
}

#[test]
fn one_call_that_differs_is_told_and_nothing_is_aligned_by_the_others() {
    let run = of_rccl();
    let folder = tempfile::tempdir().unwrap();
    let inputs = write_rocpd(&run, &folder.path().join("in")).unwrap();
    run.ranks
        .iter()
        .zip(&inputs)
        .for_each(|(rank, path)| launch_kernels(Groups::DataParallel, &run, rank, path));
    let (database, suffix) = open(&inputs[2]);
    // Its twelfth collective is another one.
    let sql = format!(
        "UPDATE \"rocpd_region{suffix}\" SET name_id = (SELECT id FROM \"rocpd_string{suffix}\" WHERE string = 'ncclBroadcast')
          WHERE id = (SELECT r.id FROM \"rocpd_region{suffix}\" r JOIN \"rocpd_string{suffix}\" s ON s.id = r.name_id
                       WHERE s.string = 'ncclAllReduce' ORDER BY r.start LIMIT 1 OFFSET 6)"
    );
    assert_eq!(database.execute(&sql, []).unwrap(), 1);
    drop(database);
    let merged = merge(&folder.path().join("out.db"), &[], &inputs);
    for host in ["gpu001", "gpu002"] {
        assert_eq!(merged.method(host), "none");
    }
    assert!(merged.stderr.contains("'s collective 13 is nccl"), "{}", merged.stderr);
    assert_eq!(merged.report["collectives"]["matched"], 0);

    // What the site has measured does instead.
    let file = folder.path().join("clocks");
    let line = |node: usize| {
        let [own, first] = [node, 0].map(|node: usize| run.nodes[node].clock.local(RUN_START));
        let drift = (run.nodes[node].clock.drift_ppb - run.nodes[0].clock.drift_ppb) as f64 / 1e3;
        format!("gpu{node:03} offset={} at={own} drift_ppm={drift} error=900\n", first - own)
    };
    fs::write(&file, format!("reference gpu000\n{}{}", line(1), line(2))).unwrap();
    let arguments = ["--clock-file", file.to_str().unwrap()];
    let by_file = merge(&folder.path().join("out.db"), &arguments, &inputs);
    for rank in &run.ranks[1..] {
        let errors = errors_of(rocpd::MEMORY_COPY, &run, rank, 0, &by_file.database);
        assert!(worst(&errors) < 900, "{}: {}", worst(&errors), by_file.stderr);
    }
    assert!(by_file.line("gpu001").ends_with("  900 ns  the clock file"), "{}", by_file.stderr);
}

impl Merged {
    /// Times of a rank are off by no more than the bar in nine of ten cases.
    fn assert_within_bar(&self, run: &Run, rank: &ModelRank) {
        let host = &run.nodes[rank.node].node.hostname;
        let errors = errors_of(rocpd::MEMORY_COPY, run, rank, 0, &self.database);
        let bar = self.number(host, "bar_ns");
        let inside = errors.iter().filter(|error| error.abs() <= bar).count();
        assert!(inside * 10 >= errors.len() * 9, "{inside} of {}: {}", errors.len(), self.clock(host));
    }
}

/// A merged job of two nodes; its times follow from a seed.
fn of_two_nodes(job: Groups, seed: u64) -> (Run, Merged) {
    let run = of_nodes(2, 2, seed);
    let folder = tempfile::tempdir().unwrap();
    let inputs = write_rocpd(&run, &folder.path().join("in")).unwrap();
    run.ranks.iter().zip(&inputs).for_each(|(rank, path)| launch_kernels(job, &run, rank, path));
    let merged = merge(&folder.path().join("out.db"), &[], &inputs);
    (run, merged)
}

#[test]
fn communicators_of_all_nodes_align_them_and_those_of_one_node_do_not() {
    use Groups::{DataParallel, TensorAndDataParallel};
    let jobs = [(DataParallel, 1), (DataParallel, 2), (TensorAndDataParallel, 3), (TensorAndDataParallel, 4)];
    for (job, seed) in jobs {
        let (run, merged) = of_two_nodes(job, seed);
        assert_eq!(merged.method("gpu001"), "collectives", "{job:?} {seed}: {}", merged.stderr);
        run.ranks.iter().filter(|rank| rank.node == 1).for_each(|rank| merged.assert_within_bar(&run, rank));
        let told = merged.report["collectives_not_used"].as_array().map_or(0, Vec::len);
        assert_eq!(told, usize::from(job != Groups::DataParallel), "{}", merged.stderr);
    }
}

#[test]
fn stages_of_a_pipeline_are_never_taken_for_one_communicator() {
    for (job, seed) in [(Groups::Pipeline, 1), (Groups::Pipeline, 2), (Groups::Apart, 3), (Groups::Apart, 4)]
    {
        let (run, merged) = of_two_nodes(job, seed);
        assert_eq!(merged.method("gpu001"), "none", "{job:?} {seed}: {}", merged.stderr);
        for rank in &run.ranks {
            let errors = errors_of(rocpd::MEMORY_COPY, &run, rank, rank.node, &merged.database);
            assert_eq!(worst(&errors), 0, "times stay");
        }
        for words in [
            "warning    profilers' files name no communicators",
            "--clock-file FILE",
            "not used",
            "of gpu001 (ranks 2 to 3) and gpu000: ",
        ] {
            assert!(merged.stderr.contains(words), "{words}: {}", merged.stderr);
        }
        let told = merged.report["collectives_not_used"].as_array().unwrap();
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(merged.report["collectives"]["unproven"].as_u64().unwrap() > 20);
    }
}
