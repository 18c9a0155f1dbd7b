//! The verdict on a run: in sentences, and for machines.

use crate::analysed_run::AnalysedRun;
use crate::crowded_cpus::CrowdedCpus;
use crate::hang::hang_notes;
use crate::hang_text::{hang_headline, hang_json};
use crate::names::{
    gpus_of, hosts_of, label_text, only_process, ranks_of, step_word, subject_text, timeline_text,
};
use crate::network::NetworkText;
use crate::shown_time::{percent, shown_time};
use crate::work_cause::WorkCause;
use rayon::prelude::*;
use rpd_calls::{CallLabel, StepKind};
use rpd_console::wording::grouped;
use rpd_graph::{
    DiagnosisLimit, FindingSubject, JobEfficiency, JobFinding, JobVerdict, StepPattern, TimelineTimes,
    WhatIfGain,
};
use serde_json::{Map, Value as Json, json};

/// Minimum share of the run that a gain must have to be reported.
const MIN_REPORTED: f64 = 0.01;
/// A rank is named for the time before or after the steps if it works longer than the next one by at least this share of
/// the gain.
const MIN_NAMED_SHARE: f64 = 0.8;
/// Maximum number of lines about a hang.
const MAX_HANG_LINES: usize = 3;
/// Maximum number of functions that are named in which ranks waited.
const MAX_FUNCTIONS: usize = 3;

/// The verdict as lines of a label and a text, the first of them the verdict itself, and as keys of the JSON object.
#[derive(Debug)]
pub struct VerdictLines {
    /// Label and text of each line.
    pub lines: Vec<(&'static str, String)>,
    /// Keys of the JSON object.
    pub json: Map<String, Json>,
}

/// Returns the verdict on a run.
pub fn verdict_lines(found: &AnalysedRun<'_>) -> VerdictLines {
    let diagnosis = &found.diagnosis;
    let network = NetworkText::of(found);
    let first_network = network.filter(NetworkText::is_first);
    let of_work = headline(found);
    let (label, text) = first_network.map_or_else(|| of_work.clone(), |network| ("SLOW", network.headline()));
    let headline = format!("{label} {text}");
    let mut lines = vec![(label, text)];
    lines.extend(first_network.map(|network| ("network", network.line())));
    lines.extend(first_network.map(|_| ("work", of_work.1)));
    if let Some(hang) = &found.hang {
        // The headline of a crash is the first note.
        let notes = hang_notes(found, &found.open_calls).into_iter().skip(usize::from(hang.is_crash()));
        lines.extend(notes.take(MAX_HANG_LINES).map(|note| ("why", note)));
    }
    if let Some(finding) = diagnosis.findings.first() {
        lines.extend(finding_lines(found, finding));
    }
    lines.extend(diagnosis.findings.iter().skip(1).map(|finding| ("also", further_finding(found, finding))));
    let further_network = network.filter(|network| !network.is_first());
    lines.extend(further_network.map(|network| ("network", network.line())));
    for (label, place, gain) in outside_of_steps(found) {
        if share(found, gain.ns) >= MIN_REPORTED && diagnosis.verdict != JobVerdict::CannotTell {
            let (shorter, share) = (with_error(gain), percent(share(found, gain.ns)));
            let text = match gain.ns > gain.error_bound_ns {
                true => format!(
                    "ranks work unequally {place}; with equal work the run would be shorter by {shorter} ({share}){}",
                    longest_text(found, label, gain)
                ),
                false => format!(
                    "it is not known whether ranks work unequally {place}: equal work would save {shorter} ({share}), less \
                     than the error"
                ),
            };
            lines.push((label, text));
        }
    }
    // Calls that did not return would count as communication.
    // Which thread of a process waits for which message is not known.
    let has_threads = diagnosis.limits.iter().any(|limit| matches!(limit, DiagnosisLimit::Threads { .. }));
    let is_whole = !found.calls.job.timelines.is_empty()
        && !found.leaves_out_ranks
        && !has_threads
        && found.hang.is_none();
    let efficiency = found.efficiency.filter(|_| is_whole);
    let gpu_efficiency = found.gpu_efficiency.filter(|_| is_whole);
    let crowded = CrowdedCpus::find(found);
    lines.extend(CrowdedCpus::lines(&crowded));
    lines.extend(time_lines(found));
    lines.extend(efficiency.and_then(efficiency_text).map(|text| ("efficiency", text)));
    lines.extend(gpu_efficiency.and_then(efficiency_text).map(|text| ("of GPUs", text)));
    let mut json = Map::new();
    let verdict = match &found.hang {
        Some(hang) if hang.is_crash() => "crash",
        Some(_) => "hang",
        None if first_network.is_some() => verdict_key(JobVerdict::Slow),
        None => verdict_key(diagnosis.verdict),
    };
    json.insert("verdict".to_owned(), json!(verdict));
    json.insert("headline".to_owned(), json!(headline));
    let hang = found.hang.iter().map(|hang| hang_json(found, hang));
    let of_work = diagnosis.findings.iter().map(|finding| finding_json(found, finding));
    let estimate = |gain: WhatIfGain| gain_json(found, gain, false);
    let of_network = first_network.map(|network| network.finding_json(estimate));
    let findings: Vec<Json> = hang.chain(of_network).chain(of_work).collect();
    json.insert("findings".to_owned(), json!(findings));
    json.insert("reasons".to_owned(), json!(found.reasons));
    for (key, gain) in [
        ("gain_of_all", diagnosis.gain_of_all),
        ("gain_of_start_up", diagnosis.gain_of_start_up),
        ("gain_of_ending", diagnosis.gain_of_ending),
    ] {
        let is_analysed = !found.calls.job.timelines.is_empty();
        let gain = if is_analysed { gain_json(found, gain, false) } else { Json::Null };
        json.insert(key.to_owned(), gain);
    }
    json.insert("network".to_owned(), network.map_or(Json::Null, |network| network.json(estimate)));
    json.insert("crowded_cpus".to_owned(), json!(CrowdedCpus::stored(&crowded)));
    json.insert("efficiency".to_owned(), efficiency.map_or(Json::Null, efficiency_json));
    json.insert("gpu_efficiency".to_owned(), gpu_efficiency.map_or(Json::Null, efficiency_json));
    json.insert("steps".to_owned(), steps_json(found));
    json.insert("messages".to_owned(), messages_json(found));
    VerdictLines { lines, json }
}

fn verdict_key(verdict: JobVerdict) -> &'static str {
    match verdict {
        JobVerdict::Slow => "slow",
        JobVerdict::Serial => "serial",
        JobVerdict::NoSingleCause => "no_single_cause",
        JobVerdict::Balanced => "balanced",
        JobVerdict::CannotTell => "cannot_tell",
    }
}

fn headline(found: &AnalysedRun<'_>) -> (&'static str, String) {
    if let Some(hang) = &found.hang {
        let label = if hang.is_crash() { "CRASH" } else { "HANG" };
        return (label, hang_headline(found, hang));
    }
    let diagnosis = &found.diagnosis;
    let all = diagnosis.gain_of_all;
    let of_all = format!("{} ({})", with_error(all), percent(share(found, all.ns)));
    match (diagnosis.verdict, diagnosis.findings.first()) {
        (JobVerdict::Slow | JobVerdict::Serial, Some(finding)) => {
            let is_serial = diagnosis.verdict == JobVerdict::Serial;
            (if is_serial { "SERIAL" } else { "SLOW" }, finding_headline(found, finding, is_serial))
        }
        (JobVerdict::Balanced, _) => {
            let most = all.ns.saturating_add(all.error_bound_ns);
            let limit = if share(found, most) < MIN_REPORTED { " less than 1 %:" } else { "" };
            let text = format!("equal work of all ranks in each step would save{limit} {of_all}");
            ("BALANCED", text + &outside_text(found))
        }
        (JobVerdict::CannotTell, _) => {
            ("CANNOT TELL", format!("which rank the others wait for: {}", found.reasons.join("; ")))
        }
        _ => {
            let gains = found.analysis.largest_gains(found.costs);
            let largest = gains.first().map_or(String::new(), |(timeline, gain)| {
                let name = timeline_text(found.calls, *timeline);
                format!("; the most by one rank: {name}, {}", percent(share(found, gain.ns)))
            });
            let few = if all.error_bound_ns >= all.ns { ", in few steps" } else { "" };
            let text = format!(
                "no rank stands out in most steps; equal work of all ranks in each step would save {of_all}{largest}{few}"
            );
            ("NO SINGLE CAUSE", text + &outside_text(found))
        }
    }
}

/// Continues a sentence about the time before or after the steps with the rank whose work makes most of the difference.
fn longest_text(found: &AnalysedRun<'_>, label: &str, gain: WhatIfGain) -> String {
    let longest = match label {
        "start-up" => found.analysis.longest_at_start(),
        _ => found.analysis.longest_at_end(),
    };
    let Some((timeline, ns, next_ns)) = longest else { return String::new() };
    if ((ns - next_ns) as f64) < MIN_NAMED_SHARE * gain.ns as f64 {
        return String::new();
    }
    let [ns, next] = [ns, next_ns].map(|ns| shown_time(i64::try_from(ns).unwrap_or(i64::MAX)));
    format!("; {} works {ns} there, the next one {next}", timeline_text(found.calls, timeline))
}

/// Label, place and gain of what happens outside of the steps.
fn outside_of_steps(found: &AnalysedRun<'_>) -> [(&'static str, &'static str, WhatIfGain); 2] {
    [
        ("start-up", "before the first step", found.diagnosis.gain_of_start_up),
        ("ending", "after the last step", found.diagnosis.gain_of_ending),
    ]
}

/// Continues a sentence about the steps with what happens outside of them, if that matters more.
fn outside_text(found: &AnalysedRun<'_>) -> String {
    let in_steps = found.diagnosis.gain_of_all;
    let matters = |gain: WhatIfGain| share(found, gain.ns) >= MIN_REPORTED && gain.ns > in_steps.ns;
    let shown = outside_of_steps(found).into_iter().filter(|(.., gain)| matters(*gain));
    let text = |(_, place, gain): (_, &str, WhatIfGain)| {
        format!("; {place} {} ({})", with_error(gain), percent(share(found, gain.ns)))
    };
    shown.map(text).collect()
}

fn finding_headline(found: &AnalysedRun<'_>, finding: &JobFinding, is_serial: bool) -> String {
    let subject = subject_text(found, &finding.subject);
    let is_one = matches!(finding.subject, FindingSubject::Node { .. })
        || only_process(found.calls, finding.subject.timelines()).is_some();
    let delays = if is_one { "delays" } else { "delay" };
    let length = found.analysis.replayed_ns().saturating_sub(finding.gain.ns);
    let work = label_text(found.calls, finding.label);
    let share = percent(share(found, finding.gain.ns));
    let error = shown_time(finding.gain.error_bound_ns);
    if is_serial {
        return format!(
            "{subject} alone does work ({work}) for which the others wait: at most {} ({share}) could be saved",
            with_error(finding.gain)
        );
    }
    let most = if finding.is_at_most { "at least " } else { "" };
    format!(
        "{subject} {delays} the others; with the work that is typical of a rank, the run would take {most}{} (+- {error}), \
         {share} less",
        shown_time(length)
    )
}

/// Describes a finding that the ones before it hide.
fn further_finding(found: &AnalysedRun<'_>, finding: &JobFinding) -> String {
    format!(
        "{}: {} {} a {}, typically {}; the others wait for it once the delays above are gone: {} ({}) less by typical work",
        subject_text(found, &finding.subject),
        label_text(found.calls, finding.label),
        shown_time(finding.label_ns as i64),
        step_word(found),
        shown_time(finding.typical_ns as i64),
        with_error(finding.gain),
        percent(share(found, finding.gain.ns))
    )
}

fn finding_lines(found: &AnalysedRun<'_>, finding: &JobFinding) -> Vec<(&'static str, String)> {
    let step = step_word(found);
    let pattern = match finding.pattern {
        StepPattern::Steady => String::new(),
        StepPattern::Stretch { from, to } => {
            format!(", from {step} {} to {step} {}", grouped(from.into()), grouped(to.into()))
        }
        StepPattern::Periodic { every } => format!(", every {} {step}s", grouped(every.into())),
        StepPattern::Irregular => ", irregularly".to_owned(),
    };
    let place = format!(
        "{}: {} a {step}, typically {}; longer in {} of the {step}s{pattern}",
        label_text(found.calls, finding.label),
        shown_time(finding.label_ns as i64),
        shown_time(finding.typical_ns as i64),
        percent(finding.share_of_steps)
    );
    let total = finding.cost.total_ns();
    let directly = finding.cost.direct_ns / total.max(1.0);
    let reach = match functions(found, &finding.subject) {
        functions if functions.is_empty() => format!(
            "other ranks waited {} in all for it, by way of ranks or GPUs that waited themselves",
            shown_time(total as i64)
        ),
        functions => format!(
            "other ranks waited {} in all for it: {} directly ({functions}), {} by way of ranks that waited themselves",
            shown_time(total as i64),
            percent(directly),
            percent(finding.cost.propagated_ns / total.max(1.0))
        ),
    };
    let causes = WorkCause::of(found, finding).texts(found, finding);
    let causes = causes.into_iter().map(|cause| ("cause", cause));
    [("where", place), ("reaches", reach)].into_iter().chain(causes).collect()
}

/// Names the functions in which others waited directly, with their shares; empty if there are none.
fn functions(found: &AnalysedRun<'_>, subject: &FindingSubject) -> String {
    let waits: Vec<(u32, f64)> = waited_in(found, subject);
    let all: f64 = waits.iter().map(|(_, ns)| ns).sum();
    let named = waits.iter().take(MAX_FUNCTIONS).map(|(label, ns)| {
        format!("{} {}", label_text(found.calls, Some(*label)), percent(ns / all.max(1.0)))
    });
    named.collect::<Vec<String>>().join(", ")
}

/// Returns the direct waiting for a subject by function, the largest first.
fn waited_in(found: &AnalysedRun<'_>, subject: &FindingSubject) -> Vec<(u32, f64)> {
    let mut by_function: Vec<(u32, f64)> = Vec::new();
    for (cause, function, ns) in &found.costs.waited_in {
        if !subject.timelines().contains(cause) {
            continue;
        }
        match by_function.iter_mut().find(|(known, _)| known == function) {
            Some((_, sum)) => *sum += ns,
            None => by_function.push((*function, *ns)),
        }
    }
    by_function.sort_by(|one, other| other.1.total_cmp(&one.1).then(one.0.cmp(&other.0)));
    by_function
}

fn time_lines(found: &AnalysedRun<'_>) -> Vec<(&'static str, String)> {
    if !found.reasons.is_empty() {
        return Vec::new();
    }
    let lines = [("time", false), ("GPU time", true)];
    lines.into_iter().filter_map(|(label, is_stream)| Some((label, time_text(found, is_stream)?))).collect()
}

/// Returns the factors of an efficiency, if all are known.
fn efficiency_text(efficiency: JobEfficiency) -> Option<String> {
    let JobEfficiency { parallel, load_balance, serialization, transfer } = efficiency;
    let (serialization, transfer) = serialization.zip(transfer)?;
    Some(format!(
        "{parallel:.2} = load balance {load_balance:.2} x serialization {serialization:.2} x transfer {transfer:.2}"
    ))
}

/// Returns how the time of all threads is divided, or that of all streams of GPUs; `None` if there are none.
fn time_text(found: &AnalysedRun<'_>, is_stream: bool) -> Option<String> {
    let timelines = found.calls.job.timelines.par_iter().enumerate();
    let timelines = timelines.filter(|(_, timeline)| timeline.is_stream == is_stream);
    let times: Vec<TimelineTimes> =
        timelines.map(|(number, _)| found.analysis.timeline_times(number)).collect();
    let mut sums = [0.0; 5];
    for times in times {
        let parts = [times.work_ns, times.waited_ns, times.transfer_ns, times.idle_ns, times.length_ns];
        sums.iter_mut().zip(parts).for_each(|(sum, part)| *sum += part as f64);
    }
    let [work, waited, transfer, idle, length] = sums;
    let has_launches = !is_stream && found.calls.job.timelines.iter().any(|timeline| timeline.is_stream);
    let part = |ns: f64| percent(ns / length);
    let text = || {
        let idle = if is_stream { format!(", idle {}", part(idle)) } else { String::new() };
        // Calls to HIP and CUDA of a thread that launches GPU work are no work of its own.
        let calls = if has_launches { "communication and launches" } else { "communication" };
        format!("work {}, waiting {}, {calls} {}{idle}", part(work), part(waited), part(transfer))
    };
    (length > 0.0).then(text)
}

fn finding_json(found: &AnalysedRun<'_>, finding: &JobFinding) -> Json {
    let timelines = finding.subject.timelines();
    let (pattern, from, to, every) = match finding.pattern {
        StepPattern::Steady => ("steady", None, None, None),
        StepPattern::Stretch { from, to } => ("stretch", Some(from), Some(to), None),
        StepPattern::Periodic { every } => ("periodic", None, None, Some(every)),
        StepPattern::Irregular => ("irregular", None, None, None),
    };
    let kind = match finding.subject {
        FindingSubject::Node { .. } => "node",
        FindingSubject::Timelines(_) => "straggler",
    };
    let functions: Vec<Json> = waited_in(found, &finding.subject)
        .iter()
        .map(|(label, ns)| json!({ "call": label_text(found.calls, Some(*label)), "ns": *ns as i64 }))
        .collect();
    json!({
        "kind": kind,
        "subject": {
            "ranks": ranks_of(found.calls, timelines),
            "hosts": hosts_of(found.calls, timelines),
            "gpus": gpus_of(found.calls, timelines),
        },
        "label": label_json(found, finding.label),
        "step_ns": finding.label_ns as i64,
        "typical_step_ns": finding.typical_ns as i64,
        "when": {
            "pattern": pattern, "first_step": from, "last_step": to, "every": every,
            "share_of_steps": finding.share_of_steps,
        },
        "gain": gain_json(found, finding.gain, finding.is_at_most),
        "cause": WorkCause::of(found, finding).json(found),
        "caused": {
            "direct_ns": finding.cost.direct_ns as i64,
            "propagated_ns": finding.cost.propagated_ns as i64,
            "direct_in": functions,
        },
    })
}

fn label_json(found: &AnalysedRun<'_>, label: Option<u32>) -> Json {
    match label.and_then(|label| found.calls.labels.get(label as usize)) {
        Some(CallLabel::Range(name)) => json!({ "kind": "range", "name": name }),
        Some(CallLabel::Function(name)) => json!({ "kind": "call", "name": name }),
        Some(CallLabel::GpuWork(name)) => json!({ "kind": "gpu_work", "name": name }),
        Some(CallLabel::StreamIdle) => json!({ "kind": "stream_idle", "name": null }),
        Some(CallLabel::Between { before, after }) => {
            json!({ "kind": "between", "name": null, "before": before, "after": after })
        }
        Some(CallLabel::Other) | None => json!({ "kind": "other", "name": null }),
    }
}

/// Describes a gain for machines: the interval, and whether it is an estimate or an upper limit.
fn gain_json(found: &AnalysedRun<'_>, gain: WhatIfGain, is_at_most: bool) -> Json {
    json!({
        "ns": gain.ns,
        "low_ns": gain.ns.saturating_sub(gain.error_bound_ns),
        "high_ns": gain.ns.saturating_add(gain.error_bound_ns),
        "error_bound_ns": gain.error_bound_ns,
        "share": share(found, gain.ns),
        "bound": if is_at_most { "at_most" } else { "estimate" },
    })
}

fn efficiency_json(efficiency: JobEfficiency) -> Json {
    json!({
        "parallel": efficiency.parallel,
        "load_balance": efficiency.load_balance,
        "serialization": efficiency.serialization,
        "transfer": efficiency.transfer,
    })
}

fn steps_json(found: &AnalysedRun<'_>) -> Json {
    found.calls.steps.as_ref().map_or(Json::Null, |steps| {
        let from = match steps.kind {
            StepKind::Marker => "marker",
            StepKind::Repetition => "repetition",
            StepKind::Windows { .. } => "windows",
        };
        json!({ "from": from, "name": steps.name, "count": steps.count })
    })
}

fn messages_json(found: &AnalysedRun<'_>) -> Json {
    let messages = found.graph.message_counts();
    json!({
        "matched": messages.matched,
        "unmatched_sends": messages.unmatched_sends,
        "unmatched_receives": messages.unmatched_receives,
        "ambiguous": messages.ambiguous,
        "unknown_sources": messages.unknown_sources,
        "contradicted": messages.contradicted,
    })
}

/// Returns a time as a share of the run.
fn share(found: &AnalysedRun<'_>, ns: i64) -> f64 {
    ns as f64 / found.analysis.replayed_ns().max(1) as f64
}

fn with_error(gain: WhatIfGain) -> String {
    format!("{} (+- {})", shown_time(gain.ns), shown_time(gain.error_bound_ns))
}
