//! What the job would gain if slow messages took as long as others.

use crate::analysis::WaitAnalysis;
use crate::call_graph::CallGraph;
use crate::diagnosis::JobDiagnosis;
use crate::scenarios::DurationScenario;
use crate::slow_network::{SlowCall, SlowMessages};
use crate::suspects::min_gain_ns;
use crate::what_if::{WhatIf, WhatIfGain};

/// Slow messages, and what they cost.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct NetworkFinding {
    /// The messages.
    pub messages: SlowMessages,
    /// Gain of the job if they took as long as others.
    pub gain: WhatIfGain,
}

impl JobDiagnosis {
    /// Returns whether slow messages are the first cause: there is no finding, or they cost more than the first one.
    pub fn is_network_first(&self) -> bool {
        let first = self.findings.first().map_or(0, |finding| finding.gain.ns);
        self.network.as_ref().is_some_and(|network| network.gain.ns > first)
    }
}

impl CallGraph<'_> {
    /// Returns the duration of a call without waiting if slow messages took as long as others, ns. `transfer_ns` is its
    /// recorded duration without waiting.
    #[inline]
    pub(crate) fn typical_transfer_ns(&self, timeline: usize, call: usize, transfer_ns: u64) -> u64 {
        let slow = self.slow_network.as_ref().filter(|slow| slow.messages.exceeds_clock_error());
        match slow.and_then(|slow| slow.of_call(timeline, call as u32)) {
            Some(slow) => slow.typical_ns(transfer_ns),
            None => transfer_ns,
        }
    }
}

impl WaitAnalysis<'_> {
    /// Adds the slow messages of the job and their cost to a diagnosis, if that is as much as a finding must have.
    pub(crate) fn add_network(&self, what_if: &WhatIf<'_>, diagnosis: &mut JobDiagnosis) {
        let Some(slow) = &self.graph.slow_network else { return };
        let min_gain = min_gain_ns(self.replayed_ns());
        if !slow.messages.exceeds_clock_error() {
            let in_all =
                |calls: &Vec<SlowCall>| calls.iter().map(|call| call.message_ns).fold(0, u64::saturating_add);
            let longest = slow.calls.iter().map(in_all).max().unwrap_or(0);
            let matters = i64::try_from(longest).is_ok_and(|ns| ns >= min_gain);
            diagnosis.doubtful_network = matters.then_some(slow.messages);
        } else if diagnosis.limits.is_empty() {
            let replayed = what_if.scenarios.replay(vec![DurationScenario::TypicalMessages]);
            let gain = replayed.first().map(|replayed| what_if.gain_over(what_if.recorded, replayed));
            let gain = gain.filter(|gain| gain.ns >= min_gain);
            diagnosis.network = gain.map(|gain| {
                let of_excess = (gain.ns as f64 * slow.messages.relative_error()).round() as i64;
                let error_bound_ns = gain.error_bound_ns.saturating_add(of_excess);
                NetworkFinding { messages: slow.messages, gain: WhatIfGain { error_bound_ns, ..gain } }
            });
        }
    }
}
