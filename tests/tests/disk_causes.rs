//! A real program with a rank whose reads are slow.

use rpd_tests::harness::{Job, binary, skip};
use rpd_tests::truth_real::{
    Answer, CAUSE_SCENARIOS, Recorder, SlowDisk, check_database, judge, report_findings,
};
use serde_json::{Value as Json, json};

/// Largest difference between the reported and the true gain, as a share of the true one.
const MAX_GAIN_ERROR: f64 = 0.15;

#[test]
fn alone_a_rank_with_slow_reads_has_them_as_the_cause() {
    const WHAT: &str = "slow reads of real programs";
    let folder = tempfile::tempdir().unwrap();
    let Some(recorder) = Recorder::of_causes(folder.path(), WHAT) else { return };
    if SlowDisk::make(folder.path()).is_none() {
        return skip(WHAT, "no cgroup makes reads slow here");
    }
    let scenario = CAUSE_SCENARIOS.iter().find(|scenario| scenario.name == "slow-reads").unwrap();
    let proportions = scenario.proportions().unwrap();
    let recording = recorder.record(scenario, &proportions, 1, &folder.path().join("recording")).unwrap();
    check_database(&recording).unwrap();
    let truth = &recording.truth;
    let judged = judge(&report_findings(&recording.database).unwrap().unwrap(), truth);
    let report = |form: &str, input: &std::path::Path| {
        let job = Job::new(binary("rpd-report")).args(["--quiet", "--format", form]).arg(input);
        job.run().success().stdout
    };
    let text = report("text", &recording.database).split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(judged.answer, Answer::Right, "{text}");
    let gain_error = judged.gain_error.unwrap() * truth.length_ns as f64 / truth.gain_ns as f64;
    assert!(gain_error.abs() < MAX_GAIN_ERROR, "{gain_error}: {text}");
    let named = "cause time in uninterruptible waits, as for a disk or file system: its thread with calls was in such waits for ";
    assert!(text.contains(named), "{text}");
    let found: Json = serde_json::from_str(&report("json", &recording.database)).unwrap();
    let cause = &found["findings"][0]["cause"];
    assert_eq!(cause["excluded"], json!(["cpu_wait", "more_work"]), "{text}");
    // The program measured its delays; this is their share of the steps.
    let steps = recording.logs[1].ranges.iter().filter(|range| range.range == "step");
    let expected =
        truth.planted_by_rank_ns[1] as f64 / steps.map(|step| step.length_ns()).sum::<i64>() as f64;
    let share = |key: &str| cause["disk_wait"][key].as_f64().unwrap();
    let difference = (share("share") - expected).abs();
    assert!(difference < share("share_error") + 0.05, "{difference} beside {expected}: {text}");
    assert!(share("share_error") < 0.2 && share("typical_share") < 0.2, "{cause}");
    // Each rank reads 4 MiB in a step, past the cache.
    let steps = recording.logs[1].ranges.iter().filter(|range| range.range == "step");
    let length_s = steps.map(|step| step.length_ns()).sum::<i64>() as f64 / 1e9;
    let per_s = f64::from(proportions.steps) * 4_194_304.0 / length_s;
    for rate in ["fetched_bytes_per_s", "typical_fetched_bytes_per_s"].map(share) {
        assert!((rate / per_s - 1.0).abs() < 0.1, "{rate} beside {per_s}: {text}");
    }
    let shards: Json = serde_json::from_str(&report("json", &recording.run)).unwrap();
    assert_eq!(shards["findings"], found["findings"], "of the shards");
}
