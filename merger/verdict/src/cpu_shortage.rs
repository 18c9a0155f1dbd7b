//! How long the named ranks waited for a CPU, and how much of their longer work that explains.

use crate::analysed_run::AnalysedRun;
use crate::cause_evidence::{CauseEvidence, CauseKind, ExplainedShare, MIN_LIKELY};
use crate::crowded_cpus::CrowdedCpus;
use crate::names::ranks_of;
use crate::shown_time::percent;
use rpd_graph::JobFinding;
use serde_json::json;

/// Minimum share of the steps in which the waits of a thread are known.
pub(crate) const MIN_KNOWN: f64 = 0.8;

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

/// Why the waiting of the named ranks for a CPU is not known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum UnknownShortage {
    /// No thread of the run has it recorded.
    NotRecorded,
    /// It is not recorded of the named threads.
    NotOfNamed,
    /// It is recorded of no other thread for most of the steps.
    NotOfOthers,
    /// It is recorded for too small a part of the steps.
    TooShort,
    /// All work of the named threads together is not longer than that of others, but that of their GPUs is.
    NoLongerWork,
}

impl UnknownShortage {
    /// Returns a clause with the reason, and how to record it.
    fn text(self) -> &'static str {
        match self {
            UnknownShortage::NotRecorded => {
                "waits for a CPU are not recorded (rpd-collect --trace system, on by default; the run must last some seconds)"
            }
            UnknownShortage::NotOfNamed => {
                "waits for a CPU are not recorded for all threads of the finding (record longer)"
            }
            UnknownShortage::NotOfOthers => {
                "waits for a CPU are recorded for under 80 % of the steps of every other rank (record longer)"
            }
            UnknownShortage::TooShort => {
                "waits for a CPU are recorded for under 80 % of the steps (record longer)"
            }
            UnknownShortage::NoLongerWork => {
                "whether there is a lack of CPU, as all work of the threads together is not longer than that of others"
            }
        }
    }
}

/// Returns the evidence on a lack of CPU.
pub(crate) fn cpu_evidence(found: &AnalysedRun<'_>, finding: &JobFinding) -> CauseEvidence {
    let kind = CauseKind::CpuWait;
    let shortage = match CpuShortage::of(found, finding) {
        Ok(shortage) => shortage,
        Err(unknown) => return CauseEvidence::not_known(kind, unknown.text()),
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
    fn of(found: &AnalysedRun<'_>, finding: &JobFinding) -> Result<CpuShortage, UnknownShortage> {
        if found.calls.cpus.iter().all(|cpus| cpus.waits.is_empty()) {
            return Err(UnknownShortage::NotRecorded);
        }
        let job = &found.calls.job;
        let is_thread = |timeline: &u32| !job.timelines[*timeline as usize].is_stream;
        let named: Vec<u32> = finding.subject.timelines().iter().copied().filter(is_thread).collect();
        let excess_ns = finding.excess_of_threads_ns().ok_or(UnknownShortage::NoLongerWork)?;
        let (mut waited_ns, mut known_ns, mut lost_ns) = (0.0, 0.0, 0.0);
        let others =
            (0..job.timelines.len() as u32).filter(|other| is_thread(other) && !named.contains(other));
        let has_others = others.clone().next().is_some();
        let mut others: Vec<f64> =
            others.filter_map(|other| wait_in_steps(found, other).map(|wait| wait.share())).collect();
        if has_others && others.is_empty() {
            return Err(UnknownShortage::NotOfOthers);
        }
        others.sort_by(f64::total_cmp);
        let typical_share = others.get(others.len().saturating_sub(1) / 2).copied();
        for timeline in &named {
            let is_recorded =
                found.calls.cpus.get(*timeline as usize).is_some_and(|cpus| !cpus.waits.is_empty());
            if !is_recorded {
                return Err(UnknownShortage::NotOfNamed);
            }
            let wait = wait_in_steps(found, *timeline).ok_or(UnknownShortage::TooShort)?;
            waited_ns += wait.waited_ns;
            known_ns += wait.known_ns;
            // The waiting is assumed to be spread evenly over work and calls; only its part in work makes work longer.
            lost_ns += wait.work_ns * lost_share(wait.share(), typical_share.unwrap_or(0.0));
        }
        if known_ns == 0.0 {
            return Err(UnknownShortage::TooShort);
        }
        Ok(CpuShortage {
            share: waited_ns / known_ns,
            typical_share,
            explained: lost_ns / excess_ns,
            throttled: named
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

/// Returns the start and the end of the steps of a thread, ns in job time.
pub(crate) fn steps_of(found: &AnalysedRun<'_>, timeline: u32) -> (i64, i64) {
    let length_ns = found.analysis.times_in_steps(timeline as usize, 0..found.calls.job.steps).length_ns;
    let start_ns = found.analysis.step_start_ns(timeline as usize, 0);
    (start_ns, start_ns.saturating_add_unsigned(length_ns))
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
