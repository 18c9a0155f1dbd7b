//! Reads traces of a merge back.

use crate::{no_complaints, translated};
use proptest::prelude::*;
use rpd_perfetto::{
    Annotation, CounterValue, Event, Flow, Overlaps, Sequence, Span, StackId, StringId, Thread, Timeline,
    Timestamp, Track, TrackId, TrackKind, Unit, Value, Window, file_head,
};
use rpd_shard::model::rocpd;
use serde_json::{Value as Json, json};
use std::num::NonZeroU32;

/// A slice, an instant, a counter value or a sample, with its time.
#[derive(Clone, Debug)]
pub(crate) enum Given {
    Slice(u64, i64, i64, Vec<(u32, i64)>, Option<u64>),
    Instant(u64, i64, bool),
    Value(u64, i64, f64),
    Sample(i64, u32),
}

fn given() -> impl Strategy<Value = Vec<Given>> {
    let args = prop::collection::vec((0u32..5, any::<i64>()), 0..3);
    let slice = (1u64..4, 0i64..5_000, 0i64..2_000, args, prop::option::of(1u64..9))
        .prop_map(|(track, at, ns, args, flow)| Given::Slice(track, at, ns, args, flow));
    let instant =
        (1u64..4, 0i64..5_000, any::<bool>()).prop_map(|(track, at, is)| Given::Instant(track, at, is));
    let value =
        (0u64..2, 0i64..5_000, -1e9f64..1e9).prop_map(|(track, at, value)| Given::Value(track, at, value));
    let sample = (0i64..5_000, 1u32..5).prop_map(|(at, depth)| Given::Sample(at, depth));
    prop::collection::vec(prop_oneof![6 => slice, 1 => instant, 1 => value, 1 => sample], 0..60)
}

/// Writes the items as a merge does: spans in lanes, ordered by time.
pub(crate) fn written(given: &[Given]) -> Vec<u8> {
    let time = |ns| Timestamp::new(ns).unwrap();
    let mut sequence = Sequence::new(NonZeroU32::MIN);
    let process = TrackId(100);
    sequence.track(&Track { kind: TrackKind::Process { pid: 9 }, ..Track::new(process, "rank 0") });
    for tid in 1..4u64 {
        let thread = Thread { pid: 9, tid: tid as i32 };
        let name = format!("thread {tid}");
        sequence.track(&Track { kind: TrackKind::Thread(thread), ..Track::new(TrackId(tid), &name) });
    }
    for (uuid, unit) in [(50, Unit::Bytes), (51, Unit::Named("MHz"))] {
        let name = format!("counter {uuid}");
        let kind = TrackKind::Counter(unit);
        sequence.track(&Track { kind, parent: Some(process), ..Track::new(TrackId(uuid), &name) });
    }
    for tid in 1..4u64 {
        let mut spans: Vec<_> =
            given.iter().filter(|given| matches!(given, Given::Slice(of, ..) if *of == tid)).collect();
        spans.sort_by_key(|given| span(given).order());
        let mut timeline = Timeline::new(Overlaps::Separate, Window::ALL);
        let mut lanes = 0;
        let mut edges = Vec::new();
        let mut emit = |edge: rpd_perfetto::Edge<'_, &Given>| match edge {
            rpd_perfetto::Edge::Begin { at, lane, item, .. } => edges.push((at, lane, Some((*item).clone()))),
            rpd_perfetto::Edge::End { at, lane } => edges.push((at, lane, None)),
        };
        for one in spans {
            timeline.push(span(one), one, &mut emit).unwrap();
        }
        timeline.close(&mut emit);
        for (at, lane, begun) in edges {
            let track = TrackId(tid * 1_000 + lane as u64);
            while lanes <= lane {
                let uuid = TrackId(tid * 1_000 + lanes as u64);
                let name = format!("queue {tid}");
                sequence.track(&Track { parent: Some(process), ..Track::new(uuid, &name) });
                lanes += 1;
            }
            let Some(Given::Slice(_, _, _, args, flow)) = begun else {
                sequence.end(at, track);
                continue;
            };
            let name = sequence.event_name(StringId(1), || "slice");
            let category = Some(sequence.category(StringId(2), || "KERNEL_DISPATCH"));
            let annotations: Vec<_> = (args.iter())
                .map(|(key, value)| Annotation {
                    name: sequence.annotation_name(StringId(*key), || format!("key {key}")),
                    value: Value::Int(*value),
                })
                .collect();
            let flows: Vec<Flow> = flow.iter().map(|id| Flow::To(*id)).collect();
            let event = Event { at, track, name, category, annotations: &annotations, flows: &flows };
            sequence.begin(&event);
        }
    }
    for one in given {
        match one {
            Given::Slice(..) => {}
            Given::Instant(track, at, has_category) => {
                let name = sequence.event_name(StringId(7), || "mark");
                let category = has_category.then(|| sequence.category(StringId(9), || "MARKER_CORE_API"));
                sequence.instant(&Event { category, ..Event::new(time(*at), TrackId(*track), name) });
            }
            Given::Value(track, at, value) => {
                sequence.counter(time(*at), TrackId(50 + track), CounterValue::Double(*value));
            }
            Given::Sample(at, depth) => {
                let stack = sequence.call_stack(StackId(*depth)).unwrap_or_else(|| {
                    let library = sequence.mapping(StringId(3), || "lib.so");
                    let frames: Vec<_> = (0..*depth)
                        .map(|depth| sequence.add_frame(&format!("f{depth}"), library, 16))
                        .collect();
                    sequence.add_call_stack(StackId(*depth), &frames)
                });
                sequence.sample(time(*at), Thread { pid: 9, tid: 2 }, stack);
            }
        }
    }
    [&file_head(time(0), Some(1_700_000_000_000_000_000)), sequence.packets()].concat()
}

fn span(given: &Given) -> Span {
    let Given::Slice(_, start, ns, ..) = given else { panic!("no slice") };
    Span::new(Timestamp::new(*start).unwrap(), Timestamp::new(start + ns).unwrap()).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn what_we_write_is_read_back(given in given()) {
        let (shard, told) = translated(&written(&given));
        no_complaints(&told);
        let sorted = |rows: Vec<Json>| {
            let mut rows = rows;
            rows.sort_by_key(Json::to_string);
            rows
        };
        let slices = given.iter().filter_map(|given| {
            let Given::Slice(track, start, ns, args, _) = given else { return None };
            let arg = |(at, (key, value)): (usize, &(u32, i64))| json!([at, "int", format!("key {key}"), value.to_string()]);
            let args: Vec<Json> = args.iter().enumerate().map(arg).collect();
            Some(json!([format!("queue {track}"), "slice", "KERNEL_DISPATCH", start, start + ns, args]))
        });
        prop_assert_eq!(shard.slices(1), sorted(slices.collect()));
        let moments = given.iter().filter_map(|given| match given {
            Given::Instant(track, at, true) => Some(json!([track, "mark", "MARKER_CORE_API", at, []])),
            Given::Instant(track, at, false) => Some(json!([track, "mark", null, at, []])),
            Given::Sample(at, depth) => {
                let frame = |place: u32| json!({ "depth": place, "name": format!("f{}", depth - 1 - place), "library": "lib.so", "offset": 16 });
                let frames: Vec<Json> = (0..*depth).map(frame).collect();
                Some(json!([2, { "frames": frames }, "PERF_SAMPLE", at, []]))
            }
            _ => None,
        });
        prop_assert_eq!(shard.moments(1), sorted(moments.collect()));
        let values = given.iter().filter_map(|given| {
            let Given::Value(track, at, value) = given else { return None };
            Some(json!([format!("counter {}", 50 + track), (["bytes", "MHz"][*track as usize]), at, value]))
        });
        prop_assert_eq!(shard.values(1), sorted(values.collect()));
        let mut flows: Vec<i64> = shard.rows(1, rocpd::EVENT).iter().filter_map(|row| row["stack_id"].as_i64()).filter(|id| *id != 0).collect();
        let mut wanted: Vec<i64> = given.iter().filter_map(|given| match given { Given::Slice(.., flow) => flow.map(|id| id as i64), _ => None }).collect();
        flows.sort_unstable();
        wanted.sort_unstable();
        prop_assert_eq!(flows, wanted);
    }
}
