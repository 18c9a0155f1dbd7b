//! Detects collectives that probes prove misleading.
//!
//! On nodes that share cores, or if the ranks of a collective leave one after another, exits differ by far more
//! than a round trip. If few collectives of a domain are refuted, only these are discarded; if most are, all of
//! them.

use super::certain_bounds::CertainBounds;
use super::locate::DomainTrack;
use super::smoother::TrackSample;
use super::track::SECOND;

/// Number of standard deviations that noise explains.
const NOISE_DEVIATIONS: f64 = 3.0;

/// Returns whether, at most knots, `other` is further from the probes' track than the bounds allow, or less
/// accurate than the bounds from probes alone. `bounds` has the certain bounds of the probes' own track.
pub(super) fn is_refuted(probes: &DomainTrack, bounds: &CertainBounds, other: &DomainTrack) -> bool {
    let (mut all, mut refuted) = (0, 0);
    for (knot, bound) in probes.track.knots.iter().zip(&bounds.at_knots) {
        let Some((low, high)) = bound.filter(|(low, high)| low.is_finite() && high.is_finite()) else {
            continue;
        };
        let there = other.track.at(knot.x);
        let off = there.y - knot.y;
        // A step that the probes do not show does not excuse the difference.
        let noise = NOISE_DEVIATIONS * (there.var + knot.var).sqrt() + knot.slack;
        let is_off = (off - high).max(low - off) > noise;
        let is_vague = 2.0 * there.var.sqrt() + there.slack > high - low + knot.slack;
        all += 1;
        refuted += usize::from(is_off || is_vague);
    }
    2 * refuted > all
}

/// Number of parts of a run that are compared with each other.
const RUN_PARTS: usize = 4;

/// Returns whether collectives move relative to probes between parts of the run, by more than both error bounds.
/// Ranks then leave late for some time, and no constant corrects that. Times near a step are not compared. A node
/// that left collectives 20 us late from some time on moved the estimate by 10.5 us, at an error bound of 2.3 us.
pub(super) fn are_moving(probes: &DomainTrack, collectives: &DomainTrack) -> bool {
    let Some((from, to)) = probes.track.common_span(&collectives.track) else { return false };
    // Sum of the differences, sum of their variances, and count.
    let mut parts = [(0.0, 0.0, 0.0); RUN_PARTS];
    for knot in collectives.track.knots.iter().filter(|k| k.x >= from && k.x <= to) {
        let other = probes.track.at(knot.x);
        let part = ((knot.x - from) / (to - from) * RUN_PARTS as f64) as usize;
        if let Some(part) = parts.get_mut(part.min(RUN_PARTS - 1)).filter(|_| knot.slack + other.slack == 0.0)
        {
            part.0 += knot.y - other.y;
            part.1 += knot.var + other.var;
            part.2 += 1.0;
        }
    }
    // Errors within a part are correlated: their mean is no more accurate than a single one.
    let parts: Vec<(f64, f64)> = parts
        .iter()
        .filter(|(.., count)| *count > 0.0)
        .map(|(sum, vars, count)| (sum / count, 2.0 * (vars / count).sqrt()))
        .collect();
    let moved = |a: &(f64, f64), b: &(f64, f64)| (a.0 - b.0).abs() > a.1 + b.1;
    parts.iter().any(|a| parts.iter().any(|b| moved(a, b)))
}

/// Tracks and bounds of each domain from probes alone.
pub(super) struct ProbedLinks<'a> {
    pub(super) located: &'a [Option<DomainTrack>],
    pub(super) bounds: &'a [CertainBounds],
}

impl ProbedLinks<'_> {
    /// Returns whether a block of collectives is further from the probes' track than the bounds allow.
    ///
    /// It checks blocks between two bursts, where a clock does not drift away and return. It also checks blocks
    /// after the last burst, for as long as bursts had lasted.
    pub(super) fn refutes(&self, domain: usize, sample: &TrackSample) -> bool {
        let Some(probes) = &self.located[domain] else { return false };
        let track = &probes.track;
        let Some((low, high)) = self.bounds[domain].around(track, sample.x) else { return false };
        let there = track.at(sample.x);
        let after = track.knots.partition_point(|k| k.x <= sample.x);
        let around = (after.checked_sub(1).and_then(|i| track.knots.get(i)), track.knots.get(after));
        let wander = match around {
            // Variance of a random walk between two known ends.
            (Some(a), Some(b)) => track.walk * ((b.x - a.x) / SECOND).powi(3) / 192.0,
            _ => 0.0,
        };
        let off = sample.y - there.y;
        (off - high).max(low - off)
            > NOISE_DEVIATIONS * (there.var + wander + sample.var).sqrt() + there.slack
    }
}
