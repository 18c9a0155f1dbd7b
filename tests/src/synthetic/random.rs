/// A small generator of random numbers (splitmix64): the same on every machine, for ever.
#[derive(Clone, Debug)]
pub struct RandomSource(u64);

impl RandomSource {
    /// A stream of its own for each list of numbers.
    pub fn new(seed: &[u64]) -> RandomSource {
        let mut random = RandomSource(0x5eed);
        for part in seed {
            random.0 ^= part.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            random.bits();
        }
        random
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number from `low` to `high - 1`; `low` where there is none between.
    pub fn between(&mut self, low: i64, high: i64) -> i64 {
        let span = high.saturating_sub(low).max(1) as u64;
        low + (self.bits() % span) as i64
    }

    /// An index below `length`, 0 for an empty one.
    pub fn index(&mut self, length: usize) -> usize {
        self.between(0, length as i64) as usize
    }

    /// One of `items`.
    ///
    /// # Panics
    /// If there are none.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.index(items.len())]
    }

    /// True in `percent` of a hundred cases.
    pub fn chance(&mut self, percent: i64) -> bool {
        self.between(0, 100) < percent
    }

    /// A duration with a long tail: mostly near `typical`, now and then many times as long.
    pub fn duration(&mut self, typical: i64) -> i64 {
        let stretch = if self.chance(3) { 20 } else { 1 };
        self.between(typical / 4, typical * 2) * stretch + 1
    }
}
