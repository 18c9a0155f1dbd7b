//! Answers about a run, stated by the analysis of its calls or by a report.

use super::call_recorder::ModelledCalls;
use super::program::Program;
use crate::truth_real::{Finding, Gain, ReportFindings};
use rpd_graph::{FindingSubject, JobDiagnosis, JobFinding, JobVerdict, StepPattern, WhatIfGain};

/// An answer, by the ranks and ranges of the program.
#[derive(Clone, Debug)]
pub struct StatedAnswer {
    /// Whether the verdict is "cannot tell".
    pub is_unknown: bool,
    /// The causes that are named, in order.
    pub findings: Vec<StatedFinding>,
    /// Gain by typical work before the first step.
    pub gain_of_start_up: WhatIfGain,
    /// The verdict and its reasons, for a person.
    pub text: String,
}

/// A cause that is named.
#[derive(Clone, Debug)]
pub struct StatedFinding {
    /// Its ranks, in order.
    pub ranks: Vec<u32>,
    /// The node of which it is all.
    pub node: Option<u32>,
    /// Range or kernel with the excess.
    pub range: Option<String>,
    /// The steps with the excess.
    pub pattern: StepPattern,
    /// Time by which the run would be shorter.
    pub gain: WhatIfGain,
    /// Whether the gain is a limit.
    pub is_at_most: bool,
}

impl StatedAnswer {
    pub(super) fn of_diagnosis(diagnosis: &JobDiagnosis, calls: &ModelledCalls) -> StatedAnswer {
        let finding = |finding: &JobFinding| StatedFinding {
            ranks: finding.subject.timelines().to_vec(),
            node: match finding.subject {
                FindingSubject::Node { node, .. } => Some(node),
                FindingSubject::Timelines(_) => None,
            },
            range: finding.label.and_then(|label| calls.range(label)).map(str::to_owned),
            pattern: finding.pattern,
            gain: finding.gain,
            is_at_most: finding.is_at_most,
        };
        let subject = diagnosis.findings.first().map(|finding| &finding.subject);
        StatedAnswer {
            is_unknown: diagnosis.verdict == JobVerdict::CannotTell,
            findings: diagnosis.findings.iter().map(finding).collect(),
            gain_of_start_up: diagnosis.gain_of_start_up,
            text: format!("{:?} {subject:?} {:?}", diagnosis.verdict, diagnosis.limits),
        }
    }

    pub(super) fn of_report(report: &ReportFindings, program: &Program) -> StatedAnswer {
        let findings: Vec<StatedFinding> =
            report.findings.iter().map(|finding| StatedFinding::of_report(finding, program)).collect();
        let ranks = findings.first().map(|finding| &finding.ranks);
        StatedAnswer {
            is_unknown: report.verdict == "cannot_tell",
            gain_of_start_up: report.gain_of_start_up.as_ref().map_or(WhatIfGain::default(), gain),
            text: format!("{} {ranks:?} {:?}", report.verdict, report.reasons),
            findings,
        }
    }
}

impl StatedFinding {
    fn of_report(finding: &Finding, program: &Program) -> StatedFinding {
        let ranks = finding.subject.ranks.clone();
        let node = ranks.first().map(|rank| program.node_of(*rank)).filter(|_| finding.kind == "node");
        let label = finding.label.as_ref().filter(|label| label.kind == "range" || label.kind == "gpu_work");
        let when = finding.when.as_ref();
        let pattern = match when.map(|when| (when.pattern.as_str(), when.first_step, when.last_step)) {
            Some(("steady", ..)) => StepPattern::Steady,
            Some(("stretch", Some(from), Some(to))) => StepPattern::Stretch { from, to },
            _ => StepPattern::Irregular,
        };
        StatedFinding {
            ranks,
            node,
            range: label.and_then(|label| label.name.clone()),
            pattern,
            gain: finding.gain.as_ref().map_or(WhatIfGain::default(), gain),
            is_at_most: finding.gain.as_ref().is_some_and(|gain| gain.bound == "at_most"),
        }
    }
}

fn gain(gain: &Gain) -> WhatIfGain {
    WhatIfGain { ns: gain.ns, error_bound_ns: gain.error_bound_ns }
}
