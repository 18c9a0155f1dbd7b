//! Turns probe bursts into pairs of times of two domains.

use super::links::{ClockLink, DomainPair, LinkKind, OrderedDomains};
use super::observations::BurstTimes;
use super::robust;
use std::collections::BTreeMap;

/// Number of bursts before and after a burst. The shortest round trip among them is taken as that of an empty
/// path.
const WINDOW_BURSTS: usize = 24;
/// Share of a burst's spread that is possible as the error of its best probes.
const SPREAD_SHARE: f64 = 0.5;
/// Standard deviation of the common error of all probes of a burst, as a share of the round trip. The core that
/// wakes up for the packets is selected separately for each burst. Bursts between emulated nodes scattered by 0.4 %
/// with kernel times, by 2.1 % with times of the programs on busy cores. No card that moderates interrupts was
/// measured; it may do worse.
const COMMON_ERROR_SHARE: f64 = 0.03;
/// The same for the last burst if it has no kernel receive times: programs end, and the scheduler reassigns
/// cores.
const LAST_COMMON_ERROR_SHARE: f64 = 0.1;
/// Error of the difference of two clock readings, ns.
pub(super) const READING_ERROR_NS: f64 = 20.0;

/// Times of one probe on its two domains.
#[derive(Clone, Copy)]
struct Trip {
    /// Middle of the trip on u's clock.
    middle: f64,
    /// Receiving minus sending clock from u to v, and from v to u: delay plus and minus the offset.
    there: f64,
    back: f64,
}

/// The trips of one burst.
struct Trips {
    trips: Vec<Trip>,
    /// Mean of the middles of its trips.
    middle: f64,
    /// Spread of the offsets of all its probes, ns.
    spread: f64,
    kernel_times: bool,
}

impl Trips {
    /// Returns the offset and the round trip, ns, of the shortest trip there and the shortest trip back, which
    /// may belong to different probes. `rate` is the drift of v relative to u.
    fn best(&self, rate: f64) -> (f64, f64) {
        let shortest =
            |delay: &dyn Fn(&Trip) -> f64| self.trips.iter().map(delay).fold(f64::INFINITY, f64::min);
        let there = shortest(&|t| t.there - rate * (t.middle - self.middle));
        let back = shortest(&|t| t.back + rate * (t.middle - self.middle));
        ((there - back) / 2.0, (there + back).max(0.0))
    }
}

/// Returns a link for each pair of domains that probed each other.
pub(super) fn links(bursts: &[BurstTimes], domains: &OrderedDomains) -> Vec<ClockLink> {
    let mut by_ends: BTreeMap<(usize, usize), Vec<Trips>> = BTreeMap::new();
    for (ends, trips) in bursts.iter().filter_map(|burst| trips(burst, domains)) {
        by_ends.entry(ends).or_default().push(trips);
    }
    by_ends.into_iter().map(|((u, v), bursts)| link(u, v, bursts)).collect()
}

/// Returns the plausible trips of a burst, from the point of view of the end with the lower place.
fn trips(burst: &BurstTimes, domains: &OrderedDomains) -> Option<((usize, usize), Trips)> {
    let (from, prober) = domains.get(burst.from)?;
    let (to, answerer) = domains.get(burst.to)?;
    if from == to || !prober.has_raw || !answerer.has_raw {
        return None;
    }
    let mut trips: Vec<Trip> = burst
        .best
        .iter()
        .filter(|p| p.t4 >= p.t1 && p.t3 >= p.t2)
        .map(|p| {
            let (sent, received) = (prober.raw(p.t1), prober.raw(p.t4));
            let (got, answered) = (answerer.raw(p.t2), answerer.raw(p.t3));
            let (there, back) = (got - sent, received - answered);
            if from < to {
                Trip { middle: (sent + received) / 2.0, there, back }
            } else {
                Trip { middle: (got + answered) / 2.0, there: back, back: there }
            }
        })
        .filter(|t| t.there + t.back >= 0.0)
        .collect();
    trips.sort_by(|a, b| {
        a.middle.total_cmp(&b.middle).then(a.there.total_cmp(&b.there)).then(a.back.total_cmp(&b.back))
    });
    if trips.is_empty() {
        return None;
    }
    let middle = trips.iter().map(|t| t.middle).sum::<f64>() / trips.len() as f64;
    let (spread, kernel_times) = (burst.spread.max(0) as f64, burst.kernel_times);
    Some(((from.min(to), from.max(to)), Trips { trips, middle, spread, kernel_times }))
}

fn link(u: usize, v: usize, mut bursts: Vec<Trips>) -> ClockLink {
    bursts.sort_by(|a, b| {
        let first = |burst: &Trips| burst.trips.first().map_or(0.0, |t| t.there);
        let middles = a.middle.total_cmp(&b.middle);
        middles.then(first(a).total_cmp(&first(b))).then(a.spread.total_cmp(&b.spread))
    });
    let rough: Vec<(f64, f64)> = bursts.iter().map(|burst| (burst.middle, burst.best(0.0).0)).collect();
    let rate = robust::slope(&rough);
    // A drift that is larger than that of any clock is caused by delays.
    let rate = if rate.abs() < 1e-3 { rate } else { 0.0 };
    let best: Vec<(f64, f64)> = bursts.iter().map(|burst| burst.best(rate)).collect();
    let pairs = (0..best.len())
        .map(|i| {
            let window = i.saturating_sub(WINDOW_BURSTS)..best.len().min(i + WINDOW_BURSTS + 1);
            let (burst, (offset, round_trip)) = (&bursts[i], best[i]);
            let alike = window.filter(|&other| bursts[other].kernel_times == burst.kernel_times);
            let floor = alike.map(|other| best[other].1).fold(f64::INFINITY, f64::min);
            // The difference between the two one-way delays is uniformly distributed up to the sum of their
            // queueing.
            let queued = round_trip - floor;
            let unsure = SPREAD_SHARE * burst.spread;
            let is_last = i + 1 == best.len() && !burst.kernel_times;
            let common = if is_last { LAST_COMMON_ERROR_SHARE } else { COMMON_ERROR_SHARE } * round_trip;
            let var = (queued * queued + unsure * unsure) / 12.0
                + common * common
                + READING_ERROR_NS * READING_ERROR_NS;
            DomainPair { xu: burst.middle, xv: burst.middle + offset, var, around: 0.0 }
        })
        .collect();
    let round_trip = best.iter().map(|(_, round_trip)| *round_trip).fold(f64::INFINITY, f64::min);
    ClockLink {
        u,
        v,
        kind: LinkKind::Probes,
        pairs,
        count: best.len() as u64,
        round_trip,
        uneven: 0.0,
        jitter: 0.0,
    }
}
