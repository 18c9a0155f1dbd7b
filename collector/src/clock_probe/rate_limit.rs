//! Limits how often something is done.

use std::time::Instant;

/// Refills at a constant rate, up to the amount of one second.
#[derive(Debug)]
pub(super) struct RateLimit {
    per_second: f64,
    left: f64,
    filled: Instant,
}

impl RateLimit {
    pub(super) fn new(per_second: u32, now: Instant) -> RateLimit {
        let per_second = f64::from(per_second.max(1));
        RateLimit { per_second, left: per_second, filled: now }
    }

    /// Takes one unit. Returns `false` if there is none.
    pub(super) fn take(&mut self, now: Instant) -> bool {
        self.fill(now);
        let there = self.left >= 1.0;
        if there {
            self.left -= 1.0;
        }
        there
    }

    /// Whether no unit is left.
    pub(super) fn is_empty(&mut self, now: Instant) -> bool {
        self.fill(now);
        self.left < 1.0
    }

    fn fill(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.filled).as_secs_f64();
        self.left = (self.left + passed * self.per_second).min(self.per_second);
        self.filled = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_second_s_worth_at_once_and_the_rate_from_then_on() {
        let start = Instant::now();
        let mut bucket = RateLimit::new(100, start);
        assert_eq!((0..1000).filter(|_| bucket.take(start)).count(), 100);
        assert!(bucket.is_empty(start));
        let taken = (0..10_000).filter(|i| bucket.take(start + Duration::from_micros(i * 100))).count();
        assert!((99..=100).contains(&taken), "{taken} in a second");
        assert_eq!((0..1000).filter(|_| bucket.take(start + Duration::from_secs(60))).count(), 100);
    }
}
