//! The threads of a finding beside those of the other ranks in the steps, by which their recorded waits are compared.

use crate::analysed_run::AnalysedRun;
use rpd_graph::JobFinding;

/// Minimum share of the steps in which the waits of a thread are known.
pub(crate) const MIN_KNOWN: f64 = 0.8;

/// Threads with calls.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct FindingThreads {
    /// Those that the finding names.
    pub(crate) named: Vec<u32>,
    /// All others.
    others: Vec<u32>,
    /// By how much the work of the named ones is longer than that of others, ns.
    pub(crate) excess_ns: f64,
}

/// Waits of the threads of a finding.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct ThreadWaits<T> {
    /// Those of each named thread, in their order.
    pub(crate) named: Vec<T>,
    /// Those of the other threads of which they are known.
    pub(crate) others: Vec<T>,
}

/// Why it is not known how much of the longer work waits explain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum UnknownWaits {
    /// They are not recorded of a named thread.
    NotOfNamed,
    /// They are recorded of no other thread for most of the steps.
    NotOfOthers,
    /// They are recorded for too small a part of the steps of a named thread.
    TooShort,
    /// All work of the named threads together is not longer than that of others, but that of their GPUs is.
    NoLongerWork,
}

impl UnknownWaits {
    /// Returns a clause with the reason. `waits` are the unknown ones, and `next` is how to record them of all named threads.
    pub(crate) fn text(self, waits: &str, next: &str) -> String {
        match self {
            UnknownWaits::NotOfNamed => {
                format!("{waits} are not recorded for all threads of the finding ({next})")
            }
            UnknownWaits::NotOfOthers => {
                format!(
                    "{waits} are recorded for under 80 % of the steps of every other rank (record longer)"
                )
            }
            UnknownWaits::TooShort => {
                format!("{waits} are recorded for under 80 % of the steps (record longer)")
            }
            UnknownWaits::NoLongerWork => format!(
                "whether {waits} explain it, as all work of the threads together is not longer than that of others"
            ),
        }
    }
}

impl FindingThreads {
    /// An error if the named ones do not work longer than others.
    pub(crate) fn of(found: &AnalysedRun<'_>, finding: &JobFinding) -> Result<FindingThreads, UnknownWaits> {
        let excess_ns = finding.excess_of_threads_ns().ok_or(UnknownWaits::NoLongerWork)?;
        let timelines = &found.calls.job.timelines;
        let is_thread = |timeline: &u32| !timelines[*timeline as usize].is_stream;
        let named: Vec<u32> = finding.subject.timelines().iter().copied().filter(is_thread).collect();
        let others = 0..timelines.len() as u32;
        let others = others.filter(|other| is_thread(other) && !named.contains(other)).collect();
        Ok(FindingThreads { named, others, excess_ns })
    }

    /// Returns the waits that `waits_in_steps` finds for each thread, if it knows them for most of the steps. `is_recorded` is
    /// whether a thread has any such record.
    pub(crate) fn waits<T>(
        &self,
        is_recorded: impl Fn(u32) -> bool,
        waits_in_steps: impl Fn(u32) -> Option<T>,
    ) -> Result<ThreadWaits<T>, UnknownWaits> {
        if self.named.is_empty() || !self.named.iter().all(|timeline| is_recorded(*timeline)) {
            return Err(UnknownWaits::NotOfNamed);
        }
        let others: Vec<T> = self.others.iter().filter_map(|other| waits_in_steps(*other)).collect();
        if others.is_empty() && !self.others.is_empty() {
            return Err(UnknownWaits::NotOfOthers);
        }
        let named: Option<Vec<T>> = self.named.iter().map(|timeline| waits_in_steps(*timeline)).collect();
        Ok(ThreadWaits { named: named.ok_or(UnknownWaits::TooShort)?, others })
    }
}

/// Returns the start and the end of the steps of a thread, ns in job time.
pub(crate) fn steps_of(found: &AnalysedRun<'_>, timeline: u32) -> (i64, i64) {
    let length_ns = found.analysis.times_in_steps(timeline as usize, 0..found.calls.job.steps).length_ns;
    let start_ns = found.analysis.step_start_ns(timeline as usize, 0);
    (start_ns, start_ns.saturating_add_unsigned(length_ns))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_are_known_of_all_named_threads_and_of_one_other_at_least() {
        let waits = |named: &[u32], others: &[u32], recorded: &[u32], known: &[u32]| {
            let threads = FindingThreads { named: named.to_vec(), others: others.to_vec(), excess_ns: 1.0 };
            let wait_of = |timeline: u32| known.contains(&timeline).then_some(timeline);
            threads.waits(|timeline| recorded.contains(&timeline), wait_of)
        };
        let of =
            |named: &[u32], others: &[u32]| ThreadWaits { named: named.to_vec(), others: others.to_vec() };
        assert_eq!(waits(&[0, 1], &[2, 3], &[0, 1, 2], &[0, 1, 2]), Ok(of(&[0, 1], &[2])));
        assert_eq!(waits(&[0], &[], &[0], &[0]), Ok(of(&[0], &[])), "there is no other thread");
        assert_eq!(waits(&[0, 1], &[2], &[0, 2], &[0, 2]), Err(UnknownWaits::NotOfNamed));
        assert_eq!(waits(&[], &[2], &[2], &[2]), Err(UnknownWaits::NotOfNamed));
        assert_eq!(waits(&[0], &[2], &[0, 2], &[0]), Err(UnknownWaits::NotOfOthers));
        assert_eq!(waits(&[0], &[2], &[0, 2], &[2]), Err(UnknownWaits::TooShort));
    }
}
