//! Real programs with a rank that is slow because it has no core, or because it computes more.

use rpd_tests::harness::{Job, binary, mpi_missing, mpirun, repository, rpd_merge, skip};
use serde_json::{Value as Json, json};

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
            assert!(text.contains("too little CPU: it waited for one for "), "{text}");
            assert!((0.3..0.6).contains(&share), "the other process has half of the core: {share}");
        } else {
            assert_eq!((&cause["kind"], &cause["excluded"]), (&Json::Null, &json!(["cpu_wait"])), "{text}");
            assert!(text.contains("not a lack of CPU: it waited for one for "), "{text}");
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
