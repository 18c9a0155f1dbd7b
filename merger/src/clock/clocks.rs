//! Domains joined through their REALTIME anchors alone, which are as good as the nodes' NTP; the summary and
//! the metadata say so.

use rpd_shard::model::{JobNs, LocalNs};
use rpd_shard::record::{Clock, ClockDomain, ClockSet, Process};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// How a domain was joined to the reference.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Method {
    /// The domain of the reference node: no time was changed.
    Reference,
    /// By probes and collectives together.
    Fusion,
    /// By probes between nodes.
    Probes,
    /// By the exits of collectives.
    Collectives,
    /// By the offset of REALTIME against BOOTTIME on both nodes.
    RealtimeAnchors,
    /// No clock set was found: times are as they were recorded.
    None,
}

impl Method {
    /// Name in reports and metadata.
    pub fn name(self) -> &'static str {
        match self {
            Method::Reference => "reference",
            Method::Fusion => "fusion",
            Method::Probes => "probes",
            Method::Collectives => "collectives",
            Method::RealtimeAnchors => "realtime_anchors",
            Method::None => "none",
        }
    }
}

/// The best clock set of each domain that a rank has seen.
pub type BestSets = BTreeMap<ClockDomain, ClockSet>;

/// Keeps the tightest set of each domain; of equal ones the first.
pub fn keep_best(best: &mut BestSets, sets: impl IntoIterator<Item = ClockSet>) {
    for set in sets {
        match best.get_mut(&set.domain) {
            Some(known) if known.bracket <= set.bracket => {}
            Some(known) => *known = set,
            None => {
                best.insert(set.domain.clone(), set);
            }
        }
    }
}

/// How one domain's times become job times.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fit {
    /// Added to times of `CLOCK_BOOTTIME`, ns.
    pub offset: i64,
    /// Where the offset comes from.
    pub method: Method,
    /// Added to bring a process's own clock to its domain's BOOTTIME, ns.
    to_boottime: i64,
}

impl Fit {
    /// The job time of a recorded time.
    #[inline]
    pub fn map(&self, time: LocalNs) -> JobNs {
        JobNs::from_fit(time.0.saturating_add(self.to_boottime).saturating_add(self.offset))
    }
}

/// The clocks of the job.
#[derive(Clone, Debug)]
pub struct Clocks {
    best: BestSets,
    /// The domain whose BOOTTIME is the job's time: that of the lowest rank.
    pub reference: ClockDomain,
}

impl Clocks {
    /// From the best sets of all ranks and the first process of the job.
    pub fn new(best: BestSets, reference: ClockDomain) -> Clocks {
        Clocks { best, reference }
    }

    /// The domains that have a clock set.
    pub fn domains(&self) -> impl Iterator<Item = &ClockDomain> {
        self.best.keys()
    }

    /// REALTIME minus BOOTTIME of the reference, ns: what turns job times into wall time.
    pub fn realtime_anchor(&self) -> Option<i64> {
        self.best.get(&self.reference).map(anchor)
    }

    /// How times of a domain stamped with BOOTTIME become job times.
    pub fn domain_fit(&self, domain: &ClockDomain) -> Fit {
        let fit = |offset, method| Fit { offset, method, to_boottime: 0 };
        if *domain == self.reference {
            return fit(0, Method::Reference);
        }
        match (self.best.get(domain), self.best.get(&self.reference)) {
            (Some(own), Some(reference)) => {
                fit(anchor(own).saturating_sub(anchor(reference)), Method::RealtimeAnchors)
            }
            _ => fit(0, Method::None),
        }
    }

    /// How times of a process become job times.
    pub fn process_fit(&self, process: &Process) -> Fit {
        let fit = self.domain_fit(&process.domain);
        let Some(set) = self.best.get(&process.domain) else { return fit };
        let to_boottime = match process.clock {
            Clock::Boottime => 0,
            Clock::Monotonic => set.boottime.saturating_sub(set.monotonic),
            Clock::Realtime => set.boottime.saturating_sub(set.realtime),
        };
        Fit { to_boottime, ..fit }
    }
}

fn anchor(set: &ClockSet) -> i64 {
    set.realtime.saturating_sub(set.boottime)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn domain(boot_id: &str) -> ClockDomain {
        ClockDomain { boot_id: boot_id.into(), time_namespace: 0 }
    }

    fn set(boot_id: &str, boottime: i64, realtime: i64, bracket: i64) -> ClockSet {
        ClockSet { domain: domain(boot_id), boottime, monotonic_raw: 0, monotonic: 0, realtime, bracket }
    }

    #[test]
    fn equal_wall_times_become_equal_job_times_and_the_reference_is_unchanged() {
        let mut best = BestSets::new();
        keep_best(&mut best, [set("a", 100, 5_100, 3), set("b", 7_000, 6_000, 9), set("b", 8_000, 6_900, 2)]);
        let clocks = Clocks::new(best, domain("a"));
        assert_eq!(clocks.domain_fit(&domain("a")).map(LocalNs(42)).ns(), 42);
        // b: 8000 is 6900 on the wall, where a shows 1900.
        let fit = clocks.domain_fit(&domain("b"));
        assert_eq!((fit.map(LocalNs(8_000)).ns(), fit.method), (1_900, Method::RealtimeAnchors));
    }

    #[test]
    fn a_domain_without_clock_set_is_left_alone_and_says_so() {
        let clocks = Clocks::new(BestSets::new(), domain("a"));
        let fit = clocks.domain_fit(&domain("c"));
        assert_eq!((fit.map(LocalNs(5)).ns(), fit.method), (5, Method::None));
    }
}
