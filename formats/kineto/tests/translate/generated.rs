//! Generated files, and the spans that a tree-based reader finds in them.

use crate::shard::{Span, sort};
use proptest::prelude::*;
use rpd_shard::model::rocpd;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value as Json, json};

/// One member of an event each.
type Members = Vec<(String, String)>;

const CATEGORIES: [&str; 9] = [
    "cpu_op",
    "user_annotation",
    "python_function",
    "cuda_runtime",
    "kernel",
    "gpu_memcpy",
    "gpu_memset",
    "gpu_user_annotation",
    "Trace",
];

fn name() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => "aten::[a-z_]{1,12}",
        1 => r#"[a-z"\\/\n\t é\u{1F600}]{0,20}"#,
        1 => Just("Memcpy HtoD (Pageable -> Device)".to_owned()),
    ]
}

fn args() -> impl Strategy<Value = Json> {
    let one = prop_oneof![
        (1i64..1_000_000).prop_map(|id| ("External id", json!(id))),
        (1i64..1_000_000).prop_map(|id| ("correlation", json!(id))),
        (0i64..8).prop_map(|stream| ("stream", json!(stream))),
        (0i64..8).prop_map(|device| ("device", json!(device))),
        any::<u32>().prop_map(|bytes| ("bytes", json!(bytes))),
        Just(("grid", json!([4, 2, 1]))),
        Just(("Input Dims", json!([[3, 4], [], "}]\"{["]))),
        name().prop_map(|text| ("Python module", json!(text))),
        any::<bool>().prop_map(|flag| ("flag", json!({ "nested": [flag, null, 1.5e3] }))),
    ];
    proptest::collection::vec(one, 0..6).prop_map(|members| {
        Json::Object(members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
    })
}

/// Generates microseconds with three decimals or fewer.
fn time(most: i64) -> impl Strategy<Value = String> {
    (0..most, 0..1000, 0..4).prop_map(|(whole, part, form)| match form {
        0 => whole.to_string(),
        1 => format!("{whole}.{}", part / 100),
        _ => format!("{whole}.{part:03}"),
    })
}

fn place() -> impl Strategy<Value = String> {
    let words = ["\"Spans\"", "\"\"", "\"stream 7\"", "0", "-1", "17", "\"17\""];
    prop_oneof![4 => Just("4242".to_owned()), 2 => (0..words.len()).prop_map(move |i| words[i].to_owned())]
}

fn event() -> impl Strategy<Value = Members> {
    let phase = prop_oneof![8 => Just("X"), 1 => Just("i"), 1 => Just("s"), 1 => Just("M"), 1 => Just("C")];
    let texts = (phase, 0..CATEGORIES.len(), name(), args());
    (texts, place(), place(), time(5_000_000_000_000_000), time(1_000_000), 0usize..8).prop_map(
        |((phase, category, name, args), pid, tid, ts, dur, turn)| {
            let mut members: Members = vec![
                ("ph".into(), json!(phase).to_string()),
                ("cat".into(), json!(CATEGORIES[category]).to_string()),
                ("name".into(), json!(name).to_string()),
                ("pid".into(), pid),
                ("tid".into(), tid),
                ("ts".into(), ts),
                ("dur".into(), dur),
                ("id".into(), "3".into()),
                ("args".into(), args.to_string()),
            ];
            members.rotate_left(turn);
            members
        },
    )
}

/// A generated file: its text, and its base time.
#[derive(Clone, Debug)]
pub(crate) struct Made {
    pub(crate) text: String,
    pub(crate) base: i64,
}

pub(crate) fn file() -> impl Strategy<Value = Made> {
    let base = prop_oneof![Just(None), (0..1_900_000_000_000_000_000i64).prop_map(Some)];
    let events = proptest::collection::vec(event(), 0..24);
    (events, base, any::<bool>(), any::<bool>()).prop_map(|(events, base, behind, pretty)| {
        let (space, line) = if pretty { (" ", "\n    ") } else { ("", "") };
        let write = |members: &Members| {
            let members = members.iter().map(|(name, value)| format!("\"{name}\":{space}{value}"));
            format!("{line}{{{line}{}{line}}}", members.collect::<Vec<_>>().join(&format!(",{line}")))
        };
        let events: Vec<String> = events.iter().map(write).collect();
        let events = format!("\"traceEvents\":{space}[{}{line}]", events.join(&format!("{space},")));
        let mut members = vec!["\"schemaVersion\": 1".to_owned(), events];
        if let Some(base) = base {
            let at = if behind { members.len() } else { 1 };
            members.insert(at, format!("\"baseTimeNanoseconds\":{space}{base}"));
        }
        members.push("\"traceName\": \"a]}\\\"b\"".to_owned());
        Made { text: format!("{{{line}{}{line}}}\n", members.join(",")), base: base.unwrap_or(0) }
    })
}

#[derive(Deserialize)]
struct Tree<'a> {
    #[serde(rename = "traceEvents", borrow)]
    events: Vec<Node<'a>>,
}

#[derive(Deserialize)]
struct Node<'a> {
    ph: String,
    cat: String,
    name: String,
    #[serde(borrow)]
    ts: &'a RawValue,
    #[serde(borrow)]
    dur: &'a RawValue,
    args: Json,
}

/// Converts microseconds to ns in the simplest way.
fn nanoseconds(text: &str) -> i64 {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    format!("{whole}{part:0<3}").parse().unwrap()
}

/// Returns the spans of a file.
pub(crate) fn spans(made: &Made) -> Vec<Span> {
    let tree: Tree<'_> = serde_json::from_str(&made.text).unwrap();
    let spans = tree.events.into_iter().filter(|event| event.ph == "X").map(|event| {
        let start = nanoseconds(event.ts.get()) + made.base;
        let number = |name: &str| event.args[name].as_i64().unwrap_or(0);
        Span {
            table: match event.cat.as_str() {
                "kernel" | "gpu_memset" => rocpd::KERNEL_DISPATCH,
                "gpu_memcpy" => rocpd::MEMORY_COPY,
                _ => rocpd::REGION,
            },
            name: event.name,
            category: event.cat,
            start,
            end: start + nanoseconds(event.dur.get()),
            stack: number("correlation"),
            external: number("External id"),
            args: event.args,
        }
    });
    let mut spans: Vec<Span> = spans.collect();
    sort(&mut spans);
    spans
}
