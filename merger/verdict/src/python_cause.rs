//! In which function of Python the work of the named ranks takes longer, and whether by garbage collection, as far as it was
//! sampled.

use crate::analysed_run::AnalysedRun;
use crate::cause_evidence::{CauseEvidence, CauseKind, ExplainedShare};
use crate::cut::cut_middle;
use crate::names::{label_text, process_of, ranks_of, short};
use crate::python_choice::{
    ChosenFunction, ComparedPart, LabelSamples, NotChosen, choose_function, compare_part,
};
use crate::sampled_share::SampledShare;
use crate::shown_time::{percent, points};
use rayon::prelude::*;
use rpd_calls::CallLabel;
use rpd_console::wording::grouped;
use rpd_graph::JobFinding;
use serde_json::{Value as Json, json};

/// Threads with less work under a label than this share of the longest are not compared, as for what is typical.
const MIN_COMPARED: f64 = 0.1;
/// Maximum number of characters of the name of a function, and of its file, in a sentence.
const MAX_FUNCTION_CHARS: usize = 32;

/// Name of the frame that collectors write while Python collects garbage, the innermost one. It has no file.
const GARBAGE_COLLECTION: &str = "<garbage collection>";

/// What samples of Python say about a finding.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct PythonFindings {
    pub(crate) function: PythonEvidence,
    /// The garbage collection; `None` if nothing is known of it.
    pub(crate) garbage: Option<ComparedPart>,
}

/// The function of Python in which work takes longer.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum PythonEvidence {
    /// The work takes longer in this function.
    Function(ChosenFunction),
    /// No function is named.
    NoFunction(NotChosen),
    /// Other threads do such work, and none of them has samples.
    OthersNotRecorded,
    /// The named threads have no samples. Whether they are of programs in Python.
    NotRecorded {
        /// Whether one of them is.
        is_python: bool,
    },
    /// The finding is not about work of threads under one label.
    NotApplicable,
}

impl PythonFindings {
    /// Examines a finding.
    pub(crate) fn of(found: &AnalysedRun<'_>, finding: &JobFinding) -> PythonFindings {
        let job = &found.calls.job;
        let kind = finding.label.and_then(|label| found.calls.labels.get(label as usize));
        let is_of_threads = matches!(kind, Some(CallLabel::Range(_) | CallLabel::Between { .. }));
        let Some(label) = finding.label.filter(|_| is_of_threads) else {
            return PythonEvidence::NotApplicable.alone();
        };
        let is_thread = |timeline: &u32| !job.timelines[*timeline as usize].is_stream;
        let named: Vec<u32> = finding.subject.timelines().iter().copied().filter(is_thread).collect();
        if named.is_empty() {
            return PythonEvidence::NotApplicable.alone();
        }
        let samples_of = |timeline: u32| found.calls.python.samples.get(timeline as usize);
        if named.iter().all(|timeline| samples_of(*timeline).is_none_or(Vec::is_empty)) {
            let is_python =
                |timeline: &u32| process_of(found.calls, *timeline).is_some_and(|process| process.is_python);
            return PythonEvidence::NotRecorded { is_python: named.iter().any(is_python) }.alone();
        }
        let Some((of_named, of_others)) = compared_samples(found, &named, &|work| work == label) else {
            return PythonEvidence::OthersNotRecorded.alone();
        };
        let stacks = &found.calls.python.stacks;
        // Garbage collection counts for the function that it interrupts.
        let frames = |stack: u32| {
            let frames = stacks.frames(stack).filter(|frame| !is_garbage_collection(found, frame.function));
            frames.map(|frame| (frame.function, frame.line)).collect()
        };
        let collects = |stack: u32| {
            stacks.frames(stack).next().is_some_and(|frame| is_garbage_collection(found, frame.function))
        };
        // It may interrupt any work.
        let of_all_work = compared_samples(found, &named, &|_| true);
        let garbage = of_all_work.and_then(|(named, others)| compare_part(&named, &others, &collects));
        let function = match choose_function(&of_named, &of_others, &frames) {
            Ok(function) => PythonEvidence::Function(function),
            Err(reason) => PythonEvidence::NoFunction(reason),
        };
        PythonFindings { function, garbage }
    }

    /// Returns the evidence on garbage collection; `None` if the program is not known to be one in Python.
    pub(crate) fn garbage_evidence(
        &self,
        found: &AnalysedRun<'_>,
        finding: &JobFinding,
    ) -> Option<CauseEvidence> {
        let kind = CauseKind::GarbageCollection;
        let not_known = |why: &str| Some(CauseEvidence::not_known(kind, why));
        let Some(ComparedPart { share, typical, explained }) = self.garbage else {
            return match self.function {
                PythonEvidence::NotApplicable | PythonEvidence::NotRecorded { is_python: false } => None,
                PythonEvidence::NotRecorded { is_python: true } => not_known(
                    "Python functions and garbage collection are not recorded (rpd-collect --trace python; if that was on, the log of the \
                     rank says why)",
                ),
                PythonEvidence::OthersNotRecorded => {
                    not_known("Python functions of other ranks with such work are not recorded")
                }
                PythonEvidence::Function(_) | PythonEvidence::NoFunction(_) => {
                    not_known("samples do not show whether garbage collection of Python explains it")
                }
            };
        };
        let comparison = match typical {
            Some(typical) => format!(", other ranks {} ({})", percent(typical.share), points(typical.error)),
            None => NOT_COMPARED.to_owned(),
        };
        Some(CauseEvidence {
            kind,
            explained: Ok(ExplainedShare { share: explained.share, error: Some(explained.error) }),
            facts: format!("{} of all work in this{comparison}", spent_text(found, finding, share)),
            reason: String::new(),
            json: json!({
                "share": share.share,
                "share_error": share.error,
                "typical_share": typical.map(|typical| typical.share),
                "typical_share_error": typical.map(|typical| typical.error),
                "explained": explained.share,
                "explained_error": explained.error,
            }),
        })
    }
}

/// No other thread has enough work to compare.
const NOT_COMPARED: &str = "; no other rank does a tenth of such work, so that the share is not compared";

/// Returns whether a function stands for garbage collection.
fn is_garbage_collection(found: &AnalysedRun<'_>, function: u32) -> bool {
    let function = found.calls.python.stacks.function(function);
    function.is_some_and(|function| function.name == GARBAGE_COLLECTION && function.file.is_empty())
}

impl PythonEvidence {
    fn alone(self) -> PythonFindings {
        PythonFindings { function: self, garbage: None }
    }

    /// Describes the evidence in a sentence, if there is something to say.
    pub(crate) fn text(&self, found: &AnalysedRun<'_>, finding: &JobFinding) -> Option<String> {
        let label = label_text(found.calls, finding.label);
        let chosen = match *self {
            PythonEvidence::Function(chosen) => chosen,
            PythonEvidence::NoFunction(NotChosen::TooFewSamples(count)) => {
                return Some(format!(
                    "too few Python samples of {label} to name a function: {}",
                    grouped(count)
                ));
            }
            PythonEvidence::NoFunction(NotChosen::NoSingleFunction(count)) => {
                return Some(format!(
                    "no single Python function explains the longer work, by {} samples of {label}",
                    grouped(count)
                ));
            }
            // The evidence on garbage collection says that they are not recorded.
            PythonEvidence::OthersNotRecorded
            | PythonEvidence::NoFunction(NotChosen::NotLonger)
            | PythonEvidence::NotRecorded { .. }
            | PythonEvidence::NotApplicable => return None,
        };
        let ChosenFunction { share, typical, explained, .. } = chosen;
        Some(format!(
            "in Python, {} of {label} in {}{}",
            spent_text(found, finding, share),
            function_text(found, chosen),
            comparison_text(share, typical, explained)
        ))
    }

    /// Returns the named function for machines; null if there is none.
    pub(crate) fn json(&self, found: &AnalysedRun<'_>) -> Json {
        let PythonEvidence::Function(chosen) = self else { return Json::Null };
        let function = found.calls.python.stacks.function(chosen.function);
        json!({
            "function": function.map(|function| &function.name),
            "file": function.map(|function| &function.file),
            "line": chosen.line,
            "share": chosen.share.share,
            "share_error": chosen.share.error,
            "typical_share": chosen.typical.map(|typical| typical.share),
            "typical_share_error": chosen.typical.map(|typical| typical.error),
            "explained": chosen.explained.share,
            "explained_error": chosen.explained.error,
            "samples": chosen.samples,
        })
    }
}

/// Words which share of their work the named ranks spend: `it spends 57 % (+- 3.4 points)`.
fn spent_text(found: &AnalysedRun<'_>, finding: &JobFinding, share: SampledShare) -> String {
    let is_one = ranks_of(found.calls, finding.subject.timelines()).len() == 1;
    let they = if is_one { "it spends" } else { "they spend" };
    format!("{they} {} ({})", percent(share.share), points(share.error))
}

/// Words the same share of other ranks, and how much of the longer work the difference explains. If they have the same share, the
/// function is where the work takes longer, and not why.
fn comparison_text(share: SampledShare, typical: Option<SampledShare>, explained: SampledShare) -> String {
    let is_equal =
        |typical: SampledShare| (share.share - typical.share).abs() <= share.error.hypot(typical.error);
    match typical {
        Some(typical) if is_equal(typical) => format!(
            ", other ranks {} ({}), the same within the errors: it takes longer there, for a reason that this does not show",
            percent(typical.share),
            points(typical.error)
        ),
        Some(typical) => format!(
            ", other ranks {} ({}); this explains {} ({}) of its longer time",
            percent(typical.share),
            points(typical.error),
            percent(explained.share.min(1.0)),
            points(explained.error)
        ),
        None => NOT_COMPARED.to_owned(),
    }
}

/// Returns the work of the named threads under some labels with the samples in it, as a mean, and that of each other thread
/// with as much of it. `None` if there are others, and none of them has samples.
fn compared_samples(
    found: &AnalysedRun<'_>,
    named: &[u32],
    counts: &(impl Fn(u32) -> bool + Sync),
) -> Option<(LabelSamples, Vec<LabelSamples>)> {
    let job = &found.calls.job;
    let threads: Vec<(u32, LabelSamples)> = (0..job.timelines.len() as u32)
        .into_par_iter()
        .filter(|timeline| !job.timelines[*timeline as usize].is_stream)
        .map(|timeline| (timeline, work_samples(found, timeline, counts)))
        .filter(|(_, samples)| samples.work_ns > 0.0)
        .collect();
    let longest = threads.iter().map(|(_, samples)| samples.work_ns).fold(0.0, f64::max);
    let (of_named, mut of_others): (Vec<_>, Vec<_>) =
        threads.into_iter().partition(|(timeline, _)| named.contains(timeline));
    of_others.retain(|(_, samples)| samples.work_ns >= longest * MIN_COMPARED);
    let sampled = |threads: Vec<(u32, LabelSamples)>| -> Vec<LabelSamples> {
        threads.into_iter().map(|(_, samples)| samples).filter(|samples| samples.count > 0).collect()
    };
    let has_others = !of_others.is_empty();
    let of_others = sampled(of_others);
    (!has_others || !of_others.is_empty()).then(|| (LabelSamples::joined(&sampled(of_named)), of_others))
}

/// Returns the work of a thread under some labels in the steps, with the samples in it.
fn work_samples(found: &AnalysedRun<'_>, timeline: u32, counts: &impl Fn(u32) -> bool) -> LabelSamples {
    let job = &found.calls.job;
    let calls = &job.timelines[timeline as usize];
    let (Some(first), Some(after)) = (calls.first_call_of_step.first(), calls.first_call_of_step.last())
    else {
        return LabelSamples::default();
    };
    let work = (*first..*after).flat_map(|call| calls.work_before(call as usize));
    let work_ns = work.filter(|work| counts(work.label)).map(|work| work.ns as f64).sum();
    let start_ns = found.analysis.step_start_ns(timeline as usize, 0);
    let end_ns =
        after.checked_sub(1).and_then(|call| calls.calls.get(call as usize)).map(|call| call.exit_ns());
    let samples = found.calls.python.samples.get(timeline as usize).map_or(&[][..], Vec::as_slice);
    let samples = samples.iter().filter(|sample| {
        counts(sample.label) && sample.time_ns >= start_ns && end_ns.is_some_and(|end| sample.time_ns < end)
    });
    LabelSamples::new(work_ns, samples.map(|sample| (sample.stack, f64::from(sample.weight))))
}

/// Names a function with the line at which most of its samples are: `Dataset.augment (data.py:88)`.
fn function_text(found: &AnalysedRun<'_>, chosen: ChosenFunction) -> String {
    let Some(function) = found.calls.python.stacks.function(chosen.function) else {
        return "a function".to_owned();
    };
    let file = function.file.rsplit('/').next().unwrap_or_default();
    let shorter = |name: &str| cut_middle(&short(name), MAX_FUNCTION_CHARS);
    let place = match (file, chosen.line) {
        ("", _) => String::new(),
        (file, 0) => format!(" ({})", shorter(file)),
        (file, line) => format!(" ({}:{line})", shorter(file)),
    };
    shorter(&function.name) + &place
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_equal_share_of_other_ranks_is_no_reason() {
        let of = |share: f64, error: f64| SampledShare { share, error };
        let text =
            |own: f64, typical: f64| comparison_text(of(own, 0.03), Some(of(typical, 0.03)), of(1.0, 0.1));
        assert!(text(1.0, 0.97).ends_with("it takes longer there, for a reason that this does not show"));
        let expected =
            ", other ranks 12 % (+- 3.0 points); this explains 100 % (+- 10 points) of its longer time";
        assert_eq!(text(0.61, 0.12), expected);
    }
}
