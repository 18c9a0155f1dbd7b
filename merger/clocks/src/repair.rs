//! Moves maps within their error bounds until effects follow their causes.
//!
//! First each map is moved as a whole, then in ever shorter stretches, down to single collectives. Violations
//! that a single shift explains are thus not repaired by many small moves. In recorded runs on shared cores, aligned
//! by collectives alone, 12 of 1,052 violations remained, 5 of them out of reach of the error bounds.

use super::causality::CausalityCheck;
use super::fit::DomainFit;
use super::observations::{ClockObservations, ObservedWaits, RankInterval};
use super::time_map::TimeMap;
use super::track::SECOND;
use rpd_shard::model::LocalNs;

/// Number of parts into which each stretch is divided for the next round.
const STRETCH_DIVISOR: usize = 4;
/// Share of a violation that each pass over the collectives removes. It decreases, so that contradicting
/// collectives converge to the middle.
const PASS_SHARES: [f64; 8] = [1.0, 1.0, 1.0, 0.7, 0.5, 0.35, 0.25, 0.15];

/// Result of a repair.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RepairedTimes {
    /// Remaining violations.
    pub left: CausalityCheck,
    /// Number of those that cannot be removed while both maps stay within their error bounds.
    pub out_of_reach: u64,
    /// The largest move, ns.
    pub moved: i64,
}

impl ClockObservations {
    /// Moves the maps so that as few collectives as possible are in the wrong order. Each map moves by at most
    /// its error bound and stays monotonic; the reference does not move.
    pub fn repair_causality(&self, fits: &mut [DomainFit]) -> RepairedTimes {
        let before = self.causality(fits);
        if before.violations == 0 {
            return RepairedTimes { left: before, ..RepairedTimes::default() };
        }
        let mut moves = Moves::new(self, fits);
        let out_of_reach = moves.out_of_reach();
        let mut left = before;
        let mut best: Vec<TimeMap> = fits.iter().map(|f| f.map.clone()).collect();
        let first = best.clone();
        loop {
            moves.reduce_violations();
            fits.iter_mut().zip(&first).zip(&moves.domains).for_each(|((fit, first), domain)| {
                fit.map = domain.moved(fit, first);
            });
            let now = self.causality(fits);
            if now.violations < left.violations {
                left = now;
                best = fits.iter().map(|f| f.map.clone()).collect();
            }
            if left.violations <= out_of_reach || !moves.refine() {
                break;
            }
        }
        let moved = best.iter().zip(&first).flat_map(|(after, before)| {
            after.bends().map(|at| after.map(at).ns().saturating_sub(before.map(at).ns()).saturating_abs())
        });
        let moved = moved.max().unwrap_or(0);
        fits.iter_mut().zip(best).for_each(|(fit, map)| fit.map = map);
        RepairedTimes { out_of_reach: out_of_reach.min(left.violations), left, moved }
    }
}

/// The collectives, and the current moves of all domains.
struct Moves {
    collectives: Vec<(ObservedWaits, Vec<RankTimes>)>,
    domains: Vec<Domain>,
    /// Number of times of a domain in one stretch.
    stride: usize,
}

/// A rank in a collective; entry and exit are indices into the times of its domain.
#[derive(Clone, Copy)]
struct RankTimes {
    domain: usize,
    rank: u32,
    enter: usize,
    exit: usize,
}

/// Entry and exit times of a domain's ranks, and the moves of its map.
///
/// The moves are stored at the knots, which are every `stride`th of these times and the last one, and are
/// interpolated linearly between them. A single knot moves the whole map.
#[derive(Default)]
struct Domain {
    /// Times in ns of the domain, in order, without duplicates.
    times: Vec<i64>,
    /// Their job times under the original map.
    jobs: Vec<i64>,
    /// Their error bounds.
    error_bounds: Vec<f64>,
    stride: usize,
    moves: Vec<f64>,
    /// Whether each knot deviates from the line between its neighbours.
    bends: Vec<bool>,
}

impl Moves {
    fn new(observations: &ClockObservations, fits: &[DomainFit]) -> Moves {
        let known = |a: &&RankInterval| a.exit >= a.enter && (a.domain as usize) < fits.len();
        let mut domains: Vec<Domain> = fits.iter().map(|_| Domain::default()).collect();
        for interval in observations.collectives.iter().flat_map(|m| m.intervals.iter().filter(known)) {
            domains[interval.domain as usize].times.extend([interval.enter.0, interval.exit.0]);
        }
        for (domain, fit) in domains.iter_mut().zip(fits) {
            domain.times.sort_unstable();
            domain.times.dedup();
            let mut cursor = fit.map.cursor();
            domain.jobs = domain.times.iter().map(|&at| cursor.map(LocalNs(at)).ns()).collect();
            let error_bound = |&at: &i64| fit.bar_at(LocalNs(at)).unwrap_or(0).max(0) as f64;
            domain.error_bounds = domain.times.iter().map(error_bound).collect();
            domain.stride = domain.times.len();
            domain.moves = vec![0.0];
            domain.bends = vec![true];
        }
        let rank_times = |a: &RankInterval| {
            let domain = a.domain as usize;
            let place = |at: LocalNs| domains[domain].times.partition_point(|t| *t < at.0);
            RankTimes { domain, rank: a.rank, enter: place(a.enter), exit: place(a.exit) }
        };
        let collectives = observations.collectives.iter().map(|collective| {
            (collective.waits, collective.intervals.iter().filter(known).map(rank_times).collect::<Vec<_>>())
        });
        let collectives = collectives
            .filter(|(waits, ranks)| *waits != ObservedWaits::Nothing && ranks.len() > 1)
            .collect();
        let longest = domains.iter().map(|d| d.times.len()).max().unwrap_or(0);
        Moves { collectives, domains, stride: longest.next_power_of_two().max(1) }
    }

    /// Counts the ranks that left before another one entered, even with both times moved to the ends of their
    /// error bounds.
    fn out_of_reach(&self) -> u64 {
        let early = |g: &RankTimes| self.domains[g.domain].end(g.enter, -1.0);
        let late = |g: &RankTimes| self.domains[g.domain].end(g.exit, 1.0);
        let out_of_reach = |(waits, ranks): &(ObservedWaits, Vec<RankTimes>)| {
            let awaited: Vec<&RankTimes> = ranks.iter().filter(|g| waits.is_awaited(g.rank)).collect();
            // The two latest entries of different domains: within a domain there are no violations.
            let key = |g: &&&RankTimes| (early(g), g.rank);
            let first = awaited.iter().max_by_key(key);
            let second =
                awaited.iter().filter(|g| first.is_none_or(|f| f.domain != g.domain)).max_by_key(key);
            let is_out = |g: &&RankTimes| {
                let other = if first.is_some_and(|f| f.domain == g.domain) { second } else { first };
                waits.is_waiting(g.rank) && other.is_some_and(|other| early(other) > late(g))
            };
            ranks.iter().filter(is_out).count() as u64
        };
        self.collectives.iter().map(out_of_reach).sum()
    }

    /// Moves the current knots until as few collectives as possible are in the wrong order.
    fn reduce_violations(&mut self) {
        let mut best = (self.violations(), self.snapshot());
        for share in PASS_SHARES {
            if best.0 == 0 {
                break;
            }
            let Moves { collectives, domains, .. } = self;
            collectives.iter().for_each(|(waits, ranks)| relieve(*waits, ranks, domains, share));
            domains.iter_mut().for_each(Domain::put_in_order);
            let violations = self.violations();
            if violations < best.0 {
                best = (violations, self.snapshot());
            }
        }
        for (domain, (moves, bends)) in self.domains.iter_mut().zip(best.1) {
            (domain.moves, domain.bends) = (moves, bends);
        }
    }

    fn snapshot(&self) -> Vec<(Vec<f64>, Vec<bool>)> {
        self.domains.iter().map(|d| (d.moves.clone(), d.bends.clone())).collect()
    }

    fn violations(&self) -> u64 {
        let mut count = 0;
        for (waits, ranks) in &self.collectives {
            violations(*waits, ranks, &self.domains, |_, _, _| count += 1);
        }
        count
    }

    /// Shortens the stretches; returns false if each time already has a move of its own.
    fn refine(&mut self) -> bool {
        if self.stride <= 1 {
            return false;
        }
        self.stride = (self.stride / STRETCH_DIVISOR).max(1);
        let stride = self.stride;
        self.domains.iter_mut().for_each(|domain| domain.refine(stride));
        true
    }
}

/// Calls `each` with the rank that left too early, the rank for which it should have waited, and the violation
/// in ns.
fn violations(
    waits: ObservedWaits,
    ranks: &[RankTimes],
    domains: &[Domain],
    mut each: impl FnMut(&RankTimes, &RankTimes, i64),
) {
    let entered = |g: &RankTimes| domains[g.domain].job(g.enter);
    let last = ranks.iter().filter(|g| waits.is_awaited(g.rank)).max_by_key(|g| (entered(g), g.rank));
    let Some(last) = last else { return };
    let at = entered(last);
    for rank in ranks.iter().filter(|g| g.domain != last.domain && waits.is_waiting(g.rank)) {
        let late = at.saturating_sub(domains[rank.domain].job(rank.exit));
        if late > 0 {
            each(rank, last, late);
        }
    }
}

/// Removes a share of the violations of a collective. The rank that may still move further takes the larger part.
fn relieve(waits: ObservedWaits, ranks: &[RankTimes], domains: &mut [Domain], share: f64) {
    let mut found = Vec::new();
    violations(waits, ranks, domains, |leaver, enterer, _| found.push((*leaver, *enterer)));
    for (leaver, enterer) in found {
        // Another violation of this collective may have moved the two already.
        let (left, entered) =
            (domains[leaver.domain].job(leaver.exit), domains[enterer.domain].job(enterer.enter));
        let late = entered.saturating_sub(left) as f64;
        let later = domains[leaver.domain].remaining_move(leaver.exit, 1.0);
        let earlier = domains[enterer.domain].remaining_move(enterer.enter, -1.0);
        let is_possible =
            domains[enterer.domain].end(enterer.enter, -1.0) <= domains[leaver.domain].end(leaver.exit, 1.0);
        if late > 0.0 && later + earlier > 0.0 && is_possible {
            // Moves are rounded, so one ns is added.
            let by = share * late.min(later + earlier) + 1.0;
            domains[leaver.domain].push(leaver.exit, by * later / (later + earlier));
            domains[enterer.domain].push(enterer.enter, -by * earlier / (later + earlier));
        }
    }
}

impl Domain {
    /// Returns the knots around a time, and its relative position between them, from 0 to 1.
    fn around(&self, place: usize) -> (usize, usize, f64) {
        if self.moves.len() < 2 {
            return (0, 0, 0.0);
        }
        let first = (place / self.stride).min(self.moves.len() - 2);
        let (a, b) = (self.times[self.place(first)], self.times[self.place(first + 1)]);
        let share = (self.times[place] as f64 - a as f64) / (b as f64 - a as f64).max(1.0);
        (first, first + 1, share)
    }

    /// Returns the time index of a knot.
    fn place(&self, knot: usize) -> usize {
        (knot * self.stride).min(self.times.len().saturating_sub(1))
    }

    /// Returns the move at a time.
    fn at(&self, place: usize) -> f64 {
        let (a, b, share) = self.around(place);
        let by = self.moves[a] + (self.moves[b] - self.moves[a]) * share;
        by.clamp(-self.error_bounds[place], self.error_bounds[place])
    }

    /// Returns the job time under the moved map.
    fn job(&self, place: usize) -> i64 {
        self.jobs[place].saturating_add(self.at(place) as i64)
    }

    /// Returns the job time at the end of the error bound.
    fn end(&self, place: usize, sign: f64) -> i64 {
        self.jobs[place].saturating_add((sign * self.error_bounds[place]) as i64)
    }

    /// Returns how far a time may still move in a direction.
    fn remaining_move(&self, place: usize, sign: f64) -> f64 {
        self.error_bounds[place] - sign * self.at(place)
    }

    /// Moves a time by moving the knots around it as little as possible.
    fn push(&mut self, place: usize, by: f64) {
        let (a, b, share) = self.around(place);
        if a == b {
            let most = self.error_bounds.iter().copied().fold(0.0, f64::max);
            self.moves[a] = (self.at(place) + by).clamp(-most, most);
            return;
        }
        let squares = (1.0 - share) * (1.0 - share) + share * share;
        for (knot, weight) in [(a, 1.0 - share), (b, share)] {
            if weight > 0.0 {
                let bound = self.error_bounds[self.place(knot)];
                self.moves[knot] = (self.moves[knot] + by * weight / squares).clamp(-bound, bound);
                self.bends[knot] = true;
            }
        }
    }

    /// Moves knots forward so that none is before the previous one.
    fn put_in_order(&mut self) {
        for knot in 1..self.moves.len() {
            let (before, place) = (self.place(knot - 1), self.place(knot));
            let apart = self.jobs[place].saturating_sub(self.jobs[before]) as f64;
            let least = self.moves[knot - 1] - apart;
            if self.moves[knot] < least {
                self.moves[knot] = least.min(self.error_bounds[place]);
                self.bends[knot] = true;
            }
        }
    }

    fn refine(&mut self, stride: usize) {
        let Some(last) = self.times.len().checked_sub(1) else { return };
        if last == 0 || stride > last {
            return;
        }
        let count = last.div_ceil(stride) + 1;
        let place = |knot: usize| (knot * stride).min(last);
        let moves = (0..count).map(|knot| self.at(place(knot))).collect();
        let bends = (0..count).map(|knot| {
            let (a, b, share) = self.around(place(knot));
            let is_end = knot == 0 || knot + 1 == count;
            is_end || (share == 0.0 && self.bends[a]) || (share == 1.0 && self.bends[b])
        });
        let bends = bends.collect();
        (self.moves, self.bends, self.stride) = (moves, bends, stride);
    }

    /// Returns the original map with the moves, within its error bound at each of its knots.
    fn moved(&self, fit: &DomainFit, first: &TimeMap) -> TimeMap {
        if self.moves.iter().all(|by| *by == 0.0) || self.times.is_empty() {
            return first.clone();
        }
        let bends = (0..self.moves.len()).filter(|&knot| self.bends[knot]);
        let mut times: Vec<i64> = bends.map(|knot| self.times[self.place(knot)]).collect();
        times.extend(first.bends().map(|at| at.0));
        times.extend(fit.bars.iter().map(|bar| bar.local));
        times.sort_unstable();
        times.dedup();
        // Two points at each end keep the rates of the original map beyond them.
        if let (Some(&start), Some(&end)) = (times.first(), times.last()) {
            let apart = |count: i64| count * SECOND as i64;
            times.splice(0..0, [start.saturating_sub(apart(2)), start.saturating_sub(apart(1))]);
            times.extend([end.saturating_add(apart(1)), end.saturating_add(apart(2))]);
        }
        let mut cursor = first.cursor();
        let mut points: Vec<(i64, [i64; 3])> = times
            .into_iter()
            .map(|at| {
                let (job, bound) =
                    (cursor.map(LocalNs(at)).ns(), fit.bar_at(LocalNs(at)).unwrap_or(0).max(0));
                let (low, high) = (job.saturating_sub(bound), job.saturating_add(bound));
                (at, [low, job.saturating_add(self.at_time(at) as i64).clamp(low, high), high])
            })
            .collect();
        // Limits each time to the error bounds of all later ones, which keeps the order without leaving a bound.
        let mut end = i64::MAX;
        for (_, [_, job, high]) in points.iter_mut().rev() {
            end = end.min(*high);
            *job = (*job).min(end);
        }
        TimeMap::through(points.into_iter().map(|(at, [_, job, _])| (at, job)).collect())
    }

    /// Returns the move at any time.
    fn at_time(&self, time: i64) -> f64 {
        let after = self.times.partition_point(|t| *t <= time);
        let (Some(before), true) = (after.checked_sub(1), after < self.times.len()) else {
            return self.moves[if after == 0 { 0 } else { self.moves.len() - 1 }];
        };
        let (a, b, _) = self.around(before);
        let (from, to) = (self.times[self.place(a)] as f64, self.times[self.place(b)] as f64);
        let share = if a == b { 0.0 } else { (time as f64 - from) / (to - from).max(1.0) };
        self.moves[a] + (self.moves[b] - self.moves[a]) * share
    }
}
