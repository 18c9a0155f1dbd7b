//! Tests of versions 3 to 3.0.5 and other versions.

use super::{empty, make, rows_of, some_rows};
use crate::real::Outcome;
use crate::writer::GUID;
use rpd_rocpd::read::{Database, ReadError, Wanted};
use rpd_shard::model::{Cells, Kind, Schema, Value, rocpd};
use std::path::Path;

/// Creates a database of 3.0.0 from modified statements.
fn database(path: &Path, version: &str, change: impl Fn(String) -> String) -> Outcome<Database> {
    make(path, &change(empty(&GUID, version) + &some_rows(&GUID)))?;
    Ok(Database::open(path)?)
}

#[test]
fn the_version_is_three_numbers() -> Outcome {
    let dir = tempfile::tempdir()?;
    for (text, version) in [("3", [3, 0, 0]), ("3.0.0", [3, 0, 0]), ("3.0.5", [3, 0, 5])] {
        let path = dir.path().join(text);
        assert_eq!(database(&path, text, |sql| sql)?.table_sets()[0].version, version);
    }
    let error = database(&dir.path().join("4"), "4.1.0", |sql| sql).map(|_| ()).expect_err("it is too new");
    let error = error.downcast::<ReadError>()?;
    assert!(matches!(&*error, ReadError::Version { version, .. } if version == "4.1.0"), "{error:?}");
    assert!(error.to_string().contains("4.1.0"));
    Ok(())
}

#[test]
fn a_whole_database_of_3_0_0_has_the_built_in_tables() -> Outcome {
    let dir = tempfile::tempdir()?;
    let database = database(&dir.path().join("a.db"), "3.0.0", |sql| sql)?;
    let set = &database.table_sets()[0];
    assert_eq!(set.guid, GUID.to_string());
    assert_eq!(set.suffix, GUID.suffix());
    let found: Vec<_> = set.tables.iter().map(|t| &t.table).collect();
    assert_eq!(found, Schema::builtin().rocpd_tables().collect::<Vec<_>>());
    assert_eq!(set.schema.tables(), Schema::builtin().tables());
    Ok(())
}

#[test]
fn nic_is_a_processor_since_3_0_1() -> Outcome {
    let dir = tempfile::tempdir()?;
    let nic =
        |sql: String| sql.replace("('CPU', 'GPU')", "('CPU', 'GPU', 'NIC')").replace("'GPU');", "'NIC');");
    let database = database(&dir.path().join("a.db"), "3.0.1", nic)?;
    let set = &database.table_sets()[0];
    for (table, column) in [(rocpd::INFO_AGENT, "type"), (rocpd::INFO_PMC, "target_arch")] {
        let table = set.schema.get(table).ok_or("no table")?;
        let column = &table.columns[table.position(column).ok_or("no column")?];
        assert_eq!(column.sql.one_of, ["CPU", "GPU", "NIC"]);
        assert_eq!(column.kind, Kind::Text);
    }
    let rows = rows_of(&database, 0, "rocpd_info_agent", Wanted::All)?;
    assert_eq!(rows.column("type").get(0), Value::Text(b"NIC"));
    assert_eq!(set.warnings, [] as [String; 0]);
    Ok(())
}

#[test]
fn graphs_came_with_3_0_2() -> Outcome {
    let dir = tempfile::tempdir()?;
    let graph = |sql: String| {
        let columns = "\"graph_exec_id\" INTEGER DEFAULT 0 NOT NULL,\n    \"graph_node_id\" INTEGER DEFAULT 0 NOT NULL,\n    ";
        let launch = format!(
            "CREATE TABLE \"rocpd_graph_launch{0}\" (\"id\" INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
             \"guid\" TEXT DEFAULT \"{GUID}\" NOT NULL, \"event_id\" INTEGER, \"name_id\" INTEGER NOT NULL,
             \"graph_exec_id\" INTEGER NOT NULL, \"start\" BIGINT NOT NULL, \"end\" BIGINT, \"extdata\" JSONB DEFAULT \"{{}}\",
             FOREIGN KEY (event_id) REFERENCES \"rocpd_event{0}\" (id) ON UPDATE CASCADE,
             FOREIGN KEY (name_id) REFERENCES \"rocpd_string{0}\" (id));
             INSERT INTO \"rocpd_graph_launch{0}\" VALUES (4, '{GUID}', 5, 2, 9, 10, NULL, '{{}}');
             UPDATE \"rocpd_kernel_dispatch{0}\" SET graph_exec_id = 9;",
            GUID.suffix()
        );
        sql.replace("\"region_name_id\" INTEGER", &format!("{columns}\"region_name_id\" INTEGER")) + &launch
    };
    let database = database(&dir.path().join("a.db"), "3.0.2", graph)?;
    let set = &database.table_sets()[0];
    assert_eq!(set.warnings, [] as [String; 0]);
    for table in [rocpd::KERNEL_DISPATCH, rocpd::MEMORY_COPY] {
        let table = set.schema.get(table).ok_or("no table")?;
        let at = table.position("graph_exec_id").ok_or("no column")?;
        let names: Vec<_> = table.columns[at..at + 3].iter().map(|c| c.name.as_str()).collect();
        assert_eq!(names, ["graph_exec_id", "graph_node_id", "region_name_id"]);
        let column = &table.columns[at];
        assert_eq!((&column.kind, column.sql.default.as_deref()), (&Kind::Any, Some("0")));
        assert!(column.sql.not_null);
    }
    let dispatch = rows_of(&database, 0, "rocpd_kernel_dispatch", Wanted::All)?;
    assert_eq!(dispatch.column("graph_exec_id").int(0), Some(9));
    assert_eq!(dispatch.column("graph_node_id").int(0), Some(0));
    assert_eq!(dispatch.column("event_id").int(0), Some(5));

    let last = set.tables.last().ok_or("no tables")?;
    assert_eq!(last.table.name, "rocpd_graph_launch");
    assert_eq!(last.table.id, rpd_shard::model::FIRST_CARRIED_TABLE);
    let kinds: Vec<_> = last.table.columns.iter().map(|c| (c.name.as_str(), c.kind.clone())).collect();
    let wanted = [
        ("event_id", Kind::Ref(rocpd::EVENT)),
        ("name_id", Kind::Str),
        ("graph_exec_id", Kind::Any),
        ("start", Kind::Time),
        ("end", Kind::Time),
        ("extdata", Kind::Json(Vec::new())),
    ];
    assert_eq!(kinds, wanted);
    let launches = rows_of(&database, 0, "rocpd_graph_launch", Wanted::All)?;
    assert_eq!((launches.keys.get(0), launches.column("name_id").int(0)), (4, Some(2)));
    Ok(())
}

#[test]
fn counters_of_3_0_3_refer_to_samples() -> Outcome {
    let dir = tempfile::tempdir()?;
    let change = |sql: String| {
        let samples = format!(
            "FOREIGN KEY (\"event_id\") REFERENCES \"rocpd_event{0}\" (\"id\") ON UPDATE CASCADE,
             FOREIGN KEY (sample_id) REFERENCES \"rocpd_sample{0}\" (id)",
            GUID.suffix()
        );
        let (before, after) = sql.split_once("CREATE TABLE \"rocpd_pmc_event").unwrap_or((&sql, ""));
        let (table, rest) = after.split_once(";\n").unwrap_or((after, ""));
        let table = table
            .replace("\"event_id\" INTEGER,", "\"event_id\" INTEGER, \"sample_id\" INTEGER,")
            .replace(
                "\"value\" REAL DEFAULT 0.0,",
                "\"value\" REAL DEFAULT 0.0, \"xcc\" INTEGER, \"shader_engine\" INTEGER, \"instance\" INTEGER,",
            )
            .replace(samples.split(",\n").next().unwrap_or_default(), &samples);
        format!("{before}CREATE TABLE \"rocpd_pmc_event{table};\n{rest}")
    };
    let database = database(&dir.path().join("a.db"), "3.0.3", change)?;
    let set = &database.table_sets()[0];
    let table = set.schema.get(rocpd::PMC_EVENT).ok_or("no table")?;
    let kinds: Vec<_> = table.columns.iter().map(|c| (c.name.as_str(), c.kind.clone())).collect();
    let wanted = [
        ("event_id", Kind::Ref(rocpd::EVENT)),
        ("sample_id", Kind::Ref(rocpd::SAMPLE)),
        ("pmc_id", Kind::Ref(rocpd::INFO_PMC)),
        ("value", Kind::Real),
        ("xcc", Kind::Any),
        ("shader_engine", Kind::Any),
        ("instance", Kind::Any),
        ("extdata", Kind::Json(Vec::new())),
    ];
    assert_eq!(kinds, wanted);
    // The referenced table precedes the referring one.
    assert!(set.position(rocpd::SAMPLE) < set.position(rocpd::PMC_EVENT));
    let rows = rows_of(&database, 0, "rocpd_pmc_event", Wanted::All)?;
    assert_eq!(rows.column("value").get(1), Value::Real(3.0));
    Ok(())
}

#[test]
fn what_an_older_writer_did_not_have_is_absent() -> Outcome {
    let dir = tempfile::tempdir()?;
    let old = |sql: String| {
        let drop = format!(
            "ALTER TABLE \"rocpd_event{0}\" DROP COLUMN line_info; DROP TABLE \"rocpd_arg{0}\";",
            GUID.suffix()
        );
        // With the views, SQLite would not drop the column.
        sql.lines().filter(|line| !line.starts_with("CREATE VIEW")).collect::<Vec<_>>().join("\n") + &drop
    };
    let path = dir.path().join("a.db");
    let tables: String = rpd_rocpd::schema::tables()
        .map(|table| rpd_rocpd::schema::create_table(table, Schema::builtin(), &(&GUID).into()))
        .collect();
    let metadata = format!(
        "CREATE TABLE \"rocpd_metadata{}\" (id INTEGER PRIMARY KEY, tag TEXT, value TEXT);",
        GUID.suffix()
    );
    let sql = old(tables + &metadata + &super::metadata(&GUID, "3") + &some_rows(&GUID));
    make(&path, &sql)?;
    let database = Database::open(&path)?;
    assert_eq!(database.table_sets()[0].position(rocpd::ARG), None);
    assert!(database.table_sets()[0].schema.get(rocpd::ARG).is_some());
    let rows = rows_of(&database, 0, "rocpd_event", Wanted::All)?;
    assert_eq!(rows.table.columns, Schema::builtin().get(rocpd::EVENT).ok_or("no events")?.columns);
    assert_eq!(*rows.column("line_info"), Cells::Absent);
    assert_eq!(rows.column("extdata").get(0), Value::Text(b"{}"));
    assert_eq!(rows.column("stack_id").int(2), Some(21));
    Ok(())
}
