//! Why work takes longer, in runs of which it is known: more ranges, more kernels, a slower GPU.

use crate::python_causes::{finding_of_all_forms, screen};
use rpd_tests::truth::{
    GpuFault, Scenario, ScenarioKind, ScenarioSize, write_scenario, write_scenario_without_clocks,
};
use serde_json::{Value as Json, json};

/// The rank with the excess.
const SLOW_RANK: u32 = 2;

fn scenario(kind: ScenarioKind, (ranks, steps): (u32, u32)) -> Scenario {
    Scenario::sized(kind, ScenarioSize { ranks, steps, subject: SLOW_RANK, ..ScenarioSize::drawn(kind, 3) })
}

#[test]
fn more_work_and_slow_gpus_have_the_same_evidence_in_each_form_of_a_run() {
    let gpu = ScenarioKind::Gpu;
    for (kind, key) in [(ScenarioKind::MoreRows, "more_work"), (gpu(GpuFault::LowClock), "gpu_clock")] {
        let folder = tempfile::tempdir().unwrap();
        let run = write_scenario(&scenario(kind, (4, 60)), &[], folder.path()).unwrap();
        let finding = finding_of_all_forms(&run);
        let cause = &finding["cause"];
        assert_eq!((&cause["kind"], &cause["is_certain"]), (&json!(key), &json!(true)), "{cause}");
        let evidence = &cause[key];
        let near = |found: &Json, truth: f64| (found.as_f64().unwrap() / truth - 1.0).abs() < 0.01;
        match key {
            "more_work" => {
                assert!(near(&evidence["count"], 21.0) && near(&evidence["typical_count"], 20.0), "{cause}");
            }
            _ => {
                let slowness = 100.0 / 95.0;
                assert!(near(&evidence["ratio"], slowness), "{cause}");
                assert!(near(&evidence["clock_mhz"], 2100.0 / slowness), "{cause}");
                assert!(near(&evidence["typical_clock_mhz"], 2100.0), "{cause}");
            }
        }
    }
}

#[test]
fn a_slow_gpu_without_clocks_is_named_with_what_would_record_them() {
    let folder = tempfile::tempdir().unwrap();
    let kind = ScenarioKind::Gpu(GpuFault::LowClock);
    let run = write_scenario_without_clocks(&scenario(kind, (4, 60)), folder.path()).unwrap();
    let text = screen(&run);
    for part in [
        "cause a slower GPU is likely: its kernels take 10",
        " % of the time of those of other GPUs (median, weighted by work); this explains ",
        "; its clock is not recorded for most steps (rpd-collect --trace system)",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn equal_numbers_of_ranges_exclude_more_of_them() {
    let folder = tempfile::tempdir().unwrap();
    let run = write_scenario(&scenario(ScenarioKind::Displaced, (4, 60)), &[], folder.path()).unwrap();
    let text = screen(&run);
    let part = "a larger number of ranges or kernels (it has range \"setup\" once a step, as other ranks)";
    assert!(text.contains(part), "{text}");
}
