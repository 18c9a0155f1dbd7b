//! Evidence for or against one cause of longer work, and its words.

use crate::shown_time::{percent, points};
use serde_json::Value as Json;

/// A cause is named if it explains at least this share of the excess.
const MIN_NAMED: f64 = 0.8;
/// A cause is likely if it explains at least this share of the excess.
pub(crate) const MIN_LIKELY: f64 = 0.5;

/// A cause that is examined.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CauseKind {
    /// Threads could run, but had no CPU.
    CpuWait,
    /// Threads were in uninterruptible waits.
    DiskWait,
    /// Python collected garbage.
    GarbageCollection,
    /// There are more ranges or kernels, or larger kernels.
    MoreWork,
    /// The same kernels take longer, and the shader clock is lower.
    GpuClock,
    /// The same kernels take longer, though the shader clock is not lower.
    GpuNotClock,
    /// The same kernels take longer, and clocks are not known.
    GpuSlower,
}

impl CauseKind {
    /// All, in the order of sentences and keys.
    pub(crate) const ALL: [CauseKind; 7] = [
        CauseKind::CpuWait,
        CauseKind::DiskWait,
        CauseKind::GarbageCollection,
        CauseKind::MoreWork,
        CauseKind::GpuClock,
        CauseKind::GpuNotClock,
        CauseKind::GpuSlower,
    ];

    /// Returns its key for machines.
    pub(crate) fn key(self) -> &'static str {
        match self {
            CauseKind::CpuWait => "cpu_wait",
            CauseKind::DiskWait => "disk_wait",
            CauseKind::GarbageCollection => "garbage_collection",
            CauseKind::MoreWork => "more_work",
            CauseKind::GpuClock => "gpu_clock",
            CauseKind::GpuNotClock => "gpu_not_clock",
            CauseKind::GpuSlower => "gpu_slower",
        }
    }

    /// Returns the words that begin a sentence which names it.
    fn heading(self) -> &'static str {
        match self {
            CauseKind::CpuWait => "too little CPU",
            CauseKind::DiskWait => "time in uninterruptible waits, as for a disk or file system",
            CauseKind::GarbageCollection => self.noun(),
            CauseKind::MoreWork => "more work",
            CauseKind::GpuClock => "a lower clock of the GPU",
            CauseKind::GpuNotClock => "a slower GPU, not by its clock",
            CauseKind::GpuSlower => "a slower GPU",
        }
    }

    /// Returns the words for it within a sentence.
    fn noun(self) -> &'static str {
        match self {
            CauseKind::CpuWait => "a lack of CPU",
            CauseKind::DiskWait => "uninterruptible waits, as for disks",
            CauseKind::GarbageCollection => "garbage collection of Python",
            CauseKind::MoreWork => "a larger number of ranges or kernels",
            CauseKind::GpuClock => "a lower clock of the GPU",
            CauseKind::GpuNotClock | CauseKind::GpuSlower => "a slower GPU",
        }
    }
}

/// The share of the longer work of the named ranks that a cause explains.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct ExplainedShare {
    /// The share; above 1 if the cause would make the work longer than it is.
    pub(crate) share: f64,
    /// Half the width of its 95 % interval, if it is estimated from samples.
    pub(crate) error: Option<f64>,
}

/// Evidence for or against one cause of the longer work of the named ranks.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct CauseEvidence {
    /// The cause.
    pub(crate) kind: CauseKind,
    /// The share of the longer work that it explains. If it is not known: a clause that says why, and which option records it.
    pub(crate) explained: Result<ExplainedShare, String>,
    /// The facts, as a clause: `its thread with calls waited for one for 45 % of the steps, other ranks for 2 %`.
    pub(crate) facts: String,
    /// Continues the sentence that names the cause with its reason: `; the CPU quota of a cgroup took 45 % of a CPU`.
    pub(crate) reason: String,
    /// Figures for machines; null if they are not known.
    pub(crate) json: Json,
}

impl CauseEvidence {
    /// Returns the evidence on a cause about which the records say nothing.
    pub(crate) fn not_known(kind: CauseKind, why: impl Into<String>) -> CauseEvidence {
        let explained = Err(why.into());
        CauseEvidence { kind, explained, facts: String::new(), reason: String::new(), json: Json::Null }
    }

    /// Returns the share of the longer work that it explains; 0 if that is not known.
    pub(crate) fn share(&self) -> f64 {
        self.explained.as_ref().map_or(0.0, |explained| explained.share)
    }

    /// Returns whether it explains nearly all of the longer work, most of it within its error, and the records show it
    /// themselves.
    pub(crate) fn is_shown(&self) -> bool {
        // Kernels of an equal grid may have more to do all the same, so that a slower GPU remains a guess.
        let is_guess = matches!(self.kind, CauseKind::GpuNotClock | CauseKind::GpuSlower);
        !is_guess && self.share() >= MIN_NAMED && self.share() - self.error().unwrap_or(0.0) >= MIN_LIKELY
    }

    /// Returns the error of the share, if it is estimated from samples.
    fn error(&self) -> Option<f64> {
        self.explained.as_ref().ok().and_then(|explained| explained.error)
    }

    /// Returns whether it explains most of the longer work.
    pub(crate) fn is_likely(&self) -> bool {
        self.share() >= MIN_LIKELY
    }

    /// Returns whether the records exclude it.
    pub(crate) fn is_excluded(&self) -> bool {
        self.explained.is_ok() && !self.is_likely()
    }

    /// Returns the sentence that names it, as certain or as likely.
    pub(crate) fn naming_text(&self, is_certain: bool) -> String {
        let heading = self.kind.heading();
        let likely = if is_certain { "" } else { " is likely" };
        let CauseEvidence { facts, reason, .. } = self;
        let explained = percent(self.share().min(1.0));
        let error = self.error().map_or(String::new(), |error| format!(" ({})", points(error)));
        format!("{heading}{likely}: {facts}; this explains {explained}{error} of the longer work{reason}")
    }

    /// Returns the words for a cause that is excluded, with the facts.
    pub(crate) fn excluded_text(&self) -> String {
        match &*self.facts {
            "" => self.kind.noun().to_owned(),
            facts => format!("{} ({facts})", self.kind.noun()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn evidence(share: f64, error: Option<f64>) -> CauseEvidence {
        CauseEvidence {
            kind: CauseKind::CpuWait,
            explained: Ok(ExplainedShare { share, error }),
            facts: "it waited".to_owned(),
            reason: "; for a reason".to_owned(),
            json: Json::Null,
        }
    }

    #[test]
    fn a_cause_is_named_by_how_much_it_explains() {
        let of = |share, error| {
            let evidence = evidence(share, error);
            [evidence.is_shown(), evidence.is_likely(), evidence.is_excluded()]
        };
        assert_eq!(of(0.81, None), [true, true, false]);
        assert_eq!(of(0.81, Some(0.3)), [true, true, false]);
        assert_eq!(of(0.81, Some(0.4)), [false, true, false]);
        assert_eq!(of(0.79, None), [false, true, false]);
        assert_eq!(of(0.49, None), [false, false, true]);
        let unknown = CauseEvidence::not_known(CauseKind::CpuWait, "it is not recorded");
        assert!(!unknown.is_likely() && !unknown.is_excluded());
    }

    #[test]
    fn the_sentence_has_the_share_and_its_error() {
        let certain = evidence(1.3, Some(0.034)).naming_text(true);
        let expected =
            "too little CPU: it waited; this explains 100 % (+- 3.4 points) of the longer work; for a reason";
        assert_eq!(certain, expected);
        assert!(evidence(0.6, None).naming_text(false).starts_with("too little CPU is likely: it waited; "));
        assert_eq!(evidence(0.1, None).excluded_text(), "a lack of CPU (it waited)");
    }
}
