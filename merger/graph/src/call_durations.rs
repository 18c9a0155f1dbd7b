//! Durations of the calls of a thread in 4 bytes each.

/// Duration that is among the long ones.
const LONG: u32 = u32::MAX;

/// Durations of the calls of a thread, ns.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct CallDurations {
    short: Vec<u32>,
    /// Call and duration of those of 4.3 s and more, by call.
    long: Vec<(usize, u64)>,
}

impl CallDurations {
    /// Returns the duration of a call, ns.
    #[inline]
    pub(crate) fn ns(&self, call: usize) -> u64 {
        match self.short[call] {
            LONG => self.long_ns(call),
            short => u64::from(short),
        }
    }

    #[cold]
    fn long_ns(&self, call: usize) -> u64 {
        let place = self.long.binary_search_by_key(&call, |(call, _)| *call);
        place.map_or(0, |place| self.long[place].1)
    }

    /// Returns call and duration of the calls of 4.3 s and more, ns, by call.
    pub(crate) fn into_long(self) -> Vec<(usize, u64)> {
        self.long
    }
}

impl FromIterator<u64> for CallDurations {
    fn from_iter<I: IntoIterator<Item = u64>>(durations: I) -> CallDurations {
        let mut all = CallDurations::default();
        let durations = durations.into_iter();
        all.short.reserve_exact(durations.size_hint().0);
        for ns in durations {
            let short = u32::try_from(ns).unwrap_or(LONG);
            if short == LONG {
                all.long.push((all.short.len(), ns));
            }
            all.short.push(short);
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_of_any_length_are_kept() {
        let all = [0, 7, u64::from(u32::MAX) - 1, u64::from(u32::MAX), u64::MAX, 3, 1 << 32];
        let kept: CallDurations = all.into_iter().collect();
        assert_eq!((0..all.len()).map(|call| kept.ns(call)).collect::<Vec<u64>>(), all);
        assert_eq!((kept.short.len(), kept.long.len()), (7, 3));
    }
}
