use super::observations::ClockObservations;
use super::on_node::OnNode;
use rpd_shard::model::LocalNs;

/// What one source knows of the clocks of two domains, `u < v`.
#[derive(Clone, Debug)]
pub(super) struct ClockLink {
    pub(super) u: usize,
    pub(super) v: usize,
    pub(super) kind: LinkKind,
    /// In order of time.
    pub(super) pairs: Vec<DomainPair>,
    /// How many bursts or collectives are behind it.
    pub(super) count: u64,
    /// The shortest round trip, ns; of probes only.
    pub(super) round_trip: f64,
    /// What all of its pairs may be off by besides the habits of the two domains, ns; of collectives only.
    pub(super) uneven: f64,
    /// Standard deviation of the distance of two exits, from one collective to the next, ns; 0 for probes.
    pub(super) jitter: f64,
}

/// The sources.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum LinkKind {
    Probes,
    Collectives,
}

/// When u showed `xu`, v showed `xv`.
#[derive(Clone, Copy, Debug)]
pub(super) struct DomainPair {
    pub(super) xu: f64,
    pub(super) xv: f64,
    /// Of xv - xu, ns^2, as far as its source can tell.
    pub(super) var: f64,
    /// The observations behind it are at most this much before or after, ns.
    pub(super) around: f64,
}

impl ClockLink {
    /// The other end.
    pub(super) fn across(&self, from: usize) -> usize {
        if self.u == from { self.v } else { self.u }
    }
}

/// The domains in an order that does not depend on that of the inputs, with the clocks of each.
pub(super) struct DomainGraph {
    /// Place here of each position of the observations.
    pub(super) place: Vec<usize>,
    /// Position in the observations of each place.
    pub(super) position: Vec<usize>,
    /// By place.
    pub(super) clocks: Vec<OnNode>,
    /// Place of the reference.
    pub(super) reference: usize,
}

impl DomainGraph {
    /// `None` if the reference is not there.
    pub(super) fn new(observations: &ClockObservations) -> Option<DomainGraph> {
        let (own, bridges) = (&observations.domains, &observations.bridges);
        let count = own.len() + bridges.len();
        let mut position: Vec<usize> = (0..count).collect();
        position.sort_by_key(|&p| own.get(p).or_else(|| bridges.get(p - own.len())));
        let mut place = vec![0; count];
        position.iter().enumerate().for_each(|(at, &p)| place[p] = at);
        let mut earliest = vec![LocalNs(i64::MAX); count];
        for attendance in observations.meetings.iter().flat_map(|m| &m.attendances) {
            if let Some(first) = earliest.get_mut(attendance.domain as usize) {
                *first = attendance.enter.min(*first);
            }
        }
        let mut first_raw: Vec<Option<i64>> = vec![None; count];
        for burst in &observations.bursts {
            for probe in &burst.best {
                for (position, raw) in [(burst.from, probe.t1), (burst.to, probe.t2)] {
                    if let Some(first) = first_raw.get_mut(position) {
                        *first = Some(first.map_or(raw, |first| raw.min(first)));
                    }
                }
            }
        }
        let clocks = position.iter().map(|&p| {
            if p >= own.len() {
                return OnNode::bridge(first_raw[p].unwrap_or(0));
            }
            let sets = observations.sets.get(p).map_or(&[][..], Vec::as_slice);
            OnNode::new(sets, if earliest[p].0 == i64::MAX { 0 } else { earliest[p].0 })
        });
        let clocks = clocks.collect();
        let reference = *place.get(observations.reference)?;
        Some(DomainGraph { place, position, clocks, reference })
    }

    /// Place and clocks of a position.
    pub(super) fn get(&self, position: usize) -> Option<(usize, &OnNode)> {
        let place = *self.place.get(position)?;
        Some((place, self.clocks.get(place)?))
    }
}
