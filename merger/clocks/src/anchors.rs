//! The last resort: all nodes' wall clocks are set by NTP, more or less.

use super::fit::{DomainFit, ErrorKnot};
use super::method::AlignMethod;
use super::robust;
use super::time_map::TimeMap;
use rpd_shard::record::ClockSet;

/// What two nodes' wall clocks are apart where nothing tells, ns: usual for NTP over a network that is no LAN.
pub(super) const UNMEASURED: f64 = 10e6;
/// Nodes whose anchors can be compared with something better, before that says what anchors are worth.
const ENOUGH: usize = 3;

/// REALTIME minus BOOTTIME of a domain, or minus what its times are otherwise stamped with.
pub(super) struct RealtimeAnchor {
    /// The middle one over the run, ns.
    pub(super) ns: i64,
    /// How far it moved over the run: the wall clock was set, or BOOTTIME jumped; ns.
    pub(super) moved: f64,
    /// First and last BOOTTIME that a set is known of, ns.
    ends: (i64, i64),
}

impl RealtimeAnchor {
    /// `None` without a set.
    pub(super) fn new(sets: &[ClockSet]) -> Option<RealtimeAnchor> {
        let mut anchors: Vec<i128> =
            sets.iter().map(|s| i128::from(s.realtime) - i128::from(s.boottime)).collect();
        anchors.sort_unstable();
        let middle = *anchors.get(anchors.len() / 2)?;
        let (first, last) = (*anchors.first()?, *anchors.last()?);
        let times = || sets.iter().map(|s| s.boottime);
        Some(RealtimeAnchor {
            ns: i64::try_from(middle).ok()?,
            moved: (last - first) as f64,
            ends: (times().min()?, times().max()?),
        })
    }

    /// Of a domain whose times are those of its wall clock, first and last.
    pub(super) fn of_wall_clock(ends: (i64, i64)) -> RealtimeAnchor {
        RealtimeAnchor { ns: 0, moved: 0.0, ends }
    }
}

/// What anchors are off by, from the domains that something better aligned: anchor minus that, ns.
pub(super) fn uncertainty(mut off: Vec<f64>) -> f64 {
    if off.len() < ENOUGH {
        return UNMEASURED;
    }
    let count = off.len() as f64;
    off.iter_mut().for_each(|v| *v = v.abs());
    let (middle, most) = (robust::median(&mut off), robust::quantile(&mut off, 1.0));
    // Twice the deviation, and more where few nodes tell.
    let by_middle = middle.unwrap_or(0.0) * robust::DEVIATION * (2.0 + 6.0 / count);
    by_middle.max(most.unwrap_or(0.0) * 1.2).max(1e3)
}

/// Aligns by the anchors; `None` if the offset is no time.
pub(super) fn fit(own: &RealtimeAnchor, reference: &RealtimeAnchor, uncertainty: f64) -> Option<DomainFit> {
    let offset = own.ns.checked_sub(reference.ns)?;
    let bar = (uncertainty + own.moved + reference.moved).min(1e18) as i64;
    let knot = |local| ErrorKnot { local, offset, bar, hard: None, growth: 1_000 };
    let (first, last) = own.ends;
    let bars = if first == last { vec![knot(first)] } else { vec![knot(first), knot(last)] };
    Some(DomainFit {
        method: AlignMethod::RealtimeAnchors,
        map: TimeMap::shift(offset),
        offset,
        bars,
        ..DomainFit::unknown()
    })
}
