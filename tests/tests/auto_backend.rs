//! What plain rpd-collect records on a node with a GPU, with stand-ins for the device and for rocprofv3: a profiler that
//! fails, hangs or is missing costs its rows alone.

use crate::mpi_end_to_end::python_with_mpi;
use rpd_rocpd::Guid;
use rpd_tests::harness::{Database, binary, mpirun, repository, rpd_merge, skip};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

const RANKS: usize = 4;
const STEPS: usize = 4;
/// Kernels that the stand-in leaves for each process.
const KERNELS: i64 = 20;
const PROFILER: &str = include_str!("../../collector/tests/backends/profiler.py");

/// A node with a GPU: a file for the device, and a folder for PATH.
struct GpuNode {
    folder: tempfile::TempDir,
    python: PathBuf,
}

impl GpuNode {
    fn new(has_profiler: bool) -> Result<GpuNode, &'static str> {
        let node = GpuNode { folder: tempfile::tempdir().unwrap(), python: python_with_mpi()? };
        let bin = node.path("bin");
        fs::create_dir_all(node.path("scratch")).unwrap();
        fs::create_dir_all(&bin).unwrap();
        fs::write(node.path("kfd"), "").unwrap();
        let guid = Guid::from_bits(7);
        fs::write(bin.join("schema.sql"), rpd_rocpd::schema::create_all(&guid)).unwrap();
        fs::write(bin.join("uuid"), guid.suffix()).unwrap();
        if has_profiler {
            fs::write(bin.join("rocprofv3"), PROFILER).unwrap();
            fs::set_permissions(bin.join("rocprofv3"), PermissionsExt::from_mode(0o755)).unwrap();
        }
        Ok(node)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Trains on four ranks under rpd-collect without an option about what is recorded. Returns the merged run, and what was printed.
    fn train(&self, wrong: &str) -> (Database, String, String) {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let places = [self.path("bin")].into_iter().chain(std::env::split_paths(&path));
        let job = mpirun(RANKS).arg(binary("rpd-collect")).arg("-o").arg(self.path("runs"));
        let job = job.args(["--run-id", "run"]);
        let job = if wrong == "hangs" { job.args(["--backend-wait", "2"]) } else { job };
        // The metrics of the node are read for the first time after a moment.
        let job = job.args(["--", "sh", "-c", "sleep 2.5; exec \"$@\"", "sh"]).arg(&self.python);
        let job = job.arg(repository().join("tests/workloads/train.py"));
        let job = job
            .args(["--steps", &STEPS.to_string(), "--delay-ms", "5"])
            .env("PATH", std::env::join_paths(places).unwrap())
            .env("RPD_GPU_DEVICE", self.path("kfd"))
            .env("ROCM_PATH", self.path("rocm"))
            .env("TMPDIR", self.path("scratch"))
            .env("STAND_IN", wrong);
        let trained = job.limit(Duration::from_secs(150)).run().success();
        assert!(trained.stdout.starts_with("ranks: 4, "), "{trained}");
        let output = self.path("trace.db");
        let merged = rpd_merge().arg("-o").arg(&output).arg(self.path("runs/run")).run().success();
        let database = Database::open(&output);
        database.assert_sound();
        (database, trained.stderr, merged.stderr)
    }
}

/// Asserts that MPI calls, collectives that match, ranges and system metrics of all ranks are there, each once.
fn assert_native_is_whole(database: &Database, summary: &str) {
    let calls = database.number("SELECT count(*) FROM regions WHERE name = 'MPI_Allreduce'");
    assert_eq!(calls, (RANKS * STEPS * 2) as i64, "{summary}");
    let ranks = "SELECT DISTINCT json_extract(p.extdata, '$.rpd.rank') FROM rocpd_info_process p
        JOIN rocpd_region r ON r.pid = p.id JOIN rocpd_string s ON s.id = r.name_id
        WHERE s.string = 'MPI_Allreduce' ORDER BY 1";
    assert_eq!(database.rows(ranks), [["0"], ["1"], ["2"], ["3"]]);
    let matched = summary.lines().find(|line| line.trim_start().starts_with("matched"));
    let words: Vec<&str> = matched.unwrap_or_else(|| panic!("{summary}")).split_whitespace().collect();
    assert!(words[1] == words[3] && words[4].starts_with("collective"), "{words:?}");
    // The stand-in leaves no counters.
    assert!(database.count("rocpd_pmc_event") > 0, "{summary}");
}

/// Kernels, and the processes that launched them.
fn kernels(database: &Database) -> Vec<String> {
    database.rows("SELECT count(*), count(DISTINCT pid) FROM kernels").remove(0)
}

#[test]
fn plain_rpd_collect_on_a_gpu_node_records_kernels_mpi_and_system_metrics() {
    let node = match GpuNode::new(true) {
        Ok(node) => node,
        Err(why) => return skip("rpd-collect on a node with a GPU", why),
    };
    let (database, stderr, summary) = node.train("");
    assert_eq!(kernels(&database), [(KERNELS * RANKS as i64).to_string(), RANKS.to_string()], "{summary}");
    assert_native_is_whole(&database, &summary);
    let own: Vec<&str> = stderr.lines().filter(|line| line.starts_with("rpd-collect: ")).collect();
    let [line] = own[..] else { panic!("{stderr}") };
    let wanted = "kfd is there), MPI and RCCL calls and system metrics with native";
    assert!(line.contains("recording GPU work and roctx with rocprofv3") && line.ends_with(wanted), "{line}");
    // Kernels and calls are of the same processes.
    let processes = "SELECT count(DISTINCT p.pid) FROM rocpd_info_process p
        WHERE p.id IN (SELECT pid FROM rocpd_region UNION SELECT pid FROM rocpd_kernel_dispatch)";
    assert_eq!(database.number(processes), RANKS as i64);
    // Each rank has a row of rpd-collect and one of the profiler, and each collector that read the metrics has one.
    let collectors = collectors_in_turn(&database);
    assert!((1..=RANKS).contains(&collectors), "{collectors}");
    let plural = if collectors == 1 { "" } else { "s" };
    let said = format!(
        "4 ranks, {} processes ({collectors} collector{plural} for system metrics, 4 recorded by a profiler as well)",
        2 * RANKS + collectors
    );
    assert!(summary.contains(&said), "{summary}");
    let by_rank =
        format!("SELECT count(DISTINCT rank), sum(\"count(*)\") FROM ({})", rpd_tests::amd::query_by_rank());
    assert_eq!(database.rows(&by_rank), [[RANKS.to_string(), (KERNELS * RANKS as i64).to_string()]]);
    assert!(is_empty(&node.path("scratch")));
}

/// Asserts that one collector at a time read the metrics of the node: on a busy machine ranks end seconds apart, and another
/// collector goes on. Returns how many did.
fn collectors_in_turn(database: &Database) -> usize {
    let reads = "SELECT t.pid, min(s.timestamp), max(s.timestamp) FROM rocpd_sample s
        JOIN rocpd_track t ON t.id = s.track_id JOIN rocpd_event e ON e.id = s.event_id
        WHERE e.category_id = (SELECT id FROM rocpd_string WHERE string = 'SYSTEM_METRICS') AND t.pid NOT IN
            (SELECT pid FROM rocpd_region UNION SELECT pid FROM rocpd_kernel_dispatch)
        GROUP BY t.pid ORDER BY 2";
    let reads = database.rows(reads);
    let time = |row: &[String], at: usize| row[at].parse::<i64>().unwrap();
    assert!(reads.windows(2).all(|pair| time(&pair[0], 2) < time(&pair[1], 1)), "{reads:?}");
    reads.len()
}

fn is_empty(folder: &Path) -> bool {
    fs::read_dir(folder)
        .unwrap()
        .all(|entry| !entry.unwrap().file_name().to_string_lossy().starts_with("rpd-scratch-"))
}

#[test]
fn a_profiler_that_fails_hangs_or_is_missing_costs_its_rows_alone() {
    for (wrong, has_profiler) in [("fails", true), ("hangs", true), ("help-fails", true), ("", false)] {
        let node = match GpuNode::new(has_profiler) {
            Ok(node) => node,
            Err(why) => return skip("a profiler that fails under rpd-collect", why),
        };
        let (database, stderr, summary) = node.train(wrong);
        assert_eq!(kernels(&database), ["0", "0"], "{wrong}: {summary}");
        assert_native_is_whole(&database, &summary);
        // What the profiler would have recorded of the host is native's then.
        let forward = database.number("SELECT count(*) FROM regions WHERE name = 'forward'");
        assert_eq!(forward, (RANKS * STEPS) as i64, "{wrong}: {stderr}");
        let own = stderr.lines().filter(|line| line.starts_with("rpd-collect: "));
        let named: Vec<&str> = own.filter(|line| line.contains("roctx, MPI and RCCL calls")).collect();
        assert_eq!(named.len(), 1, "{wrong}: {stderr}");
        // A profiler that was announced and failed is in the ledger; of one that was never used nothing is lost.
        let lost: Vec<&str> = summary.lines().filter(|line| line.contains("lost  ")).collect();
        let [lost] = lost[..] else { panic!("{wrong}: {summary}") };
        let failed = "an unknown number of rows of rocprofv3 for ranks 0-3 (profiler_failed: it did not start the command";
        match wrong {
            "fails" | "hangs" => assert!(lost.contains(failed), "{wrong}: {summary}"),
            _ => assert!(lost.ends_with(" nothing"), "{wrong}: {summary}"),
        }
        let ledger =
            "SELECT count(*) FROM rocpd_metadata WHERE tag = 'rpd.losses' AND value LIKE '%profiler_failed%'";
        assert_eq!(database.number(ledger), i64::from(lost.contains("profiler_failed")), "{wrong}");
    }
}

#[test]
fn a_profiler_that_leaves_no_file_is_named_and_its_rows_are_not_said_to_be_there() {
    let node = match GpuNode::new(true) {
        Ok(node) => node,
        Err(why) => return skip("a silent profiler under rpd-collect", why),
    };
    let (database, _, summary) = node.train("silent");
    assert_eq!(kernels(&database), ["0", "0"], "{summary}");
    assert_native_is_whole(&database, &summary);
    let note =
        "rocprofv3 left no file for ranks 0-3: the program called nothing that it records, or ended by _exit";
    assert!(summary.contains(note), "{summary}");
    assert!(summary.contains("lost       nothing of what was read"), "{summary}");
}
