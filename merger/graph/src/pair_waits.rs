//! Which process makes which other one wait: the direct waiting of [`DelayCosts`](crate::DelayCosts), by pairs.

use crate::analysis::WaitAnalysis;
use crate::delay_costs::DelayCosts;
use crate::wait_causes::{WaitCause, each_cause_backwards};
use crate::waits::CallWait;
use std::collections::BTreeMap;

/// Maximum number of pairs that are summed at a time.
const MAX_SUMMED: usize = 1 << 21;

/// Waiting of one process for another, ns.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct PairWait {
    /// Process that the other waited for.
    pub cause: u32,
    /// Process that waited.
    pub waiting: u32,
    /// Waiting that work of `cause` caused directly: its part of [`DelayCost::direct_ns`](crate::DelayCosts).
    pub direct_ns: f64,
}

/// The direct waiting in the steps by pairs; of all calls, if there are no steps.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct PairWaits {
    /// Sum of each pair of groups, ns: rows are the groups of the causes, columns those that waited.
    pub matrix: Vec<f64>,
    /// The pairs with the most waiting, the largest first.
    pub largest: Vec<PairWait>,
    /// Number of processes that cause the most, of which pairs were compared; `None` if all were.
    pub compared_causes: Option<usize>,
}

impl WaitAnalysis<'_> {
    /// Returns the direct waiting by pairs of processes. `group_of` has a group below `groups` for each process.
    pub fn pair_waits(
        &self,
        costs: &DelayCosts,
        (group_of, groups): (&[u32], usize),
        max_pairs: usize,
    ) -> PairWaits {
        let timelines = &self.graph.job.timelines;
        let processes = self.graph.job.processes as usize;
        let mut caused = vec![0.0; processes];
        for (timeline, number) in timelines.iter().zip(0..) {
            caused[timeline.process as usize] += costs.of_timeline(number).direct_ns;
        }
        let mut causes: Vec<u32> = (0..processes as u32).filter(|of| caused[*of as usize] > 0.0).collect();
        causes.sort_by(|one, other| caused[*other as usize].total_cmp(&caused[*one as usize]));
        let max_causes = (MAX_SUMMED / processes.max(1)).max(1);
        let compared_causes = (causes.len() > max_causes).then_some(max_causes);
        causes.truncate(max_causes);
        let places: BTreeMap<u32, usize> = causes.iter().copied().zip(0..).collect();
        let mut sums = vec![0.0; causes.len() * processes];
        let mut matrix = vec![0.0; groups * groups];
        let is_selected = |wait: &CallWait| wait.is_in_steps(self.graph.job);
        each_cause_backwards(&self.waits, &self.times, &self.replayed, is_selected, |found| {
            let WaitCause { wait, delayed_ns, waited_before_ns, .. } = found;
            let [cause, waiting] = [wait.cause, wait.timeline].map(|of| timelines[of as usize].process);
            let total_ns = delayed_ns.saturating_add(waited_before_ns) as f64;
            if cause == waiting || total_ns == 0.0 {
                return;
            }
            let direct_ns = (wait.ns as f64 / total_ns).min(1.0) * delayed_ns as f64;
            let group = |process: u32| group_of.get(process as usize).map(|group| *group as usize);
            if let Some((row, column)) = group(cause).zip(group(waiting))
                && let Some(cell) = matrix.get_mut(row * groups + column)
            {
                *cell += direct_ns;
            }
            if let Some(place) = places.get(&cause) {
                sums[place * processes + waiting as usize] += direct_ns;
            }
        });
        let pair = |(place, direct_ns): (usize, f64)| PairWait {
            cause: causes[place / processes],
            waiting: (place % processes) as u32,
            direct_ns,
        };
        let found = sums.into_iter().enumerate().filter(|(_, ns)| *ns > 0.0);
        let mut largest: Vec<PairWait> = found.map(pair).collect();
        largest.sort_by(|one, other| other.direct_ns.total_cmp(&one.direct_ns));
        largest.truncate(max_pairs);
        PairWaits { matrix, largest, compared_causes }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::call_graph::CallGraph;
    use crate::job_calls::CollectiveWaits;
    use crate::small_job::{Act, run};

    const WORK: u32 = 1;

    #[test]
    fn pairs_add_up_to_the_direct_costs_of_each_rank() {
        // Rank 1 works longer, and rank 3 in every fifth step.
        let program = |rank: usize| {
            let of_step = move |step: usize| {
                let excess = match (rank, step % 5) {
                    (1, _) => 300_000,
                    (3, 0) => 900_000,
                    _ => 0,
                };
                [
                    Act::Step,
                    Act::Work(WORK, 1_000_000 + (rank * 31 + step * 17) as u64 % 1_000 + excess),
                    Act::Collective(CollectiveWaits::ForAll),
                ]
            };
            (0..40).flat_map(of_step).collect::<Vec<Act>>()
        };
        let programs: Vec<Vec<Act>> = (0..4).map(program).collect();
        let job = run(&programs, 2);
        let graph = CallGraph::new(&job).unwrap();
        let analysis = WaitAnalysis::new(&graph);
        let costs = analysis.delay_costs();
        let found = analysis.pair_waits(costs, (&[0, 1, 2, 3], 4), 5);
        for cause in 0..4 {
            let row: f64 = found.matrix[cause * 4..cause * 4 + 4].iter().sum();
            let direct_ns = costs.of_timeline(cause).direct_ns;
            assert!((row - direct_ns).abs() <= 1e-6 * direct_ns.max(1.0), "{cause}: {row} and {direct_ns}");
            assert_eq!(found.matrix[cause * 5], 0.0, "no rank delays itself");
        }
        assert_eq!((found.largest.len(), found.compared_causes), (5, None));
        assert!(found.largest.is_sorted_by(|one, other| one.direct_ns >= other.direct_ns));
        let first = found.largest[0];
        assert_eq!(first.cause, 1);
        assert_eq!(first.direct_ns, found.matrix[4 + first.waiting as usize]);
        let by_node = analysis.pair_waits(costs, (&[0, 0, 1, 1], 2), 0);
        let whole = |matrix: &[f64]| matrix.iter().sum::<f64>();
        assert!((whole(&by_node.matrix) - whole(&found.matrix)).abs() < 1.0);
        assert_eq!(by_node.largest, []);
    }
}
