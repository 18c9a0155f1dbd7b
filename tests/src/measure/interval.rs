//! Means and proportions, and how far they may be off.

use std::fmt;

/// A mean with its 95 % interval, by Student's t.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct RatioInterval {
    /// The mean.
    pub mean: f64,
    /// Half the width of the interval; infinite for fewer than two values.
    pub half_width: f64,
}

impl RatioInterval {
    /// Of independent values.
    pub fn of(values: impl Iterator<Item = f64>) -> RatioInterval {
        let values: Vec<f64> = values.collect();
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        let freedom = count - 1.0;
        let half_width = match values.len() {
            0 | 1 => f64::INFINITY,
            _ => quantile(freedom) * (squares / freedom / count).sqrt(),
        };
        RatioInterval { mean, half_width }
    }
}

/// The 97.5 % quantile of Student's t, off by less than 1 % from 4 degrees of freedom on: the series of Cornish and
/// Fisher around the quantile of the normal distribution.
fn quantile(freedom: f64) -> f64 {
    1.960 + 2.372 / freedom + 2.822 / freedom.powi(2) + 2.556 / freedom.powi(3)
}

impl fmt::Display for RatioInterval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.3} [{:.3}, {:.3}]", self.mean, self.mean - self.half_width, self.mean + self.half_width)
    }
}

/// The 95 % interval of a proportion, by Wilson.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ProportionInterval {
    /// Its lower end, 0 to 1.
    pub low: f64,
    /// Its upper end.
    pub high: f64,
}

impl ProportionInterval {
    /// Of so many successes in independent trials.
    pub fn of(successes: usize, trials: usize) -> ProportionInterval {
        const Z: f64 = 1.96;
        if trials == 0 {
            return ProportionInterval { low: 0.0, high: 1.0 };
        }
        let count = trials as f64;
        let share = successes as f64 / count;
        let center = share + Z * Z / (2.0 * count);
        let half_width = Z * (share * (1.0 - share) / count + Z * Z / (4.0 * count * count)).sqrt();
        let scale = 1.0 + Z * Z / count;
        ProportionInterval {
            low: ((center - half_width) / scale).max(0.0),
            high: ((center + half_width) / scale).min(1.0),
        }
    }
}

impl fmt::Display for ProportionInterval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{:.0} %, {:.0} %]", self.low * 100.0, self.high * 100.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_the_tables() {
        for (freedom, table) in [(4.0, 2.776), (9.0, 2.262), (14.0, 2.145), (29.0, 2.045), (59.0, 2.001)] {
            assert!((quantile(freedom) / table - 1.0).abs() < 0.01, "{freedom}: {}", quantile(freedom));
        }
    }

    #[test]
    fn an_interval_is_that_of_the_textbook() {
        let interval = RatioInterval::of([1.0, 2.0, 3.0, 4.0, 5.0].into_iter());
        assert_eq!(interval.to_string(), "3.000 [1.042, 4.958]");
        assert!(RatioInterval::of([1.0].into_iter()).half_width.is_infinite());
    }

    #[test]
    fn an_interval_of_a_proportion_is_that_of_the_textbook() {
        let shown = |successes, trials| ProportionInterval::of(successes, trials).to_string();
        assert_eq!(shown(5, 5), "[57 %, 100 %]");
        assert_eq!(shown(0, 240), "[0 %, 2 %]");
        assert_eq!(shown(5, 10), "[24 %, 76 %]");
        assert_eq!(shown(0, 0), "[0 %, 100 %]");
    }
}
