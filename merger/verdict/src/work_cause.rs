//! Why the work of the named ranks takes longer, as far as the records show it.

use crate::analysed_run::AnalysedRun;
use crate::cause_evidence::{CauseEvidence, CauseKind};
use crate::cpu_shortage::cpu_evidence;
use crate::disk_wait::disk_evidence;
use crate::gpu_speed::gpu_speed_evidence;
use crate::more_work::more_work_evidence;
use crate::python_cause::{PythonEvidence, PythonFindings};
use crate::work_amounts::AmountComparison;
use rpd_calls::CallLabel;
use rpd_graph::JobFinding;
use serde_json::{Value as Json, json};

/// The evidence on the causes of a finding.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct WorkCause {
    /// By kind; without those that this finding cannot have.
    causes: Vec<CauseEvidence>,
    python: PythonEvidence,
}

impl WorkCause {
    /// Examines a finding.
    pub(crate) fn of(found: &AnalysedRun<'_>, finding: &JobFinding) -> WorkCause {
        let python = PythonFindings::of(found, finding);
        let label = finding.label.and_then(|label| found.calls.labels.get(label as usize));
        let is_of_gpu = matches!(label, Some(CallLabel::GpuWork(_)));
        let comparison = AmountComparison::of(found, finding, is_of_gpu);
        let causes = [
            // Work of a GPU needs neither CPU nor disk.
            (!is_of_gpu).then(|| cpu_evidence(found, finding)),
            (!is_of_gpu).then(|| disk_evidence(found, finding)),
            python.garbage_evidence(found, finding),
            more_work_evidence(found, finding, &comparison),
            gpu_speed_evidence(found, finding, &comparison),
        ];
        WorkCause { causes: causes.into_iter().flatten().collect(), python: python.function }
    }

    /// Returns the causes that explain most of the longer work, the best first.
    fn likely(&self) -> Vec<&CauseEvidence> {
        let mut likely: Vec<&CauseEvidence> =
            self.causes.iter().filter(|evidence| evidence.is_likely()).collect();
        likely.sort_by(|one, other| other.share().total_cmp(&one.share()));
        likely
    }

    /// Returns whether the best of the likely causes is shown by the records, and no other is likely. Others
    /// may be not known.
    fn is_certain(likely: &[&CauseEvidence]) -> bool {
        matches!(likely, [only] if only.is_shown())
    }

    /// Describes the causes, or what is excluded and what is not known, and then in which function of Python the work takes
    /// longer. `found` and `finding` are those of [`WorkCause::of`].
    pub(crate) fn texts(&self, found: &AnalysedRun<'_>, finding: &JobFinding) -> Vec<String> {
        let likely = self.likely();
        let is_certain = WorkCause::is_certain(&likely);
        let mut texts: Vec<String> = likely.iter().map(|evidence| evidence.naming_text(is_certain)).collect();
        if !is_certain {
            texts.extend(self.excluded_text());
        }
        texts.extend(self.not_known_text());
        texts.extend(self.python.text(found, finding));
        texts
    }

    fn excluded_text(&self) -> Option<String> {
        let excluded = self.causes.iter().filter(|evidence| evidence.is_excluded());
        let excluded: Vec<String> = excluded.map(CauseEvidence::excluded_text).collect();
        let rest = "; causes that no line names are not examined by this version";
        (!excluded.is_empty()).then(|| format!("not {}{rest}", excluded.join(", nor ")))
    }

    fn not_known_text(&self) -> Option<String> {
        let reasons = self.causes.iter().filter_map(|evidence| evidence.explained.as_ref().err());
        let reasons: Vec<&str> = reasons.map(String::as_str).collect();
        (!reasons.is_empty()).then(|| format!("not known: {}", reasons.join("; ")))
    }

    /// Returns the cause for machines.
    pub(crate) fn json(&self, found: &AnalysedRun<'_>) -> Json {
        let likely = self.likely();
        let main = likely.first();
        let keys = |is_wanted: fn(&CauseEvidence) -> bool| -> Vec<&str> {
            let wanted = self.causes.iter().filter(|evidence| is_wanted(evidence));
            wanted.map(|evidence| evidence.kind.key()).collect()
        };
        let mut object = json!({
            "kind": main.map(|evidence| evidence.kind.key()),
            "is_certain": WorkCause::is_certain(&likely),
            "excluded": keys(CauseEvidence::is_excluded),
            "not_known": keys(|evidence| evidence.explained.is_err()),
            "python": self.python.json(found),
        });
        for kind in CauseKind::ALL {
            let evidence = self.causes.iter().find(|evidence| evidence.kind == kind);
            object[kind.key()] = evidence.map_or(Json::Null, |evidence| evidence.json.clone());
        }
        object
    }
}
