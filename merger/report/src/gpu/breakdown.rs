//! Where the time of a GPU went. docs/GPU.md has the formulas.

use super::work::GpuWork;
use crate::kernel_class::KernelClass;
use crate::statistics::{Distribution, IntervalUnion, length, overlap};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};

/// Times of a GPU that one process uses, ns.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct GpuTimes {
    /// First start and last end of its work.
    pub(super) span: (i64, i64),
    pub(super) kernels: u64,
    pub(super) copies: u64,
    /// Time with a kernel that neither communicates nor moves memory.
    pub(super) compute: i64,
    /// Time with a kernel that communicates.
    pub(super) communication: i64,
    /// Time with such a kernel and without one that computes.
    pub(super) exposed: i64,
    /// Time with copies or fills alone.
    pub(super) memory: i64,
    pub(super) idle: IdleTime,
    pub(super) launches: LaunchTimes,
    pub(super) classes: BTreeMap<KernelClass, ClassTime>,
}

/// Time without work between the first and the last work, by what it ended with.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(super) struct IdleTime {
    /// Work that was launched after the GPU had become idle.
    pub(super) late_launch: i64,
    /// Work that was launched before: it waited for something else than its launch.
    pub(super) launched_before: i64,
    /// Work of which the launch is not recorded.
    pub(super) unknown: i64,
}

impl IdleTime {
    pub(super) fn all(self) -> i64 {
        self.late_launch + self.launched_before + self.unknown
    }
}

/// Calls that launch work.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct LaunchTimes {
    /// Time from the end of a call to the start of its work, or 0 if that started before.
    pub(super) delays: Distribution,
    /// Number of kernels that took less time than their call, if that launched nothing else.
    pub(super) short_kernels: u64,
}

/// Kernels of a class.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(super) struct ClassTime {
    pub(super) kernels: u64,
    /// Sum of durations.
    pub(super) total: i128,
}

impl GpuTimes {
    /// Computes the times of work that is sorted by start; `None` if there is none.
    pub(super) fn of(work: &[GpuWork]) -> Option<GpuTimes> {
        let first = work.first()?.start;
        let last = work.iter().map(|one| one.end).max()?;
        let of_class = |is_of: &dyn Fn(KernelClass) -> bool| {
            let mut union = IntervalUnion::default();
            work.iter().filter(|one| is_of(one.class)).for_each(|one| union.add(one.start, one.end));
            union
        };
        let is_compute = |class| !matches!(class, KernelClass::Communication | KernelClass::Memory);
        let compute = of_class(&is_compute).into_intervals();
        let communication = of_class(&|class| class == KernelClass::Communication).into_intervals();
        let memory = of_class(&|class| class == KernelClass::Memory).into_intervals();
        let kernels = of_class(&|class| class != KernelClass::Memory).into_intervals();
        let busy = of_class(&|_| true).into_intervals();
        let mut times = GpuTimes {
            span: (first, last),
            kernels: work.iter().filter(|one| one.is_kernel).count() as u64,
            copies: work.iter().filter(|one| !one.is_kernel).count() as u64,
            compute: length(&compute),
            communication: length(&communication),
            exposed: length(&communication) - overlap(&communication, &compute),
            memory: length(&memory) - overlap(&memory, &kernels),
            idle: idle_time(work, (first, last), &busy),
            launches: launch_times(work),
            ..GpuTimes::default()
        };
        for one in work.iter().filter(|one| one.is_kernel) {
            let class = times.classes.entry(one.class).or_default();
            class.kernels += 1;
            class.total += i128::from(one.end - one.start);
        }
        Some(times)
    }

    /// Returns the time from the first to the last work.
    pub(super) fn length(&self) -> i64 {
        self.span.1 - self.span.0
    }
}

/// Divides the time of the span that is in none of the `busy` intervals of work. Work without a duration is in none.
fn idle_time(work: &[GpuWork], span: (i64, i64), busy: &[(i64, i64)]) -> IdleTime {
    let mut idle = IdleTime::default();
    let mut next = 0;
    let ends = std::iter::once(span.0).chain(busy.iter().map(|(_, end)| *end));
    let starts = busy.iter().map(|(start, _)| *start).chain([span.1]);
    for (from, to) in ends.zip(starts).filter(|(from, to)| from < to) {
        while work.get(next).is_some_and(|one| one.start < to) {
            next += 1;
        }
        let begins = work[next..].iter().take_while(|one| one.start == to);
        let launched = begins.filter_map(|one| one.launch).map(|(_, end)| end).min();
        let part = match launched {
            None => &mut idle.unknown,
            Some(end) if end > from => &mut idle.late_launch,
            Some(_) => &mut idle.launched_before,
        };
        *part += to - from;
    }
    idle
}

fn launch_times(work: &[GpuWork]) -> LaunchTimes {
    let mut times = LaunchTimes::default();
    // A call may launch several kernels, as those of a graph.
    let mut launched: HashMap<(i64, i64), u64> = HashMap::new();
    for (one, (start, end)) in work.iter().filter_map(|one| Some((one, one.launch?))) {
        times.delays.add((one.start - end).max(0));
        *launched.entry((start, end)).or_default() += 1;
    }
    for (one, call) in work.iter().filter_map(|one| Some((one, one.launch?))) {
        let is_short = one.is_kernel && one.end - one.start < call.1 - call.0;
        times.short_kernels += u64::from(is_short && launched.get(&call) == Some(&1));
    }
    times
}

#[cfg(test)]
mod tests {
    use super::*;

    fn work(class: KernelClass, start: i64, end: i64, launch: Option<(i64, i64)>) -> GpuWork {
        GpuWork { start, end, class, is_kernel: class != KernelClass::Memory, launch }
    }

    #[test]
    fn parts_of_the_time_of_a_gpu_add_up_to_its_length() {
        let all = [
            work(KernelClass::Gemm, 100, 200, Some((50, 60))),
            work(KernelClass::Communication, 150, 260, None),
            work(KernelClass::Memory, 250, 300, Some((240, 245))),
            work(KernelClass::Gemm, 400, 450, Some((310, 330))),
            work(KernelClass::Other, 500, 505, Some((440, 448))),
            work(KernelClass::Other, 600, 610, None),
        ];
        let times = GpuTimes::of(&all).unwrap();
        assert_eq!((times.compute, times.communication, times.exposed, times.memory), (165, 110, 60, 40));
        assert_eq!(times.idle, IdleTime { late_launch: 100, launched_before: 50, unknown: 95 });
        assert_eq!(times.compute + times.exposed + times.memory + times.idle.all(), times.length());
        assert_eq!(times.launches.short_kernels, 1);
        let summary = times.launches.delays.summary().unwrap();
        assert_eq!((summary.count, summary.min, summary.max), (4, 5, 70));
        assert!(GpuTimes::of(&[]).is_none());
        let edges = [(0, 0), (100, 200), (250, 250)];
        let edges = edges.map(|(start, end)| work(KernelClass::Other, start, end, None));
        let times = GpuTimes::of(&edges).unwrap();
        assert_eq!((times.length(), times.compute, times.idle.unknown), (250, 100, 150));
    }
}
