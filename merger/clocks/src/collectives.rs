//! Turns collectives in which every rank waits for all ranks into pairs of times of two domains.
//!
//! All ranks leave when the last one has entered, so exits of two domains are comparable. Entries are not: they
//! are as far apart as the work of the ranks.

use super::links::{ClockLink, DomainPair, LinkKind, OrderedDomains};
use super::locate::DomainTrack;
use super::observations::{CollectiveObservation, ObservedWaits};
use super::probes::READING_ERROR_NS;
use super::robust;
use super::track::SECOND;
use std::collections::BTreeMap;

/// Fewest collectives that two domains must have in common to be compared.
const MIN_COMMON_COLLECTIVES: u64 = 3;
/// A block of collectives ends after `USUAL_BLOCK_NS` ns and `USUAL_BLOCK_SIZE` collectives. If less, a
/// `MIN_BLOCKS`-th of the run and of all collectives suffices, because the drift can be estimated only from
/// several blocks.
const USUAL_BLOCK_NS: f64 = 5.0 * SECOND;
const USUAL_BLOCK_SIZE: usize = 5;
const MIN_BLOCKS: usize = 6;
/// Fewest collectives of a block. With fewer, a single disturbed collective shifts the median.
const MIN_BLOCK_SIZE: usize = 3;
/// A block also ends after this time, ns, or after `MAX_BLOCK_SIZE` collectives.
const MAX_BLOCK_NS: f64 = 30.0 * SECOND;
const MAX_BLOCK_SIZE: usize = 64;
/// A domain that enters last in more than this share of its collectives is compared by these.
pub(super) const OFTEN_LAST_SHARE: f64 = 0.6;
/// Fewest collectives entered last by a domain from which the spread of their durations is estimated.
const MIN_LAST_ENTRIES: usize = 5;
/// Fewest domains that entered last at least once from which the usual lateness is estimated.
const MIN_KNOWN_DOMAINS: usize = 4;
/// A domain that enters last by less than this does not count as the last, ns.
const MIN_LAST_GAP_NS: f64 = 2e3;
/// Collectives that one of the two domains entered last are discarded if at least this share of all remains.
const MIN_REMAINING_SHARE: f64 = 1.0 / 3.0;
/// Share of the haste of the last domain that may differ between two domains.
const UNEVEN_HASTE_SHARE: f64 = 0.25;
/// A duration this many standard deviations from the median counts as disturbed.
const MAX_DEVIATIONS: f64 = 6.0;
/// Prior: number of collectives, and of disturbed ones among them.
const DISTURBANCE_PRIOR: (f64, f64) = (20.0, 1.0);

/// One collective with comparable exits; intervals in order of their domains.
pub(super) struct ComparableCollective {
    pub(super) intervals: Vec<DomainInterval>,
    /// Whether it is certainly one collective; otherwise only its times show that.
    pub(super) is_sure: bool,
}

/// One domain in a collective. Times are x of its clock.
pub(super) struct DomainInterval {
    pub(super) domain: usize,
    /// Entry of its last rank.
    pub(super) enter: f64,
    /// Median exit of its ranks (the lower one, because disturbances only delay).
    pub(super) exit: f64,
    /// Exit of its first rank.
    pub(super) first_exit: f64,
}

/// Returns the collectives with comparable exits.
pub(super) fn comparable_collectives(
    observed: &[CollectiveObservation],
    domains: &OrderedDomains,
) -> Vec<ComparableCollective> {
    let comparable = |observed: &CollectiveObservation| {
        let is_sure = observed.waits == ObservedWaits::AllForAll;
        if !is_sure && observed.waits != ObservedWaits::AllForAllByTimes {
            return None;
        }
        let mut ranks: Vec<(usize, f64, f64)> = observed
            .intervals
            .iter()
            .filter(|a| a.exit >= a.enter)
            .filter_map(|a| {
                let (place, clock) = domains.get(a.domain as usize)?;
                Some((place, clock.of_boottime(a.enter), clock.of_boottime(a.exit)))
            })
            .collect();
        ranks.sort_by(|a, b| a.0.cmp(&b.0).then(a.2.total_cmp(&b.2)).then(a.1.total_cmp(&b.1)));
        let intervals: Vec<DomainInterval> = ranks
            .chunk_by(|a, b| a.0 == b.0)
            .map(|ranks| DomainInterval {
                domain: ranks[0].0,
                enter: ranks.iter().map(|r| r.1).fold(f64::NEG_INFINITY, f64::max),
                exit: ranks[(ranks.len() - 1) / 2].2,
                first_exit: ranks[0].2,
            })
            .collect();
        (intervals.len() >= 2).then_some(ComparableCollective { intervals, is_sure })
    };
    observed.iter().filter_map(comparable).collect()
}

/// Typical behaviour of the domains in collectives, measured once they are roughly aligned.
#[derive(Default)]
pub(super) struct ExitHabits {
    /// For each collective, the domain that entered last.
    last: Vec<Option<usize>>,
    /// For each domain, the share of its collectives that it entered last.
    pub(super) last_share: Vec<f64>,
    /// For each domain, how much later than others it leaves when it does not wait, ns.
    pub(super) lateness: Vec<Option<ExitDelay>>,
    /// Time from the last entry to the median exit, ns.
    pub(super) latency: f64,
    /// How much earlier than the others the last domain to enter leaves, ns; 0 if that is not known.
    pub(super) haste: f64,
}

/// A measured lateness, ns.
#[derive(Clone, Copy, Debug)]
pub(super) struct ExitDelay {
    pub(super) measured: f64,
    pub(super) var: f64,
    /// Probability that disturbances, not habits, caused it.
    pub(super) disturbed: f64,
}

/// Measures which domains enter and leave late. `located` are the roughly aligned domains.
pub(super) fn habits(collectives: &[ComparableCollective], located: &[Option<DomainTrack>]) -> ExitHabits {
    let mut last = Vec::with_capacity(collectives.len());
    let mut met = vec![0.0; located.len()];
    let mut was_last = vec![0.0; located.len()];
    let mut own: Vec<Vec<f64>> = vec![Vec::new(); located.len()];
    let mut hastes: Vec<Vec<f64>> = vec![Vec::new(); located.len()];
    let mut latencies = Vec::with_capacity(collectives.len());
    for collective in collectives {
        // The two latest entries in the reference's time, and all exits.
        let mut latest: [Option<(f64, &DomainInterval)>; 2] = [None; 2];
        let mut exits = Vec::with_capacity(collective.intervals.len());
        for interval in &collective.intervals {
            let Some(DomainTrack { track, .. }) = &located[interval.domain] else { continue };
            let y = track.at(interval.enter).y;
            met[interval.domain] += 1.0;
            exits.push(interval.exit + y);
            let enter = interval.enter + y;
            if latest[0].is_none_or(|(latest, _)| enter > latest) {
                latest = [Some((enter, interval)), latest[0]];
            } else if latest[1].is_none_or(|(second, _)| enter > second) {
                latest[1] = Some((enter, interval));
            }
        }
        let Some(middle) = robust::median(&mut exits) else {
            last.push(None);
            continue;
        };
        latencies.extend(latest[0].map(|(enter, _)| middle - enter));
        last.push(match latest {
            [Some((enter, interval)), Some((second, _))] if enter - second > MIN_LAST_GAP_NS => {
                was_last[interval.domain] += 1.0;
                own[interval.domain].push(interval.exit - interval.enter);
                // The median exit is that of the other domains; with two domains it is halfway to the other
                // exit.
                let ahead = middle - (interval.exit + enter - interval.enter);
                hastes[interval.domain].push(if exits.len() == 2 { 2.0 * ahead } else { ahead });
                Some(interval.domain)
            }
            _ => None,
        });
    }
    let last_share = was_last.iter().zip(&met).map(|(last, met)| last / f64::max(*met, 1.0)).collect();
    let latency = robust::median(&mut latencies).unwrap_or(0.0).max(0.0);
    ExitHabits { last, last_share, lateness: lateness(own), latency, haste: haste(hastes, latency) }
}

/// Returns the haste that several domains share. The haste of a single domain cannot be distinguished from a
/// clock error.
fn haste(hastes: Vec<Vec<f64>>, latency: f64) -> f64 {
    let enough = hastes.into_iter().filter(|hastes| hastes.len() as u64 >= MIN_COMMON_COLLECTIVES);
    let mut middles: Vec<f64> = enough.filter_map(|mut hastes| robust::median(&mut hastes)).collect();
    if middles.len() < 2 {
        return 0.0;
    }
    robust::median(&mut middles).unwrap_or(0.0).clamp(0.0, latency)
}

/// Returns how much longer than the median domain each domain needs when it enters last.
fn lateness(mut own: Vec<Vec<f64>>) -> Vec<Option<ExitDelay>> {
    let middles: Vec<Option<f64>> = own.iter_mut().map(|own| robust::median(own)).collect();
    let mut known: Vec<f64> = middles.iter().flatten().copied().collect();
    let enough = known.len() >= MIN_KNOWN_DOMAINS;
    let Some(usual) = robust::median(&mut known).filter(|_| enough) else { return vec![None; own.len()] };
    // The values of one domain alone are too few to estimate their spread.
    let off = |(own, middle): (&Vec<f64>, &Option<f64>)| -> Vec<f64> {
        let middle = if own.len() >= MIN_LAST_ENTRIES { middle.unwrap_or(usual) } else { usual };
        own.iter().map(|v| v - middle).collect()
    };
    let mut all: Vec<f64> = own.iter().zip(&middles).flat_map(off).collect();
    let (total, spread) = (all.len() as f64, robust::deviation(&mut all, 0.0));
    let disturbed =
        all.iter().filter(|off| **off > MAX_DEVIATIONS * spread + READING_ERROR_NS).count() as f64;
    let disturbed = (disturbed + DISTURBANCE_PRIOR.1) / (total + DISTURBANCE_PRIOR.0);
    let late = |(own, middle): (&Vec<f64>, &Option<f64>)| {
        let var = 1.57 * spread * spread / own.len().max(1) as f64 + READING_ERROR_NS * READING_ERROR_NS;
        let disturbed = half_or_more(own.len(), disturbed);
        middle.map(|middle| ExitDelay { measured: middle - usual, var, disturbed })
    };
    own.iter().zip(&middles).map(late).collect()
}

/// Returns the probability that at least half of `count` items are of a kind with the given share.
fn half_or_more(count: usize, share: f64) -> f64 {
    // Chernoff's bound. For a single item, the share itself is exact.
    if count < 2 {
        return share;
    }
    (4.0 * share * (1.0 - share)).clamp(0.0, 1.0).powf(count as f64 / 2.0)
}

/// Returns a link to each domain from the reference or, among the domains that share collectives with it, from
/// the one nearest to the reference.
pub(super) fn links(
    collectives: &[ComparableCollective],
    habits: Option<&ExitHabits>,
    domains: &OrderedDomains,
) -> Vec<ClockLink> {
    let levels = levels(collectives, domains);
    let mut by_ends: BTreeMap<(usize, usize), Vec<Exits>> = BTreeMap::new();
    for (i, collective) in collectives.iter().enumerate() {
        let Some(hub) = collective.intervals.iter().min_by_key(|g| (levels[g.domain], g.domain)) else {
            continue;
        };
        if levels[hub.domain] == usize::MAX {
            continue;
        }
        let last = habits.and_then(|h| h.last[i]);
        for interval in collective.intervals.iter().filter(|g| g.domain != hub.domain) {
            let (u, v) = if hub.domain < interval.domain { (hub, interval) } else { (interval, hub) };
            let hasty = [u, v].map(|g| last == Some(g.domain));
            by_ends.entry((u.domain, v.domain)).or_default().push(Exits { u: u.exit, v: v.exit, hasty });
        }
    }
    let met: Vec<Met> = by_ends
        .into_iter()
        .filter(|(_, exits)| exits.len() as u64 >= MIN_COMMON_COLLECTIVES)
        .map(|(ends, exits)| Met::new(ends, exits, habits))
        .collect();
    // Few collectives say little about their spread, but it is similar for all domains.
    let usual = robust::median(&mut met.iter().filter_map(|m| m.spread).collect::<Vec<_>>());
    // If no spread was measured, scheduling cannot be detected.
    let latency = habits.filter(|_| usual.is_some()).map_or(f64::INFINITY, |h| h.latency);
    met.into_iter().map(|met| met.link(usual.unwrap_or(UNKNOWN_SPREAD_NS), latency)).collect()
}

/// Returns the number of links between each domain and the reference.
fn levels(collectives: &[ComparableCollective], domains: &OrderedDomains) -> Vec<usize> {
    let count = domains.clocks.len();
    let mut levels = vec![usize::MAX; count];
    levels[domains.reference] = 0;
    for level in 1..=count {
        let mut met = vec![0_u64; count];
        for collective in collectives {
            if collective.intervals.iter().any(|g| levels[g.domain] < level) {
                collective.intervals.iter().for_each(|g| met[g.domain] += 1);
            }
        }
        let mut more = false;
        for (known, met) in levels.iter_mut().zip(met) {
            if *known == usize::MAX && met >= MIN_COMMON_COLLECTIVES {
                *known = level;
                more = true;
            }
        }
        if !more {
            break;
        }
    }
    levels
}

/// Blocks with fewer collectives do not show their spread, because a line passes through nearly all of them.
const MIN_SPREAD_COUNT: f64 = 4.0;
/// Spread that is assumed if no block shows it, ns.
const UNKNOWN_SPREAD_NS: f64 = 3e3;
/// Weight of the usual spread, in collectives, when it is combined with a measured one.
const USUAL_SPREAD_WEIGHT: f64 = 8.0;
/// If exits spread by more than this share of a collective's duration, the scheduler causes the spread, not the
/// network. The scheduler may always favour the same ranks. In recorded runs on shared cores, with errors up to
/// 1.2 ms, 95 % of the times were within the error bound with this rule, and 45 % without it.
const MAX_NETWORK_SHARE: f64 = 0.3;

/// Exits of two domains from one collective, as x of their clocks, and whether each domain entered last.
struct Exits {
    u: f64,
    v: f64,
    hasty: [bool; 2],
}

/// Returns the points (u's exit, v's exit minus u's) of the collectives in which both domains waited, and 0.
///
/// If these are too few, returns the points of all collectives, corrected for haste, and the possible error of
/// that correction, ns.
fn without_haste(exits: Vec<Exits>, habits: Option<&ExitHabits>) -> (Vec<(f64, f64)>, f64) {
    let point = |e: &Exits| (e.u, e.v - e.u);
    let Some(habits) = habits else { return (exits.iter().map(point).collect(), 0.0) };
    let waited = |e: &&Exits| e.hasty == [false; 2];
    let both: Vec<(f64, f64)> = exits.iter().filter(waited).map(point).collect();
    let count = exits.len() as f64;
    if both.len() as u64 >= MIN_COMMON_COLLECTIVES && both.len() as f64 >= MIN_REMAINING_SHARE * count {
        return (both, 0.0);
    }
    let share = |end: usize| exits.iter().filter(|e| e.hasty[end]).count() as f64 / count;
    let uneven = UNEVEN_HASTE_SHARE * habits.haste * share(0).max(share(1));
    let haste = |hasty: bool| if hasty { habits.haste } else { 0.0 };
    let even = |e: &Exits| (e.u, e.v + haste(e.hasty[1]) - e.u - haste(e.hasty[0]));
    (exits.iter().map(even).collect(), uneven)
}

/// The collectives of two domains.
struct Met {
    ends: (usize, usize),
    blocks: Vec<Block>,
    count: u64,
    /// Standard deviation of v's exit minus u's, ns; `None` if no block shows it.
    spread: Option<f64>,
    /// Standard deviation from one collective to the next, ns, which neither a step nor a wrong rate widens.
    jitter: f64,
    /// Possible common error of all of v's exits minus u's, ns.
    uneven: f64,
}

impl Met {
    fn new(ends: (usize, usize), exits: Vec<Exits>, habits: Option<&ExitHabits>) -> Met {
        let (mut exits, uneven) = without_haste(exits, habits);
        exits.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)));
        let rate = robust::slope(&exits);
        let rate = if rate.abs() < 1e-3 { rate } else { 0.0 };
        let span = exits.last().map_or(0.0, |last| last.0) - exits.first().map_or(0.0, |first| first.0);
        let long_enough = USUAL_BLOCK_NS.min(span / MIN_BLOCKS as f64);
        let many_enough = exits.len().div_ceil(MIN_BLOCKS).clamp(MIN_BLOCK_SIZE, USUAL_BLOCK_SIZE);
        let mut blocks = Vec::new();
        let mut rest = exits.as_slice();
        while let Some(first) = rest.first() {
            let ends = |i: usize, exit: &(f64, f64)| {
                let passed = exit.0 - first.0;
                passed > MAX_BLOCK_NS || i >= MAX_BLOCK_SIZE || (passed > long_enough && i >= many_enough)
            };
            let end =
                rest.iter().enumerate().position(|(i, exit)| ends(i, exit)).unwrap_or(rest.len()).max(1);
            // A remainder that is too small for a block of its own is added to the last block, unless that is
            // already long.
            let left = rest.get(end..).unwrap_or_default();
            let may_grow = left.last().is_some_and(|last| last.0 - first.0 <= MAX_BLOCK_NS);
            let end = if left.len() < MIN_BLOCK_SIZE && may_grow { rest.len() } else { end };
            let (block, others) = rest.split_at(end);
            blocks.push(Block::new(block, rate));
            rest = others;
        }
        let mut spreads: Vec<f64> =
            blocks.iter().filter(|b| b.count >= MIN_SPREAD_COUNT).map(|b| b.spread).collect();
        let spread = robust::median(&mut spreads);
        let mut jumps: Vec<f64> =
            exits.windows(2).map(|two| two[1].1 - two[0].1 - rate * (two[1].0 - two[0].0)).collect();
        let middle = robust::median(&mut jumps).unwrap_or(0.0);
        let jitter = robust::deviation(&mut jumps, middle) / std::f64::consts::SQRT_2;
        Met { ends, blocks, count: exits.len() as u64, spread, jitter, uneven }
    }

    fn link(self, usual: f64, latency: f64) -> ClockLink {
        let mixed = |count: f64, own: f64, usual: f64| {
            (count * own + USUAL_SPREAD_WEIGHT * usual) / (count + USUAL_SPREAD_WEIGHT)
        };
        let own = self.spread.map_or(0.0, |_| self.count as f64);
        let usual = mixed(own, self.spread.unwrap_or(0.0).powi(2), usual * usual);
        let pair = |b: &Block| {
            let own = if b.count >= MIN_SPREAD_COUNT { b.count } else { 0.0 };
            let var =
                1.57 * mixed(own, b.spread * b.spread, usual) / b.count + READING_ERROR_NS * READING_ERROR_NS;
            DomainPair { xu: b.middle, xv: b.middle + b.apart, var, around: b.around }
        };
        let pairs = self.blocks.iter().map(pair).collect();
        let seen = usual.min(self.jitter * self.jitter);
        let scheduled = (seen - (MAX_NETWORK_SHARE * latency).powi(2)).max(0.0);
        let uneven = (self.uneven * self.uneven + scheduled).sqrt();
        let (u, v) = self.ends;
        ClockLink {
            u,
            v,
            kind: LinkKind::Collectives,
            pairs,
            count: self.count,
            round_trip: f64::INFINITY,
            uneven,
            jitter: self.jitter,
        }
    }
}

/// Several consecutive collectives.
struct Block {
    middle: f64,
    apart: f64,
    spread: f64,
    count: f64,
    /// Largest distance of its collectives from its middle, ns.
    around: f64,
}

impl Block {
    fn new(exits: &[(f64, f64)], rate: f64) -> Block {
        let count = exits.len() as f64;
        let middle = exits.iter().map(|e| e.0).sum::<f64>() / count;
        let level = |e: &(f64, f64)| e.1 - rate * (e.0 - middle);
        let mut by_level: Vec<&(f64, f64)> = exits.iter().collect();
        by_level.sort_by(|a, b| level(a).total_cmp(&level(b)).then(a.0.total_cmp(&b.0)));
        let mut apart: Vec<f64> = by_level.iter().map(|e| level(e)).collect();
        let median = robust::median(&mut apart).unwrap_or(0.0);
        // The median collectives represent the block, at their own times: the rate of a few collectives may be
        // wrong.
        let (low, high) = (by_level[(exits.len() - 1) / 2], by_level[exits.len() / 2]);
        let (middle, level) = ((low.0 + high.0) / 2.0, (low.1 + high.1) / 2.0);
        let around = exits.iter().map(|e| (e.0 - middle).abs()).fold(0.0, f64::max);
        Block { middle, apart: level, spread: robust::deviation(&mut apart, median), count, around }
    }
}
