//! Which rank delays the GPUs of a job, on the real step of a trace of the PyTorch profiler that four ranks repeat.

use rpd_tests::fixtures;
use rpd_tests::harness::{Job, binary, repository, skip};
use serde_json::{Value as Json, json};
use std::path::{Path, PathBuf};

/// The rank with the fault.
const SLOW: u64 = 2;
/// Largest error of a gain, as a share of the run.
const MAX_GAIN_ERROR: f64 = 0.01;

/// Makes the traces of a job with a fault, and reports on them.
fn reported(trace: &Path, fault: &str, folder: &Path) -> Json {
    let script = repository().join("tests/kineto/repeat_step.py");
    let traces = folder.join(fault);
    let make = Job::new("python3").arg(script).arg(trace).args([fault, &SLOW.to_string()]).arg(&traces);
    let _ = make.run().success();
    let job = Job::new(binary("rpd-report")).args(["--quiet", "--format", "json"]).arg(&traces);
    serde_json::from_str(&job.run().success().stdout).unwrap()
}

/// A trace of one real step on a GPU, if the real traces are there.
fn real_step(folder: &Path) -> Option<PathBuf> {
    let traces = fixtures::kineto_real(&folder.join("real"));
    traces.into_iter().find(|trace| trace.to_string_lossy().contains("mi300_bert"))
}

#[test]
fn the_rank_that_delays_all_gpus_is_named_in_repeated_real_steps() {
    let folder = tempfile::tempdir().unwrap();
    let Some(trace) = real_step(folder.path()) else {
        return skip("delays of GPUs", "the recorded traces are not here");
    };
    let sound = reported(&trace, "none", folder.path());
    assert_eq!((&sound["verdict"], &sound["findings"]), (&json!("balanced"), &json!([])), "{sound}");
    let length = sound["run"]["length_ns"].as_f64().unwrap();
    for (fault, kind, name) in [("launches", "range", "load batch"), ("kernels", "gpu_work", "attn_fwd")] {
        let report = reported(&trace, fault, folder.path());
        assert_eq!(report["verdict"], "slow", "{}", report["headline"]);
        let finding = &report["findings"][0];
        assert_eq!(finding["subject"]["ranks"], json!([SLOW]), "{finding}");
        assert_eq!((&finding["label"]["kind"], &finding["label"]["name"]), (&json!(kind), &json!(name)));
        // Without the fault the run is as long as the sound one, but for chance in the loading.
        let slow_length = report["run"]["length_ns"].as_f64().unwrap();
        let error = (finding["gain"]["ns"].as_f64().unwrap() - (slow_length - length)).abs() / slow_length;
        assert!(error < MAX_GAIN_ERROR, "{fault}: the gain is off by {error:.3} of the run: {finding}");
    }
}
