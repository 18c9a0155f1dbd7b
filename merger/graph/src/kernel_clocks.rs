//! By how much clocks can be wrong about the kernels of collectives.

use crate::analysis::WaitAnalysis;
use crate::kernel_times::KernelTimes;
use std::collections::BTreeMap;

impl WaitAnalysis<'_> {
    /// Returns by how much clocks can be wrong about how much longer the slow kernels of collectives of these timelines take in
    /// the steps, ns: of the one for which that is most.
    pub(crate) fn kernel_clock_error_ns(&self, timelines: &[u32]) -> i64 {
        let (jobs, instances) = (&self.graph.job.timelines, self.graph.instances());
        let steps = self.table.step_blocks();
        let streams = timelines.iter().filter(|timeline| jobs[**timeline as usize].is_stream);
        let in_steps: BTreeMap<u32, _> = streams
            .map(|timeline| (*timeline, self.table.calls_in(&jobs[*timeline as usize], &steps)))
            .collect();
        if in_steps.is_empty() {
            return 0;
        }
        let kernels = KernelTimes::measure(self.graph.job, instances);
        let mut errors: BTreeMap<u32, u64> = BTreeMap::new();
        for instance in 0..instances.len() as u32 {
            for member in instances.members(instance) {
                let (timeline, call) = (member.timeline, member.call as usize);
                if in_steps.get(&timeline).is_some_and(|calls| calls.contains(&call)) {
                    let calls = &jobs[timeline as usize];
                    let error = kernels.error_ns(instance, calls, &calls.calls[call]);
                    let sum = errors.entry(timeline).or_default();
                    *sum = sum.saturating_add(error);
                }
            }
        }
        i64::try_from(errors.into_values().max().unwrap_or(0)).unwrap_or(i64::MAX)
    }
}
