//! Time in which ranks may wait for an unknown cause. It forbids a verdict that it could change.

use crate::analysis::WaitAnalysis;
use crate::diagnosis::{DiagnosisLimit, JobDiagnosis, JobVerdict};

/// Maximum time of a thread in calls beyond those of others, as a share of the run.
const MAX_UNEXPLAINED: f64 = 0.05;
/// The same of pauses between polls, where no rank is named.
const MAX_PAUSES: f64 = 0.05;
/// Pauses that are shorter than this share of the gain do not explain it.
const MIN_PAUSES_OF_GAIN: f64 = 0.5;
/// Minimum pauses that forbid a verdict, as a share of the run.
const MIN_PAUSES: f64 = 0.01;

/// Time in calls of one function on one thread, ns, and their number.
#[derive(Clone, Copy, Debug, Default)]
struct TimeInCalls {
    ns: u64,
    calls: u64,
}

impl TimeInCalls {
    fn mean_ns(self) -> Option<f64> {
        (self.calls > 0).then(|| self.ns as f64 / self.calls as f64)
    }
}

impl WaitAnalysis<'_> {
    /// Returns why a verdict may be wrong: ranks may wait in calls for something that is not recorded, or in pauses
    /// between polls, for longer than what the verdict is about.
    pub(crate) fn doubt(&self, diagnosis: &JobDiagnosis) -> Option<DiagnosisLimit> {
        let length = self.replayed_ns().max(1) as f64;
        let named = diagnosis.findings.first();
        let gain = named.map_or(diagnosis.gain_of_all, |finding| finding.gain).ns as f64 / length;
        let (share, label) = self.longest_in_calls(length);
        if share > MAX_UNEXPLAINED.max(gain) {
            return Some(DiagnosisLimit::LongCalls { share, label });
        }
        let timelines = &self.graph.job.timelines;
        let pauses = |timeline: usize| timelines[timeline].poll_pauses_ns as f64 / length;
        let of_named = named.map(|finding| finding.subject.timelines().iter().map(|t| *t as usize).collect());
        let counted: Vec<usize> = of_named.unwrap_or_else(|| (0..timelines.len()).collect());
        let share = counted.into_iter().map(pauses).fold(0.0, f64::max);
        let max = match diagnosis.verdict {
            JobVerdict::Balanced => MAX_PAUSES,
            _ => (gain * MIN_PAUSES_OF_GAIN).max(MIN_PAUSES),
        };
        (share > max).then_some(DiagnosisLimit::PollPauses { share })
    }

    /// Returns how much longer a thread is in calls in the steps than the threads with the shortest calls of each function,
    /// without known waiting: the longest of all threads as a share of the run, and the function that contributes most.
    fn longest_in_calls(&self, length_ns: f64) -> (f64, u32) {
        let times: Vec<Vec<TimeInCalls>> =
            (0..self.graph.job.timelines.len()).map(|of| self.in_calls(of)).collect();
        let shortest: Vec<f64> =
            (0..self.graph.job.labels as usize).map(|label| shortest_mean(&times, label)).collect();
        let mut longest = (0.0, 0);
        for of_labels in &times {
            let (mut all, mut first) = (0.0, (0.0, 0));
            for ((label, found), shortest) in (0u32..).zip(of_labels).zip(&shortest) {
                let more = (found.ns as f64 - found.calls as f64 * shortest).max(0.0);
                all += more;
                if more > first.0 {
                    first = (more, label);
                }
            }
            if all > longest.0 {
                longest = (all, first.1);
            }
        }
        (longest.0 / length_ns, longest.1)
    }

    /// Returns the time of a thread in the calls of each function in the steps, without known waiting.
    fn in_calls(&self, timeline: usize) -> Vec<TimeInCalls> {
        let calls = &self.graph.job.timelines[timeline];
        let mut times = vec![TimeInCalls::default(); self.graph.job.labels as usize];
        let bound = |place: Option<&u32>| place.copied().unwrap_or(0) as usize;
        let steps = &calls.first_call_of_step;
        for number in bound(steps.first())..bound(steps.last()) {
            if calls.is_collective_kernel(number) {
                continue;
            }
            let found = &mut times[calls.calls[number].label as usize];
            // How much longer messages of a slow network take is known.
            let transfer = self.times.transfer_ns(timeline, number);
            let typical = self.graph.typical_transfer_ns(timeline, number, transfer);
            found.ns = found.ns.saturating_add(typical);
            found.calls += 1;
        }
        times
    }
}

/// Returns the shortest mean duration of the calls of a function, of the threads that call it about as often as any.
fn shortest_mean(times: &[Vec<TimeInCalls>], label: usize) -> f64 {
    let most = times.iter().map(|of| of[label].calls).max().unwrap_or(0);
    let often = times.iter().map(|of| of[label]).filter(|found| found.calls * 2 >= most);
    often.filter_map(TimeInCalls::mean_ns).min_by(f64::total_cmp).unwrap_or(0.0)
}
