//! Clocks that run at different rates.

use super::truth::offsets;
use rpd_tests::cluster::{SlurmCluster, StepLauncher};
use std::time::Duration;

/// Of 20 ms. The rate of a clock is known the better the longer it was watched.
fn steps() -> usize {
    if std::env::var("RPD_SOAK").is_ok_and(|value| value == "1") { 6_000 } else { 1_000 }
}

/// The clocks of collector and program go 100 ppm too fast; both count from one start.
const FAST: &str = "case $SLURM_PROCID in
  2) exec faketime -f '+0 x1.0001' \"$@\" ;;
  *) exec \"$@\" ;;
esac";

#[test]
fn a_clock_that_is_100_ppm_fast_is_found_to_1_ppm_under_slurm() {
    let Some(cluster) = SlurmCluster::new(&[0, 1_500, 777_777], "a node with a fast clock") else { return };
    if cluster.on("n2").args(["faketime", "-f", "+0 x1.0001", "true"]).run().code() != Some(0) {
        return rpd_tests::harness::skip("a node with a fast clock", "faketime is not here");
    }
    let training = cluster.training(steps());
    let training: Vec<&str> = training.iter().map(String::as_str).collect();
    let run = cluster.collect(StepLauncher::Srun, FAST, &[], &training);
    assert_eq!(run.outcome.code(), Some(0), "{}", run.outcome);
    let merged = run.merge("fast", &["--strict"]);
    let offsets = offsets(&cluster, &merged, 0);
    // What its clocks show has nothing to do with those of the node any more, but for the rate.
    let [even, fast] = &offsets[..] else { panic!("{offsets:?}") };
    assert!((fast.drift - 100.0).abs() < 1.0, "{fast:?}");
    assert!(even.drift.abs() < 1.0 && even.error.abs() < 100_000, "{even:?}");
    assert!(even.error.abs() <= even.hard.unwrap(), "{even:?}");
    assert!(run.outcome.took > Duration::from_secs(10), "{}", run.outcome);
}
