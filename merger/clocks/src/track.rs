/// A domain's RAW against the reference's over the run: `y` is the reference's x minus the domain's own
/// x. No knots: the reference itself.
#[derive(Clone, Debug, Default)]
pub(super) struct ClockTrack {
    /// In order of x.
    pub(super) knots: Vec<TrackKnot>,
    /// Variance that the rate gains in a second, (ns/s)^2/s.
    pub(super) walk: f64,
    /// Jumps of y.
    pub(super) steps: Vec<ClockJump>,
}

/// What is known at one time.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct TrackKnot {
    /// Time, ns.
    pub(super) x: f64,
    /// Value, ns.
    pub(super) y: f64,
    /// Change of y, ns/s.
    pub(super) rate: f64,
    /// Variance of y, ns^2.
    pub(super) var: f64,
    /// Covariance of y and the rate, ns^2/s.
    pub(super) cov: f64,
    /// Variance of the rate, (ns/s)^2.
    pub(super) rate_var: f64,
    /// What y may be off besides, because a clock jumped here and nobody knows when, ns.
    pub(super) slack: f64,
}

/// A jump of a clock between two times.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClockJump {
    /// After this x.
    pub(super) after: f64,
    /// Before this x.
    pub(super) before: f64,
    /// Change of y, ns.
    pub(super) by: f64,
}

/// Nanoseconds of a second.
pub(super) const SECOND: f64 = 1e9;

/// A guess at the place of a knot is looked at with so many around it.
const REACH: usize = 12;

impl ClockTrack {
    /// The state at x: straight between knots; beyond them, the last rate and a growing variance.
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

    /// The domain's x at the reference's.
    pub(super) fn x_at(&self, reference: f64) -> f64 {
        // Rates are far below 1, so this closes in by several digits a round.
        (0..3).fold(reference - self.at(reference).y, |x, _| reference - self.at(x).y)
    }

    /// The first knot after x. Knots are spaced evenly, nearly, so a guess is not far off.
    fn after(&self, x: f64) -> usize {
        let (Some(first), Some(last)) = (self.knots.first(), self.knots.last()) else { return 0 };
        let share = (x - first.x) / (last.x - first.x).max(1.0);
        let guess = (share.clamp(0.0, 1.0) * self.knots.len() as f64) as usize;
        let (from, to) = (guess.saturating_sub(REACH), (guess + REACH).min(self.knots.len()));
        let is_before = |at: usize| self.knots.get(at).is_none_or(|k| k.x <= x);
        let near = (from == 0 || is_before(from - 1)) && (to == self.knots.len() || !is_before(to));
        let (from, to) = if near { (from, to) } else { (0, self.knots.len()) };
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
