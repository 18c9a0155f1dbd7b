//! Which files are a loss: those that a profiler wrote, or may have written. Judged by the exit code of `--strict`.

use super::{ANALYSIS, KINETO, Place, SONGS, assert_accounted, database, files, not_used, report};
use flate2::Compression;
use flate2::write::GzEncoder;
use rpd_tests::harness::{JobOutcome, assert_refused};
use serde_json::Value as Json;
use std::fs;
use std::io::Write;

fn packed(text: &[u8]) -> Vec<u8> {
    let mut packer = GzEncoder::new(Vec::new(), Compression::fast());
    packer.write_all(text).unwrap();
    packer.finish().unwrap()
}

/// How the report calls a file: its kind.
fn kind<'a>(report: &'a Json, name: &str) -> &'a str {
    let all = report["files_not_used"].as_array().unwrap();
    let named = all.iter().find(|file| file["path"].as_str().unwrap().ends_with(name));
    named.unwrap_or_else(|| panic!("{name}: {report}"))["kind"].as_str().unwrap()
}

fn assert_no_loss(outcome: &JobOutcome) {
    assert!(outcome.stderr.contains("\nlost       nothing\n"), "{outcome}");
    assert!(!outcome.stderr.contains("warning:"), "{outcome}");
}

#[test]
fn files_that_no_profiler_wrote_are_counted_and_no_loss() {
    let place = Place::new();
    place.write("good.json", KINETO);
    let words: String = (0..20_000).map(|word| format!("\"word {word}\": {word},\n")).collect();
    let others: [(&str, Vec<u8>); 18] = [
        ("config.json", br#"{"hidden_size": 1024, "loss": NaN}"#.to_vec()),
        ("package.json", b"{\"name\": \"x\", \"scripts\": {}}".to_vec()),
        ("tsconfig.json", b"{\n  // comment\n  \"strict\": true,\n}\n".to_vec()),
        ("log.json", b"{\"loss\": 1}\n{\"loss\": 0.5}\n".to_vec()),
        ("eval_results.json", b"\xef\xbb\xbf{\"accuracy\": 0.9}".to_vec()),
        ("vocab.json", format!("{{{words}\"\": 0}}").into_bytes()),
        ("vocab.json.gz", packed(format!("{{{words}\"\": 0}}").as_bytes())),
        ("results.csv", b"epoch,loss\n1,0.5\n".to_vec()),
        ("metrics.csv", b"metric,value\naccuracy,0.9\n".to_vec()),
        ("empty.csv", Vec::new()),
        ("Thumbs.db", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1".to_vec()),
        ("messages.proto", b"syntax = \"proto3\";\n".to_vec()),
        ("photos.zip", b"PK\x03\x04".to_vec()),
        ("notes.json.xz", b"text".to_vec()),
        ("._good.json", b"\x00\x05\x16\x07\x00\x02".to_vec()),
        ("newline.json", b"\n".to_vec()),
        ("train.py", b"MARK = '\"traceEvents\"'\n".to_vec()),
        ("empty.tmp", Vec::new()),
    ];
    for (name, content) in &others {
        place.write(name, content);
    }
    database(&place.input().join("songs.db"), SONGS);
    database(&place.input().join("trace.db"), SONGS);
    // Files beside a run of that name are none of its agents.
    place.write("clocks/notes.txt", "text");
    let outcome = place.merge(&["--strict", "--json"]).success();
    assert_no_loss(&outcome);
    assert!(outcome.stderr.contains("\nnot used   21 files that no profiler wrote ("), "{outcome}");
    let report = report(&outcome);
    assert_accounted(&report, &files(&place.input()));
    assert_eq!(report["losses"].as_array().unwrap().len(), 0, "{report}");
    let names = others.iter().map(|(name, _)| *name).chain(["songs.db", "/trace.db", "clocks/notes.txt"]);
    names.for_each(|name| assert_eq!(kind(&report, name), "unrelated", "{name}"));
    // They keep no merge from the folders below, either.
    fs::create_dir(place.input().join("host")).unwrap();
    fs::rename(place.input().join("good.json"), place.input().join("host/good.json")).unwrap();
    let _ = place.merge(&["--strict"]).success();
}

#[test]
fn files_that_may_hold_what_a_profiler_recorded_are_a_loss() {
    for (name, content) in [
        ("zeros.json", vec![0; 70_000]),
        ("broken.json", b"\x01\x02{\"a\": 1}".to_vec()),
        ("cut.json", b"{\n  \"sche".to_vec()),
        ("cut.json.gz", packed(b"{\"ab").clone()),
        ("torn.json.gz", packed(KINETO.repeat(3).as_bytes())[..12].to_vec()),
        ("empty.json.gz", Vec::new()),
        ("chrome.json", br#"[{"ph": "X", "ts": 1, "name": "a"}]"#.to_vec()),
        ("events.json.gz", packed(br#"{"traceEvents": []}"#)),
        ("old_results.json", br#"{"all": {"deviceProperties": 1}}"#.to_vec()),
        ("1_kernel_trace.csv", Vec::new()),
        ("omnistat-x.csv", b"a,b\n".to_vec()),
        ("cut.csv", b"metric,a,b\ninst".to_vec()),
        ("table.csv", b"\xef\xbb\xbf\"Name\",\"Calls\",\"TotalDurationNs\"\n".to_vec()),
        ("empty.db", Vec::new()),
        ("zeros.db", vec![0; 5_000]),
        ("short.db", b"SQLite format 3\0".to_vec()),
        ("1_results.db", b"text".to_vec()),
        ("any.rpd", b"text".to_vec()),
        ("perfetto-trace-0.proto", b"text".to_vec()),
        ("binary.proto", b"\x0a\x05\x01\xff\x00".to_vec()),
        ("trace.pftrace", b"text".to_vec()),
        // Kineto renames its file when it is whole.
        ("rank1.pt.trace.json.tmp", KINETO.as_bytes()[..KINETO.len() - 20].to_vec()),
        ("trace.json.1", KINETO.as_bytes().to_vec()),
        ("trace", packed(KINETO.as_bytes())),
        ("table.csv.old", b"\"Name\",\"Calls\",\"TotalDurationNs\"\n".to_vec()),
        ("trace.JSON.bz2", b"BZh91AY".to_vec()),
        ("trace.zip", [b"PK\x03\x04".as_slice(), &[0; 22], &[10, 0, 0, 0], b"trace.json"].concat()),
    ] {
        let place = Place::new();
        place.write("good.json", KINETO);
        place.write(name, &content);
        assert_refused(&place.merge(&["--strict"]), 3, &[name]);
        let outcome = place.merge(&["--json"]).success();
        let report = report(&outcome);
        assert_accounted(&report, &files(&place.input()));
        assert_eq!(kind(&report, name), "refused");
        assert_eq!(report["losses"][0]["file"], name, "{report}");
    }
    for sql in [ANALYSIS, "CREATE TABLE rocpd_string (id INTEGER PRIMARY KEY, string TEXT)"] {
        let place = Place::new();
        place.write("good.json", KINETO);
        database(&place.input().join("other.db"), sql);
        assert_refused(&place.merge(&["--strict"]), 3, &["other.db"]);
        fs::rename(place.input().join("other.db"), place.input().join("other.sqlite")).unwrap();
        assert_refused(&place.merge(&["--strict"]), 3, &["other.sqlite", "name it on the command line"]);
    }
}

#[test]
fn extensions_in_upper_case_are_read() {
    let place = Place::new();
    place.write("A.JSON", KINETO);
    place.write("B.Json.GZ", packed(KINETO.replace("\"pid\": 10", "\"pid\": 11").as_bytes()));
    let report = report(&place.merge(&["--json", "--strict"]).success());
    assert_eq!((&report["other_files"], not_used(&report).len()), (&2.into(), 0), "{report}");
}
