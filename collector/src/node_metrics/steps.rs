//! Values to write: those that changed, and all of them once a second.

/// A value that stays the same is written again after this much time, ns. A reader that knows the
/// period tells a value that stays from one that is no longer read.
const AGAIN: i64 = 1_000_000_000;

/// What was written last of each counter.
#[derive(Debug, Default)]
pub(super) struct ChangedValues {
    written: Vec<Option<(f64, i64)>>,
}

impl ChangedValues {
    /// The values of a tick that are to be written, each with the key of its counter.
    pub(super) fn take(&mut self, time: i64, values: &[Option<f64>]) -> Vec<(i64, f64)> {
        self.written.resize(values.len(), None);
        let mut out = Vec::new();
        for ((key, value), written) in (1..).zip(values).zip(&mut self.written) {
            let Some(value) = value.filter(|value| value.is_finite()) else { continue };
            let stays =
                written.is_some_and(|(before, at)| before == value && time.saturating_sub(at) < AGAIN);
            if !stays {
                *written = Some((value, time));
                out.push((key, value));
            }
        }
        out
    }

    /// What was taken last was not written: the next tick has everything.
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
        let second = AGAIN;
        assert_eq!(steps.take(0, &[Some(1.0), None, Some(5.0)]), [(1, 1.0), (3, 5.0)]);
        assert_eq!(steps.take(second / 10, &[Some(1.0), None, Some(6.0)]), [(3, 6.0)]);
        assert_eq!(steps.take(second - 1, &[Some(1.0), Some(f64::NAN), Some(6.0)]), []);
        assert_eq!(steps.take(second, &[Some(1.0), None, None]), [(1, 1.0)]);
        assert_eq!(steps.take(second + second / 10, &[Some(1.0), None, Some(6.0)]), [(3, 6.0)]);
        steps.forget();
        assert_eq!(steps.take(second + second / 5, &[Some(1.0), None, Some(6.0)]), [(1, 1.0), (3, 6.0)]);
    }
}
