//! What a user reads.

use super::plain::PlainJob;
use super::*;

fn merged(job: &PlainJob, arguments: &[&str]) -> Merged {
    let folder = tempfile::tempdir().unwrap();
    let inputs = job.shards(&folder.path().join("in"), &|rank| Some(job.seen(rank)));
    merge(&folder.path().join("out.db"), arguments, &inputs)
}

#[test]
fn of_several_communicators_each_has_its_late_rank() {
    // A pipeline of two stages, each of three ranks on three of the nodes; nobody calls anything with all.
    let stages = |rank| if rank % 2 == 0 { "stage 0" } else { "stage 1" };
    let job = PlainJob { comm: stages, late: Some(4), ..PlainJob::new(6, 30, 100_000_000) };
    let merged = merged(&job, &[]);
    assert_eq!(merged.report["collectives"]["matched"], 2 * 299, "{}", merged.stderr);
    let late = &merged.report["late_ranks"][0];
    assert_eq!((&late["rank"], &late["last"], &late["collectives"]), (&4.into(), &299.into(), &299.into()));
    let share = late["waited_share"].as_f64().unwrap();
    assert!((0.4..0.8).contains(&share), "{share}");
    let line = "late       rank 4 on gpu004: others waited ";
    assert!(merged.stderr.contains(line), "{}", merged.stderr);
    assert!(merged.stderr.contains("last at 299 of its 299 collectives, "), "{}", merged.stderr);
    // The other stage has nobody who is late more often than by chance.
    let others = merged.report["late_ranks"].as_array().unwrap();
    assert!(others[1..].iter().all(|late| late["rank"].as_u64().unwrap() % 2 == 1), "{}", merged.stderr);
}

#[test]
fn without_collectives_clocks_go_by_probes_and_nobody_is_called_late() {
    let job = PlainJob::new(3, 20, 0);
    let merged = merged(&job, &[]);
    assert_eq!(merged.method("gpu002"), "probes");
    assert!(merged.stderr.contains("no collectives were recorded: which rank is late cannot be told"));
    assert_eq!(merged.report["late_ranks"], Value::Array(Vec::new()));
    assert_eq!(
        merged.stderr.matches("\nbar        times are off by no more than").count(),
        1,
        "{}",
        merged.stderr
    );
    let (bar, drift) =
        (merged.number("gpu001", "bar_ns"), merged.clock("gpu001")["drift_ppm"].as_f64().unwrap());
    assert!((1_000..10_000).contains(&bar));
    let words = format!("drift {drift:+.3} ppm, bar {:.1} us, certain to ", bar as f64 / 1e3);
    assert!(merged.stderr.contains(&words), "{words}: {}", merged.stderr);
    assert!(
        merged
            .stderr
            .contains("gpu000: reference, times unchanged; others are brought to its CLOCK_BOOTTIME\n")
    );
}

#[test]
fn what_was_asked_for_is_said_to_be_the_reason() {
    let job = PlainJob::new(2, 10, 500_000_000);
    let lines = [
        ("none", "gpu001: not aligned, as --align none says; times unchanged"),
        ("anchors", "bar 10 ms, by the REALTIME anchors, as exact as the nodes' NTP"),
    ];
    for (by, line) in lines {
        let merged = merged(&job, &["--align", by]);
        assert!(merged.stderr.contains(line), "{}", merged.stderr);
        assert_eq!(
            (&merged.report["align"], &merged.database.metadata()["rpd.clock.align"][0]),
            (&by.into(), &by.to_owned())
        );
    }
    let job = PlainJob::new(2, 10, 0);
    let merged = merged(&job, &["--align", "collectives"]);
    let line = "gpu001: no collectives reach it, or too few: not aligned, times unchanged and not comparable with others";
    assert!(merged.stderr.contains(line), "{}", merged.stderr);
}

#[test]
fn a_drawing_says_how_many_clocks_are_not_in_it() {
    let job = PlainJob::new(70, 12, 1_000_000_000);
    let folder = tempfile::tempdir().unwrap();
    let svg = folder.path().join("clocks.svg");
    let _ = merged(&job, &["--clock-plot", svg.to_str().unwrap()]);
    let drawn = fs::read_to_string(&svg).unwrap();
    assert!(drawn.contains("64 of 69 clocks") || drawn.contains("64 of 70 clocks"), "{}", &drawn[..2_000]);
}
