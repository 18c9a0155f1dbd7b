//! Truncated, damaged or absurd files: complete parts are read, and the rest is reported.

use crate::{generated, of_events, packed, translated, try_translated};
use proptest::prelude::*;
use rpd_shard::model::rocpd;
use rpd_shard::record::LossCause;
use rpd_translator::TranslateError;

fn event(number: usize) -> String {
    format!(
        r#"{{"ph":"X","cat":"cpu_op","name":"op {number}","pid":70,"tid":71,"ts":{}.5,"dur":1,"args":{{"External id":{number},"Input Dims":[[2,"]"]]}}}}"#,
        10 * number
    )
}

fn file(events: usize) -> String {
    let events: Vec<String> = (0..events).map(event).collect();
    of_events(
        "\"baseTimeNanoseconds\": 1763800000000000007, ",
        &events.iter().map(String::as_str).collect::<Vec<_>>(),
    )
}

#[test]
fn a_file_that_is_cut_at_any_byte_is_a_prefix_and_says_so() {
    let whole = file(6);
    let spans = translated(&whole).0.spans();
    for end in 0..whole.len() {
        match try_translated(&whole.as_bytes()[..end]) {
            Ok((contents, translation)) => {
                let found = contents.spans();
                assert_eq!(found, spans[..found.len()], "{end}");
                assert!(contents.losses.iter().any(|loss| loss.cause == LossCause::Truncated), "{end}");
                assert!(translation.warnings[0].contains("damaged at byte"), "{:?}", translation.warnings);
            }
            Err(TranslateError::NoContent { .. }) => assert!(end < whole.find('[').unwrap() + 1, "{end}"),
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn a_bad_tail_of_a_packed_file_costs_no_more_than_the_tail() {
    let whole = file(2000);
    let spans = translated(&whole).0.spans();
    let bytes = packed(whole.as_bytes());
    for (what, bad) in [
        ("cut", bytes[..bytes.len() / 2].to_vec()),
        ("cut in the checksum", bytes[..bytes.len() - 4].to_vec()),
        ("other bytes", [&bytes[..bytes.len() - 200], &[0x55; 200]].concat()),
        ("something behind it", [&bytes[..], b"behind"].concat()),
    ] {
        let (contents, translation) = try_translated(&bad).unwrap();
        let found = contents.spans();
        assert_eq!(found, spans[..found.len()], "{what}");
        assert!(found.len() > 500, "{what}: {}", found.len());
        assert_eq!(translation.warnings.len(), 1, "{what}: {:?}", translation.warnings);
        assert!(contents.losses.iter().any(|loss| loss.cause == LossCause::Truncated), "{what}");
    }
}

#[test]
fn a_packed_file_whose_checksum_or_length_is_wrong_is_read_and_counted_as_damaged() {
    let whole = file(20);
    let spans = translated(&whole).0.spans();
    let (head, tail) = whole.as_bytes().split_at(whole.len() / 2);
    for good in [packed(whole.as_bytes()), [packed(head), packed(tail)].concat()] {
        assert_eq!(try_translated(&good).unwrap().1.warnings, [""; 0]);
        // A member ends with four bytes of checksum and four bytes of length.
        for from_end in 1..=8 {
            let mut bad = good.clone();
            let place = bad.len() - from_end;
            bad[place] ^= 0x10;
            for bad in [&bad[..], &good[..place]] {
                let (contents, translation) = try_translated(bad).unwrap();
                assert_eq!(contents.spans(), spans, "{from_end}");
                let [told] = &translation.warnings[..] else { panic!("{:?}", translation.warnings) };
                assert!(told.contains("damaged after byte"), "{told}");
                let [loss] = &contents.losses[..] else { panic!("{:?}", contents.losses) };
                assert_eq!((loss.cause, loss.rows), (LossCause::Truncated, None));
            }
        }
    }
}

#[test]
fn zeros_behind_a_packed_file_are_padding() {
    let whole = file(20);
    let (head, tail) = whole.as_bytes().split_at(whole.len() / 2);
    let zeros = vec![0; 600_000];
    for good in [packed(whole.as_bytes()), [packed(head), packed(tail)].concat()] {
        for padding in [1, 512, zeros.len()] {
            let (contents, translation) = try_translated(&[&good[..], &zeros[..padding]].concat()).unwrap();
            assert_eq!(contents.spans(), translated(&whole).0.spans());
            assert_eq!((&translation.warnings[..], contents.losses.len()), (&[][..], 0), "{padding}");
        }
        // Bytes that are not padding are still reported.
        let (contents, translation) = try_translated(&[&good[..], &zeros[..7], b"x"].concat()).unwrap();
        assert!(translation.warnings[0].contains("damaged after byte"), "{:?}", translation.warnings);
        assert_eq!(contents.losses.len(), 1);
    }
}

#[test]
fn what_stands_behind_the_trace_is_told_and_counted() {
    let whole = file(3);
    let spans = translated(&whole).0.spans();
    let long = format!("{}{}", " ".repeat(300_000), file(5000));
    for behind in [file(2), "x".to_owned(), "\n\n]".to_owned(), "\0\0\0".to_owned(), long] {
        let text = format!("{whole}{behind}");
        for bytes in [text.clone().into_bytes(), packed(text.as_bytes())] {
            let (contents, translation) = try_translated(&bytes).unwrap();
            assert_eq!(contents.spans(), spans);
            let [told] = &translation.warnings[..] else { panic!("{:?}", translation.warnings) };
            let solid = behind.trim_ascii_start().len();
            let words = format!("ends at byte {}, and {solid} more bytes", text.len() - solid);
            assert!(told.contains(&words), "{told}");
            let [loss] = &contents.losses[..] else { panic!("{:?}", contents.losses) };
            assert_eq!((loss.cause, loss.rows), (LossCause::BadRecord, None));
        }
    }
    for space in ["\n", " \r\n\t ", &" ".repeat(600_000)] {
        let (contents, translation) = translated(&format!("{whole}{space}"));
        assert_eq!((contents.losses.len(), translation.warnings.len()), (0, 0));
    }
}

#[test]
fn an_event_that_is_broken_costs_itself() {
    for broken in [
        r#"{"ph":"X","name" "a"}"#,
        r#"{"ph":"X",,"name":"a"}"#,
        r#"{"ph":"X","name":,"ts":1}"#,
        r#"{"ph":"X" "name":"a"}"#,
        "17",
        "\"text\"",
        "[{\"a\": 1}]",
        r#"{ph:1}"#,
    ] {
        let (one, two) = (event(1), event(2));
        let text = of_events("", &[&one, broken, &two]);
        let (contents, translation) = translated(&text);
        assert_eq!(contents.spans().len(), 2, "{broken}");
        assert_eq!(translation.total_lost(), 1, "{broken}");
        let place = text.find(broken).unwrap();
        let told = translation.warnings.iter().find(|line| line.contains("left out")).unwrap();
        let digits: String =
            told.split("byte ").nth(1).unwrap().chars().take_while(char::is_ascii_digit).collect();
        let at: usize = digits.parse().unwrap();
        assert!((place..=place + broken.len()).contains(&at), "{told}");
        assert_eq!(contents.losses.iter().filter_map(|loss| loss.rows).sum::<u64>(), 1);
    }
}

#[test]
fn behind_a_quote_too_many_the_next_events_are_found() {
    let events: Vec<String> = (0..50).map(event).collect();
    let mut events: Vec<&str> = events.iter().map(String::as_str).collect();
    events
        .insert(20, r#"{"ph":"X","cat":"cpu_op","name":"a "quoted name","pid":70,"tid":71,"ts":1,"dur":1}"#);
    let (contents, translation) = translated(&of_events("", &events));
    assert!(contents.spans().len() >= 49, "{}", contents.spans().len());
    assert!(translation.total_lost() >= 1);
}

#[test]
fn values_that_make_no_sense_are_counted_in_the_ledger() {
    let bad = [
        r#"{"ph":"X","name":"no time","pid":1,"tid":1,"dur":1}"#,
        r#"{"ph":"X","name":"words","pid":1,"tid":1,"ts":"soon","dur":1}"#,
        r#"{"ph":"X","name":"too large","pid":1,"tid":1,"ts":1e300,"dur":1}"#,
        r#"{"ph":"X","name":"over the end","pid":1,"tid":1,"ts":9223372036854775.807,"dur":9223372036854775.807}"#,
        r#"{"ph":"X","name":"backwards","pid":1,"tid":1,"ts":1,"dur":-1}"#,
        r#"{"ph":7,"name":"no phase","pid":1,"tid":1,"ts":1,"dur":1}"#,
        r#"{"ph":"B","name":"begins","pid":1,"tid":1,"ts":1}"#,
        r#"{}"#,
    ];
    let (contents, translation) =
        translated(&of_events("\"baseTimeNanoseconds\": 1763800000000000001, ", &bad));
    assert_eq!((contents.spans().len(), translation.total_lost()), (0, bad.len() as u64));
    assert_eq!(contents.losses.iter().filter_map(|loss| loss.rows).sum::<u64>(), bad.len() as u64);
    assert!(!translation.warnings.is_empty());
}

#[test]
fn odd_values_do_no_harm() {
    let long = "x".repeat(3 << 20);
    let deep = format!("{}{}", "[".repeat(100), "]".repeat(100));
    let too_deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let odd = [
        format!(r#"{{"ph":"X","cat":"cpu_op","name":"{long}","pid":1,"tid":1,"ts":1,"dur":1}}"#),
        format!(r#"{{"ph":"X","cat":"kernel","name":"{long}","pid":"GPU 0","tid":"stream 7","ts":2,"dur":1}}"#),
        format!(r#"{{"ph":"X","cat":"cpu_op","name":"deep","pid":1,"tid":1,"ts":3,"dur":1,"args":{{"a":{deep}}}}}"#),
        r#"{"ph":"X","cat":7,"name":[1],"pid":{},"tid":null,"ts":"4","dur":1,"args":[1]}"#.to_owned(),
        r#"{"ph":"X","cat":"kernel","name":"k","pid":-9223372036854775808,"tid":99999999999999999999,"ts":5,"dur":0,"args":{"correlation":-5,"grid":[-1],"block":["a"],"device":1e99}}"#.to_owned(),
        r#"{"ph":"X","ph":"X","cat":"cpu_op","name":"twice","name":"twice","pid":1,"tid":1,"ts":1,"ts":6,"dur":1}"#.to_owned(),
        format!(r#"{{"ph":"X","cat":"cpu_op","name":"too deep","pid":1,"tid":1,"ts":7,"dur":1,"args":{{"a":{too_deep}}}}}"#),
        event(9),
    ];
    let (contents, translation) =
        translated(&of_events("", &odd.iter().map(String::as_str).collect::<Vec<_>>()));
    let spans = contents.spans();
    assert_eq!(spans.len(), odd.len() - 1);
    assert_eq!(translation.total_lost(), 1);
    assert!(spans.iter().all(|span| span.name.len() <= 64 << 10));
    assert!(spans.iter().any(|span| span.name == "twice" && span.start == 6_000));
    assert!(translation.warnings.iter().any(|line| line.contains("are cut")), "{:?}", translation.warnings);
}

#[test]
fn the_same_ids_many_times_are_as_many_rows() {
    let events: Vec<String> = (0..10).map(|_| event(3)).collect();
    let (contents, _) = translated(&of_events("", &events.iter().map(String::as_str).collect::<Vec<_>>()));
    assert_eq!(contents.rows(rocpd::REGION).len(), 10);
    assert!(contents.spans().iter().all(|span| span.external == 3));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]
    #[test]
    fn no_damage_is_more_than_a_loss(
        made in generated::file(), changes in proptest::collection::vec((any::<usize>(), any::<u8>()), 1..6),
    ) {
        let mut bytes = made.text.into_bytes();
        for (place, byte) in changes {
            let place = place % bytes.len();
            bytes[place] = if byte & 1 == 0 { b"{}[]\",:\\"[usize::from(byte >> 1) % 8] } else { byte };
        }
        match try_translated(&bytes) {
            Ok(_) | Err(TranslateError::NoContent { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }
}
