use super::Report;
use crate::agree::clocks::Repair;
use crate::collectives::Matched;
use crate::collectives::late::{LateRank, duration, grouped};

impl Report {
    /// Keeps what the comparison of collectives has shown.
    pub fn note_collectives(&mut self, matched: &Matched, late_ranks: Vec<LateRank>) {
        self.collectives = matched.counts.clone();
        self.collective_faults = matched.faults.clone();
        self.collectives_not_used = matched.unproven.clone();
        self.late_ranks = late_ranks;
        if self.late_ranks.is_empty() && self.processes > 1 {
            let why = match (self.collectives.calls, self.collectives.matched) {
                (0, _) if self.collectives.alone == 0 => "no collectives were recorded",
                (_, 0) => "no collectives of different ranks match",
                _ if self.collectives.timed == 0 => {
                    "the collectives that match do not say when ranks waited (calls of RCCL return early: rocprofv3 records their kernels)"
                }
                _ => {
                    "the clocks of the nodes are not aligned, or no collective was one in which all wait for all"
                }
            };
            self.notes.push(format!("{why}: which rank is late cannot be told"));
        }
    }

    /// Label and text of each line about collectives.
    pub(super) fn collective_lines(&self) -> Vec<(&'static str, String)> {
        let mut lines = Vec::new();
        let counts = &self.collectives;
        if counts.calls > 0 {
            let found = counts.matched + counts.incomplete + counts.mismatched + counts.contradicted;
            let mut text = format!("{} of {} collectives", grouped(counts.matched), grouped(found));
            if counts.one_in > 1 {
                text += &format!(" (a sample: one in {})", grouped(counts.one_in));
            }
            let others = [
                (counts.incomplete, "not recorded of all ranks"),
                (counts.mismatched, "not the same in all ranks"),
                (counts.contradicted, "left before others entered"),
            ];
            let others = others.iter().filter(|(n, _)| *n > 0);
            text.extend(others.map(|(n, what)| format!("; {} {what}", grouped(*n))));
            if counts.different > 0 {
                let n = grouped(counts.different);
                text += &format!("; {n} calls without numbers that are not the same in all processes");
            }
            lines.push(("matched", text));
        }
        lines.extend(self.collective_faults.iter().map(|fault| ("mismatch", fault.clone())));
        if !self.collectives_not_used.is_empty() {
            let text = "profilers' files name no communicators, and the times of these calls do not show that all nodes were in the same ones: clocks do not go by them, and ranks are compared on their own nodes only. Record with rpd-collect, or give --clock-file FILE";
            lines.push(("warning", text.to_owned()));
            lines.extend(self.collectives_not_used.iter().map(|text| ("not used", text.clone())));
        }
        lines.extend(self.late_ranks.iter().map(|late| ("late", late.line())));
        if let Some(Repair { before, after, moved_ns }) = self.repaired {
            let text = match before {
                0 => "nobody left a collective before others came: no time was moved".to_owned(),
                _ => format!(
                    "ranks left collectives before others came {} times, and {} times after times were moved by {} at most",
                    grouped(before),
                    grouped(after),
                    duration(moved_ns)
                ),
            };
            lines.push(("repaired", text));
        }
        lines
    }
}
