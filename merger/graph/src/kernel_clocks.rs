//! By how much clocks can be wrong about the kernels of collectives.

use crate::analysis::WaitAnalysis;

impl WaitAnalysis<'_> {
    /// Returns by how much the clocks of these streams can make their kernels of collectives seem longer or shorter in the
    /// steps, ns, where these are longer than is typical.
    pub(crate) fn kernel_clock_error_ns(&self, timelines: &[u32]) -> i64 {
        let (table, jobs) = (&self.table, &self.graph.job.timelines);
        if jobs.iter().all(|timeline| timeline.node == jobs[0].node) {
            return 0;
        }
        let of_stream = |timeline: usize| -> u64 {
            let calls = &jobs[timeline];
            let in_steps = table.calls_in(calls, &table.step_blocks());
            let of_kernel = |call: usize| {
                let (block, slot) = (table.block_of(calls, call), self.times.slot(calls.calls[call].label));
                let is_longer = table.ns(timeline, block, slot) > table.typical_ns(timeline, block, slot);
                let bound_ns = calls.error_bound_at(calls.calls[call].enter_ns).unwrap_or(0);
                if is_longer { bound_ns.min(self.times.transfer_ns(timeline, call)) } else { 0 }
            };
            let kernels = calls.collective_kernels().map(|call| call as usize);
            kernels.filter(|call| in_steps.contains(call)).map(of_kernel).fold(0, u64::saturating_add)
        };
        let all = timelines.iter().map(|timeline| of_stream(*timeline as usize));
        i64::try_from(all.fold(0, u64::saturating_add)).unwrap_or(i64::MAX)
    }
}
