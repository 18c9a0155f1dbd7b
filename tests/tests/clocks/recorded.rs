//! Runs of real collectors on emulated nodes, recorded with the programs' receive times.

use rpd_clocks::AlignChoice;
use rpd_tests::clocks::{JudgedClock, RecordedRun, judge};
use rpd_tests::fixtures;
use rpd_tests::harness::skip;

/// The median of all bounds, ns.
fn median_bound(clocks: &[JudgedClock]) -> i64 {
    let mut bounds: Vec<i64> = clocks.iter().flat_map(|clock| clock.bounds.clone()).collect();
    bounds.sort_unstable();
    bounds[bounds.len() / 2]
}

#[test]
fn bounds_of_recorded_runs_hold_on_idle_and_on_busy_nodes() {
    let folder = tempfile::tempdir().unwrap();
    let runs = fixtures::clock_runs(folder.path());
    if runs.is_empty() {
        return skip("bounds of recorded runs", "no recorded runs are here");
    }
    let judged = |load: &str, by: AlignChoice| -> Vec<JudgedClock> {
        let of_load = runs.iter().filter(|(name, _)| name.starts_with(load));
        of_load.flat_map(|(_, run)| judge(&RecordedRun::open(run).unwrap(), by)).collect()
    };
    for by in [AlignChoice::Auto, AlignChoice::Probes] {
        let (idle, busy) = (judged("idle", by), judged("busy", by));
        assert_eq!((idle.len(), busy.len()), (13, 43));
        let covered = |clocks: &[JudgedClock]| clocks.iter().filter(|clock| clock.is_covered()).count();
        assert_eq!(covered(&idle), 13, "{by:?}");
        assert!(covered(&busy) >= 41, "{by:?}: {} of 43", covered(&busy));
        let (of_idle, of_busy) = (median_bound(&idle), median_bound(&busy));
        assert!(of_idle <= 1_500 && of_busy <= 3_000, "{by:?}: {of_idle} and {of_busy} ns");
        for clock in idle.iter().chain(&busy) {
            assert_eq!((clock.jumps, clock.broken), (0, 0), "{by:?}");
        }
    }
}
