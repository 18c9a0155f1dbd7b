//! Why the work of the named ranks takes longer, as far as the records show it.

use crate::analysed_run::AnalysedRun;
use crate::cpu_shortage::{CpuShortage, UnknownShortage};
use crate::crowded_cpus::CrowdedCpus;
use crate::names::ranks_of;
use crate::python_cause::{PythonEvidence, PythonFindings};
use crate::shown_time::percent;
use rpd_graph::JobFinding;
use serde_json::{Value as Json, json};

/// A cause is named if it explains at least this share of the excess.
const MIN_NAMED: f64 = 0.8;
/// A cause is likely if it explains at least this share of the excess.
const MIN_LIKELY: f64 = 0.5;

/// A cause that is examined.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum CauseKind {
    CpuWait,
    GarbageCollection,
}

impl CauseKind {
    /// Returns its name for machines.
    fn name(self) -> &'static str {
        match self {
            CauseKind::CpuWait => "cpu_wait",
            CauseKind::GarbageCollection => "garbage_collection",
        }
    }
}

/// The cause of a finding, as far as it was recorded.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct WorkCause {
    cpu: Result<CpuShortage, UnknownShortage>,
    python: PythonFindings,
}

impl WorkCause {
    /// Examines a finding.
    pub(crate) fn of(found: &AnalysedRun<'_>, finding: &JobFinding) -> WorkCause {
        WorkCause { cpu: CpuShortage::of(found, finding), python: PythonFindings::of(found, finding) }
    }

    /// Returns the share of the longer work that each cause explains; `None` if it is not known.
    fn explained(&self) -> [(CauseKind, Option<f64>); 2] {
        [
            (CauseKind::CpuWait, self.cpu.ok().map(|shortage| shortage.explained)),
            (CauseKind::GarbageCollection, self.python.garbage.map(|part| part.explained.share)),
        ]
    }

    /// Returns the cause that explains most, at least half of the longer work, and its share.
    fn main_cause(&self) -> Option<(CauseKind, f64)> {
        let known = self.explained().into_iter().filter_map(|(kind, explained)| Some((kind, explained?)));
        known
            .filter(|(_, explained)| *explained >= MIN_LIKELY)
            .reduce(|one, other| if other.1 > one.1 { other } else { one })
    }

    /// Describes the cause, or what is excluded and what is not known, and then in which function of Python the work takes
    /// longer. `found` and `finding` are those of [`WorkCause::of`].
    pub(crate) fn texts(&self, found: &AnalysedRun<'_>, finding: &JobFinding) -> Vec<String> {
        let main = self.main_cause();
        let is_certain = main.is_some_and(|(_, explained)| explained >= MIN_NAMED);
        let function = match self.python.function {
            PythonEvidence::NotRecorded { is_python: true } if !is_certain => {
                Some("not known: Python functions are not recorded (rpd-collect --trace python)".to_owned())
            }
            evidence => evidence.text(found, finding),
        };
        let garbage = self
            .python
            .garbage
            .filter(|part| part.explained.share >= MIN_LIKELY)
            .and_then(|part| self.python.garbage_text(found, finding, part.explained.share >= MIN_NAMED));
        let cpu = Some(self.cpu_text(found, finding));
        let causes = match main {
            Some((CauseKind::GarbageCollection, _)) => [garbage, cpu],
            _ => [cpu, garbage],
        };
        causes.into_iter().chain([function]).flatten().collect()
    }

    fn cpu_text(&self, found: &AnalysedRun<'_>, finding: &JobFinding) -> String {
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
        let reason = shortage_reason(found, finding, shortage);
        let explained = percent(shortage.explained.min(1.0));
        if shortage.explained >= MIN_NAMED {
            format!("too little CPU: {evidence}; this explains {explained} of the longer work{reason}")
        } else if shortage.explained >= MIN_LIKELY {
            format!(
                "too little CPU is likely: {evidence}; this explains {explained} of the longer work, and other causes are not \
                 examined by this version{reason}"
            )
        } else {
            let rest = match self.python.garbage {
                None => "; other causes are not examined by this version",
                Some(part) if part.explained.share >= MIN_LIKELY => "",
                Some(_) => {
                    "; nor garbage collection of Python; other causes are not examined by this version"
                }
            };
            format!("not a lack of CPU: {evidence}{rest}")
        }
    }

    /// Returns the cause for machines.
    pub(crate) fn json(&self, found: &AnalysedRun<'_>) -> Json {
        let main = self.main_cause();
        let kinds = |is_wanted: &dyn Fn(CauseKind, Option<f64>) -> bool| -> Vec<&str> {
            let wanted =
                self.explained().into_iter().filter(|(kind, explained)| is_wanted(*kind, *explained));
            wanted.map(|(kind, _)| kind.name()).collect()
        };
        let is_excluded =
            |_: CauseKind, explained: Option<f64>| explained.is_some_and(|explained| explained < MIN_LIKELY);
        let is_unknown = |kind: CauseKind, explained: Option<f64>| {
            explained.is_none()
                && (kind != CauseKind::GarbageCollection || self.python.function.is_of_python())
        };
        json!({
            "kind": main.map(|(kind, _)| kind.name()),
            "is_certain": main.is_some_and(|(_, explained)| explained >= MIN_NAMED),
            "excluded": kinds(&is_excluded),
            "not_known": kinds(&is_unknown),
            "cpu_wait": self.cpu.ok().map(|CpuShortage { share, typical_share, explained, throttled }| json!({
                "share": share, "typical_share": typical_share, "explained": explained, "throttled": throttled,
            })),
            "garbage_collection": self.python.garbage_json(),
            "python": self.python.function.json(found),
        })
    }
}

/// Continues a sentence with the reason why ranks have too little CPU, as far as it is recorded.
fn shortage_reason(found: &AnalysedRun<'_>, finding: &JobFinding, shortage: CpuShortage) -> String {
    let throttled = shortage.throttled.filter(|throttled| *throttled >= MIN_LIKELY * shortage.share);
    let quota = throttled
        .map(|throttled| format!("; the CPU quota of a cgroup took {} of a CPU", percent(throttled)));
    let named = ranks_of(found.calls, finding.subject.timelines());
    let crowded = CrowdedCpus::find(found)
        .into_iter()
        .find(|crowded| crowded.ranks.iter().any(|rank| named.contains(rank)));
    let crowded = crowded.map(|crowded| format!("; {}", crowded.text()));
    quota.into_iter().chain(crowded).collect()
}
