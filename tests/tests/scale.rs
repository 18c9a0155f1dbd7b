//! Many ranks, many inputs, many strings, large payloads, little memory, few open files: the same file byte for byte.

use rpd_shard::model::{TableId, Value, native, rocpd};
use rpd_shard::size::Size;
use rpd_tests::crafted::{push_thread, shard_of};
use rpd_tests::harness::{
    Database, Job, RunFolder, binary, leftovers, mpi_missing, mpirun, rpd_merge, rpd_merge_mpi, skip,
};
use rpd_tests::synthetic::{BulkRun, SyntheticRun, expand, write_bulk_rocpd, write_bulk_shards};
use serde_json::{Value as Json, json};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::TempDir;

/// Longest merge.
const LIMIT: Duration = Duration::from_secs(600);

/// Whether the long tests are asked for.
fn soak() -> bool {
    std::env::var("RPD_SOAK").is_ok_and(|value| value == "1")
}

/// Inputs that are not synthetic runs: so many shards, each with so many names that no other one has, a few
/// that all have, and texts that are longer than a page.
struct Many {
    shards: u32,
    names: usize,
    texts: usize,
}

impl Many {
    fn write(&self, folder: &Path) {
        let ranks_per_node = self.shards.min(8);
        let nodes = self.shards / ranks_per_node;
        let config = SyntheticRun { nodes, ranks_per_node, kernels: 1, ..SyntheticRun::default() };
        fs::create_dir_all(folder).unwrap();
        for rank in 0..self.shards {
            let bytes = shard_of(&config, rank, |shard| {
                let thread = Value::Int(push_thread(shard)?);
                let mut at = i64::from(rank) * 1_000;
                let mut range = |shard: &mut rpd_shard::ShardWriter<Vec<u8>>, name: &str| {
                    let name = Value::Int(shard.string(name.as_bytes())?);
                    at += 10;
                    let (start, end) = (Value::Int(at), Value::Int(at + 7));
                    let row = [thread, start, end, name, Value::Int(at), Value::Int(0)];
                    shard.push(1, native::RANGE, &row).map(drop)
                };
                for i in 0..self.names {
                    // Of different lengths, in no order.
                    let name = (u64::from(rank) << 32 | i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                    range(shard, &format!("{name:x} {}", &"name of a range"[..i % 16]))?;
                    if i % 10 == 0 {
                        range(shard, "forward")?;
                    }
                }
                for i in 0..self.texts {
                    // From just below a page to several of them.
                    let text = format!("text {i} of {rank} ").repeat(200 + 70 * i);
                    let name = Value::Int(shard.string(text.as_bytes())?);
                    let row = [thread, Value::Int(5), name, Value::Int(0), Value::Int(0)];
                    shard.push(1, native::MARK, &row)?;
                }
                Ok(())
            });
            fs::write(folder.join(format!("rank-{rank:05}.rpdshard")), bytes).unwrap();
        }
    }
}

/// A folder of inputs, and the outputs beside it.
struct Scale {
    folder: TempDir,
}

impl Scale {
    fn new() -> Scale {
        Scale { folder: tempfile::tempdir().unwrap() }
    }

    fn inputs(&self) -> PathBuf {
        self.folder.path().join("in")
    }

    /// Runs a merge to which the output and the inputs are added, and returns the output.
    fn merged(&self, name: &str, job: Job) -> PathBuf {
        let output = self.folder.path().join(format!("{name}.db"));
        let job = job.args(["--quiet", "-o"]).arg(&output).arg(self.inputs()).limit(LIMIT);
        let outcome = job.run().success();
        eprintln!("{name}: {:.1} s", outcome.took.as_secs_f64());
        output
    }

    /// Merges with one and two threads, with few open files, and on one to three ranks; all outputs are
    /// the same. Returns the first.
    fn merged_in_all_ways(&self) -> PathBuf {
        let first = self.merged("solo-1", rpd_merge().args(["--threads", "1"]));
        let bytes = fs::read(&first).unwrap();
        let same = |name: &str, job: Job| {
            let output = self.merged(name, job);
            assert!(fs::read(&output).unwrap() == bytes, "{name} differs from one thread");
            fs::remove_file(&output).unwrap();
        };
        let few_files = ["-c", "ulimit -n 256 && exec \"$@\"", "sh"];
        same("solo-2", rpd_merge().args(["--threads", "2"]).wrapped("sh", &few_files));
        if let Some(why) = mpi_missing() {
            skip("merges under mpirun", why);
            return first;
        }
        for ranks in [1, 2, 3] {
            same(&format!("mpi-{ranks}"), rpd_merge_mpi(ranks).args(["--threads", "1"]));
        }
        let of_ranks = mpirun(3).arg("sh").args(few_files).arg(binary("rpd-merge"));
        same("mpi-3-few-files", of_ranks.args(["--threads", "1"]));
        assert_eq!(
            leftovers(self.folder.path()).iter().filter(|path| !path.starts_with(self.inputs())).count(),
            1
        );
        first
    }
}

#[test]
fn a_thousand_inputs_give_the_same_file_on_any_ranks_and_threads_mpi() {
    let scale = Scale::new();
    let (shards, databases) = if soak() { (3_096, 1_000) } else { (904, 96) };
    Many { shards, names: 3, texts: 0 }.write(&scale.inputs());
    let run = BulkRun { seed: 2, events_per_rank: 20, operations: 10, ..BulkRun::tiny(databases) };
    write_bulk_rocpd(&scale.inputs(), &run).unwrap();
    let output = Database::open(&scale.merged_in_all_ways());
    output.assert_sound();
    assert_eq!(output.count("rocpd_info_process"), i64::from(shards + databases));
    let ranges = "SELECT count(*) FROM regions WHERE category = 'MARKER_CORE_RANGE_API'";
    assert!(output.number(ranges) >= i64::from(shards) * 4);
}

#[test]
fn a_million_strings_and_long_texts_give_the_same_file_mpi() {
    let scale = Scale::new();
    let names = if soak() { 1_000 } else { 200 };
    let many = Many { shards: 1_000, names, texts: 3 };
    many.write(&scale.inputs());
    let output = Database::open(&scale.merged_in_all_ways());
    assert_eq!(output.rows("PRAGMA integrity_check"), [["'ok'"]]);
    let distinct = many.shards as usize * many.names;
    assert!(output.count("rocpd_string") > distinct as i64, "{}", output.count("rocpd_string"));
    let ranges = distinct + distinct.div_ceil(10);
    assert_eq!(output.number("SELECT count(*) FROM rocpd_region"), ranges as i64);
    // Every name is where it was put, every text whole.
    let wrong = "SELECT count(*) FROM rocpd_region r JOIN rocpd_string s ON s.id = r.name_id
                  WHERE s.string != 'forward' AND s.string NOT GLOB '[0-9a-f]*'";
    assert_eq!(output.number(wrong), 0);
    let texts = "SELECT count(*) FROM rocpd_event
                  WHERE length(extdata) > 2300 AND json_extract(extdata, '$.message') GLOB 'text * of *'";
    assert_eq!(output.number(texts), i64::from(many.shards) * many.texts as i64);
    let whole =
        "SELECT count(*) FROM rocpd_string WHERE length(string) > 2300 AND string GLOB 'text * of * '";
    assert_eq!(output.number(whole), i64::from(many.shards) * many.texts as i64);
}

/// Databases and shards of a run, each kind many times as large as the memory that a merge is given.
fn large(folder: &Path) -> (PathBuf, PathBuf) {
    let events_per_rank = if soak() { 1_500_000 } else { 250_000 };
    let run = BulkRun { ranks: 4, events_per_rank, ..BulkRun::default() };
    let databases = folder.join("databases");
    write_bulk_rocpd(&databases, &run).unwrap();
    write_bulk_shards(folder, &run).unwrap();
    (databases, folder.join(run.plan().run_id))
}

#[test]
fn memory_stays_within_what_is_allowed_mpi() {
    let folder = tempfile::tempdir().unwrap();
    let (databases, shards) = large(folder.path());
    // The limit is on writable private memory: what a process asks for, not what it reserves.
    let memory: usize = if soak() { 256 } else { 128 };
    let limited = format!("ulimit -d {} && exec \"$@\"", memory << 10);
    let limited = ["-c", &limited, "sh"];
    let allowed = format!("{memory}MiB");
    for inputs in [&databases, &shards] {
        let output = folder.path().join("free.db");
        let _ = rpd_merge()
            .args(["--force", "--quiet", "-o"])
            .arg(&output)
            .arg(inputs)
            .limit(LIMIT)
            .run()
            .success();
        let expected = fs::read(&output).unwrap();
        assert!(expected.len() > memory << 20, "{} bytes would fit", expected.len());
        let within = folder.path().join("within.db");
        let arguments = |job: Job| {
            let job = job.args(["--force", "--quiet", "--memory", &allowed, "-o"]).arg(&within);
            job.arg(inputs).limit(LIMIT)
        };
        for threads in ["1", "2"] {
            let job = arguments(rpd_merge().args(["--threads", threads])).wrapped("sh", &limited);
            let _ = job.run().success();
            assert!(fs::read(&within).unwrap() == expected, "another file, {threads} threads");
        }
        if let Some(why) = mpi_missing() {
            skip("memory of a merge under mpirun", why);
            continue;
        }
        let ranks = mpirun(2).arg("sh").args(limited).arg(binary("rpd-merge")).args(["--threads", "1"]);
        let _ = arguments(ranks).run().success();
        assert!(fs::read(&within).unwrap() == expected, "another file, 2 ranks");
    }
}

/// A merge that may not have more memory than it is told that it has.
fn limited(job: Job, memory: &str) -> Job {
    let kib = memory.parse::<Size>().unwrap().0 >> 10;
    let limit = format!("ulimit -d {kib} && exec \"$@\"");
    job.args(["--memory", memory]).wrapped("sh", &["-c", &limit, "sh"])
}

/// Merges with this memory, which is refused in one line, and then with what that line asks for; what comes of it
/// is the same as without a limit.
fn refused_with_and_merged_with_what_is_asked_for(inputs: &Path, memory: &str) -> PathBuf {
    let folder = inputs.parent().unwrap();
    let (free, within) = (folder.join("free.db"), folder.join("within.db"));
    let job = |output: &Path| {
        let job = rpd_merge().args(["--force", "--quiet", "-o"]).arg(output).arg(inputs);
        job.limit(LIMIT)
    };
    for threads in ["1", "3"] {
        let mut asked = memory.to_owned();
        // What is asked for before all inputs are read is a guess, and may be told again.
        let merged = (0..4).find(|round| {
            let outcome = limited(job(&within).args(["--threads", threads]), &asked).run();
            if outcome.code() == Some(0) {
                return true;
            }
            assert_eq!(outcome.code(), Some(2), "{asked}: {outcome}");
            let line = outcome.stderr.trim();
            assert_eq!(line.lines().count(), 1, "{outcome}");
            let next = line.split("give it --memory ").nth(1).unwrap().split(',').next().unwrap();
            assert!(next.parse::<Size>().unwrap().0 > asked.parse::<Size>().unwrap().0, "{round}: {outcome}");
            next.clone_into(&mut asked);
            false
        });
        assert!(merged.is_some_and(|rounds| rounds > 0), "{merged:?}: {memory} is enough, or nothing is");
        let _ = job(&free).run().success();
        assert!(fs::read(&free).unwrap() == fs::read(&within).unwrap(), "another file, {threads} threads");
    }
    within
}

#[test]
fn what_is_known_of_many_inputs_is_within_the_memory_mpi() {
    let scale = Scale::new();
    let (shards, solo, ranks) = if soak() { (4_096, "64M", "80M") } else { (1_000, "48M", "72M") };
    Many { shards, names: 1, texts: 0 }.write(&scale.inputs());
    let within = scale.merged("within", limited(rpd_merge(), solo));
    let bytes = fs::read(&within).unwrap();
    let _ =
        refused_with_and_merged_with_what_is_asked_for(&scale.inputs(), if soak() { "48M" } else { "36M" });
    if let Some(why) = mpi_missing() {
        return skip("many inputs and little memory under mpirun", why);
    }
    for n in [1, 2, 3] {
        let kib = ranks.parse::<Size>().unwrap().0 >> 10;
        let limit = format!("ulimit -d {kib} && exec \"$@\"");
        let job = mpirun(n).arg("sh").args(["-c", &limit, "sh"]).arg(binary("rpd-merge"));
        let output = scale.merged("ranks", job.args(["--threads", "1", "--force", "--memory", ranks]));
        assert!(fs::read(&output).unwrap() == bytes, "{n} ranks make another file");
    }
}

#[test]
fn more_strings_than_there_is_memory_for_are_refused_and_what_is_asked_for_is_enough() {
    let folder = tempfile::tempdir().unwrap();
    let inputs = folder.path().join("in");
    let (distinct_strings, events_per_rank) = if soak() { (1_000_000, 200_000) } else { (200_000, 40_000) };
    let run = BulkRun { ranks: 8, events_per_rank, distinct_strings, ..BulkRun::default() };
    write_bulk_rocpd(&inputs, &run).unwrap();
    let output = refused_with_and_merged_with_what_is_asked_for(&inputs, "40M");
    assert!(Database::open(&output).count("rocpd_string") > distinct_strings as i64 * 9 / 10);
}

#[test]
fn long_texts_and_many_strings_are_within_any_memory_that_is_enough() {
    let folder = tempfile::tempdir().unwrap();
    let inputs = folder.path().join("in");
    let (distinct_strings, events_per_rank) = if soak() { (1_000_000, 150_000) } else { (150_000, 30_000) };
    let run =
        BulkRun { ranks: 4, events_per_rank, distinct_strings, payload_bytes: 20_000, ..BulkRun::default() };
    write_bulk_rocpd(&inputs, &run).unwrap();
    let output = refused_with_and_merged_with_what_is_asked_for(&inputs, "34M");
    let bytes = fs::read(&output).unwrap();
    // With more memory there are more threads, and more pages on their way.
    for mebibytes in [if soak() { 104 } else { 64 }, 112, 128, 160, 200] {
        let job = rpd_merge().args(["--force", "--quiet", "--threads", "3", "-o"]).arg(&output).arg(&inputs);
        let _ = limited(job.limit(LIMIT), &format!("{mebibytes}M")).run().success();
        assert!(fs::read(&output).unwrap() == bytes, "another file, {mebibytes} MiB");
    }
}

#[test]
fn a_row_beyond_the_memory_is_refused_unread() {
    let folder = tempfile::tempdir().unwrap();
    let long = "UPDATE rocpd_arg{} SET value = hex(zeroblob(15 << 20)) WHERE id = 1";
    let inputs = changed(folder.path(), 100, long);
    let output = Database::open(&refused_with_and_merged_with_what_is_asked_for(&inputs, "32M"));
    assert_eq!(output.number("SELECT count(*) FROM rocpd_arg WHERE length(value) = 30 << 20"), 1);
}

/// A small database after this statement.
fn changed(folder: &Path, events_per_rank: usize, sql: &str) -> PathBuf {
    let run = BulkRun { events_per_rank, ..BulkRun::tiny(1) };
    let inputs = folder.join("in");
    let written = write_bulk_rocpd(&inputs, &run).unwrap();
    let file = rusqlite::Connection::open(&written[0]).unwrap();
    let suffix: String = file
        .query_row("SELECT substr(name, 12) FROM sqlite_master WHERE name LIKE 'rocpd_event%'", [], |row| {
            row.get(0)
        })
        .unwrap();
    file.execute_batch(&sql.replace("{}", &suffix)).unwrap();
    inputs
}

#[test]
fn stack_ids_that_have_to_be_numbered_anew_are_within_the_memory() {
    let folder = tempfile::tempdir().unwrap();
    let inputs = changed(folder.path(), 200_000, "UPDATE rocpd_event{} SET stack_id = -1 - id * 7919");
    let output = Database::open(&refused_with_and_merged_with_what_is_asked_for(&inputs, "32M"));
    let events = output.count("rocpd_event");
    assert!(events > 32 << 12, "{events} ids would fit");
    assert_eq!(output.number("SELECT count(DISTINCT stack_id) FROM rocpd_event"), events);
}

#[test]
fn long_rows_are_read_one_by_one() {
    let folder = tempfile::tempdir().unwrap();
    let long =
        "UPDATE rocpd_event{} SET extdata = '{\"message\": \"' || id || hex(zeroblob(1500000)) || '\"}'
                 WHERE id <= 60";
    let inputs = changed(folder.path(), 100, long);
    let output = Database::open(&refused_with_and_merged_with_what_is_asked_for(&inputs, "40M"));
    let whole = "SELECT count(*) FROM rocpd_event WHERE extdata GLOB '{\"message\": \"' || id || '0*'
                  AND length(extdata) > 3000000";
    assert_eq!(output.number(whole), 60);
}

#[test]
fn a_limit_on_memory_that_is_nonsense_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    for memory in ["0", "1", "-5GiB", "1QiB", "", "99999999999999999999GiB"] {
        let outcome = rpd_merge().args(["--memory", memory]).arg(folder.path()).run();
        assert_eq!(outcome.code(), Some(2), "{memory:?}: {outcome}");
    }
    for memory in ["128M", "1GiB"] {
        let outcome = rpd_merge().args(["--memory", memory]).arg(folder.path()).run();
        assert_eq!(outcome.code(), Some(4), "there is nothing to merge: {outcome}");
    }
}

#[test]
fn a_partitioned_output_of_more_processes_than_sqlite_joins_is_refused() {
    let scale = Scale::new();
    Many { shards: 504, names: 1, texts: 0 }.write(&scale.inputs());
    let output = scale.folder.path().join("out.db");
    let job = rpd_merge().args(["--layout", "partitioned", "-o"]).arg(&output).arg(scale.inputs());
    let outcome = job.run();
    assert!(matches!(outcome.code(), Some(2 | 4)), "{outcome}");
    let errors: Vec<_> = outcome.stderr.lines().filter(|line| line.contains("error:")).collect();
    assert!(errors.len() == 1 && errors[0].contains("500") && errors[0].contains("504"), "{outcome}");
    assert!(!output.exists());
}

/// A run of 1,200 ranks, in folders of 1,000, on 150 nodes that have measured their clocks against each other.
fn many_ranks() -> SyntheticRun {
    SyntheticRun {
        nodes: 150,
        ranks_per_node: 8,
        events_per_rank: 20,
        threads: 1,
        kernels: 4,
        probes: true,
        missing_rank: Some(1_100),
        ..SyntheticRun::default()
    }
}

#[test]
fn a_run_in_folders_of_a_thousand_ranks_is_merged_as_a_whole_and_told_in_few_lines() {
    let config = many_ranks();
    let run = RunFolder::new(&config);
    let plan = config.plan();
    for (rank, folder) in [(7, "ranks-00000"), (1_042, "ranks-01000")] {
        assert!(run.shard(rank).starts_with(run.path.join(folder)) && run.shard(rank).is_file());
    }
    // Files of a run that was begun by an older version, which had no folders, are of it as well.
    fs::rename(run.shard(7), run.path.join("rank-00007.rpdshard")).unwrap();
    fs::rename(run.shard(1_042), run.path.join("rank-01042.rpdshard")).unwrap();
    let whole = rpd_merge().args(["--threads", "2", "--json"]).arg(&run.path).run().success();
    let merged = fs::read(run.path.join("trace.db")).unwrap();
    let told: Json = serde_json::from_str(&whole.stdout).unwrap();
    let (ranks, shards) = (&told["ranks"], &told["shards"]);
    assert_eq!((ranks.as_u64(), shards.as_u64()), (Some(1_199), Some(1_199)), "{whole}");
    assert_eq!(told["missing_ranks"], json!([1_100]));

    // Every row of every rank is there.
    let database = run.database();
    let mut rows: BTreeMap<TableId, usize> = BTreeMap::new();
    for process in plan.processes() {
        let own = expand(&plan.rows(process));
        own.tables.iter().for_each(|(table, some)| *rows.entry(*table).or_default() += some.len());
    }
    assert!(rows.len() > 8 && rows[&rocpd::REGION] > 1_199 * 20, "{rows:?}");
    for (table, count) in rows {
        assert_eq!(database.count(&table.to_string()), count as i64, "{table}");
    }
    assert_eq!(database.count("rocpd_info_node"), 150);
    assert_eq!(database.count("rocpd_info_process"), 1_199);

    // All clocks are aligned, and on a terminal only some of them are told.
    let clocks = told["clocks"].as_array().unwrap();
    let by = |method: &str| clocks.iter().filter(|clock| clock["method"] == method).count();
    assert_eq!((by("reference"), by("probes") + by("fusion")), (1, 149), "{whole}");
    let lines: Vec<&str> = whole.stderr.lines().collect();
    assert!(lines.len() < 40, "{} lines: {whole}", lines.len());
    assert!(lines.iter().any(|line| line.contains("138 more") && line.contains("--json")), "{whole}");
    assert!(lines.iter().any(|line| line.contains("nothing of rank 1100")), "{whole}");

    // What a phase took is told, and all of them together are the merge.
    let phases = told["phases"].as_array().unwrap();
    let names: Vec<&str> = phases.iter().filter_map(|phase| phase["phase"].as_str()).collect();
    assert_eq!(names, ["plan", "read", "agree", "match", "align", "number", "write", "seal", "analyse"]);
    let sum: f64 = phases.iter().filter_map(|phase| phase["seconds"].as_f64()).sum();
    let seconds = told["seconds"].as_f64().unwrap();
    assert!(sum <= seconds && sum > seconds * 0.5, "{sum} of {seconds}");

    // Reading alone finds the same; so does a merge with few open files.
    let dry = rpd_merge().args(["--dry-run", "--json", "-q"]).arg(&run.path).run().success();
    let dry: Json = serde_json::from_str(&dry.stdout).unwrap();
    assert_eq!((&dry["rows"], &dry["rows_read"]), (&told["rows"], &told["rows_read"]));
    let few_files = ["-c", "ulimit -n 64 && exec \"$@\"", "sh"];
    let job = rpd_merge().args(["--threads", "1", "-q", "--force"]).arg(&run.path).wrapped("sh", &few_files);
    let _ = job.run().success();
    assert!(fs::read(run.path.join("trace.db")).unwrap() == merged, "another file");
}

#[test]
fn inputs_that_cannot_be_read_are_told_in_few_lines_however_many_they_are() {
    let run = RunFolder::new(&SyntheticRun { nodes: 150, kernels: 1, events_per_rank: 5, ..many_ranks() });
    // Every other rank found a full disk.
    for rank in (0..1_200).step_by(2).filter(|rank| *rank != 1_100) {
        File::create(run.shard(rank)).unwrap();
    }
    let outcome = rpd_merge().args(["--json"]).arg(&run.path).run().success();
    let told: Json = serde_json::from_str(&outcome.stdout).unwrap();
    assert_eq!(told["unreadable"].as_array().unwrap().len(), 599);
    assert_eq!(told["missing_ranks"].as_array().unwrap().len(), 600);
    assert!(outcome.stderr.contains("589 more inputs"), "{outcome}");
    assert!(outcome.stderr.contains("rank 0,2,4,") && outcome.stderr.contains("(600 ranks)"), "{outcome}");
    assert!(outcome.stderr.lines().count() < 50 && outcome.stderr.len() < 16_000, "{outcome}");
}
