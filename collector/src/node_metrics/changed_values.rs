//! Selects the values to write: those that changed, and all of them once a second.

/// Interval after which an unchanged value is written again, ns. So a reader that knows the period can
/// distinguish an unchanged value from one that is no longer read.
const REPEAT_AFTER_NS: i64 = 1_000_000_000;

/// The last written value of each counter.
#[derive(Debug, Default)]
pub(super) struct ChangedValues {
    written: Vec<Option<(f64, i64)>>,
}

impl ChangedValues {
    /// Returns the values of a tick that must be written, each with the key of its counter.
    pub(super) fn take(&mut self, time: i64, values: &[Option<f64>]) -> Vec<(i64, f64)> {
        self.written.resize(values.len(), None);
        let mut out = Vec::new();
        for ((key, value), written) in (1..).zip(values).zip(&mut self.written) {
            let Some(value) = value.filter(|value| value.is_finite()) else { continue };
            let stays = written
                .is_some_and(|(before, at)| before == value && time.saturating_sub(at) < REPEAT_AFTER_NS);
            if !stays {
                *written = Some((value, time));
                out.push((key, value));
            }
        }
        out
    }

    /// Forgets what was written, because the last values were lost: the next tick has all values.
    pub(super) fn forget(&mut self) {
        self.written.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_written_when_it_changes_and_once_a_second() {
        let mut steps = ChangedValues::default();
        let second = REPEAT_AFTER_NS;
        assert_eq!(steps.take(0, &[Some(1.0), None, Some(5.0)]), [(1, 1.0), (3, 5.0)]);
        assert_eq!(steps.take(second / 10, &[Some(1.0), None, Some(6.0)]), [(3, 6.0)]);
        assert_eq!(steps.take(second - 1, &[Some(1.0), Some(f64::NAN), Some(6.0)]), []);
        assert_eq!(steps.take(second, &[Some(1.0), None, None]), [(1, 1.0)]);
        assert_eq!(steps.take(second + second / 10, &[Some(1.0), None, Some(6.0)]), [(3, 6.0)]);
        steps.forget();
        assert_eq!(steps.take(second + second / 5, &[Some(1.0), None, Some(6.0)]), [(1, 1.0), (3, 6.0)]);
    }
}
