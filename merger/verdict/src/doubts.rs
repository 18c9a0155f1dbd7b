//! Why the waiting of single calls may be wrong.

use crate::analysed_run::AnalysedRun;
use crate::why_not::limit_reason;
use rpd_graph::DiagnosisLimit;

/// Returns why the waiting of single calls may be wrong. Fewer reasons count than against a verdict, which also needs
/// steps.
pub fn doubts(found: &AnalysedRun<'_>) -> Vec<String> {
    let reasons = if found.leaves_out_ranks {
        found.reasons.clone()
    } else {
        let is_doubt = |limit: &&DiagnosisLimit| match limit {
            DiagnosisLimit::Threads { .. }
            | DiagnosisLimit::Unmatched { .. }
            | DiagnosisLimit::ReplayOff { .. }
            | DiagnosisLimit::LongCalls { .. }
            | DiagnosisLimit::PollPauses { .. } => true,
            DiagnosisLimit::NoCalls | DiagnosisLimit::FewSteps { .. } | DiagnosisLimit::MethodsDisagree => {
                false
            }
        };
        found.diagnosis.limits.iter().filter(is_doubt).map(|limit| limit_reason(limit, found.calls)).collect()
    };
    reasons.iter().map(|reason| format!("the waiting may be wrong: {reason}")).collect()
}
