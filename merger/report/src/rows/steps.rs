//! Times of the steps of each process.

use std::collections::BTreeMap;

/// Ranges that mark steps, by process.
#[derive(Debug, Default)]
pub(super) struct StepTimes {
    steps: BTreeMap<u32, Vec<(i64, i64)>>,
}

impl StepTimes {
    pub(super) fn add(&mut self, process: u32, start: i64, end: i64) {
        self.steps.entry(process).or_default().push((start, end));
    }

    /// Joins overlapping ranges, after all are added.
    pub(super) fn sort(&mut self) {
        for steps in self.steps.values_mut() {
            steps.sort_unstable();
            let mut latest = i64::MIN;
            for (_, end) in steps.iter_mut() {
                latest = latest.max(*end);
                *end = latest;
            }
        }
    }

    /// Returns whether a time is within a step of the process.
    pub(super) fn contain(&self, process: u32, time: i64) -> bool {
        let Some(steps) = self.steps.get(&process) else { return false };
        let before = steps.partition_point(|(start, _)| *start <= time);
        before.checked_sub(1).and_then(|place| steps.get(place)).is_some_and(|(_, end)| time < *end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_between_steps_are_in_none() {
        let mut steps = StepTimes::default();
        [(50, 60), (10, 40), (15, 20)].into_iter().for_each(|(start, end)| steps.add(1, start, end));
        steps.sort();
        let within: Vec<i64> = (0..70).step_by(5).filter(|time| steps.contain(1, *time)).collect();
        assert_eq!(within, [10, 15, 20, 25, 30, 35, 50, 55]);
        assert!(!steps.contain(0, 15));
    }
}
