use super::robust;
use rpd_shard::model::LocalNs;
use rpd_shard::record::ClockSet;

/// Maximum number of sets in one straight piece. The limit keeps the search for pieces linear.
const MAX_PIECE_SETS: usize = 64;
/// Error of a clock reading in addition to its bracket, ns.
const READING_ERROR_NS: f64 = 2.0;

/// The relation between the clocks of one domain.
///
/// `x` is `CLOCK_MONOTONIC_RAW` and `w` is `CLOCK_BOOTTIME`, both in ns since the first clock set. Without sets,
/// BOOTTIME is the only clock and is used as RAW.
#[derive(Clone, Debug, Default)]
pub(super) struct OnNode {
    raw_base: i64,
    boot_base: i64,
    /// Points (x, w), both increasing; linear between points.
    knots: Vec<(f64, f64)>,
    /// Error of a conversion, ns.
    pub(super) error: f64,
    /// Whether RAW of the domain is recorded, so that others can refer to it.
    pub(super) has_raw: bool,
}

/// One straight piece of BOOTTIME minus RAW.
struct Piece {
    first: f64,
    last: f64,
    count: usize,
    /// `w - x` at `x = 0`, and its slope.
    at_zero: f64,
    slope: f64,
}

impl OnNode {
    /// Builds the relation from the sets of a domain, in any order. `earliest` is the first recorded BOOTTIME;
    /// it is the origin if there are no sets.
    pub(super) fn new(sets: &[ClockSet], earliest: i64) -> OnNode {
        let mut sets: Vec<&ClockSet> = sets.iter().filter(|s| s.bracket >= 0).collect();
        sets.sort_by_key(|s| (s.monotonic_raw, s.boottime, s.bracket));
        sets.dedup_by_key(|s| s.monotonic_raw);
        let Some(first) = sets.first() else {
            return OnNode { raw_base: earliest, boot_base: earliest, ..OnNode::default() };
        };
        let (raw_base, boot_base) = (first.monotonic_raw, first.boottime);
        let points: Vec<(f64, f64, f64)> = sets
            .iter()
            .map(|s| {
                let (x, w) = (apart(s.monotonic_raw, raw_base), apart(s.boottime, boot_base));
                (x, w - x, s.bracket as f64 / 2.0 + READING_ERROR_NS)
            })
            .collect();
        let mut knots = Vec::new();
        let pieces = pieces(&points);
        for (i, piece) in pieces.iter().enumerate() {
            let before = i.checked_sub(1).and_then(|i| pieces.get(i));
            if before.and_then(|before| before.meets(piece)).is_none() {
                knots.push((piece.first, piece.first + piece.at(piece.first)));
            }
            let next = pieces.get(i + 1).and_then(|next| piece.meets(next));
            let last = next.unwrap_or(piece.last);
            knots.push((last, last + piece.at(last)));
        }
        // Drops readings at which a clock runs backwards.
        let mut end = (f64::NEG_INFINITY, f64::NEG_INFINITY);
        knots.retain(|&(x, w)| {
            let goes_on = x > end.0 && w > end.1;
            if goes_on {
                end = (x, w);
            }
            goes_on
        });
        let error = robust::median(&mut points.iter().map(|p| p.2).collect::<Vec<_>>()).unwrap_or(0.0);
        OnNode { raw_base, boot_base, knots, error, has_raw: true }
    }

    /// Returns the relation of a domain without inputs: other domains observed only its RAW.
    pub(super) fn bridge(first_raw: i64) -> OnNode {
        OnNode { raw_base: first_raw, boot_base: first_raw, has_raw: true, ..OnNode::default() }
    }

    /// Returns `x` for a reading of RAW.
    pub(super) fn raw(&self, raw: i64) -> f64 {
        apart(raw, self.raw_base)
    }

    /// Returns `x` for a reading of BOOTTIME.
    pub(super) fn of_boottime(&self, local: LocalNs) -> f64 {
        interpolate(&self.knots, apart(local.0, self.boot_base), |k| (k.1, k.0))
    }

    /// Returns BOOTTIME at `x`; `None` on overflow.
    pub(super) fn boottime(&self, x: f64) -> Option<i64> {
        let w = interpolate(&self.knots, x, |k| *k);
        // Above this the cast would not be exact.
        (w.abs() < 9e18).then(|| self.boot_base.checked_add(w.round() as i64)).flatten()
    }

    /// Returns the values of `x` at which BOOTTIME changes its rate.
    pub(super) fn bends(&self) -> impl Iterator<Item = f64> {
        self.knots.iter().map(|k| k.0)
    }
}

impl Piece {
    fn at(&self, x: f64) -> f64 {
        self.at_zero + self.slope * x
    }

    /// Returns where this piece turns into the next. Both need at least 3 sets and must cross between their
    /// sets.
    fn meets(&self, next: &Piece) -> Option<f64> {
        let x = (next.at_zero - self.at_zero) / (self.slope - next.slope);
        let well_known = self.count >= 3 && next.count >= 3;
        (well_known && x > self.last && x < next.first).then_some(x)
    }
}

/// Divides the points into straight pieces, each as long as it stays within the brackets of its sets. `points`
/// are (x, w - x, tolerance).
fn pieces(points: &[(f64, f64, f64)]) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut rest = points;
    while let Some(first) = rest.first() {
        let mut sums = Sums::default();
        let mut best = Piece { first: first.0, last: first.0, count: 1, at_zero: first.1, slope: 0.0 };
        for (i, point) in rest.iter().take(MAX_PIECE_SETS).enumerate() {
            sums.add(point, first);
            let longer = sums.line(first, point);
            if rest.iter().take(i + 1).any(|p| (p.1 - longer.at(p.0)).abs() > p.2) {
                break;
            }
            best = longer;
        }
        rest = rest.get(best.count..).unwrap_or_default();
        pieces.push(best);
    }
    pieces
}

/// Sums for a least-squares line, weighted by the tolerances, relative to the first point.
#[derive(Default)]
struct Sums {
    count: usize,
    weight: f64,
    x: f64,
    d: f64,
    xx: f64,
    xd: f64,
}

impl Sums {
    fn add(&mut self, point: &(f64, f64, f64), first: &(f64, f64, f64)) {
        let weight = (point.2 * point.2).recip();
        let (x, d) = (point.0 - first.0, point.1 - first.1);
        self.count += 1;
        self.weight += weight;
        self.x += weight * x;
        self.d += weight * d;
        self.xx += weight * x * x;
        self.xd += weight * x * d;
    }

    fn line(&self, first: &(f64, f64, f64), last: &(f64, f64, f64)) -> Piece {
        let (x, d) = (self.x / self.weight, self.d / self.weight);
        let across = self.xx - self.x * x;
        let slope = if self.count > 1 && across > 0.0 { (self.xd - self.x * d) / across } else { 0.0 };
        let at_zero = first.1 + d - slope * (first.0 + x);
        Piece { first: first.0, last: last.0, count: self.count, at_zero, slope }
    }
}

/// Returns the second coordinate at a value of the first one. Beyond the ends, the end pieces are extended.
fn interpolate(knots: &[(f64, f64)], at: f64, axes: impl Fn(&(f64, f64)) -> (f64, f64)) -> f64 {
    let after = knots.partition_point(|k| axes(k).0 <= at).clamp(1, knots.len().saturating_sub(1).max(1));
    match (knots.get(after - 1).map(&axes), knots.get(after).map(&axes)) {
        (Some(a), Some(b)) => a.1 + (at - a.0) * ((b.1 - a.1) / (b.0 - a.0)),
        (Some(a), None) => a.1 + (at - a.0),
        (None, _) => at,
    }
}

/// Returns `a - b`.
pub(super) fn apart(a: i64, b: i64) -> f64 {
    a.checked_sub(b).map_or_else(|| (i128::from(a) - i128::from(b)) as f64, |apart| apart as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rpd_shard::record::ClockDomain;

    fn set(raw: i64, boot: i64, bracket: i64) -> ClockSet {
        let domain = ClockDomain { boot_id: "a".into(), time_namespace: 0 };
        ClockSet { domain, boottime: boot, monotonic_raw: raw, monotonic: boot, realtime: boot, bracket }
    }

    /// BOOTTIME of a clock that changes its rate by 2 ppm at 32.5 s, between two sets.
    fn boottime(raw: i64) -> i64 {
        let bend = 32_500_000_000;
        raw + raw / 100_000 + (raw - bend).max(0) / 500_000
    }

    fn error(clock: &OnNode, base: i64, raw: i64) -> i64 {
        clock.boottime(clock.raw(base + raw)).unwrap() - (base + boottime(raw))
    }

    #[test]
    fn a_change_of_rate_between_two_sets_is_found_where_it_was() {
        let base = 7_000_000_000_000_000;
        let jitter = [10, -20, 30, 0, -30, 20];
        let sets: Vec<ClockSet> = (0..14)
            .map(|i| {
                set(base + i * 5_000_000_000, base + boottime(i * 5_000_000_000) + jitter[i as usize % 6], 80)
            })
            .collect();
        let clock = OnNode::new(&sets, 0);
        // A straight line between the sets would be 2.5 us off here.
        assert!(error(&clock, base, 32_500_000_000).abs() < 300, "{}", error(&clock, base, 32_500_000_000));
        let back = clock.of_boottime(LocalNs(base + boottime(50_000_000_000)));
        assert!((back - 50e9).abs() < 100.0, "{back}");
    }

    #[test]
    fn a_set_that_was_interrupted_moves_nothing() {
        let mut sets: Vec<ClockSet> =
            (0..14).map(|i| set(i * 5_000_000_000, boottime(i * 5_000_000_000), 80)).collect();
        sets[3].boottime += 9_000;
        sets[3].bracket = 20_000;
        let clock = OnNode::new(&sets, 0);
        assert!(error(&clock, 0, 15_000_000_000).abs() < 100);
    }

    #[test]
    fn without_sets_boottime_is_all_there_is() {
        let clock = OnNode::new(&[], 5_000);
        assert!(!clock.has_raw);
        assert_eq!(clock.of_boottime(LocalNs(5_007)), 7.0);
        assert_eq!(clock.boottime(7.0), Some(5_007));
    }
}
