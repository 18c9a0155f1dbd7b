//! Certain bounds on the error of a domain, which hold for any noise. An answer arrives after its probe was
//! sent, and no rank leaves a collective before the ranks that it waits for have entered.

use super::collectives::ComparableCollective;
use super::links::{ClockLink, OrderedDomains};
use super::locate::DomainTrack;
use super::observations::{BurstTimes, CollectiveObservation, ObservedWaits};
use super::probes::READING_ERROR_NS;
use super::track::{ClockTrack, SECOND};

/// Number of standard deviations that the error of a rate never exceeds.
const MAX_DEVIATIONS: f64 = 4.0;
/// Smallest uncertainty of a rate, ns/s.
const MIN_RATE_ERROR: f64 = 1.0;
/// Largest difference between the rates of two crystals, ns/s: twice that of the worst ones in use.
const MAX_RATE: f64 = 4e5;
/// Fewest samples, and shortest time in seconds, from which the variance of a rate is reliable. In a short run,
/// errors that last for a third of it look like a rate.
const MIN_SAMPLES: usize = 12;
const MIN_SECONDS: f64 = 120.0;
/// Number of stretches of a track that are compared with each other to bound its rate.
const STRETCHES: usize = 64;

/// Bounds of true minus estimated y of one domain at one x.
#[derive(Clone, Copy, Debug)]
struct Bound {
    x: f64,
    low: f64,
    high: f64,
}

/// Bounds at the knots of a track.
#[derive(Clone, Debug, Default)]
pub(super) struct CertainBounds {
    /// Bounds by knot: infinite if nothing is certain, `None` in a contradiction.
    pub(super) at_knots: Vec<Option<(f64, f64)>>,
    /// Number of stretches of time in which the bounds exclude each other.
    pub(super) contradictions: u64,
    /// Growth of the bounds beyond the knots, ns/s; 0 if the variance of the rate determines it.
    pub(super) growth: f64,
}

/// Two events in a certain order, as x of both: one rank entered before another left, or a packet was sent
/// before it arrived.
struct Order {
    earlier: (usize, f64),
    later: (usize, f64),
    /// Error of the two readings, ns.
    grain: f64,
}

/// Returns the bounds of all located domains. `bursts` are those of the sources that are used.
pub(super) fn bounds(
    located: &[Option<DomainTrack>],
    links: &[ClockLink],
    bursts: &[BurstTimes],
    (comparable, observed): (&[ComparableCollective], &[CollectiveObservation]),
    domains: &OrderedDomains,
) -> Vec<CertainBounds> {
    let mut orders: Vec<Vec<Order>> = located.iter().map(|_| Vec::new()).collect();
    let order_of = |domain: usize| located[domain].as_ref().map_or(usize::MAX, |l| l.order);
    let mut add = |order: Order| {
        let (a, b) = (order.earlier.0, order.later.0);
        if a != b && order_of(a) != usize::MAX && order_of(b) != usize::MAX {
            orders[if order_of(a) > order_of(b) { a } else { b }].push(order);
        }
    };
    for collective in comparable.iter().filter(|collective| collective.is_sure) {
        let Some(hub) = collective.intervals.iter().min_by_key(|g| order_of(g.domain)) else { continue };
        for interval in &collective.intervals {
            for (first, second) in [(hub, interval), (interval, hub)] {
                let (earlier, later) = ((first.domain, first.enter), (second.domain, second.first_exit));
                add(Order { earlier, later, grain: 0.0 });
            }
        }
    }
    observed.iter().for_each(|collective| rooted(collective, domains, &mut add));
    bursts.iter().for_each(|burst| probed(burst, domains, &mut add));
    let mut by_located_order: Vec<usize> =
        (0..located.len()).filter(|&d| order_of(d) != usize::MAX).collect();
    by_located_order.sort_by_key(|&d| order_of(d));
    let mut bounds = vec![CertainBounds::default(); located.len()];
    for &domain in by_located_order.iter().skip(1) {
        let order_bounds = order_bounds(domain, &orders[domain], located, &bounds);
        if let Some(located) = &located[domain] {
            // If scheduling determines the order of exits, errors of consecutive blocks are correlated.
            let crowded = located.leverage.iter().any(|(i, _)| links[*i].uneven > 0.0);
            let seconds = located.track.span().map_or(0.0, |(first, last)| (last - first) / SECOND);
            let is_rate_known = located.samples >= MIN_SAMPLES && seconds >= MIN_SECONDS && !crowded;
            bounds[domain] = spread(&located.track, order_bounds, is_rate_known);
        }
    }
    bounds
}

/// Adds the orders that follow from a collective with a root.
fn rooted(collective: &CollectiveObservation, domains: &OrderedDomains, add: &mut impl FnMut(Order)) {
    let (root, all_for_root) = match collective.waits {
        ObservedWaits::AllForRoot(root) => (root, true),
        ObservedWaits::RootForAll(root) => (root, false),
        ObservedWaits::AllForAll | ObservedWaits::AllForAllByTimes | ObservedWaits::Nothing => return,
    };
    let intervals = || collective.intervals.iter().filter(|a| a.exit >= a.enter);
    let Some(root) = intervals().find(|a| a.rank == root) else { return };
    let Some((root_at, root_clock)) = domains.get(root.domain as usize) else { return };
    for other in intervals() {
        let Some((at, clock)) = domains.get(other.domain as usize) else { continue };
        let (earlier, later) = if all_for_root {
            ((root_at, root_clock.of_boottime(root.enter)), (at, clock.of_boottime(other.exit)))
        } else {
            ((at, clock.of_boottime(other.enter)), (root_at, root_clock.of_boottime(root.exit)))
        };
        add(Order { earlier, later, grain: 0.0 });
    }
}

/// Adds the orders that follow from probes at their own times: a packet arrives after it was sent.
fn probed(burst: &BurstTimes, domains: &OrderedDomains, add: &mut impl FnMut(Order)) {
    let (Some((from, prober)), Some((to, answerer))) = (domains.get(burst.from), domains.get(burst.to))
    else {
        return;
    };
    if !prober.has_raw || !answerer.has_raw {
        return;
    }
    for probe in &burst.best {
        let [t1, t4] = [probe.t1, probe.t4].map(|t| (from, prober.raw(t)));
        let [t2, t3] = [probe.t2, probe.t3].map(|t| (to, answerer.raw(t)));
        add(Order { earlier: t1, later: t2, grain: READING_ERROR_NS });
        add(Order { earlier: t3, later: t4, grain: READING_ERROR_NS });
    }
}

/// Returns the bound of each observation, in order of x. The other domains have lower ranks, so their bounds are
/// already computed.
fn order_bounds(
    domain: usize,
    orders: &[Order],
    located: &[Option<DomainTrack>],
    bounds: &[CertainBounds],
) -> Vec<Bound> {
    let mut certain = Vec::new();
    let Some(own) = &located[domain] else { return certain };
    let of = |other: usize, x: f64| -> Option<(f64, f64, f64)> {
        let track = &located[other].as_ref()?.track;
        let (low, high) = bounds[other].at(track, x)?;
        Some((x + track.at(x).y, low, high))
    };
    for order in orders {
        let is_later = order.later.0 == domain;
        let ((_, x), (other, theirs)) =
            if is_later { (order.later, order.earlier) } else { (order.earlier, order.later) };
        let Some((reference, low, high)) = of(other, theirs) else { continue };
        let apart = reference - (x + own.track.at(x).y);
        certain.push(if is_later {
            Bound { x, low: apart + low - order.grain, high: f64::INFINITY }
        } else {
            Bound { x, low: f64::NEG_INFINITY, high: apart + high + order.grain }
        });
    }
    certain.retain(|b| b.x.is_finite());
    certain.sort_by(|a, b| a.x.total_cmp(&b.x).then(a.low.total_cmp(&b.low)).then(a.high.total_cmp(&b.high)));
    certain
}

/// Carries each bound to the knots around it, up to a step, widened by the drift in between. The drift is that
/// of the track within its variance or, unless `is_rate_known`, any that the bounds allow.
fn spread(track: &ClockTrack, certain: Vec<Bound>, is_rate_known: bool) -> CertainBounds {
    let piece = |x: f64| track.steps.iter().take_while(|s| s.before <= x).count();
    let jumps = |x: f64| track.steps.iter().any(|s| s.after <= x && x <= s.before);
    let seconds = certain.first().zip(certain.last()).map_or(0.0, |(a, b)| (b.x - a.x) / SECOND);
    // If the bounds exclude every constant rate, the rate has changed, and its variance is not reliable alone.
    let least = if is_rate_known { MIN_RATE_ERROR } else { wander(track, seconds) };
    let growths: Vec<f64> =
        track.knots.iter().map(|knot| MAX_DEVIATIONS * knot.rate_var.sqrt() + least).collect();
    let allowed =
        |wanted: usize| Rates::allowed(track, certain.iter().filter(|b| piece(b.x) == wanted && !jumps(b.x)));
    let pieces = if is_rate_known { 0 } else { track.steps.len() + 1 };
    let rates: Vec<Option<Rates>> = (0..pieces).map(allowed).collect();
    let mut at_knots = vec![(f64::NEG_INFINITY, f64::INFINITY); track.knots.len()];
    let widen = |bound: &mut Bound, x: f64, growth: f64| {
        let dt = (x - bound.x) / SECOND;
        let (low, high) = match rates.get(piece(x)).and_then(Option::as_ref) {
            None => (-growth * dt.abs(), growth * dt.abs()),
            Some(rates) => {
                let moved = track.at(x).y - track.at(bound.x).y;
                let (a, b) = (rates.low * dt - moved, rates.high * dt - moved);
                (a.min(b), a.max(b))
            }
        };
        *bound = Bound { x, low: bound.low + low, high: bound.high + high };
    };
    let open = Bound { x: 0.0, low: f64::NEG_INFINITY, high: f64::INFINITY };
    for backwards in [false, true] {
        let mut order: Vec<usize> = (0..track.knots.len()).collect();
        let mut bounds: Vec<&Bound> = certain.iter().filter(|b| !jumps(b.x)).collect();
        if backwards {
            order.reverse();
            bounds.reverse();
        }
        let mut bounds = bounds.into_iter().peekable();
        let mut carried = open;
        let mut in_piece = usize::MAX;
        let passed = |x: f64, knot: f64| if backwards { x >= knot } else { x <= knot };
        for i in order {
            let x = track.knots[i].x;
            // The rate is uncertain where nothing was observed, for example before the node that probes has started.
            let previous = if backwards { i + 1 } else { i.wrapping_sub(1) };
            let growth = growths.get(previous).map_or(growths[i], |growth| growth.max(growths[i]));
            let mut take = |carried: &mut Bound, b: &Bound| {
                if piece(b.x) != in_piece {
                    in_piece = piece(b.x);
                    *carried = open;
                }
                widen(carried, b.x, growth);
                carried.low = carried.low.max(b.low);
                carried.high = carried.high.min(b.high);
            };
            while let Some(b) = bounds.next_if(|b| passed(b.x, x)) {
                take(&mut carried, b);
            }
            take(&mut carried, &Bound { x, ..open });
            at_knots[i].0 = at_knots[i].0.max(carried.low);
            at_knots[i].1 = at_knots[i].1.min(carried.high);
        }
    }
    let mut contradictions = 0;
    let mut before = false;
    let at_knots = at_knots
        .into_iter()
        .zip(&track.knots)
        .map(|((low, high), knot)| {
            let in_jump = jumps(knot.x) || knot.slack > 0.0;
            let contradicts = low > high && !in_jump;
            contradictions += u64::from(contradicts && !before);
            before = contradicts;
            if in_jump {
                Some((f64::NEG_INFINITY, f64::INFINITY))
            } else {
                (low <= high).then_some((low, high))
            }
        })
        .collect();
    let ends = [
        (rates.first(), track.knots.first(), growths.first()),
        (rates.last(), track.knots.last(), growths.last()),
    ];
    let growth = ends.into_iter().filter_map(|(rates, knot, growth)| match rates? {
        Some(rates) => Some((rates.high - knot?.rate).max(knot?.rate - rates.low)),
        None => growth.copied(),
    });
    CertainBounds { at_knots, contradictions, growth: growth.fold(0.0, f64::max) }
}

/// Returns how far the rate of a track can walk within a time, ns/s.
fn wander(track: &ClockTrack, seconds: f64) -> f64 {
    MIN_RATE_ERROR + MAX_DEVIATIONS * (track.walk * seconds).sqrt()
}

/// Range of the rate of change of y, ns/s.
#[derive(Clone, Copy, Debug)]
struct Rates {
    low: f64,
    high: f64,
}

impl Rates {
    /// Returns the rates that no pair of bounds at different times excludes; `None` if all are excluded. For
    /// each stretch of a track its narrowest bounds suffice, because the others are weaker.
    fn allowed<'a>(track: &ClockTrack, bounds: impl Iterator<Item = &'a Bound>) -> Option<Rates> {
        let any = Rates { low: -MAX_RATE, high: MAX_RATE };
        let bounds: Vec<&Bound> = bounds.collect();
        let (Some(first), Some(last)) = (bounds.first(), bounds.last()) else { return Some(any) };
        let seconds = (last.x - first.x) / SECOND;
        let stretch_of =
            |b: &Bound| ((b.x - first.x) / (last.x - first.x).max(1.0) * STRETCHES as f64) as usize;
        let mut lows: Vec<(f64, f64)> = Vec::new();
        let mut highs: Vec<(f64, f64)> = Vec::new();
        for stretch in bounds.chunk_by(|a, b| stretch_of(a) == stretch_of(b)) {
            let low = stretch.iter().max_by(|a, b| a.low.total_cmp(&b.low));
            let high = stretch.iter().min_by(|a, b| a.high.total_cmp(&b.high));
            lows.extend(low.map(|b| (b.x, track.at(b.x).y + b.low)));
            highs.extend(high.map(|b| (b.x, track.at(b.x).y + b.high)));
        }
        let mut rates = any;
        for (low, high) in lows.iter().flat_map(|low| highs.iter().map(move |high| (low, high))) {
            let rate = (high.1 - low.1) / ((high.0 - low.0) / SECOND);
            if high.0 > low.0 {
                rates.high = rates.high.min(rate);
            } else if high.0 < low.0 {
                rates.low = rates.low.max(rate);
            }
        }
        let wander = wander(track, seconds);
        (rates.low <= rates.high).then_some(Rates { low: rates.low - wander, high: rates.high + wander })
    }
}

impl CertainBounds {
    /// Returns the wider of the bounds at the knots before and after x. They are not carried to x, which would
    /// need the rate.
    ///
    /// Beyond the knots, the bounds of the last one hold up to the distance between the first and the last knot.
    /// Returns `None` if nothing is certain.
    pub(super) fn around(&self, track: &ClockTrack, x: f64) -> Option<(f64, f64)> {
        let (first, last) = track.span()?;
        if (first - x).max(x - last) > last - first {
            return None;
        }
        let after = track.knots.partition_point(|k| k.x <= x);
        let around = self.at_knots.get(after.saturating_sub(1)..(after + 1).min(self.at_knots.len()))?;
        let bounds = around.iter().copied().collect::<Option<Vec<_>>>()?;
        let wider = bounds.into_iter().reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))?;
        (wider.0.is_finite() && wider.1.is_finite()).then_some(wider)
    }

    /// Returns the bounds at x; 0 for the reference.
    fn at(&self, track: &ClockTrack, x: f64) -> Option<(f64, f64)> {
        if track.knots.is_empty() {
            return Some((0.0, 0.0));
        }
        let after = track.knots.partition_point(|k| k.x <= x);
        let wide = (f64::NEG_INFINITY, f64::INFINITY);
        let a = after.checked_sub(1).map_or(Some(wide), |i| self.at_knots.get(i).copied().flatten());
        let b = self.at_knots.get(after).map_or(Some(wide), |b| *b);
        let (a, b) = (a?, b?);
        Some((a.0.min(b.0), a.1.max(b.1)))
    }
}
