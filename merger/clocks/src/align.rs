use super::anchors::align_by_anchors;
use super::bias::LinkBiases;
use super::certain_bounds::{CertainBounds, bounds};
use super::collectives::{self, ExitHabits, habits};
use super::disconnected::join_parts;
use super::fit::{ClockStep, DomainFit, ErrorKnot};
use super::links::{ClockLink, DomainPair, LinkKind, OrderedDomains};
use super::locate::{DomainTrack, TrackCorrection, locate};
use super::method::AlignMethod;
use super::observations::{AlignChoice, ClockObservations};
use super::probes;
use super::refuted::{ProbedLinks, are_moving, is_refuted};
use super::smoother::LinkNoise;
use super::time_map::TimeMap;
use super::track::{ClockTrack, SECOND, TrackKnot};

/// Approximate number of knots of a map. Between them, the change of a rate is negligible, even in a run of a
/// day.
const MAP_KNOTS: usize = 2048;
/// Probes cover collectives if the collectives extend beyond them by at most this share of their time, or by
/// this time, ns.
const MAX_UNPROBED_SHARE: f64 = 0.1;
const MIN_UNPROBED_NS: f64 = 15.0 * SECOND;

/// Computes how the clocks of each domain map to job time. Returns one fit per domain, in the order of
/// [`ClockObservations::domains`]. The order of items within the observations does not affect the result.
pub fn align(observations: &ClockObservations, by: AlignChoice) -> Vec<DomainFit> {
    let by_probes = matches!(by, AlignChoice::Auto | AlignChoice::Probes);
    let by_collectives = matches!(by, AlignChoice::Auto | AlignChoice::Collectives);
    let mut fits = by_sources(observations, by_probes, by_collectives);
    if matches!(by, AlignChoice::Auto | AlignChoice::Anchors) {
        align_by_anchors(observations, &mut fits);
    }
    if by == AlignChoice::Auto {
        join_parts(observations, &mut fits, |part| by_sources(part, true, true));
    }
    if let Some(fit) = fits.get_mut(observations.reference) {
        *fit = DomainFit { method: AlignMethod::Reference, ..DomainFit::default() };
    }
    fits
}

/// Aligns the domains that probes and collectives reach.
fn by_sources(observations: &ClockObservations, by_probes: bool, by_collectives: bool) -> Vec<DomainFit> {
    let mut fits = vec![DomainFit::default(); observations.domains.len()];
    if by_probes || by_collectives {
        let Some(domains) = OrderedDomains::new(observations) else { return fits };
        let estimate = Estimate::new(observations, &domains, by_probes, by_collectives);
        for (place, &position) in domains.position.iter().enumerate() {
            // Bridges have no fit.
            if let (Some(fit), Some(estimated)) = (fits.get_mut(position), estimate.fit(place, &domains)) {
                *fit = estimated;
            }
        }
    }
    fits
}

/// Estimate from probes and collectives together.
struct Estimate {
    links: Vec<ClockLink>,
    located: Vec<Option<DomainTrack>>,
    /// Variance of the biases that remain in each domain.
    biases: Vec<f64>,
    /// Domains in which the two sources were compared, so that each shows the other's bias.
    compared: Vec<bool>,
    /// Domains with collectives that the probes refute.
    refuted: Vec<bool>,
    bounds: Vec<CertainBounds>,
}

impl Estimate {
    fn new(
        observations: &ClockObservations,
        domains: &OrderedDomains,
        by_probes: bool,
        by_collectives: bool,
    ) -> Estimate {
        let count = domains.clocks.len();
        let all = (count, domains.reference);
        let alone = |links: &[ClockLink], noise| {
            locate(all, links, &vec![TrackCorrection { bias: 0.0, scale: 1.0 }; links.len()], noise, None)
        };

        // First each source is located separately. The last rank of a collective is known only after a rough
        // alignment.
        let bursts = if by_probes { observations.bursts.as_slice() } else { &[] };
        let probed = probes::links(bursts, domains);
        let from_probes = alone(&probed, LinkNoise::Guessed);
        let observed = if by_collectives { observations.collectives.as_slice() } else { &[] };
        let comparable = collectives::comparable_collectives(observed, domains);
        let rough = alone(&collectives::links(&comparable, None, domains), LinkNoise::Trusted);
        let habits = habits(&comparable, &rough);
        let all_collectives = collectives::links(&comparable, Some(&habits), domains);
        let (unscattered, scattered): (Vec<ClockLink>, Vec<ClockLink>) = all_collectives
            .into_iter()
            .partition(|link| !(is_scattered(link, &probed) && is_covered(link, &probed, &from_probes)));

        // Then both are combined, without the collectives of domains in which the probes refute them.
        let probed_bounds = bounds(&from_probes, &probed, bursts, (&[], &[]), domains);
        let probed_alone = ProbedLinks { located: &from_probes, bounds: &probed_bounds };
        let from_all_collectives = alone(&unscattered, LinkNoise::Guessed);
        let misleads = |d: usize| match (&from_probes[d], &from_all_collectives[d]) {
            (Some(probes), Some(collectives)) if d != domains.reference => {
                LinkBiases::compares(probes, Some(collectives)) && are_moving(probes, collectives)
            }
            _ => false,
        };
        let mut refuted: Vec<bool> = (0..count).map(misleads).collect();
        let (links, located, biases, compared) = loop {
            let is_used = |link: &&ClockLink| !refuted[link.u] && !refuted[link.v];
            let used: Vec<ClockLink> = unscattered.iter().filter(is_used).cloned().collect();
            let from_collectives = alone(&used, LinkNoise::Guessed);
            let (links, biases, corrections) =
                combine_links(&probed, &from_probes, used, &from_collectives, &habits);
            let located = locate(all, &links, &corrections, LinkNoise::Scaled, Some(&probed_alone));
            let is_wrong = |&d: &usize| {
                let (Some(probes), false) = (&from_probes[d], refuted[d]) else { return false };
                let refutes = |other: &Option<DomainTrack>| {
                    other.as_ref().is_some_and(|o| is_refuted(probes, &probed_bounds[d], o))
                };
                let is_mostly_refuted = |l: &DomainTrack| 2 * l.refuted.0 > l.refuted.1;
                // If the difference between the sources is not known, it cannot be corrected.
                d != domains.reference
                    && (located[d].as_ref().is_some_and(is_mostly_refuted)
                        || refutes(&located[d])
                        || !LinkBiases::compares(probes, from_collectives[d].as_ref())
                            && refutes(&from_collectives[d]))
            };
            let wrong: Vec<usize> = (0..count).filter(is_wrong).collect();
            if wrong.iter().all(|&d| !unscattered.iter().any(|link| link.has_end(d) && is_used(&link))) {
                let compares = |(probes, collectives): (&Option<DomainTrack>, &Option<DomainTrack>)| {
                    probes.as_ref().is_some_and(|p| LinkBiases::compares(p, collectives.as_ref()))
                };
                let compared: Vec<bool> = from_probes.iter().zip(&from_collectives).map(compares).collect();
                break (links, located, biases, compared);
            }
            wrong.into_iter().for_each(|d| refuted[d] = true);
        };
        let left = located.iter().map(|l| l.as_ref().map_or(0.0, |l| biases.left(&l.leverage))).collect();
        let bounds = bounds(&located, &links, bursts, (&comparable, &observations.collectives), domains);
        let has = |links: &[ClockLink], d: usize| links.iter().any(|link| link.has_end(d));
        refuted.iter_mut().enumerate().for_each(|(d, refuted)| {
            *refuted &= has(&unscattered, d);
            *refuted |= d != domains.reference && has(&scattered, d) && !has(&unscattered, d);
        });
        Estimate { links, located, biases: left, compared, refuted, bounds }
    }

    /// Returns the fit of the domain at a place; `None` if neither source reaches it.
    fn fit(&self, place: usize, domains: &OrderedDomains) -> Option<DomainFit> {
        let located = self.located.get(place)?.as_ref().filter(|l| !l.track.knots.is_empty())?;
        let is_used =
            |kind| self.compared[place] || located.leverage.iter().any(|(i, _)| self.links[*i].kind == kind);
        let count = |kind| {
            let own = self.links.iter().filter(|link| link.kind == kind && link.has_end(place));
            if is_used(kind) { own.map(|link| link.count).sum() } else { 0 }
        };
        let method = match (is_used(LinkKind::Probes), is_used(LinkKind::Collectives)) {
            (true, true) => AlignMethod::Fusion,
            (true, false) => AlignMethod::Probes,
            (false, _) => AlignMethod::Collectives,
        };
        let track = &located.track;
        let convert = Convert { place, domains, track };
        let map = convert.map();
        let bounds = &self.bounds[place];
        let bars = thinned(track).into_iter().filter_map(|(i, knot)| {
            let bound = bounds.at_knots.get(i).copied().flatten();
            let knot = bar(&convert, knot, self.biases[place], bound)?;
            // The certain bound grows twice as fast as the error bound.
            let growth = (bounds.growth / 2.0).min(1e9) as i64;
            Some(ErrorKnot { growth: knot.growth.max(growth), ..knot })
        });
        let bars: Vec<ErrorKnot> = bars.collect();
        let clock = &domains.clocks[place];
        let steps = track.steps.iter().filter_map(|s| {
            Some(ClockStep {
                after: clock.boottime(s.after)?,
                before: clock.boottime(s.before)?,
                by: -s.by.clamp(-1e18, 1e18) as i64,
            })
        });
        Some(DomainFit {
            method,
            offset: bars.get(bars.len() / 2).map_or(0, |b| b.offset),
            drift_ppm: map.drift_ppm(),
            probes: count(LinkKind::Probes),
            collectives: count(LinkKind::Collectives),
            refuted: self.refuted[place],
            steps: steps.collect(),
            contradictions: bounds.contradictions,
            map,
            bars,
        })
    }
}

/// Returns whether exits of two domains from collectives differ by more than the round trips of their probes. In
/// that case the scheduler determines the exits, not the network.
fn is_scattered(link: &ClockLink, probed: &[ClockLink]) -> bool {
    let round_trip = |domain: usize| {
        let own = probed.iter().filter(|link| link.has_end(domain));
        own.map(|l| l.round_trip).min_by(f64::total_cmp)
    };
    match (round_trip(link.u), round_trip(link.v)) {
        (Some(a), Some(b)) => link.jitter > a.max(b),
        _ => false,
    }
}

/// Returns whether probes connect both domains to the reference and cover the time of these collectives.
fn is_covered(link: &ClockLink, probed: &[ClockLink], from_probes: &[Option<DomainTrack>]) -> bool {
    let times = |of: &ClockLink, domain: usize| {
        let x = |pair: &DomainPair| if of.u == domain { pair.xu } else { pair.xv };
        Some((x(of.pairs.first()?), x(of.pairs.last()?)))
    };
    [link.u, link.v].into_iter().all(|domain| {
        let own = probed.iter().filter(|link| link.has_end(domain)).filter_map(|link| times(link, domain));
        let probes = own.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)));
        let (Some(probes), Some(met), true) = (probes, times(link, domain), from_probes[domain].is_some())
        else {
            return false;
        };
        let gap = (MAX_UNPROBED_SHARE * (met.1 - met.0)).max(MIN_UNPROBED_NS);
        probes.0 <= met.0 + gap && probes.1 >= met.1 - gap
    })
}

/// Combines the links of both sources. Returns them with their biases and, by link, the corrections for constant
/// errors and noise.
fn combine_links(
    probed: &[ClockLink],
    from_probes: &[Option<DomainTrack>],
    unscattered: Vec<ClockLink>,
    from_collectives: &[Option<DomainTrack>],
    habits: &ExitHabits,
) -> (Vec<ClockLink>, LinkBiases, Vec<TrackCorrection>) {
    let mut links = probed.to_vec();
    links.extend(unscattered);
    let shift = |leverage: &[(usize, f64)]| leverage.iter().map(|(i, l)| (i + probed.len(), *l)).collect();
    let from_collectives: Vec<Option<DomainTrack>> = from_collectives
        .iter()
        .map(|l| l.as_ref().map(|l| DomainTrack { leverage: shift(&l.leverage), ..l.clone() }))
        .collect();
    let biases = LinkBiases::new(&links, habits, from_probes, &from_collectives);
    let correction = |(i, link): (usize, &ClockLink)| {
        let source = match link.kind {
            LinkKind::Probes => from_probes,
            LinkKind::Collectives => &from_collectives,
        };
        // The end that was located through the other one.
        let ends = [link.u, link.v].map(|d| source[d].as_ref());
        let child = ends.into_iter().flatten().max_by_key(|l| l.order);
        TrackCorrection { bias: biases.of_link(i), scale: child.map_or(1.0, |l| l.scale) }
    };
    let corrections = links.iter().enumerate().map(correction).collect();
    (links, biases, corrections)
}

/// Returns the knots of the resulting map, with their indices. Long runs are thinned out, except around steps.
fn thinned(track: &ClockTrack) -> Vec<(usize, &TrackKnot)> {
    let Some((first, last)) = track.span() else { return Vec::new() };
    let apart = (last - first) / MAP_KNOTS as f64;
    let mut knots: Vec<(usize, &TrackKnot)> = Vec::new();
    for (i, knot) in track.knots.iter().enumerate() {
        let far = knots.last().is_none_or(|(_, before)| knot.x - before.x >= apart);
        let around = &track.knots[i.saturating_sub(1)..(i + 2).min(track.knots.len())];
        if far || around.iter().any(|near| near.slack > 0.0) || i + 1 == track.knots.len() {
            knots.push((i, knot));
        }
    }
    knots
}

/// Conversion from a domain's BOOTTIME to the reference's, through both RAW clocks.
struct Convert<'a> {
    place: usize,
    domains: &'a OrderedDomains,
    track: &'a ClockTrack,
}

impl Convert<'_> {
    /// Builds a map that is linear between all times at which the track or the BOOTTIME of either node bends.
    fn map(&self) -> TimeMap {
        let (own, reference) =
            (&self.domains.clocks[self.place], &self.domains.clocks[self.domains.reference]);
        let mut bends: Vec<f64> =
            thinned(self.track).into_iter().map(|(_, k)| k.x).chain(own.bends()).collect();
        bends.extend(reference.bends().map(|x| self.track.x_at(x)));
        // Two points at each end give the map the last rate of the track.
        let ends = bends.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), x| (a.min(*x), b.max(*x)));
        bends.extend([ends.0 - SECOND, ends.1 + SECOND]);
        TimeMap::through(bends.into_iter().filter_map(|x| self.times(x)).collect())
    }

    /// Returns the local and the job time at x.
    fn times(&self, x: f64) -> Option<(i64, i64)> {
        let local = self.domains.clocks[self.place].boottime(x)?;
        let job = self.domains.clocks[self.domains.reference].boottime(x + self.track.at(x).y)?;
        Some((local, job))
    }
}

/// Returns the error bound: two standard deviations including the remaining biases, limited by the certain
/// bounds.
fn bar(convert: &Convert<'_>, knot: &TrackKnot, bias: f64, bound: Option<(f64, f64)>) -> Option<ErrorKnot> {
    let (local, job) = convert.times(knot.x)?;
    let clocks = &convert.domains.clocks;
    let reading = clocks[convert.place].error + clocks[convert.domains.reference].error;
    let wide = 2.0 * (knot.var + bias + reading * reading / 3.0).sqrt() + knot.slack;
    let certain = bound.filter(|b| b.0.is_finite() && b.1.is_finite());
    let bar = match bound {
        Some((low, high)) => wide.min(low.abs().max(high.abs())).max(low).max(-high),
        None => wide,
    };
    let whole = |ns: f64| ns.clamp(-1e18, 1e18) as i64;
    Some(ErrorKnot {
        local,
        offset: job.saturating_sub(local),
        bar: whole((bar + reading).ceil()),
        certain_bounds: certain
            .map(|(low, high)| (whole((low - reading).floor()), whole((high + reading).ceil()))),
        growth: whole((2.0 * knot.rate_var.sqrt()).ceil()),
    })
}
