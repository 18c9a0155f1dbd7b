//! The lines of the summary about collectives, and about the ranks that others wait for.

use super::Report;
use super::words::{counted, duration, grouped, noun};
use crate::agree::clocks::Repair;
use crate::collectives::Matched;
use crate::collectives::late::LateRank;

/// A rank that caused less of the waiting than the first one by this factor is not told: it is late by chance.
const FAR_LESS: i64 = 100;

impl Report {
    /// Keeps what the comparison of collectives has shown.
    pub fn note_collectives(&mut self, matched: &Matched, late_ranks: Vec<LateRank>) {
        self.collectives = matched.counts.clone();
        self.collective_faults = matched.faults.clone();
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
            let mut text = format!("{} of {}", grouped(counts.matched), counted(found, "collective"));
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
                let calls = counted(counts.different, "call");
                let are = if counts.different == 1 { "is" } else { "are" };
                text += &format!(
                    "; {calls} without {} that {are} not the same in all processes",
                    noun(counts.different, "number")
                );
            }
            lines.push(("matched", text));
        }
        lines.extend(self.collective_faults.iter().map(|fault| ("mismatch", fault.clone())));
        let most = self.late_ranks.first().map_or(0, |late| late.waited_ns);
        let told = self.late_ranks.iter().filter(|late| late.waited_ns >= most / FAR_LESS);
        lines.extend(told.map(|late| ("late", late.line())));
        lines.extend(self.repaired.iter().map(|repair| ("repaired", repair.line())));
        lines
    }
}

impl LateRank {
    /// One line.
    fn line(&self) -> String {
        let who = match self.rank {
            Some(rank) => format!("rank {rank} on {}", self.host),
            None => format!("pid {} on {}", self.pid, self.host),
        };
        let bar = match self.clock_bar_ns {
            Some(0) => "one clock".to_owned(),
            Some(bar) if self.is_distinct() => format!("clock bar {}", duration(bar)),
            Some(bar) => format!("clock bar {}: cannot be told from the next", duration(bar)),
            None => "the clocks are not aligned: cannot be told from the next".to_owned(),
        };
        let share = match 100.0 * self.waited_share {
            little if little < 0.5 => "under 1".to_owned(),
            percent => format!("{percent:.0}"),
        };
        format!(
            "{who}: others waited {} for it in all ({share} % of all such waiting), last at {} of its {}, {} behind the next ({bar})",
            duration(self.waited_ns),
            grouped(self.last),
            counted(self.collectives, "collective"),
            duration(self.behind_ns)
        )
    }
}

impl Repair {
    fn line(&self) -> String {
        let Repair { before, after, out_of_reach, moved_ns } = *self;
        if before == 0 {
            return "no rank left a collective before others came: no time was moved".to_owned();
        }
        let far = match out_of_reach {
            0 => String::new(),
            _ => format!("; {} of those are further apart than the bars", grouped(out_of_reach)),
        };
        format!(
            "times were moved by {} at most: ranks left a collective before others came {} before that, and {} now{far}",
            duration(moved_ns),
            counted(before, "time"),
            if after == 0 { "never".to_owned() } else { counted(after, "time") }
        )
    }
}
