//! Compares the generated tables with AMD's: with a list in this repository and with AMD's own files.

use crate::real::{Outcome, real_databases, rows, texts};
use rpd_rocpd::{Guid, schema};
use rusqlite::Connection;
use std::fmt::Write as _;

fn ours(guid: &Guid) -> Outcome<Connection> {
    let conn = Connection::open_in_memory()?;
    conn.execute_batch(&schema::create_all(guid))?;
    Ok(conn)
}

/// Describes the tables of a database in the form of schema-3.0.0.txt.
fn describe(conn: &Connection, guid: &Guid) -> Outcome<String> {
    let mut text = String::new();
    let tables = "SELECT name FROM sqlite_master WHERE type = 'table' AND name GLOB 'rocpd_*' ORDER BY rowid";
    for table in texts(conn, tables)? {
        writeln!(text, "{table}")?;
        for sql in [
            "SELECT name || ' ' || type || iif(\"notnull\", ' NOT NULL', '') || coalesce(' DEFAULT ' || dflt_value, '')
               FROM pragma_table_info('$') ORDER BY cid",
            "SELECT 'UNIQUE ' || i.name FROM pragma_index_list('$') l, pragma_index_info(l.name) i
              ORDER BY l.seq",
            "SELECT \"from\" || ' -> ' || \"table\" || ' ' || \"to\" || ' ON UPDATE ' || on_update || ' ON DELETE '
                 || on_delete FROM pragma_foreign_key_list('$') ORDER BY id",
        ] {
            for line in texts(conn, &sql.replace('$', &table))? {
                writeln!(text, "  {line}")?;
            }
        }
        let sql = texts(conn, &format!("SELECT sql FROM sqlite_master WHERE name = '{table}'"))?.concat();
        for check in sql.split("CHECK (").skip(1) {
            writeln!(
                text,
                "  CHECK {}",
                check.split_once("))").ok_or("no end of CHECK")?.0.to_owned() + ")"
            )?;
        }
    }
    Ok(text.replace(&guid.suffix(), "").replace(&guid.to_string(), "<guid>"))
}

#[test]
fn the_tables_are_those_of_schema_3_0_0() -> Outcome {
    let guid = Guid::from_bits(0x0123_4567_89ab_cdef_0123_4567_89ab_cdef);
    let (comment, golden) = include_str!("schema-3.0.0.txt").split_once('\n').ok_or("empty")?;
    assert!(comment.starts_with('#'));
    for (ours, golden) in describe(&ours(&guid)?, &guid)?.lines().zip(golden.lines()) {
        assert_eq!(ours, golden);
    }
    assert_eq!(describe(&ours(&guid)?, &guid)?, golden);
    Ok(())
}

#[test]
fn the_tables_are_those_of_amds_files() -> Outcome {
    let dir = tempfile::tempdir()?;
    for path in real_databases(dir.path())? {
        let theirs = Connection::open(&path)?;
        let guid: Guid =
            texts(&theirs, "SELECT value FROM rocpd_metadata WHERE tag = 'guid'")?.concat().parse()?;
        let ours = ours(&guid)?;
        assert_eq!(describe(&ours, &guid)?, describe(&theirs, &guid)?);

        let objects = "SELECT type, name, tbl_name FROM sqlite_master ORDER BY type, name";
        assert_eq!(rows(&ours, objects)?, rows(&theirs, objects)?);
        let names = texts(&theirs, "SELECT name FROM sqlite_master WHERE type IN ('table', 'view')")?;
        for name in names {
            // This view has more columns than AMD's; views.rs compares it.
            let pragmas =
                if name == "busy" { &[][..] } else { &["table_xinfo", "foreign_key_list", "index_list"] };
            for pragma in pragmas {
                let sql = format!("PRAGMA {pragma}('{name}')");
                assert_eq!(rows(&ours, &sql)?, rows(&theirs, &sql)?, "{sql}");
            }
        }
    }
    Ok(())
}

#[test]
fn the_defaults_are_the_values_that_amds_tables_fill_in() -> Outcome {
    let conn = ours(&Guid::from_bits(5))?;
    conn.execute_batch(
        "PRAGMA foreign_keys = OFF;
         INSERT INTO rocpd_info_pmc_00000000_0000_0000_0000_000000000005 (nid, pid, name, symbol) VALUES (1, 1, 'n', 's');
         INSERT INTO rocpd_pmc_event_00000000_0000_0000_0000_000000000005 (pmc_id) VALUES (1);",
    )?;
    let filled = rows(&conn, "SELECT guid, long_description, units, extdata FROM rocpd_info_pmc")?.1;
    assert_eq!(
        filled,
        [r#"Text("00000000-0000-0000-0000-000000000005") | Text("") | Text("") | Text("{}")"#]
    );
    assert_eq!(rows(&conn, "SELECT value, extdata FROM rocpd_pmc_event")?.1, [r#"Real(0.0) | Text("{}")"#]);
    Ok(())
}
