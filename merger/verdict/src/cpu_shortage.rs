//! How long the named ranks waited for a CPU, and how much of their longer work that explains.

use crate::analysed_run::AnalysedRun;
use crate::cause_evidence::{CauseEvidence, CauseKind, ExplainedShare, MIN_LIKELY};
use crate::crowded_cpus::CrowdedCpus;
use crate::finding_threads::{FindingThreads, MIN_KNOWN, UnknownWaits, steps_of};
use crate::lower_median::lower_median;
use crate::names::ranks_of;
use crate::shown_time::percent;
use rpd_graph::JobFinding;
use serde_json::json;

/// How long the named ranks waited for a CPU in the steps.
#[derive(Clone, Copy, PartialEq, Debug)]
struct CpuShortage {
    /// Share of the time of the named threads.
    share: f64,
    /// The same of another thread, in the median; `None` if it is known of no other.
    typical_share: Option<f64>,
    /// Share of the excess of their work that it explains.
    explained: f64,
    /// Time that quotas took from the processes of their cgroups, as a share of a CPU; `None` if they have no quota, or that
    /// is not recorded.
    throttled: Option<f64>,
}

/// Returns the evidence on a lack of CPU.
pub(crate) fn cpu_evidence(found: &AnalysedRun<'_>, finding: &JobFinding) -> CauseEvidence {
    let kind = CauseKind::CpuWait;
    if found.calls.cpus.iter().all(|cpus| cpus.waits.is_empty()) {
        let why = "waits for a CPU are not recorded (rpd-collect --trace system, on by default; the run must last some seconds)";
        return CauseEvidence::not_known(kind, why);
    }
    let shortage = match CpuShortage::of(found, finding) {
        Ok(shortage) => shortage,
        Err(unknown) => {
            return CauseEvidence::not_known(kind, unknown.text("waits for a CPU", "record longer"));
        }
    };
    let CpuShortage { share, typical_share, explained, throttled } = shortage;
    let is_one = ranks_of(found.calls, finding.subject.timelines()).len() == 1;
    let they = if is_one { "its thread with calls" } else { "their threads with calls" };
    let others = typical_share.map_or(String::new(), |share| format!(", other ranks for {}", percent(share)));
    CauseEvidence {
        kind,
        explained: Ok(ExplainedShare { share: explained, error: None }),
        facts: format!("{they} waited for one for {} of the steps{others}", percent(share)),
        reason: shortage.reason(found, finding),
        json: json!({
            "share": share, "typical_share": typical_share, "explained": explained, "throttled": throttled,
        }),
    }
}

impl CpuShortage {
    /// Examines a finding.
    fn of(found: &AnalysedRun<'_>, finding: &JobFinding) -> Result<CpuShortage, UnknownWaits> {
        let threads = FindingThreads::of(found, finding)?;
        let is_recorded = |timeline: u32| {
            found.calls.cpus.get(timeline as usize).is_some_and(|cpus| !cpus.waits.is_empty())
        };
        let waits = threads.waits(is_recorded, |timeline| wait_in_steps(found, timeline))?;
        let typical_share = lower_median(waits.others.iter().map(StepWait::share).collect());
        let sum = |of: fn(&StepWait) -> f64| waits.named.iter().map(of).sum::<f64>();
        // The waiting is assumed to be spread evenly over work and calls; only its part in work makes work longer.
        let lost = |wait: &StepWait| wait.work_ns * lost_share(wait.share(), typical_share.unwrap_or(0.0));
        Ok(CpuShortage {
            share: sum(|wait| wait.waited_ns) / sum(|wait| wait.known_ns),
            typical_share,
            explained: waits.named.iter().map(lost).sum::<f64>() / threads.excess_ns,
            throttled: threads
                .named
                .iter()
                .filter_map(|timeline| throttled_in_steps(found, *timeline))
                .reduce(f64::max),
        })
    }

    /// Continues a sentence with the reason why ranks have too little CPU, as far as it is recorded.
    fn reason(&self, found: &AnalysedRun<'_>, finding: &JobFinding) -> String {
        let throttled = self.throttled.filter(|throttled| *throttled >= MIN_LIKELY * self.share);
        let quota = throttled
            .map(|throttled| format!("; the CPU quota of a cgroup took {} of a CPU", percent(throttled)));
        let named = ranks_of(found.calls, finding.subject.timelines());
        let crowded = CrowdedCpus::find(found)
            .into_iter()
            .find(|crowded| crowded.ranks.iter().any(|rank| named.contains(rank)));
        let crowded = crowded.map(|crowded| format!("; {}", crowded.text()));
        quota.into_iter().chain(crowded).collect()
    }
}

/// Returns by which share of its time work would be shorter if a thread waited for a CPU for the `typical` share of the time
/// instead of this share, and ran for as long as it did.
fn lost_share(share: f64, typical: f64) -> f64 {
    let (ran, would_run) = ((1.0 - share).max(0.0), 1.0 - typical);
    if would_run > 0.0 { (1.0 - ran / would_run).max(0.0) } else { 0.0 }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_longer_by_what_a_thread_waits_more_than_others() {
        // Half of a core: the work takes twice as long.
        assert!((lost_share(0.5, 0.0) - 0.5).abs() < 1e-9);
        // Others have 80 % of a core, this thread 40 %: the same work takes twice as long, too.
        assert!((lost_share(0.6, 0.2) - 0.5).abs() < 1e-9);
        // All have half of a core: whoever works longer has more work.
        assert_eq!([lost_share(0.5, 0.5), lost_share(0.1, 0.5), lost_share(1.0, 1.0)], [0.0; 3]);
    }
}
