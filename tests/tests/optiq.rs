//! What AMD's viewer and tools need of a merged database and of its package. That row ids of processes follow the ranks
//! is in `process_order`.

use rpd_tests::harness::{Database, assert_refused, rpd_merge, skip};
use rpd_tests::synthetic::{SyntheticRun, write_rocpd, write_shards};
use rusqlite::Connection;
use std::fs;
use std::os::unix::fs::{chown, symlink};
use std::path::{Path, PathBuf};

/// Names that contradict the rank of their process or the recorded name.
const WRONG_NAMES: &str = "SELECT count(*) FROM (
      SELECT pid, name, extdata FROM rocpd_info_thread UNION ALL SELECT pid, name, extdata FROM rocpd_info_queue
      UNION ALL SELECT pid, name, extdata FROM rocpd_info_stream) x
    JOIN rocpd_info_process p ON p.id = x.pid
   WHERE json_extract(p.extdata, '$.rpd.rank') IS NULL OR json_type(x.extdata, '$.rpd.recorded_name') IS NULL
      OR x.name IS NOT 'rank ' || json_extract(p.extdata, '$.rpd.rank')
         || iif(json_extract(p.extdata, '$.rpd.worker'), ' worker', '')
         || iif(coalesce(json_extract(x.extdata, '$.rpd.recorded_name'), '') = '', '',
                ' ' || json_extract(x.extdata, '$.rpd.recorded_name'))";
/// Recorded names with their processes.
const RECORDED: &str = "SELECT p.pid, coalesce(json_extract(x.extdata, '$.rpd.recorded_name'), x.name, '')
    FROM (SELECT pid, name, extdata FROM rocpd_info_queue UNION ALL SELECT pid, name, extdata FROM rocpd_info_stream) x
    JOIN rocpd_info_process p ON p.id = x.pid ORDER BY 1, 2";

fn run() -> SyntheticRun {
    SyntheticRun { events_per_rank: 60, workers: true, ..SyntheticRun::default() }
}

/// Writes a database for each process of the run.
fn databases(folder: &Path) -> Vec<PathBuf> {
    write_rocpd(&SyntheticRun { workers: false, ..run() }.plan(), folder).unwrap()
}

fn merged(inputs: &[&Path], arguments: &[&str], output: &Path) -> (Database, String) {
    let outcome = rpd_merge()
        .args(["--strict", "--verify", "--force", "-o"])
        .arg(output)
        .args(arguments)
        .args(inputs)
        .run();
    let outcome = outcome.success();
    (Database::open(output), outcome.stderr)
}

#[test]
fn names_of_threads_queues_and_streams_begin_with_their_rank_once() {
    let folder = tempfile::tempdir().unwrap();
    let [once, again] = ["once.db", "again.db"].map(|name| folder.path().join(name));
    let shards = write_shards(&run().plan(), folder.path()).unwrap();
    let single = folder.path().join("databases");
    let files = databases(&single);
    let mut recorded: Vec<Vec<String>> =
        files.iter().flat_map(|file| Database::open(file).rows(RECORDED)).collect();
    recorded.sort();
    for (input, layout) in [(&shards, "merged"), (&single, "merged"), (&single, "partitioned")] {
        let (database, _) = merged(&[input], &["--layout", layout], &once);
        assert!(database.count("rocpd_info_thread") > 3);
        assert_eq!(database.number(WRONG_NAMES), 0, "{input:?} {layout}");
        if *input == single {
            let mut found = database.rows(RECORDED);
            found.sort();
            assert_eq!(found, recorded, "{layout}");
            assert!(found.len() > 3);
        }
        let (database, _) = merged(&[&once], &[], &again);
        assert_eq!(database.number(WRONG_NAMES), 0, "merged again");
    }
    let (database, _) = merged(&[&files[0]], &[], &once);
    let noted =
        "SELECT count(*) FROM rocpd_info_stream WHERE extdata LIKE '%recorded_name%' OR name LIKE 'rank %'";
    assert_eq!(database.number(noted), 0, "one rank needs no words for it");
}

#[test]
fn a_guid_has_no_underscore_and_its_tables_end_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("out.db");
    let _ = databases(folder.path());
    for layout in ["merged", "partitioned"] {
        let (database, _) = merged(&[folder.path()], &["--layout", layout], &output);
        let tables: Vec<String> =
            database.names("table").into_iter().filter(|name| name.starts_with("rocpd_event_")).collect();
        assert!(!tables.is_empty());
        for table in tables {
            let guids = database.rows(&format!("SELECT DISTINCT guid FROM \"{table}\""));
            let [guid] = &guids[..] else { panic!("{guids:?}") };
            let guid = guid[0].trim_matches('\'');
            assert!(guid.len() >= 12 && !guid.contains('_'), "{guid:?}");
            assert_eq!(table, format!("rocpd_event_{}", guid.replace('-', "_")));
        }
    }
}

#[test]
fn marks_are_samples_of_amds_views_and_no_regions() {
    let folder = tempfile::tempdir().unwrap();
    let shards = write_shards(&run().plan(), folder.path()).unwrap();
    let (database, _) = merged(&[&shards], &[], &folder.path().join("out.db"));
    let marks = database.number("SELECT count(*) FROM samples WHERE category = 'MARKER_CORE_API'");
    assert!(marks > 0);
    let shown =
        "SELECT count(*) FROM regions_and_samples WHERE category = 'MARKER_CORE_API' AND duration = 0";
    assert_eq!(database.number(shown), marks);
    assert_eq!(database.number("SELECT count(*) FROM regions WHERE category = 'MARKER_CORE_API'"), 0);
}

#[test]
fn allocations_that_optiq_would_show_at_another_agent_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("out.db");
    let files = databases(&folder.path().join("in"));
    let (_, words) = merged(&[&folder.path().join("in")], &[], &output);
    assert!(!words.contains("ROCm Optiq"), "{words}");
    let database = Connection::open(&files[0]).unwrap();
    let uuid: String = database
        .query_row("SELECT value FROM rocpd_metadata WHERE tag = 'uuid'", [], |row| row.get(0))
        .unwrap();
    let many = format!(
        "WITH RECURSIVE n(i) AS (SELECT 1000 UNION ALL SELECT i + 1 FROM n WHERE i < 1299)
         INSERT INTO \"rocpd_info_agent{uuid}\" (id, nid, pid, type, absolute_index, name)
         SELECT n.i, p.nid, p.id, 'GPU', n.i, 'gfx942' FROM n, (SELECT id, nid FROM \"rocpd_info_process{uuid}\" LIMIT 1) p;
         INSERT INTO \"rocpd_memory_allocate{uuid}\" (nid, pid, agent_id, type, level, start, end, size)
         SELECT nid, pid, 1299, 'ALLOC', 'REAL', start, end, 64 FROM \"rocpd_region{uuid}\" LIMIT 1;"
    );
    database.execute_batch(&many).unwrap();
    database.close().unwrap();
    let (database, words) = merged(&[&folder.path().join("in")], &[], &output);
    let high = database.number("SELECT count(*) FROM rocpd_memory_allocate WHERE agent_id > 255");
    let all = database.count("rocpd_memory_allocate");
    let agents = database.count("rocpd_info_agent");
    let line = format!(
        "ROCm Optiq would show {high} of {all} allocations at another agent, as it keeps one byte of an agent ({agents} agents)"
    );
    assert!(high > 0 && words.contains(&line), "{line}\n{words}");
}

/// Writes an index of these names.
fn write_index(index: &Path, names: &[&str]) {
    let names: String = names.iter().map(|name| format!("    - {name}\n")).collect();
    let text = format!(
        "rocprofiler-sdk:\n  rocpd:\n    files:\n{names}    path: .\n    rocpd_package_version: '1.0'\n"
    );
    fs::write(index, text).unwrap();
}

fn name(path: &Path) -> &str {
    path.file_name().unwrap().to_str().unwrap()
}

#[test]
fn a_package_gives_the_databases_that_its_index_lists() {
    let folder = tempfile::tempdir().unwrap();
    let package = folder.path().join("run.rpdb");
    let files = databases(&package);
    let [expected, output] = ["expected.db", "out.db"].map(|name| folder.path().join(name));
    let (wanted, _) = merged(&[&files[0], &files[1]], &[], &expected);
    let wanted = wanted.dump();
    let index = package.join("index.yaml");
    // One that is listed twice is merged once.
    write_index(&index, &[name(&files[0]), name(&files[1]), name(&files[0])]);
    for input in [&package, &index] {
        let (found, _) = merged(&[input], &[], &output);
        assert_eq!(found.dump(), wanted, "{input:?}");
    }
    let elsewhere = folder.path().join("list.yml");
    write_index(&elsewhere, &[files[0].to_str().unwrap(), &format!("run.rpdb/{}", name(&files[1]))]);
    assert_eq!(merged(&[&elsewhere], &[], &output).0.dump(), wanted);
    // A database that is not there any more is a loss, as one of a folder is.
    write_index(&index, &[name(&files[0]), name(&files[1]), "gone.db"]);
    let outcome = rpd_merge().args(["--strict", "--force", "-o"]).arg(&output).arg(&package).run();
    assert_refused(&outcome, 3, &["gone.db does not exist"]);
    fs::remove_file(&index).unwrap();
    let (all, _) = merged(&[&package], &[], &output);
    assert_eq!(
        all.count("rocpd_info_process") as usize,
        files.len(),
        "a package without an index is a folder"
    );
}

#[test]
fn an_index_that_names_no_databases_is_refused_with_its_line() {
    let folder = tempfile::tempdir().unwrap();
    let index = folder.path().join("index.yaml");
    let refused = |words: &[&str]| {
        let outcome = rpd_merge().arg("-o").arg(folder.path().join("out.db")).arg(&index).run();
        assert_refused(&outcome, 4, words);
    };
    write_index(&index, &["a.db", "'*.db'"]);
    refused(&["index.yaml:5", "is a pattern"]);
    fs::create_dir(folder.path().join("sub")).unwrap();
    write_index(&index, &["sub"]);
    refused(&["index.yaml:4", "is a folder"]);
    fs::write(&index, "a: &a [1]\nb: [*a, *a]\n").unwrap();
    refused(&["index.yaml", "is not the index of a package"]);
    fs::write(&index, "name: something else\n").unwrap();
    refused(&["rocprofiler-sdk: rocpd: files:"]);
}

#[test]
fn an_index_of_another_user_names_files_of_its_own_folder_only() {
    if !rustix::process::geteuid().is_root() {
        return skip("an index of another user", "only root can give files away");
    }
    let folder = tempfile::tempdir().unwrap();
    let package = folder.path().join("run.rpdb");
    let files = databases(&package);
    let elsewhere = folder.path().join("elsewhere.db");
    fs::rename(&files[1], &elsewhere).unwrap();
    let index = package.join("index.yaml");
    let merge = || {
        let output = folder.path().join("out.db");
        rpd_merge().args(["--force", "-o"]).arg(output).arg(&package).run()
    };
    for outside in ["../elsewhere.db", elsewhere.to_str().unwrap()] {
        write_index(&index, &[name(&files[0]), outside]);
        let _ = merge().success();
        chown(&index, Some(60_001), None).unwrap();
        assert_refused(&merge(), 4, &["index.yaml:5", "outside of the package of another user"]);
        fs::remove_file(&index).unwrap();
    }
    write_index(&index, &[name(&files[0])]);
    chown(&index, Some(60_001), None).unwrap();
    let _ = merge().success();
}

#[test]
fn a_merge_writes_an_index_on_request_and_replaces_only_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let inputs = folder.path().join("in");
    let _ = databases(&inputs);
    let package = folder.path().join("job.rpdb");
    fs::create_dir(&package).unwrap();
    let output = package.join("job \"1\".db");
    let index = package.join("index.yaml");
    let _ = merged(&[&inputs], &["--package"], &output);
    let again = folder.path().join("again.db");
    let direct = merged(&[&output], &[], &again).0.dump();
    assert_eq!(merged(&[&package], &[], &again).0.dump(), direct);
    let text = fs::read_to_string(&index).unwrap();
    assert!(text.contains("    - \"job \\\"1\\\".db\"\n"), "{text}");
    let _ = merged(&[&inputs], &["--package"], &output);
    // The index of another database stays without --force.
    let second = package.join("second.db");
    let other = rpd_merge().arg("--package").arg("-o").arg(&second).arg(&inputs).run();
    assert_refused(&other, 5, &["index.yaml", "is the index of another database", "--force"]);
    assert_eq!(fs::read_to_string(&index).unwrap(), text);
    let _ = merged(&[&inputs], &["--package"], &second);
    assert!(fs::read_to_string(&index).unwrap().contains("second.db"));
    // AMD's own index, and a link to an index of a merge, stay.
    let refused = || {
        let outcome = rpd_merge().args(["--package", "--force", "-o"]).arg(&output).arg(&inputs).run();
        assert_eq!(outcome.code(), Some(5), "{outcome}");
    };
    write_index(&index, &["mine.db"]);
    let before = fs::read(&index).unwrap();
    refused();
    assert_eq!(fs::read(&index).unwrap(), before);
    fs::remove_file(&index).unwrap();
    symlink("/nonexistent/index.yaml", &index).unwrap();
    let _ = rpd_merge().args(["--package", "--force", "-o"]).arg(&output).arg(&inputs).run();
    assert!(!Path::new("/nonexistent").exists());
    let other = rpd_merge().args(["--package", "--format", "rpd", "-o"]).arg(&again).arg(&inputs).run();
    assert_refused(&other, 2, &["--package"]);
}
