//! Values that a database cannot take as they are: rewritten or left out, counted, never fatal.

use rpd_shard::codec::encode_columns;
use rpd_shard::model::{Cells, Kind, Schema, TextCells, Value, native, rocpd};
use rpd_shard::{ShardWriter, WriteError};
use rpd_tests::crafted::{CraftedBlock, push_thread, varint, write_blocks, write_rows};
use rpd_tests::harness::{Database, RunFolder, losses, replaced, rpd_merge};
use rpd_tests::synthetic::{SyntheticRun, run_identity};
use std::collections::BTreeMap;

/// Rank 0 as it comes, rank 1 by hand: its ids are shifted.
fn config() -> SyntheticRun {
    SyntheticRun { nodes: 1, events_per_rank: 60, ..SyntheticRun::default() }
}

/// Merges the run with these rows as rank 1.
fn merged(rows: impl FnOnce(&mut ShardWriter<Vec<u8>>) -> Result<(), WriteError>) -> Database {
    let run = RunFolder::new(&config());
    write_rows(&run, &config(), 1, rows);
    let database = run.merged();
    database.assert_sound();
    database
}

fn count(database: &Database, table: &str, column: &str) -> i64 {
    replaced(database).get(&(table.to_owned(), column.to_owned())).copied().unwrap_or(0)
}

/// `extdata` of the arguments of rank 1; its third stream has this key.
fn json_of_args(texts: &[&str]) -> (Database, Vec<String>, i64) {
    let database = merged(|shard| {
        for name in ["mine 1", "mine 2", "mine 3"] {
            shard.push(1, rocpd::INFO_STREAM, &[1.into(), 1.into(), name.into()])?;
        }
        let event = shard.push(1, rocpd::EVENT, &[])?.into();
        for (i, text) in texts.iter().enumerate() {
            let row = [event, (i as i64).into(), "t".into(), "mine".into(), "v".into(), (*text).into()];
            shard.push(1, rocpd::ARG, &row)?;
        }
        Ok(())
    });
    let found = database.rows("SELECT extdata FROM rocpd_arg WHERE name = 'mine' ORDER BY position");
    let found = found.into_iter().map(|row| row[0].trim_matches('\'').to_owned()).collect();
    let stream = database.number("SELECT id FROM rocpd_info_stream WHERE name = 'rank 1 mine 3'");
    assert!(stream > 3);
    (database, found, stream)
}

#[test]
fn ids_in_json_are_rewritten_whatever_stands_beside_them() {
    let (database, found, stream) = json_of_args(&[
        r#"{"stream_id":3}"#,
        r#"{"a\n\"\u00e9":1,"stream_id":3,"\\":{"stream_id":3}}"#,
        r#" { "x" : [ "\\\"}" ] , "stream_id" : 3 } "#,
        r#"{"stream\u005fid":3}"#,
    ]);
    let wanted = [
        format!(r#"{{"stream_id":{stream}}}"#),
        format!(r#"{{"a\n\"\u00e9":1,"stream_id":{stream},"\\":{{"stream_id":3}}}}"#),
        format!(r#" {{ "x" : [ "\\\"}}" ] , "stream_id" : {stream} }} "#),
        format!(r#"{{"stream\u005fid":{stream}}}"#),
    ];
    assert_eq!(found, wanted);
    assert_eq!(replaced(&database), BTreeMap::new());
}

#[test]
fn numbers_in_json_that_are_no_id_become_null_and_are_counted() {
    let (database, found, _) = json_of_args(&[
        r#"{"stream_id":9223372036854775808}"#,
        r#"{"stream_id":4}"#,
        r#"{"stream_id":-3, "a":1}"#,
        r#"{"stream_id":3.5}"#,
        r#"{"stream_id":"3"}"#,
    ]);
    let null = r#"{"stream_id":null}"#;
    assert_eq!(found, [null, null, r#"{"stream_id":null, "a":1}"#, null, r#"{"stream_id":"3"}"#]);
    assert_eq!(count(&database, "rocpd_arg", "extdata"), 4);
}

#[test]
fn text_that_is_no_json_is_kept_in_json() {
    // Nested without an end: deeper than SQLite goes.
    let deep = "[".repeat(2_000);
    let balanced = format!("{deep}{}", "]".repeat(2_000));
    // Readers differ on a key that stands twice, or is no Unicode.
    let (twice, surrogate) = (r#"{"stream_id":3,"stream_id":2}"#, r#"{"\ud800":1,"stream_id":3}"#);
    let texts = ["not JSON", "{\"stream_id\":3", "", &deep, &balanced, twice, surrogate];
    let (database, _, _) = json_of_args(&texts);
    let kept =
        "SELECT json_extract(extdata, '$.rpd.no_json') FROM rocpd_arg WHERE name = 'mine' ORDER BY position";
    let kept: Vec<_> = database.rows(kept).into_iter().flatten().collect();
    assert_eq!(kept, texts.map(|text| format!("'{text}'")));
    assert_eq!(count(&database, "rocpd_arg", "extdata"), texts.len() as i64);
    assert_eq!(database.number("SELECT count(*) FROM rocpd_arg WHERE NOT json_valid(extdata)"), 0);
}

#[test]
fn unsigned_stack_ids_stand_beside_integers() {
    let (huge, other) = (Value::Real(1.8e19), Value::Real(1.4e19));
    let database = merged(|shard| {
        let name = shard.string(b"mine")?.into();
        let tid = push_thread(shard)?.into();
        let stacks = [1.into(), 2.into(), huge, Value::Int(-5), huge, other, Value::Null, 0.into()];
        for stack in stacks {
            let event = shard.push(1, rocpd::EVENT, &[name, stack, huge])?.into();
            let row = [1.into(), 1.into(), tid, 5.into(), 6.into(), name, event];
            shard.push(1, rocpd::REGION, &row)?;
        }
        let one = Value::Int(1);
        for table in [rocpd::INFO_AGENT, rocpd::INFO_QUEUE, rocpd::INFO_STREAM, rocpd::INFO_CODE_OBJECT] {
            shard.push(1, table, &[one, one])?;
        }
        shard.push(1, rocpd::INFO_KERNEL_SYMBOL, &[one, one, one, "k".into(), "k".into()])?;
        for (i, stack) in [2.into(), huge].into_iter().enumerate() {
            let event = shard.push(1, rocpd::EVENT, &[name, stack])?.into();
            let id = Value::Int(i as i64);
            let row = [
                one,
                one,
                tid,
                one,
                one,
                id,
                one,
                one,
                7.into(),
                8.into(),
                one,
                one,
                one,
                one,
                one,
                one,
                one,
                one,
                name,
                event,
            ];
            shard.push(1, rocpd::KERNEL_DISPATCH, &row)?;
        }
        Ok(())
    });
    let mine = "FROM rocpd_region r JOIN rocpd_event e ON e.id = r.event_id
        JOIN rocpd_string s ON s.id = r.name_id WHERE s.string = 'mine' ORDER BY r.id";
    let ids: Vec<_> = database.rows(&format!("SELECT e.stack_id {mine}")).into_iter().flatten().collect();
    assert_eq!((ids[6].as_str(), ids[7].as_str()), ("NULL", "0"));
    assert_eq!(ids[2], ids[4]);
    let distinct: std::collections::BTreeSet<_> = ids[..6].iter().collect();
    assert_eq!(distinct.len(), 5, "{ids:?}");
    assert!(distinct.iter().all(|id| id.parse::<i64>().is_ok_and(|id| id > 0)), "{ids:?}");
    let parents = database.rows(&format!("SELECT DISTINCT e.parent_stack_id {}", &mine[..mine.len() - 13]));
    assert_eq!(parents, [[ids[2].clone()]]);
    let joined = database.rows(
        "SELECT r.stack_id FROM kernels k JOIN regions r ON r.guid = k.guid AND r.stack_id = k.stack_id
          WHERE r.name = 'mine' ORDER BY r.id",
    );
    assert_eq!(
        joined.into_iter().flatten().collect::<Vec<_>>(),
        [&ids[1], &ids[2], &ids[4]].map(Clone::clone)
    );
    assert_eq!(count(&database, "rocpd_event", "stack_id"), 0);
    let collisions = "SELECT count(*) FROM rocpd_event a JOIN rocpd_event b ON a.stack_id = b.stack_id
        JOIN rocpd_string s ON s.id = b.category_id AND s.string = 'mine'
        JOIN rocpd_string t ON t.id = a.category_id AND t.string <> 'mine' WHERE a.stack_id <> 0";
    assert_eq!(database.number(collisions), 0, "stack ids of another process");
}

#[test]
fn a_value_of_any_type_in_any_column_that_must_not_be_null_is_no_failure() {
    let values =
        [Value::Text(b"x"), Value::Real(0.5), Value::Real(f64::NAN), Value::Blob(b"\x00\x01"), Value::Null];
    let tables = Schema::builtin().tables().iter();
    let tables = tables.filter(|t| ![rocpd::STRING, rocpd::INFO_NODE, rocpd::INFO_PROCESS].contains(&t.id));
    for value in values {
        let mut pushed = BTreeMap::new();
        let database = merged(|shard| {
            for table in tables.clone() {
                // One column at a time is wrong; the other ones that must not be NULL are whole.
                for (wrong, _) in table.columns.iter().enumerate().filter(|(_, c)| c.sql.not_null) {
                    let columns = table.columns.iter().enumerate();
                    let row: Vec<_> = columns
                        .map(|(i, column)| match &column.kind {
                            _ if i == wrong => value,
                            Kind::Text if column.sql.not_null => "text".into(),
                            Kind::Json(_) | Kind::Text => Value::Null,
                            _ => Value::Int(1),
                        })
                        .collect();
                    shard.push(1, table.id, &row)?;
                    *pushed.entry(table.name.clone()).or_insert(0) += 1;
                }
            }
            Ok(())
        });
        assert_eq!(losses(&database), vec![], "{value:?}");
        assert!(pushed.len() > 15);
        for (table, column) in
            [("rocpd_region", "tid"), ("rocpd_arg", "event_id"), ("rocpd_sample", "track_id")]
        {
            assert!(count(&database, table, column) >= 1, "{table}.{column} for {value:?}");
        }
    }
}

#[test]
fn too_long_strings_and_rows_are_an_error_of_the_writer() {
    let plan = config().plan();
    let mut shard = ShardWriter::new(Vec::new(), &run_identity(&plan, 0)).unwrap();
    let megabyte = vec![b'x'; 1 << 20];
    assert_eq!(shard.string(&megabyte).unwrap(), 1);
    let over = vec![b'x'; (1 << 20) + 1];
    assert!(matches!(shard.string(&over), Err(WriteError::TextTooLong { .. })));
    assert_eq!(shard.string(b"next").unwrap(), 2);
    let text = |bytes: usize| vec![b'y'; bytes];
    let row = |name: &[u8], model: &[u8], shard: &mut ShardWriter<Vec<u8>>| {
        let (one, null) = (Value::Int(1), Value::Null);
        let row = [one, one, null, one, one, one, one, Value::Text(name), Value::Text(model)];
        shard.push(1, rocpd::INFO_AGENT, &row)
    };
    assert_eq!(row(&text(8 << 20), &text(8 << 20), &mut shard).unwrap(), 1);
    let refused = row(&text(8 << 20), &text((8 << 20) + 1), &mut shard);
    assert!(matches!(refused, Err(WriteError::TextTooLong { .. })), "{refused:?}");
    assert_eq!(row(b"a", b"b", &mut shard).unwrap(), 2);
    let bytes = shard.finish().unwrap();
    let shard = rpd_shard::Shard::from_memory("s", &bytes).unwrap();
    assert_eq!((shard.strings().0.iter().count(), shard.strings().1.len()), (2, 0));
    let agents =
        rpd_tests::crafted::last_block(&bytes, rpd_shard::file::BlockKind::Rows(rocpd::INFO_AGENT), 1);
    assert_eq!(agents.header.next_key(), 3);
}

#[test]
fn a_string_over_a_megabyte_in_a_hostile_block_is_lost_and_counted() {
    let encoded = |table, columns: &[Cells]| {
        let mut raw = Vec::new();
        encode_columns(Schema::builtin().get(table).unwrap(), columns, 1, &mut raw);
        raw
    };
    let string = |length| {
        let text = vec![b'x'; length];
        encoded(rocpd::STRING, &[Cells::Text(TextCells::constant(&text, 1))])
    };
    let int = |value| Cells::ints(vec![value]);
    let range = |name| {
        let columns = [int(1), int(5_000), int(6_000), int(name), Cells::Absent, Cells::Absent];
        encoded(native::RANGE, &columns)
    };
    let run = RunFolder::new(&config());
    let blocks = [
        CraftedBlock::rows(rocpd::STRING, 1, 1, &string(1 << 20)),
        CraftedBlock::rows(rocpd::STRING, 2, 1, &string((1 << 20) + 1)),
        CraftedBlock::rows(rocpd::STRING, 3, 1, &string(5)),
        CraftedBlock::rows(native::RANGE, 1, 1, &range(1)),
        CraftedBlock::rows(native::RANGE, 2, 1, &range(2)),
        CraftedBlock::rows(native::RANGE, 3, 1, &range(3)),
    ];
    write_blocks(&run, &config(), 1, &blocks);
    let outcome = rpd_merge().arg(&run.path).run().success();
    assert!(outcome.stderr.contains("strings are out of bounds"), "{outcome}");
    let database = run.database();
    database.assert_sound();
    let names = "SELECT length(s.string), s.string = '(lost)' FROM rocpd_region r JOIN rocpd_string s
        ON s.id = r.name_id JOIN rocpd_info_process p ON p.id = r.pid
        WHERE json_extract(p.extdata, '$.rpd.rank') = 1 ORDER BY r.id";
    assert_eq!(database.rows(names), [["1048576", "0"], ["6", "1"], ["5", "0"]]);
    assert!(losses(&database).contains(&(Some("rocpd_string".into()), "truncated".into(), 1)));
    assert_eq!(count(&database, "rocpd_region", "name_id"), 1);
}

#[test]
fn strings_of_native_rows_that_are_lost_and_show_as_text_are_counted() {
    let database = merged(|shard| {
        let (tid, name) = (push_thread(shard)?.into(), shard.string(b"MPI_Bcast")?.into());
        let lost = Value::Int(99);
        shard.push(1, native::MARK, &[tid, 5_000.into(), lost])?;
        shard.push(
            1,
            native::MPI_CALL,
            &[tid, 5_000.into(), 6_000.into(), name, 0.into(), 0.into(), lost],
        )?;
        shard.push(1, native::MPI_REQUEST, &[tid, 5_000.into(), lost])?;
        let row = [tid, 5_000.into(), name, 0.into(), 0.into(), lost, lost];
        shard.push(1, native::COMMUNICATOR, &row).map(drop)
    });
    assert_eq!((count(&database, "mark", "name_id"), count(&database, "mpi_call", "comm_id")), (1, 1));
    let of_communicator = |column| count(&database, "communicator", column);
    assert_eq!((of_communicator("comm_id"), of_communicator("label_id")), (1, 1));
    assert_eq!((count(&database, "mpi_request", "name_id"), of_communicator("name_id")), (1, 0));
}

#[test]
fn a_number_behind_a_null_stack_id_does_no_harm() {
    // Two rows of events: category absent, stack ids i64::MAX and 1, the first of them NULL.
    let mut raw = vec![2, 0, 0x82, 1];
    varint(&mut raw, u64::MAX - 1);
    varint(&mut raw, 2);
    let run = RunFolder::new(&config());
    write_blocks(&run, &config(), 1, &[CraftedBlock::rows(rocpd::EVENT, 1, 2, &raw)]);
    run.merged().assert_sound();
}
