//! Databases that are damaged, unfinished, twice there, of another version or full of secrets: one clear
//! line, the rest is merged unless `--strict`, and rows that the output lacks are reported.

use rpd_rocpd::{Guid, schema};
use rpd_tests::content::differences;
use rpd_tests::databases::{DatabaseJob, change, content_of, left_out, name, warnings_about};
use rpd_tests::harness::{Database, assert_refused, leftovers, losses, rpd_merge};
use rpd_tests::synthetic::SyntheticRun;
use rusqlite::Connection;
use std::fs;
use std::path::{Path, PathBuf};

/// One warning that names the file and says these words; the others are merged and the output says that
/// one is missing. Under `--strict` nothing is.
fn assert_left_out(job: &DatabaseJob, bad: &Path, words: &[&str]) {
    let outcome = job.merge(&[]).success();
    let warnings = warnings_about(&outcome, bad);
    assert_eq!(warnings.len(), 1, "{}: {outcome}", name(bad));
    for word in words {
        assert!(warnings[0].to_lowercase().contains(word), "{word}: {outcome}");
    }
    job.assert_holds(&job.without(bad));
    assert_eq!(left_out(&job.database()), 1, "{}: {:?}", name(bad), job.database().metadata());
    fs::remove_file(job.output()).unwrap();
    assert_refused(&job.merge(&["--strict"]), 3, &[name(bad)]);
    assert_eq!(
        leftovers(job.place().parent().unwrap()).iter().filter(|path| !path.starts_with(job.place())).count(),
        0
    );
}

// --- files that are no database of one whole process ---------------------------------------------------------

#[test]
fn a_file_that_is_no_rocpd_database_is_left_out_and_told() {
    let job = DatabaseJob::small();
    let bad = job.place().join("bad_results.db");
    let whole = fs::read(&job.inputs[0]).unwrap();
    let cases: [(&str, Vec<u8>); 5] = [
        ("text", b"Dear diary, today I profiled a job.\n".repeat(100)),
        ("nothing", Vec::new()),
        ("zeros", vec![0; 100_000]),
        ("half a header", whole[..50].to_vec()),
        ("a header alone", whole[..100].to_vec()),
    ];
    for (what, bytes) in cases {
        eprintln!("{what}");
        fs::write(&bad, bytes).unwrap();
        assert_left_out(&job, &bad, &[]);
        assert_refused(&rpd_merge().arg("-o").arg(job.output()).arg(&bad).run(), 4, &[name(&bad)]);
    }
    fs::remove_file(&bad).unwrap();
    let other = Connection::open(&bad).unwrap();
    other
        .execute_batch(
            "CREATE TABLE songs (id INTEGER PRIMARY KEY, title TEXT); INSERT INTO songs VALUES (1, 'x')",
        )
        .unwrap();
    drop(other);
    // No profiler wrote it: in a folder it is no loss, and named it is refused.
    let outcome = job.merge(&["--strict"]).success();
    assert_eq!(warnings_about(&outcome, &bad), Vec::<String>::new());
    job.assert_holds(&job.without(&bad));
    assert_refused(&rpd_merge().args(["--force", "-o"]).arg(job.output()).arg(&bad).run(), 4, &[name(&bad)]);
}

/// Nothing is passed over in silence: what is in a folder and not merged is in a line, and counts for `--strict`.
#[test]
fn what_a_folder_holds_and_is_not_merged_is_told() {
    let told = |job: &DatabaseJob, words: &[&str]| {
        let outcome = job.merge(&[]).success();
        for word in words {
            assert!(outcome.stderr.contains(word), "{word}: {outcome}");
        }
        fs::remove_file(job.output()).unwrap();
        assert_refused(&job.merge(&["--strict"]), 3, &[]);
    };
    let job = DatabaseJob::small();
    let below = job.place().join("host");
    fs::create_dir(&below).unwrap();
    fs::copy(&job.inputs[0], below.join("other_results.db")).unwrap();
    told(&job, &["host holds 1 file that looks like a profile", "other inputs lie in the folder above it"]);
    fs::remove_dir_all(&below).unwrap();

    std::os::unix::fs::symlink("nowhere.db", job.place().join("dangling_results.db")).unwrap();
    told(&job, &["dangling_results.db"]);
    fs::remove_file(job.place().join("dangling_results.db")).unwrap();

    let pipe = job.place().join("pipe_results.db");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(made.success());
    told(&job, &["pipe_results.db", "not a regular file"]);
    fs::remove_file(&pipe).unwrap();

    // A folder for each host, and one deeper than profilers make them.
    let deep = job.place().join("host0/deep");
    fs::create_dir_all(&deep).unwrap();
    for input in &job.inputs {
        fs::rename(input, job.place().join("host0").join(name(input))).unwrap();
    }
    let _whole = job.merge(&["--strict"]).success();
    fs::remove_file(job.output()).unwrap();
    fs::copy(job.place().join("host0").join(name(&job.inputs[0])), deep.join("x_results.db")).unwrap();
    told(&job, &["deep holds 1 file that looks like a profile", "it lies 2 levels below the input"]);
}

#[test]
fn a_database_that_was_cut_is_told_and_the_others_are_whole() {
    let job = DatabaseJob::small();
    let cut = job.inputs[2].clone();
    let bytes = fs::read(&cut).unwrap();
    let rest = job.without(&cut);
    let processes = |database: &Database| database.count("rocpd_info_process");
    let pages = bytes.len() / 4096;
    for length in [4096, 4096 * (pages / 2), 4096 * (pages / 2) + 1234, bytes.len() - 4096, bytes.len() - 1] {
        fs::write(&cut, &bytes[..length]).unwrap();
        let outcome = job.merge(&[]).success();
        assert!(!warnings_about(&outcome, &cut).is_empty(), "{length} bytes: {outcome}");
        let database = job.database();
        // Left out as a whole, or as far as it goes with a ledger.
        if left_out(&database) == 1 {
            job.assert_holds(&rest);
        } else {
            assert!(!losses(&database).is_empty(), "{length} bytes: nothing is said to be lost");
            assert_eq!(processes(&database), 4, "{length} bytes");
        }
        fs::remove_file(job.output()).unwrap();
        assert_refused(&job.merge(&["--strict"]), 3, &[name(&cut)]);
    }
}

#[test]
fn a_flipped_page_is_told_or_changes_nothing() {
    let job = DatabaseJob::small();
    let hurt = job.inputs[1].clone();
    let bytes = fs::read(&hurt).unwrap();
    let whole = content_of(&job.inputs);
    let rest = job.without(&hurt);
    let mut told = 0;
    for page in (1..bytes.len() / 4096).step_by(5) {
        // The content of an overflow page is text: nobody can tell.
        if ![2, 5, 10, 13].contains(&bytes[page * 4096]) {
            continue;
        }
        let mut damaged = bytes.clone();
        // The kind of the page; of one with the rest of a long text, where the next of its pages is.
        damaged[page * 4096] ^= 0xff;
        fs::write(&hurt, &damaged).unwrap();
        let outcome = job.merge(&[]);
        assert_eq!(outcome.code(), Some(0), "page {page}: {outcome}");
        let database = job.database();
        if left_out(&database) == 1 {
            job.assert_holds(&rest);
            told += 1;
        } else if losses(&database).is_empty() {
            // A page of an index, a free one, or the last one of a text.
            assert_eq!(differences(&whole, &content_of(&[job.output()])), "", "page {page}: {outcome}");
        } else {
            assert!(!warnings_about(&outcome, &hurt).is_empty(), "page {page}: {outcome}");
            told += 1;
        }
    }
    assert!(told > 3, "{told} damages were told");
}

#[test]
fn a_database_that_somebody_writes_is_left_out_and_its_journal_kept() {
    let job = DatabaseJob::small();
    let busy = job.inputs[3].clone();
    for suffix in ["-journal", "-wal"] {
        let beside = PathBuf::from(format!("{}{suffix}", busy.display()));
        // An empty one is of a writer that has ended.
        fs::write(&beside, b"").unwrap();
        let outcome = job.merge(&["--strict"]);
        assert_eq!(outcome.code(), Some(0), "{outcome}");
        fs::remove_file(&beside).unwrap();
        job.assert_holds(&job.inputs);

        let whole = fs::read(&busy).unwrap();
        let (database, hot) = in_the_middle(&busy, suffix);
        fs::write(&busy, database).unwrap();
        fs::write(&beside, &hot).unwrap();
        assert_left_out(&job, &busy, &[&suffix[1..]]);
        assert!(fs::read(&beside).unwrap() == hot, "{} was touched", beside.display());
        fs::remove_file(&beside).unwrap();
        fs::write(&busy, whole).unwrap();
    }
}

/// A database and what is beside it while somebody writes it.
fn in_the_middle(path: &Path, suffix: &str) -> (Vec<u8>, Vec<u8>) {
    let mode = if suffix == "-wal" { "WAL" } else { "DELETE" };
    let writer = Connection::open(path).unwrap();
    writer.execute_batch(&format!("PRAGMA journal_mode = {mode}; PRAGMA cache_size = 1; BEGIN")).unwrap();
    let uuid: String = writer
        .query_row("SELECT value FROM rocpd_metadata WHERE tag = 'uuid'", [], |row| row.get(0))
        .unwrap();
    writer.execute(&format!("UPDATE \"rocpd_event{uuid}\" SET correlation_id = 77"), []).unwrap();
    let beside = format!("{}{suffix}", path.display());
    let seen = (fs::read(path).unwrap(), fs::read(beside).unwrap());
    assert!(seen.1.len() > 4096 && seen.1[0] != 0, "nothing is in the {suffix}");
    writer.execute_batch("ROLLBACK; PRAGMA journal_mode = DELETE").unwrap();
    seen
}

#[test]
fn a_schema_without_rows_is_told() {
    let job = DatabaseJob::small();
    let empty = job.place().join("killed_results.db");
    let guid = Guid::from_bits(0x4711);
    let database = Connection::open(&empty).unwrap();
    database.execute_batch(&schema::create_all(&guid)).unwrap();
    drop(database);
    let outcome = job.merge(&[]).success();
    assert_eq!(warnings_about(&outcome, &empty).len(), 1, "{outcome}");
    job.assert_holds(&job.inputs);
    assert_refused(&job.merge(&["--strict"]), 3, &[name(&empty)]);
    // With its metadata, as a process writes it that is killed before its rows.
    let database = Connection::open(&empty).unwrap();
    let table = format!("\"rocpd_metadata{}\"", guid.suffix());
    for (tag, value) in [("schema_version", "3"), ("uuid", &guid.suffix()), ("guid", &guid.to_string())] {
        database.execute(&format!("INSERT INTO {table} (tag, value) VALUES (?, ?)"), [tag, value]).unwrap();
    }
    drop(database);
    let outcome = job.merge(&[]).success();
    assert_eq!(warnings_about(&outcome, &empty).len(), 1, "{outcome}");
    job.assert_holds(&job.inputs);
}

#[test]
fn a_version_from_the_future_is_left_out_and_named() {
    let job = DatabaseJob::small();
    let newer = job.inputs[1].clone();
    change(
        &newer,
        &[
            "UPDATE rocpd_metadata<uuid> SET value = '4.1.0' WHERE tag = 'schema_version'",
            "UPDATE rocpd_metadata<uuid> SET value = '4' WHERE tag = 'schema_version_major'",
            "UPDATE rocpd_metadata<uuid> SET value = '1' WHERE tag = 'schema_version_minor'",
        ],
    );
    assert_left_out(&job, &newer, &["4.1.0"]);
    assert_refused(&rpd_merge().arg("-o").arg(job.output()).arg(&newer).run(), 4, &[name(&newer), "4.1.0"]);
}

// --- processes that look alike -----------------------------------------------------------------------------

#[test]
fn equal_pids_on_two_nodes_are_two_processes() {
    let job =
        DatabaseJob::new(&SyntheticRun { equal_pids: true, events_per_rank: 60, ..SyntheticRun::default() });
    let _ = job.merge(&["--strict"]).success();
    job.assert_holds(&job.inputs);
    let database = job.database();
    assert_eq!(database.number("SELECT count(*) FROM rocpd_info_process"), 4);
    assert_eq!(database.number("SELECT count(DISTINCT pid) FROM rocpd_info_process"), 2);
    assert_eq!(database.count("processes"), 4);
    assert_eq!(database.count("threads"), database.count("rocpd_info_thread"));
}

// --- versions and what we do not know --------------------------------------------------------------------

/// What 3.0.2 added, with values.
const TO_3_0_2: [&str; 5] = [
    "ALTER TABLE rocpd_kernel_dispatch<uuid> ADD COLUMN graph_exec_id INTEGER NOT NULL DEFAULT 0",
    "ALTER TABLE rocpd_kernel_dispatch<uuid> ADD COLUMN graph_node_id INTEGER NOT NULL DEFAULT 0",
    "UPDATE rocpd_kernel_dispatch<uuid> SET graph_exec_id = 5, graph_node_id = id WHERE id % 2 = 0",
    "UPDATE rocpd_metadata<uuid> SET value = '3.0.2' WHERE tag = 'schema_version'",
    "UPDATE rocpd_metadata<uuid> SET value = '2' WHERE tag = 'schema_version_patch'",
];

/// Some of what 3.0.3 added, and what no version has.
const TO_3_0_3: [&str; 8] = [
    "ALTER TABLE rocpd_pmc_event<uuid> ADD COLUMN xcc INTEGER",
    "UPDATE rocpd_pmc_event<uuid> SET xcc = id % 8",
    "ALTER TABLE rocpd_region<uuid> ADD COLUMN mood TEXT DEFAULT 'calm'",
    "UPDATE rocpd_region<uuid> SET mood = 'wild ' || start WHERE id % 3 = 0",
    "CREATE TABLE rocpd_visit<uuid> (\"id\" INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
         \"guid\" TEXT DEFAULT \"<guid>\" NOT NULL, \"event_id\" INTEGER, \"name_id\" INTEGER NOT NULL, \"how\" REAL,
         \"raw\" BLOB,
         FOREIGN KEY (event_id) REFERENCES rocpd_event<uuid> (id) ON UPDATE CASCADE,
         FOREIGN KEY (name_id) REFERENCES rocpd_string<uuid> (id) ON UPDATE CASCADE)",
    "INSERT INTO rocpd_visit<uuid> (id, event_id, name_id, how, raw)
         SELECT 1000 + id * 3, event_id, name_id, id * 0.5, x'00ff01' FROM rocpd_region<uuid> WHERE id % 2 = 0",
    "UPDATE rocpd_metadata<uuid> SET value = '3.0.3' WHERE tag = 'schema_version'",
    "UPDATE rocpd_metadata<uuid> SET value = '3' WHERE tag = 'schema_version_patch'",
];

#[test]
fn versions_are_lifted_and_unknown_columns_and_tables_carried() {
    let job = DatabaseJob::small();
    change(&job.inputs[1], &TO_3_0_2);
    change(&job.inputs[2], &TO_3_0_2);
    change(&job.inputs[2], &TO_3_0_3);
    // The oldest has one tag only.
    change(
        &job.inputs[3],
        &[
            "DELETE FROM rocpd_metadata<uuid> WHERE tag LIKE 'schema_version_%'",
            "UPDATE rocpd_metadata<uuid> SET value = '3' WHERE tag = 'schema_version'",
        ],
    );
    let _ = job.merge(&["--strict"]).success();
    let merge = job.database();
    assert_eq!(merge.metadata()["schema_version"], ["3.0.3"]);
    assert_eq!(merge.metadata()["schema_version_patch"], ["3"]);
    let questions = [
        "SELECT start, \"end\", graph_exec_id, graph_node_id FROM rocpd_kernel_dispatch",
        "SELECT value, xcc FROM rocpd_pmc_event",
        "SELECT start, \"end\", mood FROM rocpd_region",
        "SELECT s.string, v.how, v.raw, r.start, r.\"end\", c.string FROM rocpd_visit v
           JOIN rocpd_string s ON s.id = v.name_id JOIN rocpd_event e ON e.id = v.event_id
           JOIN rocpd_region r ON r.event_id = e.id JOIN rocpd_string c ON c.id = e.category_id",
    ];
    // What an older input has instead of a column that came later.
    let lifted = [
        "SELECT start, \"end\", 0, 0 FROM rocpd_kernel_dispatch",
        "SELECT value, NULL FROM rocpd_pmc_event",
        "SELECT start, \"end\", 'calm' FROM rocpd_region",
        "",
    ];
    let visits = Connection::open(&job.inputs[2]).unwrap();
    visits
        .execute_batch(&format!(
            "CREATE TEMP VIEW rocpd_visit AS SELECT * FROM \"rocpd_visit{}\"",
            visits
                .query_row("SELECT value FROM rocpd_metadata WHERE tag = 'uuid'", [], |row| row
                    .get::<_, String>(0))
                .unwrap()
        ))
        .unwrap();
    let visits = Database { connection: visits };
    for (question, instead) in questions.iter().zip(lifted) {
        let mut expected = Vec::new();
        for (i, path) in job.inputs.iter().enumerate() {
            let has_it = i == 2 || (i == 1 && question.contains("graph"));
            match (has_it, instead) {
                (true, _) if i == 2 => expected.extend(visits.rows(question)),
                (true, _) => expected.extend(Database::open(path).rows(question)),
                (false, "") => {}
                (false, sql) => expected.extend(Database::open(path).rows(sql)),
            }
        }
        let mut found = merge.rows(question);
        expected.sort();
        found.sort();
        assert!(expected.len() > 20, "{question}");
        assert_eq!(expected, found, "{question}");
    }
    let uuid = &merge.metadata()["uuid"][0];
    let mut keys =
        merge.rows(&format!("SELECT \"from\", \"table\" FROM pragma_foreign_key_list('rocpd_visit{uuid}')"));
    keys.sort();
    let key = |column: &str, table: &str| vec![format!("'{column}'"), format!("'{table}{uuid}'")];
    assert_eq!(keys, [key("event_id", "rocpd_event"), key("name_id", "rocpd_string")]);
}

#[test]
fn values_keep_the_type_that_sqlite_gave_them() {
    let job = DatabaseJob::small();
    change(
        &job.inputs[0],
        &[
            // uint64 above the largest int64 is stored as a real.
            "UPDATE rocpd_memory_copy<uuid> SET src_address = 18446744073709551615 WHERE id = 1",
            "UPDATE rocpd_memory_copy<uuid> SET dst_address = x'0102' WHERE id = 2",
            "UPDATE rocpd_arg<uuid> SET value = 'a' || char(0) || 'b' WHERE id = 1",
            "UPDATE rocpd_info_agent<uuid> SET uuid = -9223372036854775808 WHERE id = 0",
        ],
    );
    let _ = job.merge(&[]).success();
    let merge = job.database();
    for sql in [
        "SELECT typeof(src_address), src_address, typeof(dst_address), hex(dst_address) FROM rocpd_memory_copy",
        "SELECT typeof(uuid), uuid FROM rocpd_info_agent",
        "SELECT typeof(value), hex(value) FROM rocpd_arg",
    ] {
        let mut expected: Vec<_> =
            job.inputs.iter().flat_map(|path| Database::open(path).rows(sql)).collect();
        let mut found = merge.rows(sql);
        expected.sort();
        found.sort();
        assert_eq!(expected, found, "{sql}");
    }
}

// --- what a merge must not do in silence -------------------------------------------------------------------

#[test]
fn a_database_whose_process_or_node_is_lost_is_merged_and_sound() {
    for table in ["process", "node"] {
        let job = DatabaseJob::small();
        let count =
            |sql: &str| -> i64 { job.inputs.iter().map(|path| Database::open(path).number(sql)).sum() };
        let asked = ["SELECT count(*) FROM rocpd_region", "SELECT count(*) FROM regions"];
        let expected = asked.map(count);
        change(&job.inputs[0], &[&format!("DELETE FROM rocpd_info_{table}<uuid>")]);
        let _ = job.merge(&["--verify"]).success();
        job.database().assert_sound();
        assert_eq!(asked.map(|sql| job.database().number(sql)), expected, "without {table}");
    }
}

#[test]
fn a_missing_table_is_told() {
    let job = DatabaseJob::small();
    change(&job.inputs[0], &["PRAGMA foreign_keys = OFF", "DROP TABLE rocpd_arg<uuid>"]);
    let outcome = job.merge(&["--strict"]);
    assert_eq!(outcome.code(), Some(3), "{outcome}");
    assert!(outcome.stderr.contains("rocpd_arg is missing"), "{outcome}");
}

#[test]
fn the_largest_of_all_ids_costs_its_page_and_not_the_merge() {
    let job = DatabaseJob::small();
    let last = "UPDATE rocpd_event<uuid> SET id = 9223372036854775807 WHERE id = (SELECT max(id) FROM rocpd_event<uuid>)";
    change(&job.inputs[0], &[last]);
    let outcome = job.merge(&[]).success();
    assert!(!warnings_about(&outcome, &job.inputs[0]).is_empty(), "{outcome}");
    job.database().assert_sound();
    assert!(!losses(&job.database()).is_empty());
}

#[test]
fn what_a_former_merge_holds_is_not_merged_twice() {
    let job = DatabaseJob::small();
    let _ = job.merge(&[]).success();
    let former = job.output().with_file_name("former.db");
    fs::rename(job.output(), &former).unwrap();
    let again = |inputs: &[&Path]| rpd_merge().args(["--force", "-o"]).arg(job.output()).args(inputs).run();
    let outcome = again(&[&former, &job.inputs[0], &job.inputs[1]]).success();
    assert!(outcome.stderr.contains("already, a previous merge"), "{outcome}");
    let events = "SELECT count(*) FROM rocpd_event";
    assert_eq!(job.database().number(events), Database::open(&former).number(events));
    // Two merges that share a process.
    let other = job.output().with_file_name("other.db");
    let _ = rpd_merge().arg("-o").arg(&other).arg(&job.inputs[0]).run().success();
    assert_eq!(again(&[&former, &other]).code(), Some(4));
}

#[test]
fn tags_and_the_ledger_of_a_former_merge_are_kept() {
    let job = DatabaseJob::small();
    change(
        &job.inputs[0],
        &[
            "INSERT INTO rocpd_metadata<uuid> (tag, value) VALUES ('my.tag', 'keep me')",
            "PRAGMA foreign_keys = OFF",
            "DROP TABLE rocpd_arg<uuid>",
        ],
    );
    let _ = job.merge(&[]).success();
    let former = job.output().with_file_name("former.db");
    fs::rename(job.output(), &former).unwrap();
    let outcome = rpd_merge().args(["--strict", "-o"]).arg(job.output()).arg(&former).run();
    assert_eq!(outcome.code(), Some(3), "{outcome}");
    let _ = rpd_merge().arg("-o").arg(job.output()).arg(&former).run().success();
    let tag =
        |tag: &str| job.database().rows(&format!("SELECT value FROM rocpd_metadata WHERE tag = '{tag}'"));
    assert_eq!(tag("my.tag"), [["'keep me'"]]);
    assert!(tag("rpd.former_losses")[0][0].contains("rocpd_arg"), "{:?}", tag("rpd.former_losses"));
}
