//! Estimates the constant errors (biases) of probes and collectives.
//!
//! A path with a longer delay one way than the other shifts the probes of all domains reached through it. A
//! domain that leaves collectives late shifts only itself. Both are constant, so the mean difference of the two
//! sources is well known for each domain. A linear model distributes it over the biases, with priors that widen
//! where a path or a domain stands out. The part that cannot be attributed remains in the error bound.

use super::collectives::{ExitDelay, ExitHabits, OFTEN_LAST_SHARE};
use super::links::{ClockLink, LinkKind};
use super::locate::DomainTrack;
use super::posterior::{BiasPosterior, BiasPrior, BiasRow, BiasSize, NodeDistance};
use super::robust;
use super::track::SECOND;

/// Asymmetry of a path, as a share of its shortest round trip: small for most paths, large for one in twenty. A
/// path that takes 4 us longer one way shifts its probes by 2 us, which no number of probes shows.
const ASYMMETRY: [(f64, f64); 2] = [(0.95, 0.014), (0.05, 0.1)];
/// Additional asymmetry, as a share of the excess of the round trip over the job's median: the detour may affect
/// only one way.
const DETOUR: f64 = 0.2;
/// How much later than others a domain leaves, as a share of the duration of a collective. It is little for most
/// domains and much for one in ten.
const LATENESS: [(f64, f64); 2] = [(0.9, 0.03), (0.1, 0.5)];
/// Apparent lateness of a disturbed domain, as a share of the duration of a collective.
const DISTURBANCE: f64 = 4.0;
/// Prior for a domain that nearly always enters last, as a share of the duration: it does not wait and leaves
/// early.
const HASTE: f64 = 0.5;
/// Smallest standard deviation of a bias before measurement, ns.
const MIN_BIAS_NS: f64 = 30.0;
/// Fewest bursts, or blocks of collectives, from which the error of a link is estimated.
const MIN_BURSTS: usize = 4;
/// Differences of the sources count as independent if they are further apart in time than this, ns.
const CORRELATION_NS: f64 = 60.0 * SECOND;

/// Biases of probe links and of domains in collectives.
pub(super) struct LinkBiases {
    /// The biases that make up the error of each link: (index, sign).
    parts: Vec<[(usize, f64); 3]>,
    priors: Vec<BiasPrior>,
    /// Result of comparing the sources, if they were compared.
    posterior: Option<BiasPosterior>,
}

impl LinkBiases {
    /// Distributes the differences of the two sources. If only one source is present, the priors remain.
    pub(super) fn new(
        links: &[ClockLink],
        habits: &ExitHabits,
        probes: &[Option<DomainTrack>],
        collectives: &[Option<DomainTrack>],
    ) -> LinkBiases {
        let domains = probes.len();
        let parts: Vec<[(usize, f64); 3]> = links
            .iter()
            .enumerate()
            .map(|(i, link)| match link.kind {
                LinkKind::Probes => [(domains + i, 1.0), (link.v, 0.0), (link.u, 0.0)],
                LinkKind::Collectives => {
                    let own = if link.uneven > 0.0 { 1.0 } else { 0.0 };
                    [(domains + i, own), (link.v, 1.0), (link.u, -1.0)]
                }
            })
            .collect();
        let mut biases = LinkBiases { parts, priors: priors(links, habits, domains), posterior: None };
        let distances =
            (0..domains).filter_map(|d| biases.distance(probes[d].as_ref()?, collectives.get(d)?.as_ref()?));
        biases.posterior = BiasPosterior::new(distances.collect(), &biases.priors);
        biases
    }

    /// Returns the bias of a link's `xv - xu`, ns.
    pub(super) fn of_link(&self, link: usize) -> f64 {
        let mean =
            |i: usize| self.posterior.as_ref().map_or(self.priors[i].alone.0, |posterior| posterior.mean[i]);
        self.parts[link].iter().map(|(i, sign)| sign * mean(*i)).sum()
    }

    /// Returns the variance of the biases that remain in a domain's y.
    pub(super) fn left(&self, leverage: &[(usize, f64)]) -> f64 {
        let row = self.row(leverage);
        match &self.posterior {
            Some(posterior) => posterior.var(&row),
            None => row.iter().map(|(i, lever)| lever * lever * self.priors[*i].alone.1).sum(),
        }
    }

    /// Converts leverages of links to leverages of biases.
    fn row(&self, leverage: &[(usize, f64)]) -> BiasRow {
        let mut dense = vec![0.0; self.priors.len()];
        for (link, lever) in leverage {
            for (i, sign) in self.parts[*link] {
                dense[i] += sign * lever;
            }
        }
        dense.into_iter().enumerate().filter(|(_, lever)| *lever != 0.0).collect()
    }

    /// Returns whether both sources have enough samples to measure their difference.
    pub(super) fn compares(probes: &DomainTrack, collectives: Option<&DomainTrack>) -> bool {
        collectives.is_some_and(|collectives| probes.samples.min(collectives.samples) >= MIN_BURSTS)
    }

    /// Returns the mean difference of probes and collectives in one domain, if both are accurate enough.
    fn distance(&self, probes: &DomainTrack, collectives: &DomainTrack) -> Option<NodeDistance> {
        let (from, to) = probes.track.common_span(&collectives.track)?;
        let (mut sum, mut weight, mut count) = (0.0, 0.0, 0.0);
        if !LinkBiases::compares(probes, Some(collectives)) {
            return None;
        }
        let samples = probes.samples.min(collectives.samples) as f64 / 4.0;
        let mut apart: Vec<(f64, f64)> = Vec::new();
        for knot in collectives.track.knots.iter().filter(|k| k.x >= from && k.x <= to) {
            let other = probes.track.at(knot.x);
            apart.push((other.y - knot.y, other.var + knot.var + (other.slack + knot.slack).powi(2)));
        }
        let middle = robust::median(&mut apart.iter().map(|a| a.0).collect::<Vec<_>>())?;
        for (ns, var) in apart {
            // Near a step of a clock, the two may differ strongly for a short time.
            if (ns - middle).powi(2) <= 25.0 * var {
                sum += ns / var;
                weight += var.recip();
                count += 1.0;
            }
        }
        let independent = (1.0 + (to - from) / CORRELATION_NS).min(count).min(samples).max(1.0);
        let mut leverage = probes.leverage.clone();
        leverage.extend(collectives.leverage.iter().map(|(link, lever)| (*link, -lever)));
        let var = count / weight / independent + 1.0;
        (weight > 0.0 && var.is_finite()).then(|| NodeDistance {
            row: self.row(&leverage),
            ns: sum / weight,
            var,
        })
    }
}

/// Returns the priors of the biases: first those of domains in collectives, then those of links.
fn priors(links: &[ClockLink], habits: &ExitHabits, domains: usize) -> Vec<BiasPrior> {
    let normal = |sd: f64, kind| BiasPrior {
        alone: (0.0, sd * sd),
        sizes: vec![BiasSize { share: 1.0, mean: 0.0, var: sd * sd }],
        kind,
        large: 0.0,
    };
    let of_domain = |domain: usize| {
        let often_last = habits.last_share.get(domain).is_some_and(|share| *share > OFTEN_LAST_SHARE);
        if often_last && habits.haste == 0.0 {
            return normal((HASTE * habits.latency).max(MIN_BIAS_NS), 0);
        }
        // An unmeasured lateness is equivalent to a measured one with infinite error.
        let unmeasured = ExitDelay { measured: 0.0, var: 1e30, disturbed: 0.0 };
        lateness(habits.lateness.get(domain).copied().flatten().unwrap_or(unmeasured), habits.latency)
    };
    let probed = links.iter().filter(|l| l.kind == LinkKind::Probes);
    let middle = robust::median(&mut probed.map(|l| l.round_trip).collect::<Vec<_>>()).unwrap_or(0.0);
    let of_link = |link: &ClockLink| {
        if link.kind == LinkKind::Collectives {
            return normal(link.uneven, 2);
        }
        let detour = DETOUR * (link.round_trip - middle).max(0.0);
        let sizes = ASYMMETRY.map(|(share, size)| {
            let usual = (size * link.round_trip).max(MIN_BIAS_NS);
            BiasSize { share, mean: 0.0, var: usual * usual + detour * detour }
        });
        BiasPrior { alone: (0.0, sizes[0].var), sizes: sizes.to_vec(), kind: 1, large: ASYMMETRY[1].0 }
    };
    (0..domains).map(of_domain).chain(links.iter().map(of_link)).collect()
}

/// Returns the prior for a measured lateness, given the usual distribution.
fn lateness(measured: ExitDelay, latency: f64) -> BiasPrior {
    let disturbance = measured.var + (DISTURBANCE * latency).powi(2);
    let noises = [(1.0 - measured.disturbed, measured.var), (measured.disturbed, disturbance)];
    let sizes = LATENESS.map(|(share, size)| {
        let prior = (size * latency).max(MIN_BIAS_NS).powi(2);
        let parts = noises.map(|(chance, noise)| {
            let spread = prior + noise;
            let likely = (-0.5 * measured.measured * measured.measured / spread).exp() / spread.sqrt();
            // If a value is so far off that every likelihood underflows, the widest sizes are preferred.
            let share = (share * chance * likely).max(1e-300 * size * chance);
            BiasSize { share, mean: measured.measured * prior / spread, var: prior * noise / spread }
        });
        mixed(&parts)
    });
    let all = mixed(&sizes);
    let sizes =
        sizes.map(|s| BiasSize { share: s.share / all.share, var: s.var + MIN_BIAS_NS * MIN_BIAS_NS, ..s });
    BiasPrior {
        alone: (all.mean, all.var + MIN_BIAS_NS * MIN_BIAS_NS),
        sizes: sizes.to_vec(),
        kind: 0,
        large: LATENESS[1].0,
    }
}

/// Returns the mean and variance of a mixture.
fn mixed(sizes: &[BiasSize]) -> BiasSize {
    let share: f64 = sizes.iter().map(|s| s.share).sum();
    let mean = sizes.iter().map(|s| s.share * s.mean).sum::<f64>() / share;
    let square = sizes.iter().map(|s| s.share * (s.mean * s.mean + s.var)).sum::<f64>() / share;
    BiasSize { share, mean, var: (square - mean * mean).max(0.0) }
}
