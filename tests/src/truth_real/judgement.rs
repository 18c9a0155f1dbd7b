//! Judges a report by the truth.

use super::report::{Finding, Gain, ReportFindings};
use super::scenarios::Culprit;
use super::truth::Truth;
use serde::{Deserialize, Serialize};

/// Largest difference between the steps of a phase and those that a report gives.
const PHASE_STEPS: u32 = 2;
/// A gain at start-up of at least this share of the run is reported to people.
const MIN_START_UP: f64 = 0.01;
/// A rank truly waits for its reads if these explain as much of its gain as a report must find for a likely cause.
const MIN_READS_OF_GAIN: f64 = 0.5;
/// Kinds of findings that name somebody as the cause.
const NAMING: [&str; 5] = ["straggler", "node", "serial", "phase", "periodic"];

/// Whether a report names the right rank and range, or node.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// It does, or rightly names none.
    Right,
    /// It names the right rank with another range, steps, bound or cause.
    WrongDetail,
    /// It names the right rank, or rightly none, with a cause that is not there.
    WrongCause,
    /// It names another rank or node.
    WrongName,
    /// It names none, or not all.
    Missed,
    /// It says that this cannot be told.
    CannotTell,
}

/// The judgement on one run.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Judgement {
    /// Of the names.
    pub answer: Answer,
    /// Reported minus true gain, as a share of the length of the run; only for right answers with an estimate.
    pub gain_error: Option<f64>,
    /// Whether the interval of the gain contains the true one.
    pub is_covered: Option<bool>,
    /// The causes that it names, right or wrong.
    #[serde(default)]
    pub causes: Vec<String>,
}

/// Judges a report.
pub fn judge(report: &ReportFindings, truth: &Truth) -> Judgement {
    let answer = match answer(report, truth) {
        answer @ (Answer::WrongName | Answer::CannotTell) => answer,
        _ if named(report).any(|finding| has_wrong_cause(finding, truth)) => Answer::WrongCause,
        answer => answer,
    };
    let gain = match truth.culprit {
        Culprit::StartUp => report.gain_of_start_up.as_ref(),
        Culprit::Network(_) => report.network.as_ref().and_then(|network| network.gain.as_ref()),
        _ => named(report).next().and_then(|finding| finding.gain.as_ref()),
    };
    let gain = gain.filter(|_| answer == Answer::Right);
    let is_estimate = !matches!(truth.culprit, Culprit::AtMost(_) | Culprit::Nobody | Culprit::Turns);
    let gain = gain.filter(|gain| is_estimate && gain.bound != "at_most");
    Judgement {
        answer,
        gain_error: gain.map(|gain| (gain.ns - truth.gain_ns) as f64 / truth.length_ns as f64),
        is_covered: gain.and_then(|gain| covers(gain, truth.gain_ns)),
        causes: named(report).filter_map(|finding| finding.cause.as_ref()?.kind.clone()).collect(),
    }
}

fn covers(gain: &Gain, ns: i64) -> Option<bool> {
    Some((gain.low_ns?..=gain.high_ns?).contains(&ns))
}

/// Findings that name ranks or nodes as the cause, the most important one first.
fn named(report: &ReportFindings) -> impl Iterator<Item = &Finding> {
    report.findings.iter().filter(|finding| NAMING.contains(&finding.kind.as_str()))
}

fn answer(report: &ReportFindings, truth: &Truth) -> Answer {
    if report.verdict == "cannot_tell" {
        return Answer::CannotTell;
    }
    if truth.absent_cause.is_some() {
        // The machine itself can make a rank longer.
        return Answer::Right;
    }
    let mut named = named(report);
    let first = named.next();
    let network = report.network.as_ref().filter(|network| network.gain.is_some());
    if let (Culprit::Network(node), Some(network)) = (truth.culprit, network) {
        let is_it = truth.node(node).is_some_and(|node| network.hosts == [node.host.as_str()]);
        let is_first = report.findings.first().is_some_and(|first| first.kind == "network");
        return if is_it && first.is_none() { right_if(is_first) } else { Answer::WrongName };
    }
    if network.is_some() {
        return Answer::WrongName;
    }
    match (truth.culprit, first) {
        (Culprit::Nobody | Culprit::Turns, None) => without_name(report, truth),
        (Culprit::StartUp, None) => {
            let is_reported = report.gain_of_start_up.as_ref().is_some_and(|gain| gain.share >= MIN_START_UP);
            if is_reported { Answer::Right } else { Answer::Missed }
        }
        (_, None) => Answer::Missed,
        (Culprit::Nobody | Culprit::Turns | Culprit::StartUp | Culprit::Network(_), Some(_)) => {
            Answer::WrongName
        }
        (Culprit::Rank(rank), Some(first)) => {
            if first.subject.ranks != [rank] || named.any(|other| other.subject.ranks != [rank]) {
                return Answer::WrongName;
            }
            right_if(has_label(first, truth) && has_phase(first, truth) && has_cause(first, truth))
        }
        (Culprit::AtMost(rank), Some(first)) => {
            if first.subject.ranks != [rank] {
                return Answer::WrongName;
            }
            let holds = |gain: &Gain| gain.bound == "at_most" && gain.ns >= truth.gain_ns;
            right_if(has_label(first, truth) && first.gain.as_ref().is_some_and(holds))
        }
        (Culprit::Node(node), Some(first)) => {
            let is_it = truth.node(node).is_some_and(|node| {
                let ranks = &first.subject.ranks;
                first.subject.hosts == [node.host.as_str()] && (ranks.is_empty() || *ranks == node.ranks)
            });
            if is_it && first.kind == "node" { right_if(has_label(first, truth)) } else { Answer::WrongName }
        }
        (Culprit::TwoRanks(larger, smaller), Some(first)) => {
            let others: Vec<&Finding> = named.collect();
            if first.subject.ranks != [larger] || others.iter().any(|other| other.subject.ranks != [smaller])
            {
                return Answer::WrongName;
            }
            if others.is_empty() { Answer::Missed } else { right_if(has_label(first, truth)) }
        }
    }
}

/// Of a report that names no rank although something may be planted.
fn without_name(report: &ReportFindings, truth: &Truth) -> Answer {
    let allowed: &[&str] = match truth.culprit {
        Culprit::Turns => &["no_single_cause"],
        _ => &["balanced", "no_single_cause", "serial"],
    };
    right_if(allowed.contains(&report.verdict.as_str()))
}

fn right_if(is_right: bool) -> Answer {
    if is_right { Answer::Right } else { Answer::WrongDetail }
}

fn has_label(finding: &Finding, truth: &Truth) -> bool {
    finding.label.as_ref().is_some_and(|label| label.name.as_deref() == Some(&truth.label))
}

/// Whether it names a cause that is not there.
fn has_wrong_cause(finding: &Finding, truth: &Truth) -> bool {
    let Some(kind) = finding.cause.as_ref().and_then(|cause| cause.kind.as_deref()) else { return false };
    let is_planted = truth.cause.as_deref() == Some(kind);
    // Two ranks read from one disk, so that one may truly take longer.
    let has_longer_reads = |ranks: &[u32], gain: &Gain| {
        let least = (gain.ns as f64 * MIN_READS_OF_GAIN).ceil() as i64;
        matches!(ranks, [rank] if truth.has_longer_reads(*rank, least))
    };
    let is_true_wait =
        || finding.gain.as_ref().is_some_and(|gain| has_longer_reads(&finding.subject.ranks, gain));
    let is_right = is_planted || kind == "disk_wait" && is_true_wait();
    !is_right
}

/// Whether it names the planted cause with certainty, if there is one.
fn has_cause(finding: &Finding, truth: &Truth) -> bool {
    let Some(planted) = &truth.cause else { return true };
    finding.cause.as_ref().is_some_and(|cause| cause.is_certain && cause.kind.as_ref() == Some(planted))
}

fn has_phase(finding: &Finding, truth: &Truth) -> bool {
    let Some((first, last)) = truth.phase else { return true };
    let near =
        |(from, to): (u32, u32)| from.abs_diff(first) <= PHASE_STEPS && to.abs_diff(last) <= PHASE_STEPS;
    finding.when.as_ref().and_then(|when| when.first_step.zip(when.last_step)).is_some_and(near)
}

#[cfg(test)]
mod tests {
    use super::super::truth::NodeName;
    use super::*;

    fn truth(culprit: Culprit) -> Truth {
        Truth {
            scenario: "test".to_owned(),
            number: 0,
            seed: 1,
            ranks: 4,
            nodes: (0..2u32).map(|n| NodeName { host: format!("n{n}"), ranks: vec![n, n + 2] }).collect(),
            steps: 40,
            culprit,
            label: "work".to_owned(),
            cause: None,
            absent_cause: None,
            reads_ns_by_rank: Vec::new(),
            phase: None,
            length_ns: 1_000,
            gain_ns: 100,
            gain_of_all_ns: 100,
            gain_by_rank_ns: vec![0, 100, 0, 0],
            at_most_ns: None,
            start_up_ns: None,
            nominal_gain_ns: 100,
            planted_by_rank_ns: vec![0, 100, 0, 0],
            waits_ns: 300,
            init_waits_ns: 0,
            finalize_waits_ns: 0,
            caused_waits_ns: 300,
        }
    }

    /// A report with the verdict `slow` and findings of kind, ranks, rest.
    fn report(verdict: &str, findings: &[&str]) -> ReportFindings {
        let text = format!(
            r#"{{"schema":"rpd.report/1","verdict":"{verdict}","findings":[{}]}}"#,
            findings.join(",")
        );
        serde_json::from_str(&text).unwrap()
    }

    const RANK_1: &str = r#"{"kind":"straggler","subject":{"ranks":[1],"hosts":["n1"],"gpus":[]},
        "label":{"kind":"range","name":"work"},"when":{"first_step":10,"last_step":29,"pattern":"stretch"},
        "gain":{"ns":110,"low_ns":95,"high_ns":125,"share":0.11,"bound":"estimate"}}"#;
    const RANK_2: &str =
        r#"{"kind":"straggler","subject":{"ranks":[2]},"label":{"kind":"range","name":"work"}}"#;
    const NODE_1: &str = r#"{"kind":"node","subject":{"ranks":[1,3],"hosts":["n1"]},"label":{"name":"work"},
        "gain":{"ns":90,"low_ns":101,"high_ns":120,"share":0.09,"bound":"estimate"}}"#;
    /// A report that also says what start-up costs.
    fn with_start_up(verdict: &str, findings: &[&str], share: f64) -> ReportFindings {
        let gain = r#"{"ns":100,"low_ns":90,"high_ns":110,"share":0.1,"bound":"estimate"}"#;
        let gain = serde_json::from_str(gain).unwrap();
        ReportFindings { gain_of_start_up: Some(Gain { share, ..gain }), ..report(verdict, findings) }
    }

    /// A judgement without a gain and a cause.
    fn of(answer: Answer) -> Judgement {
        Judgement { answer, gain_error: None, is_covered: None, causes: Vec::new() }
    }

    fn answer_of(culprit: Culprit, verdict: &str, findings: &[&str]) -> Answer {
        judge(&report(verdict, findings), &truth(culprit)).answer
    }

    #[test]
    fn the_planted_rank_with_its_range_is_right() {
        let judged = judge(&with_start_up("slow", &[RANK_1], 0.1), &truth(Culprit::Rank(1)));
        assert_eq!(judged, Judgement { gain_error: Some(0.01), is_covered: Some(true), ..of(Answer::Right) });
    }

    #[test]
    fn another_rank_is_wrong_even_after_the_right_one() {
        assert_eq!(answer_of(Culprit::Rank(1), "slow", &[RANK_2]), Answer::WrongName);
        assert_eq!(answer_of(Culprit::Rank(1), "slow", &[RANK_1, RANK_2]), Answer::WrongName);
        assert_eq!(answer_of(Culprit::Rank(1), "slow", &[NODE_1]), Answer::WrongName);
        assert_eq!(answer_of(Culprit::Nobody, "slow", &[RANK_1]), Answer::WrongName);
        assert_eq!(answer_of(Culprit::StartUp, "slow", &[RANK_1]), Answer::WrongName);
    }

    #[test]
    fn another_range_is_a_wrong_detail() {
        let other = RANK_1.replace("\"work\"", "\"update\"");
        let judged = judge(&report("slow", &[&other]), &truth(Culprit::Rank(1)));
        assert_eq!(judged, of(Answer::WrongDetail));
    }

    #[test]
    fn the_planted_cause_must_be_named_with_certainty() {
        let with = |cause: &str| RANK_1.replacen('{', &format!("{{\"cause\":{cause},"), 1);
        let answer = |planted: Option<&str>, cause: &str| {
            let truth = Truth { cause: planted.map(str::to_owned), ..truth(Culprit::Rank(1)) };
            judge(&report("slow", &[&with(cause)]), &truth).answer
        };
        let certain = r#"{"kind":"disk_wait","is_certain":true}"#;
        assert_eq!(answer(Some("disk_wait"), certain), Answer::Right);
        assert_eq!(answer(Some("cpu_wait"), certain), Answer::WrongCause);
        assert_eq!(answer(None, certain), Answer::WrongCause);
        assert_eq!(answer(Some("disk_wait"), &certain.replace("true", "false")), Answer::WrongDetail);
        let none = r#"{"kind":null,"is_certain":false}"#;
        let absent = |cause: &str| {
            let truth = Truth { absent_cause: Some("disk_wait".to_owned()), ..truth(Culprit::Nobody) };
            judge(&report("slow", &[&with(cause)]), &truth).answer
        };
        assert_eq!([absent(none), absent(certain)], [Answer::Right, Answer::WrongCause]);
        assert_eq!(absent(&certain.replace("disk_wait", "cpu_wait")), Answer::WrongCause);
        // By the time in reads that the program measured, the gain of 110 ns is that of reads or not.
        let with_reads = |reads_ns_by_rank: [i64; 3]| {
            let reads_ns_by_rank = reads_ns_by_rank.to_vec();
            let truth = truth(Culprit::Nobody);
            let truth = Truth { absent_cause: Some("disk_wait".to_owned()), reads_ns_by_rank, ..truth };
            judge(&report("slow", &[&with(certain)]), &truth).answer
        };
        assert_eq!(with_reads([700, 755, 600]), Answer::Right);
        assert_eq!(with_reads([700, 750, 600]), Answer::WrongCause);
        assert_eq!(with_reads([600, 755, 750]), Answer::WrongCause);
        assert_eq!(
            [answer(None, none), answer(Some("disk_wait"), none)],
            [Answer::Right, Answer::WrongDetail]
        );
    }

    #[test]
    fn silence_is_right_only_where_nothing_is_planted() {
        assert_eq!(answer_of(Culprit::Rank(1), "balanced", &[]), Answer::Missed);
        assert_eq!(answer_of(Culprit::Rank(1), "cannot_tell", &[]), Answer::CannotTell);
        assert_eq!(answer_of(Culprit::Nobody, "balanced", &[]), Answer::Right);
        assert_eq!(answer_of(Culprit::Turns, "balanced", &[]), Answer::WrongDetail);
        assert_eq!(answer_of(Culprit::Turns, "no_single_cause", &[]), Answer::Right);
        assert_eq!(answer_of(Culprit::StartUp, "balanced", &[]), Answer::Missed);
        let judged = |share| judge(&with_start_up("balanced", &[], share), &truth(Culprit::StartUp));
        assert_eq!((judged(0.1).answer, judged(0.1).is_covered), (Answer::Right, Some(true)));
        assert_eq!(judged(0.001).answer, Answer::Missed);
    }

    #[test]
    fn a_node_is_named_by_its_host() {
        let judged = judge(&report("slow", &[NODE_1]), &truth(Culprit::Node(1)));
        assert_eq!(
            judged,
            Judgement { gain_error: Some(-0.01), is_covered: Some(false), ..of(Answer::Right) }
        );
        assert_eq!(answer_of(Culprit::Node(0), "slow", &[NODE_1]), Answer::WrongName);
        assert_eq!(answer_of(Culprit::Node(1), "slow", &[RANK_1]), Answer::WrongName);
    }

    #[test]
    fn a_slow_network_is_named_by_the_host_of_its_node_and_nothing_else_is() {
        let with_network = |host: &str, findings: &[&str]| {
            let gain = r#"{"ns":100,"low_ns":90,"high_ns":110,"share":0.1,"bound":"estimate"}"#;
            let network = format!(r#"{{"hosts":["{host}"],"ratio":3.0,"gain":{gain}}}"#);
            let network = Some(serde_json::from_str(&network).unwrap());
            ReportFindings { network, ..report("slow", findings) }
        };
        const FIRST: &str = r#"{"kind":"network","subject":{"hosts":["n1"]}}"#;
        let answer = |culprit, report: &ReportFindings| judge(report, &truth(culprit)).answer;
        let found = judge(&with_network("n1", &[FIRST]), &truth(Culprit::Network(1)));
        let right = Judgement { gain_error: Some(0.0), is_covered: Some(true), ..of(Answer::Right) };
        assert_eq!(found, right);
        assert_eq!(answer(Culprit::Network(0), &with_network("n1", &[FIRST])), Answer::WrongName);
        assert_eq!(answer(Culprit::Network(1), &with_network("n1", &[])), Answer::WrongDetail);
        assert_eq!(answer(Culprit::Network(1), &with_network("n1", &[FIRST, RANK_1])), Answer::WrongName);
        assert_eq!(answer(Culprit::Rank(1), &with_network("n1", &[RANK_1])), Answer::WrongName);
        assert_eq!(answer(Culprit::Nobody, &with_network("n1", &[FIRST])), Answer::WrongName);
        assert_eq!(answer_of(Culprit::Network(1), "balanced", &[]), Answer::Missed);
    }

    #[test]
    fn of_two_ranks_the_larger_comes_first() {
        assert_eq!(answer_of(Culprit::TwoRanks(1, 2), "slow", &[RANK_1, RANK_2]), Answer::Right);
        assert_eq!(answer_of(Culprit::TwoRanks(1, 2), "slow", &[RANK_1]), Answer::Missed);
        assert_eq!(answer_of(Culprit::TwoRanks(1, 2), "slow", &[RANK_2, RANK_1]), Answer::WrongName);
    }

    #[test]
    fn an_upper_bound_has_to_hold() {
        let bound = |ns| RANK_1.replace("estimate", "at_most").replace("110", ns);
        assert_eq!(answer_of(Culprit::AtMost(1), "serial", &[&bound("150")]), Answer::Right);
        assert_eq!(answer_of(Culprit::AtMost(1), "serial", &[&bound("99")]), Answer::WrongDetail);
        assert_eq!(answer_of(Culprit::AtMost(1), "serial", &[RANK_1]), Answer::WrongDetail);
    }

    #[test]
    fn the_steps_of_a_phase_may_be_off_by_two() {
        let judged = |phase| {
            let truth = Truth { phase: Some(phase), ..truth(Culprit::Rank(1)) };
            judge(&report("slow", &[RANK_1]), &truth).answer
        };
        assert_eq!(judged((12, 27)), Answer::Right);
        assert_eq!(judged((13, 29)), Answer::WrongDetail);
    }
}
