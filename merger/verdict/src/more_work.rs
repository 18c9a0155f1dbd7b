//! Whether the named ranks have more work than the others: more ranges or kernels, or larger kernels.

use crate::analysed_run::AnalysedRun;
use crate::cause_evidence::{CauseEvidence, CauseKind, ExplainedShare, MIN_LIKELY};
use crate::names::{label_text, ranks_of, step_word};
use crate::work_amounts::{AmountComparison, ComparedAmount};
use rpd_calls::CallLabel;
use rpd_graph::JobFinding;
use serde_json::json;

/// Examines whether the named ranks have more ranges, or their GPUs more or larger kernels. `None` if the finding is about
/// other work. `comparison` is that of the work of threads, or of streams if the finding is about these.
pub(crate) fn more_work_evidence(
    found: &AnalysedRun<'_>,
    finding: &JobFinding,
    comparison: &AmountComparison,
) -> Option<CauseEvidence> {
    let kind = CauseKind::MoreWork;
    match found.calls.labels.get(finding.label? as usize)? {
        CallLabel::Range(_) | CallLabel::GpuWork(_) => {}
        CallLabel::Between { .. } => {
            let why =
                "whether they have more work, as no ranges mark it (roctx ranges, recorded by rpd-collect)";
            return Some(CauseEvidence::not_known(kind, why));
        }
        _ => return None,
    }
    let of_label =
        |label: Option<u32>| comparison.compared.iter().filter(move |one| Some(one.label) == label);
    // Work that no other rank does, and kernels of collectives, have nothing to be compared with.
    of_label(finding.label).next()?;
    let sum = |part: fn(&ComparedAmount) -> f64, compared: &[ComparedAmount]| -> f64 {
        compared.iter().map(part).sum()
    };
    let excess_ns = match found.calls.labels.get(finding.label? as usize)? {
        CallLabel::GpuWork(_) => finding.excess_of_streams_ns(),
        _ => finding.excess_of_threads_ns(),
    };
    let Some(excess_ns) = excess_ns else {
        return Some(CauseEvidence::not_known(
            kind,
            "whether there is more work, as all work together is not longer",
        ));
    };
    let by_number = sum(ComparedAmount::by_number_ns, &comparison.compared) / excess_ns;
    let by_size = sum(ComparedAmount::by_size_ns, &comparison.compared) / excess_ns;
    let share = (sum(ComparedAmount::explained_ns, &comparison.compared) / excess_ns).max(0.0);
    // More ranges of which each takes less time may divide the same work otherwise.
    let is_comparable = share >= MIN_LIKELY || by_number + by_size < MIN_LIKELY;
    // The label of the finding, or the one of which there is most more work.
    let more = ComparedAmount::explained_ns;
    let most = comparison.compared.iter().max_by(|one, other| more(one).total_cmp(&more(other)));
    let label = most.filter(|_| share >= MIN_LIKELY).map(|most| most.label).or(finding.label);
    let of_label: Vec<ComparedAmount> = of_label(label).copied().collect();
    let is_by_size = share >= MIN_LIKELY && by_size > by_number;
    let facts = match is_by_size {
        true => size_facts(found, finding, label, &of_label),
        false => number_facts(found, finding, label, &of_label),
    };
    let explained = match is_comparable {
        true => Ok(ExplainedShare { share, error: None }),
        false => {
            Err(format!("whether there is more work, as more ranges or kernels take less time each: {facts}"))
        }
    };
    let mean = |figure: fn(&ComparedAmount) -> f64| {
        sum(figure, &of_label) / of_label.len() as f64 / f64::from(found.calls.job.steps.max(1))
    };
    let json = json!({
        "label": label_text(found.calls, label),
        "count": mean(|one| one.own.count),
        "typical_count": mean(|one| one.typical_count),
        "size_ratio": mean_size_ratio(&of_label),
        "explained": share,
    });
    Some(CauseEvidence { kind, explained, facts, reason: String::new(), json })
}

fn mean_size_ratio(compared: &[ComparedAmount]) -> Option<f64> {
    let ratios: Option<Vec<f64>> = compared.iter().map(|one| one.size_ratio).collect();
    ratios.filter(|ratios| !ratios.is_empty()).map(|ratios| ratios.iter().sum::<f64>() / ratios.len() as f64)
}

/// Returns the words for the named ranks and for the others: `it has`, `other ranks`.
fn subjects(found: &AnalysedRun<'_>, finding: &JobFinding) -> (&'static str, &'static str) {
    let is_one = ranks_of(found.calls, finding.subject.timelines()).len() == 1;
    (if is_one { "it has" } else { "they have" }, "other ranks")
}

/// Words the number of ranges or kernels: `it has range "row" 21 times a step, other ranks 20 times`.
fn number_facts(
    found: &AnalysedRun<'_>,
    finding: &JobFinding,
    label: Option<u32>,
    compared: &[ComparedAmount],
) -> String {
    let (they_have, others) = subjects(found, finding);
    let in_a_step = |count: fn(&ComparedAmount) -> f64| {
        let sum: f64 = compared.iter().map(count).sum();
        times(sum / compared.len() as f64 / f64::from(found.calls.job.steps.max(1)))
    };
    let (own, typical) = (in_a_step(|one| one.own.count), in_a_step(|one| one.typical_count));
    let (label, step) = (label_text(found.calls, label), step_word(found));
    match own == typical {
        true => format!("{they_have} {label} {own} a {step}, as {others}"),
        false => format!("{they_have} {label} {own} a {step}, {others} {typical}"),
    }
}

/// Words the size of kernels: `it has GPU work "gemm" of 1.20 times the size of that of other ranks`.
fn size_facts(
    found: &AnalysedRun<'_>,
    finding: &JobFinding,
    label: Option<u32>,
    compared: &[ComparedAmount],
) -> String {
    let (they_have, others) = subjects(found, finding);
    let ratio = mean_size_ratio(compared).unwrap_or(1.0);
    let label = label_text(found.calls, label);
    format!("{they_have} {label} of {ratio:.2} times the size of that of {others}")
}

/// Formats a mean number: `once`, `12 times`, `3.25 times`.
fn times(count: f64) -> String {
    if (count - 1.0).abs() < 0.005 {
        "once".to_owned()
    } else if (count - count.round()).abs() < 0.005 {
        format!("{count:.0} times")
    } else {
        format!("{count:.2} times")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers_have_no_decimals() {
        assert_eq!([1.0, 20.0, 3.25, 0.5].map(times), ["once", "20 times", "3.25 times", "0.50 times"]);
    }
}
