//! Kalman filter and Rauch-Tung-Striebel smoother on [y, rate], for samples with individual variances.
//!
//! The random walk of the rate and the scale of the noise are estimated from the samples by maximum likelihood.
//! The noise is Student's t, so that outliers neither move the track nor permanently widen its error bound.

use super::links::LinkKind;
use super::robust;
use super::track::{ClockTrack, SECOND, TrackKnot, TrackStep};

/// One sample: when the domain's clock showed `x`, the reference was `y` ahead of it, ns, with a variance in
/// ns^2.
#[derive(Clone, Copy, Debug)]
pub(super) struct TrackSample {
    pub(super) x: f64,
    pub(super) y: f64,
    pub(super) var: f64,
    /// The sample represents observations within this distance, ns.
    pub(super) around: f64,
    /// Index of its link. The smoother does not use it.
    pub(super) link: usize,
    /// Kind of its source.
    pub(super) kind: LinkKind,
}

/// How reliable the stated variances of the samples are.
#[derive(Clone, Copy, Debug)]
pub(super) enum LinkNoise {
    /// The variances and a usual crystal are taken as given. This is fast and accurate to some us.
    Trusted,
    /// The variances are a first guess.
    Guessed,
    /// An earlier fit scaled the variances.
    Scaled,
}

/// A track, and the factor of its samples' variances.
#[derive(Clone, Debug)]
pub(super) struct SmoothedTrack {
    pub(super) track: ClockTrack,
    pub(super) scale: f64,
    /// Weight of each sample, from 0 to about 1.
    pub(super) weights: Vec<f64>,
}

/// Degrees of freedom of the noise. Its tails are heavy.
const FREEDOM: f64 = 3.0;
/// Square of the number of standard deviations above which a sample is rejected.
const MAX_SQUARED_DEVIATION: f64 = 36.0;
/// Number of consecutive rejects that count as a step of the clock if they agree with each other.
const MIN_REJECTS: usize = 5;
/// The same number at the end of the samples.
const MIN_REJECTS_AT_END: usize = 2;
/// If there are probes, at least this many of the rejects must be probes; at the end, one.
const MIN_PROBED_REJECTS: usize = 2;
/// Cost of a step, in units of the likelihood. Steps are rare.
const STEP_COST: f64 = 30.0;
/// Variance of a rate before any sample: 100 ppm.
const INITIAL_RATE_VAR: f64 = 1e5 * 1e5;
/// Variance that a step may add to that of the rate: 5 ppm.
const STEP_RATE_VAR: f64 = 5e3 * 5e3;
/// Usual random walk of a crystal, (ns/s)^2/s, and the standard deviation of its logarithm. With a larger
/// deviation, the walk would absorb occasional disturbed bursts of a busy node.
const USUAL_WALK: (f64, f64) = (20.0, 1.5);
/// Maximum random walk of a crystal, ln of (ns/s)^2/s. Anything above is noise.
const MAX_WALK: f64 = 11.5;
/// Gaps longer than this get additional knots, ns.
const MAX_GAP_NS: f64 = 8.0 * SECOND;
/// Up to this many samples may share nearly the same error, so their agreement does not reduce the noise scale.
/// Errors of busy nodes stay alike for up to a third of a run.
const MAX_CORRELATED_SAMPLES: f64 = 16.0;
/// Maximum number of knots in one gap.
const MAX_GAP_KNOTS: usize = 16;
/// The likelihood of many points is computed from this number of stretches.
const STRETCHES: usize = 3;
/// Number of points of such a stretch.
const STRETCH_POINTS: usize = 80;
/// Number of rounds of reweighting by the smoothed residuals.
const WEIGHTING_ROUNDS: usize = 3;

/// Returns the track through samples in order of x; `None` without samples.
pub(super) fn smooth(samples: &[TrackSample], noise: LinkNoise) -> Option<SmoothedTrack> {
    let origin = Origin::of(samples)?;
    let points: Vec<Point> = samples.iter().map(|s| origin.point(s)).collect();
    let (walk, scale) = likeliest(&points, noise);
    let Explored { starts, mut weights, .. } = explore(&points, walk, scale);
    let mut track = ClockTrack { walk, ..ClockTrack::default() };
    for _ in 0..WEIGHTING_ROUNDS {
        track = pieces(&points, &weights, &starts, walk, scale);
        for (point, weight) in points.iter().zip(&mut weights) {
            let off = point.y - track.at(point.t * SECOND).y;
            *weight = (FREEDOM + 1.0) / (FREEDOM + off * off / (point.var * scale));
        }
    }
    widen_steps(&mut track);
    origin.restore(&mut track);
    Some(SmoothedTrack { track, scale, weights })
}

/// Origin of the points: times become seconds and values near 0, so that squares keep their digits.
struct Origin {
    x: f64,
    y: f64,
}

#[derive(Clone, Copy, Debug)]
struct Point {
    /// Seconds.
    t: f64,
    y: f64,
    var: f64,
    /// Nanoseconds.
    around: f64,
    is_probed: bool,
}

impl Origin {
    fn of(samples: &[TrackSample]) -> Option<Origin> {
        let x = samples.first()?.x;
        let y = robust::median(&mut samples.iter().map(|s| s.y).collect::<Vec<_>>())?;
        Some(Origin { x, y })
    }

    fn point(&self, sample: &TrackSample) -> Point {
        Point {
            t: (sample.x - self.x) / SECOND,
            y: sample.y - self.y,
            var: sample.var.clamp(1.0, 1e36),
            around: sample.around,
            is_probed: sample.kind == LinkKind::Probes,
        }
    }

    fn restore(&self, track: &mut ClockTrack) {
        for knot in &mut track.knots {
            knot.x += self.x;
            knot.y += self.y;
        }
        for step in &mut track.steps {
            step.after += self.x;
            step.before += self.x;
        }
    }
}

/// Mean and covariance of [y, rate].
#[derive(Clone, Copy, Debug)]
struct State {
    t: f64,
    y: f64,
    rate: f64,
    yy: f64,
    yr: f64,
    rr: f64,
}

impl State {
    fn start(point: &Point, scale: f64) -> State {
        State { t: point.t, y: point.y, rate: 0.0, yy: point.var * scale, yr: 0.0, rr: INITIAL_RATE_VAR }
    }

    /// Returns the state after a step of y.
    fn restart(&self, point: &Point, scale: f64) -> State {
        let at = self.forecast(point.t, 0.0);
        State { y: point.y, yy: point.var * scale, yr: 0.0, rr: at.rr + STEP_RATE_VAR, ..at }
    }

    fn forecast(&self, t: f64, walk: f64) -> State {
        let dt = t - self.t;
        State {
            t,
            y: self.y + self.rate * dt,
            rate: self.rate,
            yy: self.yy + dt * (2.0 * self.yr + dt * (self.rr + walk * dt / 3.0)),
            yr: self.yr + dt * (self.rr + walk * dt / 2.0),
            rr: self.rr + walk * dt,
        }
    }

    fn update(&self, y: f64, var: f64) -> State {
        let total = self.yy + var;
        let (gain, rate_gain) = (self.yy / total, self.yr / total);
        let off = y - self.y;
        State {
            t: self.t,
            y: self.y + gain * off,
            rate: self.rate + rate_gain * off,
            yy: (self.yy * (var / total)).max(0.0),
            yr: self.yr * (var / total),
            rr: (self.rr - rate_gain * self.yr).max(0.0),
        }
    }
}

/// Result of one pass over the points.
struct Explored {
    /// Twice the negative logarithm of the likelihood.
    cost: f64,
    /// Index of the first point of each piece between steps.
    starts: Vec<usize>,
    /// Weight of each point, from 0 to 1.
    weights: Vec<f64>,
}

/// Filters the points and detects steps, which are several consecutive forecasts that are off by the same
/// amount.
fn explore(points: &[Point], walk: f64, scale: f64) -> Explored {
    let mut found = Explored { cost: 0.0, starts: vec![0], weights: vec![1.0; points.len()] };
    let Some(first) = points.first() else { return found };
    let mut state = State::start(first, scale);
    // State and cost before the current rejects, and the number of these.
    let mut trusted = (state, 0.0);
    let (mut rejects, mut i) = (0, 1);
    // If the scheduler takes cores away from a node, all collectives end late. Probes would confirm a real step.
    let are_probed = points.iter().any(|point| point.is_probed);
    while let Some(point) = points.get(i) {
        let ahead = state.forecast(point.t, walk);
        let var = point.var * scale;
        let off = point.y - ahead.y;
        let ratio = off * off / (ahead.yy + var);
        if rejects == 0 {
            trusted = (state, found.cost);
        }
        found.cost += likelihood(ahead.yy + var, ratio);
        let weight = ((FREEDOM + 1.0) / (FREEDOM + ratio)).min(1.0);
        found.weights[i] = weight;
        i += 1;
        if ratio <= MAX_SQUARED_DEVIATION {
            rejects = 0;
            state = ahead.update(point.y, var / weight);
            continue;
        }
        rejects += 1;
        let at_end = i == points.len();
        let enough = if at_end { MIN_REJECTS_AT_END } else { MIN_REJECTS };
        let start = i - rejects;
        let probes = points[start..i].iter().filter(|point| point.is_probed).count();
        let is_seen = !are_probed || probes >= if at_end { 1 } else { MIN_PROBED_REJECTS };
        let may_jump = is_seen && rejects >= enough && found.starts.len() <= 2 + points.len() / 50;
        if may_jump && agree(&trusted.0, &points[start..i], scale) {
            found.starts.push(start);
            found.cost = trusted.1 + STEP_COST;
            found.weights[start] = 1.0;
            state = trusted.0.restart(&points[start], scale);
            (rejects, i) = (0, start + 1);
        }
    }
    found
}

/// Returns twice the negative logarithm of Student's t, without a constant.
fn likelihood(var: f64, ratio: f64) -> f64 {
    // (FREEDOM + 1) ln(1 + ratio / FREEDOM), with one logarithm; the limit keeps the power finite.
    let tail = 1.0 + ratio.min(1e30) / FREEDOM;
    let square = tail * tail;
    (var * square * square).ln()
}

/// Returns whether at least four in five points deviate from a forecast by the same amount.
fn agree(from: &State, points: &[Point], scale: f64) -> bool {
    let off = |p: &Point| p.y - from.forecast(p.t, 0.0).y;
    let Some(jump) = robust::median(&mut points.iter().map(off).collect::<Vec<_>>()) else { return false };
    let agreeing = points.iter().filter(|p| {
        let noise = 6.0 * (p.var * scale + from.forecast(p.t, 0.0).yy).sqrt();
        (off(p) - jump).abs() <= noise.min(0.5 * jump.abs()).max(0.2 * jump.abs())
    });
    agreeing.count() + points.len() / MIN_REJECTS >= points.len()
}

/// Returns the random walk and the noise scale under which the points are likeliest.
fn likeliest(points: &[Point], noise: LinkNoise) -> (f64, f64) {
    let unsure_scale = match noise {
        LinkNoise::Trusted => return (USUAL_WALK.0, 1.0),
        LinkNoise::Guessed => 1.0,
        LinkNoise::Scaled => 0.4,
    };
    let parts = parts(points);
    let least = -(points.len() as f64 / MAX_CORRELATED_SAMPLES).ln().max(0.0);
    let cost = |walk: f64, scale: f64| {
        if scale < least {
            return f64::INFINITY;
        }
        let usual = (walk - USUAL_WALK.0.ln()) / USUAL_WALK.1;
        let cost: f64 = parts.iter().map(|part| explore(part, walk.exp(), scale.exp()).cost).sum();
        cost + usual * usual + (scale / unsure_scale).powi(2)
    };
    // Works with logarithms from here on: a coarse search over the walk, then halved steps over both values.
    let coarse = (-2..=4).map(|i| 2.5 * f64::from(i));
    let mut best = (f64::INFINITY, USUAL_WALK.0.ln(), 0.0);
    // A cost that is not a number is never below the best one.
    let keep_better = |best: &mut (f64, f64, f64), walk: f64, scale: f64| {
        let here = cost(walk, scale);
        if here < best.0 {
            *best = (here, walk, scale);
        }
    };
    // Samples that are much noisier than stated look like an unstable clock at short range.
    let rough = roughness(points).ln();
    for walk in coarse {
        keep_better(&mut best, walk, 0.0);
        if rough >= 3.0 {
            keep_better(&mut best, walk, rough);
        }
    }
    let mut step = 1.25;
    for _ in 0..24 {
        let (_, walk, scale) = best;
        for (walk, scale) in
            [(walk + step, scale), (walk - step, scale), (walk, scale + step), (walk, scale - step)]
        {
            if walk <= MAX_WALK {
                keep_better(&mut best, walk, scale);
            }
        }
        if (best.1, best.2) == (walk, scale) {
            step /= 2.0;
        }
        if step < 0.3 {
            break;
        }
    }
    (best.1.exp(), best.2.exp())
}

/// Returns the ratio between the deviations of points from their neighbours and their variances.
fn roughness(points: &[Point]) -> f64 {
    let ratio = |p: &[Point]| {
        let [a, b, c] = p else { return 0.0 };
        let share = if c.t > a.t { (b.t - a.t) / (c.t - a.t) } else { 0.5 };
        let off = b.y - a.y - (c.y - a.y) * share;
        let usual = USUAL_WALK.0 * (c.t - a.t).powi(3) / 192.0;
        off * off / (b.var + (1.0 - share) * (1.0 - share) * a.var + share * share * c.var + usual)
    };
    let mut ratios: Vec<f64> = points.windows(3).map(ratio).collect();
    (robust::median(&mut ratios).unwrap_or(0.0) * robust::DEVIATION * robust::DEVIATION).max(1.0)
}

/// Returns all points or, if there are many, some stretches, which suffice to estimate two numbers.
fn parts(points: &[Point]) -> Vec<&[Point]> {
    if points.len() <= STRETCHES * STRETCH_POINTS {
        return vec![points];
    }
    let apart = (points.len() - STRETCH_POINTS) / (STRETCHES - 1);
    points.windows(STRETCH_POINTS).step_by(apart.max(1)).collect()
}

/// Smooths each piece between steps separately; x in ns since the first point.
fn pieces(points: &[Point], weights: &[f64], starts: &[usize], walk: f64, scale: f64) -> ClockTrack {
    let mut track = ClockTrack { walk, ..ClockTrack::default() };
    let mut carried: Option<State> = None;
    for (i, &start) in starts.iter().enumerate() {
        let end = starts.get(i + 1).copied().unwrap_or(points.len());
        let Some(first) = points.get(start) else { continue };
        let noise = |at: usize| points[at].var * scale / weights[at].max(1e-9);
        let begin = carried.map_or(State::start(first, 1.0), |state| state.restart(first, 1.0));
        let mut ahead = vec![begin];
        let mut states = vec![State { yy: noise(start), ..begin }];
        for at in start + 1..end {
            let (from, to) = (points[at - 1].t, points[at].t);
            // If the rate may change much between two points, the error bound between them is wider than at the
            // points.
            let bulge = walk * (to - from).powi(3) / 192.0 > 0.25 * noise(at);
            let between = (((to - from) * SECOND / MAX_GAP_NS).ceil() as usize)
                .clamp(if bulge { 2 } else { 1 }, MAX_GAP_KNOTS);
            for k in 1..=between {
                let t = if k == between { to } else { from + (to - from) * k as f64 / between as f64 };
                let Some(last) = states.last() else { break };
                let forecast = last.forecast(t, walk);
                let known = if k == between { forecast.update(points[at].y, noise(at)) } else { forecast };
                ahead.push(forecast);
                states.push(known);
            }
        }
        carried = states.last().copied();
        backwards(&mut states, &ahead);
        if let (Some(last), Some(before)) =
            (track.knots.last(), start.checked_sub(1).and_then(|i| points.get(i)))
        {
            let by = states[0].y - last.y - (last.rate + states[0].rate) / 2.0 * (begin.t - before.t);
            let (after, before) = (before.t * SECOND - before.around, first.t * SECOND + first.around);
            track.steps.push(TrackStep { after, before, by });
        }
        track.knots.extend(states.iter().map(knot));
    }
    track
}

fn knot(s: &State) -> TrackKnot {
    TrackKnot { x: s.t * SECOND, y: s.y, rate: s.rate, var: s.yy, cov: s.yr, rate_var: s.rr, slack: 0.0 }
}

/// Rauch-Tung-Striebel pass. `states` are filtered states and become smoothed ones; `ahead` are their forecasts.
fn backwards(states: &mut [State], ahead: &[State]) {
    for i in (0..states.len().saturating_sub(1)).rev() {
        let (now, next, forecast) = (states[i], states[i + 1], ahead[i + 1]);
        let dt = next.t - now.t;
        let determinant = forecast.yy * forecast.rr - forecast.yr * forecast.yr;
        if determinant.is_nan() || determinant <= 0.0 {
            continue;
        }
        // Gain = P F' inverse(forecast), with F = [1 dt; 0 1].
        let (a, b) = (now.yy + dt * now.yr, now.yr);
        let (c, d) = (now.yr + dt * now.rr, now.rr);
        let g00 = (a * forecast.rr - b * forecast.yr) / determinant;
        let g01 = (b * forecast.yy - a * forecast.yr) / determinant;
        let g10 = (c * forecast.rr - d * forecast.yr) / determinant;
        let g11 = (d * forecast.yy - c * forecast.yr) / determinant;
        let (dy, dr) = (next.y - forecast.y, next.rate - forecast.rate);
        let (eyy, eyr, err) = (next.yy - forecast.yy, next.yr - forecast.yr, next.rr - forecast.rr);
        states[i] = State {
            t: now.t,
            y: now.y + g00 * dy + g01 * dr,
            rate: now.rate + g10 * dy + g11 * dr,
            yy: (now.yy + g00 * (g00 * eyy + g01 * eyr) + g01 * (g00 * eyr + g01 * err)).max(0.0),
            yr: now.yr + g10 * (g00 * eyy + g01 * eyr) + g11 * (g00 * eyr + g01 * err),
            rr: (now.rr + g10 * (g10 * eyy + g11 * eyr) + g11 * (g10 * eyr + g11 * err)).max(0.0),
        };
    }
}

/// Adds slack in the interval in which a clock stepped: the whole step may be missing there.
fn widen_steps(track: &mut ClockTrack) {
    for step in track.steps.clone() {
        let ends = [step.after, step.before].map(|x| track.at(x));
        track.knots.extend(ends);
        for knot in track.knots.iter_mut().filter(|k| k.x >= step.after && k.x <= step.before) {
            knot.slack += step.by.abs();
        }
    }
    track.knots.sort_by(|a, b| a.x.total_cmp(&b.x));
}
