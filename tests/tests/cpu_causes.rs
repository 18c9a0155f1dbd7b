//! Real programs with a rank that is slow because it has no core, or because it computes more.

use rpd_tests::harness::{Job, binary, mpi_missing, mpirun, repository, rpd_merge, skip};
use serde_json::{Value as Json, json};
use std::fs;
use std::path::{Path, PathBuf};

#[test]
fn alone_a_rank_that_shares_its_core_has_that_as_the_cause() {
    if let Some(why) = mpi_missing() {
        return skip("causes in real programs", why);
    }
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        return skip("causes in real programs", "two ranks need two cores");
    }
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("shared_core");
    let source = repository().join("tests/workloads/shared_core.c");
    let _ = Job::new("mpicc").arg("-O1").arg("-o").arg(&program).arg(source).run().success();
    for pattern in ["shared", "longer"] {
        let collect = mpirun(2).arg(binary("rpd-collect")).arg("-o").arg(folder.path());
        let _ = collect.args(["--run-id", pattern, "--"]).arg(&program).arg(pattern).run().success();
        let shards = folder.path().join(pattern);
        let report = |form: &str, input: &std::path::Path| {
            let job = Job::new(binary("rpd-report")).args(["--quiet", "--format", form]).arg(input);
            job.run().success().stdout
        };
        let text = report("text", &shards);
        let found: Json = serde_json::from_str(&report("json", &shards)).unwrap();
        assert_eq!(found["verdict"], "slow", "{text}");
        let finding = &found["findings"][0];
        assert_eq!(finding["subject"]["ranks"], json!([1]), "{text}");
        let cause = &finding["cause"];
        let share = cause["cpu_wait"]["share"].as_f64().unwrap();
        if pattern == "shared" {
            assert_eq!((&cause["kind"], &cause["is_certain"]), (&json!("cpu_wait"), &json!(true)), "{text}");
            assert!(text.contains("too little CPU: its thread with calls waited for one for "), "{text}");
            assert!((0.3..0.6).contains(&share), "the other process has half of the core: {share}");
        } else {
            assert_eq!((&cause["kind"], &cause["excluded"][0]), (&Json::Null, &json!("cpu_wait")), "{text}");
            assert!(text.contains("not a lack of CPU (its thread with calls waited for one for "), "{text}");
            assert!(share < 0.2, "nothing else has its core: {share}");
        }
        let database = folder.path().join(format!("{pattern}.db"));
        let merged = rpd_merge().arg("--json").arg("-o").arg(&database).arg(&shards).run().success();
        let merged: Json = serde_json::from_str(&merged.stdout).unwrap();
        assert_eq!(merged["verdict"]["findings"], found["findings"], "the merge says the same");
        let from_database: Json = serde_json::from_str(&report("json", &database)).unwrap();
        assert_eq!(from_database["findings"], found["findings"]);
    }
}

/// A cgroup with half of a CPU. Removed when dropped.
struct HalfCpu(PathBuf);

impl HalfCpu {
    /// `None` if it cannot be made here.
    fn make() -> Option<HalfCpu> {
        let name = format!("rpd-test-{}-half", std::process::id());
        for (root, limit, value) in [
            ("/sys/fs/cgroup/cpu", "cpu.cfs_quota_us", "50000"),
            ("/sys/fs/cgroup", "cpu.max", "50000 100000"),
        ] {
            let group = HalfCpu(Path::new(root).join(&name));
            if fs::create_dir(&group.0).is_ok() && fs::write(group.0.join(limit), value).is_ok() {
                return Some(group);
            }
        }
        None
    }
}

impl Drop for HalfCpu {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

#[test]
fn alone_a_quota_and_a_shared_core_are_named_as_the_reason() {
    if let Some(why) = mpi_missing() {
        return skip("quotas in real programs", why);
    }
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        return skip("quotas in real programs", "two ranks need two cores");
    }
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("shared_core");
    let source = repository().join("tests/workloads/shared_core.c");
    let _ = Job::new("mpicc").arg("-O1").arg("-o").arg(&program).arg(source).run().success();
    let run_it = |pattern: &str, procs: &Path| -> (Json, String) {
        let collect = mpirun(2).env("QUOTA_PROCS", procs).arg(binary("rpd-collect"));
        let collect = collect.arg("-o").arg(folder.path()).args(["--run-id", pattern, "--"]);
        let _ = collect.arg(&program).arg(pattern).run().success();
        let report = |form: &str| {
            let job = Job::new(binary("rpd-report")).args(["--quiet", "--format", form]);
            job.arg(folder.path().join(pattern)).run().success().stdout
        };
        let text = report("text").split_whitespace().collect::<Vec<_>>().join(" ");
        (serde_json::from_str(&report("json")).unwrap(), text)
    };
    let (found, text) = run_it("together", Path::new("none"));
    let crowded = &found["crowded_cpus"];
    assert_eq!((&crowded[0]["cpus"], &crowded[0]["ranks"]), (&json!("0"), &json!([0, 1])), "{text}");
    let is_named =
        |text: &str| text.contains("CPUs ranks 0-1 on ") && text.contains(" may run on CPU 0 only");
    assert!(is_named(&text), "{text}");
    let database = folder.path().join("together.db");
    let merge = rpd_merge().arg("-o").arg(&database).arg(folder.path().join("together"));
    let summary = merge.run().success().stderr.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(is_named(&summary), "{summary}");
    let Some(group) = HalfCpu::make() else {
        return skip("quotas in real programs", "no cgroup can be made here");
    };
    let (found, text) = run_it("quota", &group.0.join("cgroup.procs"));
    assert_eq!(found["crowded_cpus"], json!([]), "{text}");
    let cause = &found["findings"][0]["cause"];
    assert_eq!((&cause["kind"], &cause["is_certain"]), (&json!("cpu_wait"), &json!(true)), "{text}");
    let throttled = cause["cpu_wait"]["throttled"].as_f64().unwrap();
    assert!((0.3..0.6).contains(&throttled), "{throttled}: {text}");
    assert!(text.contains("; the CPU quota of a cgroup took "), "{text}");
}
