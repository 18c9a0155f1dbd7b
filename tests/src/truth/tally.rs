//! Sums over many answers, with intervals.

use super::trial::{AnswerVerdict, JudgedAnswer};

/// Half width of a 95 % interval of a normal distribution.
const Z: f64 = 1.96;

/// Returns the Wilson interval of a share at 95 %.
pub fn wilson_interval(successes: u64, trials: u64) -> (f64, f64) {
    if trials == 0 {
        return (0.0, 1.0);
    }
    let (n, share) = (trials as f64, successes as f64 / trials as f64);
    let middle = share + Z * Z / (2.0 * n);
    let half = Z * (share * (1.0 - share) / n + Z * Z / (4.0 * n * n)).sqrt();
    let scale = 1.0 + Z * Z / n;
    (((middle - half) / scale).max(0.0), ((middle + half) / scale).min(1.0))
}

/// Counts of answers.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct AnswerTally {
    /// Answers by [`AnswerVerdict::ALL`].
    pub verdicts: [u64; AnswerVerdict::ALL.len()],
    /// Answers that name the right range, of those that name one.
    pub ranges: (u64, u64),
    /// Answers with the right pattern, of those that name something.
    pub patterns: (u64, u64),
    /// Answers with an interval that contains the true gain, of those that state one.
    pub covered: (u64, u64),
    /// Errors of stated gains as shares of the run.
    pub gain_errors: Vec<f64>,
}

impl AnswerTally {
    /// Adds an answer.
    pub fn add(&mut self, answer: &JudgedAnswer) {
        let count = |(yes, all): &mut (u64, u64), found: Option<bool>| {
            *yes += u64::from(found == Some(true));
            *all += u64::from(found.is_some());
        };
        for (number, verdict) in self.verdicts.iter_mut().zip(AnswerVerdict::ALL) {
            *number += u64::from(verdict == answer.verdict);
        }
        count(&mut self.ranges, answer.has_range);
        count(&mut self.patterns, answer.has_pattern);
        count(&mut self.covered, answer.covers_gain());
        self.gain_errors.extend(answer.gain_error());
    }

    /// Returns the number of answers.
    pub fn answers(&self) -> u64 {
        self.verdicts.iter().sum()
    }

    /// Returns the number of answers of a kind.
    pub fn count(&self, verdict: AnswerVerdict) -> u64 {
        let found = AnswerVerdict::ALL.iter().zip(self.verdicts).find(|(of, _)| **of == verdict);
        found.map_or(0, |(_, count)| count)
    }

    /// Returns the error of the gain that this share of the answers does not exceed, as a share of the run.
    pub fn gain_error_at(&self, share: f64) -> Option<f64> {
        let mut errors = self.gain_errors.clone();
        errors.sort_by(f64::total_cmp);
        let place = ((errors.len().saturating_sub(1)) as f64 * share).ceil() as usize;
        errors.get(place).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_of_no_failures_ends_at_one() {
        let (low, high) = wilson_interval(20, 20);
        assert!((low - 0.839).abs() < 0.001 && high > 0.999, "{low} {high}");
        let (low, high) = wilson_interval(0, 240);
        assert!(low < 1e-9 && (high - 0.0157).abs() < 0.0005, "{low} {high}");
    }
}
