//! Sampled Python stacks: the function in which a slow rank spends more time.

use rpd_tests::harness::{Database, Job, binary, mpi_missing, mpirun, python, repository, rpd_merge, skip};
use rpd_tests::truth::{
    PlantedSlowness, PythonProfile, Scenario, ScenarioKind, ScenarioSize, write_scenario,
    write_scenario_in_python,
};
use serde_json::{Value as Json, json};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};
use tempfile::TempDir;

const SLOW_RANK: u32 = 2;
const WORK_NS: u64 = 10_000_000;

/// Ranks and steps of a usual run, and of one with enough calls for a file of calls.
const USUAL: (u32, u32) = (4, 600);
const LARGE: (u32, u32) = (8, 2600);

fn scenario((ranks, steps): (u32, u32), excess_ns: u64) -> Scenario {
    let kind = ScenarioKind::Stencil;
    let (drawn, subject) = (ScenarioSize::drawn(kind, 3), SLOW_RANK);
    Scenario::sized(kind, ScenarioSize { ranks, subject, steps, work_ns: WORK_NS, excess_ns, ..drawn })
}

/// A run with sampled stacks, and the true shares of `augment` on the slow rank and on others.
fn sampled(size: (u32, u32), slowness: PlantedSlowness, excess_ns: u64) -> (TempDir, PathBuf, [f64; 2]) {
    let profile = PythonProfile { range: "update", excess: (SLOW_RANK, excess_ns), slowness };
    let folder = tempfile::tempdir().unwrap();
    let run = write_scenario_in_python(&scenario(size, excess_ns), &profile, folder.path()).unwrap();
    (folder, run, profile.augment_shares(WORK_NS))
}

fn report(arguments: &[&str], input: &Path) -> String {
    let job = Job::new(binary("rpd-report")).arg("--quiet").args(arguments).arg(input);
    job.without_env("RPD_OUTPUT").run().success().stdout
}

/// The text of the first screen, of which long lines are not broken.
pub(crate) fn screen(input: &Path) -> String {
    report(&[], input).split_whitespace().collect::<Vec<_>>().join(" ")
}

pub(crate) fn first_finding(input: &Path) -> Json {
    let found: Json = serde_json::from_str(&report(&["--format", "json"], input)).unwrap();
    assert_eq!(found["findings"][0]["subject"]["ranks"], json!([SLOW_RANK]), "{found}");
    found["findings"][0].clone()
}

/// Merges a run, and returns what reports name in each of its forms, which must be the same.
pub(crate) fn finding_of_all_forms(run: &Path) -> Json {
    let from_shards = first_finding(run);
    let database = run.join("trace.db");
    let merged = rpd_merge().arg("--json").arg("-o").arg(&database).arg(run).run().success();
    let merged: Json = serde_json::from_str(&merged.stdout).unwrap();
    assert_eq!(merged["verdict"]["findings"][0], from_shards, "the merge says the same");
    assert_eq!(first_finding(&database), from_shards, "of the database");
    if mpi_missing().is_none() {
        let job = mpirun(2).arg(binary("rpd-report")).args(["--quiet", "--format", "json"]).arg(run);
        let found: Json = serde_json::from_str(&job.run().success().stdout).unwrap();
        assert_eq!(found["findings"][0], from_shards, "on two merge ranks");
    }
    from_shards
}

fn assert_near(found: &Json, truth: f64, tolerance: f64) {
    let found = found.as_f64().unwrap();
    assert!((found - truth).abs() < tolerance, "{found} instead of {truth}");
}

#[test]
fn the_planted_function_is_named_in_each_form_of_a_run() {
    for (size, slowness, excess_ns) in
        [(LARGE, PlantedSlowness::Function, 12_000_000), (USUAL, PlantedSlowness::NativeCode, 6_000_000)]
    {
        let (_folder, run, [named, typical]) = sampled(size, slowness, excess_ns);
        let finding = finding_of_all_forms(&run);
        let database = run.join("trace.db");
        let calls = database.with_extension("calls");
        assert_eq!(calls.exists(), size == LARGE, "a file of calls for many calls");
        if calls.exists() {
            fs::remove_file(calls).unwrap();
            assert_eq!(first_finding(&database), finding, "without the file of calls");
        }
        let python = &finding["cause"]["python"];
        let place = (&python["function"], &python["file"], &python["line"]);
        assert_eq!(place, (&json!("Dataset.augment"), &json!("/app/data.py"), &json!(88)), "{finding}");
        assert_near(&python["share"], named, 0.05);
        assert_near(&python["typical_share"], typical, 0.05);
        assert_near(&python["explained"], 1.0, 0.1);
        assert!(python["share_error"].as_f64().unwrap() < 0.05, "{python}");
        assert!(python["samples"].as_u64().unwrap() > 300, "{python}");
        let text = screen(&database);
        for part in [
            "cause in Python, it spends ",
            " of range \"update\" in Dataset.augment (data.py:88), other ranks ",
            " of its longer time time",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(!text.contains("Python functions and garbage collection are not recorded"), "{text}");
    }
}

#[test]
fn work_that_is_longer_in_all_functions_names_none() {
    let (_folder, run, _) = sampled(USUAL, PlantedSlowness::AllFunctions, 6_000_000);
    let finding = finding_of_all_forms(&run);
    assert_eq!(finding["cause"]["python"], Json::Null, "{finding}");
    let text = screen(&run);
    assert!(text.contains("cause no single Python function explains the longer work, by "), "{text}");
}

#[test]
fn without_samples_the_report_says_what_records_them() {
    let folder = tempfile::tempdir().unwrap();
    let run = write_scenario(&scenario(USUAL, 6_000_000), &[], folder.path()).unwrap();
    assert_eq!(first_finding(&run)["cause"]["python"], Json::Null);
    let text = screen(&run);
    assert!(
        text.contains(
            "; Python functions and garbage collection are not recorded (rpd-collect --trace python; if that was on, the log of the rank says why)"
        ),
        "{text}"
    );
}

#[test]
fn damaged_samples_of_a_database_change_nothing_else() {
    let (_folder, run, _) = sampled(USUAL, PlantedSlowness::Function, 12_000_000);
    let database = run.join("trace.db");
    let _ = rpd_merge().arg("-o").arg(&database).arg(&run).run().success();
    let whole = first_finding(&database);
    let samples = "id IN (SELECT event_id FROM rocpd_sample)";
    let suffix = Database::open(&database).metadata()["uuid"][0].clone();
    for (change, is_named) in [
        ("call_stack = '[1, {\"frames\": null}]'", false),
        ("call_stack = replace(call_stack, 'line', 'place')", true),
        ("call_stack = CASE WHEN id & 1 THEN '{\"frames\":' ELSE call_stack END", true),
        ("call_stack = x'ff00'", false),
        ("extdata = '{\"rpd\":{\"period_ms\":-1e300}}'", true),
    ] {
        let damaged = run.join("damaged.db");
        fs::copy(&database, &damaged).unwrap();
        let connection = rusqlite::Connection::open(&damaged).unwrap();
        let samples = samples.replace("rocpd_sample", &format!("rocpd_sample{suffix}"));
        connection.execute(&format!("UPDATE rocpd_event{suffix} SET {change} WHERE {samples}"), []).unwrap();
        drop(connection);
        let mut found = first_finding(&damaged);
        assert_eq!(found["cause"]["python"] != Json::Null, is_named, "{change}: {found}");
        found["cause"] = whole["cause"].clone();
        assert_eq!(found, whole, "{change}");
    }
}

#[test]
fn samples_are_no_times_of_a_summary() {
    let (_folder, run, _) = sampled(USUAL, PlantedSlowness::Function, 12_000_000);
    let with: Json = serde_json::from_str(&report(&["summary", "--format", "json"], &run)).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let bare = write_scenario(&scenario(USUAL, 12_000_000), &[], folder.path()).unwrap();
    let without: Json = serde_json::from_str(&report(&["summary", "--format", "json"], &bare)).unwrap();
    assert_eq!(with["summary"], without["summary"]);
    assert!(with["summary"].as_array().is_some_and(|rows| rows.len() > 3), "{with}");
}

/// Length of a real run, s, and number of runs: one, or with RPD_SOAK=1 those that are promised.
fn real_seconds() -> (u32, usize) {
    if std::env::var_os("RPD_SOAK").is_some() { (30, 20) } else { (6, 1) }
}

/// Maximum share of a core that sampling takes for a thread. That of a node with two is 2 %.
const MAX_SAMPLING: f64 = 0.01;

/// CPU times of the threads of collectors that sample Python stacks.
#[derive(Default)]
struct SamplingTimes {
    /// By the number of the thread: when it was first and last seen, and its CPU time by then, ns.
    threads: BTreeMap<i32, (Instant, Instant, f64)>,
}

impl SamplingTimes {
    /// Reads them until the job has ended.
    fn during<T>(job: impl FnOnce() -> T) -> (T, SamplingTimes) {
        let (end, ended) = mpsc::channel::<()>();
        std::thread::scope(|scope| {
            let reader = scope.spawn(move || {
                let mut times = SamplingTimes::default();
                // Also a job that panics drops the other end.
                while ended.recv_timeout(Duration::from_millis(200)) == Err(RecvTimeoutError::Timeout) {
                    times.read();
                }
                times
            });
            let end = end;
            let done = job();
            drop(end);
            (done, reader.join().unwrap())
        })
    }

    fn read(&mut self) {
        let entries =
            |folder: &Path| fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
        for task in entries(Path::new("/proc")).flat_map(|process| entries(&process.join("task"))) {
            let text = |name: &str| fs::read_to_string(task.join(name)).ok();
            if text("comm").is_none_or(|name| name.trim() != "rpd-python") {
                continue;
            }
            let spent = text("schedstat").and_then(|text| text.split(' ').next()?.parse::<f64>().ok());
            let tid = task.file_name().and_then(|name| name.to_str()?.parse::<i32>().ok());
            let (Some(spent), Some(tid), now) = (spent, tid, Instant::now()) else { continue };
            let (_, last, spent_ns) = self.threads.entry(tid).or_insert((now, now, 0.0));
            (*last, *spent_ns) = (now, spent);
        }
    }

    /// Returns the share of a core that each thread took, which includes what it took before it was first seen.
    fn shares(&self) -> Vec<f64> {
        let seconds = |(first, last, _): &(Instant, Instant, f64)| last.duration_since(*first).as_secs_f64();
        let long =
            self.threads.values().inspect(|times| assert!(seconds(times) > 2.0, "seen for a part only"));
        long.map(|times| times.2 / 1e9 / seconds(times)).collect()
    }
}

/// Returns the losses and the shares of `augment` and `layers` of each rank, as a run prints them.
fn printed(output: &str) -> (String, Vec<Vec<f64>>) {
    let mut lines = output.lines();
    let losses = lines.next().unwrap().to_owned();
    let numbers = |line: &str| line.split(' ').map(|share| share.parse().unwrap()).collect();
    (losses, lines.map(numbers).collect())
}

#[test]
fn alone_a_slow_function_of_a_real_program_is_named_with_its_share() {
    let what = "slow Python functions of real programs";
    if let Some(why) = mpi_missing() {
        return skip(what, why);
    }
    if Job::new(python()).args(["-c", "import mpi4py.MPI"]).run().code() != Some(0) {
        return skip(what, "Python has no mpi4py");
    }
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        return skip(what, "two ranks need two cores");
    }
    let folder = tempfile::tempdir().unwrap();
    let program = repository().join("tests/workloads/slow_function.py");
    let ((seconds, runs), mut failures) = (real_seconds(), Vec::new());
    let seconds = seconds.to_string();
    let train = |job: Job, pattern: &str| {
        let job = job.arg(python()).arg(&program).args([&*seconds, pattern]);
        printed(&job.run().success().stdout)
    };
    for number in 0..runs {
        for pattern in ["function", "garbage", "both", "equal"] {
            if pattern != "function" && number % 5 > 0 {
                continue;
            }
            let run = format!("{pattern}-{number}");
            let collect = mpirun(2).arg(binary("rpd-collect")).arg("-o").arg(folder.path());
            let collect = collect.args(["--run-id", &run, "--trace", "all,python", "--"]);
            let ((losses, shares), sampling) = SamplingTimes::during(|| train(collect, pattern));
            if number == 0 && pattern == "function" {
                assert_eq!(losses, train(mpirun(2), pattern).0, "the losses without rpd-collect");
            }
            let shards = folder.path().join(&run);
            let found: Json = serde_json::from_str(&report(&["--format", "json"], &shards)).unwrap();
            let finding = &found["findings"][0];
            let python = &finding["cause"]["python"];
            let is_right = match pattern {
                "function" => {
                    // Runs of 6 s have too few samples for 5 points: there, the truth is within the error that is reported.
                    let near = |of: &str, truth: f64| {
                        let [share, error] =
                            [of.to_owned(), format!("{of}_error")].map(|key| python[key].as_f64());
                        let reported = error.filter(|_| seconds == "6").unwrap_or(0.0);
                        share.is_some_and(|share| (share - truth).abs() < reported.max(0.05))
                    };
                    let place = (python["function"].as_str(), finding["subject"]["ranks"] == json!([1]));
                    let is_named = place == (Some("augment"), true);
                    let file = python["file"].as_str().unwrap_or_default();
                    // The lines of the loop.
                    let is_in_loop = python["line"].as_u64().is_some_and(|line| (23..=24).contains(&line));
                    is_named
                        && file.ends_with("slow_function.py")
                        && is_in_loop
                        && near("share", shares[1][0])
                        && near("typical_share", shares[0][0])
                }
                "garbage" => {
                    let cause = &finding["cause"];
                    finding["subject"]["ranks"] == json!([1])
                        && (&cause["kind"], &cause["is_certain"])
                            == (&json!("garbage_collection"), &json!(true))
                        && python["function"] == json!("layers")
                        && screen(&shards).contains("cause garbage collection of Python: it spends ")
                }
                "both" => finding["subject"]["ranks"] == json!([1]) && *python == Json::Null,
                _ => *finding == Json::Null || *python == Json::Null,
            };
            // Each collector samples one thread.
            let sampling = sampling.shares();
            eprintln!(
                "{run}: {}, measured {shares:?}, sampling took {sampling:.4?} of a core",
                finding["cause"]
            );
            assert_eq!(sampling.len(), 2, "a thread of each collector");
            if sampling.iter().any(|share| *share > MAX_SAMPLING) {
                failures.push(format!("{run}: sampling took {sampling:.4?} of a core"));
            }
            if !is_right {
                failures.push(format!("{run}: measured {shares:?}, {}", screen(&shards)));
            }
        }
    }
    assert!(failures.is_empty(), "{} of {runs}: {failures:#?}", failures.len());
}
