//! Thins out and combines clock sets and probe bursts of many inputs.

use rpd_clocks::{BurstTimes, ClockObservations};
use rpd_shard::record::{ClockDomain, ClockSet, Probe};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

/// Maximum number of clock sets used per domain, spread over the run.
const MAX_CLOCK_SETS: usize = 4_096;
/// Shortest interval of which at most one clock set, or burst, is used, ns.
const MIN_INTERVAL_NS: i128 = 1_000_000_000;
/// Maximum number of bursts used between two domains, spread over the run.
const MAX_BURSTS: usize = 4_096;
/// Maximum distance of a probe from the clock sets of its domains: a week, ns.
const MAX_GAP_NS: i64 = 7 * 86_400 * 1_000_000_000;

/// BOOTTIME, MONOTONIC_RAW, MONOTONIC, REALTIME, bracket; ns.
pub(super) type TimedClockSet = [i64; 5];

/// A probe burst between two domains. Of equally good bursts, the smallest one is used.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub(super) struct TimedBurst {
    /// First time of the best probe, ns.
    pub(super) first: i64,
    /// Its round trip, ns.
    pub(super) round_trip: i64,
    pub(super) sent: u32,
    pub(super) answered: u32,
    pub(super) spread: i64,
    /// Four times of each of the best probes, ns.
    pub(super) best: Vec<[i64; 4]>,
    /// Whether the kernels recorded the receive times.
    pub(super) kernel_times: bool,
}

/// Observations of a rank's inputs, sent to rank 0. Domains are given by their positions in `domains`.
#[derive(Serialize, Deserialize)]
pub(super) struct ObservationMessage {
    pub(super) domains: Vec<ClockDomain>,
    pub(super) sets: Vec<(u32, Vec<TimedClockSet>)>,
    pub(super) bursts: Vec<(u32, u32, Vec<TimedBurst>)>,
}

/// Keeps at most `most` items spread over time, the best one of each interval. Thinning out twice yields the same
/// items.
fn thinned<T: Ord>(
    mut all: Vec<T>,
    most: usize,
    time: impl Fn(&T) -> i64,
    quality: impl Fn(&T) -> i64,
) -> Vec<T> {
    let mut width: i128 = MIN_INTERVAL_NS;
    loop {
        let part = |item: &T| i128::from(time(item)).div_euclid(width);
        all.sort_by(|a, b| (part(a), quality(a), a).cmp(&(part(b), quality(b), b)));
        all.dedup_by(|later, kept| part(later) == part(kept));
        if all.len() <= most {
            return all;
        }
        width *= 2;
    }
}

/// Thins out the sets when there are more than twice as many as will be used.
pub(super) fn thin_out_sets(sets: &mut Vec<TimedClockSet>) {
    if sets.len() > 2 * MAX_CLOCK_SETS {
        *sets = thinned(std::mem::take(sets), MAX_CLOCK_SETS, |s| s[0], |s| s[4]);
    }
}

/// Does the same for the bursts between two domains.
pub(super) fn thin_out_bursts(bursts: &mut Vec<TimedBurst>) {
    if bursts.len() > 2 * MAX_BURSTS {
        *bursts = thinned_bursts(std::mem::take(bursts));
    }
}

fn thinned_bursts(bursts: Vec<TimedBurst>) -> Vec<TimedBurst> {
    thinned(bursts, MAX_BURSTS, |burst| burst.first, |burst| burst.round_trip)
}

/// Combines the observations of all ranks, with positions of the job's domains. Returns the number of bursts with
/// times that their clocks cannot have shown.
pub(super) fn combine_observations(
    all: Vec<ObservationMessage>,
    observations: &mut ClockObservations,
) -> u64 {
    observations.bridges = bridges(&all, &observations.domains);
    let places: BTreeMap<&ClockDomain, usize> =
        (observations.domains.iter().chain(&observations.bridges).zip(0..)).collect();
    let place = |domain: &ClockDomain| places.get(domain).copied();
    let mut sets: Vec<Vec<TimedClockSet>> = vec![Vec::new(); observations.domains.len()];
    let mut bursts: BTreeMap<(usize, usize), Vec<TimedBurst>> = BTreeMap::new();
    for message in all {
        let places: Vec<Option<usize>> = message.domains.iter().map(place).collect();
        let known = |i: u32| places.get(i as usize).copied().flatten();
        for (domain, theirs) in message.sets {
            if let Some(sets) = known(domain).and_then(|place| sets.get_mut(place)) {
                sets.extend(theirs);
            }
        }
        for (from, to, theirs) in message.bursts {
            if let (Some(from), Some(to)) = (known(from), known(to)) {
                bursts.entry((from, to)).or_default().extend(theirs);
            }
        }
    }
    let all_of = |(domain, sets): (&ClockDomain, Vec<TimedClockSet>)| {
        let set = |[boottime, monotonic_raw, monotonic, realtime, bracket]: TimedClockSet| ClockSet {
            domain: domain.clone(),
            boottime,
            monotonic_raw,
            monotonic,
            realtime,
            bracket,
        };
        thinned(sets, MAX_CLOCK_SETS, |s| s[0], |s| s[4]).into_iter().map(set).collect()
    };
    observations.sets = observations.domains.iter().zip(sets).map(all_of).collect();
    let runs: Vec<_> = observations.sets.iter().map(|sets| possible_times(sets)).collect();
    let mut impossible = 0;
    for ((from, to), mut bursts) in bursts {
        let before = bursts.len();
        let is_in = |place: usize, time: i64| {
            runs.get(place).and_then(Option::as_ref).is_none_or(|run| run.contains(&time))
        };
        bursts.retain(|burst| {
            burst.best.iter().all(|[t1, t2, t3, t4]| {
                is_in(from, *t1) && is_in(from, *t4) && is_in(to, *t2) && is_in(to, *t3)
            })
        });
        impossible += (before - bursts.len()) as u64;
        for burst in thinned_bursts(bursts) {
            let TimedBurst { spread, best, kernel_times, .. } = burst;
            let best = best.into_iter().map(|[t1, t2, t3, t4]| Probe { t1, t2, t3, t4 }).collect();
            observations.bursts.push(BurstTimes { from, to, spread, best, kernel_times });
        }
    }
    impossible
}

/// Returns domains without inputs that connect domains which are not connected otherwise. If the shard of a rank is
/// lost, probes of other nodes against its node still connect them. There are fewer of them than domains of the job.
fn bridges(all: &[ObservationMessage], known: &[ClockDomain]) -> Vec<ClockDomain> {
    let places: BTreeMap<&ClockDomain, usize> = known.iter().zip(0..).collect();
    let mut parts = Parts((0..known.len()).collect());
    let mut probed_by: BTreeMap<&ClockDomain, BTreeSet<usize>> = BTreeMap::new();
    for message in all {
        let domain = |place: u32| message.domains.get(place as usize);
        for (from, to, _) in &message.bursts {
            let (Some(from), Some(to)) = (domain(*from), domain(*to)) else { continue };
            match (places.get(from), places.get(to)) {
                (Some(&a), Some(&b)) => _ = parts.join(a, b),
                (Some(&peer), None) => _ = probed_by.entry(to).or_default().insert(peer),
                (None, Some(&peer)) => _ = probed_by.entry(from).or_default().insert(peer),
                (None, None) => {}
            }
        }
    }
    let joins = |peers: &BTreeSet<usize>, parts: &mut Parts| {
        let joined = peers.iter().zip(peers.iter().skip(1)).filter(|(a, b)| parts.join(**a, **b));
        joined.count() > 0
    };
    let bridges = probed_by.into_iter().filter(|(_, peers)| joins(peers, &mut parts));
    bridges.map(|(domain, _)| domain.clone()).collect()
}

/// Connected domains: for each position a smaller one of the same part, or itself.
struct Parts(Vec<usize>);

impl Parts {
    fn first(&mut self, mut place: usize) -> usize {
        while self.0[place] != place {
            self.0[place] = self.0[self.0[place]];
            place = self.0[place];
        }
        place
    }

    /// Connects two domains. Returns false if they were connected before.
    fn join(&mut self, a: usize, b: usize) -> bool {
        let (a, b) = (self.first(a), self.first(b));
        self.0[a.max(b)] = a.min(b);
        a != b
    }
}

/// Returns the times that `CLOCK_MONOTONIC_RAW` of a domain may have shown while the job ran, ns. The margin covers
/// agents that still answer after their shard is full.
fn possible_times(sets: &[ClockSet]) -> Option<RangeInclusive<i64>> {
    let times = || sets.iter().map(|set| set.monotonic_raw);
    Some(times().min()?.saturating_sub(MAX_GAP_NS)..=times().max()?.saturating_add(MAX_GAP_NS))
}
