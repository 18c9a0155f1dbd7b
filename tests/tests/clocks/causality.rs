//! What looks as if it happened before its cause, and its repair.

use proptest::prelude::*;
use rpd_clocks::{AlignChoice, TimeMap, align};
use rpd_shard::model::LocalNs;
use rpd_tests::clocks::{ClockScenario, Job};

#[test]
fn good_maps_leave_nothing_in_the_wrong_order() {
    let job = Job::new(&ClockScenario::QUIET, 8, 120, 900);
    let fits = align(&job.observations, AlignChoice::Auto);
    let found = job.observations.causality(&fits);
    assert_eq!((found.violations, found.worst), (0, 0));
    assert!(found.checked > 500);
    // Without alignment nearly everything is.
    let found = job.observations.causality(&align(&job.observations, AlignChoice::None));
    assert!(found.violations > 200);
    assert_eq!(found.by_domain.iter().sum::<u64>(), found.violations);
}

#[test]
fn repair_moves_maps_within_their_bars_and_never_backwards() {
    let job = Job::new(&ClockScenario::QUIET, 6, 120, 901);
    let mut fits = align(&job.observations, AlignChoice::Auto);
    // Two maps are 40 us off, and know that they may be.
    for (domain, off) in [(2, 40_000), (4, -40_000)] {
        let fit = &mut fits[domain];
        let points = fit.map.bends().map(|b| (b.0, fit.map.map(b).ns() + off)).collect();
        fit.map = TimeMap::through(points);
        fit.bars.iter_mut().for_each(|bar| bar.bar = 50_000);
    }
    let before = fits.clone();
    let found = job.observations.causality(&fits);
    assert!(found.violations > 50, "{found:?}");
    let repaired = job.observations.repair_causality(&mut fits);
    let (left, moved) = (repaired.left, repaired.moved);
    assert!(left.violations * 10 <= found.violations, "{found:?} became {left:?}");
    assert!((20_000..=50_000).contains(&moved), "{moved}");
    for (before, after) in before.iter().zip(&fits) {
        let mut last = i64::MIN;
        let mut bends: Vec<i64> = after.map.bends().flat_map(|b| [b.0 - 1, b.0, b.0 + 1]).collect();
        bends.sort_unstable();
        for bend in bends {
            let (time, bound) = (LocalNs(bend), after.bar_at(LocalNs(bend)).unwrap());
            let (old, new) = (before.map.map(time).ns(), after.map.map(time).ns());
            assert!((old - new).abs() <= bound + 1, "moved by {} of {bound}", new - old);
            assert!(new >= last);
            last = new;
        }
    }
    assert!(fits[0].map.is_identity());
}

#[test]
fn a_bar_that_is_too_small_is_not_exceeded() {
    let job = Job::new(&ClockScenario::QUIET, 3, 60, 902);
    let mut fits = align(&job.observations, AlignChoice::Auto);
    let points = fits[1].map.bends().map(|b| (b.0, fits[1].map.map(b).ns() + 40_000)).collect();
    fits[1].map = TimeMap::through(points);
    let bars = fits.clone();
    let repaired = job.observations.repair_causality(&mut fits);
    let (left, moved) = (repaired.left, repaired.moved);
    assert!(left.violations > 0);
    let bounds = fits.iter().zip(&bars).flat_map(|(f, b)| f.map.bends().map(|at| b.bar_at(at).unwrap()));
    let bound = bounds.max().unwrap();
    assert!(moved <= bound, "{moved} of {bound}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, failure_persistence: None, ..ProptestConfig::default() })]

    /// Maps that are off by something, and by more or less at the end, but nowhere by more than their bars.
    #[test]
    fn what_was_planted_within_the_bars_vanishes(
        seed in 0_u64..1_000,
        bar in 20_000_i64..400_000,
        planted in proptest::collection::vec((-0.45..0.45_f64, -0.45..0.45_f64), 5),
    ) {
        let job = Job::new(&ClockScenario::QUIET, 6, 60, seed);
        let mut fits = align(&job.observations, AlignChoice::Auto);
        let mut right = fits.clone();
        let end = 60e9;
        for (fit, (always, more)) in fits.iter_mut().skip(1).zip(planted) {
            let start = fit.bars[0].local;
            let off = |local: i64| {
                let along = ((local - start) as f64 / end).clamp(0.0, 1.0);
                (bar as f64 * (always + more * along)) as i64
            };
            let points = fit.map.bends().map(|b| (b.0, fit.map.map(b).ns() + off(b.0))).collect();
            fit.map = TimeMap::through(points);
            fit.bars.iter_mut().for_each(|knot| knot.bar = bar);
        }
        right.iter_mut().zip(&fits).for_each(|(right, off)| right.bars.clone_from(&off.bars));
        let before = fits.clone();
        let found = job.observations.causality(&fits);
        let repaired = job.observations.repair_causality(&mut fits);
        let (left, out_of_reach, moved) = (repaired.left, repaired.out_of_reach, repaired.moved);
        prop_assert_eq!(out_of_reach, 0);
        prop_assert!(left.violations * 50 <= found.violations, "{:?} became {:?}", found, left);
        prop_assert!(moved > 0 || found.violations == 0);
        prop_assert!(fits[0].map.is_identity());
        for (before, after) in before.iter().zip(&fits).skip(1) {
            let bends = after.map.bends().chain(before.map.bends()).map(|b| b.0);
            let mut bends: Vec<i64> = bends.chain(after.bars.iter().map(|b| b.local)).collect();
            bends.sort_unstable();
            let mut last = i64::MIN;
            for time in bends.into_iter().map(LocalNs) {
                let (old, new) = (before.map.map(time).ns(), after.map.map(time).ns());
                let bound = after.bar_at(time).unwrap();
                prop_assert!((old - new).abs() <= bound + 1, "moved by {} of {}", new - old, bound);
                prop_assert!(new >= last);
                last = new;
            }
        }
        // What was in order stays so.
        prop_assert_eq!(job.observations.causality(&right).violations, 0);
    }
}

#[test]
fn what_is_further_apart_than_the_bars_is_told() {
    let job = Job::new(&ClockScenario::QUIET, 4, 60, 903);
    let mut fits = align(&job.observations, AlignChoice::Auto);
    let points = fits[1].map.bends().map(|b| (b.0, fits[1].map.map(b).ns() + 5_000_000)).collect();
    fits[1].map = TimeMap::through(points);
    let found = job.observations.causality(&fits);
    let repaired = job.observations.repair_causality(&mut fits);
    let (left, out_of_reach) = (repaired.left, repaired.out_of_reach);
    assert!(out_of_reach > 20 && out_of_reach <= left.violations, "{out_of_reach} of {left:?}");
    assert!(left.violations <= found.violations);
}
