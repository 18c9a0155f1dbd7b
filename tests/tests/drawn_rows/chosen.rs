//! What is not asked for is left out, and counted.

use super::{Drawn, PLENTY, read, real};
use rpd_shard::model::rocpd;
use rpd_trace::{ItemExclusion, TraceSelection};

#[test]
fn what_is_not_asked_for_is_left_out_and_counted() {
    let folder = tempfile::tempdir().unwrap();
    let Some(path) = real(folder.path()) else { return };
    let all = read(&path, &TraceSelection::default(), None, PLENTY);
    let with = |exclude: &[ItemExclusion]| {
        let selection = TraceSelection { exclude: exclude.to_vec(), ..TraceSelection::default() };
        read(&path, &selection, None, PLENTY)
    };
    let job = with(&[ItemExclusion::Kernels, ItemExclusion::Flows]);
    assert_eq!(
        (job.facts.table(rocpd::KERNEL_DISPATCH).drawn, job.facts.table(rocpd::KERNEL_DISPATCH).left_out),
        (0, all.facts.table(rocpd::KERNEL_DISPATCH).rows)
    );
    assert_eq!(
        job.facts.table(rocpd::PMC_EVENT).left_out,
        all.facts.table(rocpd::PMC_EVENT).rows,
        "the counters of kernels go with them"
    );
    assert!(job.items.iter().all(|item| item.category != "KERNEL_DISPATCH" && item.flows.is_empty()));
    let job = with(&[
        ItemExclusion::Category("HSA_CORE_API".to_owned()),
        ItemExclusion::Counters,
        ItemExclusion::Args,
    ]);
    assert!(job.items.iter().all(|item| item.category != "HSA_CORE_API" && item.kind != "counter"));
    assert_eq!(job.facts.table(rocpd::ARG).left_out, all.facts.table(rocpd::ARG).rows);
    assert_eq!(
        job.facts.table(rocpd::REGION).drawn + job.facts.table(rocpd::REGION).left_out,
        all.facts.table(rocpd::REGION).rows
    );
    let job = with(&[ItemExclusion::Markers]);
    assert!(job.items.iter().all(|item| !item.category.starts_with("MARKER")));

    let ranks = TraceSelection { ranks: Some(vec![1..=2]), ..TraceSelection::default() };
    let job = read(&path, &ranks, None, PLENTY);
    assert_eq!(
        job.layouts.iter().map(|layout| layout.processes[0].rank).collect::<Vec<_>>(),
        [Some(1), Some(2)]
    );
    assert_eq!(job.facts.table(rocpd::REGION).rows, all.facts.table(rocpd::REGION).rows);
    assert_eq!(
        job.facts.table(rocpd::REGION).drawn + job.facts.table(rocpd::REGION).left_out,
        all.facts.table(rocpd::REGION).rows
    );
    let plain = TraceSelection { annotations: false, group_by_queue: true, ..TraceSelection::default() };
    let job = read(&path, &plain, None, PLENTY);
    assert!(job.items.iter().all(|item| item.args.is_empty()));
    assert!(job.items.iter().any(|item| item.track == "GPU 0/GPU 0 Queue 1"));
    assert!(!job.items.iter().any(|item| item.track.to_lowercase().contains("stream")));
}

#[test]
fn a_window_has_what_touches_it_and_the_counters_before() {
    let folder = tempfile::tempdir().unwrap();
    let Some(path) = real(folder.path()) else { return };
    let all = read(&path, &TraceSelection::default(), None, PLENTY);
    let mut starts: Vec<i64> = all.of("slice").map(|item| item.start).collect();
    starts.sort_unstable();
    let (from, to) = (starts[starts.len() / 3], starts[starts.len() / 2]);
    let job = read(&path, &TraceSelection::default(), Some((from, to)), PLENTY);
    let touches = |item: &Drawn| item.start < to && (item.kind == "counter" || item.end >= from);
    let mut expected: Vec<Drawn> = all.items.iter().filter(|item| touches(item)).cloned().collect();
    expected.sort_by(|one, other| one.partial_cmp(other).unwrap());
    let facts = job.facts.table(rocpd::REGION);
    assert_eq!(facts.drawn + facts.left_out, all.facts.table(rocpd::REGION).rows);
    assert!(facts.left_out > 0 && facts.drawn > 0);
    let found = job.sorted();
    let differ = found.iter().zip(&expected).find(|(one, other)| one != other);
    assert_eq!((found.len(), differ), (expected.len(), None));
}
