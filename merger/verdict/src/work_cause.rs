//! Why the work of the named ranks takes longer, as far as the records show it.

use crate::analysed_run::AnalysedRun;
use crate::names::ranks_of;
use crate::shown_time::percent;
use rpd_calls::CpuWait;

use rpd_graph::JobFinding;
use serde_json::{Value as Json, json};

/// A cause is named if it explains at least this share of the excess.
const MIN_NAMED: f64 = 0.8;
/// A cause is likely if it explains at least this share of the excess.
const MIN_LIKELY: f64 = 0.5;
/// Minimum share of the steps in which the waiting of a thread is known.
const MIN_KNOWN: f64 = 0.8;

/// How long the named ranks waited for a CPU in the steps.
#[derive(Clone, Copy, PartialEq, Debug)]
struct CpuShortage {
    /// Share of the time of the named threads.
    share: f64,
    /// The same of another thread, in the median; `None` if it is known of no other.
    typical_share: Option<f64>,
    /// Share of the excess of their work that it explains.
    explained: f64,
}

/// Why the waiting of the named ranks for a CPU is not known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum UnknownShortage {
    /// No thread of the run has it recorded.
    NotRecorded,
    /// It is recorded for too small a part of the steps.
    TooShort,
}

/// The cause of a finding, as far as it was recorded.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct WorkCause {
    cpu: Result<CpuShortage, UnknownShortage>,
}

impl WorkCause {
    /// Examines a finding.
    pub(crate) fn of(found: &AnalysedRun<'_>, finding: &JobFinding) -> WorkCause {
        WorkCause { cpu: cpu_shortage(found, finding) }
    }

    /// Describes the cause, or what is excluded and what is not known. `found` and `finding` are those of
    /// [`WorkCause::of`].
    pub(crate) fn text(&self, found: &AnalysedRun<'_>, finding: &JobFinding) -> String {
        let shortage = match self.cpu {
            Ok(shortage) => shortage,
            Err(UnknownShortage::NotRecorded) => {
                return "not known: how long ranks waited for a CPU is not recorded (by rpd-collect --trace system, from the second \
                        second of a thread on), and other causes are not examined by this version"
                    .to_owned();
            }
            Err(UnknownShortage::TooShort) => {
                return "not known: how long ranks waited for a CPU is recorded for too small a part of the steps, and \
                        other causes are not examined by this version"
                    .to_owned();
            }
        };
        let one = ranks_of(found.calls, finding.subject.timelines()).len() == 1;
        let they = if one { "it" } else { "they" };
        let others = shortage
            .typical_share
            .map_or(String::new(), |share| format!(", other ranks for {}", percent(share)));
        let evidence = format!("{they} waited for one for {} of the steps{others}", percent(shortage.share));
        let explained = percent(shortage.explained.min(1.0));
        if shortage.explained >= MIN_NAMED {
            format!("too little CPU: {evidence}; this explains {explained} of the longer work")
        } else if shortage.explained >= MIN_LIKELY {
            format!(
                "too little CPU is likely: {evidence}; this explains {explained} of the longer work, and other causes are not \
                 examined by this version"
            )
        } else {
            format!("not a lack of CPU: {evidence}; other causes are not examined by this version")
        }
    }

    /// Returns the cause for machines.
    pub(crate) fn json(&self) -> Json {
        let shortage = self.cpu.ok();
        let explained = shortage.map_or(0.0, |shortage| shortage.explained);
        let is_excluded = shortage.is_some() && explained < MIN_LIKELY;
        json!({
            "kind": (explained >= MIN_LIKELY).then_some("cpu_wait"),
            "is_certain": explained >= MIN_NAMED,
            "excluded": if is_excluded { vec!["cpu_wait"] } else { Vec::new() },
            "not_known": if shortage.is_none() { vec!["cpu_wait"] } else { Vec::new() },
            "cpu_wait": shortage.map(|CpuShortage { share, typical_share, explained }| json!({
                "share": share, "typical_share": typical_share, "explained": explained,
            })),
        })
    }
}

fn cpu_shortage(found: &AnalysedRun<'_>, finding: &JobFinding) -> Result<CpuShortage, UnknownShortage> {
    if found.calls.cpu_waits.iter().all(Vec::is_empty) {
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
    })
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
    let waits = found.calls.cpu_waits.get(timeline as usize)?;
    let times = found.analysis.times_in_steps(timeline as usize, 0..found.calls.job.steps);
    let start_ns = found.analysis.step_start_ns(timeline as usize, 0);
    let (waited_ns, known_ns) =
        waited_between(waits, start_ns, start_ns.saturating_add_unsigned(times.length_ns));
    let is_known = known_ns > 0.0 && known_ns >= times.length_ns as f64 * MIN_KNOWN;
    is_known.then_some(StepWait { waited_ns, known_ns, work_ns: times.work_ns as f64 })
}

/// Returns how long a thread waited between two times, and how much of the time is known, ns.
fn waited_between(waits: &[CpuWait], from: i64, to: i64) -> (f64, f64) {
    let (mut waited_ns, mut known_ns) = (0.0, 0.0);
    for pair in waits.windows(2) {
        let (start, end) = (pair[0].start_ns.max(from), pair[1].start_ns.min(to));
        if start < end {
            known_ns += end.abs_diff(start) as f64;
            waited_ns += pair[0].share * end.abs_diff(start) as f64;
        }
    }
    (waited_ns, known_ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_counts_where_it_is_known() {
        let waits = [(100, 0.5), (200, 0.0), (300, 1.0), (400, 0.0)];
        let waits = waits.map(|(start_ns, share)| CpuWait { start_ns, share });
        assert_eq!(waited_between(&waits, 0, 1000), (150.0, 300.0));
        assert_eq!(waited_between(&waits, 150, 310), (35.0, 160.0));
        assert_eq!(waited_between(&waits, 400, 500), (0.0, 0.0));
        assert_eq!(waited_between(&[], 0, 500), (0.0, 0.0));
    }
}
