//! Sampled Python stacks: each sample has the label of the work in which it is, and none is in a call.

use crate::small_run::SmallRun;
use rpd_calls::{CallFile, CallLabel, ReadOptions, RunCalls};
use std::collections::BTreeMap;

const STEPS: i64 = 30;
/// Ranges and calls of a step, from its start.
const STEP: (i64, i64) = (0, 95);
const UPDATE: (i64, i64) = (20, 60);
const CALLS: [(&str, (i64, i64)); 3] =
    [("MPI_Barrier", (5, 15)), ("MPI_Allreduce", (40, 50)), ("MPI_Bcast", (80, 90))];

fn stack(line: i64) -> String {
    format!(
        r#"{{"frames":[{{"name":"f","file":"/app/a.py","line":{line}}},{{"name":"main","file":"/app/m.py","line":1}}]}}"#
    )
}

/// A run in which each rank is sampled at each time that is a multiple of 3, the last one with a loader beside it.
fn sampled_run() -> SmallRun {
    let mut run = SmallRun::new();
    for rank in 0..2 {
        let thread = run.rank(rank, 2);
        for step in 0..STEPS {
            let at = |(from, to): (i64, i64)| (100 + step * 100 + from, 100 + step * 100 + to);
            run.range(thread, at(STEP), "step");
            run.range(thread, at(UPDATE), "update");
            for (number, (name, span)) in (1i64..).zip(CALLS) {
                let seq = (step * 3 + number).to_string();
                run.call(thread, at(span), name, &[("comm", "MPI_COMM_WORLD"), ("seq", &seq), ("root", "0")]);
            }
        }
        // Threads of the other rank have numbers of their own.
        let loader = (rank == 1).then(|| run.thread());
        let first = loader.unwrap_or(thread);
        run.python_sample(first, -1, &stack(6), r#"{"rpd":{"period_ms":10.1}}"#);
        for time in (0..100 + STEPS * 100).step_by(3) {
            let extdata = if time == 1500 { r#"{"rpd":{"period_ms":20.2}}"# } else { "{}" };
            run.python_sample(thread, time, &stack(time % 7), extdata);
            if let Some(loader) = loader {
                run.python_sample(loader, time, &stack(99), "{}");
            }
        }
    }
    run.finish();
    run
}

/// Returns the label of the work at a time, if it is a range.
fn range_at(time: i64) -> Option<&'static str> {
    let in_step = (time - 100).rem_euclid(100);
    let within = |(from, to): (i64, i64)| (from..to).contains(&in_step);
    let is_free = time >= 100 && CALLS.iter().all(|(_, span)| !within(*span));
    match (within(UPDATE), within(STEP)) {
        (true, _) => Some("update"),
        (_, true) => Some("step"),
        _ => None,
    }
    .filter(|_| is_free)
}

#[test]
fn samples_have_the_label_of_their_work_in_rows_and_in_the_file_of_calls() {
    let run = sampled_run();
    let opened = run.open();
    let calls = RunCalls::read(&opened, &ReadOptions::default()).unwrap();
    assert_eq!(calls.python.samples.len(), 2, "the loader has no calls");
    for samples in &calls.python.samples {
        let mut found: BTreeMap<&str, Vec<i64>> = BTreeMap::new();
        for sample in samples {
            if let CallLabel::Range(name) = &calls.labels[sample.label as usize] {
                found.entry(name).or_default().push(sample.time_ns);
            }
            let frames: Vec<(String, u32)> = calls
                .python
                .stacks
                .frames(sample.stack)
                .map(|frame| {
                    let function = calls.python.stacks.function(frame.function).unwrap();
                    (format!("{} {}", function.name, function.file), frame.line)
                })
                .collect();
            let line = (sample.time_ns % 7) as u32;
            assert_eq!(frames, [("f /app/a.py".to_owned(), line), ("main /app/m.py".to_owned(), 1)]);
            assert_eq!(sample.weight, if sample.time_ns < 1500 { 10.1 } else { 20.2 });
        }
        for name in ["step", "update"] {
            let expected: Vec<i64> = (0..100 + STEPS * 100).step_by(3).collect();
            let expected: Vec<i64> =
                expected.into_iter().filter(|time| range_at(*time) == Some(name)).collect();
            assert_eq!(found.get(name), Some(&expected), "{name}");
        }
    }
    let place = CallFile::place(&run.path());
    CallFile::write(&place, &opened, 1).unwrap();
    let file = CallFile::open(&place, &opened).unwrap().unwrap();
    assert_eq!(RunCalls::from_file(&opened, &file).unwrap(), calls);

    let window = ReadOptions { window_ns: Some((500, 1000)), ..ReadOptions::default() };
    let part = RunCalls::read(&opened, &window).unwrap();
    for samples in &part.python.samples {
        let times: Vec<i64> = samples.iter().map(|sample| sample.time_ns).collect();
        assert!(times.len() > 50 && times.iter().all(|time| (500..1000).contains(time)), "{times:?}");
    }
}
