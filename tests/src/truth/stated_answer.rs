//! Answers about a run, stated by the analysis of its calls or by a report.

use super::call_recorder::ModelledCalls;
use super::program::Program;
use crate::truth_real::{Finding, Gain, LongerWorkCause, ReportFindings};
use rpd_graph::{
    FindingSubject, JobDiagnosis, JobFinding, JobVerdict, NetworkFinding, NetworkSubject, StepPattern,
    WhatIfGain,
};

/// An answer, by the ranks and ranges of the program.
#[derive(Clone, Debug)]
pub struct StatedAnswer {
    /// Whether the verdict is "cannot tell".
    pub is_unknown: bool,
    /// The causes that are named, in order.
    pub findings: Vec<StatedFinding>,
    /// Messages that take longer.
    pub network: Option<StatedNetwork>,
    /// Gain by typical work before the first step.
    pub gain_of_start_up: WhatIfGain,
    /// The verdict and its reasons, for a person.
    pub text: String,
}

/// Messages that take longer with a node.
#[derive(Clone, PartialEq, Debug)]
pub struct StatedNetwork {
    /// The node; both, if it is the link between two.
    pub nodes: Vec<u32>,
    /// Time by which the run would be shorter.
    pub gain: WhatIfGain,
    /// Whether the first line names them.
    pub is_first: bool,
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
    /// Why the work takes longer, if that is stated as certain, or as likely where it never is certain. The analysis of calls alone states no causes.
    pub work_cause: Option<String>,
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
            work_cause: None,
        };
        let subject = diagnosis.findings.first().map(|finding| &finding.subject);
        StatedAnswer {
            is_unknown: diagnosis.verdict == JobVerdict::CannotTell,
            findings: diagnosis.findings.iter().map(finding).collect(),
            network: diagnosis.network.as_ref().map(|found| StatedNetwork {
                nodes: nodes_of(found),
                gain: found.gain,
                is_first: diagnosis.is_network_first(),
            }),
            gain_of_start_up: diagnosis.gain_of_start_up,
            text: format!(
                "{:?} {subject:?} {:?} {:?}",
                diagnosis.verdict, diagnosis.network, diagnosis.limits
            ),
        }
    }

    pub(super) fn of_report(report: &ReportFindings, program: &Program) -> StatedAnswer {
        let of_work = report.findings.iter().filter(|finding| finding.kind != "network");
        let findings: Vec<StatedFinding> =
            of_work.map(|finding| StatedFinding::of_report(finding, program)).collect();
        let ranks = findings.first().map(|finding| &finding.ranks);
        let cause = findings.first().and_then(|finding| finding.work_cause.as_deref());
        let node_of_host =
            |host: &String| host.trim_start_matches(|c: char| !c.is_ascii_digit()).parse().ok();
        let network = report.network.as_ref().and_then(|network| {
            Some(StatedNetwork {
                nodes: network.hosts.iter().filter_map(node_of_host).collect(),
                gain: gain(network.gain.as_ref()?),
                is_first: report.findings.first().is_some_and(|finding| finding.kind == "network"),
            })
        });
        StatedAnswer {
            network,
            is_unknown: report.verdict == "cannot_tell",
            gain_of_start_up: report.gain_of_start_up.as_ref().map_or(WhatIfGain::default(), gain),
            text: format!("{} {ranks:?} {cause:?} {:?}", report.verdict, report.reasons),
            findings,
        }
    }
}

impl StatedFinding {
    fn of_report(finding: &Finding, program: &Program) -> StatedFinding {
        let ranks = finding.subject.ranks.clone();
        let node = ranks.first().map(|rank| program.node_of(*rank)).filter(|_| finding.kind == "node");
        let label = finding.label.as_ref().filter(|label| label.kind == "range" || label.kind == "gpu_work");
        let (when, cause) = (finding.when.as_ref(), finding.cause.as_ref());
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
            work_cause: cause.filter(|cause| is_stated(cause)).and_then(|cause| cause.kind.clone()),
        }
    }
}

fn nodes_of(found: &NetworkFinding) -> Vec<u32> {
    match found.messages.subject {
        NetworkSubject::Node(node) => vec![node],
        NetworkSubject::Link(one, other) => vec![one, other],
    }
}

fn gain(gain: &Gain) -> WhatIfGain {
    WhatIfGain { ns: gain.ns, error_bound_ns: gain.error_bound_ns }
}

/// Whether a cause is certain, or one that is never more than likely.
fn is_stated(cause: &LongerWorkCause) -> bool {
    let never_certain = ["gpu_not_clock", "gpu_slower"];
    cause.is_certain || cause.kind.as_deref().is_some_and(|kind| never_certain.contains(&kind))
}
