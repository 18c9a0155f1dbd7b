use crate::synthetic::RandomSource;

/// How long messages and collectives take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Network {
    /// Time that a message takes within a node, ns.
    pub near_latency_ns: u64,
    /// Time that a message takes between nodes, ns.
    pub far_latency_ns: u64,
    /// Bytes that a link carries in a ns.
    pub bytes_per_ns: u64,
    /// Messages of more bytes wait for their receive.
    pub eager_limit: u64,
    /// Time in the library of each call, ns.
    pub overhead_ns: u64,
    /// Time of a collective after the last member has entered, ns.
    pub collective_ns: u64,
}

impl Default for Network {
    fn default() -> Network {
        Network {
            near_latency_ns: 500,
            far_latency_ns: 2_000,
            bytes_per_ns: 12,
            eager_limit: 64 << 10,
            overhead_ns: 300,
            collective_ns: 8_000,
        }
    }
}

/// Which ranks have their planted excess.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PlantedExcess {
    /// All for which the program plants some.
    All,
    /// All but these.
    AllBut(Vec<u32>),
    /// No rank.
    None,
}

impl PlantedExcess {
    /// Returns whether a rank has its excess.
    pub fn includes(&self, rank: u32) -> bool {
        match self {
            PlantedExcess::All => true,
            PlantedExcess::AllBut(without) => !without.contains(&rank),
            PlantedExcess::None => false,
        }
    }
}

/// Conditions of a run of a program.
#[derive(Clone, PartialEq, Debug)]
pub struct RunConditions {
    /// Seed of the noise. Runs with the same seed have the same noise.
    pub seed: u64,
    /// Standard deviation of the duration of a piece of work, as a share of it.
    pub noise: f64,
    /// The planted excess.
    pub excess: PlantedExcess,
    /// The network.
    pub network: Network,
}

/// Numbers with a nearly normal sum.
const SUMMANDS: u32 = 12;

impl RunConditions {
    /// Returns the duration of the `number`th piece of work of a rank, without excess, ns.
    pub fn noisy_ns(&self, rank: u32, number: u64, ns: u64) -> u64 {
        if self.noise == 0.0 || ns == 0 {
            return ns;
        }
        let mut random = RandomSource::new(&[self.seed, u64::from(rank), number]);
        // Twelve numbers between 0 and 1 have the sum 6 with a standard deviation of 1.
        let sum: f64 = (0..SUMMANDS).map(|_| (random.bits() >> 32) as f64 / f64::from(u32::MAX)).sum();
        let factor = 1.0 + self.noise * (sum - f64::from(SUMMANDS) / 2.0);
        (ns as f64 * factor.max(0.05)) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noise_has_its_mean_and_deviation() {
        let (excess, network) = (PlantedExcess::None, Network::default());
        let conditions = RunConditions { seed: 7, noise: 0.05, excess, network };
        let drawn: Vec<f64> = (0..4_000).map(|n| conditions.noisy_ns(3, n, 1_000_000) as f64 / 1e6).collect();
        let mean = drawn.iter().sum::<f64>() / drawn.len() as f64;
        let variance = drawn.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / drawn.len() as f64;
        assert!((mean - 1.0).abs() < 0.004, "{mean}");
        assert!((variance.sqrt() - 0.05).abs() < 0.003, "{variance}");
    }
}
