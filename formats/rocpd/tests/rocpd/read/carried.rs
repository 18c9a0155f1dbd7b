//! Tests of tables and columns that the data model lacks.

use super::{empty, lines, make, rows_of, some_rows};
use crate::real::Outcome;
use crate::writer::GUID;
use rpd_rocpd::read::{Database, LeftOut, Wanted};
use rpd_shard::model::{Declared, FIRST_CARRIED_TABLE, Kind, TableId, Value, rocpd};

/// Creates a database with these tables in addition to the usual ones; `$` in the SQL is the suffix.
fn with(sql: &str) -> Outcome<(tempfile::TempDir, Database)> {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("a.db");
    make(&path, &(empty(&GUID, "3.0.0") + &some_rows(&GUID) + &sql.replace('$', &GUID.suffix())))?;
    let database = Database::open(&path)?;
    Ok((dir, database))
}

fn carried(n: u16) -> TableId {
    TableId(FIRST_CARRIED_TABLE.0 + n)
}

#[test]
fn declarations_are_carried() -> Outcome {
    let (_dir, database) = with(
        r#"CREATE TABLE `rocpd_extra$` (`id` INTEGER PRIMARY KEY, "guid" TEXT NOT NULL DEFAULT 'g',
            "level" TEXT DEFAULT 'it''s' NOT NULL CHECK ("level" IN ('LOW', 'it''s')), uuid BIGINT UNIQUE,
            ratio REAL DEFAULT -0.5, stack_id INTEGER, note, data JSON, start TEXT, timestamp BIGINT,
            made TEXT DEFAULT CURRENT_TIMESTAMP, a, b, UNIQUE (a, b), CHECK (a <> b));
        INSERT INTO `rocpd_extra$` (id, uuid, note) VALUES (-3, 7, x'00ff'), (9, 8, 1.5);"#,
    )?;
    let set = &database.table_sets()[0];
    let table = set.schema.get(carried(0)).ok_or("no table")?;
    assert_eq!(table.name, "rocpd_extra");
    let column = |name: &str| &table.columns[table.position(name).unwrap()];
    let declared = |name: &str| column(name).sql.clone();
    let text = |text: &str| text.to_owned();
    assert_eq!(table.columns.len(), 11);
    assert_eq!(
        declared("level"),
        Declared {
            type_name: text("TEXT"),
            not_null: true,
            default: Some(text("it's")),
            one_of: vec![text("LOW"), text("it's")],
            unique: false
        }
    );
    assert!(declared("uuid").unique && !declared("a").unique);
    assert_eq!(declared("ratio").default, Some(text("-0.5")));
    assert_eq!(declared("note"), Declared::default());
    let kinds =
        ["stack_id", "data", "start", "timestamp", "level", "ratio"].map(|name| column(name).kind.clone());
    assert_eq!(kinds, [Kind::Stack, Kind::Json(vec![]), Kind::Any, Kind::Time, Kind::Any, Kind::Any]);
    assert_eq!(set.warnings, ["the default of rocpd_extra.made is not a constant and is skipped"]);

    let rows = rows_of(&database, 0, "rocpd_extra", Wanted::All)?;
    assert_eq!((rows.keys.get(0), rows.keys.get(1)), (-3, 9));
    assert_eq!(rows.column("note").get(0), Value::Blob(&[0, 255]));
    assert_eq!(rows.column("note").get(1), Value::Real(1.5));
    assert_eq!(rows.column("ratio").get(0), Value::Real(-0.5));
    assert_eq!(rows.column("level").get(0), Value::Text(b"it's"));
    Ok(())
}

#[test]
fn tables_stand_behind_those_that_they_refer_to() -> Outcome {
    let (_dir, database) = with(
        r#"CREATE TABLE "rocpd_child$" (id INTEGER PRIMARY KEY, parent INTEGER REFERENCES "rocpd_parent$"(id),
            self INTEGER REFERENCES "rocpd_child$", s INTEGER REFERENCES "ROCPD_STRING$"(id),
            elsewhere INTEGER REFERENCES "rocpd_event$"(stack_id), gone INTEGER REFERENCES nowhere(id));
        CREATE TABLE "rocpd_parent$" (id INTEGER PRIMARY KEY, event_id INTEGER REFERENCES "rocpd_event$"(id));
        CREATE TABLE "rocpd_one$" (id INTEGER PRIMARY KEY, other INTEGER REFERENCES "rocpd_two$"(id));
        CREATE TABLE "rocpd_two$" (id INTEGER PRIMARY KEY, other INTEGER REFERENCES "rocpd_one$"(id));
        ALTER TABLE "rocpd_region$" ADD COLUMN parent_id INTEGER REFERENCES "rocpd_parent$"(id);
        UPDATE "rocpd_region$" SET parent_id = 1 WHERE id = 21;"#,
    )?;
    let set = &database.table_sets()[0];
    let position = |name: &str| set.tables.iter().position(|t| t.table.name == name);
    assert!(position("rocpd_parent") < position("rocpd_child"));
    assert!(position("rocpd_event") < position("rocpd_parent"));
    assert!(position("rocpd_parent") < position("rocpd_region"));
    assert!(position("rocpd_one").is_some() && position("rocpd_two").is_some());
    // Table numbers are assigned in the order of the tables.
    let numbers: Vec<_> =
        set.tables.iter().map(|t| t.table.id).filter(|id| *id >= FIRST_CARRIED_TABLE).collect();
    assert_eq!(numbers, [carried(0), carried(1), carried(2), carried(3)]);
    let id = |name: &str| set.tables[position(name).unwrap()].table.id;
    let child = &set.tables[position("rocpd_child").ok_or("no child")?].table;
    let kinds: Vec<_> = child.columns.iter().map(|c| c.kind.clone()).collect();
    let wanted =
        [Kind::Ref(id("rocpd_parent")), Kind::Ref(id("rocpd_child")), Kind::Str, Kind::Any, Kind::Any];
    assert_eq!(kinds, wanted);
    assert_eq!(set.warnings.len(), 2, "{:?}", set.warnings);
    let regions = rows_of(&database, 0, "rocpd_region", Wanted::Links)?;
    let column = regions.table.position("parent_id").ok_or("no column")?;
    assert_eq!(regions.table.columns[column].kind, Kind::Ref(id("rocpd_parent")));
    assert_eq!((regions.columns[column].int(0), regions.columns[column].int(1)), (Some(1), None));
    Ok(())
}

/// ALTER TABLE does not change the rows: they end before the new columns.
#[test]
fn rows_that_are_too_short_have_the_defaults_of_the_file() -> Outcome {
    let (_dir, database) = with(
        r#"CREATE TABLE "rocpd_plain$" (id INTEGER PRIMARY KEY, a INTEGER);
        INSERT INTO "rocpd_plain$" (a) VALUES (1);
        ALTER TABLE "rocpd_plain$" ADD COLUMN i INTEGER DEFAULT 5;
        ALTER TABLE "rocpd_plain$" ADD COLUMN r REAL DEFAULT 5;
        ALTER TABLE "rocpd_plain$" ADD COLUMN q TEXT DEFAULT "it""s";
        ALTER TABLE "rocpd_plain$" ADD COLUMN y INTEGER DEFAULT TRUE;
        ALTER TABLE "rocpd_plain$" ADD COLUMN z DEFAULT '5';
        ALTER TABLE "rocpd_plain$" ADD COLUMN j JSONB DEFAULT "{}";
        ALTER TABLE "rocpd_plain$" ADD COLUMN w INTEGER;
        INSERT INTO "rocpd_plain$" (a, i) VALUES (2, 6);
        CREATE TABLE "rocpd_odd$" (id INTEGER PRIMARY KEY, a INTEGER);
        INSERT INTO "rocpd_odd$" (a) VALUES (1);
        ALTER TABLE "rocpd_odd$" ADD COLUMN n NUMERIC DEFAULT '5.0';
        ALTER TABLE "rocpd_odd$" ADD COLUMN b DEFAULT x'05';
        ALTER TABLE "rocpd_odd$" ADD COLUMN x INTEGER DEFAULT 0x10;
        ALTER TABLE "rocpd_odd$" ADD COLUMN e INTEGER DEFAULT 1e3;
        ALTER TABLE "rocpd_odd$" ADD COLUMN t TEXT DEFAULT 1.50;
        ALTER TABLE "rocpd_odd$" ADD COLUMN u TEXT DEFAULT 07;
        ALTER TABLE "rocpd_region$" ADD COLUMN late REAL NOT NULL DEFAULT 2;"#,
    )?;
    let slow = Database::open_with_sqlite(database.path())?;
    for database in [&database, &slow] {
        let lines = |name: &str| {
            let table = database.table_sets()[0].tables.iter().position(|t| t.table.name == name);
            lines(database, 0, table.ok_or("no table")?)
        };
        let wanted = |key: i64, a: i64, i: i64| {
            let rest = r#"r=Real(5.0) q="it\"s" y=Int(1) z="5" j="{}" w=default"#;
            format!("{key} a=Int({a}) i=Int({i}) {rest}")
        };
        assert_eq!(lines("rocpd_plain")?, [wanted(1, 1, 5), wanted(2, 2, 6)]);
        let wanted = r#"1 a=Int(1) n=Int(5) b=Blob([5]) x=Int(16) e=Int(1000) t="1.50" u="7""#;
        assert_eq!(lines("rocpd_odd")?, [wanted]);
        let regions = rows_of(database, 0, "rocpd_region", Wanted::All)?;
        assert_eq!(regions.column("late").get(0), Value::Real(2.0));
        let declared = &regions.table.columns[regions.table.position("late").ok_or("no column")?].sql;
        assert_eq!((declared.default.as_deref(), declared.not_null), (Some("2"), true));
    }
    Ok(())
}

#[test]
fn known_columns_keep_their_kind_wherever_they_stand() -> Outcome {
    let (_dir, database) = with(
        r#"DROP TABLE "rocpd_sample$";
        CREATE TABLE "rocpd_sample$" (event_id INTEGER, more TEXT, "TIMESTAMP" BIGINT, track_id INTEGER,
            id INTEGER PRIMARY KEY, guid TEXT, extdata);
        INSERT INTO "rocpd_sample$" VALUES (5, 'm', 99, 3, 17, 'x', '{}');"#,
    )?;
    let rows = rows_of(&database, 0, "rocpd_sample", Wanted::All)?;
    let names: Vec<_> = rows.table.columns.iter().map(|c| c.name.as_str()).collect();
    assert_eq!(names, ["track_id", "timestamp", "event_id", "more", "extdata"]);
    assert_eq!(rows.keys.get(0), 17);
    let ints = ["track_id", "timestamp", "event_id"].map(|name| rows.column(name).int(0));
    assert_eq!(ints, [Some(3), Some(99), Some(5)]);
    let kinds: Vec<_> = rows.table.columns.iter().map(|c| c.kind.clone()).collect();
    assert_eq!(kinds[..3], [Kind::Ref(rocpd::TRACK), Kind::Time, Kind::Ref(rocpd::EVENT)]);
    // The file allows NULL in this column.
    assert!(!rows.table.columns[0].sql.not_null);
    Ok(())
}

#[test]
fn tables_without_an_id_are_left_out_and_counted() -> Outcome {
    let (_dir, database) = with(
        r#"CREATE TABLE "rocpd_a$" (name TEXT PRIMARY KEY); INSERT INTO "rocpd_a$" VALUES ('x'), ('y');
        CREATE TABLE "rocpd_b$" (id INTEGER PRIMARY KEY, v) WITHOUT ROWID; INSERT INTO "rocpd_b$" VALUES (1, 2);
        CREATE TABLE "rocpd_c$" (id INTEGER, v); INSERT INTO "rocpd_c$" VALUES (1, 2);
        CREATE TABLE "rocpd_d$" (id INT PRIMARY KEY, v);
        CREATE TABLE "rocpd_e$" (id INTEGER PRIMARY KEY DESC, v);
        CREATE TABLE "rocpd_f$" (id INTEGER, v, PRIMARY KEY (id, v));"#,
    )?;
    let why = "it has no id that is the number of the row";
    let wanted = [("a", 2), ("b", 1), ("c", 1), ("d", 0), ("e", 0), ("f", 0)];
    let wanted = wanted.map(|(name, rows)| LeftOut { table: format!("rocpd_{name}"), rows: Some(rows), why });
    assert_eq!(database.table_sets()[0].left_out, wanted);
    Ok(())
}
