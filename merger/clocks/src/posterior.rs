//! Estimates which biases are large. Each is small or, rarely, large, and the difference of two sources often
//! shows only that one of several is large. All combinations are weighted by their likelihood. They are too many
//! to enumerate, so they are sampled (Gibbs sampling) with a fixed seed.

/// Leverages of biases, by index.
pub(super) type BiasRow = Vec<(usize, f64)>;

/// A possible size of a bias: a normal distribution and its probability.
#[derive(Clone, Copy, Debug)]
pub(super) struct BiasSize {
    pub(super) share: f64,
    pub(super) mean: f64,
    pub(super) var: f64,
}

/// Prior distribution of a bias.
#[derive(Clone, Debug)]
pub(super) struct BiasPrior {
    /// Mean and variance if no measured difference involves the bias.
    pub(super) alone: (f64, f64),
    /// Possible sizes otherwise: small, then large.
    pub(super) sizes: Vec<BiasSize>,
    /// Kind of the bias. Biases of one kind share a scale and a fraction of large ones, which are estimated.
    pub(super) kind: usize,
    /// Prior fraction of large biases of the kind.
    pub(super) large: f64,
}

/// A measured difference of two sources: a sum of biases plus noise.
pub(super) struct NodeDistance {
    pub(super) row: BiasRow,
    pub(super) ns: f64,
    pub(super) var: f64,
}

/// Weight of the priors, in biases of a kind, when the scale of the kind is estimated.
const SCALE_PRIOR_WEIGHT: f64 = 4.0;
/// Weight of the priors, in biases of a kind, when the fraction of large ones is estimated.
const SHARE_PRIOR_WEIGHT: f64 = 20.0;
/// Number of rounds in which the scales converge.
const SETTLING_ROUNDS: usize = 8;
/// Number of combinations that are kept.
const DRAWS: usize = 24;
/// One combination in this many sweeps is kept.
const SWEEPS_PER_DRAW: usize = 6;
/// With more differences than this, which no collector produces, fewer sweeps are made to limit the time.
const MANY_DISTANCES: usize = 300;

/// Distribution of the biases after the sources were compared.
pub(super) struct BiasPosterior {
    /// Means of the biases, ns.
    pub(super) mean: Vec<f64>,
    rows: Vec<BiasRow>,
    draws: Vec<Draw>,
}

/// One combination: means and variances of the biases, and the inverse of the differences' covariance.
struct Draw {
    mean: Vec<f64>,
    var: Vec<f64>,
    inverse: Vec<Vec<f64>>,
}

impl BiasPosterior {
    /// Returns `None` if there are no differences or their covariance is singular.
    pub(super) fn new(distances: Vec<NodeDistance>, priors: &[BiasPrior]) -> Option<BiasPosterior> {
        if distances.is_empty() {
            return None;
        }
        let sweeps = if distances.len() > MANY_DISTANCES { 1 } else { SWEEPS_PER_DRAW };
        let mut sampler = Sampler::new(&distances, priors)?;
        for _ in 0..SETTLING_ROUNDS {
            (0..sweeps).for_each(|_| sampler.sweep());
            sampler.estimate_scales()?;
        }
        let mut mean = vec![0.0; priors.len()];
        let mut draws = Vec::with_capacity(DRAWS);
        for _ in 0..DRAWS {
            for _ in 0..sweeps {
                sampler.sweep();
                let share = 1.0 / (DRAWS * sweeps) as f64;
                mean.iter_mut().zip(sampler.means()).for_each(|(sum, mean)| *sum += share * mean);
            }
            sampler.refresh()?;
            let (mean, var) = (sampler.means(), (0..priors.len()).map(|i| sampler.size(i).var).collect());
            draws.push(Draw { mean, var, inverse: sampler.inverse.clone() });
        }
        Some(BiasPosterior { mean, rows: distances.into_iter().map(|d| d.row).collect(), draws })
    }

    /// Returns the variance of a sum of biases: the mean within combinations plus the variance between them.
    pub(super) fn var(&self, row: &BiasRow) -> f64 {
        let count = self.draws.len().max(1) as f64;
        let sum = |draw: &Draw| row.iter().map(|(i, lever)| lever * draw.mean[*i]).sum::<f64>();
        let middle = self.draws.iter().map(sum).sum::<f64>() / count;
        let var = |draw: &Draw| {
            let before: f64 = row.iter().map(|(i, lever)| lever * lever * draw.var[*i]).sum();
            let shared: Vec<f64> = self.rows.iter().map(|other| covariance(other, row, &draw.var)).collect();
            let known: f64 = draw.inverse.iter().zip(&shared).map(|(line, t)| t * dot(line, &shared)).sum();
            (before - known).max(0.0) + (sum(draw) - middle).powi(2)
        };
        self.draws.iter().map(var).sum::<f64>() / count
    }
}

struct Sampler<'a> {
    distances: &'a [NodeDistance],
    priors: &'a [BiasPrior],
    /// For each bias, the differences that involve it.
    columns: Vec<Vec<(usize, f64)>>,
    /// For each bias, its current size.
    chosen: Vec<usize>,
    /// For each kind, the factor of its variances.
    scales: Vec<f64>,
    /// For each kind, the logarithm of the ratio between current and prior odds of a large bias.
    odds: Vec<f64>,
    /// Inverse of the differences' current covariance, and its product with the deviations of the differences
    /// from their means.
    inverse: Vec<Vec<f64>>,
    solved: Vec<f64>,
    random: u64,
}

impl<'a> Sampler<'a> {
    fn new(distances: &'a [NodeDistance], priors: &'a [BiasPrior]) -> Option<Sampler<'a>> {
        let mut columns = vec![Vec::new(); priors.len()];
        for (at, distance) in distances.iter().enumerate() {
            distance.row.iter().for_each(|(i, lever)| columns[*i].push((at, *lever)));
        }
        let kinds = priors.iter().map(|p| p.kind + 1).max().unwrap_or(0);
        let mut sampler = Sampler {
            distances,
            priors,
            columns,
            chosen: vec![0; priors.len()],
            scales: vec![1.0; kinds],
            odds: vec![0.0; kinds],
            inverse: Vec::new(),
            solved: Vec::new(),
            random: 0,
        };
        sampler.refresh()?;
        Some(sampler)
    }

    /// Returns the distribution from which bias i is currently drawn.
    fn size(&self, i: usize) -> BiasSize {
        let (prior, scale) = (&self.priors[i], self.scales[self.priors[i].kind]);
        match prior.sizes.get(self.chosen[i]).filter(|_| !self.columns[i].is_empty()) {
            Some(size) => BiasSize { var: size.var * scale, ..*size },
            None => BiasSize { share: 1.0, mean: prior.alone.0, var: prior.alone.1 * scale },
        }
    }

    /// Recomputes the inverse, because the updates of many sweeps lose digits.
    fn refresh(&mut self) -> Option<()> {
        let sizes: Vec<BiasSize> = (0..self.priors.len()).map(|i| self.size(i)).collect();
        let vars: Vec<f64> = sizes.iter().map(|s| s.var).collect();
        let line = |(at, d): (usize, &NodeDistance)| {
            let mut line: Vec<f64> =
                self.distances[..=at].iter().map(|other| covariance(&d.row, &other.row, &vars)).collect();
            line[at] += d.var;
            line
        };
        let factor = cholesky(self.distances.iter().enumerate().map(line).collect())?;
        let unit = |at: usize| (0..factor.len()).map(|i| f64::from(u8::from(i == at))).collect::<Vec<_>>();
        self.inverse = (0..factor.len()).map(|at| backwards(&factor, forwards(&factor, &unit(at)))).collect();
        let mean = |d: &NodeDistance| d.row.iter().map(|(i, lever)| lever * sizes[*i].mean).sum::<f64>();
        let off: Vec<f64> = self.distances.iter().map(|d| d.ns - mean(d)).collect();
        self.solved = self.inverse.iter().map(|line| dot(line, &off)).collect();
        Some(())
    }

    /// Draws the size of each bias, given those of all others.
    fn sweep(&mut self) {
        for i in 0..self.priors.len() {
            if self.columns[i].is_empty() || self.priors[i].sizes.len() < 2 {
                continue;
            }
            let (now, scale) = (self.size(i), self.scales[self.priors[i].kind]);
            let column = &self.columns[i];
            let moved = |line: &Vec<f64>| column.iter().map(|(at, lever)| line[*at] * lever).sum();
            let moved: Vec<f64> = self.inverse.iter().map(moved).collect();
            let a: f64 = column.iter().map(|(at, lever)| moved[*at] * lever).sum();
            let b: f64 = column.iter().map(|(at, lever)| self.solved[*at] * lever).sum();
            // Another size changes the likelihood of all differences by a rank-one term.
            let change = |size: &BiasSize| {
                let (mean, var) = (size.mean - now.mean, size.var * scale - now.var);
                (mean, var, (1.0 + var * a).max(f64::MIN_POSITIVE))
            };
            let odds = self.odds[self.priors[i].kind];
            let log_likely = |(at, size): (usize, &BiasSize)| {
                let (mean, var, grown) = change(size);
                let off = b - a * mean;
                size.share.ln() + odds * at as f64 + mean * b
                    - 0.5 * (mean * mean * a + grown.ln() - var * off * off / grown)
            };
            let sizes = &self.priors[i].sizes;
            let logs: Vec<f64> = sizes.iter().enumerate().map(log_likely).collect();
            let most = logs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let total: f64 = logs.iter().map(|l| (l - most).exp()).sum();
            let mut left = uniform(&mut self.random) * total;
            let drawn = logs.iter().position(|l| {
                left -= (l - most).exp();
                left < 0.0
            });
            let Some(drawn) = drawn.filter(|drawn| *drawn != self.chosen[i]) else { continue };
            let (mean, var, grown) = change(&sizes[drawn]);
            self.chosen[i] = drawn;
            for (line, m) in self.inverse.iter_mut().zip(&moved) {
                let factor = var / grown * m;
                line.iter_mut().zip(&moved).for_each(|(value, other)| *value -= factor * other);
            }
            let factor = mean + var * (b - a * mean) / grown;
            self.solved.iter_mut().zip(&moved).for_each(|(value, m)| *value -= factor * m);
        }
        self.count();
    }

    /// Estimates the fraction of large biases of each kind.
    fn count(&mut self) {
        let logit = |share: f64| (share / (1.0 - share)).ln();
        for (kind, odds) in self.odds.iter_mut().enumerate() {
            let of_kind = || {
                let both = self.priors.iter().enumerate().zip(&self.columns);
                both.filter(|((_, p), column)| p.kind == kind && p.sizes.len() > 1 && !column.is_empty())
            };
            let Some(((_, prior), _)) = of_kind().next() else { continue };
            let large = of_kind().filter(|((i, _), _)| self.chosen[*i] > 0).count() as f64;
            let share =
                (SHARE_PRIOR_WEIGHT * prior.large + large) / (SHARE_PRIOR_WEIGHT + of_kind().count() as f64);
            *odds = logit(share) - logit(prior.large);
        }
    }

    /// Estimates the scale of the biases of each kind.
    fn estimate_scales(&mut self) -> Option<()> {
        let mut usual = vec![(SCALE_PRIOR_WEIGHT, SCALE_PRIOR_WEIGHT); self.scales.len()];
        for (i, column) in self.columns.iter().enumerate().filter(|(_, column)| !column.is_empty()) {
            let (size, kind) = (self.size(i), self.priors[i].kind);
            let a: f64 = column
                .iter()
                .map(|(at, x)| x * column.iter().map(|(other, y)| self.inverse[*at][*other] * y).sum::<f64>())
                .sum();
            let b: f64 = column.iter().map(|(at, lever)| self.solved[*at] * lever).sum();
            let square = size.var * size.var * (b * b - a) + size.var;
            usual[kind].0 += (square.max(0.0) / (size.var / self.scales[kind])).min(1e9);
            usual[kind].1 += 1.0;
        }
        self.scales = usual.into_iter().map(|(sum, count)| sum / count).collect();
        self.refresh()
    }

    /// Returns the means of all biases, given their sizes.
    fn means(&self) -> Vec<f64> {
        let mean = |(i, column): (usize, &Vec<(usize, f64)>)| {
            let size = self.size(i);
            size.mean + size.var * column.iter().map(|(at, lever)| self.solved[*at] * lever).sum::<f64>()
        };
        self.columns.iter().enumerate().map(mean).collect()
    }
}

/// Returns a number from 0 to 1 (SplitMix64).
fn uniform(state: &mut u64) -> f64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((z ^ (z >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(x, y)| x * y).sum()
}

fn covariance(a: &BiasRow, b: &BiasRow, var: &[f64]) -> f64 {
    let (mut a, mut b) = (a.iter().peekable(), b.iter().peekable());
    let mut sum = 0.0;
    while let (Some((i, x)), Some((j, y))) = (a.peek(), b.peek()) {
        if i == j {
            sum += x * y * var[*i];
        }
        if i <= j {
            a.next()
        } else {
            b.next()
        };
    }
    sum
}

/// Returns the lower factor of a positive definite matrix, of which only the lower half is given.
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

/// Solves L x = b. An empty L gives an empty x.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn prior(small: f64, large: f64, share: f64, kind: usize) -> BiasPrior {
        let size = |share, sd: f64| BiasSize { share, mean: 0.0, var: sd * sd };
        let sizes = vec![size(1.0 - share, small), size(share, large)];
        BiasPrior { alone: (0.0, small * small), sizes, kind, large: share }
    }

    fn distance(row: &[(usize, f64)], ns: f64) -> NodeDistance {
        NodeDistance { row: row.to_vec(), ns, var: 1e4 }
    }

    /// Returns the means from all combinations, with the prior scales and odds.
    fn exactly(distances: &[NodeDistance], priors: &[BiasPrior]) -> Vec<f64> {
        let (mut total, mut sums) = (0.0, vec![0.0; priors.len()]);
        for combination in 0..1_usize << priors.len() {
            let mut sampler = Sampler::new(distances, priors).unwrap();
            sampler.chosen = (0..priors.len()).map(|i| combination >> i & 1).collect();
            sampler.refresh().unwrap();
            let sizes: Vec<BiasSize> = (0..priors.len()).map(|i| sampler.size(i)).collect();
            let vars: Vec<f64> = sizes.iter().map(|s| s.var).collect();
            let mut covariances: Vec<Vec<f64>> = Vec::new();
            for (at, d) in distances.iter().enumerate() {
                let line = distances[..=at].iter().map(|other| covariance(&d.row, &other.row, &vars));
                covariances.push(line.collect());
                covariances[at][at] += d.var;
            }
            let factor = cholesky(covariances).unwrap();
            let off = forwards(&factor, &distances.iter().map(|d| d.ns).collect::<Vec<_>>());
            let log = factor.iter().enumerate().map(|(i, line)| line[i].ln()).sum::<f64>();
            let likely =
                (-log - 0.5 * dot(&off, &off)).exp() * sizes.iter().map(|s| s.share).product::<f64>();
            total += likely;
            sums.iter_mut().zip(sampler.means()).for_each(|(sum, mean)| *sum += likely * mean);
        }
        sums.iter().map(|sum| sum / total).collect()
    }

    #[test]
    fn drawn_combinations_weigh_as_much_as_all_of_them() {
        // One path to two domains, one of which is late.
        let priors =
            [prior(200.0, 1_500.0, 0.1, 0), prior(300.0, 5_000.0, 0.1, 1), prior(300.0, 5_000.0, 0.1, 1)];
        for (first, second) in [(2_000.0, 2_100.0), (0.0, 4_000.0), (3_000.0, 100.0), (1_500.0, 0.0)] {
            let distances =
                [distance(&[(0, 1.0), (1, -1.0)], first), distance(&[(0, 1.0), (2, -1.0)], second)];
            let exact = exactly(&distances, &priors);
            let mut sampler = Sampler::new(&distances, &priors).unwrap();
            let mut drawn = [0.0; 3];
            for _ in 0..4_000 {
                sampler.sweep();
                sampler.odds.fill(0.0);
                drawn.iter_mut().zip(sampler.means()).for_each(|(sum, mean)| *sum += mean / 4_000.0);
            }
            for (drawn, exact) in drawn.iter().zip(&exact) {
                assert!((drawn - exact).abs() < 100.0, "{drawn} and not {exact} at {first}, {second}");
            }
        }
    }

    #[test]
    fn changes_of_rank_one_are_those_of_a_new_inverse() {
        let priors: Vec<BiasPrior> = (0..6).map(|i| prior(100.0, 3_000.0, 0.3, i % 2)).collect();
        let distances: Vec<NodeDistance> =
            (0..5).map(|i| distance(&[(i, 1.0), (i + 1, -0.5)], 700.0 * i as f64)).collect();
        let mut sampler = Sampler::new(&distances, &priors).unwrap();
        (0..50).for_each(|_| sampler.sweep());
        let (inverse, solved) = (sampler.inverse.clone(), sampler.solved.clone());
        sampler.refresh().unwrap();
        let is_close =
            |a: &[f64], b: &[f64]| a.iter().zip(b).all(|(a, b)| (a - b).abs() <= 1e-9 + 1e-6 * b.abs());
        assert!(inverse.iter().zip(&sampler.inverse).all(|(a, b)| is_close(a, b)));
        assert!(is_close(&solved, &sampler.solved));
    }

    #[test]
    fn what_no_distance_tells_stays_as_it_was() {
        let priors = [prior(200.0, 1_500.0, 0.1, 0), prior(300.0, 5_000.0, 0.1, 1)];
        assert!(BiasPosterior::new(Vec::new(), &priors).is_none());
        let posterior = BiasPosterior::new(vec![distance(&[(0, 1.0)], 0.0)], &priors).unwrap();
        assert_eq!(posterior.mean[1], 0.0);
        assert!(posterior.var(&vec![(1, 1.0)]) >= 0.9 * 300.0 * 300.0);
        assert!(posterior.var(&vec![(0, 1.0)]) < 200.0 * 200.0);
    }
}
