//! Decides from their times whether calls that several clock domains made in the same order belong to one
//! communicator.
//!
//! In a collective in which every rank waits for all ranks, all ranks leave when the last one has entered. Calls
//! that share only their order (for example of tensor-parallel groups on two stages of a pipeline) have exits as
//! far apart as their entries. Four conditions must hold:
//!
//! 1. exits of two domains are closer together than their entries, after drift and offset are removed;
//! 2. the second-last domain to enter leaves together with the last, not earlier by as much as it entered
//!    earlier;
//! 3. each domain waited, and each was waited for: a stage that starts when the previous one ends looks like a
//!    domain that always enters last;
//! 4. the last domain to enter leaves without waiting; otherwise it waited for a domain that is not in the
//!    inputs.
//!
//! In a job in which no rank ever waits, noise hides all four. The calls are then rejected. The tests accept 7 of
//! 2,000 jobs wrongly: one rank of each node is recorded, it waits for unrecorded ranks, and no rank's work exceeds a
//! fixed limit.

use rpd_clocks::{median, slope};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Fewest calls from which timing can show that domains took part in the same collectives.
pub(super) const MIN_CALLS: usize = 20;
/// Exits count as together if their spread is at most this share of the spread of entries.
const MAX_EXIT_SHARE: f64 = 0.25;
/// A domain entered clearly last if its distance to the second-last exceeds this multiple of the spread of
/// exits.
const CLEAR_GAP_SPREADS: f64 = 6.0;
/// Number of calls in which each domain must enter clearly last, and in which another domain must.
const MIN_CLEAR_CALLS: usize = 4;
/// Maximum spread of the time that the last domain needs, as a share of its distance to the second-last entry.
const MAX_LAST_SHARE: f64 = 0.25;
/// The same limit as a share of the spread of entries. It applies with many domains, where the last two are
/// close.
const MAX_LAST_SHARE_OF_MANY: f64 = 0.04;
/// Fewest calls of one kind from which its usual duration is derived.
const MIN_CALLS_OF_KIND: usize = 8;
/// One call in this many may contradict, and of the calls of one domain one in this many: exits are late
/// occasionally.
const DISTURBED_PART: usize = 10;
const DISTURBED_PART_OF_ONE: usize = 4;
/// Number of calls in a part of the run. Within a part, the offset of two clocks without their drift is taken as
/// a line.
const PART_CALLS: usize = 32;
/// With fewer parts than this, the offset over the whole run is one line.
const MIN_PARTS: usize = 4;
/// Maximum number of groups of domains with which others are compared.
const MAX_GROUPS: usize = 64;

/// Interval in which the ranks of one domain were in a call, ns of its clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct DomainCall {
    /// Index of the domain in the job.
    pub(super) domain: u32,
    /// Last entry.
    pub(super) enter: i64,
    /// Median exit (the lower one).
    pub(super) exit: i64,
    /// First exit.
    pub(super) first_exit: i64,
}

/// One call of all domains.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct TimedRound {
    /// Number of the call on its communicator.
    pub(super) seq: u64,
    /// Hash of function and size. Calls of one kind take about the same time.
    pub(super) kind: u64,
    /// Intervals by domain, with the same domains in each call.
    pub(super) stays: Vec<DomainCall>,
}

/// Why a domain is not shown to have taken part in the same calls as another one. Times are in ns.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum RejectionReason {
    /// There are only this many calls.
    Few(usize),
    /// The exits of the two domains spread by this, and their entries.
    Apart { exits: f64, entries: f64 },
    /// In `parted` of `calls` calls the second-last domain left earlier by as much as it entered earlier.
    Follows { parted: usize, of: usize },
    /// No domain ever waited for it, or not often enough.
    NeverLast,
    /// It never waited for another domain, or not often enough.
    AlwaysLast,
    /// Spread of the time that the last domain needs, and of entries. The last domain waits for others.
    LastWaits { last: f64, entries: f64 },
}

/// Result of evaluating the times.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct TimingEvidence {
    /// Groups of two or more domains that took part in the same collectives.
    pub(super) parts: Vec<Vec<usize>>,
    /// The remaining domains: the domain, the one it was compared with, and the reason for the rejection.
    pub(super) rejected: Vec<(usize, usize, RejectionReason)>,
}

/// Finds the domains with calls to the same collectives. `rounds` are in order of time.
pub(super) fn evidence(rounds: &[TimedRound], domains: usize) -> TimingEvidence {
    let mut found = TimingEvidence::default();
    if rounds.len() < MIN_CALLS {
        found.rejected = (1..domains).map(|domain| (domain, 0, RejectionReason::Few(rounds.len()))).collect();
        return found;
    }
    for part in close_together(rounds, domains, &mut found.rejected) {
        let (leader, second) = (part[0], part[1]);
        let (sure, rejected) = verified(rounds, part);
        let other = |domain: usize| if domain == leader { second } else { leader };
        found.rejected.extend(rejected.into_iter().map(|(domain, reason)| (domain, other(domain), reason)));
        if sure.len() > 1 {
            found.parts.push(sure);
        }
    }
    found.rejected.sort_by_key(|(domain, other, _)| (*domain, *other));
    found.parts.sort();
    found
}

/// Groups the domains that are closer together at exits than at entries.
fn close_together(
    rounds: &[TimedRound],
    domains: usize,
    rejected: &mut Vec<(usize, usize, RejectionReason)>,
) -> Vec<Vec<usize>> {
    let mut parts: Vec<Vec<usize>> = Vec::new();
    let mut alone: BTreeMap<usize, (usize, RejectionReason)> = BTreeMap::new();
    for domain in 0..domains {
        let mut nearest: Option<(f64, usize)> = None;
        for (place, part) in parts.iter().enumerate() {
            let leader = part[0];
            let exits = spread(&distances(rounds, leader, domain, |stay| stay.exit));
            let entries = spread(&distances(rounds, leader, domain, |stay| stay.enter));
            if exits > MAX_EXIT_SHARE * entries || entries <= 0.0 {
                alone.entry(domain).or_insert((leader, RejectionReason::Apart { exits, entries }));
            } else if nearest.is_none_or(|(least, _)| exits < least) {
                nearest = Some((exits, place));
            }
        }
        match nearest {
            Some((_, place)) => parts[place].push(domain),
            None if parts.len() < MAX_GROUPS => parts.push(vec![domain]),
            None => {}
        }
    }
    parts.retain(|part| part.len() > 1);
    // A domain that belongs to a group gets a reason only from that group.
    alone.retain(|domain, _| !parts.iter().flatten().any(|known| known == domain));
    rejected.extend(alone.into_iter().map(|(domain, (leader, reason))| (domain, leader, reason)));
    parts
}

/// Returns the domains of a group that meet all conditions, and the others with their reasons.
fn verified(rounds: &[TimedRound], mut part: Vec<usize>) -> (Vec<usize>, Vec<(usize, RejectionReason)>) {
    let mut rejected = Vec::new();
    while part.len() > 1 {
        let tally = Tally::new(rounds, &part);
        if let Some(reason) = tally.rejection() {
            rejected.extend(part.iter().map(|domain| (*domain, reason)));
            return (Vec::new(), rejected);
        }
        // A domain that always enters last hides that others are waited for.
        let is_always_last = |place: &usize| tally.clear - tally.last[*place] < MIN_CLEAR_CALLS;
        let is_never_last = |place: &usize| tally.last[*place] < MIN_CLEAR_CALLS;
        let all = 0..part.len();
        let mut out: Vec<usize> = all.clone().filter(is_always_last).collect();
        let reason = if out.is_empty() { RejectionReason::NeverLast } else { RejectionReason::AlwaysLast };
        if out.is_empty() {
            out = all.filter(is_never_last).collect();
        }
        if out.is_empty() {
            return (part, rejected);
        }
        rejected.extend(out.iter().map(|place| (part[*place], reason)));
        part = (0..part.len()).filter(|place| !out.contains(place)).map(|place| part[place]).collect();
    }
    let nothing_left = part.into_iter().map(|domain| (domain, RejectionReason::NeverLast));
    rejected.extend(nothing_left);
    (Vec::new(), rejected)
}

/// Counts over all calls of a group.
struct Tally {
    /// Number of calls in which one domain entered clearly last.
    clear: usize,
    /// By place in the group: number of calls in which the domain entered clearly last.
    last: Vec<usize>,
    /// Two numbers by place: calls in which the domain was one of the last two and these did not leave together,
    /// and all calls in which it was one of the last two.
    votes: Vec<(usize, usize)>,
    /// Number of calls that one domain left clearly before another one entered.
    early: usize,
    calls: usize,
    /// Spread of the last domain's time in the call, the limit of that spread, and the spread of entries, ns.
    steady: (f64, f64, f64),
}

impl Tally {
    fn new(rounds: &[TimedRound], part: &[usize]) -> Tally {
        let leader = part[0];
        let exits: Vec<Vec<f64>> =
            part.iter().map(|domain| distances(rounds, leader, *domain, |stay| stay.exit)).collect();
        let middle = |mut spreads: Vec<f64>| median(&mut spreads).unwrap_or(0.0);
        let noise = middle(exits.iter().skip(1).map(|exits| spread(exits)).collect());
        let entries = |domain: &usize| spread(&distances(rounds, leader, *domain, |stay| stay.enter));
        let entries = middle(part.iter().skip(1).map(entries).collect());
        let mut tally = Tally {
            clear: 0,
            last: vec![0; part.len()],
            votes: vec![(0, 0); part.len()],
            early: 0,
            calls: rounds.len(),
            steady: (0.0, 0.0, entries),
        };
        let mut gaps = Vec::with_capacity(rounds.len());
        let mut stays_of_last: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
        for (i, round) in rounds.iter().enumerate() {
            // Times on one clock, on which the leader's exit is 0.
            let at = |place: usize| {
                let (stay, exit) = (round.stays[part[place]], exits[place][i]);
                (exit - apart(stay.exit, stay.enter), exit, exit - apart(stay.exit, stay.first_exit))
            };
            let mut order: Vec<usize> = (0..part.len()).collect();
            order.sort_by(|a, b| at(*b).0.total_cmp(&at(*a).0));
            let (last, second) = (order[0], order[1]);
            let ((enter, exit, _), (second_enter, second_exit, _)) = (at(last), at(second));
            let gap = enter - second_enter;
            gaps.push(gap);
            stays_of_last.entry(round.kind).or_default().push(exit - enter);
            let first_exit = order.iter().map(|place| at(*place).2).fold(f64::INFINITY, f64::min);
            tally.early += usize::from(first_exit < enter - CLEAR_GAP_SPREADS * noise);
            if gap > CLEAR_GAP_SPREADS * noise {
                tally.clear += 1;
                tally.last[last] += 1;
                let parted = usize::from(exit - second_exit > gap / 2.0);
                for place in [last, second] {
                    tally.votes[place].0 += parted;
                    tally.votes[place].1 += 1;
                }
            }
        }
        let limit =
            f64::max(MAX_LAST_SHARE * median(&mut gaps).unwrap_or(0.0), MAX_LAST_SHARE_OF_MANY * entries);
        tally.steady = (spread_of_kinds(stays_of_last), limit, entries);
        tally
    }

    /// Returns the reason that rejects the whole group, if there is one.
    fn rejection(&self) -> Option<RejectionReason> {
        let all = self.votes.iter().fold((0, 0), |all, one| (all.0 + one.0, all.1 + one.1));
        let of_one =
            self.votes.iter().filter(|one| one.1 >= MIN_CLEAR_CALLS && one.0 * DISTURBED_PART_OF_ONE > one.1);
        let of_all = [all, (self.early, self.calls)];
        let wrong = of_all.iter().filter(|all| all.0 * DISTURBED_PART > all.1).chain(of_one).next();
        if let Some((parted, of)) = wrong {
            return Some(RejectionReason::Follows { parted: *parted, of: *of });
        }
        let (last, limit, entries) = self.steady;
        (last > limit).then_some(RejectionReason::LastWaits { last, entries })
    }
}

/// Returns the spread of values around the median of their kind. All values count as one kind if there are too
/// few of each.
fn spread_of_kinds(kinds: BTreeMap<u64, Vec<f64>>) -> f64 {
    let around = |mut values: Vec<f64>| {
        let middle = median(&mut values).unwrap_or(0.0);
        values.into_iter().map(move |value| value - middle)
    };
    let enough =
        kinds.values().filter(|values| values.len() >= MIN_CALLS_OF_KIND).map(Vec::len).sum::<usize>();
    if enough < MIN_CALLS {
        return spread(&around(kinds.into_values().flatten().collect()).collect::<Vec<_>>());
    }
    let known = kinds.into_values().filter(|values| values.len() >= MIN_CALLS_OF_KIND);
    spread(&known.flat_map(around).collect::<Vec<_>>())
}

/// Returns the difference in time between two domains, call by call: second domain minus first, ns, without
/// offset and drift.
fn distances(
    rounds: &[TimedRound],
    first: usize,
    second: usize,
    time: impl Fn(&DomainCall) -> i64,
) -> Vec<f64> {
    if first == second {
        return vec![0.0; rounds.len()];
    }
    let times = |round: &TimedRound| (time(&round.stays[first]), time(&round.stays[second]));
    let Some(begin) = rounds.first().map(times) else { return Vec::new() };
    let point = |round| {
        let (a, b) = times(round);
        let (a, b) = (apart(a, begin.0), apart(b, begin.1));
        (a, b - a)
    };
    let mut points: Vec<(f64, f64)> = rounds.iter().map(point).collect();
    let drift = slope(&points);
    points.iter_mut().for_each(|(x, y)| *y -= drift * *x);
    let count = if points.len() / PART_CALLS < MIN_PARTS { 1 } else { points.len() / PART_CALLS };
    let length = points.len().div_ceil(count);
    let middles: Vec<f64> = points
        .chunks(length)
        .map(|part| median(&mut part.iter().map(|point| point.1).collect::<Vec<_>>()).unwrap_or(0.0))
        .collect();
    points.iter().enumerate().map(|(i, (_, y))| y - between(&middles, i, length)).collect()
}

/// Returns the value at index `i` of a line through the medians of parts of this length.
fn between(middles: &[f64], i: usize, length: usize) -> f64 {
    let place = (i as f64 + 0.5) / length as f64 - 0.5;
    let low = (place.max(0.0) as usize).min(middles.len().saturating_sub(1));
    let high = (low + 1).min(middles.len().saturating_sub(1));
    let share = (place - low as f64).clamp(0.0, 1.0);
    middles[low] + (middles[high] - middles[low]) * share
}

/// Returns `a - b`. Foreign files may contain any times, so the difference may exceed `i64`.
fn apart(a: i64, b: i64) -> f64 {
    (i128::from(a) - i128::from(b)) as f64
}

/// Returns the median of the absolute values.
fn spread(rest: &[f64]) -> f64 {
    median(&mut rest.iter().map(|value| value.abs()).collect::<Vec<_>>()).unwrap_or(0.0)
}

#[cfg(test)]
mod tests;
