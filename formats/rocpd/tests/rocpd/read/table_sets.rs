//! Tests of files with several uuids, and with none in the metadata.

use super::{lines, make, metadata, rows_of, some_rows};
use crate::real::Outcome;
use crate::writer::GUID;
use rpd_rocpd::read::{Database, Wanted};
use rpd_rocpd::{Guid, schema};
use rpd_shard::model::{Schema, rocpd};
use std::fmt::Write as _;

/// Returns the statements that create the tables of a table set, without views.
fn tables(guid: &Guid) -> String {
    let metadata = format!(
        "CREATE TABLE \"rocpd_metadata{}\" (id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, tag TEXT NOT NULL, value TEXT NOT NULL);",
        guid.suffix()
    );
    let tables = schema::tables().map(|table| schema::create_table(table, Schema::builtin(), &guid.into()));
    metadata + &tables.collect::<String>()
}

/// AMD's merge keeps the tables of every input and combines them in views.
#[test]
fn each_uuid_of_a_merged_database_is_a_space() -> Outcome {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("merged.db");
    let guids: Vec<Guid> = (1..=40).map(Guid::from_bits).collect();
    let mut sql = String::new();
    for guid in &guids {
        sql += &(tables(guid) + &metadata(guid, "3.0.0") + &some_rows(guid));
        let event =
            format!("INSERT INTO \"rocpd_event{}\" (id, category_id) VALUES (100, 7);", guid.suffix());
        sql += &event.repeat(usize::from(guid.bits() == 7));
    }
    for table in schema::tables() {
        let parts: Vec<_> =
            guids.iter().map(|g| format!("SELECT * FROM \"{}{}\"", table.name, g.suffix())).collect();
        writeln!(sql, "CREATE VIEW \"{}\" AS {};", table.name, parts.join(" UNION ALL "))?;
    }
    make(&path, &sql)?;
    let database = Database::open(&path)?;
    assert_eq!(database.table_sets().len(), 40);
    for (i, (set, guid)) in database.table_sets().iter().zip(&guids).enumerate() {
        assert_eq!((&set.guid, &set.suffix), (&guid.to_string(), &guid.suffix()));
        assert_eq!(set.tables.len(), schema::tables().count());
        assert_eq!(set.processes.len(), 1);
        let events = rows_of(&database, i, "rocpd_event", Wanted::All)?;
        assert_eq!(events.len, if guid.bits() == 7 { 4 } else { 3 });
    }
    Ok(())
}

#[test]
fn a_guid_is_any_text() -> Outcome {
    let dir = tempfile::tempdir()?;
    // An MD5, as rocprof-sys writes it, and other texts.
    for guid in ["d41d8cd98f00b204e9800998ecf8427e", "run 7/é", "a"] {
        let path = dir.path().join(format!("{}.db", guid.len()));
        let sql = tables(&GUID) + &metadata(&GUID, "3") + &some_rows(&GUID);
        make(&path, &sql.replace(&GUID.suffix(), &format!("_{guid}")).replace(&GUID.to_string(), guid))?;
        let database = Database::open(&path)?;
        let [set] = database.table_sets() else { return Err("not one set".into()) };
        assert_eq!((set.guid.as_str(), &set.suffix), (guid, &format!("_{guid}")));
        assert_eq!(rows_of(&database, 0, "rocpd_region", Wanted::All)?.len, 2);
    }
    Ok(())
}

/// A profiler that was killed before it wrote its rows leaves such a file.
#[test]
fn a_schema_without_rows_is_a_space_without_rows() -> Outcome {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("a.db");
    make(&path, &tables(&GUID))?;
    let database = Database::open(&path)?;
    let set = &database.table_sets()[0];
    assert_eq!((set.guid.clone(), set.version), (GUID.to_string(), [3, 0, 0]));
    for table in 0..set.tables.len() {
        assert!(lines(&database, 0, table)?.is_empty());
    }
    assert!(set.processes.is_empty() && set.nodes.is_empty() && set.tags.is_empty());
    assert_eq!(set.warnings.len(), 1, "{:?}", set.warnings);
    Ok(())
}

/// One suffix is the end of another, and names of tables start like that of the metadata.
#[test]
fn tables_belong_to_the_longest_suffix() -> Outcome {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("a.db");
    let table =
        |name: &str| format!("CREATE TABLE \"{name}\" (id INTEGER PRIMARY KEY, tag TEXT, value TEXT);");
    let names = [
        "rocpd_metadata_b",
        "rocpd_info_process_b",
        "rocpd_string_b",
        "rocpd_metadata_a_b",
        "rocpd_info_process_a_b",
        "rocpd_string_a_b",
        "rocpd_metadata_more_b",
        "rocpd_metadata_c",
        "rocpd_info_process_d",
    ];
    make(&path, &names.map(table).concat())?;
    let database = Database::open(&path)?;
    let found: Vec<_> = database
        .table_sets()
        .iter()
        .map(|set| {
            let tables: Vec<_> = set.tables.iter().map(|t| t.table.name.as_str()).collect();
            (set.suffix.as_str(), tables)
        })
        .collect();
    let wanted = [
        ("_a_b", vec!["rocpd_string", "rocpd_info_process"]),
        ("_b", vec!["rocpd_string", "rocpd_info_process", "rocpd_metadata_more"]),
        ("_c", vec![]),
        ("_d", vec!["rocpd_info_process"]),
    ];
    assert_eq!(found, wanted);
    Ok(())
}

#[test]
fn tags_tell_who_wrote_the_file() -> Outcome {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("a.db");
    let more = format!(
        "INSERT INTO \"rocpd_metadata{}\" (tag, value) VALUES ('rpd.run_id', 'j-1'), ('rpd.run_id', 'j-2'), ('n', 5);",
        GUID.suffix()
    );
    make(&path, &(tables(&GUID) + &metadata(&GUID, "3.0.0") + &more))?;
    let database = Database::open(&path)?;
    let tags = &database.table_sets()[0].tags;
    assert_eq!(tags.get("rpd.run_id").map(String::as_str), Some("j-1"));
    assert_eq!(tags.get("n").map(String::as_str), Some("5"));
    assert_eq!(database.table_sets()[0].position(rocpd::STRING), Some(0));
    Ok(())
}
