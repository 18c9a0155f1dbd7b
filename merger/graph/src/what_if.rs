//! What the job would gain with less work: its length in scenarios, less that in the replay of the recorded durations.

use crate::scenarios::{DurationScenario, ScenarioReplays, ScenarioTimes, SelectedWork};
use crate::usual_noise::UsualNoise;

/// Half width of a 95 % interval, in standard errors.
pub(crate) const STANDARD_ERRORS: f64 = 1.96;

/// What the job would gain if some of its work took as long as is typical.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct WhatIfGain {
    /// Time by which the job would be shorter, ns.
    pub ns: i64,
    /// Half width of the 95 % interval of `ns`, ns.
    pub error_bound_ns: i64,
}

/// Compares scenarios with the replay of the recorded durations.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WhatIf<'a> {
    pub(crate) scenarios: ScenarioReplays<'a>,
    /// Times of the replay with the recorded durations.
    pub(crate) recorded: &'a ScenarioTimes,
    /// Length of the recorded run less that of the replay, ns.
    pub(crate) off_ns: i64,
}

impl WhatIf<'_> {
    /// Returns the gain if the selected work takes at most as long as is typical.
    pub(crate) fn gain(&self, selected: SelectedWork) -> WhatIfGain {
        let replayed = self.scenarios.replay(vec![DurationScenario::TypicalWork(selected)]);
        replayed.first().map_or(WhatIfGain::default(), |replayed| self.gain_over(self.recorded, replayed))
    }

    /// Returns the gain of each group of timelines if all its work in the steps takes at most as long as is typical, where
    /// that of the timelines `before` does so already.
    pub(crate) fn gains_of_groups(&self, groups: &[Vec<u32>], before: &[u32]) -> Vec<WhatIfGain> {
        let some = groups.iter().filter(|group| !group.is_empty()).map(|group| [before, &group[..]].concat());
        let first = (!before.is_empty()).then(|| before.to_vec());
        let selected = first.into_iter().chain(some);
        let scenario =
            |timelines: Vec<u32>| DurationScenario::TypicalWork(self.scenarios.work_in_steps(&timelines));
        let replayed = self.scenarios.replay(selected.map(scenario).collect());
        let (without, with) = match (before, &replayed[..]) {
            ([_, ..], [without, with @ ..]) => (without, with),
            (_, with) => (self.recorded, with),
        };
        let mut with = with.iter();
        let mut gain = |group: &Vec<u32>| match group.is_empty() {
            true => WhatIfGain::default(),
            false => with.next().map_or(WhatIfGain::default(), |with| self.gain_over(without, with)),
        };
        groups.iter().map(&mut gain).collect()
    }

    /// Returns the gain of one group of timelines, where that of those `before` is typical already, if typical work differs by
    /// chance from step to step as that of usual threads does.
    pub(crate) fn gain_with_noise(&self, timelines: &[u32], before: &[u32], noise: UsualNoise) -> WhatIfGain {
        let all = self.scenarios.work_in_steps(before.iter().chain(timelines)).with_noise(noise.clone());
        if before.is_empty() {
            return self.gain(all);
        }
        let without = self.scenarios.work_in_steps(before).with_noise(noise);
        match &self.scenarios.replay([all, without].map(DurationScenario::TypicalWork).into())[..] {
            [all, without] => self.gain_over(without, all),
            _ => WhatIfGain::default(),
        }
    }

    /// Returns the gain of one group of timelines, as [`WhatIf::gains_of_groups`].
    pub(crate) fn gain_of_timelines(&self, timelines: &[u32], before: &[u32]) -> WhatIfGain {
        self.gains_of_groups(&[timelines.to_vec()], before).first().copied().unwrap_or_default()
    }

    /// Returns the gain of a scenario over another.
    pub(crate) fn gain_over(&self, before: &ScenarioTimes, after: &ScenarioTimes) -> WhatIfGain {
        let ns = before.length_ns - after.length_ns;
        let steps = before.step_lengths.iter().zip(&after.step_lengths);
        let gains: Vec<f64> = steps.map(|(before, after)| before - after).collect();
        let spread = STANDARD_ERRORS * standard_error_of_sum(&gains);
        // A replay that is off by some share of the run is taken to be off by the same share of the gain.
        let share = (ns as f64 / self.recorded.length_ns.max(1) as f64).abs();
        let off = self.off_ns.unsigned_abs() as f64 * share;
        WhatIfGain { ns, error_bound_ns: (spread + off).round() as i64 }
    }
}

/// Returns the standard error of the sum of values, from the differences of neighbours: a value that changes slowly
/// from step to step has a small error.
fn standard_error_of_sum(values: &[f64]) -> f64 {
    let differences = values.windows(2).map(|pair| (pair[1] - pair[0]).powi(2));
    let pairs = values.len().saturating_sub(1);
    if pairs == 0 {
        return 0.0;
    }
    let variance = differences.sum::<f64>() / (2 * pairs) as f64;
    (variance * values.len() as f64).sqrt()
}
