//! Tests of the content of written databases.

use crate::real::{Outcome, rows, texts};
use rpd_rocpd::verify::{check, top};
use rpd_rocpd::{Guid, WriteError, Writer};
use rpd_shard::model::rocpd::*;
use rpd_shard::model::{Keys, Merged, Rows, RowsBuilder, Schema, TableId, Value, native};
use rusqlite::Connection;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

pub(crate) const GUID: Guid = Guid::from_bits(0x5eed);
const NULL: Value<'static> = Value::Null;

/// Creates rows with explicit keys.
pub(crate) fn merged(table: TableId, keyed: &[(i64, &[Value<'_>])]) -> Outcome<Rows<Merged>> {
    let mut rows = RowsBuilder::new(Schema::builtin().get(table).ok_or("no such table")?);
    keyed.iter().for_each(|(_, row)| rows.push(row));
    let rows = rows.finish(1);
    let columns = rows.columns.clone();
    Ok(rows.into_merged(Keys::Sparse(keyed.iter().map(|(key, _)| *key).collect()), columns))
}

fn int(v: i64) -> Value<'static> {
    Value::Int(v)
}

fn text(v: &str) -> Value<'_> {
    Value::from(v)
}

/// Writes a job of one process: two regions, a kernel between them, a mark.
pub(crate) fn write_small_job(path: &Path) -> Outcome {
    let mut writer = Writer::create(path, &GUID)?;
    let strings = ["", "hipLaunchKernel", "HIP_RUNTIME_API_EXT", "KERNEL_DISPATCH", "roctxMark", "MARKER"];
    let strings: Vec<_> = strings.iter().map(|s| [text(s)]).collect();
    let strings: Vec<(i64, &[Value<'_>])> = (1..).zip(strings.iter().map(|s| s.as_slice())).collect();
    let one = int(1);
    for rows in [
        merged(STRING, &strings)?,
        merged(INFO_NODE, &[(1, &[int(77), text("m-1"), text("Linux"), text("node1")])])?,
        merged(
            INFO_PROCESS,
            &[(1, &[one, int(10), int(4242), NULL, NULL, int(0), int(9000), text("a.out")])],
        )?,
        merged(INFO_THREAD, &[(1, &[one, int(10), one, int(4243), text("main")])])?,
        merged(INFO_AGENT, &[(1, &[one, one, text("GPU"), int(4), int(2), int(0), NULL, text("gfx942")])])?,
        merged(INFO_QUEUE, &[(1, &[one, one, text("Queue 1")])])?,
        merged(INFO_STREAM, &[(1, &[one, one, text("Default Stream")])])?,
        merged(INFO_CODE_OBJECT, &[(1, &[one, one, one, text("file:///a.out")])])?,
        merged(INFO_KERNEL_SYMBOL, &[(1, &[one, one, one, text("axpy.kd"), text("axpy(float*)")])])?,
        merged(TRACK, &[(1, &[one, one, one, int(5)])])?,
        merged(
            EVENT,
            &[
                (1, &[int(3), int(21), int(0), int(0)]),
                (2, &[int(3), int(22), int(0), int(0)]),
                (5, &[int(4), int(21), int(0), int(0)]),
                (9, &[int(6), int(0), int(0), int(0), NULL, NULL, text(r#"{"message": "here"}"#)]),
            ],
        )?,
        merged(ARG, &[(1, &[one, int(0), text("int"), text("n"), text("3")])])?,
        merged(
            REGION,
            &[
                (1, &[one, one, one, int(1000), int(3000), int(2), int(1)]),
                (2, &[one, one, one, int(4000), int(5500), int(2), int(2)]),
            ],
        )?,
        merged(SAMPLE, &[(3, &[one, int(6000), int(9)])])?,
        merged(
            KERNEL_DISPATCH,
            &[(
                1,
                &[
                    one,
                    one,
                    one,
                    one,
                    one,
                    int(7),
                    one,
                    one,
                    int(2000),
                    int(8500),
                    NULL,
                    NULL,
                    int(64),
                    one,
                    one,
                    int(640),
                    one,
                    one,
                    one,
                    int(5),
                ],
            )],
        )?,
    ] {
        assert_eq!(writer.append(&rows)?, rows.len as u64);
    }
    writer.metadata("rpd.ranks", "1")?;
    writer.commit()?;
    Ok(())
}

#[test]
fn a_written_job_is_clean_and_readable_by_every_view() -> Outcome {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("job.db");
    write_small_job(&path)?;
    let report = check(&path)?;
    assert!(report.is_clean(), "{:?}", report.problems);
    assert_eq!((report.guid.as_str(), report.version.as_str()), (GUID.to_string().as_str(), "3.0.0"));
    assert_eq!((report.rows["rocpd_event"], report.rows["rocpd_metadata"]), (4, 7));

    let conn = Connection::open(&path)?;
    for view in texts(&conn, "SELECT name FROM sqlite_master WHERE type = 'view'")? {
        rows(&conn, &format!("SELECT * FROM {view}")).map_err(|e| format!("{view}: {e}"))?;
    }
    let (_, kernels) = rows(
        &conn,
        "SELECT name, pid, tid, duration, region, queue, stream, stack_id, agent_abs_index, category FROM kernels",
    )?;
    assert_eq!(
        kernels,
        [concat!(
            r#"Text("axpy(float*)") | Integer(4242) | Integer(4243) | Integer(6500) | Text("") | "#,
            r#"Text("Queue 1") | Text("Default Stream") | Integer(21) | Integer(4) | Text("KERNEL_DISPATCH")"#
        )]
    );
    let (_, spans) = rows(
        &conn,
        "SELECT name, start, \"end\", duration, extdata FROM regions_and_samples ORDER BY start",
    )?;
    assert_eq!(
        spans,
        [
            r#"Text("hipLaunchKernel") | Integer(1000) | Integer(3000) | Integer(2000) | Text("{}")"#,
            r#"Text("hipLaunchKernel") | Integer(4000) | Integer(5500) | Integer(1500) | Text("{}")"#,
            r#"Text("roctxMark") | Integer(6000) | Integer(6000) | Integer(0) | Text("{\"message\": \"here\"}")"#,
        ]
    );
    let (_, busy) = rows(&conn, "SELECT * FROM busy")?;
    assert_eq!(
        busy,
        [
            r#"Integer(1) | Text("GPU") | Integer(6500) | Integer(6500) | Real(1.0) | Integer(4) | Integer(1) | Integer(4242)"#
        ]
    );
    Ok(())
}

#[test]
fn top_names_the_longest_operations_in_microseconds() -> Outcome {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("job.db");
    write_small_job(&path)?;
    let lines = top(&path, 10)?;
    let facts: Vec<_> = lines
        .iter()
        .map(|l| (l.name.as_str(), l.total_calls, l.total_duration_us, l.average_us, l.percentage))
        .collect();
    assert_eq!(facts, [("axpy(float*)", 1, 6.5, 6.5, 65.0), ("hipLaunchKernel", 2, 3.5, 1.75, 35.0)]);
    assert_eq!(top(&path, 1)?.len(), 1);
    Ok(())
}

#[test]
fn the_file_is_private_and_has_the_layout_that_the_page_writer_needs() -> Outcome {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("job.db.partial");
    Writer::create(&path, &GUID)?.commit()?;
    assert_eq!(std::fs::metadata(&path)?.permissions().mode() & 0o777, 0o600);
    assert_eq!(std::fs::read_dir(dir.path())?.count(), 1, "a journal was left");
    let header = std::fs::read(&path)?;
    assert_eq!(&header[16..18], &[0x10, 0], "page size");
    assert_eq!(&header[18..21], &[1, 1, 0], "file format, reserved bytes");
    assert_eq!(&header[52..56], &[0; 4], "auto_vacuum");
    Ok(())
}

#[test]
fn required_metadata_is_written_once() -> Outcome {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("job.db");
    let mut writer = Writer::create(&path, &GUID)?;
    for tag in ["uuid", "guid", "schema_version"] {
        assert!(matches!(writer.metadata(tag, "x"), Err(WriteError::ReservedTag { .. })), "{tag}");
    }
    writer.commit()?;
    let conn = Connection::open(&path)?;
    assert_eq!(
        texts(&conn, "SELECT tag || '=' || value FROM rocpd_metadata ORDER BY id")?,
        [
            "schema_version=3.0.0",
            "schema_version_major=3",
            "schema_version_minor=0",
            "schema_version_patch=0",
            "uuid=_00000000_0000_0000_0000_000000005eed",
            "guid=00000000-0000-0000-0000-000000005eed",
        ]
    );
    Ok(())
}

#[test]
fn an_existing_file_is_not_touched() -> Outcome {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("job.db");
    std::fs::write(&path, "precious")?;
    assert!(matches!(Writer::create(&path, &GUID), Err(WriteError::Exists { .. })));
    assert_eq!(std::fs::read(&path)?, b"precious");
    let nowhere = dir.path().join("missing/job.db");
    let error = Writer::create(&nowhere, &GUID).err().ok_or("created")?;
    assert!(matches!(error, WriteError::Create { .. }) && error.to_string().contains("directory"), "{error}");
    Ok(())
}

#[test]
fn another_writer_continues_a_committed_file() -> Outcome {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("job.db");
    let mut writer = Writer::create(&path, &GUID)?;
    writer.append(&merged(STRING, &[(1, &[text("a")])])?)?;
    writer.commit()?;
    let mut writer = Writer::open(&path, &[(&GUID).into()])?;
    writer.append(&merged(STRING, &[(2, &[text("b")])])?)?;
    writer.commit()?;
    let conn = Connection::open(&path)?;
    assert_eq!(texts(&conn, "SELECT string FROM rocpd_string ORDER BY id")?, ["a", "b"]);

    let error = Writer::open(&path, &[(&Guid::from_bits(1)).into()]).err().ok_or("opened")?;
    assert!(matches!(error, WriteError::OtherDatabase { .. }), "{error:?}");
    std::fs::write(dir.path().join("text"), "no database, but long enough to look at".repeat(200))?;
    let error = Writer::open(&dir.path().join("text"), &[(&GUID).into()]).err().ok_or("opened")?;
    assert!(matches!(error, WriteError::OtherDatabase { .. }), "{error:?}");
    let error = Writer::open(&dir.path().join("missing"), &[(&GUID).into()]).err().ok_or("opened")?;
    assert!(matches!(error, WriteError::Open { .. }), "{error:?}");
    Ok(())
}

#[test]
fn absent_columns_and_forbidden_nulls_get_the_default() -> Outcome {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("job.db");
    let mut writer = Writer::create(&path, &GUID)?;
    let (one, json) = (int(1), text(r#"{"k": 1}"#));
    // Values row by row: absent, given, NULL where NULL is not allowed.
    writer.append(&merged(EVENT, &[(1, &[])])?)?;
    writer.append(&merged(EVENT, &[(2, &[NULL, one, NULL, NULL, json, NULL, json]), (3, &[NULL, NULL])])?)?;
    // `value` and `extdata` of a counter value may be NULL.
    writer.append(&merged(PMC_EVENT, &[(1, &[NULL, one])])?)?;
    writer.append(&merged(PMC_EVENT, &[(2, &[one, one, Value::Real(2.5), json]), (3, &[NULL, one])])?)?;
    writer.commit()?;
    let conn = Connection::open(&path)?;
    assert_eq!(
        rows(&conn, "SELECT id, stack_id, call_stack, line_info, extdata FROM rocpd_event")?.1,
        [
            r#"Integer(1) | Null | Text("{}") | Text("{}") | Text("{}")"#,
            r#"Integer(2) | Integer(1) | Text("{\"k\": 1}") | Text("{}") | Text("{\"k\": 1}")"#,
            r#"Integer(3) | Null | Text("{}") | Text("{}") | Text("{}")"#,
        ]
    );
    assert_eq!(
        rows(&conn, "SELECT id, event_id, value, extdata FROM rocpd_pmc_event")?.1,
        [
            r#"Integer(1) | Null | Real(0.0) | Text("{}")"#,
            r#"Integer(2) | Integer(1) | Real(2.5) | Text("{\"k\": 1}")"#,
            "Integer(3) | Null | Null | Null",
        ]
    );
    assert_eq!(rows(&conn, "SELECT DISTINCT guid FROM rocpd_event")?.1, [format!("Text(\"{GUID}\")")]);
    Ok(())
}

#[test]
fn values_keep_the_type_that_they_came_with() -> Outcome {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("job.db");
    let mut writer = Writer::create(&path, &GUID)?;
    let with = |correlation: Value<'static>| [NULL, int(i64::MIN), int(i64::MAX), correlation];
    let huge = 2f64.powi(63) * 1.5;
    writer.append(&merged(
        EVENT,
        &[
            (1, &with(Value::Real(huge))),
            (2, &with(int(3))),
            (3, &with(Value::Text(b"not a number"))),
            (4, &with(Value::Blob(&[0, 255]))),
            (5, &with(Value::Text(&[b'a', 0, 0xff]))),
        ],
    )?)?;
    writer.commit()?;
    let conn = Connection::open(&path)?;
    let read =
        "SELECT typeof(correlation_id), stack_id, parent_stack_id, hex(correlation_id) FROM rocpd_event";
    let (_, lines) = rows(&conn, read)?;
    let types: Vec<_> = lines.iter().filter_map(|l| l.split(" | ").next()).collect();
    assert_eq!(types, ["real", "integer", "text", "blob", "text"].map(|t| format!("Text(\"{t}\")")));
    assert!(lines[0].contains("-9223372036854775808") && lines[0].contains("9223372036854775807"));
    assert!(lines[3].ends_with(r#"Text("00FF")"#) && lines[4].ends_with(r#"Text("6100FF")"#));
    Ok(())
}

#[test]
fn every_row_of_a_large_batch_arrives_in_its_place() -> Outcome {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("job.db");
    let mut writer = Writer::create(&path, &GUID)?;
    let table = Schema::builtin().get(REGION).ok_or("no table")?;
    // Batch sizes around the number of rows per statement and other sizes. `extdata` is constant in some batches
    // and varies in others.
    let (mut key, mut expected) = (0, 0i64);
    for (size, other) in [(1, false), (49, true), (51, false), (1000, true), (3, false), (52, false)] {
        let mut batch = RowsBuilder::new(table);
        let first = key + 1;
        for i in 0..size {
            key += 1;
            let extdata = if other && i % 7 == 3 { "{\"odd\": 1}" } else { "{\"even\": 1}" };
            expected += i64::from(other && i % 7 == 3);
            let row =
                [int(key), int(1), int(1), int(key * 10), int(key * 10 + 5), int(1), int(key), text(extdata)];
            batch.push(&row);
        }
        let batch = batch.finish(first);
        let (keys, columns) = (batch.keys.clone(), batch.columns.clone());
        writer.append(&batch.into_merged(keys, columns))?;
    }
    writer.commit()?;
    let conn = Connection::open(&path)?;
    let sums = "SELECT count(*), sum(id = nid AND start = id * 10 AND \"end\" = start + 5 AND event_id = id),
                       sum(extdata GLOB '*odd*'), sum(extdata GLOB '*even*') FROM rocpd_region";
    assert_eq!(
        rows(&conn, sums)?.1,
        [format!("Integer({key}) | Integer({key}) | Integer({expected}) | Integer({})", key - expected)]
    );
    let sequence =
        texts(&conn, "SELECT CAST(seq AS TEXT) FROM sqlite_sequence WHERE name GLOB 'rocpd_region_*'")?;
    assert_eq!(sequence, [key.to_string()]);
    Ok(())
}

#[test]
fn sparse_and_descending_keys_are_kept_and_the_sequence_is_the_largest() -> Outcome {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("job.db");
    let mut writer = Writer::create(&path, &GUID)?;
    writer.append(&merged(EVENT, &[(900, &[]), (5, &[]), (17, &[])])?)?;
    writer.commit()?;
    assert!(check(&path)?.is_clean());
    let conn = Connection::open(&path)?;
    conn.execute("INSERT INTO rocpd_event_00000000_0000_0000_0000_000000005eed DEFAULT VALUES", [])?;
    assert_eq!(
        rows(&conn, "SELECT id FROM rocpd_event ORDER BY id")?.1,
        [5, 17, 900, 901].map(|i| format!("Integer({i})"))
    );
    Ok(())
}

#[test]
fn a_row_against_the_rules_is_named_by_table_and_key() -> Outcome {
    let dir = tempfile::tempdir()?;
    let table = Schema::builtin().get(INFO_AGENT).ok_or("no table")?;
    for bad in [0usize, 1, 29, 50, 99] {
        let mut writer = Writer::create(&dir.path().join(format!("check-{bad}.db")), &GUID)?;
        let mut rows = RowsBuilder::new(table);
        (0..100).for_each(|i| rows.push(&[int(1), int(1), text(if i == bad { "TPU" } else { "GPU" })]));
        let rows = rows.finish(1);
        let columns = rows.columns.clone();
        let error = writer.append(&rows.into_merged(Keys::Dense(1000), columns)).err().ok_or("accepted")?;
        let key = 1000 + bad;
        assert!(
            error.to_string().ends_with(&format!("constraint failed in table rocpd_info_agent, key {key}")),
            "{error}"
        );
    }
    let mut writer = Writer::create(&dir.path().join("unique.db"), &GUID)?;
    writer.append(&merged(STRING, &[(1, &[text("a")])])?)?;
    for (rows, key) in [
        (merged(STRING, &[(2, &[text("b")]), (3, &[text("a")])])?, 3),
        (merged(STRING, &[(1, &[text("c")])])?, 1),
        (merged(REGION, &[(44, &[int(1)])])?, 44),
    ] {
        match writer.append(&rows) {
            Err(WriteError::Constraint { table, key: named, .. }) => {
                assert_eq!((table, named), (rows.table.name.clone(), key));
            }
            other => return Err(format!("{other:?}").into()),
        }
    }
    Ok(())
}

#[test]
fn native_tables_do_not_reach_a_database() -> Outcome {
    let dir = tempfile::tempdir()?;
    let mut writer = Writer::create(&dir.path().join("job.db"), &GUID)?;
    let error = writer.append(&merged(native::RANGE, &[(1, &[int(1)])])?).err().ok_or("accepted")?;
    assert!(matches!(error, WriteError::UnknownTable { .. }), "{error:?}");
    assert_eq!(writer.append(&merged(EVENT, &[])?)?, 0);
    Ok(())
}

#[test]
fn the_same_rows_make_the_same_file() -> Outcome {
    let dir = tempfile::tempdir()?;
    let paths = ["a.db", "b.db"].map(|name| dir.path().join(name));
    for path in &paths {
        write_small_job(path)?;
    }
    assert!(std::fs::read(&paths[0])? == std::fs::read(&paths[1])?);
    Ok(())
}
