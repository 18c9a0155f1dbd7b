//! Alignment by wall clocks, the last resort: NTP sets the wall clocks of all nodes approximately.

use super::fit::{DomainFit, ErrorKnot};
use super::method::AlignMethod;
use super::robust;
use super::time_map::TimeMap;
use rpd_shard::record::ClockSet;

/// Assumed difference between the wall clocks of two nodes if it cannot be measured, ns. It is typical for NTP
/// over a network other than a LAN.
pub(super) const UNMEASURED: f64 = 10e6;
/// Fewest nodes with a better alignment that are needed to measure the error of anchors.
const ENOUGH: usize = 3;

/// REALTIME minus BOOTTIME of a domain, or minus the clock that its times are recorded with.
pub(super) struct RealtimeAnchor {
    /// Median over the run, ns.
    pub(super) ns: i64,
    /// Range over the run, ns. The anchor moves if the wall clock is set or BOOTTIME steps.
    pub(super) moved: f64,
    /// BOOTTIME of the first and the last set, ns.
    ends: (i64, i64),
}

impl RealtimeAnchor {
    /// Returns `None` if there is no set.
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

    /// Returns the anchor of a domain whose times are read from its wall clock. `ends` are the first and last
    /// time.
    pub(super) fn of_wall_clock(ends: (i64, i64)) -> RealtimeAnchor {
        RealtimeAnchor { ns: 0, moved: 0.0, ends }
    }
}

/// Returns the error of anchors, ns. `off` has, for each domain with a better alignment, the anchor minus that
/// alignment.
pub(super) fn uncertainty(mut off: Vec<f64>) -> f64 {
    if off.len() < ENOUGH {
        return UNMEASURED;
    }
    let count = off.len() as f64;
    off.iter_mut().for_each(|v| *v = v.abs());
    let (middle, most) = (robust::median(&mut off), robust::quantile(&mut off, 1.0));
    // Twice the standard deviation, and more if few nodes were measured.
    let by_middle = middle.unwrap_or(0.0) * robust::DEVIATION * (2.0 + 6.0 / count);
    by_middle.max(most.unwrap_or(0.0) * 1.2).max(1e3)
}

/// Aligns a domain by the anchors; returns `None` if the offset overflows.
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
