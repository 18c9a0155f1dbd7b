//! Whether the calls that several clock domains made in the same order were one communicator's: that follows from
//! their times, or it does not follow at all.
//!
//! In a collective in which all wait for all, everyone leaves when the last one has come, whoever that is. Calls that
//! have no more in common than their order (of tensor-parallel groups on two stages of a pipeline, say) are as far
//! apart at their ends as at their beginnings. Four things are asked for:
//!
//! 1. exits of two domains are closer together than their entries, once drift and offset are taken out;
//! 2. who is second last leaves with the last, and not by as much earlier as it came earlier;
//! 3. each domain waited, and was waited for: a stage that begins when the one before it ends looks like somebody
//!    who always comes last;
//! 4. who comes last waits for nobody: else it waited for somebody of whom nothing is known here.
//!
//! That noise hides all this in a job where nobody ever waits is no proof: then the answer is no.

use rpd_clocks::{median, slope};
use std::collections::BTreeMap;

/// Fewest calls from which timing can show that domains took part in the same collectives.
pub(super) const MIN_CALLS: usize = 20;
/// Exits are together if they spread by this share of what entries do, or less.
const TOGETHER: f64 = 0.25;
/// Somebody came clearly last if that is by more than so many times what exits spread.
const CLEARLY: f64 = 6.0;
/// How often each domain has to come clearly last, and clearly not.
const EACH_WAY: usize = 4;
/// The time that the last one needs spreads by this share of how much later than the second it comes...
const STEADY: f64 = 0.25;
/// ... or by this share of what entries spread: of many domains the last two are close together.
const STEADY_OF_MANY: f64 = 0.04;
/// Calls of one kind that tell how long it usually takes.
const ENOUGH_OF_KIND: usize = 8;
/// One call in so many may say the opposite, and of those of one domain one in so many: exits are late now and then.
const DISTURBED: usize = 10;
const DISTURBED_OF_ONE: usize = 4;
/// Calls in a part of the run in which the distance of two clocks, but for their drift, is taken as a line.
const PART: usize = 32;
/// With fewer parts than this their distance is one line.
const FEWEST_PARTS: usize = 4;
/// Groups of domains that others are compared with.
const MOST_PARTS: usize = 64;

/// When the ranks of one domain were in a call, ns of its clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct DomainInterval {
    /// The last one entered.
    pub(super) enter: i64,
    /// The middle one left, of two the first.
    pub(super) exit: i64,
    /// The first one left.
    pub(super) first_exit: i64,
}

/// One call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct TimedRound {
    /// Function and size: what takes as long.
    pub(super) kind: u64,
    /// By domain, the same ones in each round.
    pub(super) stays: Vec<DomainInterval>,
}

/// Why it is not known that a domain took part in the same calls as another one. Times are in ns.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum RejectionReason {
    /// There are only so many calls.
    Few(usize),
    /// So far apart are the exits of the two, and their entries.
    Apart { exits: f64, entries: f64 },
    /// In so many calls of so many the second last left as much earlier as it came earlier.
    Follows { parted: usize, of: usize },
    /// Nobody ever waited for it, or not often enough.
    NeverLast,
    /// It never waited for anybody, or not often enough.
    AlwaysLast,
    /// The time that the last one needs spreads by this, and entries by this: it waits for others.
    LastWaits { last: f64, entries: f64 },
}

/// What the times say.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct TimingEvidence {
    /// Domains that were in the same collectives: two or more in each part.
    pub(super) parts: Vec<Vec<usize>>,
    /// The others: domain, the one it was compared with, and why not.
    pub(super) doubts: Vec<(usize, usize, RejectionReason)>,
}

/// Finds the domains whose calls were the same collectives; `rounds` are in order of time.
pub(super) fn evidence(rounds: &[TimedRound], domains: usize) -> TimingEvidence {
    let mut found = TimingEvidence::default();
    if rounds.len() < MIN_CALLS {
        found.doubts = (1..domains).map(|domain| (domain, 0, RejectionReason::Few(rounds.len()))).collect();
        return found;
    }
    for part in close_together(rounds, domains, &mut found.doubts) {
        let (leader, second) = (part[0], part[1]);
        let (sure, doubts) = verified(rounds, part);
        let other = |domain: usize| if domain == leader { second } else { leader };
        found.doubts.extend(doubts.into_iter().map(|(domain, doubt)| (domain, other(domain), doubt)));
        if sure.len() > 1 {
            found.parts.push(sure);
        }
    }
    found.doubts.sort_by_key(|(domain, other, _)| (*domain, *other));
    found.parts.sort();
    found
}

/// Parts of the domains whose exits are closer together than their entries.
fn close_together(
    rounds: &[TimedRound],
    domains: usize,
    doubts: &mut Vec<(usize, usize, RejectionReason)>,
) -> Vec<Vec<usize>> {
    let mut parts: Vec<Vec<usize>> = Vec::new();
    let mut alone: BTreeMap<usize, (usize, RejectionReason)> = BTreeMap::new();
    for domain in 0..domains {
        let mut nearest: Option<(f64, usize)> = None;
        for (place, part) in parts.iter().enumerate() {
            let leader = part[0];
            let exits = spread(&Distance::new(rounds, leader, domain, |stay| stay.exit).rest);
            let entries = spread(&Distance::new(rounds, leader, domain, |stay| stay.enter).rest);
            if exits > TOGETHER * entries || entries <= 0.0 {
                alone.entry(domain).or_insert((leader, RejectionReason::Apart { exits, entries }));
            } else if nearest.is_none_or(|(least, _)| exits < least) {
                nearest = Some((exits, place));
            }
        }
        match nearest {
            Some((_, place)) => parts[place].push(domain),
            None if parts.len() < MOST_PARTS => parts.push(vec![domain]),
            None => {}
        }
    }
    parts.retain(|part| part.len() > 1);
    // Who is in a part is told of that one only.
    alone.retain(|domain, _| !parts.iter().flatten().any(|known| known == domain));
    doubts.extend(alone.into_iter().map(|(domain, (leader, doubt))| (domain, leader, doubt)));
    parts
}

/// Those of a part of whom all is shown, and the others.
fn verified(rounds: &[TimedRound], mut part: Vec<usize>) -> (Vec<usize>, Vec<(usize, RejectionReason)>) {
    let mut doubts = Vec::new();
    while part.len() > 1 {
        let tally = Tally::new(rounds, &part);
        if let Some(doubt) = tally.doubt() {
            doubts.extend(part.iter().map(|domain| (*domain, doubt)));
            return (Vec::new(), doubts);
        }
        // Whoever always comes last hides that others are waited for.
        let is_always_last = |place: &usize| tally.clear - tally.last[*place] < EACH_WAY;
        let is_never_last = |place: &usize| tally.last[*place] < EACH_WAY;
        let all = 0..part.len();
        let mut out: Vec<usize> = all.clone().filter(is_always_last).collect();
        let doubt = if out.is_empty() { RejectionReason::NeverLast } else { RejectionReason::AlwaysLast };
        if out.is_empty() {
            out = all.filter(is_never_last).collect();
        }
        if out.is_empty() {
            return (part, doubts);
        }
        doubts.extend(out.iter().map(|place| (part[*place], doubt)));
        part = (0..part.len()).filter(|place| !out.contains(place)).map(|place| part[place]).collect();
    }
    let nothing_left = part.into_iter().map(|domain| (domain, RejectionReason::NeverLast));
    doubts.extend(nothing_left);
    (Vec::new(), doubts)
}

/// What the calls of a part say together.
struct Tally {
    /// Calls in which somebody came clearly last.
    clear: usize,
    /// By place in the part: calls in which it did.
    last: Vec<usize>,
    /// By place: calls in which it was one of the last two, and those in which the two did not leave together.
    votes: Vec<(usize, usize)>,
    /// Calls that somebody left clearly before somebody else came.
    early: usize,
    calls: usize,
    /// What the time of the last one spreads, what that may be, and what entries spread, ns.
    steady: (f64, f64, f64),
}

impl Tally {
    fn new(rounds: &[TimedRound], part: &[usize]) -> Tally {
        let leader = part[0];
        let distance = |domain: &usize| Distance::new(rounds, leader, *domain, |stay| stay.exit).rest;
        let exits: Vec<Vec<f64>> = part.iter().map(distance).collect();
        let middle =
            |spreads: &mut dyn Iterator<Item = f64>| median(&mut spreads.collect::<Vec<_>>()).unwrap_or(0.0);
        let noise = middle(&mut exits.iter().skip(1).map(|rest| spread(rest)));
        let entries = middle(
            &mut part
                .iter()
                .skip(1)
                .map(|domain| spread(&Distance::new(rounds, leader, *domain, |stay| stay.enter).rest)),
        );
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
            // On one clock: the leader's exit is 0.
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
            tally.early += usize::from(first_exit < enter - CLEARLY * noise);
            if gap > CLEARLY * noise {
                tally.clear += 1;
                tally.last[last] += 1;
                let parted = usize::from(exit - second_exit > gap / 2.0);
                for place in [last, second] {
                    tally.votes[place].0 += parted;
                    tally.votes[place].1 += 1;
                }
            }
        }
        let limit = f64::max(STEADY * median(&mut gaps).unwrap_or(0.0), STEADY_OF_MANY * entries);
        tally.steady = (spread_of_kinds(stays_of_last), limit, entries);
        tally
    }

    /// What speaks against the whole part.
    fn doubt(&self) -> Option<RejectionReason> {
        let all = self.votes.iter().fold((0, 0), |all, one| (all.0 + one.0, all.1 + one.1));
        let of_one = self.votes.iter().filter(|one| one.1 >= EACH_WAY && one.0 * DISTURBED_OF_ONE > one.1);
        let of_all = [all, (self.early, self.calls)];
        let wrong = of_all.iter().filter(|all| all.0 * DISTURBED > all.1).chain(of_one).next();
        if let Some((parted, of)) = wrong {
            return Some(RejectionReason::Follows { parted: *parted, of: *of });
        }
        let (last, limit, entries) = self.steady;
        (last > limit).then_some(RejectionReason::LastWaits { last, entries })
    }
}

/// What values spread around what is usual for their kind; all are one kind if there are too few of each.
fn spread_of_kinds(kinds: BTreeMap<u64, Vec<f64>>) -> f64 {
    let around = |mut values: Vec<f64>| {
        let middle = median(&mut values).unwrap_or(0.0);
        values.into_iter().map(move |value| value - middle)
    };
    let enough = kinds.values().filter(|values| values.len() >= ENOUGH_OF_KIND).map(Vec::len).sum::<usize>();
    if enough < MIN_CALLS {
        return spread(&around(kinds.into_values().flatten().collect()).collect::<Vec<_>>());
    }
    let known = kinds.into_values().filter(|values| values.len() >= ENOUGH_OF_KIND);
    spread(&known.flat_map(around).collect::<Vec<_>>())
}

/// How far apart in time two domains do something, call by call.
struct Distance {
    /// What remains when offset and drift are taken out: the second domain's minus the first one's, ns.
    rest: Vec<f64>,
}

impl Distance {
    fn new(
        rounds: &[TimedRound],
        first: usize,
        second: usize,
        time: impl Fn(&DomainInterval) -> i64,
    ) -> Distance {
        if first == second {
            return Distance { rest: vec![0.0; rounds.len()] };
        }
        let Some(begin) = rounds.first().map(|round| (time(&round.stays[first]), time(&round.stays[second])))
        else {
            return Distance { rest: Vec::new() };
        };
        let points = rounds.iter().map(|round| {
            let (a, b) =
                (apart(time(&round.stays[first]), begin.0), apart(time(&round.stays[second]), begin.1));
            (a, b - a)
        });
        let mut points: Vec<(f64, f64)> = points.collect();
        let drift = slope(&points);
        points.iter_mut().for_each(|(x, y)| *y -= drift * *x);
        let count = if points.len() / PART < FEWEST_PARTS { 1 } else { points.len() / PART };
        let length = points.len().div_ceil(count);
        let middles: Vec<f64> = points
            .chunks(length)
            .map(|part| median(&mut part.iter().map(|point| point.1).collect::<Vec<_>>()).unwrap_or(0.0))
            .collect();
        let rest = points.iter().enumerate().map(|(i, (_, y))| y - between(&middles, i, length));
        Distance { rest: rest.collect() }
    }
}

/// The value at `i` of a line through the middles of parts of this length.
fn between(middles: &[f64], i: usize, length: usize) -> f64 {
    let place = (i as f64 + 0.5) / length as f64 - 0.5;
    let low = (place.max(0.0) as usize).min(middles.len().saturating_sub(1));
    let high = (low + 1).min(middles.len().saturating_sub(1));
    let share = (place - low as f64).clamp(0.0, 1.0);
    middles[low] + (middles[high] - middles[low]) * share
}

/// `a - b`; times of other files may be anything.
fn apart(a: i64, b: i64) -> f64 {
    (i128::from(a) - i128::from(b)) as f64
}

/// The median absolute value.
fn spread(rest: &[f64]) -> f64 {
    median(&mut rest.iter().map(|value| value.abs()).collect::<Vec<_>>()).unwrap_or(0.0)
}

#[cfg(test)]
mod tests;
