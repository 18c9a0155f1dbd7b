//! By how much a thread works longer than is typical, step by step: whether that is more than noise, and when.

/// Minimum mean excess in standard errors.
const MIN_STANDARD_ERRORS: f64 = 4.0;
/// A thread is slow in all steps if it is so in at least this share of them.
const MIN_STEADY_SHARE: f64 = 0.8;
/// At least this share of the steps of a stretch belongs to it, and of the others at most the rest.
const MIN_STRETCH_SHARE: f64 = 0.8;
/// Steps are of two kinds if the means of these are so many standard deviations apart: of the noise between neighbours,
/// which shows a change that lasts, or of the steps of each kind. Noise of one kind has 1.7 and 3.5.
const MIN_NOISE_APART: f64 = 3.0;
const MIN_DEVIATIONS_APART: f64 = 5.0;
/// Minimum number of steps of a stretch.
const MIN_STRETCH: usize = 5;
/// Minimum ratio of the correlation at the best distance of steps for a periodic excess.
const MIN_CORRELATION: f64 = 0.7;

/// The excess must be known in at least this share of the steps.
const MIN_KNOWN_STEPS: f64 = 0.5;

/// In which steps a thread works longer. Steps count from 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StepPattern {
    /// In nearly all.
    Steady,
    /// From one to another.
    Stretch {
        /// First step.
        from: u32,
        /// Last step.
        to: u32,
    },
    /// In every nth.
    Periodic {
        /// Distance of the steps.
        every: u32,
    },
    /// In some.
    Irregular,
}

impl StepPattern {
    /// Returns the pattern of steps of which each block holds several.
    pub(crate) fn of_blocks(self, steps_in_block: u32, steps: u32) -> StepPattern {
        match self {
            StepPattern::Stretch { from, to } => {
                let end = (to + 1).saturating_mul(steps_in_block).min(steps);
                StepPattern::Stretch { from: from.saturating_mul(steps_in_block), to: end.saturating_sub(1) }
            }
            // Within blocks, the distance is not seen.
            StepPattern::Periodic { .. } if steps_in_block > 1 => StepPattern::Irregular,
            pattern => pattern,
        }
    }
}

/// Excess of a thread in each step, ns.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct StepExcess {
    ns: Vec<i64>,
    /// Number of each of these steps: of some it is not known, because calls are missing in them.
    steps: Vec<u32>,
    /// Number of steps in all.
    all_steps: usize,
    lacks_calls: bool,
}

impl StepExcess {
    /// Returns the excess in these steps, without those in which calls are known to be missing.
    pub(crate) fn new(ns: impl IntoIterator<Item = Option<i64>>, lacks_calls: bool) -> StepExcess {
        let mut excess = StepExcess { ns: Vec::new(), steps: Vec::new(), all_steps: 0, lacks_calls };
        for (step, ns) in (0u32..).zip(ns) {
            excess.all_steps += 1;
            if let Some(ns) = ns {
                excess.ns.push(ns);
                excess.steps.push(step);
            }
        }
        excess
    }

    pub(crate) fn sum_ns(&self) -> i64 {
        self.ns.iter().fold(0, |sum, ns| sum.saturating_add(*ns))
    }

    /// Returns the mean of the steps, ns.
    pub(crate) fn mean(&self) -> f64 {
        self.sum_ns() as f64 / self.ns.len().max(1) as f64
    }

    /// Returns whether the excess is more than noise, and not that of some steps by chance. `typical` is the excess of a
    /// thread that is typical of the others.
    pub(crate) fn is_systematic(&self, typical: &StepExcess) -> bool {
        let mean = self.mean();
        let is_above_noise = mean > 0.0 && mean >= MIN_STANDARD_ERRORS * self.standard_error();
        // In a step of which calls are missing, waiting looks like work.
        is_above_noise
            && self.ns.len() as f64 >= self.all_steps as f64 * MIN_KNOWN_STEPS
            && (!self.lacks_calls || self.median() >= mean / 2.0)
            && (self.pattern() != StepPattern::Irregular
                || self.share_of_steps() >= 0.5
                || self.is_longer_than(typical))
    }

    /// Returns whether the mean excess is longer than that of another thread by more than chance. Where all threads are
    /// longer now and then, each has an excess over the typical work of a step.
    fn is_longer_than(&self, typical: &StepExcess) -> bool {
        let error = |excess: &StepExcess| excess.deviation() / (excess.ns.len().max(1) as f64).sqrt();
        self.mean() - typical.mean() >= MIN_STANDARD_ERRORS * error(self).hypot(error(typical))
    }

    /// Returns the standard deviation of the steps.
    fn deviation(&self) -> f64 {
        let mean = self.mean();
        let squares = self.ns.iter().map(|ns| (*ns as f64 - mean).powi(2));
        (squares.sum::<f64>() / self.ns.len().saturating_sub(1).max(1) as f64).sqrt()
    }

    /// Returns the standard error of the mean.
    fn standard_error(&self) -> f64 {
        self.noise() / (self.ns.len() as f64).sqrt()
    }

    /// Returns the standard deviation of the steps, from the differences of neighbours: a change that lasts is no
    /// noise.
    fn noise(&self) -> f64 {
        let pairs = self.ns.len().saturating_sub(1);
        if pairs == 0 {
            return f64::INFINITY;
        }
        let squares = self.ns.windows(2).map(|pair| pair[1] as f64 - pair[0] as f64).map(|step| step * step);
        (squares.sum::<f64>() / (2 * pairs) as f64).sqrt()
    }

    fn median(&self) -> f64 {
        let mut ns = self.ns.clone();
        let middle = ns.len().saturating_sub(1) / 2;
        if ns.is_empty() { 0.0 } else { *ns.select_nth_unstable(middle).1 as f64 }
    }

    /// Returns whether each step is one of those with an excess.
    fn is_long(&self) -> Vec<bool> {
        // The steps may fall into two kinds: the best limit is between their means.
        let (low, high) = (self.ns.iter().min().copied(), self.ns.iter().max().copied());
        let mut limit = low.zip(high).map_or(0.0, |(low, high)| (low as f64 + high as f64) / 2.0);
        let mean = |is_above: bool, limit: f64| {
            let of = self.ns.iter().map(|ns| *ns as f64).filter(|ns| (*ns > limit) == is_above);
            let (count, sum) = of.fold((0.0, 0.0), |(count, sum), ns| (count + 1.0, sum + ns));
            if count > 0.0 { sum / count } else { limit }
        };
        for _ in 0..8 {
            limit = f64::midpoint(mean(false, limit), mean(true, limit));
        }
        let means = [false, true].map(|is_above| mean(is_above, limit));
        let squares = self.ns.iter().map(|ns| *ns as f64 - means[usize::from(*ns as f64 > limit)]);
        let deviation = (squares.map(|off| off * off).sum::<f64>() / self.ns.len().max(1) as f64).sqrt();
        let distance = means[1] - means[0];
        let are_apart =
            distance >= MIN_NOISE_APART * self.noise() || distance >= MIN_DEVIATIONS_APART * deviation;
        // If the lower kind has much of the excess, a few steps have still more.
        let are_two = are_apart && means[0] < self.mean() / 2.0;
        // Otherwise, a step has an excess if its work is longer than is typical.
        let limit = if are_two { limit.max(0.0) } else { 0.0 };
        self.ns.iter().map(|ns| *ns as f64 > limit).collect()
    }

    /// Returns the share of the steps that have an excess.
    pub(crate) fn share_of_steps(&self) -> f64 {
        let long = self.is_long();
        long.iter().filter(|is_long| **is_long).count() as f64 / long.len().max(1) as f64
    }

    /// Returns in which steps the thread works longer.
    pub(crate) fn pattern(&self) -> StepPattern {
        if self.share_of_steps() >= MIN_STEADY_SHARE {
            return StepPattern::Steady;
        }
        if let Some((from, to)) = self.stretch() {
            return StepPattern::Stretch { from: from as u32, to: to as u32 };
        }
        match self.period() {
            Some(every) => StepPattern::Periodic { every: every as u32 },
            None => StepPattern::Irregular,
        }
    }

    /// Returns the stretch that has nearly all of the excess: the one with the largest sum over the mean.
    fn stretch(&self) -> Option<(usize, usize)> {
        let mean = self.mean();
        let (mut best, mut best_sum) = (None, 0.0);
        let (mut first, mut sum) = (0, 0.0);
        for (step, ns) in self.ns.iter().enumerate() {
            if sum <= 0.0 {
                (first, sum) = (step, 0.0);
            }
            sum += *ns as f64 - mean;
            if sum > best_sum {
                (best, best_sum) = (Some((first, step)), sum);
            }
        }
        let (from, to) = best?;
        let long = self.is_long();
        let count = |of: &mut dyn Iterator<Item = usize>| of.filter(|step| long[*step]).count() as f64;
        let inside = to - from + 1;
        let outside = long.len() - inside;
        let of_inside = count(&mut (from..=to)) / inside as f64;
        let of_outside = count(&mut (0..from).chain(to + 1..long.len())) / outside.max(1) as f64;
        let is_one =
            inside >= MIN_STRETCH && of_inside >= MIN_STRETCH_SHARE && of_outside <= 1.0 - MIN_STRETCH_SHARE;
        is_one.then(|| (self.steps[from] as usize, self.steps[to] as usize))
    }

    /// Returns the distance of the steps with an excess, if they have one.
    fn period(&self) -> Option<usize> {
        let long: Vec<f64> = self.is_long().into_iter().map(|is_long| f64::from(u8::from(is_long))).collect();
        let mean = long.iter().sum::<f64>() / long.len().max(1) as f64;
        let variance: f64 = long.iter().map(|value| (value - mean).powi(2)).sum();
        let correlation = |distance: usize| {
            let pairs = long.iter().zip(long.iter().skip(distance));
            let sum: f64 = pairs.map(|(one, other)| (one - mean) * (other - mean)).sum();
            sum / variance * long.len() as f64 / (long.len() - distance) as f64
        };
        // A period must be seen several times.
        (2..=long.len() / 4).find(|distance| correlation(*distance) >= MIN_CORRELATION)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn excess(of_step: impl Fn(i64) -> i64) -> StepExcess {
        // Noise of a known sequence, -50 to 50.
        let noise = |step: i64| (step * 7_919 + 13) * 104_729 % 101 - 50;
        StepExcess::new((0..80).map(|step| Some(of_step(step) + noise(step))), false)
    }

    /// The excess of a thread that works as is typical.
    fn none() -> StepExcess {
        excess(|_| 0)
    }

    #[test]
    fn patterns_are_recognised() {
        let of = |of_step: &dyn Fn(i64) -> i64| {
            let found = excess(of_step);
            (found.is_systematic(&none()), found.pattern())
        };
        assert_eq!(of(&|_| 500), (true, StepPattern::Steady));
        let stretch = StepPattern::Stretch { from: 20, to: 49 };
        assert_eq!(of(&|step| i64::from((20..50).contains(&step)) * 500), (true, stretch));
        let every = StepPattern::Periodic { every: 4 };
        assert_eq!(of(&|step| i64::from(step % 4 == 1) * 5_000).1, every);
        assert!(!of(&|_| 0).0);
    }

    #[test]
    fn a_stretch_of_blocks_is_one_of_their_steps() {
        let blocks = StepPattern::Stretch { from: 2, to: 4 };
        assert_eq!(blocks.of_blocks(10, 48), StepPattern::Stretch { from: 20, to: 47 });
        assert_eq!(blocks.of_blocks(1, 48), blocks);
        assert_eq!(StepPattern::Periodic { every: 3 }.of_blocks(2, 48), StepPattern::Irregular);
    }

    #[test]
    fn steps_that_are_not_known_keep_their_numbers() {
        let of = |unknown: std::ops::Range<i64>| {
            let ns = (0..80)
                .map(|step| (!unknown.contains(&step)).then_some(i64::from((40..70).contains(&step)) * 500));
            StepExcess::new(ns, true)
        };
        assert_eq!(of(10..30).pattern(), StepPattern::Stretch { from: 40, to: 69 });
        let excess = |unknown| StepExcess::new((0..80).map(|step| (step >= unknown).then_some(500)), true);
        assert_eq!([20, 41].map(|unknown| excess(unknown).is_systematic(&none())), [true, false]);
    }

    #[test]
    fn a_single_event_is_not_systematic() {
        assert!(!excess(|step| i64::from(step == 33) * 1_000_000).is_systematic(&none()));
    }

    #[test]
    fn an_excess_in_few_steps_counts_if_others_have_less_of_it() {
        // In which steps is a known sequence without a period.
        let in_steps = |share: i64, seed: i64| {
            excess(move |step| i64::from((step * step * 37 + seed * step * 11) % 101 < share) * 5_000)
        };
        let (often, seldom) = (in_steps(25, 0), in_steps(8, 0));
        assert_eq!((often.pattern(), often.share_of_steps() < 0.4), (StepPattern::Irregular, true));
        assert!(often.is_systematic(&none()));
        assert!(!often.is_systematic(&in_steps(25, 3)), "others have it as often");
        assert!(!seldom.is_systematic(&none()), "a few steps are chance");
    }

    #[test]
    fn steps_without_calls_do_not_make_a_rank_slow() {
        let ns = (0..80).map(|step| Some(if step % 8 < 2 { 5_000 } else { 0 }));
        assert!(!StepExcess::new(ns, true).is_systematic(&none()));
        assert!(StepExcess::new([Some(500); 80], true).is_systematic(&none()));
    }
}
