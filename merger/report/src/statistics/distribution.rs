//! The distribution of durations.

use hdrhistogram::Histogram;
use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt::{Formatter, Result as FmtResult};

/// Maximum number of values of which percentiles are exact, whatever the memory. 8 bytes each are kept.
const MAX_EXACT: usize = 1_000_000;
/// Memory of a merge rank for each value of a name that is kept: there may be a hundred names.
const MEMORY_OF_VALUE: u64 = 1_024;
/// Significant digits of percentiles beyond that.
const DIGITS: u8 = 3;
/// Number of values that are kept in one piece. Pieces are not copied when they grow or are joined.
const PIECE: usize = 4_096;

/// Durations of one name, ns. The result does not depend on the order in which they are added.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Distribution {
    /// Number of values of which percentiles are exact. The same in all parts that are joined.
    max_exact: usize,
    /// The values, in pieces of any length.
    #[serde(serialize_with = "write_pieces", deserialize_with = "read_pieces")]
    pieces: Vec<Vec<i64>>,
    /// Number of values in the pieces.
    in_pieces: usize,
    /// The values after them. They become a piece when there are [`PIECE`].
    last: Vec<i64>,
    /// The values that were added to it, if there are more than `max_exact`.
    beyond: Option<Box<CountedValues>>,
}

/// Values that are only counted.
#[derive(Debug)]
struct CountedValues {
    histogram: Histogram<u64>,
    moments: Moments,
}

/// Sums of values.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Moments {
    count: u64,
    sum: i128,
    /// Sum of squares; `None` beyond 2^128.
    squares: Option<u128>,
    min: i64,
    max: i64,
}

/// What a distribution amounts to.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct DurationSummary {
    pub(crate) count: u64,
    /// Sum, ns.
    pub(crate) total: i128,
    /// Mean, rounded to ns.
    pub(crate) mean: i64,
    pub(crate) min: i64,
    pub(crate) max: i64,
    /// The smallest values that at least 50, 95 and 99 % of the values do not exceed.
    pub(crate) percentiles: [i64; 3],
    /// Standard deviation of all values, rounded to ns; `None` if it is too large.
    pub(crate) deviation: Option<i64>,
    /// Whether percentiles are exact.
    pub(crate) is_exact: bool,
}

/// The percentiles.
const PERCENT: [u64; 3] = [50, 95, 99];

impl Default for Distribution {
    fn default() -> Distribution {
        Distribution::with_exact(MAX_EXACT)
    }
}

impl Distribution {
    /// Returns the number of values of which percentiles are exact, with so many bytes of memory.
    pub(crate) fn exact_values(memory: u64) -> usize {
        usize::try_from(memory / MEMORY_OF_VALUE).unwrap_or(usize::MAX).clamp(PIECE, MAX_EXACT)
    }

    /// Creates one with exact percentiles of so many values.
    pub(crate) fn with_exact(max_exact: usize) -> Distribution {
        Distribution { max_exact, pieces: Vec::new(), in_pieces: 0, last: Vec::new(), beyond: None }
    }

    /// Adds a duration.
    #[inline]
    pub(crate) fn add(&mut self, ns: i64) {
        self.last.push(ns);
        if self.last.len() == PIECE {
            self.end_piece();
        }
    }

    fn end_piece(&mut self) {
        self.in_pieces += self.last.len();
        self.pieces.push(std::mem::take(&mut self.last));
        if self.in_pieces > self.max_exact {
            self.count_values();
        }
    }

    /// Adds the durations of another distribution.
    pub(crate) fn join(&mut self, mut other: Distribution) {
        if self.in_pieces == 0 && self.last.is_empty() && self.beyond.is_none() {
            *self = other;
            return;
        }
        if !other.last.is_empty() {
            other.end_piece();
        }
        self.pieces.extend(other.pieces);
        self.in_pieces += other.in_pieces;
        if let Some(other) = other.beyond {
            match &mut self.beyond {
                Some(own) => own.join(&other),
                none => *none = Some(other),
            }
        }
        let is_large = self.beyond.is_some() && self.in_pieces > self.max_exact / 16;
        if self.in_pieces > self.max_exact || is_large {
            self.count_values();
        }
    }

    /// Returns the number of values that are kept.
    pub(crate) fn kept(&self) -> usize {
        self.in_pieces + self.last.len()
    }

    /// Counts the values of all pieces, and releases them.
    fn count_values(&mut self) {
        let counted = self.beyond.get_or_insert_with(CountedValues::new);
        self.pieces.drain(..).flatten().for_each(|ns| counted.add(ns));
        self.in_pieces = 0;
    }

    /// Evaluates the durations; `None` if there are none.
    pub(crate) fn summary(mut self) -> Option<DurationSummary> {
        self.end_piece();
        if self.beyond.is_some() {
            self.count_values();
        }
        let (moments, percentiles) = match &self.beyond {
            Some(counted) => (counted.moments, counted.percentiles()),
            None => {
                let mut values = self.pieces.concat();
                let mut moments = Moments::EMPTY;
                values.iter().for_each(|ns| moments.add(*ns));
                (moments, exact_percentiles(&mut values)?)
            }
        };
        Some(DurationSummary {
            count: moments.count,
            total: moments.sum,
            mean: moments.mean(),
            min: moments.min,
            max: moments.max,
            percentiles,
            deviation: moments.deviation(),
            is_exact: self.beyond.is_none(),
        })
    }
}

/// Writes values as bytes: millions of them as numbers would take longer to write and read than their rows. The first byte
/// is the width of a value, 4 or 8.
fn write_pieces<S: Serializer>(pieces: &[Vec<i64>], serializer: S) -> Result<S::Ok, S::Error> {
    let is_narrow = pieces.iter().all(|piece| piece.iter().all(|ns| u32::try_from(*ns).is_ok()));
    let width = if is_narrow { 4 } else { 8 };
    let mut bytes = Vec::with_capacity(1 + pieces.iter().map(Vec::len).sum::<usize>() * width);
    bytes.push(width as u8);
    for piece in pieces {
        match is_narrow {
            true => bytes.extend(piece.iter().flat_map(|ns| (*ns as u32).to_le_bytes())),
            false => bytes.extend(piece.iter().flat_map(|ns| ns.to_le_bytes())),
        }
    }
    serializer.serialize_bytes(&bytes)
}

/// Reads the values as one piece.
fn read_pieces<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Vec<i64>>, D::Error> {
    struct ValueBytes;

    impl Visitor<'_> for ValueBytes {
        type Value = Vec<Vec<i64>>;

        fn expecting(&self, f: &mut Formatter<'_>) -> FmtResult {
            f.write_str("the bytes of values")
        }

        fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<Vec<Vec<i64>>, E> {
            let values = match bytes.split_first() {
                Some((4, narrow)) if narrow.len() % 4 == 0 => {
                    narrow.as_chunks().0.iter().map(|bytes| u32::from_le_bytes(*bytes).into()).collect()
                }
                Some((8, wide)) if wide.len() % 8 == 0 => {
                    wide.as_chunks().0.iter().map(|bytes| i64::from_le_bytes(*bytes)).collect()
                }
                _ => return Err(E::invalid_length(bytes.len(), &self)),
            };
            Ok(vec![values])
        }
    }

    deserializer.deserialize_bytes(ValueBytes)
}

/// Selects the percentiles by their ranks; each selection leaves larger values behind it.
fn exact_percentiles(values: &mut [i64]) -> Option<[i64; 3]> {
    let mut found = [0; 3];
    let (mut rest, mut skipped) = (&mut *values, 0);
    let count = rest.len();
    for (percent, found) in PERCENT.into_iter().zip(&mut found) {
        let place = rank(count as u64, percent) as usize;
        let at = place.checked_sub(skipped)?;
        if at >= rest.len() {
            return None;
        }
        *found = *rest.select_nth_unstable(at).1;
        // The same value may be selected again.
        rest = rest.get_mut(at..)?;
        skipped = place;
    }
    Some(found)
}

/// Returns the place, from 0, of a percentile in the order of `count` values.
fn rank(count: u64, percent: u64) -> u64 {
    (u128::from(count) * u128::from(percent)).div_ceil(100).saturating_sub(1) as u64
}

impl CountedValues {
    fn new() -> Box<CountedValues> {
        // It grows with the largest value.
        let empty = Histogram::new(DIGITS);
        let histogram = empty.unwrap_or_else(|error| unreachable!("the digits are constant: {error}"));
        Box::new(CountedValues { histogram, moments: Moments::EMPTY })
    }

    fn add(&mut self, ns: i64) {
        self.moments.add(ns);
        let recorded = self.histogram.record(ns.max(0) as u64);
        debug_assert!(recorded.is_ok());
    }

    fn join(&mut self, other: &CountedValues) {
        self.moments.join(&other.moments);
        let added = self.histogram.add(&other.histogram);
        debug_assert!(added.is_ok());
    }

    fn percentiles(&self) -> [i64; 3] {
        let Moments { min, max, .. } = self.moments;
        PERCENT.map(|percent| {
            let value = self.histogram.value_at_quantile(percent as f64 / 100.0);
            i64::try_from(value).unwrap_or(i64::MAX).clamp(min, max)
        })
    }
}

/// As the values of its buckets, each with their number, and the sums.
impl Serialize for CountedValues {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let buckets = self.histogram.iter_recorded();
        let buckets: Vec<(u64, u64)> =
            buckets.map(|bucket| (bucket.value_iterated_to(), bucket.count_at_value())).collect();
        (buckets, self.moments).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for CountedValues {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<CountedValues, D::Error> {
        let (buckets, moments): (Vec<(u64, u64)>, Moments) = Deserialize::deserialize(deserializer)?;
        let mut counted = CountedValues { moments, ..*CountedValues::new() };
        for (value, count) in buckets {
            counted.histogram.record_n(value, count).map_err(D::Error::custom)?;
        }
        Ok(counted)
    }
}

impl Moments {
    const EMPTY: Moments = Moments { count: 0, sum: 0, squares: Some(0), min: i64::MAX, max: i64::MIN };

    #[inline]
    fn add(&mut self, ns: i64) {
        self.count += 1;
        self.sum += i128::from(ns);
        let length = u128::from(ns.unsigned_abs());
        self.squares = self.squares.and_then(|sum| sum.checked_add(length * length));
        (self.min, self.max) = (self.min.min(ns), self.max.max(ns));
    }

    fn join(&mut self, other: &Moments) {
        self.count += other.count;
        self.sum += other.sum;
        self.squares = self.squares.zip(other.squares).and_then(|(one, other)| one.checked_add(other));
        (self.min, self.max) = (self.min.min(other.min), self.max.max(other.max));
    }

    fn mean(&self) -> i64 {
        let count = i128::from(self.count.max(1));
        (self.sum + count / 2).div_euclid(count) as i64
    }

    fn deviation(&self) -> Option<i64> {
        let count = u128::from(self.count);
        let sum = self.sum.unsigned_abs();
        let scaled = self.squares?.checked_mul(count)?.checked_sub(sum.checked_mul(sum)?)?;
        Some(((scaled as f64).sqrt() / count as f64).round() as i64)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn of(values: impl IntoIterator<Item = i64>) -> DurationSummary {
        let mut all = Distribution::default();
        values.into_iter().for_each(|ns| all.add(ns));
        all.summary().unwrap()
    }

    #[test]
    fn few_values_have_exact_percentiles() {
        assert_eq!(Distribution::default().summary(), None);
        let one = of([7]);
        assert_eq!((one.mean, one.percentiles, one.deviation), (7, [7; 3], Some(0)));
        let hundred = of((1..=100).rev());
        assert_eq!(
            (hundred.percentiles, hundred.min, hundred.max, hundred.total),
            ([50, 95, 99], 1, 100, 5_050)
        );
        assert_eq!((hundred.mean, hundred.deviation), (51, Some(29)));
        assert_eq!(of([5, 5, 5, 5, -1]).percentiles, [5; 3]);
        assert_eq!(of([i64::MIN / 2, i64::MAX / 2]).deviation, Some(i64::MAX / 2 + 1));
    }

    #[test]
    fn values_survive_a_message() {
        for count in [0, 1, 5_000, 1_000_001] {
            let mut sent = Distribution::default();
            (0..count).for_each(|n| sent.add(n * 7 - i64::from(count == 1) * 3));
            let bytes = rpd_shard::record::wire::encode(&sent);
            let received: Distribution = rpd_shard::record::wire::decode_unlimited(&bytes).unwrap();
            assert_eq!(received.summary(), sent.summary(), "{count}");
        }
    }

    #[test]
    fn many_values_have_three_digits_in_any_division() {
        let values = || (0..2_500_000_i64).map(|n| n * 7_919 % 2_500_000);
        let whole = of(values());
        assert!(!whole.is_exact);
        for (percent, value) in PERCENT.into_iter().zip(whole.percentiles) {
            let exact = 25_000 * percent as i64 - 1;
            assert!((value - exact).abs() * 1_000 <= exact, "p{percent} is {value}, not {exact}");
        }
        assert_eq!((whole.count, whole.min, whole.max), (2_500_000, 0, 2_499_999));
        for parts in [2, 3, 40] {
            let mut joined = Distribution::default();
            for part in 0..parts {
                let mut own = Distribution::default();
                values().skip(part).step_by(parts).for_each(|ns| own.add(ns));
                joined.join(own);
            }
            assert_eq!(joined.summary(), Some(whole), "{parts} parts");
        }
    }
}
