//! Kalman filter and Rauch-Tung-Striebel smoother on [y, rate], of samples with a noise of their own.
//!
//! How fast the rate wanders and by what factor the noise is larger than the samples say come from the
//! samples, by maximum likelihood of Student's t, so that outliers neither move the track nor widen its bar
//! for good.

use super::links::LinkKind;
use super::robust;
use super::track::{ClockJump, ClockTrack, SECOND, TrackKnot};

/// "When the domain's clock showed x, it was y behind the reference", ns, with a variance in ns^2.
#[derive(Clone, Copy, Debug)]
pub(super) struct TrackSample {
    pub(super) x: f64,
    pub(super) y: f64,
    pub(super) var: f64,
    /// It stands for what was seen within this time, ns.
    pub(super) around: f64,
    /// Where it comes from; not looked at here.
    pub(super) link: usize,
    /// What it comes from.
    pub(super) kind: LinkKind,
}

/// How sure the noise of the samples is before they are looked at.
#[derive(Clone, Copy, Debug)]
pub(super) enum LinkNoise {
    /// As the samples say, and a usual crystal: quick, and good to some us.
    Trusted,
    /// A first guess.
    Guessed,
    /// Scaled by an earlier fit.
    Scaled,
}

/// A track, and the factor of its samples' variances.
#[derive(Clone, Debug)]
pub(super) struct SmoothedTrack {
    pub(super) track: ClockTrack,
    pub(super) scale: f64,
    /// How much each sample counted, 0 to about 1.
    pub(super) weights: Vec<f64>,
}

/// Degrees of freedom of the noise: its tails are heavy.
const FREEDOM: f64 = 3.0;
/// A forecast that is this many standard deviations off, squared, is not believed.
const REJECT: f64 = 36.0;
/// So many in a row that agree with each other are a jump of the clock.
const REJECTS: usize = 5;
/// At the end of the samples so few are.
const REJECTS_AT_END: usize = 2;
/// Where there are probes, so many of the rejects are probes; at the end one.
const PROBED_REJECTS: usize = 2;
/// Cost of a jump, in the units of the likelihood: jumps are rare.
const JUMP: f64 = 30.0;
/// Variance of rates before anything is known: 100 ppm.
const ANY_RATE: f64 = 1e5 * 1e5;
/// What a jump may add to the variance of the rate: 5 ppm.
const JUMPED_RATE: f64 = 5e3 * 5e3;
/// A crystal's usual wander, (ns/s)^2/s, and how far from it one may be (logarithm, standard deviation). With more, a clock
/// that seems to wander explains the odd burst of a busy node.
const USUAL_WALK: (f64, f64) = (20.0, 1.5);
/// No crystal wanders more; what looks like it is noise, ln of (ns/s)^2/s.
const MOST_WALK: f64 = 11.5;
/// Gaps longer than this get knots of their own, ns.
const GAP: f64 = 8.0 * SECOND;
/// So many samples, or fewer, may all be off by nearly the same, and are no less noisy than they say.
const TELLING: f64 = 16.0;
/// No more than so many in one gap.
const GAP_KNOTS: usize = 16;
/// The likelihood of many points is that of so many stretches...
const PARTS: usize = 3;
/// ... of so many.
const PART: usize = 80;
/// Rounds of reweighting by the smoothed residuals.
const ROUNDS: usize = 3;

/// The track through samples in order of x; `None` without any.
pub(super) fn smooth(samples: &[TrackSample], noise: LinkNoise) -> Option<SmoothedTrack> {
    let origin = Origin::of(samples)?;
    let points: Vec<Point> = samples.iter().map(|s| origin.point(s)).collect();
    let (walk, scale) = likeliest(&points, noise);
    let Explored { starts, mut weights, .. } = explore(&points, walk, scale);
    let mut track = ClockTrack { walk, ..ClockTrack::default() };
    for _ in 0..ROUNDS {
        track = pieces(&points, &weights, &starts, walk, scale);
        for (point, weight) in points.iter().zip(&mut weights) {
            let off = point.y - track.at(point.t * SECOND).y;
            *weight = (FREEDOM + 1.0) / (FREEDOM + off * off / (point.var * scale));
        }
    }
    doubt(&mut track);
    origin.restore(&mut track);
    Some(SmoothedTrack { track, scale, weights })
}

/// Times in seconds and values near 0, so that squares keep their digits.
struct Origin {
    x: f64,
    y: f64,
}

#[derive(Clone, Copy, Debug)]
struct Point {
    /// s.
    t: f64,
    y: f64,
    var: f64,
    /// ns.
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
        State { t: point.t, y: point.y, rate: 0.0, yy: point.var * scale, yr: 0.0, rr: ANY_RATE }
    }

    /// After a jump of y.
    fn restart(&self, point: &Point, scale: f64) -> State {
        let at = self.forecast(point.t, 0.0);
        State { y: point.y, yy: point.var * scale, yr: 0.0, rr: at.rr + JUMPED_RATE, ..at }
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

/// What one pass over the points finds.
struct Explored {
    /// Twice the negative logarithm of the likelihood.
    cost: f64,
    /// The first point of each piece between jumps.
    starts: Vec<usize>,
    /// How far each point is believed, 0 to 1.
    weights: Vec<f64>,
}

/// Filters, and finds jumps: forecasts that are off several times in a row, in the same way.
fn explore(points: &[Point], walk: f64, scale: f64) -> Explored {
    let mut found = Explored { cost: 0.0, starts: vec![0], weights: vec![1.0; points.len()] };
    let Some(first) = points.first() else { return found };
    let mut state = State::start(first, scale);
    // State and cost before the rejects in a row, and how many they are.
    let mut trusted = (state, 0.0);
    let (mut rejects, mut i) = (0, 1);
    // Collectives all end late when the cores of a node are given to others, and probes would show a jump, too.
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
        if ratio <= REJECT {
            rejects = 0;
            state = ahead.update(point.y, var / weight);
            continue;
        }
        rejects += 1;
        let at_end = i == points.len();
        let enough = if at_end { REJECTS_AT_END } else { REJECTS };
        let start = i - rejects;
        let probes = points[start..i].iter().filter(|point| point.is_probed).count();
        let is_seen = !are_probed || probes >= if at_end { 1 } else { PROBED_REJECTS };
        let may_jump = is_seen && rejects >= enough && found.starts.len() <= 2 + points.len() / 50;
        if may_jump && agree(&trusted.0, &points[start..i], scale) {
            found.starts.push(start);
            found.cost = trusted.1 + JUMP;
            found.weights[start] = 1.0;
            state = trusted.0.restart(&points[start], scale);
            (rejects, i) = (0, start + 1);
        }
    }
    found
}

/// Twice the negative logarithm of Student's t, but for a constant.
fn likelihood(var: f64, ratio: f64) -> f64 {
    // (FREEDOM + 1) ln(1 + ratio / FREEDOM), with one logarithm; the limit keeps the power finite.
    let tail = 1.0 + ratio.min(1e30) / FREEDOM;
    let square = tail * tail;
    (var * square * square).ln()
}

/// Whether points are off from a forecast by the same, but for one in five.
fn agree(from: &State, points: &[Point], scale: f64) -> bool {
    let off = |p: &Point| p.y - from.forecast(p.t, 0.0).y;
    let Some(jump) = robust::median(&mut points.iter().map(off).collect::<Vec<_>>()) else { return false };
    let agreeing = points.iter().filter(|p| {
        let noise = 6.0 * (p.var * scale + from.forecast(p.t, 0.0).yy).sqrt();
        (off(p) - jump).abs() <= noise.min(0.5 * jump.abs()).max(0.2 * jump.abs())
    });
    agreeing.count() + points.len() / REJECTS >= points.len()
}

/// The wander of the rate and the factor of the noise under which the points are likeliest.
fn likeliest(points: &[Point], noise: LinkNoise) -> (f64, f64) {
    let unsure_scale = match noise {
        LinkNoise::Trusted => return (USUAL_WALK.0, 1.0),
        LinkNoise::Guessed => 1.0,
        LinkNoise::Scaled => 0.4,
    };
    let parts = parts(points);
    let least = -(points.len() as f64 / TELLING).ln().max(0.0);
    let cost = |walk: f64, scale: f64| {
        let usual = (walk - USUAL_WALK.0.ln()) / USUAL_WALK.1;
        let cost: f64 = parts.iter().map(|part| explore(part, walk.exp(), scale.exp()).cost).sum();
        let cost = cost + usual * usual + (scale / unsure_scale).powi(2);
        if scale < least {
            return f64::INFINITY;
        }
        if cost.is_nan() || scale < least { f64::INFINITY } else { cost }
    };
    // Logarithms from here on; first a coarse look along the wander, then by halved steps along both.
    let coarse = (-2..=4).map(|i| 2.5 * f64::from(i));
    let mut best = (f64::INFINITY, USUAL_WALK.0.ln(), 0.0);
    // Samples that are far noisier than they say look like a wild clock, from nearby.
    let rough = roughness(points).ln();
    for (walk, scale) in coarse.flat_map(|walk| [(walk, 0.0), (walk, rough)]) {
        if scale != 0.0 && rough < 3.0 {
            continue;
        }
        let here = cost(walk, scale);
        if here < best.0 {
            best = (here, walk, scale);
        }
    }
    let mut step = 1.25;
    for _ in 0..24 {
        let (_, walk, scale) = best;
        for (walk, scale) in
            [(walk + step, scale), (walk - step, scale), (walk, scale + step), (walk, scale - step)]
        {
            if walk > MOST_WALK {
                continue;
            }
            let here = cost(walk, scale);
            if here < best.0 {
                best = (here, walk, scale);
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

/// How much larger than their variances the distances of points from their neighbours are.
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

/// All points, or of many some stretches: two numbers do not need more.
fn parts(points: &[Point]) -> Vec<&[Point]> {
    if points.len() <= PARTS * PART {
        return vec![points];
    }
    let apart = (points.len() - PART) / (PARTS - 1);
    points.windows(PART).step_by(apart.max(1)).collect()
}

/// Smooths the pieces between jumps, each alone; x in ns since the first point.
fn pieces(points: &[Point], weights: &[f64], starts: &[usize], walk: f64, scale: f64) -> ClockTrack {
    let mut track = ClockTrack { walk, ..ClockTrack::default() };
    let mut carried: Option<State> = None;
    for (i, &start) in starts.iter().enumerate() {
        let end = starts.get(i + 1).copied().unwrap_or(points.len());
        let Some(first) = points.get(start) else { continue };
        let noise = |at: usize| points[at].var * scale / weights[at].max(1e-9);
        let begin = match &carried {
            Some(state) => state.restart(first, 1.0),
            None => State::start(first, 1.0),
        };
        let mut ahead = vec![begin];
        let mut states = vec![State { yy: noise(start), ..begin }];
        for at in start + 1..end {
            let (from, to) = (points[at - 1].t, points[at].t);
            // Where the rate may have changed much between two points, the bar between them is wider than at them.
            let bulge = walk * (to - from).powi(3) / 192.0 > 0.25 * noise(at);
            let between =
                (((to - from) * SECOND / GAP).ceil() as usize).clamp(if bulge { 2 } else { 1 }, GAP_KNOTS);
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
            track.steps.push(ClockJump { after, before, by });
        }
        track.knots.extend(states.iter().map(knot));
    }
    track
}

fn knot(s: &State) -> TrackKnot {
    TrackKnot { x: s.t * SECOND, y: s.y, rate: s.rate, var: s.yy, cov: s.yr, rate_var: s.rr, slack: 0.0 }
}

/// The Rauch-Tung-Striebel pass: `states` are filtered and become smoothed, `ahead` their forecasts.
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

/// While a clock may or may not have jumped yet, all of the jump may be missing.
fn doubt(track: &mut ClockTrack) {
    for step in track.steps.clone() {
        let ends = [step.after, step.before].map(|x| track.at(x));
        track.knots.extend(ends);
        for knot in track.knots.iter_mut().filter(|k| k.x >= step.after && k.x <= step.before) {
            knot.slack += step.by.abs();
        }
    }
    track.knots.sort_by(|a, b| a.x.total_cmp(&b.x));
}
