//! The piecewise linear track through the measurements of one clock, with its error bound.

use super::Entry;
use crate::{AlignMethod, DomainFit, ErrorKnot, TimeMap};
use rpd_shard::model::LocalNs;

/// Distance before the first and after the last measurement at which the outer lines get a point, ns: 115 days,
/// so that rounding to whole ns is negligible.
const REACH_NS: i128 = 10_000_000_000_000_000;
/// Assumed difference between the rates of two clocks if it is not stated.
const UNKNOWN_RATE: f64 = 20e-6;
/// Change of a rate between two measurements and after them: the rate of quartz follows its temperature.
const RATE_WANDER: f64 = 1e-6;
/// Duration over which the reported drift is computed, ns.
const DRIFT_SPAN_NS: i64 = 1_000_000_000_000;

/// Track of a node's time relative to that of the file's reference.
pub(super) struct FileTrack {
    /// Points (node, reference): at least two, both coordinates ascending. Beyond them the lines are extended.
    points: Vec<(i128, i128)>,
    /// `None` if a measurement has no error.
    bars: Option<Bars>,
}

/// Error bound of a track.
#[derive(Default)]
struct Bars {
    /// Times of the node, ascending, with the error bound in ns; linear between them. An empty list means no
    /// error.
    knots: Vec<(i128, f64)>,
    /// Growth before the first and after the last knot, ns per ns.
    growth: (f64, f64),
}

impl FileTrack {
    /// Returns the track of the file's reference.
    pub(super) fn identity() -> FileTrack {
        FileTrack { points: vec![(-REACH_NS, -REACH_NS), (REACH_NS, REACH_NS)], bars: Some(Bars::default()) }
    }

    /// Returns the track through measurements that [`super::check`] accepted, in order of time; `None` without
    /// measurements.
    pub(super) fn through(lines: &[&Entry]) -> Option<FileTrack> {
        let (first, last) = (lines.first()?, lines.last()?);
        // Before the first and after the last measurement the stated rate is used, or else that of the adjacent
        // piece.
        let (rate_before, growth_before) = beyond(first, lines.get(1).map(|second| (*first, *second)));
        let before_last = lines.len().checked_sub(2).and_then(|place| lines.get(place));
        let (rate_after, growth_after) = beyond(last, before_last.map(|before| (*before, *last)));
        let at = |entry: &Entry| (i128::from(entry.at()), entry.site());
        let far = |rate: f64| REACH_NS + (REACH_NS as f64 * rate).round() as i128;
        let mut points: Vec<(i128, i128)> = lines.iter().map(|line| at(line)).collect();
        points.insert(0, (at(first).0 - REACH_NS, at(first).1 - far(rate_before)));
        points.push((at(last).0 + REACH_NS, at(last).1 + far(rate_after)));
        let errors: Option<Vec<f64>> = lines.iter().map(|line| line.error.map(|ns| ns as f64)).collect();
        let bars = errors.map(|errors| {
            let measured: Vec<(i128, f64)> = lines.iter().map(|line| at(line).0).zip(errors).collect();
            Bars { knots: with_middles(&measured), growth: (growth_before, growth_after) }
        });
        Some(FileTrack { points, bars })
    }

    /// Returns the time of a middle measurement of the node.
    pub(super) fn middle(&self) -> i64 {
        let middle = self.points.get(self.points.len() / 2);
        middle.and_then(|(local, _)| i64::try_from(*local).ok()).unwrap_or(0)
    }

    /// Converts a time of the node to the file's reference.
    fn there(&self, local: i128) -> i128 {
        along(&self.points, local, |point| *point)
    }

    /// Converts a time of the file's reference to the node.
    fn back(&self, site: i128) -> i128 {
        along(&self.points, site, |(local, site)| (*site, *local))
    }

    /// Returns the fit of a node to a merge with a reference of the track `reference`. The reported offset and
    /// drift are those at `middle`, ns of the node.
    pub(super) fn fit(&self, reference: &FileTrack, middle: i64) -> DomainFit {
        let here = |their: i128| self.back(reference.there(their));
        let mut bends: Vec<i128> = self.points.iter().map(|(local, _)| *local).collect();
        bends.extend(reference.points.iter().map(|(their, _)| here(*their)));
        let point = |local: &i128| {
            let job = reference.back(self.there(*local));
            Some((i64::try_from(*local).ok()?, i64::try_from(job).ok()?))
        };
        let map = TimeMap::through(bends.iter().filter_map(point).collect());
        let job = |local: i64| map.map(LocalNs(local)).ns();
        let (from, to) = (middle.saturating_sub(DRIFT_SPAN_NS / 2), middle.saturating_add(DRIFT_SPAN_NS / 2));
        let (local, site) = (to.saturating_sub(from), job(to).saturating_sub(job(from)));
        DomainFit {
            method: AlignMethod::ClockFile,
            offset: job(middle).saturating_sub(middle),
            drift_ppm: if site > 0 { (local as f64 - site as f64) / site as f64 * 1e6 } else { 0.0 },
            bars: self.bars_against(reference).unwrap_or_default(),
            map,
            ..DomainFit::default()
        }
    }

    /// Returns the error bounds of both tracks added up, over time of the node; `None` if one of them has none.
    fn bars_against(&self, reference: &FileTrack) -> Option<Vec<ErrorKnot>> {
        let (own, theirs) = (self.bars.as_ref()?, reference.bars.as_ref()?);
        let moved = theirs.knots.iter().map(|(their, _)| self.back(reference.there(*their)));
        let mut times: Vec<i128> = own.knots.iter().map(|(local, _)| *local).chain(moved).collect();
        times.sort_unstable();
        times.dedup();
        let last = times.len().saturating_sub(1);
        let per_second = |rates: [f64; 2]| (rates.iter().sum::<f64>() * 1e9).ceil() as i64;
        let before = per_second([own.growth.0, theirs.growth.0]);
        let after = per_second([own.growth.1, theirs.growth.1]);
        let knot = |(place, local): (usize, i128)| {
            let job = reference.back(self.there(local));
            let growth = match (place == 0, place == last) {
                (true, true) => before.max(after),
                (true, false) => before,
                _ => after,
            };
            Some(ErrorKnot {
                local: i64::try_from(local).ok()?,
                offset: i64::try_from(job - local).ok()?,
                bar: (own.at(local) + theirs.at(job)).ceil() as i64,
                certain_bounds: None,
                growth,
            })
        };
        Some(times.into_iter().enumerate().filter_map(knot).collect())
    }
}

impl Bars {
    /// Returns the error bound at a time of the node, ns.
    fn at(&self, local: i128) -> f64 {
        let after = self.knots.partition_point(|(at, _)| *at <= local);
        let (a, b) = (after.checked_sub(1).and_then(|place| self.knots.get(place)), self.knots.get(after));
        match (a, b) {
            (Some((from, a)), Some((to, b))) => a + (b - a) * ((local - from) as f64 / (to - from) as f64),
            (Some((last, bar)), None) => bar + (local - last) as f64 * self.growth.1,
            (None, Some((first, bar))) => bar + (first - local) as f64 * self.growth.0,
            (None, None) => 0.0,
        }
    }
}

/// Returns the rate of the line beyond a measurement, minus 1, and the growth of the error bound there. `piece`
/// is the piece between it and the adjacent measurement.
fn beyond(end: &Entry, piece: Option<(&Entry, &Entry)>) -> (f64, f64) {
    match (end.drift, piece) {
        (Some(drift), _) => {
            let faster = drift.ppm * 1e-6;
            (-faster / (1.0 + faster), drift.error.map_or(UNKNOWN_RATE, |ppm| ppm * 1e-6))
        }
        (None, Some((a, b))) => {
            let (local, site) =
                ((i128::from(b.at()) - i128::from(a.at())) as f64, (b.site() - a.site()) as f64);
            let errors = a.error.unwrap_or(0) as f64 + b.error.unwrap_or(0) as f64;
            (site / local - 1.0, errors / local + RATE_WANDER)
        }
        (None, None) => (0.0, UNKNOWN_RATE),
    }
}

/// Adds knots in the middle between measurements, up to which the error bound grows from both sides.
fn with_middles(measured: &[(i128, f64)]) -> Vec<(i128, f64)> {
    let mut knots = Vec::with_capacity(2 * measured.len());
    for (place, (at, error)) in measured.iter().enumerate() {
        knots.push((*at, *error));
        if let Some((next, theirs)) = measured.get(place + 1)
            && next - at > 1
        {
            let half = (next - at) / 2;
            let share = half as f64 / (next - at) as f64;
            knots.push((at + half, error + (theirs - error) * share + half as f64 * RATE_WANDER));
        }
    }
    knots
}

/// Returns the value on the lines through points. `sides` returns the coordinate that is searched and the one
/// that is returned.
fn along(points: &[(i128, i128)], value: i128, sides: impl Fn(&(i128, i128)) -> (i128, i128)) -> i128 {
    let after = points.partition_point(|point| sides(point).0 <= value);
    let from = after.clamp(1, points.len().saturating_sub(1).max(1)) - 1;
    let (Some(a), Some(b)) = (points.get(from), points.get(from + 1)) else { return value };
    let ((x0, y0), (x1, y1)) = (sides(a), sides(b));
    // Sums of times within 70 years have 63 bits, so the product fits.
    let (above, below) = ((value - x0) * (y1 - y0), x1 - x0);
    y0 + (2 * above + below).div_euclid(2 * below)
}
