//! Top-level members in any order, including unknown ones, and names that follow the objects that they name.

use crate::shard::{Contents, int, text};
use crate::{of_events, packed, translated, try_translated};
use rpd_kineto::is_kineto;
use rpd_shard::model::{OwnedValue, rocpd};
use rpd_shard::record::LossCause;
use rpd_translator::TranslateError;

const EVENTS: &[&str] = &[
    r#"{"ph":"X","cat":"cpu_op","name":"aten::add","pid":70,"tid":71,"ts":10.250,"dur":2.5,"args":{"External id":5,"Ev Idx":0}}"#,
    r#"{"ph":"X","cat":"kernel","name":"gemm","pid":2,"tid":7,"ts":20,"dur":3.001,"args":{"correlation":99,"device":2,"stream":7}}"#,
    r#"{"ph":"M","name":"process_name","pid":2,"tid":0,"args":{"name":"python of a GPU"}}"#,
    r#"{"ph":"M","name":"process_name","pid":70,"tid":0,"args":{"name":"python train.py"}}"#,
    r#"{"ph":"M","name":"thread_name","pid":70,"tid":71,"args":{"name":"thread 71 (pt_main)"}}"#,
    r#"{"ph":"X","cat":"Trace","name":"PyTorch Profiler (0)","pid":"Spans","tid":"PyTorch Profiler","ts":1,"dur":2}"#,
    r#"{"ph":"M","name":"thread_name","pid":"Spans","tid":"PyTorch Profiler","args":{"name":"the profiler"}}"#,
];

/// The members of a file, each valid at any position.
fn members() -> Vec<String> {
    vec![
        r#""metadata": {"errors": {}, "traceEvents": [{"ph": "X"}], "deep": [[[{"a]}\"": [1, "}"]}]]], "baseTimeNanoseconds": 7}"#.to_owned(),
        format!("\"traceEvents\": [{}]", EVENTS.join(",\n")),
        r#""schemaVersion": 1"#.to_owned(),
        r#""deviceProperties": [{"id": 2, "name": "AMD Instinct MI300X"}]"#.to_owned(),
        r#""baseTimeNanoseconds": 1763800000000000000"#.to_owned(),
        r#""distributedInfo": {"backend": "nccl", "rank": 3, "world_size": 8}"#.to_owned(),
        r#""host_name": "n7""#.to_owned(),
        r#""displayTimeUnit": "ms""#.to_owned(),
        r#""with_stack": true"#.to_owned(),
        r#""traceName": "a]}\"b""#.to_owned(),
    ]
}

fn file_of(members: &[String]) -> String {
    format!("{{\n  {}\n}}", members.join(",\n  "))
}

/// Returns whether the bytes of a file are recognized as a trace.
fn is_known(bytes: &[u8]) -> bool {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("some.file");
    std::fs::write(&path, bytes).unwrap();
    is_kineto(&path)
}

/// Returns orders of the members: each member first, and each member last.
fn orders() -> Vec<Vec<String>> {
    let all = members();
    let moved = |from: usize, to: usize| {
        let mut order = all.clone();
        let member = order.remove(from);
        order.insert(to, member);
        order
    };
    let ends = (0..all.len()).flat_map(|from| [moved(from, 0), moved(from, all.len() - 1)]);
    let turned = (0..all.len()).map(|by| {
        let mut order = all.clone();
        order.rotate_left(by);
        order.reverse();
        order
    });
    ends.chain(turned).collect()
}

#[test]
fn the_order_of_members_at_the_top_changes_no_row() {
    let (usual, _) = translated(&file_of(&members()));
    let span = &usual.spans()[1];
    assert_eq!((span.name.as_str(), span.start), ("aten::add", 1_763_800_000_000_010_250));
    let process = &usual.process;
    assert_eq!((process.rank, process.size, process.pid), (Some(3), Some(8), 70));
    assert_eq!((process.node.hostname.as_str(), process.command.as_str()), ("n7", "python train.py"));
    let agents: Vec<_> = usual.rows(rocpd::INFO_AGENT).iter().map(|row| text(row, "product_name")).collect();
    assert_eq!(agents, ["", "AMD Instinct MI300X"]);
    for order in orders() {
        let file = file_of(&order);
        assert!(is_known(file.as_bytes()) && is_known(&packed(file.as_bytes())), "{file}");
        let (contents, translation) = translated(&file);
        assert_eq!(contents.tables, usual.tables, "{file}");
        assert_eq!(contents.process, process.clone(), "{file}");
        assert_eq!((&translation.warnings[..], contents.losses.len()), (&[][..], 0), "{file}");
    }
}

#[test]
fn a_trace_is_known_behind_members_that_nobody_knows() {
    let events = of_events("", EVENTS);
    let events = events.strip_prefix("{\"schemaVersion\": 1, ").unwrap();
    let deep = format!("{}1{}", "[{\"a\":".repeat(300_000), "}]".repeat(300_000));
    let long = "x\\\"".repeat(1 << 20);
    for before in [
        "\"metadata\": {\"schemaVersions\": [{}]}".to_owned(),
        format!("\"deep\": {deep}"),
        format!("\"long\": \"{long}\", \"none\": null, \"\": -1.5e3"),
        "\"displayTimeUnit\": \"ms\"".to_owned(),
    ] {
        let text = format!("{{{before}, {events}");
        assert!(is_known(text.as_bytes()) && is_known(&packed(text.as_bytes())), "{}", &before[..20]);
        let (contents, _) = translated(&text);
        assert_eq!((contents.spans().len(), contents.losses.len()), (3, 0), "{}", &before[..20]);
    }
    // A member of Kineto is enough, even after events that resemble those of other programs.
    let plain = r#""traceEvents": [{"ph":"X","name":"a","pid":1,"tid":1,"ts":1,"dur":1}]"#;
    assert!(is_known(format!("{{{plain}, \"schemaVersion\": 1}}").as_bytes()));
    for other in [
        format!("{{{plain}}}"),
        format!("{{\"metadata\": {{\"schemaVersion\": 1}}, {plain}}}"),
        "{\"metadata\": {\"cpu_op\": \"External id\"}}".to_owned(),
        "{\"metadata\": ".to_owned(),
        "{\"metadata\": }".to_owned(),
        format!("{{{plain} \"schemaVersion\": 1}}"),
        // Only 16 MiB of a file are examined.
        format!("{{\"long\": \"{}\", {events}", "x".repeat(16 << 20)),
    ] {
        assert!(!is_known(other.as_bytes()), "{}", &other[..30.min(other.len())]);
    }
}

#[test]
fn a_file_with_unknown_members_may_be_cut_at_any_byte() {
    let unknown = r#""metadata": {"a": [[{"]\"}": -1.5}]], "b": {}}, "n": null"#;
    let whole = format!(
        "{{{unknown}, \"traceEvents\": [{}], \"c\": [], \"baseTimeNanoseconds\": 1763800000000000000}}",
        EVENTS[..2].join(",")
    );
    let spans = translated(&whole).0.spans();
    for end in 0..whole.len() {
        let _ = is_known(&whole.as_bytes()[..end]);
        match try_translated(&whole.as_bytes()[..end]) {
            Ok((contents, _)) => {
                assert!(contents.spans().len() <= spans.len());
                assert!(contents.losses.iter().any(|loss| loss.cause == LossCause::Truncated), "{end}");
            }
            Err(TranslateError::NoContent { .. }) => {
                assert!(end < whole.find("[{\"ph\":\"X\",\"cat").unwrap() + 1)
            }
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn a_member_that_matters_and_cannot_be_used_is_told() {
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let top =
        format!("\"baseTimeNanoseconds\": 1763800000000000000, \"distributedInfo\": {{\"rank\": {deep}}}, ");
    let (contents, translation) = translated(&of_events(&top, EVENTS));
    assert_eq!((contents.spans().len(), contents.process.rank), (3, None));
    let [told] = &translation.warnings[..] else { panic!("{:?}", translation.warnings) };
    assert!(told.contains("\"distributedInfo\" is not used"), "{told}");
}

fn thread_names(contents: &Contents) -> Vec<(i64, String)> {
    let rows = contents.rows(rocpd::INFO_THREAD).iter().filter(|row| row["name"] != OwnedValue::Null);
    rows.map(|row| (int(row, "tid"), text(row, "name"))).collect()
}

#[test]
fn names_count_wherever_their_metadata_stands() {
    let base = "\"baseTimeNanoseconds\": 1763800000000000000, ";
    let is_metadata = |event: &&&str| event.contains("\"ph\":\"M\"");
    let (metadata, others): (Vec<&str>, Vec<&str>) = EVENTS.iter().copied().partition(|e| is_metadata(&e));
    let usual = translated(&of_events(base, &[&metadata[..], &others[..]].concat())).0;
    let own = (71, "thread 71 (pt_main)".to_owned());
    let names = thread_names(&usual);
    assert!(names.contains(&own) && names[2].1 == "Spans the profiler", "{names:?}");
    for events in [[&others[..], &metadata[..]].concat(), EVENTS.to_vec()] {
        let (contents, translation) = translated(&of_events(base, &events));
        assert_eq!(contents.tables, usual.tables);
        assert_eq!(contents.process, usual.process.clone());
        assert_eq!(
            (translation.ignored.len(), translation.total_lost()),
            (0, 0),
            "{:?}",
            translation.ignored
        );
    }
}

#[test]
fn a_label_behind_the_spans_says_which_process_is_the_rank() {
    let span = r#"{"ph":"X","cat":"overhead","name":"a","pid":70,"tid":71,"ts":10,"dur":2}"#;
    let label = r#"{"ph":"M","name":"process_labels","pid":70,"tid":0,"args":{"labels":"CPU"}}"#;
    let contents = [[label, span], [span, label]].map(|events| translated(&of_events("", &events)).0);
    assert_eq!(int(&contents[0].rows(rocpd::INFO_THREAD)[0], "tid"), 71);
    assert_eq!(contents[0].tables, contents[1].tables);
}

#[test]
fn names_that_are_too_many_are_in_the_ledger_and_other_names_of_a_thread_are_counted() {
    let name = |tid: usize, name: &str| {
        format!(r#"{{"ph":"M","name":"thread_name","pid":70,"tid":{tid},"args":{{"name":"{name}"}}}}"#)
    };
    let events: Vec<String> = (1..=(1 << 16) + 3).map(|tid| name(tid, "x")).collect();
    let events: Vec<&str> = events.iter().map(String::as_str).collect();
    let (contents, translation) = translated(&of_events("", &events));
    assert_eq!(translation.total_lost(), 3);
    let lost: Vec<_> = contents.losses.iter().map(|loss| (loss.cause, loss.rows)).collect();
    assert_eq!(lost, [(LossCause::OverLimit, Some(3))]);
    let again = [name(71, "first"), name(71, "second"), name(71, "second")];
    let again: Vec<&str> = again.iter().map(String::as_str).chain([EVENTS[0]]).collect();
    let (contents, translation) = translated(&of_events("", &again));
    assert_eq!(thread_names(&contents), [(71, "second".to_owned())]);
    assert_eq!(translation.ignored.values().copied().collect::<Vec<_>>(), [1]);
}
