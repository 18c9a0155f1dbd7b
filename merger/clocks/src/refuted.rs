//! Where probes say for certain that collectives mislead: on nodes that share cores, or where the ranks of an
//! operation leave one after the other, exits are off by far more than a round trip takes. What is refuted of a domain now
//! and then is left out; if it is most of it, all of its collectives are.

use super::certain_bounds::CertainBounds;
use super::locate::DomainTrack;
use super::smoother::TrackSample;
use super::track::SECOND;

/// Within so many standard deviations noise explains it.
const NOISE: f64 = 3.0;

/// Whether `other` is, most of the time, further from the probes' track than that can be wrong, or says less than
/// is certain by the probes alone. `certain` is what probes say of their own track.
pub(super) fn is_refuted(probes: &DomainTrack, certain: &CertainBounds, other: &DomainTrack) -> bool {
    let (mut all, mut refuted) = (0, 0);
    for (knot, bound) in probes.track.knots.iter().zip(&certain.at_knots) {
        let Some((low, high)) = bound.filter(|(low, high)| low.is_finite() && high.is_finite()) else {
            continue;
        };
        let there = other.track.at(knot.x);
        let off = there.y - knot.y;
        // A jump that the probes do not see is no excuse.
        let noise = NOISE * (there.var + knot.var).sqrt() + knot.slack;
        let is_off = (off - high).max(low - off) > noise;
        let is_vague = 2.0 * there.var.sqrt() + there.slack > high - low + knot.slack;
        all += 1;
        refuted += usize::from(is_off || is_vague);
    }
    2 * refuted > all
}

/// Parts of a run that are compared with each other.
const PARTS: usize = 4;

/// Whether collectives move against probes from one part of the run to another, by more than the bounds of both: then
/// ranks leave late for a while, and no constant makes up for it. Where a clock jumps nothing is compared.
pub(super) fn are_moving(probes: &DomainTrack, collectives: &DomainTrack) -> bool {
    let ends = |l: &DomainTrack| Some((l.track.knots.first()?.x, l.track.knots.last()?.x));
    let (Some((a, b)), Some((c, d))) = (ends(probes), ends(collectives)) else { return false };
    let (from, to) = (a.max(c), b.min(d));
    // Sum of the distances, sum of their variances, count.
    let mut parts = [(0.0, 0.0, 0.0); PARTS];
    for knot in collectives.track.knots.iter().filter(|k| k.x >= from && k.x <= to) {
        let other = probes.track.at(knot.x);
        let part = ((knot.x - from) / (to - from) * PARTS as f64) as usize;
        if let Some(part) = parts.get_mut(part.min(PARTS - 1)).filter(|_| knot.slack + other.slack == 0.0) {
            part.0 += knot.y - other.y;
            part.1 += knot.var + other.var;
            part.2 += 1.0;
        }
    }
    // Errors of one part are alike: their mean is no better than one of them.
    let parts: Vec<(f64, f64)> = parts
        .iter()
        .filter(|(.., count)| *count > 0.0)
        .map(|(sum, vars, count)| (sum / count, 2.0 * (vars / count).sqrt()))
        .collect();
    let moved = |a: &(f64, f64), b: &(f64, f64)| (a.0 - b.0).abs() > a.1 + b.1;
    parts.iter().any(|a| parts.iter().any(|b| moved(a, b)))
}

/// What the probes alone say of each domain.
pub(super) struct ProbedLinks<'a> {
    pub(super) located: &'a [Option<DomainTrack>],
    pub(super) certain: &'a [CertainBounds],
}

impl ProbedLinks<'_> {
    /// Whether a block of collectives is further from the probes' track than that can be wrong: between two bursts, where
    /// a clock does not run off and come back, and as long behind the last one as there were bursts before.
    pub(super) fn refutes(&self, domain: usize, sample: &TrackSample) -> bool {
        let Some(probes) = &self.located[domain] else { return false };
        let track = &probes.track;
        let Some((low, high)) = self.certain[domain].near(track, sample.x) else { return false };
        let there = track.at(sample.x);
        let after = track.knots.partition_point(|k| k.x <= sample.x);
        let around = (after.checked_sub(1).and_then(|i| track.knots.get(i)), track.knots.get(after));
        let wander = match around {
            // As the variance of a walk between two ends that are known.
            (Some(a), Some(b)) => track.walk * ((b.x - a.x) / SECOND).powi(3) / 192.0,
            _ => 0.0,
        };
        let off = sample.y - there.y;
        (off - high).max(low - off) > NOISE * (there.var + wander + sample.var).sqrt() + there.slack
    }
}
