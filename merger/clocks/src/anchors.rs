//! Alignment by wall clocks, the last resort: NTP sets the wall clocks of all nodes approximately.

use super::fit::{DomainFit, ErrorKnot};
use super::method::AlignMethod;
use super::observations::ClockObservations;
use super::robust;
use super::time_map::TimeMap;
use rpd_shard::record::ClockSet;

/// Assumed difference between the wall clocks of two nodes if it cannot be measured, ns. It is typical for NTP
/// over a network other than a LAN.
const UNMEASURED_ERROR_NS: f64 = 10e6;
/// Fewest nodes with a better alignment that are needed to measure the error of anchors.
const MIN_NODES: usize = 3;

/// REALTIME minus BOOTTIME of a domain, or minus the clock that its times are recorded with.
struct RealtimeAnchor {
    /// Median over the run, ns.
    ns: i64,
    /// Range over the run, ns. The anchor moves if the wall clock is set or BOOTTIME steps.
    moved: f64,
    /// BOOTTIME of the first and the last set, ns.
    ends: (i64, i64),
}

impl RealtimeAnchor {
    /// Returns `None` if there is no set.
    fn new(sets: &[ClockSet]) -> Option<RealtimeAnchor> {
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
}

/// Aligns the remaining domains by their wall clocks. The aligned domains show how accurate wall clocks are.
pub(super) fn align_by_anchors(observations: &ClockObservations, fits: &mut [DomainFit]) {
    let anchor = |position: usize| {
        let sets = observations.sets.get(position).map_or(&[][..], Vec::as_slice);
        // Times that are read from the wall clock itself.
        let wall = || Some(RealtimeAnchor { ns: 0, moved: 0.0, ends: *observations.walls.get(&position)? });
        RealtimeAnchor::new(sets).or_else(wall)
    };
    let anchors: Vec<Option<RealtimeAnchor>> = (0..fits.len()).map(anchor).collect();
    let Some(Some(reference)) = anchors.get(observations.reference) else { return };
    let off = fits
        .iter()
        .zip(&anchors)
        .filter(|(fit, _)| !matches!(fit.method, AlignMethod::None | AlignMethod::Reference))
        .filter_map(|(fit, own)| {
            Some(own.as_ref()?.ns.checked_sub(reference.ns)?.checked_sub(fit.offset)? as f64)
        });
    let uncertainty = uncertainty(off.collect());
    for (unaligned, own) in fits.iter_mut().zip(&anchors).filter(|(fit, _)| fit.method == AlignMethod::None) {
        if let Some(better) = own.as_ref().and_then(|own| fit(own, reference, uncertainty)) {
            *unaligned = better;
        }
    }
}

/// Returns the error of anchors, ns. `off` has, for each domain with a better alignment, the anchor minus that
/// alignment.
fn uncertainty(mut off: Vec<f64>) -> f64 {
    if off.len() < MIN_NODES {
        return UNMEASURED_ERROR_NS;
    }
    let count = off.len() as f64;
    off.iter_mut().for_each(|v| *v = v.abs());
    let most = off.iter().copied().fold(0.0, f64::max);
    // Twice the standard deviation, and more if few nodes were measured.
    let by_middle = robust::median(&mut off).unwrap_or(0.0) * robust::DEVIATION * (2.0 + 6.0 / count);
    by_middle.max(most * 1.2).max(1e3)
}

/// Aligns a domain by the anchors; returns `None` if the offset overflows.
fn fit(own: &RealtimeAnchor, reference: &RealtimeAnchor, uncertainty: f64) -> Option<DomainFit> {
    let offset = own.ns.checked_sub(reference.ns)?;
    let bar = (uncertainty + own.moved + reference.moved).min(1e18) as i64;
    let knot = |local| ErrorKnot { local, offset, bar, certain_bounds: None, growth: 1_000 };
    let (first, last) = own.ends;
    let bars = if first == last { vec![knot(first)] } else { vec![knot(first), knot(last)] };
    Some(DomainFit {
        method: AlignMethod::RealtimeAnchors,
        map: TimeMap::shift(offset),
        offset,
        bars,
        ..DomainFit::default()
    })
}
