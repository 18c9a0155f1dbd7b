//! Messages that take longer with one node, or between two: in sentences, and for machines.

use crate::analysed_run::AnalysedRun;
use crate::names::{hosts_of, label_text, ranks_of, short};
use crate::shown_time::{percent, shown_time};
use rpd_console::wording::rank_ranges;
use rpd_graph::{NetworkFinding, NetworkSubject, SlowMessages, WhatIfGain};
use serde_json::{Value as Json, json};

/// Smaller probabilities are not shown in figures.
const MIN_SHOWN_P: f64 = 0.001;

/// No message to another node takes less time, ns.
const MIN_MESSAGE_NS: f64 = 1_000.0;

/// Slow messages of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NetworkText<'a> {
    found: &'a AnalysedRun<'a>,
    messages: SlowMessages,
    /// Gain of the job if they took as long as others; `None`, if it is not known that they take longer.
    gain: Option<WhatIfGain>,
}

impl<'a> NetworkText<'a> {
    /// Returns the slow messages of a run.
    pub(crate) fn of(found: &'a AnalysedRun<'a>) -> Option<NetworkText<'a>> {
        let known = found.diagnosis.network.map(|NetworkFinding { messages, gain }| (messages, Some(gain)));
        let doubtful = || found.diagnosis.doubtful_network.map(|messages| (messages, None));
        known.or_else(doubtful).map(|(messages, gain)| NetworkText { found, messages, gain })
    }

    /// Returns whether these messages are the first cause.
    pub(crate) fn is_first(&self) -> bool {
        self.found.diagnosis.is_network_first()
    }

    /// Returns the timelines of the nodes that the messages are about.
    fn timelines(&self) -> Vec<u32> {
        let is_one = |node: u32| match self.messages.subject {
            NetworkSubject::Node(one) => node == one,
            NetworkSubject::Link(one, other) => node == one || node == other,
        };
        let timelines = (0u32..).zip(&self.found.calls.job.timelines);
        timelines.filter(|(_, timeline)| is_one(timeline.node)).map(|(number, _)| number).collect()
    }

    /// Names the messages.
    fn subject(&self) -> String {
        let timelines = self.timelines();
        let hosts: Vec<String> =
            hosts_of(self.found.calls, &timelines).iter().map(|host| short(host)).collect();
        let ranks = rank_ranges(&ranks_of(self.found.calls, &timelines));
        match self.messages.subject {
            NetworkSubject::Node(_) => {
                format!("messages between node {} (ranks {ranks}) and other nodes", hosts.join(", "))
            }
            NetworkSubject::Link(..) => {
                format!("messages between nodes {} (ranks {ranks})", hosts.join(" and "))
            }
        }
    }

    /// Returns the first line of the verdict, without its label.
    pub(crate) fn headline(&self) -> String {
        let gain = self.gain.unwrap_or_default();
        let length = self.found.analysis.replayed_ns().saturating_sub(gain.ns);
        format!(
            "{} take longer than others (network); if they took as long as others, the run would take {} (+- {}), {} less",
            self.subject(),
            shown_time(length),
            shown_time(gain.error_bound_ns),
            percent(self.share(gain))
        )
    }

    /// Returns the text of the line with the figures.
    pub(crate) fn line(&self) -> String {
        let SlowMessages { ratio, p, time_ns, typical_ns, clock_error_ns, .. } = self.messages;
        let [time, typical, clock_error] =
            [time_ns, typical_ns, clock_error_ns].map(|ns| shown_time(ns.round() as i64));
        let function = label_text(self.found.calls, Some(self.messages.label));
        let Some(gain) = self.gain else {
            return format!(
                "it is not known whether {} take longer than others: in {function} they seem to take {time}, others \
                 {typical}, but the clocks can be wrong about that by {clock_error}",
                self.subject()
            );
        };
        let p = if p < MIN_SHOWN_P { format!("p < {MIN_SHOWN_P}") } else { format!("p = {p:.3}") };
        let collectives = match self.messages.subject {
            NetworkSubject::Node(_) => "with one there and back in each collective",
            NetworkSubject::Link(..) => "without collectives",
        };
        // The headline has the subject and the gain.
        let (subject, gain) = match self.is_first() {
            true => ("they".to_owned(), format!("the gain is {collectives}")),
            false => (
                self.subject(),
                format!(
                    "as long as others, they would save {} (+- {}), {}, {collectives}",
                    shown_time(gain.ns),
                    shown_time(gain.error_bound_ns),
                    percent(self.share(gain))
                ),
            ),
        };
        // No network is that fast: calls mostly do not wait for other messages.
        let comparison = match typical_ns < MIN_MESSAGE_NS {
            true => format!("calls hardly wait for others of their size ({typical}"),
            false => format!("{} times as long as others of their size ({typical}", ratio_text(ratio)),
        };
        let reservation = self.reservation();
        format!(
            "{subject} take {time} in {function}, {comparison}; {p}; +- {clock_error} by the clocks); {gain}{reservation}"
        )
    }

    /// Continues the sentence if another cause of longer messages is likely.
    fn reservation(&self) -> &'static str {
        let of_nodes = self.timelines();
        let findings = self.found.diagnosis.findings.iter();
        let mut named = findings.flat_map(|finding| finding.subject.timelines());
        match named.any(|timeline| of_nodes.contains(timeline)) {
            true => "; ranks there also work longer, so that the reason may be the node and not the network",
            false => "",
        }
    }

    fn share(&self, gain: WhatIfGain) -> f64 {
        gain.ns as f64 / self.found.analysis.replayed_ns().max(1) as f64
    }

    /// Returns the keys for machines.
    pub(crate) fn json(&self, gain_json: impl Fn(WhatIfGain) -> Json) -> Json {
        let SlowMessages { ratio, p, time_ns, typical_ns, excess_ns, clock_error_ns, label, calls, .. } =
            self.messages;
        let timelines = self.timelines();
        json!({
            "kind": match self.messages.subject {
                NetworkSubject::Node(_) => "node",
                NetworkSubject::Link(..) => "link",
            },
            "hosts": hosts_of(self.found.calls, &timelines),
            "ranks": ranks_of(self.found.calls, &timelines),
            "is_known": self.gain.is_some(),
            "ratio": ratio,
            "p": p,
            "message_ns": time_ns as i64,
            "typical_message_ns": typical_ns as i64,
            "excess_ns": excess_ns as i64,
            "clock_error_ns": clock_error_ns as i64,
            "call": label_text(self.found.calls, Some(label)),
            "receiving_calls": calls,
            "gain": self.gain.map_or(Json::Null, gain_json),
        })
    }

    /// Returns the finding for machines, if the messages are the first cause.
    pub(crate) fn finding_json(&self, gain_json: impl Fn(WhatIfGain) -> Json) -> Json {
        let timelines = self.timelines();
        json!({
            "kind": "network",
            "subject": {
                "ranks": ranks_of(self.found.calls, &timelines),
                "hosts": hosts_of(self.found.calls, &timelines),
                "gpus": [],
            },
            "gain": gain_json(self.gain.unwrap_or_default()),
        })
    }
}

/// Formats how many times as long messages take.
fn ratio_text(ratio: f64) -> String {
    if ratio < 9.95 { format!("{ratio:.1}") } else { format!("{ratio:.0}") }
}
