//! A database that was made a shard, as the collector does with what a profiler wrote, is merged to what the database
//! itself is merged to.

use rpd_shard::Shard;
use rpd_shard::file::BlockKind;
use rpd_shard::file::Owner;
use rpd_shard::model::rocpd::{EVENT, KERNEL_DISPATCH};
use rpd_shard::record::RunIdentity;
use rpd_tests::content::differences;
use rpd_tests::databases::{DatabaseJob, change, content_of};
use rpd_tests::harness::{Database, losses, rpd_merge};
use rpd_translator::TranslateError;
use rusqlite::Connection;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

fn owner() -> Owner {
    Owner::unknown(RunIdentity {
        run_id: "translated".into(),
        run_id_from: "test".into(),
        rank: None,
        size: None,
        version: "0".into(),
    })
}

/// Shards of these databases, in a folder below `folder`.
fn shards(inputs: &[PathBuf], folder: &Path) -> Vec<PathBuf> {
    fs::create_dir_all(folder).unwrap();
    let shard = |(number, input): (usize, &PathBuf)| {
        let mut bytes = Vec::new();
        rpd_rocpd::translate(input, &mut bytes, &owner()).unwrap();
        let path = folder.join(format!("{number}.rpdshard"));
        fs::write(&path, bytes).unwrap();
        path
    };
    inputs.iter().enumerate().map(shard).collect()
}

fn merged(inputs: &[PathBuf], out: &Path) -> Database {
    let _ = rpd_merge().arg("-o").arg(out).args(inputs).run().success();
    let database = Database::open(out);
    database.assert_sound();
    database
}

/// All rows of all tables, except the identity of the job and of its processes.
fn rows(database: &Database) -> Vec<(String, Vec<Vec<String>>)> {
    let tables = database
        .rows("SELECT name FROM sqlite_master WHERE type = 'view' AND name LIKE 'rocpd_%' ORDER BY 1");
    let tables = tables.into_iter().map(|row| row[0].trim_matches('\'').to_owned());
    let tables = tables.filter(|name| name != "rocpd_metadata");
    let of = |table: String| {
        let columns =
            database.rows(&format!("SELECT name FROM pragma_table_info('{table}') WHERE name <> 'guid'"));
        let mut columns: Vec<String> =
            columns.iter().map(|row| format!("\"{}\"", row[0].trim_matches('\''))).collect();
        if table == "rocpd_info_process" {
            columns.retain(|column| {
                ["\"id\"", "\"nid\"", "\"pid\"", "\"start\"", "\"end\""].contains(&column.as_str())
            });
        }
        let rows = database.rows(&format!("SELECT {} FROM \"{table}\" ORDER BY 1", columns.join(", ")));
        (table, rows)
    };
    tables.map(of).collect()
}

fn assert_same(left: &Database, right: &Database) {
    let (left, right) = (rows(left), rows(right));
    assert_eq!(
        left.iter().map(|(table, rows)| (table, rows.len())).collect::<Vec<_>>(),
        right.iter().map(|(table, rows)| (table, rows.len())).collect::<Vec<_>>()
    );
    assert!(left.iter().map(|(_, rows)| rows.len()).sum::<usize>() > 500);
    for ((table, left), (_, right)) in left.iter().zip(&right) {
        for (a, b) in left.iter().zip(right) {
            assert_eq!(a, b, "{table}");
        }
    }
}

#[test]
fn a_merge_of_shards_of_databases_is_the_merge_of_the_databases() {
    let job = DatabaseJob::small();
    let shards = shards(&job.inputs, &job.beside("shards"));
    assert_same(&merged(&shards, &job.beside("a.db")), &merged(&job.inputs, &job.beside("b.db")));
    let bytes = |paths: &[PathBuf]| paths.iter().map(|path| fs::metadata(path).unwrap().len()).sum::<u64>();
    assert!(bytes(&shards) * 4 < bytes(&job.inputs), "{} of {}", bytes(&shards), bytes(&job.inputs));
}

#[test]
fn columns_and_tables_of_others_and_negative_keys_come_along() {
    let job = DatabaseJob::small();
    let input = &job.inputs[0];
    let uuid = Database::open(input).rows("SELECT value FROM rocpd_metadata WHERE tag = 'uuid'");
    let uuid = uuid[0][0].trim_matches('\'');
    change(
        input,
        &[
            &format!(
                "ALTER TABLE \"rocpd_kernel_dispatch{uuid}\" ADD COLUMN graph_node_id INTEGER DEFAULT 7"
            ),
            &format!("UPDATE \"rocpd_kernel_dispatch{uuid}\" SET graph_node_id = id * 3 WHERE id % 2"),
            &format!("CREATE TABLE \"rocpd_extra{uuid}\" (id INTEGER PRIMARY KEY, note TEXT, amount REAL)"),
            &format!(
                "INSERT INTO \"rocpd_extra{uuid}\" VALUES (-5, 'five', 0.5), (3, NULL, 1e300), (9000000000000, x'00ff', 2)"
            ),
        ],
    );
    let shards = shards(&job.inputs, &job.beside("shards"));
    let (left, right) = (merged(&shards, &job.beside("a.db")), merged(&job.inputs, &job.beside("b.db")));
    assert_same(&left, &right);
    assert_eq!(left.rows("SELECT note, amount FROM rocpd_extra ORDER BY id")[0], ["'five'", "0.5"]);
    assert!(left.number("SELECT count(DISTINCT graph_node_id) FROM rocpd_kernel_dispatch") > 2);
}

/// What each version of RocPD added to a table, and the tables that it added.
const VERSIONS: [(&str, &[&str]); 4] = [
    (
        "3.0.2",
        &[
            "ALTER TABLE \"rocpd_kernel_dispatch<uuid>\" ADD COLUMN graph_exec_id INTEGER NOT NULL DEFAULT 0",
            "ALTER TABLE \"rocpd_kernel_dispatch<uuid>\" ADD COLUMN graph_node_id INTEGER NOT NULL DEFAULT 0",
        ],
    ),
    ("3.0.3", &["ALTER TABLE \"rocpd_pmc_event<uuid>\" ADD COLUMN sample_id INTEGER"]),
    (
        "3.0.4",
        &["CREATE TABLE \"rocpd_hip_event<uuid>\" (id INTEGER PRIMARY KEY, guid TEXT, handle INTEGER)"],
    ),
    ("3.0.5", &["ALTER TABLE \"rocpd_pmc_event<uuid>\" ADD COLUMN wgp INTEGER"]),
];

#[test]
fn a_merge_of_shards_has_the_version_of_the_databases_that_they_were() {
    let job = DatabaseJob::small();
    let version = |database: &Database| database.metadata()["schema_version"].clone();
    let before = merged(&shards(&job.inputs, &job.beside("before")), &job.beside("before.db"));
    assert_eq!(version(&before), ["3.0.0"]);
    for (name, statements) in VERSIONS {
        let patch = name.rsplit('.').next().unwrap();
        let translated = [("schema_version", name), ("schema_version_patch", patch)].map(|(tag, value)| {
            format!("UPDATE \"rocpd_metadata<uuid>\" SET value = '{value}' WHERE tag = '{tag}'")
        });
        change(&job.inputs[1], statements);
        change(&job.inputs[1], &translated.each_ref().map(String::as_str));
        let shards = shards(&job.inputs, &job.beside(name));
        let (left, right) = (job.beside(&format!("{name}.a.db")), job.beside(&format!("{name}.b.db")));
        let (left, right) = (merged(&shards, &left), merged(&job.inputs, &right));
        assert_eq!((version(&left), version(&right)), (vec![name.to_owned()], vec![name.to_owned()]));
        // Of 3.0.1 there are kinds of agents that were none before.
        let words = left.rows("SELECT sql FROM sqlite_master WHERE name LIKE 'rocpd_info_agent_%'");
        assert!(words[0][0].contains("NIC"), "{words:?}");
    }
}

#[test]
fn tags_that_a_shard_has_no_room_for_are_told() {
    let job = DatabaseJob::small();
    let input = &job.inputs[0];
    change(input, &["INSERT INTO \"rocpd_metadata<uuid>\" (tag, value) VALUES ('tool', 'x'), ('site', 'y')"]);
    let translated = rpd_rocpd::translate(input, &mut Vec::new(), &owner()).unwrap();
    assert_eq!(translated.notes, ["a shard has no room for 2 tags of its metadata: site, tool"]);
    let account =
        rpd_foreign::translate(input, rpd_foreign::Format::RocPd, &mut Vec::new(), &owner()).unwrap();
    let [note] = &account.notes[..] else { panic!("{:?}", account.notes) };
    assert!(note.ends_with("a shard has no room for 2 tags of its metadata: site, tool"), "{note}");
}

#[test]
fn what_is_lost_of_a_cut_database_is_lost_of_its_shard() {
    let job = DatabaseJob::small();
    let bytes = fs::read(&job.inputs[0]).unwrap();
    fs::write(&job.inputs[0], &bytes[..bytes.len() * 2 / 3]).unwrap();
    let shards = shards(&job.inputs, &job.beside("shards"));
    let (left, right) = (merged(&shards, &job.beside("a.db")), merged(&job.inputs, &job.beside("b.db")));
    assert_same(&left, &right);
    assert!(losses(&left).iter().any(|(_, cause, _)| cause == "truncated"), "{:?}", losses(&left));
}

#[test]
fn a_shard_that_is_full_counts_the_rest_of_the_rows() {
    let job = DatabaseJob::small();
    let (mut whole, mut bytes) = (Vec::new(), Vec::new());
    rpd_rocpd::translate(&job.inputs[0], &mut whole, &owner()).unwrap();
    let limited = Owner { most_bytes: whole.len() as u64 * 2 / 3, ..owner() };
    let translated = rpd_rocpd::translate(&job.inputs[0], &mut bytes, &limited).unwrap();
    assert!(bytes.len() as u64 <= limited.most_bytes);
    let shard = Shard::from_memory("limited", &bytes).unwrap();
    let ledger = shard.ledger.as_ref().unwrap();
    let written: u64 = ledger.written.iter().map(|(.., rows)| rows).sum();
    let lost: u64 = ledger.losses.iter().filter_map(|loss| loss.rows).sum();
    assert!(lost > 0 && written > 0);
    assert_eq!(written + lost, translated.rows.values().sum::<u64>());
}

/// Copies the tables of other databases into the first one, as a profiler does that writes one file for a tree of
/// processes.
fn in_one_file(inputs: &[PathBuf]) -> PathBuf {
    let [first, others @ ..] = inputs else { panic!("no database") };
    let database = Connection::open(first).unwrap();
    for other in others {
        database.execute("ATTACH ? AS other", [other.to_str().unwrap()]).unwrap();
        let tables: Vec<(String, String)> = {
            let sql = "SELECT name, sql FROM other.sqlite_master WHERE type = 'table' AND name LIKE 'rocpd%'";
            let mut tables = database.prepare(sql).unwrap();
            let tables = tables.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
            tables.collect::<Result<_, _>>().unwrap()
        };
        assert!(tables.len() > 15);
        for (name, sql) in tables {
            database.execute_batch(&sql).unwrap();
            let insert = format!("INSERT INTO main.\"{name}\" SELECT * FROM other.\"{name}\"");
            database.execute_batch(&insert).unwrap();
        }
        database.execute_batch("DETACH other").unwrap();
    }
    first.clone()
}

/// Tables with rows that have an event.
const WITH_EVENTS: [&str; 7] =
    ["arg", "pmc_event", "region", "sample", "kernel_dispatch", "memory_copy", "memory_allocate"];

/// The first two databases of a job in one set of tables, their rows in no order, as if no merge had made it.
fn in_one_set(job: &DatabaseJob) -> PathBuf {
    let path = job.beside("one-set.db");
    let _ = rpd_merge().arg("-o").arg(&path).args(&job.inputs[..2]).run().success();
    let spread = |column: &str| format!("-({column} * 7919 % 1000003) - 10");
    let spread_column = |table: &str, column: &str| {
        format!("UPDATE \"rocpd_{table}<uuid>\" SET {column} = {}", spread(column))
    };
    let mut statements = vec![
        "DELETE FROM \"rocpd_metadata<uuid>\" WHERE tag LIKE 'rpd.%'".to_owned(),
        "UPDATE \"rocpd_info_process<uuid>\" SET extdata = '{}'".to_owned(),
        spread_column("event", "id"),
        spread_column("region", "id"),
    ];
    let database = Database::open(&path);
    let has_events =
        |table: &&&str| database.number(&format!("SELECT count(event_id) FROM rocpd_{table}")) > 0;
    statements.extend(WITH_EVENTS.iter().filter(has_events).map(|table| spread_column(table, "event_id")));
    assert!(statements.len() > 6, "{statements:?}");
    drop(database);
    change(&path, &statements.iter().map(String::as_str).collect::<Vec<_>>());
    path
}

/// How many rows each process of a shard has in a table.
fn rows_of(shard: &Shard, table: rpd_shard::model::TableId) -> BTreeMap<u32, u64> {
    let mut rows = BTreeMap::new();
    for block in shard.blocks().iter().filter(|block| block.header.kind == BlockKind::Rows(table)) {
        *rows.entry(block.header.source).or_default() += u64::from(block.header.rows);
    }
    rows
}

#[test]
fn processes_with_a_set_of_tables_each_become_one_shard() {
    let job = DatabaseJob::small();
    for (input, extra) in [(0, "extra"), (1, "more"), (1, "extra")] {
        change(
            &job.inputs[input],
            &[
                &format!("CREATE TABLE \"rocpd_{extra}<uuid>\" (id INTEGER PRIMARY KEY, note TEXT)"),
                &format!("INSERT INTO \"rocpd_{extra}<uuid>\" VALUES (-5, '{extra} of {input}'), (3, NULL)"),
            ],
        );
    }
    let input = in_one_file(&job.inputs[..2]);
    let shards = shards(std::slice::from_ref(&input), &job.beside("shards"));
    let shard = Shard::open(&shards[0]).unwrap();
    assert_eq!((shard.processes.len(), rows_of(&shard, EVENT).len()), (2, 2));
    let (left, right) = (merged(&shards, &job.beside("a.db")), merged(&[input], &job.beside("b.db")));
    assert_same(&left, &right);
    let notes =
        |table: &str| left.rows(&format!("SELECT note FROM rocpd_{table} WHERE note IS NOT NULL ORDER BY 1"));
    assert_eq!(notes("extra"), [["'extra of 0'"], ["'extra of 1'"]]);
    assert_eq!(notes("more"), [["'more of 1'"]]);
}

#[test]
fn processes_in_one_set_of_tables_are_told_apart() {
    let job = DatabaseJob::small();
    let input = in_one_set(&job);
    let shards = shards(std::slice::from_ref(&input), &job.beside("shards"));
    let shard = Shard::open(&shards[0]).unwrap();
    let ranks: Vec<_> = shard.processes.values().map(|process| process.rank).collect();
    assert_eq!(ranks, [Some(0), Some(1)]);
    for table in [EVENT, KERNEL_DISPATCH] {
        let found = rows_of(&shard, table);
        let single = |input: &PathBuf| {
            let sql = format!("SELECT count(*) FROM {table}");
            Database::open(input).number(&sql) as u64
        };
        assert_eq!(
            found,
            BTreeMap::from([(1, single(&job.inputs[0])), (2, single(&job.inputs[1]))]),
            "{table}"
        );
    }
    let (left, right) = (job.beside("a.db"), job.beside("b.db"));
    assert_eq!(losses(&merged(&shards, &left)), []);
    merged(&[input], &right);
    for path in [&left, &right] {
        // A shard does not know it of a file.
        change(path, &["UPDATE \"rocpd_info_process<uuid>\" SET ppid = -1"]);
    }
    assert_eq!(differences(&content_of(&[left]), &content_of(&[right])), "");
}

/// Why a database is no shard.
fn refusal(input: &Path) -> &'static str {
    match rpd_rocpd::translate(input, &mut Vec::new(), &owner()) {
        Err(TranslateError::Unfit { what, .. }) => what,
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_cannot_be_told_apart_is_no_shard() {
    let job = DatabaseJob::small();
    assert_eq!(
        refusal(&in_one_file(&[job.inputs[2].clone(), job.inputs[0].clone()])),
        "has processes of several nodes"
    );
    let _ = rpd_merge().arg("-o").arg(job.output()).args(&job.inputs[..2]).run().success();
    assert_eq!(refusal(&job.output()), "is the output of a merge");
    let input = in_one_set(&job);
    let other_agent = "UPDATE \"rocpd_kernel_dispatch<uuid>\" SET agent_id = \
                       (SELECT max(id) FROM rocpd_info_agent) WHERE id = (SELECT min(id) FROM rocpd_kernel_dispatch)";
    change(&input, &[other_agent]);
    assert_eq!(refusal(&input), "has rows that belong to several of its processes");
    let wider = "ALTER TABLE \"rocpd_region<uuid>\" ADD COLUMN note TEXT";
    change(&job.inputs[1], &[wider]);
    assert_eq!(refusal(&in_one_file(&job.inputs[..2])), "has sets of tables with different columns");
}
