//! What each source is wrong by all the time, and which of the two it is.
//!
//! A path that takes longer one way than the other moves the probes of all domains behind it; a domain that
//! leaves collectives late moves only itself. Both are constant, so the mean distance of the two sources, per
//! domain, is known well, and it is shared out: by a linear model with priors that widen where a path or
//! a domain stands out. What cannot be told apart stays in the bar.

use super::collectives::{Habits, Lateness, MOSTLY};
use super::links::{Kind, Link};
use super::locate::Located;
use super::robust;
use super::track::SECOND;

/// Asymmetry of a path, as a share of its shortest round trip...
const ASYMMETRY: f64 = 0.014;
/// ... and of what that is longer than the middle one of the job: something is in the way that may be on one way.
const DETOUR: f64 = 0.2;
/// How much later than others a domain leaves, as a share of the time that a collective takes: most by little,
/// one in ten by much.
const LATENESS: [(f64, f64); 2] = [(0.9, 0.03), (0.1, 0.5)];
/// How much later a domain seems to leave that was disturbed.
const DISTURBANCE: f64 = 4.0;
/// The same as lateness of a domain that comes last nearly always: it waits for nobody, and leaves early.
const HASTE: f64 = 0.5;
/// No bias is better known than this beforehand, ns.
const LEAST: f64 = 30.0;
/// Degrees of freedom of the biases: most are small, some are large.
const FREEDOM: f64 = 3.0;
/// How many biases the priors count for, when the usual size is estimated.
const PRIOR_COUNT: f64 = 4.0;
const ROUNDS: usize = 12;
/// More biases than this get fewer rounds.
const MANY: usize = 1_000;
/// What the doubt which of two sources is wrong adds to the variance, as a factor.
const DOUBT: f64 = 4.0;
/// Distances of the sources that are further apart in time than this are independent, ns.
const MEMORY: f64 = 60.0 * SECOND;

/// Biases of probe links and of domains in collectives.
pub(super) struct Biases {
    /// Of each link, the biases that it consists of: (index, sign).
    parts: Vec<[(usize, f64); 3]>,
    mean: Vec<f64>,
    /// For each domain, how much of its distance may be the other source's, ns^2.
    doubt: Vec<f64>,
    /// Prior variance, after widening.
    var: Vec<f64>,
    /// What the distances say: rows of the model, and the factor of their covariance.
    rows: Vec<Row>,
    factor: Vec<Vec<f64>>,
}

type Row = Vec<(usize, f64)>;

/// A distance of the sources of one domain.
struct Distance {
    domain: usize,
    row: Row,
    ns: f64,
    var: f64,
}

impl Distance {
    /// If one source or the other is all wrong, with the odds that the shares of the distance give: the
    /// variance of that. `means` are before any bias may stand out.
    fn doubt(&self, means: &[f64], priors: &[f64], domains: usize) -> f64 {
        let share = |of: &dyn Fn(usize) -> bool| -> f64 {
            self.row.iter().filter(|(i, _)| of(*i)).map(|(i, lever)| lever * (means[*i] - priors[*i])).sum()
        };
        (share(&|i| i < domains) * share(&|i| i >= domains)).max(0.0)
    }
}

impl Biases {
    /// Shares out the distances of two sources. Without the one or the other there is nothing to share out,
    /// and the priors stay.
    pub(super) fn new(
        links: &[Link],
        habits: &Habits,
        probes: &[Option<Located>],
        collectives: &[Option<Located>],
    ) -> Biases {
        let domains = probes.len();
        let parts: Vec<[(usize, f64); 3]> = links
            .iter()
            .enumerate()
            .map(|(i, link)| match link.kind {
                Kind::Probes => [(domains + i, 1.0), (link.v, 0.0), (link.u, 0.0)],
                Kind::Collectives => {
                    let own = if link.uneven > 0.0 { 1.0 } else { 0.0 };
                    [(domains + i, own), (link.v, 1.0), (link.u, -1.0)]
                }
            })
            .collect();
        let (prior_mean, prior_var) = priors(links, habits, domains);
        let mut biases = Biases {
            parts,
            mean: prior_mean.clone(),
            doubt: vec![0.0; domains],
            var: prior_var.clone(),
            rows: Vec::new(),
            factor: Vec::new(),
        };
        let distances: Vec<Distance> = (0..domains)
            .filter_map(|d| biases.distance(d, probes[d].as_ref()?, collectives.get(d)?.as_ref()?))
            .collect();
        if distances.is_empty() {
            return biases;
        }
        let kind = |i: usize| match i.checked_sub(domains).and_then(|i| links.get(i)) {
            None => 0,
            Some(link) => 1 + usize::from(link.kind == Kind::Collectives),
        };
        let mut touched = vec![false; prior_var.len()];
        distances.iter().flat_map(|d| &d.row).for_each(|(i, _)| touched[*i] = true);
        if let Some((plain, _)) = biases.condition(&distances, &prior_mean) {
            for distance in &distances {
                biases.doubt[distance.domain] = distance.doubt(&plain, &prior_mean, domains);
            }
        }
        // A graph of many links (no collector makes one) is not worth more time.
        let rounds = if touched.iter().filter(|t| **t).count() > MANY { 2 } else { ROUNDS };
        for _ in 0..rounds {
            let Some((mean, squares)) = biases.condition(&distances, &prior_mean) else { break };
            // The usual size of each kind, then what each stands out by.
            let mut usual = [(PRIOR_COUNT, PRIOR_COUNT); 3];
            for i in (0..prior_var.len()).filter(|&i| touched[i]) {
                let stands_out = biases.var[i] / prior_var[i];
                let (sum, count) = &mut usual[kind(i)];
                *sum += squares[i] / prior_var[i] / stands_out.max(1.0);
                *count += 1.0;
            }
            for i in 0..prior_var.len() {
                let (sum, count) = usual[kind(i)];
                let size = prior_var[i] * (sum / count);
                biases.var[i] =
                    if touched[i] { (FREEDOM * size + squares[i]) / (FREEDOM + 1.0) } else { size };
            }
            biases.mean = mean;
        }
        if let Some((mean, _)) = biases.condition(&distances, &prior_mean) {
            biases.mean = mean;
        }
        biases.rows = distances.into_iter().map(|d| d.row).collect();
        biases
    }

    /// What a link's `xv - xu` is too large by, ns.
    pub(super) fn of_link(&self, link: usize) -> f64 {
        self.parts[link].iter().map(|(i, sign)| sign * self.mean[*i]).sum()
    }

    /// Variance of the biases that are left in a domain's y.
    pub(super) fn left(&self, domain: usize, leverage: &[(usize, f64)]) -> f64 {
        let row = self.row(leverage);
        let before: f64 = row.iter().map(|(i, lever)| lever * lever * self.var[*i]).sum();
        // Less what the distances told: || L^-1 H S g ||^2.
        let told: Vec<f64> = self.rows.iter().map(|other| self.covariance(other, &row)).collect();
        let known: f64 = forwards(&self.factor, &told).iter().map(|v| v * v).sum();
        (before - known).max(0.0) + DOUBT * self.doubt.get(domain).copied().unwrap_or(0.0)
    }

    /// Leverages of links as those of biases.
    fn row(&self, leverage: &[(usize, f64)]) -> Row {
        let mut dense = vec![0.0; self.mean.len()];
        for (link, lever) in leverage {
            for (i, sign) in self.parts[*link] {
                dense[i] += sign * lever;
            }
        }
        dense.into_iter().enumerate().filter(|(_, lever)| *lever != 0.0).collect()
    }

    fn covariance(&self, a: &Row, b: &Row) -> f64 {
        let (mut a, mut b) = (a.iter().peekable(), b.iter().peekable());
        let mut sum = 0.0;
        while let (Some((i, x)), Some((j, y))) = (a.peek(), b.peek()) {
            if i == j {
                sum += x * y * self.var[*i];
            }
            if i <= j {
                a.next()
            } else {
                b.next()
            };
        }
        sum
    }

    /// The mean distance of probes and collectives of one domain, where both are known.
    fn distance(&self, domain: usize, probes: &Located, collectives: &Located) -> Option<Distance> {
        let ends = |l: &Located| Some((l.track.knots.first()?.x, l.track.knots.last()?.x));
        let ((a, b), (c, d)) = (ends(probes)?, ends(collectives)?);
        let (from, to) = (a.max(c), b.min(d));
        let (mut sum, mut weight, mut count) = (0.0, 0.0, 0.0);
        let samples = probes.samples.min(collectives.samples) as f64 / 4.0;
        let mut apart: Vec<(f64, f64)> = Vec::new();
        for knot in collectives.track.knots.iter().filter(|k| k.x >= from && k.x <= to) {
            let other = probes.track.at(knot.x);
            apart.push((other.y - knot.y, other.var + knot.var + (other.slack + knot.slack).powi(2)));
        }
        let middle = robust::median(&mut apart.iter().map(|a| a.0).collect::<Vec<_>>())?;
        for (ns, var) in apart {
            // Where a clock jumped, the two may be far apart for a moment.
            if (ns - middle).powi(2) <= 25.0 * var {
                sum += ns / var;
                weight += var.recip();
                count += 1.0;
            }
        }
        let independent = (1.0 + (to - from) / MEMORY).min(count).min(samples).max(1.0);
        let mut leverage = probes.leverage.clone();
        leverage.extend(collectives.leverage.iter().map(|(link, lever)| (*link, -lever)));
        let var = count / weight / independent + 1.0;
        (weight > 0.0 && var.is_finite()).then(|| Distance {
            domain,
            row: self.row(&leverage),
            ns: sum / weight,
            var,
        })
    }

    /// Posterior means, and mean squares of the deviations from the priors. Keeps the factor for [`Biases::left`].
    fn condition(&mut self, distances: &[Distance], prior: &[f64]) -> Option<(Vec<f64>, Vec<f64>)> {
        let mut covariance: Vec<Vec<f64>> = distances
            .iter()
            .enumerate()
            .map(|(i, a)| distances[..=i].iter().map(|b| self.covariance(&a.row, &b.row)).collect())
            .collect();
        covariance.iter_mut().enumerate().for_each(|(i, row)| row[i] += distances[i].var);
        self.factor = cholesky(covariance)?;
        let expected = |row: &Row| row.iter().map(|(i, lever)| lever * prior[*i]).sum::<f64>();
        let off: Vec<f64> = distances.iter().map(|d| d.ns - expected(&d.row)).collect();
        let solved = backwards(&self.factor, forwards(&self.factor, &off));
        let (mut shift, mut told) = (vec![0.0; prior.len()], vec![0.0; prior.len()]);
        for (distance, solved) in distances.iter().zip(&solved) {
            for (i, lever) in &distance.row {
                shift[*i] += self.var[*i] * lever * solved;
            }
        }
        for (i, told) in told.iter_mut().enumerate() {
            let column: Vec<f64> = distances
                .iter()
                .map(|d| d.row.binary_search_by_key(&i, |r| r.0).map_or(0.0, |at| d.row[at].1 * self.var[i]))
                .collect();
            if column.iter().any(|c| *c != 0.0) {
                *told = forwards(&self.factor, &column).iter().map(|v| v * v).sum();
            }
        }
        let squares =
            (0..prior.len()).map(|i| shift[i] * shift[i] + (self.var[i] - told[i]).max(0.0)).collect();
        Some((prior.iter().zip(shift).map(|(prior, shift)| prior + shift).collect(), squares))
    }
}

/// Means and variances before the sources are compared: of the domains in collectives, then of the links.
fn priors(links: &[Link], habits: &Habits, domains: usize) -> (Vec<f64>, Vec<f64>) {
    let mut mean = vec![0.0; domains + links.len()];
    let mut var = vec![0.0; domains + links.len()];
    for domain in 0..domains {
        let often_last = habits.last_share.get(domain).is_some_and(|share| *share > MOSTLY);
        let hasty = often_last && habits.haste == 0.0;
        let measured = habits.lateness.get(domain).copied().flatten();
        (mean[domain], var[domain]) = match measured {
            _ if hasty => (0.0, (HASTE * habits.latency).max(LEAST).powi(2)),
            // Nothing measured: as good as measured with any error.
            None => lateness(Lateness { measured: 0.0, var: 1e30, disturbed: 0.0 }, habits.latency),
            Some(measured) => lateness(measured, habits.latency),
        };
    }
    let probed = links.iter().filter(|l| l.kind == Kind::Probes);
    let middle = robust::median(&mut probed.map(|l| l.round_trip).collect::<Vec<_>>()).unwrap_or(0.0);
    for (i, link) in links.iter().enumerate() {
        if link.kind == Kind::Collectives {
            var[domains + i] = link.uneven * link.uneven;
            continue;
        }
        let usual = (ASYMMETRY * link.round_trip).max(LEAST);
        let detour = DETOUR * (link.round_trip - middle).max(0.0);
        var[domains + i] = usual * usual + detour * detour;
    }
    (mean, var)
}

/// Mean and variance of a lateness that was measured, given what is usual.
fn lateness(measured: Lateness, latency: f64) -> (f64, f64) {
    let (mut total, mut mean, mut square) = (0.0, 0.0, 0.0);
    let disturbance = measured.var + (DISTURBANCE * latency).powi(2);
    let noises = [(1.0 - measured.disturbed, measured.var), (measured.disturbed, disturbance)];
    for ((share, size), (chance, noise)) in LATENESS.iter().flat_map(|l| noises.map(|n| (*l, n))) {
        let prior = (size * latency).max(LEAST).powi(2);
        let spread = prior + noise;
        let likely = (-0.5 * measured.measured * measured.measured / spread).exp() / spread.sqrt();
        // So far off that nothing is likely at all: the widest ones are.
        let likely = (share * chance * likely).max(1e-300 * size * chance);
        let (middle, var) = (measured.measured * prior / spread, prior * noise / spread);
        total += likely;
        mean += likely * middle;
        square += likely * (middle * middle + var);
    }
    (mean / total, (square / total - (mean / total).powi(2)).max(0.0) + LEAST * LEAST)
}

/// The lower factor of a positive matrix, of which only the lower half is given.
fn cholesky(mut a: Vec<Vec<f64>>) -> Option<Vec<Vec<f64>>> {
    for i in 0..a.len() {
        let (done, rest) = a.split_at_mut(i);
        let row = rest.first_mut()?;
        for (j, other) in done.iter().enumerate() {
            let dot: f64 = row[..j].iter().zip(other).map(|(x, y)| x * y).sum();
            row[j] = (row[j] - dot) / other[j];
        }
        let left = row[i] - row[..i].iter().map(|x| x * x).sum::<f64>();
        if !(left > 0.0 && left.is_finite()) {
            return None;
        }
        row[i] = left.sqrt();
    }
    Some(a)
}

/// Solves L x = b; of an empty L, nothing.
fn forwards(l: &[Vec<f64>], b: &[f64]) -> Vec<f64> {
    let mut x: Vec<f64> = Vec::with_capacity(b.len());
    for (row, b) in l.iter().zip(b) {
        let dot: f64 = row.iter().zip(&x).map(|(l, x)| l * x).sum();
        x.push((b - dot) / row[x.len()]);
    }
    x
}

/// Solves L' x = b.
fn backwards(l: &[Vec<f64>], mut b: Vec<f64>) -> Vec<f64> {
    for i in (0..b.len().min(l.len())).rev() {
        b[i] /= l[i][i];
        let x = b[i];
        for j in 0..i {
            b[j] -= l[i][j] * x;
        }
    }
    b
}
