//! Asks the analysis about a scenario, and compares what it says with what is true.

use super::call_recorder::{CallRecording, DroppedCalls};
use super::clock_errors::ClockErrors;
use super::conditions::PlantedExcess;
use super::recorder::Unrecorded;
use super::run_shards::write_scenario;
use super::scenario::{CausePattern, NamedCause, PlantedCost, Scenario};
use super::stated_answer::{StatedAnswer, StatedFinding};
use crate::synthetic::RandomSource;
use crate::truth_real::report_findings;
use rpd_graph::{CallGraph, CallsError, StepPattern, WaitAnalysis, WhatIfGain};
use std::error::Error;

/// What happens to the records of a scenario.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum RecordTreatment {
    /// Nothing.
    Complete,
    /// 28: clocks are off, drift and jump.
    WrongClocks,
    /// 29: small rings drop calls.
    DroppedCalls,
}

impl RecordTreatment {
    /// All.
    pub const ALL: [RecordTreatment; 3] =
        [RecordTreatment::Complete, RecordTreatment::WrongClocks, RecordTreatment::DroppedCalls];

    /// Returns its name.
    pub fn name(self) -> &'static str {
        match self {
            RecordTreatment::Complete => "complete",
            RecordTreatment::WrongClocks => "28 wrong clocks",
            RecordTreatment::DroppedCalls => "29 dropped calls",
        }
    }

    /// Returns how the calls of a scenario are recorded.
    pub fn recording(self, scenario: &Scenario) -> CallRecording {
        let seed = scenario.size.seed;
        match self {
            RecordTreatment::Complete => CallRecording {
                clocks: ClockErrors { error_bound_ns: Some(1_000), ..ClockErrors::default() },
                ..CallRecording::default()
            },
            RecordTreatment::WrongClocks => {
                let length_ns = scenario.run(PlantedExcess::All, &mut Unrecorded).length_ns;
                let clocks = ClockErrors::drawn(scenario.program.nodes(), length_ns, seed);
                CallRecording { clocks, ..CallRecording::default() }
            }
            RecordTreatment::DroppedCalls => CallRecording {
                dropped: drawn_drops(scenario),
                ..RecordTreatment::Complete.recording(scenario)
            },
        }
    }
}

/// Calls that a full ring drops at once.
const BURST_CALLS: (i64, i64) = (2, 24);

/// Draws bursts of dropped calls, one or more, in up to a quarter of the ranks.
fn drawn_drops(scenario: &Scenario) -> Vec<DroppedCalls> {
    let mut random = RandomSource::new(&[scenario.size.seed, 29]);
    let calls = i64::from(scenario.program.steps).max(40);
    let count = 1 + random.index(scenario.program.ranks.div_ceil(4) as usize);
    let burst = |_| {
        let rank = random.index(scenario.program.ranks as usize) as u32;
        let first = random.between(4, calls) as u64;
        DroppedCalls { rank, calls: first..first + random.between(BURST_CALLS.0, BURST_CALLS.1) as u64 }
    };
    (0..count).map(burst).collect()
}

/// How an answer compares with the right one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AnswerVerdict {
    /// What is to be named is named first.
    Right,
    /// Something is to be named, and nothing or only a part of it is.
    Missed,
    /// The analysis says that it cannot tell, and the records do not show it.
    RightlyUnknown,
    /// The analysis says that it cannot tell, though the records show it.
    Unknown,
    /// A rank is named that is not the cause.
    WrongName,
    /// A rank is named where nobody is the cause.
    FalseAlarm,
    /// A finding states as certain why the work takes longer, and that is wrong.
    WrongCause,
}

impl AnswerVerdict {
    /// All.
    pub const ALL: [AnswerVerdict; 7] = [
        AnswerVerdict::Right,
        AnswerVerdict::Missed,
        AnswerVerdict::RightlyUnknown,
        AnswerVerdict::Unknown,
        AnswerVerdict::WrongName,
        AnswerVerdict::FalseAlarm,
        AnswerVerdict::WrongCause,
    ];

    /// Returns its name.
    pub fn name(self) -> &'static str {
        match self {
            AnswerVerdict::Right => "right",
            AnswerVerdict::Missed => "missed",
            AnswerVerdict::RightlyUnknown => "cannot be told",
            AnswerVerdict::Unknown => "cannot tell",
            AnswerVerdict::WrongName => "wrong name",
            AnswerVerdict::FalseAlarm => "false alarm",
            AnswerVerdict::WrongCause => "wrong cause",
        }
    }
}

/// The answer to a scenario, judged.
#[derive(Clone, Debug)]
pub struct JudgedAnswer {
    /// How it compares.
    pub verdict: AnswerVerdict,
    /// Whether the range with the excess is the one that is named; `None` if none is named.
    pub has_range: Option<bool>,
    /// Whether the pattern over the steps is right; `None` if nothing is named.
    pub has_pattern: Option<bool>,
    /// Stated gain and its error bound, ns, where a gain is stated that is known.
    pub gain: Option<(i64, i64)>,
    /// What is true.
    pub cost: PlantedCost,
    /// The stated answer.
    pub stated: StatedAnswer,
}

impl JudgedAnswer {
    /// Returns the error of the gain as a share of the run.
    pub fn gain_error(&self) -> Option<f64> {
        let (ns, _) = self.gain?;
        Some((ns - self.cost.gain_ns).unsigned_abs() as f64 / self.cost.length_ns.max(1) as f64)
    }

    /// Returns whether the stated interval contains the true gain.
    pub fn covers_gain(&self) -> Option<bool> {
        let (ns, bound) = self.gain?;
        Some((ns - self.cost.gain_ns).abs() <= bound)
    }
}

/// Largest difference of a stated limit of a phase, steps.
const MAX_PHASE_ERROR: u32 = 2;
/// Largest error of the gain of the start-up as a share of the run.
const MAX_START_UP_ERROR: f64 = 0.03;
/// A limit of the gain may be that much above the true one, as a share of the run.
const MAX_LIMIT_EXCESS: f64 = 0.05;

/// Runs the analysis on the calls of a scenario.
///
/// # Errors
/// [`CallsError`], if the calls are refused.
pub fn judge(scenario: &Scenario, treatment: RecordTreatment) -> Result<JudgedAnswer, CallsError> {
    let calls = scenario.calls(&treatment.recording(scenario));
    let graph = CallGraph::new(&calls.job)?;
    let diagnosis = WaitAnalysis::new(&graph).diagnose();
    Ok(compare(scenario, treatment, StatedAnswer::of_diagnosis(&diagnosis, &calls)))
}

/// Writes the shards of a scenario, and runs `rpd-report` on them. The clocks of its nodes differ in any case.
///
/// # Errors
/// If shards cannot be written, or `rpd-report` is not built or fails.
pub fn judge_shards(scenario: &Scenario, treatment: RecordTreatment) -> Result<JudgedAnswer, Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let run = write_scenario(scenario, &treatment.recording(scenario).dropped, folder.path())?;
    let report = report_findings(&run).ok_or("rpd-report is not built")??;
    let answer = compare(scenario, treatment, StatedAnswer::of_report(&report, &scenario.program));
    let verdict = judge_work_cause(scenario.expected.work_cause, &answer);
    Ok(JudgedAnswer { verdict, ..answer })
}

/// Returns the verdict on an answer with the causes that its findings state. One that was not planted is wrong, and the
/// planted one must be stated with a right answer.
fn judge_work_cause(planted: Option<&str>, answer: &JudgedAnswer) -> AnswerVerdict {
    let findings = &answer.stated.findings;
    let is_wrong =
        |finding: &StatedFinding| finding.work_cause.is_some() && finding.work_cause.as_deref() != planted;
    let is_stated = || findings.first().is_some_and(|first| first.work_cause.as_deref() == planted);
    match answer.verdict {
        verdict @ (AnswerVerdict::WrongName | AnswerVerdict::FalseAlarm) => verdict,
        _ if findings.iter().any(is_wrong) => AnswerVerdict::WrongCause,
        AnswerVerdict::Right if planted.is_some() && !is_stated() => AnswerVerdict::Missed,
        verdict => verdict,
    }
}

fn compare(scenario: &Scenario, treatment: RecordTreatment, stated: StatedAnswer) -> JudgedAnswer {
    let cost = scenario.cost();
    let expected = &scenario.expected;
    let finding = stated.findings.first();
    // Wrong clocks hide how long messages take.
    let may_be_unknown = expected.may_be_unknown
        || treatment == RecordTreatment::DroppedCalls
        || treatment == RecordTreatment::WrongClocks && matches!(expected.cause, NamedCause::Network(_));
    let verdict = match (&expected.cause, finding) {
        (NamedCause::Network(node), _) if stated.network.is_some() => judge_network(*node, &stated),
        (_, _) if stated.network.is_some() => AnswerVerdict::FalseAlarm,
        (_, None) if stated.is_unknown => match may_be_unknown {
            true => AnswerVerdict::RightlyUnknown,
            false => AnswerVerdict::Unknown,
        },
        (NamedCause::Nobody, None) => AnswerVerdict::Right,
        (NamedCause::StartUp, None) => {
            let of_start_up = stated.gain_of_start_up.ns;
            let error = (of_start_up - cost.gain_ns).unsigned_abs() as f64 / cost.length_ns.max(1) as f64;
            if error <= MAX_START_UP_ERROR { AnswerVerdict::Right } else { AnswerVerdict::Missed }
        }
        (NamedCause::Network(_), None) if may_be_unknown => AnswerVerdict::RightlyUnknown,
        (_, None) => AnswerVerdict::Missed,
        (NamedCause::Nobody | NamedCause::StartUp | NamedCause::Network(_), Some(_)) => {
            AnswerVerdict::FalseAlarm
        }
        (cause, Some(_)) => judge_subjects(scenario, cause, &stated.findings),
    };
    let verdict = match (&expected.cause, finding) {
        (NamedCause::AtMost(_), Some(finding)) if verdict == AnswerVerdict::Right => {
            let above = (finding.gain.ns - cost.gain_ns) as f64 / cost.length_ns.max(1) as f64;
            let holds = finding.is_at_most && above.abs() <= MAX_LIMIT_EXCESS;
            if holds { verdict } else { AnswerVerdict::Missed }
        }
        _ => verdict,
    };
    let is_known = verdict == AnswerVerdict::Right;
    let gain = match expected.cause {
        NamedCause::StartUp => Some(stated.gain_of_start_up),
        NamedCause::Network(_) => stated.network.as_ref().map(|network| network.gain),
        // The gain of each finding is what remains when those before it are gone.
        _ => finding
            .map(|_| stated.findings.iter().map(|finding| finding.gain).fold(WhatIfGain::default(), both)),
    };
    JudgedAnswer {
        verdict,
        has_range: finding.map(|finding| finding.range.as_deref() == expected.range),
        has_pattern: finding.map(|finding| is_pattern(expected.pattern, finding.pattern)),
        gain: gain.filter(|_| is_known).map(|gain| (gain.ns, gain.error_bound_ns)),
        cost,
        stated,
    }
}

fn both(one: WhatIfGain, other: WhatIfGain) -> WhatIfGain {
    WhatIfGain { ns: one.ns + other.ns, error_bound_ns: one.error_bound_ns + other.error_bound_ns }
}

fn judge_network(node: u32, stated: &StatedAnswer) -> AnswerVerdict {
    let network = stated.network.as_ref();
    let is_it = network.is_some_and(|network| network.nodes == [node]);
    let is_first = network.is_some_and(|network| network.is_first);
    match (is_it && stated.findings.is_empty(), is_first) {
        (false, _) => AnswerVerdict::WrongName,
        (true, false) => AnswerVerdict::Missed,
        (true, true) => AnswerVerdict::Right,
    }
}

fn judge_subjects(scenario: &Scenario, cause: &NamedCause, findings: &[StatedFinding]) -> AnswerVerdict {
    let planted: Vec<u32> = match cause {
        NamedCause::Ranks(ranks) => ranks.clone(),
        NamedCause::AtMost(rank) => vec![*rank],
        NamedCause::Node(node) => {
            let of_node = |rank: &u32| scenario.program.node_of(*rank) == *node;
            (0..scenario.program.ranks).filter(of_node).collect()
        }
        NamedCause::Nobody | NamedCause::StartUp | NamedCause::Network(_) => Vec::new(),
    };
    let named: Vec<u32> = findings.iter().flat_map(|finding| &finding.ranks).copied().collect();
    if named.iter().any(|rank| !planted.contains(rank)) {
        return AnswerVerdict::WrongName;
    }
    let is_right = match cause {
        NamedCause::Node(node) => findings.first().is_some_and(|first| first.node == Some(*node)),
        _ => named == planted,
    };
    if is_right { AnswerVerdict::Right } else { AnswerVerdict::Missed }
}

fn is_pattern(expected: CausePattern, found: StepPattern) -> bool {
    match (expected, found) {
        (CausePattern::Phase { from, to }, StepPattern::Stretch { from: first, to: last }) => {
            from.abs_diff(first) <= MAX_PHASE_ERROR && (to - 1).abs_diff(last) <= MAX_PHASE_ERROR
        }
        (CausePattern::Steady, StepPattern::Steady) => true,
        (CausePattern::Rotating | CausePattern::None, _) => true,
        _ => false,
    }
}
