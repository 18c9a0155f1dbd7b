//! Every file below the inputs is merged or named with its reason: in the summary, in `--json`, in the loss ledger and under
//! `--strict`, whatever way it came in.

mod content;
mod names;

use rpd_tests::fixtures;
use rpd_tests::harness::{Database, Job, JobOutcome, RunFolder, assert_refused, binary, rpd_merge, skip};
use rpd_tests::synthetic::{SyntheticRun, write_rocpd};
use rusqlite::Connection;
use serde_json::Value as Json;
use std::collections::BTreeSet;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A trace of the PyTorch profiler with one operator.
const KINETO: &str = r#"{"schemaVersion": 1, "baseTimeNanoseconds": 1700000000000000000,
  "distributedInfo": {"rank": 0, "world_size": 1}, "traceEvents": [
  {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 10, "tid": 10, "ts": 5.000, "dur": 2.000,
   "args": {"External id": 1}}]}"#;
/// Files that may hold what a profiler recorded, and cannot be merged: name, content and reason.
const REFUSED: [(&str, &[u8], &str); 6] = [
    ("other.json", b"{\"displayTimeUnit\": \"ms\", \"traceEvents\": []}", "is not a shard"),
    ("results.csv", b"Index,KernelName,gpu-id\n0,\"k\",1\n", "is CSV of rocprof"),
    ("nothing.json", b"", "is empty"),
    ("packed_results.db.gz", b"\x1f\x8b", "is compressed"),
    ("packed.json.zst", b"\x28\xb5\x2f\xfd", "decompress it"),
    ("text_results.db", b"no database", "is not a shard"),
];
/// How a database of another program begins.
const SONGS: &str = "CREATE TABLE songs (id INTEGER PRIMARY KEY); INSERT INTO songs VALUES (1)";
/// How an analysis of rocprof-compute begins.
const ANALYSIS: &str = "CREATE TABLE compute_workload (workload_id INTEGER PRIMARY KEY, name TEXT);
    CREATE TABLE compute_kernel (kernel_uuid INTEGER PRIMARY KEY)";

fn database(path: &Path, sql: &str) {
    Connection::open(path).unwrap().execute_batch(sql).unwrap();
}

/// All files below a folder, as `find -type f` lists them.
fn files(folder: &Path) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    let mut open = vec![folder.to_owned()];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(folder).unwrap().flatten() {
            match entry.file_type().unwrap() {
                kind if kind.is_dir() => open.push(entry.path()),
                kind if kind.is_file() => drop(found.insert(entry.path())),
                _ => {}
            }
        }
    }
    found
}

fn report(outcome: &JobOutcome) -> Json {
    serde_json::from_str(&outcome.stdout).unwrap_or_else(|error| panic!("{error}: {outcome}"))
}

/// The files that a report names as not used, with their reasons.
fn not_used(report: &Json) -> Vec<(PathBuf, String)> {
    let text = |value: &Json| value.as_str().unwrap().to_owned();
    let named = report["files_not_used"].as_array().unwrap_or_else(|| panic!("no files_not_used: {report}"));
    named.iter().map(|file| (text(&file["path"]).into(), text(&file["reason"]))).collect()
}

/// Of these files so many are merged as the report says, and all others are named.
fn assert_accounted(report: &Json, files: &BTreeSet<PathBuf>) {
    let count = |name: &str| report[name].as_u64().unwrap() as usize;
    let used = count("shards") + count("databases") + count("other_files");
    let unused = not_used(report);
    let names: BTreeSet<PathBuf> = unused
        .iter()
        .map(|(path, _)| path.clone())
        .filter(|path| !path.is_symlink() && !path.is_dir())
        .collect();
    assert!(unused.iter().all(|(_, reason)| !reason.is_empty()), "{unused:?}");
    assert_eq!(report["files_not_used_further"], 0);
    assert_eq!(names.difference(files).collect::<Vec<_>>(), Vec::<&PathBuf>::new(), "named, and not there");
    let merged: Vec<&PathBuf> = files.difference(&names).collect();
    assert_eq!(merged.len(), used, "files that nothing is said of: {merged:#?}\n{unused:#?}");
}

/// A folder, and a place for outputs beside it.
struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    fn new() -> Place {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("in")).unwrap();
        Place { folder }
    }

    fn input(&self) -> PathBuf {
        self.folder.path().join("in")
    }

    fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.input().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, bytes).unwrap();
        path
    }

    fn output(&self) -> PathBuf {
        self.folder.path().join("out.db")
    }

    /// A merge by a user that may not read everything: root may.
    fn job_of_other_user(&self) -> Option<Job> {
        let mode = |path: &Path, mode| fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        let output = self.output_of_other_user();
        fs::create_dir(output.parent().unwrap()).unwrap();
        if !rustix::process::geteuid().is_root() {
            return Some(rpd_merge());
        }
        // A copy of the program where all can run it.
        let program = self.folder.path().join("rpd-merge");
        fs::copy(binary("rpd-merge"), &program).unwrap();
        [self.folder.path(), &self.input(), &program].iter().for_each(|path| mode(path, 0o755));
        mode(output.parent().unwrap(), 0o777);
        let readable = r#"find "$0" -perm /u+r -exec chmod go+rX {} +"#;
        assert!(Command::new("sh").args(["-c", readable]).arg(self.input()).status().unwrap().success());
        let user = ["--reuid=60001", "--regid=60001", "--clear-groups"];
        let possible = Job::new(&program).arg("--version").wrapped("setpriv", &user).run();
        (possible.code() == Some(0))
            .then(|| Job::new(&program).without_env("RPD_OUTPUT").wrapped("setpriv", &user))
    }

    fn output_of_other_user(&self) -> PathBuf {
        self.folder.path().join("outputs/out.db")
    }

    fn merge(&self, arguments: &[&str]) -> JobOutcome {
        rpd_merge().args(["--force", "-o"]).arg(self.output()).args(arguments).arg(self.input()).run()
    }
}

#[test]
fn a_refused_file_beside_a_good_one_is_named_everywhere() {
    let like_output = ("trace.db", b"somebody's".as_slice(), "the name that a merge gives its output");
    for (name, content, reason) in REFUSED.into_iter().chain([like_output]) {
        let file = Path::new(name).file_name().unwrap().to_str().unwrap();
        let place = Place::new();
        place.write("good.json", KINETO);
        place.write("train.py", "import torch");
        place.write(name, content);
        let outcome = place.merge(&["--json"]).success();
        let line =
            |label: &str| outcome.stderr.lines().filter(|line| line.starts_with(label)).collect::<Vec<_>>();
        assert!(
            line("warning: left out").iter().any(|line| line.contains(file) && line.contains(reason)),
            "{outcome}"
        );
        let lost = line("lost ");
        assert!(lost.len() == 1 && lost[0].contains(file) && lost[0].contains(reason), "{outcome}");
        assert!(
            line("not used ")[0].contains("1 file") && line("not used ")[0].contains("1 *.py"),
            "{outcome}"
        );

        let report = report(&outcome);
        assert_accounted(&report, &files(&place.input()));
        assert!(
            not_used(&report).iter().any(|(path, why)| path.ends_with(name) && why.contains(reason)),
            "{report}"
        );
        let metadata = Database::open(&place.output()).metadata();
        let ledger: Json = serde_json::from_str(&metadata["rpd.losses"][0]).unwrap();
        assert_eq!(
            (&ledger[0]["cause"], &ledger[0]["file"]),
            (&"file_not_used".into(), &name.into()),
            "{ledger}"
        );
        assert!(ledger[0]["reason"].as_str().unwrap().contains(reason), "{ledger}");
        let folder = place.folder.path().to_str().unwrap();
        assert!(!ledger.to_string().contains(folder), "the ledger depends on where inputs are: {ledger}");
        assert_refused(&place.merge(&["--strict"]), 3, &[name, reason]);
    }
}

#[test]
fn a_file_alone_in_its_folder_is_refused_with_its_reason() {
    for (name, content, reason) in REFUSED {
        let place = Place::new();
        place.write("README", "what this is");
        place.write(name, content);
        let outcome = place.merge(&[]);
        assert_refused(&outcome, 4, &[name, reason]);
        assert!(!outcome.stderr.contains("rpd-collect"), "{outcome}");
    }
    // Where no file looks like one of a profiler, that is the error, and so is a run without shards.
    let place = Place::new();
    place.write("README", "what this is");
    assert_refused(&place.merge(&[]), 4, &["no *.rpdshard", "rpd-collect"]);
    place.write("other.json", "{}");
    place.write("rank-00000.log", "cannot write");
    assert_refused(&place.merge(&[]), 4, &["rank-*.log in it says why"]);
}

#[test]
fn an_analysis_of_rocprof_compute_is_named_as_what_it_is() {
    let place = Place::new();
    let path = place.input().join("analysis.db");
    database(&path, ANALYSIS);
    let words = ["analysis.db is an analysis database of rocprof-compute", "compute_*", "pmc_perf_*.db"];
    assert_refused(&place.merge(&[]), 4, &words);
    assert_refused(&rpd_merge().arg(&path).run(), 4, &words);
    place.write("good.json", KINETO);
    assert_refused(&place.merge(&["--strict"]), 3, &words);
    let over = rpd_merge().args(["--force", "-o"]).arg(&path).arg(place.input().join("good.json")).run();
    assert_refused(&over, 5, &["analysis.db is an analysis database of rocprof-compute"]);
}

/// Fills a folder with files of all kinds. One of them nobody but root may read.
fn mix(place: &Place) {
    let own = place.write("good.json", KINETO);
    let input = place.input();
    let plan = SyntheticRun { nodes: 1, events_per_rank: 30, ..SyntheticRun::default() }.plan();
    let databases = write_rocpd(&plan, &input).unwrap();
    // Two results of merges, and a copy.
    let results = input.join("results");
    fs::create_dir(&results).unwrap();
    let _ = rpd_merge().arg("-o").arg(input.join("former.db")).arg(&databases[0]).run().success();
    let _ = rpd_merge().args(["--split-by-time", "2", "-o"]).arg(&results).arg(&databases[0]).run().success();
    let _ = rpd_merge()
        .args(["--format", "chrome-json", "-o"])
        .arg(input.join("drawn.json.gz"))
        .arg(&own)
        .run()
        .success();
    fs::copy(&databases[0], input.join("zz_copy_results.db")).unwrap();
    symlink(&databases[0], input.join("link_results.db")).unwrap();
    let whole = fs::read(&databases[1]).unwrap();
    place.write("cut_results.db", &whole[..whole.len() / 3]);
    place.write("header_results.db", &whole[..50]);
    database(&input.join("songs.db"), SONGS);
    database(&input.join("analysis.db"), ANALYSIS);
    place.write("empty_results.db", "");
    place.write("empty.json", "");
    place.write("config.json", r#"{"hidden_size": 1024}"#);
    place.write("index.json", "{}");
    place.write("trace.db", "somebody's");
    place.write("results.csv", "Index,KernelName,gpu-id\n0,\"k\",1\n");
    place.write("results.stats.csv", "\"Name\",\"Calls\",\"TotalDurationNs\"\n");
    place.write("packed_results.db.gz", b"\x1f\x8b");
    place.write("zeros.json", [0; 100]);
    place.write("train.py", "import torch");
    place.write("README", "what this is");
    place.write("notes.txt", "slow");
    place.write(".hidden", "x");
    place.write("good.db.lock", "");
    // Folders that are not looked into, at any depth.
    place.write("host/good.json", KINETO);
    place.write("host/empty.json", "");
    place.write("host/deeper/config.json", "{}");
    place.write("host/deeper/still/good.json", KINETO);
    place.write("logs/a/b/c/d/run.log", "x");
    let below = SyntheticRun { nodes: 1, seed: 3, ..SyntheticRun::default() }.plan();
    let _ = rpd_tests::synthetic::write_shards(&below, &input.join("runs")).unwrap();
    let secret = place.write("secret.json", KINETO);
    fs::set_permissions(secret, Permissions::from_mode(0o0)).unwrap();
}

#[test]
fn files_that_are_found_are_used_or_named_as_not_used() {
    let place = Place::new();
    mix(&place);
    let found = files(&place.input());
    let closed = place.input().join("closed");
    fs::create_dir(&closed).unwrap();
    fs::set_permissions(&closed, Permissions::from_mode(0o0)).unwrap();
    let Some(job) = place.job_of_other_user() else {
        return skip("unreadable files", "setpriv cannot make another user here");
    };
    let outcome =
        job.args(["--json", "-o"]).arg(place.output_of_other_user()).arg(place.input()).run().success();
    let report = report(&outcome);
    assert_accounted(&report, &found);
    let reasons = not_used(&report);
    let of = |name: &str| {
        let file = reasons.iter().find(|(path, _)| path.ends_with(name));
        file.unwrap_or_else(|| panic!("{name}: {reasons:#?}")).1.as_str()
    };
    for (name, reason) in [
        ("zz_copy_results.db", "a copy"),
        ("link_results.db", "link"),
        ("former.db", "by rpd-merge"),
        ("drawn.json.gz", "rpd-merge"),
        ("results/index.json", "rpd-merge"),
        ("songs.db", "its content shows"),
        ("analysis.db", "rocprof-compute"),
        ("empty.json", "is empty"),
        ("config.json", "its content shows"),
        ("host/empty.json", "is empty"),
        ("zeros.json", "is not a shard"),
        ("results.csv", "CSV of rocprof"),
        ("packed_results.db.gz", "is compressed"),
        ("host/good.json", "not looked into"),
        ("still/good.json", "not looked into"),
        ("closed", "cannot be listed"),
        ("train.py", "neither its name nor its beginning is that of a profiler's file"),
    ] {
        assert!(of(name).contains(reason), "{name}: {}", of(name));
    }
    assert!(of("secret.json").contains("cannot be read"), "{}", of("secret.json"));
    // Of many warnings the first ones are printed.
    assert!(
        report["unreadable"].to_string().contains(
            "still holds 1 file that looks like a profile and is not looked into, since it lies 3 levels below the input"
        ),
        "{report}"
    );
    assert!(outcome.stderr.contains("more inputs; rpd-merge --json lists all"), "{outcome}");
    let shards = reasons.iter().filter(|(path, _)| path.extension().is_some_and(|end| end == "rpdshard"));
    assert_eq!(shards.count(), 2);
    assert!(!outcome.stderr.contains("lost       nothing"), "{outcome}");
}

#[test]
fn files_of_a_run_and_its_own_output_need_no_word() {
    let run = RunFolder::new(&SyntheticRun { events_per_rank: 30, ..SyntheticRun::default() });
    fs::write(run.path.join("rank-00000.log"), "a note").unwrap();
    fs::write(run.path.join("merge.status"), "{}").unwrap();
    fs::create_dir(run.path.join("clocks")).unwrap();
    let domain = "0123456789abcdef".repeat(2);
    let of_earlier = [format!("{domain}.agent"), format!("0000000001-{domain}.card"), "secret".to_owned()];
    for name in of_earlier.into_iter().chain([".root.0123456789abcdef", "root"].map(str::to_owned)) {
        fs::write(run.path.join("clocks").join(name), "text").unwrap();
    }
    for time in 0..2 {
        let outcome = rpd_merge().args(["--force", "--json", "--strict"]).arg(&run.path).run().success();
        assert!(outcome.stderr.contains("lost       nothing\n"), "{outcome}");
        assert!(!outcome.stderr.contains("not used"), "{outcome}");
        // The output is there when the second merge begins.
        let mut there = files(&run.path);
        if time == 0 {
            there.remove(&run.path.join("trace.db"));
        }
        assert_accounted(&report(&outcome), &there);
    }
    // A result that another merge made is no input, and is said to be there.
    let outcome =
        rpd_merge().args(["--strict", "-o"]).arg(run.beside("other.db")).arg(&run.path).run().success();
    assert!(outcome.stderr.contains("not used   1 result of a previous rpd-merge (trace.db)"), "{outcome}");
}

/// Tables and descriptions that profilers write beside their data lose nothing where that is merged.
#[test]
fn files_that_hold_less_than_inputs_beside_them_are_named_and_no_loss() {
    let place = Place::new();
    place.write("pmc_perf.csv", "Dispatch_ID,GPU_ID,Queue_ID,Kernel_Name\n");
    assert_refused(&place.merge(&[]), 4, &["pmc_perf.csv is CSV of rocprof"]);
    let good = place.write("good.json", KINETO);
    assert_refused(&place.merge(&["--strict"]), 3, &["pmc_perf.csv is CSV of rocprof"]);
    let plan = SyntheticRun { nodes: 1, events_per_rank: 30, ..SyntheticRun::default() }.plan();
    let _ = write_rocpd(&plan, &place.input()).unwrap();
    fs::remove_file(good).unwrap();
    let outcome = place.merge(&["--strict", "--json"]).success();
    let report = report(&outcome);
    assert_accounted(&report, &files(&place.input()));
    assert_eq!(report["files_not_used"][0]["kind"], "companion");
    assert!(outcome.stderr.contains("lost       nothing\n"), "{outcome}");
    assert!(outcome.stderr.contains("not used   1 file of a profiler"), "{outcome}");
}

#[test]
fn a_run_below_other_inputs_is_named() {
    let place = Place::new();
    place.write("good.json", KINETO);
    let plan = SyntheticRun { nodes: 1, events_per_rank: 30, ..SyntheticRun::default() }.plan();
    let run = rpd_tests::synthetic::write_shards(&plan, &place.input()).unwrap();
    let name = run.file_name().unwrap().to_str().unwrap();
    let words = [name, "holds 2 files that look like profiles", "runs of rpd-collect are merged by name"];
    assert_refused(&place.merge(&["--strict"]), 3, &words);
}

#[test]
fn of_the_one_run_in_an_output_root_all_files_are_inputs() {
    let run = RunFolder::new(&SyntheticRun { nodes: 1, events_per_rank: 30, ..SyntheticRun::default() });
    fs::write(run.path.join("good.json"), KINETO).unwrap();
    let root = run.path.parent().unwrap();
    fs::write(root.join("config.json"), "{}").unwrap();
    let outcome = rpd_merge().arg("--json").arg(root).run().success();
    let mut there = files(root);
    there.remove(&run.path.join("trace.db"));
    let report = report(&outcome);
    assert_eq!((&report["shards"], &report["other_files"]), (&2.into(), &1.into()), "{outcome}");
    assert_accounted(&report, &there);
    assert!(outcome.stderr.contains("1 file that no profiler wrote (1 *.json)"), "{outcome}");
}

/// Each file of the real data alone in a folder, then all of them in one.
#[test]
fn real_files_are_used_or_named_as_not_used() {
    let Some(data) = fixtures::all_files() else { return };
    let outputs = tempfile::tempdir().unwrap();
    let output = outputs.path().join("out.db");
    let merge = |input: &Path| rpd_merge().args(["--json", "--force", "-o"]).arg(&output).arg(input).run();
    let all = Place::new();
    for file in files(&data) {
        let name = file.file_name().unwrap().to_str().unwrap();
        let alone = Place::new();
        fs::copy(&file, alone.input().join(name)).unwrap();
        fs::copy(&file, all.input().join(name)).unwrap();
        let unpacked = name.strip_suffix(".gz").map(|plain| {
            let packed = fs::File::open(&file).unwrap();
            let mut bytes = Vec::new();
            std::io::copy(&mut flate2::read::GzDecoder::new(packed), &mut bytes).unwrap();
            fs::write(all.input().join(plain), bytes).unwrap();
        });
        let outcome = merge(&alone.input());
        match outcome.code() {
            Some(0) => assert_accounted(&report(&outcome), &files(&alone.input())),
            _ if name.ends_with(".tar.xz") || name.ends_with(".md") => {
                assert_refused(&outcome, 4, &["no *.rpdshard"]);
            }
            _ => {
                assert_refused(&outcome, 4, &[name]);
                assert!(unpacked.is_some() && !outcome.stderr.contains("rpd-collect"), "{outcome}");
            }
        }
    }
    assert_accounted(&report(&merge(&all.input()).success()), &files(&all.input()));
    assert_accounted(&report(&merge(&data).success()), &files(&data));
}
