use super::observations::ClockObservations;
use super::on_node::OnNode;

/// Observations of one source about the clocks of two domains, `u < v`.
#[derive(Clone, Debug)]
pub(super) struct ClockLink {
    pub(super) u: usize,
    pub(super) v: usize,
    pub(super) kind: LinkKind,
    /// Pairs in order of time.
    pub(super) pairs: Vec<DomainPair>,
    /// Number of bursts or collectives that yielded the pairs.
    pub(super) count: u64,
    /// Shortest round trip, ns; for probes only.
    pub(super) round_trip: f64,
    /// Possible common error of all pairs apart from the habits of the two domains, ns; for collectives only.
    pub(super) uneven: f64,
    /// Standard deviation of the difference of two exits, from one collective to the next, ns; 0 for probes.
    pub(super) jitter: f64,
}

/// Source of a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum LinkKind {
    Probes,
    Collectives,
}

/// Two simultaneous readings: u showed `xu` when v showed `xv`.
#[derive(Clone, Copy, Debug)]
pub(super) struct DomainPair {
    pub(super) xu: f64,
    pub(super) xv: f64,
    /// Variance of xv - xu, ns^2, as estimated by the source.
    pub(super) var: f64,
    /// The observations for the pair lie within this distance of it, ns.
    pub(super) around: f64,
}

impl ClockLink {
    /// Returns whether a domain is one of the ends.
    pub(super) fn has_end(&self, domain: usize) -> bool {
        self.u == domain || self.v == domain
    }

    /// Returns the other end.
    pub(super) fn across(&self, from: usize) -> usize {
        if self.u == from { self.v } else { self.u }
    }
}

/// The domains, sorted so that their order does not depend on that of the inputs, with the clocks of each.
pub(super) struct OrderedDomains {
    /// Place of each index of the observations.
    pub(super) place: Vec<usize>,
    /// Index in the observations of each place.
    pub(super) position: Vec<usize>,
    /// Clocks by place.
    pub(super) clocks: Vec<OnNode>,
    /// Place of the reference.
    pub(super) reference: usize,
}

impl OrderedDomains {
    /// Returns `None` if the reference is not among the domains.
    pub(super) fn new(observations: &ClockObservations) -> Option<OrderedDomains> {
        let (own, bridges) = (&observations.domains, &observations.bridges);
        let count = own.len() + bridges.len();
        let mut position: Vec<usize> = (0..count).collect();
        position.sort_by_key(|&p| own.get(p).or_else(|| bridges.get(p - own.len())));
        let mut place = vec![0; count];
        position.iter().enumerate().for_each(|(at, &p)| place[p] = at);
        let mut earliest: Vec<Option<i64>> = vec![None; count];
        let lower = |first: &mut Option<i64>, time: i64| {
            *first = Some(first.map_or(time, |first| time.min(first)));
        };
        for interval in observations.collectives.iter().flat_map(|m| &m.intervals) {
            if let Some(first) = earliest.get_mut(interval.domain as usize) {
                lower(first, interval.enter.0);
            }
        }
        let mut first_raw: Vec<Option<i64>> = vec![None; count];
        for burst in &observations.bursts {
            for probe in &burst.best {
                for (position, raw) in [(burst.from, probe.t1), (burst.to, probe.t2)] {
                    if let Some(first) = first_raw.get_mut(position) {
                        lower(first, raw);
                    }
                }
            }
        }
        let clocks = position.iter().map(|&p| {
            if p >= own.len() {
                return OnNode::bridge(first_raw[p].unwrap_or(0));
            }
            let sets = observations.sets.get(p).map_or(&[][..], Vec::as_slice);
            OnNode::new(sets, earliest[p].unwrap_or(0))
        });
        let clocks = clocks.collect();
        Some(OrderedDomains { reference: *place.get(observations.reference)?, place, position, clocks })
    }

    /// Returns the place and the clocks of an index of the observations.
    pub(super) fn get(&self, position: usize) -> Option<(usize, &OnNode)> {
        let place = *self.place.get(position)?;
        Some((place, self.clocks.get(place)?))
    }
}
