use crate::synthetic::RandomSource;

/// Parts of a drift: 1e-9.
const BILLION: i128 = 1_000_000_000;

/// Errors of the clocks of the nodes, as they remain in job time.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct ClockErrors {
    /// Error of each node; a node that is not there has none.
    pub nodes: Vec<NodeClockError>,
    /// Error bound that the merge gives, ns.
    pub error_bound_ns: Option<u64>,
}

/// Error of the clocks of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NodeClockError {
    /// At the start, ns.
    pub offset_ns: i64,
    /// Growth, 1e-9.
    pub drift_ppb: i64,
    /// Time of a jump, ns.
    pub jump_at_ns: i64,
    /// The jump, ns.
    pub jump_ns: i64,
}

impl ClockErrors {
    /// Returns the errors of nodes that are up to 20 ms and 30 ppm off, of which one jumps by 1 ms within this length.
    pub fn drawn(nodes: u32, length_ns: i64, seed: u64) -> ClockErrors {
        let mut random = RandomSource::new(&[seed, 28]);
        let jumping = random.between(0, i64::from(nodes)) as u32;
        let node = |node: u32| NodeClockError {
            offset_ns: random.between(-20_000_000, 20_000_000),
            drift_ppb: random.between(-30_000, 30_000),
            jump_at_ns: length_ns / 3 + random.between(0, length_ns / 3),
            jump_ns: if node == jumping { 1_000_000 } else { 0 },
        };
        ClockErrors { nodes: (0..nodes).map(node).collect(), error_bound_ns: Some(25_000_000) }
    }

    /// Returns the job time that the merge gives for a true time of a node, ns.
    pub fn job_time(&self, node: u32, true_ns: i64) -> i64 {
        let Some(error) = self.nodes.get(node as usize) else { return true_ns };
        let drift = i128::from(true_ns) * i128::from(error.drift_ppb) / BILLION;
        let jump = if true_ns >= error.jump_at_ns { error.jump_ns } else { 0 };
        true_ns + error.offset_ns + drift as i64 + jump
    }
}
