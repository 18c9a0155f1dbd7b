//! Where probes say for certain that collectives mislead: on nodes that share cores, or where the ranks of an
//! operation leave one after the other, exits are off by far more than a round trip takes.

use super::bounds::Bounds;
use super::locate::Located;

/// Within so many standard deviations noise explains it.
const NOISE: f64 = 3.0;

/// Whether `other` is, most of the time, further from the probes' track than that can be wrong, or says less than
/// is certain by the probes alone. `certain` is what probes say of their own track.
pub(super) fn is_refuted(probes: &Located, certain: &Bounds, other: &Located) -> bool {
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
