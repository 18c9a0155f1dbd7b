//! `--layout`, `--format`, `--verify` and `--environment`: what they promise beside the rows themselves.

use rpd_tests::content::differences;
use rpd_tests::databases::{DatabaseJob, change, content_of};
use rpd_tests::fixtures;
use rpd_tests::harness::{
    Database, RunFolder, assert_refused, leftovers, mpi_missing, rpd_merge, rpd_merge_mpi, skip,
};
use rpd_tests::synthetic::{SyntheticRun, write_rocpd};
use serde_json::Value as Json;
use std::fs;
use std::path::{Path, PathBuf};

/// Inputs of several kinds; shards and databases of two nodes each.
fn mixed(folder: &Path) -> (RunFolder, Vec<PathBuf>) {
    let run = RunFolder::new(&SyntheticRun::default());
    let databases = SyntheticRun { seed: 5, events_per_rank: 60, ..SyntheticRun::default() };
    let mut inputs = write_rocpd(&databases.plan(), &folder.join("in")).unwrap();
    inputs.push(run.path.clone());
    inputs.extend(fixtures::rpd_files(&folder.join("in")));
    inputs.extend(fixtures::rocprofv3_json(&folder.join("in")));
    (run, inputs)
}

#[test]
fn a_partitioned_merge_is_the_same_file_on_any_ranks_and_threads_mpi() {
    let folder = tempfile::tempdir().unwrap();
    let (_run, inputs) = mixed(folder.path());
    let merged = |name: &str, job: rpd_tests::harness::Job| {
        let output = folder.path().join(name);
        let job = job.args(["--layout", "partitioned", "--verify", "-o"]).arg(&output).args(&inputs);
        let _ = job.run().success();
        output
    };
    let first = merged("solo.db", rpd_merge().args(["--threads", "1"]));
    let bytes = fs::read(&first).unwrap();
    assert!(
        fs::read(merged("two.db", rpd_merge().args(["--threads", "2"]))).unwrap() == bytes,
        "two threads"
    );
    match mpi_missing() {
        Some(why) => skip("merges under mpirun", why),
        None => {
            for ranks in [2, 3] {
                let output = merged(&format!("mpi-{ranks}.db"), rpd_merge_mpi(ranks));
                assert!(fs::read(output).unwrap() == bytes, "{ranks} ranks");
            }
        }
    }
    let database = Database::open(&first);
    assert_eq!(database.rows("PRAGMA foreign_key_check"), Vec::<Vec<String>>::new());
    // Each process has its guid, each guid its tables, and ids count through all of them.
    let processes = database.count("rocpd_info_process");
    assert_eq!(database.number("SELECT count(DISTINCT guid) FROM rocpd_info_process"), processes);
    assert_eq!(
        database.number(
            "SELECT count(*) FROM rocpd_info_process WHERE guid = json_extract(extdata, '$.rpd.guid')"
        ),
        processes
    );
    let sets = database.names("table").iter().filter(|name| name.starts_with("rocpd_event_")).count();
    assert_eq!(sets as i64, processes);
    for table in ["rocpd_event", "rocpd_region", "rocpd_kernel_dispatch", "rocpd_info_thread"] {
        let rows = database.count(table);
        assert!(rows > 0);
        assert_eq!(database.number(&format!("SELECT count(DISTINCT id) FROM {table}")), rows, "{table}");
    }
    // What is said of the job is said once.
    for (tag, values) in database.metadata() {
        // The further sets say only that they are such.
        let times = match tag.as_str() {
            "rpd.set" => sets - 1,
            tag if tag.starts_with("rpd.") => 1,
            _ => sets,
        };
        assert_eq!(values.len(), times, "{tag}");
    }
    // The other layout has the same rows, and so has a merge of this one.
    let [plain, again] = ["plain.db", "again.db"].map(|name| folder.path().join(name));
    let _ = rpd_merge().arg("-o").arg(&plain).args(&inputs).run().success();
    let _ = rpd_merge().arg("-o").arg(&again).arg(&first).run().success();
    let expected = content_of(&[plain]);
    assert_eq!(differences(&expected, &content_of(&[again])), "");
}

#[test]
fn guids_that_are_sql_or_hardly_text_are_values_and_nothing_else() {
    let job = DatabaseJob::small();
    let guids = [
        "'; DROP VIEW top; --".to_owned(),
        "a\"b', (\"c\") \u{fc}\u{1f600} _-".to_owned(),
        "guid\u{0}with\nlines".to_owned(),
        "g".repeat(5_000),
    ];
    let plain = job.merge(&[]).success();
    assert!(!plain.stderr.contains("warning"), "{plain}");
    let expected = content_of(&[job.output()]);
    for (path, guid) in job.inputs.iter().zip(&guids) {
        let guid = guid.replace('\'', "''").replace('\0', "'||char(0)||'");
        change(path, &[&format!("UPDATE rocpd_metadata<uuid> SET value = '{guid}' WHERE tag = 'guid'")]);
    }
    let _ = job.merge(&["--layout", "partitioned", "--verify", "--strict"]).success();
    let database = Database::open(&job.output());
    assert_eq!(database.rows("PRAGMA integrity_check"), [["'ok'"]]);
    for view in database.names("view") {
        database.rows(&format!("SELECT * FROM \"{view}\" LIMIT 1"));
    }
    assert!(database.count("top") > 0);
    let kept = database.rows("SELECT DISTINCT guid FROM rocpd_event").concat();
    assert_eq!(kept.len(), 4);
    // A guid that is text stays; one that no row can carry is replaced, and noted where it was.
    for guid in &guids[..2] {
        assert!(kept.contains(&format!("'{guid}'")), "{kept:?}");
    }
    let noted =
        "SELECT count(*) FROM rocpd_info_process WHERE length(json_extract(extdata, '$.rpd.guid')) = 5000";
    assert_eq!(database.number(noted), 1);
    drop(database);
    let again = job.beside("again.db");
    let _ = rpd_merge().args(["--strict", "--verify", "-o"]).arg(&again).arg(job.output()).run().success();
    assert_eq!(differences(&expected, &content_of(&[again])), "");
}

#[test]
fn many_processes_have_a_set_each_and_every_view_answers() {
    let folder = tempfile::tempdir().unwrap();
    // As many as there may be take SQLite half a minute.
    let on_a_node = if std::env::var("RPD_SOAK").is_ok_and(|value| value == "1") { 250 } else { 40 };
    let run =
        SyntheticRun { nodes: 2, ranks_per_node: on_a_node, events_per_rank: 1, ..SyntheticRun::default() };
    let inputs = write_rocpd(&run.plan(), &folder.path().join("in")).unwrap();
    let output = folder.path().join("out.db");
    let job = rpd_merge().args(["--layout", "partitioned", "-o"]).arg(&output);
    let _ = job.arg(folder.path().join("in")).run().success();
    let database = Database::open(&output);
    assert_eq!(database.count("rocpd_info_process"), inputs.len() as i64);
    for view in database.names("view").iter().filter(|name| name.starts_with("rocpd_")) {
        database.count(view);
    }
    assert!(database.number("SELECT count(*) FROM (SELECT * FROM processes LIMIT 3)") > 0);
}

#[test]
fn verify_tells_rows_in_and_out_of_each_table_and_in_json() {
    let folder = tempfile::tempdir().unwrap();
    let (_run, inputs) = mixed(folder.path());
    let output = folder.path().join("out.db");
    for arguments in [&[][..], &["--layout", "partitioned"], &["--format", "rpd"]] {
        let job = rpd_merge().args(["--force", "--verify", "--json", "-o"]).arg(&output).args(arguments);
        let outcome = job.args(&inputs).run().success();
        let lines: Vec<&str> = outcome.stderr.lines().filter(|line| line.starts_with("verify ")).collect();
        let regions = lines.iter().find(|line| line.contains("rocpd_region ")).unwrap();
        assert!(regions.contains(" rows = ") && regions.contains(" read + "), "{outcome}");
        assert!(
            lines.iter().any(|line| line.contains("foreign_key_check") && line.contains("ok")),
            "{outcome}"
        );
        assert!(!outcome.stderr.contains("problem"), "{outcome}");
        let report: Json = serde_json::from_str(&outcome.stdout).unwrap();
        let tables = report["verify"]["tables"].as_array().unwrap();
        assert!(tables.len() >= 15, "{tables:?}");
        for row in tables {
            let number = |name: &str| row[name].as_i64().unwrap();
            let made = number("read") + number("made") + number("placeholders") - number("repeated");
            assert_eq!(number("in_file"), made, "{row}");
        }
        assert_eq!(report["verify"]["problems"], Json::Array(Vec::new()));
        if arguments.contains(&"rpd") {
            assert_eq!(report["verify"]["converted"].as_object().unwrap().len(), 3);
            assert!(!report["left_out_of_rpd"].as_object().unwrap().is_empty());
            assert!(outcome.stderr.contains("have no place in .rpd"), "{outcome}");
            assert!(Database::open(&output).count("rocpd_api") > 0);
            continue;
        }
        let database = Database::open(&output);
        for row in tables {
            let table = row["table"].as_str().unwrap();
            assert_eq!(database.count(table), row["in_file"].as_i64().unwrap(), "{table}");
        }
    }
}

#[test]
fn an_rpd_is_the_only_thing_that_is_left_and_is_called_so() {
    let job = DatabaseJob::small();
    let merge = || rpd_merge().args(["--format", "rpd", "--force"]).arg(job.place());
    // What a killed merge may leave.
    fs::write(job.place().join("trace.rpd.partial"), "").unwrap();
    fs::write(job.place().join("trace.rpd.partial.rpd"), [0; 4096]).unwrap();
    fs::write(job.place().join("trace.rpd.lock"), "").unwrap();
    let _ = merge().run().success();
    let output = job.place().join("trace.rpd");
    let database = Database::open(&output);
    assert_eq!(database.rows("PRAGMA integrity_check"), [["'ok'"]]);
    assert_eq!(database.rows("SELECT DISTINCT node FROM napi ORDER BY 1"), [["0"], ["1"]]);
    assert_eq!(database.rows("SELECT DISTINCT node FROM nop ORDER BY 1"), [["0"], ["1"]]);
    let before = fs::read(&output).unwrap();
    let others = |path: &PathBuf| !job.inputs.contains(path);
    assert_eq!(leftovers(&job.place()).into_iter().filter(others).collect::<Vec<_>>(), Vec::<PathBuf>::new());
    // It is no input of the next merge.
    let _ = merge().run().success();
    assert!(fs::read(&output).unwrap() == before);
    // And yet one where it is named.
    let again = job.beside("again.rpd");
    let _ = rpd_merge().args(["--format", "rpd", "-o"]).arg(&again).arg(&output).run().success();
    let counts = "SELECT node, count(*) FROM napi GROUP BY 1";
    assert_eq!(Database::open(&again).rows(counts), database.rows(counts));
}

#[test]
fn what_does_not_go_together_is_refused() {
    let job = DatabaseJob::small();
    let outcome = job.merge(&["--format", "rpd", "--layout", "partitioned"]);
    assert_refused(&outcome, 2, &["--layout partitioned", "--format rpd"]);
    let outcome = job.merge(&["--verify", "--dry-run"]);
    assert_eq!(outcome.code(), Some(2), "{outcome}");
    for wrong in [["--layout", "stacked"], ["--format", "csv"]] {
        assert_eq!(job.merge(&wrong).code(), Some(2));
    }
    assert!(!job.output().exists());
}

#[test]
fn only_variables_that_are_asked_for_are_kept() {
    let job = DatabaseJob::small();
    let environment =
        r#"{"OMPI_COMM_WORLD_RANK": "0", "HSA_XNACK": "1", "HOME": "/users/me", "MY_TOKEN": "hush"}"#;
    for path in &job.inputs {
        change(path, &[&format!("UPDATE rocpd_info_process<uuid> SET environment = '{environment}'")]);
    }
    let kept = |arguments: &[&str]| {
        let _ = job.merge(arguments).success();
        let keys =
            "SELECT DISTINCT k.key, k.value FROM rocpd_info_process p, json_each(p.environment) k ORDER BY 1";
        Database::open(&job.output()).rows(keys).into_iter().map(|row| row.join("=")).collect::<Vec<_>>()
    };
    let rank = "'OMPI_COMM_WORLD_RANK'='0'";
    assert_eq!(kept(&[]), ["'HOME'='/users/me'", "'HSA_XNACK'='1'", "'MY_TOKEN'='***'", rank]);
    assert_eq!(kept(&["--environment", "HSA_XNACK,MY_TOKEN"]), ["'HSA_XNACK'='1'", "'MY_TOKEN'='***'", rank]);
    assert_eq!(kept(&["--environment", "NONE", "--layout", "partitioned"]), [rank]);
}

#[test]
fn secrets_of_a_command_line_are_masked_whatever_recorded_it() {
    let folder = tempfile::tempdir().unwrap();
    let Some(input) = fixtures::rocprofv3_json(&folder.path().join("real")) else { return };
    let mut json: Json = serde_json::from_slice(&fs::read(&input).unwrap()).unwrap();
    let metadata = &mut json["rocprofiler-sdk-tool"][0]["metadata"];
    metadata["command"] =
        serde_json::json!(["./app", "--api-key", "hush1", "--token=hush2", "--steps", "50"]);
    let changed = folder.path().join("changed_results.json");
    fs::write(&changed, json.to_string()).unwrap();
    let output = folder.path().join("out.db");
    for arguments in [&[][..], &["--environment", "NONE"]] {
        let _ =
            rpd_merge().args(["--force", "-o"]).arg(&output).args(arguments).arg(&changed).run().success();
        let command = Database::open(&output).rows("SELECT command FROM processes").concat();
        assert_eq!(command, ["'./app --api-key *** --token=*** --steps 50'"]);
        let bytes = fs::read(&output).unwrap();
        assert!(!bytes.windows(4).any(|window| window == b"hush"));
    }
}
