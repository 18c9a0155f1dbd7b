/// Track of a domain's RAW clock relative to the reference over the run: `y` is the reference's x minus the
/// domain's own x. The reference itself has no knots.
#[derive(Clone, Debug, Default)]
pub(super) struct ClockTrack {
    /// Knots in order of x.
    pub(super) knots: Vec<TrackKnot>,
    /// Variance that the rate gains per second, (ns/s)^2/s.
    pub(super) walk: f64,
    /// Steps of y.
    pub(super) steps: Vec<TrackStep>,
}

/// Estimated state at one time.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct TrackKnot {
    /// Time, ns.
    pub(super) x: f64,
    /// Offset, ns.
    pub(super) y: f64,
    /// Rate of change of y, ns/s.
    pub(super) rate: f64,
    /// Variance of y, ns^2.
    pub(super) var: f64,
    /// Covariance of y and the rate, ns^2/s.
    pub(super) cov: f64,
    /// Variance of the rate, (ns/s)^2.
    pub(super) rate_var: f64,
    /// Additional error of y because a clock stepped near this time, and the exact time of the step is not
    /// known, ns.
    pub(super) slack: f64,
}

/// A step of a clock between two times.
#[derive(Clone, Copy, Debug)]
pub(super) struct TrackStep {
    /// The step is after this x.
    pub(super) after: f64,
    /// The step is before this x.
    pub(super) before: f64,
    /// Change of y, ns.
    pub(super) by: f64,
}

/// Nanoseconds per second.
pub(super) const SECOND: f64 = 1e9;

/// Number of knots on each side of a guessed place that are searched first.
const SEARCH_REACH: usize = 12;

impl ClockTrack {
    /// Returns the state at x: interpolated linearly between knots; beyond them, with the last rate and a
    /// growing variance.
    pub(super) fn at(&self, x: f64) -> TrackKnot {
        let after = self.after(x);
        match (after.checked_sub(1).and_then(|i| self.knots.get(i)), self.knots.get(after)) {
            (Some(a), Some(b)) => {
                let share = (x - a.x) / (b.x - a.x);
                let mix = |a: f64, b: f64| a + (b - a) * share;
                TrackKnot {
                    x,
                    y: mix(a.y, b.y),
                    rate: mix(a.rate, b.rate),
                    var: mix(a.var, b.var),
                    cov: mix(a.cov, b.cov),
                    rate_var: mix(a.rate_var, b.rate_var),
                    slack: a.slack.min(b.slack),
                }
            }
            (Some(end), None) | (None, Some(end)) => self.beyond(end, x),
            (None, None) => TrackKnot { x, ..TrackKnot::default() },
        }
    }

    /// Returns x of the first and the last knot; `None` without knots.
    pub(super) fn span(&self) -> Option<(f64, f64)> {
        Some((self.knots.first()?.x, self.knots.last()?.x))
    }

    /// Returns the part of its span in which another track has knots, too. It may be empty, with the end before
    /// the start.
    pub(super) fn common_span(&self, other: &ClockTrack) -> Option<(f64, f64)> {
        let ((a, b), (c, d)) = (self.span()?, other.span()?);
        Some((a.max(c), b.min(d)))
    }

    /// Returns the domain's x at a time of the reference.
    pub(super) fn x_at(&self, reference: f64) -> f64 {
        // Rates are far below 1, so each iteration gains several digits.
        (0..3).fold(reference - self.at(reference).y, |x, _| reference - self.at(x).y)
    }

    /// Returns the index of the first knot after x. Knots are almost evenly spaced, so a proportional guess is
    /// close.
    fn after(&self, x: f64) -> usize {
        let Some((first, last)) = self.span() else { return 0 };
        let share = (x - first) / (last - first).max(1.0);
        let guess = (share.clamp(0.0, 1.0) * self.knots.len() as f64) as usize;
        let (from, to) = (guess.saturating_sub(SEARCH_REACH), (guess + SEARCH_REACH).min(self.knots.len()));
        let is_before = |at: usize| self.knots.get(at).is_none_or(|k| k.x <= x);
        let is_close = (from == 0 || is_before(from - 1)) && (to == self.knots.len() || !is_before(to));
        let (from, to) = if is_close { (from, to) } else { (0, self.knots.len()) };
        from + self.knots.get(from..to).map_or(0, |knots| knots.partition_point(|k| k.x <= x))
    }

    fn beyond(&self, end: &TrackKnot, x: f64) -> TrackKnot {
        let dt = (x - end.x) / SECOND;
        let far = dt.abs();
        let rate_var = end.rate_var + self.walk * far;
        let var = end.var + 2.0 * end.cov * dt + end.rate_var * dt * dt + self.walk * far * far * far / 3.0;
        TrackKnot { x, y: end.y + end.rate * dt, var: var.max(end.var), rate_var, ..*end }
    }
}
