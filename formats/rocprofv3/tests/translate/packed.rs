//! Compressed files yield the same rows as plain ones, and missing parts are counted.

use crate::made_up::MadeUp;
use crate::shard::{Contents, int, run, text};
use crate::{PROCESS, no_warnings};
use flate2::Compression;
use flate2::write::GzEncoder;
use rpd_rocprofv3::{is_rocprofv3_json, read_processes, translate};
use rpd_shard::file::Owner;
use rpd_shard::model::rocpd;
use rpd_shard::record::LossCause;
use rpd_translator::Translation;
use serde_json::{Value as Json, json};
use std::io::Write;

fn packed(text: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(text).unwrap();
    encoder.finish().unwrap()
}

fn translated(bytes: &[u8]) -> (Contents, Translation) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("results.json.gz");
    std::fs::write(&path, bytes).unwrap();
    assert!(is_rocprofv3_json(&path));
    let mut bytes = Vec::new();
    let translation = translate(&path, &mut bytes, &Owner::unknown(run())).unwrap();
    assert!(read_processes(&path).is_ok());
    let contents = Contents::of(&bytes);
    contents.check_references();
    (contents, translation)
}

/// Builds two processes with records before their tables, with more padding than a buffer holds.
fn file() -> Json {
    padded(MadeUp { processes: 2, counters: true, ..MadeUp::default() }.json())
}

fn padded(mut json: Json) -> Json {
    for process in json[PROCESS].as_array_mut().unwrap() {
        process["callback_records"]["aaa"] = json!("x".repeat(300_000));
        process["host_functions"] = json!("y".repeat(300_000));
    }
    json
}

#[test]
fn a_packed_file_is_read_as_a_plain_one() {
    let text = file().to_string();
    let (plain, _) = translated(text.as_bytes());
    let (head, tail) = text.as_bytes().split_at(text.len() / 2);
    for bytes in [packed(text.as_bytes()), [packed(head), packed(tail)].concat()] {
        let (contents, translation) = translated(&bytes);
        no_warnings(&translation);
        assert_eq!((&contents.tables, &contents.processes), (&plain.tables, &plain.processes));
        assert_eq!(contents.losses.len(), 0);
    }
}

#[test]
fn damage_of_a_packed_file_costs_what_stands_behind_it() {
    let text = file().to_string();
    let (plain, _) = translated(text.as_bytes());
    let rows = |contents: &Contents| contents.tables.values().map(Vec::len).sum::<usize>();
    let whole = packed(text.as_bytes());
    for (cut, is_whole) in [(whole.len() - 4, true), (whole.len() / 2, false), (whole.len() / 4, false)] {
        let (contents, translation) = translated(&whole[..cut]);
        let [told, ..] = &translation.warnings[..] else { panic!("nothing is told") };
        assert!(
            translation.warnings.iter().any(|line| line.contains("the packed file is damaged")),
            "{told}"
        );
        assert!(contents.losses.iter().any(|loss| (loss.cause, loss.rows) == (LossCause::Truncated, None)));
        assert_eq!(rows(&contents) == rows(&plain), is_whole, "{cut}");
        assert!(rows(&contents) > 0 && rows(&contents) <= rows(&plain));
    }
    let mut wrong = whole.clone();
    let last = wrong.len() - 6;
    wrong[last] ^= 0x10;
    let (contents, translation) = translated(&wrong);
    assert_eq!((rows(&contents), translation.warnings.len()), (rows(&plain), 1));
}

#[test]
fn a_packed_file_that_would_be_unpacked_without_end_is_given_up_and_counted() {
    let json = padded(MadeUp { processes: 40, calls: 4, ..MadeUp::default() }.json());
    let text = json.to_string();
    let (plain, _) = translated(text.as_bytes());
    let (contents, translation) = translated(&packed(text.as_bytes()));
    let records = |contents: &Contents| {
        let tables = [
            rocpd::REGION,
            rocpd::SAMPLE,
            rocpd::KERNEL_DISPATCH,
            rocpd::MEMORY_COPY,
            rocpd::MEMORY_ALLOCATE,
        ];
        let sources = 1..=contents.processes.len() as u32;
        sources.flat_map(|source| tables.map(|table| contents.rows(source, table).len())).sum::<usize>()
            as u64
    };
    let lost: u64 =
        translation.lost.iter().filter(|(array, _)| array.starts_with("buffer_records.")).map(|l| l.1).sum();
    assert!(lost > 0 && records(&contents) > 0);
    assert_eq!(records(&contents) + lost, records(&plain));
    assert!(
        translation.warnings.iter().any(|line| line.contains("unpack it first")),
        "{:?}",
        translation.warnings
    );
}

#[test]
fn queues_and_streams_keep_their_handles() {
    let high = 7_000_000_000;
    let json = MadeUp { high, ..MadeUp::default() }.json();
    let (contents, _) = translated(json.to_string().as_bytes());
    let records = json[PROCESS][0]["buffer_records"]["kernel_dispatch"].as_array().unwrap();
    let rows = contents.rows(1, rocpd::KERNEL_DISPATCH);
    assert_eq!(rows.len(), records.len());
    for (row, record) in rows.iter().zip(records) {
        assert_eq!(Json::from(int(row, "dispatch_id")), record["dispatch_info"]["dispatch_id"]);
        let handle = |column, table| -> Json {
            let extdata = text(contents.referred(1, row, column, table), "extdata");
            serde_json::from_str::<Json>(&extdata).unwrap()["rpd"]["id"].clone()
        };
        assert_eq!(handle("queue_id", rocpd::INFO_QUEUE), record["dispatch_info"]["queue_id"]["handle"]);
        assert_eq!(handle("stream_id", rocpd::INFO_STREAM), record["stream_id"]["handle"]);
    }
}
