//! By how much clocks can be wrong about the kernels of collectives.

use crate::analysis::WaitAnalysis;
use crate::instances::Member;
use crate::job_calls::CollectiveWaits;
use crate::kernel_times::slow_kernel_error_ns;
use rayon::prelude::*;
use std::collections::BTreeMap;

impl WaitAnalysis<'_> {
    /// Returns by how much clocks can be wrong about how much longer the slow kernels of collectives of these timelines take in
    /// the steps, ns: the sum over the collectives, in each of the one for which that is most.
    pub(crate) fn kernel_clock_error_ns(&self, timelines: &[u32]) -> i64 {
        let (job, instances) = (self.graph.job, self.graph.instances());
        let steps = self.table.step_blocks();
        let streams = timelines.iter().filter(|timeline| job.timelines[**timeline as usize].is_stream);
        let in_steps: BTreeMap<u32, _> = streams
            .map(|timeline| (*timeline, self.table.calls_in(&job.timelines[*timeline as usize], &steps)))
            .collect();
        if in_steps.is_empty() {
            return 0;
        }
        let is_selected = |member: &Member| {
            in_steps.get(&member.timeline).is_some_and(|calls| calls.contains(&(member.call as usize)))
        };
        let error = |instance: u32| slow_kernel_error_ns(job, instances.members(instance), is_selected);
        let waits_for_all = |instance: &u32| instances.get(*instance).waits == CollectiveWaits::ForAll;
        let errors = (0..instances.len() as u32).into_par_iter().filter(waits_for_all).map(error);
        i64::try_from(errors.reduce(|| 0, u64::saturating_add)).unwrap_or(i64::MAX)
    }
}
