//! How long the named ranks waited for a CPU, and how much of their longer work that explains.

use crate::analysed_run::AnalysedRun;
use rpd_graph::JobFinding;

/// Minimum share of the steps in which the waiting of a thread is known.
const MIN_KNOWN: f64 = 0.8;

/// How long the named ranks waited for a CPU in the steps.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct CpuShortage {
    /// Share of the time of the named threads.
    pub(crate) share: f64,
    /// The same of another thread, in the median; `None` if it is known of no other.
    pub(crate) typical_share: Option<f64>,
    /// Share of the excess of their work that it explains.
    pub(crate) explained: f64,
    /// Time that quotas took from the processes of their cgroups, as a share of a CPU; `None` if they have no quota, or that
    /// is not recorded.
    pub(crate) throttled: Option<f64>,
}

/// Why the waiting of the named ranks for a CPU is not known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum UnknownShortage {
    /// No thread of the run has it recorded.
    NotRecorded,
    /// It is recorded for too small a part of the steps.
    TooShort,
}

impl CpuShortage {
    /// Examines a finding.
    pub(crate) fn of(found: &AnalysedRun<'_>, finding: &JobFinding) -> Result<CpuShortage, UnknownShortage> {
        if found.calls.cpus.iter().all(|cpus| cpus.waits.is_empty()) {
            return Err(UnknownShortage::NotRecorded);
        }
        let job = &found.calls.job;
        let is_thread = |timeline: &u32| !job.timelines[*timeline as usize].is_stream;
        let named: Vec<u32> = finding.subject.timelines().iter().copied().filter(is_thread).collect();
        let (mut waited_ns, mut known_ns, mut lost_ns) = (0.0, 0.0, 0.0);
        let mut others: Vec<f64> = (0..job.timelines.len() as u32)
            .filter(|other| is_thread(other) && !named.contains(other))
            .filter_map(|other| wait_in_steps(found, other).map(|wait| wait.share()))
            .collect();
        others.sort_by(f64::total_cmp);
        let typical_share = others.get(others.len().saturating_sub(1) / 2).copied();
        for timeline in &named {
            let wait = wait_in_steps(found, *timeline).ok_or(UnknownShortage::TooShort)?;
            waited_ns += wait.waited_ns;
            known_ns += wait.known_ns;
            // The waiting is assumed to be spread evenly over work and calls; only its part in work makes work longer.
            let beyond = (wait.share() - typical_share.unwrap_or(0.0)).max(0.0);
            lost_ns += beyond * wait.work_ns;
        }
        if known_ns == 0.0 || finding.excess_ns <= 0 {
            return Err(UnknownShortage::TooShort);
        }
        Ok(CpuShortage {
            share: waited_ns / known_ns,
            typical_share,
            explained: lost_ns / finding.excess_ns as f64,
            throttled: named
                .iter()
                .filter_map(|timeline| throttled_in_steps(found, *timeline))
                .reduce(f64::max),
        })
    }
}

/// Waiting of a thread for a CPU in the steps.
#[derive(Clone, Copy, Debug)]
struct StepWait {
    /// Time waited, ns.
    waited_ns: f64,
    /// Time of which the waiting is known, ns.
    known_ns: f64,
    /// Work in all steps, ns.
    work_ns: f64,
}

impl StepWait {
    fn share(&self) -> f64 {
        self.waited_ns / self.known_ns
    }
}

/// Returns the waiting of a thread; `None` if it is known for too small a part of the steps.
fn wait_in_steps(found: &AnalysedRun<'_>, timeline: u32) -> Option<StepWait> {
    let cpus = found.calls.cpus.get(timeline as usize)?;
    let times = found.analysis.times_in_steps(timeline as usize, 0..found.calls.job.steps);
    let (from, to) = steps_of(found, timeline);
    let (waited_ns, known_ns) = cpus.waited_between(from, to);
    let is_known = known_ns > 0.0 && known_ns >= times.length_ns as f64 * MIN_KNOWN;
    is_known.then_some(StepWait { waited_ns, known_ns, work_ns: times.work_ns as f64 })
}

/// Returns what quotas took from the cgroups of a thread in the steps, as a share of a CPU.
fn throttled_in_steps(found: &AnalysedRun<'_>, timeline: u32) -> Option<f64> {
    let (from, to) = steps_of(found, timeline);
    let (throttled_ns, known_ns) = found.calls.cpus.get(timeline as usize)?.throttled_between(from, to);
    (known_ns > 0.0).then(|| throttled_ns / known_ns)
}

/// Returns the start and the end of the steps of a thread, ns in job time.
fn steps_of(found: &AnalysedRun<'_>, timeline: u32) -> (i64, i64) {
    let length_ns = found.analysis.times_in_steps(timeline as usize, 0..found.calls.job.steps).length_ns;
    let start_ns = found.analysis.step_start_ns(timeline as usize, 0);
    (start_ns, start_ns.saturating_add_unsigned(length_ns))
}
