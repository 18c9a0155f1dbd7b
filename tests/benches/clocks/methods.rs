//! What is compared. The first two are what other tools do.

use rpd_clocks::{AlignChoice, AlignMethod, BurstTimes, ClockObservations, DomainFit, TimeMap, align};
use rpd_shard::record::ClockSet;

/// One way to align a job.
pub(crate) struct Contestant {
    pub(crate) name: &'static str,
    /// A map and perhaps bars for each domain; method `None` where there is no map.
    pub(crate) align: fn(&ClockObservations) -> Vec<DomainFit>,
}

pub(crate) const METHODS: [Contestant; 6] = [
    Contestant { name: "one offset", align: |o| by_ends(o, false) },
    Contestant { name: "start+end", align: |o| by_ends(o, true) },
    Contestant { name: "probes", align: |o| align(o, AlignChoice::Probes) },
    Contestant { name: "collectives", align: |o| align(o, AlignChoice::Collectives) },
    Contestant { name: "fusion", align: |o| align(o, AlignChoice::Auto) },
    Contestant { name: "anchors", align: |o| align(o, AlignChoice::Anchors) },
];

/// Places in [`METHODS`].
pub(crate) const SOURCES: [usize; 2] = [2, 3];
pub(crate) const FUSION: usize = 4;

/// The best probe of the first burst along the tree, and that of the last one where `both`.
fn by_ends(observations: &ClockObservations, both: bool) -> Vec<DomainFit> {
    let none = align(observations, AlignChoice::None);
    let mut fits = none.clone();
    for domain in 1..fits.len() {
        let Some(path) = path_to_root(observations, domain) else { continue };
        let first = along(observations, &path, |bursts| bursts.first().copied());
        let last = along(observations, &path, |bursts| bursts.last().copied());
        let points = if both { vec![first, last] } else { vec![first] };
        let points: Option<Vec<(i64, i64)>> = points.into_iter().collect();
        let Some(points) = points else { continue };
        let map = match points.as_slice() {
            [(local, job)] => TimeMap::shift(job - local),
            _ => TimeMap::through(points),
        };
        fits[domain] = DomainFit { method: AlignMethod::Probes, map, ..none[domain].clone() };
    }
    fits
}

/// The bursts of each link from a domain to the root.
fn path_to_root(observations: &ClockObservations, domain: usize) -> Option<Vec<Vec<&BurstTimes>>> {
    let (mut at, mut path) = (domain, Vec::new());
    while at != 0 {
        let parent = at & (at - 1);
        let bursts: Vec<&BurstTimes> =
            observations.bursts.iter().filter(|b| b.from == at && b.to == parent).collect();
        if bursts.is_empty() {
            return None;
        }
        path.push(bursts);
        at = parent;
    }
    Some(path)
}

/// BOOTTIME of the domain and of the root at about one time, ns.
fn along<'a>(
    observations: &ClockObservations,
    path: &[Vec<&'a BurstTimes>],
    pick: impl Fn(&[&'a BurstTimes]) -> Option<&'a BurstTimes>,
) -> Option<(i64, i64)> {
    let mut start = None;
    let mut offset = 0;
    for bursts in path {
        let burst = pick(bursts)?;
        let probe = burst.best.first()?;
        let to_boottime = |domain: usize, raw: i64| {
            let nearest = |s: &&ClockSet| s.monotonic_raw.abs_diff(raw);
            observations.sets[domain].iter().min_by_key(nearest).map(|s| s.boottime - s.monotonic_raw)
        };
        let (own, theirs) = (to_boottime(burst.from, probe.t1)?, to_boottime(burst.to, probe.t2)?);
        let raw = ((probe.t2 - probe.t1) + (probe.t3 - probe.t4)) / 2;
        offset += raw + theirs - own;
        start.get_or_insert(probe.t1 + own);
    }
    start.map(|local| (local, local + offset))
}
